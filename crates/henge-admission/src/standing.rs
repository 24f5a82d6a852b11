//! A node's state of promises, computed ahead, so that a newcomer is decided without looking at every disk again.
//!
//! # The problem
//! Measured admission looks at every period of every disk. With ten disks and a day of minutes on each of 1,000 nodes that is
//! 14 million numbers for one newcomer.
//!
//! # The rule
//! Of what [`deterministic`](crate::deterministic) and [`measured`](crate::measured) compute, only the newcomer's own
//! reservation and the quantile E depend on the newcomer. The rest is computed when a disk comes, goes or is measured:
//! Σ by (10), Σ of the latency-bound disks, the sorted combined rate of the others, the disks' delays.
//!
//! # Guarantee
//! The same answers as those two functions; a property test holds them together.
//!
//! # Price
//! O(disks) a decision for the newcomer's delay, no allocation; O(disks · periods) when something changes.

use crate::convert::{Fixed, TooTight};
use crate::decide::{
    PromisedPart, Rejection, Reservation, Rules, combined_periods, reserve_measured, reserve_worst,
};
use crate::edge::Edge;
use crate::samples::Samples;
use crate::spec::Part;
use henge_core::Duration;

/// One node, with what it promised.
#[derive(Clone, Debug)]
pub struct Standing {
    fixed: Fixed,
    rules: Option<Rules>,
    disks: Vec<PromisedPart>,
    /// Σ by (10); `Err` where a disk that is here cannot be kept by it.
    worst: Result<f64, TooTight>,
    measured: Result<MeasuredPart, Rejection>,
}

#[derive(Clone, Debug)]
struct MeasuredPart {
    /// Each disk's reservation.
    reservations: Vec<Reservation>,
    latency_bound: f64,
    /// Of throughput-bound disks that are not believed.
    declared: f64,
    combined: Samples,
    strictest: f64,
    edge: Edge,
}

/// How a newcomer would be admitted.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// What it reserves.
    pub reservation: Reservation,
    /// Requests a second that remain.
    pub headroom: f64,
    /// Whether worst-case arithmetic sufficed.
    pub by_worst_case: bool,
}

impl Standing {
    /// Of the disks that are there. Without rules only worst-case arithmetic decides.
    pub fn new(fixed: Fixed, disks: Vec<PromisedPart>, rules: Option<Rules>) -> Self {
        let worst = disks.iter().map(|d| reserve_worst(&fixed, &d.part).map(|r| r.rate())).sum();
        let measured = match &rules {
            None => Err(Rejection::Bandwidth { needed: 0.0, available: 0.0, instead: 0.0 }),
            Some(rules) => measure(&fixed, &disks, rules),
        };
        Standing { fixed, rules, disks, worst, measured }
    }

    /// What the node can do.
    pub fn fixed(&self) -> &Fixed {
        &self.fixed
    }

    /// What every disk would reserve by measurement, in order; none where that does not decide.
    pub fn reservations(&self) -> Option<&[Reservation]> {
        self.measured.as_ref().ok().map(|m| m.reservations.as_slice())
    }

    /// Requests a second that nobody reserved, by whichever rule leaves more.
    pub fn free(&self) -> f64 {
        let worst = self.worst.as_ref().map_or(0.0, |sum| self.fixed.iops_max - sum);
        let measured = match &self.measured {
            Ok(m) => self.fixed.iops_max - m.needed(m.strictest),
            Err(_) => 0.0,
        };
        worst.max(measured).max(0.0)
    }

    /// Whether a newcomer is admitted.
    pub fn admit(&self, part: &Part) -> Result<Entry, Rejection> {
        let own = reserve_worst(&self.fixed, part).map_err(Rejection::TooTight);
        let worst = match (&self.worst, &own) {
            (Ok(sum), Ok(own)) => self.enough(*own, *sum, true),
            (Err(tight), _) => Err(Rejection::TooTight(*tight)),
            (_, Err(rejection)) => Err(rejection.clone()),
        };
        let Some(rules) = &self.rules else { return worst };
        if rules.worst_case_bounds && worst.is_ok() {
            return worst;
        }
        let here = match &self.measured {
            Ok(here) => here,
            Err(rejection) => return Err(rejection.clone()),
        };
        if rules.existing_first {
            here.edge.check(Some(part))?;
        }
        let newcomer = PromisedPart { part: *part, measured: None };
        let own =
            reserve_measured(&self.fixed, &newcomer, &self.disks, rules).map_err(Rejection::TooTight)?;
        let elasticity = match rules.strictest {
            true => here.strictest.max(part.elasticity),
            false => part.elasticity,
        };
        self.enough(own, here.needed(elasticity), false)
    }

    fn enough(&self, own: Reservation, others: f64, by_worst_case: bool) -> Result<Entry, Rejection> {
        let (needed, available) = (others + own.rate(), self.fixed.iops_max);
        if needed <= available * (1.0 + 1e-9) {
            return Ok(Entry { reservation: own, headroom: (available - needed).max(0.0), by_worst_case });
        }
        Err(Rejection::Bandwidth { needed, available, instead: (available - others).max(0.0) })
    }

    /// The smallest delay bound that would be admitted with everything else as `part` asks; `None` where none would.
    pub fn smallest_delay(&self, part: &Part) -> Option<Duration> {
        let asks = |ns: u64| Part { delay: Some(Duration::from_nanos(ns)), ..*part };
        smallest(1_000, 3_600_000_000_000, |ns| self.admit(&asks(ns)).is_ok()).map(Duration::from_nanos)
    }

    /// The largest rate, in thousandths of a request a second, with everything else as `part` asks.
    pub fn largest_rate_milli(&self, part: &Part) -> Option<u64> {
        let most = (self.fixed.iops_max * 1000.0) as u64 + 1;
        let refused = |less: u64| Part { rate: (most - less) as f64 / 1000.0, ..*part };
        smallest(0, most - 1, |less| self.admit(&refused(less)).is_ok()).map(|less| most - less)
    }
}

/// The smallest number in a range for which `fits`, given that all larger ones fit too.
fn smallest(least: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    if !fits(most) {
        return None;
    }
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

impl MeasuredPart {
    fn needed(&self, elasticity: f64) -> f64 {
        self.latency_bound + self.declared + self.combined.quantile(elasticity).unwrap_or(0.0)
    }
}

fn measure(fixed: &Fixed, disks: &[PromisedPart], rules: &Rules) -> Result<MeasuredPart, Rejection> {
    let edge = Edge::of(fixed, disks, rules);
    if rules.existing_first {
        edge.check(None)?;
    }
    let reservations = disks
        .iter()
        .map(|disk| reserve_measured(fixed, disk, disks, rules))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Rejection::TooTight)?;
    let (declared, periods) = combined_periods(disks, &reservations, rules);
    Ok(MeasuredPart {
        latency_bound: reservations.iter().filter(|r| r.is_latency_bound()).map(Reservation::rate).sum(),
        strictest: disks.iter().map(|d| d.part.elasticity).fold(0.0, f64::max),
        combined: Samples::new(periods),
        declared,
        reservations,
        edge,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Measured, deterministic, measured};
    use proptest::prelude::*;

    fn disk() -> impl Strategy<Value = PromisedPart> {
        let part = (0.0..80.0f64, proptest::option::of(20u64..400), 1u32..12, 0.5..1.0f64).prop_map(
            |(rate, delay, pending, elasticity)| Part {
                rate,
                capacity: 1,
                pending,
                delay: delay.map(Duration::from_millis),
                elasticity,
                copies: 1,
            },
        );
        let seen =
            (proptest::collection::vec(0.001..0.2f64, 0..30), proptest::collection::vec(0.0..60.0f64, 0..8));
        let seen =
            (seen, any::<bool>(), 0.0..100.0f64).prop_map(|((delays, rates), whole_window, peak_rate)| {
                Measured {
                    delay_ratios: Samples::new(delays.iter().map(|d| d * 5.0).collect()),
                    delays: Samples::new(delays),
                    rates,
                    whole_window,
                    peak_rate,
                }
            });
        (part, proptest::option::of(seen)).prop_map(|(part, measured)| PromisedPart { part, measured })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn computed_ahead_or_not_the_answer_is_the_same(disks in proptest::collection::vec(disk(), 0..8), new in disk()) {
            let fixed = Fixed { iops_max: 400.0, service: 0.010 };
            let all: Vec<PromisedPart> = disks.iter().cloned().chain([PromisedPart { measured: None, ..new.clone() }]).collect();
            for rules in [Rules::OURS, Rules::PAPER] {
                let standing = Standing::new(fixed, disks.clone(), Some(rules));
                match (standing.admit(&new.part), measured(&fixed, &all, &rules)) {
                    (Ok(entry), Ok(admission)) => {
                        prop_assert!((entry.headroom - admission.headroom).abs() < 1e-6);
                        prop_assert_eq!(Some(&entry.reservation), admission.reservations.last());
                    }
                    (Err(_), Err(_)) => {}
                    (ahead, at_once) => prop_assert!(false, "{:?} and {:?}", ahead, at_once),
                }
            }
            let standing = Standing::new(fixed, disks, None);
            prop_assert_eq!(standing.admit(&new.part).is_ok(), deterministic(&fixed, &all).is_ok());
        }

        #[test]
        fn what_is_said_to_fit_fits_and_nothing_better_does(disks in proptest::collection::vec(disk(), 0..8), new in disk()) {
            let fixed = Fixed { iops_max: 400.0, service: 0.010 };
            let standing = Standing::new(fixed, disks, None);
            let within = |delay| standing.admit(&Part { delay: Some(delay), ..new.part }).is_ok();
            let at = |milli: u64| standing.admit(&Part { rate: milli as f64 / 1000.0, ..new.part }).is_ok();
            if let Some(delay) = standing.smallest_delay(&new.part) {
                prop_assert!(within(delay));
                let tighter = Duration::from_nanos(delay.as_nanos() - 1);
                prop_assert!(delay.as_nanos() == 1_000 || !within(tighter));
            }
            if let Some(milli) = standing.largest_rate_milli(&new.part) {
                prop_assert!(at(milli));
                prop_assert!(!at(milli + 1));
            }
        }
    }
}
