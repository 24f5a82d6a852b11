//! How many requests are due before a moment, to the millisecond: a ring of counters.
//!
//! The feedback depth asks this once in a window; requests come and go a million times as often. So each adds to the counter of
//! its millisecond and takes itself out again, and the sum is made when it is asked for. The ring reaches 4 s ahead; who is due
//! later counts as due when a moment beyond that is asked about.

/// Milliseconds that have a counter.
const RING: u64 = 4096;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Horizon {
    counts: Vec<u32>,
    /// The first millisecond that has a counter.
    base: u64,
    /// Due before it.
    passed: usize,
    /// Due after the last one when they came.
    later: usize,
}

impl Horizon {
    /// One more is due at `due`, in ms; the clock shows `clock`. Says whether that is beyond the ring: the caller remembers it.
    pub fn add(&mut self, due: u64, clock: u64) -> bool {
        if self.counts.is_empty() {
            self.counts.resize(RING as usize, 0);
            self.base = clock;
        }
        self.pass(clock);
        let later = due >= self.base.saturating_add(RING);
        match later {
            true => self.later += 1,
            false if due < self.base => self.passed += 1,
            false => self.counts[(due % RING) as usize] += 1,
        }
        later
    }

    /// One that was due at `due` is not any more; the clock shows `clock`.
    pub fn remove(&mut self, due: u64, later: bool, clock: u64) {
        self.pass(clock);
        match later {
            true => self.later -= 1,
            false if due < self.base => self.passed -= 1,
            false => self.counts[(due % RING) as usize] -= 1,
        }
    }

    fn pass(&mut self, clock: u64) {
        let end = clock.min(self.base.saturating_add(RING));
        while self.base < end {
            self.passed += std::mem::take(&mut self.counts[(self.base % RING) as usize]) as usize;
            self.base += 1;
        }
        self.base = self.base.max(clock);
    }

    /// How many are due before `until`.
    pub fn before(&self, until: u64) -> usize {
        let end = until.min(self.base.saturating_add(RING));
        let within =
            (self.base..end).map(|ms| self.counts.get((ms % RING) as usize).map_or(0, |n| *n as usize));
        let later = if until > self.base.saturating_add(RING) { self.later } else { 0 };
        self.passed + within.sum::<usize>() + later
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is counted is what is there, whatever comes and goes while time passes, in small steps and in large ones.
        #[test]
        fn it_counts_what_is_there(
            steps in prop::collection::vec((0u64..5000, 0u64..6000, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let (mut horizon, mut there, mut clock) = (Horizon::default(), Vec::new(), 0);
            for (step, ahead, leaves, which) in steps {
                clock += if step % 3 == 0 { step } else { step % 5 };
                match leaves && !there.is_empty() {
                    true => {
                        let (due, later) = there.swap_remove(which.index(there.len()));
                        horizon.remove(due, later, clock);
                    }
                    false => there.push((clock + ahead, horizon.add(clock + ahead, clock))),
                }
                let until = clock + ahead / 8;
                let soon = there.iter().filter(|(due, later)| *due < until && !later).count();
                prop_assert_eq!(horizon.before(until), soon);
            }
            prop_assert_eq!(horizon.before(u64::MAX / 2), there.len());
        }
    }
}
