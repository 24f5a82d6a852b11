//! A disk as a manager wants it, written as the node's configuration has it.
//!
//! A manager is trusted with the disks that it makes, and with nothing else of a node. So it states [`KEYS`] and terms of a contract,
//! and each is one value on one line: none begins another table, names a file of the node's, or opens a door that `access` does not.

use henge_api::manager::{Access, Want};
use henge_api::quoted;

/// Keys of a disk that a manager states, besides its name, its contract, and who may attach.
const KEYS: [&str; 4] = ["capacity", "leeway", "pool", "pools"];

/// Whether it states nothing else.
pub(super) fn check(want: &Want) -> Result<(), String> {
    let known = |key: &&String| KEYS.contains(&key.as_str());
    if let Some(key) = want.keys.keys().find(|key| !known(key)) {
        return Err(format!("a manager states {} of a disk, not {key:?}", KEYS.join(", ")));
    }
    let is_term = |key: &String| !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if let Some(key) = want.contract.keys().find(|key| !is_term(key)) {
        return Err(format!("{key:?} is no term of a contract"));
    }
    let access = want.access.iter().flat_map(|a| a.nbd.iter().chain([&a.user, &a.chap, &a.nvme]));
    let mut texts = want.keys.values().chain(want.contract.values()).chain(access);
    match texts.find(|text| text.chars().any(char::is_control)) {
        Some(text) => Err(format!("{text:?} is more than one value")),
        None => Ok(()),
    }
}

/// The disk's table.
pub(super) fn table(name: &str, want: &Want) -> String {
    let keys = want.keys.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let contract = want.contract.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut text = henge_api::disk_table(name, keys, contract);
    if let Some(access) = &want.access {
        text.push_str(&doors(access));
    }
    text
}

/// Who may attach.
pub(super) fn doors(access: &Access) -> String {
    let nbd = match access.nbd.as_slice() {
        [] => "\"nobody\"".to_owned(),
        [anyone] if anyone == "anyone" => "\"anyone\"".to_owned(),
        names => {
            let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            format!("{{ certificates = [{}] }}", names.join(", "))
        }
    };
    let [user, chap, nvme] = [&access.user, &access.chap, &access.nvme].map(|text| quoted(text));
    format!("nbd = {nbd}\niscsi = {{ user = {user}, secret = {chap} }}\nnvme = {{ secret = {nvme} }}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want() -> Want {
        let terms =
            |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Want {
            keys: terms(&[("capacity", "1GB"), ("leeway", "2"), ("pools", "[\"a/p\", \"b/p\"]")]),
            contract: terms(&[("rate", "5/s"), ("percentile", "95")]),
            peers: Default::default(),
            room: None,
            access: Some(Access {
                nbd: vec!["CN=ann".into()],
                user: "web".into(),
                chap: "twelve bytes".into(),
                nvme: "DHHC-1:00:x:".into(),
            }),
        }
    }

    #[test]
    fn a_manager_states_a_disk_and_nothing_beside_it() {
        assert_eq!(check(&want()), Ok(()));
        let text = table("web", &want());
        assert!(
            text.starts_with("name = \"web\"\ncapacity = \"1GB\"\nleeway = 2\npools = [\"a/p\", \"b/p\"]\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "contract.percentile = 95.0\ncontract.rate = \"5/s\"\nnbd = { certificates = [\"CN=ann\"] }\n"
            ),
            "{text}"
        );
        // A letter that Rust prints as an escape which TOML does not know.
        let mut marked = want();
        marked.access.as_mut().unwrap().nbd = vec!["CN=Zoe\u{308}".into()];
        let text = henge_config::Source::new("order", table("web", &marked));
        assert!(text.parse("disk").is_ok(), "{}", table("web", &marked));
        type Spoil = fn(&mut Want);
        let spoiled: [(Spoil, &str); 7] = [
            (
                |w| drop(w.keys.insert("nvme".into(), "{ secret_file = \"/etc/shadow\" }".into())),
                "not \"nvme\"",
            ),
            (|w| drop(w.keys.insert("pool = \"p\"\nnbd".into(), "anyone".into())), "not \"pool"),
            (|w| drop(w.keys.insert("leeway".into(), "[1]\n[[disk]]\nname = \"x\"".into())), "more than one"),
            (|w| drop(w.contract.insert("rate".into(), "[1]\r\nnbd = \"anyone\"".into())), "more than one"),
            (|w| drop(w.contract.insert("rate = 1, x".into(), "1".into())), "no term"),
            (|w| w.access.iter_mut().for_each(|a| a.nbd.push("CN=a\nb".into())), "more than one"),
            (|w| w.access.iter_mut().for_each(|a| a.chap.push('\0')), "more than one"),
        ];
        for (i, (spoil, says)) in spoiled.into_iter().enumerate() {
            let mut want = want();
            spoil(&mut want);
            let why = check(&want).expect_err(&format!("spoiled {i} is taken"));
            assert!(why.contains(says), "{i}: {why}");
        }
    }
}
