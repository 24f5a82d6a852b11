//! When a lost server is dialled again: at once, and after pauses that double while connections do not last.
//!
//! A server may take connections and lose each of them by the first command: it dies of that command, or answers what nobody asked. Dialled at once
//! each time, it would be dialled thousands of times a second.

use henge_core::{Duration, Instant};

const BACKOFF_LEAST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(5);
/// After the loss of a connection that was there for so long the server is dialled at once.
const LASTS: Duration = Duration::from_secs(1);

/// When a server is dialled again, and why the last connection is not there.
pub(crate) struct Redial {
    under_way: bool,
    at: Instant,
    backoff: Duration,
    /// When the last connection came, if one was dialled again.
    came: Option<Instant>,
    trouble: String,
}

impl Redial {
    pub(crate) fn new() -> Redial {
        let (at, trouble) = (Instant::ZERO, String::new());
        Redial { under_way: false, at, backoff: BACKOFF_LEAST, came: None, trouble }
    }

    /// When to dial, unless somebody does.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.under_way).then_some(self.at)
    }

    pub(crate) fn begin(&mut self) {
        self.under_way = true;
    }

    pub(crate) fn end(&mut self) {
        self.under_way = false;
    }

    /// A connection was lost: the next one is dialled at once, unless the last one that came did not last.
    pub(crate) fn lost(&mut self, why: &str, now: Instant) {
        if self.came.is_none_or(|came| came + LASTS <= now) {
            (self.at, self.backoff) = (now, BACKOFF_LEAST);
        } else {
            self.pause(now);
        }
        why.clone_into(&mut self.trouble);
    }

    /// A connection has come: a further one is dialled at once.
    pub(crate) fn came(&mut self, now: Instant) {
        (self.at, self.came) = (now, Some(now));
        self.trouble.clear();
    }

    /// No connection has come. True where it is for another reason than before.
    pub(crate) fn failed(&mut self, why: &str, now: Instant) -> bool {
        self.pause(now);
        let is_news = self.trouble != why;
        if is_news {
            why.clone_into(&mut self.trouble);
        }
        is_news
    }

    fn pause(&mut self, now: Instant) {
        self.at = now + self.backoff;
        self.backoff = (self.backoff + self.backoff).min(BACKOFF_MOST);
    }
}
