use super::*;
use henge_api::Table;
use proptest::prelude::*;

/// Contracts that a manager can give: terms as somebody types them.
fn contracts() -> impl Strategy<Value = Terms> {
    use prop::option::of;
    let rates = (of(1..900u32), of(0..900u32), of(1..=1_000_000u32), of(1..99u32));
    let bounds = (of((1..5000u32, of(1..=1000u32))), of(1..1000u32), of(1..=1000u32));
    let share = of((1..=100u32, 0..3u8, 1..900u32, of(0..100u32)));
    (rates, bounds, share).prop_map(|((rate, above, weight, burst), (latency, pending, least), share)| {
        let mut terms = Terms::new();
        let mut put = |key: &str, value: Option<String>| drop(value.map(|v| terms.insert(key.into(), v)));
        put("weight", weight.map(|n| n.to_string()));
        put("pending", pending.map(|n| n.to_string()));
        put("latency", latency.map(|(ms, _)| format!("{ms}ms")));
        put("percentile", latency.and_then(|(_, tenths)| Some((f64::from(tenths?) / 10.0).to_string())));
        put("min_share", least.map(|tenths| format!("{}%", f64::from(tenths) / 10.0)));
        match share {
            None => {
                put("rate", rate.map(|n| format!("{n}.5/s")));
                put("limit", above.map(|n| format!("{}/s", rate.unwrap_or(0) + n + 1)));
                let on_top = rate.is_some() || above.is_some() || latency.is_some();
                put("burst", burst.filter(|_| on_top).map(|n| n.to_string()));
            }
            Some((percent, kind, throughput, tolerance)) => {
                put("share", Some(format!("{percent}%")));
                match (kind, latency) {
                    (0, _) => put("kind", Some("rent".into())),
                    (1, Some(_)) => put("kind", Some("latency".into())),
                    (1, None) => {}
                    _ => {
                        put("kind", Some("throughput".into()));
                        put("throughput", Some(format!("{throughput}/s")));
                        put("tolerance", tolerance.map(|n| format!("{n}%")));
                    }
                }
            }
        }
        terms
    })
}

/// What a node makes of a disk's table.
fn at_node(name: &str, pool: &str, contract: &Terms) -> (String, String, Contract) {
    let mut table = Table::of_disk(name).with("pool", pool);
    contract.iter().for_each(|(key, text)| table.set_term(key, text).unwrap());
    let sent = serde_json::to_vec(&table).unwrap();
    let mut p = serde_json::from_slice::<Table>(&sent).unwrap().params("the disk").unwrap();
    let (name, pool) = (p.text("name").unwrap().unwrap(), p.text("pool").unwrap().unwrap());
    let Some(mut terms) = p.table("contract").unwrap() else { return (name, pool, Contract::default()) };
    let contract = Contract::from_params(&mut terms).unwrap();
    terms.finish().unwrap();
    (name, pool, contract)
}

proptest! {
    /// Typed at a page or a command, sent to the manager, stored, ordered of a node, told by it, adopted: always the same contract.
    #[test]
    fn every_term_goes_round_unchanged(
        terms in contracts(),
        name in prop::sample::select(vec!["7", "true", "1e5", "x y", "inf", "[a]", "{}", "\"q\"", "1979-05-27", "a\nb = 1"]),
    ) {
        let (_, _, meant) = at_node("d", "p", &terms);
        // At a page, and by the command.
        let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
        let mut json = serde_json::Map::from_iter([("capacity".to_owned(), "1GB".into())]);
        for (key, text) in &terms {
            spec.set(key, text).unwrap();
            json.insert(key.clone(), typed(key, text).unwrap());
            prop_assert_eq!(spec.term(key), Some(text.clone()));
        }
        let sent: DiskSpec = serde_json::from_value(json.into()).unwrap();
        prop_assert_eq!(&sent, &spec);
        let stored: DiskSpec = serde_json::from_slice(&serde_json::to_vec(&sent).unwrap()).unwrap();
        prop_assert_eq!(&stored, &spec);
        spec.read().unwrap();
        // To the node and back.
        let reserved = meant.rate.map_or(0, |rate| rate.per_second);
        let ordered: Terms =
            serde_json::from_slice(&serde_json::to_vec(&stored.terms(reserved)).unwrap()).unwrap();
        let (called, pool, made) = at_node(name, name, &ordered);
        prop_assert_eq!((called.as_str(), pool.as_str()), (name, name));
        let pending = meant.pending.or(meant.latency.map(|_| 16));
        prop_assert_eq!(&made, &Contract { pending, ..meant });
        let mut adopted = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
        ordered.iter().for_each(|(key, text)| adopted.set(key, text).unwrap());
        prop_assert_eq!(adopted.terms(reserved), ordered);
    }
}

#[test]
fn what_a_manager_cannot_give_is_said() {
    let spec = |terms: &[(&str, &str)]| {
        let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
        terms.iter().for_each(|(key, text)| spec.set(key, text).unwrap());
        spec.read().map(|read| read.is_best_effort())
    };
    for (terms, says) in [
        (&[("burst", "1MB"), ("rate", "9/s")][..], "burst"),
        (&[("burst", "1MB"), ("latency", "9ms")], "a burst counts requests"),
        (&[("burst", "7")], "on top of a rate"),
        (&[("share", "5%"), ("rate", "9/s")], "state one of them"),
        (&[("kind", "rent")], "share = \"25%\""),
        (&[("share", "5%"), ("kind", "7")], "\"7\" is not a kind"),
        (&[("limit", "1MB/s")], "a limit counts requests"),
        (&[("weight", "0")], "out of range"),
    ] {
        let error = spec(terms).unwrap_err();
        assert!(error.0.contains(says), "{terms:?}: {error}");
    }
    assert_eq!(
        spec(&[("share", "5%"), ("kind", "latency"), ("latency", "9ms")]),
        Ok(true),
        "no rate beside a share"
    );
    let unknown = DiskSpec::default().set("latncy", "").unwrap_err();
    assert!(unknown.0.contains("latency") && unknown.0.contains("min_share"), "{unknown}");
}

#[test]
fn specifications_are_read_with_their_units() {
    let spec = DiskSpec {
        capacity: "96GB".into(),
        rate: Some("675/s".into()),
        latency: Some("120ms".into()),
        ..DiskSpec::default()
    };
    let read = spec.read().unwrap();
    assert_eq!((read.capacity, read.rate), (96_000_000_000, Some(675.0)));
    let terms = spec.terms(675_500_000);
    assert_eq!(terms["rate"], "675.5/s");
    assert_eq!((terms["percentile"].as_str(), terms["pending"].as_str()), ("95", "16"));
    for (bad, says) in [
        (DiskSpec { capacity: "96".into(), ..spec.clone() }, "96"),
        (DiskSpec { rate: Some("-3/s".into()), ..spec.clone() }, "rate"),
        (DiskSpec { percentile: Some(101.0), ..spec.clone() }, "probability"),
        (DiskSpec { parts: Some(0), ..spec.clone() }, "parts"),
        (DiskSpec { limit: Some("9/s".into()), ..spec.clone() }, "limit"),
    ] {
        let error = bad.read().unwrap_err();
        assert!(error.0.contains(says), "{error}");
    }
}
