//! A client's connection, whichever protocol it speaks.

use crate::connection::{Catalog, Connection, Stop};
use crate::initiator::Initiator;
use crate::peer::PeerLink;
use crate::plane::{Answer, Plane};
use crate::portal::Portal;
use henge_core::{Instant, RequestId};
use rustix::event::epoll::EventFlags;
use std::os::fd::OwnedFd;

/// A socket and what is known of it.
pub(crate) struct Link {
    pub fd: OwnedFd,
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
}

impl Link {
    pub(crate) fn new(fd: OwnedFd) -> Link {
        let (readable, writable) = (true, true);
        Link { fd, readable, writable, awaited: false, ending: false, listed: false, unwritten: false }
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
            Client::Peer(c) => &mut c.link,
        }
    }
    /// The disk that it uses.
    pub(crate) fn disk(&self) -> Option<usize> {
        match self {
            Client::Nbd(c) => c.disk,
            Client::Iscsi(c) => c.disk,
            Client::Peer(_) => None,
        }
    }
    pub(crate) fn read(&mut self, id: RequestId, around: Surroundings<'_>) -> Stop {
        match self {
            Client::Nbd(c) => c.read(id, around.plane, around.catalog, around.chunk, around.now),
            Client::Iscsi(c) => c.read(id, around),
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
            Client::Nbd(c) => c.answer(answer, plane),
            Client::Iscsi(c) => c.answer(id, answer, plane, portal, now),
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
            Client::Nbd(c) => c.write(plane),
            Client::Iscsi(c) => c.write(id, plane, portal, now),
            Client::Peer(c) => c.write(plane, now),
        }
    }
    /// Whether there is something to write.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Client::Nbd(c) => !c.session.output().is_empty(),
            Client::Iscsi(c) => !c.session.is_sent(),
            Client::Peer(c) => c.has_output(),
        }
    }
    /// Whether all is said.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Client::Nbd(c) => c.session.is_over(),
            Client::Iscsi(c) => c.is_over(),
            Client::Peer(c) => c.is_over(),
        }
    }
    /// Whether it waits for room or memory.
    pub(crate) fn is_stalled(&self) -> bool {
        match self {
            Client::Nbd(c) => c.stalled.is_some(),
            Client::Iscsi(c) => c.is_stalled(),
            Client::Peer(_) => false,
        }
    }
    /// Whether reading would get anywhere as soon as nothing holds it back.
    pub(crate) fn has_input(&self) -> bool {
        match self {
            Client::Nbd(c) => c.has_input(),
            Client::Iscsi(c) => c.has_input(),
            Client::Peer(c) => c.has_input(),
        }
    }
    /// The node is about to end.
    pub(crate) fn shut_down(&mut self, portal: &mut Portal) {
        match self {
            Client::Nbd(c) => c.session.shut_down(),
            Client::Iscsi(c) => c.session.shutdown(&mut portal.targets, 5),
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
