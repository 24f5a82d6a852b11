//! The client's end, byte by byte: what it sends, and what it makes of answers good and bad. Bytes are written by hand
//! from doc/proto.md of the NetworkBlockDevice project.

use crate::common::{drain, h, show};
use henge_nbd::{Ask, Client, ClientEvent, ClientFailure, Error, Extent, Negotiated, Wish};
use std::collections::BTreeMap;

const OPT: &str = "49484156454F5054";
const REP: &str = "0003e889045565a9";
const SIMPLE: &str = "67446698";
const CHUNK: &str = "668e33ef";

fn wish(structured: bool) -> Wish {
    Wish { export: "disk".into(), structured, allocation: structured }
}

/// What comes of bytes, events in order.
fn hear(client: &mut Client, server: &str) -> Vec<ClientEvent> {
    let bytes = h(server);
    let mut rest = &bytes[..];
    let mut events = vec![];
    loop {
        let (n, event) = client.receive(rest);
        rest = &rest[n..];
        match event {
            ClientEvent::Nothing => break,
            ClientEvent::Payload { len, .. } => {
                events.push(event);
                rest = &rest[len as usize..];
                let end = client.payload(len);
                if end != ClientEvent::Nothing {
                    events.push(end);
                }
            }
            _ => events.push(event),
        }
    }
    events
}
#[track_caller]
fn says(client: &mut Client, expected: &str) {
    let id = henge_core::RequestId { slot: 0, generation: 0 };
    let bytes = drain(client.output(), &BTreeMap::from([(id, b"payload!".to_vec())]));
    let expected = h(expected);
    assert!(bytes == expected, "\n got      {}\n expected {}", show(&bytes), show(&expected));
    client.written(bytes.len(), |_| {});
}

/// A client in the transmission phase.
fn ready(structured: bool) -> Client {
    let mut client = Client::new(wish(structured));
    let mut server = "'NBDMAGICIHAVEOPT' 0003".to_owned();
    if structured {
        server += &format!("{REP} 00000008 00000001 00000000");
        server += &format!("{REP} 0000000a 00000004 00000013 00000001 'base:allocation'");
        server += &format!("{REP} 0000000a 00000001 00000000");
    }
    server += &format!("{REP} 00000007 00000003 0000000c 0000 0000000000100000 0ded");
    server += &format!("{REP} 00000007 00000001 00000000");
    let events = hear(&mut client, &server);
    assert!(matches!(events[..], [ClientEvent::Ready(_)]), "{events:?}");
    let sent = client.output().len() as usize;
    client.written(sent, |_| {});
    client
}

#[test]
fn it_negotiates_one_option_at_a_time() {
    let mut client = Client::new(wish(true));
    assert_eq!(hear(&mut client, "'NBDMAGICIHAVEOPT' 0003"), []);
    says(&mut client, &format!("00000003 {OPT} 00000008 00000000"));
    hear(&mut client, &format!("{REP} 00000008 00000001 00000000"));
    says(
        &mut client,
        &format!("{OPT} 0000000a 0000001f 00000004 'disk' 00000001 0000000f 'base:allocation'"),
    );
    hear(&mut client, &format!("{REP} 0000000a 00000004 00000013 00000001 'base:allocation'"));
    says(&mut client, "");
    hear(&mut client, &format!("{REP} 0000000a 00000001 00000000"));
    says(&mut client, &format!("{OPT} 00000007 0000000c 00000004 'disk' 0001 0003"));
    hear(&mut client, &format!("{REP} 00000007 00000003 0000000c 0000 0000000000100000 0ded"));
    hear(&mut client, &format!("{REP} 00000007 00000003 0000000e 0003 00000200 00001000 00100000"));
    hear(&mut client, &format!("{REP} 00000007 00000003 00000005 0063 'huh'")); // unknown: ignored
    assert!(!client.is_ready());
    let events = hear(&mut client, &format!("{REP} 00000007 00000001 00000000"));
    let [ClientEvent::Ready(Negotiated { size, flags, structured, allocation, block })] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((size, flags, structured, allocation), (1 << 20, 0x0ded, true, true));
    assert_eq!((block.least, block.preferred, block.most), (512, 4096, 1 << 20));
    // A server that has neither: refused, and gone on without.
    let mut client = Client::new(wish(true));
    hear(&mut client, "'NBDMAGICIHAVEOPT' 0001");
    says(&mut client, &format!("00000001 {OPT} 00000008 00000000"));
    hear(&mut client, &format!("{REP} 00000008 80000001 00000002 'no'"));
    says(&mut client, &format!("{OPT} 00000007 0000000c 00000004 'disk' 0001 0003"));
}

#[test]
fn it_sends_every_command() {
    let mut client = ready(false);
    let request = |flags: &str, kind: &str, cookie: &str, offset: &str, len: &str| {
        format!("25609513 {flags} {kind} 00000000{cookie} 0000000000{offset} 0000{len}")
    };
    let id = client.send(Ask::Write, 0x1000, 8, true);
    says(&mut client, &(request("0001", "0001", "00000000", "001000", "0008") + "'payload!'"));
    client.send(Ask::Read, 0x200, 0x10, false);
    says(&mut client, &request("0000", "0000", "00000001", "000200", "0010"));
    client.send(Ask::Flush, 0, 0, false);
    says(&mut client, &request("0000", "0003", "00000002", "000000", "0000"));
    client.send(Ask::Trim, 0x200, 0x10, false);
    says(&mut client, &request("0000", "0004", "00000003", "000200", "0010"));
    client.send(Ask::Cache, 0x200, 0x10, false);
    says(&mut client, &request("0000", "0005", "00000004", "000200", "0010"));
    client.send(Ask::WriteZeroes { no_hole: true, fast: true }, 0x200, 0x10, true);
    says(&mut client, &request("0013", "0006", "00000005", "000200", "0010"));
    client.send(Ask::BlockStatus, 0x200, 0x10, false);
    says(&mut client, &request("0000", "0007", "00000006", "000200", "0010"));
    client.disconnect();
    says(&mut client, &request("0000", "0002", "00000000", "000000", "0000"));
    // Answers in any order; the name is used again with another generation.
    let events = hear(&mut client, &format!("{SIMPLE} 00000000 0000000000000000"));
    assert_eq!(events, [ClientEvent::Done { id, outcome: Ok(()) }]);
    client.send(Ask::Flush, 0, 0, false);
    says(&mut client, "25609513 0000 0003 0000000100000000 0000000000000000 00000000");
}

#[test]
fn chunks_in_any_order_make_up_a_read() {
    let mut client = ready(true);
    let id = client.send(Ask::Read, 0x1000, 12, false);
    let cookie = "0000000000000000";
    let events = hear(
        &mut client,
        &format!(
            "{CHUNK} 0000 0001 {cookie} 0000000c 0000000000001008 'last'
             {CHUNK} 0000 0002 {cookie} 0000000c 0000000000001004 00000004
             {CHUNK} 0001 0001 {cookie} 0000000c 0000000000001000 'frst'"
        ),
    );
    let expected = [
        ClientEvent::Payload { id, at: 8, len: 4 },
        ClientEvent::Hole { id, at: 4, len: 4 },
        ClientEvent::Payload { id, at: 0, len: 4 },
        ClientEvent::Done { id, outcome: Ok(()) },
    ];
    assert_eq!(events, expected);
    // A hole that is the end, then an error that is not.
    let id = client.send(Ask::Read, 0, 8, false);
    let cookie = "0000000100000000";
    let hole = format!("{CHUNK} 0001 0002 {cookie} 0000000c 0000000000000000 00000008");
    let expected = [ClientEvent::Hole { id, at: 0, len: 8 }, ClientEvent::Done { id, outcome: Ok(()) }];
    assert_eq!(hear(&mut client, &hole), expected);
    let id = client.send(Ask::Read, 0, 8, false);
    let cookie = "0000000200000000";
    let error = format!(
        "{CHUNK} 0000 8002 {cookie} 00000011 00000005 0003 'bad' 0000000000000004
         {CHUNK} 0001 0000 {cookie} 00000000"
    );
    assert_eq!(hear(&mut client, &error), [ClientEvent::Done { id, outcome: Err(Error::Io) }]);
    assert_eq!(client.message(), "bad");
    // An error that nobody knows counts as invalid.
    let id = client.send(Ask::Flush, 0, 0, false);
    let unknown = format!("{CHUNK} 0001 8001 0000000300000000 00000006 00000063 0000");
    assert_eq!(hear(&mut client, &unknown), [ClientEvent::Done { id, outcome: Err(Error::Invalid) }]);
}

#[test]
fn block_status() {
    let mut client = ready(true);
    let id = client.send(Ask::BlockStatus, 0, 0x2000, false);
    let events = hear(
        &mut client,
        &format!("{CHUNK} 0001 0005 0000000000000000 00000014 00000001 00001000 00000000 00003000 00000003"),
    );
    assert_eq!(events, [ClientEvent::Extents(id), ClientEvent::Done { id, outcome: Ok(()) }]);
    let extent = |len, both| Extent { len, hole: both, zero: both };
    assert_eq!(client.extents(), [extent(0x1000, false), extent(0x3000, true)]);
}

/// A server that lies is not believed.
#[test]
fn servers_that_do_not_keep_to_the_protocol() {
    let lies = [
        // Negotiated structured replies, so no simple reply with data.
        format!("{SIMPLE} 00000000 0000000000000000"),
        // Nobody asked that.
        format!("{SIMPLE} 00000000 0000000000000007"),
        format!("{CHUNK} 0001 0000 0000000100000000 00000000"),
        // Success without data, with too much, beyond, before, twice; an empty chunk; an unknown one.
        format!("{CHUNK} 0001 0000 0000000000000000 00000000"),
        format!("{CHUNK} 0001 0001 0000000000000000 00000011 0000000000001000 '123456789'"),
        format!("{CHUNK} 0001 0001 0000000000000000 00000010 0000000000001001 '12345678'"),
        format!("{CHUNK} 0001 0002 0000000000000000 0000000c 0000000000000fff 00000008"),
        format!(
            "{CHUNK} 0000 0002 0000000000000000 0000000c 0000000000001000 00000008 {CHUNK} 0001 0002 0000000000000000 0000000c 0000000000001000 00000008"
        ),
        format!("{CHUNK} 0001 0002 0000000000000000 0000000c ffffffffffffffff ffffffff"),
        format!("{CHUNK} 0001 0001 0000000000000000 00000008 0000000000001000"),
        format!("{CHUNK} 0001 0003 0000000000000000 00000000"),
        format!("{CHUNK} 0001 0005 0000000000000000 0000000c 00000001 00001000 00000000"),
        // Not final, or with something in it; a message longer than its chunk; endless.
        format!("{CHUNK} 0000 0000 0000000000000000 00000000"),
        format!("{CHUNK} 0001 0000 0000000000000000 00000001 00"),
        format!("{CHUNK} 0001 8001 0000000000000000 00000006 00000005 0001"),
        format!("{CHUNK} 0001 8001 0000000000000000 ffffffff"),
        format!("{CHUNK} 0000 8001 0000000000000000 00000006 00000005 0000 ").repeat(1025),
        "'HTTP/1.1 400 Bad'".into(),
    ];
    for lie in lies {
        let mut client = ready(true);
        client.send(Ask::Read, 0x1000, 8, false);
        let events = hear(&mut client, &lie);
        let failed = |e: &ClientEvent| matches!(e, ClientEvent::Failed(ClientFailure::Protocol(_)));
        assert!(events.last().is_some_and(failed), "{lie}: {events:?}");
        assert!(!client.is_ready());
    }
    for greeting in
        ["'NBDMAGIC' 00420281861253 00000000 0000", "'NBDMAGICIHAVEOPT' 0000", "'SSH-2.0-OpenSSH_9.2'"]
    {
        let mut client = Client::new(wish(false));
        let events = hear(&mut client, greeting);
        assert!(matches!(events[..], [ClientEvent::Failed(ClientFailure::Protocol(_))]), "{greeting}");
    }
}
