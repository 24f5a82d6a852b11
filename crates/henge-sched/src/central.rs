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
//! A gate relays the command, not its data, and hears by how much the finish time is after the arrival: the *lead*, since clocks of
//! machines do not agree. It does not wait for that. The request is queued with the gate's own tag; the lead replaces it if it
//! comes before the request goes, and is of no use if it comes later. A manager that is slow, or away, costs precision alone.
//!
//! **Example.** 100/s over two gates, 50/s reserved at each: three requests that come at 0 for the same gate are to be over at 20,
//! 40 and 60 ms by its own clock, at 10, 20 and 30 ms by this one.
//!
//! **Guarantee.** None that the gate's own reservations do not give: a gate that promised f·B/N to each of its disks cannot serve
//! them all at B. Among what waits, each disk is served by what it is owed in all.
//!
//! **Price.** A message there and back for each part of a command; 48 bytes a disk where the tags are made.
//!
//! **Where we depart.** The lead is bounded as gates bound it (`finish_clock.rs`): by H, or what `pending` requests take at B. The
//! paper has no bound, and waits for the tag.

use crate::Pace;
use crate::finish_clock::fine;
use crate::weight::ceil_instant;
use henge_core::{Contract, Cost, CostUnit, Duration, Instant, Rate, VTime};

/// H, as gates have it by default.
const LEAD: Duration = Duration::from_secs(2);

/// The clock of one disk.
#[derive(Clone, Copy, Debug)]
pub struct CentralClock {
    pace: Pace,
    rate: Rate,
    /// Furthest that a clock is ahead.
    lead: VTime,
    finish: VTime,
}

impl CentralClock {
    /// Of the disk's whole contract; none where that promises no rate.
    pub fn new(contract: &Contract) -> Option<Self> {
        let rate = contract.rate.filter(|rate| rate.per_second > 0)?;
        let pace = Pace::new(rate);
        let pending = match rate.unit {
            CostUnit::Requests => u64::from(contract.pending.unwrap_or(0)) * 1_000_000,
            _ => 0,
        };
        let lead = pace.span(Cost::new(pending)).max(fine(Instant::ZERO + LEAD));
        Some(CentralClock { pace, rate, lead, finish: VTime::ZERO })
    }

    /// What rates count.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Another contract, from the next request on.
    pub fn change(&mut self, contract: &Contract) -> bool {
        let Some(new) = CentralClock::new(contract) else { return false };
        *self = CentralClock { finish: self.finish, ..new };
        true
    }

    /// By how much the finish time of a request that comes now is after now.
    pub fn tag(&mut self, cost: Cost, now: Instant) -> Duration {
        let before = self.finish.min(fine(now) + self.lead);
        self.finish = fine(now).max(before) + self.pace.span(cost);
        ceil_instant(self.finish).since(now)
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

    #[test]
    fn a_lead_is_bounded() {
        let mut clock = CentralClock::new(&Contract::reserved(Rate::requests(10))).unwrap();
        let most = (0..1000).map(|_| clock.tag(ONE, at(0))).max().unwrap();
        assert_eq!(most, Duration::from_millis(2_100));
    }

    proptest! {
        /// Whatever comes when: in any time the clock gives finish times for no more than the rate, and one request.
        #[test]
        fn finish_times_are_no_denser_than_the_rate(gaps in proptest::collection::vec(0u64..40, 2..100)) {
            let mut clock = CentralClock::new(&Contract::reserved(Rate::requests(50))).unwrap();
            let mut now = at(0);
            let mut before: Option<Instant> = None;
            for gap in gaps {
                now += Duration::from_millis(gap);
                let finish = now + clock.tag(ONE, now);
                if let Some(before) = before.filter(|b| *b <= now + LEAD) {
                    prop_assert!(finish >= before + Duration::from_millis(20), "{before:?} {finish:?}");
                }
                before = Some(finish);
            }
        }
    }
}
