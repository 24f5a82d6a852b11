//! The connections of a loop.

use crate::beside::Beside;
use crate::client::Client;
use henge_core::{Instant, Pending, RequestId};
use henge_tls::{Shake, Shaken};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

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
    /// Steps of their handshakes by TLS.
    pub(super) shakes: Beside<Shake, Shaken>,
}

impl Clients {
    /// `wake` wakes the loop.
    pub(super) fn new(wake: Arc<OwnedFd>) -> Clients {
        Clients {
            all: Pending::new(),
            users: BTreeSet::new(),
            leaving: BTreeMap::new(),
            due: BTreeSet::new(),
            look: None,
            looked: Looked::default(),
            shakes: Beside::new("henge-shakes", Shake::run, wake),
        }
    }

    /// The connections that use a disk.
    pub(super) fn users_of(&self, number: usize) -> impl Iterator<Item = RequestId> {
        self.users.range((number, FIRST)..=(number, LAST)).map(|(_, id)| *id)
    }
}
