//! The platter's angle in continuous time.
//!
//! An angle is a `u64` whose whole range is one revolution, so that turning wraps by itself. The angle at time t
//! is t times the turn per nanosecond, modulo 2^64: exact integers at any t, with an error below half a
//! revolution in 2^63 ns. Angles to times go back through the period with 32 fractional bits.

use henge_core::{Duration, Instant};

/// A fraction of a revolution, 2^64 being all of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Angle(pub u64);

impl Angle {
    /// `num / den` of a revolution, modulo whole ones.
    pub fn fraction(num: u64, den: u64) -> Angle {
        Angle(((u128::from(num % den) << 64) / u128::from(den)) as u64)
    }
    /// From a share of a revolution.
    pub fn from_revolutions(share: f64) -> Angle {
        Angle((share.rem_euclid(1.0) * 2f64.powi(64)) as u64)
    }
    /// As a share of a revolution, for people.
    pub fn revolutions(self) -> f64 {
        self.0 as f64 / 2f64.powi(64)
    }
    /// Further on by `other`.
    pub fn plus(self, other: Angle) -> Angle {
        Angle(self.0.wrapping_add(other.0))
    }
    /// How far behind `self` lies `other`: the turn that leads from `other` to `self`.
    pub fn minus(self, other: Angle) -> Angle {
        Angle(self.0.wrapping_sub(other.0))
    }
    /// `n` times this turn, modulo whole revolutions.
    pub fn times(self, n: u64) -> Angle {
        Angle(self.0.wrapping_mul(n))
    }
}

/// A spindle of constant speed. At the driver's epoch the head is over angle zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spindle {
    /// Turn per ns, 2^64 being a revolution.
    turn_per_ns: u64,
    /// A revolution, in ns with 32 fractional bits.
    period: u64,
}

impl Spindle {
    /// Turning `rpm` times a minute; `rpm` is from 1 to 10^6.
    pub fn new(rpm: f64) -> Self {
        assert!((1.0..=1e6).contains(&rpm), "a spindle turns");
        let period_ns = 60e9 / rpm;
        Spindle {
            turn_per_ns: (2f64.powi(64) / period_ns).round() as u64,
            period: (period_ns * 2f64.powi(32)).round() as u64,
        }
    }
    /// One revolution.
    pub fn revolution(&self) -> Duration {
        Duration::from_nanos((self.period + (1 << 31)) >> 32)
    }
    /// Where the head is over the platter.
    pub fn angle_at(&self, t: Instant) -> Angle {
        Angle(self.turn_per_ns.wrapping_mul(t.as_nanos()))
    }
    /// How long a turn takes, to the nearest nanosecond.
    pub fn time_for(&self, turn: Angle) -> Duration {
        let ns = (u128::from(turn.0) * u128::from(self.period) + (1 << 95)) >> 96;
        Duration::from_nanos(ns as u64)
    }
    /// How long `sectors` of a track of `per_track` take to pass, whole revolutions included.
    pub fn transfer(&self, sectors: u64, per_track: u32) -> Duration {
        // floor(sectors * period / per_track) without a division of 128 bits.
        let per_track = u64::from(per_track);
        let (turns, sectors) = (sectors / per_track, sectors % per_track);
        let (whole, rest) = (self.period / per_track, self.period % per_track);
        let part = sectors * whole + sectors * rest / per_track;
        let ns = (u128::from(turns) * u128::from(self.period) + u128::from(part) + (1 << 31)) >> 32;
        Duration::from_nanos(ns as u64)
    }
    /// How long from `t` until `angle` comes under the head. What passed up to `slack` ago counts as now, so
    /// that rounding never costs a revolution.
    pub fn wait(&self, t: Instant, angle: Angle, slack: Duration) -> Duration {
        let wait = self.time_for(angle.minus(self.angle_at(t)));
        if wait + slack >= self.revolution() { Duration::ZERO } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_turns_7200_times_a_minute() {
        let spindle = Spindle::new(7200.0);
        let hour = Instant::ZERO + Duration::from_secs(3600);
        let off = spindle.angle_at(hour).revolutions();
        assert!(!(1e-6..1.0 - 1e-6).contains(&off), "{off} of a revolution off after an hour");
        assert_eq!(spindle.revolution(), Duration::from_nanos(8_333_333));
        assert_eq!(spindle.transfer(93, 186), Duration::from_nanos(4_166_667));
    }

    #[test]
    fn waiting_ends_at_the_angle() {
        let spindle = Spindle::new(10_033.0);
        for ns in (0..50_000_000).step_by(777_777) {
            let t = Instant::from_nanos(ns);
            let angle = Angle::fraction(17, 195);
            let there = t + spindle.wait(t, angle, Duration::ZERO);
            let miss = spindle.angle_at(there).minus(angle).revolutions();
            assert!(!(1e-6..1.0 - 1e-6).contains(&miss), "{miss}");
        }
        let just_passed = Instant::from_nanos(5);
        assert_eq!(spindle.wait(just_passed, Angle(0), Duration::from_nanos(10)), Duration::ZERO);
    }
}
