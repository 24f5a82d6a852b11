//! Messages in any pieces, and ends that go away, or read nothing, in the middle of them.

use super::slots::comes;
use super::*;
use crate::pair::tests::strided;

/// A request of this kind, tag and body.
pub(super) fn ask(tag: i64, op: i32, body: &[i32]) -> Vec<u8> {
    tagged(tag, &asking(op, body)[HEADER_LEN..])
}

pub(super) fn data(tag: i64, len: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + tag as usize) as u8).collect();
    [&Header::expected(tag, len as u64).to_bytes()[..], &bytes].concat()
}

fn accepted(tag: i64, bytes: u64) -> Vec<u8> {
    encode_io_response(tag, Version::V7000, Ok(bytes))
}

fn takes(mut socket: &TcpStream, into: &mut Vec<u8>) {
    let mut bytes = [0; 4096];
    while !is_dry(socket) {
        match socket.read(&mut bytes).expect("a socket") {
            0 => return,
            n => into.extend_from_slice(&bytes[..n]),
        }
    }
}

/// Neither end sends messages as wholes, and each has some of another's behind it.
#[test]
fn messages_in_any_pieces_arrive_as_they_were_sent() {
    const LEN: usize = 18_000;
    let requests = [ask(2, 17, &[]), io(1, Direction::Write, LEN as u64), io(3, Direction::Read, LEN as u64)];
    for piece in [1, 23, 25, 4097] {
        let mut world = World::deep(4, "sfq", 8, "");
        let (mut client, mut server) = world.connect();
        let (mut came, mut answered) = (Vec::new(), Vec::new());
        let mut sends = |world: &mut World, from: &mut TcpStream, bytes: &[u8], ends: [&TcpStream; 2]| {
            for part in bytes.chunks(piece) {
                from.write_all(part).expect("sent");
                world.turn();
            }
            takes(ends[0], &mut came);
            takes(ends[1], &mut answered);
        };
        let ends = [server.try_clone().expect("a socket"), client.try_clone().expect("a socket")];
        let ends = ends.each_ref();
        sends(&mut world, &mut client, &requests.concat(), ends);
        // Data stands behind answers, and answers stand between data.
        let from_server =
            [accepted(1, 0), accepted(3, LEN as u64), data(3, 500), tagged_answer(2), data(3, LEN - 500)];
        let large = if piece == 1 { &from_server.concat()[..3000] } else { &from_server.concat()[..] };
        sends(&mut world, &mut server, large, ends);
        let written = data(1, if piece == 1 { 2000 } else { LEN });
        sends(&mut world, &mut client, &written, ends);
        assert!(came == [requests.concat(), written].concat(), "to the server, by {piece}");
        assert!(answered == large, "to the client, by {piece}");
        let counts = world.proxy.status(world.now).counts;
        assert_eq!((counts.malformed, counts.unfollowed, counts.opaque), (0, 0, 0));
        assert_eq!(
            world.proxy.requests.gate.in_flight(),
            if piece == 1 { 2 } else { 1 },
            "the write awaits its end"
        );
    }
}

fn tagged_answer(tag: i64) -> Vec<u8> {
    let mut w = Writer::new();
    w.i32(7000).i32(2).i32(4).i32(0).pad(16);
    let payload = w.into_bytes();
    [&Header::expected(tag, payload.len() as u64).to_bytes()[..], &payload].concat()
}

/// What it has is over, what waits is given up, and neighbours have its slots.
#[test]
fn a_server_that_closes_while_requests_wait_leaves_nothing_behind() {
    for within in [0, 500] {
        let mut world = World::deep(2, "sfq", 64, "");
        let ((mut client, mut server), (mut other, its_server)) = (world.connect(), world.connect());
        for tag in 0..10 {
            client.write_all(&io(2 * tag, Direction::Read, 1000)).expect("sent");
            client.write_all(&ask(2 * tag + 1, 17, &[])).expect("sent");
        }
        client.write_all(&strided(90, 65_000)).expect("sent");
        other.write_all(&io(1, Direction::Read, 100)).expect("sent");
        world.turn();
        assert_eq!((world.proxy.requests.gate.in_flight(), world.proxy.requests.gate.queued()), (2, 20));
        server.write_all(&accepted(0, 1000)).expect("sent");
        server.write_all(&data(0, 1000)[..within]).expect("sent");
        world.turn();
        break_off(server);
        world.turn();
        assert!(has_ended(&client), "as it would without a proxy");
        world.turn();
        assert!(comes(&its_server, &io(1, Direction::Read, 100)));
        let requests = &world.proxy.requests;
        assert_eq!(
            (world.open(), requests.ios.len(), requests.turns.len(), requests.gate.in_flight()),
            (1, 1, 1, 1)
        );
    }
}

/// As many answers as its side takes, and then its server waits, not the proxy's memory.
#[test]
fn who_reads_no_answers_takes_no_memory() {
    let mut world = World::deep(64, "sfq", 1024, "");
    let (mut client, mut server) = world.connect();
    server.set_nonblocking(true).expect("a socket");
    client.set_nonblocking(true).expect("a socket");
    let mut last = 0;
    let answer = |tag| {
        let mut message = tagged_answer(tag);
        message.resize(HEADER_LEN + 16_000, 0);
        message[..HEADER_LEN].copy_from_slice(&Header::expected(tag, 16_000).to_bytes());
        message
    };
    let (mut half, mut stuck) = (Vec::new(), 0);
    while stuck < 3 {
        last += 1;
        let _full = client.write(&ask(last, 17, &[]));
        world.turn();
        takes_nonblocking(&mut server);
        if half.is_empty() {
            half = answer(last);
        }
        match server.write(&half) {
            Ok(n) => (half, stuck) = (half.split_off(n), 0),
            Err(_) => stuck += 1,
        }
        world.turn();
    }
    let status = world.proxy.status(world.now);
    assert!(status.buffered < 1 << 20, "{}", status.buffered);
    drop(client);
    world.turn();
    assert_eq!((world.open(), world.proxy.requests.turns.len()), (0, 0));
}

fn takes_nonblocking(server: &mut TcpStream) {
    let mut bytes = [0; 4096];
    while matches!(server.read(&mut bytes), Ok(1..)) {}
}

/// The rest of its data never comes: its server hears so, and nobody waits for its slot.
#[test]
fn a_write_that_its_client_abandons_is_over() {
    for resets in [true, false] {
        let mut world = World::with(8);
        let ((mut client, mut server), (mut other, its_server)) = (world.connect(), world.connect());
        let (write, read) = (io(1, Direction::Write, 1 << 20), io(1, Direction::Read, 100));
        client.write_all(&write).expect("sent");
        world.turn();
        assert!(comes(&server, &write));
        other.write_all(&read).expect("sent");
        server.write_all(&accepted(1, 0)).expect("sent");
        world.turn();
        client.write_all(&data(1, 1 << 17)[..50_000]).expect("sent");
        world.turn();
        assert!(is_dry(&its_server));
        takes(&client, &mut Vec::new());
        if resets {
            break_off(client)
        } else {
            drop(client)
        }
        world.turn();
        assert!(has_ended(&server));
        drop(server);
        world.turn();
        assert!(comes(&its_server, &read));
        let charged =
            world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow").completed.service.get();
        assert_eq!((world.open(), charged), (1, 4 << 20));
    }
}

/// A server goes through 65,000 pieces for three seconds. Whoever rules that out has the client told, and its server never sees it.
#[test]
fn requests_of_more_pieces_than_are_allowed_are_answered_with_an_error() {
    let mut world = World::with(8);
    world.proxy.config.requests.pieces_max = 64;
    let (mut client, mut server) = world.connect();
    client
        .write_all(&[strided(1, 65), strided(2, 64), io(3, Direction::Read, 1 << 20)].concat())
        .expect("sent");
    world.turn();
    assert!(comes(&server, &strided(2, 64)) && is_dry(&server));
    let (mut said, refusal) = (Vec::new(), encode_failure(&strided(1, 65), -(42 | 1 << 30)).expect("one"));
    takes(&client, &mut said);
    assert_eq!(said, refusal);
    // It goes between two messages, never into the middle of one.
    let all = [accepted(2, 64), data(2, 64)].concat();
    server.write_all(&all[..all.len() - 10]).expect("sent");
    world.turn();
    client.write_all(&strided(4, 65)).expect("sent");
    world.turn();
    server.write_all(&all[all.len() - 10..]).expect("sent");
    world.turn();
    let mut said = Vec::new();
    takes(&client, &mut said);
    assert_eq!(said, [&all[..], &encode_failure(&strided(4, 65), -(42 | 1 << 30)).expect("one")].concat());
    let counts = world.proxy.status(world.now).counts;
    assert_eq!((counts.too_long, counts.unfollowed, world.open()), (2, 0, 1));
    assert!(comes(&server, &io(3, Direction::Read, 1 << 20)));
}

/// Who sends such requests and reads no answer is read no further.
#[test]
fn refusals_that_nobody_reads_take_no_memory() {
    let mut world = World::with(8);
    world.proxy.config.requests.pieces_max = 64;
    let (client, _server) = world.connect();
    client.set_nonblocking(true).expect("a socket");
    let pair = world.proxy.pairs.get_mut(0).expect("it is there");
    while !pair.client.is_choked() {
        pair.client.send(&[0; 1 << 16], false).expect("a socket");
    }
    let (message, mut stuck, mut at) = (strided(1, 65), 0, 0);
    while stuck < 3 {
        match (&client).write(&message[at..]) {
            Ok(n) => (at, stuck) = ((at + n) % message.len(), 0),
            Err(_) => stuck += 1,
        }
        world.turn();
    }
    let refused = world.proxy.status(world.now).counts.too_long;
    assert!((64..=65).contains(&refused), "{refused}");
    // They come once it reads.
    let mut bytes = [0; 1 << 16];
    while world.proxy.status(world.now).counts.too_long == refused {
        match (&client).read(&mut bytes) {
            Ok(n) => assert!(n > 0),
            Err(_) => world.turn(),
        }
    }
}

/// One request by which a server ends had ended it for everybody: STATFS that is longer than it is.
fn deadly(tag: i64) -> Vec<u8> {
    ask(tag, 18, &[9, 9])
}

/// Its server never sees it, and its client hears that it fails. Everything else goes on.
#[test]
fn what_no_server_can_go_through_is_answered_here() {
    for port in ["", "redirected = true"] {
        let mut world = World::listening("sfq", 8, port);
        let (mut client, server) = world.connect();
        let read = io(2, Direction::Read, 100);
        client.write_all(&[deadly(1), read.clone(), deadly(3)].concat()).expect("sent");
        world.turn();
        assert!(comes(&server, &read) && is_dry(&server));
        let failed = |tag| encode_failure(&deadly(tag), -(38 | 1 << 30)).expect("one");
        let mut said = Vec::new();
        takes(&client, &mut said);
        assert_eq!(said, [failed(1), failed(3)].concat());
        let counts = world.proxy.status(world.now).counts;
        assert_eq!((counts.unsound, counts.malformed, world.open()), (2, 0, 1));
    }
}

/// Who sends them as fast as it can and reads no answer is read no further.
#[test]
fn answers_to_them_that_nobody_reads_take_no_memory() {
    let mut world = World::with(8);
    let (client, _server) = world.connect();
    client.set_nonblocking(true).expect("a socket");
    let pair = world.proxy.pairs.get_mut(0).expect("it is there");
    while !pair.client.is_choked() {
        pair.client.send(&[0; 1 << 16], false).expect("a socket");
    }
    let (message, mut stuck, mut at) = (deadly(1), 0, 0);
    while stuck < 3 {
        match (&client).write(&message[at..]) {
            Ok(n) => (at, stuck) = ((at + n) % message.len(), 0),
            Err(_) => stuck += 1,
        }
        world.turn();
    }
    let answered = world.proxy.status(world.now).counts.unsound;
    assert!((64..=65).contains(&answered), "{answered}");
    // They come once it reads.
    let mut bytes = [0; 1 << 16];
    while world.proxy.status(world.now).counts.unsound == answered {
        match (&client).read(&mut bytes) {
            Ok(n) => assert!(n > 0),
            Err(_) => world.turn(),
        }
    }
}
