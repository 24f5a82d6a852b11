//! The other nodes: which are linked, and the parts of commands that are on their way to them and back.
//!
//! A part waits until its place is attached and has a credit, then until the link takes it, then for its answer. All that
//! time counts: what is not answered by the link's `timeout` fails, and so does at once everything that a peer had when its
//! link is lost, or is given while it has none. Credits are counted for each place, so a flow whose parts a peer does not
//! answer holds up itself alone.
//!
//! Buffers. A part has its command's bytes on loan, and gives them back before its command may go on. Once some of them
//! are in the socket the rest must follow, so a part that is half written is never given up without its link.

use crate::link_config::{LinkConfig, PeerConfig};
use henge_backend::Buffer;
use henge_core::{Cost, CostUnit, Duration, Fault, Instant, Pending, RequestId};
use henge_link::{Message, PartKind, PartOutcome, WirePart, WireUnit};
use henge_sched::foreign::Totals;
use henge_vdisk::{Failure, PartId};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A lost link is dialled again after so long …
const RETRY_LEAST: Duration = Duration::from_millis(100);
/// … and after twice as long each time, up to this: what is healed is back soon.
const RETRY_MOST: Duration = Duration::from_secs(1);
/// A part for which the peer had no room is sent again after so long.
const LATER: Duration = Duration::from_millis(5);
/// How often parts are looked at for their deadline.
const LOOK: Duration = Duration::from_millis(250);
/// Parts handed out to one place at once, sent or not.
pub(crate) const PARTS_MAX: u32 = 16_384;

/// A part is over.
#[derive(Debug)]
pub(crate) struct Return {
    pub disk: usize,
    pub part: PartId,
    /// Which place of the disk.
    pub place: u32,
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
    /// For a credit, or for the place to be attached.
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
    part: PartId,
    toward: u32,
    ask: Ask,
    /// The command's own bytes.
    loan: Buffer,
    stage: Stage,
    deadline: Instant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Asking,
    Attached { parts: u32, bytes: u64 },
    Refused(String),
}

/// A place of a disk of ours at a peer.
#[derive(Debug)]
struct Toward {
    name: String,
    disk: usize,
    index: u32,
    shape: u64,
    state: State,
    /// Sent and not answered.
    parts: u32,
    bytes: u64,
    /// Handed out and not over.
    pending: u32,
    waiting: VecDeque<RequestId>,
    /// Foreign service that its parts have told, all in all.
    carried: u64,
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
    /// Why there is no link.
    pub error: Option<String>,
    pub counts: Counts,
    toward: Vec<Option<Toward>>,
    sent: Pending<Sent>,
    queue: VecDeque<RequestId>,
    /// Short messages to be sent.
    pub messages: VecDeque<Message>,
    /// Parts that the peer had no room for wait until then.
    later: Option<Instant>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Links {
    pub config: Option<LinkConfig>,
    pub epoch: u64,
    pub peers: Vec<Option<Peer>>,
    /// Every link's connection, established or not.
    pub connections: Vec<RequestId>,
    /// Links with something to write.
    pub dirty: Vec<RequestId>,
    /// Links that others have replaced.
    pub doomed: Vec<RequestId>,
    /// Links that were established just now.
    pub joined: Vec<(usize, RequestId)>,
    pub returns: VecDeque<Return>,
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

    /// This node's name.
    pub(crate) fn here(&self) -> Option<&str> {
        self.config.as_ref().map(|config| config.name.as_str())
    }
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|p| p.as_ref().is_some_and(|p| p.config.name == name))
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

    /// Adds a peer, or changes where it is.
    pub(crate) fn add(&mut self, config: PeerConfig) -> Result<(), String> {
        let here = self.here().ok_or("this node has no [link]: it cannot have peers")?;
        if config.name == here {
            return Err(format!("\"{here}\" is this node itself"));
        }
        let address = resolve(&config.address)?;
        self.tick_at = Some(Instant::ZERO);
        if let Some(p) = self.find(&config.name) {
            let peer = self.peer(p);
            (peer.config, peer.address, peer.retry_at) = (config, address, Instant::ZERO);
            return Ok(());
        }
        let peer = Peer::new(config, address);
        match self.peers.iter_mut().find(|p| p.is_none()) {
            Some(place) => *place = Some(peer),
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
        self.here().is_some_and(|here| here < peer.config.name.as_str())
    }

    /// Tells the operator, once.
    pub(crate) fn say(&mut self, what: String) {
        if self.said != what {
            eprintln!("henge node: {what}");
            self.said = what;
        }
    }

    /// A place of a disk at a peer: its number there.
    pub(crate) fn attach(&mut self, p: usize, name: &str, disk: usize, index: u32, shape: u64) -> u32 {
        let peer = self.peer(p);
        let number = peer.toward.len() as u32;
        peer.toward.push(Some(Toward {
            name: name.to_owned(),
            disk,
            index,
            shape,
            state: State::Asking,
            parts: 0,
            bytes: 0,
            pending: 0,
            waiting: VecDeque::new(),
            carried: 0,
        }));
        peer.ask(number);
        self.touch(p);
        number
    }

    /// The place is not used any more; it has nothing pending.
    pub(crate) fn detach(&mut self, p: usize, toward: u32) {
        self.peer(p).toward[toward as usize] = None;
    }

    /// There is something to write to a peer.
    fn touch(&mut self, p: usize) {
        let link = self.peers[p].as_ref().and_then(|peer| peer.link);
        self.dirty.extend(link);
    }

    pub(crate) fn has_room(&self, p: usize, toward: u32) -> bool {
        let peer = self.peers[p].as_ref().expect("a peer in use is there");
        peer.toward[toward as usize].as_ref().is_none_or(|t| t.pending < PARTS_MAX)
    }

    /// Hands a part of a disk's command to a place at a peer.
    pub(crate) fn send(
        &mut self,
        (p, number): (usize, u32),
        (disk, part): (usize, PartId),
        ask: Ask,
        loan: Buffer,
        now: Instant,
    ) {
        let deadline = now + self.timeout();
        let peer = self.peer(p);
        let linked = peer.link.is_some();
        let toward = peer.toward[number as usize].as_mut().expect("a disk's place is attached");
        if !linked || matches!(toward.state, State::Refused(_)) {
            peer.counts.failed += 1;
            let place = toward.index;
            drop(loan);
            let outcome = Err(Failure::Fault(Fault::Unreachable));
            self.returns.push_back(Return { disk, part, place, outcome, cost: Cost::ZERO });
            return;
        }
        toward.pending += 1;
        let sent = Sent { disk, part, toward: number, ask, loan, stage: Stage::Waiting, deadline };
        toward.waiting.push_back(peer.sent.insert(sent));
        if peer.pump(number) {
            self.touch(p);
        }
        self.wake_by(now + LOOK);
    }

    pub(crate) fn wake_now(&mut self) {
        self.tick_at = Some(Instant::ZERO);
    }
    pub(crate) fn wake_by(&mut self, at: Instant) {
        self.tick_at = Some(self.tick_at.map_or(at, |t| t.min(at)));
    }

    /// Ends a part; whoever waits for its credit goes on.
    pub(crate) fn over(&mut self, p: usize, id: RequestId, outcome: Result<(), Failure>, cost: Cost) {
        let peer = self.peer(p);
        let Some(back) = peer.over(id, outcome, cost) else { return };
        let number = back.0;
        self.returns.push_back(back.1);
        if self.peer(p).pump(number) {
            self.touch(p);
        }
    }

    /// A peer's answer, without the bytes of a read.
    pub(crate) fn answered(&mut self, p: usize, id: u64, outcome: PartOutcome, cost: Cost, now: Instant) {
        let id = name(id);
        let peer = self.peer(p);
        let Some(sent) = peer.sent.get(id) else { return };
        if sent.stage != Stage::Written {
            return; // an answer before the question was out: of another life
        }
        let verify = sent.ask.verify;
        let result = match outcome {
            PartOutcome::Later => {
                peer.put_off(id, now);
                return self.wake_by(now + LATER);
            }
            PartOutcome::Done => Ok(()),
            PartOutcome::Miscompare(at) => Err(Failure::Miscompare { at: verify + at }),
            PartOutcome::Detached => Err(Failure::Fault(Fault::Unreachable)),
            PartOutcome::Io => Err(Failure::Fault(Fault::Io)),
            PartOutcome::NoSpace => Err(Failure::Fault(Fault::NoSpace)),
            PartOutcome::Unsupported => Err(Failure::Fault(Fault::Unsupported)),
            PartOutcome::OutOfRange => Err(Failure::Fault(Fault::OutOfRange)),
            PartOutcome::Cancelled => Err(Failure::Fault(Fault::Cancelled)),
        };
        self.over(p, id, result, cost);
    }

    /// Gives a disk's parts up: those not yet sent are over, of the others the peer is told.
    pub(crate) fn cancel(&mut self, disk: usize, theirs: &[RequestId]) {
        for p in 0..self.peers.len() {
            let Some(peer) = &self.peers[p] else { continue };
            let parts = peer.sent.iter().filter(|(_, s)| s.disk == disk && theirs.contains(&s.part.command));
            let parts: Vec<(RequestId, Stage)> = parts.map(|(id, s)| (id, s.stage)).collect();
            for (id, stage) in parts {
                if matches!(stage, Stage::Waiting | Stage::Queued) {
                    self.over(p, id, Err(Failure::Fault(Fault::Cancelled)), Cost::ZERO);
                } else {
                    self.peer(p).messages.push_back(Message::Cancel { id: number(id) });
                    self.touch(p);
                }
            }
        }
    }

    /// A peer's link is established; all places are attached anew.
    pub(crate) fn up(&mut self, p: usize, connection: RequestId) {
        let peer = self.peer(p);
        (peer.link, peer.error, peer.patience) = (Some(connection), None, RETRY_LEAST);
        peer.dialling = peer.dialling.filter(|id| *id != connection);
        peer.counts.established += 1;
        for number in 0..peer.toward.len() as u32 {
            peer.ask(number);
        }
        let name = peer.config.name.clone();
        self.said.clear();
        self.say(format!("linked to {name}"));
        self.touch(p);
    }

    /// A peer's link is lost: what it had is over at once.
    pub(crate) fn down(&mut self, p: usize, why: &str, now: Instant) {
        let Some(peer) = self.peers[p].as_mut() else { return };
        peer.link = None;
        peer.queue.clear();
        peer.messages.clear();
        peer.later = None;
        let ids: Vec<RequestId> = peer.sent.iter().map(|(id, _)| id).collect();
        for toward in peer.toward.iter_mut().flatten() {
            toward.waiting.clear();
            toward.state = State::Asking;
        }
        for id in ids {
            let unreachable = Err(Failure::Fault(Fault::Unreachable));
            if let Some((_, back)) = peer.over(id, unreachable, Cost::ZERO) {
                self.returns.push_back(back);
            }
        }
        peer.error.get_or_insert_with(|| why.to_owned());
        let name = peer.config.name.clone();
        self.failed(p, why, now);
        self.say(format!("the link to {name} is lost: {why}"));
    }

    /// A link was not made or did not last: when it is dialled again.
    pub(crate) fn failed(&mut self, p: usize, why: &str, now: Instant) {
        let peer = self.peer(p);
        peer.dialling = None;
        peer.retry_at = now + peer.patience;
        peer.patience = (peer.patience * 2).min(RETRY_MOST);
        peer.error = Some(why.to_owned());
        let at = peer.retry_at;
        self.wake_by(at);
    }

    /// When [`tick`](Self::tick) is due.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.tick_at
    }

    /// Ends what has taken too long. Links that are stuck in the middle of such a part are named.
    pub(crate) fn tick(&mut self, now: Instant, stuck: &mut Vec<RequestId>) {
        self.tick_at = None;
        for p in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[p] else { continue };
            if peer.later.is_some_and(|at| at <= now) {
                peer.later = None;
                for toward in 0..peer.toward.len() as u32 {
                    peer.pump(toward);
                }
                self.dirty.extend(peer.link);
            }
            let late = peer.sent.iter().filter(|(_, s)| s.deadline <= now);
            let late: Vec<(RequestId, Stage)> = late.map(|(id, s)| (id, s.stage)).collect();
            let at = [peer.later, (!peer.sent.is_empty()).then_some(now + LOOK)];
            let dial = (peer.link.is_none() && peer.dialling.is_none())
                .then_some(peer.retry_at.max(now + RETRY_LEAST));
            if let Some(at) = at.into_iter().chain([dial]).flatten().min() {
                self.wake_by(at);
            }
            for (id, stage) in late {
                if stage == Stage::Writing {
                    stuck.extend(self.peer(p).link);
                } else {
                    self.over(p, id, Err(Failure::Fault(Fault::Unreachable)), Cost::ZERO);
                }
            }
        }
    }

    /// Whether parts are under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.returns.is_empty() && self.peers.iter().flatten().all(|p| p.sent.is_empty())
    }
}

impl Peer {
    fn new(config: PeerConfig, address: SocketAddr) -> Peer {
        Peer {
            config,
            address,
            link: None,
            dialling: None,
            retry_at: Instant::ZERO,
            patience: RETRY_LEAST,
            error: None,
            counts: Counts::default(),
            toward: Vec::new(),
            sent: Pending::new(),
            queue: VecDeque::new(),
            messages: VecDeque::new(),
            later: None,
        }
    }

    /// Asks the peer to take parts of a place.
    fn ask(&mut self, number: u32) {
        let Some(toward) = self.toward[number as usize].as_mut() else { return };
        toward.state = State::Asking;
        if self.link.is_some() {
            self.messages.push_back(Message::Attach {
                place: number,
                disk: toward.name.clone(),
                index: toward.index,
                shape: toward.shape,
            });
        }
    }

    /// The peer's word on a place. The disk, its place and the unit, where that is attached now.
    pub(crate) fn attached(&mut self, number: u32, parts: u32, bytes: u64) -> Option<(usize, u32)> {
        let toward = self.toward.get_mut(number as usize)?.as_mut()?;
        toward.state = State::Attached { parts: parts.max(1), bytes };
        let found = (toward.disk, toward.index);
        self.pump(number);
        Some(found)
    }

    /// The peer takes no parts of a place; those that wait are given up.
    pub(crate) fn refused(&mut self, number: u32, why: String, returns: &mut VecDeque<Return>) {
        let Some(Some(toward)) = self.toward.get_mut(number as usize) else { return };
        toward.state = State::Refused(why);
        for id in std::mem::take(&mut toward.waiting) {
            let outcome = Err(Failure::Fault(Fault::Unreachable));
            returns.extend(self.over(id, outcome, Cost::ZERO).map(|(_, back)| back));
        }
    }

    /// Why a place is not attached, for people.
    pub(crate) fn trouble(&self, number: u32) -> Option<String> {
        let toward = self.toward.get(number as usize)?.as_ref()?;
        match (&toward.state, self.link) {
            (_, None) => Some(self.error.clone().unwrap_or_else(|| "not linked yet".into())),
            (State::Refused(why), _) => Some(why.clone()),
            _ => None,
        }
    }

    /// Lets those go that have a credit. Whether there are any.
    fn pump(&mut self, number: u32) -> bool {
        if self.later.is_some() {
            return false;
        }
        let Some(toward) = self.toward[number as usize].as_mut() else { return false };
        let State::Attached { parts, bytes } = toward.state else { return false };
        let mut any = false;
        while let Some(&id) = toward.waiting.front() {
            let sent = self.sent.get_mut(id).expect("what waits is pending");
            let len = if sent.loan.is_empty() { 0 } else { sent.ask.len };
            if toward.parts >= parts || (toward.parts > 0 && toward.bytes + len > bytes) {
                break;
            }
            toward.waiting.pop_front();
            sent.stage = Stage::Queued;
            toward.parts += 1;
            toward.bytes += len;
            self.queue.push_back(id);
            any = true;
        }
        any
    }

    /// Takes a part out.
    fn over(&mut self, id: RequestId, outcome: Result<(), Failure>, cost: Cost) -> Option<(u32, Return)> {
        let sent = self.sent.remove(id)?;
        let toward = self.toward[sent.toward as usize].as_mut().expect("a place with parts stays");
        toward.pending -= 1;
        if sent.stage == Stage::Waiting {
            toward.waiting.retain(|other| *other != id);
        } else {
            toward.parts -= 1;
            toward.bytes -= if sent.loan.is_empty() { 0 } else { sent.ask.len };
        }
        self.counts.parts += 1;
        self.counts.failed += u64::from(outcome.is_err());
        let Sent { disk, part, toward, .. } = sent;
        let place = self.toward[toward as usize].as_ref().map_or(0, |t| t.index);
        Some((toward, Return { disk, part, place, outcome, cost }))
    }

    fn put_off(&mut self, id: RequestId, now: Instant) {
        let sent = self.sent.get_mut(id).expect("it was just there");
        sent.stage = Stage::Waiting;
        let toward = self.toward[sent.toward as usize].as_mut().expect("a place with parts stays");
        toward.parts -= 1;
        toward.bytes -= if sent.loan.is_empty() { 0 } else { sent.ask.len };
        toward.waiting.push_front(id);
        self.later = Some(now + LATER);
    }

    /// The next part for the link: its disk and place, and its bytes.
    pub(crate) fn next(&mut self) -> Option<(RequestId, usize, u32)> {
        loop {
            let id = self.queue.pop_front()?;
            // It may have been given up meanwhile.
            if let Some(sent) = self.sent.get_mut(id).filter(|s| s.stage == Stage::Queued) {
                sent.stage = Stage::Writing;
                let toward = self.toward[sent.toward as usize].as_ref().expect("a place with parts stays");
                return Some((id, sent.disk, toward.index));
            }
        }
    }

    /// The message of a part that `next` gave, and how many bytes follow.
    pub(crate) fn message(&mut self, id: RequestId, foreign: Cost) -> (WirePart, usize) {
        let sent = self.sent.get_mut(id).expect("it was just given");
        let toward = self.toward[sent.toward as usize].as_mut().expect("a place with parts stays");
        let before = toward.carried;
        toward.carried += foreign.get();
        let Ask { kind, offset, len, commands, .. } = sent.ask;
        let (place, foreign) = (sent.toward, toward.carried);
        let data = sent.ask.data();
        if data == 0 {
            sent.stage = Stage::Written;
        }
        (WirePart { id: number(id), place, kind, offset, len, commands, foreign, before }, data)
    }

    /// The bytes of a part: to be written, or to be read into.
    pub(crate) fn bytes(&mut self, id: RequestId) -> Option<&mut Buffer> {
        self.sent.get_mut(id).map(|sent| &mut sent.loan)
    }
    /// The same, to be read.
    pub(crate) fn loan(&self, id: RequestId) -> &Buffer {
        &self.sent.get(id).expect("a part stays until its bytes are written").loan
    }
    /// Whether a part is a read of some bytes.
    pub(crate) fn is_read(&self, id: RequestId) -> bool {
        self.sent.get(id).is_some_and(|s| s.ask.kind == PartKind::Read && s.ask.len > 0)
    }
    /// Whether a part expects so many bytes as its answer.
    pub(crate) fn expects(&self, id: RequestId, len: usize) -> bool {
        self.sent
            .get(id)
            .is_some_and(|s| s.stage == Stage::Written && s.ask.kind == PartKind::Read && s.loan.len() == len)
    }
    /// Its bytes are in the socket.
    pub(crate) fn written(&mut self, id: RequestId) {
        if let Some(sent) = self.sent.get_mut(id) {
            sent.stage = Stage::Written;
        }
    }
    /// Parts sent or waiting.
    pub(crate) fn pending(&self) -> usize {
        self.sent.len()
    }
}

fn resolve(address: &str) -> Result<SocketAddr, String> {
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
