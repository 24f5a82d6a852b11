//! Hosts that mean harm: what is dear to a controller and costs them little, and what comes torn.

use crate::host::*;
use henge_core::{Duration, Instant};
use henge_nvme::reservation::{Effect, Held, Kind, Registrant};
use henge_nvme::wire::{le32, pdu};
use henge_nvme::{Limits, Reach, Segment, Want};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A megabyte of a page of two KiB is a megabyte to send, and to make a digest of: while it waits, no further command is taken in.
#[test]
fn zeroes_behind_a_page_wait_for_the_host() {
    const LEN: usize = 1 << 20;
    for wire in [Wire::default(), Wire::both()] {
        let (mut s, _) = subsystems();
        let (mut admin, _) = admin(&mut s, wire, NQN);
        let page =
            |cid| Entry::new(2, cid).dword(10, 1 | (LEN as u32 / 4 - 1) << 16).dword(11, 3).at_host(LEN);
        let mut taken = 0;
        while taken < 100 && admin.session.want() == Want::Header {
            let bytes = wire.command(page(10 + taken), &[]);
            assert_eq!(admin.session.receive(&mut s, &bytes), bytes.len());
            taken += 1;
        }
        assert_eq!((taken, admin.session.want()), (1, Want::Later));
        let stretches = admin.session.segments().map(|segment| match segment {
            Segment::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            Segment::Buffer(..) => panic!("it has no buffer"),
        });
        let memory: usize = stretches.collect::<BTreeMap<_, _>>().into_values().sum();
        assert!(memory < 32 << 10, "{memory} bytes");
        admin.work(&mut s);
        assert!(admin.replies()[0].data == vec![0; LEN], "an empty log");
        assert_eq!(admin.session.want(), Want::Header);
    }
}

/// Data in the capsule go to the controller. A read that brings some is refused, and holds no buffer beside those that are bounded.
#[test]
fn a_read_brings_no_data() {
    let (mut s, _) = subsystems();
    let (_admin, cntlid) = admin(&mut s, Wire::default(), NQN);
    let limits = Limits { held: 64 << 10, ..Limits::default() };
    let mut io = io(&mut s, Wire::default(), cntlid, limits, true);
    io.hold = true;
    for cid in 10..20 {
        let read = Entry::new(2, cid).blocks(0, 64).in_capsule(32 << 10);
        io.feed(&mut s, &Wire::default().command(read, &[0; 4]));
        let read = Entry::new(2, 10 + cid).blocks(0, 64).at_host(32 << 10);
        io.feed(&mut s, &Wire::default().command(read, &[]));
    }
    assert_eq!(io.pending.len(), 2, "as many as there is room for");
    let refused = io.replies();
    assert_eq!(refused.len(), 10);
    assert!(refused.iter().all(|reply| reply.completion().status == 0x02));
    io.hold = false;
    io.finish(&mut s);
    assert_eq!(io.replies().len(), 20);
}

/// A disk may have a limit, and hosts send no Keep Alive while commands end: a host that waits for many is not silent.
#[test]
fn whoever_is_answered_is_not_silent() {
    let wire = Wire::default();
    let (mut s, _) = subsystems();
    let (mut admin, cntlid) = admin(&mut s, wire, NQN);
    let mut io = io(&mut s, wire, cntlid, Limits::default(), false);
    admin.feed(&mut s, &wire.command(Entry::new(9, 3).dword(10, 0x0f).dword(11, 5000), &[]));
    io.hold = true;
    for cid in 0..10 {
        io.feed(&mut s, &wire.command(Entry::new(2, cid).blocks(0, 1).at_host(512), &[]));
    }
    let at = |seconds: u64| Instant::ZERO + Duration::from_secs(seconds);
    for second in 0..=37 {
        if second % 3 == 0
            && let Some(command) = io.pending.pop()
        {
            let others = std::mem::replace(&mut io.pending, vec![command]);
            io.hold = false;
            io.finish(&mut s);
            io.pending = others;
        }
        admin.session.tick(&mut s, at(second));
        io.session.tick(&mut s, at(second));
        let alive = admin.session.want() == Want::Header;
        assert_eq!(alive, second < 27 + 7, "the last answer was in second 27: {second}");
    }
}

/// A controller that is reset while everything is under way: what is at the storage ends in silence, and the queue of the same number that comes
/// after it hears nothing of that.
#[test]
fn a_reset_in_the_middle_leaves_nothing() {
    let wire = Wire::default();
    let (mut s, id) = subsystems();
    let (mut admin, cntlid) = admin(&mut s, wire, NQN);
    let mut former = Vec::new();
    for round in 0..20_u16 {
        let mut queue = io(&mut s, wire, cntlid, Limits::default(), true);
        queue.hold = true;
        queue.feed(&mut s, &wire.command(Entry::new(2, 1).blocks(0, 8).at_host(4096), &[]));
        queue.feed(&mut s, &wire.command(Entry::new(1, 2).blocks(0, 8).in_capsule(4096), &[7; 4096]));
        queue.feed(&mut s, &wire.command(Entry::new(5, 3).fuse(1).blocks(0, 8).at_host(4096), &[]));
        queue.feed(&mut s, &wire.command(Entry::new(1, 4).fuse(2).blocks(0, 8).at_host(4096), &[]));
        // The beginning of a write whose data are in its capsule.
        let write = wire.command(Entry::new(1, 5).blocks(0, 8).in_capsule(4096), &[8; 4096]);
        queue.feed(&mut s, &write[..2000]);
        assert_eq!((queue.pending.len(), queue.replies().len()), (2, 2));
        // CC.EN goes, and comes again.
        admin.feed(&mut s, &wire.command(enable(round).dword(12, 0x0046_0000), &[]));
        admin.feed(&mut s, &wire.command(enable(round), &[]));
        poke(&mut s, &mut [&mut queue]);
        assert_eq!(admin.replies().len(), 2);
        former.push(queue);
    }
    let epoch = s.adopt(id, Held::default(), &[Effect { host: [1; 16], notification: None, aborts: true }]);
    let mut last = io(&mut s, wire, cntlid, Limits::default(), true);
    for mut queue in former {
        assert!(!s.is_quiet_before(id, epoch) && queue.session.want() == Want::Nothing);
        assert_eq!((queue.cancelled.len(), queue.session.is_over()), (2, false));
        queue.finish(&mut s);
        assert!(queue.session.is_over() && queue.buffers.is_empty() && queue.replies().is_empty());
    }
    assert!(s.is_quiet_before(id, epoch));
    last.feed(&mut s, &wire.command(Entry::new(2, 1).blocks(0, 8).at_host(4096), &[]));
    assert_eq!(last.replies().len(), 2);
}

/// What a host may do with pairs.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// A command: its opcode, which of a pair it is, whether its data come with it, and one of two ranges.
    Send { opcode: u8, fuse: u8, with_data: bool, far: bool },
    /// An abort of one of those under way, in the order in which they came.
    Abort(usize),
    /// Data that were asked for: these of those asked for.
    Give(usize),
    /// The storage ends one of its commands, as told.
    End(usize, Option<henge_core::Fault>),
    /// What queues have for each other reaches them.
    Drain,
    /// The disk goes to another node, or comes.
    Move(Reach),
    /// The host is preempted, and its commands aborted.
    Preempt,
    /// Another host has the disk for itself, or nobody; what was taken in before is looked at again.
    Reserve(bool),
}

fn deeds() -> impl Strategy<Value = Deed> {
    let fault =
        prop_oneof![Just(None), Just(Some(henge_core::Fault::Io)), Just(Some(henge_core::Fault::Cancelled))];
    prop_oneof![
        5 => (prop_oneof![3 => Just(5_u8), 3 => Just(1), 1 => Just(2), 1 => Just(0)], 0_u8..4, any::<bool>(), any::<bool>())
            .prop_map(|(opcode, fuse, with_data, far)| Deed::Send { opcode, fuse, with_data, far }),
        2 => (0_usize..8).prop_map(Deed::Abort),
        2 => (0_usize..4).prop_map(Deed::Give),
        2 => (0_usize..4, fault).prop_map(|(which, fault)| Deed::End(which, fault)),
        1 => Just(Deed::Drain),
        1 => prop_oneof![Just(Reach::Optimized), Just(Reach::Inaccessible), Just(Reach::Detour)].prop_map(Deed::Move),
        1 => prop_oneof![Just(Deed::Preempt), any::<bool>().prop_map(Deed::Reserve)],
    ]
}

/// A queue whose host tears pairs.
struct Torn {
    io: Driver,
    /// Commands that are not answered.
    open: BTreeSet<u16>,
    /// Data that were asked for: whose, by which tag, how many bytes.
    asked: Vec<(u16, u16, usize)>,
    answered: BTreeMap<u16, u16>,
    next: u16,
}

const BLOCKS: u32 = 8;
const DATA: usize = BLOCKS as usize * 512;

impl Torn {
    fn hear(&mut self) {
        for reply in self.io.replies() {
            match reply.kind {
                pdu::R2T => {
                    let names = le32(&reply.header, 8);
                    self.asked.push((names as u16, (names >> 16) as u16, le32(&reply.header, 16) as usize));
                }
                pdu::RESPONSE => {
                    let done = reply.completion();
                    assert!(self.open.remove(&done.cid), "{done:?} is answered once");
                    self.answered.insert(done.cid, done.status);
                }
                pdu::C2H_DATA => {}
                other => panic!("a PDU of kind {other}"),
            }
        }
    }

    fn send(&mut self, s: &mut henge_nvme::Subsystems, (opcode, fuse): (u8, u8), with_data: bool, far: bool) {
        if self.open.len() >= 30 {
            return;
        }
        self.next += 1;
        self.open.insert(self.next);
        let entry = Entry::new(opcode, self.next).fuse(fuse).blocks(if far { 64 } else { 0 }, BLOCKS);
        let data = vec![0; DATA];
        let bytes = match opcode {
            0 => Wire::default().command(Entry::new(0, self.next).fuse(fuse).nsid(1), &[]),
            2 => Wire::default().command(entry.at_host(DATA), &[]),
            _ if with_data => Wire::default().command(entry.in_capsule(DATA), &data),
            _ => Wire::default().command(entry.at_host(DATA), &[]),
        };
        self.io.feed(s, &bytes);
    }

    fn give(&mut self, s: &mut henge_nvme::Subsystems, which: usize) {
        if which < self.asked.len() {
            let (cid, tag, len) = self.asked.remove(which);
            self.io.feed(s, &Wire::default().data(cid, tag, 0, &vec![0; len], true));
        }
    }

    fn end(&mut self, s: &mut henge_nvme::Subsystems, which: usize, fault: Option<henge_core::Fault>) {
        if which < self.io.pending.len() {
            let command = self.io.pending.remove(which);
            self.io.fault = fault;
            let newer = std::mem::replace(&mut self.io.pending, vec![command]);
            self.io.hold = false;
            self.io.finish(s);
            self.io.hold = true;
            self.io.pending.extend(newer);
        }
    }
}

proptest! {
    /// However pairs are torn, whatever is aborted between, wherever the disk goes, and whenever data come: each command is answered once, and no
    /// buffer stays.
    #[test]
    fn torn_pairs_leave_nothing(deeds in proptest::collection::vec(deeds(), 0..80), room in 1_u64..8) {
        let (mut s, id) = subsystems();
        let (mut admin, cntlid) = admin(&mut s, Wire::default(), NQN);
        let limits = Limits { held: room * DATA as u64, asked: 2 * DATA as u64, ..Limits::default() };
        let io = io(&mut s, Wire::default(), cntlid, limits, true);
        let mut torn = Torn { io, open: BTreeSet::new(), asked: Vec::new(), answered: BTreeMap::new(), next: 100 };
        torn.io.hold = true;
        for (n, deed) in deeds.into_iter().enumerate() {
            match deed {
                Deed::Send { opcode, fuse, with_data, far } => torn.send(&mut s, (opcode, fuse), with_data, far),
                Deed::Give(which) => torn.give(&mut s, which),
                Deed::End(which, fault) => torn.end(&mut s, which, fault),
                Deed::Abort(which) => {
                    if let Some(cid) = torn.open.iter().nth(which) {
                        let abort = Entry::new(8, n as u16).dword(10, u32::from(*cid) << 16 | 1);
                        admin.feed(&mut s, &Wire::default().command(abort, &[]));
                    }
                }
                Deed::Drain => poke(&mut s, &mut [&mut admin, &mut torn.io]),
                Deed::Move(reach) => s.set_reach(id, reach),
                Deed::Preempt => {
                    let effect = Effect { host: [9; 16], notification: None, aborts: true };
                    s.adopt(id, Held::default(), &[effect]);
                }
                Deed::Reserve(all) => {
                    let kind = all.then_some(Kind::ExclusiveAccess);
                    let other = Registrant { host: [1; 16], key: 1, holds: all };
                    s.adopt(id, Held::new(1, kind, false, vec![other]), &[]);
                    s.recheck(id);
                }
            }
            torn.hear();
        }
        s.set_reach(id, Reach::Optimized);
        let epoch = s.adopt(id, Held::default(), &[Effect { host: [1; 16], notification: None, aborts: true }]);
        poke(&mut s, &mut [&mut admin, &mut torn.io]);
        torn.hear();
        torn.send(&mut s, (0, 0), false, false);
        torn.hear();
        while !(torn.open.is_empty() || torn.asked.is_empty() && torn.io.pending.is_empty()) {
            torn.give(&mut s, 0);
            torn.end(&mut s, 0, None);
            torn.hear();
        }
        prop_assert!(torn.open.is_empty(), "{:?} wait for ever", torn.open);
        prop_assert!(s.is_quiet_before(id, epoch) && torn.io.buffers.is_empty() && !torn.io.session.awaits_data());
        // All of the room is there again.
        torn.io.hold = false;
        torn.io.fault = None;
        torn.send(&mut s, (2, 0), false, false);
        torn.hear();
        prop_assert_eq!(torn.answered.get(&torn.next), Some(&0));
    }
}
