//! How many requests the device holds at once.

use crate::{Cost, Duration, FlowId, Instant, Request};

/// What a depth controller may know of the queue.
pub trait QueueView {
    /// Requests waiting.
    fn queued(&self) -> usize;
    /// Requests waiting whose deadline falls before `until`.
    fn due(&self, until: Instant) -> usize;
}

/// One gate's part of a depth: `mine` of `whole`.
///
/// ```
/// use henge_core::DepthPart;
/// let part = DepthPart::new(5, 16);
/// assert_eq!((part.of(16), part.of(8), part.of(1)), (5, 3, 1)); // at least one
/// assert_eq!(DepthPart::ALL.of(16), 16);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DepthPart {
    mine: u32,
    whole: u32,
}

impl DepthPart {
    /// There is no other gate.
    pub const ALL: DepthPart = DepthPart { mine: 1, whole: 1 };

    /// `mine` of `whole`; all of it where that is no part.
    pub fn new(mine: u32, whole: u32) -> DepthPart {
        if mine == 0 || mine >= whole { DepthPart::ALL } else { DepthPart { mine, whole } }
    }

    /// So much of a depth, rounded, and at least one.
    pub fn of(self, depth: u32) -> u32 {
        if self == DepthPart::ALL {
            return depth.max(1); // it is asked for each request
        }
        let (mine, whole) = (u64::from(self.mine), u64::from(self.whole));
        let part = (u64::from(depth) * mine + whole / 2) / whole;
        // Not above `depth`, since `mine` is not above `whole`.
        (part as u32).clamp(1, depth.max(1))
    }

    /// What it stands for in the whole, as a factor.
    pub fn factor(self) -> f64 {
        f64::from(self.whole) / f64::from(self.mine)
    }
}

/// Decides the depth, and who comes in. Depth stands outside the schedulers: fixed is the D of SFQ(D), feedback is the
/// two-level controller's.
pub trait DepthController: Send {
    /// Most requests in flight now.
    fn depth(&self) -> u32;

    /// The depth that the gates before one storage have together, where this one's can be divided among them.
    fn whole(&self) -> Option<u32> {
        None
    }

    /// From now on this gate has so much of it. Other gates before the same storage have the rest.
    fn divide(&mut self, _part: DepthPart) {}

    /// Whether the scheduler may have a request now; else when to ask again. It is asked for each, in the order of a flow, but not for an
    /// administrator's work.
    fn admits(&mut self, _request: &Request, _now: Instant) -> Option<Instant> {
        None
    }

    /// A request of the flow is in the scheduler no more, and takes no slot: its client gave it up, or it is an administrator's, or a read that
    /// passes writes.
    fn passed(&mut self, _flow: FlowId) {}

    /// A FLUSH left the scheduler after `wait`, and has a slot beside the depth.
    fn went_beside(&mut self, flow: FlowId, _wait: Duration, _now: Instant) {
        self.passed(flow);
    }

    /// It is over after `service` on the device.
    fn completed_beside(&mut self, _request: &Request, _service: Duration, _now: Instant) {}

    /// A request left the scheduler after `wait`; `in_flight` counts it.
    fn dispatched(&mut self, _flow: FlowId, _wait: Duration, _in_flight: u32, _now: Instant) {}

    /// A request is over after `service` on the device; `in_flight` no longer counts it.
    fn completed(&mut self, _request: &Request, _service: Duration, _in_flight: u32, _now: Instant) {}

    /// A request of this cost left the scheduler, for controllers that count work.
    fn took(&mut self, _cost: Cost, _now: Instant) {}

    /// It is over, or has left its slot to await others; something else waits, or not.
    fn freed(&mut self, _cost: Cost, _waits: bool, _now: Instant) {}

    /// A request of the flow has given its slot back: it goes on, and nobody tells of its completion.
    fn gave_back(&mut self, _flow: FlowId, _now: Instant) {}

    /// Device time under way, and most that may be, where work is counted.
    fn work(&self) -> Option<(Duration, Duration)> {
        None
    }

    /// A flow's contract, for controllers that steer by latency bounds.
    fn set_flow(&mut self, _flow: FlowId, _contract: Option<&crate::Contract>) {}

    /// When [`tick`](Self::tick) is due.
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// The end of a time window.
    fn tick(&mut self, _queue: &dyn QueueView, _now: Instant) {}

    /// Whether it holds the device below what it could take.
    fn holds_back(&self) -> bool {
        false
    }

    /// Whether there is room beyond the promises.
    fn spare(&self, _in_flight: u32) -> bool {
        false
    }
}
