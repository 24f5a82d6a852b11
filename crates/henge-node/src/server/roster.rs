//! The connections of a loop.

use crate::client::Client;
use henge_core::{Instant, Pending, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Of all connections' names, the least and the greatest.
const FIRST: RequestId = RequestId { slot: 0, generation: 0 };
const LAST: RequestId = RequestId { slot: u32::MAX, generation: u32::MAX };

/// How far a look at all certificates is.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) turn: u64,
    pub(super) left: VecDeque<RequestId>,
}

impl Looked {
    /// Whether there are more to be looked at.
    pub(super) fn goes_on(&self) -> bool {
        !self.left.is_empty()
    }
}

/// All of them.
pub(crate) struct Clients {
    pub(super) all: Pending<Client>,
    /// Which connections use which disk.
    pub(super) users: BTreeSet<(usize, RequestId)>,
    /// Initiators and hosts that are gone while commands of theirs are at a disk.
    pub(super) leaving: BTreeMap<RequestId, Client>,
    /// When sessions have something to do by themselves.
    pub(super) due: BTreeSet<(Instant, RequestId)>,
    /// When initiators are looked at for silence.
    pub(super) look: Option<Instant>,
    /// How far the look at all certificates is.
    pub(super) looked: Looked,
}

impl Clients {
    pub(super) fn new() -> Clients {
        Clients {
            all: Pending::new(),
            users: BTreeSet::new(),
            leaving: BTreeMap::new(),
            due: BTreeSet::new(),
            look: None,
            looked: Looked::default(),
        }
    }

    /// The connections that use a disk.
    pub(super) fn users_of(&self, number: usize) -> impl Iterator<Item = RequestId> {
        self.users.range((number, FIRST)..=(number, LAST)).map(|(_, id)| *id)
    }
}
