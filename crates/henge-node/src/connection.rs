//! One NBD client's side of the node: its commands have memory, go to their disk, and are answered.
//!
//! A WRITE's payload goes from the socket straight into the command's buffer, a READ's from there straight to the socket.

use crate::catalog::Who;
use crate::job::Held;
use crate::plane::block_status;
use crate::plane::{Answer, Plane, Submitter};
use crate::pump::{CHUNK, Pump};
use crate::session::{Around, Begin, Departure, Session, Share, Slices, Stop, Taken, Wants};
use crate::stream::Stream;
use crate::turns::{BYTES, COMMANDS};
use henge_backend::Buffer;
use henge_core::{Instant, RequestId};
use henge_nbd::{CommandKind, Error, Exports, Limits, Segment, SessionEvent};
use henge_tls::Tls;
use henge_vdisk::{Failure, Frame, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

mod long;
#[cfg(test)]
mod tests;

use long::Long;

/// Stretches in one answer about what takes room; the client asks again for what follows.
const EXTENTS: usize = 256;

/// Options that a client without a disk has answered in one turn. The answer to one may name all disks.
pub(crate) const OPTIONS: u32 = 4;

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

/// A client.
pub(crate) struct Connection {
    pub session: henge_nbd::Session,
    pub disk: Option<usize>,
    /// The shard that is to serve it, and the number of the disk that it has come for where that is shown.
    away: Option<(usize, usize)>,
    pub stalled: Option<Stalled>,
    /// Who it has proven to be.
    who: Who,
    /// With what TLS begins.
    tls: Option<Arc<Tls>>,
    /// TLS has begun, and who it is has not been looked at since.
    unproven: bool,
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
    /// Questions about what takes room whose turn at the disk has come.
    looks: VecDeque<henge_nbd::Command>,
}

impl Connection {
    pub(crate) fn new(user: Option<u32>, limits: Limits, now: Instant) -> Self {
        Connection {
            who: Who { user, ..Who::default() },
            tls: None,
            unproven: false,
            session: henge_nbd::Session::new(limits, now),
            disk: None,
            away: None,
            stalled: None,
            held: Vec::new(),
            long: BTreeMap::new(),
            starved: false,
            queued: false,
            onward: false,
            broken: false,
            written: Vec::new(),
            looks: VecDeque::new(),
        }
    }

    /// One that begins in a process where another one's ended: on this disk, as it is now.
    pub(crate) fn after(
        user: Option<u32>,
        limits: Limits,
        rest: &henge_nbd::Rest,
        (disk, export): (usize, henge_nbd::Export),
        now: Instant,
    ) -> Self {
        let session = henge_nbd::Session::go_on(limits, rest, export);
        Connection { session, disk: Some(disk), ..Connection::new(user, limits, now) }
    }

    /// The same at a listener with this much of TLS.
    pub(crate) fn with_tls(mut self, mode: henge_nbd::Tls, tls: Option<Arc<Tls>>) -> Self {
        self.session = self.session.with_tls(mode);
        self.tls = tls;
        self
    }

    /// What was said in clear is written: the bytes are TLS from here on. False when that cannot be.
    fn begin_tls(&mut self, stream: &mut Stream, unread: bool) -> bool {
        let Some(tls) = self.tls.as_ref().filter(|_| !unread) else { return false };
        self.unproven = stream.secure(tls);
        if self.unproven {
            self.session.encrypted();
        }
        self.unproven
    }

    /// Where the next bytes of a payload belong.
    fn place(&mut self, command: RequestId, at: u32, len: u32) -> &mut [u8] {
        match self.long.get_mut(&command) {
            Some(long) => long.place(),
            None => {
                let held = self.held[command.index()].as_mut().expect("a WRITE has its buffer");
                let from = held.lead + at as usize;
                &mut held.frame[from..from + len as usize]
            }
        }
    }

    /// Tries again what was held back; `None` when nothing is any more.
    fn retry(&mut self, id: RequestId, plane: &mut Plane, now: Instant) -> Option<Stop> {
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

    fn act(
        &mut self,
        event: SessionEvent,
        consumed: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Option<Stop> {
        match event {
            SessionEvent::Nothing => (consumed == 0).then_some(Stop::Waiting),
            SessionEvent::Answered | SessionEvent::Entered { .. } => None,
            // Once the answer is written.
            SessionEvent::StartTls => None,
            SessionEvent::Command(command) => self.start(command, id, plane, now),
            SessionEvent::Payload(command) => self.prepare(command, id, plane, now),
            // What is in flight is answered first.
            SessionEvent::Closed(henge_nbd::Closed::Disconnect) if !self.session.is_over() => {
                Some(Stop::Waiting)
            }
            SessionEvent::Closed(_) => Some(Stop::Gone),
        }
    }

    fn chosen(&self) -> usize {
        self.disk.expect("commands come after an export was chosen")
    }

    fn frame(&self, command: &henge_nbd::Command, kind: Kind, plane: &mut Plane) -> Frame {
        plane.disks.of(self.chosen()).vdisk.frame(kind, command.offset, u64::from(command.len))
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
        let Some(buffer) = plane.take_buffer(self.chosen(), frame.len) else {
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
        let disk = self.chosen();
        if plane.disks.is_barred(disk) {
            self.refuse(&command, plane);
            return None;
        }
        if !plane.disks.has_capacity(disk) {
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
                    if cut
                        && frame.len > plane.memory.least()
                        && self.begin_long(command, kind, id, plane, now)
                    {
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
        plane.submit(disk, whole, buffer, Submitter { connection: id, command: command.id }, now);
        None
    }

    /// Initiators have stopped the disk, or it is being erased: a command does not reach it.
    fn refuse(&mut self, command: &henge_nbd::Command, plane: &mut Plane) {
        let held = self.held.get_mut(command.id.index()).and_then(Option::take);
        if let Some(held) = held {
            plane.put_buffer(self.chosen(), held.frame);
        }
        let why = henge_nbd::Answer::Failed(Error::Io, "the disk is stopped, or is being sanitized");
        self.session.reply(command.id, why);
    }

    /// Says which bytes take room. What takes none reads as zeroes.
    fn status(&mut self, command: &henge_nbd::Command, plane: &mut Plane) {
        let one = matches!(command.kind, CommandKind::BlockStatus { one: true });
        let most = if one { 1 } else { EXTENTS };
        let found = block_status::extents(plane, self.chosen(), command.offset, u64::from(command.len), most);
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
    fn answer(&mut self, answer: Answer, plane: &mut Plane, now: Instant) {
        if self.long.contains_key(&answer.submitter.command) {
            return self.long_answer(answer, plane, now);
        }
        let Answer { disk, submitter, outcome, frame, lead, .. } = answer;
        if outcome.is_ok()
            && let Some(command) = self.session.command(submitter.command)
            && let CommandKind::BlockStatus { .. } = command.kind
        {
            return self.looks.push_back(*command);
        }
        let reply = match outcome {
            Ok(()) => henge_nbd::Answer::Done,
            Err(Failure::Fault(fault)) => henge_nbd::Answer::Fault(fault),
            Err(Failure::Miscompare { .. }) => henge_nbd::Answer::Failed(Error::Io, "miscompare"),
        };
        if self.session.reply(submitter.command, reply) {
            self.hold(submitter.command, frame, lead);
        } else {
            plane.put_buffer(disk, frame);
        }
    }
}

impl Session for Connection {
    fn share(&self) -> Share {
        let messages = if self.disk.is_some() { COMMANDS } else { OPTIONS };
        Share { bytes: BYTES, messages }
    }

    fn resume(&mut self, around: &mut Around<'_>) -> Option<Stop> {
        let stop = self.retry(around.id, around.plane, around.now);
        if stop.is_none() && self.session.goes_on() {
            self.session.receive(&[], &around.catalog.shown_to(&self.who), around.now);
        }
        stop
    }

    fn wants<'a>(&'a mut self, _: &'a mut Around<'_>) -> Wants<'a> {
        match self.session.wants() {
            henge_nbd::Wants::Nothing => Wants::Nothing,
            henge_nbd::Wants::Bytes => Wants::Bytes { most: CHUNK },
            henge_nbd::Wants::Payload { id, at, len } => {
                let place = self.place(id, at, len);
                let here = place.len().min(BYTES);
                // What follows the payload is read with it: the next header, most of the time.
                let beyond = if place.len() <= BYTES { CHUNK } else { 0 };
                if here == 0 { Wants::Memory } else { Wants::Payload { into: &mut place[..here], beyond } }
            }
        }
    }

    fn received(&mut self, input: &[u8], around: &mut Around<'_>) -> Taken {
        let (bytes, event) = self.session.receive(input, &around.catalog.shown_to(&self.who), around.now);
        if let SessionEvent::Entered { export } = event {
            self.away = around.catalog.away(export);
            if self.away.is_some() {
                return Taken { bytes, stop: Some(Stop::Away) };
            }
            self.disk = around.catalog.here(export);
        }
        Taken { bytes, stop: self.act(event, bytes, around.id, around.plane, around.now) }
    }

    fn delivered(&mut self, bytes: usize, around: &mut Around<'_>) -> Option<Stop> {
        let (id, now, bytes) = (around.id, around.now, bytes as u32);
        if !self.long.is_empty()
            && let henge_nbd::Wants::Payload { id: which, .. } = self.session.wants()
            && self.long.contains_key(&which)
        {
            return self.arrived(which, bytes, id, around.plane, now);
        }
        let command = self.session.payload(bytes, now)?;
        self.start(command, id, around.plane, now)
    }

    fn completed(&mut self, answer: Answer, around: &mut Around<'_>) {
        self.answer(answer, around.plane, around.now);
    }

    fn look(&mut self, around: &mut Around<'_>) {
        if let Some(command) = self.looks.pop_front() {
            self.status(&command, around.plane);
        }
    }

    fn output<'a>(&'a mut self, _: &'a mut Around<'_>, out: &mut Slices<'_, 'a>) {
        let Connection { session, held, long, broken, .. } = self;
        if *broken {
            return;
        }
        for segment in session.output().segments() {
            let bytes = match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Payload { id, at, len } if let Some(long) = long.get(&id) => long.bytes(at, len),
                Segment::Payload { id, at, len } => {
                    let held = held[id.index()].as_ref().expect("a READ keeps its buffer");
                    let from = held.lead + at as usize;
                    &held.frame[from..from + len]
                }
            };
            if !out.push(bytes) {
                break;
            }
        }
    }

    fn written(&mut self, bytes: usize, around: &mut Around<'_>) {
        let (held, long, gone) = (&mut self.held, &self.long, &mut self.written);
        let (disk, plane) = (self.disk, &mut *around.plane);
        self.session.written(bytes, |id| {
            if long.contains_key(&id) {
                return gone.push(id);
            }
            let held = held[id.index()].take().expect("a READ keeps its buffer");
            plane.put_buffer(disk.expect("a READ came after an export was chosen"), held.frame);
        });
        while let Some(which) = self.written.pop() {
            self.window_written(which, around.id, around.plane, around.now);
        }
    }

    fn came_by(&mut self, stream: &Stream) {
        // A byte that was decrypted came after the handshake.
        if std::mem::take(&mut self.unproven) {
            self.who.certificate = stream.proven().unwrap_or_default();
        }
    }

    fn left_by(&mut self, stream: &mut Stream, unread: bool) -> bool {
        if self.session.is_ready_for_tls() && !self.begin_tls(stream, unread) {
            return false;
        }
        !self.broken
    }

    fn due(&self) -> Option<Instant> {
        self.session.wake_at()
    }
    fn tick(&mut self, around: &mut Around<'_>) -> bool {
        self.session.tick(around.now).is_none()
    }

    /// Nothing of it is at a disk yet: what it has said and heard goes along.
    fn depart(&mut self, around: &mut Around<'_>) -> Option<Departure> {
        let (to, export) = self.away.take()?;
        let edition = around.catalog.edition(export)?;
        let gone = henge_nbd::Session::new(Limits::default(), around.now);
        let (session, who) = (std::mem::replace(&mut self.session, gone), std::mem::take(&mut self.who));
        let begin: Begin = Box::new(move |around| {
            // It may have gone on the way, and another may have its number; or it is for others now.
            let catalog = around.catalog;
            let number = catalog.served_as(export);
            let stays =
                catalog.edition(export) == Some(edition) && catalog.shown_to(&who).get(number).is_some();
            let disk = catalog.here(number).filter(|_| stays)?;
            let mut connection = Connection::new(None, Limits::default(), around.now);
            (connection.session, connection.who, connection.disk) = (session, who, Some(disk));
            Some(Box::new(Pump::new(connection)))
        });
        Some(Departure { to, begin })
    }

    fn close(&mut self, around: &mut Around<'_>) {
        let plane = &mut *around.plane;
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

    fn pause(&mut self, _: &mut Around<'_>) -> bool {
        self.session.pause();
        true
    }
    fn rest(&self) -> Option<henge_nbd::Rest> {
        let quiet = self.long.is_empty() && self.looks.is_empty() && self.stalled.is_none() && !self.broken;
        self.session.rest().filter(|_| quiet && self.disk.is_some())
    }

    fn disk(&self) -> Option<usize> {
        self.disk
    }
    // A full session takes nothing, however often it is asked: a client that reads no replies keeps it so.
    fn takes(&self) -> bool {
        self.session.wants() != henge_nbd::Wants::Nothing
    }
    fn goes_on(&self) -> bool {
        self.onward || self.session.goes_on() && self.takes()
    }
    fn has_output(&self) -> bool {
        !self.looks.is_empty() || !self.session.output().is_empty()
    }
    fn is_over(&self) -> bool {
        self.session.is_over()
    }
    fn is_stalled(&self) -> bool {
        self.stalled.is_some() || self.starved
    }
    fn is_to_wait(&mut self) -> bool {
        self.starved && !std::mem::replace(&mut self.queued, true)
    }
    fn awaits_payload(&self) -> bool {
        matches!(self.session.wants(), henge_nbd::Wants::Payload { .. })
    }
    fn describe(&self) -> String {
        "an NBD client".into()
    }
}
