//! What nodes refuse, or fail at.

use super::*;
use crate::model::Phase;

fn failures_told(machine: &Machine) -> usize {
    machine.events(0).filter(|event| event.kind == "failed").count()
}

#[test]
fn what_a_node_cannot_do_is_told_once() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, Some(10), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    let refuses = |machine: &mut Machine, why: &str| {
        machine.remind();
        let revision = machine.take_orders().pop().unwrap().1.revision;
        machine.done(&on, "d", revision, Some(why.into()));
    };
    machine.change(&ADMIN, "d", &spec(10, Some(20), None), None).unwrap();
    (0..3).for_each(|_| refuses(&mut machine, "its scheduler is gone"));
    assert_eq!(failures_told(&machine), 1, "nodes are reminded, and say the same again");
    refuses(&mut machine, "its scheduler keeps no rates");
    refuses(&mut machine, "its scheduler is gone");
    assert_eq!(failures_told(&machine), 3, "each time it is another");
    settle(&mut machine, &mut nodes);
    // What was done meanwhile may fail anew, and who tries again is told.
    machine.change(&ADMIN, "d", &spec(10, Some(20), None), None).unwrap();
    refuses(&mut machine, "its scheduler is gone");
    assert_eq!(failures_told(&machine), 4);
    settle(&mut machine, &mut nodes);
    machine.remove(&ADMIN, "d", None, false).unwrap();
    machine.take_batch();
    refuses(&mut machine, "it is busy");
    let first = machine.take_batch();
    (0..3).for_each(|_| refuses(&mut machine, "it is busy"));
    assert_eq!((failures_told(&machine), first.changes.is_empty()), (5, false));
    assert!(machine.take_batch().is_empty(), "nothing is stored where nothing is new");
    machine.remind();
    settle(&mut machine, &mut nodes);
    assert!(machine.inventory.disk("d").is_none());
}

#[test]
fn who_asks_for_something_else_is_not_told_why_an_earlier_change_failed() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, Some(10), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    let fails = |machine: &mut Machine, nodes: &mut BTreeMap<String, FakeNode>| {
        machine.change(&ADMIN, "d", &spec(10, Some(20), None), None).unwrap();
        let revision = machine.take_orders().pop().unwrap().1.revision;
        machine.done(&on, "d", revision, Some("its scheduler is gone".into()));
        settle(machine, nodes);
        assert!(machine.failures.of("d").is_some());
    };
    fails(&mut machine, &mut nodes);
    // Whoever waits for new secrets would be told of the failure, and not the secrets.
    machine.rekey(&ADMIN, "d", crate::access::Secrets::new().unwrap(), None).unwrap();
    assert_eq!(machine.failures.of("d"), None);
    settle(&mut machine, &mut nodes);
    fails(&mut machine, &mut nodes);
    machine.change(&ADMIN, "d", &spec(10, Some(10), None), None).unwrap();
    assert_eq!(machine.failures.of("d"), None, "it is so already");
    fails(&mut machine, &mut nodes);
    machine.remove(&ADMIN, "d", None, false).unwrap();
    assert_eq!(machine.failures.of("d"), None);
}

#[test]
fn what_a_node_refuses_is_taken_back() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, Some(100), None), None, None).unwrap();
    let (node, order) = machine.take_orders().remove(0);
    machine.done(&node, "d", order.revision, Some("no scheduler there keeps a rate".into()));
    settle(&mut machine, &mut nodes);
    assert!(
        machine.inventory.disk("d").is_none() && machine.failures.of("d").unwrap().contains("no scheduler")
    );
    assert!(machine.inventory.pools.values().all(|p| p.used == 0));
}

#[test]
fn what_a_node_has_made_stays_though_another_is_away() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "s", &striped(20), None, None).unwrap();
    let orders = machine.take_orders();
    let (made, away) = (&orders[0], &orders[1]);
    machine.done(&made.0, "s", made.1.revision, None);
    machine.done(&made.0, "s", made.1.revision, Some("no space left to remember it".into()));
    assert_eq!(machine.inventory.disk("s").unwrap().phase, Phase::Creating);
    // One that does not make it has nothing of it.
    machine.done(&away.0, "s", away.1.revision, Some("it has no such pool".into()));
    assert_eq!(machine.inventory.disk("s").unwrap().phase, Phase::Removing);
    settle(&mut machine, &mut nodes);
    assert!(machine.inventory.disk("s").is_none());
}
