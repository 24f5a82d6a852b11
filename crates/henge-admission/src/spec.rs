//! What a virtual disk is: ⟨availability, bandwidth, capacity, delay, elasticity⟩.

use henge_core::{Duration, ParamError, Params, format_size};
use std::fmt;

/// ⟨A, B, C, D, E⟩, and how many requests may be queued.
#[derive(Clone, PartialEq, Debug)]
pub struct Specification {
    /// A: copies, kept by the backend's own engine.
    pub copies: u32,
    /// B: requests a second (IOPS′); absent with `delay` absent too: best effort.
    pub rate: Option<f64>,
    /// C: bytes.
    pub capacity: u64,
    /// D: every request within this.
    pub delay: Option<Duration>,
    /// E: the probability with which B and D must hold, 0 < E ≤ 1; 1 is deterministic.
    pub elasticity: f64,
    /// Most requests the disk may have queued; part of the contract.
    pub pending: u32,
    /// f ≥ 1: absorbs uneven load over the parts of a striped disk.
    pub leeway: f64,
}

/// What is wrong with a specification, whoever offers to keep it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSpecification(pub String);

impl fmt::Display for BadSpecification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for BadSpecification {}

/// One of N equal parts of a striped disk, on one node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part {
    /// f·B/N requests a second.
    pub rate: f64,
    /// C/N bytes, rounded up.
    pub capacity: u64,
    /// ⌈f·pending/N⌉.
    pub pending: u32,
    /// D.
    pub delay: Option<Duration>,
    /// E.
    pub elasticity: f64,
    /// A.
    pub copies: u32,
}

impl Specification {
    /// Only capacity, nothing promised.
    pub fn best_effort(capacity: u64) -> Self {
        Specification {
            copies: 1,
            rate: None,
            capacity,
            delay: None,
            elasticity: 0.95,
            pending: 16,
            leeway: 1.0,
        }
    }

    /// Whether nothing is promised but capacity.
    pub fn is_best_effort(&self) -> bool {
        self.rate.is_none() && self.delay.is_none()
    }

    /// Whether it makes sense at all.
    pub fn check(&self) -> Result<(), BadSpecification> {
        let bad = |text: String| Err(BadSpecification(text));
        if self.capacity == 0 {
            return bad("a capacity of 0B holds nothing".into());
        }
        if self.capacity > 1 << 60 {
            return bad(format!("a capacity of {} is beyond any pool", format_size(self.capacity)));
        }
        if self.rate.is_some_and(|r| !(r > 0.0 && r <= 1e9)) {
            return bad("a rate is above 0/s and at most 1000000000/s".into());
        }
        if self.delay == Some(Duration::ZERO) {
            return bad("no request is answered within 0s".into());
        }
        if !(self.elasticity > 0.0 && self.elasticity <= 1.0) {
            return bad(format!(
                "an elasticity of {} is no probability; it is above 0 and at most 1",
                self.elasticity
            ));
        }
        if self.pending == 0 || self.pending > 1 << 20 {
            return bad("between 1 and 1048576 requests may be pending".into());
        }
        if !(self.leeway >= 1.0 && self.leeway <= 100.0) {
            return bad(format!("a leeway of {} does not make sense; it is from 1 to 100", self.leeway));
        }
        if self.copies == 0 || self.copies > 16 {
            return bad("between 1 and 16 copies are kept".into());
        }
        Ok(())
    }

    /// One of its N parts when it is striped over N nodes. Leeway multiplies the rate and the queue only.
    pub fn part(&self, n: u32) -> Part {
        assert!(n > 0, "a disk has at least one part");
        let leeway = if n == 1 { 1.0 } else { self.leeway };
        Part {
            rate: self.rate.unwrap_or(0.0) * leeway / f64::from(n),
            capacity: self.capacity.div_ceil(u64::from(n)),
            pending: ((f64::from(self.pending) * leeway / f64::from(n)).ceil() as u32).max(1),
            delay: self.delay,
            elasticity: self.elasticity,
            copies: self.copies,
        }
    }

    /// Reads `rate`, `capacity`, `latency`, `percentile`, `pending`, `copies`, `leeway`.
    pub fn from_params(p: &mut Params) -> Result<Self, ParamError> {
        let capacity = p.size("capacity")?;
        let capacity = p.required("capacity", capacity)?;
        let rate = match p.rate("rate")? {
            None => None,
            Some(r) if r.unit == henge_core::CostUnit::Requests => Some(r.per_second as f64 / 1e6),
            Some(r) => {
                return Err(p.error(
                    "rate",
                    format!("admission counts requests; {r} is not, write it like \"675/s\""),
                ));
            }
        };
        let delay = p.duration("latency")?;
        let percentile = p.number("percentile")?;
        let elasticity = percentile.unwrap_or(95.0) / 100.0;
        let pending = p.integer("pending", 1, 1 << 20)?.unwrap_or(16) as u32;
        let copies = p.integer("copies", 1, 16)?.unwrap_or(1) as u32;
        let leeway = p.number("leeway")?.unwrap_or(1.0);
        let specification = Specification { copies, rate, capacity, delay, elasticity, pending, leeway };
        specification.check().map_err(|e| p.error_here(e.0))?;
        Ok(specification)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_at_least_the_whole() {
        let disk =
            Specification { rate: Some(675.0), pending: 7, leeway: 1.5, ..Specification::best_effort(100) };
        let part = disk.part(3);
        assert!((part.rate - 337.5).abs() < 1e-9);
        assert_eq!((part.capacity, part.pending), (34, 4));
        assert!((disk.part(1).rate - 675.0).abs() < 1e-9, "leeway is for uneven load over parts");
    }

    #[test]
    fn absurd_quantities_are_named() {
        let good = Specification::best_effort(1 << 30);
        for bad in [
            Specification { capacity: 0, ..good.clone() },
            Specification { rate: Some(-1.0), ..good.clone() },
            Specification { rate: Some(f64::NAN), ..good.clone() },
            Specification { elasticity: 1.5, ..good.clone() },
            Specification { leeway: 0.5, ..good.clone() },
            Specification { pending: 0, ..good.clone() },
            Specification { copies: 0, ..good.clone() },
            Specification { delay: Some(Duration::ZERO), ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert_eq!(good.check(), Ok(()));
    }
}
