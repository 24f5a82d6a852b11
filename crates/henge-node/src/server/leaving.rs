//! Sockets that outlive the loop: what it leaves to the program that comes next, and takes over from the one before.
//!
//! Clients come once every disk is there again: a client that reconnects while disks are still being made is not told that its disk does not
//! exist. Until then it waits in its listener's queue.

use super::left::Left;
use super::{Server, Source, listeners};
use crate::client::Client;
use crate::connection::Connection;
use crate::handover::Guest;
use crate::link::Link;
use crate::pump::Pump;
use crate::spread::across;
use henge_nbd::Exports;
use std::os::fd::AsFd;

/// The end: everything is closed, but for sockets that somebody else goes on with.
pub(super) fn leave(mut server: Server, abandoned: usize) -> Left {
    let unflushed = server.plane.disks.unflushed().map(str::to_owned).collect();
    if !server.stopping.is_some_and(|stopping| stopping.hands) {
        return Left { abandoned, unflushed, ..Left::default() };
    }
    let ids: Vec<_> = server.clients.all.iter().map(|(id, _)| id).collect();
    let mut guests = Vec::new();
    for id in ids {
        let Some(client) = server.clients.all.get_mut(id) else { continue };
        // Whoever goes on there hears of each byte, until it says otherwise.
        client.link.stream.wake_at(0);
        let Ok(fd) = client.link.stream.as_fd().try_clone_to_owned() else { continue };
        let disk = client.disk().and_then(|number| server.plane.disks[number].as_ref());
        let (Some(rest), Some(disk)) = (client.rest(), disk) else { continue };
        let (disk, from) = (disk.config.name.clone(), client.link.from);
        guests.push(Guest { fd, disk, from, rest });
    }
    Left { abandoned, unflushed, listeners: std::mem::take(&mut server.entrance.listeners), guests }
}

/// Clients may come; those that were here before are here again.
pub(super) fn open(server: &mut Server, left: Vec<Guest>) {
    for guest in left {
        go_on_with(server, guest);
    }
    (0..server.entrance.listeners.len()).for_each(|n| listeners::open(server, n));
}

/// A client whose conversation goes on here. One whose disk is gone, or is no longer for it, loses its connection.
fn go_on_with(server: &mut Server, guest: Guest) {
    let Guest { fd, disk, from, rest } = guest;
    let peer = rustix::net::sockopt::socket_peercred(&fd).ok();
    let user = peer.filter(|_| from.is_none()).map(|who| who.uid.as_raw());
    let who = crate::catalog::Who { user, ..Default::default() };
    let shown = server.catalog.shown_to(&who);
    let found = shown.find(&disk).and_then(|n| Some((server.catalog.here(n)?, shown.get(n)?.clone())));
    let Some((number, export)) = found else {
        return tracing::info!(disk, "a client of a disk that is not shown to it any more is disconnected");
    };
    if !server.entrance.slots.admit(from) {
        return;
    }
    let id = server.clients.all.next_id();
    let connection = Connection::after(user, server.entrance.limits, &rest, (number, export), server.now);
    let mut client = Client::new(Link::new(fd), Box::new(Pump::after(connection, rest.unread)));
    client.link.from = from;
    if server.watch(client.link.stream.as_fd(), Source::Connection(id), client.link.interest()).is_err() {
        return server.entrance.slots.leave(from);
    }
    server.plane.disks.of(number).connections += 1;
    let id = server.clients.all.insert(client);
    server.clients.users.insert((number, id));
    server.ways.shards.crowd.enter(server.ways.here, across::gate_of(&server.plane, number));
    server.want(id, crate::turns::Way::In);
}
