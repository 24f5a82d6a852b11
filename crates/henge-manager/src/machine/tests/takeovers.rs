//! Managers that lose their lease while they do things, and do not know it yet.
//!
//! Two managers over one store: a former one, which has decided and finds that it may not, and the one that leads. Each node speaks to one of them at a
//! time, and comes to either as it likes. What a node has begun for the former, it finishes for whoever it speaks to by then.

use super::*;
use crate::model::Phase;
use crate::store::{Batch, MemoryStore, Store, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store that takes what the latest term commits.
struct Fenced {
    inner: MemoryStore,
    term: Arc<AtomicU64>,
    mine: u64,
}

impl Store for Fenced {
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.load()
    }
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        match self.term.load(Ordering::Relaxed) == self.mine {
            true => self.inner.commit(batch),
            false => Err(StoreError("another manager has taken over".into())),
        }
    }
    fn leads(&self) -> bool {
        self.term.load(Ordering::Relaxed) == self.mine
    }
}

/// One that leads, or believes so.
struct Manager {
    machine: Machine,
    store: Fenced,
}

/// A node, whom it speaks to, and what it has begun.
#[derive(Default)]
struct Served {
    node: FakeNode,
    term: Option<u64>,
    begun: Vec<Order>,
}

struct World {
    rng: Pcg64Mcg,
    inner: MemoryStore,
    term: Arc<AtomicU64>,
    managers: BTreeMap<u64, Manager>,
    nodes: BTreeMap<String, Served>,
    session: u64,
    /// Disks that were acknowledged, and are there until their removal is.
    acknowledged: BTreeMap<String, DiskSpec>,
}

fn promises(machine: &Machine) -> BTreeMap<String, DiskSpec> {
    let kept = machine.disks().filter(|disk| disk.phase != Phase::Removing);
    kept.map(|disk| (disk.name.clone(), disk.spec.clone())).collect()
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            rng: Pcg64Mcg::seed_from_u64(seed),
            inner: MemoryStore::default(),
            term: Arc::default(),
            managers: BTreeMap::new(),
            nodes: ["a", "b", "c"].into_iter().map(|name| (name.to_owned(), Served::default())).collect(),
            session: 0,
            acknowledged: BTreeMap::new(),
        };
        world.take_over();
        world
    }

    /// The lease has run out; another manager leads. The one before does not know it, those before that are gone.
    fn take_over(&mut self) {
        let mine = self.term.fetch_add(1, Ordering::Relaxed) + 1;
        let mut store = Fenced { inner: self.inner.clone(), term: self.term.clone(), mine };
        let machine = Machine::load(settings(), store.load().unwrap()).unwrap();
        assert_eq!(promises(&machine), self.acknowledged, "what was acknowledged is there, and nothing else");
        self.managers.insert(mine, Manager { machine, store });
        while self.managers.len() > 2 {
            let first = *self.managers.keys().next().unwrap();
            self.gone(first);
        }
    }

    fn gone(&mut self, term: u64) {
        self.managers.remove(&term);
        self.nodes.values_mut().filter(|of| of.term == Some(term)).for_each(|of| of.term = None);
    }

    /// As the core does it: stores what a manager has changed and sends its orders. One that may not ends, its nodes with it.
    fn turn(&mut self, term: u64) {
        // The lease may run out between the decision and the store.
        if self.rng.random_bool(0.02) {
            self.take_over();
        }
        let Some(manager) = self.managers.get_mut(&term) else { return };
        let (batch, orders) = (manager.machine.take_batch(), manager.machine.take_orders());
        let may = if batch.is_empty() { manager.store.leads() } else { manager.store.commit(&batch).is_ok() };
        if !may {
            return self.gone(term);
        }
        if !batch.is_empty() {
            self.acknowledged = promises(&manager.machine);
        }
        for (name, order) in orders {
            let heard = self.rng.random_bool(0.8);
            let served = self.nodes.get_mut(&name).unwrap();
            if heard && served.term == Some(term) {
                served.begun.push(order);
            }
        }
    }

    /// A node finishes something. Of one disk what was begun first is over first.
    fn finish(&mut self) {
        let name = self.someone();
        let served = self.nodes.get_mut(&name).unwrap();
        if served.begun.is_empty() {
            return;
        }
        let order = served.begun.remove(0);
        served.node.obey(&order);
        self.is_at_one_node(&order.name);
        let Some(term) = self.nodes[&name].term else { return };
        if let Some(manager) = self.managers.get_mut(&term) {
            manager.machine.done(&name, &order.name, order.revision, None);
            self.turn(term);
        }
    }

    fn someone(&mut self) -> String {
        ["a", "b", "c"][self.rng.random_range(0..3)].to_owned()
    }

    fn is_at_one_node(&self, disk: &str) {
        let at: Vec<&String> =
            self.nodes.iter().filter(|(_, of)| of.node.has(disk)).map(|(name, _)| name).collect();
        assert!(at.len() <= 1, "disk {disk} is at {at:?}");
    }

    /// A node comes to a manager: what waited there is forgotten, and what was begun goes on.
    fn come(&mut self, name: &str, term: u64) {
        self.session += 1;
        let served = self.nodes.get_mut(name).unwrap();
        served.term = Some(term);
        let kept = self.rng.random_range(0..=served.begun.len());
        served.begun.truncate(kept);
        let register = served.node.register(name);
        let manager = self.managers.get_mut(&term).unwrap();
        manager.machine.register(self.session, register);
        self.turn(term);
    }

    fn step(&mut self) {
        let terms: Vec<u64> = self.managers.keys().copied().collect();
        let term = terms[self.rng.random_range(0..terms.len())];
        let name = format!("d{}", self.rng.random_range(0..5));
        let some = spec(self.rng.random_range(1..50), Some(self.rng.random_range(1..100)), None);
        let what = self.rng.random_range(0..100);
        let machine = &mut self.managers.get_mut(&term).unwrap().machine;
        match what {
            0..20 => drop(machine.create(&ADMIN, &name, &some, None, None)),
            20..40 => drop(machine.remove(&ADMIN, &name, None, true)),
            40..50 => {
                if let Some(disk) = machine.inventory.disk(&name).cloned() {
                    let spec = DiskSpec { rate: some.rate, ..disk.spec };
                    drop(machine.change(&ADMIN, &name, &spec, None));
                }
            }
            50..55 => machine.remind(),
            55..56 => return self.take_over(),
            56..62 => {
                let node = self.someone();
                return self.come(&node, term);
            }
            _ => return self.finish(),
        }
        self.turn(term);
    }

    /// The leader is left, and everybody comes to it.
    fn end(mut self) {
        self.take_over();
        let last = self.term.load(Ordering::Relaxed);
        for name in ["a", "b", "c"] {
            self.nodes.get_mut(name).unwrap().begun.clear();
            self.session += 1;
            let register = self.nodes[name].node.register(name);
            self.managers.get_mut(&last).unwrap().machine.register(self.session, register);
        }
        let mut nodes: BTreeMap<String, FakeNode> =
            self.nodes.into_iter().map(|(name, served)| (name, served.node)).collect();
        let machine = &mut self.managers.get_mut(&last).unwrap().machine;
        settle(machine, &mut nodes);
        machine.check().unwrap();
        assert!(machine.disks().all(|disk| disk.phase == Phase::Ready), "something is half done");
        for (name, node) in &nodes {
            let here: Vec<&String> = node.disks.keys().collect();
            let wanted = machine.disks().filter(|disk| disk.parts.iter().any(|part| part.node == *name));
            assert_eq!(here, wanted.map(|disk| &disk.name).collect::<Vec<_>>(), "node {name}");
        }
    }
}

#[test]
fn a_disk_is_at_one_node_whoever_believes_to_lead() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
        }
        world.end();
    }
}
