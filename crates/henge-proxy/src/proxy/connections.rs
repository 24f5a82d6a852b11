//! Connections that come and go: clients with their twins.

use super::Proxy;
use super::places::Places;
use super::requests::served;
use crate::conduit::Conduit;
use crate::config::Config;
use crate::pair::Pair;
use crate::poller::{Interest, Poller};
use henge_core::{Instant, Pending, RequestId};
use henge_pvfs2::{Connection, Malformed, News};
use std::io;
use std::net::{SocketAddr, TcpStream};

/// Clients let in before others have their turn: each costs two sockets and a connection to the server.
const ACCEPTED_AT_ONCE: usize = 16;

/// Connections of clients, each with its twin at the server.
pub(super) struct Pairs {
    pub(super) open: Pending<Box<Pair>>,
    pub(super) conduit: Conduit,
    /// Emptied whenever a server was heard.
    pub(super) news: Vec<News>,
    places: Places,
}

impl Pairs {
    pub(super) fn new(config: &Config) -> io::Result<Self> {
        let places = Places::new(config);
        Ok(Pairs { open: Pending::new(), conduit: Conduit::new()?, news: Vec::new(), places })
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<Box<Pair>> {
        let pair = self.open.remove(id)?;
        self.places.leave(pair.flow);
        Some(pair)
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Box<Pair>> {
        self.open.in_slot(slot as u32).and_then(|id| self.open.get_mut(id))
    }

    pub(super) fn add(
        &mut self,
        client: TcpStream,
        server: TcpStream,
        (flow, clients_only): (Option<usize>, bool),
        poller: &Poller,
    ) -> io::Result<()> {
        crate::socket::prepare(&client)?;
        let name = u64::from(self.open.next_id().slot) << 1;
        let mut pair = Pair::new(client, server, flow);
        if clients_only {
            pair.connection = Connection::of_clients();
        }
        poller.add(&pair.client.socket, name, Interest::READ)?;
        poller.add(&pair.server.socket, name | 1, Interest::READ)?;
        self.open.insert(Box::new(pair));
        self.places.enter(flow);
        Ok(())
    }
}

/// Whose a connection is by its port or its client's address; `None` leaves it to users. And whether no server comes by
/// that port: it is an application's own, and servers' packets are not redirected to it.
pub(super) fn whose(config: &Config, listener: Option<usize>, client: SocketAddr) -> (Option<usize>, bool) {
    let by_address = || config.rules.iter().find(|r| r.who.is_address(client.ip())).map(|r| r.flow);
    let listen = listener.map(|l| &config.listen[l]);
    let flow = listen.and_then(|l| l.flow);
    (flow.or_else(by_address), flow.is_some() && listen.is_some_and(|l| !l.redirected))
}

/// By its name, where ports and addresses say whose a connection is.
fn application(config: &Config, flow: Option<usize>) -> &str {
    flow.map_or("by user", |flow| config.flows[flow].name.as_str())
}

impl Proxy {
    pub(super) fn accept(&mut self, listener: usize, now: Instant) {
        // Who is left over wakes the loop again.
        for _ in 0..ACCEPTED_AT_ONCE {
            let (client, peer) = match self.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    // Connections that end make room. Until then, who waits would wake the loop without end.
                    if crate::socket::lacks_descriptors(&e) {
                        self.waiter.listen(&self.listeners, false);
                        self.waiter.rests_until = Some(now + crate::socket::REST);
                    }
                    return; // nobody more
                }
            };
            let whose = whose(&self.config, Some(listener), peer);
            if !self.pairs.places.may_enter(whose.0) {
                self.counts.turned_away += 1;
                if let Some(left_out) = self.complaints.turned_away.is_due(now) {
                    let (most, application) = (self.config.connections, application(&self.config, whose.0));
                    let why = "turned away: as many connections are open as may be, beside places that others have for themselves";
                    tracing::warn!(client = %peer, application, most, left_out, "{why}");
                }
                continue; // dropping it closes it
            }
            match crate::socket::connect(self.config.server) {
                Ok(server) => match self.pairs.add(client, server, whose, &self.waiter.poller) {
                    Ok(()) => {
                        self.counts.accepted += 1;
                        let application = application(&self.config, whose.0);
                        tracing::debug!(client = %peer, application, "connected");
                    }
                    Err(e) => self.unreachable(peer, &e, now),
                },
                Err(e) => self.unreachable(peer, &e, now),
            }
        }
    }

    pub(super) fn unreachable(&mut self, client: SocketAddr, why: &io::Error, now: Instant) {
        self.counts.unreachable += 1;
        if let Some(left_out) = self.complaints.unreachable.is_due(now) {
            let server = self.config.server;
            tracing::warn!(%client, %server, %why, left_out, "no connection to the server for a client");
        }
    }

    /// After something happened on a pair: close it, or tell the poller what it waits for.
    pub(super) fn settle(&mut self, slot: usize, result: io::Result<()>, now: Instant) {
        let Some(id) = self.pairs.open.in_slot(slot as u32) else { return };
        let pair = self.pairs.open.get_mut(id).expect("just found");
        if let Err(why) = &result {
            tracing::debug!(%why, "a connection has broken");
        }
        if result.is_err() {
            return self.close(id, now);
        }
        if pair.client_has_left() {
            let waiting: Vec<RequestId> = pair.all_pending().collect();
            let refused = std::mem::take(&mut pair.refused).0 > 0;
            waiting.into_iter().for_each(|id| self.drop_waiting(id, now, false));
            if refused {
                self.requests.refused.forget(slot);
            }
        }
        let Some(pair) = self.pairs.open.get_mut(id) else { return };
        pair.pass_ends();
        if pair.is_over() {
            return self.close(id, now);
        }
        if (pair.client.ended || pair.server.ended) && !std::mem::replace(&mut pair.ends, true) {
            self.patience.ends(id, now);
        }
        self.departure.freeze(pair, &self.requests);
        if self.departure.may_close(pair, &self.requests, now) {
            return self.close(id, now);
        }
        let (client, server) = pair.interests();
        let name = u64::from(id.slot) << 1;
        let mut told = Ok(());
        for (side, wanted, name) in [(&mut pair.client, client, name), (&mut pair.server, server, name | 1)] {
            if side.told.is_some_and(|t| t != wanted) {
                side.told = Some(wanted);
                told = told.and(self.waiter.poller.change(&side.socket, name, wanted));
            }
        }
        if told.is_err() {
            self.close(id, now);
        }
    }

    /// A pair is gone: what waited is forgotten, what was at the server is over.
    pub(super) fn close(&mut self, pair_id: RequestId, now: Instant) {
        self.requests.dirty = true;
        let pair = self.pairs.remove(pair_id).expect("closed once");
        let stats = pair.connection.stats();
        self.counts.malformed += stats.malformed;
        self.counts.unsound += stats.unsound;
        self.counts.unfollowed += stats.unfollowed;
        self.counts.between_servers += stats.between_servers;
        self.counts.refused += stats.refused;
        self.counts.opaque += u64::from(pair.connection.is_opaque());
        let odd = stats.malformed + stats.unfollowed;
        if stats.refused > 0
            && let Some(left_out) = self.complaints.refused.is_due(now)
        {
            let client = pair.client.socket.peer_addr().ok();
            tracing::warn!(
                ?client,
                left_out,
                "asked for what administrators or servers do: its connection ends"
            );
        }
        if (pair.connection.is_opaque() || odd > 0)
            && let Some(left_out) = self.complaints.not_understood.is_due(now)
        {
            tracing::warn!(
                left_out,
                malformed = stats.malformed,
                unfollowed = stats.unfollowed,
                "a connection's messages were not understood, or not followed"
            );
        }
        if pair.refused.0 > 0 {
            self.requests.refused.forget(pair_id.index());
        }
        for id in pair.all_pending() {
            if self.requests.ios.get(id).is_some_and(|io| io.turn.is_none()) {
                self.requests.give_up(id, now);
            } else {
                // The server does it all the same, and nobody will know how much.
                self.requests.abandoned(id, now);
                served(self, id, true, now);
            }
        }
        drop(pair);
        self.readmit(now);
    }
}

/// A client sent what no server can go through, and was answered so.
pub(super) fn complain_of_unsound(proxy: &mut Proxy, slot: usize, what: Malformed, now: Instant) {
    let Some(left_out) = proxy.complaints.unsound.is_due(now) else { return };
    let Some(pair) = proxy.pairs.get_mut(slot) else { return };
    let (client, flow) = (pair.client.socket.peer_addr().ok(), pair.flow);
    let application = application(&proxy.config, flow);
    tracing::warn!(
        ?client,
        application,
        left_out,
        what = what.what,
        at = what.at,
        "a request that could end its server was answered with EPROTO"
    );
}

/// Two sockets a connection, where a process may usually open 1,024 files unless it asks for what it may ask for.
pub(super) fn allow_many_sockets() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused, the old limit stands, and connections beyond it are turned away.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
