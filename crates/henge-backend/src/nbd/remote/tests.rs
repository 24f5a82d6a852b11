//! A server of a few lines at the other end of socket pairs, and a clock that is told the time: it answers what it is told to, when it is
//! told to, and is killed in between.

use super::*;
use henge_core::FlowId;
use henge_nbd::{Client, ClientEvent, Wish};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::event::epoll;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

mod strange;

const SIZE: u64 = 1 << 20;
const ALL: u16 = flag::HAS_FLAGS
    | flag::SEND_FLUSH
    | flag::SEND_FUA
    | flag::SEND_TRIM
    | flag::SEND_WRITE_ZEROES
    | flag::CAN_MULTI_CONN;

/// A command that has come and is not answered.
#[derive(Clone, Debug)]
struct WireRequest {
    wire: usize,
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    len: u32,
    data: Vec<u8>,
}

/// The server's end of some connections. It has a cache that it forgets when it is killed.
struct Server {
    flags: u16,
    size: u64,
    least: u32,
    most: u32,
    wires: Vec<Option<(UnixStream, Vec<u8>)>>,
    asked: Vec<WireRequest>,
    /// Connections to a server that is no more, and whose end nobody has been told of.
    silent: BTreeSet<usize>,
    cached: Vec<u8>,
    durable: Vec<u8>,
}

impl Server {
    fn new(flags: u16) -> Server {
        let empty = vec![0; SIZE as usize];
        let (cached, durable) = (empty.clone(), empty);
        let (wires, asked, silent) = (Vec::new(), Vec::new(), BTreeSet::new());
        Server { flags, size: SIZE, least: 1, most: 32 << 20, wires, asked, silent, cached, durable }
    }

    fn dial(&mut self) -> Dialed {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut client = Client::new(Wish::default());
        let hello = [&b"NBDMAGICIHAVEOPT"[..], &[0, 3]].concat();
        assert_eq!(client.receive(&hello).1, ClientEvent::Nothing);
        let reply = |kind: u32, data: &[u8]| {
            let head = [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], &7u32.to_be_bytes()].concat();
            [&head[..], &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
        };
        let export = [&[0, 0][..], &self.size.to_be_bytes(), &self.flags.to_be_bytes()].concat();
        let sizes = [self.least, 4096, self.most].map(u32::to_be_bytes).concat();
        let block = [&[0, 3][..], &sizes].concat();
        let input = [reply(3, &export), reply(3, &block), reply(1, &[])].concat();
        let (taken, event) = client.receive(&input);
        let ClientEvent::Ready(said) = event else { panic!("{event:?}") };
        assert_eq!(taken, input.len());
        let said_before = client.output().len() as usize;
        client.written(said_before, |_| {});
        self.wires.push(Some((theirs, Vec::new())));
        Dialed { socket: ours.into(), client, said }
    }

    /// Reads what has come.
    fn hear(&mut self) {
        for (wire, slot) in self.wires.iter_mut().enumerate() {
            let Some((stream, bytes)) = slot else { continue };
            let mut chunk = [0; 65536];
            while let Ok(n @ 1..) = stream.read(&mut chunk) {
                bytes.extend_from_slice(&chunk[..n]);
            }
            while bytes.len() >= 28 {
                let two = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
                let eight = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
                let len = u32::from_be_bytes(bytes[24..28].try_into().unwrap());
                let (flags, kind, cookie, offset) = (two(4), two(6), eight(8), eight(16));
                let data = if kind == 1 { len as usize } else { 0 };
                if bytes.len() < 28 + data {
                    break;
                }
                let asked = WireRequest {
                    wire,
                    flags,
                    kind,
                    cookie,
                    offset,
                    len,
                    data: bytes[28..28 + data].to_vec(),
                };
                bytes.drain(..28 + data);
                if !self.silent.contains(&wire) {
                    self.asked.push(asked);
                }
            }
        }
    }

    /// Does the command without answering it.
    fn apply(&mut self, asked: &WireRequest) {
        let range = asked.offset as usize..asked.offset as usize + asked.len as usize;
        match asked.kind {
            1 => self.cached[range.clone()].copy_from_slice(&asked.data),
            6 => self.cached[range.clone()].fill(0),
            3 => self.durable.clone_from(&self.cached),
            _ => {}
        }
        if asked.flags & 1 != 0 {
            self.durable[range.clone()].copy_from_slice(&self.cached[range]);
        }
    }

    /// Does the command and answers it.
    fn serve(&mut self, n: usize, error: u32) {
        let asked = self.asked.remove(n);
        if error == 0 {
            self.apply(&asked);
        }
        let Some((stream, _)) = &mut self.wires[asked.wire] else { return };
        let mut reply =
            [&0x6744_6698u32.to_be_bytes()[..], &error.to_be_bytes(), &asked.cookie.to_be_bytes()].concat();
        if asked.kind == 0 && error == 0 {
            reply.extend_from_slice(&self.cached[asked.offset as usize..][..asked.len as usize]);
        }
        stream.write_all(&reply).unwrap();
    }

    /// One connection breaks. The commands that came by it may still be done, or not.
    fn cut(&mut self, wire: usize) {
        self.wires[wire] = None;
        self.silent.remove(&wire);
        self.asked.retain(|asked| asked.wire != wire);
    }

    /// All connections break, and what was not durable is gone. Of some connections nobody is told.
    fn kill_but(&mut self, is_silent: impl Fn(usize) -> bool) {
        for wire in (0..self.wires.len()).filter(|wire| self.wires[*wire].is_some()).collect::<Vec<_>>() {
            match is_silent(wire) {
                true => _ = self.silent.insert(wire),
                false => self.cut(wire),
            }
        }
        self.asked.clear();
        self.cached.clone_from(&self.durable);
    }

    /// All connections break, and what was not durable is gone.
    fn kill(&mut self) {
        (0..self.wires.len()).for_each(|wire| self.cut(wire));
        self.cached.clone_from(&self.durable);
    }
}

struct Bench {
    server: Server,
    remote: Remote,
    now: Instant,
    done: VecDeque<Done<Buffer>>,
    next: u32,
}

fn terms(connections: usize, fua: bool) -> Terms {
    Terms { connections, wait: Duration::from_secs(30), fua }
}

impl Bench {
    fn new(flags: u16, terms: Terms) -> Bench {
        Bench::on(Server::new(flags), terms)
    }

    fn on(mut server: Server, terms: Terms) -> Bench {
        let epoll = std::rc::Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let uri = super::super::uri::parse("nbd://test").unwrap();
        let dialed = server.dial();
        let remote = Remote::new(uri, terms, 0, dialed, Watch::new(epoll, 0)).unwrap();
        let mut bench = Bench { server, remote, now: Instant::ZERO, done: VecDeque::new(), next: 0 };
        bench.dial();
        bench
    }

    /// All connections that are wanted come, each once it is time to dial.
    fn dial(&mut self) {
        while let Some(at) = self.remote.dials_at() {
            self.now = self.now.max(at);
            self.dial_what_is_due();
        }
    }

    fn dial_what_is_due(&mut self) {
        while self.remote.is_to_dial(self.now) {
            let dialed = self.server.dial();
            self.remote.dialed(Ok(dialed), self.now);
        }
    }

    fn ask(&mut self, op: Op, offset: u64, len: u64, fua: bool, fill: u8) -> RequestId {
        let id = RequestId { slot: self.next, generation: 0 };
        self.next += 1;
        let mut request = Request::new(id, FlowId(0), op, offset, len, self.now);
        request.fua = fua;
        let mut payload = Buffer::zeroed(if matches!(op, Op::Read | Op::Write) { len as usize } else { 0 });
        payload.fill(fill);
        self.remote.submit(&request, payload, offset);
        id
    }

    /// What is ready goes there and back; the server answers nothing.
    fn turn(&mut self) {
        for link in 0..self.remote.links.slots() {
            self.remote.happened(link, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP);
        }
        self.remote.work(self.now, &mut self.done);
        self.server.hear();
    }

    /// Until nothing is left to be answered.
    fn all(&mut self) -> Vec<(u32, Result<(), Fault>)> {
        for _ in 0..1000 {
            self.turn();
            if self.remote.in_flight.is_empty() {
                break;
            }
            if !self.server.asked.is_empty() {
                self.server.serve(0, 0);
            }
        }
        self.turn();
        self.over()
    }

    fn notices(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.remote.notices.take()).collect()
    }

    fn over(&mut self) -> Vec<(u32, Result<(), Fault>)> {
        let mut over: Vec<_> = self.done.drain(..).map(|done| (done.id.slot, done.outcome)).collect();
        over.sort_by_key(|(id, _)| *id);
        over
    }
}

#[test]
fn bytes_go_there_and_come_back_in_pieces_of_what_the_server_takes() {
    let mut server = Server::new(ALL);
    server.most = 8192;
    let mut bench = Bench::on(server, terms(1, false));
    bench.ask(Op::Write, 4096, 20480, true, 7);
    assert_eq!(bench.all(), [(0, Ok(()))]);
    assert!(bench.server.durable[4096..24576].iter().all(|b| *b == 7), "FUA on each piece");
    bench.ask(Op::Read, 0, 32768, false, 9);
    bench.turn();
    while !bench.server.asked.is_empty() {
        assert!(bench.server.asked[0].len <= 8192);
        bench.server.serve(0, 0);
        bench.turn();
    }
    let done = bench.done.pop_front().unwrap();
    let expected = [vec![0; 4096], vec![7; 20480], vec![0; 8192]].concat();
    assert!(done.payload[..] == expected[..]);
    bench.ask(Op::Trim, 4096, 4096, false, 0);
    assert_eq!(bench.all(), [(2, Ok(()))]);
    assert!(bench.server.cached[4096..8192].iter().all(|b| *b == 0), "what is trimmed reads as zeroes");
}

#[test]
fn a_poor_server_gets_zeroes_as_bytes_and_a_flush_for_fua() {
    let mut bench = Bench::new(flag::HAS_FLAGS | flag::SEND_FLUSH, terms(4, false));
    assert_eq!(bench.remote.links.alive(), 1, "no multi-conn, one connection");
    bench.ask(Op::Write, 0, 200_000, true, 5);
    bench.all();
    bench.ask(Op::WriteZeroes, 0, 150_000, false, 0);
    bench.turn();
    assert!(bench.server.asked.iter().all(|asked| asked.kind == 1 && asked.len <= 65536));
    assert_eq!(bench.all(), [(1, Ok(()))]);
    assert!(bench.server.cached[..150_000].iter().all(|b| *b == 0) && bench.server.cached[150_000] == 5);
    assert!(bench.server.durable[..200_000].iter().all(|b| *b == 5), "a flush followed the write");
}

#[test]
fn writes_of_the_same_bytes_are_never_with_the_server_at_once() {
    let mut bench = Bench::new(ALL, terms(2, false));
    for i in 0..4 {
        bench.ask(Op::Write, 1024 * i, 2048, false, i as u8);
    }
    bench.turn();
    for (i, a) in bench.server.asked.iter().enumerate() {
        for b in &bench.server.asked[..i] {
            assert!(a.offset >= b.offset + 2048 || b.offset >= a.offset + 2048);
        }
    }
    assert_eq!(bench.all().len(), 4);
}

#[test]
fn writes_that_wait_for_another_are_not_looked_at_meanwhile() {
    let mut bench = Bench::new(ALL, terms(2, false));
    for i in 0..200 {
        bench.ask(Op::Write, 512 * (i % 2), 2048, false, i as u8);
    }
    bench.turn();
    assert_eq!((bench.server.asked.len(), bench.remote.waiting.len()), (1, 0));
    bench.ask(Op::Write, 8192, 512, false, 1);
    bench.turn();
    assert_eq!((bench.server.asked.len(), bench.remote.waiting.len()), (2, 0), "another place goes at once");
    assert_eq!(bench.all().len(), 201);
    assert_eq!(bench.server.cached[600], 199, "in the order in which they came");
    // One that fails without being sent keeps nobody behind it.
    bench.ask(Op::Write, 0, 512, true, 7);
    bench.ask(Op::Write, 0, 512, false, 8);
    bench.turn();
    bench.server.kill();
    bench.turn();
    bench.remote.cache.in_doubt = true;
    bench.now += Duration::from_secs(1);
    bench.dial();
    assert_eq!(bench.all(), [(201, Err(Fault::Io)), (202, Ok(()))]);
}

#[test]
fn what_was_not_answered_is_sent_again_and_in_doubt_is_only_what_was_not_flushed() {
    // Everything answered is flushed: nothing is in doubt.
    let mut bench = Bench::new(ALL, terms(1, false));
    bench.ask(Op::Write, 0, 4096, false, 1);
    bench.all();
    bench.ask(Op::Flush, 0, 0, false, 0);
    assert_eq!(bench.all(), [(1, Ok(()))]);
    bench.ask(Op::Write, 4096, 4096, false, 2);
    bench.ask(Op::Read, 0, 4096, false, 0);
    bench.turn();
    bench.server.kill();
    bench.turn();
    assert!(bench.over().is_empty() && bench.remote.down_since.is_some());
    bench.dial();
    assert_eq!(bench.all(), [(2, Ok(())), (3, Ok(()))]);
    assert_eq!(bench.server.cached[4096], 2);
    bench.ask(Op::Flush, 0, 0, false, 0);
    assert_eq!(bench.all(), [(4, Ok(()))]);
    // An answered write that no flush has covered is lost: no flush says otherwise.
    bench.ask(Op::Write, 0, 4096, false, 3);
    bench.all();
    bench.server.kill();
    bench.turn();
    bench.dial();
    bench.ask(Op::Flush, 0, 0, false, 0);
    bench.ask(Op::Write, 0, 4096, true, 4);
    bench.ask(Op::Write, 0, 4096, false, 4);
    assert_eq!(bench.all(), [(6, Err(Fault::Io)), (7, Err(Fault::Io)), (8, Ok(()))]);
    assert!(bench.notices().iter().any(|text| text.contains("before a FLUSH")));
}

#[test]
fn one_connection_of_several_that_breaks_puts_nothing_in_doubt() {
    let mut bench = Bench::new(ALL, terms(3, false));
    assert_eq!(bench.remote.links.alive(), 3);
    bench.ask(Op::Write, 0, 4096, false, 1);
    bench.all();
    for i in 0..12 {
        bench.ask(Op::Write, 8192 + 4096 * i, 4096, false, 2);
    }
    bench.turn();
    assert!((0..3).all(|wire| bench.server.asked.iter().any(|asked| asked.wire == wire)), "all are used");
    bench.server.cut(1);
    assert_eq!(bench.all().len(), 12);
    bench.ask(Op::Flush, 0, 0, false, 0);
    assert_eq!(bench.all(), [(13, Ok(()))]);
    bench.dial();
    assert_eq!(bench.remote.links.alive(), 3);
}

/// The server's machine begins again. One of two connections is lost at once; the other one is silent, as if it were there.
#[test]
fn a_new_connection_does_nothing_until_an_older_one_shows_that_the_server_lives() {
    let mut bench = Bench::new(ALL, terms(2, false));
    bench.ask(Op::Write, 0, 4096, false, 1);
    bench.all();
    bench.server.cached.clone_from(&bench.server.durable);
    bench.server.cut(1);
    bench.turn();
    bench.dial();
    assert_eq!(bench.remote.links.alive(), 2);
    bench.ask(Op::Flush, 0, 0, false, 0);
    for i in 0..8 {
        bench.ask(Op::Write, 8192 * i, 4096, false, 2);
    }
    bench.turn();
    assert!(bench.server.asked.iter().all(|asked| asked.wire == 0), "only the one that is silent was asked");
    bench.server.cut(0);
    let over = bench.all();
    assert_eq!(over[0], (1, Err(Fault::Io)), "nobody says that the lost write is durable");
    assert!(over[1..].iter().all(|(_, outcome)| outcome.is_ok()) && over.len() == 9);
    assert!(bench.notices().iter().any(|text| text.contains("before a FLUSH")));
    // Where the silent one answers after all, the server lived, and both are used.
    let mut bench = Bench::new(ALL, terms(2, false));
    bench.ask(Op::Write, 0, 4096, false, 1);
    bench.all();
    bench.server.cut(1);
    bench.turn();
    bench.dial();
    bench.ask(Op::Flush, 0, 0, false, 0);
    assert_eq!(bench.all(), [(1, Ok(()))]);
    for i in 0..8 {
        bench.ask(Op::Write, 8192 * i, 4096, false, 2);
    }
    bench.turn();
    assert!([0, 2].iter().all(|wire| bench.server.asked.iter().any(|asked| asked.wire == *wire)));
    assert_eq!(bench.all().len(), 8);
}

/// A server lives, and hangs on one connection for ever. The other one is lost. New ones wait for an answer as long as requests wait for a lost server.
#[test]
fn a_connection_that_hangs_keeps_no_new_one_from_being_used() {
    let mut bench = Bench::new(ALL, terms(2, false));
    bench.ask(Op::Write, 0, 4096, false, 1);
    bench.all();
    bench.server.silent.insert(0);
    bench.server.cut(1);
    bench.turn();
    bench.dial();
    bench.now += Duration::from_secs(100);
    bench.turn();
    assert_eq!(bench.remote.wake_at(), None, "nobody waits for an answer");
    bench.ask(Op::Read, 0, 4096, false, 0);
    bench.turn();
    let end = bench.now + Duration::from_secs(30);
    assert_eq!((bench.remote.wake_at(), bench.server.asked.len()), (Some(end), 0));
    bench.now = end;
    bench.ask(Op::Flush, 0, 0, false, 0);
    assert_eq!(bench.all(), [(1, Ok(())), (2, Err(Fault::Io))], "nobody knows what became of the write");
    assert!(bench.notices().iter().any(|text| text.contains("before a FLUSH")));
}

#[test]
fn with_fua_a_server_may_forget_its_cache_at_any_time() {
    let mut bench = Bench::new(ALL, terms(2, true));
    bench.ask(Op::Write, 0, 4096, false, 1);
    assert_eq!(bench.all(), [(0, Ok(()))]);
    bench.server.kill();
    bench.turn();
    bench.dial();
    bench.ask(Op::Flush, 0, 0, false, 0);
    assert_eq!(bench.all(), [(1, Ok(()))]);
    assert_eq!(bench.server.cached[0], 1);
    assert!(fits(&Negotiated { size: SIZE, ..Negotiated::default() }, terms(1, true), 0).is_err());
}

/// A server that does not keep to the protocol: the rest of the write is still to be written, from the buffer of whoever asked.
#[test]
fn an_answer_to_half_a_write_ends_the_connection_and_nothing_else() {
    for error in [0u32, 5] {
        let mut bench = Bench::new(ALL, terms(1, false));
        bench.ask(Op::Write, 0, SIZE, false, 7);
        bench.remote.work(bench.now, &mut bench.done);
        let (stream, _) = bench.server.wires[0].as_mut().unwrap();
        let mut head = [0; 28];
        stream.read_exact(&mut head).unwrap();
        let reply = [&0x6744_6698u32.to_be_bytes()[..], &error.to_be_bytes(), &head[8..16]].concat();
        stream.write_all(&reply).unwrap();
        bench.remote.happened(0, EventFlags::IN);
        bench.remote.work(bench.now, &mut bench.done);
        assert!(bench.over().is_empty() && bench.remote.links.alive() == 0);
        bench.server.cut(0);
        bench.dial();
        assert_eq!(bench.all(), [(0, Ok(()))]);
        assert!(bench.server.cached.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn requests_wait_for_a_lost_server_and_then_fail() {
    let mut bench = Bench::new(ALL, terms(1, false));
    bench.ask(Op::Read, 0, 4096, false, 0);
    bench.turn();
    bench.server.kill();
    bench.turn();
    let mut dials = 0;
    while bench.now < Instant::ZERO + Duration::from_secs(25) {
        bench.now = bench.remote.wake_at().expect("it tries again").max(bench.now);
        bench.turn();
        if bench.remote.is_to_dial(bench.now) {
            dials += 1;
            bench.remote.dialed(Err("refused".into()), bench.now);
        }
    }
    assert!((8..=14).contains(&dials), "{dials} in 25 s");
    let said = bench.notices();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(bench.done.is_empty());
    bench.now = Instant::ZERO + Duration::from_secs(30);
    bench.ask(Op::Read, 0, 4096, false, 0);
    bench.turn();
    assert_eq!(bench.over(), [(0, Err(Fault::Unreachable)), (1, Err(Fault::Unreachable))]);
    bench.now = bench.remote.wake_at().unwrap();
    bench.dial();
    bench.ask(Op::Read, 0, 4096, false, 0);
    assert_eq!(bench.all(), [(2, Ok(()))]);
}

#[test]
fn a_shrunk_export_is_not_taken_again_and_errors_are_passed_on() {
    let mut bench = Bench::new(ALL, terms(1, false));
    bench.remote.used = SIZE;
    bench.ask(Op::Write, 0, 4096, false, 0);
    bench.turn();
    bench.server.serve(0, 28);
    bench.turn();
    assert_eq!(bench.over(), [(0, Err(Fault::NoSpace))]);
    bench.server.kill();
    bench.server.size = SIZE - 4096;
    bench.turn();
    assert!(bench.remote.is_to_dial(bench.now));
    let dialed = bench.server.dial();
    bench.remote.dialed(Ok(dialed), bench.now);
    assert_eq!(bench.remote.links.alive(), 0);
    let said = bench.notices();
    assert!(said.last().unwrap().contains("shrunk to"), "{said:?}");
}

#[test]
fn a_read_only_export_is_said_and_a_flush_that_fails_is_remembered() {
    let mut bench = Bench::new(ALL | flag::READ_ONLY, terms(1, false));
    assert!(bench.notices()[0].contains("read-only"));
    bench.ask(Op::Write, 0, 4096, false, 0);
    bench.ask(Op::Read, 0, 4096, false, 0);
    assert_eq!(bench.all(), [(0, Err(Fault::Unsupported)), (1, Ok(()))]);
    let mut bench = Bench::new(ALL, terms(1, false));
    bench.ask(Op::Flush, 0, 0, false, 0);
    bench.turn();
    bench.server.serve(0, 5);
    bench.turn();
    bench.ask(Op::Flush, 0, 0, false, 0);
    assert_eq!(bench.all(), [(0, Err(Fault::Io)), (1, Err(Fault::Io))]);
}

/// Whatever is asked, answered in any order, cut and killed: each request ends once; a FLUSH that succeeds has made all that was answered
/// before it durable; what is read is what the last answered write of the place wrote, unless the server was killed in between.
#[test]
fn no_flushed_write_is_lost_and_no_old_one_comes_again() {
    for seed in 0..300 {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let (connections, fua) = (dice.random_range(1..4), dice.random_bool(0.3));
        let mut bench = Bench::new(ALL, terms(connections, fua));
        // By block of 4 KiB: the fills that it may have, were it looked at now.
        let mut may: Vec<Vec<u8>> = vec![vec![0]; 8];
        let mut sure: Vec<Vec<u8>> = may.clone();
        let mut open: BTreeMap<u32, (Op, u64, u8)> = BTreeMap::new();
        for step in 0..200u32 {
            let block = dice.random_range(0..8u64);
            let fill = (step % 250) as u8 + 1;
            match dice.random_range(0..10) {
                0..4 if !open.values().any(|(op, b, _)| *op == Op::Flush || *b == block) => {
                    let id = bench.ask(Op::Write, block * 4096, 4096, false, fill);
                    open.insert(id.slot, (Op::Write, block, fill));
                    may[block as usize].push(fill);
                }
                4 if open.is_empty() => {
                    let id = bench.ask(Op::Flush, 0, 0, false, 0);
                    open.insert(id.slot, (Op::Flush, 0, 0));
                }
                5 if dice.random_bool(0.2) => bench.server.kill(),
                7 if dice.random_bool(0.1) => {
                    let silent = dice.random_range(0..1u64 << 20);
                    bench.server.kill_but(|wire| silent >> (wire % 20) & 1 != 0);
                }
                8 if dice.random_bool(0.3) => {
                    let silent = bench.server.silent.first().copied();
                    silent.into_iter().for_each(|wire| bench.server.cut(wire));
                }
                6 if dice.random_bool(0.2) => {
                    let wire = dice.random_range(0..bench.server.wires.len());
                    // What the broken connection brought may be done all the same.
                    let lost: Vec<WireRequest> =
                        bench.server.asked.iter().filter(|a| a.wire == wire).cloned().collect();
                    lost.iter().filter(|_| dice.random_bool(0.5)).for_each(|asked| bench.server.apply(asked));
                    bench.server.cut(wire);
                }
                _ if !bench.server.asked.is_empty() => {
                    let n = dice.random_range(0..bench.server.asked.len());
                    bench.server.serve(n, 0);
                }
                _ => {}
            }
            bench.turn();
            bench.now += Duration::from_millis(200);
            bench.dial_what_is_due();
            for (id, outcome) in bench.over() {
                let (op, block, fill) = open.remove(&id).expect("it ends once");
                match (op, outcome) {
                    (Op::Write, Ok(())) => {
                        may[block as usize] = vec![fill];
                        if fua {
                            sure[block as usize] = vec![fill];
                        } else {
                            sure[block as usize].push(fill);
                        }
                    }
                    (Op::Flush, Ok(())) => sure.clone_from(&may),
                    (Op::Flush, Err(Fault::Io)) if !fua => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
        for wire in bench.server.silent.clone() {
            bench.server.cut(wire);
        }
        bench.all();
        for block in 0..8 {
            // A write under way may have come to the medium, too.
            let durable = bench.server.durable[block * 4096];
            let known = sure[block].contains(&durable) || may[block].contains(&durable);
            assert!(
                known,
                "seed {seed}, block {block}: {durable}, not of {:?} nor {:?}",
                sure[block], may[block]
            );
        }
    }
}
