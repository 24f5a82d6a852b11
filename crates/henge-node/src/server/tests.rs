//! Rounds of the loop, one by one: real sockets, storage in memory, and no time that passes by itself.

use super::slots::Most;
use super::turn::EVENTS;
use super::*;
use crate::config::NodeConfig;
use crate::plane::manage;
use crate::turns::{BYTES, COMMANDS, Of, ROUND, ROUND_BYTES};
use henge_config::Source as Text;
use henge_tls::{Clients, Tls};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

mod hosts;
mod initiators;
mod newcomers;
mod peers;

/// A node without a thread.
struct Bench {
    server: Server,
    _dir: tempfile::TempDir,
    path: PathBuf,
    _closes: std::sync::RwLockReadGuard<'static, ()>,
}

impl Bench {
    fn new(disks: &str) -> Bench {
        Bench::listening(disks, "")
    }

    /// One that listens elsewhere, too.
    fn listening(disks: &str, more: &str) -> Bench {
        Bench::remembering(disks, more, &[])
    }

    /// One whose `state_dir` has these files.
    fn remembering(disks: &str, more: &str, files: &[(&str, &str)]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        let path = dir.path().join("nbd");
        let pool = |name: &str| format!("[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"64MiB\"\n");
        let listen = format!("listen = [\"nbd+unix://{}\"{more}]\n", path.display());
        let text = format!("{listen}{}{}{disks}", pool("a"), pool("b"));
        let config = NodeConfig::parse(Text::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        let plane = Plane::open(&config, 1, false, Instant::ZERO)
            .unwrap_or_else(|e| panic!("{}", config.source.point(e)));
        let (shards, mut messages) = Shards::new(1, Vec::new()).unwrap();
        let setup = Setup {
            plane,
            entrance: Entrance {
                listeners: config.listen.iter().map(|l| Arc::new(Listener::bind(l).unwrap())).collect(),
                arrivals: Default::default(),
                tls: config.tls.as_ref().map(|tls| {
                    Arc::new(Tls::open(tls, Clients::Required).unwrap_or_else(|e| panic!("{e:?}")))
                }),
                limits: config.bounds.limits,
                slots: ConnectionSlots::new(
                    Most { all: 64, per_address: 64, per_disk: 64 },
                    Arc::default(),
                    1,
                ),
            },
            state_dir: crate::state::StateDir::Folder(dir.path().to_owned(), None),
            patience: Patience { payload: Duration::from_secs(60), memory: Duration::from_secs(5) },
            busy_poll: Duration::ZERO,
            messages: messages.remove(0),
            shards: Arc::new(shards),
            here: 0,
            started: std::time::Instant::now(),
        };
        let mut server = Server::new(setup).unwrap();
        let served: Vec<usize> = server.plane.disks.served().map(|(number, _)| number).collect();
        served.into_iter().for_each(|number| moving::publish(&mut server, number));
        leaving::open(&mut server, Vec::new());
        Bench { server, _dir: dir, path, _closes: crate::children::none_begins() }
    }

    /// One round; what it cost by estimate, of which as much time passes.
    fn round(&mut self) -> u64 {
        let mut events = Vec::with_capacity(EVENTS);
        self.server.events(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().for_each(|event| self.server.happened(event));
        self.server.turn();
        let took = self.server.turns.estimated();
        self.server.now += Duration::from_nanos(took);
        self.server.turns.measured(Duration::from_nanos(took));
        took
    }

    fn client(&mut self, disk: &str, size: u32, deep: usize) -> Client {
        let mut socket = UnixStream::connect(&self.path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut hello = 3u32.to_be_bytes().to_vec(); // fixed newstyle, no zeroes
        hello.extend(0x4948_4156_454f_5054u64.to_be_bytes());
        hello.extend(7u32.to_be_bytes()); // NBD_OPT_GO
        hello.extend((6 + disk.len() as u32).to_be_bytes());
        hello.extend((disk.len() as u32).to_be_bytes());
        hello.extend(disk.as_bytes());
        hello.extend([0, 0]);
        socket.write_all(&hello).unwrap();
        for _ in 0..4 {
            self.round();
        }
        // The greeting and what is said of the export: not looked at.
        while socket.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
        let mut client = Client { socket, size, left: 0, answered: 0 };
        (0..deep).for_each(|_| client.ask());
        client
    }
}

/// One that always has as many READs under way.
struct Client {
    socket: UnixStream,
    size: u32,
    /// Bytes of answers that are to come before the next is asked for.
    left: usize,
    answered: u64,
}

impl Client {
    fn ask(&mut self) {
        let mut text = 0x2560_9513u32.to_be_bytes().to_vec();
        text.extend([0; 4]); // no flags; READ
        text.extend([0; 16]); // cookie and offset
        text.extend(self.size.to_be_bytes());
        self.socket.write_all(&text).unwrap();
    }

    /// Takes what came, and asks for as many again. How many came.
    fn take(&mut self) -> u64 {
        let before = self.answered;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => panic!("the node has hung up"),
                Ok(n) => self.left += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => panic!("{e}"),
            }
            let whole = 16 + self.size as usize;
            while self.left >= whole {
                self.left -= whole;
                self.answered += 1;
                self.ask();
            }
        }
        self.answered - before
    }
}

fn disk(name: &str, pool: &str, contract: &str) -> String {
    format!(
        "[[disk]]\nname = \"{name}\"\npool = \"{pool}\"\ncapacity = \"32MiB\"\ncontract = {{ {contract} }}\n"
    )
}

#[test]
fn a_reader_of_megabytes_on_another_pool_leaves_a_reader_of_pages_its_turns() {
    let disks = disk("victim", "a", "weight = 1") + &disk("attacker", "b", "weight = 1");
    let mut bench = Bench::new(&disks);
    let mut victim = bench.client("victim", 16 << 10, 8);
    let sizes = [1 << 20, 1 << 20, 64 << 10, 64 << 10];
    let mut attackers: Vec<_> = sizes.iter().map(|size| bench.client("attacker", *size, 16)).collect();
    let (mut longest, mut waited, mut moved) = (0, 0, 0);
    let mut since = 0;
    for _ in 0..1000 {
        let took = bench.round();
        longest = longest.max(took);
        since += took;
        moved += attackers.iter_mut().map(Client::take).sum::<u64>();
        if victim.take() > 0 {
            waited = waited.max(since);
            since = 0;
        }
    }
    // A round is over once it has cost enough: a last piece, and a last piece of copying, may go beyond.
    let most = ROUND + (ROUND_BYTES + 2 * BYTES as u64) / 4 + 100_000;
    assert!(longest <= most, "a round of {longest} ns");
    assert!(waited <= 4 * most, "{waited} ns without an answer");
    assert!(moved > 50, "the attacker is served, too: {moved}");
}

/// Who asks for little is read first, and answered after one piece of others, not after a round full of them.
#[test]
fn a_small_request_waits_for_one_piece_of_each() {
    let disks = disk("victim", "a", "weight = 1") + &disk("attacker", "b", "weight = 1");
    let mut bench = Bench::new(&disks);
    let mut victim = bench.client("victim", 4096, 0);
    let mut attackers: Vec<_> = (0..24).map(|_| bench.client("attacker", 512, 64)).collect();
    let (mut moved, mut waits) = (0, Vec::new());
    for _ in 0..200 {
        victim.ask();
        let mut waited = 0;
        loop {
            waited += bench.round();
            moved += attackers.iter_mut().map(Client::take).sum::<u64>();
            if victim.heard().is_some_and(|n| n > 0) {
                break;
            }
        }
        waits.push(waited);
    }
    waits.sort_unstable();
    assert!(moved > 600, "the attackers keep the loop busy: {moved}");
    // The answer goes in the next round: in each a piece of the others' commands, and what gates copy for them.
    let round = u64::from(COMMANDS) * 1_000 + ROUND_BYTES / 4;
    assert!(waits[180] < 2 * round, "{waits:?}");
}

/// Whoever has the loop's processor meanwhile takes its time, which no estimate knows: the round ends at its next look at the gates.
#[test]
fn a_round_whose_time_is_over_looks_at_its_sockets_again() {
    let mut bench = Bench::new(&disk("x", "a", ""));
    let mut clients: Vec<_> = (0..16).map(|_| bench.client("x", 4096, 0)).collect();
    let mut round = |bench: &mut Bench| {
        clients.iter_mut().for_each(Client::ask);
        let took = bench.round();
        while bench.round() > 0 {}
        took
    };
    let whole = round(&mut bench);
    bench.server.plane.round.ends_at(std::time::Instant::now());
    let late = round(&mut bench);
    assert!(whole > 30_000 && late < 15_000, "by estimate {late} ns, and {whole} without a time");
}

/// What a question costs the kernel no estimate knows: of sixteen clients the first one's command is at its gate before the second's is read.
#[test]
fn gates_are_looked_at_after_one_piece_that_took_long() {
    let mut bench = Bench::new(&disk("x", "a", ""));
    let mut clients: Vec<_> = (0..16).map(|_| bench.client("x", 4096, 0)).collect();
    clients.iter_mut().for_each(Client::ask);
    bench.server.plane.round.ends_at(std::time::Instant::now());
    let mut all = 0;
    // Half of the rounds answer somebody.
    for _ in 0..32 {
        let before = bench.server.plane.taken_in;
        bench.round();
        let (commands, _) = bench.server.plane.taken_in.since(before);
        assert!(commands <= 1, "{commands} read before the gates were looked at");
        all += commands;
    }
    assert_eq!(all, 16);
}

#[test]
fn disks_of_two_pools_share_the_processor_by_weight() {
    let disks = disk("one", "a", "weight = 1") + &disk("three", "b", "weight = 3");
    let mut bench = Bench::new(&disks);
    let mut ones: Vec<_> = (0..4).map(|_| bench.client("one", 64 << 10, 16)).collect();
    let mut threes = vec![bench.client("three", 64 << 10, 16), bench.client("three", 64 << 10, 16)];
    let mut got = [0, 0];
    for round in 0..1500 {
        bench.round();
        let now: [u64; 2] =
            [&mut ones, &mut threes].map(|clients| clients.iter_mut().map(Client::take).sum());
        if round > 100 {
            got = [got[0] + now[0], got[1] + now[1]];
        }
    }
    let ratio = got[1] as f64 / got[0] as f64;
    assert!((2.7..3.3).contains(&ratio), "{got:?}: {ratio}");
    let used = [Of::Disk(0), Of::Disk(1)].map(|of| bench.server.turns.used(of));
    let ratio = used[1] as f64 / used[0] as f64;
    assert!((2.7..3.3).contains(&ratio), "{used:?}: {ratio}");
}

impl Client {
    /// A WRITE's header, and some of its payload.
    fn begin_write(&mut self, len: u32, some: usize) {
        let mut text = 0x2560_9513u32.to_be_bytes().to_vec();
        text.extend([0, 0, 0, 1]); // no flags; WRITE
        text.extend([0; 16]); // cookie and offset
        text.extend(len.to_be_bytes());
        text.resize(text.len() + some, 7);
        self.socket.write_all(&text).unwrap();
    }

    /// What came since; `None` when the node has hung up.
    fn heard(&mut self) -> Option<usize> {
        let mut buffer = [0; 8192];
        match self.socket.read(&mut buffer) {
            Ok(0) => None,
            Ok(n) => Some(n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Some(0),
            Err(_) => None,
        }
    }
}

#[test]
fn a_payload_that_stops_coming_ends_its_connection_and_a_slow_one_does_not() {
    let mut bench = Bench::new(&disk("d", "a", "weight = 1"));
    let (to, notices) = std::sync::mpsc::channel();
    manage::tell_notices(&mut bench.server.plane, to);
    let (mut stops, mut slow) = (bench.client("d", 4096, 0), bench.client("d", 4096, 0));
    let mut idle = bench.client("d", 4096, 0);
    stops.begin_write(1 << 20, 1000);
    slow.begin_write(1 << 20, 1000);
    let mut ended = None;
    for second in 0..300 {
        bench.round();
        bench.round();
        if stops.heard().is_none() {
            ended.get_or_insert(second);
        }
        assert_eq!((slow.heard(), idle.heard()), (Some(0), Some(0)), "after {second} s");
        if second % 50 == 0 {
            slow.socket.write_all(&[7; 100]).unwrap();
        }
        bench.server.now += Duration::from_secs(1);
    }
    assert!(ended.is_some_and(|second| (60..=62).contains(&second)), "{ended:?}");
    let texts: Vec<_> = notices.try_iter().collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].0 == "d" && texts[0].1.contains("nothing of a payload for 60s"), "{texts:?}");
    assert!(bench.server.waits.due().is_some(), "the slow one is looked at again");
    drop((stops, slow, idle));
    for _ in 0..3 {
        bench.round();
    }
    assert_eq!(bench.server.waits.due(), None, "whoever is gone is not");
    assert_eq!(bench.server.plane.memory.buffers.out(), 0);
}

/// The node ends to begin anew, and a pool's storage hangs until nobody waits for it any more. Clients whose disks were not flushed by then lose
/// their connections: no FLUSH of theirs is answered by a program that does not know what came before.
#[test]
fn no_client_is_carried_over_whose_disk_was_not_flushed() {
    for (hangs, left) in [(1, [&[][..], &["d", "hung"]]), (0, [&["d"], &["hung"]])] {
        let pool = "[[pool]]\nname = \"c\"\nmemory = true\ncapacity = \"64MiB\"\nfaults = { stalls = \"100%\", stall = \"1h\" }\n";
        let mut bench =
            Bench::new(&(pool.to_owned() + &disk("d", "a", "weight = 1") + &disk("hung", "c", "weight = 1")));
        let _idle = [bench.client("d", 4096, 0), bench.client("hung", 4096, 0)];
        let _asks = bench.client("hung", 4096, hangs);
        for _ in 0..4 {
            bench.round();
        }
        orders::begin_stopping(&mut bench.server, true);
        for _ in 0..20 {
            bench.round();
            assert_eq!(orders::finished(&mut bench.server), None, "storage may answer yet");
        }
        bench.server.now += STOPPING;
        let abandoned = orders::finished(&mut bench.server).expect("nobody waits any longer");
        let mut ended = leaving::leave(bench.server, abandoned);
        ended.part_with_unflushed();
        let guests: Vec<&str> = ended.guests.iter().map(|guest| guest.disk.as_str()).collect();
        assert_eq!([&guests[..], &ended.unflushed.iter().map(String::as_str).collect::<Vec<_>>()], left);
    }
}

/// By TCP the loop sleeps until all of a payload is there. Whatever a read ended with, the next command is heard of, however short it is.
#[test]
fn what_follows_a_long_payload_is_heard_however_both_are_cut() {
    const LONG: usize = 128 << 10;
    let mut bench = Bench::listening(&disk("d", "a", "weight = 1"), ", \"nbd://127.0.0.1:0\"");
    let address = bench.server.entrance.listeners[1].address.tcp("nbd").unwrap();
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut text = 3u32.to_be_bytes().to_vec();
    text.extend(0x4948_4156_454f_5054u64.to_be_bytes());
    text.extend([0, 0, 0, 1, 0, 0, 0, 1, b'd']); // NBD_OPT_EXPORT_NAME
    socket.write_all(&text).unwrap();
    let heard = |bench: &mut Bench, socket: &mut std::net::TcpStream, len: usize, what: &str| {
        let (mut got, mut at, begun) = (vec![0; len], 0, std::time::Instant::now());
        while begun.elapsed().as_secs() < 20 {
            bench.round();
            match socket.read(&mut got[at..]) {
                Ok(n) => at += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            if at == len {
                return;
            }
        }
        panic!("{at} of {len} bytes: {what}");
    };
    heard(&mut bench, &mut socket, 18 + 10, "the greeting");
    let mut seed = 1u64;
    for case in 0..200 {
        let mut text = Vec::new();
        for (kind, len) in [(1u8, LONG), (0, 512), (1, 40_000), (0, 4096)] {
            text.extend(0x2560_9513u32.to_be_bytes());
            text.extend([0, 0, 0, kind]);
            text.extend([0; 16]);
            text.extend((len as u32).to_be_bytes());
            text.resize(text.len() + if kind == 1 { len } else { 0 }, 7);
        }
        let mut at = 0;
        while at < text.len() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let most = [40, 5000, 70_000, 200_000][(seed >> 61) as usize % 4];
            let to = text.len().min(at + 1 + (seed >> 33) as usize % most);
            // What the socket does not take at once is written when it does.
            match socket.write(&text[at..to]) {
                Ok(n) => at += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            bench.round();
        }
        heard(&mut bench, &mut socket, 16 + 16 + 512 + 16 + 16 + 4096, &format!("case {case}"));
    }
}

/// Whoever waits for the node's memory is told of, and not closed; it goes on once there is some.
#[test]
fn who_waits_for_memory_is_told_of() {
    let mut bench = Bench::new(&(disk("d", "a", "weight = 1") + &disk("hog", "b", "weight = 1")));
    let (to, notices) = std::sync::mpsc::channel();
    manage::tell_notices(&mut bench.server.plane, to);
    let mut client = bench.client("d", 4096, 0);
    let mut kept = Vec::new();
    for (number, len) in [(1, 1 << 20), (0, 1 << 20), (0, 4096)] {
        while let Some(buffer) = bench.server.plane.take_buffer(number, len) {
            kept.push((number, buffer));
        }
    }
    client.begin_write(1 << 20, 1000);
    for _ in 0..100 {
        bench.round();
        bench.server.now += Duration::from_secs(1);
    }
    let texts: Vec<_> = notices.try_iter().map(|(name, text)| format!("{name}: {text}")).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    for part in ["d: a command of an NBD client from this machine", "memory for 5", "8MiB of 8MiB", "hog "] {
        assert!(texts[0].contains(part), "{part} in {texts:?}");
    }
    assert_eq!(client.heard(), Some(0), "it is not its doing");
    kept.drain(..).for_each(|(number, buffer)| bench.server.plane.put_buffer(number, buffer));
    let mut rest = &vec![7; (1 << 20) - 1000][..];
    let mut got = 0;
    for _ in 0..1000 {
        if let Ok(n) = client.socket.write(rest) {
            rest = &rest[n..];
        }
        bench.round();
        got += client.heard().expect("it is served");
    }
    assert_eq!((rest.len(), got), (0, 16), "the WRITE is answered");
}

/// A client that hangs up while it waits for memory leaves its place to another at once. One that only says no more has as long as it takes
/// until somebody is told of it.
#[test]
fn who_hangs_up_does_not_wait_for_memory() {
    let mut bench = Bench::new(&(disk("d", "a", "weight = 1") + &disk("hog", "b", "weight = 1")));
    let mut kept = Vec::new();
    let mut waiting = [bench.client("d", 4096, 0), bench.client("d", 4096, 0)];
    for (number, len) in [(1, 1 << 20), (0, 1 << 20), (0, 4096)] {
        while let Some(buffer) = bench.server.plane.take_buffer(number, len) {
            kept.push((number, buffer));
        }
    }
    waiting.iter_mut().for_each(|client| client.begin_write(1 << 20, 1000));
    (0..10).for_each(|_| _ = bench.round());
    let there = |bench: &Bench| bench.server.clients.all.len();
    assert_eq!(there(&bench), 2, "they wait");
    let [gone, silent] = waiting;
    drop(gone);
    (0..10).for_each(|_| _ = bench.round());
    assert_eq!(there(&bench), 1, "it has hung up");
    silent.socket.shutdown(std::net::Shutdown::Write).unwrap();
    (0..10).for_each(|_| _ = bench.round());
    assert_eq!(there(&bench), 1, "it may still listen");
    bench.server.now += Duration::from_secs(6);
    (0..10).for_each(|_| _ = bench.round());
    assert_eq!(there(&bench), 0);
    kept.drain(..).for_each(|(number, buffer)| bench.server.plane.put_buffer(number, buffer));
}

/// Whoever sleeps is woken later than a server on the same machine answers. So its answer is looked for, as its client's next command is.
#[test]
fn an_answer_of_a_server_is_looked_for_where_one_client_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let far = format!(
        "listen = \"nbd+unix://{0}/far\"\nstate_dir = \"{0}/state\"\n[[pool]]\nname = \"m\"\nmemory = true\ncapacity = \"64MiB\"\n{1}",
        dir.path().display(),
        disk("web", "m", "")
    );
    let far = crate::Node::start(NodeConfig::parse(Text::new("far.toml", far)).unwrap()).unwrap();
    let pool = format!(
        "[[pool]]\nname = \"f\"\nnbd = {{ uri = \"nbd+unix:///web?socket={}/far\", connections = 1 }}\n",
        dir.path().display()
    );
    let web = disk("web", "f", "") + "adopt = true\n";
    let mut bench = Bench::new(&(pool + &web));
    let mut client = bench.client("web", 4096, 0);
    for (asked, is_looked_for) in [(1, true), (2, false), (1, true)] {
        (0..asked).for_each(|_| client.ask());
        let (mut alone, mut events) = (false, Vec::with_capacity(EVENTS));
        let (mut looks, mut answered) = (Vec::new(), 0);
        while answered < asked {
            bench.server.events(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert!(!events.is_empty(), "the server answers");
            events.iter().for_each(|event| bench.server.happened(event));
            alone = bench.server.is_asked_alone(&events, alone);
            bench.server.turn();
            let now = std::mem::take(&mut bench.server.poll.answered);
            looks.push(bench.server.is_looked_for(alone, now));
            answered += now;
        }
        // With its command at the server, and with all answered.
        assert_eq!(looks.first(), Some(&is_looked_for));
        assert!(!is_looked_for || looks.last() == Some(&true), "{looks:?}");
    }
    far.stop().unwrap();
}

/// A loop that looks without sleeping keeps the kernel's workers from its processor. Of a gate whose requests they may have, one waits here for
/// its limit.
#[test]
fn nothing_is_looked_for_while_workers_may_want_the_processor() {
    let mut bench = Bench::new(&(disk("web", "a", "") + &disk("slow", "b", "limit = \"1/s\"")));
    let [mut web, mut slow] = ["web", "slow"].map(|disk| bench.client(disk, 4096, 0));
    let mut events = Vec::with_capacity(EVENTS);
    let mut is_looked_for = |bench: &mut Bench| {
        web.ask();
        bench.server.events(&mut events, Some(Duration::from_secs(10))).unwrap();
        events.iter().for_each(|event| bench.server.happened(event));
        let alone = bench.server.is_asked_alone(&events, false);
        bench.server.turn();
        let answered = std::mem::take(&mut bench.server.poll.answered);
        assert_eq!((alone, answered), (true, 1));
        bench.server.is_looked_for(alone, answered)
    };
    assert!(is_looked_for(&mut bench));
    (0..9).for_each(|_| slow.ask());
    (0..4).for_each(|_| _ = bench.round());
    bench.server.poll.answered = 0;
    assert!(!is_looked_for(&mut bench));
}

/// A client's deep queue at storage that takes its time is answered one by one. Who looks for the next answer each time never sleeps.
#[test]
fn nothing_is_looked_for_beside_a_deep_queue_at_storage_that_takes_its_time() {
    let slow = "[[pool]]\nname = \"e\"\nmemory = true\ncapacity = \"64MiB\"\nemulated = { constant = { time = \"10ms\" } }\n";
    let mut bench = Bench::new(&(slow.to_owned() + &disk("web", "e", "")));
    bench.server.plane.pools.copy_nothing();
    let mut web = bench.client("web", 4096, 0);
    (0..2).for_each(|_| web.ask());
    let is_looked_for = |bench: &mut Bench| {
        let answered = loop {
            bench.round();
            let answered = std::mem::take(&mut bench.server.poll.answered);
            if answered > 0 {
                break answered;
            }
            bench.server.now += Duration::from_millis(1);
        };
        assert_eq!(answered, 1);
        bench.server.is_looked_for(true, answered)
    };
    assert!(!is_looked_for(&mut bench), "there is another one");
    assert!(is_looked_for(&mut bench), "its client has nothing else to wait for");
}
