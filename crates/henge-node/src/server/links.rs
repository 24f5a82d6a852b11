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

/// A new connection for a link, dialled or accepted.
fn link(server: &mut Server, fd: OwnedFd, dialled: Option<usize>) -> Option<RequestId> {
    let links = &server.plane.links;
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
    let identity =
        Identity { cluster: config.cluster.clone(), name: config.name.clone(), epoch: links.epoch, secret };
    let mut link = Link::new(fd);
    link.stream.lend_shakes();
    let mut own = None;
    if certified {
        let tls = server.entrance.tls.as_ref()?;
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
    let peer = PeerLink::new(identity, nonce, dialled, server.now).certified(own);
    let client = Client::node(link, peer);
    let (id, link) = (server.clients.all.next_id(), &client.link);
    server.watch(link.stream.as_fd(), Source::Connection(id), link.interest()).ok()?;
    let id = server.clients.all.insert(client);
    server.plane.links.connections.push(id);
    server.plane.links.alarm.now();
    server.mark(id);
    Some(id)
}

/// Somebody came to the links' address.
pub(super) fn accept_link(server: &mut Server, fd: OwnedFd) {
    let connections = server.plane.links.connections.iter();
    let connections = connections.filter_map(|id| server.clients.all.get(*id));
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
        link(server, fd, None);
    }
}

/// Pings, dials, gives up.
pub(super) fn tick_links(server: &mut Server) {
    join_links(server);
    if server.plane.links.alarm.at().is_none_or(|at| server.now < at) {
        return;
    }
    let mut stuck = Vec::new();
    server.plane.links.tick(server.now, &mut stuck);
    for p in std::mem::take(&mut server.plane.links.lost) {
        server.plane.links.down(p, "it ended, and no other one was made", server.now);
        seating::lost_link(&mut server.plane, p, server.now);
    }
    for id in stuck {
        if let Some(link) = server.clients.all.get_mut(id).and_then(Client::session::<PeerLink>) {
            link.end("a part was not taken in time");
        }
    }
    for id in server.plane.links.connections.clone() {
        let link = server.clients.all.get_mut(id).and_then(Client::session::<PeerLink>);
        let Some(link) = link else { continue };
        let at = link.look(server.now);
        let over = link.is_over();
        server.plane.links.alarm.by(at.max(server.now));
        if over {
            server.drop_connection(id);
        } else {
            server.mark(id);
        }
    }
    for p in 0..server.plane.links.peers.len() {
        let links = &server.plane.links;
        let Some(peer) = &links.peers[p] else { continue };
        let due = peer.link.is_none() && peer.dialling.is_none() && peer.redial.at <= server.now;
        let dated = !due && is_dated(server, peer);
        let address = peer.address;
        if (due || dated) && links.dials(peer) && server.stopping.is_none() {
            if dated {
                server.plane.links.peer(p).renewal.begun(server.now);
            }
            dial(server, p, address);
        }
    }
}

/// Whether a peer's link, which goes on meanwhile, is to be exchanged for one by newer certificates.
fn is_dated(server: &Server, peer: &Peer) -> bool {
    let link = peer.link.filter(|_| peer.dialling.is_none() && peer.renewal.at <= server.now);
    let client = link.and_then(|id| server.clients.all.get(id));
    client.is_some_and(|client| client.link.stream.is_dated())
}

fn dial(server: &mut Server, p: usize, address: SocketAddr) {
    match connect(address) {
        Ok(fd) => server.plane.links.peer(p).dialling = link(server, fd, Some(p)),
        Err(e) => server.plane.links.failed(p, &e.to_string(), server.now),
    }
}

/// Links that were established in this turn, and those that they replace.
fn join_links(server: &mut Server) {
    for (peer, id, epoch) in std::mem::take(&mut server.plane.links.joined) {
        server.plane.links.replace(peer, id, epoch, server.now);
        for old in std::mem::take(&mut server.plane.links.doomed) {
            if let Some(link) = server.clients.all.get_mut(old).and_then(Client::session::<PeerLink>) {
                link.end("the other node has started anew");
            }
            server.drop_connection(old);
        }
        if server.clients.all.get(id).is_some() && server.plane.links.peers[peer].is_some() {
            let forgot = server.plane.links.up(peer, id, epoch);
            let disks = if forgot { server.plane.links.peer(peer).extents.disks() } else { Vec::new() };
            // What a gateway has answered of a shared disk is durable.
            let kept = |disk: &usize| server.plane.disks[*disk].as_ref().is_some_and(|d| !d.is_shared());
            let disks: Vec<usize> = disks.into_iter().filter(kept).collect();
            disks.into_iter().for_each(|disk| doubt(server, disk));
        }
    }
    for old in std::mem::take(&mut server.plane.links.doomed) {
        server.drop_connection(old);
    }
}

/// A peer may have lost what it answered for this disk. Whoever is connected has seen no connection end, and hears of it by one FLUSH
/// that fails; whoever comes later reads what is there.
fn doubt(server: &mut Server, disk: usize) {
    let none = RequestId { slot: 0, generation: 0 };
    let all = server.clients.users.range((disk, none)..(disk + 1, none)).map(|(_, id)| *id);
    server.plane.disks.of(disk).doubts.connections.extend(all);
}

/// Everything is flushed, and this node ends: its peers need doubt nothing that it answered.
pub(super) fn say_ended(server: &mut Server) {
    for id in server.plane.links.connections.clone() {
        if let Some(link) = server.clients.all.get_mut(id).and_then(Client::session::<PeerLink>) {
            link.say_ended(server.now);
            server.write(id);
        }
    }
}

/// What links have to say is written with the rest.
pub(super) fn mark_links(server: &mut Server) {
    while let Some(id) = server.plane.links.dirty.pop() {
        server.mark(id);
    }
}

/// Disks have come or gone.
pub(super) fn reconsider_links(server: &mut Server, disk: &str) {
    let disk = disk.into();
    for id in server.plane.links.connections.clone() {
        if let Some(link) = server.clients.all.get_mut(id).and_then(Client::session::<PeerLink>) {
            link.reconsider(&disk, &mut server.plane, server.now);
            server.mark(id);
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
