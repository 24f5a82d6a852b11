//! What the loop does about other nodes: dials them, lets them in, and notices that they are gone.

use super::{Server, Source};
use crate::client::{Client, Link};
use crate::peer::PeerLink;
use henge_core::RequestId;
use henge_link::Identity;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Links that have not said who they are.
const STRANGERS_MAX: usize = 64;

impl Server {
    /// A new connection for a link, dialled or accepted.
    fn link(&mut self, fd: OwnedFd, dialled: Option<usize>) -> Option<RequestId> {
        let links = &self.plane.links;
        let config = links.config.as_ref()?;
        let mut nonce = [0; 16];
        let drawn = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty());
        if drawn != Ok(nonce.len()) {
            return None;
        }
        let identity = Identity {
            cluster: config.cluster.clone(),
            name: config.name.clone(),
            epoch: links.epoch,
            secret: config.secret.0.clone(),
        };
        let mut link = Link::new(fd);
        if dialled.is_some() {
            (link.readable, link.writable, link.awaited) = (false, false, true); // until it is connected
        }
        let client = Client::Peer(Box::new(PeerLink::new(link, identity, nonce, dialled, self.now)));
        let id = self.connections.next_id();
        let Client::Peer(peer) = &client else { return None };
        self.watch(peer.link.stream.as_fd(), Source::Connection(id), peer.link.interest()).ok()?;
        let id = self.connections.insert(client);
        self.plane.links.connections.push(id);
        self.plane.links.wake_now();
        self.mark(id);
        Some(id)
    }

    /// Somebody came to the links' address.
    pub(super) fn accept_link(&mut self, fd: OwnedFd) {
        let connections = self.plane.links.connections.iter();
        let strangers = { connections }
            .filter(|id| matches!(self.connections.get(**id), Some(Client::Peer(l)) if l.peer.is_none()))
            .count();
        if strangers < STRANGERS_MAX {
            let peer = rustix::net::getpeername(&fd).ok().flatten();
            if let Some(peer) = peer.and_then(|a| SocketAddr::try_from(a).ok()) {
                unpaced(&fd, peer);
            }
            self.link(fd, None);
        }
    }

    /// Pings, dials, gives up.
    pub(super) fn tick_links(&mut self) {
        self.join_links();
        if self.plane.links.wake_at().is_none_or(|at| self.now < at) {
            return;
        }
        let mut stuck = Vec::new();
        self.plane.links.tick(self.now, &mut stuck);
        for id in stuck {
            if let Some(Client::Peer(link)) = self.connections.get_mut(id) {
                link.end("a part was not taken in time");
            }
        }
        for id in self.plane.links.connections.clone() {
            let Some(Client::Peer(link)) = self.connections.get_mut(id) else { continue };
            let at = link.tick(self.now);
            let over = link.is_over();
            self.plane.links.wake_by(at.max(self.now));
            if over {
                self.drop_connection(id);
            } else {
                self.mark(id);
            }
        }
        for p in 0..self.plane.links.peers.len() {
            let links = &self.plane.links;
            let Some(peer) = &links.peers[p] else { continue };
            let due = peer.link.is_none() && peer.dialling.is_none() && peer.retry_at <= self.now;
            if due && links.dials(peer) && self.stopping.is_none() {
                self.dial(p, peer.address);
            }
        }
    }

    fn dial(&mut self, p: usize, address: SocketAddr) {
        match connect(address) {
            Ok(fd) => self.plane.links.peer(p).dialling = self.link(fd, Some(p)),
            Err(e) => self.plane.links.failed(p, &e.to_string(), self.now),
        }
    }

    /// Links that were established in this turn, and those that they replace.
    fn join_links(&mut self) {
        for (peer, id) in std::mem::take(&mut self.plane.links.joined) {
            for old in std::mem::take(&mut self.plane.links.doomed) {
                if let Some(Client::Peer(link)) = self.connections.get_mut(old) {
                    link.end("the other node has started anew");
                }
                self.drop_connection(old);
            }
            if self.connections.get(id).is_some() && self.plane.links.peers[peer].is_some() {
                self.plane.links.up(peer, id);
            }
        }
        for old in std::mem::take(&mut self.plane.links.doomed) {
            self.drop_connection(old);
        }
    }

    /// What links have to say is written with the rest.
    pub(super) fn mark_links(&mut self) {
        while let Some(id) = self.plane.links.dirty.pop() {
            self.mark(id);
        }
    }

    /// A link is over.
    pub(super) fn end_link(&mut self, id: RequestId, link: &mut PeerLink) {
        let why = link.why();
        let now = self.now;
        self.plane.links.connections.retain(|other| *other != id);
        link.release(id, &mut self.plane, now);
        let links = &mut self.plane.links;
        match (link.peer, link.dialled) {
            (Some(p), _) if links.peers[p].as_ref().is_some_and(|peer| peer.link == Some(id)) => {
                links.down(p, &why, now);
            }
            // Also one that was established here and refused there before it was joined: it is dialled again.
            (_, Some(p)) if links.peers[p].as_ref().is_some_and(|peer| peer.dialling == Some(id)) => {
                let name = links.peer(p).config.name.clone();
                links.failed(p, &why, now);
                links.say(format!("no link to {name}: {why}"));
            }
            (None, None) => links.say(format!("a link is refused: {why}")),
            _ => {}
        }
    }

    /// Disks have come or gone.
    pub(super) fn reconsider_links(&mut self, disk: &str) {
        let disk = disk.into();
        for id in self.plane.links.connections.clone() {
            if let Some(Client::Peer(link)) = self.connections.get_mut(id) {
                link.reconsider(&disk, &mut self.plane, self.now);
                self.mark(id);
            }
        }
    }
}

/// A connection that is being made.
fn connect(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(e) => return Err(e),
    }
    let fd = socket.into();
    unpaced(&fd, address);
    Ok(fd)
}

/// A link that stays on this machine is not paced: congestion control that paces (BBR) sends the same in more pieces, which costs a
/// long part a tenth to a quarter of its CPU time where nothing can be congested.
fn unpaced(fd: &OwnedFd, peer: SocketAddr) {
    let here = rustix::net::getsockname(fd).ok().and_then(|a| SocketAddr::try_from(a).ok());
    if peer.ip().is_loopback() || here.is_some_and(|here| here.ip() == peer.ip()) {
        // Reno is always there; where it is refused, the link goes on as the system would have it.
        let _ = rustix::net::sockopt::set_tcp_congestion(fd, "reno");
    }
}
