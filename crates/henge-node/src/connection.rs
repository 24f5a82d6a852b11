//! One client's connection: bytes in, commands out, replies back.
//!
//! Reads go on until the socket is empty or something holds the client back: its session's bounds, its disk's
//! bound on pending commands, or memory. Then nothing more is read, and the socket's own back-pressure does the
//! rest. A WRITE's payload goes from the socket straight into the command's buffer, a READ's from there
//! straight to the socket.

use crate::catalog::{Catalog, Who};
use crate::client::Link;
use crate::job::Held;
use crate::plane::{Answer, Owner, Plane};
use crate::tls::Tls;
use crate::turns::{BYTES, COMMANDS};
use henge_backend::Buffer;
use henge_core::{Instant, RequestId};
use henge_nbd::{CommandKind, Error, Event, Limits, Segment, Session, Wants};
use henge_vdisk::{Failure, Frame, Kind};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

mod long;
#[cfg(test)]
mod tests;

use long::Long;

/// Bytes read at once; shared by all connections, since what is left over is kept by those that have some.
pub(crate) const CHUNK: usize = 64 << 10;
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
    /// A long WRITE of which no further piece can come yet.
    Window(RequestId),
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

/// A client.
pub(crate) struct Connection {
    pub link: Link,
    pub session: Session,
    pub disk: Option<usize>,
    pub stalled: Option<Stalled>,
    /// Who it has proven to be.
    who: Who,
    /// With what TLS begins.
    tls: Option<Arc<Tls>>,
    /// TLS has begun, and who it is has not been looked at since.
    unproven: bool,
    /// Received and not yet taken by the session.
    rest: Vec<u8>,
    /// Buffers by the slot of the session's name for the command.
    held: Vec<Option<Held>>,
    /// Commands that go in pieces.
    long: BTreeMap<RequestId, Long>,
    /// One of them waits for room at the disk, and nothing of its own will wake it.
    starved: bool,
    queued: bool,
    /// A piece of a long CACHE is over: the next is begun in the connection's turn.
    onward: bool,
    /// The protocol leaves nothing but to close it.
    broken: bool,
    /// Commands of which something was written out just now.
    written: Vec<RequestId>,
    /// Commands that it may still begin in this turn.
    left: u32,
}

impl Connection {
    pub(crate) fn new(link: Link, user: Option<u32>, limits: Limits, now: Instant) -> Self {
        Connection {
            link,
            who: Who { user, ..Who::default() },
            tls: None,
            unproven: false,
            session: Session::new(limits, now),
            disk: None,
            stalled: None,
            rest: Vec::new(),
            held: Vec::new(),
            long: BTreeMap::new(),
            starved: false,
            queued: false,
            onward: false,
            broken: false,
            written: Vec::new(),
            left: 0,
        }
    }

    /// The same at a listener with this much of TLS.
    pub(crate) fn with_tls(mut self, mode: henge_nbd::Tls, tls: Option<Arc<Tls>>) -> Self {
        self.session = self.session.with_tls(mode);
        self.tls = tls;
        self
    }

    /// What was said in clear is written: the bytes are TLS from here on. False when that cannot be.
    fn begin_tls(&mut self) -> bool {
        let Some(tls) = self.tls.as_ref().filter(|_| self.rest.is_empty()) else { return false };
        self.unproven = self.link.stream.secure(tls);
        if self.unproven {
            self.session.encrypted();
        }
        self.unproven
    }

    /// Whether reading would get anywhere as soon as nothing holds it back.
    pub(crate) fn has_input(&self) -> bool {
        let something = self.link.readable || !self.rest.is_empty() || self.session.goes_on();
        // A full session takes nothing, however often it is asked: a client that reads no replies keeps it so.
        self.onward || self.is_stalled() || something && self.session.wants() != Wants::Nothing
    }

    /// Bytes of a WRITE are to come.
    pub(crate) fn awaits_payload(&self) -> bool {
        matches!(self.session.wants(), Wants::Payload { .. })
    }

    /// It waits for room or memory.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.is_some() || self.starved
    }

    /// Whether it is to be put among those that wait for room; said once.
    pub(crate) fn is_to_wait(&mut self) -> bool {
        self.starved && !std::mem::replace(&mut self.queued, true)
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
        self.left = COMMANDS;
        if let Some(stop) = self.resume(id, plane, now) {
            return stop;
        }
        if self.session.goes_on() {
            self.session.receive(&[], &catalog.shown_to(&self.who), now);
        }
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            if let Some(stop) = self.feed(&rest, id, plane, catalog, now) {
                return stop;
            }
        }
        while self.link.readable {
            if taken >= BYTES || self.left == 0 {
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
                && let Some(stop) = self.delivered(payload as u32, id, plane, now)
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
                let n = self.link.readv(&mut [IoSliceMut::new(chunk)])?;
                // A byte that was decrypted came after the handshake.
                if n > 0 && std::mem::take(&mut self.unproven) {
                    self.who.certificate = self.link.stream.proven().unwrap_or_default();
                }
                Ok(Some((0, n)))
            }
            Wants::Payload { id, at, len } => {
                let place = match self.long.get_mut(&id) {
                    Some(long) => long.place(),
                    None => {
                        let held = self.held[id.index()].as_mut().expect("a WRITE has its buffer");
                        let from = held.lead + at as usize;
                        &mut held.frame[from..from + len as usize]
                    }
                };
                // What follows the payload is read with it: the next header, most of the time.
                let room = if place.len() <= BYTES { chunk } else { &mut [][..] };
                let len = place.len().min(BYTES);
                let n = self.link.readv(&mut [IoSliceMut::new(&mut place[..len]), IoSliceMut::new(room)])?;
                Ok(Some((n.min(len), n.saturating_sub(len))))
            }
        }
    }

    /// `n` bytes of the payload that is awaited are where they belong.
    fn delivered(&mut self, n: u32, id: RequestId, plane: &mut Plane, now: Instant) -> Option<Stop> {
        if let Wants::Payload { id: which, .. } = self.session.wants()
            && self.long.contains_key(&which)
        {
            return self.arrived(which, n, id, plane, now);
        }
        let command = self.session.payload(n, now)?;
        self.start(command, id, plane, now)
    }

    /// Tries again what was held back; `None` when nothing is any more.
    fn resume(&mut self, id: RequestId, plane: &mut Plane, now: Instant) -> Option<Stop> {
        self.queued = false;
        if self.starved || self.onward {
            self.resume_long(id, plane, now);
            self.queued = self.starved;
        }
        let stop = match self.stalled.take() {
            None => None,
            Some(Stalled::Command(command)) => self.start(command, id, plane, now),
            Some(Stalled::Payload(command)) => self.prepare(command, id, plane, now),
            Some(Stalled::Window(which)) => self.next_place(which, id, plane, now),
        };
        stop.or(self.starved.then_some(Stop::Stalled))
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
                    let place = match self.long.get_mut(&command) {
                        Some(long) => long.place(),
                        None => {
                            let held = self.held[command.index()].as_mut().expect("a WRITE has its buffer");
                            let from = held.lead + at as usize;
                            &mut held.frame[from..from + len as usize]
                        }
                    };
                    let n = input.len().min(place.len());
                    place[..n].copy_from_slice(&input[..n]);
                    (n, self.delivered(n as u32, id, plane, now))
                }
                _ if self.left == 0 => (0, Some(Stop::Turn)),
                _ => {
                    self.left -= 1;
                    let (consumed, event) = self.session.receive(input, &catalog.shown_to(&self.who), now);
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
            // Once the answer is written.
            Event::StartTls => None,
            Event::Command(command) => self.start(command, id, plane, now),
            Event::Payload(command) => self.prepare(command, id, plane, now),
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
    fn prepare(
        &mut self,
        command: henge_nbd::Command,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Option<Stop> {
        let frame = self.frame(&command, Kind::Write, plane);
        if self.comes_in_pieces(&command, frame.len, plane) {
            return self.begin_long_write(command, id, plane, now);
        }
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
            CommandKind::BlockStatus { .. } => Kind::Status,
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
                let cut = frame.len > 0 && self.may_cut(&command);
                if cut && command.len > long::window(kind) {
                    if self.begin_long(command, kind, id, plane, now) {
                        return None;
                    }
                    self.stalled = Some(Stalled::Command(command));
                    return Some(Stop::Stalled);
                }
                let Some(mut buffer) = plane.take_buffer(disk, frame.len) else {
                    if cut && frame.len > plane.least() && self.begin_long(command, kind, id, plane, now) {
                        return None;
                    }
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
    pub(crate) fn answer(&mut self, answer: Answer, plane: &mut Plane, now: Instant) {
        if self.long.contains_key(&answer.owner.command) {
            return self.long_answer(answer, plane, now);
        }
        let Answer { disk, owner, outcome, frame, lead, .. } = answer;
        if outcome.is_ok()
            && let Some(command) = self.session.command(owner.command)
            && let CommandKind::BlockStatus { one } = command.kind
        {
            let command = *command;
            return self.status(&command, one, plane);
        }
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

    /// Writes a turn's bytes of what is to be written, as far as the socket takes it. False when the connection is broken.
    pub(crate) fn write(&mut self, id: RequestId, plane: &mut Plane, now: Instant) -> bool {
        let mut left = BYTES;
        while left > 0 && !self.broken && self.link.writable && !self.session.output().is_empty() {
            let mut room = left;
            let mut slices = [IoSlice::new(&[]); PIECES];
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(self.session.output().segments()) {
                let bytes = match segment {
                    Segment::Bytes(bytes) => bytes,
                    Segment::Payload { id, at, len } if let Some(long) = self.long.get(&id) => {
                        long.bytes(at, len)
                    }
                    Segment::Payload { id, at, len } => {
                        let held = self.held[id.index()].as_ref().expect("a READ keeps its buffer");
                        let from = held.lead + at as usize;
                        &held.frame[from..from + len]
                    }
                };
                let bytes = &bytes[..bytes.len().min(room)];
                *slice = IoSlice::new(bytes);
                (count, room) = (count + 1, room - bytes.len());
                if room == 0 {
                    break;
                }
            }
            match self.link.stream.writev(&slices[..count]) {
                Ok(n) => {
                    left -= n;
                    self.link.moved += n as u64;
                    let (held, long, gone) = (&mut self.held, &self.long, &mut self.written);
                    let disk = self.disk;
                    self.session.written(n, |id| {
                        if long.contains_key(&id) {
                            return gone.push(id);
                        }
                        let held = held[id.index()].take().expect("a READ keeps its buffer");
                        plane.put_buffer(disk.expect("a READ came after an export was chosen"), held.frame);
                    });
                    while let Some(which) = self.written.pop() {
                        self.window_written(which, id, plane, now);
                    }
                }
                Err(Errno::AGAIN) => self.link.writable = false,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        if self.session.is_ready_for_tls() && !self.begin_tls() {
            return false;
        }
        !self.broken
    }

    /// Gives every buffer back, when the connection is over.
    pub(crate) fn release(&mut self, plane: &mut Plane) {
        for held in self.held.iter_mut().filter_map(Option::take) {
            plane.put_buffer(self.disk.expect("buffers belong to a disk's commands"), held.frame);
        }
        for mut long in std::mem::take(&mut self.long).into_values() {
            let disk = self.disk.expect("buffers belong to a disk's commands");
            if long.is_fetch() {
                plane.end_fetch(disk);
            }
            long.take_all().for_each(|buffer| plane.put_buffer(disk, buffer));
        }
    }
}
