//! Looking for the next request for a moment before sleeping: busy polling.
//!
//! **Problem.** A client that waits for each answer leaves nothing to do for some microseconds. Sleeping through them and being
//! woken costs both sides more than the request itself: a processor that went idle is woken by an interrupt, and in a virtual
//! machine by its host.
//!
//! **Rule.** After a turn in which a client's one command came and was answered, as from memory or the page cache, the loop looks
//! for events without sleeping, for `window` at most. So it does after one in which that command, alone, went to an NBD
//! server. While other storage has more, it does not: a deep queue would be answered one by one. A look is paid from a budget: it costs the time that it took and earns
//! `window` when something came; besides, a 128th of all time is earned. No more than 20 windows are saved up, and there is no
//! look that the budget would not pay.
//!
//! **Example.** `window` = 50 us. Requests 20 us apart: each look costs 20 and earns 50, so all are found. Requests 10 ms apart:
//! each look costs 50, and 78 are earned meanwhile: every one is looked for, in vain, at half a percent of a processor. Requests
//! 1 ms apart: a look every seventh time.
//!
//! **Guarantee.** In any time t, looks that find nothing take t/128 + 20 windows at most, and a window for each look that finds
//! something.
//!
//! **Price.** While a client keeps one request under way, the node's processor does not sleep.

use henge_core::{Duration, Instant};

/// Of all time, this part may be spent in vain.
const PART: u64 = 128;
/// So many windows may be saved up.
const SAVED: u64 = 20;

/// Whether to look, and for how long.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    window: u64,
    budget: u64,
    /// Until when time was earned.
    earned: Instant,
}

impl BusyPoll {
    /// What is looked for without being asked to.
    pub(crate) const WINDOW: Duration = Duration::from_micros(50);
    /// The longest window.
    pub(crate) const MOST: Duration = Duration::from_millis(1);

    /// Looks for so long; never, where that is zero.
    pub(crate) fn new(window: Duration, now: Instant) -> BusyPoll {
        BusyPoll { window: window.as_nanos(), budget: 0, earned: now }
    }

    /// Until when to look, if at all.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<Instant> {
        if self.window == 0 {
            return None;
        }
        let earned = now.since(self.earned).as_nanos() / PART;
        self.earned = now;
        self.earn(earned);
        (self.budget >= self.window).then(|| now + Duration::from_nanos(self.window))
    }

    /// A look took so long.
    pub(crate) fn end(&mut self, took: Duration, found: bool) {
        // The thread may have lost its processor meanwhile: that was not spent.
        self.budget -= took.as_nanos().min(self.window);
        if found {
            self.earn(self.window);
        }
    }

    fn earn(&mut self, more: u64) {
        self.budget = self.budget.saturating_add(more).min(SAVED * self.window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests so far apart, for ten seconds: how many there were, how many were looked for, and found; and the time spent in vain.
    fn run(apart: Duration) -> (u32, u32, u32, Duration) {
        let mut poll = BusyPoll::new(BusyPoll::WINDOW, Instant::ZERO);
        let (mut now, mut counts, mut vain) = (Instant::ZERO, (0, 0, 0), Duration::ZERO);
        while now < Instant::ZERO + Duration::from_secs(10) {
            counts.0 += 1;
            if let Some(until) = poll.begin(now) {
                let (found, took) = (now + apart < until, apart.min(until.since(now)));
                poll.end(took, found);
                counts.1 += 1;
                counts.2 += u32::from(found);
                vain = if found { vain } else { vain + took };
            }
            now += apart;
        }
        (counts.0, counts.1, counts.2, vain)
    }

    #[test]
    fn the_example_of_the_head() {
        let (requests, looks, found, _) = run(Duration::from_micros(20));
        assert!(looks == found && looks > requests * 99 / 100, "{looks} of {requests}, {found} found");
        let (requests, looks, found, vain) = run(Duration::from_millis(10));
        assert!(found == 0 && looks >= requests - 1, "{looks} of {requests}, {found} found");
        assert!(vain <= Duration::from_millis(50), "{vain}");
        let (requests, looks, ..) = run(Duration::from_millis(1));
        assert!(looks.abs_diff(requests * 10 / 64) < 20, "{looks} of {requests}");
    }

    #[test]
    fn what_is_spent_in_vain_is_bounded() {
        for us in (1..3000).step_by(7) {
            let (.., found, vain) = run(Duration::from_micros(us));
            let window = BusyPoll::WINDOW.as_nanos();
            let bound = 10_003_000_000 / PART + (SAVED + u64::from(found)) * window;
            assert!(vain.as_nanos() <= bound, "{vain} at {us} us");
        }
    }

    #[test]
    fn a_window_of_zero_is_no_look() {
        let later = Instant::ZERO + Duration::from_secs(1);
        assert!(BusyPoll::new(BusyPoll::WINDOW, Instant::ZERO).begin(later).is_some());
        assert_eq!(BusyPoll::new(Duration::ZERO, Instant::ZERO).begin(later), None);
    }
}
