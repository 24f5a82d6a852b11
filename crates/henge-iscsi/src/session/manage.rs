//! Everything beside SCSI commands: task management, NOP, text, logout, and news from other sessions.

use super::command::{Task, Work};
use super::{Command, Session, Stage, Step};
use crate::params::{Answer, Offer, negotiate};
use crate::scsi::{Action, Status, Sweep};
use crate::target::{Notice, Target, TargetId, Targets};
use crate::text::{self, KEYS_MAX, TEXT_MAX};
use crate::wire::{Header, NO_TAG, Reason, response, unit_number};
use henge_core::RequestId;

/// A task management function that waits until what it has aborted has left the storage: a write that was
/// given up must not come after the answer says so.
#[derive(Debug, Default)]
pub(super) struct Function {
    itt: u32,
    /// Our own tasks.
    tasks: Vec<RequestId>,
    /// Units, and the reset epoch before which nothing may be at the storage.
    units: Vec<(u16, u32)>,
    /// Units that other nodes are still to sweep, by the names of these actions.
    elsewhere: Vec<RequestId>,
    /// Not every node could be told.
    failed: bool,
    /// The session ends after the answer.
    then_close: bool,
}

/// Responses to task management functions (RFC 7143 11.6.1).
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_UNIT: u8 = 2;
const NO_REASSIGN: u8 = 4;
const NOT_SUPPORTED: u8 = 5;
const REJECTED: u8 = 255;

/// Most bytes of a text that are sent at once. Clients that take a list in one piece alone, as libiscsi does, have room for as many.
const ANSWER_MAX: usize = 256 << 10;

/// Names of actions that belong to no task begin here.
const NO_TASK_SLOT: u32 = u32::MAX;

impl Session {
    /// Task management (RFC 7143 11.5).
    pub(super) fn manage(&mut self, targets: &mut Targets, header: &Header) {
        if self.in_order(header).is_none() {
            return;
        }
        if self.functions.len() >= self.limits.immediate as usize {
            return self.reject(header, Reason::TooManyImmediate);
        }
        let Some(target) = self.target else {
            return self.reject_and_close(targets, header, Reason::Protocol);
        };
        let number = unit_number(header.lun()).unwrap_or(u16::MAX);
        let function = header.0[1] & 0x7f;
        let itt = header.itt();
        let mut pending = Function { itt, ..Function::default() };
        let known = targets.unit(target, number).is_some();
        match function {
            1 => match self.by_tag.get(&header.ttt()).copied() {
                Some(id) if self.tasks.get(id).is_some_and(|task| !task.aborted) => {
                    pending.tasks = self.abort_tasks(targets, |task| task.itt == header.ttt());
                }
                _ => return self.answer_function(itt, NO_TASK),
            },
            2 | 4 | 5 if !known => return self.answer_function(itt, NO_UNIT),
            2 => pending.tasks = self.abort_tasks(targets, |task| task.unit == number),
            4 => self.sweep(targets, Some(number), Sweep::Commands, &mut pending),
            5 => self.sweep(targets, Some(number), Sweep::Unit, &mut pending),
            6 => self.sweep(targets, None, Sweep::Unit, &mut pending),
            7 => {
                self.sweep(targets, None, Sweep::Sessions, &mut pending);
                pending.then_close = true;
            }
            8 => return self.answer_function(itt, NO_REASSIGN),
            _ => return self.answer_function(itt, NOT_SUPPORTED), // CLEAR ACA: NACA is not supported
        }
        self.functions.push(pending);
        self.settle(targets);
    }

    /// Takes away everybody's commands for one unit, or for all: here at once, elsewhere by the driver.
    fn sweep(&mut self, targets: &mut Targets, number: Option<u16>, what: Sweep, pending: &mut Function) {
        let Some(target) = self.target else { return };
        pending.tasks = self.abort_tasks(targets, |task| number.is_none_or(|n| n == task.unit));
        let units = targets.get(target).into_iter().flat_map(|holder| &holder.units);
        let units = units.filter(|(n, _)| number.is_none_or(|number| number == **n));
        let units: Vec<(u16, bool)> = units.map(|(n, unit)| (*n, unit.is_shared())).collect();
        for (unit, shared) in units {
            let epoch = targets.sweep(target, unit, what, Some(self.nexus));
            pending.units.push((unit, epoch));
            if shared {
                let name = RequestId { slot: NO_TASK_SLOT, generation: self.new_tag() };
                pending.elsewhere.push(name);
                let action = Action::Sweep(what);
                self.steps.push_back(Step::Execute(Command { task: name, target, unit, buffer: 0, action }));
            }
        }
    }

    /// The other nodes have swept a unit, or could not be told to.
    pub(super) fn swept(&mut self, targets: &mut Targets, name: RequestId, well: bool) {
        for function in &mut self.functions {
            let before = function.elsewhere.len();
            function.elsewhere.retain(|other| *other != name);
            function.failed |= !well && function.elsewhere.len() < before;
        }
        self.settle(targets);
    }

    /// Aborts tasks. Those at the storage stay until it gives them back; returns these.
    pub(super) fn abort_tasks(
        &mut self,
        targets: &mut Targets,
        which: impl Fn(&Task) -> bool,
    ) -> Vec<RequestId> {
        let chosen: Vec<RequestId> =
            self.tasks.iter().filter(|(_, task)| which(task) && !task.aborted).map(|(id, _)| id).collect();
        let mut remain = Vec::new();
        for id in chosen {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.aborted = true;
            // What is kept for good is not taken back half-way.
            let keeps = task.reserves();
            if task.at_storage.is_none() {
                self.forget(id);
                continue;
            }
            remain.push(id);
            if !keeps {
                self.steps.push_back(Step::Cancel(id));
            }
        }
        // Data that come for one of them are dropped.
        if let Some(incoming) = &mut self.incoming
            && let Some(id) = incoming.task
            && self.tasks.get(id).is_none_or(|task| task.aborted)
        {
            incoming.abandon();
        }
        self.admit(targets);
        remain
    }

    /// Answers the functions that wait for nothing any more.
    pub(super) fn settle(&mut self, targets: &mut Targets) {
        let mut at = 0;
        while at < self.functions.len() {
            let target = self.target;
            let function = &mut self.functions[at];
            function.tasks.retain(|&id| self.tasks.get(id).is_some());
            let quiet = function.units.iter().all(|&(number, epoch)| {
                let unit = target.and_then(|target| targets.unit(target, number));
                unit.is_none_or(|unit| unit.quiet_before(epoch))
            });
            if !function.tasks.is_empty() || !function.elsewhere.is_empty() || !quiet {
                at += 1;
                continue;
            }
            let done = self.functions.remove(at);
            self.answer_function(done.itt, if done.failed { REJECTED } else { COMPLETE });
            if done.then_close {
                return self.close(targets);
            }
        }
    }

    /// One of our aborted tasks has left the storage: somebody's function may wait for that.
    pub(super) fn quieted(&mut self, targets: &mut Targets) {
        if let Some(target) = self.target {
            targets.notify(target, Some(self.nexus), Notice::Quiet);
        }
    }

    fn answer_function(&mut self, itt: u32, code: u8) {
        let mut reply = Header::reply(response::TASK);
        reply.put(2, code).put_u32(16, itt);
        self.stamp(&mut reply, true);
        self.out.pdu(reply, &[]);
    }

    /// News from other sessions, or of the target.
    pub fn poke(&mut self, targets: &mut Targets) {
        for notice in targets.take_notices(self.nexus) {
            match notice {
                Notice::Close => return self.close(targets),
                Notice::Abort(number) => {
                    self.abort_tasks(targets, |task| number.is_none_or(|n| n == task.unit));
                    self.quieted(targets);
                }
                Notice::Withdraw(number) => self.withdraw(number),
                Notice::Recheck(number) => self.recheck(targets, number),
                Notice::Quiet => {}
                Notice::Background(number) => self.background_ended(targets, number),
            }
        }
        self.settle(targets);
    }

    /// Gives up what has not begun, if it can be; each is answered as all commands are.
    fn withdraw(&mut self, number: u16) {
        let gone = |task: &Task| task.unit == number && task.at_storage.is_some() && !task.aborted;
        let chosen = self.tasks.iter().filter(|(_, task)| gone(task) && !task.reserves());
        self.steps.extend(chosen.map(|(id, _)| Step::Cancel(id)));
    }

    /// Gives up what conflicts with reservations that hold now. What has not come to the storage yet is looked at before it does.
    fn recheck(&mut self, targets: &mut Targets, number: u16) {
        let Some(unit) = self.target.and_then(|target| targets.unit(target, number)) else { return };
        for (id, task) in self.tasks.iter_mut() {
            if task.unit != number || task.aborted || task.reserves() {
                continue;
            }
            task.doubted = true;
            if task.at_storage.is_some() && unit.keeps_out(self.nexus, &task.cdb) {
                self.steps.push_back(Step::Cancel(id));
            }
        }
    }

    fn background_ended(&mut self, targets: &mut Targets, number: u16) {
        let Some(unit) = self.target.and_then(|target| targets.unit(target, number)) else { return };
        let status: Status = unit.background_status();
        let waits = |task: &Task| matches!(task.work, Work::Background) && task.unit == number;
        let ids: Vec<RequestId> = self.tasks.iter().filter(|(_, t)| waits(t)).map(|(id, _)| id).collect();
        for id in ids {
            self.answer(targets, id, status, &[]);
        }
    }

    /// NOP-Out: a ping, or the answer to ours (RFC 7143 11.18).
    pub(super) fn nop(&mut self, targets: &mut Targets, header: &Header, data: &[u8]) {
        if self.in_order(header).is_none() || header.itt() == NO_TAG {
            return;
        }
        if header.ttt() != NO_TAG {
            return self.reject_and_close(targets, header, Reason::Protocol);
        }
        let mut reply = Header::reply(response::NOP);
        reply.put_lun(header.lun()).put_u32(16, header.itt()).put_u32(20, NO_TAG);
        self.stamp(&mut reply, true);
        let len = data.len().min(self.agreed.send_max as usize);
        self.out.pdu(reply, &data[..len]);
    }

    /// Logout (RFC 7143 11.14): of the session, which has one connection.
    pub(super) fn log_out(&mut self, targets: &mut Targets, header: &Header) {
        if self.in_order(header).is_none() {
            return;
        }
        let mut reply = Header::reply(response::LOGOUT);
        // 2: recovery of another connection, which needs error recovery level 2
        let code = if header.0[1] & 0x7f == 2 { 2 } else { 0 };
        reply.put(2, code).put_u32(16, header.itt()).put_u16(40, 2);
        self.stamp(&mut reply, true);
        self.out.pdu(reply, &[]);
        if code == 0 {
            self.close(targets);
        }
    }

    /// Text: SendTargets, and terms that may change later (RFC 7143 11.10).
    pub(super) fn text(&mut self, targets: &mut Targets, header: &Header, data: &[u8]) {
        if self.in_order(header).is_none() {
            return;
        }
        let (more, follows) = (header.0[1] & 0x40 != 0, header.ttt() != NO_TAG);
        if !follows {
            self.text_in.clear();
            self.text.clear();
            self.listed = None;
        }
        let continues = follows && !self.text.is_empty();
        if self.text_in.len() + data.len() > TEXT_MAX || more && header.is_final() {
            return self.reject_and_close(targets, header, Reason::Protocol);
        }
        self.text_in.extend_from_slice(data);
        if !more && !continues {
            let bytes = std::mem::take(&mut self.text_in);
            let Ok(pairs) = text::pairs(&bytes) else {
                return self.reject_and_close(targets, header, Reason::Protocol);
            };
            // Each answer may be a list of all targets, and a text has room for thousands of these questions, or of others.
            if pairs.len() > KEYS_MAX
                || pairs.iter().filter(|(key, _)| *key == "SendTargets").nth(1).is_some()
            {
                return self.reject_and_close(targets, header, Reason::Protocol);
            }
            self.text = self.answer_text(targets, &pairs);
        }
        let most = (self.agreed.send_max as usize).min(ANSWER_MAX);
        self.list(targets, most);
        let len = self.text.len().min(most);
        let rest = self.text.split_off(len);
        let part = std::mem::replace(&mut self.text, rest);
        let mut reply = Header::reply(response::TEXT);
        let open = more || !self.text.is_empty();
        let tag = if open { self.new_tag() } else { NO_TAG };
        let flags = if open { u8::from(!more) << 6 } else { u8::from(header.is_final()) << 7 };
        reply.put(1, flags).put_lun(header.lun()).put_u32(16, header.itt()).put_u32(20, tag);
        self.stamp(&mut reply, true);
        self.out.pdu(reply, &part);
    }

    fn answer_text(&mut self, targets: &Targets, pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for &(key, value) in pairs {
            match key {
                "SendTargets" => self.send_targets(targets, value, &mut out),
                // The one term that may be declared anew at any time (RFC 7143 13.12)
                "MaxRecvDataSegmentLength" => {
                    if negotiate(key, value, &Offer::default(), &mut self.agreed) == Answer::Reject {
                        text::push(&mut out, key, "Reject");
                    }
                }
                _ => text::push(&mut out, key, "NotUnderstood"),
            }
        }
        out
    }

    /// Names and addresses (RFC 7143 appendix C). In a normal session, of its own target only.
    fn send_targets(&mut self, targets: &Targets, value: &str, out: &mut Vec<u8>) {
        let own = self.target.and_then(|id| targets.get(id)).map(|target| target.name.as_str());
        let wanted = match (value, own) {
            ("All", None) => return self.listed = Some(TargetId::FIRST),
            ("All", Some(_)) => return text::push(out, "SendTargets", "Reject"),
            ("", Some(own)) => own,
            (name, _) => name,
        };
        let Some((id, target)) = targets.find(wanted).and_then(|id| Some((id, targets.get(id)?))) else {
            return;
        };
        let access = &target.access;
        // A session of its own target has proven what there is to prove.
        let proven = access.users.is_empty() || own.is_some() || self.has_shown(id, target);
        if access.allows(&self.names.0) && proven && own.is_none_or(|own| own == target.name) {
            tell(targets, target, out);
        }
    }

    /// Whether its proof shows a target that asks for one. Who may use that may be said anew since.
    fn has_shown(&self, id: TargetId, target: &Target) -> bool {
        self.shown.binary_search(&(id, target.edition)).is_ok()
    }

    /// Goes on with a list of all targets, until there is more of it than is sent at once.
    fn list(&mut self, targets: &Targets, most: usize) {
        while self.text.len() <= most
            && let Some(from) = self.listed
        {
            let proven =
                self.shown.get(self.shown.partition_point(|(id, _)| *id < from)..).unwrap_or_default();
            let proven = proven.first().map(|(id, _)| *id);
            let next = [targets.directory.next(from, &self.names.0), proven].into_iter().flatten().min();
            self.listed = next.map(TargetId::next);
            let Some((id, target)) = next.and_then(|id| Some((id, targets.get(id)?))) else { continue };
            if target.access.users.is_empty() || self.has_shown(id, target) {
                tell(targets, target, &mut self.text);
            }
        }
    }

    /// Whether the login is over and the session can take commands.
    pub fn is_logged_in(&self) -> bool {
        matches!(self.stage, Stage::Full)
    }
}

/// A target's name, and where it is.
fn tell(targets: &Targets, target: &Target, out: &mut Vec<u8>) {
    text::push(out, "TargetName", &target.name);
    let here = targets.portals.iter().map(|portal| (portal, targets.port));
    let elsewhere = target.elsewhere.iter().map(|(portal, port)| (portal, *port));
    for (portal, port) in here.chain(elsewhere) {
        text::push(out, "TargetAddress", &format!("{portal},{port}"));
    }
}
