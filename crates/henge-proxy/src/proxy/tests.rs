mod crowds;
mod metadata;
mod patience;
mod slots;
mod transfers;
mod users;

use super::*;
use crate::pair::tests::{hinted, io};
use henge_config::Source;
use henge_pvfs2::*;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A proxy whose loop is this test's, its server, and its clients' ends with their twins at the server.
struct World {
    proxy: Proxy,
    server: TcpListener,
    now: Instant,
    /// A connection of nobody's: what is sent through it stands behind all that this thread has sent before.
    probe: (TcpStream, TcpStream),
    _closes: std::sync::RwLockReadGuard<'static, ()>,
}

impl World {
    /// One request of the application at most is pending.
    fn new() -> World {
        World::under("sfq", 1)
    }

    /// So many of the application at most are pending.
    fn with(pending: u32) -> World {
        World::under("sfq", pending)
    }

    /// The same by another scheduler.
    fn under(scheduler: &str, pending: u32) -> World {
        World::listening(scheduler, pending, "")
    }

    /// The same with more about its port.
    fn listening(scheduler: &str, pending: u32, port: &str) -> World {
        World::deep(1, scheduler, pending, port)
    }

    /// The same with more than one slot.
    fn deep(depth: u32, scheduler: &str, pending: u32, port: &str) -> World {
        World::made(&format!("{scheduler} = {{ depth = {depth} }}"), pending, port)
    }

    /// With a cost of its own.
    fn charging(cost: &str) -> World {
        World::made(&format!("sfq = {{ depth = 1, cost = {cost} }}"), 16, "")
    }

    fn made(scheduler: &str, pending: u32, port: &str) -> World {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let text = format!(
            "server = \"{}\"\nscheduler = {{ {scheduler} }}\n[[flow]]\nname = \"app\"\ncontract = {{ pending = {pending} }}
            [[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"app\"\n{port}\n",
            server.local_addr().expect("its address")
        );
        World::before(server, text).unwrap_or_else(|e| panic!("{e}"))
    }

    /// With a whole configuration.
    fn before(server: TcpListener, text: String) -> Result<World, ProxyError> {
        let config = Config::parse(Source::new("proxy.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        let proxy = Proxy::new(Config { state_dir: None, ..config })?;
        let near = TcpStream::connect(server.local_addr().expect("its address")).expect("connected");
        near.set_nodelay(true).expect("a socket");
        let probe = (near, server.accept().expect("it came").0);
        stay_at_this_processor();
        let now = Instant::from_nanos(1);
        Ok(World { proxy, server, now, probe, _closes: crate::children::none_begins() })
    }

    fn connect(&mut self) -> (TcpStream, TcpStream) {
        self.connect_to(0)
    }

    fn connect_to(&mut self, port: usize) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.addresses()[port]).expect("connected");
        client.set_nodelay(true).expect("a socket");
        let before = self.proxy.pairs.open.len();
        while self.proxy.pairs.open.len() == before {
            self.turn();
        }
        let (server, _) = self.server.accept().expect("the twin");
        server.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a socket");
        server.set_nodelay(true).expect("a socket");
        (client, server)
    }

    /// What the loop does, until all that was sent has come and nothing more happens.
    fn turn(&mut self) {
        loop {
            let mut happened = Vec::new();
            self.probe.0.write_all(&[0]).expect("sent");
            self.probe.1.read_exact(&mut [0]).expect("it comes");
            self.proxy.waiter.wait(Duration::ZERO, false, &mut happened).expect("epoll");
            happened.iter().for_each(|event| self.proxy.happened(*event, self.now));
            self.proxy.expire(self.now);
            self.proxy.dispatch(self.now);
            if happened.is_empty() {
                return;
            }
        }
    }

    fn after(&mut self, patience: Duration) {
        self.now += patience;
        self.turn();
    }

    fn open(&self) -> usize {
        self.proxy.pairs.open.len()
    }
}

/// What this thread sends comes in the order in which it was sent, also by other connections: one processor hands it all on.
fn stay_at_this_processor() {
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).expect("a processor on which it runs");
}

fn has_ended(mut socket: &TcpStream) -> bool {
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).is_ok()
}

/// The end that the kernel tells at once, and the other side as an error.
fn break_off(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO)).expect("a socket");
}

const LONG: Duration = Duration::from_secs(3600);
/// Bytes that a request counts at least.
const LEAST: u64 = 64 << 10;

#[test]
fn clients_that_break_off_while_others_wait_stop_nobody() {
    let mut world = World::new();
    let mut all: Vec<_> = (0..4).map(|_| world.connect()).collect();
    for (i, (client, _)) in all.iter_mut().enumerate() {
        client.write_all(&io(1, Direction::Read, 100 + i as u64)).expect("sent");
        world.turn();
    }
    assert_eq!(world.proxy.requests.refused.len(), 3, "one is at the server, the others wait for their turn");
    let first = world.proxy.pairs.open.iter().map(|(id, _)| id).next().expect("it is there");
    let (last, server) = all.pop().expect("four");
    let _twins: Vec<TcpStream> =
        all.into_iter().map(|(client, server)| (break_off(client), server).1).collect();
    // The loop hears of the first one's end before it hears of theirs.
    world.proxy.close(first, world.now);
    world.turn();
    assert_eq!((world.open(), world.proxy.requests.refused.len()), (1, 0));
    let mut bytes = vec![0; io(1, Direction::Read, 103).len()];
    (&server).read_exact(&mut bytes).expect("its turn has come");
    drop(last);
}

#[test]
fn who_ends_within_a_message_gives_its_place_back() {
    let mut world = World::new();
    let (mut client, server) = world.connect();
    client.write_all(&io(1, Direction::Write, 1 << 20)[..10]).expect("sent");
    drop(client);
    world.turn();
    assert!(has_ended(&server), "as it would without a proxy");
    drop(server);
    world.turn();
    assert_eq!(world.open(), 0);

    // Within the data of a write, for which its server waits.
    let (mut client, mut server) = world.connect();
    client.write_all(&io(1, Direction::Write, 1 << 20)).expect("sent");
    world.turn();
    server.write_all(&encode_io_response(1, Version::V7000, Ok(0))).expect("sent");
    world.turn();
    client.write_all(&Header::expected(1, 1 << 16).to_bytes()).expect("sent");
    client.write_all(&[7; 100]).expect("sent");
    client.shutdown(std::net::Shutdown::Write).expect("a socket");
    world.turn();
    assert!(has_ended(&server));
    drop(server);
    world.turn();
    assert_eq!((world.open(), world.proxy.requests.gate.in_flight()), (0, 0));
}

#[test]
fn a_server_that_says_nothing_more_keeps_no_place() {
    let mut world = World::new();
    let (client, server) = world.connect();
    drop(client);
    world.turn();
    assert!(has_ended(&server));
    world.after(Duration::from_secs(1));
    assert_eq!(world.open(), 1, "it may have something to say");
    world.after(LONG);
    assert_eq!(world.open(), 0);
    // The same where it owes an answer.
    let (mut client, _server) = world.connect();
    client.write_all(&io(1, Direction::Read, 100)).expect("sent");
    world.turn();
    drop(client);
    world.turn();
    assert_eq!(world.open(), 1);
    world.after(LONG);
    world.after(LONG);
    assert_eq!((world.open(), world.proxy.requests.gate.in_flight()), (0, 0));
}

#[test]
fn who_waits_for_its_turn_is_given_up_as_whoever_waits() {
    let mut world = World::new();
    let (mut first, _at_server) = world.connect();
    first.write_all(&io(1, Direction::Read, 100)).expect("sent");
    world.turn();
    let (mut second, server) = world.connect();
    second.write_all(&io(1, Direction::Read, 200)).expect("sent");
    world.turn();
    assert_eq!(world.proxy.requests.refused.len(), 1);
    let patience = world.proxy.patience.waiting();
    // Just before it is over the first one's end makes room: what is left of its patience is little.
    world.after(patience.saturating_sub(Duration::from_secs(1)));
    assert_eq!(world.proxy.counts.expired, 0);
    world.after(Duration::from_secs(2));
    assert_eq!((world.proxy.counts.expired, world.proxy.requests.refused.len()), (1, 0));
    drop(first);
    world.turn();
    world.after(LONG);
    server.set_nonblocking(true).expect("a socket");
    assert!(server.peek(&mut [0]).is_err(), "its client takes nothing of it any more");
    // It goes on with what it asks next.
    server.set_nonblocking(false).expect("a socket");
    let again = io(2, Direction::Read, 300);
    second.write_all(&again).expect("sent");
    world.turn();
    let mut bytes = vec![0; again.len()];
    (&server).read_exact(&mut bytes).expect("it comes");
    assert_eq!(bytes, again);
}

#[test]
fn what_was_read_while_the_server_was_slow_goes_on() {
    let mut world = World::new();
    let (_client, server) = world.connect();
    let pair = world.proxy.pairs.get_mut(0).expect("it is there");
    while !pair.server.is_choked() {
        pair.server.send(&[0; 1 << 16], false).expect("a socket");
    }
    let sent = pair.server.buffered();
    pair.client.keep(&io(1, Direction::Read, 100));
    world.proxy.settle(0, Ok(()), world.now);
    world.turn();
    assert_eq!((world.proxy.requests.ios.len(), sent > 0), (0, true));
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; 1 << 20];
        while matches!((&server).read(&mut all), Ok(1..)) {}
        server
    });
    let begun = std::time::Instant::now();
    while world.proxy.requests.ios.is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "it waits for more of its client");
        world.turn();
    }
    drop(world);
    drop(reader.join());
}

#[test]
fn whoever_waits_for_its_turn_keeps_waiting_over_a_restart() {
    let mut world = World::new();
    let (mut first, _at_server) = world.connect();
    first.write_all(&io(1, Direction::Read, 100)).expect("sent");
    world.turn();
    let (mut second, _server) = world.connect();
    second.write_all(&io(1, Direction::Read, 200)).expect("sent");
    world.turn();
    world.proxy.began -= std::time::Duration::from_secs(100);
    world.proxy.departure.stop.hand_over();
    world.proxy.leave(world.now);
    for slot in 0..2 {
        world.proxy.pairs.get_mut(slot).expect("it is there").frozen = true;
    }
    let left = world.proxy.handover().expect("it was asked to");
    let waited: Vec<u64> =
        left.pairs.iter().filter(|p| !p.held.is_empty()).map(|p| p.waited.as_secs()).collect();
    assert_eq!(waited, [100]);
}

/// Its other tests have descriptors, too: it runs itself again.
#[test]
fn clients_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end() {
    let name = "proxy::tests::clients_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end";
    if !crate::children::is_alone(name) {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let mut world = World::new();
    let _client = TcpStream::connect(world.proxy.addresses()[0]).expect("connected");
    let limit = getrlimit(Resource::Nofile);
    let free = std::fs::File::open("/dev/null").expect("the next one").as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..limit }).expect("fewer");
    let mut woken = 0;
    for _ in 0..20 {
        let mut happened = Vec::new();
        world.proxy.waiter.wait(Duration::from_nanos(1_000_000), false, &mut happened).expect("epoll");
        woken += usize::from(!happened.is_empty());
        happened.iter().for_each(|event| world.proxy.happened(*event, world.now));
        world.proxy.expire(world.now);
    }
    setrlimit(Resource::Nofile, limit).expect("as before");
    assert_eq!((woken, world.open()), (1, 0));
    world.after(Duration::from_secs(1));
    world.turn();
    assert_eq!(world.open(), 1, "it is accepted once there is room");
}

/// I/O of an older protocol that cannot be read.
fn unread(tag: i64) -> Vec<u8> {
    let mut w = Writer::new();
    w.i32(6000).i32(2).i32(3).pad(60);
    tagged(tag, &w.into_bytes())
}

#[test]
fn requests_that_cannot_be_followed_wait_their_turn_and_are_charged() {
    let unread = unread(2);
    let mut world = World::with(4);
    let (mut client, mut server) = world.connect();
    client.write_all(&io(1, Direction::Read, 100)).expect("sent");
    client.write_all(&unread).expect("sent");
    world.turn();
    let first = io(1, Direction::Read, 100).len();
    let mut bytes = vec![0; first];
    server.read_exact(&mut bytes).expect("the first one goes");
    assert!(is_dry(&server), "it passes the one slot that there is");
    server.write_all(&encode_io_response(1, Version::V7000, Err(-2))).expect("sent");
    world.turn();
    let mut bytes = vec![0; unread.len()];
    server.read_exact(&mut bytes).expect("its turn has come");
    let gate = &world.proxy.requests.gate;
    assert_eq!((gate.in_flight(), world.proxy.requests.ios.len()), (0, 0), "it is over as it went");
    let meters = gate.flow_meters(FlowId(0)).expect("its flow");
    assert_eq!(meters.completed.service.get(), (4 << 20) + LEAST);
}

/// A server never waits for its peers' users: two servers that wait for each other's gates would stand still.
#[test]
fn requests_between_servers_pass_and_are_counted() {
    let of_a_server = hinted(3, Direction::Read, 5000, Hints { server_id: Some(7), ..Hints::default() });
    let mut world = World::listening("sfq", 4, "redirected = true");
    let (mut client, mut server) = world.connect();
    let first = io(1, Direction::Read, 100);
    client.write_all(&first).expect("sent");
    client.write_all(&of_a_server).expect("sent");
    world.turn();
    let mut bytes = vec![0; first.len() + of_a_server.len()];
    server.read_exact(&mut bytes).expect("both go, though there is one slot");
    assert_eq!(world.proxy.status(world.now).counts.between_servers, 1);
}

/// A server takes its time for each, whatever it moves. By bytes alone, tiny requests had left neighbours nothing.
#[test]
fn requests_that_move_next_to_nothing_count_their_least() {
    let long = crate::pair::tests::strided(1, 300);
    for (request, answer, moved, charged) in [
        (io(1, Direction::Read, 1), Ok(1), 1, LEAST),
        (io(1, Direction::Read, 4 << 20), Ok(0), 0, LEAST),
        (io(1, Direction::Read, 4 << 20), Err(-2), 0, LEAST),
        (long, Ok(0), 0, 300 * LEAST / 4),
    ] {
        let mut world = World::new();
        let (mut client, mut server) = world.connect();
        client.write_all(&request).expect("sent");
        world.turn();
        server.write_all(&encode_io_response(1, Version::V7000, answer)).expect("sent");
        if moved > 0 {
            server.write_all(&Header::expected(1, moved).to_bytes()).expect("sent");
            server.write_all(&vec![7; moved as usize]).expect("sent");
        }
        world.turn();
        let meters = world.proxy.requests.gate.flow_meters(FlowId(0)).expect("its flow");
        let status = world.proxy.status(world.now);
        assert_eq!((meters.completed.service.get(), status.flows[0].bytes), (charged, moved));
    }
}

fn is_dry(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).expect("a socket");
    let dry = socket.peek(&mut [0]).is_err();
    socket.set_nonblocking(false).expect("a socket");
    dry
}

/// Servers have addresses of their own. A client that says it is one had passed every queue.
#[test]
fn nobody_is_a_server_at_an_applications_own_port() {
    let of_a_server = hinted(3, Direction::Read, 5000, Hints { server_id: Some(7), ..Hints::default() });
    let mut world = World::with(4);
    let (mut client, mut server) = world.connect();
    let first = io(1, Direction::Read, 100);
    client.write_all(&first).expect("sent");
    client.write_all(&of_a_server).expect("sent");
    world.turn();
    server.read_exact(&mut vec![0; first.len()]).expect("the first one goes");
    assert!(is_dry(&server), "the other waits for the one slot that there is");
    assert_eq!(world.proxy.status(world.now).counts.between_servers, 0);
}

/// A request with an operation, nobody's capability, no hints and this body.
fn asking(op: i32, body: &[i32]) -> Vec<u8> {
    let mut w = Writer::new();
    w.i32(7000).i32(2).i32(op).pad(4);
    Capability::default().write(&mut w);
    Hints::default().write(&mut w);
    for word in body {
        w.i32(*word);
    }
    let payload = w.into_bytes();
    tagged(9, &payload)
}

/// A request's payload as a message of this tag.
fn tagged(tag: i64, payload: &[u8]) -> Vec<u8> {
    let header = Header { mode: Mode::Unexpected, tag, size: payload.len() as u64 };
    [&header.to_bytes()[..], payload].concat()
}

const ADMIN_MODE: [i32; 5] = [9, 4, 1, 2, 0];
const FILE_SYSTEM_CHECK: [i32; 5] = [9, 2, 0, 9, 0];
/// Of one server, to nobody; its file lies on one.
const MIRROR: [i32; 12] =
    [1, 0, 9, 10, i32::from_le_bytes(*b"basi"), i32::from_le_bytes(*b"c_di"), 0x7473, 65_536, 0, 0, 3, 2];

/// Servers let anybody set their parameters, or have them copy files: one request had stopped a server for everybody.
#[test]
fn nobody_administers_a_server_or_is_one_through_the_proxy() {
    let (setparam, batch_create) = (16, 35);
    let copies = [
        asking(39, &MIRROR),
        asking(40, &[]),
        asking(36, &[9, 0]),
        asking(46, &[1, 0, 9]),
        asking(batch_create, &[9, 2, 8192, 0, 0, 1, 3, 0, 9, 0]),
    ];
    for port in ["", "redirected = true"] {
        for (message, only_at_own) in [(asking(setparam, &ADMIN_MODE), false), (asking(setparam, &[]), false)]
            .into_iter()
            .chain(copies.clone().map(|c| (c, true)))
        {
            let mut world = World::listening("sfq", 4, port);
            let (mut client, mut server) = world.connect();
            client.write_all(&message).expect("sent");
            world.turn();
            let counts = world.proxy.status(world.now).counts;
            if only_at_own && !port.is_empty() {
                assert_eq!((counts.refused, counts.between_servers), (0, 1));
                server.read_exact(&mut vec![0; message.len()]).expect("a server asked for it");
            } else {
                assert_eq!((counts.refused, counts.between_servers), (1, 0), "{message:?}");
                assert!(has_ended(&server) && world.open() == 0);
            }
        }
    }
    for message in
        [asking(setparam, &FILE_SYSTEM_CHECK), asking(batch_create, &[9, 2, 1, 0, 0, 1, 3, 0, 9, 0])]
    {
        let mut world = World::with(4);
        let (mut client, mut server) = world.connect();
        client.write_all(&message).expect("sent");
        world.turn();
        server.read_exact(&mut vec![0; message.len()]).expect("clients ask for it");
    }
}

/// Whom no rule names had data charged to the first application of the file.
#[test]
fn data_that_no_request_explains_is_charged_to_nobody_else() {
    let mut world = World::listening("sfq", 4, "[[listen]]\naddress = \"127.0.0.1:0\"");
    let (mut client, _server) = world.connect_to(1);
    client.write_all(&Header::expected(1, 1 << 20).to_bytes()).expect("sent");
    world.turn();
    let flows = world.proxy.status(world.now).flows;
    let bytes: Vec<(&str, u64)> = flows.iter().map(|flow| (flow.name.as_str(), flow.bytes)).collect();
    assert_eq!(bytes, [("app", 0), ("other", 1 << 20)]);
}

/// A server takes messages of any length. Who sent one that no client sends had passed every queue from then on.
#[test]
fn messages_longer_than_any_client_sends_end_their_connection() {
    let far = |mode, size| Header { mode, tag: 1, size }.to_bytes();
    let mut odd = far(Mode::Eager, 100);
    odd[4] = 3;
    for header in [far(Mode::Unexpected, 16_385), far(Mode::Eager, (16 << 20) + 1), odd] {
        let mut world = World::with(4);
        let (mut client, server) = world.connect();
        client.write_all(&header).expect("sent");
        client.write_all(&io(2, Direction::Read, 100)).expect("sent");
        world.turn();
        assert!(has_ended(&server) && world.open() == 0, "{header:?}");
        assert_eq!(world.proxy.status(world.now).counts.malformed, 1);
    }
}

/// Where requests are counted, a request is one, however few bytes it moved.
#[test]
fn what_is_heard_of_a_request_is_charged_as_its_gate_counts() {
    let mut world = World::under("mclock", 1);
    let (mut client, mut server) = world.connect();
    client.write_all(&io(1, Direction::Read, 4096)).expect("sent");
    world.turn();
    server.write_all(&encode_io_response(1, Version::V7000, Ok(100))).expect("sent");
    server.write_all(&Header::expected(1, 100).to_bytes()).expect("sent");
    server.write_all(&[7; 100]).expect("sent");
    world.turn();
    let charged = |flow| {
        let meters = world.proxy.requests.gate.flow_meters(FlowId(flow));
        meters.map(|meters| (meters.completed.requests, meters.completed.service.get()))
    };
    assert_eq!(charged(0), Some((1, 1_000_000)));
}
