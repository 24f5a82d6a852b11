//! One client's connection: bytes in, commands out, replies back.
//!
//! Reads go on until the socket is empty or something holds the client back: its session's bounds, its disk's
//! bound on pending commands, or memory. Then nothing more is read, and the socket's own back-pressure does the
//! rest. A WRITE's payload goes from the socket straight into the command's buffer, a READ's from there
//! straight to the socket.

use crate::client::Link;
use crate::plane::{Answer, Owner, Plane};
use henge_backend::Buffer;
use henge_core::{Instant, RequestId};
use henge_nbd::{CommandKind, Error, Event, Exports, Limits, Segment, Session, Wants};
use henge_vdisk::{Failure, Frame, Kind};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};

/// Bytes read at once; shared by all connections, since what is left over is kept by those that have some.
pub(crate) const CHUNK: usize = 64 << 10;
/// Bytes that a connection may read in one turn of the loop, so that others have theirs.
const TURN: usize = 512 << 10;
/// Stretches in one answer about what takes room; the client asks again for what follows.
const EXTENTS: usize = 256;
/// Pieces written at once.
const PIECES: usize = 64;

/// What holds a connection back, besides its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stalled {
    /// A command for which there is no room, or no memory, yet.
    Command(henge_nbd::Command),
    /// A WRITE whose payload has no memory yet.
    Payload(henge_nbd::Command),
}

/// Why reading stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The socket is empty, or the session wants nothing for now.
    Waiting,
    /// Others first; there is more.
    Turn,
    /// Room or memory is missing: see `stalled`.
    Stalled,
    /// It is over: end of stream, an error, or what the protocol does not allow.
    Gone,
}

struct Held {
    frame: Buffer,
    /// Where the command's own bytes begin in it.
    lead: usize,
}

/// A client.
pub(crate) struct Connection {
    pub link: Link,
    pub session: Session,
    pub disk: Option<usize>,
    pub stalled: Option<Stalled>,
    /// Received and not yet taken by the session.
    rest: Vec<u8>,
    /// Buffers by the slot of the session's name for the command.
    held: Vec<Option<Held>>,
}

/// The exports, as a session asks for them, by the numbers of their disks. One comes or goes without a look at the others.
#[derive(Default)]
pub(crate) struct Catalog {
    exports: BTreeMap<usize, henge_nbd::Export>,
    by_name: BTreeMap<String, usize>,
}

impl Catalog {
    /// A disk is there, or is another than before.
    pub(crate) fn add(&mut self, number: usize, export: henge_nbd::Export) {
        self.remove(number);
        self.by_name.insert(export.name.clone(), number);
        self.exports.insert(number, export);
    }

    /// A disk is gone.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(gone) = self.exports.remove(&number) {
            self.by_name.remove(&gone.name);
        }
    }
}

impl Exports for Catalog {
    fn count(&self) -> usize {
        self.exports.len()
    }
    fn list(&self, from: usize) -> impl Iterator<Item = (usize, &henge_nbd::Export)> {
        self.exports.range(from..).map(|(number, export)| (*number, export))
    }
    fn get(&self, index: usize) -> Option<&henge_nbd::Export> {
        self.exports.get(&index)
    }
    fn find(&self, name: &str) -> Option<usize> {
        let sole =
            || self.exports.keys().next().copied().filter(|_| name.is_empty() && self.exports.len() == 1);
        self.by_name.get(name).copied().or_else(sole)
    }
}

impl Connection {
    pub(crate) fn new(link: Link, limits: Limits, now: Instant) -> Self {
        Connection {
            link,
            session: Session::new(limits, now),
            disk: None,
            stalled: None,
            rest: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Whether reading would get anywhere as soon as nothing holds it back.
    pub(crate) fn has_input(&self) -> bool {
        let something = self.link.readable || !self.rest.is_empty() || self.session.goes_on();
        // A full session takes nothing, however often it is asked: a client that reads no replies keeps it so.
        self.stalled.is_some() || something && self.session.wants() != Wants::Nothing
    }

    /// Reads and acts until something stops it.
    pub(crate) fn read(
        &mut self,
        id: RequestId,
        plane: &mut Plane,
        catalog: &Catalog,
        chunk: &mut [u8],
        now: Instant,
    ) -> Stop {
        let mut taken = 0;
        if let Some(stop) = self.resume(id, plane, now) {
            return stop;
        }
        if self.session.goes_on() {
            self.session.receive(&[], catalog, now);
        }
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            if let Some(stop) = self.feed(&rest, id, plane, catalog, now) {
                return stop;
            }
        }
        while self.link.readable {
            if taken >= TURN {
                return Stop::Turn;
            }
            let (payload, bytes) = match self.receive(chunk) {
                Ok(Some((0, 0))) => return Stop::Gone,
                Ok(Some(read)) => read,
                Ok(None) => return if self.session.is_over() { Stop::Gone } else { Stop::Waiting },
                Err(Errno::AGAIN) => {
                    self.link.readable = false;
                    return Stop::Waiting;
                }
                Err(Errno::INTR) => continue,
                Err(_) => return Stop::Gone,
            };
            taken += payload + bytes;
            if payload > 0
                && let Some(command) = self.session.payload(payload as u32, now)
                && let Some(stop) = self.start(command, id, plane, now)
            {
                self.rest.extend_from_slice(&chunk[..bytes]);
                return stop;
            }
            if let Some(stop) = self.feed(&chunk[..bytes], id, plane, catalog, now) {
                return stop;
            }
        }
        if self.session.is_over() { Stop::Gone } else { Stop::Waiting }
    }

    /// Reads what the session wants: bytes of payload, and bytes into `chunk`. `None` when it wants nothing.
    fn receive(&mut self, chunk: &mut [u8]) -> rustix::io::Result<Option<(usize, usize)>> {
        match self.session.wants() {
            Wants::Nothing => Ok(None),
            Wants::Bytes => {
                let n = rustix::io::read(&self.link.fd, &mut *chunk)?;
                // Less than there was room for: the socket is empty, and says so when it is not any more.
                self.link.readable &= n == chunk.len() || self.link.ending;
                Ok(Some((0, n)))
            }
            Wants::Payload { id, at, len } => {
                let held = self.held[id.index()].as_mut().expect("a WRITE has its buffer");
                let (from, len) = (held.lead + at as usize, len as usize);
                // What follows the payload is read with it: the next header, most of the time.
                let slices =
                    &mut [IoSliceMut::new(&mut held.frame[from..from + len]), IoSliceMut::new(chunk)];
                let n = rustix::io::readv(&self.link.fd, slices)?;
                self.link.readable &= n == len + CHUNK || self.link.ending;
                Ok(Some((n.min(len), n.saturating_sub(len))))
            }
        }
    }

    /// Tries again what was held back; `None` when nothing is any more.
    fn resume(&mut self, id: RequestId, plane: &mut Plane, now: Instant) -> Option<Stop> {
        match self.stalled.take()? {
            Stalled::Command(command) => self.start(command, id, plane, now),
            Stalled::Payload(command) => self.prepare(command, plane),
        }
    }

    /// Gives the session what was received. What it does not take is kept.
    fn feed(
        &mut self,
        mut input: &[u8],
        id: RequestId,
        plane: &mut Plane,
        catalog: &Catalog,
        now: Instant,
    ) -> Option<Stop> {
        while !input.is_empty() {
            let (consumed, stop) = match self.session.wants() {
                Wants::Payload { id: command, at, len } => {
                    let n = input.len().min(len as usize);
                    let held = self.held[command.index()].as_mut().expect("a WRITE has its buffer");
                    let from = held.lead + at as usize;
                    held.frame[from..from + n].copy_from_slice(&input[..n]);
                    let complete = self.session.payload(n as u32, now);
                    (n, complete.and_then(|command| self.start(command, id, plane, now)))
                }
                _ => {
                    let (consumed, event) = self.session.receive(input, catalog, now);
                    (consumed, self.act(event, consumed, id, plane, now))
                }
            };
            input = &input[consumed..];
            if stop.is_some() {
                self.rest.extend_from_slice(input);
                return stop;
            }
        }
        None
    }

    fn act(
        &mut self,
        event: Event,
        consumed: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Option<Stop> {
        match event {
            Event::Nothing => (consumed == 0).then_some(Stop::Waiting),
            Event::Entered { export } => {
                self.disk = Some(export);
                None
            }
            Event::Command(command) => self.start(command, id, plane, now),
            Event::Payload(command) => self.prepare(command, plane),
            // What is in flight is answered first.
            Event::Closed(henge_nbd::Closed::Disconnect) if !self.session.is_over() => Some(Stop::Waiting),
            Event::Closed(_) => Some(Stop::Gone),
        }
    }

    fn disk(&self) -> usize {
        self.disk.expect("commands come after an export was chosen")
    }

    fn frame(&self, command: &henge_nbd::Command, kind: Kind, plane: &mut Plane) -> Frame {
        plane.disk(self.disk()).vdisk.frame(kind, command.offset, u64::from(command.len))
    }

    /// Memory for the payload that comes next.
    fn prepare(&mut self, command: henge_nbd::Command, plane: &mut Plane) -> Option<Stop> {
        let frame = self.frame(&command, Kind::Write, plane);
        let Some(buffer) = plane.take_buffer(self.disk(), frame.len) else {
            self.stalled = Some(Stalled::Payload(command));
            return Some(Stop::Stalled);
        };
        self.hold(command.id, buffer, frame.lead);
        None
    }

    fn hold(&mut self, id: RequestId, frame: Buffer, lead: u64) {
        let slot = id.index();
        if self.held.len() <= slot {
            self.held.resize_with(slot + 1, || None);
        }
        self.held[slot] = Some(Held { frame, lead: lead as usize });
    }

    /// A command that is complete goes to its disk.
    fn start(
        &mut self,
        command: henge_nbd::Command,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Option<Stop> {
        let kind = match command.kind {
            CommandKind::Read { .. } => Kind::Read,
            CommandKind::Write => Kind::Write,
            CommandKind::Flush => Kind::Flush,
            CommandKind::Trim => Kind::Trim,
            CommandKind::Cache => Kind::Cache,
            CommandKind::WriteZeroes { no_hole, .. } => Kind::WriteZeroes { no_hole },
            CommandKind::BlockStatus { one } => {
                self.status(&command, one, plane);
                return None;
            }
        };
        let disk = self.disk();
        if !plane.has_room(disk) {
            self.stalled = Some(Stalled::Command(command));
            return Some(Stop::Stalled);
        }
        let held = self.held.get_mut(command.id.index()).and_then(Option::take);
        let buffer = match held {
            Some(held) => held.frame,
            None => {
                let frame = self.frame(&command, kind, plane);
                let Some(mut buffer) = plane.take_buffer(disk, frame.len) else {
                    self.stalled = Some(Stalled::Command(command));
                    return Some(Stop::Stalled);
                };
                if frame.zeroed {
                    buffer.fill(0);
                }
                buffer
            }
        };
        let whole = henge_vdisk::Command {
            kind,
            offset: command.offset,
            len: u64::from(command.len),
            fua: command.fua,
            arrival: command.arrival,
            tag: 0,
            portion: None,
        };
        plane.submit(disk, whole, buffer, Owner { connection: id, command: command.id }, now);
        None
    }

    /// Says which bytes take room. What takes none reads as zeroes.
    fn status(&mut self, command: &henge_nbd::Command, one: bool, plane: &mut Plane) {
        let most = if one { 1 } else { EXTENTS };
        let found = plane.extents(self.disk(), command.offset, u64::from(command.len), most);
        let extent = |e: &henge_iscsi::scsi::Extent| henge_nbd::Extent {
            len: u32::try_from(e.len).unwrap_or(u32::MAX),
            hole: !e.allocated,
            zero: !e.allocated,
        };
        let extents: Vec<_> = found.iter().filter(|e| e.len > 0).map(extent).collect();
        let known =
            if extents.is_empty() { henge_nbd::Answer::Done } else { henge_nbd::Answer::Extents(&extents) };
        self.session.reply(command.id, known);
    }

    /// Replies to a command that is over.
    pub(crate) fn answer(&mut self, answer: Answer, plane: &mut Plane) {
        let Answer { disk, owner, outcome, frame, lead, .. } = answer;
        let reply = match outcome {
            Ok(()) => henge_nbd::Answer::Done,
            Err(Failure::Fault(fault)) => henge_nbd::Answer::Fault(fault),
            Err(Failure::Miscompare { .. }) => henge_nbd::Answer::Failed(Error::Io, "miscompare"),
        };
        if self.session.reply(owner.command, reply) {
            self.hold(owner.command, frame, lead);
        } else {
            plane.put_buffer(disk, frame);
        }
    }

    /// Writes what is to be written, as far as the socket takes it. False when the connection is broken.
    pub(crate) fn write(&mut self, plane: &mut Plane) -> bool {
        while self.link.writable && !self.session.output().is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(self.session.output().segments()) {
                *slice = IoSlice::new(match segment {
                    Segment::Bytes(bytes) => bytes,
                    Segment::Payload { id, at, len } => {
                        let held = self.held[id.index()].as_ref().expect("a READ keeps its buffer");
                        let from = held.lead + at as usize;
                        &held.frame[from..from + len]
                    }
                });
                count += 1;
            }
            match rustix::io::writev(&self.link.fd, &slices[..count]) {
                Ok(n) => {
                    let held = &mut self.held;
                    let disk = self.disk;
                    self.session.written(n, |id| {
                        let held = held[id.index()].take().expect("a READ keeps its buffer");
                        plane.put_buffer(disk.expect("a READ came after an export was chosen"), held.frame);
                    });
                }
                Err(Errno::AGAIN) => self.link.writable = false,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Gives every buffer back, when the connection is over.
    pub(crate) fn release(&mut self, plane: &mut Plane) {
        for held in self.held.iter_mut().filter_map(Option::take) {
            plane.put_buffer(self.disk.expect("buffers belong to a disk's commands"), held.frame);
        }
    }
}
