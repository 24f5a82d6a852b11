//! A disk's requests on one of its gates, where one clock runs for the whole disk (`central.rs`).
//!
//! **Problem.** A disk of rate B over N gates has r = f·B/N at each. Requests that fall on gates by chance wait at one while r goes
//! unused at another: 8 outstanding over 4 spindles get 50/s of 60. To serve by the disk's own clock alone, as Stonehenge does, gives 60,
//! but a disk whose requests gather then takes what that gate promised to others.
//!
//! **Rule.** A gate keeps what it promised, and hands out by the disk's clock what is left:
//!
//! ```text
//!   E        when all that the flow was served here as due is paid off at r
//!   since    max(arrival, FT before it): the request's start by the disk's clock, at B
//!   due      from max(arrival, E), by the scheduler's own deadline; and, as long as E is at most S = 4 s ahead, from
//!            max(since, when it became its flow's first), by the deadline that follows from that
//!   owed     else, from since; the smallest goes. It costs r nothing
//!   spare    else, as each scheduler has it
//! ```
//!
//! **Example.** 150/s over two gates of 200/s, 75/s at each; a neighbour has 100/s at the first, and takes all it gets. 100/s come
//! to the first gate: 75 are due; of the 25/s that nobody was promised there, all are owed. The neighbour has its 100/s.
//!
//! **Guarantee.** In any time t a gate serves a disk as due at most r·(t + S), whatever gathers there, and N gates together at most B·t and what
//! is under way, or r·t at each. So who lies on all gates keeps its promise in any time, and who lies on one in the long run.
//!
//! **Why 4 s.** n requests under way on N gates, each with k = r·S kept, have about (n + N·k) / (n + N·k + N - 1) of their rate where all
//! is promised: 8 on four gates of 15/s have 0.73 without (0.87 with service times all equal), 0.98 with 4 s.
//!
//! **Price.** A time for each slot, and a place in one of two heaps for each flow whose first request has one. Nothing where no clock says anything.

use crate::IndexedHeap;
use crate::finish_clock::NEVER;
use crate::sfq::Key;
use crate::weight::since_epoch;
use henge_core::{Duration, FlowId, Instant, Request, RequestId, VTime};

/// S: how much of a gate's own reservation is kept while nothing comes there.
pub(crate) const SAVED: VTime = since_epoch(Instant::from_nanos(4_000_000_000));

/// The request went because it was owed: it costs its gate's reservation nothing.
const WENT: VTime = VTime::from_raw(u128::MAX);

/// Now, and what the gate's clock shows.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub now: Instant,
    pub clock: VTime,
}

/// What disks' clocks say of requests here.
#[derive(Default)]
pub(crate) struct Spread {
    /// By slot: from when the request is owed.
    since: Vec<VTime>,
    /// Flows whose first request has such a time, and whose gate has kept something for them.
    kept: IndexedHeap<Key>,
    /// And for which it has not.
    owed: IndexedHeap<Key>,
}

impl Spread {
    /// A request came; no clock said anything yet.
    #[inline]
    pub fn came(&mut self, id: RequestId) {
        if let Some(since) = self.since.get_mut(id.index()) {
            *since = NEVER;
        }
    }

    /// The disk's clock says that it is to be over `lead` after it came, and it takes `span` at the disk's rate.
    pub fn told(&mut self, request: &Request, lead: Duration, span: VTime) {
        let since = since_epoch(request.arrival + lead) - span;
        self.owe(request.id, since.max(since_epoch(request.arrival)));
    }

    /// The request is owed from `since`.
    pub fn owe(&mut self, id: RequestId, since: VTime) {
        let slot = id.index();
        if self.since.len() <= slot {
            self.since.resize(slot + 1, NEVER);
        }
        self.since[slot] = since;
    }

    /// From when the request is owed.
    #[inline]
    pub fn since(&self, id: RequestId) -> Option<VTime> {
        self.since.get(id.index()).copied().filter(|since| *since < NEVER)
    }

    /// The flow's first request, the `sequence`-th to come, waits, and is owed from `since`. `paid` is when what it was served here is
    /// paid off, by the gate's clock, which shows `clock`.
    #[inline]
    pub fn wait(&mut self, flow: FlowId, since: Option<VTime>, sequence: u64, paid: VTime, at: At) {
        self.remove(flow);
        let Some(since) = since else { return };
        if paid <= at.clock + SAVED {
            self.kept.set(flow.0, Key::new(since.max(since_epoch(at.now)), sequence));
        } else {
            self.owed.set(flow.0, Key::new(since, sequence));
        }
    }

    /// The flow has nothing that may go.
    #[inline]
    pub fn remove(&mut self, flow: FlowId) {
        if !self.kept.is_empty() {
            self.kept.remove(flow.0);
        }
        if !self.owed.is_empty() {
            self.owed.remove(flow.0);
        }
    }

    /// Whose first request is due by the disk's clock, and since when.
    #[inline]
    pub fn due(&self, now: Instant) -> Option<(FlowId, VTime)> {
        let (flow, key) = self.kept.peek()?;
        (key.start() <= since_epoch(now)).then_some((FlowId(flow), key.start()))
    }

    /// Whose first request is owed.
    #[inline]
    pub fn owed(&self, now: Instant) -> Option<FlowId> {
        let (flow, key) = match (self.kept.peek(), self.owed.peek()) {
            (Some(kept), Some(owed)) => {
                if owed.1 < kept.1 {
                    owed
                } else {
                    kept
                }
            }
            (kept, owed) => kept.or(owed)?,
        };
        (key.start() <= since_epoch(now)).then_some(FlowId(flow))
    }

    /// The request goes because it is owed.
    pub fn went(&mut self, id: RequestId) {
        self.since[id.index()] = WENT;
    }

    /// Whether it went so.
    #[inline]
    pub fn was_owed(&self, id: RequestId) -> bool {
        self.since.get(id.index()) == Some(&WENT)
    }

    /// Nobody has anything waiting.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.owed.clear();
    }
}
