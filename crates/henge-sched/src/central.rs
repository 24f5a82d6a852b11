//! Finish times made in one place, for a disk whose parts lie on several gates.
//!
//! **Problem.** A disk of rate B over N gates reserves f·B/N at each. While its requests fall evenly on them it gets B; when they
//! gather on one it gets f·B/N there and nothing elsewhere, although B was promised and is not used. A leeway f above 1 buys room
//! for that, at every gate and all the time.
//!
//! **Rule.** (Stonehenge, section 3: the storage manager computes finish times, for all nodes.) One clock runs for the whole disk:
//!
//! ```text
//!   FT_i = max(arrival_i, FT_{i-1}) + cost_i / B          whichever gate request i is for
//! ```
//!
//! Gates of one node, like those of an array's spindles, are told at once. A gate of another node relays the command, not its data, and hears
//! by how much the finish time is after the arrival: the *lead*, since clocks of machines do not agree. It does not wait for
//! that. A lead that comes after the request went is of no use. A manager that is slow, or away, costs precision alone.
//!
//! **Example.** 100/s over two gates, 50/s reserved at each: three requests that come at 0 for the same gate are to be over at 20,
//! 40 and 60 ms by its own clock, at 10, 20 and 30 ms by this one.
//!
//! **Guarantee.** A gate keeps its own promises first, and gives what is left by these times (`spread.rs`): it promised f·B/N to each of
//! its disks, and cannot serve them all at B.
//!
//! **Price.** A message there and back for each part of a command; 48 bytes a disk where the tags are made.
//!
//! **Where we depart.** What a disk took of what was spare is held against it for 50 ms: FT_{i-1} counts as at most now + max(50 ms, 2·q / B),
//! q its unfinished requests: with q / B, whoever takes what is spare is owed more at any gate where more than its N-th part waits. Its
//! reservations at gates stand meanwhile. The paper has no bound, and waits for the tag.

use crate::Pace;
use crate::finish_clock::fine;
use crate::weight::ceil_instant;
use henge_core::{Contract, Cost, Duration, Instant, Rate, VTime};

/// H, as Virtual Clock has it.
const LEAD: Duration = Duration::from_millis(50);

/// The clock of one disk.
#[derive(Clone, Copy, Debug)]
pub struct CentralClock {
    pace: Pace,
    rate: Rate,
    finish: VTime,
    /// What was tagged and is not over.
    unfinished: Cost,
}

impl CentralClock {
    /// Of the disk's whole contract; none where that promises no rate.
    pub fn new(contract: &Contract) -> Option<Self> {
        let rate = contract.rate.filter(|rate| rate.per_second > 0)?;
        Some(CentralClock { pace: Pace::new(rate), rate, finish: VTime::ZERO, unfinished: Cost::ZERO })
    }

    /// What rates count.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Another contract, from the next request on.
    pub fn change(&mut self, contract: &Contract) -> bool {
        let Some(new) = CentralClock::new(contract) else { return false };
        let unfinished = if new.rate.unit == self.rate.unit { self.unfinished } else { Cost::ZERO };
        *self = CentralClock { finish: self.finish, unfinished, ..new };
        true
    }

    /// By how much the finish time of a request that comes now is after now. Who tags so says when it is [over](Self::over).
    pub fn tag(&mut self, cost: Cost, now: Instant) -> Duration {
        let lead = self.tag_among(self.unfinished, cost, now);
        self.unfinished += cost;
        lead
    }

    /// The same for who hears of no end: at most `unfinished` of the disk are under way.
    pub fn tag_among(&mut self, unfinished: Cost, cost: Cost, now: Instant) -> Duration {
        let under_way = self.pace.span(unfinished);
        let furthest = fine(now) + fine(Instant::ZERO + LEAD).max(under_way + under_way);
        self.finish = fine(now).max(self.finish.min(furthest)) + self.pace.span(cost);
        ceil_instant(self.finish).since(now)
    }

    /// A tagged request is over, or was cancelled.
    pub fn over(&mut self, cost: Cost) {
        self.unfinished = self.unfinished.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: Cost = Cost::new(1_000_000);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The worked example, and a request that comes when all are over.
    #[test]
    fn one_clock_for_all_gates() {
        let mut clock = CentralClock::new(&Contract::reserved(Rate::requests(100))).unwrap();
        let leads: Vec<u64> = (0..3).map(|_| clock.tag(ONE, at(0)).as_nanos() / 1_000_000).collect();
        assert_eq!(leads, [10, 20, 30]);
        assert_eq!(clock.tag(ONE, at(95)), Duration::from_millis(10));
        assert!(CentralClock::new(&Contract::default()).is_none(), "nothing is promised");
    }

    /// Served at once, over and over, a disk is 50 ms ahead, and one request; what is under way counts in any case.
    #[test]
    fn a_lead_is_bounded() {
        let mut clock = CentralClock::new(&Contract::reserved(Rate::requests(10))).unwrap();
        for _ in 0..1000 {
            assert!(clock.tag(ONE, at(0)) <= Duration::from_millis(150));
            clock.over(ONE);
        }
        let mut clock = CentralClock::new(&Contract::reserved(Rate::requests(10))).unwrap();
        let most = (0..1000).map(|_| clock.tag(ONE, at(0))).max().unwrap();
        assert_eq!(most, Duration::from_secs(100));
        (0..1000).for_each(|_| clock.over(ONE));
        assert_eq!(clock.tag(ONE, at(0)), Duration::from_millis(150));
    }

    proptest! {
        /// Whatever comes when, and nothing is over yet: the clock gives finish times for no more than the rate, and one request.
        #[test]
        fn finish_times_are_no_denser_than_the_rate(gaps in proptest::collection::vec(0u64..40, 2..100)) {
            let mut clock = CentralClock::new(&Contract::reserved(Rate::requests(50))).unwrap();
            let mut now = at(0);
            let mut before: Option<Instant> = None;
            for gap in gaps {
                now += Duration::from_millis(gap);
                let finish = now + clock.tag(ONE, now);
                if let Some(before) = before {
                    prop_assert!(finish >= before + Duration::from_millis(20), "{before:?} {finish:?}");
                }
                before = Some(finish);
            }
        }
    }
}
