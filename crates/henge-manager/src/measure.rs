//! What nodes saw of a disk: delays and rates over a sliding window, in little memory.
//!
//! Rates are kept period by period, latencies in a few slots that together cover the window, each a sparse histogram:
//! about 12 KiB a disk for a day of minutes.

use henge_admission::{Measured, Samples};
use henge_api::manager::Seen;
use std::collections::{BTreeMap, VecDeque};

/// Slots of latencies in a window.
const SLOTS: usize = 8;
/// Points that a distribution of delays is kept by; a stricter E than 1 − 1/POINTS takes the largest delay.
const POINTS: usize = 200;
/// Most latencies that a slot tells apart: more than a node's histogram has.
const LATENCIES_MAX: usize = 1 << 13;
/// Most periods in a window.
const PERIODS_MAX: usize = 1440;

/// One disk on one node.
#[derive(Clone, Debug, Default)]
struct Window {
    rates: VecDeque<f32>,
    /// Most commands in one second, by slot.
    slots: VecDeque<Slot>,
    /// Periods in the newest slot.
    filled: usize,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    peak: f32,
    /// Microseconds, and how many; ascending.
    latency: Vec<(u32, u32)>,
}

/// How long is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Span {
    /// Periods in a window.
    pub periods: usize,
    /// Periods since the last admission after which a measurement is believed.
    pub settle: usize,
}

impl Span {
    pub(crate) fn new(window_ms: u64, settle_ms: u64, period_ms: u64) -> Span {
        let periods = |ms: u64| usize::try_from(ms.div_ceil(period_ms.max(1))).unwrap_or(usize::MAX);
        Span { periods: periods(window_ms).clamp(1, PERIODS_MAX), settle: periods(settle_ms) }
    }
}

/// What was measured of all disks, by disk and node.
pub(crate) struct Measurements {
    span: Span,
    windows: BTreeMap<(String, String), Window>,
}

impl Measurements {
    pub(crate) fn new(span: Span) -> Measurements {
        Measurements { span, windows: BTreeMap::new() }
    }

    /// What a node saw of a disk over one period.
    pub(crate) fn add(&mut self, node: &str, seconds: f64, seen: &Seen) {
        let window = self.windows.entry((seen.name.clone(), node.to_owned())).or_default();
        window.add(seen, seconds, self.span);
    }

    /// As admission wants it; `since` is the number of periods since the last admission on the pool.
    pub(crate) fn of(&self, disk: &str, node: &str, since: usize) -> Option<Measured> {
        let window = self.windows.get(&(disk.to_owned(), node.to_owned()));
        window.map(|w| w.measured(self.span, since))
    }

    /// A disk is gone.
    pub(crate) fn forget(&mut self, name: &str) {
        self.windows.retain(|(disk, _), _| disk != name);
    }
}

impl Window {
    fn add(&mut self, seen: &Seen, seconds: f64, span: Span) {
        if !(seconds > 0.0 && seconds.is_finite()) {
            return;
        }
        self.rates.push_back((seen.commands as f64 / seconds) as f32);
        while self.rates.len() > span.periods {
            self.rates.pop_front();
        }
        let per_slot = span.periods.div_ceil(SLOTS);
        if self.slots.is_empty() || self.filled >= per_slot {
            self.slots.push_back(Slot::default());
            self.filled = 0;
        }
        while self.slots.len() > SLOTS {
            self.slots.pop_front();
        }
        self.filled += 1;
        let slot = self.slots.back_mut().expect("a slot was just made");
        slot.peak = slot.peak.max(seen.peak as f32);
        let mut merged: BTreeMap<u32, u32> = slot.latency.drain(..).collect();
        for (ns, n) in &seen.latency {
            let us = u32::try_from(ns.div_ceil(1000)).unwrap_or(u32::MAX);
            let count = merged.entry(us).or_default();
            *count = count.saturating_add(u32::try_from(*n).unwrap_or(u32::MAX));
        }
        slot.latency = merged.into_iter().collect();
        if slot.latency.len() > LATENCIES_MAX {
            slot.latency = halved(&slot.latency);
        }
    }

    /// As admission wants it; `since` is the number of periods since the last admission on the pool.
    fn measured(&self, span: Span, since: usize) -> Measured {
        let mut latency: BTreeMap<u32, u64> = BTreeMap::new();
        for (us, n) in self.slots.iter().flat_map(|s| &s.latency) {
            *latency.entry(*us).or_default() += u64::from(*n);
        }
        let delays = points(&latency);
        Measured {
            delay_ratios: Samples::default(),
            delays: Samples::new(delays),
            rates: self.rates.iter().map(|r| f64::from(*r)).collect(),
            whole_window: self.rates.len() >= span.periods && since >= span.settle,
            peak_rate: f64::from(self.slots.iter().map(|s| s.peak).fold(0.0, f32::max)),
        }
    }
}

/// Of each two neighbours the longer one, for both: whatever a node says, a slot is bounded, and no latency shorter than it was.
fn halved(latency: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let both = |pair: &[(u32, u32)]| {
        let count = pair.iter().fold(0u32, |sum, (_, n)| sum.saturating_add(*n));
        pair.last().map(|(us, _)| (*us, count))
    };
    latency.chunks(2).filter_map(both).collect()
}

/// Quantiles at i/POINTS, in seconds.
fn points(latency: &BTreeMap<u32, u64>) -> Vec<f64> {
    let all: u64 = latency.values().sum();
    let mut points = Vec::new();
    let mut seen = 0;
    for (us, n) in latency {
        seen += n;
        while points.len() < POINTS && seen * POINTS as u64 >= (points.len() as u64 + 1) * all {
            points.push(f64::from(*us) / 1e6);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(commands: u64, us: u64) -> Seen {
        Seen { name: "d".into(), commands, peak: commands, latency: vec![(us * 1000, commands)] }
    }

    #[test]
    fn a_window_forgets_and_settles() {
        let span = Span { periods: 16, settle: 4 };
        let mut window = Window::default();
        for _ in 0..16 {
            window.add(&seen(100, 5_000), 10.0, span);
        }
        assert!(!window.measured(span, 3).whole_window);
        let measured = window.measured(span, 4);
        assert!(measured.whole_window && measured.rates == vec![10.0; 16]);
        assert_eq!(measured.delays.quantile(0.95), Some(0.005));
        for _ in 0..18 {
            window.add(&seen(50, 9_000), 10.0, span);
        }
        assert_eq!(window.measured(span, 4).delays.quantile(0.01), Some(0.009), "the old slots are gone");
    }

    #[test]
    fn a_node_that_tells_everything_apart_takes_no_memory_without_end() {
        let span = Span { periods: PERIODS_MAX, settle: 4 };
        let mut window = Window::default();
        for period in 0..100u64 {
            let latency = (0..5000).map(|i| ((period + i * 100) * 1000, 1)).collect();
            window.add(&Seen { name: "d".into(), commands: 5000, peak: 1, latency }, 60.0, span);
        }
        assert!(window.slots.iter().all(|slot| slot.latency.len() <= LATENCIES_MAX));
        let all: u32 = window.slots.iter().flat_map(|slot| &slot.latency).map(|(_, n)| n).sum();
        assert_eq!(all, 500_000, "none is lost");
        let p95 = window.measured(span, 4).delays.quantile(0.95).unwrap();
        assert!((0.47..0.5).contains(&p95), "{p95}");
    }

    #[test]
    fn quantiles_of_points_are_those_of_the_whole() {
        let latency = (1..=1000u32).map(|us| (us, 1)).collect();
        let samples = Samples::new(points(&latency));
        assert_eq!(samples.quantile(0.95), Some(0.00095));
        assert_eq!(samples.quantile(0.999), Some(0.001));
    }
}
