//! A disk as a manager wants it, as a disk's table has it.
//!
//! A manager is trusted with the disks that it makes, and with nothing else of a node. An order has a place for each thing that it says of
//! a disk ([`Want`]), and each becomes one value. So none names a file of the node's, or opens a door that `access` does not.

use henge_api::manager::{Access, Want};
use henge_api::{Table, Terms};
use serde_json::json;

/// Whether its texts may be shown to people.
pub(super) fn check(want: &Want) -> Result<(), String> {
    let access = want.access.iter().flat_map(|a| a.nbd.iter().chain([&a.user, &a.chap, &a.nvme]));
    let terms = |terms: &Terms| terms.clone().into_iter().flat_map(|(key, text)| [key, text]);
    let origin = want.origin.image.iter().chain(&want.origin.from);
    let own = want
        .pools
        .iter()
        .chain(&want.gateways)
        .chain(origin)
        .chain(access)
        .cloned()
        .chain(terms(&want.contract))
        .chain(terms(&want.peers));
    match own.into_iter().find(|text| text.chars().any(char::is_control)) {
        Some(text) => Err(format!("{text:?} has characters that no text of a disk has")),
        None => Ok(()),
    }
}

/// The disk's table.
pub(super) fn table(name: &str, want: &Want) -> Result<Table, String> {
    let mut table = Table::of_disk(name);
    table.set("capacity", format!("{}B", want.capacity));
    match want.pools.as_slice() {
        [pool] if !want.gateways.is_empty() => {
            table.set("pool", pool.as_str());
            table.set("gateways", want.gateways.as_slice());
        }
        pools => table.set("pools", pools),
    }
    for (key, text) in [("image", &want.origin.image), ("from", &want.origin.from)] {
        text.iter().for_each(|text| table.set(key, text.as_str()));
    }
    if want.origin.adopt {
        table.set("adopt", true);
    }
    if let Some(leeway) = want.leeway {
        table.set("leeway", leeway);
    }
    want.contract.iter().try_for_each(|(key, text)| table.set_term(key, text))?;
    table.extend(want.access.iter().flat_map(doors));
    Ok(table)
}

/// Who may attach.
pub(super) fn doors(access: &Access) -> Table {
    let nbd = match access.nbd.as_slice() {
        [] => json!("nobody"),
        [anyone] if anyone == "anyone" => json!("anyone"),
        names => json!({ "certificates": names }),
    };
    Table::default()
        .with("nbd", nbd)
        .with("iscsi", json!({ "user": access.user, "secret": access.chap }))
        .with("nvme", json!({ "secret": access.nvme }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::manager::Origin;

    fn want() -> Want {
        let terms =
            |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Want {
            capacity: 1 << 30,
            pools: vec!["a/p".into(), "b/p".into()],
            leeway: Some(2.0),
            contract: terms(&[("rate", "5/s"), ("percentile", "95")]),
            peers: Default::default(),
            room: None,
            gateways: Vec::new(),
            origin: Default::default(),
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
        let meant = json!({
            "name": "web", "capacity": "1073741824B", "pools": ["a/p", "b/p"], "leeway": 2.0,
            "contract": { "rate": "5/s", "percentile": 95.0 }, "nbd": { "certificates": ["CN=ann"] },
            "iscsi": { "user": "web", "secret": "twelve bytes" }, "nvme": { "secret": "DHHC-1:00:x:" },
        });
        assert_eq!(serde_json::to_value(table("web", &want()).unwrap()).unwrap(), meant);
        // On a pool that several share, of a snapshot.
        let origin = Origin { from: Some("golden@1".into()), adopt: true, ..Origin::default() };
        let gateways = vec!["gw2".to_owned(), "gw1".into()];
        let shared =
            Want { pools: vec!["ceph".into()], leeway: None, access: None, gateways, origin, ..want() };
        let meant = json!({
            "name": "web", "capacity": "1073741824B", "pool": "ceph", "gateways": ["gw2", "gw1"], "from": "golden@1", "adopt": true,
            "contract": { "rate": "5/s", "percentile": 95.0 },
        });
        assert_eq!(serde_json::to_value(table("web", &shared).unwrap()).unwrap(), meant);
        // Whatever a text looks like, it is the value of its own key.
        let mut odd = want();
        let texts = ["x\", secret_file = \"/etc/shadow", "CN=Zoe\u{308}", "[a]"];
        odd.access.as_mut().unwrap().nbd = texts.map(str::to_owned).into();
        odd.pools = vec!["7".into()];
        let table = table("true", &odd).unwrap();
        assert_eq!((table.name(), table.get("pools")), (Some("true"), Some(&json!(["7"]))));
        assert_eq!(table.get("nbd"), Some(&json!({ "certificates": texts })));
        type Spoil = fn(&mut Want);
        let spoiled: [Spoil; 7] = [
            |w| w.gateways.push("a\nb".into()),
            |w| w.origin.image = Some("a\tb".into()),
            |w| drop(w.contract.insert("rate".into(), "[1]\r\nnbd = \"anyone\"".into())),
            |w| drop(w.contract.insert("ra\x1bte".into(), "1".into())),
            |w| w.access.iter_mut().for_each(|a| a.nbd.push("CN=a\nb".into())),
            |w| w.access.iter_mut().for_each(|a| a.chap.push('\0')),
            |w| w.pools.push("p\n".into()),
        ];
        for (i, spoil) in spoiled.into_iter().enumerate() {
            let mut want = want();
            spoil(&mut want);
            let why = check(&want).expect_err(&format!("spoiled {i} is taken"));
            assert!(why.contains("no text of a disk has"), "{i}: {why}");
        }
    }

    #[test]
    fn a_term_that_is_no_number_is_refused_by_its_key() {
        let mut wrong = want();
        wrong.contract.insert("weight".into(), "much".into());
        let why = table("web", &wrong).unwrap_err();
        assert!(why.contains("weight is a whole number"), "{why}");
    }
}
