//! The line that a scheduler which is not work conserving stays below: where virtual time would be if all flows
//! had always had something waiting.
//!
//! ```text
//!   L(t) = ∫ C / Σφ dt       C the capacity, Σφ over the flows that are set
//! ```
//!
//! C is stated, or measured (`capacity = "measured"`): what the device served while all its slots were taken, over each
//! second of such time; the largest counts, times `nodes` where the line is for a total over `nodes` equal nodes. Until
//! there was such a second nothing is held back: a device that is never full needs no line.
//!
//! A request may go while its start tag is not above L. Σφ changes as flows come and go, so L is integrated. Flows
//! may lag behind it by a burst (1 MB); without that a lone flow loses 11 % to requests that come a little late.

use henge_core::{Cost, CostUnit, Duration, Instant, Rate, VTime};

/// Virtual time as the clock drives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// In the unit that is charged, a second; zero while it is not known.
    capacity: u64,
    measure: Option<Measure>,
    pub burst: Cost,
    at: VTime,
    since: Instant,
}

impl Line {
    pub fn new(capacity: Rate, burst: Cost) -> Self {
        Line { capacity: capacity.per_second, measure: None, burst, at: VTime::ZERO, since: Instant::ZERO }
    }

    /// A line whose capacity is found out; `nodes` alike serve what it is about.
    pub fn measured(unit: CostUnit, burst: Option<Cost>, nodes: u64) -> Self {
        let measure = Measure { unit, burst, nodes, full_since: None, busy: Duration::ZERO, served: 0 };
        Line { capacity: 0, measure: Some(measure), burst: Cost::ZERO, at: VTime::ZERO, since: Instant::ZERO }
    }

    /// Whether it holds anything back.
    pub fn is_drawn(&self) -> bool {
        self.capacity > 0
    }

    /// A request took the device's last free slot.
    pub fn filled(&mut self, now: Instant) {
        if let Some(measure) = &mut self.measure {
            measure.full_since.get_or_insert(now);
        }
    }

    /// A request that cost so much is over, and a slot is free.
    pub fn freed(&mut self, cost: Cost, total_weight: u64, v: VTime, now: Instant) {
        let Some(largest) = self.measure.as_mut().and_then(|m| m.freed(cost, now)) else { return };
        if largest <= self.capacity {
            return;
        }
        // From here on; what was before is as it was.
        self.at = if self.is_drawn() { self.at(total_weight, now) } else { v };
        (self.since, self.capacity) = (now, largest);
        let Some(Measure { unit, burst, .. }) = self.measure else { return };
        self.burst = burst.unwrap_or_else(|| default_burst(Rate { per_second: largest, unit }));
    }

    /// C·1 ns / Σφ, with 24 more fractional bits than a tag has.
    fn slope(&self, total_weight: u64) -> u128 {
        (u128::from(self.capacity) << (VTime::FRACTION_BITS + SLOPE_BITS))
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
        let missing = (tag - self.at).raw().saturating_mul(1 << SLOPE_BITS);
        let ns = missing.div_ceil(self.slope(total_weight).max(1));
        Instant::from_nanos(
            self.since.as_nanos().saturating_add(u64::try_from(ns).unwrap_or(u64::MAX)).max(1),
        )
    }
}

const SLOPE_BITS: u32 = 24;

/// How far a flow may lag behind where configuration does not say.
pub(crate) fn default_burst(capacity: Rate) -> Cost {
    match capacity.unit {
        CostUnit::Bytes => Cost::new(1_000_000),
        CostUnit::Requests | CostUnit::DiskTime => capacity.cost_in(Duration::from_millis(10)),
    }
}

/// Finds a device's capacity.
#[derive(Clone, Copy, Debug)]
struct Measure {
    unit: CostUnit,
    burst: Option<Cost>,
    nodes: u64,
    full_since: Option<Instant>,
    /// With all slots taken, since the period began; and what was served in that time.
    busy: Duration,
    served: u64,
}

impl Measure {
    const PERIOD: Duration = Duration::from_secs(1);

    /// What a period that has just ended says.
    fn freed(&mut self, cost: Cost, now: Instant) -> Option<u64> {
        let since = self.full_since.take()?;
        self.busy += now.since(since);
        self.served = self.served.saturating_add(cost.get());
        if self.busy < Self::PERIOD {
            return None;
        }
        let rate = u128::from(self.served) * 1_000_000_000 / u128::from(self.busy.as_nanos());
        (self.busy, self.served) = (Duration::ZERO, 0);
        Some(u64::try_from(rate).unwrap_or(u64::MAX).saturating_mul(self.nodes))
    }
}

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
        assert_eq!(line.reaches(VTime::from_raw(1 << 104), 4), Instant::FAR, "beyond all that it can show");
    }
}
