//! What a flow owes for service that it got at other nodes, until it is charged or forgotten.
//!
//! `max` in a start tag forgives credit, never debt: a flow that used node B alone for 50 s and then joins node A,
//! saturated by a flow of weight 10, got no service there for 449 s. So debt has a memory τ: service is kept in two
//! buckets, *recent* and *older*, which are rotated every τ, and what was in *older* is forgotten. Service is
//! therefore remembered for at least τ and at most 2τ. Not in the paper; `memory = "forever"` is the paper's rule.

use henge_core::{Cost, Duration, Instant};

/// How long debt is remembered where configuration says nothing.
pub const MEMORY_DEFAULT: Duration = Duration::from_secs(2);

/// Foreign service of one flow that is not charged yet.
///
/// ```
/// use henge_core::{Cost, Duration, Instant};
/// use henge_sched::foreign::Owed;
/// let memory = Some(Duration::from_secs(2));
/// let at = |s| Instant::ZERO + Duration::from_secs(s);
/// let mut owed = Owed::default();
/// owed.add(Cost::new(500), memory, at(1));
/// assert_eq!(owed.take(Cost::new(200), memory, at(3)), Cost::new(200)); // remembered
/// assert_eq!(owed.take(Cost::new(900), memory, at(5)), Cost::ZERO); // forgotten
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    recent: Cost,
    older: Cost,
    /// In which period of length τ `recent` began, modulo 2³².
    period: u32,
}

impl Owed {
    /// Service that became known now.
    pub fn add(&mut self, service: Cost, memory: Option<Duration>, now: Instant) {
        if service > Cost::ZERO {
            self.rotate(memory, now);
            self.recent += service;
        }
    }

    /// Takes up to `most` out, the oldest first.
    pub fn take(&mut self, most: Cost, memory: Option<Duration>, now: Instant) -> Cost {
        if self.is_zero() {
            return Cost::ZERO;
        }
        self.rotate(memory, now);
        let older = self.older.min(most);
        let recent = self.recent.min(most.saturating_sub(older));
        self.older = self.older.saturating_sub(older);
        self.recent = self.recent.saturating_sub(recent);
        older + recent
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.recent, self.older) = (Cost::ZERO, Cost::ZERO);
    }

    /// All that is owed; what has become old enough may still be counted.
    pub fn total(&self) -> Cost {
        self.recent + self.older
    }

    /// Whether nothing is owed. What has become old enough may still be counted.
    pub fn is_zero(&self) -> bool {
        self.recent == Cost::ZERO && self.older == Cost::ZERO
    }

    fn rotate(&mut self, memory: Option<Duration>, now: Instant) {
        let Some(memory) = memory else { return };
        let period = (now.as_nanos() / memory.as_nanos()) as u32;
        match period.wrapping_sub(self.period) {
            0 => {}
            1 => self.older = std::mem::take(&mut self.recent),
            _ => self.clear(),
        }
        self.period = period;
    }
}
