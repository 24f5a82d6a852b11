//! The line that a scheduler which is not work conserving stays below: where virtual time would be if all flows
//! had always had something waiting.
//!
//! ```text
//!   L(t) = ∫ C / Σφ dt       C the capacity, Σφ over the flows that are set
//! ```
//!
//! A request may go while its start tag is not above L. Σφ changes as flows come and go, so L is integrated. Flows
//! may lag behind it by a burst (1 MB); without that a lone flow loses 11 % to requests that come a little late.

use henge_core::{Cost, Instant, Rate, VTime};

/// Virtual time as the clock drives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    capacity: Rate,
    pub burst: Cost,
    at: VTime,
    since: Instant,
}

impl Line {
    pub fn new(capacity: Rate, burst: Cost) -> Self {
        Line { capacity, burst, at: VTime::ZERO, since: Instant::ZERO }
    }

    /// C·1 ns / Σφ, with 24 more fractional bits than a tag has.
    fn slope(&self, total_weight: u64) -> u128 {
        (u128::from(self.capacity.per_second) << (VTime::FRACTION_BITS + SLOPE_BITS))
            / (1_000_000_000 * u128::from(total_weight.max(1)))
    }

    /// L(now), Σφ having been the same since it was advanced.
    pub fn at(&self, total_weight: u64, now: Instant) -> VTime {
        let ns = u128::from(now.since(self.since).as_nanos());
        let gained = if total_weight == 0 { 0 } else { self.slope(total_weight).saturating_mul(ns) };
        self.at + VTime::from_raw(gained >> SLOPE_BITS)
    }

    /// Moves on to `now`; to be called before Σφ changes.
    pub fn advance(&mut self, total_weight: u64, now: Instant) -> VTime {
        *self = Line { at: self.at(total_weight, now), since: now.max(self.since), ..*self };
        self.at
    }

    /// The first moment at which the line has reached `tag`.
    pub fn reaches(&self, tag: VTime, total_weight: u64) -> Instant {
        let missing = (tag - self.at).raw() << SLOPE_BITS;
        let ns = missing.div_ceil(self.slope(total_weight).max(1));
        Instant::from_nanos(
            self.since.as_nanos().saturating_add(u64::try_from(ns).unwrap_or(u64::MAX)).max(1),
        )
    }
}

const SLOPE_BITS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::Duration;

    #[test]
    fn the_line_rises_by_capacity_over_weights() {
        let mut line = Line::new(Rate::bytes(100_000_000), Cost::ZERO);
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        assert!((line.advance(4, at(2)).as_f64() - 50e6).abs() < 1.0);
        let reached = line.reaches(VTime::from_raw(75_000_000 << VTime::FRACTION_BITS), 4);
        assert!(reached.as_nanos().abs_diff(3_000_000_000) < 100, "{reached:?}");
        assert!(line.advance(4, reached).raw() >= 75_000_000 << VTime::FRACTION_BITS);
    }
}
