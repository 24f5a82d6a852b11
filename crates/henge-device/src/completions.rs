//! What a model has finished and its owner has not reaped yet.

use henge_core::{Done, Duration, Fault, Instant, RequestId};
use std::collections::VecDeque;

struct Entry {
    at: Instant,
    id: RequestId,
    outcome: Result<(), Fault>,
    busy: Duration,
}

/// Finished requests by time; with equal times, in the order they were pushed.
#[derive(Default)]
pub(crate) struct Completions {
    queue: VecDeque<Entry>,
}

impl Completions {
    /// `id` is over at `at`. Mostly the latest so far, so the search from the back ends at once.
    pub fn push(&mut self, at: Instant, id: RequestId, outcome: Result<(), Fault>, busy: Duration) {
        let place = self.queue.iter().rposition(|e| e.at <= at).map_or(0, |p| p + 1);
        self.queue.insert(place, Entry { at, id, outcome, busy });
    }
    /// The first that is over by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Done<()>> {
        if self.queue.front()?.at > now {
            return None;
        }
        let Entry { id, outcome, busy, .. } = self.queue.pop_front()?;
        Some(Done { id, outcome, busy: Some(busy), payload: () })
    }
    /// When the first is over.
    pub fn next_at(&self) -> Option<Instant> {
        self.queue.front().map(|e| e.at)
    }
}
