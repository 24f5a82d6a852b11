//! When requests of many pieces go.
//!
//! # The problem
//! One of 65,000 pieces stops its server for three seconds, and the gate charges a gigabyte for it. But whoever waits for the server behind it
//! has nothing waiting here. So the gate finds the next one alone, and lets it go: neighbours had a few reads between two of them.
//!
//! # The rule
//! Such requests of an application take time t of the server: as long as one is there, 64 µs a piece at most. Then others have their
//! turn. The application's next one rests for t · Σφ / φ, by its weight φ and those of all others that had requests meanwhile; 20 s at most.
//! It rests no longer than others ask for anything.
//!
//! # Example
//! Weights 1 : 4. A list takes 3 s of its server. The next one goes 12 s later, or 100 ms after the other application has asked for nothing.
//!
//! # Price
//! A look at all applications for each request of many pieces that goes or ends.

use henge_core::{Duration, FlowId, Gate, Instant, RequestId};
use std::collections::VecDeque;

/// What a server was seen to take for a piece, and a little more.
const PIECE_NS: u64 = 64_000;
/// Clients of the application wait, too.
const REST_MOST: Duration = Duration::from_secs(20);
/// Who has asked for something since then may ask again.
const ACTIVE: Duration = Duration::from_millis(100);

/// What is known of one application.
#[derive(Default)]
struct Turns {
    /// In order of release by the gate, with their numbers in that order.
    waiting: VecDeque<(u64, RequestId)>,
    /// Time at the server is counted up to here.
    counted: Instant,
    rests_until: Instant,
    /// When one of its requests ended last, of any kind.
    ended: Option<Instant>,
}

/// Requests of many pieces, from their turn at the gate on.
pub(super) struct Lane {
    flows: Vec<Turns>,
    queued: u64,
    /// Places that are taken.
    pub(super) taken: u64,
}

impl Lane {
    pub(super) fn new(flows: usize) -> Self {
        Lane { flows: (0..flows).map(|_| Turns::default()).collect(), queued: 0, taken: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.iter().all(|flow| flow.waiting.is_empty())
    }

    /// It is its turn, as far as the gate is concerned.
    pub(super) fn queue(&mut self, flow: FlowId, id: RequestId) {
        self.queued += 1;
        self.flows[flow.index()].waiting.push_back((self.queued, id));
    }

    /// The next whose application does not rest.
    pub(super) fn next(&mut self, gate: &Gate, now: Instant) -> Option<RequestId> {
        let may = |flow: usize| {
            let first = self.flows[flow].waiting.front()?.0;
            (self.flows[flow].rests_until <= now || self.weight_of_others(flow, gate, now) == 0)
                .then_some((first, flow))
        };
        let (_, flow) = (0..self.flows.len()).filter_map(may).min()?;
        self.flows[flow].waiting.pop_front().map(|(_, id)| id)
    }

    /// A request of an application has ended.
    pub(super) fn ended(&mut self, flow: FlowId, now: Instant) {
        self.flows[flow.index()].ended = Some(now);
    }

    /// One of so many pieces has left the lane, or is waited for no longer.
    pub(super) fn leaves(
        &mut self,
        flow: FlowId,
        (began, pieces): (Instant, u64),
        gate: &Gate,
        now: Instant,
    ) {
        let others = self.weight_of_others(flow.index(), gate, now);
        let turns = &mut self.flows[flow.index()];
        let time = now.since(began.max(turns.counted)).as_nanos().min(pieces.saturating_mul(PIECE_NS));
        turns.counted = now;
        let rest = time.saturating_mul(others) / weight(gate, flow.index());
        turns.rests_until = (turns.rests_until.max(now) + Duration::from_nanos(rest)).min(now + REST_MOST);
    }

    /// Weights of all others that have something pending, or had until just now.
    fn weight_of_others(&self, flow: usize, gate: &Gate, now: Instant) -> u64 {
        let active = |other: &usize| {
            let pending = gate.flow_meters(FlowId(*other as u32)).is_some_and(|meters| meters.pending > 0);
            pending || self.flows[*other].ended.is_some_and(|at| now.since(at) <= ACTIVE)
        };
        let others = (0..self.flows.len()).filter(|other| *other != flow);
        others.filter(active).map(|other| weight(gate, other)).sum()
    }
}

fn weight(gate: &Gate, flow: usize) -> u64 {
    gate.contract(FlowId(flow as u32)).map_or(1, |contract| u64::from(contract.weight()).max(1))
}
