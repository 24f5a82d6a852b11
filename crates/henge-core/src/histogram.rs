//! A latency histogram of fixed size: 32 buckets per power of two, each 3.1 % wide at most.
//!
//! The values of a bucket are taken to lie evenly in it. Where they do, a percentile is nearly exact; it never is off by more
//! than its bucket's width, and by half of that where one value lies alone.

use crate::Duration;

const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Values from 2^42 ns (73 minutes) on share the last bucket.
const OCTAVES: usize = 42 - SUB_BITS as usize + 1;

const BUCKETS: usize = SUB * OCTAVES;

/// Counts durations; merged and subtracted cheaply, never grows. 2.4 KiB, allocated at first use, and 10 KiB more once a bucket
/// has counted 65,536.
///
/// What a count touches lies close together, since what counting costs among many flows is waiting for memory: the low 16 bits
/// of all counts side by side, what they carry over elsewhere.
///
/// ```
/// use henge_core::{Duration, Histogram};
/// let mut h = Histogram::default();
/// for ms in 1..=100 { h.record(Duration::from_millis(ms)); }
/// let p95 = h.quantile(0.95).unwrap().as_millis_f64();
/// assert!((p95 - 95.0).abs() / 95.0 < 0.016);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Each bucket's count modulo 2^16 …
    low: Option<Box<[u16; BUCKETS]>>,
    /// … and how often that came round to zero.
    high: Option<Box<[u64; BUCKETS]>>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, value: Duration) {
        let ns = value.as_nanos();
        let bucket = bucket(ns);
        let low = &mut self.low.get_or_insert_with(|| Box::new([0; BUCKETS]))[bucket];
        *low = low.wrapping_add(1);
        if *low == 0 {
            self.carry(bucket);
        }
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }
    #[cold]
    fn carry(&mut self, bucket: usize) {
        self.high.get_or_insert_with(|| Box::new([0; BUCKETS]))[bucket] += 1;
    }
    /// What a bucket counted.
    fn at(&self, bucket: usize) -> u64 {
        let low = self.low.as_ref().map_or(0, |low| u64::from(low[bucket]));
        low + (self.high.as_ref().map_or(0, |high| high[bucket]) << 16)
    }
    fn set(&mut self, bucket: usize, n: u64) {
        if n != self.at(bucket) {
            self.low.get_or_insert_with(|| Box::new([0; BUCKETS]))[bucket] = n as u16;
            if n >> 16 > 0 || self.high.is_some() {
                self.high.get_or_insert_with(|| Box::new([0; BUCKETS]))[bucket] = n >> 16;
            }
        }
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
            if seen + n >= rank {
                let end = upper(i).min(self.max.saturating_add(1));
                return Some(Duration::from_nanos(within(lower(i)..end, rank - seen, n).min(self.max)));
            }
            seen += n;
        }
        Some(Duration::from_nanos(self.max))
    }
    /// How many are at most `bound` (exact up to the bucket of `bound`).
    pub fn count_within(&self, bound: Duration) -> u64 {
        (0..=bucket(bound.as_nanos())).map(|i| self.at(i)).sum()
    }
    /// Adds what another histogram counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (i, n) in other.counts() {
            self.set(i, self.at(i) + n);
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
    /// What was counted since `earlier`, a copy of this histogram that is older; the longest is known to its bucket.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut new = self.clone();
        for (i, n) in earlier.counts() {
            new.set(i, self.at(i).saturating_sub(n));
        }
        new.count = new.counts().map(|(_, n)| n).sum();
        new.sum = self.sum.saturating_sub(earlier.sum);
        let last = new.counts().last();
        new.max = last.map_or(0, |(i, _)| (upper(i) - 1).min(self.max));
        new
    }
    /// The buckets that are not empty, by number; with [`sum`](Self::sum) and [`max`](Self::max) all there is to know.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let buckets = if self.count > 0 { BUCKETS } else { 0 };
        (0..buckets).map(|i| (i, self.at(i))).filter(|(_, n)| *n > 0)
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
        let mut h = Histogram { sum, max: max.as_nanos(), ..Histogram::default() };
        for (i, n) in counts {
            let i = i.min(BUCKETS - 1);
            h.set(i, h.at(i).saturating_add(n));
            h.count = h.count.saturating_add(n);
        }
        h
    }
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(low) = &mut self.low {
            low.fill(0);
        }
        if let Some(high) = &mut self.high {
            high.fill(0);
        }
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
    (octave as usize * SUB + sub).min(BUCKETS - 1)
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

/// The `k`-th of `n` values that lie evenly in `range`.
fn within(range: std::ops::Range<u64>, k: u64, n: u64) -> u64 {
    let width = u128::from(range.end.saturating_sub(range.start));
    range.start + (width * u128::from(2 * k - 1) / u128::from(2 * n)) as u64
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
                let error = (within(lower(i)..upper(i), 1, 1) as f64 - ns as f64).abs() / ns as f64;
                assert!(error <= 1.0 / 64.0, "{ns}: {error}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_between_the_edges_of_a_bucket() {
        // Spread evenly over two decades, a percentile is known far better than a bucket is wide; one value to half of that.
        let mut h = Histogram::default();
        for us in 1000..100_000u64 {
            h.record(Duration::from_micros(us));
        }
        for q in (1..100).map(|percent| f64::from(percent) / 100.0) {
            let (got, exact) = (h.quantile(q).unwrap().as_millis_f64(), 1.0 + 99.0 * q);
            assert!((got / exact - 1.0).abs() < 0.002, "{q}: {got} for {exact}");
        }
        let mut one = Histogram::default();
        one.record(Duration::from_micros(1234));
        one.record(Duration::from_millis(80));
        assert!((one.quantile(0.5).unwrap().as_millis_f64() / 1.234 - 1.0).abs() <= 1.0 / 64.0);
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
            assert!((got - q * 1000.0).abs() <= q * 1000.0 / 60.0, "{q}: {got}");
        }
        assert_eq!(h.max(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn counts_beyond_sixteen_bits() {
        let (often, seldom) = (Duration::from_micros(50), Duration::from_millis(7));
        let mut h = Histogram::default();
        (0..70_000).for_each(|_| h.record(often));
        h.record(seldom);
        let earlier = h.clone();
        (0..130_000).for_each(|_| h.record(often));
        (0..65_536).for_each(|_| h.record(seldom));
        let counts = |h: &Histogram| h.counts().map(|(_, n)| n).collect::<Vec<_>>();
        assert_eq!((counts(&h), h.count()), (vec![200_000, 65_537], 265_537));
        assert_eq!(h.count_within(often), 200_000);
        assert_eq!(counts(&h.since(&earlier)), [130_000, 65_536]);
        assert_eq!(counts(&Histogram::from_counts(h.counts(), h.sum(), seldom)), [200_000, 65_537]);
        let mut sum = earlier.clone();
        sum.merge(&h);
        assert_eq!((counts(&sum), sum.count()), (vec![270_000, 65_538], 335_538));
        sum.clear();
        assert_eq!((counts(&sum), sum.count()), (vec![], 0));
        sum.record(often);
        assert_eq!(counts(&sum), [1], "nothing of before is left");
    }
}
