//! Clients come, are looked at, and go.

use super::{LOOK, Server, Source};
use crate::client::{Client, Link};
use crate::connection::Connection;
use crate::initiator::Initiator;
use crate::listen::Address;
use henge_core::{Duration, RequestId};
use std::os::fd::AsFd;

/// Clients let in in one turn by one listener.
const ARRIVALS: usize = 16;

impl Server {
    pub(super) fn accept(&mut self, n: usize) {
        // Level-triggered and bounded: connections that are left come in the next turn.
        for _ in 0..ARRIVALS {
            let Some(listener) = self.listeners.get(n) else { return };
            let (fd, from) = match listener.accept() {
                Ok(Some(come)) => come,
                // Out of descriptors, or the client is gone already: nothing to be done for it.
                Ok(None) | Err(_) => return,
            };
            if let Address::Link(_) = listener.address {
                if self.connections.len() < self.places.most.all {
                    self.accept_link(fd);
                }
                continue;
            }
            if !self.places.admit(self.connections.len(), from) {
                continue; // closed at once; who is connected goes on
            }
            let mut client = match listener.address {
                Address::Iscsi(_) => {
                    let Some(initiator) = self.initiator(Link::new(fd)) else {
                        self.places.leave(from);
                        continue;
                    };
                    Client::Iscsi(Box::new(initiator))
                }
                Address::Nvme(_) => {
                    let Some(host) = self.host(fd) else {
                        self.places.leave(from);
                        continue;
                    };
                    Client::Nvme(Box::new(host))
                }
                _ => {
                    // TCP does not say whose process it is.
                    let credentials = rustix::net::sockopt::socket_peercred(&fd).ok();
                    let by_unix = matches!(listener.address, Address::Unix(_));
                    let user = credentials.filter(|_| by_unix).map(|who| who.uid.as_raw());
                    let connection = Connection::new(Link::new(fd), user, self.limits, self.now);
                    Client::Nbd(Box::new(connection.with_tls(listener.tls, self.tls.clone())))
                }
            };
            let id = self.connections.next_id();
            client.link().from = from;
            let link = client.link();
            if self.watch(link.stream.as_fd(), Source::Connection(id), link.interest()).is_err() {
                self.places.leave(from);
                continue;
            }
            match &client {
                Client::Nbd(connection) => {
                    let deadline = connection.session.wake_at();
                    self.handshakes.extend(deadline.map(|deadline| (deadline, id)));
                }
                Client::Iscsi(initiator) => {
                    self.portal.connections.insert(initiator.session.nexus(), id);
                    self.look.get_or_insert(self.now + LOOK);
                }
                Client::Nvme(host) => self.portal.nvme.connected(host.session.queue(), id, self.now),
                Client::Peer(_) => {}
            }
            let id = self.connections.insert(client);
            self.mark(id);
            let connections = &self.connections;
            let decided = |id| connections.get(id).is_none_or(|client| client.disk().is_some());
            if let Some(oldest) = self.places.arrived(id, decided) {
                self.drop_connection(oldest);
            }
        }
    }

    /// A new initiator; none when the system gives no randomness.
    fn initiator(&mut self, link: Link) -> Option<Initiator> {
        let mut entropy = [0; 33];
        let got = rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty());
        if got != Ok(entropy.len()) {
            return None;
        }
        let limits = henge_iscsi::Limits::default();
        let session = henge_iscsi::Session::new(&mut self.portal.targets, limits, entropy, self.now);
        Some(Initiator::new(link, session))
    }

    /// Asks silent initiators whether they live, and ends logins that take too long; a bounded number at a time.
    pub(super) fn look(&mut self) {
        if self.look.is_none_or(|at| self.now < at) {
            return;
        }
        let (ids, more) = self.portal.look(&self.plane);
        let pause = if more { Duration::ZERO } else { LOOK };
        self.look = (more || !ids.is_empty()).then_some(self.now + pause);
        for id in ids {
            if let Some(Client::Iscsi(initiator)) = self.connections.get_mut(id) {
                initiator.session.tick(&mut self.portal.targets, self.now);
                initiator.pump(id, &mut self.plane, &mut self.portal, self.now);
                self.mark(id);
            }
        }
    }

    /// Delivers what sessions have for each other, and begins what units do for themselves. Whether there was something to deliver.
    pub(super) fn poke(&mut self) -> bool {
        let mut any = false;
        while let Some(nexus) = self.portal.targets.next_poked() {
            any = true;
            let Some(&id) = self.portal.connections.get(&nexus) else { continue };
            if let Some(Client::Iscsi(initiator)) = self.connections.get_mut(id) {
                initiator.session.poke(&mut self.portal.targets);
                initiator.pump(id, &mut self.plane, &mut self.portal, self.now);
                self.mark(id);
            }
        }
        any |= self.poke_hosts();
        self.portal.work(&mut self.plane, self.now);
        any
    }

    /// Goes on with changes of reservations, and answers those that are decided. Whether anything came of it.
    pub(super) fn settle_reservations(&mut self) -> bool {
        if !self.portal.is_due(&self.plane.links, self.now) {
            return false;
        }
        self.portal.settle(&mut self.plane, self.now);
        let mut any = false;
        while let Some((id, command, status)) = self.portal.next_decided() {
            any = true;
            let (plane, portal, now) = (&mut self.plane, &mut self.portal, self.now);
            if let Some(Client::Iscsi(initiator)) = self.connections.get_mut(id) {
                initiator.decided(id, command, status, plane, portal, now);
                self.mark(id);
            } else if let Some(Client::Iscsi(initiator)) = self.leaving.get_mut(&id) {
                initiator.decided(id, command, status, plane, portal, now);
                if initiator.is_quiet() {
                    self.leaving.remove(&id);
                }
            }
        }
        any |= self.poke();
        any
    }

    pub(super) fn drop_connection(&mut self, id: RequestId) {
        let Some(mut client) = self.connections.remove(id) else { return };
        let number = client.disk();
        self.waits.forget(id, &mut client);
        self.places.leave(client.link().from);
        match &mut client {
            Client::Nbd(connection) => connection.release(&mut self.plane),
            Client::Iscsi(initiator) => initiator.end(id, &mut self.plane, &mut self.portal, self.now),
            Client::Nvme(host) => host.end(id, &mut self.plane, &mut self.portal.nvme, self.now),
            Client::Peer(link) => self.end_link(id, link),
        }
        if let Some(number) = number
            && self.users.remove(&(number, id))
        {
            self.plane.disk(number).connections -= 1;
            if !self.is_leaving(number) {
                self.catalog.welcome(number);
            }
        }
        if !client.is_quiet() {
            // Nothing more is said on its socket; what it has at the disk is still counted.
            let _ = rustix::net::shutdown(&client.link().stream, rustix::net::Shutdown::Both);
            self.leaving.insert(id, client);
        }
        if let Some(number) = number {
            self.plane.abort(number, id, None, self.now);
            self.answer();
        }
    }
}
