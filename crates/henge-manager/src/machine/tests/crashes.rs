//! The manager against stores that die at every commit.

use super::*;
use crate::model::Phase;
use crate::store::suite::{Open, stores};
use crate::store::{Faulty, MemoryStore, Store};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

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
