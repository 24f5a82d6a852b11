//! Connect, events, aborts: what concerns the queue itself, or comes from other queues.

use super::command::Work;
use super::{Session, Stage, Todo};
use crate::admin;
use crate::fabrics::{self, FABRICS};
use crate::nvm;
use crate::plan::Plan;
use crate::reservation;
use crate::status::{Ending, Status};
use crate::subsystem::{Notice, Subsystems};
use crate::wire::Sqe;
use henge_core::RequestId;

/// What a completion says of the queue's head when nobody is to look at it (Base 6.3).
const NO_HEAD: u16 = 0xffff;

impl Session {
    /// The parameters of a command have come.
    pub(super) fn parameters_arrived(&mut self, subsystems: &mut Subsystems, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let decided = Work::Answer(Status::SUCCESS.into());
        let Work::Parameters(mut list, needs) = std::mem::replace(&mut task.work, decided) else { return };
        let sqe = task.sqe;
        list.truncate(needs);
        if sqe.opcode() == FABRICS && sqe.0[4] == fabrics::kind::AUTH_SEND {
            return self.message_arrived(subsystems, id, &list);
        }
        let plan = match self.stage {
            Stage::Joined(joined) if joined.qid == 0 => {
                admin::parameters(subsystems, joined.cntlid, &sqe, &list)
            }
            Stage::Joined(_) => match self.subsystem.and_then(|id| subsystems.get(id)) {
                Some(_) if reservation::is_command(sqe.opcode()) => {
                    reservation::change(&self.host, &sqe, &list)
                }
                Some(there) if sqe.opcode() == nvm::opcode::COPY => nvm::copy(&there.namespace, &sqe, &list),
                Some(there) => nvm::dataset(&there.namespace, &sqe, &list),
                None => Status::NAMESPACE.into(),
            },
            _ => return self.connect(subsystems, id, &list),
        };
        if let Some(task) = self.tasks.get_mut(id) {
            task.takes = task.received;
            task.work = match plan {
                Plan::Several(mut actions) => {
                    actions.reverse();
                    Work::Several(actions)
                }
                Plan::Done(ending) => Work::Answer(ending),
                Plan::Reserve(change) => Work::Reserve(Box::new(change)),
                _ => Work::Answer(Status::INTERNAL.into()),
            };
        }
        self.advance_task(subsystems, id);
    }

    /// Connect with its data: the connection becomes a queue, or it is told why not and ends.
    fn connect(&mut self, subsystems: &mut Subsystems, id: RequestId, data: &[u8]) {
        let Some(sqe) = self.tasks.get(id).map(|task| task.sqe) else { return };
        match fabrics::connect(subsystems, self.queue, &sqe, data) {
            Ok(joined) => {
                self.stage = Stage::Joined(joined);
                if let Some(there) = subsystems.controller(joined.cntlid) {
                    (self.subsystem, self.host) = (there.subsystem, there.host_id);
                }
                let proves =
                    if self.begin_exchange(subsystems, joined.cntlid) { fabrics::AUTHENTICATES } else { 0 };
                let ending = Ending { status: Status::SUCCESS, result: u64::from(joined.cntlid) | proves };
                if !joined.flow_control {
                    self.head = NO_HEAD;
                }
                self.answer(subsystems, id, ending);
            }
            // The host may try again on this connection.
            Err(ending) => self.answer(subsystems, id, ending),
        }
    }

    /// The next place of the submission queue's head.
    pub(super) fn next_head(&mut self) -> u16 {
        if let Stage::Joined(joined) = self.stage
            && joined.flow_control
        {
            self.head = (self.head + 1) % joined.size;
        }
        self.head
    }

    /// Abort (Base 5.1): best effort. The result says whether the command was given up at once.
    pub(super) fn abort(&mut self, subsystems: &mut Subsystems, cntlid: u16, which: u32) -> Plan {
        let (qid, cid) = (which as u16, (which >> 16) as u16);
        let at = subsystems.controller(cntlid).and_then(|there| there.queues.get(&qid).copied());
        match at {
            None => return Status::FIELD.into(),
            // Here too it happens after this, so that a command never aborts itself half-way.
            Some(queue) => subsystems.tell(queue, Notice::Abort(cid)),
        }
        Plan::result(1_u32)
    }

    fn abort_here(&mut self, subsystems: &mut Subsystems, cid: u16) {
        let Some(id) = self.find(cid) else { return };
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.at_storage {
            // To look for it costs as much as there is at the disk, so it is done once.
            if !std::mem::replace(&mut task.aborted, true) {
                self.todo.push_back(Todo::Cancel(id));
            }
            return;
        }
        let other = match task.work {
            Work::Half(first, _) => Some(first),
            _ => task.partner,
        };
        if other.and_then(|id| self.tasks.get(id)).is_some_and(|task| task.at_storage) {
            return; // of a pair at the storage the first one is to be aborted
        }
        self.events.retain(|event| *event != id);
        self.give_up(id, Status::ABORTED);
        self.advance_task(subsystems, id);
        if let Some(other) = other {
            self.advance_task(subsystems, other);
        }
    }

    /// The host was preempted: all commands are given up, except changes of who may use the disk.
    fn preempted(&mut self, subsystems: &mut Subsystems) {
        let mut early = Vec::new();
        for (id, task) in self.tasks.iter_mut() {
            if matches!(task.work, Work::Reserve(_) | Work::Answer(_)) || task.answered {
                continue;
            }
            task.why = Some(Status::PREEMPTED);
            if task.at_storage {
                task.aborted = true;
                self.todo.push_back(Todo::Cancel(id));
            } else {
                early.push(id);
            }
        }
        for &id in &early {
            // Of a pair at the storage the second ends with the first.
            let first = match self.tasks.get(id).map(|task| &task.work) {
                Some(Work::Half(first, _)) => Some(*first),
                _ => None,
            };
            if first.and_then(|first| self.tasks.get(first)).is_none_or(|first| !first.at_storage) {
                self.give_up(id, Status::PREEMPTED);
            }
        }
        early.into_iter().for_each(|id| self.advance_task(subsystems, id));
    }

    /// The namespace cannot be used here now: what has not begun is given up.
    fn withdraw(&mut self) {
        for (id, task) in self.tasks.iter_mut() {
            if task.at_storage && !matches!(task.work, Work::Reserve(_)) {
                task.why.get_or_insert(Status::INACCESSIBLE);
                self.todo.push_back(Todo::Cancel(id));
            }
        }
    }

    /// Gives up what conflicts with reservations that hold now. What has not come to the storage yet is looked at before it does.
    fn recheck(&mut self, subsystems: &mut Subsystems) {
        let Some(there) = self.subsystem.and_then(|id| subsystems.get(id)) else { return };
        for (id, task) in self.tasks.iter_mut() {
            if matches!(task.work, Work::Reserve(_) | Work::Answer(_)) || task.answered {
                continue;
            }
            task.doubted = true;
            if task.at_storage && task.is_kept_out(&there.held, &self.host) {
                task.why = Some(Status::RESERVATION);
                task.aborted = true;
                self.todo.push_back(Todo::Cancel(id));
            }
        }
    }

    /// Answers requests that wait for events with the events that there are.
    pub(super) fn tell_events(&mut self, subsystems: &mut Subsystems) {
        let Stage::Joined(joined) = self.stage else { return };
        while !self.events.is_empty() {
            let event = subsystems.controller_mut(joined.cntlid).and_then(|there| there.take_event());
            let (Some(event), Some(id)) = (event, self.events.front().copied()) else { return };
            self.events.pop_front();
            let ending = Ending { status: Status::SUCCESS, result: u64::from(event.dword()) };
            self.answer(subsystems, id, ending);
        }
    }

    /// Others have news for this queue.
    pub fn poke(&mut self, subsystems: &mut Subsystems) {
        for notice in subsystems.take_notices(self.queue) {
            match notice {
                Notice::Event => self.tell_events(subsystems),
                Notice::Abort(cid) => self.abort_here(subsystems, cid),
                Notice::Preempted => self.preempted(subsystems),
                Notice::Withdraw => self.withdraw(),
                Notice::Recheck => self.recheck(subsystems),
                Notice::Close => self.close(subsystems),
            }
        }
    }

    /// Whether a command ends the queue once it is answered.
    pub(super) fn ends_queue(&self, sqe: &Sqe) -> bool {
        if self.is_refused {
            return true;
        }
        let joined = matches!(self.stage, Stage::Joined(joined) if joined.qid > 0);
        joined && sqe.opcode() == FABRICS && sqe.0[4] == fabrics::kind::DISCONNECT
    }
}
