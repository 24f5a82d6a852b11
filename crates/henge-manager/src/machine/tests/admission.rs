//! Which disks are taken, where they lie, and what holds their places.

use super::*;
use crate::decide::Because;
use crate::model::Phase;
use henge_api::manager::Seen;

#[test]
fn disks_are_admitted_until_the_nodes_are_full_and_served_where_they_were_placed() {
    let (mut machine, mut nodes) = three();
    let mut made = 0;
    let refusal = loop {
        match machine.create(&ADMIN, &format!("d{made}"), &spec(10, Some(40), Some(120)), None, None) {
            Ok(_) => made += 1,
            outcome => break refused(outcome),
        }
        machine.check().unwrap();
    };
    // 8/(0.120 − 0.014) = 75.5/s: six on each of three nodes of 500/s.
    assert_eq!((made, refusal.because), (18, Because::Full));
    settle(&mut machine, &mut nodes);
    assert!(machine.disks().all(|d| d.phase == Phase::Ready && d.parts.iter().all(|p| p.confirmed > 0)));
    assert!(nodes.values().all(|n| n.disks.len() == 6), "{nodes:?}");
    assert!(nodes["a"].disks.values().all(|h| h.contract["rate"] == "75.471699/s"));
}

#[test]
fn what_is_said_to_fit_is_admitted() {
    let (mut machine, _) = three();
    machine.create(&ADMIN, "big", &spec(10, Some(400), None), None, None).unwrap();
    machine.create(&ADMIN, "big2", &spec(10, Some(400), None), None, None).unwrap();
    machine.create(&ADMIN, "big3", &spec(10, Some(400), None), None, None).unwrap();
    let asked = spec(10, Some(200), Some(60));
    let instead = refused(machine.create(&ADMIN, "x", &asked, None, None)).instead;
    let latency = DiskSpec { latency: instead.latency.clone(), rate: None, ..asked.clone() };
    assert!(machine.preview(&ADMIN, &latency).unwrap().admitted, "{instead:?}");
    let asked = spec(10, Some(200), None);
    let instead = refused(machine.create(&ADMIN, "x", &asked, None, None)).instead;
    assert_eq!(instead.rate.as_deref(), Some("100/s"));
    assert!(machine.preview(&ADMIN, &DiskSpec { rate: instead.rate, ..asked }).unwrap().admitted);
    let asked = spec(400, None, None);
    let refusal = refused(machine.create(&ADMIN, "x", &asked, None, None));
    assert_eq!(refusal.because, Because::Impossible);
    assert!(
        machine
            .preview(&ADMIN, &DiskSpec { capacity: refusal.instead.capacity.unwrap(), ..asked })
            .unwrap()
            .admitted
    );
}

#[test]
fn a_bound_that_no_node_keeps_is_named_with_the_smallest_that_one_could() {
    let (mut machine, _) = three();
    let asked = spec(1, None, Some(10));
    let refusal = refused(machine.create(&ADMIN, "x", &asked, None, None));
    assert_eq!(refusal.because, Because::Impossible);
    // 8/500 + 14 ms.
    assert_eq!(refusal.instead.latency.as_deref(), Some("30ms"));
    assert!(
        machine.preview(&ADMIN, &DiskSpec { latency: refusal.instead.latency, ..asked }).unwrap().admitted
    );
    let copies = DiskSpec { copies: Some(2), ..spec(1, None, None) };
    assert!(refused(machine.create(&ADMIN, "x", &copies, None, None)).why.contains("copies"));
}

#[test]
fn a_place_is_free_only_when_the_node_says_so() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(250, None, None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    let session = ["a", "b", "c"].iter().position(|n| *n == on).unwrap() as u64;
    machine.gone(&on, session);
    assert_eq!(machine.remove(&ADMIN, "d", None, false), Ok(false));
    assert_eq!(machine.inventory.pool(&on, "p").unwrap().used, 250 * GB);
    assert!(matches!(
        machine.create(&ADMIN, "d", &spec(1, None, None), None, None),
        Err(Failure::Conflict(_))
    ));
    machine.register(9, nodes[&on].register(&on));
    settle(&mut machine, &mut nodes);
    assert_eq!(machine.inventory.pool(&on, "p").unwrap().used, 0);
    assert!(machine.inventory.disk("d").is_none() && nodes[&on].disks.is_empty());
}

#[test]
fn a_token_of_a_disk_ends_with_it() {
    let (mut machine, mut nodes) = three();
    let mut all = BTreeMap::new();
    for name in ["web", "db"] {
        machine.create(&ADMIN, name, &spec(10, None, None), Some("ann"), None).unwrap();
    }
    settle(&mut machine, &mut nodes);
    let token = |machine: &mut Machine, disk: &str| {
        let scope = crate::tokens::Scope { tenant: Some("ann".into()), read: false, disk: Some(disk.into()) };
        let (token, record) = crate::tokens::create(scope, 0, None).unwrap();
        machine.tokens.put(&mut machine.journal, record);
        token
    };
    let (web, db) = (token(&mut machine, "ann.web"), token(&mut machine, "ann.db"));
    machine.remove(&ADMIN, "ann.web", None, false).unwrap();
    assert!(crate::tokens::known(&machine, &web).is_ok(), "it is there until its nodes have said otherwise");
    settle(&mut machine, &mut nodes);
    // Another disk of that name is none of its business.
    machine.create(&ADMIN, "web", &spec(10, None, None), Some("ann"), None).unwrap();
    let machine = stored(&mut machine, &mut all);
    assert!(crate::tokens::known(&machine, &web).is_err() && crate::tokens::known(&machine, &db).is_ok());
}

#[test]
fn a_draining_node_gets_nothing_new_and_keeps_what_it_has() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "old", &spec(10, Some(50), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("old").unwrap().parts[0].node.clone();
    machine.drain(&on, true).unwrap();
    assert!(matches!(machine.drain("nobody", true), Err(Failure::Missing(_))));
    let mut made = 0;
    while machine.create(&ADMIN, &format!("d{made}"), &spec(10, Some(50), None), None, None).is_ok() {
        made += 1;
    }
    // Ten of 50/s on each of the other two.
    assert_eq!(made, 20);
    assert!(machine.disks().all(|d| d.name == "old" || d.parts[0].node != on));
    let three = DiskSpec { parts: Some(3), ..spec(3, None, None) };
    let refusal = refused(machine.create(&ADMIN, "striped", &three, None, None));
    assert!(refusal.why.contains("2 are here and take new disks"), "{}", refusal.why);
    // What is there may change, and the node that comes again still drains.
    machine.change(&ADMIN, "old", &spec(20, Some(60), None), None).unwrap();
    settle(&mut machine, &mut nodes);
    machine.register(9, nodes[&on].register(&on));
    settle(&mut machine, &mut nodes);
    assert!(
        machine.inventory.node(&on).unwrap().record.draining
            && machine.inventory.disk("old").unwrap().phase == Phase::Ready
    );
    assert!(machine.create(&ADMIN, "more", &spec(10, Some(50), None), None, None).is_err());
    machine.drain(&on, false).unwrap();
    machine.create(&ADMIN, "more", &spec(10, Some(50), None), None, None).unwrap();
    assert_eq!(machine.inventory.disk("more").unwrap().parts[0].node, on);
}

#[test]
fn a_key_makes_one_disk_however_often_it_is_used() {
    let (mut machine, _) = three();
    let create = |machine: &mut Machine, hash: &str| {
        machine.create(&ADMIN, "d", &spec(1, None, None), None, Some(("k", hash)))
    };
    assert!(create(&mut machine, "h").unwrap().fresh);
    assert!(!create(&mut machine, "h").unwrap().fresh);
    assert!(matches!(create(&mut machine, "other"), Err(Failure::Bad(_))));
    assert_eq!(machine.disks().count(), 1);
}

#[test]
fn conditions_are_kept() {
    let (mut machine, _) = three();
    machine.create(&ADMIN, "d", &spec(1, None, None), None, None).unwrap();
    let revision = machine.inventory.disk("d").unwrap().revision;
    let changed = spec(1, Some(5), None);
    assert!(matches!(machine.change(&ADMIN, "d", &changed, Some(revision + 1)), Err(Failure::Changed(_))));
    machine.change(&ADMIN, "d", &changed, Some(revision)).unwrap();
    assert!(matches!(machine.remove(&ADMIN, "d", Some(revision), true), Err(Failure::Changed(_))));
}

#[test]
fn measurement_admits_more_than_the_worst_case_once_it_has_settled() {
    let mut machine =
        Machine::load(Settings { settle_ms: 60_000, window_ms: 600_000, ..Settings::default() }, Vec::new())
            .unwrap();
    let mut nodes: BTreeMap<String, FakeNode> = [("a".to_owned(), FakeNode::default())].into();
    machine.register(1, nodes["a"].register("a"));
    let mut made = 0;
    for _ in 0..3 {
        while machine.create(&ADMIN, &format!("d{made}"), &spec(10, Some(40), Some(120)), None, None).is_ok()
        {
            made += 1;
            settle(&mut machine, &mut nodes);
        }
        for _ in 0..11 {
            let seen = (0..made).map(|i| Seen {
                name: format!("d{i}"),
                commands: 25 * 60,
                peak: 40,
                latency: vec![(26_000_000, 1500)],
            });
            machine.period("a", 60.0, &seen.collect::<Vec<_>>());
        }
    }
    assert!(made > 6, "six by the worst case, {made} by measurement");
    let reserved: u64 = machine.disks().map(|d| d.parts[0].reserved_micro).sum();
    assert!(reserved <= 500_000_000 + 75_500_000, "{reserved}: reservations follow the measurement");
}
