//! Admin commands (NVMe Base 2.0, chapter 5).

mod feature;
mod identify;
mod log;

use crate::plan::{Action, Plan};
use crate::status::Status;
use crate::subsystem::Subsystems;
use crate::wire::Sqe;

pub(crate) use feature::EVENT_REQUESTS;
pub(crate) use log::{Log, Window, smart};

/// Opcodes.
pub(crate) mod opcode {
    pub const GET_LOG: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const EVENT: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of I/O controllers, for the log that tells of commands.
const COMMANDS: &[u8] = &[
    opcode::GET_LOG,
    opcode::IDENTIFY,
    opcode::ABORT,
    opcode::SET_FEATURES,
    opcode::GET_FEATURES,
    opcode::EVENT,
    opcode::KEEP_ALIVE,
    crate::fabrics::FABRICS,
];

/// Who asks, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub cntlid: u16,
    /// The address and the port that the host has come to.
    pub here: &'a (String, String),
    /// Bytes that a capsule of an I/O queue may carry.
    pub in_capsule: u32,
}

/// Begins a command. Keep Alive and Abort are the session's.
pub(crate) fn start(subsystems: &mut Subsystems, caller: &Caller<'_>, sqe: &Sqe) -> Plan {
    let Some(controller) = subsystems.controller(caller.cntlid) else { return Status::INTERNAL.into() };
    match sqe.opcode() {
        opcode::IDENTIFY => identify::identify(subsystems, caller, sqe),
        opcode::GET_LOG => match log::get(subsystems, caller, sqe) {
            Log::Data(page) => Plan::Page(page),
            Log::Service => Plan::Storage(Action::Report),
            Log::Wrong(status) => status.into(),
        },
        opcode::SET_FEATURES => feature::set(subsystems, caller.cntlid, sqe),
        opcode::GET_FEATURES => {
            let there = controller.subsystem.and_then(|id| subsystems.get(id));
            let held = there.filter(|there| there.namespace.reservable).map(|there| &there.held);
            feature::get(controller, held, sqe)
        }
        opcode::EVENT => Plan::Event,
        _ => Status::OPCODE.into(),
    }
}

/// Goes on with a command whose parameters have come.
pub(crate) fn parameters(subsystems: &mut Subsystems, cntlid: u16, sqe: &Sqe, list: &[u8]) -> Plan {
    match subsystems.controller_mut(cntlid) {
        Some(controller) if sqe.opcode() == opcode::SET_FEATURES => {
            feature::set_host_behavior(controller, list)
        }
        _ => Status::INTERNAL.into(),
    }
}
