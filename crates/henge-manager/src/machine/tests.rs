//! The machine against nodes that carry out orders, lose connections, and are changed behind its back; and against stores
//! that die at every commit. Here are the nodes, and what several files ask of them.

mod admission;
mod agreement;
mod crashes;
mod failures;
mod growth;
mod many;
mod takeovers;

use super::*;
use crate::model::{Begins, DiskSpec};
use henge_api::manager::{Held, Pool, Profile, Register};
use std::collections::BTreeMap;

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

fn striped(capacity: u64) -> DiskSpec {
    DiskSpec { parts: Some(2), ..spec(capacity, None, None) }
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
