//! Who goes next.

use crate::{Contract, Cost, CostUnit, Duration, FlowId, Instant, Keeps, Request, RequestId};
use std::fmt;

/// What a scheduler answers when it is asked for the next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatch {
    /// This one; it has left the scheduler.
    Ready(Request),
    /// Something waits, and nothing may go yet.
    Wait {
        /// When to ask again at the latest; `None` means at the next submission or completion.
        until: Option<Instant>,
        /// Why.
        reason: WaitReason,
    },
    /// Nothing waits.
    Idle,
}

/// Why a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitReason {
    /// Its flow has reached the limit of its own contract.
    OwnLimit,
    /// Its flow has had its share, and others are before it.
    OwnShare,
    /// Every slot of the device is taken, as many as the device has.
    DeviceBusy,
    /// The depth controller holds the device below what it could take.
    Depth,
    /// What its flow received at other nodes counts against it here.
    ForeignService,
    /// Another disk has the device for its turn.
    Turn,
}

impl WaitReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [WaitReason; 6] = [
        WaitReason::OwnLimit,
        WaitReason::OwnShare,
        WaitReason::DeviceBusy,
        WaitReason::Depth,
        WaitReason::ForeignService,
        WaitReason::Turn,
    ];
    /// A few words for people; also the label of a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitReason::OwnLimit => "own limit",
            WaitReason::OwnShare => "own share",
            WaitReason::DeviceBusy => "device busy",
            WaitReason::Depth => "depth",
            WaitReason::ForeignService => "foreign service",
            WaitReason::Turn => "turn",
        }
    }
}

/// What the device holds while a scheduler decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    /// Requests in flight: this scheduler's, and the requests of one that it replaced.
    pub in_flight: u32,
    /// Most that may be in flight now; the gate asks only while `in_flight < depth`.
    pub depth: u32,
    /// Whether the depth controller sees room beyond the promises (two-level: refill the credit).
    pub spare: bool,
}

/// What is known when a request is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As it was dispatched; `request.cost` is what it was charged.
    pub request: Request,
    /// What it should have been charged, now that it is known. Schedulers correct by the difference.
    pub actual: Cost,
    /// When it left the scheduler.
    pub dispatched: Instant,
    /// Dispatch to completion.
    pub service: Duration,
    /// In flight at this moment, itself not counted.
    pub in_flight: u32,
}

/// A term of a contract that a scheduler cannot keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The term as configuration names it: `latency`, `rate` …
    pub term: &'static str,
    /// Why not, with the numbers.
    pub why: String,
    /// What would do: schedulers that keep such a term, or the value that could be kept.
    pub instead: String,
}

impl Refused {
    /// This scheduler does not know such a term at all.
    pub fn unsupported(scheduler: &str, term: &'static str, who_can: &str) -> Self {
        Refused {
            term,
            why: format!("the scheduler {scheduler} does not promise a {term}"),
            instead: format!("schedulers that do: {who_can}"),
        }
    }
    /// The term counts in another unit than the gate charges in.
    pub fn unit(term: &'static str, stated: CostUnit, charged: CostUnit) -> Self {
        Refused {
            term,
            why: format!("the {term} counts {stated}, but this gate charges {charged}"),
            instead: format!("state the {term} in {charged}, or set cost = \"{stated}\" on the pool"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.instead)
    }
}
impl std::error::Error for Refused {}

/// Orders the requests of flows. A state machine: time is an argument, nothing is read or opened.
///
/// Rules that the conformance suite holds every implementation to:
/// - each request enqueued is dispatched exactly once, or given back by `cancel`, `remove_flow` or `drain`;
/// - within a flow, requests of equal standing leave in the order they came, unless the scheduler says in its
///   first lines that it reorders by position;
/// - a work-conserving scheduler answers `Ready` whenever it holds a request and is asked;
/// - `Wait { until }` is in the future; asking again then makes progress;
/// - `check` refuses what `set_flow` and `keeps` refuse, and a refusal changes nothing;
/// - equal calls give equal answers: no clock, no randomness, no order of a hash map.
///
/// Callers keep these: time never goes back; a flow is set before it is used; a request's id is unique
/// among those pending; `enqueue` has `cost` filled in; `complete` is called once per dispatched request.
pub trait Scheduler: Send {
    /// By which name the registry knows it.
    fn name(&self) -> &'static str;

    /// What it keeps of contracts, for whoever decides far from here: what that refuses, [`check`](Self::check) refuses, and nothing else.
    fn keeps(&self) -> Keeps;

    /// Whether [`set_flow`](Self::set_flow) would accept this; changes nothing.
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused>;

    /// Adds a flow, or changes its contract from now on; queued requests keep their place where the rule allows.
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused>;

    /// Forgets a flow; what it had queued is appended to `orphans`. Unknown flows are ignored.
    fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>);

    /// Takes a request in.
    fn enqueue(&mut self, request: Request, now: Instant);

    /// Takes a queued request out again; `None` if it is not queued (it left already, or never came).
    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request>;

    /// The next request, or when to ask again.
    fn dispatch(&mut self, now: Instant, slots: Slots) -> Dispatch;

    /// A dispatched request is over.
    fn complete(&mut self, completion: &Completion, now: Instant);

    /// The cost of a request turned out different while it is queued or in flight.
    fn adjust(&mut self, request: &Request, cost: Cost, now: Instant);

    /// `flow` received `service` at other nodes, as they announced (not piggybacked on a request).
    fn foreign(&mut self, _flow: FlowId, _service: Cost, _now: Instant) {}

    /// A clock of the flow's whole rate, over several gates, says that a queued request is to be over `lead` after its arrival. `false` where
    /// there is no such request any more, or where the scheduler promises its flow no rate.
    fn retag(&mut self, _id: RequestId, _lead: Duration, _now: Instant) -> bool {
        false
    }

    /// Foreign service that was never charged, since it became too old.
    fn forgiven(&self) -> Cost {
        Cost::ZERO
    }

    /// Requests queued.
    fn queued(&self) -> usize;

    /// Why `flow`'s next request is not dispatched now; `None` where it has none or only its turn is awaited.
    fn waiting(&self, _flow: FlowId, _now: Instant) -> Option<WaitReason> {
        None
    }

    /// From when the wait of `request` counts, for the depth controller; asked right after it was dispatched.
    /// Schedulers that make a flow wait for its own rate leave that part out.
    fn waits_from(&self, request: &Request) -> Instant {
        request.arrival
    }

    /// Requests queued whose deadline falls before `until`; schedulers without deadlines answer 0.
    fn due(&self, _until: Instant) -> usize {
        0
    }

    /// Gives back all queued requests, in order of arrival; for exchanging schedulers while running.
    fn drain(&mut self, into: &mut Vec<Request>);

    /// The scheduler's progress, for reports; zero where it has no virtual time.
    fn virtual_time(&self) -> crate::VTime {
        crate::VTime::ZERO
    }

    /// Windows, periods and the like that pass without a request: when to be woken for them.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}
