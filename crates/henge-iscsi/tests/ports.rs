//! A disk that several nodes serve: what an initiator is told of the ways to it, and that reservations are not pretended.

mod host;

use henge_iscsi::chap::Access;
use henge_iscsi::scsi::{self, Group, Reservations};
use henge_iscsi::wire::Header;
use henge_iscsi::{Limits, Targets};
use host::*;

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
    let disk = alone.unit(id, 0).expect("the disk").disk().clone();
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

#[test]
fn reservations_are_refused_where_they_would_not_hold() {
    let (mut targets, mut host) = shared();
    let targets = &mut targets;
    let commands: [&[u8]; 5] = [
        &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], // PERSISTENT RESERVE OUT, REGISTER
        &[0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0], // and RESERVE
        &[0x5e, 0, 0, 0, 0, 0, 0, 0, 255, 0],
        &[0x16, 0, 0, 0, 0, 0],
        &[0x17, 0, 0, 0, 0, 0],
    ];
    for (n, cdb) in commands.iter().enumerate() {
        let (status, sense) = ask(&mut host, targets, 2 + n as u32, 0xc0, cdb);
        // ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE: there is no such command on this disk
        assert_eq!((status, sense[4] & 0xf, &sense[14..16]), (2, 5, &[0x20, 0][..]), "{cdb:x?}");
    }
    // And the list of commands says so; on a disk of one node alone it has them, and no groups.
    let list = [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0];
    let opcodes = |data: &[u8]| data[4..].chunks_exact(8).map(|c| (c[0], c[3])).collect::<Vec<_>>();
    let told = opcodes(&ask(&mut host, targets, 7, 0xc0, &list).1);
    assert!(
        told.contains(&(0xa3, 0x0a)) && !told.iter().any(|(op, _)| [0x5e, 0x5f, 0x16, 0x17].contains(op))
    );
    let (mut alone, _) = target(Access::default());
    let mut host = ready(&mut alone, Limits::default(), &[]);
    let told = opcodes(&ask(&mut host, &mut alone, 2, 0xc0, &list).1);
    assert!(told.contains(&(0x5f, 0)) && !told.contains(&(0xa3, 0x0a)));
    assert_eq!(ask(&mut host, &mut alone, 3, 0xc0, &REPORT_GROUPS).0, 2);
    assert_eq!(ask(&mut host, &mut alone, 4, 0xc0, &INQUIRY).1[5], 0, "TPGS: none");
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
