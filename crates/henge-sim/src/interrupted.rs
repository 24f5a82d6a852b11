//! A device whose node does something else in between: while it handles messages, the device's time stands still.
//!
//! Where the processor is what a node has too little of (a proxy on the server's own machine, 96 servers on a few), each
//! message sent or received takes its time from service. So the model runs on a clock of its own:
//!
//! ```text
//!   own time = max(now, end of the interruption) − all interruptions so far
//! ```
//!
//! Example: 10 ms of service begun at 0, a message of 7 us at 4 ms: over at 10.007 ms. Without messages it is the model
//! itself.

use henge_core::{Backend, Done, Duration, Instant, Model, Request};

/// A model with interruptions.
pub(crate) struct Interrupted {
    model: Model,
    lost: Duration,
    until: Instant,
}

impl Interrupted {
    pub(crate) fn new(model: Model) -> Self {
        Interrupted { model, lost: Duration::ZERO, until: Instant::ZERO }
    }

    /// The node is busy for so long, from now on or from the end of what it does already.
    pub(crate) fn interrupt(&mut self, time: Duration, now: Instant) {
        self.until = self.until.max(now) + time;
        self.lost += time;
    }

    fn own(&self, now: Instant) -> Instant {
        Instant::ZERO + now.max(self.until).since(Instant::ZERO + self.lost)
    }
}

impl Backend for Interrupted {
    type Payload = ();
    fn submit(&mut self, request: &Request, payload: (), now: Instant) {
        let own = self.own(now);
        self.model.submit(request, payload, own);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        let own = self.own(now);
        self.model.reap(own)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.model.wake_at().map(|own| own + self.lost)
    }
    fn capacity(&self) -> u64 {
        self.model.capacity()
    }
    fn quantum(&self) -> u64 {
        self.model.quantum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, Op, RequestId};

    #[test]
    fn messages_take_their_time_from_service() {
        let at = |us| Instant::ZERO + Duration::from_micros(us);
        let config = henge_device::ConstantConfig {
            rate: None,
            time: Duration::from_millis(10),
            sharing: henge_device::Sharing::Serial,
            growth: None,
            capacity: 1 << 40,
        };
        let mut device = Interrupted::new(Box::new(henge_device::Constant::new(config)));
        let request =
            |slot| Request::new(RequestId { slot, generation: 0 }, FlowId(0), Op::Read, 0, 512, at(0));
        device.submit(&request(0), (), at(0));
        device.interrupt(Duration::from_micros(7), at(4000));
        device.interrupt(Duration::from_micros(3), at(4001));
        assert_eq!(device.wake_at(), Some(at(10_010)));
        assert!(device.reap(at(10_009)).is_none());
        assert!(device.reap(at(10_010)).is_some());
        // What comes while it is interrupted begins after it.
        device.interrupt(Duration::from_micros(100), at(20_000));
        device.submit(&request(1), (), at(20_050));
        assert_eq!(device.wake_at(), Some(at(30_100)));
    }
}
