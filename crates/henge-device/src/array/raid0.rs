//! RAID-0: striping, no redundancy. A request is over when all its pieces are.

use super::Stripes;
use super::fan::{Fan, Part};
use henge_core::{Backend, Done, Fault, Instant, Model, Op, Request};

/// Spindles in a row, used as one device.
pub struct Raid0 {
    fan: Fan,
    stripes: Stripes,
}

impl Raid0 {
    /// `spindles` of any kind; the smallest one's capacity counts for each. `unit` is above zero.
    pub fn new(spindles: Vec<Model>, unit: u64) -> Self {
        assert!(unit > 0, "a stripe unit holds something");
        let stripes = Stripes { unit, spindles: spindles.len() };
        Raid0 { fan: Fan::new(spindles), stripes }
    }
    /// How bytes are spread.
    pub fn stripes(&self) -> Stripes {
        self.stripes
    }
    /// The spindles again, for an owner that gates each by itself.
    pub fn into_spindles(self) -> (Vec<Model>, Stripes) {
        (self.fan.into_members(), self.stripes)
    }
}

impl Backend for Raid0 {
    type Payload = ();

    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        if request.end() > self.capacity() {
            return self.fan.refuse(request, Fault::OutOfRange, now);
        }
        let op = request.op;
        if op == Op::Flush {
            let all = (0..self.fan.len()).map(|member| Part { member, op, offset: 0, len: 0 });
            return self.fan.start(request, all, Vec::new(), now);
        }
        let pieces = self.stripes.split(request.offset, request.len);
        let parts = pieces.map(|p| Part { member: p.spindle, op, offset: p.offset, len: p.len });
        self.fan.start(request, parts, Vec::new(), now);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        self.fan.reap(now)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.fan.wake_at()
    }
    fn capacity(&self) -> u64 {
        self.stripes.capacity(self.fan.smallest())
    }
    fn quantum(&self) -> u64 {
        self.fan.quantum().saturating_mul(self.fan.len() as u64)
    }
}
