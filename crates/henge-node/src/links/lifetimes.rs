//! How a peer's links follow each other: when one is dialled anew, and which parts the end of one leaves in doubt.

use super::in_flight::Return;
use henge_core::{Duration, Instant};

/// A lost link is dialled again after so long …
pub(super) const RETRY_LEAST: Duration = Duration::from_millis(100);
/// … and after twice as long each time, up to this: what is healed is back soon.
const RETRY_MOST: Duration = Duration::from_secs(1);
/// A change that was with a peer when its link was lost fails when there is another link (the peer ends the old one first), nobody
/// listens there, or this time is over: both ends give up a link that has been silent for 4 s.
const IN_DOUBT: Duration = Duration::from_secs(5);
/// Whether a link's certificates are dated is asked again after so long, and after twice as long each time while they stay so …
const RENEW_LEAST: Duration = Duration::from_secs(3);
/// … up to this.
const RENEW_MOST: Duration = Duration::from_secs(60);

/// When a peer without a link is dialled again.
#[derive(Debug)]
pub(crate) struct Redial {
    pub at: Instant,
    patience: Duration,
}

impl Redial {
    pub(super) fn new() -> Redial {
        Redial { at: Instant::ZERO, patience: RETRY_LEAST }
    }

    /// A link was not made or did not last: when it is dialled again.
    pub(super) fn failed(&mut self, now: Instant) -> Instant {
        self.at = now + self.patience;
        self.patience = (self.patience * 2).min(RETRY_MOST);
        self.at
    }

    /// A link is made: the next one that is lost is dialled again soon.
    pub(super) fn linked(&mut self) {
        self.patience = RETRY_LEAST;
    }
}

/// When a peer's link may be exchanged for one by newer certificates.
#[derive(Debug)]
pub(crate) struct Renewal {
    pub at: Instant,
    pause: Duration,
}

impl Renewal {
    pub(super) fn new() -> Renewal {
        Renewal { at: Instant::ZERO, pause: RENEW_LEAST }
    }

    /// The link is dialled anew by newer certificates. The other end may have none yet: then it is asked again later.
    pub(crate) fn begun(&mut self, now: Instant) {
        let again = now < self.at + self.pause;
        self.pause = if again { (self.pause * 2).min(RENEW_MOST) } else { RENEW_LEAST };
        self.at = now + self.pause;
    }
}

/// Of which life a peer was when it was linked last, and whether that life ended with all flushed.
#[derive(Debug, Default)]
pub(crate) struct LastLife {
    epoch: Option<u64>,
    settled: bool,
}

impl LastLife {
    /// It has ended its life in order: whatever it answered is durable.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    /// It is linked in this life. Whether it has begun again, and may have forgotten what it answered.
    pub(super) fn lives(&mut self, epoch: u64) -> bool {
        let settled = std::mem::take(&mut self.settled);
        self.epoch.replace(epoch).is_some_and(|before| before != epoch && !settled)
    }

    /// Whether it was linked in this life before.
    pub(super) fn lived(&self, epoch: u64) -> bool {
        self.epoch == Some(epoch) && !self.settled
    }
}

/// Parts that a peer had when its link was lost, and may still do; and until when.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    parts: Vec<Return>,
    until: Option<Instant>,
}

impl Doubt {
    /// A part more.
    pub(super) fn add(&mut self, part: Return) {
        self.parts.push(part);
    }

    /// Its link is lost: until when there is doubt, if there is any.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Instant> {
        self.until = (!self.parts.is_empty()).then_some(now + IN_DOUBT);
        self.until
    }

    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Nothing that came by a former link can be done there any more.
    pub(super) fn end(&mut self) -> Vec<Return> {
        self.until = None;
        std::mem::take(&mut self.parts)
    }

    /// The same of one disk's parts.
    pub(super) fn end_of(&mut self, disk: usize) -> Vec<Return> {
        let (over, doubted) = std::mem::take(&mut self.parts).into_iter().partition(|back| back.disk == disk);
        self.parts = doubted;
        over
    }
}
