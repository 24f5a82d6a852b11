//! Disks that grow.

use super::*;
use crate::decide::Because;
use crate::model::Phase;

#[test]
fn a_disk_grows_as_far_as_its_pool_goes_and_does_not_shrink() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(100, Some(10), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    let shrunk = machine.change(&ADMIN, "d", &spec(99, Some(10), None), None).unwrap_err();
    assert!(matches!(&shrunk, Failure::Conflict(why) if why.contains("leave it at 100GB")), "{shrunk}");
    let refused = machine.change(&ADMIN, "d", &spec(301, Some(10), None), None);
    let Err(Failure::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!((refusal.because, refusal.instead.capacity.as_deref()), (Because::Impossible, Some("300GB")));
    assert!(machine.admits_change(&ADMIN, "d", &spec(301, Some(10), None)).is_err());
    assert!(machine.admits_change(&ADMIN, "d", &spec(300, Some(10), None)).is_ok());
    // What it grows into is promised to nobody else while the node has yet to make it.
    machine.change(&ADMIN, "d", &spec(250, Some(10), None), None).unwrap();
    assert_eq!(machine.inventory.pool(&on, "p").unwrap().used, 250 * GB);
    settle(&mut machine, &mut nodes);
    assert_eq!(nodes[&on].disks["d"].capacity, 250 * GB);
    assert_eq!(machine.inventory.disk("d").unwrap().phase, Phase::Ready);
    // A node that cannot: everything as it was.
    machine.change(&ADMIN, "d", &spec(280, Some(10), None), None).unwrap();
    let order = machine.take_orders().remove(0).1;
    machine.done(&on, "d", order.revision, Some("its neighbour is in the way".into()));
    settle(&mut machine, &mut nodes);
    assert_eq!(machine.inventory.disk("d").unwrap().spec.capacity, "250GB");
    assert!(machine.failures.of("d").unwrap().contains("neighbour"));
    assert_eq!(machine.inventory.pool(&on, "p").unwrap().used, 250 * GB);
    machine.check().unwrap();
}

#[test]
fn a_disk_over_several_nodes_is_shown_larger_once_there_is_room_at_all_of_them() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "s", &striped(20), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on: Vec<String> = machine.inventory.disk("s").unwrap().parts.iter().map(|p| p.node.clone()).collect();
    let shrunk = machine.change(&ADMIN, "s", &striped(19), None).unwrap_err();
    assert!(matches!(&shrunk, Failure::Conflict(why) if why.contains("leave it at 20GB")), "{shrunk}");
    machine.change(&ADMIN, "s", &striped(100), None).unwrap();
    assert_eq!(machine.inventory.pool(&on[0], "p").unwrap().used, 50 * GB);
    // The first node has room, the second is away: nobody sees more.
    let orders = machine.take_orders();
    assert_eq!(orders.len(), 2);
    for (node, order) in orders.into_iter().filter(|(node, _)| *node == on[0]) {
        nodes.get_mut(&node).unwrap().obey(&order);
        machine.done(&node, &order.name, order.revision, None);
    }
    assert_eq!(nodes[&on[0]].rooms["s"], 100 * GB);
    assert_eq!(nodes[&on[0]].disks["s"].capacity, 20 * GB);
    assert_eq!(machine.inventory.disk("s").unwrap().phase, Phase::Changing);
    machine.register(9, nodes[&on[1]].register(&on[1]));
    let (node, order) = machine.take_orders().pop().unwrap();
    assert!(node == on[1] && order.want().unwrap().unwrap().room.is_some());
    nodes.get_mut(&node).unwrap().obey(&order);
    machine.done(&node, "s", order.revision, None);
    settle(&mut machine, &mut nodes);
    assert_eq!(machine.inventory.disk("s").unwrap().phase, Phase::Ready);
    assert!(on.iter().all(|n| nodes[n].disks["s"].capacity == 100 * GB));
    machine.check().unwrap();
}

#[test]
fn what_one_node_made_room_for_in_vain_stays_promised_to_that_disk() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "s", &striped(20), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    machine.change(&ADMIN, "s", &striped(100), None).unwrap();
    let orders = machine.take_orders();
    let on: Vec<String> = orders.iter().map(|(node, _)| node.clone()).collect();
    nodes.get_mut(&on[0]).unwrap().obey(&orders[0].1);
    machine.done(&on[0], "s", orders[0].1.revision, None);
    machine.done(&on[1], "s", orders[1].1.revision, Some("its neighbour is in the way".into()));
    settle(&mut machine, &mut nodes);
    let disk = machine.inventory.disk("s").unwrap();
    assert_eq!((disk.phase, disk.spec.capacity.as_str()), (Phase::Ready, "20GB"));
    assert!(machine.failures.of("s").unwrap().contains("neighbour"));
    assert!(on.iter().all(|n| machine.inventory.pool(n, "p").unwrap().used == 50 * GB));
    // The next attempt finds the room there.
    machine.change(&ADMIN, "s", &striped(100), None).unwrap();
    settle(&mut machine, &mut nodes);
    assert!(on.iter().all(|n| nodes[n].disks["s"].capacity == 100 * GB));
    assert!(on.iter().all(|n| machine.inventory.pool(n, "p").unwrap().used == 50 * GB));
    machine.check().unwrap();
}

#[test]
fn a_disk_that_grew_at_its_node_is_so_large_for_the_manager_too() {
    let (mut machine, mut nodes) = three();
    machine.create(&ADMIN, "d", &spec(10, None, None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let on = machine.inventory.disk("d").unwrap().parts[0].node.clone();
    let held = nodes.get_mut(&on).unwrap().disks.get_mut("d").unwrap();
    (held.capacity, held.changed) = (20 * GB, true);
    machine.register(7, nodes[&on].register(&on));
    settle(&mut machine, &mut nodes);
    let disk = machine.inventory.disk("d").unwrap();
    assert_eq!(disk.spec.capacity, "20000000000B");
    assert_eq!(disk.differences["capacity"].manager.as_deref(), Some("10GB"));
    assert_eq!(machine.inventory.pool(&on, "p").unwrap().used, 20 * GB);
}
