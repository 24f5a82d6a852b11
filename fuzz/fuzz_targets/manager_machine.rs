//! Any lines of two nodes, between which time passes: what a manager takes of them it can show, and read again from what it stores.
#![no_main]

use henge_manager::machine::{Caller, Machine, Settings};
use henge_manager::model::{Begins, DiskSpec};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

fn register(node: &str) -> String {
    format!(
        r#"{{"say":"register","name":"{node}","addresses":["nbd://{node}/%"],"link":"{node}:1","disks":[],"pools":["#
    ) + r#"{"name":"p","capacity":300000000000,"copies":1,"scheduler":"cvc","profile":{"iops":500.0,"service":0.014}}]}"#
        + "\n"
}

fn machine() -> Machine {
    let mut machine = Machine::load(Settings { events_max: 50, ..Settings::default() }, Vec::new()).expect("nothing is stored");
    for (session, node) in ["a", "b"].into_iter().enumerate() {
        henge_manager::hear_line(&mut machine, session as u64, register(node).as_bytes()).expect("a sound node");
    }
    for (name, parts) in [("d0", 1), ("wide", 2)] {
        let spec = DiskSpec { capacity: "10GB".into(), rate: Some("5/s".into()), parts: Some(parts), ..DiskSpec::default() };
        machine.create_for(&Caller::Administrator, name, &spec, None, None, Begins::default()).expect("there is room");
    }
    machine
}

fn store(machine: &mut Machine, stored: &mut BTreeMap<String, Vec<u8>>) {
    for (key, value) in machine.take_batch().changes {
        match value {
            Some(value) => stored.insert(key, value),
            None => stored.remove(&key),
        };
    }
}

fuzz_target!(|data: &[u8]| {
    let mut machine = machine();
    let mut stored = BTreeMap::new();
    store(&mut machine, &mut stored);
    for (i, line) in data.split_inclusive(|&b| b == b'\n').take(32).enumerate() {
        machine.at(i as u64 * 60_000);
        let session = u64::from(line.first().is_some_and(|b| b & 1 == 1));
        if let Err(why) = henge_manager::hear_line(&mut machine, session, line) {
            assert!(!why.is_empty());
        }
        machine.take_orders();
        store(&mut machine, &mut stored);
        for disk in machine.disks() {
            machine.clients(&disk.name);
        }
        assert!(machine.events(0).all(|e| !e.text.contains(['\u{1b}', '\r', '\u{9b}'])), "it moves no cursor");
    }
    let again = Machine::load(Settings { events_max: 50, ..Settings::default() }, stored.into_iter().collect());
    assert_eq!(again.expect("it is read again").disks().count(), machine.disks().count());
});
