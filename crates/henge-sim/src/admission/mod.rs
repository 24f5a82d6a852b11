//! A sequence of virtual disks, admitted one after another by each rule, beside an oracle.
//!
//! ```toml
//! duration = "100s"                       # of a window
//! [node]
//! device = { raid0 = 4, stripe = "64KiB", disk = "dtla-307075" }
//! scheduler = { cvc = { per = "spindle" } }
//! [admission]
//! disks = 30                              # so many ask, in turns of the flows below
//! outstanding = 16                        # of each disk, where saturation is measured: as many as may be pending where nothing is said
//! [[flow]]
//! name = "financial"
//! capacity = "5GB"
//! contract = { rate = "20/s", latency = "120ms", percentile = 95, pending = 7 }
//! workload = { preset = "financial", rate = "12.7/s" }
//! later = { preset = "financial", rate = "20/s" }      # what it asks after it was measured, where that differs
//! ```
//!
//! **Method.** The node's IOPSmax is measured first: eight of the disks, each in a closed loop. Then for n = 1, 2, …
//! the first n disks run for a window with their own loads, and what was seen of them decides about disk n + 1. A rule admits until it
//! refuses for the first time. What it admitted is judged in a second window, from another seed, which is the same for all rules and
//! for the oracle: the largest n up to which no disk's guarantee was missed.
//!
//! The gates work by what was declared, whatever a rule reserves: windows are the same for all rules, and the differences are the
//! rules' own. The paper's ratio of delays is taken at the reservation that its rule made at the last admission.
//!
//! **Price.** Three windows for each n. With 100 s, 25 disks of 13 requests/s: some 1.3 million simulated requests a sequence.

mod measure;
mod sequence;

pub use sequence::{Fault, Sequence};

/// The rules that are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// Worst-case arithmetic.
    Deterministic,
    /// The paper's measurement.
    Paper,
    /// Ours: what a manager does.
    Measured,
    /// Ours: the last window again, with the newcomer.
    Replay,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 4] = [Rule::Deterministic, Rule::Paper, Rule::Measured, Rule::Replay];

    /// As rules of a scenario call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::Deterministic => "deterministic",
            Rule::Paper => "paper",
            Rule::Measured => "measured",
            Rule::Replay => "replay",
        }
    }
}

/// How far one rule went.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verdict {
    /// Which.
    pub rule: Rule,
    /// Disks that it admitted.
    pub admitted: usize,
    /// The largest share of late requests over what its disk tolerates, with this number of disks: above 1 a guarantee was missed.
    pub violation: f64,
}

/// What the paper's rule saw with one number of disks in place.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Step {
    /// Q(E) for a newcomer like the first disk: delay over worst case.
    pub ratio: f64,
    /// What all would reserve by (11), the combined rate of the throughput-bound included, of IOPSmax.
    pub reserved: f64,
    /// By (10).
    pub reserved_worst: f64,
}

/// A sequence, decided.
#[derive(Clone, Debug, Default)]
pub struct Admitted {
    /// Requests a second at saturation.
    pub iops_max: f64,
    /// In the order of [`Rule::ALL`].
    pub verdicts: Vec<Verdict>,
    /// As many as can be, in hindsight.
    pub oracle: usize,
    /// Entry n is with n disks in place.
    pub steps: Vec<Step>,
}

impl Admitted {
    /// What `admission.WHAT` means in a rule of a scenario; `None` where it is none of this.
    pub fn quantity(&self, what: &str, arguments: &[f64]) -> Option<f64> {
        let of = |rule: &str| self.verdicts.iter().find(|v| v.rule.as_str() == rule);
        let none = Step { ratio: f64::NAN, reserved: f64::NAN, reserved_worst: f64::NAN };
        let step = |n: f64| self.steps.get(n as usize).copied().unwrap_or(none);
        Some(match (what, arguments) {
            ("oracle", []) => self.oracle as f64,
            ("iops_max", []) => self.iops_max,
            ("ratio", [n]) => step(*n).ratio,
            ("reserved", [n]) => step(*n).reserved,
            ("reserved_worst", [n]) => step(*n).reserved_worst,
            (rule, []) => match rule.strip_suffix("_violation") {
                Some(rule) => of(rule)?.violation,
                None => of(rule)?.admitted as f64,
            },
            _ => return None,
        })
    }
}
