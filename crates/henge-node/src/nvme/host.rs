//! One host's connection, which is a queue: bytes in, actions out, completions back.
//!
//! As with NBD, a write's payload goes from the socket straight into the command's buffer and a read's from there straight
//! to the socket, and a host that wants more than there is room or memory for is not read from.

use crate::client::{Link, Surroundings};
use crate::connection::Stop;
use crate::inflow;
use crate::job::{Held, Job, Step as JobStep, Verdict};
use crate::nvme::Fabric;
use crate::plane::{Answer, Owner, Plane};
use crate::portal::Portal;
use crate::turns::{BYTES, COMMANDS};
use henge_core::{Fault, Instant, RequestId};
use henge_iscsi::scsi;
use henge_nvme::wire::HEADER_MAX;
use henge_nvme::{Action, Command, Outcome, Payload, Segment, Session, Step, Want};
use henge_vdisk::{Frame, Kind};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

/// Pieces written at once.
const PIECES: usize = 64;

/// What a command has here.
#[derive(Default)]
struct Place {
    held: Option<Held>,
    job: Option<Job>,
}

/// A host's connection.
pub(crate) struct Host {
    pub link: Link,
    pub session: Session,
    pub disk: Option<usize>,
    /// Received and not yet taken by the session.
    rest: Vec<u8>,
    /// By the slot of the session's name for the command.
    places: Vec<Place>,
    /// Commands at the disk.
    busy: usize,
    /// Commands that wait for room or memory.
    waiting: VecDeque<RequestId>,
    /// A payload waits for memory.
    no_memory: bool,
    gone: bool,
    /// Headers that it may still take in this turn.
    left: u32,
}

impl Host {
    pub(crate) fn new(link: Link, session: Session) -> Host {
        Host {
            link,
            session,
            disk: None,
            rest: Vec::new(),
            places: Vec::new(),
            busy: 0,
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
        let wants = !matches!(self.session.want(), Want::Later | Want::Nothing);
        self.is_stalled() || something && wants
    }
    pub(crate) fn is_over(&self) -> bool {
        self.session.want() == Want::Nothing && self.session.is_sent()
    }
    /// Nothing of it is at the disk any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.busy == 0
    }

    fn place(&mut self, task: RequestId) -> &mut Place {
        let slot = task.index();
        if self.places.len() <= slot {
            self.places.resize_with(slot + 1, Place::default);
        }
        &mut self.places[slot]
    }

    /// Reads and acts until something stops it.
    pub(crate) fn read(&mut self, id: RequestId, around: Surroundings<'_>) -> Stop {
        let Surroundings { plane, portal, chunk, now, .. } = around;
        let fabric = &mut portal.nvme;
        self.left = COMMANDS;
        self.resume(id, plane, fabric, now);
        let mut taken = 0;
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.feed(&rest, id, plane, fabric, now);
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
                && let Some(held) = &self.places[p.task.index()].held
            {
                let from = held.lead + p.offset;
                self.session.delivered(&mut fabric.subsystems, &held.frame[from..from + payload]);
                self.pump(id, plane, fabric, now);
            }
            self.feed(&chunk[..bytes], id, plane, fabric, now);
        }
    }

    /// Reads what the session wants: bytes of payload, and bytes into `chunk`. `None` when memory is missing.
    fn receive(&mut self, chunk: &mut [u8], plane: &mut Plane) -> rustix::io::Result<Option<(usize, usize)>> {
        let Want::Payload(p) = self.session.want() else {
            debug_assert!(self.rest.len() < HEADER_MAX, "less than a header was left");
            let n = self.link.readv(&mut [IoSliceMut::new(chunk)])?;
            return Ok(Some((0, n)));
        };
        let Some(free) = self.prepare(p, plane) else { return Ok(None) };
        let Some(held) = &mut self.places[p.task.index()].held else { return Ok(None) };
        let (from, len) = (held.lead + p.offset, p.len.min(BYTES).min(free));
        // What follows the payload is read with it: the next header, most of the time.
        let room = if len == p.len { chunk } else { &mut [][..] };
        let slices = &mut [IoSliceMut::new(&mut held.frame[from..from + len]), IoSliceMut::new(room)];
        let n = self.link.readv(slices)?;
        Ok(Some((n.min(len), n.saturating_sub(len))))
    }

    /// Room for a payload: so many bytes may be put into its buffer. `None` when memory is missing.
    fn prepare(&mut self, p: Payload, plane: &mut Plane) -> Option<usize> {
        if let Some(held) = &self.place(p.task).held
            && held.lead + p.offset < held.frame.len()
        {
            return Some(held.frame.len() - held.lead - p.offset);
        }
        let disk = self.disk?;
        let frame = match self.session.action(p.task) {
            Some(Action::Write { offset, len, .. }) => plane.disk(disk).vdisk.frame(Kind::Write, offset, len),
            _ => Frame { len: p.buffer as u64, ..Frame::default() },
        };
        let room = inflow::room(&mut self.place(p.task).held, frame, p.offset, disk, plane);
        self.no_memory = room.is_none();
        room
    }

    /// Tries again what was held back.
    fn resume(&mut self, id: RequestId, plane: &mut Plane, fabric: &mut Fabric, now: Instant) {
        self.no_memory = false;
        for _ in 0..self.waiting.len() {
            let Some(task) = self.waiting.pop_front() else { return };
            if !self.step(task, id, plane, fabric, now) {
                return;
            }
        }
        self.pump(id, plane, fabric, now);
    }

    /// Gives the session what was received. What it does not take is kept.
    fn feed(&mut self, input: &[u8], id: RequestId, plane: &mut Plane, fabric: &mut Fabric, now: Instant) {
        let joined;
        let mut input = if self.rest.is_empty() {
            input
        } else {
            // What is left over is in front of what has come.
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
                    if let Some(held) = &mut self.places[p.task.index()].held {
                        let from = held.lead + p.offset;
                        held.frame[from..from + n].copy_from_slice(&input[..n]);
                    }
                    self.session.delivered(&mut fabric.subsystems, &input[..n]);
                    n
                }
                Want::Header if self.left == 0 => break,
                Want::Header => {
                    self.left -= 1;
                    self.session.receive(&mut fabric.subsystems, input)
                }
                Want::Later | Want::Nothing => break,
            };
            input = &input[taken..];
            self.pump(id, plane, fabric, now);
            if taken == 0 {
                break;
            }
        }
        self.rest.extend_from_slice(input);
    }

    /// Does what the session wants done.
    pub(crate) fn pump(&mut self, id: RequestId, plane: &mut Plane, fabric: &mut Fabric, now: Instant) {
        if self.disk.is_none() {
            self.disk = self.session.subsystem().and_then(|subsystem| fabric.disk(subsystem));
        }
        while let Some(step) = self.session.step() {
            match step {
                Step::Execute(command) => self.execute(command, id, plane, fabric, now),
                Step::Cancel(task) => self.cancel(task, id, plane, fabric, now),
                Step::Release(task) => self.put(task, plane),
                Step::Derive(task) => {
                    let derivation = self.session.derivation(task);
                    if !derivation.is_some_and(|derivation| fabric.powers.begin(id, task, derivation)) {
                        self.session.close(&mut fabric.subsystems);
                    }
                }
            }
        }
    }

    fn put(&mut self, task: RequestId, plane: &mut Plane) {
        if let (Some(held), Some(disk)) = (self.place(task).held.take(), self.disk) {
            plane.put_buffer(disk, held.frame);
        }
    }

    fn execute(
        &mut self,
        command: Command,
        id: RequestId,
        plane: &mut Plane,
        fabric: &mut Fabric,
        now: Instant,
    ) {
        let task = command.task;
        let Some(disk) = self.disk else {
            let failed = Outcome::Failed(Fault::Io);
            return self.session.complete(&mut fabric.subsystems, task, failed, &[]);
        };
        let Some(action) = as_unit(command.action) else {
            let service = plane.service(disk, now);
            return self.session.complete(&mut fabric.subsystems, task, Outcome::Service(&service), &[]);
        };
        self.place(task).job = Some(Job::new(action));
        self.busy += 1;
        // In order: what waits goes first.
        if self.waiting.is_empty() {
            self.step(task, id, plane, fabric, now);
        } else {
            self.waiting.push_back(task);
        }
    }

    /// The next step of a job. False when it has to wait.
    fn step(
        &mut self,
        task: RequestId,
        id: RequestId,
        plane: &mut Plane,
        fabric: &mut Fabric,
        now: Instant,
    ) -> bool {
        let Some(disk) = self.disk else { return true };
        let Place { held, job } = self.place(task);
        let Some(job) = job else { return true };
        let owner = Owner { connection: id, command: task };
        match job.step(held, disk, owner, plane, now) {
            JobStep::Submitted => true,
            JobStep::Later => {
                self.waiting.push_front(task);
                false
            }
            JobStep::Over(verdict) => {
                self.complete(task, verdict, plane, fabric);
                true
            }
        }
    }

    /// A command is over, and a buffer that the session never asked for is given back at once.
    fn complete(&mut self, task: RequestId, verdict: Verdict, plane: &mut Plane, fabric: &mut Fabric) {
        let place = &mut self.places[task.index()];
        place.job = None;
        self.busy -= 1;
        let data = place.held.as_ref().map_or(&[][..], Held::data);
        let outcome = match verdict {
            Verdict::Done => Outcome::Done,
            Verdict::Unequal(_) => Outcome::Unequal,
            Verdict::Failed(fault) => Outcome::Failed(fault),
        };
        self.session.complete(&mut fabric.subsystems, task, outcome, data);
        if !self.session.holds(task) {
            self.put(task, plane);
        }
    }

    /// A command is to be given up, if it has not begun.
    fn cancel(
        &mut self,
        task: RequestId,
        id: RequestId,
        plane: &mut Plane,
        fabric: &mut Fabric,
        now: Instant,
    ) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != task);
        if self.waiting.len() < before {
            return self.complete(task, Verdict::Failed(Fault::Cancelled), plane, fabric);
        }
        if let Some(disk) = self.disk
            && let Some(job) = &mut self.place(task).job
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
        let fabric = &mut portal.nvme;
        let (task, disk) = (answer.owner.command, answer.disk);
        let gone = self.gone;
        let Place { held, job: Some(job) } = self.place(task) else {
            return plane.put_buffer(disk, answer.frame);
        };
        match job.answered(answer, held, plane) {
            None if gone => {
                // Half-way, and nobody waits: enough.
                job.release(disk, plane);
                self.complete(task, Verdict::Failed(Fault::Cancelled), plane, fabric);
            }
            None => {
                self.step(task, id, plane, fabric, now);
            }
            Some(verdict) => self.complete(task, verdict, plane, fabric),
        }
        self.pump(id, plane, fabric, now);
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
                    Segment::Buffer(task, at, len) => {
                        let held = self.places[task.index()].held.as_ref().expect("a read keeps its buffer");
                        &held.data()[at..at + len]
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
                    self.session.advance(&mut portal.nvme.subsystems, n);
                    self.pump(id, plane, &mut portal.nvme, now);
                }
                Err(Errno::AGAIN) => self.link.writable = false,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// The node is about to end: hosts connect again when it is back, or to another node.
    pub(crate) fn shut_down(&mut self, fabric: &mut Fabric) {
        self.session.close(&mut fabric.subsystems);
    }

    /// The connection is gone. What is at the disk comes back later; until then this stays.
    pub(crate) fn end(&mut self, id: RequestId, plane: &mut Plane, fabric: &mut Fabric, now: Instant) {
        self.gone = true;
        fabric.connections.remove(&self.session.queue());
        self.session.close(&mut fabric.subsystems);
        self.pump(id, plane, fabric, now);
        let Some(disk) = self.disk else { return };
        // What was to be sent will not be.
        for place in self.places.iter_mut().filter(|place| place.job.is_none()) {
            if let Some(held) = place.held.take() {
                plane.put_buffer(disk, held.frame);
            }
        }
    }
}

/// What is to be done, in the terms of a unit, whose jobs do it; `None` for what the node itself answers.
fn as_unit(action: Action) -> Option<scsi::Action> {
    Some(match action {
        Action::Read { offset, len } => scsi::Action::Read { offset, len },
        Action::Write { offset, len, fua } => scsi::Action::Write { offset, len, fua },
        Action::Compare { offset, len } => scsi::Action::Compare { offset, len },
        Action::CompareWrite { offset, len, fua } => scsi::Action::CompareWrite { offset, len, fua },
        Action::Check { offset, len } => scsi::Action::Check { offset, len },
        Action::Zero { offset, len, fua } => scsi::Action::Zero { offset, len, fua },
        Action::Trim { offset, len } => scsi::Action::Trim { offset, len },
        Action::Flush => scsi::Action::Flush,
        Action::Report => return None,
    })
}
