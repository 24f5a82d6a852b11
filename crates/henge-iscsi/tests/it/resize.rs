//! A disk that has another capacity is one that every initiator hears of once, whatever it asks next.

use crate::host::*;
use henge_iscsi::chap::Access;
use henge_iscsi::{Limits, Targets};

/// What a command is answered: its status, its sense (key, and additional code), and its data.
fn ask(host: &mut Host, targets: &mut Targets, number: u32, cdb: &[u8]) -> (u8, (u8, u16), Vec<u8>) {
    host.feed(targets, &scsi(0xc0, number, number, 4096, cdb, &[]));
    let replies = host.replies();
    let (last, sense) = replies.last().expect("an answer");
    let status = last.0[3];
    let sense = match status {
        2 => (sense[4] & 0xf, u16::from_be_bytes([sense[14], sense[15]])),
        _ => (0, 0),
    };
    let data = replies.iter().filter(|(header, _)| header.0[0] & 0x3f == 0x25);
    (status, sense, data.flat_map(|(_, data)| data.clone()).collect())
}

fn login_as(name: &str, targets: &mut Targets) -> Host {
    let mut host = Host::new(targets, Limits::default());
    let (initiator, target) = (format!("InitiatorName={name}"), format!("TargetName={TARGET}"));
    host.feed(targets, &login(0x87, &[&initiator, "SessionType=Normal", &target]));
    host.replies();
    assert_eq!(ask(&mut host, targets, 1, &[0; 6]).1, (6, 0x2900), "POWER ON is reported first");
    host
}

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const READ_CAPACITY: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
const CHANGED: (u8, (u8, u16), Vec<u8>) = (2, (6, 0x2a09), Vec::new());

#[test]
fn every_session_is_told_of_a_resize_once() {
    let (mut targets, id) = target(Access::default());
    let (mut a, mut b) = (login_as("iqn.x:a", &mut targets), login_as("iqn.x:b", &mut targets));
    let targets = &mut targets;
    assert_eq!(ask(&mut a, targets, 2, &READ_CAPACITY), (0, (0, 0), vec![0, 0, 7, 0xff, 0, 0, 2, 0]));
    targets.unit(id, 0).expect("the disk").resize(2 * BYTES as u64);
    // INQUIRY goes through and takes no attention away (SAM-5 5.14); everything else is told first.
    assert_eq!(ask(&mut a, targets, 3, &INQUIRY).0, 0);
    assert_eq!(ask(&mut a, targets, 4, &cdb10(0x28, 0, 1)), CHANGED);
    let grown = (0, (0, 0), vec![0, 0, 0xf, 0xff, 0, 0, 2, 0]);
    assert_eq!(ask(&mut a, targets, 5, &READ_CAPACITY), grown);
    assert_eq!(ask(&mut b, targets, 2, &READ_CAPACITY), CHANGED, "the other is told as well");
    assert_eq!(ask(&mut b, targets, 3, &READ_CAPACITY), grown);
    // Who comes later finds it as it is.
    let mut late = login_as("iqn.x:c", targets);
    assert_eq!(ask(&mut late, targets, 2, &TEST_UNIT_READY).0, 0);
    // Twice before it asks is one thing to tell; no change is none.
    targets.unit(id, 0).expect("the disk").resize(3 * BYTES as u64);
    targets.unit(id, 0).expect("the disk").resize(4 * BYTES as u64);
    assert_eq!(ask(&mut a, targets, 6, &TEST_UNIT_READY), CHANGED);
    targets.unit(id, 0).expect("the disk").resize(4 * BYTES as u64);
    assert_eq!(ask(&mut a, targets, 7, &TEST_UNIT_READY).0, 0);
}

#[test]
fn beyond_the_new_end_there_is_nothing() {
    let (mut targets, id) = target(Access::default());
    let mut host = login_as("iqn.x:a", &mut targets);
    let last = [0x28, 0, 0, 0, 7, 0xff, 0, 0, 1, 0];
    assert_eq!(ask(&mut host, &mut targets, 2, &last).0, 0);
    targets.unit(id, 0).expect("the disk").resize(BYTES as u64 / 2);
    assert_eq!(ask(&mut host, &mut targets, 3, &last), CHANGED);
    assert_eq!(ask(&mut host, &mut targets, 4, &last).1, (5, 0x2100), "LBA OUT OF RANGE");
}
