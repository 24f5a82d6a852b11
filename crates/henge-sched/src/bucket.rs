//! A limit: at most so much cost per second, and a burst on top after a pause.
//!
//! The bucket is kept as one time, *empty at*: the moment at which everything taken so far has been paid off at the
//! limit's rate. A request may go while that moment is no further ahead than the burst:
//!
//! ```text
//!   may go at   now ≥ empty − burst
//!   taken       empty = max(empty, now) + cost / limit
//! ```
//!
//! Worked example: 1000 requests a second, burst 2 (2 ms). Three requests at t = 0: the first and the second go and
//! set *empty* to 1 ms and 2 ms, and so does the third (2 ms ≤ 2 ms), to 3 ms; the fourth waits until 1 ms.
//!
//! Whoever comes, or has another limit, begins no fuller than whoever went (`departed.rs`): *empty* is G then, if that is no later than leaves the first
//! request waiting for its own cost.
//!
//! So in any interval of length t at most `limit · t + burst + one request` is taken, and a flow that always has
//! something waiting loses nothing to requests that leave a little late, as long as that is less than the burst.

use crate::Pace;
use crate::departed::Departed;
use crate::weight::{ceil_instant, since_epoch};
use henge_core::{Contract, Cost, Duration, Instant, Rate, VTime};

/// Without a stated burst, a bucket forgives so much lateness.
pub(crate) const BURST_DEFAULT: Duration = Duration::from_millis(10);

/// Holds a flow to a rate.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    pace: Pace,
    burst: VTime,
    /// Nanoseconds since the epoch.
    empty: VTime,
    /// Until its first request goes: what those took who went, and since when it counts here.
    before: VTime,
    since: VTime,
}

impl Bucket {
    /// At most `limit`, with `burst` on top (10 ms of the limit where none is stated).
    pub fn new(limit: Rate, burst: Option<Cost>) -> Self {
        let pace = Pace::new(limit);
        let burst = burst.map_or(since_epoch(Instant::ZERO + BURST_DEFAULT), |cost| pace.span(cost));
        Bucket { pace, burst, empty: VTime::ZERO, before: VTime::ZERO, since: VTime::ZERO }
    }
    /// The limit of a contract, where it has one. A burst belongs to the rate where there is a rate.
    pub fn of(contract: &Contract) -> Option<Self> {
        let burst = if contract.rate.is_none() { contract.burst } else { None };
        contract.limit.map(|limit| Bucket::new(limit, burst))
    }
    /// It is that of a flow that comes now.
    pub(crate) fn begins(mut self, departed: &Departed, now: Instant) -> Self {
        (self.before, self.since) = (departed.paid(), since_epoch(now));
        self
    }
    /// When all that was taken is paid off, for a request of this cost.
    fn empty(&self, cost: Cost) -> VTime {
        self.empty.max(self.before.min(self.since + self.burst + self.pace.span(cost)))
    }
    /// When all that was taken is paid off.
    pub(crate) fn paid(&self) -> VTime {
        self.empty
    }
    /// When the next request, of this cost, may go; it may now if that is not after now.
    pub fn ready_at(&self, cost: Cost) -> Instant {
        ceil_instant(self.empty(cost) - self.burst)
    }
    /// A request goes.
    pub fn take(&mut self, cost: Cost, now: Instant) {
        self.empty = self.empty(cost).max(since_epoch(now)) + self.pace.span(cost);
        self.before = VTime::ZERO;
    }
    /// A request that went turned out to cost something else.
    pub fn correct(&mut self, charged: Cost, actual: Cost) {
        self.empty = self.empty + self.pace.span(actual.saturating_sub(charged));
        self.empty -= self.pace.span(charged.saturating_sub(actual));
    }
    /// Another limit of the same unit from now on; what was taken stays taken, and is paid off at the higher of the two.
    pub(crate) fn change(&mut self, limit: Rate, burst: Option<Cost>, departed: &mut Departed, now: Instant) {
        let new = Bucket::new(limit, burst);
        if (self.pace, self.burst) != (new.pace, new.burst) {
            departed.add(self.paid());
            let empty = self.pace.retagged(new.pace, self.empty, since_epoch(now));
            *self = Bucket { empty, ..new }.begins(departed, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example() {
        let mut bucket = Bucket::new(Rate::requests(1000), Some(Cost::new(2_000_000)));
        for _ in 0..3 {
            assert!(bucket.ready_at(Cost::ZERO) <= Instant::ZERO);
            bucket.take(Cost::new(1_000_000), Instant::ZERO);
        }
        assert_eq!(bucket.ready_at(Cost::ZERO), Instant::from_nanos(1_000_000));
    }

    #[test]
    fn a_third_of_a_nanosecond_is_not_lost() {
        // 3 GB/s in requests of one byte: 1/3 ns each.
        let mut bucket = Bucket::new(Rate::bytes(3_000_000_000), Some(Cost::ZERO));
        for _ in 0..3_000_000 {
            bucket.take(Cost::new(1), Instant::ZERO);
        }
        let at = bucket.ready_at(Cost::ZERO).as_nanos();
        assert!((999_999..=1_000_001).contains(&at), "{at}");
    }
}
