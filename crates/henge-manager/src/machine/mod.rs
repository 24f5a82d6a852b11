//! The manager's state and everything that changes it. Pure: no clock, no socket, no file; time is an argument.
//!
//! Each part of the state is a struct of its own: inventory, quotas, tokens, keys, identities. Every change goes through `put_…` of
//! one of them, which changes the state and writes the same into the journal's batch. Whoever runs the machine takes the batch,
//! stores it, and only then sends what lies in the outbox and lets the answers out. After a failed store the machine is made
//! anew from what is stored (`resume.rs`).
//!
//! # What must always hold (`check.rs`)
//! - a disk holds its place from the moment it is admitted until every node has confirmed that it is gone;
//! - each pool's bytes are its disks' bytes, counted once; no pool has more promised than it has;
//! - every node that is here has been sent an order for whatever it has not confirmed.

mod admit;
mod answer;
mod caller;
mod change;
#[cfg(test)]
mod check;
mod create;
mod failures;
mod gateways;
mod identities;
mod inventory;
mod journal;
mod keys;
mod log;
mod names;
mod outbox;
mod paces;
mod quotas;
mod reconcile;
mod resume;
mod tenants;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

pub use answer::{Created, Decision, Failure, Place};
pub use caller::Caller;
pub(crate) use gateways::leaving;
pub use gateways::{Leaves, Leaving};
pub use identities::{Grant, Revoked};
pub use tenants::{Forgotten, Tenant};

use failures::Failures;
use identities::Identities;
use inventory::Inventory;
use journal::Journal;
use keys::Keys;
use outbox::Outbox;
use paces::Paces;
use quotas::Quotas;
use tokens::Tokens;

use crate::model::{DiskRecord, Event, NodeRecord};
use crate::store::Batch;
use henge_admission::Rules;
use henge_api::Status;
use henge_api::manager::{Held, Order};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Knobs.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Rules of measured admission; none: worst-case arithmetic alone.
    pub rules: Option<Rules>,
    /// Milliseconds between two distributions of a node.
    pub period_ms: u64,
    /// Milliseconds that a measurement covers.
    pub window_ms: u64,
    /// Milliseconds after an admission before a pool's measurements are believed.
    pub settle_ms: u64,
    /// Events kept.
    pub events_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rules: Some(Rules::OURS),
            period_ms: 60_000,
            window_ms: 86_400_000,
            settle_ms: 3_600_000,
            events_max: 10_000,
        }
    }
}

/// A node now.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// What is remembered.
    pub record: NodeRecord,
    /// The connection it is here by.
    pub session: Option<u64>,
    /// Its meters.
    pub status: Option<Arc<Status>>,
    /// When they came; milliseconds since 1970.
    pub seen: u64,
    /// Disks that it has by orders which are not remembered here, as it said when it came.
    pub found: Arc<BTreeMap<String, Held>>,
}

/// The state.
pub struct Machine {
    pub(crate) journal: Journal,
    pub(crate) outbox: Outbox,
    pub(crate) inventory: Inventory,
    pub(crate) quotas: Quotas,
    pub(crate) tokens: Tokens,
    keys: Keys,
    paces: Paces,
    pub(crate) identities: Identities,
    pub(crate) failures: Failures,
}

/// Something stored is not what this release stores.
#[derive(Debug, thiserror::Error)]
#[error("what is stored under \"{key}\" is not understood: {why}")]
pub struct BadState {
    /// Where.
    pub key: String,
    /// Why.
    pub why: String,
}

impl Machine {
    /// From what is stored.
    pub fn load(settings: Settings, stored: Vec<(String, Vec<u8>)>) -> Result<Machine, BadState> {
        let mut machine = Machine {
            journal: Journal::new(settings.events_max),
            outbox: Outbox::default(),
            inventory: Inventory::new(&settings),
            quotas: Quotas::default(),
            tokens: Tokens::default(),
            keys: Keys::default(),
            paces: Paces::default(),
            identities: Identities::default(),
            failures: Failures::default(),
        };
        for (key, value) in stored {
            machine.restore(&key, &value).map_err(|why| BadState { key, why })?;
        }
        machine.inventory.refresh_all();
        Ok(machine)
    }

    fn restore(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let (kind, name) = key.split_once('/').ok_or("it is of no kind")?;
        let restored = match kind {
            "disk" | "node" => self.inventory.restore(kind, name, value),
            "token" => self.tokens.restore(name, value),
            "tenant" => return self.quotas.restore(name, value),
            "event" | "meta" => self.journal.restore(kind, value),
            "key" => self.keys.restore(name, value),
            "authority" | "invitation" | "certificate" => self.identities.restore(kind, name, value),
            _ => return Err("this release knows no such kind".into()),
        };
        restored.map_err(|e| e.to_string())
    }

    /// What time it is, in milliseconds since 1970; called before anything is asked.
    pub fn at(&mut self, now: u64) -> &mut Self {
        self.journal.at(now);
        self
    }

    /// What is to be stored now.
    pub fn take_batch(&mut self) -> Batch {
        self.journal.take_batch()
    }

    /// What is to be sent once that is stored.
    pub fn take_orders(&mut self) -> Vec<(String, Order)> {
        std::mem::take(&mut self.outbox.orders)
    }

    /// Nodes that are to hear whether they are drained, once that is stored.
    pub fn take_drains(&mut self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.outbox.drains)
    }

    /// All disks by name.
    pub fn disks(&self) -> impl Iterator<Item = &DiskRecord> {
        self.inventory.disks()
    }

    /// Clients connected to a disk, as its nodes said last.
    pub fn clients(&self, name: &str) -> usize {
        self.inventory.clients(name)
    }

    /// Events after one, the oldest first.
    pub fn events(&self, after: u64) -> impl DoubleEndedIterator<Item = &Event> {
        self.journal.events(after)
    }

    /// Remembers a disk with a new revision, or forgets it.
    fn put_disk(&mut self, name: &str, disk: Option<DiskRecord>) {
        self.inventory.put_disk(&mut self.journal, name, disk);
    }

    /// Sends a disk's present state to its nodes that are here.
    fn order(&mut self, name: &str) {
        self.outbox.order(&self.inventory, name);
    }
}
