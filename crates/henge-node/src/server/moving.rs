//! Connections move to the shard of their disk, once, and shards tell each other which disks there are.
//!
//! A session says by [`Stop::Away`](crate::session::Stop) that the disk it has come for is another shard's. What is to be known of it there
//! it says once ([`Departure`]): for NBD its state machine as it is, for iSCSI and NVMe nothing, since no answer was given yet. The stream moves
//! with what TLS knows, and the bytes that were read and not taken. So nothing that a client sends behind its choice is lost.
//!
//! Whoever moves keeps its slot among the node's connections, so that the mailboxes hold no more of them than the node may have. A disk that
//! is removed meanwhile, or another of that number: the connection ends, as of a disk that is removed under it. A shard that stops ends
//! what arrives.
//!
//! What a disk's shard says of it, others hear in the order in which it was said. So a disk that was added is known to all when
//! [`Shards::settle`](crate::shards::Shards::settle) has returned.

use super::{Server, around};
use crate::access::by_nbd;
use crate::client::Client;
use crate::front::Doors;
use crate::link::Link;
use crate::message::{Message, News, Shown, Traveller};
use crate::server::links;
use crate::session::Departure;
use crate::shards::across::Owner;
use crate::shards::global;
use crate::spread::across;
use crate::turns::Way;
use henge_core::RequestId;
use henge_nbd::Export;
use rustix::event::epoll;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The disk that a connection has come for is another shard's.
pub(super) fn send_away(server: &mut Server, id: RequestId) {
    let Some(mut client) = server.clients.all.remove(id) else { return };
    server.waits.forget(id, &mut client);
    let departure = client.depart(around!(server, id));
    let Client { link, .. } = client;
    let (stream, from) = (link.stream, link.from);
    let left = epoll::delete(&server.poll.epoll, stream.as_fd()).is_ok();
    let sent = departure.filter(|_| left).is_some_and(|(Departure { to, begin }, rest)| {
        server.ways.shards.at(to).send(Message::Arrive(Box::new(Traveller { stream, from, rest, begin })))
    });
    if !sent {
        server.entrance.slots.leave(from);
    }
}

/// A connection has come from another shard.
pub(super) fn arrive(server: &mut Server, traveller: Traveller) {
    let Traveller { stream, from, rest, begin } = traveller;
    let id = server.clients.all.next_id();
    let pump = if server.stopping.is_some() { None } else { begin(around!(server, id)) };
    let Some(mut pump) = pump else { return server.entrance.slots.leave(from) };
    pump.keep(rest);
    let mut client = Client::new(Link::of(stream), pump);
    client.link.from = from;
    let disk = client.disk();
    let Some(id) = server.take_in(client) else { return };
    if disk.is_none_or(|disk| server.enter(id, disk)) {
        server.want(id, Way::In);
    }
}

/// A disk of this shard is there, or is another than before.
pub(super) fn show(server: &mut Server, number: usize, export: Export, doors: &Doors) {
    let everywhere =
        across::is_everywhere(&server.plane, number).then(|| across::gate_of(&server.plane, number));
    let number = global(server.ways.here, number);
    let edition = server.catalog.edition(number).unwrap_or_else(|| server.catalog.next_edition());
    server.catalog.add(number, export.clone(), &by_nbd(doors), edition);
    if let Some(gate) = everywhere {
        server.catalog.serve_instead(number, number, gate);
    }
    if server.ways.shards.count() > 1 {
        tell_shards(server, &News::Shown(Arc::new(Shown { number, edition, export, doors: doors.clone() })));
    }
}

/// A disk of this shard is gone.
pub(super) fn hide(server: &mut Server, number: usize) {
    let number = global(server.ways.here, number);
    server.catalog.remove(number);
    tell_shards(server, &News::Gone(number));
}

/// Nobody else may come to a disk of this shard, for that reason.
pub(super) fn refuse(server: &mut Server, number: usize, why: &'static str) {
    let number = global(server.ways.here, number);
    if server.catalog.refuse(number, why) {
        tell_shards(server, &News::Refused(number, why));
    }
}

/// A disk of this shard takes clients again.
pub(super) fn readmit(server: &mut Server, number: usize) {
    let number = global(server.ways.here, number);
    if server.catalog.welcome(number) {
        tell_shards(server, &News::Welcome(number));
    }
}

/// What keeps clients from disks of this shard keeps those of other shards from them.
pub(super) fn tell_bars(server: &mut Server) {
    while let Some((number, barred)) = server.plane.across.bars.pop() {
        if across::is_everywhere(&server.plane, number) {
            tell_shards(server, &News::Barred(global(server.ways.here, number), barred));
        }
    }
}

pub(super) fn tell_shards(server: &Server, news: &News) {
    // One that has ended needs to know nothing.
    for shard in server.ways.shards.but(server.ways.here) {
        shard.send(Message::News(news.clone()));
    }
}

/// What another shard says.
pub(super) fn hear(server: &mut Server, news: News) {
    match news {
        News::Shown(shown) => {
            let Shown { number, edition, export, doors } = &*shown;
            let instead = served_instead(server, &export.name);
            let at = instead.map_or(*number, |(at, _)| at);
            server.catalog.add(at, export.clone(), &by_nbd(doors), *edition);
            if let Some((at, gate)) = instead {
                server.catalog.serve_instead(*number, at, gate);
            }
            // Who may use it may have changed.
            server.registry.remove_elsewhere(*number);
            server.registry.add_elsewhere(*number, export, doors);
        }
        News::Gone(number) => {
            server.catalog.remove(server.catalog.served_as(number));
            server.registry.remove_elsewhere(number);
        }
        News::Refused(number, why) => drop(server.catalog.refuse(server.catalog.served_as(number), why)),
        News::Welcome(number) => drop(server.catalog.welcome(server.catalog.served_as(number))),
        News::Barred(number, barred) => {
            if let Some(here) = server.catalog.here(server.catalog.served_as(number)) {
                server.plane.disks.set_barred(here, barred);
            }
        }
        News::Owner { disk, extent, owner } => {
            across::hear_owner(&mut server.plane, &disk, extent, owner, server.now);
            // Other nodes may have waited for it.
            links::reconsider_links(server, &disk);
        }
    }
}

/// The number of a disk of that name which another shard shows, where this one serves NBD clients of it, too; and the shard of its gate.
fn served_instead(server: &Server, name: &str) -> Option<(usize, usize)> {
    let number = server.plane.disks.number(name)?;
    let disk = server.plane.disks[number].as_ref()?;
    let gate = across::gate_of(&server.plane, number);
    server.plane.across.serves(&disk.config).then(|| (global(server.ways.here, number), gate))
}

/// Other shards hear which extents of a disk are here; or that they are here no more.
pub(super) fn tell_owners(server: &Server, disk: &str, owners: Vec<(u32, Owner)>, are_there: bool) {
    for (extent, owner) in owners {
        let owner = are_there.then_some(owner);
        tell_shards(server, &News::Owner { disk: disk.to_owned(), extent, owner });
    }
}

/// A disk is there: clients may come to it.
pub(super) fn publish(server: &mut Server, number: usize) {
    let Some(disk) = &server.plane.disks[number] else { return };
    if server.work.is_leaving(number) {
        return;
    }
    tell_owners(server, &disk.config.name, across::owners_to_tell(&server.plane, number), true);
    if !server.plane.across.leads(&disk.config) {
        return; // whoever does says that it is there
    }
    let (export, doors) = (disk.export(), disk.config.doors.clone());
    if disk.config.doors.shown_by("nvme") {
        server.registry.nvme.add(number, disk);
    }
    // Reservations are one table for initiators and hosts, which belongs to a target, be it found or not.
    let shown = disk.config.doors.shown_by("iscsi");
    // Of a shared disk whoever has the seat keeps it for others, too.
    if shown || disk.config.doors.shown_by("nvme") || disk.is_shared() {
        server.registry.add(number, disk, shown, &server.plane.links, server.now);
    }
    show(server, number, export, &doors);
}

#[cfg(test)]
mod tests;
