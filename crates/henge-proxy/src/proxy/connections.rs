//! Connections that come and go: clients with their twins, and callers that ask for the status.

use super::{ASKER, Proxy};
use crate::pair::Pair;
use crate::poller::Interest;
use henge_core::{Instant, RequestId};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Control connections at once.
pub(super) const CONTROLS_MAX: usize = 64;

impl Proxy {
    pub(super) fn accept(&mut self, listener: usize) {
        loop {
            let (client, peer) = match self.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // Nobody more; or no descriptors left, in which case connections that end make room.
                Err(_) => return,
            };
            if self.pairs.len() >= self.config.connections {
                self.counts.turned_away += 1;
                let most = self.config.connections;
                tracing::warn!(client = %peer, most, "turned away: as many connections as may be are open");
                continue; // dropping it closes it
            }
            let flow = self.flow_at(Some(listener), peer);
            match crate::socket::connect(self.config.server) {
                Ok(server) => match self.add_pair(client, server, flow) {
                    Ok(()) => {
                        let application = flow.map_or("by user", |f| self.config.flows[f].name.as_str());
                        tracing::debug!(client = %peer, application, "connected");
                    }
                    Err(e) => self.unreachable(peer, &e),
                },
                Err(e) => self.unreachable(peer, &e),
            }
        }
    }

    /// Whose a connection is by its port or its client's address; `None` leaves it to users.
    pub(super) fn flow_at(&self, listener: Option<usize>, client: SocketAddr) -> Option<usize> {
        let by_address = || self.config.rules.iter().find(|r| r.who.is_address(client.ip())).map(|r| r.flow);
        listener.and_then(|l| self.config.listen[l].flow).or_else(by_address)
    }

    pub(super) fn unreachable(&mut self, client: SocketAddr, why: &io::Error) {
        self.counts.unreachable += 1;
        tracing::warn!(%client, server = %self.config.server, %why, "no connection to the server for a client");
    }

    pub(super) fn add_pair(
        &mut self,
        client: TcpStream,
        server: TcpStream,
        flow: Option<usize>,
    ) -> io::Result<()> {
        crate::socket::prepare(&client)?;
        let name = u64::from(self.pairs.next_id().slot) << 1;
        let pair = Pair::new(client, server, flow);
        self.poller.add(&pair.client.socket, name, Interest::READ)?;
        self.poller.add(&pair.server.socket, name | 1, Interest::READ)?;
        self.pairs.insert(Box::new(pair));
        self.counts.accepted += 1;
        Ok(())
    }

    /// After something happened on a pair: close it, or tell the poller what it waits for.
    pub(super) fn settle(&mut self, slot: usize, result: io::Result<()>, now: Instant) {
        let Some(id) = self.pairs.in_slot(slot as u32) else { return };
        let pair = self.pairs.get_mut(id).expect("just found");
        if let Err(why) = &result {
            tracing::debug!(%why, "a connection has broken");
        }
        if result.is_err() {
            return self.close(id, now);
        }
        if pair.client_has_left() && !pair.pending.is_empty() {
            let waiting: Vec<RequestId> = pair.pending.values().copied().collect();
            waiting.into_iter().for_each(|id| self.drop_waiting(id, now, false));
        }
        let Some(pair) = self.pairs.get_mut(id) else { return };
        pair.pass_ends();
        if pair.is_over() {
            return self.close(id, now);
        }
        self.freeze(id);
        if self.leaving.is_some() && self.pairs.get(id).is_some_and(|pair| self.may_close(pair, now)) {
            return self.close(id, now);
        }
        let pair = self.pairs.get_mut(id).expect("just seen");
        let (client, server) = pair.interests();
        let name = u64::from(id.slot) << 1;
        let mut told = Ok(());
        for (side, wanted, name) in [(&mut pair.client, client, name), (&mut pair.server, server, name | 1)] {
            if side.told.is_some_and(|t| t != wanted) {
                side.told = Some(wanted);
                told = told.and(self.poller.change(&side.socket, name, wanted));
            }
        }
        if told.is_err() {
            self.close(id, now);
        }
    }

    /// A pair is gone: what waited is forgotten, what was at the server is over.
    pub(super) fn close(&mut self, pair_id: RequestId, now: Instant) {
        self.dirty = true;
        let pair = self.pairs.remove(pair_id).expect("closed once");
        let stats = pair.connection.stats();
        self.counts.malformed += stats.malformed;
        self.counts.unfollowed += stats.unfollowed;
        self.counts.between_servers += stats.between_servers;
        self.counts.opaque += u64::from(pair.connection.is_opaque());
        let odd = stats.malformed + stats.unfollowed;
        if pair.connection.is_opaque() || odd > 0 {
            tracing::warn!(
                malformed = stats.malformed,
                unfollowed = stats.unfollowed,
                "a connection's messages were not understood, and passed unscheduled"
            );
        }
        self.refused.retain(|r| r.pair != pair_id.index());
        for id in pair.pending.values() {
            if self.gate.cancel(*id, now).is_none() {
                self.gate.complete(*id, true, now);
            }
            self.ios.remove(*id);
        }
        drop(pair);
        self.readmit(now);
    }

    pub(super) fn accept_control(&mut self) {
        let Some(control) = &self.control else { return };
        let Ok((asker, _)) = control.accept() else { return };
        if self.askers.len() >= CONTROLS_MAX || asker.set_nonblocking(true).is_err() {
            return;
        }
        let name = ASKER | self.next_asker;
        self.next_asker += 1;
        if self.poller.add(&asker, name, Interest::READ).is_ok() {
            self.askers.insert(name, asker);
        }
    }

    /// Any line asks for the status; the answer is one line of JSON.
    pub(super) fn asked(&mut self, name: u64, now: Instant) {
        let status = self.status(now);
        let Some(asker) = self.askers.get_mut(&name) else { return };
        let mut line = [0; 256];
        let answered = match asker.read(&mut line) {
            Ok(0) => false,
            Ok(n) if line[..n].contains(&b'\n') => asker.write_all(status.to_line().as_bytes()).is_ok(),
            Ok(_) => true,
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        };
        if !answered {
            self.askers.remove(&name);
        }
    }
}

/// Two sockets a connection, where a process may usually open 1,024 files unless it asks for what it may ask for.
pub(super) fn allow_many_sockets() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused, the old limit stands, and connections beyond it are turned away.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
