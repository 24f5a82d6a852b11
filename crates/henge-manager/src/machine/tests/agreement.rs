//! How manager and nodes come to agree, where one of them knows what the other does not.

use super::*;
use crate::model::Phase;

#[test]
fn the_stricter_contract_holds_its_place_until_the_node_has_the_new_one() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, Some(400), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    machine.change(&ADMIN, "d", &spec(10, Some(50), None), None).unwrap();
    let free =
        |machine: &Machine| machine.inventory.pool(&on, "p").unwrap().standing.as_ref().unwrap().free();
    assert!((free(&machine) - 100.0).abs() < 1e-6, "{}", free(&machine));
    settle(&mut machine, &mut nodes);
    assert!((free(&machine) - 450.0).abs() < 1e-6, "{}", free(&machine));
    // More than there is: the old contract stays.
    let refusal = machine.change(&ADMIN, "d", &spec(10, Some(600), None), None);
    assert!(matches!(refusal, Err(Failure::Refused(_))));
    assert_eq!(machine.inventory.disk("d").unwrap().spec.rate.as_deref(), Some("50/s"));
}

#[test]
fn a_contract_changed_at_the_node_is_merged_and_the_difference_shown() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, Some(100), Some(200)), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    {
        let held = nodes.get_mut(&on).unwrap().disks.get_mut("d").unwrap();
        held.contract.insert("latency".into(), "150ms".into()); // stricter
        held.contract.insert("rate".into(), "20/s".into()); // laxer
        held.changed = true;
    }
    machine.register(7, nodes[&on].register(&on));
    settle(&mut machine, &mut nodes);
    let disk = machine.inventory.disk("d").unwrap();
    assert_eq!(disk.spec.latency.as_deref(), Some("150ms"));
    assert_eq!(disk.spec.rate.as_deref(), Some("100/s"));
    assert_eq!(disk.differences.len(), 2, "{:?}", disk.differences);
    let contract = &nodes[&on].disks["d"].contract;
    assert_eq!((contract["latency"].as_str(), contract["rate"].as_str()), ("150ms", "100/s"));
    machine.change(&ADMIN, "d", &spec(10, Some(100), Some(200)), None).unwrap();
    assert!(machine.inventory.disk("d").unwrap().differences.is_empty(), "settled by whoever changes it");
}

#[test]
fn a_manager_whose_state_was_restored_gives_orders_that_its_nodes_take() {
    let (mut machine, mut nodes) = three();
    for name in ["kept", "gone"] {
        machine.create(&ADMIN, name, &spec(10, Some(50), None), None, None).unwrap();
    }
    settle(&mut machine, &mut nodes);
    let mut all = BTreeMap::new();
    let mut old = stored(&mut machine, &mut all);
    // What happens after that is forgotten.
    for rate in [90, 70] {
        for name in ["kept", "gone"] {
            machine.change(&ADMIN, name, &spec(10, Some(rate), None), None).unwrap();
        }
        settle(&mut machine, &mut nodes);
    }
    old.remove(&ADMIN, "gone", None, true).unwrap();
    for (session, (name, node)) in nodes.iter().enumerate() {
        old.register(session as u64, node.register(name));
    }
    let known = |nodes: &BTreeMap<String, FakeNode>, order: &Order| {
        let held = nodes.values().find_map(|node| node.disks.get(&order.name));
        held.and_then(|held| held.revision).unwrap_or(0)
    };
    let orders = old.take_orders();
    let latest: BTreeMap<&str, &Order> = orders.iter().map(|(_, o)| (o.name.as_str(), o)).collect();
    assert!(
        latest.values().all(|order| order.revision > known(&nodes, order)),
        "nodes refuse orders from before"
    );
    for (node, order) in orders {
        nodes.get_mut(&node).unwrap().obey(&order);
        old.done(&node, &order.name, order.revision, None);
    }
    settle(&mut old, &mut nodes);
    // The stricter contract holds, as where somebody had changed it there.
    let disk = old.inventory.disk("kept").unwrap();
    assert_eq!((disk.phase, disk.spec.rate.as_deref()), (Phase::Ready, Some("70/s")));
    assert!(old.inventory.disk("gone").is_none() && nodes.values().all(|node| !node.has("gone")));
    old.check().unwrap();
}

#[test]
fn a_node_that_counts_without_end_takes_no_number_from_others() {
    let (mut machine, mut nodes) = three();
    let liar = nodes.get_mut("a").unwrap();
    for (name, revision) in [("first", 1 << 53), ("second", 1 << 52)] {
        let pools = vec!["p".to_owned()];
        let (revision, contract) = (Some(revision), Default::default());
        let held = Held {
            name: name.into(),
            pools,
            capacity: GB,
            contract,
            revision,
            changed: false,
            gateways: Vec::new(),
        };
        liar.disks.insert(name.into(), held);
    }
    machine.register(7, nodes["a"].register("a"));
    machine.create(&ADMIN, "d", &spec(10, None, None), None, None).unwrap();
    let revision = machine.inventory.disk("d").unwrap().revision;
    let done =
        henge_api::manager::FromNode::Done { name: "d".into(), revision: revision + (1 << 51), error: None };
    assert_eq!(crate::heard::said(&done), Ok(()), "every node would be sent away for it");
}

#[test]
fn a_node_that_has_lost_a_disk_does_not_serve_an_empty_one_unsaid() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, None, None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    nodes.get_mut(&on).unwrap().disks.clear();
    let told = |machine: &Machine| machine.events(0).filter(|event| event.kind == "difference").count();
    for session in 7..10 {
        machine.register(session, nodes[&on].register(&on));
        assert_eq!(told(&machine), 1, "once, however often it comes");
    }
    settle(&mut machine, &mut nodes);
    let disk = machine.inventory.disk("d").unwrap();
    assert!(disk.phase == Phase::Ready && nodes[&on].has("d"));
    assert_eq!(disk.differences["disk"].node, None);
    machine.change(&ADMIN, "d", &spec(10, None, None), None).unwrap();
    assert!(machine.inventory.disk("d").unwrap().differences.is_empty(), "settled by whoever has seen it");
    // One that it has yet to make is no news.
    settle(&mut machine, &mut nodes);
    machine.create(&ADMIN, "e", &spec(10, None, None), None, None).unwrap();
    let on = machine.inventory.disk("e").unwrap().parts[0].node.clone();
    machine.register(11, nodes[&on].register(&on));
    assert_eq!(told(&machine), 1);
}

#[test]
fn a_disk_that_the_manager_forgot_is_taken_in_again() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, Some(100), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    let mut young = fresh();
    young.register(1, nodes[&on].register(&on));
    settle(&mut young, &mut nodes);
    let disk = young.inventory.disk("d").unwrap();
    assert_eq!((disk.spec.rate.as_deref(), disk.spec.capacity.as_str()), (Some("100/s"), "10000000000B"));
    assert!(disk.differences.contains_key("disk") && disk.phase == Phase::Ready);
    young.check().unwrap();
}

/// A node that was stolen says how others' disks fare: neither the API nor the page believes it.
#[test]
fn a_node_has_meters_of_its_own_disks_alone() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, Some(10), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    let thief = nodes.keys().find(|name| **name != on).unwrap().clone();
    let disk = |name: &str| henge_api::DiskStatus { name: name.into(), ..Default::default() };
    for node in [&on, &thief] {
        let disks = vec![disk("d"), disk("own")];
        machine.stats(node, henge_api::Status { disks, ..Default::default() });
    }
    let said = |node: &str| {
        let status = machine.inventory.node(node).unwrap().status.clone().unwrap();
        status.disks.iter().map(|disk| disk.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!((said(&on), said(&thief)), (vec!["d".into(), "own".into()], vec!["own".to_owned()]));
}

/// A node that was stolen names others' pools: nothing of that counts, and nobody is ordered to make anything.
#[test]
fn a_node_alone_places_no_disk_at_others() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "known", &spec(10, Some(10), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let used = |machine: &Machine| {
        ["b", "c", "away"].map(|node| machine.inventory.pool(node, "p").map_or(0, |pool| pool.used))
    };
    let before = used(&machine);
    let lies = [
        (vec!["a/p", "b/p"], vec![]),
        (vec!["a/p", "away/p"], vec![]),
        (vec!["b/p"], vec!["b", "a"]),
        (vec!["a/p"], vec!["b"]),
        (vec!["p"], vec!["c", "b"]),
        (vec!["p", "c/p"], vec![]),
        (vec!["b/p"], vec![]),
    ];
    for (i, (pools, gateways)) in lies.into_iter().enumerate() {
        let texts = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
        let held = Held {
            name: format!("lie{i}"),
            pools: texts(pools),
            capacity: 100 * GB,
            contract: [("rate".to_owned(), "400/s".to_owned())].into(),
            revision: Some(3),
            changed: false,
            gateways: texts(gateways),
        };
        nodes.get_mut("a").unwrap().disks.insert(held.name.clone(), held);
    }
    for session in 7..10 {
        machine.register(session, nodes["a"].register("a"));
        machine.register(session + 10, nodes["b"].register("b"));
    }
    let of_lies = machine.take_orders().into_iter().filter(|(_, order)| order.name.starts_with("lie"));
    let ordered: Vec<_> = of_lies.map(|(node, order)| format!("{} of {node}", order.name)).collect();
    assert_eq!((used(&machine), ordered), (before, Vec::new()), "used elsewhere, and orders");
    let told: Vec<_> = machine.events(0).filter(|event| event.kind == "refused").collect();
    assert_eq!(told.len(), 1, "once, however often it comes: {told:?}");
    assert!(told[0].node.as_deref() == Some("a") && told[0].text.contains("\"b\" does not"), "{told:?}");
    machine.check().unwrap();
}

/// Whoever agrees with it only in part does not make it more than its own word.
#[test]
fn nodes_that_say_other_places_of_a_disk_do_not_agree() {
    let (mut machine, _) = three();
    let held = |pools: &[&str], gateways: &[&str]| Held {
        name: "d".into(),
        pools: pools.iter().map(|place| (*place).to_owned()).collect(),
        capacity: GB,
        contract: Default::default(),
        revision: Some(3),
        changed: false,
        gateways: gateways.iter().map(|node| (*node).to_owned()).collect(),
    };
    let ours = held(&["a/p", "b/p"], &[]);
    let others = [held(&["p"], &["a", "b"]), held(&["b/p", "a/p"], &[]), held(&["a/p", "b/p", "c/p"], &[])];
    for other in others {
        for (session, (name, held)) in [("a", &ours), ("b", &other)].into_iter().enumerate() {
            let node = FakeNode { disks: [("d".to_owned(), held.clone())].into(), ..FakeNode::default() };
            machine.register(7 + session as u64, node.register(name));
        }
        assert!(machine.inventory.disk("d").is_none(), "{other:?}");
        let taken = machine.create(&ADMIN, "d", &spec(1, None, None), None, None);
        assert!(matches!(taken, Err(Failure::Conflict(_))), "nodes would take it for theirs: {taken:?}");
    }
}

/// A store that was lost: a disk over several nodes is taken in again once the last of them has come, whoever that is.
#[test]
fn a_disk_over_several_nodes_that_the_manager_forgot_waits_for_all_of_them() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &striped(100), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let before = machine.inventory.disk("d").unwrap().clone();
    let on: Vec<String> = before.parts.iter().map(|part| part.node.clone()).collect();
    for (goes, order) in [(false, [&on[0], &on[1]]), (true, [&on[1], &on[0]])] {
        // One of them missed the last order, and somebody changed the contract at the other.
        let mut nodes = nodes.clone();
        let early = nodes.get_mut(order[0]).unwrap().disks.get_mut("d").unwrap();
        early.contract.insert("limit".into(), "900/s".into());
        early.revision = early.revision.map(|revision| revision + 5);
        let mut young = fresh();
        young.register(1, nodes[order[0]].register(order[0]));
        settle(&mut young, &mut nodes);
        assert!(young.inventory.disk("d").is_none(), "the other has not said so");
        if goes {
            young.gone(order[0], 1);
        }
        young.register(2, nodes[order[1]].register(order[1]));
        if goes {
            let to: Vec<_> = young.take_orders().into_iter().map(|(node, _)| node).collect();
            assert_eq!(to, [order[1].clone()], "the other is away");
            young.register(3, nodes[order[0]].register(order[0]));
            young.remind();
        }
        settle(&mut young, &mut nodes);
        let disk = young.inventory.disk("d").unwrap();
        assert_eq!((disk.phase, &disk.spec.limit), (Phase::Ready, &Some("900/s".into())), "{disk:?}");
        assert_eq!(disk.parts.iter().map(|part| part.node.clone()).collect::<Vec<_>>(), on);
        assert!(on.iter().all(|node| nodes[node].disks["d"].contract["limit"] == "900/s"));
        young.check().unwrap();
        // What they said once does not outlive the disk.
        young.remove(&ADMIN, "d", None, true).unwrap();
        settle(&mut young, &mut nodes);
        let waits = young.inventory.nodes().filter(|node| !node.found.is_empty()).count();
        assert!(young.inventory.disk("d").is_none() && waits == 0);
    }
}

/// The store fails as such a disk is taken in: what its other node said stands, and the one that came last comes again.
#[test]
fn a_disk_that_waits_is_not_forgotten_where_the_store_fails() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &striped(100), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on: Vec<String> =
        machine.inventory.disk("d").unwrap().parts.iter().map(|part| part.node.clone()).collect();
    let mut all = BTreeMap::new();
    let mut young = fresh();
    young.register(1, nodes[&on[0]].register(&on[0]));
    stored(&mut young, &mut all);
    young.register(2, nodes[&on[1]].register(&on[1]));
    let lost = young.take_batch();
    let mut again = Machine::load(settings(), all.clone().into_iter().collect()).unwrap();
    again.resume(young, &lost);
    assert!(again.inventory.disk("d").is_none());
    again.register(3, nodes[&on[1]].register(&on[1]));
    settle(&mut again, &mut nodes);
    assert_eq!(again.inventory.disk("d").map(|disk| disk.phase), Some(Phase::Ready));
}
