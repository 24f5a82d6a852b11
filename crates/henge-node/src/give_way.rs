//! Leaving the processor to the kernel's workers for a moment: naps.
//!
//! **Problem.** A write through the page cache, and a read of what is not there, is done by a worker of the kernel. Where a worker has the
//! loop's processor, and was interrupted, a loop that never sleeps keeps it from there until the scheduler's next tick: 1 to 10 ms. Meanwhile
//! the requests in all slots of its gate stand still, and so does a neighbour's that waits for one of them.
//!
//! **Rule.** While the loop goes on without sleeping it looks at its gates, every `patience`. Where a gate has requests at its storage, and
//! none was over since the last look, the loop sleeps for [`NAP`], although there is something to do. Patience is [`SHORTEST`] at first. Each nap
//! doubles it, up to [`LONGEST`], and a look that finds no gate standing still halves it.
//!
//! **Example.** Four writes of a gate wait behind a worker that was interrupted. After 0.1 to 0.2 ms the loop sleeps for 30 us, and the worker does
//! them. Where a disk needs 5 ms for each read instead, naps come after 0.2, 0.4, 0.8, 1.6, and then each 3.2 ms.
//!
//! **Guarantee.** A worker that lacks nothing but the processor of a loop has it within twice `patience`. Naps in vain take 1 % of the time.
//!
//! **Price.** A clock is not read for it. Each look passes all gates of the loop: nanoseconds each, every 0.1 ms of a busy loop.

use henge_core::{Duration, Instant};

/// How long the loop sleeps: some writes of 4 KiB.
pub(crate) const NAP: Duration = Duration::from_micros(30);
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_micros(3_200);

/// Whether the loop is to sleep for a moment.
#[derive(Debug)]
pub(crate) struct GiveWay {
    patience: Duration,
    looked: Instant,
    /// By gate, requests that were over at the last look.
    over: Vec<u64>,
}

impl GiveWay {
    pub(crate) fn new() -> GiveWay {
        GiveWay { patience: SHORTEST, looked: Instant::ZERO, over: Vec::new() }
    }

    /// The loop has slept: whoever needed its processor had it.
    pub(crate) fn slept(&mut self, now: Instant) {
        self.looked = now;
    }

    /// Whether to sleep for [`NAP`] now. Of each gate that may have workers: whether it has requests at its storage, and how many were over.
    pub(crate) fn is_time(&mut self, now: Instant, gates: impl Iterator<Item = (bool, u64)>) -> bool {
        if now.since(self.looked) < self.patience {
            return false;
        }
        self.looked = now;
        let mut stands = false;
        for (g, (busy, over)) in gates.enumerate() {
            match self.over.get_mut(g) {
                Some(before) => stands |= busy && std::mem::replace(before, over) == over,
                None => self.over.push(over),
            }
        }
        self.patience = match stands {
            true => (self.patience * 2).min(LONGEST),
            false => self.patience.mul_ratio(1, 2).max(SHORTEST),
        };
        stands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 10 us for so long; when the loop naps.
    fn naps(way: &mut GiveWay, from: u64, us: u64, gates: impl Fn(u64) -> Vec<(bool, u64)>) -> Vec<u64> {
        let times = (from..from + us).step_by(10);
        times.filter(|at| way.is_time(Instant::from_nanos(at * 1000), gates(*at).into_iter())).collect()
    }

    #[test]
    fn a_gate_that_stands_still_is_given_way_and_ever_less_in_vain() {
        let mut way = GiveWay::new();
        assert_eq!(
            naps(&mut way, 0, 10_000, |_| vec![(false, 3), (true, 7)]),
            [200, 400, 800, 1_600, 3_200, 6_400, 9_600]
        );
        // Once it goes on, patience is short again.
        assert_eq!(naps(&mut way, 10_000, 20_000, |at| vec![(true, at)]), [0u64; 0]);
        assert_eq!(naps(&mut way, 30_000, 600, |_| vec![(true, 1)]).len(), 2);
    }

    #[test]
    fn a_loop_that_sleeps_or_has_nothing_at_storage_does_not_nap() {
        let mut way = GiveWay::new();
        assert_eq!(naps(&mut way, 0, 50_000, |_| vec![(false, 3)]), [0u64; 0]);
        let mut at = 50_000;
        while at < 100_000 {
            way.slept(Instant::from_nanos(at * 1000));
            assert_eq!(naps(&mut way, at, 100, |_| vec![(true, 3)]), [0u64; 0]);
            at += 100;
        }
    }
}
