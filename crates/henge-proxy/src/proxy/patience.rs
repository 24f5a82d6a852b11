//! How long clients wait, and what becomes of requests beyond it.
//!
//! A client waits for an answer so long, and for the next piece of data so long; then it tries again under a new tag, and
//! takes nothing of the old one any more. So a request that *waits here* is dropped a little earlier: released
//! late, a read's data would have no receiver, and the client would stop reading the connection. A request that is *at the
//! server* and moves nothing for as long is over for its client; its place in flight is freed, or a few answers
//! that never come would stop everybody. A *connection* of which one end has ended, and nothing moves for as long, is closed.

use super::Proxy;
use super::requests::Io;
use super::{refused, slots};
use henge_core::{Duration, Instant, Pending, RequestId};
use henge_pvfs2::ServerLimits;
use std::collections::VecDeque;

/// A held request is dropped so long before its client gives up.
const MARGIN: Duration = Duration::from_secs(2);

/// When to look again whether a request at the server has moved anything.
struct Look {
    at: Instant,
    id: RequestId,
    /// Bytes that had moved at the last look.
    moved: u64,
}

/// Whether most of so many are over. Clients wait for minutes, and ask for thousands a second.
fn is_mostly_over(len: usize, ios: &Pending<Io>) -> bool {
    len > 2 * ios.len() + 1024
}

/// How long clients wait, and when the next of them gives up.
pub(super) struct Patience {
    /// As the configuration has it.
    stated: Option<Duration>,
    pub(super) limits: ServerLimits,
    /// In order of arrival, with the moment at which the client will have given up.
    pub(super) expiries: VecDeque<(Instant, RequestId)>,
    /// At the server, in order of the next look at whether anything moves.
    at_server: VecDeque<Look>,
    /// Connections of which one end has ended, in order of the next look at whether anything moves.
    ending: VecDeque<(Instant, RequestId)>,
    /// So long the requests that are taken in now have waited at the proxy before.
    pub(super) waited: Duration,
}

impl Patience {
    /// `learnt` is what the proxy before had learnt of its clients.
    pub(super) fn new(stated: Option<Duration>, learnt: Option<[std::time::Duration; 2]>) -> Self {
        let mut limits = ServerLimits::default();
        if let Some(learnt) = learnt {
            let [message, flow] = learnt.map(|d| Duration::from_nanos(d.as_nanos() as u64));
            limits = ServerLimits { client_message: message, client_flow: flow, ..limits };
        }
        let (expiries, at_server, ending) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let mut patience = Patience { stated, limits, expiries, at_server, ending, waited: Duration::ZERO };
        patience.learn(limits);
        patience
    }

    /// A server's configuration says how long its clients wait.
    pub(super) fn learn(&mut self, limits: ServerLimits) {
        let client_message = self.stated.unwrap_or(limits.client_message);
        self.limits = ServerLimits { client_message, ..limits };
    }

    /// How long a request may wait here.
    pub(super) fn waiting(&self) -> Duration {
        let patience = self.limits.client_message.saturating_sub(MARGIN).as_nanos();
        Duration::from_nanos(patience.max(1_000_000))
    }

    /// How long a request at the server may move nothing.
    fn at_server(&self) -> Duration {
        self.stated.unwrap_or_else(|| self.limits.client_message.max(self.limits.client_flow))
    }

    /// A request that came then waits. Few are taken in behind others that came later.
    pub(super) fn waits(&mut self, id: RequestId, since: Instant, ios: &Pending<Io>) {
        if is_mostly_over(self.expiries.len(), ios) {
            self.expiries.retain(|(_, id)| ios.get(*id).is_some_and(|io| io.message.is_some()));
        }
        let at = since + self.waiting().saturating_sub(self.waited);
        let later = self.expiries.iter().rev().take_while(|(other, _)| *other > at).count();
        self.expiries.insert(self.expiries.len() - later, (at, id));
    }

    /// One end of a connection has ended.
    pub(super) fn ends(&mut self, pair: RequestId, now: Instant) {
        self.ending.push_back((now + self.at_server(), pair));
    }

    /// A request goes to the server now.
    pub(super) fn look_at(&mut self, id: RequestId, now: Instant, ios: &Pending<Io>) {
        if is_mostly_over(self.at_server.len(), ios) {
            self.at_server.retain(|look| ios.get(look.id).is_some());
        }
        self.at_server.push_back(Look { at: now + self.at_server(), id, moved: 0 });
    }

    /// A request at the server has moved on since it was looked at.
    fn look_again(&mut self, look: Look, moved: u64, now: Instant) {
        self.at_server.push_back(Look { at: now + self.at_server(), moved, ..look });
    }

    /// Entries of requests.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.expiries.len() + self.at_server.len()
    }

    /// The next that has waited too long.
    fn given_up(&mut self, now: Instant) -> Option<RequestId> {
        self.expiries.pop_front_if(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// The next look that is due.
    fn due(&mut self, now: Instant) -> Option<Look> {
        self.at_server.pop_front_if(|look| look.at <= now)
    }
}

impl Proxy {
    /// Gives up what clients have given up, and accepts clients again after a rest.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.waiter.rests_until.take_if(|at| *at <= now).is_some() {
            self.waiter.listen(&self.listeners, true);
        }
        self.control.tick(&self.waiter.poller, now);
        while let Some(id) = self.patience.given_up(now) {
            self.drop_waiting(id, now, true);
        }
        while let Some(look) = self.patience.due(now) {
            self.give_up_unless_moving(look, now);
        }
        while let Some((_, pair)) = self.patience.ending.pop_front_if(|(at, _)| *at <= now) {
            close_unless_moving(self, pair, now);
        }
        refused::drop_old(self, now);
        self.readmit(now);
        slots::look_at(self, now);
    }

    fn give_up_unless_moving(&mut self, look: Look, now: Instant) {
        let Some(io) = self.requests.ios.get(look.id) else { return };
        let (slot, Some(tag)) = (io.pair, io.tag) else { return };
        let Some(pair) = self.pairs.get_mut(slot) else { return };
        let moved = slots::moved(pair, tag);
        if moved > look.moved {
            return self.patience.look_again(look, moved, now);
        }
        pair.connection.forget(tag);
        pair.pending.remove(&tag);
        self.counts.unanswered += 1;
        self.over(look.id, true, now);
        self.settle(slot, Ok(()), now);
    }

    pub(super) fn drop_waiting(&mut self, id: RequestId, now: Instant, expired: bool) {
        if self.requests.ios.get(id).is_none_or(|io| io.message.is_none()) {
            return;
        }
        let io = self.requests.ios.get(id).expect("just seen");
        let (slot, tag) = (io.pair, io.tag);
        match io.turn {
            None => self.requests.give_up(id, now),
            // It stands in the lane, and its flow was charged.
            Some(turn) => {
                self.requests.gate.complete_unseen(turn, now);
                self.requests.turns.discard(turn);
                self.requests.ios.discard(id);
            }
        }
        self.requests.dirty = true;
        self.counts.expired += u64::from(expired);
        if let Some(pair) = self.pairs.get_mut(slot) {
            pair.alone.remove(&id);
            if let Some(tag) = tag {
                pair.connection.forget(tag);
                pair.pending.remove(&tag);
            }
        }
    }
}

fn close_unless_moving(proxy: &mut Proxy, id: RequestId, now: Instant) {
    let Some(pair) = proxy.pairs.open.get(id).filter(|pair| !pair.frozen) else { return };
    match now.since(pair.active) < proxy.patience.at_server() {
        true => proxy.patience.ends(id, now),
        false => proxy.close(id, now),
    }
}
