//! Sockets that outlive the loop: what it leaves to the program that comes next, and takes over from the one before.
//!
//! Clients come once every disk is there again: a client that reconnects while disks are still being made is not told that its disk does not
//! exist. Until then it waits in its listener's queue.

use super::{Server, Source};
use crate::client::Client;
use crate::connection::Connection;
use crate::handover::Guest;
use crate::link::Link;
use crate::listen::Listener;
use crate::pump::Pump;
use crate::spread::across;
use henge_nbd::Exports;
use rustix::event::epoll::EventFlags;
use std::os::fd::AsFd;
use std::sync::Arc;

/// What a loop that has ended leaves.
#[derive(Default)]
pub(crate) struct Left {
    /// Requests that storage never finished.
    pub abandoned: usize,
    /// Disks whose last FLUSH failed.
    pub unflushed: Vec<String>,
    /// Where clients come, if somebody else goes on there.
    pub listeners: Vec<Arc<Listener>>,
    /// Clients that have an answer to everything they asked.
    pub guests: Vec<Guest>,
}

impl Left {
    /// What may be lost, for people.
    pub(crate) fn lost(&self) -> Option<String> {
        let disks = self.unflushed.join(", ");
        (!self.unflushed.is_empty()).then(|| {
            format!("the storage failed the last FLUSH of {disks}: what was answered since the FLUSH before may be lost")
        })
    }
}

impl Server {
    /// The end: everything is closed, but for sockets that somebody else goes on with.
    pub(super) fn leave(mut self, abandoned: usize) -> Left {
        let unflushed = self.plane.disks.unflushed().map(str::to_owned).collect();
        if !self.stopping.is_some_and(|stopping| stopping.hands) {
            return Left { abandoned, unflushed, ..Left::default() };
        }
        let ids: Vec<_> = self.connections.iter().map(|(id, _)| id).collect();
        let mut guests = Vec::new();
        for id in ids {
            let Some(client) = self.connections.get_mut(id) else { continue };
            // Whoever goes on there hears of each byte, until it says otherwise.
            client.link.stream.wake_at(0);
            let Ok(fd) = client.link.stream.as_fd().try_clone_to_owned() else { continue };
            let disk = client.disk().and_then(|number| self.plane.disks[number].as_ref());
            // The end of a connection is the sign that what was not flushed may be lost.
            let disk = disk.filter(|disk| !disk.unflushed);
            let (Some(rest), Some(disk)) = (client.rest(), disk) else { continue };
            let (disk, from) = (disk.config.name.clone(), client.link.from);
            guests.push(Guest { fd, disk, from, rest });
        }
        Left { abandoned, unflushed, listeners: std::mem::take(&mut self.listeners), guests }
    }

    /// Clients may come; those that were here before are here again.
    pub(super) fn open(&mut self, left: Vec<Guest>) {
        for guest in left {
            self.go_on_with(guest);
        }
        // One of several shards is woken for each that comes, if one sleeps.
        let one = if self.shards.count() > 1 { EventFlags::EXCLUSIVE } else { EventFlags::empty() };
        for (i, listener) in self.listeners.iter().enumerate() {
            let source = Source::Listener(i as u32);
            if let Err(error) = self.watch(listener.as_fd(), source, EventFlags::IN | one) {
                tracing::error!(%error, address = %listener.address, "nobody can come there");
            }
        }
    }

    /// A client whose conversation goes on here. One whose disk is gone, or is no longer for it, loses its connection.
    fn go_on_with(&mut self, guest: Guest) {
        let Guest { fd, disk, from, rest } = guest;
        let peer = rustix::net::sockopt::socket_peercred(&fd).ok();
        let user = peer.filter(|_| from.is_none()).map(|who| who.uid.as_raw());
        let who = crate::catalog::Who { user, ..Default::default() };
        let shown = self.catalog.shown_to(&who);
        let found = shown.find(&disk).and_then(|n| Some((self.catalog.here(n)?, shown.get(n)?.clone())));
        let Some((number, export)) = found else {
            return tracing::info!(
                disk,
                "a client of a disk that is not shown to it any more is disconnected"
            );
        };
        if !self.slots.admit(from) {
            return;
        }
        let id = self.connections.next_id();
        let connection = Connection::after(user, self.limits, &rest, (number, export), self.now);
        let mut client = Client::new(Link::new(fd), Box::new(Pump::after(connection, rest.unread)));
        client.link.from = from;
        if self.watch(client.link.stream.as_fd(), Source::Connection(id), client.link.interest()).is_err() {
            return self.slots.leave(from);
        }
        self.plane.disks.of(number).connections += 1;
        let id = self.connections.insert(client);
        self.users.insert((number, id));
        self.shards.crowd.enter(self.here, across::lead_of(&self.plane, number));
        self.want(id, crate::turns::Way::In);
    }
}
