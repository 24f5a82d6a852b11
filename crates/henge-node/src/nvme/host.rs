//! One host's side of the node, which is a queue: its commands become jobs at their disk, and are completed.
//!
//! As with NBD, a write's payload goes from the socket straight into the command's buffer and a read's from there straight to the socket.

use crate::inflow;
use crate::job::{Held, Job, Step as JobStep, Verdict};
use crate::nvme::{Fabric, PREFIX, Wish, reserve, service};
use crate::plane::{Answer, Plane, Submitter};
use crate::pump::{CHUNK, Pump};
use crate::random::random;
use crate::session::{Around, Begin, Departure, Session, Slices, Stop, Taken, Wants};
use crate::targets::TargetRegistry;
use crate::turns::BYTES;
use henge_core::{Fault, Instant, RequestId};
use henge_iscsi::scsi;
use henge_nvme::door::{Named, named};
use henge_nvme::{Action, Command, Outcome, Payload, Segment, Step, Want};
use henge_vdisk::{Failure, Frame, Kind};
use std::collections::VecDeque;
use std::net::IpAddr;

/// What a command has here.
#[derive(Default)]
struct TaskState {
    held: Option<Held>,
    way: Way,
}

/// How far a command is.
#[derive(Default)]
enum Way {
    /// It is not at the disk.
    #[default]
    Outside,
    /// It is at the disk as what it is: a read or a write.
    AtDisk,
    /// It has a job there, or one that waits.
    Job(Box<Job>),
}

/// A host's connection.
pub(crate) struct Host {
    pub session: henge_nvme::Session,
    pub disk: Option<usize>,
    /// By the slot of the session's name for the command.
    tasks: Vec<TaskState>,
    /// Commands at the disk.
    busy: usize,
    /// Commands that wait for room or memory.
    waiting: VecDeque<RequestId>,
    /// A payload waits for memory.
    no_memory: bool,
    gone: bool,
    /// Whom it comes from: whoever proves who it is takes turns with others by that.
    from: Option<IpAddr>,
    /// Its Connect may name a disk of another shard.
    door: Option<Box<Door>>,
}

/// What is remembered of a connection until it has named its subsystem.
struct Door {
    /// The address to which it came.
    address: (String, String),
    /// What it has agreed on, as it was asked for.
    greeting: Vec<u8>,
    /// The shard of its disk.
    away: Option<usize>,
}

impl Host {
    /// One that has come to this address. None where the system gives no randomness.
    pub(crate) fn arrive(
        address: (String, String),
        from: Option<IpAddr>,
        around: &mut Around<'_>,
    ) -> Option<Host> {
        let fabric = &mut around.registry.nvme;
        let limits = henge_nvme::Limits::default();
        let (subsystems, to) = (&mut fabric.subsystems, address.clone());
        let session = henge_nvme::Session::new(subsystems, limits, to, random::<32>()?, around.now);
        fabric.connected(session.queue(), around.id, around.now);
        let door = Door { address, greeting: Vec::new(), away: None };
        let mut host = Host { from, ..Host::new(session) };
        host.door = around.catalog.is_divided().then(|| Box::new(door));
        Some(host)
    }

    fn new(session: henge_nvme::Session) -> Host {
        Host {
            session,
            disk: None,
            door: None,
            tasks: Vec::new(),
            busy: 0,
            waiting: VecDeque::new(),
            no_memory: false,
            gone: false,
            from: None,
        }
    }

    fn task_state(&mut self, task: RequestId) -> &mut TaskState {
        let slot = task.index();
        if self.tasks.len() <= slot {
            self.tasks.resize_with(slot + 1, TaskState::default);
        }
        &mut self.tasks[slot]
    }

    /// Whether what came next names a disk of another shard. None when it is this shard's to take.
    fn at_door(&mut self, input: &[u8], around: &mut Around<'_>) -> Option<Taken> {
        let door = self.door.as_mut()?;
        if door.greeting.is_empty() {
            let bytes = self.session.receive(&mut around.registry.nvme.subsystems, input);
            door.greeting.extend_from_slice(&input[..bytes]);
            return Some(Taken { bytes, stop: None });
        }
        if !self.session.is_sent() {
            // What was agreed on is said here, so it is not said again there.
            return Some(Taken { bytes: 0, stop: Some(Stop::Waiting) });
        }
        match named(input) {
            Named::More => return Some(Taken { bytes: 0, stop: None }),
            Named::Name(name) => {
                door.away = name.strip_prefix(PREFIX).and_then(|disk| around.catalog.elsewhere(disk));
            }
            Named::Nothing => {}
        }
        if door.away.is_some() {
            return Some(Taken { bytes: 0, stop: Some(Stop::Away) });
        }
        self.door = None;
        None
    }

    /// Room for a payload: so many bytes may be put into its buffer. `None` when memory is missing.
    fn prepare(&mut self, p: Payload, id: RequestId, plane: &mut Plane) -> Option<usize> {
        if let Some(held) = &self.task_state(p.task).held
            && held.lead + p.offset < held.frame.len()
        {
            return Some(held.frame.len() - held.lead - p.offset);
        }
        let disk = self.disk?;
        let frame = match self.session.action(p.task) {
            Some(Action::Write { offset, len, .. }) => {
                plane.disks.of(disk).vdisk.frame(Kind::Write, offset, len)
            }
            _ => Frame { len: p.buffer as u64, ..Frame::default() },
        };
        let whose = Submitter { connection: id, command: p.task };
        let held = &mut self.task_state(p.task).held;
        let capacity = inflow::capacity(held, frame, p.offset, (disk, whose), plane);
        self.no_memory = capacity.is_none();
        capacity
    }

    /// Tries again what was held back.
    fn retry(&mut self, id: RequestId, plane: &mut Plane, fabric: &mut Fabric, now: Instant) {
        self.no_memory = false;
        for _ in 0..self.waiting.len() {
            let Some(task) = self.waiting.pop_front() else { return };
            if !self.go_on(task, id, plane, fabric, now) {
                return;
            }
        }
        self.pump(id, plane, fabric, now);
    }

    /// Does what the session wants done.
    pub(crate) fn pump(&mut self, id: RequestId, plane: &mut Plane, fabric: &mut Fabric, now: Instant) {
        let mut given_up = Vec::new();
        while let Some(step) = self.session.step() {
            match step {
                Step::Execute(command) => self.execute(command, id, plane, fabric, now),
                Step::Cancel(task) if self.give_up(task, plane, fabric) => given_up.push(task),
                Step::Cancel(_) => {}
                Step::Release(task) => self.put(task, plane),
                Step::Derive(task) => {
                    let derivation = self.session.derivation(task);
                    let begun = |derivation| fabric.powers.begin(self.from, id, (task, derivation));
                    if !derivation.cloned().is_some_and(begun) {
                        self.session.close(&mut fabric.subsystems);
                    }
                }
            }
        }
        // To look for one at the disk costs as much as to look for all. Their answers come as all answers do.
        if let (Some(disk), false) = (self.disk, given_up.is_empty()) {
            given_up.sort_unstable();
            let theirs = |s: &Submitter| s.connection == id && given_up.binary_search(&s.command).is_ok();
            plane.abort_those(disk, theirs, now);
        }
    }

    fn put(&mut self, task: RequestId, plane: &mut Plane) {
        if let (Some(held), Some(disk)) = (self.task_state(task).held.take(), self.disk) {
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
        if command.action == Action::Reserve
            && let Some(change) = self.session.change(task)
        {
            let change = reserve::as_change(&change);
            self.busy += 1;
            return fabric.wishes.push_back(Wish { connection: id, command: task, disk, change });
        }
        if self.submit(&command, disk, id, plane, now) {
            return;
        }
        let job = match command.action {
            Action::Copy { from, to, len, fua } => Job::copy(from, to, len, fua),
            other => match as_unit(other) {
                Some(action) => Job::new(action),
                None => {
                    let service = service::service(plane, disk, now);
                    let told = Outcome::Service(&service);
                    return self.session.complete(&mut fabric.subsystems, task, told, &[]);
                }
            },
        };
        self.task_state(task).way = Way::Job(Box::new(job));
        self.busy += 1;
        // In order: what waits goes first.
        if self.waiting.is_empty() {
            self.step(task, id, plane, fabric, now);
        } else {
            self.waiting.push_back(task);
        }
    }

    /// A read or a write goes to its disk, if nobody waits, and room and memory are there. Whatever else has a job.
    fn submit(
        &mut self,
        command: &Command,
        disk: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> bool {
        if !self.waiting.is_empty() || !plane.disks.has_capacity(disk) {
            return false;
        }
        let TaskState { held, way } = self.task_state(command.task);
        let (kind, offset, len, fua, frame) = match command.action {
            Action::Read { offset, len } => {
                let frame = plane.disks.of(disk).vdisk.frame(Kind::Read, offset, len);
                (Kind::Read, offset, len, false, plane.take_buffer(disk, frame.len))
            }
            Action::Write { offset, len, fua } => {
                (Kind::Write, offset, len, fua, held.take().map(|held| held.frame))
            }
            _ => return false,
        };
        let Some(frame) = frame else { return false };
        *way = Way::AtDisk;
        self.busy += 1;
        let submitter = Submitter { connection: id, command: command.task };
        let whole = henge_vdisk::Command { fua, ..henge_vdisk::Command::new(kind, offset, len, now, 0) };
        plane.submit(disk, whole, frame, submitter, now);
        true
    }

    /// Goes on with a job that has waited, or is half-way. Nothing more of it reaches a disk that is barred by now.
    fn go_on(
        &mut self,
        task: RequestId,
        id: RequestId,
        plane: &mut Plane,
        fabric: &mut Fabric,
        now: Instant,
    ) -> bool {
        let is_barred = self.session.subsystem().and_then(|id| fabric.subsystems.barred(id)).is_some();
        if let (true, Some(disk), Way::Job(job)) = (is_barred, self.disk, &mut self.task_state(task).way) {
            job.release(disk, plane);
            self.complete(task, Verdict::Failed(Fault::Cancelled), plane, fabric);
            return true;
        }
        self.step(task, id, plane, fabric, now)
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
        let TaskState { held, way: Way::Job(job) } = self.task_state(task) else { return true };
        let submitter = Submitter { connection: id, command: task };
        match job.step(held, disk, submitter, plane, now) {
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
        let state = &mut self.tasks[task.index()];
        state.way = Way::Outside;
        self.busy -= 1;
        let data = state.held.as_ref().map_or(&[][..], Held::data);
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

    /// A change of who may use the disk is decided.
    pub(crate) fn decided(
        &mut self,
        id: RequestId,
        task: RequestId,
        status: scsi::Status,
        plane: &mut Plane,
        registry: &mut TargetRegistry,
        now: Instant,
    ) {
        let fabric = &mut registry.nvme;
        self.busy -= 1;
        let decided = Outcome::Decided(reserve::as_status(status));
        self.session.complete(&mut fabric.subsystems, task, decided, &[]);
        self.pump(id, plane, fabric, now);
    }

    /// A command is to be given up, if it has not begun. Whether it is at the disk.
    fn give_up(&mut self, task: RequestId, plane: &mut Plane, fabric: &mut Fabric) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != task);
        if self.waiting.len() < before {
            self.complete(task, Verdict::Failed(Fault::Cancelled), plane, fabric);
            return false;
        }
        match &mut self.task_state(task).way {
            Way::Outside => false,
            Way::AtDisk => true,
            Way::Job(job) => {
                job.give_up();
                true
            }
        }
    }

    /// The disk has answered.
    fn answer(
        &mut self,
        id: RequestId,
        answer: Answer,
        plane: &mut Plane,
        registry: &mut TargetRegistry,
        now: Instant,
    ) {
        let fabric = &mut registry.nvme;
        let (task, disk) = (answer.submitter.command, answer.disk);
        let gone = self.gone;
        let TaskState { held, way } = self.task_state(task);
        let job = match way {
            Way::Outside => return plane.put_buffer(disk, answer.frame),
            Way::AtDisk => {
                *held = Some(Held { frame: answer.frame, lead: answer.lead as usize });
                let verdict = match answer.outcome {
                    Ok(()) => Verdict::Done,
                    Err(Failure::Fault(fault)) => Verdict::Failed(fault),
                    Err(Failure::Miscompare { .. }) => Verdict::Failed(Fault::Io),
                };
                self.complete(task, verdict, plane, fabric);
                return self.pump(id, plane, fabric, now);
            }
            Way::Job(job) => job,
        };
        match job.answered(answer, held, plane) {
            None if gone => {
                // Half-way, and nobody waits: enough.
                job.release(disk, plane);
                self.complete(task, Verdict::Failed(Fault::Cancelled), plane, fabric);
            }
            None => {
                self.go_on(task, id, plane, fabric, now);
            }
            Some(verdict) => self.complete(task, verdict, plane, fabric),
        }
        self.pump(id, plane, fabric, now);
    }
}

impl Session for Host {
    fn resume(&mut self, around: &mut Around<'_>) -> Option<Stop> {
        self.retry(around.id, around.plane, &mut around.registry.nvme, around.now);
        self.is_stalled().then_some(Stop::Stalled)
    }

    fn wants<'a>(&'a mut self, around: &'a mut Around<'_>) -> Wants<'a> {
        match self.session.want() {
            Want::Later | Want::Nothing => Wants::Nothing,
            Want::Header => Wants::Bytes { most: CHUNK },
            Want::Payload(p) => {
                let Some(free) = self.prepare(p, around.id, around.plane) else { return Wants::Memory };
                let Some(held) = &mut self.tasks[p.task.index()].held else { return Wants::Memory };
                let (from, len) = (held.lead + p.offset, p.len.min(BYTES).min(free));
                // What follows the payload is read with it: the next header, most of the time.
                let beyond = if len == p.len { CHUNK } else { 0 };
                Wants::Payload { into: &mut held.frame[from..from + len], beyond }
            }
        }
    }

    fn received(&mut self, input: &[u8], around: &mut Around<'_>) -> Taken {
        if let Some(taken) = self.at_door(input, around) {
            return taken;
        }
        let bytes = self.session.receive(&mut around.registry.nvme.subsystems, input);
        // Who has proven nothing yet takes no place of the disk's.
        if self.disk.is_none() && self.session.is_proven() {
            let fabric = &around.registry.nvme;
            self.disk = self.session.subsystem().and_then(|subsystem| fabric.disk(subsystem));
        }
        self.pump(around.id, around.plane, &mut around.registry.nvme, around.now);
        Taken { bytes, stop: self.is_stalled().then_some(Stop::Stalled) }
    }

    fn delivered(&mut self, bytes: usize, around: &mut Around<'_>) -> Option<Stop> {
        let fabric = &mut around.registry.nvme;
        if let Want::Payload(p) = self.session.want()
            && let Some(held) = &self.tasks[p.task.index()].held
        {
            let from = held.lead + p.offset;
            self.session.delivered(&mut fabric.subsystems, &held.frame[from..from + bytes]);
            self.pump(around.id, around.plane, fabric, around.now);
        }
        self.is_stalled().then_some(Stop::Stalled)
    }

    fn completed(&mut self, answer: Answer, around: &mut Around<'_>) {
        self.answer(around.id, answer, around.plane, around.registry, around.now);
    }

    fn output<'a>(&'a mut self, _: &'a mut Around<'_>, out: &mut Slices<'_, 'a>) {
        for segment in self.session.segments() {
            let bytes = match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Buffer(task, at, len) => {
                    let held = self.tasks[task.index()].held.as_ref().expect("a read keeps its buffer");
                    &held.data()[at..at + len]
                }
            };
            if !out.push(bytes) {
                break;
            }
        }
    }

    fn written(&mut self, bytes: usize, around: &mut Around<'_>) {
        let fabric = &mut around.registry.nvme;
        let (tasks, disk, plane) = (&mut self.tasks, self.disk, &mut *around.plane);
        self.session.advance(&mut fabric.subsystems, bytes, |task| {
            if let (Some(held), Some(disk)) = (tasks[task.index()].held.take(), disk) {
                plane.put_buffer(disk, held.frame);
            }
        });
        self.pump(around.id, around.plane, fabric, around.now);
    }

    /// It has agreed on how to speak, and that was answered: it agrees on the same where its disk is, unheard.
    fn depart(&mut self, around: &mut Around<'_>) -> Option<Departure> {
        let Door { address, greeting, away } = *self.door.take()?;
        let (to, from) = (away?, self.from);
        self.close(around);
        let begin: Begin = Box::new(move |around| {
            let mut host = Host::arrive(address, from, around)?;
            host.door = None; // it moves once
            let subsystems = &mut around.registry.nvme.subsystems;
            host.session.receive(subsystems, &greeting);
            let said = host.session.segments().map(|segment| match segment {
                Segment::Bytes(bytes) => bytes.len(),
                Segment::Buffer(_, _, len) => len,
            });
            let said = said.sum();
            host.session.advance(subsystems, said, |_| {});
            Some(Box::new(Pump::new(host)))
        });
        Some(Departure { to, begin })
    }

    /// What is at the disk comes back later; until then this stays.
    fn close(&mut self, around: &mut Around<'_>) {
        let fabric = &mut around.registry.nvme;
        self.gone = true;
        fabric.connections.remove(&self.session.queue());
        fabric.powers.forget(around.id);
        self.session.close(&mut fabric.subsystems);
        self.pump(around.id, around.plane, fabric, around.now);
        let Some(disk) = self.disk else { return };
        // What was to be sent will not be.
        for state in self.tasks.iter_mut().filter(|state| matches!(state.way, Way::Outside)) {
            if let Some(held) = state.held.take() {
                around.plane.put_buffer(disk, held.frame);
            }
        }
    }

    fn disk(&self) -> Option<usize> {
        self.disk
    }
    fn takes(&self) -> bool {
        !matches!(self.session.want(), Want::Later | Want::Nothing)
    }
    fn has_output(&self) -> bool {
        !self.session.is_sent()
    }
    fn is_over(&self) -> bool {
        self.session.want() == Want::Nothing && self.session.is_sent()
    }
    fn is_stalled(&self) -> bool {
        self.no_memory || !self.waiting.is_empty()
    }
    fn awaits_payload(&self) -> bool {
        self.session.awaits_data()
    }
    /// Nothing of it is at the disk any more.
    fn is_quiet(&self) -> bool {
        self.busy == 0
    }
    fn describe(&self) -> String {
        "an NVMe host".into()
    }
}

/// What is to be done, in the terms of a unit, whose jobs do it; `None` for what no unit does.
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
        Action::Reserve | Action::Report | Action::Copy { .. } => return None,
    })
}
