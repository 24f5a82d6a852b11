//! A disk that several nodes serve: what an initiator is told of the ways to it, and what becomes of it when another decides who may use the disk.

use crate::host::*;
use henge_core::Fault;
use henge_iscsi::chap::Access;
use henge_iscsi::scsi::{self, Change, Group, Outcome, Reservations};
use henge_iscsi::wire::Header;
use henge_iscsi::{Limits, Targets};

const GROUPS: [Group; 2] = [
    Group { port: 7, access: scsi::Access::Optimized },
    Group { port: 0x1234, access: scsi::Access::Detour },
];

/// What a command is answered: its status, and its data or its sense.
fn ask(host: &mut Host, targets: &mut Targets, number: u32, flags: u8, cdb: &[u8]) -> (u8, Vec<u8>) {
    host.feed(targets, &scsi(flags, number, number, 4096, cdb, &[]));
    let replies: Vec<(Header, Vec<u8>)> = host.replies();
    let status = replies.last().expect("an answer").0.0[3];
    (status, replies.into_iter().flat_map(|(_, data)| data).collect())
}

/// A session with a disk that is served here as port 7, and elsewhere.
fn shared() -> (Targets, Host) {
    let disk = target(Access::default());
    let (mut alone, id) = disk;
    let disk = alone.unit(id, 0).expect("the disk").properties().clone();
    let mut targets = Targets::at(7);
    targets.add_portal("192.0.2.1:3260");
    let id = targets.add_target(TARGET, Access::default()).expect("the first");
    assert!(targets.add_unit(id, 0, disk, Reservations::default()));
    targets.set_elsewhere(id, vec![("192.0.2.2:3260".into(), 0x1234)]);
    targets.unit(id, 0).expect("the disk").set_groups(GROUPS.to_vec());
    let host = ready(&mut targets, Limits::default(), &[]);
    (targets, host)
}

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
const IDENTIFICATION: [u8; 6] = [0x12, 1, 0x83, 0, 255, 0];
const REPORT_GROUPS: [u8; 12] = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

#[test]
fn the_ways_are_told_as_spc_has_them() {
    let (mut targets, mut host) = shared();
    let targets = &mut targets;
    let (status, data) = ask(&mut host, targets, 2, 0xc0, &INQUIRY);
    assert_eq!((status, data[5]), (0, 0x10), "TPGS: implicit");
    let (_, page) = ask(&mut host, targets, 3, 0xc0, &IDENTIFICATION);
    let holds = |part: &[u8]| page.windows(part.len()).any(|window| window == part);
    assert!(holds(&[0x51, 0x94, 0, 4, 0, 0, 0, 7]), "the relative target port: {page:x?}");
    assert!(holds(&[0x51, 0x95, 0, 4, 0, 0, 0, 7]), "the target port group: {page:x?}");
    // SPC-4 tables 263 and 264: length; group 7, optimized, port 7; group 0x1234, not optimized, port 0x1234
    let groups =
        [[0, 0x0b, 0, 7, 0, 2, 0, 1, 0, 0, 0, 7], [1, 0x0b, 0x12, 0x34, 0, 2, 0, 1, 0, 0, 0x12, 0x34]];
    let told = [&[0, 0, 0, 24][..], &groups.concat()].concat();
    assert_eq!(ask(&mut host, targets, 4, 0xc0, &REPORT_GROUPS), (0, told));
    let mut extended = REPORT_GROUPS;
    extended[1] |= 0x20;
    let told = [&[0, 0, 0, 28, 0x10, 0, 0, 0][..], &groups.concat()].concat();
    assert_eq!(ask(&mut host, targets, 5, 0xc0, &extended), (0, told));
}

#[test]
fn a_state_that_changes_is_told_once() {
    let (mut targets, id) = target(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    let mut groups = GROUPS.to_vec();
    targets.unit(id, 0).expect("the disk").set_groups(groups.clone());
    let (status, sense) = ask(&mut host, &mut targets, 2, 0x80, &[0; 6]);
    assert_eq!(
        (status, sense[4] & 0xf, &sense[14..16]),
        (2, 6, &[0x2a, 6][..]),
        "ASYMMETRIC ACCESS STATE CHANGED"
    );
    targets.unit(id, 0).expect("the disk").set_groups(groups.clone());
    assert_eq!(ask(&mut host, &mut targets, 3, 0x80, &[0; 6]).0, 0, "nothing has changed");
    groups[1].access = scsi::Access::Unavailable;
    targets.unit(id, 0).expect("the disk").set_groups(groups);
    assert_eq!(ask(&mut host, &mut targets, 4, 0x80, &[0; 6]).0, 2);
    let (_, told) = ask(&mut host, &mut targets, 5, 0xc0, &REPORT_GROUPS);
    assert_eq!(told[4 + 12], 3, "unavailable");
}

/// PERSISTENT RESERVE OUT with a 24-byte list, as a whole command.
fn reserve_out(
    host: &mut Host,
    targets: &mut Targets,
    number: u32,
    action: u8,
    keys: [u8; 2],
    flags: u8,
) -> u8 {
    let mut list = [0; 24];
    (list[7], list[15], list[20]) = (keys[0], keys[1], flags);
    let cdb = [0x5f, action, 5, 0, 0, 0, 0, 0, 24, 0]; // write exclusive, registrants only
    let cdb = if action == 0 { [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0] } else { cdb };
    host.feed(targets, &scsi(0xa0, number, number, 24, &cdb, &list));
    host.replies().last().expect("an answer").0.0[3]
}

#[test]
fn a_registration_belongs_to_a_port_by_the_way_it_came() {
    let (mut targets, mut host) = shared();
    let targets = &mut targets;
    assert_eq!(
        reserve_out(&mut host, targets, 2, 0, [0, 9], 0x04),
        2,
        "ALL_TG_PT: each is registered by itself"
    );
    assert_eq!(reserve_out(&mut host, targets, 3, 0, [0, 9], 0), 0);
    let full_status = [0x5e, 3, 0, 0, 0, 0, 0, 0, 255, 0];
    let (status, told) = ask(&mut host, targets, 4, 0xc0, &full_status);
    assert_eq!((status, &told[..8]), (0, &[0, 0, 0, 1, 0, 0, 0, 24 + 44 + 4][..]));
    assert_eq!(told[8..16], [0, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(told[26..28], [0, 7], "the target port by which it came");
    assert!(told[36..].starts_with(b"iqn.2026-11.example:host,i,0x800000000001\0"), "{:?}", &told[36..]);
    let capabilities = [0x5e, 2, 0, 0, 0, 0, 0, 0, 8, 0];
    assert_eq!(ask(&mut host, targets, 5, 0xc0, &capabilities).1[2], 1, "PTPL_C without ATP_C");
    // What belongs to one session of one node alone, or would be done by one node alone, is not there.
    for (n, opcode) in [0x16, 0x17, 0x48].into_iter().enumerate() {
        let (status, sense) =
            ask(&mut host, targets, 6 + n as u32, 0xc0, &[opcode, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        let code = if opcode == 0x48 { 0x24 } else { 0x20 };
        assert_eq!((status, sense[4] & 0xf, &sense[14..16]), (2, 5, &[code, 0][..]), "{opcode:x}");
    }
    assert_eq!(ask(&mut host, targets, 9, 0x80, &[0x1b, 0, 0, 0, 0, 0]).0, 2, "STOP");
    assert_eq!(ask(&mut host, targets, 10, 0x80, &[0x1b, 0, 0, 0, 1, 0]).0, 0, "START");
    let policy = ask(&mut host, targets, 11, 0xc0, &[0x12, 1, 0x87, 0, 255, 0]).1;
    assert_eq!(policy, [0, 0x87, 0, 4, 0x3f, 0xff, 1, 0], "mode pages: per target port");
    let list = [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0];
    let opcodes = |data: &[u8]| data[4..].chunks_exact(8).map(|c| (c[0], c[3])).collect::<Vec<_>>();
    let told = opcodes(&ask(&mut host, targets, 12, 0xc0, &list).1);
    assert!(told.contains(&(0xa3, 0x0a)) && told.contains(&(0x5f, 0)));
    assert!(!told.iter().any(|(op, _)| [0x16, 0x17, 0x48].contains(op)));
    let (mut alone, _) = target(Access::default());
    let mut host = ready(&mut alone, Limits::default(), &[]);
    let told = opcodes(&ask(&mut host, &mut alone, 2, 0xc0, &list).1);
    assert!(told.contains(&(0x16, 0)) && told.contains(&(0x48, 2)) && !told.contains(&(0xa3, 0x0a)));
    assert_eq!(ask(&mut host, &mut alone, 3, 0xc0, &REPORT_GROUPS).0, 2);
    assert_eq!(ask(&mut host, &mut alone, 4, 0xc0, &INQUIRY).1[5], 0, "TPGS: none");
    assert_eq!(ask(&mut host, &mut alone, 5, 0xc0, &[0x12, 1, 0x87, 0, 255, 0]).0, 2, "one policy for all");
}

#[test]
fn what_another_node_decided_is_told_and_holds() {
    let (mut targets, mut host) = shared();
    let id = host.session.target().expect("it is logged in");
    let targets = &mut targets;
    assert_eq!(reserve_out(&mut host, targets, 2, 0, [0, 9], 0), 0);
    let mine = targets.unit(id, 0).expect("the disk").reservations().clone();
    // By way of another node, another initiator registers, and preempts this one with PREEMPT AND ABORT.
    let mut theirs = mine.clone();
    let change = |action: u8, key: u8, new: u8| {
        let (mut cdb, mut list) = ([0; 16], vec![0; 24]);
        (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, if action == 0 { 0 } else { 5 }, 24);
        (list[7], list[15]) = (key, new);
        Change { cdb, list, port: "iqn.2026-11.example:other,i,0x800000000002,t,0x1234".into() }
    };
    theirs.apply(&change(0, 0, 3)).expect("it registers");
    theirs.apply(&change(1, 3, 0)).expect("it reserves");
    host.hold = true;
    host.feed(targets, &scsi(0xa0, 3, 3, 512, &cdb10(0x2a, 0, 1), &[1; 512]));
    let effects = theirs.apply(&change(5, 3, 9)).expect("it preempts");
    // What travels is text.
    let (told, effects) = Reservations::told(&theirs.tell(&effects)).expect("its own words");
    assert_eq!(told, theirs);
    let epoch = targets.adopt(id, 0, told, &effects);
    assert!(!targets.unit(id, 0).expect("the disk").quiet_before(epoch), "its write is at the storage");
    assert_eq!(targets.next_poked(), Some(host.session.nexus()));
    host.session.poke(targets);
    host.work(targets);
    assert_eq!(host.cancelled.len(), 1);
    host.hold = false;
    host.finish(targets, Outcome::Failed(Fault::Cancelled));
    assert!(host.replies().is_empty(), "an aborted command is not answered");
    assert!(targets.unit(id, 0).expect("the disk").quiet_before(epoch));
    let (status, sense) = ask(&mut host, targets, 4, 0x80, &[0; 6]);
    assert_eq!((status, sense[4] & 0xf, &sense[14..16]), (2, 6, &[0x2a, 5][..]), "REGISTRATIONS PREEMPTED");
    host.feed(targets, &scsi(0xa0, 5, 5, 512, &cdb10(0x2a, 0, 1), &[1; 512]));
    assert_eq!(host.replies().last().expect("an answer").0.0[3], 0x18, "RESERVATION CONFLICT");
    assert_eq!(reserve_out(&mut host, targets, 6, 1, [9, 0], 0), 0x18);
    // Who was away meanwhile finds out from what is left.
    let missed = mine.missed(&theirs);
    assert_eq!(missed.abort, ["iqn.2026-11.example:host,i,0x800000000001,t,0x0007"]);
    assert_eq!(missed.attentions, [(missed.abort[0].clone(), scsi::attention::REGISTRATIONS_PREEMPTED)]);
}

#[test]
fn a_node_that_may_be_out_of_date_says_so_and_does_nothing() {
    let (mut targets, mut host) = shared();
    let id = host.session.target().expect("it is logged in");
    let targets = &mut targets;
    host.hold = true;
    // One write at the storage, one whose data are still to come.
    host.feed(targets, &scsi(0xa0, 2, 2, 512, &cdb10(0x2a, 0, 1), &[1; 512]));
    host.feed(targets, &scsi(0xa0, 3, 3, 1024, &cdb10(0x2a, 8, 2), &[1; 512]));
    let asked = host.replies().pop().expect("R2T").0;
    targets.set_available(id, 0, false);
    assert_eq!(targets.next_poked(), Some(host.session.nexus()));
    host.session.poke(targets);
    host.work(targets);
    assert_eq!(host.cancelled.len(), 1);
    host.finish(targets, Outcome::Failed(Fault::Cancelled));
    host.feed(targets, &data_out(true, 3, asked.ttt(), 0, 512, &[1; 512]));
    // NOT READY, TARGET PORT IN UNAVAILABLE STATE
    let answers = host.replies();
    assert_eq!(answers.len(), 2);
    for (_, sense) in &answers {
        assert_eq!((sense[4] & 0xf, &sense[14..16]), (2, &[4, 0x0c][..]));
    }
    assert!(host.pending.is_empty() && host.disk.iter().all(|byte| *byte == 0));
    for (n, cdb) in [&[0; 6][..], &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0], &cdb10(0x28, 0, 1)].iter().enumerate() {
        let (status, sense) = ask(&mut host, targets, 4 + n as u32, 0xc0, cdb);
        assert_eq!((status, sense[4] & 0xf, &sense[14..16]), (2, 2, &[4, 0x0c][..]), "{cdb:x?}");
    }
    assert_eq!(reserve_out(&mut host, targets, 7, 0, [0, 9], 0), 2);
    assert_eq!(ask(&mut host, targets, 8, 0xc0, &INQUIRY).0, 0);
    assert_eq!(ask(&mut host, targets, 9, 0xc0, &REPORT_GROUPS).0, 0);
    targets.set_available(id, 0, true);
    host.hold = false;
    assert_eq!(ask(&mut host, targets, 10, 0xc0, &cdb10(0x28, 0, 1)).0, 0);
}

#[test]
fn a_list_that_no_memory_should_hold_is_refused() {
    let (mut targets, mut host) = shared();
    let cdb = [0x5f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    host.feed(&mut targets, &scsi(0xa0, 2, 2, u32::MAX, &cdb, &[0; 512]));
    let (header, sense) = host.replies().pop().expect("an answer");
    assert_eq!(
        (header.0[3], sense[4] & 0xf, &sense[14..16]),
        (2, 5, &[0x1a, 0][..]),
        "PARAMETER LIST LENGTH ERROR"
    );
}

#[test]
fn discovery_names_the_portals_of_all_nodes() {
    let (mut targets, _) = shared();
    let mut host = Host::new(&mut targets, Limits::default());
    host.feed(
        &mut targets,
        &login(0x87, &["InitiatorName=iqn.2026-11.example:host", "SessionType=Discovery"]),
    );
    host.replies();
    let mut header = Header::reply(0x04);
    header.put(1, 0x80).put_u32(16, 2).put_u32(20, u32::MAX).put_u32(24, 1);
    host.feed(&mut targets, &pdu(header, b"SendTargets=All\0"));
    let text = String::from_utf8(host.replies().remove(0).1).expect("text");
    let want =
        format!("TargetName={TARGET}\0TargetAddress=192.0.2.1:3260,7\0TargetAddress=192.0.2.2:3260,4660\0");
    assert_eq!(text, want);
}

/// LOGICAL UNIT RESET and its like by a session here: what it is answered once the other nodes have answered so.
fn sweeps(function: u8, elsewhere: scsi::Status) -> (scsi::Sweep, u8, bool) {
    let (mut targets, mut host) = shared();
    let targets = &mut targets;
    host.hold = true;
    host.feed(targets, &scsi(0xa0, 2, 2, 512, &cdb10(0x2a, 0, 1), &[1; 512]));
    host.feed(targets, &manage(function, 9, 3, u32::MAX));
    assert_eq!(host.cancelled.len(), 1, "its own write is given up at once");
    let at = host.pending.iter().position(|command| matches!(command.action, scsi::Action::Sweep(_)));
    let told = host.pending.remove(at.expect("the other nodes are told"));
    host.finish(targets, Outcome::Failed(Fault::Cancelled));
    assert!(host.replies().is_empty(), "the other nodes may still write");
    host.session.complete(targets, told.task, Outcome::Decided(elsewhere), &[]);
    host.hold = false;
    host.work(targets);
    let answers = host.replies();
    let [(header, _)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((header.opcode(), header.itt()), (0x22, 9));
    let scsi::Action::Sweep(what) = told.action else { unreachable!() };
    (what, header.0[2], host.session.is_logged_in())
}

#[test]
fn a_reset_is_complete_when_it_is_at_every_node() {
    use scsi::{Sense, Status, Sweep};
    assert_eq!(sweeps(4, Status::Good), (Sweep::Commands, 0, true));
    assert_eq!(sweeps(5, Status::Good), (Sweep::Unit, 0, true));
    assert_eq!(sweeps(6, Status::Good), (Sweep::Unit, 0, true));
    assert_eq!(sweeps(7, Status::Good), (Sweep::Sessions, 0, false));
    // Not every node could be told: function rejected (RFC 7143 11.6.1).
    assert_eq!(sweeps(5, Status::Busy), (Sweep::Unit, 255, true));
    assert_eq!(sweeps(4, Status::Check(Sense::UNAVAILABLE)), (Sweep::Commands, 255, true));
}

/// A sweep by way of another node comes here while a write is at the storage: what the next command is told.
fn swept(what: scsi::Sweep, missed: bool) -> [u8; 2] {
    let (mut targets, mut host) = shared();
    let id = host.session.target().expect("it is logged in");
    let targets = &mut targets;
    host.hold = true;
    host.feed(targets, &scsi(0xa0, 2, 2, 512, &cdb10(0x2a, 0, 1), &[1; 512]));
    let before = targets.unit(id, 0).expect("the disk").reservations().clone();
    let mut theirs = before.clone();
    let effects = theirs.sweep(what, "n2");
    let (told, mut effects) = Reservations::told(&theirs.tell(&effects)).expect("its own words");
    assert_eq!((&told, effects.sweep.as_ref()), (&theirs, Some(&(what, "n2".to_owned()))));
    if missed {
        // Of a node that was away: two sweeps, of which the worse counts.
        theirs.sweep(scsi::Sweep::Commands, "n3");
        effects = before.missed(&Reservations::told(&theirs.text()).expect("its own words").0);
    }
    let epoch = targets.adopt(id, 0, told, &effects);
    assert!(!targets.unit(id, 0).expect("the disk").quiet_before(epoch), "a write is at the storage");
    while targets.next_poked().is_some() {
        host.session.poke(targets);
    }
    host.work(targets);
    assert_eq!(host.cancelled.len(), 1);
    host.hold = false;
    host.finish(targets, Outcome::Failed(Fault::Cancelled));
    assert!(host.replies().is_empty(), "an aborted command is not answered");
    assert!(targets.unit(id, 0).expect("the disk").quiet_before(epoch));
    if !host.session.is_logged_in() {
        return [0; 2];
    }
    let (status, sense) = ask(&mut host, targets, 3, 0x80, &[0; 6]);
    assert_eq!((status, sense[4] & 0xf), (2, 6));
    assert_eq!(ask(&mut host, targets, 4, 0x80, &[0; 6]).0, 0, "once");
    [sense[14], sense[15]]
}

#[test]
fn a_reset_by_way_of_another_node_is_one_here() {
    use scsi::Sweep;
    for missed in [false, true] {
        assert_eq!(swept(Sweep::Commands, missed), [0x2f, 0], "COMMANDS CLEARED BY ANOTHER INITIATOR");
        assert_eq!(swept(Sweep::Unit, missed), [0x29, 3], "BUS DEVICE RESET FUNCTION OCCURRED");
        assert_eq!(swept(Sweep::Sessions, missed), [0; 2], "the session has ended");
    }
}

/// A disk of which nobody keeps reservations says so; all else is as with any ways.
#[test]
fn a_disk_without_reservations_has_no_command_for_them() {
    let (mut alone, id) = target(Access::default());
    let mut disk = alone.unit(id, 0).expect("the disk").properties().clone();
    disk.reservable = false;
    let mut targets = Targets::at(7);
    let id = targets.add_target(TARGET, Access::default()).expect("the first");
    assert!(targets.add_unit(id, 0, disk, Reservations::default()));
    targets.unit(id, 0).expect("the disk").set_groups(GROUPS.to_vec());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    let register = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    for (n, cdb) in
        [[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0], [0x5e, 2, 0, 0, 0, 0, 0, 0, 8, 0], register].iter().enumerate()
    {
        let (status, sense) = ask(&mut host, &mut targets, 2 + n as u32, 0xc0, cdb);
        assert_eq!(
            (status, sense[4] & 0xf, sense[14]),
            (2, 5, 0x20),
            "INVALID COMMAND OPERATION CODE: {cdb:x?}"
        );
    }
    let (_, told) = ask(&mut host, &mut targets, 5, 0xc0, &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0]);
    let told: Vec<u8> = told[4..].chunks(8).map(|command| command[0]).collect();
    assert!(!told.contains(&0x5e) && !told.contains(&0x5f) && told.contains(&0xa3), "{told:x?}");
    let (status, groups) = ask(&mut host, &mut targets, 6, 0xc0, &REPORT_GROUPS);
    assert_eq!((status, groups.len()), (0, 28));
    assert_eq!(ask(&mut host, &mut targets, 7, 0xc0, &cdb10(0x28, 0, 1)).0, 0);
}

/// A disk whose home moves: commands were taken in by a table that had been replaced elsewhere. Those that the new one forbids are given up.
#[test]
fn what_was_taken_in_by_an_old_table_is_looked_at_again() {
    let (mut targets, mut host) = shared();
    let id = host.session.target().expect("it is logged in");
    let targets = &mut targets;
    targets.set_stale(id, 0, true);
    host.hold = true;
    // A write and a read before the storage, and a write whose data are still to come.
    host.feed(targets, &scsi(0xa0, 2, 2, 512, &cdb10(0x2a, 0, 1), &[1; 512]));
    host.feed(targets, &scsi(0xc0, 3, 3, 512, &cdb10(0x28, 0, 1), &[]));
    host.feed(targets, &scsi(0xa0, 4, 4, 1024, &cdb10(0x2a, 8, 2), &[1; 512]));
    let asked = host.replies().pop().expect("R2T").0;
    assert_eq!(
        ask(&mut host, targets, 5, 0xc0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0]).0,
        8,
        "BUSY: nobody knows"
    );
    // Another initiator reserves by way of another node, for writing.
    let mut next = Reservations::default();
    for (action, key, new) in [(0, 0, 3), (1, 3, 0)] {
        let (mut cdb, mut list) = ([0; 16], vec![0; 24]);
        (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, action, 24);
        (list[7], list[15]) = (key, new);
        let port = "iqn.2026-11.example:other,i,0x800000000002,t,0x1234".into();
        next.apply(&Change { cdb, list, port }).expect("it may");
    }
    targets.adopt(id, 0, next, &scsi::Effects::default());
    host.feed(targets, &scsi(0xa0, 6, 6, 512, &cdb10(0x2a, 0, 1), &[1; 512]));
    assert_eq!(host.replies().pop().expect("an answer").0.0[3], 8, "BUSY: it may be another one's by now");
    targets.set_stale(id, 0, false);
    targets.recheck(id, 0);
    assert_eq!(targets.next_poked(), Some(host.session.nexus()));
    host.session.poke(targets);
    host.work(targets);
    let (write, read) = (host.pending.remove(0), host.pending.remove(0));
    assert_eq!(host.cancelled, [write.task], "the read goes on");
    host.session.complete(targets, write.task, Outcome::Failed(Fault::Cancelled), &[]);
    host.work(targets);
    assert_eq!(host.replies().pop().expect("an answer").0.0[3], 0x18, "RESERVATION CONFLICT");
    host.feed(targets, &data_out(true, 4, asked.ttt(), 0, 512, &[1; 512]));
    assert_eq!(host.replies().pop().expect("an answer").0.0[3], 0x18, "it never comes to the storage");
    assert!(host.pending.is_empty());
    host.buffers.insert(read.task, vec![0; 512]);
    host.session.complete(targets, read.task, Outcome::Done, &[0; 512]);
    host.work(targets);
    assert_eq!(host.replies().pop().expect("an answer").0.0[3], 0);
    assert_eq!(ask(&mut host, targets, 7, 0xc0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 16, 0]).1[7], 8, "one key");
}
