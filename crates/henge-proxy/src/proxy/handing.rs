//! What the next proxy in this process is left, and what it does with it.
//!
//! Once a proxy is asked to hand over, no request is let go any more. What is at the server comes to its end, and each
//! connection of which nothing is there, and no message half passed on, stays as it is from then on. When all do, they are handed over
//! with the requests that wait; who is not done after 10 s is cut off.

use super::Proxy;
use super::connections::whose;
use super::refused::Refused;
use crate::handover::{HandedPair, Handover};
use crate::pair::{Held, answer_unsound, held_by};
use henge_core::{Instant, RequestId};
use henge_pvfs2::{Connection, ConnectionEvent};
use std::collections::BTreeMap;
use std::time::Duration;

impl Proxy {
    /// What it leaves, after it was asked to hand over and [`run`](Proxy::run) has returned; `None` where it was not.
    pub fn handover(mut self) -> Option<Handover> {
        if !self.departure.hands_over() {
            return None;
        }
        let (now, patience) = (self.now(), self.patience.waiting());
        let mut held: BTreeMap<usize, (Duration, Vec<Vec<u8>>)> = BTreeMap::new();
        for (expires, id) in std::mem::take(&mut self.patience.expiries) {
            let Some(io) = self.requests.ios.get_mut(id) else { continue };
            let Some(message) = io.message.take() else { continue };
            let waited = patience.saturating_sub(expires.since(now));
            let waited = Duration::from_nanos(waited.as_nanos());
            held.entry(io.pair).or_insert((waited, Vec::new())).1.push(message);
        }
        for refused in self.requests.refused.take() {
            let waited = Duration::from_nanos(now.since(refused.since).as_nanos());
            held.entry(refused.pair).or_insert((waited, Vec::new())).1.push(refused.held.message);
        }
        let ids: Vec<RequestId> = self.pairs.open.iter().map(|(id, _)| id).collect();
        let pairs = ids.into_iter().filter_map(|id| {
            let pair = self.pairs.remove(id).filter(|p| p.frozen && !p.client.ended && !p.server.ended)?;
            let mut pair = *pair;
            let (waited, held) = held.remove(&id.index()).unwrap_or_default();
            Some(HandedPair {
                opaque: pair.connection.is_opaque(),
                unread: pair.client.take_unread(),
                client: pair.client.socket,
                server: pair.server.socket,
                waited,
                held,
            })
        });
        let patience = [self.patience.limits.client_message, self.patience.limits.client_flow];
        let patience = patience.map(|d| Duration::from_nanos(d.as_nanos()));
        let (pairs, listeners) = (pairs.collect(), std::mem::take(&mut self.listeners));
        Some(Handover { pairs, listeners, patience, configuration: None })
    }

    /// Goes on with the connections of the proxy before.
    pub(super) fn take_adopted(&mut self) {
        let now = self.now();
        let adopted = std::mem::take(&mut self.adopted);
        if !adopted.is_empty() {
            let waiting: usize = adopted.iter().map(|pair| pair.held.len()).sum();
            tracing::info!(connections = adopted.len(), waiting, "taken over");
        }
        for handed in adopted {
            if let Err(why) = self.take_over(handed, now) {
                tracing::warn!(%why, "a connection could not be taken over");
            }
        }
    }

    fn take_over(&mut self, handed: HandedPair, now: Instant) -> std::io::Result<()> {
        let (at, peer) = (handed.client.local_addr()?, handed.client.peer_addr()?);
        let fits = |l: &crate::config::ListenConfig| {
            let anywhere = l.address.ip().is_unspecified() && l.address.port() == at.port();
            l.address == at || anywhere
        };
        let whose = whose(&self.config, self.config.listen.iter().position(fits), peer);
        let slot = self.pairs.open.next_id().index();
        self.pairs.add(handed.client, handed.server, whose, &self.waiter.poller)?;
        self.counts.accepted += 1;
        if handed.opaque {
            self.pairs.get_mut(slot).expect("just added").connection = Connection::opaque();
        }
        self.patience.waited = henge_core::Duration::from_nanos(handed.waited.as_nanos() as u64);
        let result = take_in_held(self, slot, handed.held, now);
        self.patience.waited = henge_core::Duration::ZERO;
        let pair = self.pairs.get_mut(slot).expect("just added");
        pair.client.keep(&handed.unread);
        let result = result.and_then(|()| self.move_from_client(slot, now));
        self.settle(slot, result, now);
        Ok(())
    }
}

/// What the process before held of a connection. Where that fails the connection is to end: what comes behind it would be taken for something else.
fn take_in_held(proxy: &mut Proxy, slot: usize, held: Vec<Vec<u8>>, now: Instant) -> std::io::Result<()> {
    for message in held {
        let pair = proxy.pairs.get_mut(slot).expect("just added");
        let what = pair.connection.from_client(&message).what;
        if let ConnectionEvent::Answer { why } = what {
            answer_unsound(pair, &message, why)?;
            continue;
        }
        match held_by(what) {
            Some((tag, request)) => {
                let flow = proxy.flow_of(slot, &request, now);
                proxy.take_in(
                    Refused { pair: slot, held: Held { tag, request, message }, flow, since: now },
                    now,
                );
            }
            // Another version may not understand what this one held.
            None => pair.server.send(&message, false)?,
        }
    }
    Ok(())
}
