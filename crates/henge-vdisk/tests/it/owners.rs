//! Disks whose extents keep the locks: coordinators cut where extents end, and nowhere else.

use henge_core::{Fault, FlowId, Instant, Request};
use henge_vdisk::{
    Command, Data, Extent, Failure, GateId, Kind, Layout, Portion, Settings, Target, VirtualDisk,
};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const UNIT: u64 = 16 * PAGE;
const EXTENTS: u64 = 3;

fn disk(quantum: u64) -> VirtualDisk {
    let extent = |gate| Extent { target: Target::Gate(GateId(gate)), base: 0, len: 64 * UNIT };
    let layout = Layout::new(EXTENTS * 64 * UNIT, UNIT, (0..EXTENTS as u32).map(extent).collect()).unwrap();
    let settings = Settings { owners: true, align: PAGE, quantum, ..Settings::default() };
    VirtualDisk::new(FlowId(0), layout, settings).unwrap()
}

proptest! {
    /// The parts of a command are its own bytes, each once; their blocks in the buffer never overlap; and no two parts at
    /// one extent have to complete the same block.
    #[test]
    fn parts_are_the_commands_own_bytes(offset in 0..150 * UNIT, len in 1..6 * UNIT, write in any::<bool>(), quantum in 1u64..40) {
        let mut disk = disk(quantum * PAGE);
        let kind = if write { Kind::Write } else { Kind::Read };
        let frame = disk.frame(kind, offset, len);
        prop_assert!(frame.lead == offset % PAGE && frame.len.is_multiple_of(PAGE));
        disk.submit(Command::new(kind, offset, len, Instant::ZERO, 0)).unwrap();
        let (mut bytes, mut millionths) = (0, 0u64);
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        let mut at_extents: Vec<(u32, u64, u64)> = Vec::new();
        while let Some(part) = disk.next_part(&mut ()) {
            let Data::Frame { at } = part.data else { panic!("{part:?}") };
            prop_assert_eq!(part.kind, kind);
            prop_assert_eq!(at % PAGE, part.request.offset % PAGE, "as aligned in the buffer as at its extent");
            let own = disk.layout().locate(offset + at - frame.lead);
            prop_assert_eq!((own.gate, own.offset), (part.gate, part.request.offset));
            let (first, end) = (at / PAGE, (at + part.request.len).div_ceil(PAGE));
            prop_assert!(end * PAGE <= frame.len && blocks.iter().all(|b| b.1 <= first || end <= b.0));
            blocks.push((first, end));
            let there = (part.request.offset / PAGE, part.request.end().div_ceil(PAGE));
            let apart = |other: &(u32, u64, u64)| other.0 != part.gate.0 || other.2 <= there.0 || there.1 <= other.1;
            prop_assert!(at_extents.iter().all(apart));
            at_extents.push((part.gate.0, there.0, there.1));
            bytes += part.request.len;
            millionths += u64::from(part.request.commands);
            disk.part_done(part.id, Ok(()));
        }
        prop_assert_eq!(bytes, len);
        prop_assert_eq!(millionths, u64::from(Request::WHOLE) * len.div_ceil(256 << 10));
        prop_assert_eq!(disk.next_finished().map(|f| f.outcome), Some(Ok(())));
    }
}

#[test]
fn compare_and_write_is_one_owners_business() {
    let mut disk = disk(1 << 20);
    disk.submit(Command::new(Kind::CompareAndWrite, UNIT - 512, 512, Instant::ZERO, 1)).unwrap();
    let part = disk.next_part(&mut ()).unwrap();
    assert_eq!((part.kind, part.gate), (Kind::CompareAndWrite, GateId(0)));
    let frame = disk.frame(Kind::CompareAndWrite, UNIT - 512, 512);
    assert_eq!(part.data, Data::Compare { at: frame.lead, verify: frame.verify.unwrap() });
    assert!(disk.next_part(&mut ()).is_none());
    disk.part_done(part.id, Err(Failure::Miscompare { at: 3 }));
    assert_eq!(disk.next_finished().unwrap().outcome, Err(Failure::Miscompare { at: 3 }));
    disk.submit(Command::new(Kind::CompareAndWrite, UNIT - 512, 1024, Instant::ZERO, 2)).unwrap();
    let over = disk.next_finished().unwrap();
    assert_eq!(
        over.outcome,
        Err(Failure::Fault(Fault::Unsupported)),
        "nobody holds the locks of two extents"
    );
}

/// A part at its owner counts and carries what its coordinator said.
#[test]
fn a_portion_counts_what_it_is_told() {
    let extent = Extent { target: Target::Gate(GateId(0)), base: 0, len: UNIT };
    let layout = Layout::new(UNIT, u64::MAX, vec![extent]).unwrap();
    let mut owner =
        VirtualDisk::new(FlowId(7), layout, Settings { align: PAGE, ..Settings::default() }).unwrap();
    let portion = Some(Portion { commands: 333_333, foreign: henge_core::Cost::new(99) });
    owner.submit(Command { portion, ..Command::new(Kind::Read, 0, PAGE, Instant::ZERO, 0) }).unwrap();
    let part = owner.next_part(&mut ()).unwrap();
    assert_eq!((part.request.commands, part.request.foreign.get()), (333_333, 99));
}
