//! What commands need on their way: room for their buffers, their data, the storage.

use super::command::{Task, Work};
use super::{Session, Stage, Todo};
use crate::admin;
use crate::namespace::Reach;
use crate::nvm;
use crate::plan::{Action, Outcome};
use crate::status::{Ending, Status};
use crate::subsystem::{Subsystem, Subsystems};
use henge_core::{Fault, RequestId};

impl Session {
    /// Goes on with a command as far as it can go.
    pub(super) fn advance_task(&mut self, subsystems: &mut Subsystems, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.at_storage || task.answered || self.incoming.as_ref().is_some_and(|it| it.needs(id)) {
            return;
        }
        let needs = if task.holds == 0 { task.buffer() } else { 0 };
        if needs > 0 {
            let has_capacity = self.held == 0 || self.held + needs as u64 <= self.limits.held;
            if !has_capacity || !self.waiting.is_empty() || task.partner.is_some() {
                return self.await_room(subsystems, id);
            }
            task.holds = needs;
            self.held += needs as u64;
        }
        let needs_more = task.received < task.takes;
        match task.work {
            Work::Answer(_) if needs_more => {} // what was asked for is still to come
            Work::Answer(ending) => self.answer(subsystems, id, ending),
            Work::Half(first, _) if needs_more => {
                if self.holds(first) {
                    self.ask(id); // otherwise it goes on when that one does
                }
            }
            _ if needs_more => self.ask(id),
            Work::Parameters(..) => self.parameters_arrived(subsystems, id),
            Work::Storage(Action::CompareWrite { .. }) => {
                if self.is_paired(id) {
                    self.execute(subsystems, id);
                }
            }
            Work::Storage(_) | Work::Several(_) | Work::Reserve(_) => self.execute(subsystems, id),
            Work::Half(first, _) => self.advance_task(subsystems, first),
            Work::Derive => {}
            Work::Event => {
                self.events.push_back(id);
                self.tell_events(subsystems);
            }
        }
    }

    /// Whether both commands of a fused pair have all their data.
    fn is_paired(&self, first: RequestId) -> bool {
        let second = self.tasks.get(first).and_then(|task| self.tasks.get(task.partner?));
        second.is_some_and(|task| task.received == task.takes)
    }

    /// A command's buffer is in use from now on.
    pub(super) fn hold(&mut self, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.holds == 0 {
            task.holds = task.buffer();
            self.held += task.holds as u64;
        }
    }

    /// Room for its buffer first.
    fn await_room(&mut self, subsystems: &mut Subsystems, id: RequestId) {
        if self.waiting.is_empty() && self.has_capacity(id) {
            self.enter(subsystems, id);
        } else if !self.waiting.contains(&id) {
            self.waiting.push_back(id);
            self.admit(subsystems);
        }
    }

    /// Lets waiting commands have their buffers, in order, as far as there is room.
    pub(super) fn admit(&mut self, subsystems: &mut Subsystems) {
        while let Some(&id) = self.waiting.front() {
            if !self.has_capacity(id) {
                return;
            }
            self.waiting.pop_front();
            self.enter(subsystems, id);
        }
    }

    /// Whether there is room for the command's buffer; for one at least.
    fn has_capacity(&self, id: RequestId) -> bool {
        let needs = self.tasks.get(id).filter(|task| task.holds == 0).map_or(0, Task::buffer);
        self.held == 0 || self.held + needs as u64 <= self.limits.held
    }

    /// There is room for the command.
    fn enter(&mut self, subsystems: &mut Subsystems, id: RequestId) {
        self.hold(id);
        self.advance_task(subsystems, id);
        if let Some(partner) = self.tasks.get(id).and_then(|task| task.partner) {
            self.advance_task(subsystems, partner);
        }
    }

    /// Its data are to be asked for.
    fn ask(&mut self, id: RequestId) {
        let Some(task) = self.tasks.get(id) else { return };
        if !task.is_asked && !self.asking.contains(&id) {
            self.asking.push_back(id);
        }
        self.ask_more();
    }

    /// Asks for data, a bounded number of bytes at a time.
    pub(super) fn ask_more(&mut self) {
        while let Some(&id) = self.asking.front() {
            let task = self.tasks.get_mut(id).filter(|task| task.received < task.takes);
            let Some(task) = task else {
                self.asking.pop_front();
                continue;
            };
            let len = task.takes as u64;
            if self.asked > 0 && self.asked + len > self.limits.asked {
                return;
            }
            task.is_asked = true;
            self.asked += len;
            self.asking.pop_front();
            self.last_tag = self.last_tag.wrapping_add(1);
            task.tag = self.last_tag;
            self.out.r2t(task.sqe.cid(), task.tag, 0, len as u32);
        }
    }

    /// Sends the next action to the storage.
    fn execute(&mut self, subsystems: &mut Subsystems, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Some(is_for_disk) = task.action().as_ref().map(Action::is_for_disk) else {
            return self.answer(subsystems, id, Status::SUCCESS.into());
        };
        let there = self.subsystem.and_then(|id| subsystems.get_mut(id));
        let status = match there {
            None => Status::NAMESPACE,
            Some(there) if there.namespace.reach == Reach::Inaccessible => Status::INACCESSIBLE,
            // It was taken in before that began, and its data have come since.
            Some(Subsystem { barred: Some(why), .. }) if is_for_disk => *why,
            Some(there) if task.doubted && task.is_kept_out(&there.held, &self.host) => Status::RESERVATION,
            Some(there) => {
                task.at_storage = true;
                // Whose end may wait until all is quiet is not waited for itself.
                task.epoch = is_for_disk.then(|| there.epochs.begin());
                self.at_storage += 1;
                return self.todo.push_back(Todo::Execute(id));
            }
        };
        self.end(subsystems, id, status);
    }

    /// The storage has done what [`Step::Execute`](super::Step::Execute) asked for, or has not. `buffer` is the command's, as far as it has one.
    pub fn complete(
        &mut self,
        subsystems: &mut Subsystems,
        id: RequestId,
        outcome: Outcome<'_>,
        buffer: &[u8],
    ) {
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.at_storage) else { return };
        task.at_storage = false;
        self.at_storage -= 1;
        if let (Some(subsystem), Some(epoch)) = (self.subsystem, task.epoch.take()) {
            subsystems.end(subsystem, epoch);
        }
        if self.stage == Stage::Over {
            return self.forget(id);
        }
        if let (Outcome::Done, Work::Storage(Action::Read { len, .. })) = (&outcome, &task.work) {
            let len = *len as usize;
            return self.answer_from_buffer(id, &buffer[..len]);
        }
        let Some(action) = task.action() else { return };
        let status = match outcome {
            Outcome::Done => Status::SUCCESS,
            Outcome::Unequal => Status::UNEQUAL,
            Outcome::Decided(status) => status,
            Outcome::Failed(Fault::Cancelled) if let Some(why) = task.why => why,
            Outcome::Failed(Fault::Cancelled)
                if !task.aborted
                    && let Some(why) = self.subsystem.and_then(|id| subsystems.barred(id)) =>
            {
                why
            }
            Outcome::Failed(fault) => Status::of(fault, action.writes()),
            Outcome::Service(service) => {
                let sqe = task.sqe;
                return self.answer_log(subsystems, id, &sqe, service);
            }
        };
        if !status.is_success() {
            // Of a Copy the host is told which range was not copied (NVM 3.2.2).
            if let (Action::Copy { .. }, Work::Several(left)) = (action, &task.work) {
                let result = nvm::sources(&task.sqe).saturating_sub(left.len()) as u64;
                return self.answer(subsystems, id, Ending { status, result });
            }
            return self.end(subsystems, id, status);
        }
        match &mut task.work {
            Work::Several(actions) => {
                actions.pop();
                if task.aborted {
                    let why = task.why.unwrap_or(Status::ABORTED);
                    self.end(subsystems, id, why);
                } else {
                    self.execute(subsystems, id);
                }
            }
            _ => self.end(subsystems, id, status),
        }
    }

    /// Ends a command, and the other one of its pair.
    fn end(&mut self, subsystems: &mut Subsystems, id: RequestId, status: Status) {
        let partner = self.tasks.get(id).and_then(|task| task.partner);
        self.answer(subsystems, id, status.into());
        if let Some(partner) = partner {
            let status = if status.is_success() { status } else { Status::FUSED_FAILED };
            self.answer(subsystems, partner, status.into());
        }
    }

    /// Decides that a command fails, and what becomes of the other one of its pair. Either is answered once nothing of it is on its way.
    pub(super) fn give_up(&mut self, id: RequestId, status: Status) {
        let Some(task) = self.tasks.get_mut(id).filter(|task| !task.at_storage) else { return };
        let other = match task.work {
            Work::Half(first, _) => Some(first),
            _ => task.partner,
        };
        task.answer(status);
        task.partner = None;
        if let Some(task) = other.and_then(|id| self.tasks.get_mut(id)).filter(|task| !task.at_storage) {
            task.answer(Status::FUSED_FAILED);
            task.partner = None;
        }
    }

    /// Joins the second command of a fused pair to the first (Base 3.4.2), or gives up a first one that stays alone.
    pub(super) fn fuse(&mut self, subsystems: &mut Subsystems, id: RequestId) {
        let before = self.fused.take();
        let Some(task) = self.tasks.get(id) else { return };
        let (fuse, action) = (task.sqe.fuse(), task.action());
        let first = before.and_then(|first| Some((first, self.tasks.get(first)?.action()?)));
        if fuse == 2
            && let (Some((first, Action::CompareWrite { offset, len, .. })), Some(Action::Write { fua, .. })) =
                (first, action)
            && action == Some(Action::Write { offset, len, fua })
        {
            if let Some(task) = self.tasks.get_mut(id) {
                task.work = Work::Half(first, len as usize);
            }
            if let Some(task) = self.tasks.get_mut(first) {
                task.work = Work::Storage(Action::CompareWrite { offset, len, fua });
                task.partner = Some(id);
            }
            return;
        }
        if let Some((first, _)) = first {
            let why = match fuse {
                2 if action.is_none() => Status::FUSED_FAILED,
                2 => Status::FIELD,
                _ => Status::FUSED_MISSING,
            };
            self.give_up(first, why);
            self.advance_task(subsystems, first);
        }
        let is_first = fuse == 1 && matches!(action, Some(Action::CompareWrite { .. }));
        let wrong = match fuse {
            0 => return,
            1 if is_first => {
                self.fused = Some(id);
                return;
            }
            2 if first.is_none() => Status::FUSED_MISSING,
            _ => Status::FIELD,
        };
        if let Some(task) = self.tasks.get_mut(id).filter(|task| task.action().is_some()) {
            task.answer(wrong);
        }
    }

    /// The page that a Get Log Page asked for, now that the disk's service is known.
    fn answer_log(
        &mut self,
        subsystems: &mut Subsystems,
        id: RequestId,
        sqe: &crate::wire::Sqe,
        service: &crate::namespace::Service,
    ) {
        debug_assert_eq!(sqe.opcode(), admin::opcode::GET_LOG);
        let errors = match self.stage {
            Stage::Joined(joined) => subsystems.controller(joined.cntlid).map_or(0, |c| c.error_count),
            _ => 0,
        };
        let Some(window) = admin::Window::of(sqe) else { return };
        let page = if window.is_smart() {
            admin::smart(service, errors)
        } else {
            crate::service_log::encode(service)
        };
        match window.cut(page) {
            Ok(page) => self.answer_data(id, &page),
            Err(status) => self.answer(subsystems, id, Ending::from(status)),
        }
    }
}
