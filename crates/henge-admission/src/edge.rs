//! Whether the disks that are on a node stay within their bounds when one more comes, and when those that sleep wake up.
//!
//! # The problem
//! What was measured shows delays at the load of yesterday. They say little about more load: requests that wait for each other
//! wait twice as long at 90 % as at 80 % of what a node can do. And load is not the mean of a day. Disks that ask in step fill
//! the node in some seconds and leave it alone in others; disks that sleep let the others look fast.
//!
//! # The rule
//! Of each disk with a bound D, a is the measured delay at the quantile 1 − θ·(1 − E), and at no less than 95 %. The share θ of what its elasticity
//! tolerates is used, the rest is for what one window happens not to show. Nothing is admitted unless a·g ≤ D for each. g is how much longer everybody
//! will wait:
//!
//! ```text
//!   ρ₀ = R(E_max) / IOPSmax                what was asked while a was measured
//!   u  = (Σ + new)/Σ · Σ/Σ_awake           by what is declared: with the newcomer, and all of them awake
//!   ρ₁ = R_awake(E_max)·u / IOPSmax        what may be asked: who slept asks as the others do, in the same seconds
//!   g  = (ρ₁/(1 − ρ₁)) / (ρ₀/(1 − ρ₀))     as a queue grows; ρ₁ ≥ 1: nothing is admitted
//!   g  ≥ ((Σ + new)/Σ)² · Σ/Σ_awake        for bursts within a period, which R does not show
//! ```
//!
//! R(x) is the x-quantile, over the periods of the window, of the *combined* rate of all disks in the same period, so disks that
//! peak together are counted at their common peak, and other disks are not. R_awake is the same of the disks that were not
//! asleep ([`Measured::asleep`](crate::Measured::asleep)): one that asked next to nothing of what it declared may wake at any time,
//! and was measured by nobody. Σ is what all declare together, Σ_awake those awake. Who has a bound alone declares what that takes,
//! (pending + 1)/D.
//!
//! # Worked example
//! 500 requests/s; 13 disks that burst together, 27 declared by each, delays of 90 ms of 120 at 97 %, R = 400/s. One more:
//! ρ₀ = 0.80, u = 14/13, ρ₁ = 0.86, g = 6.2/4.0 = 1.55: 140 ms, refused. The square alone said 1.16: 104 ms, admitted, and in the
//! next window all disks were late. Ten of those 13 asleep, with R = R_awake = 90/s and delays of 25 ms: ρ₀ = 0.18, u = 4.7, ρ₁ = 0.84,
//! g = 24: refused.
//!
//! Why 95 %: where one request in ten waits for its bound, the node is full for seconds on end, and one more disk makes three times as many late, whatever
//! g says. A disk that tolerates a fifth is then late more often than it tolerates.
//!
//! # Guarantee
//! None in the strict sense: a queue's growth is a model, and tomorrow's load is not known. What became of it over random
//! sequences is in benches/README.md. A node on which nobody has a bound is not looked at.
//!
//! # Price
//! O(disks · periods) when something is measured; O(log periods) a decision. With sleepers it is a quarter fewer disks than could
//! be had in hindsight: they are counted as if they all woke together.
//!
//! # Where we depart
//! The paper has no such rule: an existing disk's delay enters its own reservation alone, by (11).

use crate::convert::Fixed;
use crate::decide::{PromisedPart, Rejection, Rules};
use crate::samples::Samples;
use crate::spec::Part;
use henge_core::Duration;

/// θ: the share of what elasticity tolerates that a measurement may use up.
const THETA: f64 = 2.0 / 3.0;
/// More of its requests may not be near its bound, however lax it is.
const LAXEST: f64 = 0.95;
/// A measured combined rate may be above what a node is said to do; a queue at that rate is not endless.
const BUSIEST: f64 = 0.98;

/// What there is to know of a node's disks, whoever comes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Edge {
    /// The disk whose delay is nearest to its bound: which, its delay, its bound.
    nearest: Option<(usize, Duration, Duration)>,
    /// Σ and Σ_awake.
    declared: f64,
    awake: f64,
    /// Combined rates of all and of those awake; empty where the rules do not look at them.
    all_rates: Samples,
    awake_rates: Samples,
    iops_max: f64,
    /// E_max; 0 where the newcomer's own counts alone.
    strictest: f64,
}

impl Edge {
    pub(crate) fn of(node: &Fixed, disks: &[PromisedPart], rules: &Rules) -> Edge {
        let mut edge = Edge { iops_max: node.iops_max, ..Edge::default() };
        let (mut all, mut awake) = (Vec::new(), Vec::new());
        let mut most = 0.0;
        for (index, disk) in disks.iter().enumerate() {
            if rules.strictest {
                edge.strictest = edge.strictest.max(disk.part.elasticity);
            }
            let Some(measured) = &disk.measured else { continue };
            let asleep = rules.asleep_as_declared && measured.asleep(weight(&disk.part));
            edge.declared += weight(&disk.part);
            add(&mut all, &measured.rates);
            if !asleep {
                edge.awake += weight(&disk.part);
                add(&mut awake, &measured.rates);
            }
            let Some(bound) = disk.part.delay else { continue };
            let quantile = (1.0 - (1.0 - disk.part.elasticity) * THETA).max(LAXEST);
            let Some(delay) = measured.delays.quantile(quantile) else { continue };
            if delay / bound.as_secs_f64() > most {
                most = delay / bound.as_secs_f64();
                edge.nearest = Some((index, Duration::from_secs_f64(delay), bound));
            }
        }
        if rules.queueing {
            edge.all_rates = Samples::new(all);
            // Mostly nobody sleeps, and sorting is what this costs.
            edge.awake_rates = match edge.awake < edge.declared {
                true => Samples::new(awake),
                false => edge.all_rates.clone(),
            };
        }
        edge
    }

    /// Whether there is room for what a newcomer adds; nothing is asked about nobody.
    pub(crate) fn check(&self, newcomer: Option<&Part>) -> Result<(), Rejection> {
        let Some((index, delay, bound)) = self.nearest else { return Ok(()) };
        if delay.as_secs_f64() * self.growth(newcomer) <= bound.as_secs_f64() {
            return Ok(());
        }
        Err(Rejection::ExistingAtBound { index, delay, bound })
    }

    /// g: how many times as long as it was measured everybody will wait.
    fn growth(&self, newcomer: Option<&Part>) -> f64 {
        let more = 1.0 + newcomer.map_or(0.0, weight) / self.declared.max(1e-9);
        let waking = self.declared / self.awake.max(1e-9);
        let least = more.powi(2) * waking;
        let strictest = self.strictest.max(newcomer.map_or(0.0, |p| p.elasticity));
        let share = |rates: &Samples| rates.quantile(strictest).unwrap_or(0.0) / self.iops_max;
        let (before, after) = (share(&self.all_rates).min(BUSIEST), share(&self.awake_rates) * more * waking);
        match () {
            () if before <= 0.0 => least,
            () if after >= 1.0 => f64::INFINITY,
            () => least.max(after / (1.0 - after) / (before / (1.0 - before))),
        }
    }
}

/// Adds rates period by period.
fn add(sums: &mut Vec<f64>, rates: &[f64]) {
    sums.resize(sums.len().max(rates.len()), 0.0);
    sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
}

/// What a disk stands for beside others: its rate, or what its bound would take.
fn weight(part: &Part) -> f64 {
    match part.delay {
        Some(delay) if part.rate <= 0.0 => f64::from(part.pending + 1) / delay.as_secs_f64(),
        _ => part.rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Measured, Specification};

    const NODE: Fixed = Fixed { iops_max: 500.0, service: 0.002 };

    fn disk(rate: f64, delay: f64, rates: &[f64]) -> PromisedPart {
        let specification = Specification {
            rate: Some(rate),
            delay: Some(Duration::from_millis(120)),
            pending: 7,
            ..Specification::best_effort(1 << 30)
        };
        let measured = Measured {
            delays: Samples::new(vec![delay; 100]),
            rates: rates.to_vec(),
            whole_window: true,
            peak_rate: rates.iter().copied().fold(0.0, f64::max),
            ..Measured::default()
        };
        PromisedPart { part: specification.part(1), measured: Some(measured) }
    }

    fn growth(disks: &[PromisedPart], rules: &Rules) -> f64 {
        let newcomer = PromisedPart { measured: None, ..disks[0].clone() };
        Edge::of(&NODE, disks, rules).growth(Some(&newcomer.part))
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b
    }

    /// The first worked example: 0.8 becomes 56/65; (56/9)/4 is 14/9.
    #[test]
    fn a_queue_grows_faster_than_the_load() {
        let disks = vec![disk(27.0, 0.090, &[400.0 / 13.0, 0.0]); 13];
        assert!(near(growth(&disks, &Rules::OURS), 14.0 / 9.0));
        let square = Rules { queueing: false, ..Rules::OURS };
        assert!(near(growth(&disks, &square), (14.0 / 13.0f64).powi(2)));
        let check = |rules: &Rules| Edge::of(&NODE, &disks, rules).check(Some(&disks[0].part));
        assert!(check(&Rules::OURS).is_err() && check(&square).is_ok());
    }

    /// The same load, but no two disks in the same period: 400/13 a period, and the square holds.
    #[test]
    fn peaks_that_do_not_coincide_are_not_added_up() {
        let peak_at = |i: usize| (0..13).map(|p| if p == i { 400.0 / 13.0 } else { 0.0 }).collect::<Vec<_>>();
        let disks: Vec<PromisedPart> = (0..13).map(|i| disk(27.0, 0.090, &peak_at(i))).collect();
        let apart = Rules { asleep_as_declared: false, ..Rules::OURS };
        assert!(near(growth(&disks, &apart), (14.0 / 13.0f64).powi(2)));
    }

    /// Three of 13 are awake: 90/s of 500/s become 90 · 14/3 = 420/s, and (0.84/0.16)/(0.18/0.82) = 23.9.
    #[test]
    fn who_sleeps_will_ask_as_those_awake_do() {
        let mut disks = vec![disk(27.0, 0.025, &[30.0]); 3];
        disks.extend(vec![disk(27.0, 0.025, &[0.0]); 10]);
        assert!(near(growth(&disks, &Rules::OURS), (0.84 / 0.16) / (0.18 / 0.82)));
        disks.push(disk(27.0, 0.025, &[0.0]));
        // 90 · 15/3 = 450; one more sleeper, and all of them together would be 480, then 510.
        assert!(growth(&disks, &Rules::OURS).is_finite());
        disks.extend(vec![disk(27.0, 0.025, &[0.0]); 2]);
        assert!(growth(&disks, &Rules::OURS).is_infinite());
    }

    /// A bound alone takes 8/0.12 = 67/s. Three of 13 are awake: 102/s of 500/s become 102 · 14/3 = 476/s.
    #[test]
    fn who_has_a_bound_alone_and_asks_for_nothing_sleeps() {
        let alone = |rate: f64| {
            let mut disk = disk(27.0, 0.025, &[rate]);
            disk.part.rate = 0.0;
            disk
        };
        let mut disks = vec![alone(34.0); 3];
        disks.extend(vec![alone(0.0); 10]);
        assert!(near(growth(&disks, &Rules::OURS), (0.952 / 0.048) / (0.204 / 0.796)));
    }
}
