//! Commands that touch the medium (SBC-3, section 5).

use super::cdb::{self, Blocks, be16, be32, be64};
use super::inquiry::{COMPARE_MAX, TRANSFER_MAX, UNMAP_DESCRIPTORS, UNMAP_MAX, WRITE_SAME_MAX};
use super::opcodes::Kind;
use super::{Action, Extent, Plan, Sense, Status, Transfer, Unit};
use henge_core::Fault;

impl Unit {
    pub(super) fn start_block(&mut self, kind: Kind, cdb: &[u8; 16]) -> Plan {
        match kind {
            Kind::ReadCapacity => self.read_capacity(cdb),
            Kind::LbaStatus => self.lba_status(cdb),
            Kind::DefectData => defect_data(cdb),
            Kind::Unmap => match usize::from(be16(cdb, 7)) {
                0 => Plan::GOOD,
                // One descriptor more than may be says that there are too many.
                len => Plan::Parameters(len.min(8 + 16 * (UNMAP_DESCRIPTORS as usize + 1))),
            },
            Kind::WriteSame => self.start_write_same(cdb),
            Kind::Synchronize => match self.range(cdb::blocks(cdb)) {
                Err(sense) => sense.into(),
                // With IMMED set too: an answer before the data are durable would be no use to anyone.
                Ok(_) => Plan::Storage(Transfer::None, vec![Action::Flush]),
            },
            Kind::PreFetch => match self.range(cdb::blocks(cdb)) {
                Err(sense) => sense.into(),
                // There is no cache of its own to fetch into: GOOD, not CONDITION MET.
                Ok(_) => Plan::GOOD,
            },
            Kind::CompareWrite => self.compare_and_write(cdb),
            _ => self.transfer(kind, cdb),
        }
    }

    /// First byte and length of blocks that exist.
    fn range(&self, blocks: Blocks) -> Result<(u64, u64), Sense> {
        let (capacity, shift) = (self.properties.blocks(), self.properties.block_shift);
        match blocks.lba.checked_add(blocks.count) {
            Some(end) if blocks.lba < capacity && end <= capacity => {
                Ok((blocks.lba << shift, blocks.count << shift))
            }
            _ => Err(Sense::RANGE.at(blocks.lba.max(capacity))),
        }
    }

    /// READ, WRITE, VERIFY, WRITE AND VERIFY, ORWRITE of all lengths.
    fn transfer(&self, kind: Kind, cdb: &[u8; 16]) -> Plan {
        let (offset, len) = match self.range(cdb::blocks(cdb)) {
            Ok(range) => range,
            Err(sense) => return sense.into(),
        };
        if len > TRANSFER_MAX {
            return Sense::field(cdb::count_at(cdb)).into();
        }
        if len == 0 {
            // It moves nothing, but takes its turn: a limit on commands counts it.
            return Plan::Storage(Transfer::None, vec![Action::Check { offset, len }]);
        }
        let compare = cdb[1] & 0x02 != 0; // BYTCHK
        let fua = cdb[0] >> 5 != 0 && cdb[1] & 0x08 != 0;
        match kind {
            Kind::Read => Plan::Storage(Transfer::In(len), vec![Action::Read { offset, len }]),
            Kind::Write => Plan::Storage(Transfer::Out(len), vec![Action::Write { offset, len, fua }]),
            Kind::OrWrite => Plan::Storage(Transfer::Out(len), vec![Action::Or { offset, len, fua }]),
            Kind::Verify if compare => {
                Plan::Storage(Transfer::Out(len), vec![Action::Compare { offset, len }])
            }
            Kind::Verify => Plan::Storage(Transfer::None, vec![Action::Check { offset, len }]),
            Kind::WriteVerify => {
                let write = Action::Write { offset, len, fua: true };
                let verify =
                    if compare { Action::Compare { offset, len } } else { Action::Check { offset, len } };
                Plan::Storage(Transfer::Out(len), vec![write, verify])
            }
            _ => Sense::INTERNAL.into(),
        }
    }

    fn compare_and_write(&self, cdb: &[u8; 16]) -> Plan {
        let blocks = Blocks { lba: be64(cdb, 2), count: u64::from(cdb[13]) };
        match self.range(blocks) {
            Err(sense) => sense.into(),
            Ok((_, len)) if len > COMPARE_MAX => Sense::field(13).into(),
            Ok((_, 0)) => Plan::Storage(Transfer::Out(0), Vec::new()),
            Ok((offset, len)) => {
                let fua = cdb[1] & 0x08 != 0;
                Plan::Storage(Transfer::Out(2 * len), vec![Action::CompareWrite { offset, len, fua }])
            }
        }
    }

    fn read_capacity(&self, cdb: &[u8; 16]) -> Plan {
        let (last, size) = (self.properties.blocks() - 1, self.properties.block_size());
        if cdb[0] == 0x25 {
            if be32(cdb, 2) != 0 {
                return Sense::field(2).into(); // an LBA without PMI, which is obsolete
            }
            let last = u32::try_from(last).unwrap_or(u32::MAX);
            return Plan::Data([last.to_be_bytes(), size.to_be_bytes()].concat());
        }
        if be64(cdb, 2) != 0 {
            return Sense::field(2).into();
        }
        let mut out = vec![0; 32];
        out[..8].copy_from_slice(&last.to_be_bytes());
        out[8..12].copy_from_slice(&size.to_be_bytes());
        out[13] = self.properties.physical_shift.saturating_sub(self.properties.block_shift) as u8 & 0x0f;
        out[14] = if self.properties.thin { 0xc0 } else { 0 }; // LBPME, LBPRZ
        Plan::data(out, be32(cdb, 10) as usize)
    }

    fn lba_status(&self, cdb: &[u8; 16]) -> Plan {
        let lba = be64(cdb, 2);
        match self.range(Blocks { lba, count: 1 }) {
            Err(sense) => sense.into(),
            Ok((offset, _)) => {
                let len = self.properties.bytes - offset;
                Plan::Storage(Transfer::None, vec![Action::Extents { offset, len }])
            }
        }
    }

    /// The answer to GET LBA STATUS (SBC-3 5.7). Extents that do not cover whole blocks count as allocated.
    pub(crate) fn extents(&self, cdb: &[u8; 16], extents: &[Extent]) -> Vec<u8> {
        let shift = self.properties.block_shift;
        let allocated = be32(cdb, 10) as usize;
        let mut out = vec![0; 8];
        let start = be64(cdb, 2) << shift;
        let mut at = start;
        for run in extents {
            let end = at.saturating_add(run.len).min(self.properties.bytes);
            // Inwards for what is free, outwards for what is not.
            let (first, last) = if run.allocated || !self.properties.thin {
                (at >> shift, end.div_ceil(1 << shift))
            } else {
                (at.div_ceil(1 << shift), end >> shift)
            };
            push_status(&mut out, first, last, !run.allocated && self.properties.thin);
            at = end;
            if out.len() > allocated.saturating_add(32) {
                break;
            }
        }
        let len = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&len.to_be_bytes());
        out.truncate(allocated);
        out
    }

    fn start_write_same(&self, cdb: &[u8; 16]) -> Plan {
        if cdb[1] & 0x10 != 0 || cdb[1] & 0x08 != 0 && !self.properties.thin {
            return Sense::field(1).into(); // ANCHOR; UNMAP of a disk that has all its room
        }
        match self.range(cdb::blocks(cdb)) {
            Err(sense) => sense.into(),
            Ok((_, len)) if len == 0 || len > WRITE_SAME_MAX => Sense::field(cdb::count_at(cdb)).into(),
            // NDOB: a block of zeroes is meant
            Ok(_) if cdb[0] == 0x93 && cdb[1] & 1 != 0 => self.write_same(cdb, &[]),
            Ok(_) => Plan::Parameters(self.properties.block_size() as usize),
        }
    }

    pub(super) fn write_same(&self, cdb: &[u8; 16], block: &[u8]) -> Plan {
        let without = cdb[0] == 0x93 && cdb[1] & 1 != 0;
        if !without && block.len() != self.properties.block_size() as usize {
            return Sense::FIELD.into();
        }
        let (offset, len) = match self.range(cdb::blocks(cdb)) {
            Ok(range) => range,
            Err(sense) => return sense.into(),
        };
        let zero = block.iter().all(|&byte| byte == 0);
        let action = if zero && cdb[1] & 0x08 != 0 {
            Action::Trim { offset, len }
        } else if zero {
            // WRITE SAME has no bit that says FUA.
            Action::Zero { offset, len, fua: false }
        } else {
            Action::Fill { offset, len, pattern: block.into() }
        };
        Plan::Storage(Transfer::None, vec![action])
    }

    /// UNMAP's list (SBC-3 5.28.2).
    pub(super) fn unmap(&self, list: &[u8]) -> Plan {
        if list.len() < 8 {
            return Sense::LIST_LENGTH.into();
        }
        let described = usize::from(be16(list, 2)).min(list.len() - 8);
        let mut actions = Vec::new();
        let mut total = 0_u64;
        for (index, descriptor) in list[8..8 + described].chunks_exact(16).enumerate() {
            if index as u32 >= UNMAP_DESCRIPTORS {
                return Sense::parameter(2).into();
            }
            let blocks = Blocks { lba: be64(descriptor, 0), count: u64::from(be32(descriptor, 8)) };
            if blocks.count == 0 && blocks.lba <= self.properties.blocks() {
                continue;
            }
            let (offset, len) = match self.range(blocks) {
                Ok(range) => range,
                Err(sense) => return sense.into(),
            };
            total = total.saturating_add(len);
            if total > UNMAP_MAX {
                return Sense::parameter(8 + 16 * index as u16 + 8).into();
            }
            actions.push(Action::Trim { offset, len });
        }
        if actions.is_empty() { Plan::GOOD } else { Plan::Storage(Transfer::None, actions) }
    }

    /// What the initiator is told of an action that did not go well.
    pub(crate) fn failure(&self, action: &Action, fault: Fault) -> Status {
        let reads = matches!(action, Action::Read { .. } | Action::Check { .. } | Action::Compare { .. });
        Status::Check(match fault {
            Fault::NoSpace => Sense::NO_SPACE,
            Fault::Unreachable => Sense::UNREACHABLE,
            Fault::OutOfRange => Sense::RANGE,
            Fault::Cancelled if !self.is_available() => Sense::UNAVAILABLE,
            Fault::Cancelled => Sense { key: super::Key::Aborted, ..Sense::NONE },
            // More than the storage compares at once: it lies on several nodes.
            Fault::Unsupported if matches!(action, Action::CompareWrite { .. }) => Sense::field(13),
            Fault::Unsupported => Sense::INTERNAL,
            Fault::Io if reads => Sense::READ,
            Fault::Io => Sense::WRITE,
        })
    }

    /// What the initiator is told of data that are unequal from byte `at` on: COMPARE AND WRITE says which byte
    /// (SBC-3 5.2), VERIFY which block.
    pub(crate) fn miscompare(&self, action: &Action, at: u64) -> Status {
        let information = match action {
            Action::Compare { offset, .. } => (offset + at) >> self.properties.block_shift,
            _ => at,
        };
        Status::Check(Sense::MISCOMPARE.at(information))
    }
}

/// LBA status descriptors for `first..last`; a count has 32 bits.
fn push_status(out: &mut Vec<u8>, first: u64, last: u64, free: bool) {
    let mut lba = first;
    while lba < last {
        let count = u32::try_from(last - lba).unwrap_or(u32::MAX);
        out.extend_from_slice(&lba.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&[u8::from(free), 0, 0, 0]);
        lba += u64::from(count);
    }
}

/// READ DEFECT DATA: lists without entries, in the format that was asked for.
fn defect_data(cdb: &[u8; 16]) -> Plan {
    if cdb[0] == 0x37 {
        Plan::data(vec![0, cdb[2] & 0x1f, 0, 0], usize::from(be16(cdb, 7)))
    } else {
        Plan::data(vec![0, cdb[1] & 0x1f, 0, 0, 0, 0, 0, 0], be32(cdb, 6) as usize)
    }
}
