//! Lines of the log that clients and strangers may bring about as often as they come: of each kind one a second.

use henge_core::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// One kind.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    /// No other line before.
    until: Option<Instant>,
    left_out: u64,
}

impl Complaint {
    /// Whether one has a line now; if so, how many since the last one had none.
    pub(crate) fn is_due(&mut self, now: Instant) -> Option<u64> {
        if self.until.is_some_and(|until| now < until) {
            self.left_out += 1;
            return None;
        }
        self.until = Some(now + EVERY);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Of a proxy's clients.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    pub(crate) turned_away: Complaint,
    pub(crate) unreachable: Complaint,
    pub(crate) refused: Complaint,
    pub(crate) unsound: Complaint,
    pub(crate) not_understood: Complaint,
}
