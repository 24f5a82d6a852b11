//! Connections that keep others waiting, by when they are looked at (`patience.rs`), and connections that wait for room.

use crate::client::Client;
use henge_core::{Duration, Instant, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long clients may keep others waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Nothing of a payload has come for so long: the connection is closed.
    pub payload: Duration,
    /// A command has waited for memory for so long: it is told of.
    pub memory: Duration,
}

/// Connections that are looked at again at a time.
pub(crate) struct Waits {
    pub patience: Patience,
    pub(super) payload: BTreeSet<(Instant, RequestId)>,
    pub(super) memory: BTreeSet<(Instant, RequestId)>,
}

impl Waits {
    pub(super) fn new(patience: Patience) -> Waits {
        Waits { patience, payload: BTreeSet::new(), memory: BTreeSet::new() }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, RequestId)>| set.first().map(|(at, _)| *at);
        first(&self.payload).into_iter().chain(first(&self.memory)).min()
    }

    /// Forgets a connection that is gone.
    pub(super) fn forget(&mut self, id: RequestId, client: &mut Client) {
        let link = &mut client.link;
        link.payload_due.take().map(|at| self.payload.remove(&(at, id)));
        link.memory_due.take().map(|at| self.memory.remove(&(at, id)));
    }

    pub(super) fn await_payload(&mut self, id: RequestId, client: &mut Client, at: Instant) {
        client.link.payload_due = Some(at);
        self.payload.insert((at, id));
    }

    pub(super) fn await_memory(&mut self, id: RequestId, client: &mut Client, at: Instant) {
        client.link.memory_due = Some(at);
        self.memory.insert((at, id));
    }
}

/// Connections that wait for room, by disk.
#[derive(Default)]
pub(crate) struct Waiters {
    /// For a command.
    pub capacity: Vec<VecDeque<RequestId>>,
    /// For memory.
    pub memory: BTreeMap<usize, VecDeque<RequestId>>,
    /// The disks that have such connections; each is asked in its turn.
    pub thirsty: VecDeque<usize>,
}
