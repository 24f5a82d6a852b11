//! What is measured of one gate while the run goes.

use henge_core::{Duration, GateMeters, Histogram};

/// Measures one gate. Totals count from the end of the warm-up, windows from the beginning.
#[derive(Default)]
pub(crate) struct GateMeter {
    pub(super) service: Histogram,
    pub(super) served: u64,
    /// Bytes served, by flow.
    pub(super) bytes: Vec<u64>,
    /// Time the device model was truly busy.
    pub(super) busy: Duration,
    busy_at_warm: Duration,
    depth_at_warm: u128,
    pub(super) depths: Vec<f64>,
    /// Most that could be in flight, at the end of each window.
    pub(super) limits: Vec<u32>,
    /// Of the windows in `depths` together.
    depth_so_far: u128,
}

impl GateMeter {
    /// The warm-up is over; `meters` are the gate's own.
    pub(super) fn begin(&mut self, meters: &GateMeters) {
        self.busy_at_warm = meters.busy;
        self.depth_at_warm = meters.in_flight_ns;
    }

    /// A window of `width` ns has ended; `in_flight_ns` is the gate's own at its end.
    pub(super) fn end_window(&mut self, in_flight_ns: u128, width: f64, limit: u32) {
        self.depths.push((in_flight_ns - self.depth_so_far) as f64 / width);
        self.limits.push(limit);
        self.depth_so_far = in_flight_ns;
    }

    /// A request of the flow with this number was served after the warm-up.
    pub(super) fn served(&mut self, flow: usize, bytes: u64, service: Duration, busy: Duration) {
        self.served += 1;
        if self.bytes.len() <= flow {
            self.bytes.resize(flow + 1, 0);
        }
        self.bytes[flow] += bytes;
        self.service.record(service);
        self.busy += busy;
    }

    /// Since the warm-up: time with a request in flight, and the integral of requests in flight.
    pub(super) fn occupied(&self, meters: &GateMeters) -> (Duration, u128) {
        (meters.busy.saturating_sub(self.busy_at_warm), meters.in_flight_ns - self.depth_at_warm)
    }
}
