//! Short reads, which are answered at once, pass others, which wait for a processor.
//!
//! # The problem
//! Through the page cache a write is done by a worker of the kernel, and a read of what is there by who asks. Where many write, their workers wait for a
//! processor, and hold all slots meanwhile. So a neighbour's read, for which neither a worker nor the device is needed, waited for the next worker's
//! turn: 0.4 of 0.9 ms at the 99th percentile. A long read needs a worker where it is not there, and many turns of the loop where it is. Four of 1 MiB
//! held all slots just so.
//!
//! # The rule
//! Holds where [`Gate::let_reads_pass`] was called. A read of less than [`LONG`] bytes is *short*. While the depth D is used up, a short read waits in the
//! scheduler, and fewer than D of them are at the device, the scheduler is asked on. A short read that it dispatches goes, beside the depth, and has the next
//! slot if it is not over by then. [`AT_ONCE`] do so at most. Any other request is *overtaken*: dispatched, not at the device, and without a slot. After such
//! reads it has the next slots, in the order in which it was dispatched. [`OVERTAKEN`] are at most: a journal that is written keeps writers for tens of
//! milliseconds, and each read lets about one request of others leave the scheduler.
//!
//! # Example
//! Depth 4, and four writes at the device. Two more wait, then a read of 4 KiB of another flow comes. By its tags the scheduler dispatches a write, the read,
//! a write. The first write is overtaken. The read goes, and the scheduler keeps the rest.
//!
//! # Guarantee
//! At most D short reads and D others are at the device, besides those that need no slot. Among short reads the scheduler's order holds, and so it does among all
//! others, but for [`OVERTAKEN`] that left it before a short read.
//!
//! # Price
//! A count for each read. Depth controllers measure nothing of who passes, so none that steers by latencies should see the device of such a gate.

use super::beside::Slot;
use super::{Gate, RequestState};
use crate::{Dispatch, Duration, Instant, Op, Request, RequestId};
use std::collections::VecDeque;

/// Bytes of a read that is not short: where they are not in the page cache a worker reads them.
const LONG: u64 = 32 << 10;
/// Most reads that pass and are not over: what is in the page cache is over at once.
const AT_ONCE: usize = 8;
/// Most requests that were dispatched and wait for a slot.
const OVERTAKEN: usize = 32;

/// Who passes whom.
#[derive(Default)]
pub(super) struct Passing {
    /// Reads may.
    allowed: bool,
    /// Short reads in the scheduler.
    waiting: u32,
    /// Short reads that were dispatched and are not over.
    reads: u32,
    /// Those that have no slot.
    beside: VecDeque<RequestId>,
    overtaken: VecDeque<RequestId>,
}

/// An administrator's work has a slot of its own.
fn is_short_read(request: &Request) -> bool {
    request.op == Op::Read && request.len < LONG && !request.administration
}

impl Passing {
    /// The scheduler has it.
    pub(super) fn waits(&mut self, request: &Request) {
        self.waiting += u32::from(is_short_read(request));
    }
    /// The scheduler has given it back.
    pub(super) fn gave_up(&mut self, request: &Request) {
        self.waiting -= u32::from(is_short_read(request));
    }
    /// The scheduler has dispatched it.
    pub(super) fn goes(&mut self, request: &Request) {
        self.gave_up(request);
        self.reads += u32::from(is_short_read(request));
    }
    /// It was dispatched, and is another one from here on.
    pub(super) fn becomes(&mut self, request: &Request, other: &Request) {
        self.over(request);
        self.reads += u32::from(is_short_read(other));
    }
    /// It is over, or was given up after it was dispatched.
    pub(super) fn over(&mut self, request: &Request) {
        self.reads -= u32::from(is_short_read(request));
    }
    /// What has no slot needs none any more.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.beside.retain(|other| *other != id);
        self.overtaken.retain(|other| *other != id);
    }
    /// Whether something waits for a slot that the scheduler has dispatched.
    pub(super) fn has_overtaken(&self) -> bool {
        !self.overtaken.is_empty()
    }
}

impl Gate {
    /// Short reads need no slot that others have. For storage that answers them at once.
    pub fn let_reads_pass(&mut self) {
        self.passing.allowed = true;
    }

    /// No slot is free: what goes all the same.
    pub(super) fn pass(&mut self, now: Instant) -> Option<Request> {
        while self.passing.allowed
            && self.passing.waiting > 0
            && self.passing.reads < self.parts.depth.depth()
            && self.passing.beside.len() < AT_ONCE
            && self.passing.overtaken.len() < OVERTAKEN
        {
            let Dispatch::Ready(request) = self.ask_next(self.in_flight + 1, now) else { return None };
            if !self.is_stalled(request.id) {
                return Some(request);
            }
        }
        None
    }

    fn is_stalled(&self, id: RequestId) -> bool {
        matches!(self.states[id.index()], RequestState::InFlight { slot: Slot::Stalled, .. })
    }

    /// What place a request has that is dispatched while no slot is free.
    pub(super) fn place_beside(&mut self, request: &Request) -> Slot {
        let hangs = self.flow_mut(request.flow).hung.silent > 0;
        if is_short_read(request) && !hangs {
            self.beside.passing += 1;
            self.passing.beside.push_back(request.id);
            return Slot::Passing;
        }
        self.beside.stalled += 1;
        self.passing.overtaken.push_back(request.id);
        Slot::Stalled
    }

    /// Reads that have passed take what slots are free, and are watched from then on.
    pub(super) fn seat_passing(&mut self, now: Instant) {
        while !self.is_full()
            && let Some(id) = self.passing.beside.pop_front()
        {
            // They were counted as in flight without a slot.
            self.beside.passing -= 1;
            self.has_slot(id, Duration::ZERO, now);
        }
    }

    /// A slot is free: what was overtaken first goes first. That of a flow whose requests are silent is stalled as others of it are.
    pub(super) fn next_overtaken(&mut self, now: Instant) -> Option<Request> {
        while let Some(id) = self.passing.overtaken.pop_front() {
            let RequestState::InFlight { request, .. } = self.states[id.index()] else {
                unreachable!("what was overtaken is dispatched");
            };
            if !self.joins_stalled(&request) {
                return Some(self.goes(id, now));
            }
        }
        None
    }
}
