//! Counting arrivals in equal spans of time, as they stream by.

use henge_core::{Duration, Instant};
use std::collections::VecDeque;

/// Bins that stay open for records that come out of order; what is later still counts in the oldest open one.
const OPEN: usize = 1024;

/// Counts per bin of one width: most, mean and variance, in constant memory.
///
/// The index of dispersion is variance / mean of the counts: 1 for Poisson, 0 for a metronome, larger for bursts.
#[derive(Clone, Debug)]
pub(crate) struct Bins {
    width: u64,
    /// Where bin `first` begins: the first record's time.
    origin: u64,
    /// Index of the first open bin, relative to the origin.
    first: i64,
    open: VecDeque<u64>,
    closed: u64,
    sum: u64,
    sum_squares: f64,
    most: u64,
    counted: u64,
    /// Records that came after their bin was closed.
    misplaced: u64,
}

impl Bins {
    pub fn new(width: Duration) -> Self {
        Bins {
            width: width.as_nanos(),
            origin: 0,
            first: 0,
            open: VecDeque::new(),
            closed: 0,
            sum: 0,
            sum_squares: 0.0,
            most: 0,
            counted: 0,
            misplaced: 0,
        }
    }

    /// Counts what came first, with bins beginning at `origin`.
    pub fn count_all(&mut self, all: &[Instant], origin: Instant) {
        if self.open.is_empty() && !all.is_empty() {
            self.origin = origin.as_nanos();
            self.open.push_back(0);
        }
        all.iter().for_each(|at| self.count(*at));
    }

    pub fn count(&mut self, at: Instant) {
        let at = at.as_nanos();
        if self.open.is_empty() {
            self.origin = at;
            self.open.push_back(0);
        }
        let index = (i128::from(at) - i128::from(self.origin)).div_euclid(i128::from(self.width)) as i64;
        // Before the first: bins in front, as long as none was closed.
        while index < self.first && self.closed == 0 && self.open.len() < OPEN {
            self.open.push_front(0);
            self.first -= 1;
        }
        let place = (index - self.first).max(0) as u64;
        if place >= self.open.len() as u64 {
            self.advance(place);
        }
        self.counted += 1;
        self.misplaced += u64::from(index < self.first);
        let place = (index - self.first).clamp(0, self.open.len() as i64 - 1) as usize;
        self.open[place] += 1;
        self.most = self.most.max(self.open[place]);
    }

    /// Opens bins up to `place` and closes the oldest, so that at most `OPEN` stay.
    fn advance(&mut self, place: u64) {
        let more = place + 1 - self.open.len() as u64;
        if more > OPEN as u64 {
            // A long silence: the bins in between are empty and need not be seen one by one.
            while let Some(n) = self.open.pop_front() {
                self.close(n);
            }
            self.closed += more - 1;
            self.first += place as i64;
            self.open.push_back(0);
            return;
        }
        for _ in 0..more {
            self.open.push_back(0);
        }
        while self.open.len() > OPEN {
            let n = self.open.pop_front().expect("there are more than OPEN");
            self.close(n);
            self.first += 1;
        }
    }

    fn close(&mut self, n: u64) {
        self.closed += 1;
        self.sum += n;
        self.sum_squares += n as f64 * n as f64;
    }

    /// Most in one bin.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Variance / mean of the counts of whole bins, the last one left out because it is cut; `None` for fewer than
    /// ten bins, which say nothing, and for a stream so far out of order that more than 0.1 % found their bin closed.
    pub fn dispersion(&self) -> Option<f64> {
        let whole = self.open.len().saturating_sub(1);
        let (mut n, mut sum, mut squares) = (self.closed, self.sum, self.sum_squares);
        for count in self.open.iter().take(whole) {
            n += 1;
            sum += count;
            squares += *count as f64 * *count as f64;
        }
        if n < 10 || sum == 0 || self.misplaced * 1000 > self.counted {
            return None;
        }
        let mean = sum as f64 / n as f64;
        Some((squares / n as f64 - mean * mean) / mean)
    }
}

/// Counts over the whole length of a trace in at most [`Timeline::BINS`] bins, whose width doubles when it must.
#[derive(Clone, Debug)]
pub struct Timeline {
    origin: u64,
    width: u64,
    counts: Vec<[u64; 2]>,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { origin: 0, width: 1_000_000, counts: Vec::new() }
    }
}

impl Timeline {
    /// Most bins.
    pub const BINS: usize = 512;

    /// Counts a request of `bytes`.
    pub fn count(&mut self, at: Instant, bytes: u64) {
        let at = at.as_nanos();
        if self.counts.is_empty() {
            self.origin = at;
        }
        // Earlier than all so far: bins in front, whole ones, as long as there is time before.
        while at < self.origin {
            let more = (self.origin - at).div_ceil(self.width);
            if more + self.counts.len() as u64 > Self::BINS as u64 {
                self.widen();
                continue;
            }
            self.counts.splice(0..0, std::iter::repeat_n([0; 2], more as usize));
            self.origin = self.origin.saturating_sub(more.saturating_mul(self.width));
        }
        while (at - self.origin) / self.width >= Self::BINS as u64 {
            self.widen();
        }
        let bin = ((at - self.origin) / self.width) as usize;
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, [0; 2]);
        }
        self.counts[bin][0] += 1;
        self.counts[bin][1] = self.counts[bin][1].saturating_add(bytes);
    }

    /// Makes one bin of two.
    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let half = self.counts.len().div_ceil(2);
        for i in 0..half {
            let next = self.counts.get(2 * i + 1).copied().unwrap_or([0; 2]);
            let low = self.counts[2 * i];
            self.counts[i] = [low[0] + next[0], low[1].saturating_add(next[1])];
        }
        self.counts.truncate(half);
    }

    /// Start of each bin in seconds since the first request, with requests and bytes per second in it.
    pub fn rates(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let width = self.width as f64 / 1e9;
        self.counts
            .iter()
            .enumerate()
            .map(move |(i, c)| (i as f64 * width, c[0] as f64 / width, c[1] as f64 / width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_metronome_has_no_dispersion() {
        let mut bins = Bins::new(Duration::from_secs(1));
        for i in 0..10_000u64 {
            bins.count(at_ms(5_000 + i * 10));
        }
        assert_eq!((bins.most(), bins.dispersion()), (100, Some(0.0)));
    }

    #[test]
    fn bursts_disperse_whatever_the_silence_between() {
        // 50 requests at once every 3 s: counts 50, 0, 0, … have mean 16.67, variance 50²/3 − 16.67², ratio 33.3.
        // A silence of 6000 bins between two halves is stepped over in one.
        let mut bins = Bins::new(Duration::from_secs(1));
        for burst in 0..2_000u64 {
            for _ in 0..50 {
                bins.count(at_ms(burst * 3_000));
            }
        }
        let dispersion = bins.dispersion().unwrap();
        assert!((dispersion - 33.33).abs() < 0.1, "{dispersion}");
        let (closed, open) = (bins.closed, bins.open.len() as u64);
        bins.count(at_ms(12_000_000));
        assert_eq!(bins.closed + bins.open.len() as u64, 12_001);
        assert!(closed + open < 6_001);
    }

    #[test]
    fn records_out_of_order_count_where_they_belong() {
        let mut bins = Bins::new(Duration::from_secs(1));
        for second in [5, 4, 6, 4, 3, 6, 6] {
            bins.count(at_ms(second * 1000));
        }
        assert_eq!(bins.open, [1, 2, 1, 3]);
    }

    #[test]
    fn a_stream_far_out_of_order_has_no_dispersion() {
        let mut bins = Bins::new(Duration::from_millis(1));
        for i in 0..20_000u64 {
            bins.count(at_ms(i % 5_000));
        }
        assert_eq!(bins.dispersion(), None);
    }

    #[test]
    fn a_timeline_grows_to_both_sides() {
        let mut timeline = Timeline::default();
        for ms in [5_000, 4_000, 9_000, 0, 4_000] {
            timeline.count(at_ms(ms), 1);
        }
        let total: u64 = timeline.counts.iter().map(|c| c[0]).sum();
        let (at, rate, _) = timeline.rates().next().unwrap();
        assert!(total == 5 && timeline.counts.len() <= Timeline::BINS && at == 0.0 && rate > 0.0);
    }

    #[test]
    fn a_timeline_keeps_all_counts() {
        let mut timeline = Timeline::default();
        for i in 0..100_000u64 {
            timeline.count(at_ms(i), 512);
        }
        assert!(timeline.counts.len() <= Timeline::BINS);
        assert_eq!(timeline.counts.iter().map(|c| c[0]).sum::<u64>(), 100_000);
        let (_, rate, bytes) = timeline.rates().nth(3).unwrap();
        assert!((rate - 1000.0).abs() < 8.0 && (bytes - 512_000.0).abs() < 4096.0);
    }
}
