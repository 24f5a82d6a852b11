//! Which request of an application goes when its turn comes.
//!
//! # The problem
//! A gate lets an application's requests go in the order in which they came. So each look at a file would wait behind all that its
//! application reads: behind 256 reads of 4 MiB, for seconds. Metadata that passes the gate takes no slot, and whoever asks for nothing
//! else takes his neighbours' server.
//!
//! # The rule
//! A request at the gate is a *turn* of its application. All that its clients ask for has one, metadata as well, with a slot at the server until it is
//! answered. When a turn comes, the oldest metadata goes; after metadata the oldest I/O, if there is any. The turn then costs what goes in it.
//! The other request has one of the turns that are left.
//!
//! # Example
//! 200 reads wait, and somebody opens a file. The attributes go in the turn of the oldest read, and the read in the next one. The last read goes in the turn
//! that the attributes brought.
//!
//! # Guarantee
//! As many turns are at the gate as requests wait. I/O goes in the order in which it came, and so does metadata. Neither keeps the other from
//! more than every other turn. What an application has of its neighbours does not depend on what goes first.
//!
//! # Price
//! An entry in two queues for each request. A scheduler that orders by position orders turns, not what goes in them.

use super::requests::Requests;
use henge_core::{FlowId, Instant, Request, RequestId};
use std::collections::VecDeque;

/// What waits of an application, and its turns at the gate.
#[derive(Default)]
pub(super) struct Line {
    io: VecDeque<RequestId>,
    metadata: VecDeque<RequestId>,
    /// In the order in which they came to the gate.
    turns: VecDeque<RequestId>,
    /// Metadata went last.
    metadata_went: bool,
}

impl Line {
    /// The next that goes, of those that wait.
    fn next(&mut self) -> Option<RequestId> {
        let metadata = !self.metadata.is_empty() && (self.io.is_empty() || !self.metadata_went);
        self.metadata_went = metadata;
        if metadata { self.metadata.pop_front() } else { self.io.pop_front() }
    }
}

/// Takes one out of a queue; most often it is the first, or the last.
fn take(queue: &mut VecDeque<RequestId>, id: RequestId) -> bool {
    let at =
        if queue.back() == Some(&id) { Some(queue.len() - 1) } else { queue.iter().position(|q| *q == id) };
    at.and_then(|at| queue.remove(at)).is_some()
}

impl Requests {
    /// A request waits from now on, and has brought a turn.
    pub(super) fn waits(&mut self, flow: FlowId, id: RequestId, turn: RequestId, is_metadata: bool) {
        let line = &mut self.lines[flow.index()];
        line.turns.push_back(turn);
        if is_metadata { line.metadata.push_back(id) } else { line.io.push_back(id) }
    }

    /// A turn has come: which request goes in it.
    pub(super) fn goes(&mut self, dispatched: &Request, now: Instant) -> RequestId {
        let line = &mut self.lines[dispatched.flow.index()];
        assert!(take(&mut line.turns, dispatched.id), "a turn was known");
        let id = line.next().expect("as many wait as there are turns");
        let io = self.ios.get_mut(id).expect("what waits is known");
        io.turn = Some(dispatched.id);
        if io.request.id != dispatched.id {
            self.gate.goes_as(dispatched.id, &io.request, now);
        }
        id
    }

    /// A request that waits is given up, and with it the latest turn of its application.
    pub(super) fn give_up(&mut self, id: RequestId, now: Instant) {
        let flow = self.ios.get(id).expect("what waits is known").request.flow;
        let line = &mut self.lines[flow.index()];
        let waited = take(&mut line.metadata, id) || take(&mut line.io, id);
        assert!(waited, "it waits");
        let turn = line.turns.pop_back().expect("as many turns are there as wait");
        self.gate.cancel(turn, now).expect("a turn that has not come waits");
        self.turns.discard(turn);
        self.ios.discard(id);
    }
}
