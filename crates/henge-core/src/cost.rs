//! What a request is charged.

use crate::{Cost, CostUnit, Duration, Request};

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
}
