//! Ending without harm.
//!
//! A connection that is cut in the midst of a request leaves its client with half of it done: OrangeFS clients have been
//! seen to take a write for complete whose last data never arrived, and a read whose data never came. So a proxy that is
//! asked to leave listens no more (another may take its place at once), goes on for those who are there, and closes each connection at a moment when nothing of it
//! is under way: its client connects anew for what it asks next. Who has found no such moment after 5 s waits for nothing
//! more: requests that wait here are given up with the connection, once nothing of it is at the server. After 10 s
//! whoever is left is cut off.

use super::requests::Requests;
use super::{LOOK_AROUND, Proxy, Stop};
use crate::pair::Pair;
use henge_core::{Duration, Instant, RequestId};

/// No request is let go any more then, so that connections come to an end.
const GO_ON: Duration = Duration::from_secs(5);
/// Nobody is waited for longer.
const LEAVE_MOST: Duration = Duration::from_secs(10);
/// How often connections are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Whether the proxy was asked to end, and how far it is with that.
#[derive(Default)]
pub(super) struct Departure {
    pub(super) stop: Stop,
    leaving: Option<Leaving>,
}

/// A proxy on its way out.
struct Leaving {
    since: Instant,
    look_at: Instant,
    /// Connections are kept for the next proxy in this process ([`handing`](super::handing)).
    hands_over: bool,
}

impl Departure {
    pub(super) fn hands_over(&self) -> bool {
        self.leaving.as_ref().is_some_and(|l| l.hands_over)
    }

    /// How long the loop may wait.
    pub(super) fn looks_every(&self) -> Duration {
        if self.leaving.is_some() { LOOK } else { LOOK_AROUND }
    }

    /// Whether requests are still let go.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        self.leaving.as_ref().is_none_or(|l| !l.hands_over && now.since(l.since) < GO_ON)
    }

    /// Whether this is the moment to close a connection.
    pub(super) fn may_close(&self, pair: &Pair, requests: &Requests, now: Instant) -> bool {
        if self.leaving.as_ref().is_none_or(|l| l.hands_over) {
            return false;
        }
        let nothing_under_way = match self.goes_on(now) {
            true => pair.all_pending().next().is_none() && matches!(pair.client.peek(&mut [0]), Ok(None)),
            false => requests.only_wait(pair),
        };
        nothing_under_way && pair.is_between_messages()
    }

    /// Lets nothing move on a connection any more, where it is to be handed over and nothing of it is at the server.
    pub(super) fn freeze(&self, pair: &mut Pair, requests: &Requests) {
        if self.hands_over() {
            pair.frozen = pair.is_still() && requests.only_wait(pair);
        }
    }
}

impl Proxy {
    /// Begins to leave once that is asked for, and closes who is done. Whether all are gone, or the time is over.
    pub(super) fn leave(&mut self, now: Instant) -> bool {
        let hands_over = self.departure.stop.is_asked_to_hand_over();
        if !hands_over && !self.departure.stop.is_asked_to_leave() {
            return false;
        }
        if self.departure.leaving.is_none() {
            tracing::info!(connections = self.pairs.open.len(), "leaves when what is under way is over");
            // Its successor may start at once: nothing that it needs is kept. One in this process finds who came meanwhile.
            for listener in &self.listeners {
                let _ = self.waiter.poller.remove(listener);
            }
            if !hands_over {
                self.listeners.clear();
            }
            self.control.close();
            self.peers = None;
            self.departure.leaving = Some(Leaving { since: now, look_at: now, hands_over });
        }
        let leaving = self.departure.leaving.as_mut().expect("just begun");
        if leaving.look_at <= now {
            leaving.look_at = now + LOOK;
            let done = |pair: &Pair| self.departure.may_close(pair, &self.requests, now);
            let pairs = self.pairs.open.iter();
            let done: Vec<RequestId> = pairs.filter(|(_, pair)| done(pair)).map(|(id, _)| id).collect();
            done.into_iter().for_each(|id| self.close(id, now));
            let all: Vec<usize> = self.pairs.open.iter().map(|(id, _)| id.index()).collect();
            all.into_iter().for_each(|slot| self.settle(slot, Ok(()), now));
        }
        if self.departure.hands_over() && self.pairs.open.iter().all(|(_, pair)| pair.frozen) {
            return true;
        }
        let over = self.departure.leaving.as_ref().is_some_and(|l| now.since(l.since) >= LEAVE_MOST);
        if over && !self.pairs.open.is_empty() {
            tracing::warn!(connections = self.pairs.open.len(), "cut off: they were not done");
        }
        over || self.pairs.open.is_empty()
    }
}
