//! When a lost server is dialled again: at once, and then after pauses that double.

use henge_core::{Duration, Instant};

const BACKOFF_LEAST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(5);

/// When a server is dialled again, and why the last connection is not there.
pub(crate) struct Redial {
    under_way: bool,
    at: Instant,
    backoff: Duration,
    trouble: String,
}

impl Redial {
    pub(crate) fn new() -> Redial {
        Redial { under_way: false, at: Instant::ZERO, backoff: BACKOFF_LEAST, trouble: String::new() }
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

    /// A connection was lost, or has come: the next one is dialled at once.
    pub(crate) fn at_once(&mut self, trouble: &str, now: Instant) {
        (self.at, self.backoff) = (now, BACKOFF_LEAST);
        trouble.clone_into(&mut self.trouble);
    }

    /// No connection has come. True where it is for another reason than before.
    pub(crate) fn failed(&mut self, why: &str, now: Instant) -> bool {
        self.at = now + self.backoff;
        self.backoff = (self.backoff + self.backoff).min(BACKOFF_MOST);
        let is_news = self.trouble != why;
        if is_news {
            why.clone_into(&mut self.trouble);
        }
        is_news
    }
}
