//! Clients come, are looked at, and go.

use super::{LOOK, Server, Source, around};
use crate::client::Client;
use crate::fronts::{self, Arrival};
use crate::initiator::Initiator;
use crate::link::Link;
use crate::nvme::host::Host;
use crate::server::{links, listeners, moving, nvme};
use crate::spread::{across, acts};
use henge_core::{Duration, RequestId};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Clients let in in one turn by one listener: as many as say in it which disk they want. Who has not said so makes way for others.
const ARRIVALS: usize = 4;

impl Server {
    pub(super) fn accept(&mut self, n: usize) {
        // Level-triggered and bounded: connections that are left come in the next turn.
        for _ in 0..ARRIVALS {
            let Some(listener) = self.entrance.listeners.get(n) else { return };
            if let Some(until) = self.entrance.arrivals.full_until(n, self.now) {
                return listeners::rest(self, n, until);
            }
            let (fd, from) = match listener.accept() {
                Ok(Some(come)) => come,
                Ok(None) => return,
                Err(why @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return listeners::is_out(self, n, why);
                }
                // The client is gone already: nothing to be done for it.
                Err(_) => continue,
            };
            self.entrance.arrivals.come(n, self.now);
            if listener.is_links() {
                if self.clients.all.len() < self.entrance.slots.most.all {
                    links::accept_link(self, fd);
                }
                continue;
            }
            if !self.entrance.slots.admit(from) {
                continue; // closed at once; who is connected goes on
            }
            let id = self.clients.all.next_id();
            let tls = (listener.tls, self.entrance.tls.clone());
            let (address, limits, around) = (&listener.address, self.entrance.limits, around!(self, id));
            let arrival = Arrival { fd: &fd, from, address, tls, limits, around };
            let pump = fronts::of(address.scheme).and_then(|front| (front.arrive)(arrival));
            let client = pump.map(|pump| Client::new(Link::new(fd), pump));
            let Some(mut client) = client else {
                self.entrance.slots.leave(from);
                continue;
            };
            client.link.from = from;
            self.take_in(client);
        }
    }

    /// A client is here, newly accepted or from another shard, and has its slot; it is to be called by the next number.
    pub(super) fn take_in(&mut self, mut client: Client) -> Option<RequestId> {
        let (id, from, link) = (self.clients.all.next_id(), client.link.from, &client.link);
        if self.watch(link.stream.as_fd(), Source::Connection(id), link.interest()).is_err() {
            client.close(around!(self, id));
            self.entrance.slots.leave(from);
            return None;
        }
        if !self.registry.connections.is_empty() {
            self.clients.look.get_or_insert(self.now + LOOK);
        }
        self.clients.due.extend(client.due().map(|at| (at, id)));
        client.link.stream.lend_shakes();
        let id = self.clients.all.insert(client);
        self.mark(id);
        let connections = &self.clients.all;
        let decided = |id| connections.get(id).is_none_or(|client| client.disk().is_some());
        if let Some(oldest) = self.entrance.slots.arrived(id, decided) {
            self.drop_connection(oldest);
        }
        Some(id)
    }

    /// A connection has chosen its disk. False when that has no slot for it: then it is gone.
    pub(super) fn enter(&mut self, id: RequestId, disk: usize) -> bool {
        let connections = &mut self.plane.disks.of(disk).connections;
        *connections += 1;
        let (count, most) = (*connections, self.entrance.slots.most.per_disk);
        self.clients.users.insert((disk, id));
        self.ways.shards.crowd.enter(self.ways.here, across::gate_of(&self.plane, disk));
        if count >= most {
            moving::refuse(self, disk, "the disk has as many connections as it may");
        }
        // An initiator is not asked by the catalog.
        let stays = count <= most && !self.work.is_leaving(disk);
        if !stays {
            self.drop_connection(id);
        }
        stays
    }

    /// Asks silent initiators whether they live, and ends logins that take too long; a bounded number at a time.
    pub(super) fn look(&mut self) {
        if self.clients.look.is_none_or(|at| self.now < at) {
            return;
        }
        let (ids, more) = self.registry.look(&self.plane);
        let pause = if more { Duration::ZERO } else { LOOK };
        self.clients.look = (more || !ids.is_empty()).then_some(self.now + pause);
        for id in ids {
            if let Some(initiator) = self.clients.all.get_mut(id).and_then(Client::session::<Initiator>) {
                initiator.session.tick(&mut self.registry.targets, self.now);
                initiator.pump(id, &mut self.plane, &mut self.registry, self.now);
                self.mark(id);
            }
        }
    }

    /// Delivers what sessions have for each other, and begins what units do for themselves. Whether there was something to deliver.
    pub(super) fn poke(&mut self) -> bool {
        let mut any = false;
        while let Some(nexus) = self.registry.targets.next_poked() {
            any = true;
            let Some(&id) = self.registry.connections.get(&nexus) else { continue };
            if let Some(initiator) = self.clients.all.get_mut(id).and_then(Client::session::<Initiator>) {
                initiator.session.poke(&mut self.registry.targets);
                initiator.pump(id, &mut self.plane, &mut self.registry, self.now);
                self.mark(id);
            }
        }
        any |= nvme::poke_hosts(self);
        self.registry.work(&mut self.plane, self.now);
        moving::tell_bars(self);
        any
    }

    /// Goes on with changes of reservations, and answers those that are decided. Whether anything came of it.
    pub(super) fn settle_reservations(&mut self) -> bool {
        if !self.registry.is_due(&self.plane.links, self.now) {
            return false;
        }
        self.registry.settle(&mut self.plane, self.now);
        let mut any = false;
        while let Some((id, command, status)) = self.registry.next_decided() {
            any = true;
            let (plane, registry, now) = (&mut self.plane, &mut self.registry, self.now);
            let stays = self.clients.all.get_mut(id);
            let is_leaving = stays.is_none();
            let Some(client) = stays.or_else(|| self.clients.leaving.get_mut(&id)) else { continue };
            if let Some(initiator) = client.session::<Initiator>() {
                initiator.decided(id, command, status, plane, registry, now);
            } else if let Some(host) = client.session::<Host>() {
                host.decided(id, command, status, plane, registry, now);
            }
            if !is_leaving {
                self.mark(id);
            } else if client.is_quiet() {
                self.clients.leaving.remove(&id);
            }
        }
        any |= self.poke();
        // What is not to be done any more is given up by now.
        acts::go_on_acting(&mut self.plane, self.now);
        any
    }

    pub(super) fn drop_connection(&mut self, id: RequestId) {
        let Some(mut client) = self.clients.all.remove(id) else { return };
        let number = client.disk();
        self.waits.forget(id, &mut client);
        self.clients.shakes.forget(id);
        if !client.is_node {
            self.entrance.slots.leave(client.link.from);
        }
        client.close(around!(self, id));
        if let Some(number) = number
            && self.clients.users.remove(&(number, id))
        {
            self.ways.shards.crowd.leave(self.ways.here, across::gate_of(&self.plane, number));
            let disk = self.plane.disks.of(number);
            disk.connections -= 1;
            disk.doubts.connections.remove(&id);
            if !self.work.is_leaving(number) {
                moving::readmit(self, number);
            }
        }
        if !client.is_quiet() {
            // Nothing more is said on its socket; what it has at the disk is still counted.
            let _ = rustix::net::shutdown(&client.link.stream, rustix::net::Shutdown::Both);
            self.clients.leaving.insert(id, client);
        }
        if let Some(number) = number {
            self.plane.abort(number, id, None, self.now);
            self.answer();
        }
    }
}
