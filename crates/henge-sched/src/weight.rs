//! Cost divided by weight, and cost divided by rate, as multiplications.
//!
//! A tag is cost / φ with 40 fractional bits. A division of 128 bits costs about 25 ns, a multiplication by the
//! reciprocal of φ about 1 ns; the reciprocal is made when the contract is set. Its error is below 10⁻¹², which is
//! 1 byte in a terabyte.

use crate::cost::in_unit;
use henge_core::{Cost, CostUnit, Duration, Instant, Rate, Request, VTime};
use std::num::NonZeroU64;

/// A weight φ, ready to divide by.
///
/// ```
/// use henge_core::{Cost, VTime};
/// use henge_sched::Weight;
/// let third = Weight::new(3).span(Cost::new(3_000_000));
/// assert!((third.as_f64() - 1_000_000.0).abs() < 1e-5);
/// assert_eq!(Weight::new(4).span(Cost::new(8)), VTime::from_raw(2 << 40));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    phi: u32,
    /// 2⁶⁰ / φ, to the nearest.
    reciprocal: NonZeroU64,
}

const WEIGHT_BITS: u32 = 60;

impl Weight {
    /// The weight φ, at least 1.
    pub const fn new(phi: u32) -> Self {
        assert!(phi > 0, "a weight is at least 1");
        let half = phi as u64 / 2;
        match NonZeroU64::new(((1u64 << WEIGHT_BITS) + half) / phi as u64) {
            Some(reciprocal) => Weight { phi, reciprocal },
            None => panic!("2⁶⁰ is more than any weight"),
        }
    }
    /// φ.
    pub const fn get(self) -> u32 {
        self.phi
    }
    /// cost / φ.
    pub const fn span(self, cost: Cost) -> VTime {
        let product = cost.get() as u128 * self.reciprocal.get() as u128;
        VTime::from_raw(product >> (WEIGHT_BITS - VTime::FRACTION_BITS))
    }
    /// A tag that is ahead of `v` by what this weight made of a cost, when the weight is `new` from now on. Never later.
    pub(crate) fn retagged(self, new: Weight, tag: VTime, v: VTime) -> VTime {
        if tag <= v || new.phi <= self.phi {
            return tag;
        }
        v + VTime::from_raw((tag - v).raw() / u128::from(new.phi) * u128::from(self.phi))
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight::new(1)
    }
}

/// A rate, ready to divide by: how long a cost takes, as nanoseconds with 40 fractional bits (a [`VTime`] whose
/// unit is the nanosecond), so that rounding does not add up over many small requests.
///
/// ```
/// use henge_core::{Cost, Duration, Rate};
/// use henge_sched::Pace;
/// let pace = Pace::new(Rate::bytes(3_000_000));
/// assert_eq!(pace.time(Cost::new(1)), Duration::from_nanos(334)); // rounded up
/// assert!((pace.span(Cost::new(3_000_000)).as_f64() - 1e9).abs() < 1e-3);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// 10⁹ / rate · 2^shift.
    reciprocal: NonZeroU64,
    shift: u32,
}

const PART_BITS: u32 = 32;

impl Pace {
    /// The pace of `rate`, which is more than zero.
    pub fn new(rate: Rate) -> Self {
        assert!(rate.per_second > 0, "a rate of zero serves nothing");
        let numerator = 1_000_000_000u128 << 64;
        let quotient = numerator / u128::from(rate.per_second);
        // quotient = (10⁹ / rate) · 2⁶⁴ with 31 to 94 significant bits: keep the highest 64.
        let excess = (128 - quotient.leading_zeros()).saturating_sub(64);
        let reciprocal = NonZeroU64::new((quotient >> excess) as u64).expect("rates are below 10⁹ · 2⁶⁴");
        Pace { reciprocal, shift: 64 - excess }
    }
    /// cost / rate in nanoseconds with 40 fractional bits.
    pub fn span(self, cost: Cost) -> VTime {
        let product = u128::from(cost.get()) * u128::from(self.reciprocal.get());
        let raw = match self.shift.checked_sub(VTime::FRACTION_BITS) {
            Some(right) => product >> right,
            None => product.saturating_mul(1 << (VTime::FRACTION_BITS - self.shift)),
        };
        VTime::from_raw(raw)
    }
    /// A tag that is ahead of `now` by what this pace made of a cost, when the pace is `new` from now on. Never later.
    pub(crate) fn retagged(self, new: Pace, tag: VTime, now: VTime) -> VTime {
        let ahead = (tag - now).raw();
        // old rate / new rate, with 32 bits behind the point. Paces shift by 34 to 64.
        let ratio = (u128::from(new.reciprocal.get()) << (PART_BITS + self.shift - new.shift))
            / u128::from(self.reciprocal.get());
        if ratio >= 1 << PART_BITS {
            return tag;
        }
        let (high, low) = (ahead >> PART_BITS, ahead & ((1 << PART_BITS) - 1));
        tag - VTime::from_raw(ahead - (high * ratio + ((low * ratio) >> PART_BITS)))
    }
    /// cost / rate, rounded up to the nanosecond.
    pub fn time(self, cost: Cost) -> Duration {
        ceil_instant(self.span(cost)).since(Instant::ZERO)
    }
}

/// A pace that may count another unit than the gate charges: a contract's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPace {
    pace: Pace,
    unit: CostUnit,
}

impl OwnPace {
    pub fn new(rate: Rate) -> Self {
        OwnPace { pace: Pace::new(rate), unit: rate.unit }
    }
    /// How long a request takes at it, at a gate that charges in `gate`.
    pub fn span(&self, request: &Request, gate: CostUnit) -> VTime {
        self.pace.span(in_unit(request, self.unit, gate))
    }
    /// [`Pace::retagged`]; a pace that counts other things begins now.
    pub fn retagged(&self, new: &OwnPace, tag: VTime, now: VTime) -> VTime {
        if self.unit == new.unit { self.pace.retagged(new.pace, tag, now) } else { tag.min(now) }
    }
    /// How long a correction of the gate's charge takes: nothing where other things are counted.
    pub fn moved(&self, cost: Cost, gate: CostUnit) -> VTime {
        if self.unit == gate { self.pace.span(cost) } else { VTime::ZERO }
    }
}

/// Nanoseconds since the epoch, as paces count them.
pub(crate) const fn since_epoch(t: Instant) -> VTime {
    VTime::from_raw((t.as_nanos() as u128) << VTime::FRACTION_BITS)
}

/// The first instant that is not before `t`.
pub(crate) fn ceil_instant(t: VTime) -> Instant {
    let ns = t.raw().saturating_add((1 << VTime::FRACTION_BITS) - 1) >> VTime::FRACTION_BITS;
    Instant::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_weight_divides(cost in 1u64..=u64::MAX, phi in 1u32..=1_000_000) {
            let exact = (f64::from(phi)).recip() * cost as f64;
            let got = Weight::new(phi).span(Cost::new(cost)).as_f64();
            prop_assert!((got / exact - 1.0).abs() < 1e-6, "{got} {exact}");
            prop_assert!(Weight::new(phi).span(Cost::new(cost)) > VTime::ZERO);
        }

        #[test]
        fn a_pace_divides(cost in 1u64..=1 << 40, rate in 1u64..=1 << 50) {
            let rate = Rate::bytes(rate);
            let exact = cost as f64 / rate.per_second as f64 * 1e9;
            let got = Pace::new(rate).span(Cost::new(cost)).as_f64();
            prop_assert!((got - exact).abs() <= 1e-9 * exact + 1e-9, "{got} {exact}");
            let time = Pace::new(rate).time(Cost::new(cost)).as_nanos();
            let slow = rate.time_for(Cost::new(cost)).as_nanos();
            prop_assert!(time.abs_diff(slow) <= 1 + slow / 1_000_000_000, "{time} {slow}");
        }

        /// What is owed stays the same cost where more is promised, and the same time where less is.
        #[test]
        fn tags_follow_a_larger_promise(
            cost in 1u64..=1 << 40, now in 0u64..1 << 62, old in 1u64..=1 << 50, new in 1u64..=1 << 50,
        ) {
            let (from, to) = (Pace::new(Rate::bytes(old)), Pace::new(Rate::bytes(new)));
            let now = since_epoch(Instant::from_nanos(now));
            let tag = now + from.span(Cost::new(cost));
            let got = (from.retagged(to, tag, now) - now).as_f64();
            let (before, after) = (from.span(Cost::new(cost)).as_f64(), to.span(Cost::new(cost)).as_f64());
            prop_assert!((got - before.min(after)).abs() <= 1e-9 * before + 1e-9, "{got} of {before} and {after}");
            prop_assert_eq!(from.retagged(to, now, now + tag), now, "what is paid stays paid");
            let weight = |rate: u64| (rate % 1_000_000 + 1) as u32;
            let (from, to) = (Weight::new(weight(old)), Weight::new(weight(new)));
            let tag = now + from.span(Cost::new(cost));
            let got = (from.retagged(to, tag, now) - now).as_f64();
            let due = from.span(Cost::new(cost)).as_f64().min(to.span(Cost::new(cost)).as_f64());
            prop_assert!((got - due).abs() <= 1e-6 * due + 1e-6, "{got} {due}");
        }
    }
}
