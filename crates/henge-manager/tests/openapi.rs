//! The OpenAPI document in the repository is the server's.

#[test]
fn the_document_in_the_repository_is_the_servers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let kept = std::fs::read_to_string(path).expect("docs/openapi.json");
    assert!(
        kept == henge_manager::openapi(),
        "docs/openapi.json is not the server's; `make openapi` writes it anew"
    );
}

/// Whoever adds a term to the table gives it to specifications and their changes as well.
#[test]
fn specifications_have_every_term_of_the_table() {
    use henge_core::{PLACING, TERMS, Written};
    let document: serde_json::Value = serde_json::from_str(&henge_manager::openapi()).expect("JSON");
    let mut terms: Vec<_> = TERMS.iter().chain(&PLACING).map(|term| (term.key, term.written)).collect();
    terms.sort_unstable_by_key(|(key, _)| *key);
    for schema in ["DiskSpec", "DiskPatch"] {
        let properties =
            document["components"]["schemas"][schema]["properties"].as_object().expect("properties");
        let mut keys: Vec<&str> = properties.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, terms.iter().map(|(key, _)| *key).collect::<Vec<_>>(), "{schema}");
        for (key, written) in &terms {
            let kind = match written {
                Written::Count => "integer",
                Written::Number => "number",
                _ => "string",
            };
            let is = &properties[*key]["type"];
            let is = is.as_str().or_else(|| is[0].as_str());
            assert_eq!(is, Some(kind), "{schema}.{key}");
        }
    }
}

#[test]
fn the_reference_tells_of_every_term() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
    let reference = std::fs::read_to_string(path).expect("docs/reference.md");
    for term in &henge_core::TERMS {
        assert!(reference.contains(&format!("\n| `{}` |", term.key)), "{} is not in the reference", term.key);
    }
}
