//! Admission on one node: whether a promise is made.
//!
//! # The problem
//! Worst-case arithmetic fills a node with a third of the disks it could keep: delays are mostly far below their bounds
//! and peaks do not coincide. Admission by measurement uses what was seen, and must not promise what it saw by luck.
//!
//! # The rules
//! *Deterministic*: Σ max(IOPS′, IOPS″ by (10)) ≤ IOPSmax.
//!
//! *Measured* (MBAC): each disk's IOPS″ by (11); disks with IOPS″ > IOPS′ are latency-bound. The others are counted by the
//! quantile R(x) of their *combined* measured rate, so spare(x) = IOPSmax − R(x). Admit if the latency-bound disks'
//! Σ max(IOPS′, IOPS″) ≤ spare(E).
//!
//! *Replay*: simulate the last window with the newcomer as a bursty source; admit if no disk's viol exceeds 0.5.
//!
//! *Oracle* (evaluation only): add disks until an admitted one's guarantee fails; one less.
//!
//! # Worked example
//! A node of 500/s; disks of 40/s, 120 ms, 7 pending. By (10) each reserves 67.8: seven fit. Measured, with delays of
//! 26 ms at 95 %, IOPS″ = 8/((0.120 − 0.026)/0.2 − 0.002) = 17, below 40: the disks are throughput-bound, and what
//! counts is how often their combined rate peaks.
//!
//! # Where we depart, each a switch in [`Rules`]
//! - the fixed point of (11) instead of iterating it;
//! - no disk takes more by (11) than by (10), and a set that the deterministic rule admits is admitted: Q + s can exceed 1;
//! - disks not measured for a whole window, or asleep in it ([`Measured::asleep`]), count as declared (otherwise 6 of 6 sequences
//!   over-admit);
//! - spare at the strictest E of all disks (a lax newcomer broke strict ones in 6 of 6, 1 of 6 with it);
//! - every existing disk must stay within its bound when the newcomer comes and who sleeps wakes, by how a queue grows
//!   (`edge.rs`, which says how and why).
//!
//! # Price
//! O(disks · periods) for measured admission; a simulated window per decision for replay, so managers compute the
//! headroom ahead.
//!
//! Source: Stonehenge, section 4.2.

use crate::convert::{Fixed, TooTight};
use crate::edge::Edge;
use crate::samples::Samples;
use crate::spec::Part;
use henge_core::Duration;
use std::fmt;

/// Which rules admission by measurement follows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rules {
    /// s: room for the newcomer in (11).
    pub slack: f64,
    /// The fixed point of (11) instead of one step of it.
    pub settled: bool,
    /// Disks that were not awake for a whole window count as declared.
    pub asleep_as_declared: bool,
    /// The strictest E of all disks decides the spare capacity.
    pub strictest: bool,
    /// Existing disks must be within their bounds first.
    pub existing_first: bool,
    /// Their delays grow as a queue does, rather than with the square of the load.
    pub queueing: bool,
    /// Nothing takes more than by worst-case arithmetic, and a set that fits by it is admitted: Q + s may exceed 1 in (11).
    pub worst_case_bounds: bool,
}

impl Rules {
    /// What the paper says.
    pub const PAPER: Rules = Rules {
        slack: 0.2,
        settled: false,
        asleep_as_declared: false,
        strictest: false,
        existing_first: false,
        queueing: false,
        worst_case_bounds: false,
    };
    /// What we ship.
    pub const OURS: Rules = Rules {
        slack: 0.2,
        settled: true,
        asleep_as_declared: true,
        strictest: true,
        existing_first: true,
        queueing: true,
        worst_case_bounds: true,
    };
}

/// What was measured of one disk on this node over the last window.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Delays in seconds of requests that conformed (at most `pending` queued when they came).
    pub delays: Samples,
    /// The same, each divided by its worst case by (10) at the reservation in force when it came.
    pub delay_ratios: Samples,
    /// Requests completed in each period of the window, per second; all disks' periods coincide.
    pub rates: Vec<f64>,
    /// Whether it was measured for a whole window since the last admission on this node.
    pub whole_window: bool,
    /// Largest rate over one second in the window.
    pub peak_rate: f64,
}

impl Measured {
    /// Whether it asked so little of what it declared that what was seen says nothing about what it may ask: less than
    /// half in its best second, or less than a fifth on average.
    pub fn asleep(&self, declared: f64) -> bool {
        let mean = self.rates.iter().sum::<f64>() / self.rates.len().max(1) as f64;
        self.peak_rate < declared / 2.0 || mean < declared / 5.0
    }
}

/// One disk (or part of one) on a node.
#[derive(Clone, PartialEq, Debug)]
pub struct PromisedPart {
    /// What it was promised there.
    pub part: Part,
    /// What was seen of it; `None` for a newcomer.
    pub measured: Option<Measured>,
}

/// What a disk would reserve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reservation {
    /// IOPS′: what it declared.
    pub declared: f64,
    /// IOPS″: what its delay bound takes; zero without a bound.
    pub for_delay: f64,
}

impl Reservation {
    /// max(IOPS′, IOPS″).
    pub fn rate(&self) -> f64 {
        self.declared.max(self.for_delay)
    }
    /// Whether the delay bound decides.
    pub fn is_latency_bound(&self) -> bool {
        self.for_delay > self.declared
    }
}

/// Yes.
#[derive(Clone, PartialEq, Debug)]
pub struct Admission {
    /// What each disk reserves, the newcomer last.
    pub reservations: Vec<Reservation>,
    /// Requests a second that remain.
    pub headroom: f64,
}

/// No, and why.
#[derive(Clone, PartialEq, Debug)]
pub enum Rejection {
    /// No bandwidth of this node keeps the newcomer's bound.
    TooTight(TooTight),
    /// The node does not have what all would reserve together.
    Bandwidth {
        /// Requests a second that all would reserve.
        needed: f64,
        /// Requests a second there are.
        available: f64,
        /// What the newcomer could have; zero if nothing.
        instead: f64,
    },
    /// A disk that is here already is close to breaking its bound.
    ExistingAtBound {
        /// Which, by its place in the list.
        index: usize,
        /// Its delay at the quantile that was looked at.
        delay: Duration,
        /// Its bound.
        bound: Duration,
    },
    /// In the replay, somebody's promise broke.
    Replay {
        /// Whose, by its place in the list (the newcomer is last).
        index: usize,
        /// Share of late requests / (1 − E).
        violation: f64,
    },
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::TooTight(tight) => tight.fmt(f),
            Rejection::Bandwidth { needed, available, instead } => {
                let short = needed - available;
                write!(f, "all would reserve {needed:.1}/s of {available:.1}/s, {short:.1}/s too much; ")?;
                match *instead > 0.0 {
                    true => write!(f, "a reservation of {instead:.1}/s would be admitted"),
                    false => write!(f, "nothing is left to reserve"),
                }
            }
            Rejection::ExistingAtBound { index, delay, bound } => {
                write!(
                    f,
                    "disk {index} here is at {delay} of its {bound} already; one more disk could make it late"
                )
            }
            Rejection::Replay { index, violation } => {
                write!(
                    f,
                    "replaying the last window, disk {index} would break its promise ({violation:.2} of what it tolerates)"
                )
            }
        }
    }
}
impl std::error::Error for Rejection {}

/// Share of late requests over what elasticity tolerates: above 1 a guarantee is missed. With E = 1 any late request
/// misses it.
pub fn miss_ratio(late: u64, all: u64, elasticity: f64) -> f64 {
    match (late, all) {
        (0, _) | (_, 0) => 0.0,
        _ if elasticity >= 1.0 => f64::INFINITY,
        _ => late as f64 / all as f64 / (1.0 - elasticity),
    }
}

pub(crate) fn reserve_worst(node: &Fixed, part: &Part) -> Result<Reservation, TooTight> {
    let for_delay = part.delay.map_or(Ok(0.0), |d| node.worst(d, part.pending))?;
    Ok(Reservation { declared: part.rate, for_delay })
}

fn enough(reservations: Vec<Reservation>, needed: f64, available: f64) -> Result<Admission, Rejection> {
    // A hair of tolerance: a node that is exactly full is full, not overfull by a rounding error.
    if needed <= available * (1.0 + 1e-9) {
        return Ok(Admission { reservations, headroom: (available - needed).max(0.0) });
    }
    let newcomer = reservations.last().map_or(0.0, Reservation::rate);
    Err(Rejection::Bandwidth { needed, available, instead: (available - (needed - newcomer)).max(0.0) })
}

/// Worst-case arithmetic. The newcomer is the last of `disks`.
pub fn deterministic(node: &Fixed, disks: &[PromisedPart]) -> Result<Admission, Rejection> {
    let reservations = disks
        .iter()
        .map(|d| reserve_worst(node, &d.part))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Rejection::TooTight)?;
    let needed = reservations.iter().map(Reservation::rate).sum();
    enough(reservations, needed, node.iops_max)
}

/// By measurement. The newcomer is the last of `disks`.
pub fn measured(node: &Fixed, disks: &[PromisedPart], rules: &Rules) -> Result<Admission, Rejection> {
    if rules.worst_case_bounds
        && let Ok(admission) = deterministic(node, disks)
    {
        return Ok(admission);
    }
    if rules.existing_first {
        let newcomer = disks.last().filter(|d| d.measured.is_none()).map(|d| &d.part);
        Edge::of(node, disks, rules).check(newcomer)?;
    }
    let reservations = disks
        .iter()
        .map(|disk| reserve_measured(node, disk, disks, rules))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Rejection::TooTight)?;
    let needed = measured_sum(disks, &reservations, rules);
    enough(reservations, needed, node.iops_max)
}

/// Σ of the latency-bound disks, and the quantile of what the others ask together.
fn measured_sum(disks: &[PromisedPart], reservations: &[Reservation], rules: &Rules) -> f64 {
    let elasticity = match rules.strictest {
        true => disks.iter().map(|d| d.part.elasticity).fold(0.0, f64::max),
        false => disks.last().map_or(1.0, |d| d.part.elasticity),
    };
    let latency_bound: f64 =
        reservations.iter().filter(|r| r.is_latency_bound()).map(Reservation::rate).sum();
    latency_bound + combined_rate(disks, reservations, elasticity, rules)
}

/// What disks that are here reserve together by worst-case arithmetic, in requests a second.
pub fn needed_worst(node: &Fixed, disks: &[PromisedPart]) -> Result<f64, TooTight> {
    disks.iter().map(|d| reserve_worst(node, &d.part).map(|r| r.rate())).sum()
}

/// The same by measurement.
pub fn needed(node: &Fixed, disks: &[PromisedPart], rules: &Rules) -> Result<f64, TooTight> {
    let reservations =
        disks.iter().map(|d| reserve_measured(node, d, disks, rules)).collect::<Result<Vec<_>, _>>()?;
    Ok(measured_sum(disks, &reservations, rules))
}

/// IOPS″ by (11), or by (10) where nothing was measured.
pub(crate) fn reserve_measured(
    node: &Fixed,
    disk: &PromisedPart,
    disks: &[PromisedPart],
    rules: &Rules,
) -> Result<Reservation, TooTight> {
    let part = &disk.part;
    let Some(bound) = part.delay else { return Ok(Reservation { declared: part.rate, for_delay: 0.0 }) };
    let worst = node.worst(bound, part.pending)?;
    let own = disk.measured.as_ref().filter(|m| m.whole_window && !m.delays.is_empty());
    let delay = match (own, &disk.measured) {
        (Some(measured), _) => measured.delays.quantile(part.elasticity),
        (None, Some(_)) => None, // measured, but not settled: (10)
        (None, None) => newcomers_delay(disks, part.elasticity),
    };
    let Some(delay) = delay else { return Ok(Reservation { declared: part.rate, for_delay: worst }) };
    let for_delay = if rules.settled {
        node.settled(bound, part.pending, delay, rules.slack)?
    } else {
        let ratio = match own {
            Some(measured) => measured.delay_ratios.quantile(part.elasticity).unwrap_or(1.0),
            None => delay / node.worst_case(worst, part.pending),
        };
        node.paper_measured(bound, part.pending, ratio, rules.slack)?
    };
    let for_delay = if rules.worst_case_bounds { for_delay.min(worst) } else { for_delay };
    Ok(Reservation { declared: part.rate, for_delay })
}

/// A newcomer will be delayed as the most delayed of the latency-bound disks.
fn newcomers_delay(disks: &[PromisedPart], elasticity: f64) -> Option<f64> {
    let delays = disks.iter().filter(|d| d.part.delay.is_some()).filter_map(|d| d.measured.as_ref());
    let quantiles = delays.filter(|m| m.whole_window).filter_map(|m| m.delays.quantile(elasticity));
    quantiles.fold(None, |largest, q| Some(largest.map_or(q, |l: f64| l.max(q))))
}

/// R(E) of the throughput-bound disks: their combined measured rate, plus what those declared that were not seen.
fn combined_rate(
    disks: &[PromisedPart],
    reservations: &[Reservation],
    elasticity: f64,
    rules: &Rules,
) -> f64 {
    let (declared, periods) = combined_periods(disks, reservations, rules);
    declared + Samples::new(periods).quantile(elasticity).unwrap_or(0.0)
}

/// Of the throughput-bound disks: what those declared that were not seen, and the others' combined rate in each period.
pub(crate) fn combined_periods(
    disks: &[PromisedPart],
    reservations: &[Reservation],
    rules: &Rules,
) -> (f64, Vec<f64>) {
    let mut periods: Vec<f64> = Vec::new();
    let mut declared = 0.0;
    for (disk, reservation) in disks.iter().zip(reservations).filter(|(_, r)| !r.is_latency_bound()) {
        let seen = disk
            .measured
            .as_ref()
            .filter(|m| !m.rates.is_empty())
            .filter(|m| !rules.asleep_as_declared || (m.whole_window && !m.asleep(disk.part.rate)));
        let Some(seen) = seen else {
            declared += reservation.declared;
            continue;
        };
        periods.resize(periods.len().max(seen.rates.len()), 0.0);
        for (sum, rate) in periods.iter_mut().zip(&seen.rates) {
            *sum += rate;
        }
    }
    (declared, periods)
}

/// By replay: `simulate` runs the last window with the newcomer as a bursty source (on and off, twice its declared rate)
/// and sleepers at their declared rate, and returns each disk's [`miss_ratio`].
pub fn replay(
    node: &Fixed,
    disks: &[PromisedPart],
    simulate: impl FnOnce() -> Vec<f64>,
) -> Result<Admission, Rejection> {
    if let Ok(admission) = deterministic(node, disks) {
        return Ok(admission);
    }
    // Half of what is tolerated: the newcomer's true load is not known yet.
    const TOLERATED: f64 = 0.5;
    let worst = simulate().into_iter().enumerate().fold((0, 0.0), |w, v| if v.1 > w.1 { v } else { w });
    if worst.1 > TOLERATED {
        return Err(Rejection::Replay { index: worst.0, violation: worst.1 });
    }
    let reservations = disks.iter().map(|d| Reservation { declared: d.part.rate, for_delay: 0.0 }).collect();
    Ok(Admission { reservations, headroom: 0.0 })
}

/// For evaluation: how many of a sequence's first disks keep every guarantee; `violations(n)` simulates the first
/// n with their true loads and returns each one's [`miss_ratio`].
pub fn oracle(most: usize, mut violations: impl FnMut(usize) -> Vec<f64>) -> usize {
    (1..=most).take_while(|n| violations(*n).iter().all(|v| *v <= 1.0)).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Specification;

    fn disk(rate: f64) -> PromisedPart {
        let specification = Specification {
            rate: Some(rate),
            delay: Some(Duration::from_millis(120)),
            pending: 7,
            ..Specification::best_effort(1 << 30)
        };
        PromisedPart { part: specification.part(1), measured: None }
    }

    fn seen(mut disk: PromisedPart, delay: f64, rates: &[f64]) -> PromisedPart {
        disk.measured = Some(Measured {
            delays: Samples::new(vec![delay; 100]),
            delay_ratios: Samples::new(vec![delay / 0.12; 100]),
            rates: rates.to_vec(),
            whole_window: true,
            peak_rate: rates.iter().copied().fold(0.0, f64::max),
        });
        disk
    }

    const NODE: Fixed = Fixed { iops_max: 500.0, service: 0.002 };

    /// Table 2, deterministic: seven disks of 67.8/s at 500/s.
    #[test]
    fn worst_case_arithmetic_admits_seven() {
        let fits = |n: usize| deterministic(&NODE, &vec![disk(40.0); n]);
        assert!(fits(7).is_ok());
        let Err(Rejection::Bandwidth { needed, available, instead }) = fits(8) else {
            panic!("eight do not fit")
        };
        assert!((needed - 8.0 * 67.7966).abs() < 0.01 && available == 500.0);
        assert!((instead - (500.0 - 7.0 * 67.7966)).abs() < 0.01);
    }

    #[test]
    fn measurement_admits_more_where_delays_are_small_and_peaks_do_not_coincide() {
        let mut disks: Vec<PromisedPart> = (0..12)
            .map(|i| {
                let rates: Vec<f64> = (0..12).map(|p| if p == i { 40.0 } else { 20.0 }).collect();
                seen(disk(40.0), 0.020, &rates)
            })
            .collect();
        disks.push(disk(40.0));
        assert!(deterministic(&NODE, &disks).is_err());
        let admission = measured(&NODE, &disks, &Rules::OURS).unwrap();
        // 11 · 20 + 40 in every period, and the newcomer as declared.
        assert!((admission.headroom - (500.0 - 260.0 - 40.0)).abs() < 1e-6, "{}", admission.headroom);
    }

    /// Seven fit by worst-case arithmetic. Where delays reach 0.9 of the worst case, (11) with s = 0.2 asks each for more than (10).
    #[test]
    fn by_the_papers_rules_alone_a_set_that_fits_in_the_worst_case_may_be_refused() {
        let disks: Vec<PromisedPart> =
            (0..7).map(|i| if i < 6 { seen(disk(40.0), 0.108, &[40.0]) } else { disk(40.0) }).collect();
        assert!(deterministic(&NODE, &disks).is_ok());
        assert!(measured(&NODE, &disks, &Rules::OURS).is_ok());
        let refused = measured(&NODE, &disks, &Rules::PAPER);
        let Err(Rejection::Bandwidth { needed, .. }) = refused else { panic!("{refused:?}") };
        // 8/(0.12/1.1 - 0.002) = 74.7 for each that was measured.
        assert!(needed > 6.0 * 74.7, "{needed}");
    }

    #[test]
    fn peaks_in_lockstep_are_not_averaged_away() {
        let rates = [0.0, 0.0, 45.0, 0.0];
        let mut disks: Vec<PromisedPart> = (0..11).map(|_| seen(disk(40.0), 0.020, &rates)).collect();
        disks.push(disk(40.0));
        assert!(measured(&NODE, &disks, &Rules::OURS).is_err(), "11 · 45 + 40 is more than 500");
    }

    /// Ours: without it sleepers are taken for light disks.
    #[test]
    fn sleepers_count_as_declared() {
        // Never half of what it declared in a second; in one second, but less than a fifth on average.
        for rates in [[1.0, 2.0, 1.0, 2.0, 1.0], [1.0, 2.0, 1.0, 2.0, 30.0]] {
            let mut disks: Vec<PromisedPart> = (0..12).map(|_| seen(disk(40.0), 0.020, &rates)).collect();
            disks.push(disk(40.0));
            assert!(measured(&NODE, &disks, &Rules::OURS).is_err(), "13 · 40 is more than 500");
            let paper = Rules { asleep_as_declared: false, ..Rules::OURS };
            assert!(measured(&NODE, &disks, &paper).is_ok());
        }
    }

    /// Ours: delays were seen while half of the disks slept. Awake they ask 105 · 300/140 = 225/s of 500/s, and wait
    /// (0.45/0.55)/(0.2114/0.7886) = 3.05 times as long: 39.3 ms become 120 ms.
    #[test]
    fn delays_beside_sleepers_say_less() {
        let beside = |delay: f64, every_other: f64| {
            let one =
                |i: usize| seen(disk(20.0), delay, &[if i.is_multiple_of(2) { 15.0 } else { every_other }]);
            let mut disks: Vec<PromisedPart> = (0..14).map(one).collect();
            disks.push(disk(20.0));
            measured(&NODE, &disks, &Rules::OURS)
        };
        assert!(beside(0.060, 15.0).is_ok());
        let rejection = beside(0.060, 0.1).unwrap_err();
        assert!(matches!(rejection, Rejection::ExistingAtBound { .. }), "{rejection}");
        assert!(beside(0.039, 0.1).is_ok() && beside(0.040, 0.1).is_err());
    }

    /// Ours: without it a lax newcomer is admitted by its own E.
    #[test]
    fn the_strictest_disk_decides_how_rare_a_peak_may_be() {
        let mut rates = vec![20.0; 90];
        rates.extend([45.0; 10]);
        let mut disks: Vec<PromisedPart> = (0..11).map(|_| seen(disk(40.0), 0.020, &rates)).collect();
        disks.iter_mut().for_each(|d| d.part.elasticity = 0.99);
        let mut newcomer = disk(40.0);
        newcomer.part.elasticity = 0.8;
        disks.push(newcomer);
        assert!(measured(&NODE, &disks, &Rules::OURS).is_err());
        assert!(measured(&NODE, &disks, &Rules { strictest: false, ..Rules::OURS }).is_ok());
    }

    #[test]
    fn nothing_is_admitted_beside_a_disk_at_its_bound() {
        // 280/s of 500/s become 320/s: (0.64/0.36)/(0.56/0.44) = 1.397 times as long, and 120 ms/1.397 = 85.9 ms.
        let beside = |delay: f64| {
            let mut disks = vec![seen(disk(40.0), delay, &[40.0]); 7];
            disks.push(disk(40.0));
            measured(&NODE, &disks, &Rules::OURS)
        };
        assert!(beside(0.085).is_ok());
        let rejection = beside(0.087).unwrap_err();
        assert!(matches!(rejection, Rejection::ExistingAtBound { index: 0, .. }), "{rejection}");
    }

    #[test]
    fn a_measurement_that_has_not_settled_is_not_believed() {
        let mut disks: Vec<PromisedPart> = (0..8).map(|_| seen(disk(40.0), 0.020, &[10.0])).collect();
        disks.iter_mut().for_each(|d| d.measured.as_mut().unwrap().whole_window = false);
        assert!(measured(&NODE, &disks, &Rules::OURS).is_err(), "by (10) eight do not fit");
    }

    #[test]
    fn misses_are_measured_against_what_is_tolerated() {
        assert!((miss_ratio(5, 100, 0.95) - 1.0).abs() < 1e-9);
        assert_eq!(miss_ratio(0, 100, 1.0), 0.0);
        assert_eq!(miss_ratio(1, 100, 1.0), f64::INFINITY);
        assert_eq!(oracle(10, |n| vec![if n > 4 { 1.1 } else { 0.3 }; n]), 4);
    }
}
