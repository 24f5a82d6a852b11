//! Any bytes as a certificate, and as the files of an identity's folder, divided by zeroes: names, an error that says which file is
//! wrong, or what counts; never a panic, and nobody by half a certificate.
#![no_main]

use henge_tls::{Identity, TlsConfig};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

const FILES: [&str; 3] = ["identity.pem", "ca.pem", "revoked.pem"];

thread_local! {
    static DIR: PathBuf = {
        let dir = std::env::temp_dir().join(format!("henge-fuzz-identity-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        dir
    };
}

fuzz_target!(|data: &[u8]| {
    let names = henge_tls::names(data);
    assert!(names.len() <= 16 && names.iter().all(|name| name.len() <= 1024));
    if let Some(who) = Identity::of(&names) {
        assert_eq!(Identity::parse(&who.to_string()), Some(who), "who it is can be said");
    }
    let _ = (henge_tls::validity(data), henge_tls::serial_of(data));
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = henge_tls::fingerprint(text);
    }
    DIR.with(|dir| {
        let mut pieces = data.split(|&b| b == 0);
        for name in FILES {
            let path = dir.join(name);
            match pieces.next() {
                Some(bytes) => std::fs::write(&path, bytes).expect("a file"),
                None => drop(std::fs::remove_file(&path)),
            }
        }
        let now = UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        for outcome in [
            henge_tls::counts(dir, now).map_err(|e| e.0),
            henge_tls::is_due(dir, 1_795_000_000).map(drop).map_err(|e| e.0),
            TlsConfig::of(dir).check(now).map_err(|e| e.0),
        ] {
            assert!(outcome.err().is_none_or(|why| why.contains("henge-fuzz-identity")), "it says which file");
        }
    });
});
