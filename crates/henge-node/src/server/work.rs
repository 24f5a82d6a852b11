//! What is done beside the data path, and who waits for it.

use crate::exchange::Exchange;
use crate::plane::tickets::{Work, Worked};
use crate::plane::{PartOf, Plane};
use henge_api::Reply;
use henge_core::Instant;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

/// Who is told when a ticket is over.
pub(super) enum Waiter {
    /// Whoever removed the disk of that name, which had these parts.
    Removed(Sender<Reply>, String, Vec<PartOf>),
    /// Whoever is about to add a disk, or to let it grow.
    Prepared(Sender<Worked>),
    /// The shared disk of that name, whose image is to be this node's.
    Claimed(String, Vec<PartOf>),
    /// The shared disk of that name, whose image is closed.
    Released(String),
}

/// A disk that is about to go. Nobody comes to it meanwhile.
pub(super) struct Removal {
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) reply: Sender<Reply>,
    pub(super) until: Instant,
    /// Dropped when it has left its number.
    pub(super) gone: Option<Sender<()>>,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Administration {
    /// Disks that go once nothing of theirs is at the storage any more.
    pub(super) removals: Vec<Removal>,
    /// Who waits for which ticket.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    /// A scheduler that is being exchanged, and who asked for it.
    pub(super) exchange: Option<(Exchange, Sender<Reply>)>,
}

impl Administration {
    /// Begins a ticket for a disk's parts.
    pub(super) fn begin(
        &mut self,
        plane: &mut Plane,
        disk: &str,
        works: Vec<Work>,
        waiter: Waiter,
        now: Instant,
    ) {
        let Plane { tickets, pools, disks, .. } = plane;
        let id = tickets.begin(pools, disks, disk, works, now);
        self.waiters.insert(id, waiter);
    }

    /// Whether a disk is about to go.
    pub(super) fn is_leaving(&self, number: usize) -> bool {
        self.removals.iter().any(|removal| removal.number == number)
    }

    /// When storage has had its time.
    pub(super) fn removal_due(&self) -> Option<Instant> {
        self.removals.iter().map(|removal| removal.until).min()
    }
}
