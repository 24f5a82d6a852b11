//! How long clients wait, and what becomes of requests beyond it.
//!
//! A client waits for an answer so long, and for the next piece of data so long; then it tries again under a new tag, and
//! takes nothing of the old one any more. So a request that *waits here* is dropped a little earlier: released
//! late, a read's data would have no receiver, and the client would stop reading the connection. A request that is *at the
//! server* and moves nothing for as long is over for its client; its place in flight is freed, or a few answers
//! that never come would stop everybody.

use super::Proxy;
use henge_core::{Duration, Instant, RequestId};
use henge_pvfs2::IoState;

/// A held request is dropped so long before its client gives up.
const MARGIN: Duration = Duration::from_secs(2);

/// When to look again whether a request at the server has moved anything.
pub(super) struct Look {
    at: Instant,
    id: RequestId,
    /// Bytes that had moved at the last look.
    moved: u64,
}

impl Proxy {
    /// How long a request may wait here.
    pub(super) fn patience_waiting(&self) -> Duration {
        let patience = self.limits.client_message.saturating_sub(MARGIN).as_nanos();
        Duration::from_nanos(patience.max(1_000_000))
    }

    /// How long a request at the server may move nothing.
    fn patience_at_server(&self) -> Duration {
        let stated = self.config.client_timeout;
        stated.unwrap_or_else(|| self.limits.client_message.max(self.limits.client_flow))
    }

    /// A request goes to the server now.
    pub(super) fn look_at(&mut self, id: RequestId, now: Instant) {
        self.at_server.push_back(Look { at: now + self.patience_at_server(), id, moved: 0 });
    }

    /// Gives up what clients have given up.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, id)) = self.expiries.front().copied().filter(|(at, _)| *at <= now) {
            self.expiries.pop_front();
            self.drop_waiting(id, now, true);
        }
        while self.at_server.front().is_some_and(|look| look.at <= now) {
            let look = self.at_server.pop_front().expect("just seen");
            self.give_up_unless_moving(look, now);
        }
        self.readmit(now);
    }

    fn give_up_unless_moving(&mut self, look: Look, now: Instant) {
        let Some(io) = self.ios.get(look.id) else { return };
        let (slot, tag) = (io.pair, io.tag);
        let Some(pair) = self.pair_mut(slot) else { return };
        let moved = match pair.connection.io_state(tag) {
            Some(IoState::Moving { moved, .. }) => moved,
            _ => 0,
        };
        if moved > look.moved {
            let at = now + self.patience_at_server();
            return self.at_server.push_back(Look { at, moved, ..look });
        }
        pair.connection.forget(tag);
        pair.pending.remove(&tag);
        self.counts.unanswered += 1;
        self.over(look.id, true, now);
    }

    pub(super) fn drop_waiting(&mut self, id: RequestId, now: Instant, expired: bool) {
        if self.ios.get(id).is_none_or(|io| io.message.is_none()) || self.gate.cancel(id, now).is_none() {
            return;
        }
        self.dirty = true;
        let io = self.ios.remove(id).expect("just seen");
        self.counts.expired += u64::from(expired);
        if let Some(pair) = self.pair_mut(io.pair) {
            pair.connection.forget(io.tag);
            pair.pending.remove(&io.tag);
        }
    }
}
