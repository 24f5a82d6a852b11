//! Whose turn it is among flows that were promised something: first whoever keeps to the promise, by deadline; what is
//! spare goes to whoever is least ahead, and costs nobody anything later.
//!
//! **Problem.** Deadlines that follow from a reservation run ahead of time while a flow takes what nobody else wants. When
//! others come it would wait until time has caught up: for as long as it was generous to itself. (`edf`, 5000/s promised, alone at
//! 30,000/s for 5 s: 22/s afterwards, and nothing at all for 1.1 s.)
//!
//! **Rule.** A flow's first request has a start (when it would have come had its flow kept to the promise) and a deadline.
//! A clock C runs with time, but for its jumps:
//!
//! ```text
//!   due        start ≤ C: the smallest deadline goes
//!   none due   the smallest start goes, and C jumps there
//! ```
//!
//! **Example.** A has 100/s and is alone on a device of 1000/s: its starts are 10 ms apart, a request goes each ms, and C
//! jumps by 9 ms each time. When B comes A's next start is C: both have their rates from the next request on.
//!
//! **Guarantee.** While what is promised is feasible, each request that is due is over by its deadline and one request's service:
//! a jump happens when nothing is due, so what is due afterwards is what the promises release from there, in less time.
//! Whoever took spare service is at most one request ahead of C, or of the flow that was least ahead: no debt.
//! Among flows that all want what is spare, it goes in proportion to their rates.
//!
//! **Price.** A place in one of two heaps for each flow that has something waiting.
//!
//! **Source.** The jump is pClock's (Gulati, Merchant, Varman, SIGMETRICS 2007, section 3: "tag adjustment"); that only who has
//! started is compared by deadline is WF²Q's (Bennett, Zhang, INFOCOM 1996), without which a short deadline runs ahead of a long one
//! by the difference of the two, and owes that.

use crate::IndexedHeap;
use crate::sfq::Key;
use henge_core::{FlowId, VTime};

/// A flow whose first request is not due.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Early {
    start: Key,
    deadline: [u64; 2],
}

impl Early {
    fn deadline(&self) -> VTime {
        VTime::from_raw(u128::from(self.deadline[0]) << 64 | u128::from(self.deadline[1]))
    }
}

impl Ord for Early {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.start.cmp(&other.start)
    }
}

impl PartialOrd for Early {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The flows that have something waiting, each in one of two orders.
#[derive(Default)]
pub(crate) struct Turns {
    due: IndexedHeap<Key>,
    early: IndexedHeap<Early>,
}

impl Turns {
    /// The flow's first request, the `sequence`-th to come, has this start and deadline; the clock is at `clock`.
    pub fn set(&mut self, flow: FlowId, start: VTime, deadline: VTime, sequence: u64, clock: VTime) {
        if start <= clock {
            if !self.early.is_empty() {
                self.early.remove(flow.0);
            }
            self.due.set(flow.0, Key::new(deadline, sequence));
        } else {
            self.due.remove(flow.0);
            let halves = [(deadline.raw() >> 64) as u64, deadline.raw() as u64];
            self.early.set(flow.0, Early { start: Key::new(start, sequence), deadline: halves });
        }
    }

    /// The flow has nothing waiting.
    pub fn remove(&mut self, flow: FlowId) {
        self.due.remove(flow.0);
        if !self.early.is_empty() {
            self.early.remove(flow.0);
        }
    }

    /// Flows whose start is not after `clock` are due.
    fn pass(&mut self, clock: VTime) {
        while let Some((flow, early)) = self.early.peek().filter(|(_, e)| e.start.start() <= clock) {
            self.early.remove(flow);
            self.due.set(flow, Key::new(early.deadline(), early.start.sequence()));
        }
    }

    /// Of those that are due when the clock is at `clock` the one with the smallest deadline.
    #[inline]
    pub fn due(&mut self, clock: VTime) -> Option<(FlowId, VTime)> {
        self.pass(clock);
        self.due.peek().map(|(flow, key)| (FlowId(flow), key.start()))
    }

    /// Of those that are not due the one that is least ahead, with its start and its deadline.
    pub fn early(&self) -> Option<(FlowId, VTime, VTime)> {
        self.early.peek().map(|(flow, early)| (FlowId(flow), early.start.start(), early.deadline()))
    }

    /// Whether the flow is among those that were due when this was last asked.
    pub fn is_due(&self, flow: FlowId) -> bool {
        self.due.contains(flow.0)
    }

    /// Flows that have something waiting.
    pub fn len(&self) -> usize {
        self.due.len() + self.early.len()
    }

    /// How many flows' first requests have a deadline before `until`.
    pub fn before(&self, until: VTime) -> usize {
        self.due.count(|key| key.start() < until) + self.early.count(|e| e.deadline() < until)
    }

    /// Nobody has anything waiting.
    pub fn clear(&mut self) {
        self.due.clear();
        self.early.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(n: u128) -> VTime {
        VTime::from_raw(n << VTime::FRACTION_BITS)
    }

    #[test]
    fn who_has_started_goes_by_deadline_and_else_who_is_least_ahead() {
        let mut turns = Turns::default();
        turns.set(FlowId(0), t(5), t(6), 0, t(0));
        turns.set(FlowId(1), t(3), t(90), 1, t(0));
        assert_eq!(turns.due(t(2)), None);
        assert_eq!(
            turns.early(),
            Some((FlowId(1), t(3), t(90))),
            "a near deadline does not begin before its time"
        );
        assert_eq!(turns.due(t(4)), Some((FlowId(1), t(90))));
        assert_eq!(turns.due(t(5)), Some((FlowId(0), t(6))));
        turns.set(FlowId(0), t(9), t(10), 2, t(5));
        assert_eq!((turns.due(t(5)), turns.len()), (Some((FlowId(1), t(90))), 2));
        turns.remove(FlowId(1));
        assert_eq!((turns.due(t(5)), turns.before(t(11)), turns.before(t(10))), (None, 1, 0));
    }
}
