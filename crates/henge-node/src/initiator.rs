//! One iSCSI initiator's connection: bytes in, actions out, replies back.
//!
//! As with NBD, a WRITE's payload goes from the socket straight into the command's buffer and a READ's from there
//! straight to the socket, and a client that wants more than there is room or memory for is not read from.

use crate::client::{Link, Surroundings};
use crate::connection::Stop;
use crate::inflow;
use crate::job::{Held, Job, Step as JobStep, Verdict};
use crate::plane::{Answer, Owner, Plane};
use crate::portal::{Asked, Asker, Portal};
use crate::turns::{BYTES, COMMANDS};
use henge_core::{Instant, RequestId};
use henge_iscsi::scsi::{Action, Extent, Outcome, Status};
use henge_iscsi::{Command, HEADER_MAX, Payload, Segment, Session, Step, TargetId, Want};
use henge_vdisk::{Frame, Kind};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{IoSlice, IoSliceMut};

/// Stretches that one GET LBA STATUS tells of.
const EXTENTS: usize = 128;
/// Pieces written at once.
const PIECES: usize = 64;

/// An initiator.
pub(crate) struct Initiator {
    pub link: Link,
    pub session: Session,
    pub disk: Option<usize>,
    /// Received and not yet taken by the session.
    rest: Vec<u8>,
    held: BTreeMap<RequestId, Held>,
    jobs: BTreeMap<RequestId, Job>,
    /// Changes of reservations, and sweeps, that are not decided.
    reserving: BTreeSet<RequestId>,
    /// Commands that wait for room or memory.
    waiting: VecDeque<RequestId>,
    /// A payload waits for memory.
    no_memory: bool,
    gone: bool,
    /// Headers that it may still take in this turn.
    left: u32,
}

impl Initiator {
    pub(crate) fn new(link: Link, session: Session) -> Initiator {
        Initiator {
            link,
            session,
            disk: None,
            rest: Vec::new(),
            held: BTreeMap::new(),
            jobs: BTreeMap::new(),
            reserving: BTreeSet::new(),
            waiting: VecDeque::new(),
            no_memory: false,
            gone: false,
            left: 0,
        }
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.no_memory || !self.waiting.is_empty()
    }
    pub(crate) fn has_input(&self) -> bool {
        let something = self.link.readable || !self.rest.is_empty();
        self.is_stalled() || something && self.session.want() != Want::Nothing
    }
    pub(crate) fn is_over(&self) -> bool {
        self.session.want() == Want::Nothing && self.session.is_sent()
    }
    /// Nothing of it is at the disk any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.jobs.is_empty() && self.reserving.is_empty()
    }

    /// Reads and acts until something stops it.
    pub(crate) fn read(&mut self, id: RequestId, around: Surroundings<'_>) -> Stop {
        let Surroundings { plane, portal, chunk, now, .. } = around;
        self.left = COMMANDS;
        // Of a disk's own memory each piece can be had, whatever other disks hold.
        self.session.set_piece(plane.least().min(u64::from(inflow::WINDOW)));
        self.resume(id, plane, portal, now);
        let mut taken = 0;
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.feed(&rest, id, plane, portal, now);
        }
        loop {
            if self.is_stalled() {
                return Stop::Stalled;
            }
            let more = self.link.readable || self.left == 0 && !self.rest.is_empty();
            if !more || matches!(self.session.want(), Want::Later | Want::Nothing) {
                return Stop::Waiting;
            }
            if taken >= BYTES || self.left == 0 {
                return Stop::Turn;
            }
            let (payload, bytes) = match self.receive(chunk, plane) {
                Ok(None) => return Stop::Stalled,
                Ok(Some((0, 0))) => return Stop::Gone,
                Ok(Some(read)) => read,
                Err(Errno::AGAIN) => {
                    self.link.readable = false;
                    return Stop::Waiting;
                }
                Err(Errno::INTR) => continue,
                Err(_) => return Stop::Gone,
            };
            taken += payload + bytes;
            if payload > 0
                && let Want::Payload(p) = self.session.want()
            {
                let held = &self.held[&p.task];
                let from = held.lead + p.offset;
                self.session.delivered(&mut portal.targets, &held.frame[from..from + payload], now);
                self.pump(id, plane, portal, now);
            }
            self.feed(&chunk[..bytes], id, plane, portal, now);
        }
    }

    /// Reads what the session wants: bytes of payload, and bytes into `chunk`. `None` when memory is missing.
    fn receive(&mut self, chunk: &mut [u8], plane: &mut Plane) -> rustix::io::Result<Option<(usize, usize)>> {
        let Want::Payload(p) = self.session.want() else {
            // What is left over is in front of what comes.
            let kept = self.rest.len();
            debug_assert!(kept < HEADER_MAX, "less than a header was left");
            let n = self.link.readv(&mut [IoSliceMut::new(chunk)])?;
            return Ok(Some((0, n)));
        };
        let Some(free) = self.prepare(p, plane) else { return Ok(None) };
        let Some(held) = self.held.get_mut(&p.task) else { return Ok(None) };
        let (from, len) = (held.lead + p.offset, p.len.min(BYTES).min(free));
        let room = if len == p.len { chunk } else { &mut [][..] };
        let slices = &mut [IoSliceMut::new(&mut held.frame[from..from + len]), IoSliceMut::new(room)];
        let n = self.link.readv(slices)?;
        Ok(Some((n.min(len), n.saturating_sub(len))))
    }

    /// Room for a payload: so many bytes may be put into its buffer. `None` when memory is missing.
    fn prepare(&mut self, p: Payload, plane: &mut Plane) -> Option<usize> {
        if let Some(held) = self.held.get(&p.task)
            && held.lead + p.offset < held.frame.len()
        {
            return Some(held.frame.len() - held.lead - p.offset);
        }
        let disk = self.disk.expect("payload comes after login to a disk");
        let frame = match self.session.action(p.task) {
            Some(Action::Write { offset, len, .. }) => plane.disk(disk).vdisk.frame(Kind::Write, offset, len),
            _ => Frame { len: p.buffer as u64, ..Frame::default() },
        };
        let mut held = self.held.remove(&p.task);
        let room = inflow::room(&mut held, frame, p.offset, disk, plane);
        if let Some(held) = held {
            self.held.insert(p.task, held);
        }
        self.no_memory = room.is_none();
        room
    }

    /// Tries again what was held back.
    fn resume(&mut self, id: RequestId, plane: &mut Plane, portal: &mut Portal, now: Instant) {
        self.no_memory = false;
        for _ in 0..self.waiting.len() {
            let Some(task) = self.waiting.pop_front() else { return };
            if !self.step(task, id, plane, portal, now) {
                return;
            }
        }
        self.pump(id, plane, portal, now);
    }

    /// Gives the session what was received. What it does not take is kept.
    fn feed(&mut self, input: &[u8], id: RequestId, plane: &mut Plane, portal: &mut Portal, now: Instant) {
        let joined;
        let mut input = if self.rest.is_empty() {
            input
        } else {
            let mut rest = std::mem::take(&mut self.rest);
            rest.extend_from_slice(input);
            joined = rest;
            &joined[..]
        };
        while !input.is_empty() && !self.is_stalled() {
            let taken = match self.session.want() {
                Want::Payload(p) => {
                    let Some(free) = self.prepare(p, plane) else { break };
                    let n = input.len().min(p.len).min(free);
                    let held = self.held.get_mut(&p.task).expect("it was just prepared");
                    let from = held.lead + p.offset;
                    held.frame[from..from + n].copy_from_slice(&input[..n]);
                    self.session.delivered(&mut portal.targets, &input[..n], now);
                    n
                }
                Want::Header if self.left == 0 => break,
                Want::Header => {
                    self.left -= 1;
                    self.session.receive(&mut portal.targets, input, now)
                }
                Want::Later | Want::Nothing => break,
            };
            input = &input[taken..];
            self.pump(id, plane, portal, now);
            if taken == 0 {
                break;
            }
        }
        self.rest.extend_from_slice(input);
    }

    /// Does what the session wants done.
    pub(crate) fn pump(&mut self, id: RequestId, plane: &mut Plane, portal: &mut Portal, now: Instant) {
        if self.disk.is_none() {
            self.disk = self.session.target().and_then(|target| portal.disk(target));
        }
        while let Some(step) = self.session.step() {
            match step {
                Step::Execute(command) => self.execute(command, id, plane, portal, now),
                Step::Cancel(task) => self.cancel(task, id, plane, portal, now),
                Step::Release(task) => self.put(task, plane),
            }
        }
    }

    fn put(&mut self, task: RequestId, plane: &mut Plane) {
        if let (Some(held), Some(disk)) = (self.held.remove(&task), self.disk) {
            plane.put_buffer(disk, held.frame);
        }
    }

    fn execute(
        &mut self,
        command: Command,
        id: RequestId,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) {
        let task = command.task;
        match command.action {
            Action::Reserve(change) => {
                return self.ask(Asked::Change(*change), command.target, id, task, plane, portal);
            }
            Action::Sweep(what) => {
                return self.ask(Asked::Sweep(what), command.target, id, task, plane, portal);
            }
            _ => {}
        }
        self.jobs.insert(task, Job::new(command.action));
        // In order: what waits goes first.
        if self.waiting.is_empty() {
            self.step(task, id, plane, portal, now);
        } else {
            self.waiting.push_back(task);
        }
    }

    /// Asks for what is decided for all nodes of the disk.
    fn ask(
        &mut self,
        what: Asked,
        target: TargetId,
        id: RequestId,
        task: RequestId,
        plane: &mut Plane,
        portal: &mut Portal,
    ) {
        match portal.ask(target, what, Asker::Here(id, task), &mut plane.links) {
            Some(status) => {
                self.session.complete(&mut portal.targets, task, Outcome::Decided(status), &[]);
            }
            None => drop(self.reserving.insert(task)),
        }
    }

    /// The next step of a job. False when it has to wait.
    fn step(
        &mut self,
        task: RequestId,
        id: RequestId,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) -> bool {
        let Some(job) = self.jobs.get_mut(&task) else { return true };
        let Some(disk) = self.disk else { return true };
        let mut data = self.held.remove(&task);
        let owner = Owner { connection: id, command: task };
        let step = job.step(&mut data, disk, owner, plane, now);
        if let Some(data) = data {
            self.held.insert(task, data);
        }
        match step {
            JobStep::Submitted => true,
            JobStep::Later => {
                self.waiting.push_front(task);
                false
            }
            JobStep::Over(verdict) => {
                self.jobs.remove(&task);
                self.complete(task, verdict, portal);
                true
            }
        }
    }

    /// Says which bytes take room, now that it is the command's turn.
    fn status(&mut self, task: RequestId, (offset, len): (u64, u64), plane: &mut Plane, portal: &mut Portal) {
        let mut extents = self.disk.map_or_else(Vec::new, |disk| plane.extents(disk, offset, len, EXTENTS));
        if extents.is_empty() {
            extents.push(Extent { len, allocated: true });
        }
        self.session.complete(&mut portal.targets, task, Outcome::Extents(&extents), &[]);
    }

    fn complete(&mut self, task: RequestId, verdict: Verdict, portal: &mut Portal) {
        let data = self.held.get(&task).map_or(&[][..], Held::data);
        self.session.complete(&mut portal.targets, task, verdict.outcome(), data);
    }

    /// A change of reservations is decided, or a sweep done.
    pub(crate) fn decided(
        &mut self,
        id: RequestId,
        task: RequestId,
        status: Status,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) {
        if self.reserving.remove(&task) {
            self.session.complete(&mut portal.targets, task, Outcome::Decided(status), &[]);
            self.pump(id, plane, portal, now);
        }
    }

    /// A command is to be given up, if it has not begun.
    fn cancel(
        &mut self,
        task: RequestId,
        id: RequestId,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != task);
        if self.waiting.len() < before {
            self.jobs.remove(&task);
            return self.complete(task, Verdict::Failed(henge_core::Fault::Cancelled), portal);
        }
        if let Some(disk) = self.disk
            && let Some(job) = self.jobs.get_mut(&task)
        {
            job.give_up();
            // Its answer comes as all answers do.
            plane.abort(disk, id, Some(task), now);
        }
    }

    /// The disk has answered.
    pub(crate) fn answer(
        &mut self,
        id: RequestId,
        answer: Answer,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) {
        let task = answer.owner.command;
        let disk = answer.disk;
        let Some(job) = self.jobs.get_mut(&task) else {
            return plane.put_buffer(disk, answer.frame);
        };
        let mut data = self.held.remove(&task);
        let verdict = job.answered(answer, &mut data, plane);
        if let Some(data) = data {
            self.held.insert(task, data);
        }
        match verdict {
            None if self.gone => {
                // Half-way, and nobody waits: enough.
                job.release(disk, plane);
                self.jobs.remove(&task);
                self.complete(task, Verdict::Failed(henge_core::Fault::Cancelled), portal);
            }
            None => {
                self.step(task, id, plane, portal, now);
            }
            Some(Verdict::Done) if let Some((offset, len)) = job.extents() => {
                self.jobs.remove(&task);
                self.status(task, (offset, len), plane, portal);
            }
            Some(verdict) => {
                self.jobs.remove(&task);
                self.complete(task, verdict, portal);
            }
        }
        self.pump(id, plane, portal, now);
        if !self.session_keeps(task) {
            self.put(task, plane);
        }
    }

    /// Whether the session will still release the task's buffer.
    fn session_keeps(&self, task: RequestId) -> bool {
        self.session.holds(task)
    }

    /// Writes a turn's bytes of what is to be written, as far as the socket takes it. False when the connection is broken.
    pub(crate) fn write(
        &mut self,
        id: RequestId,
        plane: &mut Plane,
        portal: &mut Portal,
        now: Instant,
    ) -> bool {
        let mut left = BYTES;
        while left > 0 && self.link.writable && !self.session.is_sent() {
            let mut room = left;
            let mut slices = [IoSlice::new(&[]); PIECES];
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(self.session.segments()) {
                let bytes = match segment {
                    Segment::Bytes(bytes) => bytes,
                    Segment::Buffer(task, at, len) => &self.held[&task].data()[at..at + len],
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
                    self.session.advance(&mut portal.targets, n);
                    self.pump(id, plane, portal, now);
                }
                Err(Errno::AGAIN) => self.link.writable = false,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// The connection is gone. What is at the disk comes back later; until then this stays.
    pub(crate) fn end(&mut self, id: RequestId, plane: &mut Plane, portal: &mut Portal, now: Instant) {
        self.gone = true;
        portal.connections.remove(&self.session.nexus());
        self.session.close(&mut portal.targets);
        self.pump(id, plane, portal, now);
        // What was to be sent will not be.
        let busy: Vec<RequestId> =
            self.held.keys().copied().filter(|task| !self.jobs.contains_key(task)).collect();
        busy.into_iter().for_each(|task| self.put(task, plane));
    }
}
