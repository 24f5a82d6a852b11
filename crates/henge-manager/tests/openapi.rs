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
