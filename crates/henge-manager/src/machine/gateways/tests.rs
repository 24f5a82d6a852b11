//! Disks of several gateways at a manager: placed, drained, taken in again, whatever is lost on the way.

use super::super::tests::{ADMIN, FakeNode, settings, settle, spec};
use super::super::{Caller, Failure, Machine};
use super::{Leaves, Leaving};
use crate::model::{Begins, Phase};
use henge_api::manager::{Origin, Register};
use henge_api::{DiskStatus, Seating, Status};
use std::collections::BTreeMap;

const CEPH: &str = "ceph 7c0f 3";

type Nodes = BTreeMap<String, FakeNode>;

/// How a node comes whose pool is this storage.
fn come(nodes: &Nodes, name: &str, store: Option<&str>) -> Register {
    let mut register = nodes[name].register(name);
    register.pools[0].shared = store.map(str::to_owned);
    register
}

/// `gw1` and `gw2` before one Ceph pool, `gw3` before another one, and `n` with a pool of its own.
fn cluster() -> (Machine, Nodes) {
    let mut machine = Machine::load(settings(), Vec::new()).unwrap();
    let mut nodes = Nodes::new();
    for (session, (name, store)) in
        [("gw1", Some(CEPH)), ("gw2", Some(CEPH)), ("gw3", Some("ceph 7c0f 4")), ("n", None)]
            .into_iter()
            .enumerate()
    {
        nodes.insert(name.into(), FakeNode::default());
        machine.register(session as u64, come(&nodes, name, store));
    }
    machine.take_drains();
    (machine, nodes)
}

fn begins(from: &str) -> Begins {
    Begins { origin: Origin { from: Some(from.into()), ..Origin::default() }, ..Begins::default() }
}

/// A disk that begins as a snapshot, so that it is on a pool of images; its gateways.
fn make(machine: &mut Machine, nodes: &mut Nodes, name: &str) -> Vec<String> {
    machine.create_for(&ADMIN, name, &spec(10, Some(50), None), None, None, begins("golden@1")).unwrap();
    settle(machine, nodes);
    machine.check().unwrap();
    machine.inventory.disk(name).unwrap().parts.iter().map(|part| part.node.clone()).collect()
}

/// A node says who has a disk, and why it has not gone.
fn says(machine: &mut Machine, node: &str, seat: Option<&str>, stays: Option<&str>) {
    let (seat, stays) = (seat.map(str::to_owned), stays.map(str::to_owned));
    let seating = Seating { seat, stays, ..Seating::default() };
    let disk = DiskStatus { name: "web".into(), seating, ..DiskStatus::default() };
    machine.stats(node, Status { disks: vec![disk], ..Status::default() });
}

fn leaving(machine: &Machine, node: &str) -> Vec<Leaving> {
    super::leaving(&machine.inventory, machine.inventory.node(node).unwrap())
}

#[test]
fn a_disk_on_a_shared_pool_is_at_all_its_gateways_with_all_of_its_contract() {
    let (mut machine, mut nodes) = cluster();
    machine.drain("gw3", true).unwrap();
    make(&mut machine, &mut nodes, "web");
    let disk = machine.inventory.disk("web").unwrap().clone();
    assert!(disk.shared && disk.phase == Phase::Ready && disk.parts.len() == 2 && disk.divided() == 1);
    for (node, other) in [("gw1", "gw2"), ("gw2", "gw1")] {
        let want = disk.want(node, |node| Some(format!("{node}:10810"))).unwrap();
        assert_eq!((want.pools.as_slice(), want.leeway), (&["p".to_owned()][..], None));
        assert_eq!(
            want.gateways,
            disk.parts.iter().map(|part| part.node.clone()).collect::<Vec<_>>(),
            "the same at both"
        );
        assert_eq!(want.peers, [(other.to_owned(), format!("{other}:10810"))].into());
        assert_eq!(want.origin.from.as_deref(), Some("golden@1"));
        assert_eq!(want.contract["rate"], "50/s", "each may have to keep all of it");
        let pool = machine.inventory.pool(node, "p").unwrap();
        assert_eq!(pool.used, 10_000_000_000);
        assert!((pool.standing.as_ref().unwrap().free() - 450.0).abs() < 1.0);
    }
    // The next one begins at the other gateway.
    let first = disk.parts[0].node.clone();
    assert_ne!(make(&mut machine, &mut nodes, "db")[0], first);
    // One that is drained is a gateway, and the first of none.
    machine.drain("gw1", true).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(make(&mut machine, &mut nodes, name), ["gw2", "gw1"]);
    }
    // Removed at all of them before its place is free.
    machine.remove(&ADMIN, "web", None, false).unwrap();
    settle(&mut machine, &mut nodes);
    assert!(machine.inventory.disk("web").is_none() && nodes.values().all(|node| !node.has("web")));
    machine.check().unwrap();
}

#[test]
fn a_disk_that_one_gateway_serves_is_not_taken_back_for_another() {
    let (mut machine, mut nodes) = cluster();
    machine.drain("gw3", true).unwrap();
    machine.create_for(&ADMIN, "web", &spec(10, Some(50), None), None, None, begins("golden@1")).unwrap();
    let orders: BTreeMap<String, u64> =
        machine.take_orders().into_iter().map(|(node, order)| (node, order.revision)).collect();
    machine.done("gw1", "web", orders["gw1"], None);
    let is_there = |machine: &Machine| {
        let phase = machine.inventory.disk("web").map(|disk| disk.phase);
        assert_eq!(phase, Some(Phase::Creating), "its clients may have written to it");
    };
    machine.done("gw2", "web", orders["gw2"], Some("the image does not open".into()));
    is_there(&machine);
    let why = machine.failures.of("web").map(str::to_owned).unwrap_or_default();
    assert!(why.contains("gw2") && why.contains("the image does not open"), "whoever waits is told: {why}");
    // Who has made it is reminded as well, and may fail at something else.
    machine.done("gw1", "web", orders["gw1"], Some("no space left to remember it".into()));
    is_there(&machine);
    let failed = machine.events(0).filter(|event| event.kind == "failed").count();
    assert_eq!(failed, 2);
    machine.remind();
    settle(&mut machine, &mut nodes);
    assert_eq!(machine.inventory.disk("web").unwrap().phase, Phase::Ready);
    assert_eq!(machine.failures.of("web"), None, "all have made it");
    machine.check().unwrap();
}

#[test]
fn what_one_gateway_could_not_keep_is_promised_without_it() {
    let (mut machine, mut nodes) = cluster();
    machine.drain("gw3", true).unwrap();
    let mut small = come(&nodes, "gw2", Some(CEPH));
    small.pools[0].profile.as_mut().unwrap().iops = 40.0;
    machine.register(9, small);
    assert_eq!(make(&mut machine, &mut nodes, "web"), ["gw1"], "gw2 does 40/s");
    assert!(!machine.inventory.disk("web").unwrap().shared);
    let best_effort = spec(10, None, None);
    machine.create_for(&ADMIN, "db", &best_effort, None, None, begins("golden@1")).unwrap();
    assert_eq!(machine.inventory.disk("db").unwrap().parts.len(), 2);
}

#[test]
fn what_is_on_the_storage_already_is_the_administrators_to_give() {
    let (mut machine, _) = cluster();
    let ann = Caller::Tenant("ann".into());
    let small = spec(1, None, None);
    let asks = |machine: &mut Machine, who: &Caller, origin: Origin, spec: &crate::model::DiskSpec| {
        machine.create_for(who, "web", spec, None, None, Begins { origin, ..Begins::default() })
    };
    let image = || Origin { image: Some("vm-17".into()), ..Origin::default() };
    let adopt = Origin { adopt: true, ..Origin::default() };
    for origin in [image(), Origin { from: Some("golden@1".into()), ..Origin::default() }, adopt] {
        assert!(matches!(asks(&mut machine, &ann, origin, &small), Err(Failure::Forbidden(_))));
    }
    let both = Origin { from: Some("golden@1".into()), ..image() };
    assert!(matches!(asks(&mut machine, &ADMIN, both, &small), Err(Failure::Bad(_))));
    let striped = crate::model::DiskSpec { parts: Some(2), ..small.clone() };
    assert!(matches!(asks(&mut machine, &ADMIN, image(), &striped), Err(Failure::Bad(_))));
    // Never on a pool without images.
    asks(&mut machine, &ADMIN, image(), &small).unwrap();
    assert!(machine.inventory.disk("web").unwrap().parts.iter().all(|part| part.node.starts_with("gw")));
    let mut alone = Machine::load(settings(), Vec::new()).unwrap();
    let nodes: Nodes = [("n".to_owned(), FakeNode::default())].into();
    alone.register(1, come(&nodes, "n", None));
    let why = asks(&mut alone, &ADMIN, image(), &small).unwrap_err().to_string();
    assert!(why.contains("pools of images"), "{why}");
}

#[test]
fn of_each_disk_of_a_drained_node_it_is_said_where_it_goes_or_why_it_stays() {
    let (mut machine, mut nodes) = cluster();
    machine.drain("gw3", true).unwrap();
    make(&mut machine, &mut nodes, "web");
    machine.drain("gw1", true).unwrap();
    machine.take_drains();
    let state = |machine: &Machine| {
        let all = leaving(machine, "gw1");
        assert_eq!(all.len(), 1);
        (all[0].state, all[0].at.clone(), all[0].why.clone())
    };
    assert_eq!(state(&machine), (Leaves::Moving, None, None), "nobody has said anything");
    says(&mut machine, "gw1", Some("gw1"), None);
    assert_eq!(state(&machine), (Leaves::Moving, Some("gw1".into()), None));
    says(&mut machine, "gw1", Some("gw1"), Some("none of its others"));
    assert_eq!(state(&machine), (Leaves::Stays, Some("gw1".into()), Some("none of its others".into())));
    says(&mut machine, "gw1", Some("gw2"), None);
    assert_eq!(state(&machine), (Leaves::Moved, Some("gw2".into()), None));
    // It is off: the other one says it.
    machine.gone("gw1", 0);
    assert_eq!(state(&machine).0, Leaves::Moving);
    says(&mut machine, "gw2", Some("gw2"), None);
    assert_eq!(state(&machine), (Leaves::Moved, Some("gw2".into()), None));
    // What lies at one node alone does not go, and it is said what to do.
    machine.drain("gw2", true).unwrap();
    machine.create_for(&ADMIN, "db", &spec(200, None, None), None, None, Begins::default()).unwrap();
    settle(&mut machine, &mut nodes);
    let stays = leaving(&machine, "n").into_iter().find(|disk| disk.disk == "db").unwrap();
    assert!(stays.state == Leaves::Stays && stays.why.unwrap().contains("nbdcopy"));
}

/// Whatever is lost: a node that comes hears whether it is drained, also from a manager that begins again in the midst.
#[test]
fn who_is_drained_hears_it_whenever_it_comes_and_a_manager_forgets_it_not() {
    let (mut machine, mut nodes) = cluster();
    make(&mut machine, &mut nodes, "web");
    let mut stored = BTreeMap::new();
    let mut store = |machine: &mut Machine| {
        for (key, value) in machine.take_batch().changes {
            match value {
                Some(value) => drop(stored.insert(key, value)),
                None => drop(stored.remove(&key)),
            }
        }
        stored.clone()
    };
    store(&mut machine);
    machine.drain("gw1", true).unwrap();
    assert_eq!(machine.take_drains(), [("gw1".to_owned(), true)]);
    machine.drain("gw1", true).unwrap();
    assert_eq!(machine.take_drains(), [("gw1".to_owned(), true)], "said again, it is tried again");
    // The manager begins again from what it had stored before its word went out; that is lost.
    let stored = store(&mut machine);
    let mut machine = Machine::load(settings(), stored.into_iter().collect()).unwrap();
    for (session, name) in ["gw1", "gw2"].into_iter().enumerate() {
        machine.register(session as u64, come(&nodes, name, Some(CEPH)));
        assert_eq!(machine.take_drains(), [(name.to_owned(), name == "gw1")]);
    }
    settle(&mut machine, &mut nodes);
    machine.check().unwrap();
    assert!(machine.inventory.disk("web").unwrap().shared);
    machine.drain("gw1", false).unwrap();
    assert_eq!(machine.take_drains(), [("gw1".to_owned(), false)]);
    assert!(machine.drain("nobody", true).is_err() && machine.take_drains().is_empty());
}

/// A manager whose state is older than its nodes takes a disk of gateways in as one, whoever of them comes first.
#[test]
fn a_disk_of_gateways_that_the_manager_forgot_is_taken_in_as_one() {
    for order in [["gw1", "gw2"], ["gw2", "gw1"]] {
        let (mut machine, mut nodes) = cluster();
        machine.drain("gw3", true).unwrap();
        let gateways = make(&mut machine, &mut nodes, "web");
        let mut machine = Machine::load(settings(), Vec::new()).unwrap();
        for (session, name) in order.into_iter().enumerate() {
            machine.register(session as u64, come(&nodes, name, Some(CEPH)));
            settle(&mut machine, &mut nodes);
        }
        let disk = machine.inventory.disk("web").unwrap();
        assert!(disk.shared && disk.divided() == 1 && disk.phase == Phase::Ready, "{disk:?}");
        assert_eq!(disk.parts.iter().map(|part| part.node.as_str()).collect::<Vec<_>>(), gateways);
        machine.check().unwrap();
        assert_eq!(
            machine.inventory.pool("gw1", "p").unwrap().used,
            machine.inventory.pool("gw2", "p").unwrap().used
        );
    }
}
