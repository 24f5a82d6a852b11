//! What a window showed of each disk, as admission wants it.

use crate::{FlowOutcome, Outcome};
use henge_admission::{Measured, Samples};
use henge_core::Histogram;

/// Points by which a distribution of delays is kept, as a manager keeps it.
const POINTS: u64 = 200;

/// One disk, over the measured part of a run.
pub(super) fn measured(flow: &FlowOutcome, outcome: &Outcome) -> Measured {
    let width = outcome.timing.window.as_secs_f64();
    let warm = (outcome.timing.warmup.as_secs_f64() / width).round() as usize;
    let rates: Vec<f64> = flow.windows.iter().skip(warm).map(|w| w.arrived as f64 / width).collect();
    Measured {
        delays: Samples::new(points(&flow.conformance.conforming)),
        delay_ratios: Samples::default(),
        peak_rate: rates.iter().copied().fold(0.0, f64::max),
        rates,
        whole_window: true,
    }
}

/// Share of late requests over what is tolerated.
pub(super) fn violation(flow: &FlowOutcome, elasticity: f64) -> f64 {
    henge_admission::miss_ratio(flow.conformance.missed, flow.conformance.judged, elasticity)
}

/// The same distribution by [`POINTS`] quantiles, in seconds.
fn points(delays: &Histogram) -> Vec<f64> {
    let at = |i: u64| delays.quantile(i as f64 / POINTS as f64);
    (1..=POINTS).filter_map(at).map(|d| d.as_secs_f64()).collect()
}
