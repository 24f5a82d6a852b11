//! When the loop is to look at links.

use henge_core::Instant;

/// The earliest of the times at which something is due, if anything is.
#[derive(Default)]
pub(crate) struct Alarm(Option<Instant>);

impl Alarm {
    /// Something is due at once.
    pub(crate) fn now(&mut self) {
        self.0 = Some(Instant::ZERO);
    }

    /// Something is due then.
    pub(crate) fn by(&mut self, at: Instant) {
        self.0 = Some(self.0.map_or(at, |t| t.min(at)));
    }

    /// When [`tick`](super::Links::tick) is due.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.0
    }

    /// Nothing is due.
    pub(super) fn off(&mut self) {
        self.0 = None;
    }
}
