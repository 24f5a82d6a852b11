//! What the loop does about other nodes: dials them, lets them in, and notices that they are gone.

use super::{Server, Source};
use crate::client::Client;
use crate::link::Link;
use crate::links::Peer;
use crate::peer::PeerLink;
use crate::session::Session;
use crate::spread::seating;
use henge_core::RequestId;
use henge_link::Identity;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Links that have not said who they are.
const STRANGERS_MAX: usize = 64;
/// Of them, links of one address: who takes its own slots takes nobody else's.
const STRANGERS_EACH: usize = 16;

impl Server {
    /// A new connection for a link, dialled or accepted.
    fn link(&mut self, fd: OwnedFd, dialled: Option<usize>) -> Option<RequestId> {
        let links = &self.plane.links;
        let config = links.config.as_ref()?;
        let (mut nonce, mut unknown) = ([0; 16], [0; 32]);
        for bytes in [&mut nonce[..], &mut unknown] {
            let drawn = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty());
            if drawn != Ok(bytes.len()) {
                return None;
            }
        }
        // Until TLS says what both ends know, nobody knows it.
        let secret = config.secret.as_ref().map_or(unknown.to_vec(), |secret| secret.0.clone());
        let certified = config.secret.is_none();
        let identity = Identity {
            cluster: config.cluster.clone(),
            name: config.name.clone(),
            epoch: links.epoch,
            secret,
        };
        let mut link = Link::new(fd);
        let mut own = None;
        if certified {
            let tls = self.tls.as_ref()?;
            let dial = tls.dial()?;
            let begun = match dialled {
                Some(_) => link.stream.dial(tls, &dial),
                None => link.stream.secure(tls),
            };
            if !begun {
                return None;
            }
            own = Some(dial.own);
        }
        if dialled.is_some() {
            (link.readable, link.writable, link.awaited) = (false, false, true); // until it is connected
        }
        let peer = PeerLink::new(identity, nonce, dialled, self.now).certified(own);
        let client = Client::node(link, peer);
        let (id, link) = (self.connections.next_id(), &client.link);
        self.watch(link.stream.as_fd(), Source::Connection(id), link.interest()).ok()?;
        let id = self.connections.insert(client);
        self.plane.links.connections.push(id);
        self.plane.links.alarm.now();
        self.mark(id);
        Some(id)
    }

    /// Somebody came to the links' address.
    pub(super) fn accept_link(&mut self, fd: OwnedFd) {
        let connections = self.plane.links.connections.iter();
        let connections = connections.filter_map(|id| self.connections.get(*id));
        let strangers = connections
            .filter(|client| client.seen::<PeerLink>().is_some_and(|link| link.peer.is_none()))
            .map(|client| peer_of(&client.link.stream).map(|peer| peer.ip()));
        let strangers: Vec<_> = strangers.collect();
        let peer = peer_of(&fd);
        let of_its_own = strangers.iter().filter(|ip| **ip == peer.map(|peer| peer.ip())).count();
        if strangers.len() < STRANGERS_MAX && of_its_own < STRANGERS_EACH {
            if let Some(peer) = peer {
                unpaced(&fd, peer);
            }
            self.link(fd, None);
        }
    }

    /// Pings, dials, gives up.
    pub(super) fn tick_links(&mut self) {
        self.join_links();
        if self.plane.links.alarm.at().is_none_or(|at| self.now < at) {
            return;
        }
        let mut stuck = Vec::new();
        self.plane.links.tick(self.now, &mut stuck);
        for p in std::mem::take(&mut self.plane.links.lost) {
            self.plane.links.down(p, "it ended, and no other one was made", self.now);
            seating::lost_link(&mut self.plane, p, self.now);
        }
        for id in stuck {
            if let Some(link) = self.connections.get_mut(id).and_then(Client::session::<PeerLink>) {
                link.end("a part was not taken in time");
            }
        }
        for id in self.plane.links.connections.clone() {
            let link = self.connections.get_mut(id).and_then(Client::session::<PeerLink>);
            let Some(link) = link else { continue };
            let at = link.look(self.now);
            let over = link.is_over();
            self.plane.links.alarm.by(at.max(self.now));
            if over {
                self.drop_connection(id);
            } else {
                self.mark(id);
            }
        }
        for p in 0..self.plane.links.peers.len() {
            let links = &self.plane.links;
            let Some(peer) = &links.peers[p] else { continue };
            let due = peer.link.is_none() && peer.dialling.is_none() && peer.redial.at <= self.now;
            let dated = !due && self.is_dated(peer);
            let address = peer.address;
            if (due || dated) && links.dials(peer) && self.stopping.is_none() {
                if dated {
                    self.plane.links.peer(p).renewal.begun(self.now);
                }
                self.dial(p, address);
            }
        }
    }

    /// Whether a peer's link, which goes on meanwhile, is to be exchanged for one by newer certificates.
    fn is_dated(&self, peer: &Peer) -> bool {
        let link = peer.link.filter(|_| peer.dialling.is_none() && peer.renewal.at <= self.now);
        let client = link.and_then(|id| self.connections.get(id));
        client.is_some_and(|client| client.link.stream.is_dated())
    }

    fn dial(&mut self, p: usize, address: SocketAddr) {
        match connect(address) {
            Ok(fd) => self.plane.links.peer(p).dialling = self.link(fd, Some(p)),
            Err(e) => self.plane.links.failed(p, &e.to_string(), self.now),
        }
    }

    /// Links that were established in this turn, and those that they replace.
    fn join_links(&mut self) {
        for (peer, id, epoch) in std::mem::take(&mut self.plane.links.joined) {
            self.plane.links.replace(peer, id, epoch, self.now);
            for old in std::mem::take(&mut self.plane.links.doomed) {
                if let Some(link) = self.connections.get_mut(old).and_then(Client::session::<PeerLink>) {
                    link.end("the other node has started anew");
                }
                self.drop_connection(old);
            }
            if self.connections.get(id).is_some() && self.plane.links.peers[peer].is_some() {
                let forgot = self.plane.links.up(peer, id, epoch);
                let disks = if forgot { self.plane.links.peer(peer).extents.disks() } else { Vec::new() };
                // What a gateway has answered of a shared disk is durable.
                let kept = |disk: &usize| self.plane.disks[*disk].as_ref().is_some_and(|d| !d.is_shared());
                let disks: Vec<usize> = disks.into_iter().filter(kept).collect();
                disks.into_iter().for_each(|disk| self.doubt(disk));
            }
        }
        for old in std::mem::take(&mut self.plane.links.doomed) {
            self.drop_connection(old);
        }
    }

    /// A peer may have lost what it answered for this disk. Whoever is connected has seen no connection end, and hears of it by one FLUSH
    /// that fails; whoever comes later reads what is there.
    fn doubt(&mut self, disk: usize) {
        let none = RequestId { slot: 0, generation: 0 };
        let all = self.users.range((disk, none)..(disk + 1, none)).map(|(_, id)| *id);
        self.plane.disks.of(disk).doubted.extend(all);
    }

    /// Everything is flushed, and this node ends: its peers need doubt nothing that it answered.
    pub(super) fn say_ended(&mut self) {
        for id in self.plane.links.connections.clone() {
            if let Some(link) = self.connections.get_mut(id).and_then(Client::session::<PeerLink>) {
                link.say_ended(self.now);
                self.write(id);
            }
        }
    }

    /// What links have to say is written with the rest.
    pub(super) fn mark_links(&mut self) {
        while let Some(id) = self.plane.links.dirty.pop() {
            self.mark(id);
        }
    }

    /// Disks have come or gone.
    pub(super) fn reconsider_links(&mut self, disk: &str) {
        let disk = disk.into();
        for id in self.plane.links.connections.clone() {
            if let Some(link) = self.connections.get_mut(id).and_then(Client::session::<PeerLink>) {
                link.reconsider(&disk, &mut self.plane, self.now);
                self.mark(id);
            }
        }
    }
}

/// Who is at the other end.
fn peer_of(fd: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getpeername(fd).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok())
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
