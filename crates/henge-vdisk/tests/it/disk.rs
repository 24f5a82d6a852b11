//! Commands, their parts and their answers, by hand and as properties.

use henge_core::{Cost, Fault, FlowId, Instant, Op, Request};
use henge_vdisk::{
    Command, Data, Extent, Failure, Frame, Full, GateId, Gates, Kind, Layout, Part, Patch, ResizeError,
    Settings, Target, VirtualDisk,
};
use proptest::prelude::*;

const WHOLE: u32 = Request::WHOLE;

fn striped(capacity: u64, unit: u64, extents: u32) -> Layout {
    let extent = |g| Extent { target: Target::Gate(GateId(g)), base: 1 << 20, len: capacity };
    Layout::new(capacity, unit, (0..extents).map(extent).collect()).unwrap()
}
fn disk(layout: Layout, settings: Settings) -> VirtualDisk {
    VirtualDisk::new(FlowId(3), layout, settings).unwrap()
}
fn command(kind: Kind, offset: u64, len: u64) -> Command {
    Command::new(kind, offset, len, Instant::from_nanos(7), 42)
}
fn parts(disk: &mut VirtualDisk) -> Vec<Part> {
    std::iter::from_fn(|| disk.next_part(&mut ())).collect()
}
/// (gate, op, device offset, length, millionths of a command, data)
fn shape(part: &Part) -> (u32, Op, u64, u64, u32, Data) {
    let r = &part.request;
    (part.gate.0, r.op, r.offset, r.len, r.commands, part.data)
}

#[test]
fn a_read_over_two_extents() {
    let mut disk = disk(striped(1 << 20, 64 << 10, 2), Settings::default());
    let id = disk.submit(command(Kind::Read, (64 << 10) - 512, 1024)).unwrap();
    let parts = parts(&mut disk);
    let base = 1 << 20;
    assert_eq!(
        shape(&parts[0]),
        (0, Op::Read, base + (64 << 10) - 512, 512, WHOLE / 2, Data::Frame { at: 0 })
    );
    assert_eq!(shape(&parts[1]), (1, Op::Read, base, 512, WHOLE / 2, Data::Frame { at: 512 }));
    assert_eq!(parts.len(), 2);
    assert_eq!((parts[0].request.flow, parts[0].request.arrival), (FlowId(3), Instant::from_nanos(7)));
    disk.part_done(parts[1].id, Ok(()));
    assert_eq!(disk.next_finished(), None);
    disk.part_done(parts[0].id, Ok(()));
    let done = disk.next_finished().unwrap();
    assert_eq!((done.id, done.command.tag, done.outcome), (id, 42, Ok(())));
    assert_eq!(disk.pending(), 0);
}

/// 700 KiB count three times (per started 256 KiB) and go in quanta of 512 KiB.
#[test]
fn a_long_write_is_cut_and_counted() {
    let settings = Settings { quantum: 512 << 10, ..Settings::default() };
    let mut disk = disk(Layout::single(GateId(0), 0, 1 << 30), settings);
    disk.submit(Command { fua: true, ..command(Kind::Write, 0, 700 << 10) }).unwrap();
    let parts = parts(&mut disk);
    let lens: Vec<_> = parts.iter().map(|p| (p.request.offset, p.request.len)).collect();
    assert_eq!(lens, [(0, 512 << 10), (512 << 10, 188 << 10)]);
    assert_eq!(parts.iter().map(|p| p.request.commands).sum::<u32>(), 3 * WHOLE);
    assert!(parts.iter().all(|p| p.request.fua));
}

/// The example of plan.rs: align 4096, 6000 bytes at 1000.
#[test]
fn an_unaligned_write_reads_both_edges_first() {
    let settings = Settings { align: 4096, ..Settings::default() };
    let mut disk = disk(Layout::single(GateId(0), 0, 1 << 20), settings);
    let frame = Frame { len: 8192, lead: 1000, verify: None, zeroed: false };
    assert_eq!(disk.frame(Kind::Write, 1000, 6000), frame);
    disk.submit(Command { fua: true, ..command(Kind::Write, 1000, 6000) }).unwrap();
    let edges = parts(&mut disk);
    let patch = |at, head, tail| Data::Scratch(Patch { at, head, tail, verify: None });
    assert_eq!(shape(&edges[0]), (0, Op::Read, 0, 4096, 333_333, patch(0, 1000, 4096)));
    assert_eq!(shape(&edges[1]), (0, Op::Read, 4096, 4096, 333_333, patch(4096, 0, 2904)));
    assert_eq!(edges.len(), 2);
    assert!(!edges[0].request.fua, "FUA is for what is written");
    disk.part_done(edges[0].id, Ok(()));
    assert_eq!(parts(&mut disk), []);
    disk.part_done(edges[1].id, Ok(()));
    let write = parts(&mut disk);
    assert_eq!(shape(&write[0]), (0, Op::Write, 0, 8192, 333_334, Data::Frame { at: 0 }));
    assert!(write[0].request.fua);
}

/// Three bytes inside one block: one edge, patched on both sides.
#[test]
fn a_write_inside_one_block() {
    let patch = Patch { at: 0, head: 2, tail: 5, verify: None };
    let mut frame = *b"..NEW...";
    patch.apply(b"01234567", &mut frame).unwrap();
    assert_eq!(&frame, b"01NEW567");
    let patch = Patch { at: 0, head: 2, tail: 5, verify: Some(8) };
    let mut frame = *b"..NEW...234";
    patch.apply(b"01234567", &mut frame).unwrap();
    assert_eq!(&frame, b"01NEW567234");
    let mut frame = *b"..NEW...2x4";
    assert_eq!(patch.apply(b"01234567", &mut frame), Err(Failure::Miscompare { at: 9 }));
}

#[test]
fn zeroes_write_their_edges_and_trim_leaves_them() {
    let settings = Settings { align: 16, holes: true, ..Settings::default() };
    let mut disk = disk(Layout::single(GateId(0), 0, 1 << 20), settings);
    let zeroes = Kind::WriteZeroes { no_hole: false };
    assert_eq!(disk.frame(zeroes, 10, 50), Frame { len: 32, lead: 0, verify: None, zeroed: true });
    disk.submit(command(zeroes, 10, 50)).unwrap(); // blocks 0 and 3 in part, 1 and 2 whole
    for part in parts(&mut disk) {
        disk.part_done(part.id, Ok(()));
    }
    let writes: Vec<_> =
        parts(&mut disk).iter().map(|p| (p.request.op, p.request.offset, p.request.len, p.data)).collect();
    let expected = [
        (Op::Write, 0, 16, Data::Frame { at: 0 }),
        (Op::Write, 48, 16, Data::Frame { at: 16 }),
        (Op::Trim, 16, 32, Data::None),
    ];
    assert_eq!(writes, expected);
    disk.submit(command(Kind::Trim, 1000, 50)).unwrap(); // 1000..1050 holds the blocks 1008..1040
    let trim = parts(&mut disk);
    assert_eq!(shape(&trim[0]), (0, Op::Trim, 1008, 32, WHOLE, Data::None));
    disk.submit(command(Kind::WriteZeroes { no_hole: true }, 2048, 16)).unwrap();
    assert_eq!(parts(&mut disk)[0].request.op, Op::WriteZeroes);
}

/// What asks nothing of the device takes a turn at a gate all the same, and counts as a command: a trim that holds no whole block, a
/// CACHE where nothing caches, a question about room, and anything empty, at the disk's end as well.
#[test]
fn nothing_passes_the_gate() {
    let mut disk = disk(striped(1 << 20, 4096, 2), Settings { align: 16, ..Settings::default() });
    let end = 1 << 20;
    let idle = [
        (Kind::Trim, 4097, 15, Op::Trim),
        (Kind::Cache, 4097, 65_536, Op::Read),
        (Kind::Status, 4097, 1 << 19, Op::Read),
        (Kind::Read, 4097, 0, Op::Read),
        (Kind::Write, 4097, 0, Op::Write),
        (Kind::WriteZeroes { no_hole: false }, 4097, 0, Op::WriteZeroes),
        (Kind::CompareAndWrite, end, 0, Op::Write),
        (Kind::Trim, end, 0, Op::Trim),
    ];
    for (kind, offset, len, op) in idle {
        assert_eq!(disk.frame(kind, offset, len).len, 0, "{kind:?}");
        disk.submit(command(kind, offset, len)).unwrap();
        assert!(disk.next_finished().is_none(), "{kind:?} is not over before its turn");
        let [part] = parts(&mut disk)[..] else { panic!("{kind:?} is one request") };
        assert_eq!(shape(&part), (1, op, part.request.offset, 0, WHOLE, Data::None), "{kind:?}");
        disk.part_done(part.id, Ok(()));
        assert_eq!(disk.next_finished().unwrap().outcome, Ok(()), "{kind:?}");
    }
}

/// A hundred FLUSHes that come while one is at the gates are one more, which counts a hundred; whoever gives up is passed over.
#[test]
fn flushes_are_joined() {
    let mut disk = disk(striped(1 << 20, 4096, 2), Settings::default());
    let first = disk.submit(command(Kind::Flush, 0, 0)).unwrap();
    let begun = parts(&mut disk);
    assert_eq!(begun.len(), 2);
    let rest: Vec<_> = (0..100).map(|_| disk.submit(command(Kind::Flush, 0, 0)).unwrap()).collect();
    assert!(parts(&mut disk).is_empty(), "one is under way");
    begun.iter().for_each(|part| disk.part_done(part.id, Ok(())));
    assert_eq!(disk.next_finished().unwrap().id, first);
    // The one that was to lead gives up, and so does another.
    assert!(disk.abort(rest[0]) && disk.abort(rest[7]));
    assert!(disk.next_finished().is_some() && disk.next_finished().is_some());
    let second = parts(&mut disk);
    assert_eq!(second.iter().map(|p| u64::from(p.request.commands)).sum::<u64>(), 98 * u64::from(WHOLE));
    assert_eq!(second.len(), 2);
    disk.part_done(second[0].id, Ok(()));
    disk.part_done(second[1].id, Err(Fault::Io.into()));
    // All are over, and pending until they are taken; giving one up then changes nothing.
    assert!(
        disk.has_finished() && disk.pending() == 98 && !disk.abort(rest[50]) && disk.is_given_up(rest[50])
    );
    let mut failed = 0;
    while let Some(finished) = disk.next_finished() {
        assert_eq!(finished.outcome, Err(Fault::Io.into()), "it did not cover anybody's writes");
        failed += 1;
    }
    assert_eq!((failed, disk.pending()), (98, 0));
}

/// A FLUSH that is given up while it stands for others is done again for them: what it has not reached is not durable.
#[test]
fn a_flush_that_is_given_up_fails_nobody_else() {
    let mut disk = disk(striped(1 << 20, 4096, 2), Settings::default());
    let leader = disk.submit(command(Kind::Flush, 0, 0)).unwrap();
    let joined = disk.submit(command(Kind::Flush, 0, 0)).unwrap();
    let part = disk.next_part(&mut ()).unwrap();
    disk.abort(leader);
    disk.part_done(part.id, Ok(()));
    assert_eq!(disk.next_finished().unwrap().id, leader);
    let again = parts(&mut disk);
    assert_eq!(again.len(), 2);
    again.iter().for_each(|part| disk.part_done(part.id, Ok(())));
    let done = disk.next_finished().unwrap();
    assert_eq!((done.id, done.outcome), (joined, Ok(())));
}

/// A terabyte given back on 64 KiB stripes over four extents: 32 MiB pieces, counted one by one, not 16 million.
#[test]
fn a_trim_goes_device_by_device() {
    let mut disk = disk(striped(1 << 40, 64 << 10, 4), Settings::default());
    disk.submit(command(Kind::Trim, 0, 1 << 32)).unwrap();
    let parts = parts(&mut disk);
    assert_eq!(parts.len(), (1 << 32) / (32 << 20));
    let total: u64 = parts.iter().map(|p| u64::from(p.request.commands)).sum();
    assert_eq!(total, 128 * u64::from(WHOLE));
}

#[test]
fn a_flush_goes_everywhere_and_the_first_fault_wins() {
    let mut disk = disk(striped(1 << 20, 4096, 3), Settings::default());
    disk.submit(command(Kind::Flush, 99, u64::MAX)).unwrap(); // its range means nothing
    let parts = parts(&mut disk);
    let gates: Vec<_> =
        parts.iter().map(|p| (p.gate.0, p.request.op, p.request.offset, p.request.len)).collect();
    assert_eq!(gates, [0, 1, 2].map(|gate| (gate, Op::Flush, 1 << 20, 0)));
    assert_eq!(parts.iter().map(|p| p.request.commands).sum::<u32>(), WHOLE);
    disk.part_done(parts[2].id, Err(Fault::NoSpace.into()));
    disk.part_done(parts[0].id, Err(Fault::Io.into()));
    assert_eq!(disk.next_finished(), None, "one is still outstanding");
    disk.part_done(parts[1].id, Ok(()));
    assert_eq!(disk.next_finished().unwrap().outcome, Err(Failure::Fault(Fault::NoSpace)));
}

/// Two extents behind one gate may be two files; an extent without bytes is none.
#[test]
fn a_flush_names_each_extent() {
    let extent = |g, base| Extent { target: Target::Gate(GateId(g)), base, len: 4096 };
    let layout = Layout::new(8192, 4096, vec![extent(5, 0), extent(5, 1 << 30), extent(6, 0)]).unwrap();
    let mut disk = disk(layout, Settings::default());
    disk.submit(command(Kind::Flush, 0, 0)).unwrap();
    let named: Vec<_> = parts(&mut disk).iter().map(|p| (p.gate.0, p.request.offset)).collect();
    assert_eq!(named, [(5, 0), (5, 1 << 30)]);
}

#[test]
fn beyond_the_end_and_full() {
    let settings = Settings { commands_max: 1, ..Settings::default() };
    let mut disk = disk(Layout::single(GateId(0), 0, 1000), settings);
    for (offset, len) in [(999, 2), (u64::MAX, 1), (u64::MAX, u64::MAX), (1001, 0)] {
        disk.submit(command(Kind::Write, offset, len)).unwrap();
        let done = disk.next_finished().unwrap();
        assert_eq!((done.command.offset, done.outcome), (offset, Err(Failure::Fault(Fault::OutOfRange))));
    }
    disk.submit(command(Kind::Write, 0, 1000)).unwrap();
    assert_eq!(disk.submit(command(Kind::Read, 0, 1)), Err(Full { commands_max: 1 }));
}

/// Whatever a client asks for, taking it in stays quick.
#[test]
fn absurd_lengths_are_refused() {
    let mut disk = disk(Layout::single(GateId(0), 0, u64::MAX), Settings::default());
    for (kind, len) in [(Kind::Read, (1 << 30) + 1), (Kind::Trim, (1 << 40) + 1)] {
        disk.submit(command(kind, 0, len)).unwrap();
        assert_eq!(disk.next_finished().unwrap().outcome, Err(Failure::Fault(Fault::Unsupported)));
        disk.submit(command(kind, 0, len - 1)).unwrap();
        assert_eq!(disk.next_finished(), None);
    }
}

/// A gate without room holds back its own parts only.
#[test]
fn a_gate_without_room_does_not_stop_the_others() {
    struct Only(u32);
    impl Gates for Only {
        fn has_capacity(&mut self, gate: GateId, flow: FlowId) -> bool {
            assert_eq!(flow, FlowId(3));
            gate == GateId(self.0)
        }
        fn foreign(&mut self, _: GateId, request: &Request) -> Cost {
            Cost::new(request.len + 1)
        }
    }
    let mut disk = disk(striped(1 << 20, 4096, 2), Settings::default());
    disk.submit(command(Kind::Read, 0, 4096)).unwrap();
    disk.submit(command(Kind::Read, 4096, 100)).unwrap();
    let part = disk.next_part(&mut Only(1)).unwrap();
    assert_eq!((part.gate, part.request.foreign), (GateId(1), Cost::new(101)));
    assert_eq!(disk.next_part(&mut Only(1)), None);
    assert_eq!(disk.next_part(&mut Only(0)).unwrap().gate, GateId(0));
}

/// A long backlog in front of full gates is not looked through again and again.
#[test]
fn full_gates_are_asked_once() {
    struct Full(usize);
    impl Gates for Full {
        fn has_capacity(&mut self, _: GateId, _: FlowId) -> bool {
            self.0 += 1;
            false
        }
    }
    let mut disk = disk(striped(1 << 20, 4096, 2), Settings::default());
    for i in 0..1000 {
        disk.submit(command(Kind::Read, i % 256 * 4096, 512)).unwrap();
    }
    let mut gates = Full(0);
    assert_eq!(disk.next_part(&mut gates), None);
    assert_eq!(gates.0, 2);
}

#[test]
fn abort_drops_what_was_not_handed_out() {
    let settings = Settings { align: 16, quantum: 16, ..Settings::default() };
    let mut disk = disk(Layout::single(GateId(0), 0, 1 << 20), settings);
    let a = disk.submit(command(Kind::Write, 0, 64)).unwrap();
    let first = disk.next_part(&mut ()).unwrap();
    let b = disk.submit(command(Kind::Write, 8, 8)).unwrap(); // waits for a
    assert!(disk.abort(b));
    assert_eq!(disk.next_finished().unwrap().id, b);
    let c = disk.submit(command(Kind::Write, 8, 8)).unwrap();
    assert!(disk.abort(a));
    assert_eq!(disk.next_part(&mut ()), None);
    disk.part_done(first.id, Ok(()));
    let done = disk.next_finished().unwrap();
    assert_eq!((done.id, done.outcome), (a, Err(Failure::Fault(Fault::Cancelled))));
    assert!(!disk.abort(a), "it is over");
    assert_eq!(disk.next_part(&mut ()).unwrap().id.command, c, "the lock is free again");
}

#[test]
fn resizing() {
    let mut disk = disk(striped(1 << 20, 4096, 2), Settings { align: 512, ..Settings::default() });
    assert_eq!(disk.resize(striped(1 << 20, 8192, 2)), Err(ResizeError::Moved));
    assert_eq!(disk.resize(striped(1 << 20, 4096, 3)), Err(ResizeError::Moved));
    assert_eq!(disk.resize(striped((1 << 20) + 1, 4096, 2)), Err(ResizeError::Unaligned));
    disk.resize(striped(2 << 20, 4096, 2)).unwrap();
    disk.submit(command(Kind::Read, (2 << 20) - 1, 1)).unwrap();
    assert_eq!(disk.resize(striped(1 << 20, 4096, 2)), Err(ResizeError::InUse));
    let part = disk.next_part(&mut ()).unwrap();
    disk.part_done(part.id, Ok(()));
    disk.resize(striped(1 << 20, 4096, 2)).unwrap();
    assert_eq!(disk.capacity(), 1 << 20);
}

proptest! {
    /// Every byte of a read or write is in exactly one part's data, and the shares add up to what the command counts.
    #[test]
    fn parts_cover_a_command_once_and_shares_sum(
        extents in 1u32..5, unit in 1u64..5, quantum in 1u64..9, align_bits in 0u32..3,
        offset in 0u64..300, len in 1u64..200, write in any::<bool>(), per in 1u64..64,
    ) {
        let align = 1 << align_bits;
        let settings = Settings { align, quantum: quantum * align, command_bytes: per, ..Settings::default() };
        let mut disk = disk(striped(512, unit * align, extents), settings);
        let kind = if write { Kind::Write } else { Kind::Read };
        let frame = disk.frame(kind, offset, len);
        disk.submit(command(kind, offset, len)).unwrap();
        let mut covered = vec![0; frame.len as usize];
        let mut shares = 0u64;
        loop {
            let batch = parts(&mut disk);
            if batch.is_empty() {
                break;
            }
            for part in batch {
                prop_assert!(part.request.len <= settings.quantum);
                prop_assert_eq!((part.request.offset % align, part.request.len % align), (0, 0));
                shares += u64::from(part.request.commands);
                if let Data::Frame { at } = part.data {
                    for i in at..at + part.request.len {
                        covered[i as usize] += 1;
                        let spot = disk.layout().locate(offset - frame.lead + i);
                        prop_assert_eq!((spot.gate, spot.offset), (part.gate, part.request.offset + i - at));
                    }
                }
                disk.part_done(part.id, Ok(()));
            }
        }
        prop_assert!(covered.iter().all(|&n| n == 1));
        prop_assert!(frame.lead + len <= frame.len);
        prop_assert_eq!(shares, len.div_ceil(per) * u64::from(WHOLE));
        prop_assert_eq!(disk.next_finished().unwrap().outcome, Ok(()));
    }
}
