//! Requests but for I/O: each has a turn of its application, and a slot at the server.

use super::slots::comes;
use super::transfers::ask;
use super::*;

/// The server answers a request that is no I/O.
fn answer(mut server: &TcpStream, tag: i64) {
    let mut w = Writer::new();
    w.i32(7000).i32(2).i32(17).i32(0).pad(16);
    let payload = w.into_bytes();
    let header = Header::expected(tag, payload.len() as u64).to_bytes();
    server.write_all(&[&header[..], &payload].concat()).expect("sent");
}

fn fails(mut server: &TcpStream, tag: i64) {
    server.write_all(&encode_io_response(tag, Version::V7000, Err(-2))).expect("sent");
}

const NOOP: i32 = 17;
const FLUSH: i32 = 15;
const LISTATTR: i32 = 34;

/// A request of either kind.
fn asks(tag: i64, op: i32) -> Vec<u8> {
    ask(tag, op, if op == FLUSH { &[1, 0, 9, 0] } else { &[] })
}

/// 64 of them passed at once, without a slot. An application of `rate = "20MB/s"` had 4 MB/s beside one that sent nothing else.
#[test]
fn metadata_has_a_slot_until_it_is_answered() {
    let mut world = World::deep(2, "sfq", 16, "[[listen]]\naddress = \"127.0.0.1:0\"");
    let ((mut client, server), (mut other, twin)) = (world.connect(), world.connect_to(1));
    for tag in 1..=10 {
        client.write_all(&asks(tag, NOOP)).expect("sent");
    }
    world.turn();
    assert!(comes(&server, &[ask(1, NOOP, &[]), ask(2, NOOP, &[])].concat()) && is_dry(&server));
    let status = world.proxy.status(world.now);
    assert_eq!((status.in_flight, status.flows[0].pending), (2, 10));
    // Another application's request is not behind them.
    let read = io(1, Direction::Read, 100);
    other.write_all(&read).expect("sent");
    world.turn();
    answer(&server, 1);
    world.turn();
    assert!(comes(&twin, &read) != comes(&server, &ask(3, NOOP, &[])), "one of them has the slot");
    answer(&server, 2);
    world.turn();
    for tag in 3..=10 {
        answer(&server, tag);
        fails(&twin, 1);
        world.turn();
    }
    let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!((meters.completed.service.get(), meters.pending, meters.faults), (10 * LEAST, 0, 0));
    let (turns, ios) = (world.proxy.requests.turns.len(), world.proxy.requests.ios.len());
    assert_eq!((turns, ios, world.proxy.requests.gate.in_flight()), (0, 0, 0));
}

/// A list counts as its length, whatever is answered.
#[test]
fn lists_of_objects_count_each() {
    let listattr = |tag| ask(tag, LISTATTR, &[vec![9, 1 << 15, 0, 60], vec![1; 2 * 60]].concat());
    let mut world = World::with(4);
    let (mut client, server) = world.connect();
    client.write_all(&listattr(1)).expect("sent");
    world.turn();
    assert!(comes(&server, &listattr(1)));
    fails(&server, 1);
    world.turn();
    let charged = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow").completed.service.get();
    assert!(charged >= 2 * LEAST, "{charged}");
}

/// What a kind counts can be said.
#[test]
fn a_kind_counts_what_the_configuration_says() {
    let parse = |metadata: &str| {
        let text = format!(
            "server = \"127.0.0.1:1\"\nmetadata = {{ {metadata} }}\n[[listen]]\naddress = \"127.0.0.1:0\"\n"
        );
        Config::parse(Source::new("proxy.toml", text)).map(|config| config.requests.metadata)
    };
    let said = parse("mgmt_noop = \"1MiB\", listattr = \"2MiB\"").expect("it is sound");
    let wrong = parse("listatr = \"2MiB\"").expect_err("no such kind").to_string();
    assert!(wrong.contains("there is no metadata request \"listatr\"; there are: create, "), "{wrong}");
    assert!(parse("listattr = 3").is_err());
    let mut world = World::with(4);
    world.proxy.config.requests.metadata = said;
    let (mut client, server) = world.connect();
    for (tag, op) in [(1, NOOP), (2, FLUSH)] {
        client.write_all(&asks(tag, op)).expect("sent");
        world.turn();
        assert!(comes(&server, &asks(tag, op)));
        answer(&server, tag);
        world.turn();
    }
    let charged = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow").completed.service.get();
    assert_eq!(charged, (1 << 20) + LEAST);
}

/// Each look at a file would wait behind all that its application reads.
#[test]
fn metadata_goes_in_the_next_turn_of_its_application() {
    let mut world = World::with(64);
    let (mut client, server) = world.connect();
    let read = |tag| io(tag, Direction::Read, 1 << 20);
    for tag in 1..=20 {
        client.write_all(&read(tag)).expect("sent");
        world.turn();
    }
    for tag in 31..=33 {
        client.write_all(&asks(tag, NOOP)).expect("sent");
    }
    world.turn();
    assert!(comes(&server, &read(1)) && is_dry(&server));
    // Metadata, then what was before it; nothing of a kind passes what came earlier.
    for (over, next) in [(1, 31), (31, 2), (2, 32), (32, 3), (3, 33), (33, 4), (4, 5), (5, 6)] {
        if over > 30 {
            answer(&server, over)
        } else {
            fails(&server, over)
        }
        world.turn();
        let message = if next > 30 { ask(next, NOOP, &[]) } else { read(next) };
        assert!(comes(&server, &message) && is_dry(&server), "{next}");
    }
    for tag in 6..=20 {
        fails(&server, tag);
        world.turn();
        assert!(tag == 20 || comes(&server, &read(tag + 1)));
    }
    let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!((meters.completed.requests, meters.completed.service.get()), (23, 23 * LEAST));
    assert_eq!((world.proxy.requests.turns.len(), world.proxy.requests.ios.len()), (0, 0));
}

/// Its turn costs what goes in it, and is given up with it.
#[test]
fn what_is_given_up_takes_a_turn_along() {
    let mut world = World::with(64);
    let ((mut first, at_server), (mut second, _its_server)) = (world.connect(), world.connect());
    first.write_all(&io(1, Direction::Read, 1 << 20)).expect("sent");
    world.turn();
    for tag in 2..=5 {
        second.write_all(&io(tag, Direction::Write, 1 << 20)).expect("sent");
        first.write_all(&asks(tag, NOOP)).expect("sent");
        world.turn();
    }
    drop(second);
    world.turn();
    assert_eq!(world.proxy.requests.gate.queued(), 4);
    assert!(comes(&at_server, &io(1, Direction::Read, 1 << 20)));
    fails(&at_server, 1);
    world.turn();
    for tag in 2..=5 {
        assert!(comes(&at_server, &asks(tag, NOOP)) && is_dry(&at_server));
        answer(&at_server, tag);
        world.turn();
    }
    let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!((meters.completed.requests, meters.completed.service.get()), (5, 5 * LEAST));
    assert_eq!((world.proxy.requests.turns.len(), meters.pending), (0, 0));
}

/// A server that awaits its disk for a change shares the sync with others; one that makes an answer has its processor.
#[test]
fn changes_that_await_a_disk_keep_no_slot() {
    for (op, keeps) in [(FLUSH, false), (NOOP, true)] {
        let mut world = World::with(8);
        let ((mut first, at_server), (mut other, server)) = (world.connect(), world.connect());
        first.write_all(&asks(1, op)).expect("sent");
        world.turn();
        assert!(comes(&at_server, &asks(1, op)));
        other.write_all(&asks(1, op)).expect("sent");
        world.after(Duration::from_millis(10));
        world.after(Duration::from_millis(20));
        assert_eq!(is_dry(&server), keeps, "{op}");
    }
}

/// Two servers that wait for each other's gates would stand still.
#[test]
fn metadata_between_servers_waits_for_nobody() {
    let mut world = World::listening("sfq", 4, "redirected = true");
    let ((mut client, at_server), (mut peer, server)) = (world.connect(), world.connect());
    let read = io(1, Direction::Read, 100);
    client.write_all(&read).expect("sent");
    world.turn();
    assert!(comes(&at_server, &read), "it has the one slot");
    let all: Vec<u8> = (1..=100).flat_map(|tag| asks(tag, FLUSH)).collect();
    peer.write_all(&all).expect("sent");
    world.turn();
    assert!(comes(&server, &all));
    assert_eq!(world.proxy.requests.gate.queued(), 0);
}

/// Servers answer what they cannot read of an older protocol. It passed at once, as often as somebody liked.
#[test]
fn what_cannot_be_read_has_a_turn_too() {
    let broken = |tag| {
        tagged(tag, &[&6000_i32.to_le_bytes(), &asking(4, &[])[HEADER_LEN + 4..HEADER_LEN + 20]].concat())
    };
    let mut world = World::with(8);
    let (mut client, server) = world.connect();
    client.write_all(&[broken(1), broken(2)].concat()).expect("sent");
    world.turn();
    assert!(comes(&server, &broken(1)) && is_dry(&server));
    answer(&server, 1);
    world.turn();
    assert!(comes(&server, &broken(2)));
    assert_eq!(world.proxy.status(world.now).counts.malformed, 2);
}

/// A flow that is full of reads lets a look at a file in first, once there is room.
#[test]
fn metadata_is_not_behind_what_finds_no_room() {
    let mut world = World::with(2);
    let (mut client, server) = world.connect();
    let read = |tag| io(tag, Direction::Read, 100);
    for tag in 1..=6 {
        client.write_all(&read(tag)).expect("sent");
        world.turn();
    }
    client.write_all(&ask(31, NOOP, &[])).expect("sent");
    world.turn();
    assert!(comes(&server, &read(1)));
    assert_eq!(world.proxy.requests.refused.len(), 5);
    fails(&server, 1);
    world.turn();
    assert!(comes(&server, &ask(31, NOOP, &[])), "it came in, and had the turn of the second read");
    for (over, next) in [(31, 2), (2, 3), (3, 4)] {
        if over > 30 {
            answer(&server, over)
        } else {
            fails(&server, over)
        }
        world.turn();
        assert!(comes(&server, &read(next)) && is_dry(&server));
    }
}

/// Where gates charge time, what is over as it goes had cost a nanosecond, and taught that such requests take none.
#[test]
fn time_is_charged_for_what_nobody_sees_the_end_of() {
    let unread = unread(2);
    let mut world = World::charging("\"disk time\"");
    let (mut client, mut server) = world.connect();
    client.write_all(&unread.repeat(4)).expect("sent");
    world.turn();
    server.read_exact(&mut vec![0; 4 * unread.len()]).expect("all of them");
    let charged = |world: &World| {
        world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow").completed.service.get()
    };
    assert_eq!(charged(&world), 4_000_000, "what is estimated where nothing is known: 1 ms each");
    // The time of metadata is measured.
    client.write_all(&ask(1, NOOP, &[])).expect("sent");
    world.turn();
    assert!(comes(&server, &ask(1, NOOP, &[])));
    world.now += Duration::from_millis(7);
    answer(&server, 1);
    world.turn();
    assert_eq!(charged(&world), 11_000_000);
}

/// Clients wait for five minutes. What is known of requests that are over is forgotten before that.
#[test]
fn nothing_is_remembered_of_what_is_over() {
    let mut world = World::with(8);
    let (mut client, mut server) = world.connect();
    let len = ask(1, NOOP, &[]).len();
    for round in 0..300 {
        for tag in 0..8 {
            client.write_all(&ask(round * 8 + tag, NOOP, &[])).expect("sent");
        }
        for tag in 0..8 {
            world.turn();
            server.read_exact(&mut vec![0; len]).expect("its turn");
            answer(&server, round * 8 + tag);
        }
        world.turn();
        client.read_exact(&mut vec![0; 8 * (HEADER_LEN + 32)]).expect("answers");
    }
    assert!(world.proxy.patience.remembered() < 2300, "{}", world.proxy.patience.remembered());
}
