//! Ending without harm.
//!
//! A connection that is cut in the midst of a request leaves its client with half of it done: OrangeFS clients have been
//! seen to take a write for complete whose last data never arrived, and a read whose data never came. So a proxy that is
//! asked to leave listens no more (another may take its place at once), goes on for those who are there, and closes each connection at a moment when nothing of it
//! is under way: its client connects anew for what it asks next. Who has found no such moment after 5 s waits for nothing
//! more: requests that wait here are given up with the connection, once nothing of it is at the server. After 10 s
//! whoever is left is cut off.

use super::Proxy;
use crate::pair::Pair;
use henge_core::{Duration, Instant, RequestId};

/// No request is let go any more then, so that connections come to an end.
const GO_ON: Duration = Duration::from_secs(5);
/// Nobody is waited for longer.
const LEAVE_MOST: Duration = Duration::from_secs(10);
/// How often connections are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// A proxy on its way out.
pub(super) struct Leaving {
    since: Instant,
    look_at: Instant,
    /// Connections are kept for the next proxy in this process ([`handing`](super::handing)).
    pub(super) hands_over: bool,
}

impl Proxy {
    /// Begins to leave once that is asked for, and closes who is done. Whether all are gone, or the time is over.
    pub(super) fn leave(&mut self, now: Instant) -> bool {
        let hands_over = self.stop.is_asked_to_hand_over();
        if !hands_over && !self.stop.is_asked_to_leave() {
            return false;
        }
        if self.leaving.is_none() {
            tracing::info!(connections = self.pairs.len(), "leaves when what is under way is over");
            // Its successor may start at once: nothing that it needs is kept. One in this process finds who came meanwhile.
            for listener in &self.listeners {
                let _ = self.poller.remove(listener);
            }
            if !hands_over {
                self.listeners.clear();
            }
            (self.control, self.peers) = (None, None);
            self.leaving = Some(Leaving { since: now, look_at: now, hands_over });
        }
        let leaving = self.leaving.as_mut().expect("just begun");
        if leaving.look_at <= now {
            leaving.look_at = now + LOOK;
            let done = |id: &RequestId| self.pairs.get(*id).is_some_and(|pair| self.may_close(pair, now));
            let done: Vec<RequestId> = self.pairs.iter().map(|(id, _)| id).filter(done).collect();
            done.into_iter().for_each(|id| self.close(id, now));
            let all: Vec<usize> = self.pairs.iter().map(|(id, _)| id.index()).collect();
            all.into_iter().for_each(|slot| self.settle(slot, Ok(()), now));
        }
        if self.hands_over() && self.pairs.iter().all(|(_, pair)| pair.frozen) {
            return true;
        }
        let over = self.leaving.as_ref().is_some_and(|l| now.since(l.since) >= LEAVE_MOST);
        if over && !self.pairs.is_empty() {
            tracing::warn!(connections = self.pairs.len(), "cut off: they were not done");
        }
        over || self.pairs.is_empty()
    }

    /// Whether requests are still let go.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        self.leaving.as_ref().is_none_or(|l| !l.hands_over && now.since(l.since) < GO_ON)
    }

    /// Whether this is the moment to close a connection.
    pub(super) fn may_close(&self, pair: &Pair, now: Instant) -> bool {
        let waits = |id: &RequestId| self.ios.get(*id).is_none_or(|io| io.message.is_some());
        let nothing_under_way = match self.goes_on(now) {
            true => pair.pending.is_empty() && matches!(pair.client.peek(&mut [0]), Ok(None)),
            false => pair.pending.values().all(waits),
        };
        self.leaving.as_ref().is_some_and(|l| !l.hands_over)
            && nothing_under_way
            && pair.is_between_messages()
    }
}
