//! The handshake, byte by byte as doc/proto.md of the NetworkBlockDevice project has it. Expected bytes are written by
//! hand from that text: "Fixed newstyle negotiation", "Option types", "Option reply types".

use crate::common::{NOW, Server, drain, h};
use henge_core::Duration;
use henge_nbd::{BlockSize, Closed, Export, Limits, Segment, Session, SessionEvent, Wants};
use std::collections::BTreeMap;

/// 0x0000000000100000 bytes, everything on: flags 1 + 4 + 8 + 0x20 + 0x40 + 0x100 + 0x400 + 0x800 = 0x0d6d.
fn disk() -> Export {
    Export::new("disk", 1 << 20)
}
fn server() -> Server {
    Server::new(vec![disk()], Limits::default())
}
/// After the greeting and the client's flags (fixed newstyle, no zeroes).
fn haggling() -> Server {
    let mut s = server();
    s.talk("00000003", "'NBDMAGIC' 'IHAVEOPT' 0003");
    s
}
const OPT: &str = "49484156454F5054";
const REP: &str = "0003e889045565a9";

#[test]
fn export_name_with_and_without_zeroes() {
    let mut s = haggling();
    s.talk(&format!("{OPT} 00000001 00000004 'disk'"), "0000000000100000 0d6d");
    assert_eq!(s.event(), SessionEvent::Entered { export: 0 });

    let mut s = server();
    let zeroes = "00".repeat(124);
    s.talk(
        &format!("00000001 {OPT} 00000001 00000004 'disk'"),
        &format!("'NBDMAGIC' 'IHAVEOPT' 0003 0000000000100000 0d6d {zeroes}"),
    );
    // Plain newstyle, the default export.
    let mut s = server();
    let client = format!("00000000 {OPT} 00000001 00000000");
    s.talk(&client, &format!("'NBDMAGIC' 'IHAVEOPT' 0003 0000000000100000 0d6d {zeroes}"));
    // "If the server is unwilling to allow the export, it MUST terminate the session."
    let mut s = haggling();
    s.talk(&format!("{OPT} 00000001 00000004 'disc'"), "");
    assert_eq!(s.event(), SessionEvent::Closed(Closed::UnknownExport));
    assert_eq!(s.session.wants(), Wants::Nothing);
    assert!(s.session.is_over());
}

#[test]
fn abort_is_acknowledged_and_its_data_ignored() {
    let mut s = haggling();
    s.talk(&format!("{OPT} 00000002 00000002 'xx'"), &format!("{REP} 00000002 00000001 00000000"));
    assert_eq!(s.event(), SessionEvent::Closed(Closed::Abort));
}

#[test]
fn list() {
    let mut second = Export::new("b", 1);
    second.description = "the other".into();
    let mut s = Server::new(vec![disk(), second], Limits::default());
    s.talk("00000003", "'NBDMAGIC' 'IHAVEOPT' 0003");
    s.talk(
        &format!("{OPT} 00000003 00000000"),
        &format!(
            "{REP} 00000003 00000002 00000008 00000004 'disk'
             {REP} 00000003 00000002 0000000e 00000001 'b' 'the other'
             {REP} 00000003 00000001 00000000"
        ),
    );
    // "The server SHOULD reject a request that includes data with NBD_REP_ERR_INVALID."
    s.talk(
        &format!("{OPT} 00000003 00000001 00"),
        &format!("{REP} 00000003 80000003 00000017 'this option has no data'"),
    );
}

#[test]
fn info_and_go() {
    let mut s = haggling();
    // No information requests: NBD_INFO_EXPORT alone.
    s.talk(
        &format!("{OPT} 00000006 0000000a 00000004 'disk' 0000"),
        &format!(
            "{REP} 00000006 00000003 0000000c 0000 0000000000100000 0d6d
             {REP} 00000006 00000001 00000000"
        ),
    );
    // Name, description (there is none), block size, and one that nobody knows.
    s.talk(
        &format!("{OPT} 00000006 00000012 00000004 'disk' 0004 0001 0002 0003 0063"),
        &format!(
            "{REP} 00000006 00000003 0000000c 0000 0000000000100000 0d6d
             {REP} 00000006 00000003 00000006 0001 'disk'
             {REP} 00000006 00000003 0000000e 0003 00000001 00001000 02000000
             {REP} 00000006 00000001 00000000"
        ),
    );
    assert_eq!(s.events, []);
    s.talk(
        &format!("{OPT} 00000007 0000000c 00000004 'disk' 0001 0003"),
        &format!(
            "{REP} 00000007 00000003 0000000c 0000 0000000000100000 0d6d
             {REP} 00000007 00000003 0000000e 0003 00000001 00001000 02000000
             {REP} 00000007 00000001 00000000"
        ),
    );
    assert_eq!(s.event(), SessionEvent::Entered { export: 0 });
    assert_eq!(s.session.wake_at(), None, "no deadline in the transmission phase");
}

#[test]
fn what_an_export_cannot_do_is_not_exposed() {
    let mut export = disk();
    export.read_only = true; // 1 + 2 + 4 + 8 + 0x100 + 0x400 = 0x050f
    assert_eq!(export.flags(false), 0x050f);
    assert_eq!(export.flags(true), 0x058f, "DF with structured replies");
    export =
        Export { trim: false, zeroes: false, cache: false, multi_conn: false, rotational: true, ..disk() };
    assert_eq!(export.flags(false), 0x001d, "no fast zeroes without zeroes");
    // Blocks that clients must keep to are told without being asked for.
    let block = BlockSize { least: 512, preferred: 4096, most: 1 << 20 };
    let mut s = Server::new(vec![Export { block, ..disk() }], Limits::default());
    s.talk("00000003", "'NBDMAGIC' 'IHAVEOPT' 0003");
    s.talk(
        &format!("{OPT} 00000007 0000000a 00000004 'disk' 0000"),
        &format!(
            "{REP} 00000007 00000003 0000000c 0000 0000000000100000 0d6d
             {REP} 00000007 00000003 0000000e 0003 00000200 00001000 00100000
             {REP} 00000007 00000001 00000000"
        ),
    );
}

#[test]
fn go_that_is_refused() {
    let mut s = haggling();
    let unknown = format!("{REP} 00000007 80000006 00000017 'there is no such export'");
    s.talk(&format!("{OPT} 00000007 0000000a 00000004 'disc' 0000"), &unknown);
    // A name longer than the data, a list shorter than announced, bytes left over.
    let why = "'not a name and a list of information requests'";
    let invalid = format!("{REP} 00000007 80000003 0000002d {why}");
    s.talk(&format!("{OPT} 00000007 0000000a 00000005 'disk' 0000"), &invalid);
    s.talk(&format!("{OPT} 00000007 0000000a 00000004 'disk' 0001"), &invalid);
    s.talk(&format!("{OPT} 00000007 0000000b 00000004 'disk' 0000 00"), &invalid);
    s.talk(&format!("{OPT} 00000007 00000000"), &invalid);
    s.talk(&format!("{OPT} 00000007 0000000a ffffffff 'disk' 0000"), &invalid);
    s.talk(&format!("{OPT} 00000007 00000007 00000001 ff 0000"), &invalid); // not UTF-8
    assert_eq!(s.events, []);
}

#[test]
fn structured_reply_and_options_that_we_do_not_have() {
    let mut s = haggling();
    s.talk(
        &format!("{OPT} 00000008 00000001 00"),
        &format!("{REP} 00000008 80000003 00000017 'this option has no data'"),
    );
    s.talk(&format!("{OPT} 00000008 00000000"), &format!("{REP} 00000008 00000001 00000000"));
    s.talk(
        &format!("{OPT} 0000000b 00000000"),
        &format!("{REP} 0000000b 80000001 00000022 'extended headers are not supported'"),
    );
    s.talk(
        &format!("{OPT} 00000005 00000000"),
        &format!("{REP} 00000005 80000001 00000014 'TLS is not supported'"),
    );
    s.talk(
        &format!("{OPT} 0000abcd 00000003 010203"),
        &format!("{REP} 0000abcd 80000001 0000000e 'unknown option'"),
    );
    // DF (0x80) is exposed now.
    s.talk(&format!("{OPT} 00000001 00000004 'disk'"), "0000000000100000 0ded");
}

#[test]
fn metadata_contexts() {
    let mut s = haggling();
    let query = "0000000f 'base:allocation'";
    let set = |queries: &str, n: u32| {
        let data = h(&format!("00000004 'disk' {n:08x} {queries}"));
        format!("{OPT} 0000000a {:08x} 00000004 'disk' {n:08x} {queries}", data.len())
    };
    let list = |queries: &str, n: u32| set(queries, n).replacen("0000000a", "00000009", 1);
    let ack = |option| format!("{REP} {option} 00000001 00000000");
    // "MUST NOT be requested unless structured replies have been negotiated first … NBD_REP_ERR_INVALID"
    s.talk(
        &set(query, 1),
        &format!("{REP} 0000000a 80000003 00000029 'metadata contexts need structured replies'"),
    );
    s.talk(&format!("{OPT} 00000008 00000000"), &ack("00000008"));
    // Listing: none asked is all; the wildcard; unknown namespaces are ignored; id 0.
    let listed = format!("{REP} 00000009 00000004 00000013 00000000 'base:allocation'") + &ack("00000009");
    s.talk(&list("", 0), &listed);
    s.talk(&list("00000005 'base:'", 1), &listed);
    s.talk(&list("00000006 'x-foo:' 00000005 'base:'", 2), &listed);
    s.talk(&list("00000006 'x-foo:'", 1), &ack("00000009"));
    // Setting: none, the wildcard and unknown leaves select nothing.
    s.talk(&set("", 0), &ack("0000000a"));
    s.talk(&set("00000005 'base:'", 1), &ack("0000000a"));
    s.talk(&set("00000008 'base:foo'", 1), &ack("0000000a"));
    let selected = format!("{REP} 0000000a 00000004 00000013 00000001 'base:allocation'") + &ack("0000000a");
    s.talk(&set(&format!("{query} {query}"), 2), &selected);
    let why = "'not a name and a list of queries'";
    s.talk(&set(query, 2), &format!("{REP} 0000000a 80000003 00000020 {why}"));
    let unknown = "80000006 00000017 'there is no such export'";
    s.talk(&set(query, 1).replace("'disk'", "'disc'"), &format!("{REP} 0000000a {unknown}"));
}

#[test]
fn what_is_too_long() {
    let mut s = Server::new(vec![disk()], Limits { option: 5000, skip: 6000, ..Limits::default() });
    s.talk("00000003", "'NBDMAGIC' 'IHAVEOPT' 0003");
    // Skipped, answered, and the conversation goes on.
    s.feed(&h(&format!("{OPT} 00000006 00001389")));
    s.feed(&[7; 5001]);
    let mut expected = h(&format!("{REP} 00000006 80000009 0000001d"));
    expected.extend_from_slice(b"the option's data is too long");
    assert_eq!(s.take(), expected);
    s.talk(
        &format!("{OPT} 00000006 0000000a 00000004 'disc' 0000"),
        &format!("{REP} 00000006 80000006 00000017 'there is no such export'"),
    );
    // A name longer than 4096 is none.
    s.feed(&h(&format!("{OPT} 00000006 00001007 00001001")));
    s.feed(&[b'x'; 4097]);
    s.talk(
        "0000",
        &format!("{REP} 00000006 80000003 0000002d 'not a name and a list of information requests'"),
    );
    // Longer than what is skipped: closed.
    s.talk(&format!("{OPT} 00000006 00001771"), "");
    assert!(matches!(s.event(), SessionEvent::Closed(Closed::Garbage(_))));
}

#[test]
fn garbage_closes() {
    for client in
        ["00000004", "00010001", "00000003 'GET / HTTP/1.1 0'", "00000000 49484156454F5054 00000003 00000000"]
    {
        let mut s = server();
        s.talk(client, "'NBDMAGIC' 'IHAVEOPT' 0003");
        assert!(matches!(s.event(), SessionEvent::Closed(Closed::Garbage(_))), "{client}");
        s.talk("00", "");
        assert_eq!(s.events, []);
    }
}

#[test]
fn slow_and_unwelcome_clients() {
    let limits = Limits { handshake: Duration::from_secs(10), ..Limits::default() };
    let mut s = Server::new(vec![disk()], limits);
    let deadline = NOW + Duration::from_secs(10);
    assert_eq!(s.session.wake_at(), Some(deadline));
    assert_eq!(s.session.tick(NOW), None);
    assert_eq!(s.session.tick(deadline), Some(Closed::Late));
    assert_eq!(s.session.wants(), Wants::Nothing);

    let mut s = haggling();
    s.session.pause();
    s.talk(&format!("{OPT} 00000003 00000000"), "");
    assert_eq!((s.session.wants(), s.session.rest()), (Wants::Nothing, None));
    // One that asks on and on without reading is not listened to any more.
    let mut s = haggling();
    for _ in 0..100_000 {
        s.feed(&h(&format!("{OPT} 00000003 00000000")));
        if s.session.wants() == Wants::Nothing {
            break;
        }
    }
    assert_eq!(s.session.wants(), Wants::Nothing);
    assert!(s.session.output().held() < Limits::default().output + 100);
    s.take();
    assert_eq!(s.session.wants(), Wants::Bytes);
}

/// Ten thousand names are half a megabyte; what is held of them is what a session may hold, however slowly the client reads.
#[test]
fn list_is_produced_as_the_client_reads_it() {
    let exports: Vec<Export> = (0..10_000).map(|i| Export::new(&format!("disk-{i:05}"), 4096)).collect();
    let limits = Limits { output: 4096, ..Limits::default() };
    let mut session = Session::new(limits, NOW);
    let mut said = Vec::new();
    // Client flags, LIST, and ABORT right behind it.
    let input = h("00000003 'IHAVEOPT' 00000003 00000000 'IHAVEOPT' 00000002 00000000");
    let mut input = &input[..];
    loop {
        let (consumed, _) = session.receive(input, &exports[..], NOW);
        input = &input[consumed..];
        let held: usize = session
            .output()
            .segments()
            .map(|s| match s {
                Segment::Bytes(bytes) => bytes.len(),
                Segment::Payload { len, .. } => len,
            })
            .sum();
        assert!(held <= 4096 + 16 * (20 + 4 + 10), "{held} bytes are held");
        // The client reads a thousand bytes, wherever they end.
        let some = drain(session.output(), &BTreeMap::new());
        let n = some.len().min(1000);
        said.extend_from_slice(&some[..n]);
        session.written(n, |_| {});
        if n == 0 && input.is_empty() && !session.goes_on() {
            break;
        }
    }
    let mut want = h("'NBDMAGIC' 'IHAVEOPT' 0003");
    for export in &exports {
        want.extend(h("0003e889045565a9 00000003 00000002 0000000e 0000000a"));
        want.extend(export.name.as_bytes());
    }
    want.extend(h("0003e889045565a9 00000003 00000001 00000000"));
    want.extend(h("0003e889045565a9 00000002 00000001 00000000"));
    assert!(said == want, "{} bytes instead of {}", said.len(), want.len());
}

/// Three options, then GO, then three commands that are refused, in one piece: a driver hears of each, and can stop behind it.
#[test]
fn a_call_takes_one_message() {
    let exports = [Export::new("web", 1 << 20)];
    let mut session = Session::new(Limits::default(), NOW);
    let option = |kind: &str, data: &str| format!("49484156454f5054 {kind} {data}");
    let list = option("00000003", "00000000");
    let go = option("00000007", "00000009 00000003 776562 0000");
    let refused = "25609513 0000 00ff 0000000000000000 0000000000000000 00000000 ";
    let input = h(&["00000003", &list, &list, &list, &go, &refused.repeat(3)].concat());
    let (mut rest, mut heard) = (&input[..], vec![]);
    while !rest.is_empty() {
        let (n, event) = session.receive(rest, &exports[..], NOW);
        heard.push((n, event));
        rest = &rest[n..];
    }
    let answered = |n| (n, SessionEvent::Answered);
    let entered = (25, SessionEvent::Entered { export: 0 });
    let [first, second, third] = [answered(4 + 16), answered(16), answered(16)];
    assert_eq!(heard, [first, second, third, entered, answered(28), answered(28), answered(28)]);
}
