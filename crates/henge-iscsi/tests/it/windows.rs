//! Commands that are longer than a piece: what is held, what is said, and that every byte is where it belongs.

use crate::host::*;
use henge_core::Fault;
use henge_iscsi::Limits;
use henge_iscsi::chap::Access;
use henge_iscsi::scsi::Outcome;
use henge_iscsi::wire::response;
use proptest::prelude::*;

/// Bytes of a piece.
const PIECE: usize = 128 << 10;
const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;

fn limits() -> Limits {
    Limits { piece: PIECE as u64, ..Limits::default() }
}

fn cdb(opcode: u8, lba: usize, blocks: usize) -> [u8; 10] {
    let (lba, blocks) = ((lba as u32).to_be_bytes(), (blocks as u16).to_be_bytes());
    [opcode, 0, lba[0], lba[1], lba[2], lba[3], 0, blocks[0], blocks[1], 0]
}

fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

#[test]
fn a_reader_that_takes_nothing_holds_a_piece() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, limits(), &[]);
    host.deaf = true;
    host.feed(&mut targets, &scsi(0xc0, 10, 2, 1 << 20, &cdb(READ, 0, 2048), &[]));
    assert_eq!(host.buffers.values().map(Vec::len).sum::<usize>(), PIECE);
    host.deaf = false;
    host.work(&mut targets);
    assert_eq!((host.largest, host.buffers.len()), (PIECE, 0));
    assert_eq!(host.replies().iter().map(|(_, data)| data.len()).sum::<usize>(), 1 << 20);
}

#[test]
fn a_read_that_fails_after_its_beginning_says_so_and_how_much_was_sent() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, limits(), &["MaxRecvDataSegmentLength=65536"]);
    host.hold = true;
    host.feed(&mut targets, &scsi(0xc0, 10, 2, 512 << 10, &cdb(READ, 0, 1024), &[]));
    host.finish(&mut targets, Outcome::Done);
    assert_eq!(host.replies().len(), PIECE >> 16, "the first piece, in Data-In PDUs of 64 KiB");
    host.finish(&mut targets, Outcome::Failed(Fault::Io));
    let replies = host.replies();
    let (header, _) = &replies[0];
    // SCSI response: CHECK CONDITION, ExpDataSN 2 (RFC 7143 11.4.8)
    assert_eq!((replies.len(), header.opcode(), header.0[3], header.u32_at(36)), (1, 0x21, 2, 2));
    assert!(host.buffers.is_empty() && host.pending.is_empty());
}

/// Aborted while its piece is on the way: that still goes out, nothing more is read, and the buffer is given back once.
#[test]
fn a_read_that_is_aborted_between_pieces_ends() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, limits(), &[]);
    host.deaf = true;
    host.feed(&mut targets, &scsi(0xc0, 10, 2, 1 << 20, &cdb(READ, 0, 2048), &[]));
    host.feed(&mut targets, &manage(1, 11, 3, 10)); // ABORT TASK
    assert_eq!(host.buffers.len(), 1, "its bytes are still to be sent");
    host.deaf = false;
    host.work(&mut targets);
    let replies = host.replies();
    let (last, _) = replies.last().expect("the function is answered");
    assert_eq!((last.opcode(), last.0[2], last.itt()), (response::TASK, 0, 11));
    assert_eq!(replies.iter().map(|(_, data)| data.len()).sum::<usize>(), PIECE);
    assert!(host.buffers.is_empty());
    host.feed(&mut targets, &scsi(0xc0, 12, 4, 512, &cdb(READ, 0, 1), &[]));
    assert_eq!(host.replies()[0].1.len(), 512, "the session goes on");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A WRITE of any length is asked for piece by piece and is where it belongs; a READ of it comes whole, in order, with one status.
    #[test]
    fn long_commands_move_every_byte(
        lba in 0usize..40,
        blocks in 1usize..2000,
        segment in prop_oneof![Just(512usize), Just(8192), Just(262_144)],
        burst in prop_oneof![Just(4096usize), Just(65_536), Just(1 << 20)],
        immediate in any::<bool>(),
    ) {
        let mut targets = targets(Access::default());
        let terms = [format!("MaxRecvDataSegmentLength={segment}"), format!("MaxBurstLength={burst}")];
        let asked = if immediate { "ImmediateData=Yes" } else { "ImmediateData=No" };
        let mut host = ready(&mut targets, limits(), &[&terms[0], &terms[1], asked]);
        let (from, len) = (lba * 512, blocks * 512);
        let data: Vec<u8> = (0..len).map(byte).collect();
        let first = if immediate { len.min(2048).min(burst) } else { 0 };
        host.feed(&mut targets, &scsi(0xa0, 10, 2, len as u32, &cdb(WRITE, lba, blocks), &data[..first]));
        let mut done = first;
        let mut asks = 0;
        while done < len {
            let (ask, _) = host.replies().remove(0);
            prop_assert_eq!((ask.opcode(), ask.u32_at(36), ask.u32_at(40)), (response::R2T, asks, done as u32));
            let wanted = ask.u32_at(44) as usize;
            prop_assert!(wanted <= burst && done + wanted <= len);
            let held: usize = host.buffers.values().map(Vec::len).sum();
            prop_assert!(held <= PIECE, "{} held", held);
            for (number, part) in data[done..done + wanted].chunks(65_536).enumerate() {
                let at = number * 65_536;
                let last = at + part.len() == wanted;
                host.feed(&mut targets, &data_out(last, 10, ask.ttt(), number as u32, (done + at) as u32, part));
            }
            (done, asks) = (done + wanted, asks + 1);
        }
        let (header, _) = host.replies().remove(0);
        prop_assert_eq!((header.opcode(), header.0[3], header.u32_at(44)), (0x21, 0, 0));
        prop_assert!(host.disk[from..from + len] == data && host.buffers.is_empty());
        prop_assert!(host.disk[..from].iter().chain(&host.disk[from + len..]).all(|byte| *byte == 0));

        host.feed(&mut targets, &scsi(0xc0, 11, 3, len as u32, &cdb(READ, lba, blocks), &[]));
        let replies = host.replies();
        let mut at = 0;
        for (number, (header, part)) in replies.iter().enumerate() {
            prop_assert_eq!((header.opcode(), header.u32_at(36), header.u32_at(40)), (0x25, number as u32, at as u32));
            prop_assert!(part.len() <= segment && part[..] == data[at..at + part.len()]);
            at += part.len();
            let last = number + 1 == replies.len();
            prop_assert_eq!(header.0[1] & 1 == 1, last, "one status, at the end");
            prop_assert!((header.0[1] & 0x80 != 0) == (last || at % burst == 0), "F ends bursts");
        }
        prop_assert_eq!(at, len);
        prop_assert!(host.largest <= PIECE && host.buffers.is_empty());
    }
}
