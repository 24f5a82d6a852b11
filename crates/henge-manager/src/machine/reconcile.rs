//! What nodes say, and how manager and node come to agree.
//!
//! # The rule
//! Of each disk the manager knows what it wants and what the node confirmed last. A node that comes tells what it has; it is
//! sent an order for every disk whose newest revision it has not confirmed. Orders say how a disk should *be*, so that doing
//! one twice, or one that was overtaken, does no harm.
//!
//! Until a node has confirmed, its place holds the stricter of both contracts and the larger of both sizes (`effective`).
//! A contract that was changed at the node while the manager was away is not undone: of every term the stricter one wins, and
//! the larger size; the node is sent the union, and the difference stands at the disk until somebody changes its contract.
//!
//! A disk over several nodes grows in two rounds: first every node makes room at its places, which nobody sees; when all have
//! confirmed, all show a disk that is larger. A client that sees the new size finds all of it there.
//!
//! A disk that a node made by the manager's order and the manager does not know (its state is older than the node's) is taken
//! into the inventory again rather than removed: it may hold somebody's data. One that names other nodes waits for their word (`found.rs`).

mod found;

use super::{Machine, NodeState};
use crate::model::{Difference, DiskRecord, DiskSpec, HeldRecord, NodeRecord, PartRecord, Phase};
use henge_api::Status;
use henge_api::manager::{Held, Origin, Register, Seen};
use henge_core::{Term, parse_rate};

impl Machine {
    /// A node comes, or comes again: the orders it needs. An older connection of its is over.
    pub fn register(&mut self, session: u64, register: Register) {
        let name = register.name.clone();
        let old = self.inventory.node(&name).cloned();
        let known = |held: &Held| {
            self.inventory.disk(&held.name).is_some_and(|d| d.parts.iter().any(|p| p.node == name))
        };
        let own = register.disks.iter().filter(|h| h.revision.is_none() && !known(h)).cloned().collect();
        let record = NodeRecord {
            name: name.clone(),
            addresses: register.addresses,
            link: register.link,
            pools: register.pools,
            own,
            draining: old.as_ref().is_some_and(|n| n.record.draining),
            revision: old.as_ref().map_or(0, |n| n.record.revision),
        };
        let found = found::unknown(&self.inventory, &register.disks);
        let seen = self.journal.now();
        let state = NodeState { record, session: Some(session), status: None, seen, found };
        let same = old.as_ref().is_some_and(|n| n.record == state.record);
        if same {
            // Nothing to be stored.
            self.inventory.nodes.insert(name.clone(), state);
            self.inventory.open(&name);
        } else {
            self.inventory.put_node(&mut self.journal, &name, Some(state));
        }
        if old.is_none_or(|n| n.session.is_none()) {
            self.journal.put_event("node_up", None, Some(&name), "connected".into());
        }
        let Machine { failures, inventory, .. } = &mut *self;
        let is_held = |disk: &str| register.disks.iter().any(|held| held.name == disk);
        failures.keep_of(&name, |disk| inventory.disk(disk).is_some() || is_held(disk));
        let mut node = Reconciler { machine: self, node: &name };
        node.take_in();
        node.catch_up(&register.disks);
        let drained = self.inventory.node(&name).is_some_and(|node| node.record.draining);
        self.outbox.drain(&name, drained);
    }

    /// A connection is over.
    pub fn gone(&mut self, name: &str, session: u64) {
        let node = self.inventory.nodes.get_mut(name).filter(|n| n.session == Some(session));
        let Some(node) = node else { return };
        (node.session, node.status) = (None, None);
        self.inventory.open(name);
        let text = "not connected; it serves on by what it knows";
        self.journal.put_event("node_down", None, Some(name), text.into());
    }

    /// A disk was changed by somebody at its node while that was connected.
    pub fn changed_there(&mut self, node: &str, held: &Held) {
        let ours = self.inventory.disks.get(&held.name).filter(|d| d.parts.iter().any(|p| p.node == node));
        if let Some(disk) = ours.filter(|d| d.phase != Phase::Removing).cloned() {
            Reconciler { machine: self, node }.differ(&disk, held);
        }
    }

    /// A node carried out an order, or could not.
    pub fn done(&mut self, node: &str, name: &str, revision: u64, error: Option<String>) {
        let Some(disk) = self.inventory.disk(name).cloned() else { return };
        Reconciler { machine: self, node }.done(disk, revision, error);
    }

    /// Meters of a node. Of a disk that was placed elsewhere it has none.
    pub fn stats(&mut self, node: &str, mut status: Status) {
        let placed = &self.inventory.disks;
        let is_its = |name: &str| placed.get(name).is_none_or(|d| d.parts.iter().any(|p| p.node == node));
        status.disks.retain(|disk| is_its(&disk.name));
        self.inventory.watch(&mut self.journal, node, &status);
        self.inventory.hear_keeps(node, &status);
        let now = self.journal.now();
        if let Some(state) = self.inventory.nodes.get_mut(node) {
            (state.status, state.seen) = (Some(status.into()), now);
        }
    }

    /// Distributions of a node over one period.
    pub fn period(&mut self, node: &str, seconds: f64, seen: &[Seen]) {
        self.inventory.period(node, seconds, seen);
    }
}

/// One node and the manager come to agree.
struct Reconciler<'a> {
    machine: &'a mut Machine,
    node: &'a str,
}

impl Reconciler<'_> {
    /// Brings every disk of a node that came to where it should be.
    fn catch_up(&mut self, held: &[Held]) {
        let inventory = &self.machine.inventory;
        let here: Vec<String> = inventory
            .disks()
            .filter(|d| d.parts.iter().any(|p| p.node == self.node))
            .map(|d| d.name.clone())
            .collect();
        for name in here {
            match held.iter().find(|h| h.name == name) {
                Some(held) => self.compare(held),
                None => self.missing(&name),
            }
        }
    }

    /// A disk that the node does not serve. One that it had made may be lost, or not be opened, of which the node tells: that stands at the
    /// disk, since one that is made anew is empty.
    fn missing(&mut self, name: &str) {
        let disk = self.machine.inventory.disks[name].clone();
        let is_made = disk.parts.iter().any(|part| part.node == self.node && part.confirmed > 0);
        let had = format!("a disk that {} had made", self.node);
        let difference = Difference { manager: Some(had), node: None };
        if is_made && disk.phase != Phase::Removing && disk.differences.get("disk") != Some(&difference) {
            let text = "came without it, though it had made it: where it is made anew it is empty";
            self.put_event("difference", &disk, text.into());
            let mut differs = disk;
            differs.differences.insert("disk".into(), difference);
            self.machine.put_disk(name, Some(differs));
        }
        self.order_to(name);
    }

    /// A disk that manager and node both have.
    fn compare(&mut self, held: &Held) {
        let ours = self.machine.inventory.disks[&held.name].revision;
        let later = held.revision.is_some_and(|theirs| theirs > ours);
        if later {
            self.be_later(held);
        }
        let disk = self.machine.inventory.disks[&held.name].clone();
        if disk.phase == Phase::Removing {
            return self.order_to(&held.name);
        }
        let confirmed = disk.parts.iter().find(|p| p.node == self.node).map_or(0, |p| p.confirmed);
        // Changed at the node after the last order that both know of, or by one that is known there alone.
        if (held.changed || later) && held.revision.unwrap_or(0) >= confirmed {
            return self.differ(&disk, held);
        }
        // Room for a disk that grows is made, and not remembered: a node that began anew makes it again.
        if held.revision == Some(disk.revision) && disk.growing_from.is_none() {
            self.done(disk.clone(), disk.revision, None);
        } else {
            self.order_to(&held.name);
        }
    }

    /// The node has a later order than is remembered here: the state was restored from before that. It obeys orders that are later still, and
    /// what it was told by the one that was forgotten is as if somebody had changed it there.
    fn be_later(&mut self, held: &Held) {
        self.machine.journal.is_ahead_of(held.revision.unwrap_or(0));
        let mut disk = self.machine.inventory.disks[&held.name].clone();
        if disk.phase == Phase::Ready {
            disk.phase = Phase::Changing;
        }
        self.machine.put_disk(&held.name, Some(disk));
    }

    /// A contract that was changed at the node: the stricter of both, term by term.
    fn differ(&mut self, disk: &DiskRecord, held: &Held) {
        let Some(want) = disk.want(self.node, |_| None) else { return };
        let mut merged = disk.clone();
        let keys = want.contract.keys().chain(held.contract.keys());
        for key in keys.collect::<std::collections::BTreeSet<_>>() {
            let (ours, theirs) = (want.contract.get(key), held.contract.get(key));
            if ours == theirs {
                continue;
            }
            let difference = Difference { manager: ours.cloned(), node: theirs.cloned() };
            if disk.differences.get(key) != Some(&difference) {
                merged.differences.insert(key.clone(), difference);
            }
            if let Some(theirs) = theirs.filter(|theirs| stricter(key, ours.map(String::as_str), theirs)) {
                adopt_term(&mut merged, self.node, key, theirs);
            }
        }
        if held.capacity > disk.spec.bytes() {
            let bytes = format!("{}B", held.capacity);
            let difference =
                Difference { manager: Some(disk.spec.capacity.clone()), node: Some(bytes.clone()) };
            merged.differences.insert("capacity".into(), difference);
            if merged.parts.len() > 1 {
                merged.growing_from = merged.growing_from.or(Some(disk.spec.bytes()));
            }
            merged.spec.capacity = bytes;
        }
        if merged.spec.read().is_err() {
            // The node has what no specification says; the manager's contract stands, and the difference is shown.
            merged.spec = disk.spec.clone();
        }
        if merged.differences != disk.differences {
            let text = merged.differences.iter().map(|(key, d)| {
                let or = |t: &Option<String>| t.clone().unwrap_or_else(|| "nothing".into());
                format!("{key}: {} at the manager, {} at the node", or(&d.manager), or(&d.node))
            });
            let text = format!("{}; the stricter and the larger hold", text.collect::<Vec<_>>().join("; "));
            self.put_event("difference", disk, text);
        }
        if merged.spec != disk.spec || merged.parts != disk.parts || merged.differences != disk.differences {
            self.machine.put_disk(&disk.name, Some(merged));
        }
        self.order_to(&disk.name);
    }

    /// Takes a disk into the inventory that a node has by an order which is not remembered here.
    fn adopt(&mut self, held: &Held) {
        let term = |key: &str| held.contract.get(key).cloned();
        let mut spec = DiskSpec { capacity: format!("{}B", held.capacity), ..DiskSpec::default() };
        for (key, value) in held.contract.iter().filter(|(key, _)| Term::of(key).is_some()) {
            // What cannot be read, or is a later version's, is left out.
            let _ = spec.set(key, value);
        }
        if spec.read().is_err() {
            spec = DiskSpec { capacity: format!("{}B", held.capacity), ..DiskSpec::default() };
        }
        if let Err(why) = spec.read() {
            let text = format!("has a disk \"{}\" that cannot be taken into the inventory: {why}", held.name);
            if self.machine.failures.is_news(&held.name, self.node, &text) {
                self.machine.journal.put_event("failed", None, Some(self.node), text);
            }
            return;
        }
        let reserved = term("rate").and_then(|t| parse_rate(&t).ok()).map_or(0, |r| r.per_second);
        let n = held.pools.len().max(1) as u64;
        let part =
            |(node, pool)| PartRecord { node, pool, reserved_micro: reserved / n, held: None, confirmed: 0 };
        spec.parts = u32::try_from(n).ok().filter(|n| *n > 1);
        let difference =
            Difference { manager: None, node: Some("a disk that was not in the inventory".into()) };
        let disk = DiskRecord {
            name: held.name.clone(),
            tenant: None,
            spec,
            parts: found::places(self.node, held).into_iter().map(part).collect(),
            phase: Phase::Changing,
            revision: 0,
            created: self.machine.journal.now(),
            admitted_by: "found at its node".into(),
            growing_from: None,
            room: None,
            differences: [("disk".to_owned(), difference)].into(),
            ceiling: Default::default(),
            access: None,
            shared: !held.gateways.is_empty(),
            origin: Origin::default(),
        };
        // The node's orders must not be ahead of ours.
        self.machine.journal.is_ahead_of(held.revision.unwrap_or(0));
        self.machine.put_disk(&held.name, Some(disk.clone()));
        self.put_event("difference", &disk, "was not in the inventory, and is now".into());
    }

    /// The node carried out an order for a disk, or could not.
    fn done(&mut self, disk: DiskRecord, revision: u64, error: Option<String>) {
        if disk.revision != revision || !disk.parts.iter().any(|p| p.node == self.node) {
            return; // overtaken; a later order is on its way
        }
        if error.is_none() {
            found::is_known(&mut self.machine.inventory, self.node, &disk.name);
        }
        match (disk.phase, error) {
            (Phase::Removing, None) => self.removed(&disk),
            (Phase::Creating, Some(why)) if self.is_nobodys(&disk) => self.not_created(&disk, why),
            (Phase::Creating | Phase::Changing, Some(why)) => self.not_changed(disk, why),
            (_, Some(why)) => self.failed(&disk, why),
            (_, None) => self.confirmed(disk),
        }
    }

    fn removed(&mut self, disk: &DiskRecord) {
        let parts: Vec<PartRecord> = disk.parts.iter().filter(|p| p.node != self.node).cloned().collect();
        self.machine.failures.is_over(&disk.name, self.node);
        if parts.is_empty() {
            self.machine.put_disk(&disk.name, None);
            let tokens = self.machine.tokens.forget_disk(&mut self.machine.journal, &disk.name);
            let mut text = "gone, and its place is free".to_owned();
            if tokens > 0 {
                text = format!("{text}; {tokens} token(s) of it ended");
            }
            self.machine.journal.put_event("removed", Some(disk), None, text);
        } else {
            self.machine.put_disk(&disk.name, Some(DiskRecord { parts, ..disk.clone() }));
            self.machine.order(&disk.name);
        }
    }

    /// Whether nothing can have been written to a disk that this node refuses to make: what a node has made stays, whatever it says later. Where
    /// several share the storage, each that has made it has all of it.
    fn is_nobodys(&self, disk: &DiskRecord) -> bool {
        let is_made = |part: &PartRecord| part.confirmed > 0 && (disk.shared || part.node == self.node);
        !disk.parts.iter().any(is_made)
    }

    /// A node refused to make a disk: it is taken back everywhere, and whoever waits is told why.
    fn not_created(&mut self, disk: &DiskRecord, why: String) {
        self.failed(disk, why.clone());
        let why = format!("node \"{}\" did not make it: {why}", self.node);
        self.machine.failures.add(&disk.name, why);
        // It holds its place until the node has said that nothing is left of it.
        self.machine.put_disk(&disk.name, Some(DiskRecord { phase: Phase::Removing, ..disk.clone() }));
        self.machine.order(&disk.name);
    }

    /// A node refused a contract: the old one stays, everywhere.
    fn not_changed(&mut self, mut disk: DiskRecord, why: String) {
        self.failed(&disk, why.clone());
        let Some(old) = disk.parts.iter().find(|p| p.node == self.node).and_then(|p| p.held.clone()) else {
            if disk.phase == Phase::Creating {
                // What another has made may have been written to: that is the administrator's to remove.
                let why = format!(
                    "node \"{}\" did not make it: {why}; it stays, since a node has made it",
                    self.node
                );
                if self.machine.failures.of(&disk.name) != Some(&why) {
                    self.machine.failures.add(&disk.name, why);
                }
            }
            return;
        };
        let why = format!("node \"{}\" refused it: {why}", self.node);
        self.machine.failures.add(&disk.name, why);
        if old.spec == disk.spec {
            return; // it has the room that it made; it will be reminded
        }
        if disk.growing_from.take().is_some() {
            // Other places may have grown. Their room stays promised: to this disk.
            disk.room = disk.room.max(Some(disk.spec.bytes()));
        }
        disk.spec = old.spec;
        for part in disk.parts.iter_mut() {
            if let Some(held) = &part.held {
                part.reserved_micro = held.reserved_micro;
            }
        }
        let name = disk.name.clone();
        self.machine.put_disk(&name, Some(disk));
        self.machine.order(&name);
    }

    fn confirmed(&mut self, mut disk: DiskRecord) {
        let revision = disk.revision;
        let before = disk.clone();
        self.machine.failures.is_over(&disk.name, self.node);
        for part in disk.parts.iter_mut().filter(|p| p.node == self.node) {
            (part.confirmed, part.held) = (revision, None);
        }
        let settled = disk.parts.iter().all(|p| p.held.is_none() && p.confirmed > 0);
        let was = disk.phase;
        if settled && disk.growing_from.take().is_some() {
            return self.show_larger(disk);
        }
        if settled {
            disk.phase = Phase::Ready;
        }
        if disk == before {
            return;
        }
        // The node confirmed this revision: it stays, or every confirmation would ask for another.
        self.machine.inventory.keep_disk(&mut self.machine.journal, disk.clone());
        if settled && was == Phase::Creating {
            self.machine.failures.forget(&disk.name);
            self.put_event("created", &disk, "served".into());
        }
    }

    /// There is room at all places: now its nodes show clients a larger disk.
    fn show_larger(&mut self, mut disk: DiskRecord) {
        for part in &mut disk.parts {
            part.held = Some(HeldRecord { spec: disk.spec.clone(), reserved_micro: part.reserved_micro });
        }
        let name = disk.name.clone();
        self.machine.put_disk(&name, Some(disk));
        self.machine.order(&name);
    }

    /// A node says why it does not do it; told once, until it says something else.
    fn failed(&mut self, disk: &DiskRecord, why: String) {
        if self.machine.failures.is_news(&disk.name, self.node, &why) {
            self.put_event("failed", disk, why);
        }
    }

    fn put_event(&mut self, kind: &str, disk: &DiskRecord, text: String) {
        self.machine.journal.put_event(kind, Some(disk), Some(self.node), text);
    }

    fn order_to(&mut self, name: &str) {
        self.machine.outbox.order_to(&self.machine.inventory, self.node, name);
    }
}

/// Whether a node's term promises more than the manager's.
fn stricter(key: &str, ours: Option<&str>, theirs: &str) -> bool {
    Term::of(key).is_some_and(|term| term.promises_more(ours, theirs))
}

/// Takes a node's term over.
fn adopt_term(disk: &mut DiskRecord, node: &str, key: &str, value: &str) {
    if key == "rate"
        && let Ok(rate) = parse_rate(value)
    {
        // What the node calls rate is the reservation; more of it is more promised.
        let n = disk.divided() as u64;
        let parts = disk.parts.iter_mut().filter(|p| p.node == node);
        parts.for_each(|p| p.reserved_micro = p.reserved_micro.max(rate.per_second / n));
    }
    // What a node has and cannot be read is shown as a difference, and not taken over.
    let _ = disk.spec.set(key, value);
}
