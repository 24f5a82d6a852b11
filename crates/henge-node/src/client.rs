//! A client's connection, whichever protocol it speaks.

use crate::catalog::Catalog;
use crate::connection::{Connection, Stop};
use crate::initiator::Initiator;
use crate::nvme::Host;
use crate::peer::PeerLink;
use crate::plane::{Answer, Plane};
use crate::portal::Portal;
use crate::stream::Stream;
use henge_core::{Instant, RequestId};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// A socket and what is known of it.
pub(crate) struct Link {
    pub stream: Stream,
    /// Where it comes from, by TCP; its place counts for that address.
    pub from: Option<IpAddr>,
    /// There may be something to read.
    pub readable: bool,
    /// The socket takes more.
    pub writable: bool,
    /// It is watched for when it takes more again.
    pub awaited: bool,
    /// The client has closed its side, or the connection is broken.
    pub ending: bool,
    /// On the list of those to be read.
    pub listed: bool,
    /// On the list of those to be written.
    pub unwritten: bool,
    /// Bytes that went through the socket since this was asked last.
    pub moved: u64,
    /// Commands answered since then.
    pub answers: u32,
    /// When something came last, while payload is awaited; and when that is looked at.
    pub heard: Instant,
    pub payload_due: Option<Instant>,
    /// Since when it waits for memory; and when that is looked at.
    pub thirsty: Option<Instant>,
    pub memory_due: Option<Instant>,
}

impl Link {
    pub(crate) fn new(fd: OwnedFd) -> Link {
        let (readable, writable) = (true, true);
        let stream = Stream::plain(fd);
        let (moved, answers) = (0, 0);
        let (listed, unwritten) = (false, false);
        Link {
            stream,
            from: None,
            readable,
            writable,
            awaited: false,
            ending: false,
            listed,
            unwritten,
            moved,
            answers,
            heard: Instant::ZERO,
            payload_due: None,
            thirsty: None,
            memory_due: None,
        }
    }

    /// Reads into the slices, the first one first, and notes whether there may be more.
    pub(crate) fn readv(&mut self, into: &mut [IoSliceMut<'_>]) -> rustix::io::Result<usize> {
        let got = self.stream.readv(into)?;
        self.readable &= got.more || self.ending;
        self.moved += got.len as u64;
        Ok(got.len)
    }

    /// Writes what the stream holds back, as far as the socket takes it. False when the connection is broken.
    pub(crate) fn flush(&mut self) -> bool {
        while self.writable && !self.stream.is_flushed() {
            match self.stream.flush() {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(_) => return false,
            }
        }
        true
    }

    /// What the loop is to be woken for. Room in the socket only while there is none: a Unix socket tells of it whenever the
    /// client has read a reply, which would be a wake-up a request.
    pub(crate) fn interest(&self) -> EventFlags {
        let room = if self.awaited { EventFlags::OUT } else { EventFlags::empty() };
        EventFlags::IN | EventFlags::RDHUP | EventFlags::ET | room
    }
}

/// A client.
pub(crate) enum Client {
    Nbd(Box<Connection>),
    Iscsi(Box<Initiator>),
    Nvme(Box<Host>),
    /// Another node.
    Peer(Box<PeerLink>),
}

/// What a connection needs of the node to read on.
pub(crate) struct Surroundings<'a> {
    pub plane: &'a mut Plane,
    pub catalog: &'a Catalog,
    pub portal: &'a mut Portal,
    pub chunk: &'a mut [u8],
    pub now: Instant,
}

impl Client {
    pub(crate) fn link(&mut self) -> &mut Link {
        match self {
            Client::Nbd(c) => &mut c.link,
            Client::Iscsi(c) => &mut c.link,
            Client::Nvme(c) => &mut c.link,
            Client::Peer(c) => &mut c.link,
        }
    }
    /// The disk that it uses.
    pub(crate) fn disk(&self) -> Option<usize> {
        match self {
            Client::Nbd(c) => c.disk,
            Client::Iscsi(c) => c.disk,
            Client::Nvme(c) => c.disk,
            Client::Peer(_) => None,
        }
    }
    pub(crate) fn read(&mut self, id: RequestId, around: Surroundings<'_>) -> Stop {
        match self {
            Client::Nbd(c) => c.read(id, around.plane, around.catalog, around.chunk, around.now),
            Client::Iscsi(c) => c.read(id, around),
            Client::Nvme(c) => c.read(id, around),
            Client::Peer(c) => c.read(id, around),
        }
    }
    pub(crate) fn answer(
        &mut self,
        id: RequestId,
        answer: Answer,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) {
        match self {
            Client::Nbd(c) => c.answer(answer, plane, now),
            Client::Iscsi(c) => c.answer(id, answer, plane, portal, now),
            Client::Nvme(c) => c.answer(id, answer, plane, portal, now),
            Client::Peer(c) => c.answer(answer, plane, now),
        }
    }
    /// False when the connection is broken.
    pub(crate) fn write(
        &mut self,
        id: RequestId,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) -> bool {
        match self {
            Client::Nbd(c) => c.write(id, plane, now),
            Client::Iscsi(c) => c.write(id, plane, portal, now),
            Client::Nvme(c) => c.write(id, plane, portal, now),
            Client::Peer(c) => c.write(plane, now),
        }
    }
    /// Whether there is something to write.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Client::Nbd(c) => !c.session.output().is_empty(),
            Client::Iscsi(c) => !c.session.is_sent(),
            Client::Nvme(c) => !c.session.is_sent(),
            Client::Peer(c) => c.has_output(),
        }
    }
    /// Whether all is said.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Client::Nbd(c) => c.session.is_over(),
            Client::Iscsi(c) => c.is_over(),
            Client::Nvme(c) => c.is_over(),
            Client::Peer(c) => c.is_over(),
        }
    }
    /// Whether it is to be put among those that wait for room at its disk; said once.
    pub(crate) fn is_to_wait(&mut self) -> bool {
        match self {
            Client::Nbd(c) => c.is_to_wait(),
            Client::Iscsi(_) | Client::Nvme(_) | Client::Peer(_) => false,
        }
    }
    /// Whether it waits for room or memory.
    pub(crate) fn is_stalled(&self) -> bool {
        match self {
            Client::Nbd(c) => c.is_stalled(),
            Client::Iscsi(c) => c.is_stalled(),
            Client::Nvme(c) => c.is_stalled(),
            Client::Peer(_) => false,
        }
    }
    /// Whether bytes of a payload are to come.
    pub(crate) fn awaits_payload(&self) -> bool {
        match self {
            Client::Nbd(c) => c.awaits_payload(),
            Client::Iscsi(c) => c.session.awaits_data(),
            Client::Nvme(c) => c.session.awaits_data(),
            Client::Peer(_) => false,
        }
    }
    /// Who it is, for people.
    pub(crate) fn describe(&mut self) -> String {
        let from = match self.link().from {
            Some(address) => address.to_string(),
            None => "this machine".to_owned(),
        };
        match self {
            Client::Nbd(_) => format!("an NBD client from {from}"),
            Client::Iscsi(c) => format!("initiator {} from {from}", c.session.initiator()),
            Client::Nvme(_) => format!("an NVMe host from {from}"),
            Client::Peer(_) => format!("a node from {from}"),
        }
    }
    /// Whether reading would get anywhere as soon as nothing holds it back.
    pub(crate) fn has_input(&self) -> bool {
        match self {
            Client::Nbd(c) => c.has_input(),
            Client::Iscsi(c) => c.has_input(),
            Client::Nvme(c) => c.has_input(),
            Client::Peer(c) => c.has_input(),
        }
    }
    /// Whether nothing of it is at its disk, as far as it would be missed there.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Client::Iscsi(c) => c.is_quiet(),
            Client::Nvme(c) => c.is_quiet(),
            Client::Nbd(_) | Client::Peer(_) => true,
        }
    }
    /// The node is about to end.
    pub(crate) fn shut_down(&mut self, portal: &mut Portal) {
        match self {
            Client::Nbd(c) => c.session.shut_down(),
            Client::Iscsi(c) => c.session.shutdown(&mut portal.targets, 5),
            Client::Nvme(c) => c.shut_down(&mut portal.nvme),
            // Needed until every disk is flushed.
            Client::Peer(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_in_the_socket_is_watched_for_only_while_there_is_none() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut link = Link::new(ours.into());
        assert!(!link.interest().contains(EventFlags::OUT) && link.interest().contains(EventFlags::IN));
        link.awaited = true;
        assert!(link.interest().contains(EventFlags::OUT | EventFlags::IN));
    }
}
