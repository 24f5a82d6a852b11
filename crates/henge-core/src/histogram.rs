//! A latency histogram of bounded size: 64 buckets per power of two, so every value is off by at most 0.8 %.

use crate::Duration;

const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
/// Values from 2^42 ns (73 minutes) on share the last bucket.
const OCTAVES: usize = 42 - SUB_BITS as usize + 1;

/// The buckets of one power of two.
type Octave = [u64; SUB];

/// Counts durations; merged and subtracted cheaply. Half a KiB for each power of two that occurs, allocated when one
/// first does: 3 KiB for latencies from 100 us to 5 ms, 18 KiB at most.
///
/// ```
/// use henge_core::{Duration, Histogram};
/// let mut h = Histogram::default();
/// for ms in 1..=100 { h.record(Duration::from_millis(ms)); }
/// let p95 = h.quantile(0.95).unwrap().as_millis_f64();
/// assert!((p95 - 95.0).abs() / 95.0 < 0.008);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    octaves: Vec<Option<Box<Octave>>>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, value: Duration) {
        let ns = value.as_nanos();
        *self.slot(bucket(ns)) += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }
    /// Bucket number `i`.
    fn slot(&mut self, i: usize) -> &mut u64 {
        if self.octaves.is_empty() {
            self.octaves.resize_with(OCTAVES, || None);
        }
        let octave = self.octaves[i / SUB].get_or_insert_with(|| Box::new([0; SUB]));
        &mut octave[i % SUB]
    }
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Their mean; `None` while empty.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos((self.sum / u128::from(self.count)) as u64))
    }
    /// The largest, exactly.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.max))
    }
    /// The smallest value that at least the share `q` (0 … 1) of all is not above; `None` while empty.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (i, n) in self.counts() {
            seen += n;
            if seen >= rank {
                return Some(Duration::from_nanos(middle(i).min(self.max)));
            }
        }
        Some(Duration::from_nanos(self.max))
    }
    /// How many are at most `bound` (exact up to the bucket of `bound`).
    pub fn count_within(&self, bound: Duration) -> u64 {
        let last = bucket(bound.as_nanos());
        self.counts().take_while(|(i, _)| *i <= last).map(|(_, n)| n).sum()
    }
    /// Adds what another histogram counted.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        for (i, n) in other.counts() {
            *self.slot(i) += n;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
    /// What was counted since `earlier`, a copy of this histogram that is older; the longest is known to its bucket.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut new = self.clone();
        let both =
            new.octaves.iter_mut().zip(&earlier.octaves).filter_map(|(a, b)| a.as_mut().zip(b.as_ref()));
        for (a, b) in both.flat_map(|(a, b)| a.iter_mut().zip(b.iter())) {
            *a = a.saturating_sub(*b);
        }
        new.count = new.counts().map(|(_, n)| n).sum();
        new.sum = self.sum.saturating_sub(earlier.sum);
        let last = new.counts().last();
        new.max = last.map_or(0, |(i, _)| (upper(i) - 1).min(self.max));
        new
    }
    /// The buckets that are not empty, by number; with [`sum`](Self::sum) and [`max`](Self::max) all there is to know.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let octaves = self.octaves.iter().enumerate().filter_map(|(o, counts)| Some((o, counts.as_ref()?)));
        let all =
            octaves.flat_map(|(o, counts)| counts.iter().enumerate().map(move |(s, n)| (o * SUB + s, *n)));
        all.filter(|(_, n)| *n > 0)
    }
    /// All durations together, in nanoseconds.
    pub fn sum(&self) -> u128 {
        self.sum
    }
    /// What [`counts`](Self::counts) told of; buckets that do not exist count as the last.
    pub fn from_counts(
        counts: impl IntoIterator<Item = (usize, u64)>,
        sum: u128,
        max: Duration,
    ) -> Histogram {
        let mut h = Histogram { octaves: Vec::new(), count: 0, sum, max: max.as_nanos() };
        for (i, n) in counts {
            let slot = h.slot(i.min(SUB * OCTAVES - 1));
            *slot = slot.saturating_add(n);
            h.count = h.count.saturating_add(n);
        }
        h
    }
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.octaves.iter_mut().flatten().for_each(|octave| octave.fill(0));
        self.count = 0;
        self.sum = 0;
        self.max = 0;
    }
    /// The buckets that are not empty: upper edge and count, ascending; for plots.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.counts().map(|(i, n)| (Duration::from_nanos(upper(i)), n))
    }
}

fn bucket(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let octave = 63 - ns.leading_zeros() - SUB_BITS + 1;
    let sub = (ns >> (octave - 1)) as usize - SUB;
    (octave as usize * SUB + sub).min(SUB * OCTAVES - 1)
}

fn lower(i: usize) -> u64 {
    if i < SUB {
        return i as u64;
    }
    let (octave, sub) = (i / SUB, i % SUB);
    ((SUB + sub) as u64) << (octave - 1)
}

fn upper(i: usize) -> u64 {
    lower(i + 1)
}

fn middle(i: usize) -> u64 {
    if i < SUB { i as u64 } else { u64::midpoint(lower(i), upper(i)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values() {
        for shift in 0..42 {
            for add in [0u64, 1, 3, 7] {
                let ns = (1u64 << shift) + add * ((1u64 << shift) / 9);
                let i = bucket(ns);
                assert!(lower(i) <= ns && ns < upper(i), "{ns} in {i}");
                let error = (middle(i) as f64 - ns as f64).abs() / ns as f64;
                assert!(error <= 1.0 / 128.0, "{ns}: {error}");
            }
        }
        assert_eq!(bucket(u64::MAX), SUB * OCTAVES - 1);
    }

    #[test]
    fn told_and_subtracted() {
        let mut h = Histogram::default();
        for ms in 1..=50u64 {
            h.record(Duration::from_millis(ms));
        }
        let earlier = h.clone();
        for ms in 100..=200u64 {
            h.record(Duration::from_millis(ms));
        }
        let told = Histogram::from_counts(h.counts(), h.sum(), h.max().unwrap());
        assert_eq!(told.quantile(0.9), h.quantile(0.9));
        assert_eq!((told.count(), told.mean()), (h.count(), h.mean()));
        let new = told.since(&earlier);
        assert_eq!((new.count(), new.mean()), (101, Some(Duration::from_millis(150))));
        assert_eq!(new.since(&new).quantile(0.5), None);
        assert_eq!(Histogram::default().since(&earlier).count(), 0, "a counter that was reset");
    }

    #[test]
    fn quantiles_of_a_known_list() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(0.5), None);
        for ms in 1..=1000u64 {
            h.record(Duration::from_millis(ms));
        }
        for q in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let got = h.quantile(q).unwrap().as_millis_f64();
            assert!((got - q * 1000.0).abs() <= q * 1000.0 / 120.0, "{q}: {got}");
        }
        assert_eq!(h.max(), Some(Duration::from_secs(1)));
    }
}
