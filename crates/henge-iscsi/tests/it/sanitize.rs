//! What was taken in before a SANITIZE began, and comes to the medium after it.

use crate::host::*;
use henge_iscsi::Limits;
use henge_iscsi::chap::Access;
use henge_iscsi::wire::{Header, response};

const SANITIZE: u8 = 0x48;
/// At once answered, and done in the background: BLOCK ERASE, OVERWRITE.
const ERASE: [u8; 10] = [SANITIZE, 0x82, 0, 0, 0, 0, 0, 0, 0, 0];
const OVERWRITE: [u8; 10] = [SANITIZE, 0x81, 0, 0, 0, 0, 0, 0, 5, 0];

/// The R2T's tag.
fn asked(host: &mut Host) -> u32 {
    let (header, _) = host.replies().pop().expect("data are asked for");
    assert_eq!(header.opcode(), response::R2T);
    header.ttt()
}

/// Status, sense key and additional sense code.
fn ended((header, data): &(Header, Vec<u8>)) -> (u8, u8, u16) {
    let sense = data.get(2..).unwrap_or_default();
    let code = if sense.len() > 13 { u16::from_be_bytes([sense[12], sense[13]]) } else { 0 };
    (header.0[3], sense.get(2).map_or(0, |key| key & 0x0f), code)
}

const IN_PROGRESS: (u8, u8, u16) = (0x02, 0x02, 0x041b);

#[test]
fn a_write_whose_data_come_late_leaves_nothing_on_the_medium() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    host.feed(&mut targets, &scsi(0xa0, 5, 2, 512, &cdb10(0x2a, 0, 1), &[]));
    let tag = asked(&mut host);
    host.feed(&mut targets, &scsi(0x80, 6, 3, 0, &ERASE, &[]));
    assert_eq!(ended(&host.replies()[0]), (0, 0, 0));
    host.feed(&mut targets, &data_out(true, 5, tag, 0, 0, &[7; 512]));
    assert_eq!(ended(&host.replies()[0]), IN_PROGRESS);
    assert!(host.disk.iter().all(|byte| *byte == 0));
}

#[test]
fn of_two_whose_lists_come_late_one_is_done() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    let list = [1, 0, 0, 1, 0x55];
    let tags = [5, 6].map(|itt| {
        host.feed(&mut targets, &scsi(0xa0, itt, itt - 3, 5, &OVERWRITE, &[]));
        asked(&mut host)
    });
    for (itt, expected) in [(5, (0, 0, 0)), (6, IN_PROGRESS)] {
        host.feed(&mut targets, &data_out(true, itt, tags[itt as usize - 5], 0, 0, &list));
        assert_eq!(ended(&host.replies()[0]), expected);
    }
}
