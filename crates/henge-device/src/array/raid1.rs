//! RAID-1: every member holds everything. A write is over when all have it; a read goes to one: the member with the
//! fewest parts under way, and among those the one whose last request ended nearest to this one, so that a
//! sequential stream stays where the head is.

use super::fan::{Fan, Part};
use henge_core::{Backend, Done, Fault, Instant, Model, Op, Request};

/// Mirrors, used as one device.
pub struct Raid1 {
    fan: Fan,
    /// Where each member's last request ended.
    last: Vec<u64>,
}

impl Raid1 {
    /// `members` of any kind; the smallest one's capacity counts.
    pub fn new(members: Vec<Model>) -> Self {
        let last = vec![0; members.len()];
        Raid1 { fan: Fan::new(members), last }
    }
}

impl Backend for Raid1 {
    type Payload = ();

    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        if request.end() > self.capacity() {
            return self.fan.refuse(request, Fault::OutOfRange, now);
        }
        let Request { op, offset, len, .. } = *request;
        let part = |member| Part { member, op, offset, len };
        if op == Op::Read {
            let far = |m: &usize| (self.fan.load(*m), self.last[*m].abs_diff(offset), *m);
            let member = (0..self.fan.len()).min_by_key(far).expect("an array has members");
            self.last[member] = request.end();
            self.fan.start(request, std::iter::once(part(member)), Vec::new(), now);
        } else {
            if matches!(op, Op::Write | Op::WriteZeroes) {
                self.last.fill(request.end());
            }
            let members = 0..self.fan.len();
            self.fan.start(request, members.map(part), Vec::new(), now);
        }
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        self.fan.reap(now)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.fan.wake_at()
    }
    fn capacity(&self) -> u64 {
        self.fan.smallest()
    }
    fn quantum(&self) -> u64 {
        self.fan.quantum()
    }
}
