//! A link to another node: messages out and in, and the bytes that belong to parts.
//!
//! A write's bytes go from the client's command straight into the link's socket, and on the other side from the socket into the
//! buffer that the store writes from; a read's bytes come back the same way. What travels is written many messages at a
//! time. The link never waits for anything but its socket: a part for which there is no memory is answered so, and sent
//! again by its coordinator, so that answers behind it come through.

use crate::client::{Link, Surroundings};
use crate::connection::{CHUNK, Stop};
use crate::links::name;
use crate::plane::{Answer, Owner, Plane};
use henge_backend::Buffer;
use henge_core::{Cost, Fault, FlowId, Instant, News, NodeId, Pending, RequestId, Sender, Sync};
use henge_link::{Event, Identity, Message, PartKind, PartOutcome, WireNews, WirePart};
use henge_vdisk::{Command, Failure, Kind, Portion};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};

/// Bytes that a link may read in one turn of the loop.
const TURN: usize = 2 << 20;
/// Pieces written at once.
const PIECES: usize = 128;
/// Parts are handed to the socket while less than this is waiting for it: what is not handed over can be given up.
const BACKLOG: usize = 2 << 20;
/// Payloads from here on are followed by a short read only: less of the next one is copied.
const LONG: usize = 32 << 10;
const SHORT_CHUNK: usize = 1 << 10;
/// Most parts of a peer under way here; its coordinators are told less.
const INCOMING_MAX: usize = 1 << 16;
/// Most places of a peer.
const PLACES_MAX: usize = 1 << 16;
/// Credits of a place: parts, and bytes of them.
const CREDIT_PARTS: u32 = 4096;
const CREDIT_BYTES: u64 = 16 << 20;

/// What is to be written, in order.
enum Piece {
    /// Of the link's own messages.
    Text(usize),
    /// Of a part of ours: its number, and which of its bytes come next.
    Part { id: RequestId, at: usize, len: usize },
    /// Of a read that was served here.
    Answer { home: usize, frame: Buffer, at: usize, len: usize },
}

/// Bytes that are being received.
struct Inflow {
    to: To,
    done: usize,
    len: usize,
}

#[derive(Clone, Copy)]
enum To {
    /// A part of theirs.
    Incoming(RequestId),
    /// The answer to a part of ours, and what it was charged.
    Answer(RequestId, Cost),
    /// Nobody wants them.
    Nobody,
}

/// A part of theirs.
struct Incoming {
    theirs: u64,
    home: usize,
    command: Command,
    /// While its bytes come; afterwards the disk has it.
    frame: Buffer,
    lead: usize,
    verify: usize,
}

/// A place that the peer attached, or wants to.
struct Attached {
    home: Option<usize>,
    /// Why there is none, as the peer was told.
    refusal: Option<String>,
    disk: String,
    index: u32,
    shape: u64,
}

/// One link.
pub(crate) struct PeerLink {
    pub link: Link,
    wire: henge_link::Link,
    /// Which peer, once that is known.
    pub peer: Option<usize>,
    /// Which peer was dialled.
    pub dialled: Option<usize>,
    rest: Vec<u8>,
    inflow: Option<Inflow>,
    /// The last payload was a long one.
    long: bool,
    places: BTreeMap<u32, Attached>,
    incoming: Pending<Incoming>,
    pieces: VecDeque<Piece>,
    /// Bytes of the wire's output that are in `pieces`, and of those, written.
    texts: usize,
    head: usize,
    backlog: usize,
    over: Option<String>,
}

impl PeerLink {
    pub(crate) fn new(
        link: Link,
        identity: Identity,
        nonce: [u8; 16],
        dialled: Option<usize>,
        now: Instant,
    ) -> Self {
        PeerLink {
            link,
            wire: henge_link::Link::new(identity, nonce, now),
            peer: None,
            dialled,
            rest: Vec::new(),
            inflow: None,
            long: false,
            places: BTreeMap::new(),
            incoming: Pending::new(),
            pieces: VecDeque::new(),
            texts: 0,
            head: 0,
            backlog: 0,
            over: None,
        }
    }

    pub(crate) fn has_input(&self) -> bool {
        self.link.readable
    }
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_some()
    }
    pub(crate) fn has_output(&self) -> bool {
        !self.pieces.is_empty() || self.texts > 0
    }
    /// Why it is over, for people.
    pub(crate) fn why(&self) -> String {
        self.over.clone().unwrap_or_else(|| match self.peer {
            Some(_) => "the connection broke".into(),
            None => "it was closed before it was established; the other node says why".into(),
        })
    }
    pub(crate) fn end(&mut self, why: &str) {
        self.over.get_or_insert_with(|| why.to_owned());
    }

    /// Pings, and gives up a peer that is silent. When it is to be asked again.
    pub(crate) fn tick(&mut self, now: Instant) -> Instant {
        if now >= self.wire.wake_at() && !self.wire.tick(now) {
            self.end("the other node has been silent for 4s");
        }
        self.text();
        self.wire.wake_at()
    }

    /// Reads and acts until the socket is empty.
    pub(crate) fn read(&mut self, id: RequestId, around: Surroundings<'_>) -> Stop {
        let Surroundings { plane, chunk, now, .. } = around;
        let mut taken = 0;
        while self.link.readable {
            if taken >= TURN {
                return Stop::Turn;
            }
            let (data, bytes) = match self.receive(chunk, plane) {
                Ok((0, 0)) => {
                    if self.peer.is_some() {
                        self.end("the other node closed it");
                    }
                    return Stop::Gone;
                }
                Ok(read) => read,
                Err(Errno::AGAIN) => {
                    self.link.readable = false;
                    break;
                }
                Err(Errno::INTR) => continue,
                Err(e) => {
                    self.end(&std::io::Error::from(e).to_string());
                    return Stop::Gone;
                }
            };
            taken += data + bytes;
            if data > 0 {
                self.delivered(data, id, plane, now);
            }
            if let Err(why) = self.feed(&chunk[..bytes], id, plane, now) {
                self.end(&why);
                return Stop::Gone;
            }
        }
        self.text();
        Stop::Waiting
    }

    /// Reads what is expected: bytes of a part, and bytes into `chunk`.
    fn receive(&mut self, chunk: &mut [u8], plane: &mut Plane) -> rustix::io::Result<(usize, usize)> {
        let left = self.inflow.as_ref().map_or(0, |i| i.len - i.done);
        // What comes after long payloads is the head of another one, most of the time.
        self.long = self.inflow.as_ref().map_or(self.long, |i| i.len >= LONG);
        let chunk_len = if self.long { SHORT_CHUNK } else { CHUNK };
        let chunk = &mut chunk[..chunk_len];
        let mut slot = &mut [][..];
        if let Some(into) = destination(self.inflow.as_ref(), &mut self.incoming, self.peer, plane) {
            slot = into;
        }
        let direct = slot.len();
        let n = if direct == 0 {
            // Bytes that nobody wants go through the chunk.
            rustix::io::read(&self.link.fd, &mut *chunk)?
        } else {
            let slices = &mut [IoSliceMut::new(slot), IoSliceMut::new(chunk)];
            rustix::io::readv(&self.link.fd, slices)?
        };
        debug_assert!(direct <= left, "no more than what is expected is read into its place");
        self.link.readable &= n == direct + chunk_len || self.link.ending;
        Ok((n.min(direct), n.saturating_sub(direct)))
    }

    /// So many bytes of a part have come.
    fn delivered(&mut self, n: usize, id: RequestId, plane: &mut Plane, now: Instant) {
        let Some(inflow) = &mut self.inflow else { return };
        inflow.done += n;
        if inflow.done < inflow.len {
            return;
        }
        let to = inflow.to;
        self.inflow = None;
        match to {
            To::Incoming(incoming) => self.start(incoming, id, plane, now),
            To::Answer(part, cost) => {
                let peer = self.peer.expect("answers come on established links");
                plane.links.answered(peer, crate::links::number(part), PartOutcome::Done, cost, now);
            }
            To::Nobody => {}
        }
    }

    fn feed(&mut self, bytes: &[u8], id: RequestId, plane: &mut Plane, now: Instant) -> Result<(), String> {
        if self.rest.is_empty() {
            let used = self.take(bytes, id, plane, now)?;
            self.rest.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let used = self.take(&rest, id, plane, now)?;
        rest.drain(..used);
        self.rest = rest;
        Ok(())
    }

    /// Acts on whole messages and on bytes of parts. How many bytes that were.
    fn take(
        &mut self,
        input: &[u8],
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<usize, String> {
        let mut at = 0;
        loop {
            let input = &input[at..];
            if let Some(inflow) = &self.inflow {
                if input.is_empty() {
                    return Ok(at);
                }
                let mut n = input.len().min(inflow.len - inflow.done);
                if let Some(to) = destination(self.inflow.as_ref(), &mut self.incoming, self.peer, plane) {
                    n = n.min(to.len());
                    to[..n].copy_from_slice(&input[..n]);
                }
                at += n;
                self.delivered(n, id, plane, now);
                continue;
            }
            let received = self.wire.receive(input, now).map_err(|refusal| refusal.to_string())?;
            at += received.len;
            match received.event {
                None => {}
                Some(Event::NeedMore(_)) => return Ok(at),
                Some(Event::Established { name, .. }) => self.established(&name, id, plane)?,
                Some(Event::Message { message, data }) => self.message(message, data, id, plane, now)?,
            }
        }
    }

    fn established(&mut self, name: &str, id: RequestId, plane: &mut Plane) -> Result<(), String> {
        let Some(peer) = plane.links.find(name) else {
            return Err(format!(
                "\"{name}\" is no peer of this node; add [[peer]] name = \"{name}\" if it should be"
            ));
        };
        // A peer that started anew is here before its old link is noticed to be dead.
        if let Some(old) = plane.links.peer(peer).link.filter(|old| *old != id) {
            plane.links.doomed.push(old);
        }
        self.peer = Some(peer);
        plane.links.joined.push((peer, id));
        Ok(())
    }

    fn message(
        &mut self,
        message: Message,
        data: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let peer = self.peer.expect("messages follow the handshake");
        if data > 0 && !matches!(message, Message::Part(_) | Message::Done { .. }) {
            return Err("it sent bytes with a message that has none".into());
        }
        match message {
            Message::Attach { place, disk, index, shape } => {
                if self.places.len() >= PLACES_MAX {
                    return Err("it attaches too many places".into());
                }
                self.places.insert(place, Attached { home: None, refusal: None, disk, index, shape });
                self.answer_attach(place, plane, now);
            }
            Message::Attached { place, parts, bytes, unit } => {
                plane.attached(peer, place, parts, bytes, unit)
            }
            Message::Detached { place, why } => {
                let mut returns = std::mem::take(&mut plane.links.returns);
                plane.links.peer(peer).refused(place, why, &mut returns);
                plane.links.returns = returns;
            }
            Message::Part(part) => self.part(&part, data, id, plane, now)?,
            Message::Done { id: part, outcome, cost } => {
                self.done(part, outcome, Cost::new(cost), data, plane, now)?
            }
            Message::Cancel { id: theirs } => {
                let found = self.incoming.iter().find(|(_, i)| i.theirs == theirs && i.frame.is_empty());
                if let Some((command, home)) = found.map(|(command, i)| (command, i.home)) {
                    plane.abort(home, id, Some(command), now);
                }
            }
            Message::Sync { epoch, sequence, flow, news, .. } => {
                self.heard(flow, (epoch, sequence), &news, plane, now);
            }
            // Between proxies only.
            Message::Flow { .. } | Message::Identity { .. } | Message::Ping => {}
        }
        Ok(())
    }

    /// Tells the peer whether parts of a place may come.
    fn answer_attach(&mut self, place: u32, plane: &mut Plane, now: Instant) {
        let Some(attached) = self.places.get_mut(&place) else { return };
        let message = match plane.home(&attached.disk, attached.index, attached.shape) {
            Ok(home) => {
                (attached.home, attached.refusal) = (Some(home), None);
                let (flow, sender) = (FlowId(home as u32), self.sender());
                // What it carries is counted from here on.
                for totals in [&mut plane.links.carried, &mut plane.links.announced] {
                    totals.set_flow(flow);
                    totals.remove_sender(flow, sender);
                }
                let unit = plane.unit_of(home);
                Message::Attached { place, parts: CREDIT_PARTS, bytes: CREDIT_BYTES, unit }
            }
            Err(why) => {
                (attached.home, attached.refusal) = (None, Some(why.clone()));
                Message::Detached { place, why }
            }
        };
        self.wire.send(&message, 0, now);
        self.text();
    }

    /// Disks have come or gone: what that changes for the peer's places.
    pub(crate) fn reconsider(&mut self, plane: &mut Plane, now: Instant) {
        let places: Vec<u32> = self.places.keys().copied().collect();
        for place in places {
            let attached = &self.places[&place];
            let (home, refusal) = match plane.home(&attached.disk, attached.index, attached.shape) {
                Ok(home) => (Some(home), None),
                Err(why) => (None, Some(why)),
            };
            if (home, &refusal) != (attached.home, &attached.refusal) {
                self.answer_attach(place, plane, now);
            }
        }
    }

    fn sender(&self) -> Sender {
        Sender::Coordinator(NodeId(self.peer.map_or(u32::MAX, |peer| peer as u32)))
    }

    /// Service elsewhere, told without a part.
    fn heard(
        &mut self,
        place: u32,
        (epoch, sequence): (u64, u64),
        news: &WireNews,
        plane: &mut Plane,
        now: Instant,
    ) {
        let Some(home) = self.places.get(&place).and_then(|attached| attached.home) else { return };
        let WireNews::Total { total, before } = *news else { return };
        let news = News::Total { total: Cost::new(total), before: Cost::new(before) };
        let (flow, sender) = (FlowId(home as u32), self.sender());
        let foreign = plane.links.announced.increase(&Sync { sender, epoch, sequence, flow, news });
        let gate = plane.disk(home).vdisk.layout().gates()[0];
        plane.gates[gate.index()].pipeline.gate_mut().foreign(flow, foreign, now);
    }

    /// A part of theirs: room and memory for it, or it is to come again.
    fn part(
        &mut self,
        part: &WirePart,
        data: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let len = usize::try_from(part.len).map_err(|_| "it sent a part that no memory holds".to_owned())?;
        let (kind, fua, expected) = match part.kind {
            PartKind::Read => (Kind::Read, false, 0),
            PartKind::Write { fua } => (Kind::Write, fua, len),
            PartKind::Flush => (Kind::Flush, false, 0),
            PartKind::Trim => (Kind::Trim, false, 0),
            PartKind::WriteZeroes { no_hole, fua } => (Kind::WriteZeroes { no_hole }, fua, 0),
            PartKind::Cache => (Kind::Cache, false, 0),
            PartKind::CompareAndWrite { fua } => (Kind::CompareAndWrite, fua, len.saturating_mul(2)),
        };
        if data != expected {
            return Err("it sent a part with more or fewer bytes than it names".into());
        }
        let refuse = |link: &mut Self, outcome| {
            link.wire.send(&Message::Done { id: part.id, outcome, cost: 0 }, 0, now);
            link.text();
            link.inflow = (data > 0).then_some(Inflow { to: To::Nobody, done: 0, len: data });
            Ok(())
        };
        let Some(home) = self.places.get(&part.place).and_then(|attached| attached.home) else {
            return refuse(self, PartOutcome::Detached);
        };
        let capacity = plane.disk(home).vdisk.capacity();
        let moves = kind.moves_data();
        let longest = if moves { henge_link::DATA_MAX as u64 } else { u64::MAX };
        if kind != Kind::Flush
            && part.offset.checked_add(part.len).is_none_or(|end| end > capacity || part.len > longest)
        {
            return refuse(self, PartOutcome::OutOfRange);
        }
        let frame = plane.disk(home).vdisk.frame(kind, part.offset, part.len);
        let room = plane.disk(home).vdisk.has_room() && self.incoming.len() < INCOMING_MAX;
        let buffer = if room { plane.take_buffer(home, frame.len) } else { None };
        let Some(mut buffer) = buffer else { return refuse(self, PartOutcome::Later) };
        if frame.zeroed {
            buffer.fill(0);
        }
        let portion = Some(Portion { commands: part.commands, foreign: self.carried(home, part, plane) });
        let command = Command { fua, portion, ..Command::new(kind, part.offset, part.len, now, 0) };
        let (lead, verify) = (frame.lead as usize, frame.verify.unwrap_or(0) as usize);
        let incoming =
            self.incoming.insert(Incoming { theirs: part.id, home, command, frame: buffer, lead, verify });
        if data > 0 {
            self.inflow = Some(Inflow { to: To::Incoming(incoming), done: 0, len: data });
        } else {
            self.start(incoming, id, plane, now);
        }
        Ok(())
    }

    /// The service elsewhere that a part tells, beyond what was known.
    fn carried(&self, home: usize, part: &WirePart, plane: &mut Plane) -> Cost {
        if part.foreign == 0 {
            return Cost::ZERO;
        }
        let news = News::Total { total: Cost::new(part.foreign), before: Cost::new(part.before) };
        let (flow, sender) = (FlowId(home as u32), self.sender());
        plane.links.carried.increase(&Sync { sender, epoch: 0, sequence: 0, flow, news })
    }

    /// A part of theirs is complete.
    fn start(&mut self, incoming: RequestId, id: RequestId, plane: &mut Plane, now: Instant) {
        let part = self.incoming.get_mut(incoming).expect("a part that is complete is there");
        let (home, command, frame) = (part.home, part.command, std::mem::take(&mut part.frame));
        if self.places.values().all(|attached| attached.home != Some(home)) {
            // The disk went while its bytes came.
            let theirs = part.theirs;
            self.incoming.remove(incoming);
            plane.put_buffer(home, frame);
            self.wire.send(&Message::Done { id: theirs, outcome: PartOutcome::Detached, cost: 0 }, 0, now);
            return self.text();
        }
        let command = Command { arrival: now, ..command };
        plane.submit(home, command, frame, Owner { connection: id, command: incoming }, now);
    }

    /// A part of ours is answered; its bytes follow, if it was a read.
    fn done(
        &mut self,
        part: u64,
        outcome: PartOutcome,
        cost: Cost,
        data: usize,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let (id, peer) = (name(part), self.peer.expect("messages follow the handshake"));
        if data > 0 {
            let expected = outcome == PartOutcome::Done && plane.links.peer(peer).expects(id, data);
            let to = if expected { To::Answer(id, cost) } else { To::Nobody };
            self.inflow = Some(Inflow { to, done: 0, len: data });
            return Ok(());
        }
        // A read without its bytes is no read.
        let empty = outcome == PartOutcome::Done && plane.links.peer(peer).is_read(id);
        let outcome = if empty { PartOutcome::Io } else { outcome };
        plane.links.answered(peer, part, outcome, cost, now);
        Ok(())
    }

    /// A home has finished a part of theirs.
    pub(crate) fn answer(&mut self, answer: Answer, plane: &mut Plane, now: Instant) {
        let Answer { disk: home, owner, outcome, frame, lead, cost } = answer;
        let Some(part) = self.incoming.remove(owner.command) else { return plane.put_buffer(home, frame) };
        let verify = part.verify as u64;
        let outcome = match outcome {
            Ok(()) => PartOutcome::Done,
            Err(Failure::Miscompare { at }) => PartOutcome::Miscompare(at - verify),
            Err(Failure::Fault(fault)) => match fault {
                Fault::NoSpace => PartOutcome::NoSpace,
                Fault::Unsupported => PartOutcome::Unsupported,
                Fault::OutOfRange => PartOutcome::OutOfRange,
                Fault::Cancelled => PartOutcome::Cancelled,
                Fault::Io | Fault::Unreachable => PartOutcome::Io,
            },
        };
        let read = part.command.kind == Kind::Read && outcome == PartOutcome::Done;
        let data = if read { part.command.len as usize } else { 0 };
        if let Some(peer) = self.peer {
            plane.links.peer(peer).counts.served += 1;
        }
        self.wire.send(&Message::Done { id: part.theirs, outcome, cost: cost.get() }, data, now);
        self.text();
        if data > 0 {
            self.backlog += data;
            self.pieces.push_back(Piece::Answer { home, frame, at: lead as usize, len: data });
        } else {
            plane.put_buffer(home, frame);
        }
    }

    /// What the wire has said since stands behind what is to be written.
    fn text(&mut self) {
        let len = self.wire.output().len();
        let grown = len - self.texts;
        if grown == 0 {
            return;
        }
        self.texts = len;
        self.backlog += grown;
        match self.pieces.back_mut() {
            Some(Piece::Text(text)) => *text += grown,
            _ => self.pieces.push_back(Piece::Text(grown)),
        }
    }

    /// Takes what the node has to say to this peer, as much as is sensible now.
    fn fill(&mut self, plane: &mut Plane, now: Instant) {
        let Some(peer) = self.peer else { return };
        if plane.links.peers[peer].is_none() {
            return self.end("the node was told to forget this peer");
        }
        while let Some(message) = plane.links.peer(peer).messages.pop_front() {
            self.wire.send(&message, 0, now);
        }
        self.text();
        while self.backlog < BACKLOG {
            let Some((id, part, data)) = plane.next_part_for(peer) else { break };
            self.wire.send(&Message::Part(part), data, now);
            self.text();
            if data > 0 {
                self.backlog += data;
                self.pieces.push_back(Piece::Part { id, at: 0, len: data });
            }
        }
    }

    /// Writes as far as the socket takes it. False when the connection is broken.
    pub(crate) fn write(&mut self, plane: &mut Plane, now: Instant) -> bool {
        self.text();
        loop {
            self.fill(plane, now);
            if self.pieces.is_empty() || !self.link.writable {
                return true;
            }
            match self.write_some(plane) {
                Ok(n) => self.written(n, plane),
                Err(Errno::AGAIN) => self.link.writable = false,
                Err(Errno::INTR) => {}
                Err(e) => {
                    self.end(&std::io::Error::from(e).to_string());
                    return false;
                }
            }
        }
    }

    fn write_some(&mut self, plane: &mut Plane) -> rustix::io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        let text = &self.wire.output()[..];
        let mut at_text = self.head;
        let mut peer = self.peer.and_then(|p| plane.links.peers[p].as_ref());
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(match piece {
                Piece::Text(len) => {
                    at_text += len;
                    &text[at_text - len..at_text]
                }
                Piece::Part { id, at, len } => {
                    let peer = peer.as_mut().expect("parts are written on established links");
                    &peer.loan(*id)[*at..at + len]
                }
                Piece::Answer { frame, at, len, .. } => &frame[*at..at + len],
            });
            count += 1;
        }
        rustix::io::writev(&self.link.fd, &slices[..count])
    }

    /// So many bytes are in the socket.
    fn written(&mut self, mut n: usize, plane: &mut Plane) {
        self.backlog -= n;
        while n > 0 {
            let piece = self.pieces.front_mut().expect("no more is written than was there");
            let (Piece::Text(len) | Piece::Part { len, .. } | Piece::Answer { len, .. }) = piece;
            let part = n.min(*len);
            *len -= part;
            n -= part;
            let whole = *len == 0;
            match piece {
                Piece::Text(_) => self.head += part,
                Piece::Part { at, .. } | Piece::Answer { at, .. } => *at += part,
            }
            if !whole {
                break;
            }
            match self.pieces.pop_front() {
                Some(Piece::Part { id, .. }) => {
                    let peer = self.peer.expect("parts are written on established links");
                    plane.links.peer(peer).written(id);
                }
                Some(Piece::Answer { home, frame, .. }) => plane.put_buffer(home, frame),
                _ => {}
            }
        }
        if self.head == self.texts {
            self.wire.output().clear();
            (self.head, self.texts) = (0, 0);
        } else if self.head > CHUNK {
            self.wire.output().drain(..self.head);
            self.texts -= self.head;
            self.head = 0;
        }
    }

    /// The link is over: its parts here are given up, and its memory given back.
    pub(crate) fn release(&mut self, id: RequestId, plane: &mut Plane, now: Instant) {
        for piece in std::mem::take(&mut self.pieces) {
            if let Piece::Answer { home, frame, .. } = piece {
                plane.put_buffer(home, frame);
            }
        }
        let mut homes = Vec::new();
        for (_, part) in self.incoming.iter_mut() {
            let frame = std::mem::take(&mut part.frame);
            if frame.is_empty() {
                homes.push(part.home);
            } else {
                plane.put_buffer(part.home, frame);
            }
        }
        homes.sort_unstable();
        homes.dedup();
        for home in homes {
            plane.abort(home, id, None, now);
        }
    }
}

/// Where the next bytes of a part belong: one stretch of memory.
fn destination<'a>(
    inflow: Option<&Inflow>,
    incoming: &'a mut Pending<Incoming>,
    peer: Option<usize>,
    plane: &'a mut Plane,
) -> Option<&'a mut [u8]> {
    let Inflow { to, done, len } = *inflow?;
    match to {
        To::Incoming(id) => {
            let incoming = incoming.get_mut(id).expect("a part stays while its bytes come");
            let own = (incoming.command.len as usize).min(len);
            // The bytes to compare with come behind the new ones, and stand elsewhere.
            let (at, n) = match done < own {
                true => (incoming.lead + done, own - done),
                false => (incoming.verify + done - own, len - done),
            };
            Some(&mut incoming.frame[at..at + n])
        }
        To::Answer(id, _) => {
            let peer = peer.expect("answers come on established links");
            plane.links.peer(peer).bytes(id).map(|bytes| &mut bytes[done..len])
        }
        To::Nobody => None,
    }
}
