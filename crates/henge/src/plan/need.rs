//! What a recorded load needs to be answered in time, whatever its neighbours do.
//!
//! **Problem.** Idle neighbours make any contract look good. A contract must do with what it promises alone.
//!
//! **Rule.** A disk that gets its rate R and nothing more serves command i at T(i) = max(a(i), T(i − 1)) + c(i) / R, where a(i) is when
//! the command came and c(i) what it counts. Its latency is T(i) − a(i), and what the device takes for one command alone. The
//! cheapest rate is the smallest R at which the wished share of the latencies keep the bound. R is never below the mean of any window:
//! below it the backlog grows without end.
//!
//! **Example.** Ten commands at once every second, 95 % within 100 ms: the tenth command is due at 10 / R, so R = 100/s. For
//! the bound to hold for 50 %, five commands are enough: R = 50/s.
//!
//! **Price.** Two passes over the commands for each rate tried, about 20 rates.

use henge_core::Duration;

/// Between two rates that are as good as the same.
const NEAR: f64 = 1.002;
/// The highest rate looked at, in units a second.
const HIGHEST: f64 = 1e12;

/// One command: when it came, in nanoseconds since its window began, and what it counts.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    pub at: u64,
    pub counts: u32,
}

/// Windows of a load.
#[derive(Clone, Debug, Default)]
pub struct Need {
    /// In each, commands in the order in which they came; and its length.
    pub windows: Vec<(Vec<Came>, Duration)>,
    /// What the device takes for a command alone.
    pub alone: Duration,
}

impl Need {
    /// Commands in all.
    pub fn commands(&self) -> usize {
        self.windows.iter().map(|(came, _)| came.len()).sum()
    }

    /// What is counted a second, in the busiest window and in the busiest second.
    pub fn busiest(&self) -> (f64, f64) {
        let (mut window, mut second) = (0.0f64, 0.0f64);
        for (came, time) in &self.windows {
            let all: u64 = came.iter().map(|c| u64::from(c.counts)).sum();
            window = window.max(all as f64 / time.as_secs_f64());
            for part in came.chunk_by(|a, b| a.at / 1_000_000_000 == b.at / 1_000_000_000) {
                second = second.max(part.iter().map(|c| f64::from(c.counts)).sum());
            }
        }
        (window, second.max(window))
    }

    /// Of all latencies at this rate, the one that `percentile` percent do not exceed, in nanoseconds.
    pub fn latency(&self, rate: f64, percentile: f64) -> f64 {
        let mut all = Vec::with_capacity(self.commands());
        for (came, _) in &self.windows {
            let mut due = 0.0f64;
            for command in came {
                let at = command.at as f64;
                due = due.max(at) + f64::from(command.counts) / rate * 1e9;
                all.push(due - at);
            }
        }
        if all.is_empty() {
            return 0.0;
        }
        let rank = ((all.len() as f64 * percentile / 100.0).ceil() as usize).clamp(1, all.len()) - 1;
        *all.select_nth_unstable_by(rank, f64::total_cmp).1 + self.alone.as_nanos() as f64
    }

    /// The smallest rate at which `percentile` percent are answered within `bound`; `None` if the device alone takes longer.
    pub fn rate(&self, bound: Duration, percentile: f64) -> Option<f64> {
        let wanted = bound.as_nanos() as f64;
        let good = |rate: f64| self.latency(rate, percentile) <= wanted;
        if bound <= self.alone {
            return None;
        }
        let mut low = self.busiest().0.max(f64::MIN_POSITIVE);
        if good(low) {
            return Some(low);
        }
        let mut high = low * 2.0;
        while !good(high) {
            (low, high) = (high, high * 2.0);
            if high > HIGHEST {
                return None;
            }
        }
        while high / low > NEAR {
            let middle = (low * high).sqrt();
            if good(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }

    /// How much of it comes at once on top of the rate, at most, for this share of the commands.
    pub fn burst(&self, rate: f64, percentile: f64) -> f64 {
        let waits = self.latency(rate, percentile) - self.alone.as_nanos() as f64;
        (waits / 1e9 * rate).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten commands at once, every second for ten seconds.
    fn bursts() -> Need {
        let came = (0..100).map(|i| Came { at: i / 10 * 1_000_000_000, counts: 1 }).collect();
        Need { windows: vec![(came, Duration::from_secs(10))], alone: Duration::ZERO }
    }

    #[test]
    fn the_worked_example() {
        let need = bursts();
        assert_eq!(need.busiest(), (10.0, 10.0));
        for (percentile, rate) in [(100.0, 100.0), (95.0, 100.0), (90.0, 90.0), (50.0, 50.0)] {
            let found = need.rate(Duration::from_millis(100), percentile).unwrap();
            assert!((found / rate - 1.0).abs() < 0.005, "{percentile} %: {found}");
        }
        // The tenth of them is due at 10 / R.
        assert!((need.latency(100.0, 100.0) - 1e8).abs() < 1.0);
        assert!((need.burst(100.0, 100.0) - 10.0).abs() < 1e-6);
    }

    #[test]
    fn a_rate_is_never_below_the_mean_and_a_device_that_is_too_slow_has_none() {
        let mut need = bursts();
        assert_eq!(need.rate(Duration::from_secs(100), 50.0), Some(10.0));
        need.alone = Duration::from_millis(50);
        // 50 ms are the device's: the tenth is due within the other 50.
        let found = need.rate(Duration::from_millis(100), 100.0).unwrap();
        assert!((found / 200.0 - 1.0).abs() < 0.005, "{found}");
        assert_eq!(need.rate(Duration::from_millis(50), 50.0), None);
    }

    #[test]
    fn more_is_needed_for_more_commands_and_for_less_time() {
        use rand::{RngExt, SeedableRng};
        for seed in 0..30 {
            let mut random = rand_pcg::Pcg64::seed_from_u64(seed);
            let mut at = 0;
            let came: Vec<Came> = (0..500)
                .map(|_| {
                    at += random.random_range(0..20_000_000);
                    Came { at, counts: random.random_range(1..9) }
                })
                .collect();
            let need = Need { windows: vec![(came, Duration::from_nanos(at + 1))], alone: Duration::ZERO };
            let rate = |ms, percentile| need.rate(Duration::from_millis(ms), percentile).unwrap();
            let mut before = f64::INFINITY;
            for percentile in [100.0, 99.0, 95.0, 50.0] {
                let found = rate(40, percentile);
                assert!(found <= before * NEAR, "seed {seed}");
                assert!(need.latency(found, percentile) <= 40e6, "seed {seed}: the bound is kept");
                before = found;
            }
            assert!(rate(20, 95.0) * NEAR >= rate(40, 95.0), "seed {seed}");
        }
    }
}
