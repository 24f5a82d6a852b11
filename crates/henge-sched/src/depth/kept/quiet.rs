//! Time in which only those for whose sake others are held back are at the device: what these have alone is seen there ([`Shares`](super::shares::Shares)).

use henge_core::Instant;

/// Time without others' requests at the device, at the ends of turns.
#[derive(Default)]
pub(super) struct Quiet {
    /// Requests in flight of flows that may be held back, or that were removed.
    pub loud: u32,
    /// Of these, requests of flows that were removed.
    pub gone: u32,
    /// In this window.
    pub ns: u64,
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Quiet {
    pub fn restart(&mut self) {
        self.ns = 0;
    }

    /// A request of a flow that was removed is over.
    pub fn falls_silent(&mut self) {
        let gone = self.gone.min(1);
        (self.loud, self.gone) = (self.loud - gone, self.gone - gone);
    }

    /// A request is over; whether all is quiet since the one before it.
    pub fn goes_on(&mut self, turn: u64, now: Instant) -> bool {
        let late = now.as_nanos() % turn >= turn / 4 * 3;
        let another_turn = self.last.is_some_and(|last| now.since(last).as_nanos() >= turn / 4);
        if self.loud > 0 || !late || another_turn {
            (self.since, self.last) = (None, None);
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let last = self.last.replace(now);
        // What falls between others' requests that come all the time is not what a flow has alone: only its quickest are seen there.
        if now.since(since).as_nanos() < turn / 32 {
            return false;
        }
        self.ns += last.map_or(0, |last| now.since(last).as_nanos());
        last.is_some()
    }

    /// There was enough of it in a window to learn from.
    pub fn suffices(&self, time: u64) -> bool {
        self.ns > 0 && self.ns >= time / 64
    }
}
