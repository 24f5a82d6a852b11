//! Reservations: what a host asks for, what it may do, and what it is told.

use crate::host::*;
use henge_core::Fault;
use henge_nvme::reservation::{Ask, Change, Effect, Held, Kind, Notification, Registrant};
use henge_nvme::wire::{le16, le32, le64, pdu};
use henge_nvme::{Limits, Outcome, Reach, SubsystemId, Subsystems};

/// The identifier that `connect` says.
const US: [u8; 16] = [9; 16];
const THEM: [u8; 16] = [4; 16];
const READ: u8 = 2;
const WRITE: u8 = 1;
const COMPARE: u8 = 5;

fn queues() -> (Subsystems, SubsystemId, Driver, Driver) {
    let (mut s, id) = subsystems();
    let (admin, cntlid) = admin(&mut s, Wire::default(), NQN);
    let io = io(&mut s, Wire::default(), cntlid, Limits::default(), true);
    (s, id, admin, io)
}

/// A command with these keys; its status.
fn run(s: &mut Subsystems, io: &mut Driver, opcode: u8, dword: u32, keys: &[u64]) -> u16 {
    let data: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    let entry = Entry::new(opcode, 7).nsid(1).dword(10, dword).in_capsule(data.len());
    io.feed(s, &Wire::default().command(entry, &data));
    io.completion().status
}

fn registrant(host: [u8; 16], holds: bool) -> Registrant {
    Registrant { host, key: u64::from(host[0]), holds }
}
fn held(kind: Option<Kind>, registrants: &[Registrant]) -> Held {
    Held::new(3, kind, true, registrants.to_vec())
}

#[test]
fn commands_say_what_they_ask_for() {
    let (mut s, _, _admin, mut io) = queues();
    let change =
        |ask, key, other, ignores_key, persists| Change { host: US, ask, key, other, ignores_key, persists };
    use Ask::*;
    let fine = [
        // Register: RREGA, IEKEY, CPTPL; CRKEY and NRKEY
        (0x0d, 0, change(Register, 1, 2, false, None)),
        (0x0d, 1 | 2 << 30, change(Unregister, 1, 2, false, Some(false))),
        (0x0d, 2 | 1 << 3 | 3 << 30, change(Replace, 1, 2, true, Some(true))),
        // Acquire: RACQA, RTYPE; CRKEY and PRKEY
        (0x11, 1 << 8, change(Acquire(Kind::WriteExclusive), 1, 2, false, None)),
        (0x11, 1 | 4 << 8, change(Preempt(Kind::ExclusiveAccessRegistrants), 1, 2, false, None)),
        (0x11, 2 | 6 << 8, change(PreemptAndAbort(Kind::ExclusiveAccessAll), 1, 2, false, None)),
        // Release: RRELA, RTYPE; CRKEY
        (0x15, 3 << 8, change(Release(Kind::WriteExclusiveRegistrants), 1, 0, false, None)),
        (0x15, 1, change(Clear, 1, 0, false, None)),
    ];
    for (opcode, dword, expected) in fine {
        let keys = if opcode == 0x15 { &[1][..] } else { &[1, 2] };
        assert_eq!(run(&mut s, &mut io, opcode, dword, keys), 0);
        assert_eq!(io.changes.pop(), Some(expected));
    }
    let wrong = [
        (0x0d, 3),               // RREGA
        (0x0d, 1 << 30),         // CPTPL
        (0x11, 3 | 1 << 8),      // RACQA
        (0x11, 0),               // RTYPE
        (0x11, 7 << 8),          // RTYPE
        (0x11, 1 << 8 | 1 << 3), // IEKEY
        (0x15, 2),               // RRELA
        (0x15, 0),               // RTYPE
        (0x15, 1 | 1 << 3),      // IEKEY
    ];
    for (opcode, dword) in wrong {
        assert_eq!(run(&mut s, &mut io, opcode, dword, &[1, 2]), 0x02, "{opcode:#x} {dword:#x}");
    }
    assert_eq!(run(&mut s, &mut io, 0x0d, 0, &[1, 0]), 0x02, "0 is nobody's key");
    assert_eq!(run(&mut s, &mut io, 0x0d, 0, &[1]), 0x0f, "half of the keys");
    assert_eq!(io.changes, []);
}

/// Per type: whether a registered host's, and a stranger's, reads and writes conflict while another one holds it (Base 8.19).
const CONFLICTS: [(Kind, [bool; 4]); 6] = [
    (Kind::WriteExclusive, [false, true, false, true]),
    (Kind::ExclusiveAccess, [true, true, true, true]),
    (Kind::WriteExclusiveRegistrants, [false, false, false, true]),
    (Kind::ExclusiveAccessRegistrants, [false, false, true, true]),
    (Kind::WriteExclusiveAll, [false, false, false, true]),
    (Kind::ExclusiveAccessAll, [false, false, true, true]),
];

#[test]
fn types_keep_out_whom_they_should() {
    let (mut s, id, _admin, mut io) = queues();
    let wire = Wire::default();
    let mut status = |s: &mut Subsystems, opcode: u8| {
        let entry = Entry::new(opcode, 3).blocks(0, 1);
        let (entry, data) = match opcode {
            READ => (entry.at_host(512), &[][..]),
            WRITE | COMPARE => (entry.in_capsule(512), &[0; 512][..]),
            9 => (Entry::new(9, 3).nsid(1).dword(11, 4).in_capsule(16), &[0; 16][..]),
            _ => (entry, &[][..]),
        };
        io.feed(s, &wire.command(entry, data));
        io.replies().iter().rfind(|reply| reply.kind == pdu::RESPONSE).unwrap().completion().status
    };
    const READS: [u8; 3] = [READ, COMPARE, 0x0c];
    const WRITES: [u8; 4] = [WRITE, 0, 8, 9]; // Flush, Write Zeroes, Dataset Management
    for (kind, expected) in CONFLICTS {
        for (who, registered) in [true, false].into_iter().enumerate() {
            let mut all = vec![registrant(THEM, true)];
            let holds = matches!(kind, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll);
            all.extend(registered.then(|| registrant(US, holds)));
            s.adopt(id, held(Some(kind), &all), &[]);
            for (what, opcodes) in [&READS[..], &WRITES].into_iter().enumerate() {
                for &opcode in opcodes {
                    let conflict = if expected[who * 2 + what] { 0x83 } else { 0 };
                    assert_eq!(status(&mut s, opcode), conflict, "{kind:?} {registered} {opcode:#x}");
                }
            }
        }
        s.adopt(id, held(Some(kind), &[registrant(THEM, false), registrant(US, true)]), &[]);
        assert_eq!([READ, WRITE].map(|opcode| status(&mut s, opcode)), [0, 0], "the holder does all");
    }
    s.adopt(id, held(None, &[registrant(THEM, false)]), &[]);
    assert_eq!(status(&mut s, WRITE), 0, "registrations alone keep nobody out");
}

#[test]
fn a_write_that_conflicts_fails_its_pair() {
    let (mut s, id, _admin, mut io) = queues();
    s.adopt(id, held(Some(Kind::WriteExclusive), &[registrant(THEM, true)]), &[]);
    let wire = Wire::default();
    let pair = [(COMPARE, 1, 5), (WRITE, 2, 6)];
    for (opcode, fuse, cid) in pair {
        let entry = Entry::new(opcode, cid).blocks(0, 1).put(1, &[0x40 | fuse]).in_capsule(512);
        io.feed(&mut s, &wire.command(entry, &[0; 512]));
    }
    let mut ends: Vec<_> = io.replies().iter().map(|r| (r.completion().cid, r.completion().status)).collect();
    ends.sort_unstable();
    assert_eq!(ends, [(5, 0x09), (6, 0x83)]);
}

#[test]
fn a_report_has_every_registrant() {
    let (mut s, id, mut admin, mut io) = queues();
    let all = [registrant(US, false), registrant(THEM, true)];
    s.adopt(id, held(Some(Kind::ExclusiveAccess), &all), &[]);
    let wire = Wire::default();
    let mut report = |len: u32, extended: u32| {
        let entry = Entry::new(0x0e, 3).nsid(1).dword(10, len / 4 - 1).dword(11, extended);
        io.feed(&mut s, &wire.command(entry.at_host(len as usize), &[]));
        io.replies()
    };
    let page = report(256, 1)[0].data.clone();
    assert_eq!((page.len(), le32(&page, 0), page[4], le16(&page, 5), page[9]), (256, 3, 2, 2, 1));
    for (entry, host, holds) in [(&page[64..128], THEM, 1), (&page[128..192], US, 0)] {
        assert_eq!((le16(entry, 0), entry[2], le64(entry, 8)), (0xffff, holds, u64::from(host[0])));
        assert_eq!(entry[16..32], host);
    }
    assert_eq!(page[192..], [0; 64]);
    assert_eq!(report(64, 1)[0].data, page[..64], "as much as there is room for");
    assert_eq!(report(256, 0)[0].completion().status, 0x18, "identifiers have 128 bits");
    let ask = |dword: u32| Entry::new(6, 2).nsid(1 - dword).dword(10, dword).at_host(4096);
    admin.feed(&mut s, &wire.command(ask(1), &[]));
    assert_eq!(admin.replies()[0].data[520] >> 5 & 1, 1, "ONCS");
    admin.feed(&mut s, &wire.command(ask(0).nsid(1), &[]));
    assert_eq!(admin.replies()[0].data[31], 0xff, "RESCAP");
}

/// The reservation notification log: count, type, how many more.
fn log(s: &mut Subsystems, admin: &mut Driver, retains: bool) -> (u64, u8, u8) {
    let entry = Entry::new(2, 6).dword(10, 0x80 | u32::from(retains) << 15 | 15 << 16).at_host(64);
    admin.feed(s, &Wire::default().command(entry, &[]));
    let page = &admin.replies()[0].data;
    assert_eq!(le32(page, 12), u32::from(page[8] > 0), "the namespace");
    (le64(page, 0), page[8], page[9])
}

#[test]
fn hosts_are_told_one_thing_after_another() {
    let (mut s, id, mut admin, _io) = queues();
    let wire = Wire::default();
    for cid in 10..13 {
        admin.feed(&mut s, &wire.command(Entry::new(0x0c, cid), &[]));
    }
    assert_eq!(log(&mut s, &mut admin, false), (0, 0, 0));
    let told = |host, notification| Effect { host, notification: Some(notification), aborts: false };
    s.adopt(id, Held::default(), &[told(US, Notification::Released), told(THEM, Notification::Preempted)]);
    s.adopt(id, Held::default(), &[told(US, Notification::RegistrationPreempted)]);
    poke(&mut s, &mut [&mut admin]);
    assert_eq!(admin.completion().result, 0x80_0006, "once until the log is read");
    assert_eq!(log(&mut s, &mut admin, true), (1, 2, 1));
    assert_eq!(log(&mut s, &mut admin, false), (1, 2, 1), "it was only looked at");
    poke(&mut s, &mut [&mut admin]);
    assert_eq!(admin.completion().result, 0x80_0006, "there is another");
    assert_eq!(log(&mut s, &mut admin, false), (2, 1, 0));
    poke(&mut s, &mut [&mut admin]);
    assert_eq!(admin.replies(), []);
    // What is masked is neither told nor logged (feature 82h).
    let set = |value| Entry::new(9, 3).nsid(1).dword(10, 0x82).dword(11, value);
    admin.feed(&mut s, &wire.command(set(1 << 2 | 1), &[]));
    admin.replies();
    admin.feed(&mut s, &wire.command(Entry::new(10, 3).nsid(1).dword(10, 0x82), &[]));
    assert_eq!(admin.completion().result, 1 << 2);
    s.adopt(id, Held::default(), &[told(US, Notification::Released)]);
    assert_eq!(log(&mut s, &mut admin, false), (0, 0, 0));
    // Of too many, the oldest are lost, and the count says how many.
    for _ in 0..40 {
        s.adopt(id, Held::default(), &[told(US, Notification::Preempted)]);
    }
    assert_eq!(log(&mut s, &mut admin, false), (2 + 40 - 31, 3, 31));
}

#[test]
fn persistence_is_a_feature_of_the_namespace() {
    let (mut s, id, mut admin, _io) = queues();
    let wire = Wire::default();
    let mut run = |s: &mut Subsystems, entry: Entry| {
        admin.feed(s, &wire.command(entry, &[]));
        let c = admin.completion();
        (c.status, c.result, admin.changes.pop())
    };
    let get = Entry::new(10, 3).nsid(1).dword(10, 0x83);
    assert_eq!(run(&mut s, get).1, 0);
    s.adopt(id, held(None, &[]), &[]);
    assert_eq!(run(&mut s, get), (0, 1, None));
    let set = Entry::new(9, 3).dword(10, 0x83).dword(11, 1);
    let change = run(&mut s, set.nsid(1)).2.expect("the driver decides");
    assert_eq!((change.host, change.ask, change.persists), (US, Ask::Persist, Some(true)));
    assert!(run(&mut s, set.nsid(0xffff_ffff)).2.is_some());
    assert_eq!(run(&mut s, set.nsid(2)).0, 0x0b);
    assert_eq!(run(&mut s, get.nsid(0)).0, 0x0b);
}

#[test]
fn a_preempted_host_loses_its_commands() {
    let (mut s, id, mut admin, mut io) = queues();
    let wire = Wire::default();
    io.hold = true;
    let begun = s.adopt(id, held(Some(Kind::WriteExclusiveRegistrants), &[registrant(US, true)]), &[]);
    assert!(s.is_quiet_before(id, begun));
    io.feed(&mut s, &wire.command(Entry::new(READ, 1).blocks(0, 1).at_host(512), &[]));
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 2).blocks(0, 8).at_host(4096), &[]));
    let r2t = io.replies();
    assert_eq!(r2t[0].kind, pdu::R2T);
    let effect = Effect { host: US, notification: Some(Notification::RegistrationPreempted), aborts: true };
    let by = held(Some(Kind::WriteExclusive), &[registrant(THEM, true)]);
    let epoch = s.adopt(id, by, &[Effect { host: [1; 16], ..effect }, effect]);
    poke(&mut s, &mut [&mut io, &mut admin]);
    assert_eq!(io.cancelled.len(), 1, "the read is at the storage");
    assert!(!s.is_quiet_before(id, epoch), "and is waited for");
    // What begins after that is not.
    io.feed(&mut s, &wire.command(Entry::new(READ, 3).blocks(0, 1).at_host(512), &[]));
    let (old, new) = (io.pending.remove(0), io.pending.pop().unwrap());
    assert!(io.pending.is_empty(), "the write never comes there");
    io.feed(&mut s, &wire.answer(&r2t[0], &[7; 4096]));
    let ends = io.completion();
    assert_eq!(
        (ends.cid, ends.status, ends.final_),
        (2, 0x1b, true),
        "its data were to come, and are dropped"
    );
    io.session.complete(&mut s, old.task, Outcome::Failed(Fault::Cancelled), &[0; 512]);
    io.work(&mut s);
    assert_eq!((io.completion().status, s.is_quiet_before(id, epoch)), (0x1b, true));
    io.buffers.insert(new.task, vec![0; 512]);
    io.session.complete(&mut s, new.task, Outcome::Done, &[0; 512]);
    io.work(&mut s);
    assert_eq!(io.replies().last().unwrap().completion().status, 0, "others read");
    assert_eq!(log(&mut s, &mut admin, true), (1, 1, 0));
    // Its own change of who may use the disk goes on.
    let entry = Entry::new(0x0d, 4).nsid(1).in_capsule(16);
    io.feed(&mut s, &wire.command(entry, &[1; 16]));
    s.adopt(id, Held::default(), &[effect]);
    poke(&mut s, &mut [&mut io, &mut admin]);
    assert_eq!(io.cancelled.len(), 1);
    io.finish(&mut s);
    assert_eq!(io.completion().status, 0);
}

#[test]
fn what_has_not_begun_is_given_up_when_the_way_is_closed() {
    let (mut s, id, _admin, mut io) = queues();
    io.hold = true;
    io.feed(&mut s, &Wire::default().command(Entry::new(READ, 1).blocks(0, 1).at_host(512), &[]));
    s.set_reach(id, Reach::Inaccessible);
    poke(&mut s, &mut [&mut io]);
    let command = io.pending.pop().unwrap();
    assert_eq!(io.cancelled, [command.task]);
    io.session.complete(&mut s, command.task, Outcome::Failed(Fault::Cancelled), &[0; 512]);
    io.work(&mut s);
    let ends = io.completion();
    assert_eq!((ends.status, ends.final_), (0x302, false), "by another path perhaps");
}

/// A disk of which nobody keeps reservations: each host is told so before it tries.
#[test]
fn a_namespace_without_reservations_says_so_and_refuses_them() {
    let mut s = Subsystems::at(1);
    let disk = henge_nvme::Namespace { reservable: false, ..namespace() };
    s.add(NQN, henge_nvme::Access::default(), disk).expect("the first");
    let (mut admin, cntlid) = admin(&mut s, Wire::default(), NQN);
    let mut io = io(&mut s, Wire::default(), cntlid, Limits::default(), true);
    for opcode in [0x0d, 0x0e, 0x11, 0x15] {
        assert_eq!(run(&mut s, &mut io, opcode, 0, &[1, 2]) & 0xff, 1, "Invalid Command Opcode: {opcode:x}");
    }
    let identify = |s: &mut Subsystems, admin: &mut Driver, nsid: u32, cns: u32| {
        let entry = Entry::new(0x06, 9).nsid(nsid).dword(10, cns).at_host(4096);
        admin.feed(s, &Wire::default().command(entry, &[]));
        let data = admin.replies().into_iter().filter(|reply| reply.kind == pdu::C2H_DATA);
        data.flat_map(|reply| reply.data).collect::<Vec<u8>>()
    };
    assert_eq!(identify(&mut s, &mut admin, 1, 0)[31], 0, "RESCAP");
    assert_eq!(le16(&identify(&mut s, &mut admin, 0, 1), 520) & 1 << 5, 0, "ONCS");
}

/// A disk whose home moves: commands were taken in by a table that had been replaced elsewhere. Those that the new one forbids are given up.
#[test]
fn what_was_taken_in_by_an_old_table_is_looked_at_again() {
    let (mut s, id, _admin, mut io) = queues();
    let wire = Wire::default();
    io.hold = true;
    s.set_stale(id, true);
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 1).blocks(0, 1).in_capsule(512), &[1; 512]));
    io.feed(&mut s, &wire.command(Entry::new(READ, 2).blocks(0, 1).at_host(512), &[]));
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 3).blocks(0, 8).at_host(4096), &[]));
    let r2t = io.replies();
    assert_eq!(r2t[0].kind, pdu::R2T);
    io.feed(&mut s, &wire.command(Entry::new(0x0e, 4).nsid(1).dword(11, 1).at_host(64), &[]));
    assert_eq!(io.completion().status, 0x82, "a report of what may be old: not ready");
    s.adopt(id, held(Some(Kind::WriteExclusive), &[registrant(THEM, true)]), &[]);
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 4).blocks(0, 1).in_capsule(512), &[1; 512]));
    assert_eq!(io.completion().status, 0x82, "it may be another one's by now");
    s.set_stale(id, false);
    s.recheck(id);
    poke(&mut s, &mut [&mut io]);
    let (write, read) = (io.pending.remove(0), io.pending.remove(0));
    assert_eq!(io.cancelled, [write.task], "the read goes on");
    io.session.complete(&mut s, write.task, Outcome::Failed(Fault::Cancelled), &[0; 512]);
    io.work(&mut s);
    assert_eq!(io.completion().status, 0x83, "reservation conflict");
    io.feed(&mut s, &wire.answer(&r2t[0], &[7; 4096]));
    assert_eq!(io.completion().status, 0x83, "it never comes to the storage");
    assert!(io.pending.is_empty());
    io.buffers.insert(read.task, vec![0; 512]);
    io.session.complete(&mut s, read.task, Outcome::Done, &[0; 512]);
    io.work(&mut s);
    assert_eq!(io.replies().last().unwrap().completion().status, 0);
}
