//! The other nodes: which are linked, and the parts of commands that are on their way to them and back.
//!
//! A part waits until its extent is attached and has a credit, then until the link takes it, then for its answer. All that
//! time counts: what is not answered by the link's `timeout` fails, and so does at once everything that a peer is given while it
//! has no link, or has not been given when its link is lost. A change that the peer has may still be done there: its bytes may be on their
//! way. If it failed at once, its client could write the same place by another node, and be overwritten afterwards. So it fails once
//! the old link has surely ended at the other end, too ([`IN_DOUBT`]). Credits are counted for each extent, so a flow whose parts a peer does not
//! answer holds up itself alone.
//!
//! Buffers. A part has its command's bytes on loan, and gives them back before its command may go on. Once some of them
//! are in the socket the rest must follow, so a part that is half written is never given up without its link.

mod lives;
mod parts;
mod peer;
#[cfg(test)]
mod tests;

use crate::link_config::{LinkConfig, PeerConfig};
use crate::spread::acts::Seated;
use henge_backend::Buffer;
use henge_core::{Cost, CostUnit, Duration, Instant, Pending, RequestId};
use henge_link::{Message, PartKind, WireUnit};
use henge_sched::foreign::Totals;
use henge_vdisk::{Failure, Part};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A lost link is dialled again after so long …
const RETRY_LEAST: Duration = Duration::from_millis(100);
/// … and after twice as long each time, up to this: what is healed is back soon.
const RETRY_MOST: Duration = Duration::from_secs(1);
/// A part for which the peer had no room is sent again after so long.
const LATER: Duration = Duration::from_millis(5);
/// A change that was with a peer when its link was lost fails when there is another link (the peer ends the old one first), nobody
/// listens there, or this time is over: both ends give up a link that has been silent for 4 s.
const IN_DOUBT: Duration = Duration::from_secs(5);
/// A link that ends while another to the same peer is being made is taken for replaced for so long.
const REPLACED: Duration = Duration::from_secs(2);
/// Whether a link's certificates are dated is asked again after so long, and after twice as long each time while they stay so …
const RENEW_LEAST: Duration = Duration::from_secs(3);
/// … up to this.
const RENEW_MOST: Duration = Duration::from_secs(60);
/// How often parts are looked at for their deadline.
const LOOK: Duration = Duration::from_millis(250);
/// Extents asked for in a step when a link is made.
const STEP: u32 = 256;
/// So many numbers of extents rest before the first of them is used again: what a peer says of it is not of its last use.
const RESTING: usize = 1024;
/// Parts handed out to one extent at once, sent or not.
pub(crate) const PARTS_MAX: u32 = 16_384;

/// A part is over.
#[derive(Debug)]
pub(crate) struct Return {
    pub disk: usize,
    pub part: Part,
    /// Which extent of the disk.
    pub extent: u32,
    pub outcome: Result<(), Failure>,
    pub cost: Cost,
}

/// What a part asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub kind: PartKind,
    pub offset: u64,
    pub len: u64,
    pub commands: u32,
    /// Where in the command's buffer the bytes to compare with stand.
    pub verify: u64,
}

impl Ask {
    /// Bytes that go with it.
    pub(crate) fn data(&self) -> usize {
        match self.kind {
            PartKind::Write { .. } => self.len as usize,
            PartKind::CompareAndWrite { .. } => 2 * self.len as usize,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// For a credit, or for the extent to be attached.
    Waiting,
    /// On the link's queue.
    Queued,
    /// Handed to the link; its bytes must stay.
    Writing,
    /// Gone; its answer is to come.
    Written,
}

/// A part at a peer, or on its way.
#[derive(Debug)]
struct Sent {
    disk: usize,
    part: Part,
    toward: u32,
    ask: Ask,
    /// The command's own bytes.
    loan: Buffer,
    stage: Stage,
    /// Nobody wants it any more: it does not go again.
    unwanted: bool,
    /// None where it may wait for ever.
    deadline: Option<Instant>,
    /// The requests of the same extent before and after this one.
    older: Option<RequestId>,
    newer: Option<RequestId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Asking,
    Attached {
        parts: u32,
        bytes: u64,
    },
    /// Whether the operator has heard of it: that is worth it once a command fails.
    Refused {
        why: String,
        told: bool,
    },
}

/// An extent of a disk of ours at a peer.
#[derive(Debug)]
struct Toward {
    name: String,
    disk: usize,
    index: u32,
    shape: u64,
    /// The link's life in which its state and what waits are true.
    life: u64,
    state: State,
    /// Sent and not answered.
    parts: u32,
    bytes: u64,
    /// Handed out and not over.
    pending: u32,
    /// Whether it is among those that wait for `later`.
    put_off: bool,
    waiting: VecDeque<RequestId>,
    /// Of all its parts the one that came last; each knows the one before.
    newest: Option<RequestId>,
    /// Foreign service that its parts have told, all in all.
    carried: u64,
}

impl Toward {
    /// Not asked for yet, and with no parts.
    fn new(name: &str, disk: usize, index: u32, shape: u64, life: u64) -> Toward {
        Toward {
            name: name.to_owned(),
            disk,
            index,
            shape,
            life,
            state: State::Asking,
            parts: 0,
            bytes: 0,
            pending: 0,
            put_off: false,
            waiting: VecDeque::new(),
            newest: None,
            carried: 0,
        }
    }
}

/// What a link did.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Parts sent and answered.
    pub parts: u64,
    /// Of them failed, for whatever reason.
    pub failed: u64,
    /// Parts served for the peer.
    pub served: u64,
    /// Announcements sent: messages for synchronization alone.
    pub announced: u64,
    /// Links that were established.
    pub established: u64,
}

/// Another node.
#[derive(Debug)]
pub(crate) struct Peer {
    pub config: PeerConfig,
    pub address: SocketAddr,
    /// Its established link.
    pub link: Option<RequestId>,
    pub dialling: Option<RequestId>,
    pub retry_at: Instant,
    patience: Duration,
    /// Its link has ended while another one is being made: until then, what it had waits for that one.
    pub replaced_until: Option<Instant>,
    /// When its link may be exchanged for one by newer certificates.
    pub renew_at: Instant,
    renewal: Duration,
    /// Parts that it had when its link was lost, and may still do; and until when.
    in_doubt: Vec<Return>,
    doubted_until: Option<Instant>,
    /// Of which life it was when it was linked last, and whether that life ended with all flushed.
    epoch: Option<u64>,
    settled: bool,
    /// Why there is no link.
    pub error: Option<String>,
    pub counts: Counts,
    toward: Vec<Option<Toward>>,
    /// Numbers of extents that were given up, the oldest first.
    given_up: VecDeque<u32>,
    /// Disks with extents there: how many extents.
    disks: BTreeMap<usize, u32>,
    /// The extents below this number were asked for on this link.
    asked: u32,
    /// Grows with each link that is lost.
    life: u64,
    sent: Pending<Sent>,
    /// Parts in the order of their deadlines; some may be over already.
    deadlines: VecDeque<(Instant, RequestId)>,
    /// Extents whose parts wait for `later`.
    put_off: Vec<u32>,
    queue: VecDeque<RequestId>,
    /// Short messages to be sent.
    pub messages: VecDeque<Message>,
    /// Parts that the peer had no room for wait until then.
    later: Option<Instant>,
}

/// What others than the parts' coordinators want to know of links.
pub(crate) enum News {
    /// A peer is linked, perhaps anew.
    Up(usize),
    /// Its link is lost.
    Down(usize),
    /// It has said something about reservations.
    Said(usize, Message),
    /// A shared disk's seat has moved, the so many-th time: in the order in which that was heard among what peers say.
    Seat { disk: String, turn: u64, seated: Seated },
}

/// All of them.
#[derive(Default)]
pub(crate) struct Links {
    pub config: Option<LinkConfig>,
    /// Another shard has the links: here peers are names that disks may have.
    pub is_passive: bool,
    pub epoch: u64,
    pub peers: Vec<Option<Peer>>,
    /// Every link's connection, established or not.
    pub connections: Vec<RequestId>,
    /// Links with something to write.
    pub dirty: Vec<RequestId>,
    /// Links that others have replaced.
    pub doomed: Vec<RequestId>,
    /// Links that were established just now.
    pub joined: Vec<(usize, RequestId, u64)>,
    /// Peers whose link has ended, and no other one came.
    pub lost: Vec<usize>,
    /// This node flushes everything and ends: it takes no more parts.
    pub ending: bool,
    pub returns: VecDeque<Return>,
    pub news: VecDeque<News>,
    /// Foreign service that came with parts, and by messages of its own.
    pub carried: Totals,
    pub announced: Totals,
    tick_at: Option<Instant>,
    said: String,
}

impl Links {
    pub(crate) fn new(config: Option<LinkConfig>, epoch: u64) -> Links {
        Links { config, epoch, ..Links::default() }
    }

    /// The same at a shard, of which the first has the links.
    pub(crate) fn of_shard(here: usize, config: Option<LinkConfig>, epoch: u64) -> Links {
        Links { is_passive: here > 0, ..Links::new(config, epoch) }
    }

    /// This node's name.
    pub(crate) fn here(&self) -> Option<&str> {
        self.config.as_ref().map(|config| config.name.as_str())
    }
    /// Whether a place's node is this one.
    pub(crate) fn is_here(&self, node: &str) -> bool {
        node.is_empty() || self.here() == Some(node)
    }
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|p| p.as_ref().is_some_and(|p| p.config.name == name))
    }
    /// What a peer is called; nothing of who is none.
    pub(crate) fn name(&self, peer: Option<usize>) -> &str {
        let known = peer.and_then(|p| self.peers.get(p)?.as_ref());
        known.map_or("", |peer| peer.config.name.as_str())
    }
    pub(crate) fn peer(&mut self, p: usize) -> &mut Peer {
        self.peers[p].as_mut().expect("a peer in use is there")
    }
    pub(crate) fn configs(&self) -> Vec<PeerConfig> {
        self.peers.iter().flatten().map(|p| p.config.clone()).collect()
    }
    fn timeout(&self) -> Duration {
        self.config.as_ref().map_or(Duration::ZERO, |config| config.timeout)
    }

    /// Adds a peer, or changes where it is. What its address means is looked up here only while a node starts; later,
    /// whoever asks has done it.
    pub(crate) fn add(&mut self, config: PeerConfig, at: Option<SocketAddr>) -> Result<(), String> {
        let here = self.here().ok_or("this node has no [link]: it cannot have peers")?;
        if config.name == here {
            return Err(format!("\"{here}\" is this node itself"));
        }
        let address = match self.is_passive {
            true => SocketAddr::from(([0; 4], 0)),
            false => at.map_or_else(|| resolve(&config.address), Ok)?,
        };
        self.tick_at = (!self.is_passive).then_some(Instant::ZERO);
        if let Some(p) = self.find(&config.name) {
            let peer = self.peer(p);
            let iscsi = config.iscsi.or(peer.config.iscsi.take());
            let nvme = config.nvme.or(peer.config.nvme.take());
            peer.config = PeerConfig { iscsi, nvme, ..config };
            (peer.address, peer.retry_at) = (address, Instant::ZERO);
            return Ok(());
        }
        let peer = Peer::new(config, address);
        match self.peers.iter_mut().find(|p| p.is_none()) {
            Some(free) => *free = Some(peer),
            None => self.peers.push(Some(peer)),
        }
        Ok(())
    }

    /// Forgets a peer that no disk names; its link is doomed.
    pub(crate) fn remove(&mut self, p: usize) {
        let Some(peer) = self.peers[p].take() else { return };
        self.doomed.extend(peer.link.into_iter().chain(peer.dialling));
    }

    /// Whether this node is the one of the two that dials.
    pub(crate) fn dials(&self, peer: &Peer) -> bool {
        !self.is_passive && self.here().is_some_and(|here| here < peer.config.name.as_str())
    }

    /// Tells the operator, once.
    pub(crate) fn say(&mut self, what: String) {
        if self.said != what {
            eprintln!("henge node: {what}");
            self.said = what;
        }
    }

    /// An extent of a disk at a peer: its number there.
    pub(crate) fn attach(&mut self, p: usize, name: &str, disk: usize, index: u32, shape: u64) -> u32 {
        let peer = self.peer(p);
        let toward = Toward::new(name, disk, index, shape, peer.life);
        let number = peer.add(toward);
        self.touch(p);
        number
    }

    /// The extent is not used any more; it has nothing pending.
    pub(crate) fn detach(&mut self, p: usize, toward: u32) {
        self.peer(p).give_up(toward);
    }

    /// Sends a short message, if the peer is linked.
    pub(crate) fn tell(&mut self, p: usize, message: Message) -> bool {
        let peer = self.peers.get_mut(p).and_then(Option::as_mut).filter(|peer| peer.link.is_some());
        let Some(peer) = peer else { return false };
        peer.messages.push_back(message);
        self.touch(p);
        true
    }

    /// There is something to write to a peer.
    fn touch(&mut self, p: usize) {
        let link = self.peers[p].as_ref().and_then(|peer| peer.link);
        self.dirty.extend(link);
    }

    pub(crate) fn wake_now(&mut self) {
        self.tick_at = Some(Instant::ZERO);
    }
    pub(crate) fn wake_by(&mut self, at: Instant) {
        self.tick_at = Some(self.tick_at.map_or(at, |t| t.min(at)));
    }

    /// When [`tick`](Self::tick) is due.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.tick_at
    }

    /// Whether parts are under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.returns.is_empty() && self.peers.iter().flatten().all(|p| p.sent.is_empty())
    }
}

/// What an address means; a name server may take seconds to say.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs;
    let mut found = address.to_socket_addrs().map_err(|e| format!("{address}: {e}"))?;
    found.next().ok_or_else(|| format!("{address} is no address"))
}

/// A part's name on the wire, and back.
pub(crate) fn number(id: RequestId) -> u64 {
    u64::from(id.slot) << 32 | u64::from(id.generation)
}
pub(crate) fn name(number: u64) -> RequestId {
    RequestId { slot: (number >> 32) as u32, generation: number as u32 }
}

pub(crate) fn unit(unit: CostUnit) -> WireUnit {
    match unit {
        CostUnit::Bytes => WireUnit::Bytes,
        CostUnit::Requests => WireUnit::Requests,
        CostUnit::DiskTime => WireUnit::DiskTime,
    }
}
