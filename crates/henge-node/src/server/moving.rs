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

impl Server {
    /// The disk that a connection has come for is another shard's.
    pub(super) fn send_away(&mut self, id: RequestId) {
        let Some(mut client) = self.connections.remove(id) else { return };
        self.waits.forget(id, &mut client);
        let departure = client.depart(around!(self, id));
        let Client { link, .. } = client;
        let (stream, from) = (link.stream, link.from);
        let left = epoll::delete(&self.epoll, stream.as_fd()).is_ok();
        let sent = departure.filter(|_| left).is_some_and(|(Departure { to, begin }, rest)| {
            self.shards.at(to).send(Message::Arrive(Box::new(Traveller { stream, from, rest, begin })))
        });
        if !sent {
            self.slots.leave(from);
        }
    }

    /// A connection has come from another shard.
    pub(super) fn arrive(&mut self, traveller: Traveller) {
        let Traveller { stream, from, rest, begin } = traveller;
        let id = self.connections.next_id();
        let pump = if self.stopping.is_some() { None } else { begin(around!(self, id)) };
        let Some(mut pump) = pump else { return self.slots.leave(from) };
        pump.keep(rest);
        let mut client = Client::new(Link::of(stream), pump);
        client.link.from = from;
        let disk = client.disk();
        let Some(id) = self.take_in(client) else { return };
        if disk.is_none_or(|disk| self.enter(id, disk)) {
            self.want(id, Way::In);
        }
    }

    /// A disk of this shard is there, or is another than before.
    pub(super) fn show(&mut self, number: usize, export: Export, doors: &Doors) {
        let everywhere = across::is_everywhere(&self.plane, number);
        let number = global(self.here, number);
        let edition = self.catalog.edition(number).unwrap_or_else(|| self.catalog.next_edition());
        self.catalog.add(number, export.clone(), &by_nbd(doors), edition);
        if everywhere {
            self.catalog.serve_instead(number, number);
        }
        if self.shards.count() > 1 {
            self.tell_shards(&News::Shown(Arc::new(Shown { number, edition, export, doors: doors.clone() })));
        }
    }

    /// A disk of this shard is gone.
    pub(super) fn hide(&mut self, number: usize) {
        let number = global(self.here, number);
        self.catalog.remove(number);
        self.tell_shards(&News::Gone(number));
    }

    /// Nobody else may come to a disk of this shard, for that reason.
    pub(super) fn refuse(&mut self, number: usize, why: &'static str) {
        let number = global(self.here, number);
        if self.catalog.refuse(number, why) {
            self.tell_shards(&News::Refused(number, why));
        }
    }

    /// A disk of this shard takes clients again.
    pub(super) fn readmit(&mut self, number: usize) {
        let number = global(self.here, number);
        if self.catalog.welcome(number) {
            self.tell_shards(&News::Welcome(number));
        }
    }

    pub(super) fn tell_shards(&self, news: &News) {
        // One that has ended needs to know nothing.
        for shard in self.shards.but(self.here) {
            shard.send(Message::News(news.clone()));
        }
    }

    /// What another shard says.
    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Shown(shown) => {
                let Shown { number, edition, export, doors } = &*shown;
                let at = self.served_instead(&export.name).unwrap_or(*number);
                self.catalog.add(at, export.clone(), &by_nbd(doors), *edition);
                if at != *number {
                    self.catalog.serve_instead(*number, at);
                }
                // Who may use it may have changed.
                self.registry.remove_elsewhere(*number);
                self.registry.add_elsewhere(*number, export, doors);
            }
            News::Gone(number) => {
                self.catalog.remove(self.catalog.served_as(number));
                self.registry.remove_elsewhere(number);
            }
            News::Refused(number, why) => drop(self.catalog.refuse(self.catalog.served_as(number), why)),
            News::Welcome(number) => drop(self.catalog.welcome(self.catalog.served_as(number))),
            News::Owner { disk, extent, owner } => {
                across::hear_owner(&mut self.plane, &disk, extent, owner, self.now);
                // Other nodes may have waited for it.
                self.reconsider_links(&disk);
            }
        }
    }

    /// The number of a disk of that name which another shard shows, where this one serves NBD clients of it, too.
    fn served_instead(&self, name: &str) -> Option<usize> {
        let number = self.plane.disks.number(name)?;
        let disk = self.plane.disks[number].as_ref()?;
        self.plane.across.serves(&disk.config).then(|| global(self.here, number))
    }

    /// Other shards hear which extents of a disk are here; or that they are here no more.
    pub(super) fn tell_owners(&self, disk: &str, owners: Vec<(u32, Owner)>, are_there: bool) {
        for (extent, owner) in owners {
            let owner = are_there.then_some(owner);
            self.tell_shards(&News::Owner { disk: disk.to_owned(), extent, owner });
        }
    }
}

#[cfg(test)]
mod tests;
