//! Nodes that say anything: lines of every kind with values that no node has, to machines that have disks. Whatever is taken, the
//! machine holds what it must, everybody can be shown it, and it is read again from what is stored. `fuzz/manager_machine` does the
//! same with bytes of its own.

use super::hear_line;
use crate::machine::{Caller, Machine, Settings};
use crate::model::DiskSpec;
use crate::rest::views;
use henge_api::manager::{FromNode, Held, Pool, Profile, Register, Seen};
use henge_api::{AtGates, DiskLayout, DiskStatus, GateStatus, PeerStatus, PoolStatus, Status, encode_line};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::collections::BTreeMap;

const GB: u64 = 1_000_000_000;

fn register(node: &str) -> Register {
    let profile = Some(Profile { iops: 500.0, service: 0.014 });
    let pool = Pool {
        name: "p".into(),
        capacity: 300 * GB,
        copies: 1,
        scheduler: "cvc".into(),
        keeps: None,
        profile,
        shared: None,
    };
    let held = |name: &str, revision| Held {
        name: name.into(),
        pools: vec!["p".into()],
        capacity: GB,
        contract: [("rate".to_owned(), "5/s".to_owned())].into(),
        revision,
        changed: false,
        gateways: Vec::new(),
    };
    Register {
        name: node.into(),
        addresses: vec!["nbd://h:1/%".into()],
        link: Some(format!("{node}:2")),
        pools: vec![pool],
        disks: vec![held("d0", Some(3)), held("own", None)],
        speaks: henge_api::manager::speaks(),
    }
}

fn meters() -> Status {
    let gate = GateStatus { name: "p".into(), depth: 1, ..GateStatus::default() };
    let pool = PoolStatus { name: "p".into(), capacity: GB, gates: vec![gate], ..PoolStatus::default() };
    let disk = |name: &str| DiskStatus {
        name: name.into(),
        capacity: GB,
        contract: [("rate".to_owned(), "5/s".to_owned())].into(),
        flow: AtGates {
            waiting: Some("turn".into()),
            waits: [("turn".to_owned(), 7)].into(),
            ..AtGates::default()
        },
        layout: DiskLayout { pools: vec!["p".into()], ..DiskLayout::default() },
        ..DiskStatus::default()
    };
    Status {
        pools: vec![pool],
        disks: vec![disk("d0"), disk("own"), disk("wide")],
        peers: vec![PeerStatus { name: "b".into(), address: "b:2".into(), ..PeerStatus::default() }],
        ..Status::default()
    }
}

/// One message of each kind, as a sound node says it.
fn sound(node: &str) -> Vec<Value> {
    let seen = |name: &str| Seen { name: name.into(), commands: 10, peak: 2, latency: vec![(1_000_000, 10)] };
    let all = [
        FromNode::Register(Box::new(register(node))),
        FromNode::Done { name: "d0".into(), revision: 3, error: None },
        FromNode::Done { name: "wide".into(), revision: 4, error: Some("no room\n  for it".into()) },
        FromNode::Stats { status: Box::new(meters()) },
        FromNode::Period { seconds: 60.0, disks: vec![seen("d0"), seen("wide")] },
        FromNode::Changed { held: register(node).disks[0].clone() },
    ];
    all.iter().map(|said| serde_json::to_value(said).unwrap()).collect()
}

fn anything(rng: &mut Pcg64Mcg) -> Value {
    const TEXTS: [&str; 9] =
        ["../d0", "d0", "own", "wide", "", "a/b", "18446744073709551615/s", "1e300", "0/s"];
    match rng.random_range(0..16u32) {
        0 => Value::Null,
        1 => true.into(),
        2 => 0.into(),
        3 => 1.into(),
        4 => (-1).into(),
        5 => (1u64 << 62).into(),
        6 => (1u64 << 63).into(),
        7 => u64::MAX.into(),
        8 => i64::MIN.into(),
        9 => 1e300.into(),
        10 => (-0.0).into(),
        11 => "x".repeat(rng.random_range(0..70_000)).into(),
        12 => "\u{1b}[2J\r\u{9b}".into(),
        13 => TEXTS[rng.random_range(0..TEXTS.len())].into(),
        14 => Value::Array(vec![Value::Array(Vec::new()); rng.random_range(0..5)]),
        _ => rng.random::<u64>().into(),
    }
}

/// Puts something else, or one more of the same, at some place.
fn spoil(value: &mut Value, rng: &mut Pcg64Mcg) {
    let deeper = rng.random_range(0..8u32) > 0;
    match value {
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = rng.random_range(0..items.len());
            match rng.random_range(0..4u32) {
                0 => items.push(items[at].clone()),
                1 => drop(items.remove(at)),
                _ => spoil(&mut items[at], rng),
            }
        }
        Value::Object(fields) if deeper && !fields.is_empty() => {
            let at = rng.random_range(0..fields.len());
            let key = fields.keys().nth(at).cloned().unwrap_or_default();
            match rng.random_range(0..12u32) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(format!("{key}\u{7}"), anything(rng))),
                _ => fields.get_mut(&key).into_iter().for_each(|field| spoil(field, rng)),
            }
        }
        other => *other = anything(rng),
    }
}

fn settings() -> Settings {
    Settings { events_max: 50, ..Settings::default() }
}

/// Two nodes with a disk each, and one on both.
fn machine() -> Machine {
    let mut machine = Machine::load(settings(), Vec::new()).unwrap();
    for (session, node) in ["a", "b"].into_iter().enumerate() {
        machine.register(session as u64, Register { disks: Vec::new(), ..register(node) });
    }
    let spec = |parts| DiskSpec {
        capacity: "10GB".into(),
        rate: Some("5/s".into()),
        parts: Some(parts),
        ..DiskSpec::default()
    };
    for (name, parts) in [("d0", 1), ("d1", 1), ("wide", 2)] {
        machine.create(&Caller::Administrator, name, &spec(parts), None, None).unwrap();
    }
    machine
}

/// Everything that people are shown.
fn look(machine: &Machine) {
    for disk in machine.disks() {
        serde_json::to_string(&views::disk(machine, &Caller::Administrator, disk)).unwrap();
        machine.clients(&disk.name);
    }
    for node in machine.inventory.nodes() {
        serde_json::to_string(&views::node(machine, node)).unwrap();
        serde_json::to_string(&views::pools(machine, node)).unwrap();
    }
    for event in machine.events(0) {
        assert!(!event.text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')), "{event:?}");
    }
}

#[test]
fn whatever_nodes_say_the_machine_holds() {
    let (mut taken, mut refused) = (0u32, 0u32);
    for seed in 0..60 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut machine = machine();
        let mut stored: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for step in 0..60u64 {
            let (session, node) = [(0, "a"), (1, "b")][rng.random_range(0..2)];
            let all = sound(node);
            let mut said = all[rng.random_range(0..all.len())].clone();
            for _ in 0..rng.random_range(0..4u32) {
                spoil(&mut said, &mut rng);
            }
            machine.at(step * 60_000);
            match hear_line(&mut machine, session, &encode_line(&said)) {
                Ok(()) => taken += 1,
                Err(why) => {
                    assert!(!why.is_empty());
                    refused += 1;
                }
            }
            look(&machine);
            machine.take_orders();
            for (key, value) in machine.take_batch().changes {
                match value {
                    Some(value) => stored.insert(key, value),
                    None => stored.remove(&key),
                };
            }
        }
        let again = Machine::load(settings(), stored.into_iter().collect());
        let again = again.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        look(&again);
        assert_eq!(again.disks().count(), machine.disks().count(), "seed {seed}");
    }
    // Both happen, or nothing was tried.
    assert!(taken > 500 && refused > 500, "{taken} taken, {refused} refused");
}
