//! SCSI commands: from the header to the storage, and to the answer.

use super::receive::{Incoming, Sink};
use super::{Command, Payload, Session, Step};
use crate::scsi::{Action, Caller, Outcome, Plan, Sense, Status, Transfer, be32, standard};
use crate::target::Targets;
use crate::wire::{Header, Reason, before, unit_address, unit_number};
use henge_core::{Fault, RequestId};

/// No reset's epoch: of a command that is about reservations, for whose end none waits that itself waits for quiet.
const ASIDE: u32 = u32::MAX;

/// What a command is waiting for.
#[derive(Debug)]
pub(super) enum Work {
    /// Its parameter list.
    Parameters(Vec<u8>),
    /// The storage: these actions, the next one last.
    Storage(Vec<Action>),
    /// The work that its unit does by itself.
    Background,
    /// That the initiator has sent what it may send unasked; then this is the answer.
    Answer(Status, Vec<u8>),
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub itt: u32,
    pub lun: [u8; 8],
    pub unit: u16,
    pub cdb: [u8; 16],
    pub immediate: bool,
    /// Expected data transfer length, each way.
    pub expects_in: u64,
    pub expects_out: u64,
    /// What the command transfers, as its CDB says.
    pub transfer: Transfer,
    pub work: Work,
    /// Bytes of data that we take.
    pub takes: usize,
    /// Bytes that have come.
    pub received: usize,
    /// A READ or WRITE that is longer goes in pieces.
    pub window: u64,
    /// Bytes of it that are over.
    pub base: usize,
    /// Data-In PDUs that were made of it.
    pub data_in: u32,
    /// One of its pieces is on its way to the initiator.
    pub sending: bool,
    /// Whether more data come unasked.
    pub unsolicited: bool,
    pub data_sn: u32,
    pub r2t: Option<super::data::R2t>,
    pub r2t_sn: u32,
    /// The reset epoch of the unit, while at the storage.
    pub at_storage: Option<u32>,
    pub aborted: bool,
    /// It was taken in by reservations that may have been old.
    pub doubted: bool,
    pub queued: bool,
}

impl Task {
    /// Whether it changes reservations: begun, that is not given up half-way.
    pub fn reserves(&self) -> bool {
        matches!(&self.work, Work::Storage(actions) if matches!(actions.last(), Some(Action::Reserve(_))))
    }

    /// Bytes of the buffer.
    pub fn buffer(&self) -> usize {
        match self.transfer {
            Transfer::None => 0,
            _ if self.piece_at().is_some() => self.window as usize,
            Transfer::In(len) => len.min(self.expects_in.next_multiple_of(4096)) as usize,
            Transfer::Out(_) => self.takes,
        }
    }
}

impl Session {
    /// Checks the number of a command (RFC 7143 4.2.2.1): `None` when it is to be ignored.
    pub(super) fn in_order(&mut self, header: &Header) -> Option<()> {
        let number = header.cmd_sn();
        if header.immediate() {
            return Some(());
        }
        if before(number, self.exp_cmd_sn) || before(self.max_cmd_sn, number) {
            return None;
        }
        if number != self.exp_cmd_sn {
            return None; // a gap, which on one connection nothing can fill
        }
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        Some(())
    }

    /// A SCSI command's header: what becomes of it, and where its immediate data go.
    pub(super) fn route_command(&mut self, targets: &mut Targets, header: Header) -> Option<Incoming> {
        let len = header.data_len();
        let Some(target) = self.target else {
            self.reject_and_close(targets, &header, Reason::Protocol); // a discovery session has no units
            return None;
        };
        if self.in_order(&header).is_none() {
            return Some(Incoming::new(header, Sink::Discard, None, 0));
        }
        let flags = header.0[1];
        let (reads, writes, last) = (flags & 0x40 != 0, flags & 0x20 != 0, flags & 0x80 != 0);
        let expected = u64::from(header.ttt());
        let most = u64::from(self.agreed.first_burst).min(if writes { expected } else { 0 });
        let unasked = !last && self.agreed.initial_r2t || len > 0 && !self.agreed.immediate_data;
        if unasked || len as u64 > most || !last && !writes {
            self.reject_and_close(targets, &header, Reason::Protocol);
            return None;
        }
        if self.by_tag.contains_key(&header.itt()) {
            self.reject_and_close(targets, &header, Reason::TaskInProgress);
            return None;
        }
        if header.immediate() && self.counts[1] >= self.limits.immediate {
            self.reject(&header, Reason::TooManyImmediate);
            return Some(Incoming::new(header, Sink::Discard, None, 0));
        }
        let mut task = Task {
            itt: header.itt(),
            lun: header.lun(),
            unit: unit_number(header.lun()).unwrap_or(u16::MAX),
            cdb: *header.0[32..].first_chunk().expect("a header has 48 bytes"),
            immediate: header.immediate(),
            expects_in: if reads { expected } else { 0 },
            expects_out: if writes { expected } else { 0 },
            transfer: Transfer::None,
            work: Work::Background,
            takes: 0,
            received: 0,
            window: self.piece(),
            base: 0,
            data_in: 0,
            sending: false,
            unsolicited: !last,
            data_sn: 0,
            r2t: None,
            r2t_sn: 0,
            at_storage: None,
            aborted: false,
            doubted: false,
            queued: false,
        };
        let plan = if reads && writes {
            Plan::check(Sense::FIELD) // bidirectional: no command here is
        } else {
            self.plan(targets, target, &task)
        };
        task.adopt(plan, targets.unit(target, task.unit).map_or(512, |u| u.properties().block_size()));
        Some(self.enter_task(header, task))
    }

    fn plan(&self, targets: &mut Targets, target: crate::target::TargetId, task: &Task) -> Plan {
        let port = targets.port;
        let Some(holder) = targets.get_mut(target) else { return Sense::NO_UNIT.into() };
        if task.cdb[0] == 0xa0 {
            return report_luns(holder.units.keys().copied(), &task.cdb);
        }
        let caller = Caller { nexus: self.nexus, target: &holder.name, port };
        match holder.units.get_mut(&task.unit) {
            Some(unit) => {
                let before = unit.bar();
                let plan = unit.start(&caller, &task.cdb);
                let bar = unit.bar();
                if unit.sanitize.active() {
                    targets.note_work(target);
                }
                if bar != before {
                    targets.note_bar(target);
                }
                plan
            }
            // Nothing is there: INQUIRY and REQUEST SENSE say so (SPC-4 6.4.1, 6.39)
            None if task.cdb[0] == 0x12 && task.cdb[1] & 1 == 0 => {
                Plan::data(standard(0x7f), usize::from(u16::from_be_bytes([task.cdb[3], task.cdb[4]])))
            }
            None if task.cdb[0] == 0x03 => Plan::data(Sense::NO_UNIT.bytes(false), usize::from(task.cdb[4])),
            None => Sense::NO_UNIT.into(),
        }
    }

    /// Keeps a new task, and says where its immediate data go.
    fn enter_task(&mut self, header: Header, mut task: Task) -> Incoming {
        let len = header.data_len();
        let takes = task.takes;
        let has_data = len > 0 || task.unsolicited;
        // Data come at once, and there is no room for them: the initiator may try again later.
        if let Transfer::Out(_) = task.transfer
            && has_data
            && self.held > 0
            && self.held + task.buffer() as u64 > self.limits.held
        {
            task.answer(Status::TaskSetFull, Vec::new());
        }
        // Its answer would be held until the data that it has no use for have come.
        if task.unsolicited && matches!(task.transfer, Transfer::In(_)) {
            task.answer(Status::Check(Sense::FIELD), Vec::new());
        }
        let (itt, immediate, unit) = (task.itt, task.immediate, task.unit);
        self.counts[usize::from(immediate)] += 1;
        let parameters = matches!(task.work, Work::Parameters(_));
        let buffer = task.buffer();
        let stores = matches!((&task.work, task.transfer), (Work::Storage(_), Transfer::Out(_)));
        let id = self.tasks.insert(task);
        self.by_tag.insert(itt, id);
        if has_data && stores && takes > 0 {
            self.hold(id, buffer);
        }
        let sink = if parameters {
            Sink::Own(Vec::with_capacity(len))
        } else if stores {
            Sink::Buffer(Payload { task: id, unit, offset: 0, len: 0, buffer })
        } else {
            Sink::Discard
        };
        let wanted = if matches!(sink, Sink::Discard) { 0 } else { takes };
        Incoming::new(header, sink, Some(id), wanted)
    }

    /// The command is complete, with its immediate data.
    pub(super) fn command_arrived(
        &mut self,
        targets: &mut Targets,
        header: &Header,
        task: Option<RequestId>,
        data: Vec<u8>,
    ) {
        let Some(id) = task else { return };
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.received = header.data_len();
        if let Work::Parameters(list) = &mut task.work {
            *list = data;
        }
        self.advance_task(targets, id);
    }

    /// Goes on with a task as far as it can go.
    pub(super) fn advance_task(&mut self, targets: &mut Targets, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.unsolicited || task.at_storage.is_some() || task.queued {
            return;
        }
        let needs_more = task.received < task.piece_end();
        let has_buffer = task.buffer() == 0 || self.buffers.contains_key(&id);
        match &mut task.work {
            Work::Answer(status, data) => {
                let (status, data) = (*status, std::mem::take(data));
                self.answer(targets, id, status, &data);
            }
            Work::Parameters(_) if needs_more => self.ask_for_data(id),
            Work::Parameters(_) => self.parameters_arrived(targets, id),
            Work::Storage(_) if has_buffer => {
                if needs_more {
                    self.ask_for_data(id);
                } else {
                    self.execute(targets, id);
                }
            }
            Work::Storage(_) => self.queue(targets, id),
            Work::Background => {}
        }
    }

    /// Room for its buffer first.
    fn queue(&mut self, targets: &mut Targets, id: RequestId) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.queued = true;
            self.waiting.push_back(id);
            self.admit(targets);
        }
    }

    pub(super) fn hold(&mut self, id: RequestId, len: usize) {
        self.held += len as u64;
        self.buffers.insert(id, len);
    }

    /// Lets waiting commands have their buffers, in order, as far as there is room.
    pub(super) fn admit(&mut self, targets: &mut Targets) {
        while let Some(&id) = self.waiting.front() {
            let len = match self.tasks.get(id) {
                None => 0,
                Some(task) => task.buffer(),
            };
            if self.held > 0 && self.held + len as u64 > self.limits.held {
                return;
            }
            self.waiting.pop_front();
            if let Some(task) = self.tasks.get_mut(id) {
                task.queued = false;
                self.hold(id, len);
                self.advance_task(targets, id);
            }
        }
    }

    fn parameters_arrived(&mut self, targets: &mut Targets, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Work::Parameters(list) = std::mem::replace(&mut task.work, Work::Background) else { return };
        let Some(target) = self.target else { return };
        let port = targets.port;
        let Some(holder) = targets.get_mut(target) else {
            return self.answer(targets, id, Status::Check(Sense::NO_UNIT), &[]);
        };
        let caller = Caller { nexus: self.nexus, target: &holder.name, port };
        let Some(unit) = holder.units.get_mut(&task.unit) else {
            return self.answer(targets, id, Status::Check(Sense::NO_UNIT), &[]);
        };
        let plan = unit.parameters(&caller, &task.cdb, &list);
        let (block, works) = (unit.properties().block_size(), unit.sanitize.active());
        if works {
            targets.note_work(target);
            targets.note_bar(target);
        }
        let out = task.transfer;
        task.adopt(plan, block);
        // Residuals count against the parameter list, whatever the storage does with it.
        (task.transfer, task.takes, task.received) = (out, 0, 0);
        self.advance_task(targets, id);
    }

    /// Sends the next action to the storage.
    pub(super) fn execute(&mut self, targets: &mut Targets, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if !matches!(task.work, Work::Storage(_)) {
            return;
        }
        let Some(target) = self.target else { return };
        let Some(action) = task.next_action() else {
            return self.answer(targets, id, Status::Good, &[]);
        };
        let unit = task.unit;
        let Some(there) = targets.unit(target, unit) else {
            return self.answer(targets, id, Status::Check(Sense::NO_UNIT), &[]);
        };
        let reserves = matches!(action, Action::Reserve(_));
        if !there.is_available() && !reserves {
            return self.answer(targets, id, Status::Check(Sense::UNAVAILABLE), &[]);
        }
        // It was taken in before that began, and its data have come since.
        if let Some(sense) = there.sanitizing().filter(|_| !reserves) {
            return self.answer(targets, id, Status::Check(sense), &[]);
        }
        if task.doubted && !reserves && there.keeps_out(self.nexus, &task.cdb) {
            return self.answer(targets, id, Status::ReservationConflict, &[]);
        }
        task.at_storage = Some(if reserves { ASIDE } else { there.begin() });
        let buffer = task.buffer();
        self.steps.push_back(Step::Execute(Command { task: id, target, unit, buffer, action }));
    }

    /// The storage has done what [`Step::Execute`] asked for, or has not. `buffer` is the command's, as far as
    /// it has one.
    pub fn complete(&mut self, targets: &mut Targets, id: RequestId, outcome: Outcome<'_>, buffer: &[u8]) {
        let Some(task) = self.tasks.get_mut(id) else {
            if let Outcome::Decided(status) = outcome {
                self.swept(targets, id, status == Status::Good);
            }
            return;
        };
        let unit = self.target.and_then(|target| targets.unit(target, task.unit));
        let epoch = task.at_storage.take();
        let Some(unit) = unit else {
            return if task.aborted {
                self.forget(id);
                self.settle(targets);
            } else {
                self.answer(targets, id, Status::Check(Sense::NO_UNIT), &[]);
            };
        };
        if let Some(epoch) = epoch {
            unit.end(epoch);
        }
        if task.aborted {
            self.forget(id);
            self.quieted(targets);
            return self.settle(targets);
        }
        if outcome == Outcome::Done && task.has_another() {
            return self.next_piece(targets, id, buffer);
        }
        let Work::Storage(actions) = &mut task.work else { return };
        let Some(action) = actions.pop() else { return };
        let status = match outcome {
            Outcome::Done => Status::Good,
            Outcome::Unequal(at) => unit.miscompare(&action, at),
            Outcome::Failed(Fault::Cancelled) if task.doubted && unit.keeps_out(self.nexus, &task.cdb) => {
                Status::ReservationConflict
            }
            Outcome::Failed(fault) => unit.failure(&action, fault),
            Outcome::Full => Status::TaskSetFull,
            Outcome::Decided(status) => status,
            Outcome::Extents(extents) => {
                let data = unit.extents(&task.cdb, extents);
                task.transfer = Transfer::In(data.len() as u64);
                return self.answer(targets, id, Status::Good, &data);
            }
        };
        if status == Status::Good && !actions.is_empty() {
            return self.execute(targets, id);
        }
        match task.transfer {
            Transfer::In(_) if status == Status::Good => self.answer_from_buffer(id, buffer),
            _ => self.answer(targets, id, status, &[]),
        }
    }
}

impl Task {
    /// Takes on what the unit has planned.
    fn adopt(&mut self, plan: Plan, block: u32) {
        match plan {
            Plan::Done(status) => self.answer(status, Vec::new()),
            Plan::Data(data) => {
                self.transfer = Transfer::In(data.len() as u64);
                self.answer(Status::Good, data);
            }
            // A block to repeat comes whole, or is not understood.
            Plan::Parameters(len) if self.exact() && self.expects_out != len as u64 => {
                self.answer(Status::Check(Sense::FIELD), Vec::new());
            }
            Plan::Parameters(len) => {
                self.transfer = Transfer::Out(len as u64);
                self.takes = (len as u64).min(self.expects_out) as usize;
                self.work = Work::Parameters(Vec::new());
            }
            Plan::Background => self.work = Work::Background,
            Plan::Storage(Transfer::Out(len), _) if self.exact() && self.expects_out != len => {
                self.answer(Status::Check(Sense::FIELD), Vec::new());
            }
            Plan::Storage(transfer, mut actions) => {
                self.transfer = transfer;
                actions.reverse();
                self.fit(&mut actions, u64::from(block));
            }
        }
    }

    /// Commands whose data cannot be cut: COMPARE AND WRITE, WRITE SAME.
    fn exact(&self) -> bool {
        matches!(self.cdb[0], 0x89 | 0x41 | 0x93)
    }

    /// Whole blocks of what the initiator has room or data for; the rest is a residual.
    fn fit(&mut self, actions: &mut [Action], block: u64) {
        let (has, wants) = match self.transfer {
            Transfer::None => (0, 0),
            Transfer::In(len) => (self.expects_in.next_multiple_of(block), len),
            Transfer::Out(len) => (self.expects_out - self.expects_out % block, len),
        };
        if has < wants {
            for action in actions.iter_mut() {
                match action {
                    Action::Read { len, .. }
                    | Action::Write { len, .. }
                    | Action::Or { len, .. }
                    | Action::Check { len, .. }
                    | Action::Compare { len, .. } => *len = has,
                    _ => return self.answer(Status::Check(Sense::FIELD), Vec::new()),
                }
            }
            if has == 0 {
                return self.answer(Status::Good, Vec::new());
            }
        }
        if let Transfer::Out(len) = self.transfer {
            self.takes = len.min(has) as usize;
        }
        self.work = Work::Storage(actions.to_vec());
    }

    /// Decides the answer; data that still come unasked are waited for and dropped.
    pub fn answer(&mut self, status: Status, data: Vec<u8>) {
        self.takes = 0;
        self.work = Work::Answer(status, data);
    }
}

/// REPORT LUNS (SPC-4 6.33).
fn report_luns(units: impl Iterator<Item = u16>, cdb: &[u8; 16]) -> Plan {
    let allocated = be32(cdb, 6) as usize;
    if allocated < 16 {
        return Sense::field(6).into();
    }
    if cdb[2] > 2 {
        return Sense::field(2).into();
    }
    let mut out = vec![0; 8];
    // 1: only well-known units, of which there are none
    units.filter(|_| cdb[2] != 1).for_each(|unit| out.extend_from_slice(&unit_address(unit)));
    let len = (out.len() - 8) as u32;
    out[..4].copy_from_slice(&len.to_be_bytes());
    Plan::data(out, allocated)
}
