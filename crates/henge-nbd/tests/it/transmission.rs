//! The transmission phase, byte by byte as doc/proto.md of the NetworkBlockDevice project has it. Expected bytes are
//! written by hand from that text: "Request message", "Simple reply message", "Structured reply chunk message",
//! "Structured reply types", "Request types", "Error values".

use crate::common::{NOW, Server, h};
use henge_core::{Fault, Instant};
use henge_nbd::{
    Answer, BlockSize, Closed, CommandKind, Error, Export, Extent, Limits, Piece, Rest, Session,
    SessionEvent, Wants,
};

const OPT: &str = "49484156454F5054";
const REQ: &str = "25609513";
const SIMPLE: &str = "67446698";
const CHUNK: &str = "668e33ef";

/// In the transmission phase, on "disk" of 1 MiB.
fn entered(export: Export, structured: bool, limits: Limits) -> Server {
    let mut s = Server::new(vec![export], limits);
    s.feed(&h("00000003"));
    if structured {
        s.feed(&h(&format!("{OPT} 00000008 00000000")));
        s.feed(&h(&format!("{OPT} 0000000a 0000001f 00000004 'disk' 00000001 0000000f 'base:allocation'")));
    }
    s.feed(&h(&format!("{OPT} 00000001 00000004 'disk'")));
    s.take();
    assert_eq!(s.event(), SessionEvent::Entered { export: 0 });
    s
}
fn disk() -> Export {
    Export::new("disk", 1 << 20)
}
fn plain() -> Server {
    entered(disk(), false, Limits::default())
}
fn structured() -> Server {
    entered(disk(), true, Limits::default())
}
/// magic, flags, type, cookie, offset, length
fn request(flags: u16, kind: u16, cookie: u64, offset: u64, len: u32) -> String {
    format!("{REQ} {flags:04x} {kind:04x} {cookie:016x} {offset:016x} {len:08x}")
}
const C: &str = "a1b2c3d4e5f60718";
const COOKIE: u64 = 0xa1b2_c3d4_e5f6_0718;

#[test]
fn a_read_with_simple_replies() {
    let mut s = plain();
    s.talk(&request(0, 0, COOKIE, 0x200, 4), "");
    let command = s.command();
    assert_eq!((command.kind, command.offset, command.len), (CommandKind::Read { df: false }, 0x200, 4));
    assert_eq!(command.arrival, NOW);
    s.buffers.get_mut(&command.id).unwrap().copy_from_slice(b"data");
    assert!(s.session.reply(command.id, Answer::Done));
    assert_eq!((s.session.in_flight(), s.session.buffered()), (1, 4), "until it is written");
    s.talk("", &format!("{SIMPLE} 00000000 {C} 'data'"));
    assert_eq!((s.session.in_flight(), s.session.buffered()), (0, 0));
    // "It MUST NOT send any payload" with an error.
    s.talk(&request(0, 0, COOKIE, 0, 4), "");
    let id = s.command().id;
    assert!(!s.session.reply(id, Answer::Fault(Fault::Io)));
    s.talk("", &format!("{SIMPLE} 00000005 {C}"));
}

#[test]
fn a_read_with_structured_replies() {
    let mut s = structured();
    let read = request(0, 0, COOKIE, 0x1000, 8);
    s.talk(&read, "");
    let id = s.command().id;
    s.buffers.get_mut(&id).unwrap().copy_from_slice(b"12345678");
    s.session.reply(id, Answer::Done);
    s.talk("", &format!("{CHUNK} 0001 0001 {C} 00000010 0000000000001000 '12345678'"));
    // Data, a hole, data: chunks in order, then NONE.
    s.talk(&read, "");
    let id = s.command().id;
    s.buffers.get_mut(&id).unwrap().copy_from_slice(b"12\0\0\x005678"[..8].try_into().unwrap());
    let piece = |len, hole| Piece { len, hole };
    assert!(s.session.reply(id, Answer::Pieces(&[piece(2, false), piece(3, true), piece(3, false)])));
    s.talk(
        "",
        &format!(
            "{CHUNK} 0000 0001 {C} 0000000a 0000000000001000 '12'
             {CHUNK} 0000 0002 {C} 0000000c 0000000000001002 00000003
             {CHUNK} 0000 0001 {C} 0000000b 0000000000001005 '567'
             {CHUNK} 0001 0000 {C} 00000000"
        ),
    );
    assert_eq!(s.session.in_flight(), 0);
    // A hole alone needs no buffer.
    s.talk(&read, "");
    let id = s.command().id;
    assert!(!s.session.reply(id, Answer::Pieces(&[piece(8, true)])));
    s.talk(
        "",
        &format!("{CHUNK} 0000 0002 {C} 0000000c 0000000000001000 00000008 {CHUNK} 0001 0000 {C} 00000000"),
    );
    // DF: one content chunk, the zeroes in it.
    s.talk(&request(4, 0, COOKIE, 0x1000, 8), "");
    let command = s.command();
    assert_eq!(command.kind, CommandKind::Read { df: true });
    s.session.reply(command.id, Answer::Pieces(&[piece(2, true), piece(6, true)]));
    s.talk("", &format!("{CHUNK} 0001 0001 {C} 00000010 0000000000001000 0000000000000000"));
    // An error, with its message.
    s.talk(&read, "");
    let id = s.command().id;
    s.session.reply(id, Answer::Failed(Error::Io, "bad sector"));
    s.talk("", &format!("{CHUNK} 0001 8001 {C} 00000010 00000005 000a 'bad sector'"));
}

#[test]
fn a_write_arrives_when_its_last_byte_does() {
    let mut s = structured();
    s.talk(&request(1, 1, COOKIE, 0x10, 6), "");
    let Wants::Payload { id, at: 0, len: 6 } = s.session.wants() else { panic!("{:?}", s.session.wants()) };
    assert_eq!(s.session.payload(4, Instant::from_nanos(2_000)), None);
    assert_eq!(s.session.wants(), Wants::Payload { id, at: 4, len: 2 });
    let command = s.session.payload(2, Instant::from_nanos(3_000)).unwrap();
    assert_eq!((command.kind, command.offset, command.len), (CommandKind::Write, 0x10, 6));
    assert!(command.fua);
    assert_eq!(command.arrival, Instant::from_nanos(3_000));
    assert!(!s.session.reply(id, Answer::Done));
    s.talk("", &format!("{SIMPLE} 00000000 {C}"));
}

#[test]
fn commands_without_payload() {
    let mut s = structured();
    let zeroes = |no_hole, fast| CommandKind::WriteZeroes { no_hole, fast };
    for (flags, kind, len, expected) in [
        (0, 3, 0, CommandKind::Flush),
        (1, 3, 0, CommandKind::Flush), // FUA is accepted on every command
        (0, 4, 512, CommandKind::Trim),
        (0, 5, 512, CommandKind::Cache),
        (0, 6, 0x10_0000, zeroes(false, false)),
        (2, 6, 512, zeroes(true, false)),
        (0x11, 6, 512, zeroes(false, true)),
        (0, 7, 512, CommandKind::BlockStatus { one: false }),
        (8, 7, 512, CommandKind::BlockStatus { one: true }),
    ] {
        s.talk(&request(flags, kind, COOKIE, 0, len), "");
        let command = s.command();
        assert_eq!((command.kind, command.len, command.fua), (expected, len, flags & 1 == 1));
        if !matches!(expected, CommandKind::BlockStatus { .. }) {
            assert!(!s.session.reply(command.id, Answer::Done));
            s.talk("", &format!("{SIMPLE} 00000000 {C}"));
        }
    }
}

#[test]
fn block_status() {
    let mut s = structured();
    let extent = |len, hole, zero| Extent { len, hole, zero };
    let extents = [extent(0x1000, false, false), extent(0x3000, true, true)];
    s.talk(&request(0, 7, COOKIE, 0, 0x2000), "");
    let id = s.command().id;
    s.session.reply(id, Answer::Extents(&extents));
    s.talk("", &format!("{CHUNK} 0001 0005 {C} 00000014 00000001 00001000 00000000 00003000 00000003"));
    // "exactly one extent, which may not exceed the request" with REQ_ONE
    s.talk(&request(8, 7, COOKIE, 0, 0x800), "");
    let id = s.command().id;
    s.session.reply(id, Answer::Extents(&extents));
    s.talk("", &format!("{CHUNK} 0001 0005 {C} 0000000c 00000001 00000800 00000000"));
    // What is not known is data.
    s.talk(&request(0, 7, COOKIE, 0, 0x800), "");
    let id = s.command().id;
    s.session.reply(id, Answer::Done);
    s.talk("", &format!("{CHUNK} 0001 0005 {C} 0000000c 00000001 00000800 00000000"));
    // Without a context, or of nothing: EINVAL.
    s.talk(
        &request(0, 7, COOKIE, 0, 0),
        &format!("{CHUNK} 0001 8001 {C} 00000017 00000016 0011 'status of nothing'"),
    );
    plain().talk(&request(0, 7, COOKIE, 0, 1), &format!("{SIMPLE} 00000016 {C}"));
}

/// proto, "Error values": what a server should return for what.
#[test]
fn requests_that_are_wrong() {
    let (einval, enospc, eperm) = (0x16, 0x1c, 0x01);
    let end = 1 << 20;
    let mut s = plain();
    for (flags, kind, offset, len, error) in [
        (0, 0, end - 1, 2, einval),         // read beyond the end
        (0, 0, u64::MAX, 1, einval),        // wrapping around
        (0, 0, u64::MAX, u32::MAX, einval), //
        (0, 4, end, 1, einval),             // trim
        (0, 5, end, 1, einval),             // cache
        (0, 6, end - 1, 2, enospc),         // write zeroes
        (0, 3, 1, 0, einval),               // a flush with an offset
        (0, 3, 0, 1, einval),               // … or a length
        (0, 8, 0, 0, einval),               // RESIZE, which we do not have
        (0, 0xffff, 0, 0, einval),          // unknown
        (2, 0, 0, 1, einval),               // NO_HOLE on a read
        (4, 0, 0, 1, einval),               // DF without structured replies
        (0x20, 0, 0, 1, einval),            // PAYLOAD_LEN without extended headers
        (4, 4, 0, 1, einval),               // DF on a trim
    ] {
        s.talk(&request(flags, kind, COOKIE, offset, len), &format!("{SIMPLE} {error:08x} {C}"));
    }
    assert_eq!((s.events.len(), s.session.in_flight()), (0, 0));
    // A write's payload is skipped first.
    s.talk(&(request(0, 1, COOKIE, end - 1, 2) + "'xx'"), &format!("{SIMPLE} {enospc:08x} {C}"));
    s.talk(&(request(2, 1, COOKIE, 0, 2) + "'xx'"), &format!("{SIMPLE} {einval:08x} {C}"));
    s.talk(&request(0, 1, COOKIE, end + 1, 0), &format!("{SIMPLE} {enospc:08x} {C}"));
    // Read-only.
    let mut s = entered(Export { read_only: true, ..disk() }, false, Limits::default());
    s.talk(&(request(0, 1, COOKIE, 0, 2) + "'xx'"), &format!("{SIMPLE} {eperm:08x} {C}"));
    s.talk(&request(0, 4, COOKIE, 0, 2), &format!("{SIMPLE} {eperm:08x} {C}"));
    s.talk(&request(0, 6, COOKIE, 0, 2), &format!("{SIMPLE} {eperm:08x} {C}"));
    // Not exposed, so not to be used.
    let export = Export { trim: false, cache: false, fast_zero: false, ..disk() };
    let mut s = entered(export, false, Limits::default());
    for (flags, kind) in [(0, 4), (0, 5), (0x10, 6)] {
        s.talk(&request(flags, kind, COOKIE, 0, 2), &format!("{SIMPLE} {einval:08x} {C}"));
    }
    // Blocks.
    let block = BlockSize { least: 512, preferred: 4096, most: 1 << 16 };
    let mut s = entered(Export { block, ..disk() }, true, Limits::default());
    let unaligned = "'not a multiple of the smallest block'";
    s.talk(
        &request(0, 0, COOKIE, 256, 512),
        &format!("{CHUNK} 0001 8001 {C} 0000002a 00000016 0024 {unaligned}"),
    );
    s.talk(
        &request(0, 0, COOKIE, 512, 256),
        &format!("{CHUNK} 0001 8001 {C} 0000002a 00000016 0024 {unaligned}"),
    );
    // Too long a read: EOVERFLOW is for structured replies only.
    s.feed(&h(&request(0, 0, COOKIE, 0, (1 << 16) + 512)));
    assert_eq!(s.take()[20..24], [0, 0, 0, 75]);
    let mut s = entered(Export { block, ..disk() }, false, Limits::default());
    s.talk(&request(0, 0, COOKIE, 0, (1 << 16) + 512), &format!("{SIMPLE} {einval:08x} {C}"));
}

#[test]
fn a_write_that_is_too_long_is_skipped_within_a_bound() {
    let limits = Limits { skip: 40 << 20, ..Limits::default() };
    let mut s = entered(Export::new("disk", 1 << 40), false, limits);
    let len = (32 << 20) + 1;
    s.talk(&request(0, 1, COOKIE, 0, len), "");
    assert_eq!((s.session.wants(), s.session.buffered()), (Wants::Bytes, 0));
    for _ in 0..32 {
        s.feed(&[7; 1 << 20]);
    }
    s.talk("07", &format!("{SIMPLE} 00000016 {C}"));
    s.talk(&request(0, 3, COOKIE, 0, 0), "");
    assert_eq!(s.command().kind, CommandKind::Flush);
    s.talk(&request(0, 1, COOKIE, 0, (40 << 20) + 1), "");
    assert!(matches!(s.event(), SessionEvent::Closed(Closed::Garbage(_))));
}

#[test]
fn a_driver_without_a_buffer_refuses_the_payload() {
    let mut s = plain();
    s.talk(&request(0, 1, COOKIE, 0, 6), "");
    s.session.payload(2, NOW);
    s.session.refuse_payload(Error::NoMemory, "no buffer");
    assert_eq!(s.session.in_flight(), 0);
    s.talk("'xxx'", "");
    s.talk("'x'", &format!("{SIMPLE} 0000000c {C}"));
}

/// Faults as errors; ENOTSUP and EOVERFLOW only where the protocol has them.
#[test]
fn faults_become_errors() {
    let mut s = plain();
    for (flags, kind, fault, error) in [
        (0, 0, Fault::Io, 5),
        (0, 0, Fault::Unreachable, 5),
        (0, 0, Fault::Cancelled, 5),
        (0, 6, Fault::NoSpace, 28),
        (0, 6, Fault::OutOfRange, 28),
        (0, 0, Fault::OutOfRange, 22),
        (0, 6, Fault::Unsupported, 22),
        (0x10, 6, Fault::Unsupported, 95),
    ] {
        s.talk(&request(flags, kind, COOKIE, 0, 4), "");
        let id = s.command().id;
        s.session.reply(id, Answer::Fault(fault));
        s.talk("", &format!("{SIMPLE} {error:08x} {C}"));
    }
}

#[test]
fn disconnecting_answers_what_is_in_flight() {
    let mut s = plain();
    s.talk(&(request(0, 0, COOKIE, 0, 2) + &request(0, 2, 0, 0, 0)), "");
    let id = s.command().id;
    assert_eq!(s.event(), SessionEvent::Closed(Closed::Disconnect));
    assert_eq!(s.session.wants(), Wants::Nothing);
    assert!(!s.session.is_over());
    s.session.reply(id, Answer::Done);
    s.talk("", &format!("{SIMPLE} 00000000 {C} 0000"));
    assert!(s.session.is_over());
}

#[test]
fn a_paused_session_finishes_what_it_has_begun_and_begins_nothing() {
    let mut s = plain();
    s.talk(&request(0, 0, COOKIE, 0, 1), "");
    s.feed(&h(&(request(0, 1, COOKIE, 0, 2) + "00")));
    s.session.pause();
    // The payload of the write comes; the read behind it is not looked at.
    let read = s.command().id;
    assert!(matches!(s.session.wants(), Wants::Payload { len: 1, .. }));
    let write = s.session.payload(1, NOW).expect("its payload is complete").id;
    assert_eq!((s.session.wants(), s.session.rest()), (Wants::Nothing, None));
    s.session.reply(read, Answer::Done);
    s.session.reply(write, Answer::Done);
    s.talk("", &format!("{SIMPLE} 00000000 {C} 00 {SIMPLE} 00000000 {C}"));
    assert_eq!(s.session.rest(), Some(Rest { structured: false, allocation: false, unread: Vec::new() }));
}

#[test]
fn another_session_goes_on_where_one_rested() {
    let mut s = plain();
    let whole = h(&request(0, 0, COOKIE, 0, 1));
    s.feed(&whole[..9]);
    s.session.pause();
    let rest = s.session.rest().expect("nothing is in flight");
    assert_eq!(rest.unread, whole[..9]);
    s.session = Session::go_on(Limits::default(), &rest, disk());
    s.feed(&rest.unread);
    s.feed(&whole[9..]);
    let id = s.command().id;
    s.session.reply(id, Answer::Done);
    s.talk("", &format!("{SIMPLE} 00000000 {C} 00"));
}

#[test]
fn garbage_closes() {
    for garbage in ["25609514", "'GET '", "00000000"] {
        let mut s = plain();
        s.talk(&(garbage.to_owned() + &"00".repeat(24)), "");
        assert!(matches!(s.event(), SessionEvent::Closed(Closed::Garbage(_))));
    }
}

#[test]
fn a_resized_export_is_checked_against_its_new_size() {
    let mut s = plain();
    s.session.resize(512);
    s.talk(&request(0, 0, COOKIE, 0, 513), &format!("{SIMPLE} 00000016 {C}"));
    s.talk(&request(0, 0, COOKIE, 0, 512), "");
    assert_eq!(s.command().len, 512);
}

/// A client that sends and never reads: commands, buffers and output stay within their bounds.
#[test]
fn what_a_client_can_make_us_hold_is_bounded() {
    let limits = Limits { commands: 10, bytes: 5000, output: 1000, ..Limits::default() };
    let full = |s: &Session| s.wants() == Wants::Nothing;
    // By count.
    let mut s = entered(disk(), false, limits);
    for _ in 0..50 {
        s.feed(&h(&request(0, 3, COOKIE, 0, 0)));
    }
    assert!(full(&s.session));
    assert_eq!((s.events.len(), s.session.in_flight()), (10, 10));
    // One answer makes room for one more.
    let id = s.command().id;
    s.session.reply(id, Answer::Done);
    s.feed(&[]);
    assert_eq!(s.events.len(), 10);
    // By bytes: full at 5000 or just beyond, by one command at most. They count until they are written.
    let mut s = entered(disk(), false, limits);
    for _ in 0..50 {
        s.feed(&h(&request(0, 0, COOKIE, 0, 1024)));
    }
    assert!(full(&s.session));
    assert_eq!((s.events.len(), s.session.buffered()), (5, 5120));
    for _ in 0..5 {
        let id = s.command().id;
        s.session.reply(id, Answer::Done);
    }
    s.feed(&[]);
    assert_eq!(s.events.len(), 0);
    s.take();
    s.feed(&[]);
    assert_eq!(s.events.len(), 5);
    // One longer than the bound is taken in alone, else it never would be.
    let mut s = entered(disk(), false, limits);
    s.feed(&h(&request(0, 0, COOKIE, 0, 8192)));
    assert_eq!(s.events.len(), 1);
    // By output, with requests that are refused.
    let mut s = entered(disk(), false, limits);
    for _ in 0..1000 {
        s.feed(&h(&request(0, 99, COOKIE, 0, 0)));
    }
    assert!(full(&s.session));
    assert!(s.session.output().held() < 1000 + 16);
}

/// Replies are not in the order of requests, and each names its own buffer.
#[test]
fn replies_out_of_order() {
    let mut s = plain();
    s.talk(&(request(0, 0, 1, 0, 1) + &request(0, 0, 2, 0, 1) + &request(0, 3, 3, 0, 0)), "");
    let (a, b, c) = (s.command().id, s.command().id, s.command().id);
    s.buffers.insert(a, b"a".to_vec());
    s.buffers.insert(b, b"b".to_vec());
    s.session.reply(c, Answer::Done);
    s.session.reply(b, Answer::Done);
    s.session.reply(a, Answer::Done);
    s.talk(
        "",
        &format!(
            "{SIMPLE} 00000000 0000000000000003
             {SIMPLE} 00000000 0000000000000002 'b'
             {SIMPLE} 00000000 0000000000000001 'a'"
        ),
    );
}
