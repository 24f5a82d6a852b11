//! One iSCSI initiator's side of the node: its commands become jobs at their disk, and are answered.
//!
//! As with NBD, a WRITE's payload goes from the socket straight into the command's buffer and a READ's from there straight to the socket.

use crate::inflow;
use crate::job::{Held, Job, Step as JobStep, Verdict};
use crate::plane::block_status;
use crate::plane::{Answer, Plane, Submitter};
use crate::pump::{CHUNK, Pump};
use crate::random::random;
use crate::session::{Around, Begin, Departure, Session, Slices, Stop, Taken, Wants};
use crate::targets::{Asker, OwnerTask, PREFIX, TargetRegistry};
use crate::turns::BYTES;
use henge_core::{Instant, RequestId};
use henge_iscsi::door::{Named, named};
use henge_iscsi::scsi::{Action, Extent, Outcome, Status};
use henge_iscsi::{Command, Payload, Segment, Step, TargetId, Want};
use henge_vdisk::{Frame, Kind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Stretches that one GET LBA STATUS tells of.
const EXTENTS: usize = 128;

/// Secrets that a proof is compared with while another message is taken in: about a microsecond.
const TRIES: usize = 2;

/// An initiator.
pub(crate) struct Initiator {
    pub session: henge_iscsi::Session,
    pub disk: Option<usize>,
    held: BTreeMap<RequestId, Held>,
    jobs: BTreeMap<RequestId, Job>,
    /// Changes of reservations, and sweeps, that are not decided.
    reserving: BTreeSet<RequestId>,
    /// Commands that wait for room or memory.
    waiting: VecDeque<RequestId>,
    /// Questions about what takes room whose turn at the disk has come, and the ranges that they ask about.
    looks: VecDeque<(RequestId, (u64, u64))>,
    /// A payload waits for memory.
    no_memory: bool,
    gone: bool,
    /// Its first login may name a disk of another shard.
    at_door: bool,
    /// That shard.
    away: Option<usize>,
}

impl Initiator {
    /// One that has come. None where the system gives no randomness.
    pub(crate) fn arrive(around: &mut Around<'_>) -> Option<Initiator> {
        let (targets, limits) = (&mut around.registry.targets, henge_iscsi::Limits::default());
        let session = henge_iscsi::Session::new(targets, limits, random::<33>()?, around.now);
        around.registry.connections.insert(session.nexus(), around.id);
        let mut initiator = Initiator::new(session);
        initiator.at_door = around.catalog.is_divided();
        Some(initiator)
    }

    fn new(session: henge_iscsi::Session) -> Initiator {
        Initiator {
            session,
            disk: None,
            at_door: false,
            away: None,
            held: BTreeMap::new(),
            jobs: BTreeMap::new(),
            reserving: BTreeSet::new(),
            waiting: VecDeque::new(),
            looks: VecDeque::new(),
            no_memory: false,
            gone: false,
        }
    }

    /// Room for a payload: so many bytes may be put into its buffer. `None` when memory is missing.
    fn prepare(&mut self, p: Payload, id: RequestId, plane: &mut Plane) -> Option<usize> {
        if let Some(held) = self.held.get(&p.task)
            && held.lead + p.offset < held.frame.len()
        {
            return Some(held.frame.len() - held.lead - p.offset);
        }
        let disk = self.disk.expect("payload comes after login to a disk");
        let frame = match self.session.action(p.task) {
            Some(Action::Write { offset, len, .. }) => {
                plane.disks.of(disk).vdisk.frame(Kind::Write, offset, len)
            }
            _ => Frame { len: p.buffer as u64, ..Frame::default() },
        };
        let whose = Submitter { connection: id, command: p.task };
        let mut held = self.held.remove(&p.task);
        let capacity = inflow::capacity(&mut held, frame, p.offset, (disk, whose), plane);
        if let Some(held) = held {
            self.held.insert(p.task, held);
        }
        self.no_memory = capacity.is_none();
        capacity
    }

    /// Tries again what was held back.
    fn retry(&mut self, id: RequestId, plane: &mut Plane, registry: &mut TargetRegistry, now: Instant) {
        self.no_memory = false;
        for _ in 0..self.waiting.len() {
            let Some(task) = self.waiting.pop_front() else { return };
            if !self.step(task, id, plane, registry, now) {
                return;
            }
        }
        self.pump(id, plane, registry, now);
    }

    /// Does what the session wants done.
    pub(crate) fn pump(
        &mut self,
        id: RequestId,
        plane: &mut Plane,
        registry: &mut TargetRegistry,
        now: Instant,
    ) {
        if self.disk.is_none() {
            self.disk = self.session.target().and_then(|target| registry.disk(target));
            if self.disk.is_none()
                && self.session.target().is_some_and(|target| registry.is_elsewhere(target))
            {
                // It named its target later than a first login does (RFC 7143, 13.4), so it is not where its disk is.
                self.session.close(&mut registry.targets);
            }
        }
        let mut given_up = Vec::new();
        while let Some(step) = self.session.step() {
            match step {
                Step::Execute(command) => self.execute(command, id, plane, registry, now),
                Step::Cancel(task) if self.give_up(task, plane, registry) => given_up.push(task),
                Step::Cancel(_) => {}
                Step::Release(task) => self.put(task, plane),
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
        if let (Some(held), Some(disk)) = (self.held.remove(&task), self.disk) {
            plane.put_buffer(disk, held.frame);
        }
    }

    fn execute(
        &mut self,
        command: Command,
        id: RequestId,
        plane: &mut Plane,
        registry: &mut TargetRegistry,
        now: Instant,
    ) {
        let task = command.task;
        match command.action {
            Action::Reserve(change) => {
                return self.ask(OwnerTask::Change(*change), command.target, id, task, plane, registry);
            }
            Action::Sweep(what) => {
                return self.ask(OwnerTask::Sweep(what), command.target, id, task, plane, registry);
            }
            _ => {}
        }
        self.jobs.insert(task, Job::new(command.action));
        // In order: what waits goes first.
        if self.waiting.is_empty() {
            self.step(task, id, plane, registry, now);
        } else {
            self.waiting.push_back(task);
        }
    }

    /// Asks for what is decided for all nodes of the disk.
    fn ask(
        &mut self,
        what: OwnerTask,
        target: TargetId,
        id: RequestId,
        task: RequestId,
        plane: &mut Plane,
        registry: &mut TargetRegistry,
    ) {
        match registry.ask(target, what, Asker::Here(id, task), &mut plane.links) {
            Some(status) => {
                self.session.complete(&mut registry.targets, task, Outcome::Decided(status), &[]);
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
        registry: &mut TargetRegistry,
        now: Instant,
    ) -> bool {
        let Some(job) = self.jobs.get_mut(&task) else { return true };
        let Some(disk) = self.disk else { return true };
        let mut data = self.held.remove(&task);
        let submitter = Submitter { connection: id, command: task };
        let step = job.step(&mut data, disk, submitter, plane, now);
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
                self.complete(task, verdict, registry);
                true
            }
        }
    }

    /// Says which bytes take room.
    fn status(
        &mut self,
        task: RequestId,
        (offset, len): (u64, u64),
        plane: &mut Plane,
        registry: &mut TargetRegistry,
    ) {
        let mut extents =
            self.disk.map_or_else(Vec::new, |disk| block_status::extents(plane, disk, offset, len, EXTENTS));
        if extents.is_empty() {
            extents.push(Extent { len, allocated: true });
        }
        self.session.complete(&mut registry.targets, task, Outcome::Extents(&extents), &[]);
    }

    fn complete(&mut self, task: RequestId, verdict: Verdict, registry: &mut TargetRegistry) {
        let data = self.held.get(&task).map_or(&[][..], Held::data);
        self.session.complete(&mut registry.targets, task, verdict.outcome(), data);
    }

    /// A change of reservations is decided, or a sweep done.
    pub(crate) fn decided(
        &mut self,
        id: RequestId,
        task: RequestId,
        status: Status,
        plane: &mut Plane,
        registry: &mut TargetRegistry,
        now: Instant,
    ) {
        if self.reserving.remove(&task) {
            self.session.complete(&mut registry.targets, task, Outcome::Decided(status), &[]);
            self.pump(id, plane, registry, now);
        }
    }

    /// A command is to be given up, if it has not begun. Whether it is at the disk.
    fn give_up(&mut self, task: RequestId, plane: &mut Plane, registry: &mut TargetRegistry) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != task);
        let looks = self.looks.len();
        self.looks.retain(|(look, _)| *look != task);
        if self.waiting.len() < before || self.looks.len() < looks {
            // What an ORWRITE has read is the disk's memory, too.
            if let (Some(mut job), Some(disk)) = (self.jobs.remove(&task), self.disk) {
                job.release(disk, plane);
            }
            self.complete(task, Verdict::Failed(henge_core::Fault::Cancelled), registry);
            return false;
        }
        self.jobs.get_mut(&task).map(Job::give_up).is_some()
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
        let task = answer.submitter.command;
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
                self.complete(task, Verdict::Failed(henge_core::Fault::Cancelled), registry);
            }
            None => {
                self.step(task, id, plane, registry, now);
            }
            Some(Verdict::Done) if let (Some(range), false) = (job.extents(), self.gone) => {
                self.jobs.remove(&task);
                return self.looks.push_back((task, range));
            }
            Some(verdict) => {
                self.jobs.remove(&task);
                self.complete(task, verdict, registry);
            }
        }
        self.finish(task, id, plane, registry, now);
    }

    /// A command may have been answered: its buffer goes back, unless the answer is still to be sent from there.
    fn finish(
        &mut self,
        task: RequestId,
        id: RequestId,
        plane: &mut Plane,
        registry: &mut TargetRegistry,
        now: Instant,
    ) {
        self.pump(id, plane, registry, now);
        if !self.session_keeps(task) {
            self.put(task, plane);
        }
    }

    /// Its proof was compared with secrets, which counts as messages do. Where there are more of them, others are first.
    fn tries(&mut self, around: &mut Around<'_>) -> Option<Stop> {
        let messages = (self.session.take_tries() / TRIES) as u32;
        let taken_in = &mut around.plane.taken_in;
        taken_in.messages = taken_in.messages.wrapping_add(messages);
        self.session.is_trying().then_some(Stop::Turn)
    }

    /// Whether the session will still release the task's buffer.
    fn session_keeps(&self, task: RequestId) -> bool {
        self.session.holds(task)
    }
}

impl Session for Initiator {
    fn resume(&mut self, around: &mut Around<'_>) -> Option<Stop> {
        // Of a disk's own memory each piece can be had, whatever other disks hold.
        self.session.set_piece(around.plane.memory.least().min(u64::from(inflow::WINDOW)));
        if self.session.is_trying() {
            self.session.go_on(&mut around.registry.targets, around.now);
            self.pump(around.id, around.plane, around.registry, around.now);
            return self.tries(around);
        }
        self.retry(around.id, around.plane, around.registry, around.now);
        self.is_stalled().then_some(Stop::Stalled)
    }

    fn wants<'a>(&'a mut self, around: &'a mut Around<'_>) -> Wants<'a> {
        match self.session.want() {
            Want::Later | Want::Nothing => Wants::Nothing,
            Want::Header => Wants::Bytes { most: CHUNK },
            Want::Payload(p) => {
                let Some(free) = self.prepare(p, around.id, around.plane) else { return Wants::Memory };
                let Some(held) = self.held.get_mut(&p.task) else { return Wants::Memory };
                let (from, len) = (held.lead + p.offset, p.len.min(BYTES).min(free));
                let beyond = if len == p.len { CHUNK } else { 0 };
                Wants::Payload { into: &mut held.frame[from..from + len], beyond }
            }
        }
    }

    fn received(&mut self, input: &[u8], around: &mut Around<'_>) -> Taken {
        if self.at_door {
            match named(input) {
                Named::More => return Taken { bytes: 0, stop: None },
                Named::Name(name) => {
                    self.away = name.strip_prefix(PREFIX).and_then(|disk| around.catalog.elsewhere(disk));
                }
                Named::Nothing => {}
            }
            self.at_door = false;
            if self.away.is_some() {
                return Taken { bytes: 0, stop: Some(Stop::Away) };
            }
        }
        let bytes = self.session.receive(&mut around.registry.targets, input, around.now);
        self.pump(around.id, around.plane, around.registry, around.now);
        let stop = self.tries(around).or_else(|| self.is_stalled().then_some(Stop::Stalled));
        Taken { bytes, stop }
    }

    fn delivered(&mut self, bytes: usize, around: &mut Around<'_>) -> Option<Stop> {
        if let Want::Payload(p) = self.session.want() {
            let held = &self.held[&p.task];
            let from = held.lead + p.offset;
            let bytes = &held.frame[from..from + bytes];
            self.session.delivered(&mut around.registry.targets, bytes, around.now);
            self.pump(around.id, around.plane, around.registry, around.now);
        }
        self.is_stalled().then_some(Stop::Stalled)
    }

    fn completed(&mut self, answer: Answer, around: &mut Around<'_>) {
        self.answer(around.id, answer, around.plane, around.registry, around.now);
    }

    fn look(&mut self, around: &mut Around<'_>) {
        if let Some((task, range)) = self.looks.pop_front() {
            self.status(task, range, around.plane, around.registry);
            self.finish(task, around.id, around.plane, around.registry, around.now);
        }
    }

    fn output<'a>(&'a mut self, _: &'a mut Around<'_>, out: &mut Slices<'_, 'a>) {
        for segment in self.session.segments() {
            let bytes = match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Buffer(task, at, len) => &self.held[&task].data()[at..at + len],
            };
            if !out.push(bytes) {
                break;
            }
        }
    }

    fn written(&mut self, bytes: usize, around: &mut Around<'_>) {
        self.session.advance(&mut around.registry.targets, bytes);
        self.pump(around.id, around.plane, around.registry, around.now);
    }

    /// Nothing was said yet: its login is read again, where its disk is.
    fn depart(&mut self, around: &mut Around<'_>) -> Option<Departure> {
        let to = self.away.take()?;
        self.close(around);
        let begin: Begin = Box::new(|around| {
            let mut initiator = Initiator::arrive(around)?;
            initiator.at_door = false; // it moves once
            Some(Box::new(Pump::new(initiator)))
        });
        Some(Departure { to, begin })
    }

    /// What is at the disk comes back later; until then this stays.
    fn close(&mut self, around: &mut Around<'_>) {
        self.gone = true;
        around.registry.connections.remove(&self.session.nexus());
        self.session.close(&mut around.registry.targets);
        self.pump(around.id, around.plane, around.registry, around.now);
        self.looks.clear();
        // What was to be sent will not be.
        let busy: Vec<RequestId> =
            self.held.keys().copied().filter(|task| !self.jobs.contains_key(task)).collect();
        busy.into_iter().for_each(|task| self.put(task, around.plane));
    }

    fn pause(&mut self, around: &mut Around<'_>) -> bool {
        self.session.shutdown(&mut around.registry.targets, 5);
        false
    }

    fn disk(&self) -> Option<usize> {
        self.disk
    }
    fn takes(&self) -> bool {
        self.session.want() != Want::Nothing
    }
    fn has_output(&self) -> bool {
        !self.looks.is_empty() || !self.session.is_sent()
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
        self.jobs.is_empty() && self.reserving.is_empty()
    }
    fn describe(&self) -> String {
        format!("initiator {}", self.session.initiator())
    }
}
