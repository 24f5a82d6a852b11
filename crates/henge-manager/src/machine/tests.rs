//! The machine against nodes that carry out orders, lose connections, and are changed behind its back; and against stores
//! that die at every commit.

use super::*;
use crate::decide::Because;
use crate::model::{Begins, DiskSpec, Phase};
use crate::store::suite::{Open, stores};
use crate::store::{Faulty, MemoryStore, Store};
use henge_api::manager::{Held, Pool, Profile, Register, Seen};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

const GB: u64 = 1_000_000_000;

/// A node that does what it is told, and keeps it when it is away.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeNode {
    disks: BTreeMap<String, Held>,
    /// For how many bytes places are long enough, of disks over several nodes.
    rooms: BTreeMap<String, u64>,
}

impl FakeNode {
    pub(super) fn has(&self, disk: &str) -> bool {
        self.disks.contains_key(disk)
    }
    pub(super) fn register(&self, name: &str) -> Register {
        Register {
            name: name.into(),
            addresses: vec![format!("nbd://{name}/%")],
            link: Some(format!("{name}:10810")),
            pools: vec![pool()],
            disks: self.disks.values().cloned().collect(),
            speaks: henge_api::manager::speaks(),
        }
    }
    fn obey(&mut self, order: &Order) {
        match order.want().unwrap() {
            None => drop(self.disks.remove(&order.name)),
            Some(want) => {
                let capacity = want.capacity;
                let room = want.room.unwrap_or(capacity);
                let had = self.rooms.entry(order.name.clone()).or_default();
                *had = room.max(*had);
                let held = Held {
                    name: order.name.clone(),
                    pools: pools(&want),
                    capacity,
                    contract: want.contract.clone(),
                    revision: Some(order.revision),
                    changed: false,
                    gateways: want.gateways.clone(),
                };
                self.disks.insert(order.name.clone(), held);
            }
        }
    }
}

/// Where a disk lies, as its node says it: a disk of gateways at the first of them.
fn pools(want: &henge_api::manager::Want) -> Vec<String> {
    match want.gateways.first() {
        Some(first) => vec![format!("{first}/{}", want.pools[0])],
        None => want.pools.clone(),
    }
}

fn pool() -> Pool {
    Pool {
        name: "p".into(),
        capacity: 300 * GB,
        copies: 1,
        scheduler: "cvc".into(),
        keeps: None,
        profile: Some(Profile { iops: 500.0, service: 0.014 }),
        shared: None,
    }
}

pub(super) fn settings() -> Settings {
    Settings { rules: None, events_max: 50, ..Settings::default() }
}

fn fresh() -> Machine {
    Machine::load(settings(), Vec::new()).unwrap()
}

pub(super) fn spec(capacity: u64, rate: Option<u32>, latency_ms: Option<u32>) -> DiskSpec {
    DiskSpec {
        capacity: format!("{capacity}GB"),
        rate: rate.map(|r| format!("{r}/s")),
        latency: latency_ms.map(|l| format!("{l}ms")),
        pending: Some(7),
        ..DiskSpec::default()
    }
}

/// Carries orders to nodes and confirmations back until all is quiet.
pub(super) fn settle(machine: &mut Machine, nodes: &mut BTreeMap<String, FakeNode>) {
    for _ in 0..100 {
        let orders = machine.take_orders();
        if orders.is_empty() {
            return;
        }
        for (node, order) in orders {
            nodes.get_mut(&node).unwrap().obey(&order);
            machine.done(&node, &order.name, order.revision, None);
        }
    }
    panic!("manager and nodes do not come to rest");
}

pub(super) fn three() -> (Machine, BTreeMap<String, FakeNode>) {
    let (mut machine, mut nodes) = (fresh(), BTreeMap::new());
    for (session, name) in ["a", "b", "c"].into_iter().enumerate() {
        let node = FakeNode::default();
        machine.register(session as u64, node.register(name));
        nodes.insert(name.to_owned(), node);
    }
    (machine, nodes)
}

impl Machine {
    /// A disk that its nodes show to whom they show disks of which nothing is stated.
    pub(crate) fn create(
        &mut self,
        caller: &Caller,
        name: &str,
        spec: &DiskSpec,
        tenant: Option<&str>,
        key: Option<(&str, &str)>,
    ) -> Result<Created, Failure> {
        self.create_for(caller, name, spec, tenant, key, Begins::default())
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        check::check(&self.inventory)
    }

    pub(crate) fn remind(&mut self) {
        self.outbox.remind(&self.inventory);
    }
}

pub(super) const ADMIN: Caller = Caller::Administrator;

fn refused(outcome: Result<Created, Failure>) -> crate::decide::Refusal {
    match outcome {
        Err(Failure::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

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

fn striped(capacity: u64) -> DiskSpec {
    DiskSpec { parts: Some(2), ..spec(capacity, None, None) }
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

/// Everything that is stored, as a machine that begins anew finds it.
fn stored(machine: &mut Machine, all: &mut BTreeMap<String, Vec<u8>>) -> Machine {
    for (key, value) in machine.take_batch().changes {
        match value {
            Some(value) => drop(all.insert(key, value)),
            None => drop(all.remove(&key)),
        }
    }
    Machine::load(settings(), all.clone().into_iter().collect()).unwrap()
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

/// One step of a random history; what a person or a node might do next.
fn step(machine: &mut Machine, rng: &mut Pcg64Mcg, nodes: &BTreeMap<String, FakeNode>, session: &mut u64) {
    let name = format!("d{}", rng.random_range(0..12));
    let some = spec(rng.random_range(1..90), Some(rng.random_range(1..200)), None);
    match rng.random_range(0..10) {
        0..4 => drop(machine.create(&ADMIN, &name, &some, None, Some((&name, "h")))),
        4..6 => drop(machine.remove(&ADMIN, &name, None, true)),
        6..8 => {
            if let Some(disk) = machine.inventory.disk(&name).cloned() {
                let spec = DiskSpec { rate: some.rate, ..disk.spec };
                drop(machine.change(&ADMIN, &name, &spec, None));
            }
        }
        8 => {
            let node = ["a", "b", "c"][rng.random_range(0..3)];
            *session += 1;
            machine.register(*session, nodes[node].register(node));
        }
        _ => machine.remind(),
    }
}

/// What people were promised: of each name its specification, if there is such a disk.
type Promises = BTreeMap<String, DiskSpec>;

fn promises(machine: &Machine) -> Promises {
    let kept = machine.disks().filter(|d| d.phase != Phase::Removing);
    kept.map(|d| (d.name.clone(), d.spec.clone())).collect()
}

/// A world of nodes and one stored state, through which managers come and go.
struct World {
    rng: Pcg64Mcg,
    open: Open,
    nodes: BTreeMap<String, FakeNode>,
    session: u64,
    /// What was acknowledged, and what the commit at which the last manager died would have made of it.
    acknowledged: Promises,
    in_doubt: Promises,
}

impl World {
    fn machine(&mut self, store: &mut impl Store) -> Machine {
        let mut machine = Machine::load(settings(), store.load().unwrap()).unwrap();
        let found = promises(&machine);
        assert!(found == self.acknowledged || found == self.in_doubt, "something acknowledged is not there");
        self.acknowledged = found;
        for (name, node) in &self.nodes {
            self.session += 1;
            machine.register(self.session, node.register(name));
        }
        machine
    }

    /// One manager until it dies, or 60 steps; whether it died.
    fn life(&mut self) -> bool {
        let (fatal, after) = (self.rng.random_range(0..40), self.rng.random_bool(0.5));
        let mut store = Faulty::new((self.open)(), fatal, after);
        let mut machine = self.machine(&mut store);
        for _ in 0..60 {
            step(&mut machine, &mut self.rng, &self.nodes, &mut self.session);
            let orders = machine.take_orders();
            self.in_doubt = promises(&machine);
            if store.commit(&machine.take_batch()).is_err() {
                return true;
            }
            self.acknowledged = promises(&machine);
            for (node, order) in orders {
                if self.rng.random_bool(0.3) {
                    continue; // the connection broke before it came
                }
                self.nodes.get_mut(&node).unwrap().obey(&order);
                if self.rng.random_bool(0.8) {
                    machine.done(&node, &order.name, order.revision, None);
                    self.in_doubt = promises(&machine);
                    if store.commit(&machine.take_batch()).is_err() {
                        return true;
                    }
                    self.acknowledged = promises(&machine);
                }
            }
            machine.check().unwrap();
        }
        false
    }

    /// Everybody is here: manager and nodes agree on every disk.
    fn end(&mut self) {
        let mut store = (self.open)();
        let mut machine = self.machine(&mut store);
        settle(&mut machine, &mut self.nodes);
        machine.check().unwrap();
        assert!(machine.disks().all(|d| d.phase == Phase::Ready), "something is half done");
        for (name, node) in &self.nodes {
            let here: BTreeSet<&String> = node.disks.keys().collect();
            let wanted = machine.disks().filter(|d| d.parts.iter().any(|p| p.node == *name));
            assert_eq!(here, wanted.map(|d| &d.name).collect(), "node {name}");
            let used: u64 = node.disks.values().map(|h| h.capacity).sum();
            assert_eq!(used, machine.inventory.pool(name, "p").unwrap().used, "node {name}");
        }
    }
}

/// The manager is killed at random commits in random histories, before the commit or right after it: afterwards nothing is
/// half done, no place is leaked or promised twice, and whatever was acknowledged is there.
fn kills(seed: u64, open: Open) -> u64 {
    println!("seed {seed}");
    let mut world = World {
        rng: Pcg64Mcg::seed_from_u64(seed),
        open,
        nodes: ["a", "b", "c"].into_iter().map(|n| (n.to_owned(), FakeNode::default())).collect(),
        session: 0,
        acknowledged: Promises::new(),
        in_doubt: Promises::new(),
    };
    let killed = (0..3).map(|_| u64::from(world.life())).sum();
    world.end();
    killed
}

#[test]
fn a_thousand_kill_points() {
    let (mut killed, mut seed) = (0, 0);
    while killed < 1000 {
        let disk = MemoryStore::default();
        killed += kills(seed, Box::new(move || Box::new(disk.clone())));
        seed += 1;
    }
    println!("killed at {killed} random commits: nothing half done, leaked or promised twice");
}

/// The same where commits go to a disk or to another process.
#[test]
fn kill_points_of_every_store() {
    for seed in 0..3 {
        for (name, open, _keep) in stores("machine::kill_points_of_every_store") {
            println!("{name}: killed at {} commits", kills(seed, open));
        }
    }
}

/// Prints what a manager of 1,000 nodes and 10,000 disks takes: `make bench-manager`.
#[test]
#[ignore = "prints figures; run it optimized and alone"]
fn ten_thousand_disks_on_a_thousand_nodes() {
    let clock = std::time::Instant::now;
    let mut machine =
        Machine::load(Settings { events_max: 10_000, ..Settings::default() }, Vec::new()).unwrap();
    let mut disk = MemoryStore::default();
    for i in 0..1000u64 {
        machine.register(i, FakeNode::default().register(&format!("n{i}")));
    }
    disk.commit(&machine.take_batch()).unwrap();
    let asked =
        |i: u64| spec(10 + i % 15, Some(10 + (i * 7 % 40) as u32), i.is_multiple_of(3).then_some(150));
    let mut times: Vec<_> = (0..10_000u64)
        .map(|i| {
            let began = clock();
            machine.create(&ADMIN, &format!("d{i}"), &asked(i), None, None).unwrap();
            let batch = machine.take_batch();
            let time = began.elapsed();
            disk.commit(&batch).unwrap();
            for (node, order) in machine.take_orders() {
                machine.done(&node, &order.name, order.revision, None);
            }
            disk.commit(&machine.take_batch()).unwrap();
            time
        })
        .collect();
    // A day of minutes of every disk, so that measurement has something to look at.
    let on: BTreeMap<String, Vec<String>> = machine
        .inventory
        .on
        .iter()
        .map(|(key, names)| (key.0.clone(), names.iter().cloned().collect()))
        .collect();
    let latency: Vec<(u64, u64)> = (0..60).map(|i| (1_000_000 + i * 400_000, 3)).collect();
    let periods = std::env::var("HENGE_PERIODS").ok().and_then(|p| p.parse().ok()).unwrap_or(1500);
    let began = clock();
    for _ in 0..periods {
        for (node, names) in &on {
            let seen = names.iter().map(|name| Seen {
                name: name.clone(),
                commands: 180,
                peak: 9,
                latency: latency.clone(),
            });
            machine.period(node, 60.0, &seen.collect::<Vec<_>>());
        }
    }
    println!("{periods} periods of all disks were taken in within {:.1?} each", began.elapsed() / periods);
    let mut measured: Vec<_> = (0..200u64)
        .map(|i| {
            let began = clock();
            machine.preview(&ADMIN, &asked(i)).unwrap();
            began.elapsed()
        })
        .collect();
    let began = clock();
    let refusal = machine.preview(&ADMIN, &spec(10, Some(499), Some(31))).unwrap();
    let refused = began.elapsed();
    times.sort();
    measured.sort();
    let bytes = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak =
        bytes.lines().find(|l| l.starts_with("VmHWM")).unwrap().replace("VmHWM:", "").trim().to_owned();
    println!("creation: median {:.2?}, longest {:.2?}", times[5000], times[9999]);
    println!("decision with a day measured: median {:.2?}, longest {:.2?}", measured[100], measured[199]);
    println!("refusal with what would fit ({}): {refused:.2?}", refusal.why);
    println!("memory at its largest: {peak}");
    let began = clock();
    let again = Machine::load(Settings::default(), disk.load().unwrap()).unwrap();
    println!("restart: {:.2?} for {} disks", began.elapsed(), again.disks().count());
    let changes: Vec<_> = disk.load().unwrap().into_iter().map(|(key, value)| (key, Some(value))).collect();
    for (name, mut open, _keep) in stores("bench-manager").into_iter().skip(1) {
        let began = clock();
        open().commit(&crate::store::Batch { changes: changes.clone() }).unwrap();
        let wrote = began.elapsed();
        let began = clock();
        let again = Machine::load(Settings::default(), open().load().unwrap()).unwrap();
        let took = began.elapsed();
        println!(
            "restart from {name}: {took:.2?} for {} disks (written in {wrote:.2?})",
            again.disks().count()
        );
    }
}
