//! Commands: from their capsules to their endings.

use super::receive::{Incoming, Sink};
use super::{Payload, Session, Stage};
use crate::admin;
use crate::fabrics::{self, FABRICS};
use crate::nvm;
use crate::plan::{Action, Page, Plan};
use crate::reservation::{self, Change, Held, HostId};
use crate::status::{Ending, Status};
use crate::subsystem::{Subsystem, Subsystems};
use crate::wire::{Fatal, Place, Sqe};
use henge_core::RequestId;

/// What is to become of a command.
#[derive(Debug)]
pub(super) enum Work {
    /// It is decided; data that still come are dropped.
    Answer(Ending),
    /// Its parameters come; how many are needed.
    Parameters(Vec<u8>, usize),
    /// One thing for the storage.
    Storage(Action),
    /// A change of who may use the disk.
    Reserve(Box<Change>),
    /// These, the next one last.
    Several(Vec<Action>),
    /// The second of a fused pair: its data go into the first one's buffer, from this byte on.
    Half(RequestId, usize),
    /// An asynchronous event request.
    Event,
    /// It waits for a power to be computed.
    Derive,
}

/// A command that is not over.
#[derive(Debug)]
pub(super) struct Task {
    pub sqe: Sqe,
    pub work: Work,
    /// Bytes of data that come from the host, and those that have come.
    pub takes: usize,
    pub received: usize,
    /// Its data have been asked for.
    pub is_asked: bool,
    /// By this tag.
    pub tag: u16,
    /// What has come is not what was sent.
    damaged: bool,
    /// The second of a fused pair.
    pub partner: Option<RequestId>,
    /// Bytes of its buffer, once there is room for it.
    pub holds: usize,
    pub at_storage: bool,
    /// When it went there, if others may have to wait until it is back.
    pub epoch: Option<u32>,
    /// Why it is given up, where the host did not ask for that.
    pub why: Option<Status>,
    /// Nobody waits for its outcome, or the host wants it to be given up.
    pub aborted: bool,
    /// It was taken in by reservations that may have been old.
    pub doubted: bool,
    /// It is answered.
    pub answered: bool,
}

impl Task {
    #[inline]
    fn new(sqe: &Sqe) -> Task {
        Task {
            sqe: *sqe,
            work: Work::Answer(Status::SUCCESS.into()),
            takes: 0,
            received: 0,
            is_asked: false,
            tag: 0,
            damaged: false,
            partner: None,
            holds: 0,
            at_storage: false,
            epoch: None,
            why: None,
            aborted: false,
            doubted: false,
            answered: false,
        }
    }

    pub fn action(&self) -> Option<Action> {
        match &self.work {
            Work::Storage(action) => Some(*action),
            Work::Reserve(_) => Some(Action::Reserve),
            Work::Several(actions) => actions.last().copied(),
            _ => None,
        }
    }

    /// Whether a reservation keeps its host from it: of a fused pair, from either.
    pub fn is_kept_out(&self, held: &Held, host: &HostId) -> bool {
        let pair = self.partner.map(|_| nvm::opcode::WRITE);
        [Some(self.sqe.opcode()), pair].into_iter().flatten().any(|opcode| held.conflicts(host, opcode))
    }

    /// Bytes that its buffer must have.
    pub fn buffer(&self) -> usize {
        match &self.work {
            Work::Storage(action) => action.buffer(),
            _ => 0,
        }
    }

    fn reads(&self) -> bool {
        matches!(self.work, Work::Storage(Action::Read { .. }))
    }

    pub fn parameters(&mut self, bytes: &[u8]) {
        if let Work::Parameters(list, _) = &mut self.work {
            list.extend_from_slice(bytes);
        }
    }

    /// Decides the answer. Data that were asked for still come, and are dropped.
    pub fn answer(&mut self, ending: impl Into<Ending>) {
        self.work = Work::Answer(ending.into());
        if !self.is_asked {
            self.takes = self.received;
        }
    }

    /// Takes on what is planned, and checks whether the host has data, or room for data, of that length.
    fn adopt(&mut self, plan: Plan) -> Option<Page> {
        let len = self.sqe.data_len() as usize;
        match plan {
            Plan::Done(ending) => self.answer(ending),
            Plan::Event => self.work = Work::Event,
            Plan::Reserve(change) => self.work = Work::Reserve(Box::new(change)),
            Plan::Data(bytes) => {
                self.answer(Status::SUCCESS);
                return Some(Page { len: bytes.len(), bytes });
            }
            Plan::Page(page) => {
                self.answer(Status::SUCCESS);
                return Some(page);
            }
            // More than is needed may come: hosts send whole pages.
            Plan::Parameters(needs) if len < needs || len > PARAMETERS_MAX => self.answer(Status::SGL_LENGTH),
            Plan::Parameters(needs) => {
                self.takes = len;
                self.work = Work::Parameters(Vec::new(), needs);
            }
            Plan::Storage(action) => {
                let (moves, takes) = match action {
                    Action::Read { len, .. } => (Some(len), 0),
                    Action::Write { len, .. }
                    | Action::Compare { len, .. }
                    | Action::CompareWrite { len, .. } => (Some(len), len),
                    _ => (None, 0),
                };
                if moves.is_some_and(|moves| moves != len as u64) {
                    self.answer(Status::SGL_LENGTH);
                } else {
                    self.takes = takes as usize;
                    self.work = Work::Storage(action);
                }
            }
            Plan::Several(mut actions) => {
                actions.reverse();
                self.work = Work::Several(actions);
            }
        }
        None
    }
}

/// Most bytes of parameters.
const PARAMETERS_MAX: usize = 4096;

impl Session {
    /// The command that the host calls so.
    pub(super) fn find(&self, cid: u16) -> Option<RequestId> {
        self.tasks.in_slot(self.cids.slot(cid)?)
    }

    /// Most commands at a time: the queue's entries.
    fn commands_max(&self) -> usize {
        match self.stage {
            Stage::Joined(joined) => usize::from(joined.size),
            _ => 1,
        }
    }

    /// A command's capsule has come, with so many bytes of data behind it: where they go, if there are any.
    pub(super) fn command(
        &mut self,
        subsystems: &mut Subsystems,
        sqe: &Sqe,
        data: usize,
    ) -> Result<Option<Incoming>, Fatal> {
        let discard = || (data > 0).then(|| Incoming::new(None, Sink::Discard, 0, data));
        if self.cids.slot(sqe.cid()).is_some() {
            self.complete_with(subsystems, sqe, Status::CID_CONFLICT.into());
            return Ok(discard());
        }
        if self.cids.len() >= self.commands_max() {
            return Err(Fatal::Sequence);
        }
        let plan = self.plan(subsystems, sqe);
        // What is decided is noted where the command stays: it is not copied while it is new.
        let id = self.tasks.insert(Task::new(sqe));
        let Some(task) = self.tasks.get_mut(id) else { return Ok(discard()) };
        let reply = task.adopt(plan);
        if data > 0 || task.takes > 0 {
            match sqe.place() {
                // What comes in a capsule gets a buffer beside the bound, but not for so much more than came.
                Place::Capsule(_) if task.reads() => task.answer(Status::FIELD),
                Place::Capsule(0) if data >= task.takes => {}
                Place::Capsule(0) => task.answer(Status::SGL_LENGTH),
                Place::Capsule(_) => task.answer(Status::SGL_OFFSET),
                Place::Host if data == 0 => {}
                _ => task.answer(Status::SGL_TYPE),
            }
        }
        self.cids.insert(sqe.cid(), id.slot);
        if sqe.fuse() > 0 || self.fused.is_some() {
            self.fuse(subsystems, id);
        }
        if let Some(reply) = reply {
            self.answer_data(id, &reply);
            if self.is_refused {
                self.close(subsystems);
            }
            return Ok(discard());
        }
        if data == 0 {
            self.advance_task(subsystems, id);
            return Ok(None);
        }
        let Some(takes) = self.tasks.get(id).map(|task| task.takes) else { return Ok(discard()) };
        let sink = self.sink(id);
        if let Sink::Buffer(payload) = sink {
            // They come now, whether or not there is room: at most as much as a queue's capsules carry.
            self.hold(payload.task);
        }
        Ok(Some(Incoming::new(Some(id), sink, takes, data)))
    }

    /// Where a command's data go.
    pub(super) fn sink(&self, id: RequestId) -> Sink {
        let Some(task) = self.tasks.get(id) else { return Sink::Discard };
        match task.work {
            Work::Parameters(..) => Sink::Own,
            Work::Storage(action) => {
                Sink::Buffer(Payload { task: id, offset: task.received, len: 0, buffer: action.buffer() })
            }
            Work::Half(first, from) => {
                let buffer = self.tasks.get(first).map_or(0, Task::buffer);
                match buffer {
                    0 => Sink::Discard,
                    _ => Sink::Buffer(Payload { task: first, offset: from + task.received, len: 0, buffer }),
                }
            }
            _ => Sink::Discard,
        }
    }

    /// What a command comes to.
    fn plan(&mut self, subsystems: &mut Subsystems, sqe: &Sqe) -> Plan {
        if !sqe.has_sgl() {
            return Status::FIELD.into();
        }
        let Stage::Joined(joined) = self.stage else {
            let connects = sqe.opcode() == FABRICS && sqe.0[4] == fabrics::kind::CONNECT;
            return if connects { Plan::Parameters(fabrics::CONNECT_DATA) } else { Status::SEQUENCE.into() };
        };
        match (sqe.opcode(), sqe.0[4]) {
            (FABRICS, fabrics::kind::AUTH_SEND) => return self.plan_message(sqe, true),
            (FABRICS, fabrics::kind::AUTH_RECEIVE) => return self.plan_message(sqe, false),
            _ if self.exchange.is_closed() => return Status::AUTHENTICATE.into(),
            _ => {}
        }
        match (sqe.opcode(), joined.qid) {
            (FABRICS, qid) => self.fabrics(subsystems, sqe, joined.cntlid, qid),
            (_, 0) => self.admin(subsystems, sqe, joined.cntlid),
            _ => match self.subsystem.and_then(|id| subsystems.get(id)) {
                Some(there) if there.stale && nvm::tells_of(&there.held, &self.host, sqe) => {
                    Status::NOT_READY.into()
                }
                Some(Subsystem { barred: Some(why), .. }) if !reservation::is_command(sqe.opcode()) => {
                    (*why).into()
                }
                Some(there) => nvm::start(&there.namespace, &there.held, &self.host, sqe),
                None => Status::NAMESPACE.into(),
            },
        }
    }

    fn fabrics(&mut self, subsystems: &mut Subsystems, sqe: &Sqe, cntlid: u16, qid: u16) -> Plan {
        let Some(controller) = subsystems.controller(cntlid) else { return Status::INTERNAL.into() };
        match sqe.0[4] {
            fabrics::kind::CONNECT => Status::SEQUENCE.into(),
            fabrics::kind::PROPERTY_GET if qid == 0 => fabrics::property(controller, sqe),
            fabrics::kind::PROPERTY_SET if qid == 0 => fabrics::set_property(subsystems, cntlid, sqe),
            fabrics::kind::DISCONNECT if qid > 0 => Status::SUCCESS.into(),
            _ => Status::OPCODE.into(),
        }
    }

    fn admin(&mut self, subsystems: &mut Subsystems, sqe: &Sqe, cntlid: u16) -> Plan {
        let Some(controller) = subsystems.controller_mut(cntlid) else { return Status::INTERNAL.into() };
        if !controller.is_ready() {
            return Status::SEQUENCE.into();
        }
        match sqe.opcode() {
            admin::opcode::KEEP_ALIVE => Status::SUCCESS.into(),
            admin::opcode::EVENT if self.events.len() >= admin::EVENT_REQUESTS => Status::EVENTS.into(),
            admin::opcode::ABORT => self.abort(subsystems, cntlid, sqe.dword(10)),
            _ => {
                let in_capsule = self.limits.in_capsule;
                let caller = admin::Caller { cntlid, here: &self.here, in_capsule };
                admin::start(subsystems, &caller, sqe)
            }
        }
    }

    /// `count` more bytes of a command's data have come, or it has none; `damaged`: they are not what was sent.
    pub(super) fn arrived(
        &mut self,
        subsystems: &mut Subsystems,
        id: RequestId,
        count: usize,
        damaged: bool,
    ) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.received += count;
        task.damaged |= damaged;
        if task.damaged && task.received >= task.takes {
            self.give_up(id, Status::TRANSPORT);
        }
        self.advance_task(subsystems, id);
    }
}
