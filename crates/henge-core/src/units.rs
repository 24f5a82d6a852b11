//! Integer newtypes that do not mix: a point in time is not a span of time, a cost is not a tag.
//!
//! All of them are plain integers underneath, so that runs repeat exactly on every machine.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// A point in time: nanoseconds since the driver's epoch (the start of a simulation or of a node).
///
/// ```
/// use henge_core::{Duration, Instant};
/// let t = Instant::ZERO + Duration::from_millis(5);
/// assert_eq!(t.since(Instant::ZERO), Duration::from_micros(5_000));
/// assert_eq!(Instant::ZERO.since(t), Duration::ZERO); // never negative
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The driver's epoch.
    pub const ZERO: Instant = Instant(0);
    /// Later than any instant that a run reaches (584 years).
    pub const FAR: Instant = Instant(u64::MAX);

    /// The instant `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Instant(ns)
    }
    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Seconds since the epoch, for people and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Time passed since `earlier`; zero if `earlier` is in the future.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// Longer than any run.
    pub const MAX: Duration = Duration(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Duration(ns)
    }
    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Duration(us * 1_000)
    }
    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Duration(ms * 1_000_000)
    }
    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Duration(s * 1_000_000_000)
    }
    /// Seconds as a fraction, rounded to the nanosecond; negative and not-a-number become zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Duration((s * 1e9).round() as u64)
    }
    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Seconds, for people and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Milliseconds, for people and plots.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// This span times `num / den`, rounded down, without overflow on the way.
    pub fn mul_ratio(self, num: u64, den: u64) -> Duration {
        // A division of 64 bits takes a fraction of the time of one of 128.
        if let Some(product) = self.0.checked_mul(num) {
            return Duration(product / den);
        }
        Duration(u64::try_from(u128::from(self.0) * u128::from(num) / u128::from(den)).unwrap_or(u64::MAX))
    }
    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(d.0))
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
/// Saturates at the epoch.
impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(d.0))
    }
}
impl Add for Duration {
    type Output = Duration;
    fn add(self, d: Duration) -> Duration {
        Duration(self.0.saturating_add(d.0))
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, n: u64) -> Duration {
        Duration(self.0.saturating_mul(n))
    }
}
impl Sum for Duration {
    fn sum<I: Iterator<Item = Duration>>(iter: I) -> Duration {
        iter.fold(Duration::ZERO, Add::add)
    }
}
impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
/// As configuration writes it: `20ms`, `1.5s`, `850ns`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        match ns {
            0 => write!(f, "0s"),
            1..1_000 => write!(f, "{ns}ns"),
            1_000..1_000_000 => write!(f, "{}us", ns as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{}ms", ns as f64 / 1e6),
            _ => write!(f, "{}s", ns as f64 / 1e9),
        }
    }
}

/// What a request is charged, or what a flow has received, in the unit of the gate's
/// [`CostModel`](crate::CostModel): bytes, millionths of a request, or nanoseconds of disk time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Cost(u64);

impl Cost {
    /// Nothing.
    pub const ZERO: Cost = Cost(0);
    /// `units` of the cost model's unit.
    pub const fn new(units: u64) -> Self {
        Cost(units)
    }
    /// In the cost model's unit.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Cost) -> Cost {
        Cost(self.0.saturating_sub(other.0))
    }
}
impl Add for Cost {
    type Output = Cost;
    fn add(self, c: Cost) -> Cost {
        Cost(self.0.saturating_add(c.0))
    }
}
impl AddAssign for Cost {
    fn add_assign(&mut self, c: Cost) {
        *self = *self + c;
    }
}
impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(iter: I) -> Cost {
        iter.fold(Cost::ZERO, Add::add)
    }
}

/// Virtual time and tags: cost divided by weight, with 40 fractional bits in a `u128`.
///
/// At 100 GB/s and weight 1 it lasts 5·10⁷ years, so nothing ever renormalizes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VTime(u128);

impl VTime {
    /// Where virtual time starts.
    pub const ZERO: VTime = VTime(0);
    /// Bits behind the binary point.
    pub const FRACTION_BITS: u32 = 40;

    /// From raw fixed point with [`FRACTION_BITS`](Self::FRACTION_BITS) fractional bits.
    pub const fn from_raw(raw: u128) -> Self {
        VTime(raw)
    }
    /// Raw fixed point.
    pub const fn raw(self) -> u128 {
        self.0
    }
    /// Whole and fractional part as a float, for people and plots.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / (1u128 << Self::FRACTION_BITS) as f64
    }
}
/// Saturates at the end.
impl Add for VTime {
    type Output = VTime;
    fn add(self, v: VTime) -> VTime {
        VTime(self.0.saturating_add(v.0))
    }
}
/// Saturates at zero.
impl Sub for VTime {
    type Output = VTime;
    fn sub(self, v: VTime) -> VTime {
        VTime(self.0.saturating_sub(v.0))
    }
}
impl SubAssign for VTime {
    fn sub_assign(&mut self, v: VTime) {
        *self = *self - v;
    }
}
impl fmt::Debug for VTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{:.6}", self.as_f64())
    }
}

/// Whose requests are scheduled together: a virtual disk, or an application. Small and dense:
/// drivers number flows from zero, so that tables are indexed by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FlowId(pub u32);

impl FlowId {
    /// As an index into a table of flows.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One storage server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NodeId(pub u32);

/// Names one pending request: a slot that is reused when the request is over, and a generation
/// that tells the slot's users apart. Slots are dense, so tables indexed by slot need no hashing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct RequestId {
    /// Which slot; at most as many as requests were ever pending at once.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

impl RequestId {
    /// The slot as an index into a table.
    pub const fn index(self) -> usize {
        self.slot as usize
    }
}
