//! What a request is charged.

use crate::{Cost, CostUnit, Duration, Request};

/// What is known of a request that is over, for models that learn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Time since its dispatch or the completion before it, whichever is later: all of them add up to the time the device was busy.
    pub disk_time: Duration,
    /// From dispatch to completion.
    pub service: Duration,
    /// In flight at this moment, itself not counted.
    pub in_flight: u32,
    /// Something waits at the gate: the device has as much to do as it may have.
    pub waits: bool,
    /// It went wrong, which may take any time.
    pub failed: bool,
}

/// What a model has learned of one kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learned {
    /// `read`, `write` …
    pub kind: &'static str,
    /// Cost of a request, whatever its length.
    pub fixed: Duration,
    /// Cost of each MiB on top.
    pub per_mib: Duration,
    /// Windows that it was learned from.
    pub windows: u64,
    /// How wrong the model is about a window, on average, in millionths.
    pub error: u32,
    /// Cost of 64 KiB in thousandths of what it was when it was measured, or learned first.
    pub drift: Option<u64>,
}

/// Estimates a request's cost when it comes, and corrects it when it is over.
pub trait CostModel: Send {
    /// In which unit.
    fn unit(&self) -> CostUnit;

    /// Before it is served; more than zero.
    fn estimate(&mut self, request: &Request) -> Cost;

    /// After it was served. `disk_time` is the time attributed to it by the gate.
    /// Models whose cost is known beforehand return `request.cost`.
    fn actual(&mut self, request: &Request, _disk_time: Duration) -> Cost {
        request.cost
    }

    /// A request is over: for models that learn from many together.
    fn seen(&mut self, _request: &Request, _seen: Seen) {}

    /// What was learned, for people.
    fn learned(&self, _into: &mut Vec<Learned>) {}
}
