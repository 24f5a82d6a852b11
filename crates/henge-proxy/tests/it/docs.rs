//! The guide's configuration is one that the proxy takes.

use henge_proxy::{Config, Who};

/// The blocks of a page, each as its text.
fn blocks(page: &str) -> Vec<&str> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n').map(|(_, text)| text)).collect()
}

#[test]
fn the_guides_example_is_taken_as_it_stands() {
    let page = include_str!("../../../../docs/vpfs.md");
    let blocks = blocks(page);
    let file =
        blocks.iter().find(|b| b.trim_start().starts_with("server =")).expect("the proxy's configuration");
    let rules = blocks.iter().find(|b| b.trim_start().starts_with("[[rule]]")).expect("the rules");
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "correct horse battery staple\n").expect("written");
    let text = format!("{file}\n{rules}").replace("/etc/henge/secret", &secret.path().display().to_string());
    let config =
        Config::parse(henge_config::Source::new("docs/vpfs.md", text)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        config.flows.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
        ["weather", "genomics", "other"]
    );
    assert_eq!(config.peers.expect("peers").peers.len(), 3);
    assert_eq!(config.rules[1].who, Who::User(20001));
    assert!(config.rules[0].who.is_address("10.1.200.3".parse().expect("an address")));
    assert!(!config.rules[0].who.is_address("10.2.0.1".parse().expect("an address")));
}

#[test]
fn what_is_wrong_is_shown_where_it_stands() {
    let parse =
        |text: &str| Config::parse(henge_config::Source::new("proxy.toml", text)).unwrap_err().to_string();
    let good = "server = \"127.0.0.1:3334\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n";
    for (text, wanted) in [
        ("server = \"127.0.0.1:3334\"\n".to_owned(), "nobody can come in"),
        (format!("{good}flow = \"x\"\n"), "proxy.toml:4:8: there is no flow \"x\""),
        (format!("{good}[[rule]]\nflow = \"other\"\nclient = \"10.0.0.0/33\"\n"), "is no address"),
        (format!("{good}[[flow]]\nname = \"a\"\ncontract = {{ wieght = 3 }}\n"), "did you mean \"weight\"?"),
        (format!("{good}[[peer]]\nname = \"b\"\naddress = \"127.0.0.1:1\"\n"), "peers belong to a cluster"),
        (
            format!("{good}[cluster]\nnode = \"a\"\nsecret = \"short\"\nlisten = \"127.0.0.1:1\"\n"),
            "at least 16 characters",
        ),
        (
            format!(
                "{good}[cluster]\nnode = \"a\"\nidentity = \"/x\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:1\"\n"
            ),
            "take the secret out",
        ),
    ] {
        let error = parse(&text);
        assert!(error.contains(wanted), "{error}");
    }
}
