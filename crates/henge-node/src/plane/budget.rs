//! Who may hold memory for payloads: a minimum for each disk, and shares of the rest.
//!
//! The problem: whoever asks for long reads and takes no replies, or begins long writes and goes away, holds memory for as long as it
//! likes. Where all memory is one pool, a few such clients stop every other disk. The rule: each disk has a *minimum* that nobody else
//! can take. What is beyond all minima is shared: a disk may hold as much of it as is left for all (a dynamic threshold, as in the
//! shared buffers of switches), so that n disks which want everything get an n + 1st of it each, and as much is left for whoever comes.
//!
//! Example: 256 MiB and 16 disks. Half is set aside: 8 MiB each. 128 MiB are shared: the first disk that wants everything gets 8 + 64 MiB,
//! the second 8 + 32; the fourteen others still have their 8 MiB each.
//!
//! Guarantee: a disk that holds less than its minimum gets what is missing there, whatever the others hold. Price: constant per
//! buffer; all disks are looked at when their number doubles or halves, and with it the minimum changes. While it has just grown and
//! others still hold what they got before, it is kept as far as there is memory.

/// No minimum is larger: the longest command of an initiator (4 MiB), with the blocks around it, takes so much.
const LEAST_MAX: usize = 8 << 20;

/// The bytes of all disks' payloads.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    disks: usize,
    least: usize,
    /// What disks hold beyond their minima, in all.
    beyond: usize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Budget {
        Budget { total, disks: 0, least: least(total, 1), beyond: 0 }
    }

    /// What each disk can have whatever the others hold: a power of two.
    pub(crate) fn least(&self) -> usize {
        self.least
    }

    /// There are `disks` disks now; `held` says how much each holds.
    pub(crate) fn set_disks(&mut self, disks: usize, held: impl Iterator<Item = usize>) {
        self.disks = disks;
        let least = least(self.total, disks);
        if least != self.least {
            self.least = least;
            self.beyond = held.map(|held| held.saturating_sub(least)).sum();
        }
    }

    /// Whether a disk that holds `held` gets `more`; if so, it is counted.
    pub(crate) fn take(&mut self, held: usize, more: usize) -> bool {
        let (before, after) = (held.saturating_sub(self.least), (held + more).saturating_sub(self.least));
        if after > before {
            let shared = self.total.saturating_sub(self.disks * self.least);
            let left = shared.saturating_sub(self.beyond);
            // Who holds nothing gets what there is.
            if after - before > left || held > 0 && after > left {
                return false;
            }
            self.beyond += after - before;
        }
        true
    }

    /// A disk that holds `held` has `more`, whether it may or not: others' minima are theirs still, and nothing beyond is given meanwhile.
    pub(crate) fn add(&mut self, held: usize, more: usize) {
        self.beyond += (held + more).saturating_sub(self.least) - held.saturating_sub(self.least);
    }

    /// What is shared, and how much of it is held.
    pub(crate) fn shared(&self) -> (usize, usize) {
        (self.total.saturating_sub(self.disks * self.least), self.beyond)
    }

    /// A disk that held `held` has given back `less`.
    pub(crate) fn give(&mut self, held: usize, less: usize) {
        let (before, after) = (held.saturating_sub(self.least), (held - less).saturating_sub(self.least));
        self.beyond = self.beyond.saturating_sub(before - after);
    }
}

/// Half of all, divided, rounded down to a power of two of pages.
fn least(total: usize, disks: usize) -> usize {
    let part = (total / 2 / disks.max(1)).clamp(henge_backend::ALIGN, LEAST_MAX);
    1 << part.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_example_of_the_head() {
        let mut budget = Budget::new(256 * MIB);
        budget.set_disks(16, std::iter::repeat_n(0, 16));
        assert_eq!(budget.least(), 8 * MIB);
        let mut held = [0; 16];
        for (disk, expected) in [(0, 72), (1, 40), (2, 24), (3, 16)] {
            while budget.take(held[disk], MIB) {
                held[disk] += MIB;
            }
            assert_eq!(held[disk], expected * MIB);
        }
        for disk in 4..16 {
            assert!((0..8).all(|n| budget.take(n * MIB, MIB)), "disk {disk} has its minimum");
        }
    }

    proptest! {
        /// Whatever disks take, give back, and however many they are: who holds less than the minimum gets it, and no
        /// more is out than there is.
        #[test]
        fn nobody_takes_anothers_minimum(steps in proptest::collection::vec((0usize..12, 1usize..40, any::<bool>()), 1..400)) {
            let total = 64 * 1024 * 64;
            let mut budget = Budget::new(total);
            let mut held = [0usize; 12];
            budget.set_disks(12, held.iter().copied());
            let least = budget.least();
            for (disk, pages, gives) in steps {
                let bytes = pages * 4096;
                if gives {
                    let bytes = bytes.min(held[disk]);
                    budget.give(held[disk], bytes);
                    held[disk] -= bytes;
                } else {
                    let got = budget.take(held[disk], bytes);
                    prop_assert!(got || held[disk] + bytes > least, "{} held, {bytes} more, {least} sure", held[disk]);
                    held[disk] += if got { bytes } else { 0 };
                }
                prop_assert!(held.iter().sum::<usize>() <= total);
            }
            let count = held.len();
            held.iter().for_each(|held| budget.give(*held, *held));
            prop_assert_eq!(budget.beyond, 0);
            // More disks: each still has its part.
            budget.set_disks(count * 100, std::iter::empty());
            prop_assert!(budget.least() * count * 100 <= total / 2 || budget.least() == 4096);
        }
    }
}
