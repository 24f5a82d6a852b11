//! The other proxies of the file system: links to them, and what flows got there.
//!
//! Of two proxies the one whose name sorts first dials, so there is one link between them; a link that fails is dialled
//! again after 100 ms, then twice as long each time, up to 2 s. Flows are matched by name. While a link is down the
//! synchronizer hears nothing, and what it last heard keeps its place: totals are cumulative, so the first message after
//! healing makes up for all that was missed.
//!
//! Links have a poller of their own. What they bring matters when the gate chooses next, and to nobody before: while
//! clients and servers keep the loop going, no message wakes it. It looks at the links when a request is over, and at
//! least each 5 ms ([`is_due`](Peers::is_due)).

mod certificates;
mod messages;
/// Accepts nobody for a moment: links that end make room.
fn rest(peers: &mut Peers, now: Instant) {
    peers.due.accepts = Some(now + crate::socket::REST);
    // A poller that forgets the listener forgets it for good: nothing better can be done.
    let _ = peers.poller.change(&peers.listener, LINK_LISTEN, Interest::default());
}

#[cfg(test)]
mod tests;
mod wire;

use crate::complaints::Complaint;
use crate::config::{Config, PeersConfig, Proof, ProxyError};
use crate::poller::{Happened, Interest, Poller};
use certificates::Certificates;
use henge_core::{Cost, Duration, FlowId, Instant, NodeId, Striping};
use henge_link::{Identity, Link, LinkEvent, Message, Role};
use henge_pvfs2::{Capability, Writer};
use henge_sched::foreign::{Outbox, Served, Synchronizer};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use wire::Wire;

const RETRY_LEAST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(2);
/// Links that have not said who they are yet, or are no peers of ours.
const STRANGERS_MAX: usize = 64;
/// Of them, links of one address: who takes its own places takes nobody else's.
const STRANGERS_EACH: usize = 16;
/// Links are looked at no later than this, however busy the loop is.
pub const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Read from a link at once.
const PIECE: usize = 16 << 10;
/// Unsent bytes to one peer; one that does not read is given up.
const OUTPUT_MAX: usize = 1 << 20;

/// This proxy, as it numbers nodes; peers follow.
const HERE: NodeId = NodeId(0);

struct Peer {
    name: String,
    address: SocketAddr,
    link: Option<u64>,
    retry_at: Instant,
    patience: Duration,
}

struct Joined {
    wire: Wire,
    /// By TLS: who its certificate says it is, once that is known.
    shown: Option<henge_tls::Identity>,
    link: Link,
    unread: Vec<u8>,
    told: Interest,
    /// Where the other end is.
    from: Option<IpAddr>,
    /// Which peer, once that is known.
    peer: Option<usize>,
    /// Its numbers of flows, as ours.
    flows: BTreeMap<u32, FlowId>,
}

/// What peers told.
pub enum Told {
    /// A flow received so much at other nodes.
    Foreign(FlowId, Cost),
    /// A user was given a capability.
    Identity(Capability, u32),
}

/// What the links did, for reports.
#[derive(Clone, Copy, Default, Debug)]
pub struct PeerCounts {
    /// Messages to peers.
    pub sent: u64,
    /// Messages from peers.
    pub received: u64,
    /// Bytes to them.
    pub bytes_sent: u64,
    /// Links that were refused.
    pub refused: u64,
}

/// All links, and the synchronizer they feed.
pub struct Peers {
    identity: Identity,
    certificates: Option<Certificates>,
    listener: TcpListener,
    peers: Vec<Peer>,
    joined: BTreeMap<u64, Joined>,
    next_name: u64,
    foreign: Foreign,
    counts: PeerCounts,
    refused: Complaint,
    /// Of the listener and the links.
    poller: Poller,
    happened: Vec<Happened>,
    /// What is read from a link.
    piece: Box<[u8]>,
    due: Due,
    /// Until somebody takes it.
    pub told: Vec<Told>,
}

/// Flows' service at other nodes, and what others are told of theirs here.
struct Foreign {
    /// Names of flows; their numbers are places.
    flows: Vec<String>,
    synchronizer: Box<dyn Synchronizer>,
    outbox: Outbox,
}

/// When the links are looked at, and what there is to do then.
struct Due {
    /// A request was over since the links were looked at.
    news_matter: bool,
    looked: Instant,
    /// Links and dials need nothing before.
    links: Instant,
    /// Nobody is accepted before.
    accepts: Option<Instant>,
    /// Something may wait to be written.
    unsent: bool,
}

/// Names of links and of their listener, for the poller.
pub const LINK: u64 = 1 << 43;
pub const LINK_LISTEN: u64 = 1 << 44;

impl Peers {
    /// Opens the listener; links are dialled by [`tick`](Self::tick).
    pub fn new(config: &Config, peers: &PeersConfig, epoch: u64) -> Result<Self, ProxyError> {
        let what = || format!("listening for peers on {}", peers.listen);
        let listener = TcpListener::bind(peers.listen).map_err(|e| ProxyError::io(what(), e))?;
        listener.set_nonblocking(true).map_err(|e| ProxyError::io(what(), e))?;
        let poller = Poller::new().map_err(|e| ProxyError::io("epoll", e))?;
        poller.add(&listener, LINK_LISTEN, Interest::READ).map_err(|e| ProxyError::io(what(), e))?;
        let certificates = match &peers.proof {
            Proof::Secret(_) => None,
            Proof::Identity(files) => Some(Certificates::open(files, &peers.name)?),
        };
        let secret = match &peers.proof {
            Proof::Secret(secret) => secret.clone().into_bytes(),
            // What both ends of a connection know takes its place.
            Proof::Identity(_) => Vec::new(),
        };
        let identity = Identity { cluster: peers.cluster.clone(), name: peers.name.clone(), epoch, secret };
        let mut knobs = peers.sync.clone();
        let mut synchronizer = henge_sched::foreign::synchronizer(&mut knobs, HERE, epoch)
            .map_err(|e| config.source.point(e))?;
        let nodes: Vec<NodeId> = (0..=peers.peers.len() as u32).map(NodeId).collect();
        for flow in 0..config.flows.len() {
            synchronizer.set_flow(FlowId(flow as u32), &nodes);
        }
        let peer = |(name, address): &(String, SocketAddr)| Peer {
            name: name.clone(),
            address: *address,
            link: None,
            retry_at: Instant::ZERO,
            patience: RETRY_LEAST,
        };
        Ok(Peers {
            identity,
            certificates,
            listener,
            peers: peers.peers.iter().map(peer).collect(),
            joined: BTreeMap::new(),
            next_name: LINK,
            foreign: Foreign {
                flows: config.flows.iter().map(|f| f.name.clone()).collect(),
                synchronizer,
                outbox: Outbox::new(),
            },
            counts: PeerCounts::default(),
            refused: Complaint::default(),
            poller,
            happened: Vec::new(),
            piece: vec![0; PIECE].into(),
            due: Due {
                news_matter: false,
                looked: Instant::ZERO,
                links: Instant::ZERO,
                accepts: None,
                unsent: false,
            },
            told: Vec::new(),
        })
    }

    /// Tells when something happened on a link.
    pub fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Whether the links should be [looked at](Self::look) before the gate chooses.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.news_matter || now.since(self.due.looked) >= LOOK_EVERY
    }

    /// Takes in what has come; what it says is appended to [`told`](Self::told).
    pub fn look(&mut self, now: Instant) -> io::Result<()> {
        (self.due.looked, self.due.news_matter) = (now, false);
        let mut happened = std::mem::take(&mut self.happened);
        self.poller.wait(Some(Duration::ZERO), &mut happened)?;
        for event in happened.drain(..) {
            match event.name {
                LINK_LISTEN => self.accept(now),
                name => self.moved(name, now),
            }
        }
        self.happened = happened;
        Ok(())
    }

    /// Where peers come in (a port of 0 is chosen by the kernel).
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Peers that are linked, and all.
    pub fn linked(&self) -> (usize, usize) {
        (self.peers.iter().filter(|p| p.link.is_some()).count(), self.peers.len())
    }

    pub fn counts(&self) -> PeerCounts {
        self.counts
    }

    /// When [`tick`](Self::tick) is due.
    pub fn wake_at(&self) -> Instant {
        self.foreign.synchronizer.wake_at().map_or(self.due.links, |at| at.min(self.due.links))
    }

    fn links_wake_at(&self) -> Option<Instant> {
        let retries = self.peers.iter().filter(|p| p.link.is_none() && self.dials(p)).map(|p| p.retry_at);
        let links = self.joined.values().map(|j| j.link.wake_at());
        retries.chain(links).min()
    }

    fn dials(&self, peer: &Peer) -> bool {
        self.identity.name < peer.name
    }

    /// Dials who is missing, pings, gives up who is silent, and writes what there is to say.
    pub fn tick(&mut self, now: Instant) {
        if self.due.accepts.take_if(|at| *at <= now).is_some() {
            let _ = self.poller.change(&self.listener, LINK_LISTEN, Interest::READ);
        }
        if self.due.links <= now {
            self.look_at_certificates(now);
            self.dial(now);
            let silent: Vec<u64> =
                self.joined.iter_mut().filter_map(|(name, j)| (!j.link.tick(now)).then_some(*name)).collect();
            silent.into_iter().for_each(|name| self.part(name, now));
            self.due.unsent = true;
            // What is said or heard until then only puts it off.
            self.due.links = self.links_wake_at().unwrap_or(now + RETRY_MOST);
        }
        if self.foreign.synchronizer.wake_at().is_some_and(|t| t <= now) {
            self.foreign.synchronizer.tick(now, &mut self.foreign.outbox);
        }
        self.send(now);
    }

    /// Ends links whose certificates count no more.
    fn look_at_certificates(&mut self, now: Instant) {
        if !self.certificates.as_mut().is_some_and(Certificates::have_changed) {
            return;
        }
        let gone =
            self.joined.iter_mut().filter_map(|(name, j)| j.wire.look_again().is_err().then_some(*name));
        let gone: Vec<u64> = gone.collect();
        gone.into_iter().for_each(|name| self.part(name, now));
    }

    fn dial(&mut self, now: Instant) {
        for i in 0..self.peers.len() {
            let peer = &self.peers[i];
            if peer.link.is_some() || peer.retry_at > now || !self.dials(peer) {
                continue;
            }
            let address = peer.address;
            let patience = (peer.patience * 2).min(RETRY_MOST);
            let peer = &mut self.peers[i];
            (peer.retry_at, peer.patience) = (now + peer.patience, patience);
            // One that does not answer is given up by its link, as any that is silent.
            if let Ok(socket) = crate::socket::connect(address)
                && let Some(name) = self.join(socket, Role::Dialler, now)
            {
                self.peers[i].link = Some(name);
                self.joined.get_mut(&name).expect("just joined").peer = Some(i);
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        loop {
            let (socket, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if crate::socket::lacks_descriptors(&e) => return rest(self, now),
                Err(_) => return,
            };
            let strangers = || self.joined.values().filter(|j| j.peer.is_none());
            let of_its_own = strangers().filter(|j| j.from == Some(from.ip())).count();
            let takes = strangers().count() < STRANGERS_MAX && of_its_own < STRANGERS_EACH;
            if takes && crate::socket::prepare(&socket).is_ok() {
                self.join(socket, Role::Dialled, now);
            }
        }
    }

    fn join(&mut self, socket: TcpStream, role: Role, now: Instant) -> Option<u64> {
        crate::socket::unpace_within_machine(&socket);
        let mut drawn = [0; 48];
        let got = rustix::rand::getrandom(&mut drawn, rustix::rand::GetRandomFlags::empty());
        if got != Ok(drawn.len()) {
            return None;
        }
        let (nonce, unknown) = drawn.split_first_chunk::<16>().expect("48 bytes");
        let mut identity = self.identity.clone();
        let tls = self.certificates.as_ref().map(|certificates| &certificates.tls);
        if tls.is_some() {
            // Until TLS says what both ends know, nobody knows it.
            identity.secret = unknown.to_vec();
        }
        let from = socket.peer_addr().ok().map(|peer| peer.ip());
        let wire = Wire::new(socket, tls, role == Role::Dialler)?;
        let name = self.next_name;
        self.next_name += 1;
        let told = Interest { read: true, write: true };
        self.poller.add(&wire, name, told).ok()?;
        let link = Link::new(identity, role, *nonce, now);
        let (shown, unread, flows) = (None, Vec::new(), BTreeMap::new());
        let joined = Joined { wire, shown, link, unread, told, from, peer: None, flows };
        self.joined.insert(name, joined);
        self.due.links = now;
        Some(name)
    }

    fn part(&mut self, name: u64, now: Instant) {
        let Some(joined) = self.joined.remove(&name) else { return };
        if let Some(peer) = joined.peer.map(|i| &mut self.peers[i]).filter(|p| p.link == Some(name)) {
            if joined.link.peer().is_some() {
                tracing::warn!(peer = peer.name, "the link is lost; its service is not counted meanwhile");
            }
            peer.link = None;
            peer.retry_at = peer.retry_at.max(now + RETRY_LEAST);
            self.due.links = now;
        }
    }

    /// Bytes can move on a link.
    fn moved(&mut self, name: u64, now: Instant) {
        self.due.unsent = true;
        let mut piece = std::mem::take(&mut self.piece);
        if self.hear(name, &mut piece, now).is_err() {
            self.part(name, now);
        }
        self.piece = piece;
    }

    fn hear(&mut self, name: u64, piece: &mut [u8], now: Instant) -> io::Result<()> {
        loop {
            let Some(joined) = self.joined.get_mut(&name) else { return Ok(()) };
            match joined.wire.read(piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    if joined.shown.is_none()
                        && let Some((shown, secret)) = joined.wire.proven()
                    {
                        joined.shown = shown;
                        joined.link.prove_by(secret.to_vec());
                    }
                    joined.unread.extend_from_slice(&piece[..n]);
                    let all = n < piece.len() && !joined.wire.is_secure();
                    self.understand(name, now)?;
                    if all {
                        return Ok(()); // that was all
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
        }
    }

    fn understand(&mut self, name: u64, now: Instant) -> io::Result<()> {
        while let Some(joined) = self.joined.get_mut(&name) {
            let received = match joined.link.receive(&joined.unread, now) {
                Ok(received) => received,
                Err(refusal) => {
                    self.counts.refused += 1;
                    if let Some(left_out) = self.refused.is_due(now) {
                        tracing::warn!(why = %refusal, left_out, "a link is refused");
                    }
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
            };
            joined.unread.drain(..received.len);
            match received.event {
                None => {}
                Some(LinkEvent::NeedMore(_)) => break,
                Some(LinkEvent::Established { name: peer, .. }) => self.established(name, &peer, now)?,
                Some(LinkEvent::Message { data, .. }) if data > 0 => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                Some(LinkEvent::Message { message, .. }) => {
                    self.counts.received += 1;
                    self.message(name, message, now);
                }
            }
        }
        Ok(())
    }

    fn established(&mut self, name: u64, peer: &str, now: Instant) -> io::Result<()> {
        let Some(i) = self.peers.iter().position(|p| p.name == peer) else {
            tracing::warn!(peer, "it is no peer of ours; add [[peer]] with its name if it should be");
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let shown = self.joined.get(&name).and_then(|joined| joined.shown.as_ref());
        let fits = |own: &henge_tls::Identity| {
            shown.is_some_and(|who| who.role == own.role && who.cluster == own.cluster && who.name == peer)
        };
        if self.certificates.as_ref().is_some_and(|certificates| !fits(&certificates.own)) {
            let shown = shown.map_or_else(|| "nobody's".to_owned(), |who| format!("{who}'s"));
            tracing::warn!(
                peer,
                "its certificate is {shown}: a proxy's `node` in [cluster] is its certificate's name, as `henge ca invite proxy {peer}` gives it"
            );
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // A peer that started anew is here before its old link is noticed to be dead.
        if let Some(old) = self.peers[i].link.replace(name).filter(|old| *old != name) {
            self.joined.remove(&old);
        }
        tracing::info!(peer, "linked");
        self.peers[i].patience = RETRY_LEAST;
        let joined = self.joined.get_mut(&name).expect("it just spoke");
        joined.peer = Some(i);
        for (id, flow) in self.foreign.flows.iter().enumerate() {
            joined.link.send(&Message::Flow { id: id as u32, name: flow.clone() }, &[], now);
        }
        Ok(())
    }

    /// A request of `flow` came; `striping` says where here is in the file's layout.
    pub fn arrived(&mut self, flow: FlowId, striping: Option<&Striping>, now: Instant) {
        if let Some(striping) = striping {
            self.foreign.synchronizer.set_striping(flow, striping);
        }
        self.foreign.synchronizer.arrived(flow, now, &mut self.foreign.outbox);
    }

    /// A request is over; what became known of the flow's service elsewhere with it.
    pub fn served(&mut self, served: &Served, striping: Option<&Striping>, now: Instant) -> Cost {
        if let Some(striping) = striping {
            self.foreign.synchronizer.set_striping(served.flow, striping);
        }
        self.due.news_matter = true;
        self.foreign.synchronizer.served(served, now, &mut self.foreign.outbox)
    }

    /// The layout of a file with `servers` servers of which this is number `at`. Who the others are cannot be known from
    /// a request; peers take their places in order, since only their number counts.
    pub fn striping(&self, stripe: u64, at: u32, servers: u32) -> Option<Striping> {
        if servers as usize > self.peers.len() + 1 || at >= servers {
            return None; // servers without a proxy of ours: nothing can be said of the whole
        }
        let others = (1..servers).map(NodeId);
        let mut nodes: Vec<NodeId> = others.collect();
        nodes.insert(at as usize, HERE);
        Some(Striping { stripe, nodes })
    }

    /// Tells all peers whose a capability is.
    pub fn identified(&mut self, capability: &Capability, uid: u32, now: Instant) {
        let mut w = Writer::new();
        capability.write(&mut w);
        let message = Message::Identity { capability: w.into_bytes(), uid };
        for joined in self.joined.values_mut().filter(|j| j.link.peer().is_some()) {
            joined.link.send(&message, &[], now);
            self.counts.sent += 1;
            self.due.unsent = true;
        }
    }

    /// Writes what there is to say, if anything.
    pub fn send(&mut self, now: Instant) {
        if !std::mem::take(&mut self.due.unsent) && self.foreign.outbox.is_empty() {
            return;
        }
        let mut outbox = std::mem::take(&mut self.foreign.outbox);
        for (node, sync) in outbox.drain(..) {
            let link = (node.0 as usize).checked_sub(1).and_then(|i| self.peers.get(i)).and_then(|p| p.link);
            let message = self.wire(&sync);
            let joined = link.and_then(|name| self.joined.get_mut(&name)).filter(|j| j.link.peer().is_some());
            if let Some(joined) = joined {
                joined.link.send(&message, &[], now);
                self.counts.sent += 1;
            }
        }
        self.foreign.outbox = outbox;
        let mut failed = Vec::new();
        for (name, joined) in &mut self.joined {
            match joined.write() {
                Ok(written) => self.counts.bytes_sent += written as u64,
                Err(_) => failed.push(*name),
            }
            let wanted = Interest {
                read: true,
                write: !joined.link.output().is_empty() || joined.wire.has_unwritten(),
            };
            if joined.told != wanted {
                joined.told = wanted;
                if self.poller.change(&joined.wire, *name, wanted).is_err() {
                    failed.push(*name);
                }
            }
        }
        failed.into_iter().for_each(|name| self.part(name, now));
    }
}

impl Joined {
    fn write(&mut self) -> io::Result<usize> {
        self.wire.flush()?;
        let output = self.link.output();
        let mut written = 0;
        let result = loop {
            if written == output.len() {
                break Ok(());
            }
            match self.wire.write(&output[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        output.drain(..written);
        if output.len() > OUTPUT_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        result.map(|()| written)
    }
}
