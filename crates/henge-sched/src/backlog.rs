//! The requests that wait: one list per flow, all in one arena.
//!
//! A request's id names its entry ([`RequestId::slot`] is dense), so an entry needs no search and no hashing, and
//! removing a request from the middle of its list costs the same as removing the first: two links to mend. Once as
//! many requests were pending as ever will be, nothing is allocated any more.
//!
//! Each entry holds the request, the two links, the number of its arrival (which breaks ties, so that equal runs
//! give equal answers), and `E`: what the scheduler wants to remember with it (SFQ: the virtual time at arrival).
//! That is 24 bytes on top of the request, and `E`.

use henge_core::{FlowId, Request, RequestId};

/// End of a list.
const NONE: u32 = u32::MAX;
/// In `prev`: nothing waits in this entry.
const FREE: u32 = u32::MAX - 1;

/// A request that waits. In this order: a request that begins where the struct does is copied out in the same pieces
/// in which it was written, which a processor does without waiting for the writes to be over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Queued<E> {
    /// The request.
    pub request: Request,
    /// It was the `sequence`-th to come, over all flows.
    pub sequence: u64,
    /// What its scheduler remembers with it.
    pub extra: E,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry<E> {
    queued: Queued<E>,
    next: u32,
    prev: u32,
}

#[derive(Clone, Copy)]
struct List {
    /// `NONE` where nothing waits; the tail means nothing then.
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE };

/// The requests that wait, first in first out per flow.
///
/// ```
/// use henge_core::{FlowId, Instant, Op, Request, RequestId};
/// use henge_sched::Backlog;
/// let request = |slot| {
///     Request::new(RequestId { slot, generation: 0 }, FlowId(3), Op::Read, 0, 4096, Instant::ZERO)
/// };
/// let mut backlog = Backlog::new();
/// assert!(backlog.push(request(0), ())); // the flow had nothing waiting before
/// assert!(!backlog.push(request(1), ()));
/// assert_eq!(backlog.remove(request(0).id).unwrap().request, request(0));
/// assert_eq!(backlog.pop_front(FlowId(3)).unwrap().request, request(1));
/// ```
pub struct Backlog<E> {
    entries: Vec<Entry<E>>,
    flows: Vec<List>,
    arrivals: u64,
    /// How many went again. Counting those that are here would write what the next arrival has to read first.
    departures: u64,
}

impl<E: Copy> Default for Backlog<E> {
    fn default() -> Self {
        Backlog { entries: Vec::new(), flows: Vec::new(), arrivals: 0, departures: 0 }
    }
}

impl<E: Copy> Backlog<E> {
    /// Nothing waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a request behind the others of its flow. True if the flow had none.
    ///
    /// Part of its caller's code, and the rare work is not: a request that is passed on is copied once more, and each
    /// copy waits for the writes of the one before.
    #[inline(always)]
    pub fn push(&mut self, request: Request, extra: E) -> bool {
        let (slot, flow) = (request.id.slot, request.flow.index());
        if self.flows.len() <= flow || self.entries.len() <= slot as usize {
            self.grow(&request, extra);
        }
        let list = &mut self.flows[flow];
        let entry = &mut self.entries[slot as usize];
        assert!(entry.prev == FREE, "a request that waits already does not come again");
        // Field by field: what is put together elsewhere first is copied twice.
        entry.queued.request = request;
        entry.queued.sequence = self.arrivals;
        entry.queued.extra = extra;
        let first = list.head == NONE;
        let before = std::mem::replace(&mut list.tail, slot);
        entry.next = NONE;
        if first {
            entry.prev = NONE;
            list.head = slot;
        } else {
            entry.prev = before;
            self.entries[before as usize].next = slot;
        }
        self.arrivals += 1;
        first
    }

    /// Makes room for more flows, or more requests, than there ever were.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, request: &Request, extra: E) {
        let (slot, flow) = (request.id.slot, request.flow.index());
        assert!(slot < FREE, "slots are dense");
        if self.flows.len() <= flow {
            self.flows.resize(flow + 1, EMPTY);
        }
        if self.entries.len() <= slot as usize {
            let queued = Queued { request: *request, sequence: 0, extra };
            self.entries.resize(slot as usize + 1, Entry { queued, next: NONE, prev: FREE });
        }
    }

    /// The flow's first.
    pub fn front(&self, flow: FlowId) -> Option<&Queued<E>> {
        let list = self.flows.get(flow.index())?;
        self.entries.get(list.head as usize).map(|p| &p.queued)
    }

    /// The flow's last.
    pub fn back(&self, flow: FlowId) -> Option<&Queued<E>> {
        let list = self.flows.get(flow.index()).filter(|list| list.head != NONE)?;
        self.entries.get(list.tail as usize).map(|p| &p.queued)
    }

    /// Takes the flow's first out.
    ///
    /// What is taken out is left to look at until something comes in its stead: a copy would be taken apart and put
    /// together again on its way through each `Option`, and each piece waits for the writes before it.
    #[inline]
    pub fn pop_front(&mut self, flow: FlowId) -> Option<&Queued<E>> {
        let head = self.flows.get(flow.index())?.head;
        (head != NONE).then(|| self.unlink(head))
    }

    /// Takes a request out, wherever it stands; `None` if it does not wait.
    pub fn remove(&mut self, id: RequestId) -> Option<&Queued<E>> {
        self.get(id)?;
        Some(self.unlink(id.slot))
    }

    /// Takes out what waits in an entry.
    ///
    /// # Panics
    /// When nothing waits there.
    pub fn take(&mut self, slot: u32) -> &Queued<E> {
        assert!(self.entries[slot as usize].prev != FREE, "something waits in the slot");
        self.unlink(slot)
    }

    /// The number that the next request to come will have.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// A request that waits.
    pub fn get(&self, id: RequestId) -> Option<&Queued<E>> {
        let entry = self.entries.get(id.index())?;
        (entry.prev != FREE && entry.queued.request.id == id).then_some(&entry.queued)
    }

    /// The same, to change it. Its id and flow stay.
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut Queued<E>> {
        let entry = self.entries.get_mut(id.index())?;
        (entry.prev != FREE && entry.queued.request.id == id).then_some(&mut entry.queued)
    }

    /// Whether `id` waits, and is its flow's first.
    pub fn is_front(&self, id: RequestId) -> bool {
        self.get(id).is_some_and(|q| self.flows[q.request.flow.index()].head == id.slot)
    }

    /// Whether the flow has something waiting.
    pub fn waits(&self, flow: FlowId) -> bool {
        self.flows.get(flow.index()).is_some_and(|list| list.head != NONE)
    }

    /// How many wait in all.
    pub fn queued(&self) -> usize {
        (self.arrivals - self.departures) as usize
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.arrivals == self.departures
    }

    /// The flow's requests, first to last.
    pub fn iter(&self, flow: FlowId) -> impl Iterator<Item = &Queued<E>> {
        let mut next = self.flows.get(flow.index()).map_or(NONE, |list| list.head);
        std::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            next = entry.next;
            Some(&entry.queued)
        })
    }

    /// Takes all of one flow out, first to last.
    pub fn drain_flow(&mut self, flow: FlowId, into: &mut Vec<Request>) {
        while let Some(queued) = self.pop_front(flow) {
            into.push(queued.request);
        }
    }

    /// Takes everything out, in the order it came.
    pub fn drain(&mut self, into: &mut Vec<Request>) {
        let waiting = |p: &&mut Entry<E>| p.prev != FREE;
        let mut all: Vec<Queued<E>> = Vec::with_capacity(self.queued());
        for entry in self.entries.iter_mut().filter(waiting) {
            entry.prev = FREE;
            all.push(entry.queued);
        }
        all.sort_unstable_by_key(|q| q.sequence);
        into.extend(all.iter().map(|q| q.request));
        self.flows.fill(EMPTY);
        self.departures = self.arrivals;
    }

    #[inline]
    fn unlink(&mut self, slot: u32) -> &Queued<E> {
        let entry = &mut self.entries[slot as usize];
        let (prev, next) = (std::mem::replace(&mut entry.prev, FREE), entry.next);
        debug_assert_ne!(prev, FREE, "what is unlinked was linked");
        let list = &mut self.flows[entry.queued.request.flow.index()];
        self.departures += 1;
        match prev {
            NONE => list.head = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        &self.entries[slot as usize].queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{Instant, Op, VTime};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn request(slot: u32, generation: u32, flow: u32) -> Request {
        Request::new(RequestId { slot, generation }, FlowId(flow), Op::Read, 0, 1, Instant::ZERO)
    }

    #[test]
    fn an_entry_costs_at_most_48_bytes_on_top_of_the_request() {
        assert!(size_of::<Entry<VTime>>() - size_of::<Request>() <= 48);
    }

    proptest! {
        /// Against the obvious model: one deque for all, searched from the front.
        #[test]
        fn behaves_like_a_deque(ops in proptest::collection::vec((0u8..4, 0u32..12, 0u32..3), 1..200)) {
            let mut backlog = Backlog::new();
            let mut model: VecDeque<Request> = VecDeque::new();
            let mut generations = [0u32; 12];
            for (op, slot, flow) in ops {
                let held = model.iter().position(|r| r.id.slot == slot);
                match (op, held) {
                    (0 | 1, None) => {
                        let r = request(slot, generations[slot as usize], flow);
                        let first = backlog.push(r, ());
                        prop_assert_eq!(first, !model.iter().any(|m| m.flow == r.flow));
                        model.push_back(r);
                    }
                    (2, Some(at)) => {
                        let r = model.remove(at).unwrap();
                        generations[slot as usize] += 1;
                        prop_assert_eq!(backlog.remove(r.id).map(|q| q.request), Some(r));
                        prop_assert_eq!(backlog.remove(r.id).map(|q| q.request), None);
                    }
                    _ => {
                        let at = model.iter().position(|r| r.flow == FlowId(flow));
                        let expected = at.and_then(|at| model.remove(at));
                        if let Some(r) = expected { generations[r.id.index()] += 1; }
                        prop_assert_eq!(backlog.pop_front(FlowId(flow)).map(|q| q.request), expected);
                    }
                }
                prop_assert_eq!(backlog.queued(), model.len());
                for f in 0..3 {
                    let flow = FlowId(f);
                    let expected: Vec<_> = model.iter().filter(|r| r.flow == flow).copied().collect();
                    prop_assert_eq!(backlog.waits(flow), !expected.is_empty());
                    prop_assert_eq!(backlog.iter(flow).map(|q| q.request).collect::<Vec<_>>(), expected.clone());
                    prop_assert_eq!(backlog.front(flow).map(|q| q.request), expected.first().copied());
                }
            }
            let mut drained = Vec::new();
            backlog.drain(&mut drained);
            prop_assert_eq!(drained, Vec::from(model));
            prop_assert!(backlog.is_empty());
        }
    }
}
