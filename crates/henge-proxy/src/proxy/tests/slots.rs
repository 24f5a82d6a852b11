//! Who has slots of the depth, and who gives them back.

use super::*;
use crate::pair::tests::strided;

/// Whether a message has come to the server, which takes it.
pub(super) fn comes(mut server: &TcpStream, message: &[u8]) -> bool {
    if is_dry(server) {
        return false;
    }
    let mut bytes = vec![0; message.len()];
    server.read_exact(&mut bytes).expect("it comes");
    assert_eq!(bytes, message);
    true
}

fn data(tag: i64, len: usize) -> Vec<u8> {
    [&Header::expected(tag, len as u64).to_bytes()[..], &vec![7; len]].concat()
}

fn accept(server: &mut TcpStream, tag: i64) {
    server.write_all(&encode_io_response(tag, Version::V7000, Ok(0))).expect("sent");
}

/// A server goes through 65,000 pieces for three seconds. Four at once kept neighbours waiting for all of them.
#[test]
fn requests_of_many_pieces_have_a_lane() {
    let mut world = World::deep(4, "sfq", 8, "");
    let mut all: Vec<_> = (0..5).map(|_| world.connect()).collect();
    let (long, short) = (strided(1, 65_000), io(1, Direction::Read, 100));
    for ((client, _), message) in all.iter().zip([&long, &long, &long, &short, &short]) {
        let mut client = client;
        client.write_all(message).expect("sent");
        world.turn();
    }
    assert!(comes(&all[0].1, &long), "one may go");
    assert!(is_dry(&all[1].1) && is_dry(&all[2].1), "and no more of them");
    assert!(comes(&all[3].1, &short) && comes(&all[4].1, &short), "it is in nobody's way");
    // Whose client has gone leaves the lane.
    drop(all.remove(1));
    world.turn();
    (&all[0].1).write_all(&encode_io_response(1, Version::V7000, Err(-2))).expect("sent");
    world.turn();
    assert!(comes(&all[1].1, &long));
    let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!((meters.pending, meters.completed.requests), (3, 2));
    // As long as it may take, nobody else of its kind goes.
    let (mut client, server) = world.connect();
    client.write_all(&long).expect("sent");
    world.after(Duration::from_secs(7));
    assert!(is_dry(&server));
    world.after(Duration::from_millis(600));
    assert!(comes(&server, &long));
}

/// Neighbours had a few reads between two requests of many pieces: behind one they waited at the server, so that nobody's turn was theirs.
#[test]
fn after_a_request_of_many_pieces_others_have_their_turn() {
    let mut world = World::deep(4, "sfq", 8, "[[listen]]\naddress = \"127.0.0.1:0\"");
    let (long, short) = (strided(1, 20_000), io(1, Direction::Read, 100));
    let (first, second, beside) = (world.connect(), world.connect(), world.connect_to(1));
    for (pair, message) in [(&first, &long), (&second, &long), (&beside, &short)] {
        (&pair.0).write_all(message).expect("sent");
        world.turn();
    }
    assert!(comes(&first.1, &long) && comes(&beside.1, &short) && is_dry(&second.1));
    world.after(Duration::from_millis(900));
    let answer = |mut server: &TcpStream| {
        server.write_all(&encode_io_response(1, Version::V7000, Err(-2))).expect("sent");
    };
    answer(&first.1);
    world.turn();
    assert!(is_dry(&second.1), "others wait for their server");
    world.after(Duration::from_millis(800));
    answer(&beside.1);
    world.turn();
    assert!(is_dry(&second.1), "they may ask again");
    world.after(Duration::from_millis(101));
    assert!(comes(&second.1, &long), "nobody else asks for anything");
    // Others that go on asking have as long as it took.
    (&beside.0).write_all(&short).expect("sent");
    world.turn();
    assert!(comes(&beside.1, &short));
    (&first.0).write_all(&long).expect("sent");
    world.after(Duration::from_millis(500));
    answer(&second.1);
    world.turn();
    world.after(Duration::from_millis(499));
    assert!(is_dry(&first.1));
    world.after(Duration::from_millis(2));
    assert!(comes(&first.1, &long));
}

#[test]
fn few_pieces_take_one_slot() {
    let mut world = World::deep(4, "sfq", 8, "");
    let all: Vec<_> = (0..5).map(|_| world.connect()).collect();
    for (client, _) in &all {
        let mut client = client;
        client.write_all(&strided(1, 64)).expect("sent");
    }
    world.turn();
    assert_eq!(all.iter().filter(|(_, server)| !is_dry(server)).count(), 4);
}

const MS: Duration = Duration::from_millis(1);

/// Four writes whose data never came had stopped all other applications until the server gave them up, for 30 s.
#[test]
fn whoever_sends_no_data_keeps_no_slot() {
    let mut world = World::with(8);
    let (mut idle, mut its_server) = world.connect();
    let (mut other, server) = world.connect();
    let (write, read) = (io(1, Direction::Write, 1 << 20), io(1, Direction::Read, 100));
    idle.write_all(&write).expect("sent");
    world.turn();
    assert!(comes(&its_server, &write));
    other.write_all(&read).expect("sent");
    // A server may take its time for an answer, and what comes then.
    world.after(Duration::from_millis(900));
    accept(&mut its_server, 1);
    world.turn();
    world.after(MS);
    world.after(Duration::from_millis(18));
    assert!(is_dry(&server), "the data may be on its way");
    world.after(Duration::from_millis(10));
    assert!(comes(&server, &read));
    // It is served to its end all the same.
    let data = data(1, 1 << 20);
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; (1 << 20) + HEADER_LEN];
        its_server.read_exact(&mut bytes).map(|()| its_server)
    });
    let mut writer = idle.try_clone().expect("a socket");
    let writer = std::thread::spawn(move || writer.write_all(&data));
    while !reader.is_finished() {
        world.turn();
    }
    let mut its_server = reader.join().expect("no panic").expect("all of it");
    writer.join().expect("no panic").expect("sent");
    its_server.write_all(&encode_write_completion(1, Version::V7000, Ok(1 << 20))).expect("sent");
    world.turn();
    let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!((meters.completed.requests, meters.completed.service.get()), (1, 1 << 20));
}

/// A client that does not take what it asked for.
#[test]
fn whoever_takes_no_data_keeps_no_slot() {
    let mut world = World::with(8);
    let (mut idle, mut its_server) = world.connect();
    let (mut other, server) = world.connect();
    let (large, read) = (io(1, Direction::Read, 1 << 30), io(1, Direction::Read, 100));
    idle.write_all(&large).expect("sent");
    world.turn();
    assert!(comes(&its_server, &large));
    its_server.write_all(&encode_io_response(1, Version::V7000, Ok(1 << 30))).expect("sent");
    its_server.set_nonblocking(true).expect("a socket");
    let piece = data(1, 1 << 20);
    let (mut at, mut blocked) = (0, 0);
    while blocked < 3 {
        match its_server.write(&piece[at..]) {
            Ok(n) => (at, blocked) = ((at + n) % piece.len(), 0),
            Err(_) => blocked += 1,
        }
        world.turn();
    }
    other.write_all(&read).expect("sent");
    world.turn();
    world.after(Duration::from_millis(10));
    world.after(Duration::from_millis(11));
    world.after(Duration::from_millis(11));
    assert!(comes(&server, &read));
}

/// A slow server has what it is to write. More at once would not make it faster, and others would wait behind.
#[test]
fn a_write_whose_data_has_come_keeps_its_slot() {
    let mut world = World::with(8);
    let (mut first, mut its_server) = world.connect();
    let (mut other, server) = world.connect();
    first.write_all(&io(1, Direction::Write, 1000)).expect("sent");
    world.turn();
    assert!(comes(&its_server, &io(1, Direction::Write, 1000)));
    accept(&mut its_server, 1);
    first.write_all(&data(1, 1000)).expect("sent");
    other.write_all(&io(1, Direction::Read, 100)).expect("sent");
    world.turn();
    (0..30).for_each(|_| world.after(Duration::from_millis(500)));
    assert!(is_dry(&server));
    its_server.write_all(&encode_write_completion(1, Version::V7000, Ok(1000))).expect("sent");
    world.turn();
    assert!(comes(&server, &io(1, Direction::Read, 100)));
}

/// Whoever comes, has a slot for almost a second, goes and comes again had left others 64 KiB for each.
#[test]
fn requests_that_end_with_their_connections_are_not_cheap() {
    let mut world = World::with(8);
    let (mut client, server) = world.connect();
    client.write_all(&io(1, Direction::Read, 100)).expect("sent");
    world.turn();
    assert!(comes(&server, &io(1, Direction::Read, 100)));
    drop((client, server));
    world.turn();
    let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!((world.open(), meters.completed.service.get()), (0, 4 << 20));
}

/// Nobody knows why a server does not answer; it may not even read that connection.
#[test]
fn what_is_not_answered_keeps_its_slot_for_a_second() {
    let mut world = World::with(8);
    let (mut first, its_server) = world.connect();
    let (mut other, server) = world.connect();
    let read = io(1, Direction::Read, 100);
    first.write_all(&read).expect("sent");
    world.turn();
    assert!(comes(&its_server, &read));
    other.write_all(&read).expect("sent");
    world.after(Duration::from_millis(990));
    assert!(is_dry(&server));
    world.after(Duration::from_millis(20));
    assert!(comes(&server, &read));
}

/// Of one flow few are given slots in vain, and what waits for them goes with its connection.
#[test]
fn many_idle_requests_of_one_application_are_kept_here() {
    let mut world = World::with(64);
    let mut all: Vec<_> = (0..20).map(|_| world.connect()).collect();
    for (client, _) in &mut all {
        client.write_all(&io(1, Direction::Write, 1 << 20)).expect("sent");
    }
    for _ in 0..40 {
        world.after(Duration::from_millis(10));
        for (_, server) in all.iter_mut().filter(|(_, server)| !is_dry(server)) {
            let mut bytes = vec![0; io(1, Direction::Write, 1 << 20).len()];
            server.read_exact(&mut bytes).expect("a request");
            accept(server, 1);
        }
        world.turn();
    }
    let gate = &world.proxy.requests.gate;
    assert_eq!((gate.silent(), gate.stalled(), gate.in_flight()), (8, 12, 8));
    // Those at the server first.
    all.drain(..).for_each(|(client, server)| {
        drop(client);
        drop(server);
        world.turn();
    });
    let gate = &world.proxy.requests.gate;
    assert_eq!((gate.silent(), gate.stalled(), gate.in_flight(), world.open()), (0, 0, 0, 0));
    assert_eq!(gate.flow_meters(FlowId(0)).map(|meters| meters.pending), Some(0));
}

/// A client's next requests stand before the data of its first. Where the flow had no room for them, nothing was read, and the first one
/// held its slot until its client gave up.
#[test]
fn data_comes_past_requests_for_which_there_is_no_room() {
    let mut world = World::with(2);
    let (mut client, mut server) = world.connect();
    for tag in 1..=4 {
        client.write_all(&io(tag, Direction::Write, 1000)).expect("sent");
    }
    world.turn();
    assert!(comes(&server, &io(1, Direction::Write, 1000)));
    assert_eq!(world.proxy.requests.refused.len(), 2);
    for tag in 1..=4 {
        accept(&mut server, tag);
        client.write_all(&data(tag, 1000)).expect("sent");
        world.turn();
        assert!(comes(&server, &data(tag, 1000)), "data of {tag}");
        server.write_all(&encode_write_completion(tag, Version::V7000, Ok(1000))).expect("sent");
        world.turn();
        assert!(tag == 4 || comes(&server, &io(tag + 1, Direction::Write, 1000)));
    }
    assert!(world.proxy.requests.refused.is_empty() && world.proxy.requests.gate.in_flight() == 0);
    let pair = world.proxy.pairs.get_mut(0).expect("it is there");
    assert_eq!(pair.refused, (0, 0));
}

/// So many requests wait outside, and no more: then the connection is read no further.
#[test]
fn a_connection_is_read_on_for_a_while_only() {
    let mut world = World::new();
    let (mut client, _server) = world.connect();
    for tag in 1..=1000 {
        client.write_all(&io(tag, Direction::Write, 1000)).expect("sent");
        world.turn();
    }
    assert!((10..=256).contains(&world.proxy.requests.refused.len()));
    assert!(world.proxy.pairs.get_mut(0).expect("it is there").buffered() < 512 << 10);
    drop(client);
    world.after(LONG);
    world.after(LONG);
    assert_eq!((world.open(), world.proxy.requests.refused.len()), (0, 0));
}

/// A request that says less than its server moves had moved the rest for nothing.
#[test]
fn data_that_no_request_explains_is_charged() {
    let mut world = World::with(4);
    let (mut client, mut server) = world.connect();
    client.write_all(&io(1, Direction::Read, 1000)).expect("sent");
    world.turn();
    assert!(comes(&server, &io(1, Direction::Read, 1000)));
    server.write_all(&encode_io_response(1, Version::V7000, Ok(1000))).expect("sent");
    server.write_all(&data(1, 1000)).expect("sent");
    for _ in 0..4 {
        server.write_all(&data(1, 256 << 10)).expect("sent");
    }
    let reader = std::thread::spawn(move || client.read_exact(&mut vec![0; 1 << 20]).map(|()| client));
    while !reader.is_finished() {
        world.turn();
    }
    world.turn();
    let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!(meters.completed.service.get(), LEAST + (1 << 20));
    assert_eq!(world.proxy.status(world.now).flows[0].bytes, 1000 + (1 << 20));
}

/// No client has two requests of one tag under way. Answers could not be told apart, and neither would have had a slot.
#[test]
fn a_second_request_of_one_tag_ends_its_connection() {
    let mut world = World::with(4);
    let (mut client, server) = world.connect();
    client.write_all(&io(1, Direction::Read, 100)).expect("sent");
    client.write_all(&io(1, Direction::Read, 1 << 20)).expect("sent");
    world.turn();
    let mut bytes = Vec::new();
    (&server).read_to_end(&mut bytes).expect("its end");
    assert_eq!((world.open(), world.proxy.status(world.now).counts.unfollowed), (0, 1));
}
