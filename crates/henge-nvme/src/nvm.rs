//! Commands for the disk (NVM Command Set 1.0, section 3.2): checked, and turned into actions.

use crate::namespace::{Namespace, Reach};
use crate::plan::{Action, Plan};
use crate::reservation::{self, Held, HostId};
use crate::status::Status;
use crate::wire::{Sqe, le16, le32, le64};

/// Opcodes.
pub(crate) mod opcode {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET: u8 = 0x09;
    pub const VERIFY: u8 = 0x0c;
    pub const COPY: u8 = 0x19;
}

/// The namespace of every subsystem.
pub(crate) const NSID: u32 = 1;
/// All namespaces.
pub(crate) const ALL: u32 = 0xffff_ffff;
/// Most bytes of a command that moves data: 256 pages of 4 KiB (MDTS 8).
pub const TRANSFER_MAX: u64 = 1 << 20;
/// The same of a discovery controller, whose log is as long as the node has disks, and to which anybody may come.
pub(crate) const DISCOVERY_MAX: u64 = 64 << 10;
/// Most bytes of a fused pair: each holds the range, twice the bytes.
pub(crate) const FUSED_MAX: u64 = 64 << 10;
/// Bytes of a range of Dataset Management.
const RANGE: usize = 16;
/// Bytes of a source range of Copy, in format 0.
const SOURCE: usize = 32;
/// Most source ranges of a Copy.
pub(crate) const SOURCES_MAX: usize = 128;
/// Most bytes of one of them: what is read at once, so that a range may overlap the one that it is copied to.
pub(crate) const SOURCE_MAX: u64 = TRANSFER_MAX;
/// Most bytes of a Copy.
pub(crate) const COPY_MAX: u64 = 16 << 20;

/// Opcodes, and whether they change the disk, for the log that tells of commands.
pub(crate) const COMMANDS: &[(u8, bool)] = &[
    (opcode::FLUSH, true),
    (opcode::WRITE, true),
    (opcode::READ, false),
    (opcode::COMPARE, false),
    (opcode::WRITE_ZEROES, true),
    (opcode::DATASET, true),
    (opcode::VERIFY, false),
    (opcode::COPY, true),
    (reservation::opcode::REGISTER, false),
    (reservation::opcode::REPORT, false),
    (reservation::opcode::ACQUIRE, false),
    (reservation::opcode::RELEASE, false),
];

/// Whether a command's answer tells a host who may use the disk.
pub(crate) fn tells_of(held: &Held, host: &HostId, sqe: &Sqe) -> bool {
    sqe.opcode() == reservation::opcode::REPORT || held.conflicts(host, sqe.opcode())
}

/// Begins a command for the disk, of a host that `held` may keep from it.
pub(crate) fn start(namespace: &Namespace, held: &Held, host: &HostId, sqe: &Sqe) -> Plan {
    if sqe.nsid() != NSID && !(sqe.opcode() == opcode::FLUSH && sqe.nsid() == ALL) {
        return Status::NAMESPACE.into();
    }
    if namespace.reach == Reach::Inaccessible {
        return Status::INACCESSIBLE.into();
    }
    if reservation::is_command(sqe.opcode()) {
        if !namespace.reservable {
            return Status::OPCODE.into();
        }
        return reservation::start(held, host, sqe);
    }
    if held.conflicts(host, sqe.opcode()) {
        return Status::RESERVATION.into();
    }
    let is_list = matches!(sqe.opcode(), opcode::DATASET | opcode::COPY);
    if is_list && sqe.fuse() != 0 {
        return Status::FIELD.into();
    }
    let (offset, len) = match range(namespace, sqe) {
        Ok(range) => range,
        Err(status) => return status.into(),
    };
    let fua = sqe.dword(12) & 1 << 30 != 0;
    let action = match sqe.opcode() {
        opcode::FLUSH => Action::Flush,
        opcode::READ => Action::Read { offset, len },
        opcode::WRITE => Action::Write { offset, len, fua },
        opcode::COMPARE if sqe.fuse() == 1 => Action::CompareWrite { offset, len, fua },
        opcode::COMPARE => Action::Compare { offset, len },
        // Giving back is a wish, and FUA none: with both, zeroes are made durable.
        opcode::WRITE_ZEROES if sqe.dword(12) & 1 << 25 != 0 && !fua => Action::Trim { offset, len },
        opcode::WRITE_ZEROES => Action::Zero { offset, len, fua },
        opcode::VERIFY => Action::Check { offset, len },
        opcode::DATASET => {
            return Plan::Parameters(RANGE * (sqe.dword(10) as usize & 0xff) + RANGE);
        }
        opcode::COPY if namespace.read_only => return Status::PROTECTED.into(),
        opcode::COPY => return begin_copy(sqe),
        _ => return Status::OPCODE.into(),
    };
    if action.writes() && namespace.read_only && action != Action::Flush {
        return Status::PROTECTED.into();
    }
    Plan::Storage(action)
}

/// The bytes that a command is about; nothing for those without a range.
fn range(namespace: &Namespace, sqe: &Sqe) -> Result<(u64, u64), Status> {
    if matches!(sqe.opcode(), opcode::FLUSH | opcode::DATASET | opcode::COPY) {
        return Ok((0, 0));
    }
    let blocks = u64::from(sqe.dword(12) & 0xffff) + 1;
    if !within(namespace, sqe.block(), blocks) {
        return Err(Status::RANGE);
    }
    // There is no metadata: nothing to be checked, and nothing to be made.
    if sqe.dword(12) >> 26 & 0xf != 0 {
        return Err(Status::FIELD);
    }
    let len = blocks << namespace.block_shift;
    let moves = matches!(sqe.opcode(), opcode::READ | opcode::WRITE | opcode::COMPARE | opcode::VERIFY);
    if moves && len > TRANSFER_MAX {
        return Err(Status::FIELD);
    }
    if sqe.fuse() != 0 && len > FUSED_MAX {
        return Err(Status::ATOMIC_UNIT);
    }
    Ok((sqe.block() << namespace.block_shift, len))
}

fn within(namespace: &Namespace, first: u64, blocks: u64) -> bool {
    first.checked_add(blocks).is_some_and(|end| end <= namespace.blocks())
}

/// The ranges of a Dataset Management have come (NVM 3.2.3). Only giving back does something; the rest are hints.
pub(crate) fn dataset(namespace: &Namespace, sqe: &Sqe, list: &[u8]) -> Plan {
    if sqe.dword(11) & 4 == 0 {
        return Status::SUCCESS.into();
    }
    if namespace.read_only {
        return Status::PROTECTED.into();
    }
    let mut actions = Vec::new();
    for range in list.chunks_exact(RANGE) {
        let (blocks, first) = (u64::from(le32(range, 4)), le64(range, 8));
        if !within(namespace, first, blocks) {
            return Status::RANGE.into();
        }
        if blocks > 0 {
            let (offset, len) = (first << namespace.block_shift, blocks << namespace.block_shift);
            actions.push(Action::Trim { offset, len });
        }
    }
    Plan::Several(actions)
}

/// Source ranges of a Copy.
pub(crate) fn sources(sqe: &Sqe) -> usize {
    (sqe.dword(12) as usize & 0xff) + 1
}

/// A Copy (NVM 3.2.2): its source ranges come first.
fn begin_copy(sqe: &Sqe) -> Plan {
    let dword = sqe.dword(12);
    // Format 0 alone, and no metadata to be checked or made.
    if dword >> 8 & 0xf != 0 || dword >> 12 & 0xf != 0 || dword >> 26 & 0xf != 0 {
        return Status::FIELD.into();
    }
    if sources(sqe) > SOURCES_MAX {
        return Status::COPY_LIMIT.into();
    }
    Plan::Parameters(SOURCE * sources(sqe))
}

/// The source ranges of a Copy have come. They are written one behind the other.
pub(crate) fn copy(namespace: &Namespace, sqe: &Sqe, list: &[u8]) -> Plan {
    let (shift, fua) = (namespace.block_shift, sqe.dword(12) & 1 << 30 != 0);
    let (mut actions, mut all) = (Vec::new(), 0);
    for source in list.chunks_exact(SOURCE) {
        let (first, blocks) = (le64(source, 8), u64::from(le16(source, 16)) + 1);
        let len = blocks << shift;
        if len > SOURCE_MAX || (all << shift) + len > COPY_MAX {
            return Status::COPY_LIMIT.into();
        }
        let to = sqe.block().checked_add(all).filter(|to| within(namespace, *to, blocks));
        let Some(to) = to.filter(|_| within(namespace, first, blocks)) else { return Status::RANGE.into() };
        actions.push(Action::Copy { from: first << shift, to: to << shift, len, fua });
        all += blocks;
    }
    Plan::Several(actions)
}
