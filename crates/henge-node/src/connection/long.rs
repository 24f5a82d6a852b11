//! Commands that are longer than a window: they go through bounded memory, piece by piece.
//!
//! The problem: a READ of 32 MiB whose client takes no replies, or a WRITE of which only the header has come, would hold its whole length of
//! memory. The rule: what is longer than [`WINDOW`] is cut there (at the disk's addresses), and each piece is a command of the disk. Of a
//! READ at most [`WINDOWS`] pieces are at the disk or wait to be sent; one that is sent makes room for the next, in its own memory, so that
//! what has begun goes on whatever others hold. Of a WRITE a piece has memory for [`EARLY`] bytes until these have come, then for all of
//! it. Where not even a window is left, pieces are as long as the disk's minimum.
//!
//! A CACHE answers nobody in between, so nothing of its client's would slow it down. Hence it goes on in its connection's turns alone, which
//! its disk's weight says; [`FETCHED`] pieces of it are at the disk at once, and of each disk a few such commands are under way.
//!
//! Example: a READ of 32 MiB by a client that reads nothing: 4 MiB are read and held; the other 28 are asked for as the client takes these.
//!
//! Guarantee: at most `WINDOWS` times `WINDOW` bytes for each command, of its own disk's share. Price: a long READ is at the disk with four
//! pieces at once, not with all; a WRITE that breaks off half-way has written what came before (the protocol promises no more); the
//! disk's meters count pieces.

use super::{Connection, Stalled};
use crate::inflow::{EARLY, WINDOW};
use crate::job::Held;
use crate::plane::{Answer, Plane, Submitter};
use crate::session::Stop;
use henge_backend::{Buffer, BufferPool};
use henge_core::{Fault, Instant, RequestId};
use henge_nbd::CommandKind;
use henge_vdisk::{Failure, Kind};
use std::collections::VecDeque;

/// Most pieces of one command at once.
const WINDOWS: usize = 4;
/// Longest piece of a CACHE. Nobody waits for its bytes, and where they are in the page cache the loop copies each piece in one go, as
/// many as the gate lets through: short ones leave others their turns.
const FETCH: u32 = 128 << 10;
/// Most of them at once, of one command.
const FETCHED: usize = 2;

/// A piece of a READ or CACHE.
struct Window {
    /// First byte, counted from the command's.
    at: u32,
    len: u32,
    /// Its bytes, once they are read.
    held: Option<Held>,
    /// Handed to the session, to be sent.
    sent: bool,
}

/// The piece of a WRITE whose bytes are coming.
struct Filling {
    at: u32,
    len: u32,
    /// Bytes that have come.
    got: u32,
    held: Held,
}

/// A command on its way.
pub(super) struct Long {
    command: henge_nbd::Command,
    kind: Kind,
    /// Pieces end at multiples of it.
    step: u64,
    most: usize,
    /// Bytes for which a piece was begun, and which are over.
    begun: u32,
    done: u32,
    windows: VecDeque<Window>,
    /// Pieces at the disk.
    flying: usize,
    filling: Option<Filling>,
    /// Memory of a piece that is over, for the next.
    spare: Option<Buffer>,
    failure: Option<Fault>,
}

impl Long {
    fn new(command: henge_nbd::Command, kind: Kind, step: u64) -> Long {
        Long {
            command,
            kind,
            step,
            most: match kind {
                _ if step < u64::from(window(kind)) => 1,
                Kind::Cache => FETCHED,
                _ => WINDOWS,
            },
            begun: 0,
            done: 0,
            windows: VecDeque::new(),
            flying: 0,
            filling: None,
            spare: None,
            failure: None,
        }
    }

    /// It holds one of its disk's places for long CACHEs.
    pub(super) fn is_fetch(&self) -> bool {
        self.kind == Kind::Cache
    }

    /// Bytes of the next piece.
    fn next_len(&self) -> u32 {
        let from = self.command.offset + u64::from(self.begun);
        (self.step - from % self.step).min(u64::from(self.command.len - self.begun)) as u32
    }

    fn piece(&self, at: u32, len: u32, arrival: Instant) -> henge_vdisk::Command {
        let (offset, fua) = (self.command.offset + u64::from(at), self.command.fua);
        let piece = henge_vdisk::Command::new(self.kind, offset, u64::from(len), arrival, 0);
        henge_vdisk::Command { fua, ..piece }
    }

    /// Bytes that are ready to be sent, from `at` on.
    pub(super) fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let inside = |w: &&Window| at >= u64::from(w.at) && at < u64::from(w.at) + u64::from(w.len);
        let window = self.windows.iter().find(inside).expect("what is sent is kept");
        let held = window.held.as_ref().expect("what is sent was read");
        let from = held.lead + (at - u64::from(window.at)) as usize;
        &held.frame[from..from + len]
    }

    /// Where the next bytes of the payload belong.
    pub(super) fn place(&mut self) -> &mut [u8] {
        let Some(filling) = &mut self.filling else { return &mut [] };
        let from = filling.held.lead + filling.got as usize;
        let until = (filling.held.lead + filling.len as usize).min(filling.held.frame.len());
        &mut filling.held.frame[from..until]
    }

    /// Everything that it holds.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Buffer> {
        let windows = self.windows.drain(..).filter_map(|w| w.held).map(|held| held.frame);
        let filling = self.filling.take().map(|f| f.held.frame);
        windows.chain(filling).chain(self.spare.take())
    }
}

impl Connection {
    /// Begins a READ or CACHE of which no more than some windows are held at once. False where it has to wait for its turn or memory.
    pub(super) fn begin_long(
        &mut self,
        command: henge_nbd::Command,
        kind: Kind,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> bool {
        let disk = self.chosen();
        if kind == Kind::Cache && !plane.disks.of(disk).begin_fetch() {
            return false;
        }
        for step in steps(kind, plane) {
            let Some(buffer) = plane.take_buffer(disk, step) else { continue };
            let mut long = Long::new(command, kind, step);
            long.spare = Some(buffer);
            self.long.insert(command.id, long);
            self.go_on(command.id, id, plane, now);
            return true;
        }
        if kind == Kind::Cache {
            plane.end_fetch(disk);
        }
        false
    }

    /// Begins a WRITE whose payload comes. What is in its way is noted.
    pub(super) fn begin_long_write(
        &mut self,
        command: henge_nbd::Command,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Option<Stop> {
        self.long.insert(command.id, Long::new(command, Kind::Write, u64::from(WINDOW)));
        self.next_place(command.id, id, plane, now)
    }

    /// More pieces of a READ or CACHE, as long as there are room and memory.
    fn go_on(&mut self, which: RequestId, id: RequestId, plane: &mut Plane, now: Instant) {
        let disk = self.chosen();
        let Some(long) = self.long.get_mut(&which) else { return };
        while long.failure.is_none() && long.begun < long.command.len && long.windows.len() < long.most {
            if !plane.disks.has_capacity(disk) {
                self.starved |= long.windows.is_empty(); // nothing that ends makes it go on
                return;
            }
            let buffer = long.spare.take().or_else(|| plane.take_buffer(disk, long.step));
            let Some(mut buffer) = buffer else { return };
            let (at, len) = (long.begun, long.next_len());
            // The first ones came with the command; each other is wanted when there is a place for it.
            let arrival = if long.done == 0 { long.command.arrival } else { now };
            let piece = long.piece(at, len, arrival);
            let frame = plane.disks.of(disk).vdisk.frame(long.kind, piece.offset, piece.len);
            buffer.set_len(frame.len as usize);
            long.begun += len;
            long.flying += 1;
            long.windows.push_back(Window { at, len, held: None, sent: false });
            plane.submit(disk, piece, buffer, Submitter { connection: id, command: which }, now);
        }
    }

    /// Goes on with all that could not.
    pub(super) fn resume_long(&mut self, id: RequestId, plane: &mut Plane, now: Instant) {
        (self.starved, self.onward) = (false, false);
        let all: Vec<RequestId> = self.long.keys().copied().collect();
        for which in all {
            if self.long.get(&which).is_some_and(|long| long.kind != Kind::Write) {
                self.go_on(which, id, plane, now);
            }
        }
    }

    /// A piece is over.
    pub(super) fn long_answer(&mut self, answer: Answer, plane: &mut Plane, now: Instant) {
        let Answer { disk, submitter, outcome, frame, lead, at, .. } = answer;
        let (which, id) = (submitter.command, submitter.connection);
        let long = self.long.get_mut(&which).expect("the caller has looked");
        let at = (at - long.command.offset) as u32;
        long.flying -= 1;
        if let Err(failure) = outcome {
            let fault = if let Failure::Fault(fault) = failure { fault } else { Fault::Io };
            long.failure.get_or_insert(fault);
        }
        if long.kind == Kind::Read {
            let window = long.windows.iter_mut().find(|w| w.at == at).expect("a piece that was begun");
            window.held = Some(Held { frame, lead: lead as usize });
            return self.send_windows(which, plane);
        }
        let place = long.windows.iter().position(|w| w.at == at).expect("a piece that was begun");
        let window = long.windows.remove(place).expect("it was just found");
        long.done += window.len;
        if long.kind == Kind::Cache {
            plane.put_buffer(disk, long.spare.replace(frame).unwrap_or_default());
            self.onward |= long.begun < long.command.len;
        } else {
            plane.put_buffer(disk, frame);
            if self.stalled == Some(Stalled::Window(which)) {
                self.stalled = None;
                // What still stops it is noted anew; the loop reads on where nothing does.
                self.next_place(which, id, plane, now);
            }
        }
        self.end_long(which, plane);
    }

    /// Hands what was read to the session, in order.
    fn send_windows(&mut self, which: RequestId, plane: &mut Plane) {
        let alone = self.session.may_send(which);
        let Some(long) = self.long.get_mut(&which) else { return };
        if let Some(fault) = long.failure {
            if long.flying > 0 {
                return;
            }
            let said = |w: &Window| w.sent;
            let unsent = long.windows.iter().position(|w| !said(w)).unwrap_or(long.windows.len());
            let disk = self.disk.expect("a READ came after an export was chosen");
            for held in long.windows.drain(unsent..).filter_map(|w| w.held) {
                plane.put_buffer(disk, held.frame);
            }
            long.begun = long.command.len; // there is no more to come
            if !self.session.window_failed(which, fault) {
                self.broken = true;
            }
            return self.forget_long(which, plane);
        }
        if !alone {
            return;
        }
        for window in long.windows.iter_mut().skip_while(|w| w.sent) {
            if window.held.is_none() {
                return;
            }
            window.sent = true;
            let whole = window.at + window.len == long.command.len;
            self.session.window(which, window.len);
            if whole {
                break;
            }
        }
        // With the last one, others that were ready may be sent.
        if self.session.may_send(RequestId { slot: u32::MAX, generation: u32::MAX }) {
            let ready = |(which, long): (&RequestId, &Long)| {
                let next = long.windows.iter().find(|w| !w.sent);
                (long.kind == Kind::Read && next.is_some_and(|w| w.held.is_some())).then_some(*which)
            };
            if let Some(next) = self.long.iter().find_map(ready) {
                self.send_windows(next, plane);
            }
        }
    }

    /// The oldest piece of a READ is written out: its memory is for the next one.
    pub(super) fn window_written(
        &mut self,
        which: RequestId,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) {
        let disk = self.chosen();
        let Some(long) = self.long.get_mut(&which) else { return };
        let window = long.windows.pop_front().expect("what was written was kept");
        let frame = window.held.expect("what was written was read").frame;
        long.done += window.len;
        plane.put_buffer(disk, long.spare.replace(frame).unwrap_or_default());
        self.go_on(which, id, plane, now);
        self.forget_long(which, plane);
    }

    /// A READ of which nothing is left to come or to be written.
    fn forget_long(&mut self, which: RequestId, plane: &mut Plane) {
        let disk = self.chosen();
        let Some(long) = self.long.get_mut(&which) else { return };
        if long.windows.is_empty() && long.flying == 0 && long.begun == long.command.len {
            long.take_all().for_each(|buffer| plane.put_buffer(disk, buffer));
            self.long.remove(&which);
        }
    }

    /// A WRITE or CACHE is answered when all of it is over.
    fn end_long(&mut self, which: RequestId, plane: &mut Plane) {
        let disk = self.chosen();
        let Some(long) = self.long.get_mut(&which) else { return };
        let failed = long.failure.filter(|_| long.kind == Kind::Cache && long.flying == 0);
        if long.done < long.command.len && failed.is_none() {
            return;
        }
        let reply = long.failure.map_or(henge_nbd::Answer::Done, henge_nbd::Answer::Fault);
        self.session.reply(which, reply);
        if long.is_fetch() {
            plane.end_fetch(disk);
        }
        long.take_all().for_each(|buffer| plane.put_buffer(disk, buffer));
        self.long.remove(&which);
    }

    /// `n` bytes of a WRITE's payload are in their place.
    pub(super) fn arrived(
        &mut self,
        which: RequestId,
        n: u32,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Option<Stop> {
        self.session.payload(n, now);
        let filling = self.long.get_mut(&which).and_then(|long| long.filling.as_mut());
        filling.expect("bytes have come to it").got += n;
        self.next_place(which, id, plane, now)
    }

    /// Sees to it that there is a place for the next bytes of a WRITE; what is in the way is noted.
    pub(super) fn next_place(
        &mut self,
        which: RequestId,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Option<Stop> {
        let disk = self.chosen();
        loop {
            let long = self.long.get_mut(&which)?;
            if !long.place().is_empty() {
                return None;
            }
            let moved = match long.filling.take() {
                None if long.begun == long.command.len => {
                    self.end_long(which, plane);
                    return None;
                }
                None => long.begin_filling(disk, plane),
                Some(filling) if filling.got < filling.len => {
                    long.grow(filling, disk, plane);
                    true
                }
                Some(filling) => {
                    long.submit(filling, disk, Submitter { connection: id, command: which }, plane, now)
                }
            };
            if !moved {
                self.stalled = Some(Stalled::Window(which));
                return Some(Stop::Stalled);
            }
        }
    }
}

impl Long {
    /// Memory for the beginning of the next piece. False when it has to wait.
    fn begin_filling(&mut self, disk: usize, plane: &mut Plane) -> bool {
        if self.windows.len() >= self.most {
            return false;
        }
        let (at, len) = (self.begun, self.next_len());
        let frame = self.frame(at, len, disk, plane);
        let Some(buffer) = plane.take_buffer(disk, frame.len.min(EARLY as u64)) else {
            // What is its own, nobody else can have; with that it goes on, slowly.
            let least = plane.memory.least();
            return self.step > least && {
                self.step = least;
                self.begin_filling(disk, plane)
            };
        };
        self.begun += len;
        let held = Held { frame: buffer, lead: frame.lead as usize };
        self.filling = Some(Filling { at, len, got: 0, held });
        true
    }

    fn frame(&self, at: u32, len: u32, disk: usize, plane: &mut Plane) -> henge_vdisk::Frame {
        let offset = self.command.offset + u64::from(at);
        plane.disks.of(disk).vdisk.frame(self.kind, offset, u64::from(len))
    }

    /// So much has come that the whole piece gets its memory; where there is none, what has come is the piece.
    fn grow(&mut self, mut filling: Filling, disk: usize, plane: &mut Plane) {
        let frame = self.frame(filling.at, filling.len, disk, plane);
        match plane.take_buffer(disk, frame.len) {
            Some(mut larger) => {
                larger[..filling.held.frame.len()].copy_from_slice(&filling.held.frame);
                plane.put_buffer(disk, std::mem::replace(&mut filling.held.frame, larger));
            }
            None => {
                self.begun -= filling.len - filling.got;
                filling.len = filling.got;
            }
        }
        self.filling = Some(filling);
    }

    /// A whole piece goes to the disk. False when that has no room.
    fn submit(
        &mut self,
        filling: Filling,
        disk: usize,
        submitter: Submitter,
        plane: &mut Plane,
        now: Instant,
    ) -> bool {
        if plane.disks.is_barred(disk) {
            self.failure.get_or_insert(Fault::Io);
        }
        if self.failure.is_some() {
            plane.put_buffer(disk, filling.held.frame);
            self.done += filling.len; // the command has failed: what still comes is dropped
            return true;
        }
        if !plane.disks.has_capacity(disk) {
            self.filling = Some(filling);
            return false;
        }
        let Filling { at, len, mut held, .. } = filling;
        let frame = self.frame(at, len, disk, plane);
        held.frame.set_len(frame.len as usize);
        self.flying += 1;
        self.windows.push_back(Window { at, len, held: None, sent: false });
        plane.submit(disk, self.piece(at, len, now), held.frame, submitter, now);
        true
    }
}

/// A command that is longer goes in pieces of this length.
pub(super) fn window(kind: Kind) -> u32 {
    if kind == Kind::Cache { FETCH } else { WINDOW }
}

/// How long pieces may be: a window, or what the disk has for itself alone.
fn steps(kind: Kind, plane: &Plane) -> [u64; 2] {
    let window = u64::from(window(kind));
    [window, plane.memory.least().min(window)]
}

impl Connection {
    /// Whether a WRITE gets its memory in pieces, as its bytes come: beyond what is the disk's own.
    pub(super) fn comes_in_pieces(
        &self,
        command: &henge_nbd::Command,
        frame: u64,
        plane: &mut Plane,
    ) -> bool {
        command.len > WINDOW
            || frame > EARLY as u64
                && !plane.memory.is_own(plane.disks.of(self.chosen()), BufferPool::footprint(frame as usize))
    }

    /// Whether a command may go piece by piece.
    pub(super) fn may_cut(&self, command: &henge_nbd::Command) -> bool {
        match command.kind {
            CommandKind::Read { .. } => self.session.may_cut(command.kind),
            CommandKind::Cache => true,
            _ => false,
        }
    }
}
