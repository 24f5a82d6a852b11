//! When requests come, without regard to when earlier ones are answered.
//!
//! The rule: a unit-rate renewal process (gaps of mean 1: constant, exponential, gamma) is stretched by the rate
//! r(t), so that the k-th arrival is where ∫r reaches the sum of the first k gaps. r(t) = level(t) · m(t): the
//! level is what configuration writes (a rate, a ramp, on and off); m(t) is what makes traffic bursty, the sum of a
//! base and of on/off sources, and has mean 1. Level and sources are constant between known instants, so the
//! integral is exact. All arrival processes of this crate are settings of this one:
//!
//! | process | gap | sources |
//! |---|---|---|
//! | constant | 1 | none |
//! | Poisson | exponential | none |
//! | on/off | any | one, exponential or fixed periods, no base |
//! | fitted to a trace (MMPP) | exponential | a few of different time scales, and a base |
//! | self-similar, H | exponential | many, Pareto periods with α = 3 − 2H (Willinger et al. 1997) |
//!
//! One is not: N *processes*, each of which asks, computes for N/r(t), and asks again, as the ranks of a parallel program do. They
//! begin at random within a span, at the start and whenever the level comes back from zero, and keep the distances that they
//! have then.
//!
//! Example: rate 100/s, one source with on = off = 1 s and no base: m is 2 while on and 0 while off, so 200/s for a
//! second, nothing for a second, 100/s on average.

use crate::Level;
use henge_core::{Duration, Instant};
use rand::RngExt;
use rand_distr::{Distribution, Exp1, Gamma};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The gaps of the underlying renewal process, with mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gaps {
    /// All equal: a metronome.
    Constant,
    /// Memoryless: Poisson.
    Exponential,
    /// More regular than Poisson (shape above 1) or less (below 1): the squared coefficient of variation is
    /// 1 / shape.
    Gamma(f64),
    /// Not a renewal process: N processes, each with gaps of N/r(t), that begin at random within a span.
    Processes {
        /// N.
        count: u32,
        /// The span.
        within: Duration,
    },
}

/// How long a source stays on, or off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Period {
    /// Always so long.
    Fixed(Duration),
    /// Memoryless with this mean.
    Exponential(Duration),
    /// Heavy tailed with this mean and shape α in 1 … 2; cut at 1000 times the mean, so that no run is one burst.
    Pareto(Duration, f64),
}

/// An on/off source of extra rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// How long it is on.
    pub on: Period,
    /// How long it is off.
    pub off: Period,
    /// What it adds to m(t) while on, before m is brought to mean 1.
    pub adds: f64,
}

/// Describes an arrival process; [`Arrivals`] runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// The underlying gaps.
    pub gaps: Gaps,
    /// m(t) without any source on, before m is brought to mean 1.
    pub base: f64,
    /// What makes it bursty.
    pub bursts: Vec<Burst>,
}

impl Process {
    /// Memoryless arrivals.
    pub fn poisson() -> Self {
        Process { gaps: Gaps::Exponential, base: 1.0, bursts: Vec::new() }
    }
    /// Evenly spaced arrivals.
    pub fn constant() -> Self {
        Process { gaps: Gaps::Constant, ..Process::poisson() }
    }
    /// Self-similar traffic with Hurst parameter `hurst` in 0.5 … 1: `sources` Pareto on/off sources with mean
    /// periods of `period`.
    pub fn self_similar(hurst: f64, sources: usize, period: Duration) -> Self {
        let alpha = 3.0 - 2.0 * hurst;
        let span = Period::Pareto(period, alpha);
        let source = Burst { on: span, off: span, adds: 1.0 };
        Process { gaps: Gaps::Exponential, base: 0.0, bursts: vec![source; sources] }
    }
    /// What m(t) is on average before it is brought to 1.
    fn mean(&self) -> f64 {
        self.base + self.bursts.iter().map(|b| b.adds * b.share_on()).sum::<f64>()
    }
}

impl Burst {
    /// The share of time that the source is on.
    fn share_on(&self) -> f64 {
        let (on, off) = (self.on.mean(), self.off.mean());
        on / (on + off)
    }
}

impl Period {
    fn mean(&self) -> f64 {
        match self {
            Period::Fixed(d) | Period::Exponential(d) | Period::Pareto(d, _) => d.as_secs_f64(),
        }
    }
    /// One period; never zero, so that a source always comes forward.
    fn draw(&self, rng: &mut Pcg64) -> Duration {
        let span = match self {
            Period::Fixed(d) => return *d,
            Period::Exponential(mean) => mean.as_secs_f64() * rng.sample::<f64, _>(Exp1),
            Period::Pareto(mean, alpha) => {
                // Mean of Pareto(least, α) is least · α / (α − 1); U is in (0, 1].
                let least = mean.as_secs_f64() * (alpha - 1.0) / alpha;
                let u = 1.0 - rng.random::<f64>();
                (least / u.powf(1.0 / alpha)).min(1000.0 * mean.as_secs_f64())
            }
        };
        Duration::from_secs_f64(span).max(Duration::from_nanos(1))
    }
}

/// Draws arrival after arrival.
#[derive(Clone, Debug)]
pub struct Arrivals {
    process: Process,
    level: Level,
    /// Divides m(t), so that its mean is 1.
    mean: f64,
    /// Per source: whether it is on, and until when.
    states: Vec<(bool, Instant)>,
    at: Instant,
    rng: Pcg64,
    /// Of processes: how much later than the first each begins, and when each asks next.
    begins: Vec<Duration>,
    asks: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Arrivals {
    /// `level` is the rate in millionths of a request per second.
    pub fn new(process: Process, level: Level, start: Instant, mut rng: Pcg64) -> Self {
        let states = process
            .bursts
            .iter()
            .map(|b| {
                let on = rng.random_bool(b.share_on());
                let span = if on { b.on } else { b.off }.draw(&mut rng);
                (on, start + span)
            })
            .collect();
        let mut begins = Vec::new();
        if let Gaps::Processes { count, within } = process.gaps {
            begins = (0..count).map(|_| within.mul_ratio(rng.random_range(0..1 << 30), 1 << 30)).collect();
        }
        let mut arrivals = Arrivals {
            mean: process.mean(),
            process,
            level,
            states,
            at: start,
            rng,
            begins,
            asks: BinaryHeap::new(),
        };
        arrivals.asks =
            (0..arrivals.begins.len() as u32).filter_map(|i| arrivals.begin(i, start)).map(Reverse).collect();
        arrivals
    }

    /// When a process begins that may do so from `t` on: a while after the level has come back.
    fn begin(&self, process: u32, mut t: Instant) -> Option<(Instant, u32)> {
        while self.level.value(t) == 0 {
            t = self.level.next_change(t)?;
        }
        Some((t + self.begins[process as usize], process))
    }

    /// The next request of whichever process asks first.
    fn next_of_processes(&mut self) -> Option<Instant> {
        let Reverse((at, process)) = self.asks.pop()?;
        self.at = at;
        let rate = self.level.value(at) as f64 / 1e6;
        let next = match rate > 0.0 {
            true => at + Duration::from_secs_f64(self.begins.len() as f64 / rate),
            false => at,
        };
        let next = match self.level.value(next) {
            0 => self.begin(process, next),
            _ => Some((next, process)),
        };
        self.asks.extend(next.map(Reverse));
        match rate > 0.0 {
            true => Some(at),
            false => self.next_of_processes(),
        }
    }

    /// Changes the rate from the last arrival on.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
        // Processes that nothing would have called any more begin anew.
        if self.asks.is_empty() {
            let begins = (0..self.begins.len() as u32).filter_map(|i| self.begin(i, self.at));
            self.asks = begins.map(Reverse).collect();
        }
    }

    /// The next arrival; `None` when there will be none.
    pub fn next_arrival(&mut self) -> Option<Instant> {
        let mut left = match self.process.gaps {
            Gaps::Processes { .. } => return self.next_of_processes(),
            Gaps::Constant => 1.0,
            Gaps::Exponential => self.rng.sample::<f64, _>(Exp1),
            Gaps::Gamma(shape) => Gamma::new(shape, 1.0 / shape)
                .expect("shapes are checked to be above zero")
                .sample(&mut self.rng),
        };
        loop {
            if self.level.value(self.at) == 0 && self.level.next_change(self.at).is_none() {
                return None;
            }
            let m = self.process.base
                + self
                    .process
                    .bursts
                    .iter()
                    .zip(&self.states)
                    .filter(|(_, s)| s.0)
                    .map(|(b, _)| b.adds)
                    .sum::<f64>();
            let rate = self.level.value(self.at) as f64 / 1e6 * m / self.mean;
            let change = self.next_change();
            let needed = if rate > 0.0 { Duration::from_secs_f64(left / rate) } else { Duration::MAX };
            match change {
                Some(change) if self.at + needed >= change => {
                    left = (left - rate * change.since(self.at).as_secs_f64()).max(0.0);
                    self.at = change;
                    self.turn();
                }
                None if rate <= 0.0 => return None,
                _ => {
                    self.at += needed;
                    return Some(self.at);
                }
            }
        }
    }

    /// When level or sources change next.
    fn next_change(&self) -> Option<Instant> {
        let level = self.level.next_change(self.at);
        self.states.iter().map(|s| s.1).chain(level).min()
    }

    /// Switches the sources whose period is over.
    fn turn(&mut self) {
        for (burst, state) in self.process.bursts.iter().zip(&mut self.states) {
            if state.1 <= self.at {
                state.0 = !state.0;
                state.1 += if state.0 { burst.on } else { burst.off }.draw(&mut self.rng);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(process: Process, level: Level, seconds: u64) -> Vec<u64> {
        let mut arrivals = Arrivals::new(process, level, Instant::ZERO, Pcg64::new(7, 1));
        let mut counts = vec![0; seconds as usize];
        while let Some(at) = arrivals.next_arrival() {
            match counts.get_mut((at.as_nanos() / 1_000_000_000) as usize) {
                Some(n) => *n += 1,
                None => break,
            }
        }
        counts
    }

    #[test]
    fn a_metronome_keeps_its_rate() {
        let counts = counts(Process::constant(), Level::Constant(100_000_000), 10);
        assert!(counts.iter().all(|n| (99..=101).contains(n)), "{counts:?}");
    }

    #[test]
    fn poisson_has_mean_and_variance_of_its_rate() {
        let counts = counts(Process::poisson(), Level::Constant(50_000_000), 4000);
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let var = counts.iter().map(|n| (*n as f64 - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        // Standard errors: mean √(50/4000) = 0.11, dispersion √(2/4000) = 0.022; five of each.
        assert!((mean - 50.0).abs() < 0.56, "{mean}");
        assert!((var / mean - 1.0).abs() < 0.11, "{}", var / mean);
    }

    #[test]
    fn on_and_off_are_as_written() {
        let level = Level::OnOff {
            high: 100_000_000,
            on: Duration::from_secs(2),
            off: Duration::from_secs(1),
            off_first: false,
        };
        let counts = counts(Process::constant(), level, 9);
        for (second, n) in counts.iter().enumerate() {
            let expected = if second % 3 < 2 { 99..=101 } else { 0..=1 };
            assert!(expected.contains(n), "{second}: {n}");
        }
    }

    /// Two processes at 2/s together ask once a second each, at the distance at which they began, also after a pause.
    #[test]
    fn processes_keep_their_distances() {
        let within = Duration::from_millis(300);
        let process = Process { gaps: Gaps::Processes { count: 2, within }, ..Process::poisson() };
        let level = Level::OnOff {
            high: 2_000_000,
            on: Duration::from_secs(3),
            off: Duration::from_secs(2),
            off_first: true,
        };
        let mut arrivals = Arrivals::new(process, level, Instant::ZERO, Pcg64::new(7, 1));
        let at: Vec<u64> = (0..12).map(|_| arrivals.next_arrival().unwrap().as_nanos() / 1_000_000).collect();
        let (first, second) = (at[0], at[1]);
        assert!(
            (2000..2300).contains(&first) && (first..2300).contains(&second) && first != second,
            "{at:?}"
        );
        let turn = |k: u64| [first + k * 1000, second + k * 1000];
        let wanted: Vec<u64> = [0, 1, 2, 5, 6, 7].into_iter().flat_map(turn).collect();
        assert_eq!(at, wanted);
    }

    #[test]
    fn bursts_keep_the_mean() {
        let second = Duration::from_secs(1);
        let burst =
            Burst { on: Period::Exponential(second), off: Period::Exponential(second * 3), adds: 5.0 };
        let process = Process { gaps: Gaps::Exponential, base: 0.5, bursts: vec![burst] };
        let counts = counts(process, Level::Constant(100_000_000), 20_000);
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        assert!((mean - 100.0).abs() < 3.0, "{mean}");
    }

    #[test]
    fn self_similar_traffic_stays_bursty_when_averaged() {
        // Variance of the mean over blocks of k falls as k^(2H−2); for H = 0.8 by 100^−0.4 = 0.16 from k = 1 to 100,
        // for Poisson by 0.01. The measured slope is noisy, so the test asks for the middle of the two (in logarithm).
        let process = Process::self_similar(0.8, 32, Duration::from_millis(500));
        let counts = counts(process, Level::Constant(1_000_000_000), 20_000);
        let variance = |k: usize| {
            let means: Vec<f64> =
                counts.chunks_exact(k).map(|c| c.iter().sum::<u64>() as f64 / k as f64).collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / means.len() as f64
        };
        assert!(variance(100) / variance(1) > 0.04, "{}", variance(100) / variance(1));
    }
}
