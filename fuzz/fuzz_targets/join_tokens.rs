//! Any text as a token to join by, and as a request for a certificate: nobody is signed for under another name than the authority's.
#![no_main]

use henge_tls::{Identity, Role, Root, Token};
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

thread_local! {
    static ROOT: Root = Root::open(&Root::create("demo", now()).expect("a root")).expect("it opens");
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_000_000)
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.reveal(), text.trim(), "it is what was printed");
        assert_eq!(token.hash().len(), 64);
    }
    if henge_tls::check_request(text).is_err() {
        return;
    }
    ROOT.with(|root| {
        let who = Identity { cluster: "demo".into(), role: Role::Client, name: "ann".into() };
        let hosts = ["h.example.org".to_owned()];
        let Ok(issued) = root.issue(text, &who, &hosts, "", now(), Duration::from_secs(60)) else { return };
        let dir = std::env::temp_dir().join(format!("henge-fuzz-invited-{}", std::process::id()));
        std::fs::write(&dir, &issued.chain).expect("a file");
        let chain = henge_tls::certificates(&dir).expect("a chain");
        let mut names = henge_tls::names(&chain[0]);
        names.sort();
        assert_eq!(names, ["CN=ann", "h.example.org", "spiffe://demo/client/ann"], "of a request, the key alone is believed");
    });
});
