//! Authentication Send and Receive (Base 6.2 and 6.1): a host's way to prove who it is.

use super::command::Work;
use super::{Session, Stage, Todo};
use crate::auth::{Derivation, Exchange, Key, MESSAGE_MAX, Parties};
use crate::plan::Plan;
use crate::status::Status;
use crate::subsystem::Subsystems;
use crate::wire::Sqe;
use henge_core::RequestId;

/// SECP: the security protocol of NVMe over fabrics; its specific fields are both 1.
const PROTOCOL: u8 = 0xe9;

/// Does something with who proves what to whom on a queue of this controller.
fn with_parties<T>(subsystems: &Subsystems, cntlid: u16, what: impl FnOnce(&Parties<'_>) -> T) -> Option<T> {
    let controller = subsystems.controller(cntlid)?;
    let host = controller.host.as_str();
    if let Some((nqn, weakest)) = &controller.nobodys {
        let key = Some(Key::nobodys());
        return Some(what(&Parties {
            host,
            subsystem: nqn,
            host_key: key.as_ref(),
            controller_key: None,
            weakest: *weakest,
            is_nobodys: true,
        }));
    }
    let subsystem = controller.subsystem.and_then(|id| subsystems.get(id))?;
    let access = &subsystem.access;
    Some(what(&Parties {
        host,
        subsystem: &subsystem.nqn,
        host_key: access.key(host),
        controller_key: access.controller_key.as_ref(),
        weakest: access.weakest,
        is_nobodys: false,
    }))
}

impl Session {
    /// The connection is a queue of this controller. Whether its host must prove who it is first.
    pub(super) fn begin_exchange(&mut self, subsystems: &Subsystems, cntlid: u16) -> bool {
        let needed = with_parties(subsystems, cntlid, |parties| parties.host_key.is_some());
        self.exchange = Exchange::new(needed == Some(true));
        self.exchange.is_closed()
    }

    /// Begins a command of the two.
    pub(super) fn plan_message(&mut self, sqe: &Sqe, sends: bool) -> Plan {
        let len = sqe.dword(11) as usize;
        let is_ours = sqe.0[43] == PROTOCOL && sqe.0[41] == 1 && sqe.0[42] == 1;
        if !is_ours || len == 0 || len > MESSAGE_MAX && sends {
            return Status::FIELD.into();
        }
        if sends {
            return Plan::Parameters(len);
        }
        let mut message = self.exchange.message();
        if len < message.len() || (sqe.data_len() as usize) < message.len() {
            return Status::FIELD.into();
        }
        self.is_refused |= self.exchange.fetched();
        // Hosts make room for the longest one, and expect all of it to be filled.
        message.resize(len.min(MESSAGE_MAX), 0);
        Plan::Data(message)
    }

    /// A message of the host's has come.
    pub(super) fn message_arrived(&mut self, subsystems: &mut Subsystems, id: RequestId, message: &[u8]) {
        let Stage::Joined(joined) = self.stage else { return };
        let sequence = subsystems.next_sequence(self.draw.number());
        let (exchange, draw) = (&mut self.exchange, &mut self.draw);
        let sent = with_parties(subsystems, joined.cntlid, |parties| {
            exchange.send(parties, message, draw, sequence)
        });
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.takes = task.received;
        task.work = Work::Answer(Status::SUCCESS.into());
        match sent {
            None => task.work = Work::Answer(Status::FIELD.into()),
            Some(crate::auth::Sent::Done) => {}
            Some(crate::auth::Sent::Over) => self.is_refused = true,
            Some(crate::auth::Sent::Derive(derivation)) => {
                task.work = Work::Derive;
                self.derivation = Some((id, derivation));
                self.todo.push_back(Todo::Derive(id));
            }
        }
        self.advance_task(subsystems, id);
    }

    /// What [`Step::Derive`](super::Step::Derive) asks for.
    pub fn derivation(&self, task: RequestId) -> Option<&Derivation> {
        self.derivation.as_ref().filter(|(id, _)| *id == task).map(|(_, derivation)| derivation)
    }

    /// [`Derivation::run`] is done, and this is what it gave.
    pub fn derived(&mut self, subsystems: &mut Subsystems, id: RequestId, power: Vec<u8>) {
        if self.derivation.as_ref().is_none_or(|(waits, _)| *waits != id) {
            return;
        }
        self.derivation = None;
        let Stage::Joined(joined) = self.stage else { return };
        let exchange = &mut self.exchange;
        with_parties(subsystems, joined.cntlid, |parties| exchange.derived(parties, power));
        if let Some(task) = self.tasks.get_mut(id).filter(|task| matches!(task.work, Work::Derive)) {
            task.work = Work::Answer(Status::SUCCESS.into());
            self.advance_task(subsystems, id);
        }
    }
}
