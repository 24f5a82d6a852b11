//! Fabrics commands (Base 2.0, chapter 6): Connect, the controller's properties, Disconnect.

use crate::controller::{Controller, KEEP_ALIVE_UNIT, QUEUE_MAX, VERSION};
use crate::plan::Plan;
use crate::status::{Ending, Status};
use crate::subsystem::{DISCOVERY, QueueId, Refusal, SubsystemId, Subsystems};
use crate::wire::{Sqe, le16};
use henge_core::Duration;

/// The opcode of all of them.
pub(crate) const FABRICS: u8 = 0x7f;

/// Their types, byte 4 of the entry.
pub(crate) mod kind {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTH_SEND: u8 = 0x05;
    pub const AUTH_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// In the result of a Connect: the host is to prove who it is (6.3).
pub(crate) const AUTHENTICATES: u64 = 1 << 17;
/// Bytes of Connect's data.
pub(crate) const CONNECT_DATA: usize = 1024;
/// The controller is the subsystem's choice.
const DYNAMIC: u16 = 0xffff;
/// Longest keep alive timeout: a host that is silent longer is gone.
const KEEP_ALIVE_MAX: u32 = 10 * 60 * 1000;

/// What a connection became.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Joined {
    pub cntlid: u16,
    pub qid: u16,
    /// Entries of the queue.
    pub size: u16,
    /// Whether completions tell where the submission queue's head is.
    pub flow_control: bool,
}

/// A field of Connect that is wrong: in its data, or in the command.
fn wrong(at: u16, in_data: bool) -> Ending {
    let result = u64::from(at) | u64::from(in_data) << 16;
    Ending { status: Status::CONNECT_PARAMETERS, result }
}

/// A name of at most 223 bytes, ended by zeroes.
pub(crate) fn name(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    let fine = (1..=223).contains(&end) && field[..end].iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(&field[..end]).ok().filter(|_| fine)
}

/// A Connect with its data (6.3).
pub(crate) fn connect(
    subsystems: &mut Subsystems,
    queue: QueueId,
    sqe: &Sqe,
    data: &[u8],
) -> Result<Joined, Ending> {
    if sqe.u16_at(40) != 0 {
        return Err(Status::CONNECT_FORMAT.into());
    }
    let (qid, size) = (sqe.u16_at(42), sqe.u16_at(44));
    if size == 0 || size >= QUEUE_MAX {
        return Err(wrong(44, false));
    }
    // Programs of SPDK give no name of theirs unless they are told one. Such a host is let in where any host may.
    let nameless = data[512] == 0;
    let host = if nameless { "" } else { name(&data[512..768]).ok_or(wrong(512, true))? };
    let nqn = name(&data[256..512]).ok_or(wrong(256, true))?;
    let asked = le16(data, 16);
    let host_id: [u8; 16] = *data.first_chunk().expect("Connect's data are longer");
    let found = subsystems.find(nqn);
    let allowed = |id: &SubsystemId| subsystems.get(*id).is_some_and(|there| there.access.allows(host));
    let subsystem = found.filter(allowed);
    let nobodys = match subsystems.refusal() {
        _ if nqn == DISCOVERY || subsystem.is_some() => None,
        Refusal::Proof(weakest) => Some((nqn.to_owned(), weakest)),
        Refusal::Host => return Err(Status::CONNECT_HOST.into()),
        Refusal::Name => return Err(wrong(256, true)),
    };
    let cntlid = if qid == 0 {
        if asked != DYNAMIC {
            return Err(wrong(16, true));
        }
        let mut controller = Controller::new(subsystem, host.to_owned(), host_id);
        controller.nobodys = nobodys;
        controller.keep_alive = keep_alive(sqe.dword(12)).map_err(Ending::from)?;
        subsystems.begin_controller(queue, controller).ok_or(Ending::from(Status::CONNECT_BUSY))?
    } else {
        let there = subsystems.controller(asked).filter(|controller| {
            let same = controller.host == host && controller.host_id == host_id;
            same && controller.subsystem == subsystem && controller.nobodys == nobodys
        });
        let controller = there.ok_or(wrong(16, true))?;
        if controller.is_discovery() || u32::from(qid) > (controller.features.queues & 0xffff) + 1 {
            return Err(wrong(42, false));
        }
        if !controller.is_ready() {
            return Err(Status::SEQUENCE.into());
        }
        if !subsystems.join(queue, asked, qid) {
            return Err(Status::SEQUENCE.into());
        }
        asked
    };
    Ok(Joined { cntlid, qid, size: size + 1, flow_control: sqe.0[46] & 4 == 0 })
}

/// A timeout in milliseconds, in whole units; zero: none.
pub(crate) fn keep_alive(ms: u32) -> Result<Duration, Status> {
    if ms > KEEP_ALIVE_MAX {
        return Err(Status::KEEP_ALIVE);
    }
    Ok(Duration::from_millis(u64::from(ms.next_multiple_of(KEEP_ALIVE_UNIT))))
}

/// Property Get (6.5).
pub(crate) fn property(controller: &Controller, sqe: &Sqe) -> Plan {
    let (eight, at) = (sqe.0[40] & 7 == 1, sqe.dword(11));
    match (at, eight) {
        (0x00, true) => Plan::result(controller.capabilities()),
        (0x08, false) => Plan::result(VERSION),
        (0x14, false) => Plan::result(controller.configuration),
        (0x1c, false) => Plan::result(controller.status),
        _ => Status::FIELD.into(),
    }
}

/// Property Set (6.6): CC is all that may be set.
pub(crate) fn set_property(subsystems: &mut Subsystems, cntlid: u16, sqe: &Sqe) -> Plan {
    let (eight, at, value) = (sqe.0[40] & 7 == 1, sqe.dword(11), sqe.dword(12));
    let Some(controller) = subsystems.controller_mut(cntlid) else { return Status::INTERNAL.into() };
    if eight || at != 0x14 {
        return Status::FIELD.into();
    }
    match controller.configure(value) {
        None => Status::FIELD.into(),
        Some(closes) => {
            if closes {
                subsystems.close_io_queues(cntlid);
            }
            Status::SUCCESS.into()
        }
    }
}
