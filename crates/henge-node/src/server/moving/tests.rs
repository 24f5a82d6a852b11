//! Two shards round by round, in one thread: real sockets, storage in memory, and no time that passes by itself.

use super::super::slots::{ConnectionSlots, Counts, Most};
use super::super::turn::EVENTS;
use super::super::{Entrance, Patience, Setup};
use super::*;
use crate::config::NodeConfig;
use crate::listen::Listener;
use crate::plane::Plane;
use crate::server::{doors, leaving, moving, orders, removal};
use crate::shards::across::Across;
use crate::shards::{Division, Shards};
use crate::spread::extents;
use henge_config::Source as Text;
use henge_core::{Duration, Instant};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;

mod hot;
mod reads;

/// A node of two shards without threads. Shard 0 has pool a with disk x, shard 1 has pool b with disks y and z. Shard 0 alone accepts.
struct Pair {
    servers: Vec<Server>,
    counts: Arc<Counts>,
    path: PathBuf,
    _dir: tempfile::TempDir,
    _closes: std::sync::RwLockReadGuard<'static, ()>,
}

impl Pair {
    fn new(per_disk: usize) -> Pair {
        Pair::of(per_disk, "", "")
    }

    /// The same with more of the pools, and more disks.
    fn of(per_disk: usize, of_pools: &str, more: &str) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd");
        let listen =
            format!("[\"nbd+unix://{}\", \"iscsi://127.0.0.1:0\", \"nvme://127.0.0.1:0\"]", path.display());
        let pool = |name, shard| {
            format!(
                "[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"64MiB\"\nshard = {shard}\n{of_pools}\n"
            )
        };
        let disk =
            |name, pool| format!("[[disk]]\nname = \"{name}\"\npool = \"{pool}\"\ncapacity = \"8MiB\"\n");
        let disks = disk("x", "a") + &disk("y", "b") + &disk("z", "b") + more;
        let text = format!("listen = {listen}\ncores = 2\n{}{}{disks}", pool("a", 0), pool("b", 1));
        let config = NodeConfig::parse(Text::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        let division = Division::of(&config, Vec::new()).unwrap();
        let (shards, messages) = Shards::new(division.count(), Vec::new()).unwrap();
        let (shards, counts): (_, Arc<Counts>) = (Arc::new(shards), Arc::default());
        let listeners: Vec<_> = config.listen.iter().map(|l| Arc::new(Listener::bind(l).unwrap())).collect();
        let most = Most { all: 300, per_address: 300, per_disk };
        let server = |((here, messages), lanes)| {
            let across = Across::new(lanes, here, division.clone());
            let plane = Plane::open_shard(&config, across, 1, false, Instant::ZERO);
            let setup = Setup {
                plane: plane.unwrap_or_else(|e| panic!("{}", config.source.point(e))),
                entrance: Entrance {
                    listeners: listeners.clone(),
                    arrivals: Default::default(),
                    tls: None,
                    limits: config.bounds.limits,
                    slots: ConnectionSlots::new(most, Arc::clone(&counts), 2),
                },
                state_dir: crate::state::StateDir::Forgets,
                patience: Patience { payload: Duration::from_secs(60), memory: Duration::from_secs(5) },
                busy_poll: Duration::ZERO,
                messages,
                shards: Arc::clone(&shards),
                here,
                started: std::time::Instant::now(),
            };
            let mut server = Server::new(setup).unwrap();
            let served: Vec<usize> = server.plane.disks.served().map(|(number, _)| number).collect();
            served.into_iter().for_each(|number| publish(&mut server, number));
            server
        };
        let mut servers: Vec<Server> =
            messages.into_iter().enumerate().zip(shards.lanes()).map(server).collect();
        leaving::open(&mut servers[0], Vec::new());
        let mut pair = Pair { servers, counts, path, _dir: dir, _closes: crate::children::none_begins() };
        (0..2).for_each(|shard| pair.round(shard));
        pair
    }

    fn round(&mut self, shard: usize) {
        let server = &mut self.servers[shard];
        let mut events = Vec::with_capacity(EVENTS);
        server.events(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().for_each(|event| server.happened(event));
        server.turn();
        let took = Duration::from_nanos(server.turns.estimated().max(1));
        server.now += took;
        server.turns.measured(took);
    }

    /// Rounds of both until the client has got so many bytes, or its end: what it has got.
    fn until(&mut self, client: &mut impl Read, bytes: usize) -> Vec<u8> {
        let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        for _ in 0..10_000 {
            (0..2).for_each(|shard| self.round(shard));
            match client.read(&mut buffer) {
                Ok(0) => return got,
                Ok(n) => got.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return got,
                Err(e) => panic!("{e}"),
            }
            if got.len() >= bytes {
                return got;
            }
        }
        panic!("{} of {bytes} bytes came", got.len());
    }

    fn connected(&self) -> [usize; 2] {
        [0, 1].map(|shard| self.servers[shard].clients.all.len())
    }

    fn nbd(&self) -> UnixStream {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn tcp(&self, scheme: &str) -> TcpStream {
        let at = self.servers[0].entrance.listeners.iter().find_map(|l| l.address.tcp(scheme)).unwrap();
        let socket = TcpStream::connect(at).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }
}

/// The client's flags, and GO for a disk.
fn go(disk: &str) -> Vec<u8> {
    let mut text = 3u32.to_be_bytes().to_vec(); // fixed newstyle, no zeroes
    text.extend(0x4948_4156_454f_5054u64.to_be_bytes());
    text.extend(7u32.to_be_bytes()); // NBD_OPT_GO
    text.extend((6 + disk.len() as u32).to_be_bytes());
    text.extend((disk.len() as u32).to_be_bytes());
    text.extend(disk.as_bytes());
    text.extend([0, 0]);
    text
}

fn command(kind: u16, cookie: u64, at: u64, len: u32) -> Vec<u8> {
    let mut text = 0x2560_9513u32.to_be_bytes().to_vec();
    text.extend([0, 0]);
    text.extend(kind.to_be_bytes());
    text.extend(cookie.to_be_bytes());
    text.extend(at.to_be_bytes());
    text.extend(len.to_be_bytes());
    text
}

/// The greeting; what is said of an export (export and its end): 18, and 20 + 12, and 20.
const SAID: usize = 18 + 32 + 20;

#[test]
fn what_is_sent_behind_go_is_not_lost() {
    let mut pair = Pair::new(64);
    let mut client = pair.nbd();
    // Everything at once: the disk is another shard's, and a WRITE and a READ of it are there already, with the beginning of a third.
    let more = command(0, 3, 0, 4096);
    let (write, read) = (command(1, 1, 4096, 4096), command(0, 2, 4096, 4096));
    let text = [&go("y")[..], &write, &[7; 4096], &read, &more[..11]].concat();
    client.write_all(&text).unwrap();
    let got = pair.until(&mut client, SAID + 16 + 16 + 4096);
    assert_eq!(got.len(), SAID + 16 + 16 + 4096);
    assert!(got[got.len() - 4096..].iter().all(|byte| *byte == 7), "it reads what it wrote");
    assert_eq!(pair.connected(), [0, 1]);
    client.write_all(&more[11..]).unwrap();
    let got = pair.until(&mut client, 16 + 4096);
    assert!(got[16..].iter().all(|byte| *byte == 0));
    // It has its slot until it goes, and the disk its connection.
    assert_eq!(pair.counts.all(), 1);
    let number = pair.servers[1].plane.disks.number("y").unwrap();
    assert_eq!(pair.servers[1].plane.disks.of(number).connections, 1);
    drop(client);
    (0..4).for_each(|round| pair.round(round % 2));
    assert_eq!((pair.counts.all(), pair.connected()), (0, [0, 0]));
    assert_eq!(pair.servers[1].plane.disks.of(number).connections, 0);
    assert_eq!(pair.servers[1].plane.memory.buffers.out(), 0);
}

#[test]
fn a_client_of_a_disk_that_is_here_or_nowhere_stays() {
    let mut pair = Pair::new(64);
    let (mut here, mut nowhere) = (pair.nbd(), pair.nbd());
    here.write_all(&go("x")).unwrap();
    nowhere.write_all(&go("w")).unwrap();
    pair.until(&mut here, SAID);
    let got = pair.until(&mut nowhere, 18 + 20);
    let reply = u32::from_be_bytes(got[18 + 12..18 + 16].try_into().unwrap());
    assert_eq!(reply, 1 << 31 | 6, "NBD_REP_ERR_UNKNOWN");
    assert_eq!(pair.connected(), [2, 0]);
}

#[test]
fn a_disk_that_is_removed_while_a_client_moves_to_it_ends_the_client() {
    let mut pair = Pair::new(64);
    let mut client = pair.nbd();
    client.write_all(&go("y")).unwrap();
    for _ in 0..100 {
        pair.round(0);
        if pair.connected() == [0, 0] && pair.counts.all() == 1 {
            break; // on its way
        }
    }
    assert_eq!((pair.connected(), pair.counts.all()), ([0, 0], 1));
    let (reply, _answer) = mpsc::channel();
    removal::begin_removing(&mut pair.servers[1], "y".into(), reply, None);
    assert!(pair.until(&mut client, usize::MAX).len() <= SAID);
    assert_eq!((pair.connected(), pair.counts.all()), ([0, 0], 0));
    // The first shard knows it by now.
    let mut late = pair.nbd();
    late.write_all(&go("y")).unwrap();
    let got = pair.until(&mut late, 18 + 20);
    assert_eq!(u32::from_be_bytes(got[18 + 12..18 + 16].try_into().unwrap()), 1 << 31 | 6);
}

#[test]
fn another_disk_of_that_number_is_not_taken_for_it() {
    let mut pair = Pair::new(64);
    let mut client = pair.nbd();
    client.write_all(&go("y")).unwrap();
    for _ in 0..100 {
        pair.round(0);
        if pair.connected() == [0, 0] && pair.counts.all() == 1 {
            break;
        }
    }
    let number = pair.servers[1].plane.disks.number("y").unwrap();
    let (export, doors) = {
        let disk = pair.servers[1].plane.disks.of(number);
        (disk.export(), disk.config.doors.clone())
    };
    moving::hide(&mut pair.servers[1], number);
    moving::show(&mut pair.servers[1], number, export, &doors);
    assert!(pair.until(&mut client, usize::MAX).len() <= SAID, "it had come for the one before");
    assert_eq!((pair.connected(), pair.counts.all()), ([0, 0], 0));
}

#[test]
fn a_door_that_is_closed_while_a_client_moves_is_closed_to_it() {
    let mut pair = Pair::new(64);
    let mut client = pair.nbd();
    client.write_all(&go("y")).unwrap();
    for _ in 0..100 {
        pair.round(0);
        if pair.connected() == [0, 0] && pair.counts.all() == 1 {
            break;
        }
    }
    let mut guarded = henge_api::Table::default();
    guarded.set("iscsi", serde_json::json!({ "user": "web", "secret": "twelve bytes" }));
    doors::change_doors(&mut pair.servers[1], "y", &guarded).unwrap();
    assert!(pair.until(&mut client, usize::MAX).len() <= SAID, "it was let in by what was said before");
    assert_eq!((pair.connected(), pair.counts.all()), ([0, 0], 0));
}

#[test]
fn a_crowd_arrives_a_bounded_number_at_a_time_and_none_is_lost() {
    let mut pair = Pair::new(300);
    let mut clients: Vec<UnixStream> = (0..200).map(|_| pair.nbd()).collect();
    clients.iter_mut().for_each(|client| client.write_all(&go("y")).unwrap());
    // The first shard alone has its turns: the other's mailbox fills.
    for _ in 0..200 {
        pair.round(0);
        pair.servers[0].now += Duration::from_micros(500); // they may come
    }
    assert_eq!((pair.connected(), pair.counts.all()), ([0, 0], 200));
    pair.round(1);
    assert!((1..=64).contains(&pair.connected()[1]), "{:?}", pair.connected());
    for client in &mut clients {
        assert_eq!(pair.until(client, SAID).len(), SAID);
    }
    assert_eq!(pair.connected(), [0, 200]);
}

#[test]
fn a_disk_that_is_full_says_so_at_every_shard() {
    let mut pair = Pair::new(2);
    let mut clients = [pair.nbd(), pair.nbd()];
    for client in &mut clients {
        client.write_all(&go("y")).unwrap();
        pair.until(client, SAID);
    }
    let mut third = pair.nbd();
    third.write_all(&go("y")).unwrap();
    let got = pair.until(&mut third, 18 + 20);
    let reply = u32::from_be_bytes(got[18 + 12..18 + 16].try_into().unwrap());
    assert!(reply & 1 << 31 != 0, "an error: {reply:#x}");
    assert_eq!(pair.connected(), [1, 2]);
    let [one, _other] = clients;
    drop(one);
    (0..4).for_each(|round| pair.round(round % 2));
    let mut fourth = pair.nbd();
    fourth.write_all(&go("y")).unwrap();
    pair.until(&mut fourth, SAID);
    assert_eq!(pair.connected(), [1, 2]);
}

/// A login from operational negotiation to the full feature phase.
fn login(text: &str) -> Vec<u8> {
    let mut header = [0; 48];
    (header[0], header[1]) = (0x43, 0x87);
    header[5..8].copy_from_slice(&(text.len() as u32).to_be_bytes()[1..]);
    let mut bytes = [&header[..], text.as_bytes()].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn an_initiator_logs_in_where_its_disk_is_and_finds_all_by_discovery() {
    let mut pair = Pair::new(64);
    let mut client = pair.tcp("iscsi");
    let text = "InitiatorName=iqn.i\0SessionType=Normal\0TargetName=iqn.2026-11.local.henge:y\0";
    client.write_all(&login(text)).unwrap();
    let got = pair.until(&mut client, 48);
    assert_eq!((got[0], got[36]), (0x23, 0), "logged in");
    assert_eq!(pair.connected(), [0, 1]);
    let mut asks = pair.tcp("iscsi");
    let text = "InitiatorName=iqn.i\0SessionType=Discovery\0";
    asks.write_all(&login(text)).unwrap();
    let got = pair.until(&mut asks, 48);
    assert_eq!((got[0], got[36]), (0x23, 0));
    let mut header = [0; 48];
    (header[0], header[1], header[7]) = (0x44, 0x80, 16);
    header[20..24].copy_from_slice(&[0xff; 4]);
    asks.write_all(&[&header[..], b"SendTargets=All\0"].concat()).unwrap();
    let mut found = String::new();
    while !["henge:x", "henge:y", "henge:z"].iter().all(|name| found.contains(name)) {
        found += &String::from_utf8_lossy(&pair.until(&mut asks, 1));
    }
    assert_eq!(pair.connected(), [1, 1]);
}

#[test]
fn a_host_connects_where_its_disk_is_shown_and_is_greeted_once() {
    // Of a hot pool that is another loop than its gate's.
    for (of_pools, connected) in [("", [0, 1]), ("every_core = true", [1, 0])] {
        connect_once(Pair::of(64, of_pools, ""), connected);
    }
}

fn connect_once(mut pair: Pair, connected: [usize; 2]) {
    let mut client = pair.tcp("nvme");
    let mut greeting = [0; 128];
    (greeting[2], greeting[4]) = (128, 128); // ICReq
    let mut connect = vec![0; 72 + 1024];
    let len = connect.len() as u32;
    connect[..4].copy_from_slice(&[4, 0, 72, 72]);
    connect[4..8].copy_from_slice(&len.to_le_bytes());
    connect[8] = 0x7f;
    connect[9] = 0x40; // by SGL
    connect[12] = 1; // Connect
    connect[8 + 32..8 + 36].copy_from_slice(&1024u32.to_le_bytes());
    connect[8 + 39] = 0x01; // in the capsule
    connect[8 + 44] = 31; // entries, less one
    let data = &mut connect[72..];
    data[0] = 1;
    data[16..18].copy_from_slice(&[0xff; 2]);
    let nqn = b"nqn.2026-11.local.henge:y";
    data[256..256 + nqn.len()].copy_from_slice(nqn);
    data[512..521].copy_from_slice(b"nqn.host1");
    client.write_all(&[&greeting[..], &connect].concat()).unwrap();
    let got = pair.until(&mut client, 128 + 24);
    assert_eq!(got.len(), 128 + 24, "one ICResp, one answer");
    assert_eq!((got[0], got[128]), (1, 5));
    assert_eq!(&got[128 + 8 + 14..128 + 8 + 16], &[0, 0], "it is connected: {:?}", &got[128..]);
    assert_eq!(pair.connected(), connected);
}

const WIDE: &str = "[[disk]]\nname = \"wide\"\npools = [\"b\", \"a\"]\ncapacity = \"8MiB\"\n";

fn write(cookie: u64, at: u64, byte: u8, len: usize) -> Vec<u8> {
    [&command(1, cookie, at, len as u32)[..], &vec![byte; len]].concat()
}

#[test]
fn every_core_gets_its_part_of_the_clients_and_they_see_one_disk() {
    let mut pair = Pair::of(64, "every_core = true", "");
    // Shard 0 alone accepts. Disk y's gate is at shard 1.
    let mut clients: Vec<UnixStream> = (0..6).map(|_| pair.nbd()).collect();
    for client in &mut clients {
        client.write_all(&go("y")).unwrap();
        assert_eq!(pair.until(client, SAID).len(), SAID);
    }
    assert_eq!(pair.connected(), [4, 2], "the loop with the gate gets less");
    for (n, client) in clients.iter_mut().enumerate() {
        client.write_all(&write(1, n as u64 * 5000, n as u8 + 1, 5000)).unwrap();
        pair.until(client, 16);
    }
    for client in &mut clients {
        client.write_all(&command(0, 2, 0, 30_000)).unwrap();
        let got = pair.until(client, 16 + 30_000);
        assert!(got[16..].iter().enumerate().all(|(i, byte)| usize::from(*byte) == i / 5000 + 1));
    }
    drop(clients);
    (0..4).for_each(|round| pair.round(round % 2));
    assert_eq!((pair.connected(), pair.counts.all()), ([0, 0], 0));
    assert_eq!([0, 1].map(|shard| pair.servers[shard].plane.memory.buffers.out()), [0, 0]);
}

#[test]
fn who_goes_leaves_nothing_at_the_other_shard() {
    for (of_pools, disk) in [("", "wide"), ("every_core = true", "y"), ("every_core = true", "wide")] {
        let mut pair = Pair::of(64, of_pools, WIDE);
        for round in 0..20 {
            let mut client = pair.nbd();
            client.write_all(&go(disk)).unwrap();
            pair.until(&mut client, SAID);
            let asks: Vec<u8> = (0..16).flat_map(|n| write(n, n * 65_536 + 100, 1, 70_000)).collect();
            // As much as the socket takes. The shards stop somewhere on the way.
            let sent = client.write(&asks).unwrap();
            assert!(sent > 0);
            (0..round).for_each(|n| pair.round(n % 2));
            drop(client);
            (0..12).for_each(|n| pair.round(n % 2));
            assert_eq!(pair.connected(), [0, 0], "{disk} {round}");
            for shard in 0..2 {
                let plane = &pair.servers[shard].plane;
                assert!(plane.is_idle() && plane.memory.buffers.out() == 0, "{disk} {round}: shard {shard}");
            }
        }
    }
}

#[test]
fn a_disk_goes_from_both_shards_with_its_clients_commands() {
    let mut pair = Pair::of(64, "", WIDE);
    let mut client = pair.nbd();
    client.write_all(&go("wide")).unwrap();
    pair.until(&mut client, SAID);
    let asks: Vec<u8> = (0..8).flat_map(|n| write(n, n * 65_536, 1, 65_536)).collect();
    let _ = client.write(&asks).unwrap();
    pair.round(1); // the lead has sent its parts to shard 0, which has not looked
    let replies: Vec<_> = [0, 1]
        .into_iter()
        .map(|shard| {
            let (reply, answer) = mpsc::channel();
            removal::begin_removing(&mut pair.servers[shard], "wide".into(), reply, None);
            answer
        })
        .collect();
    (0..20).for_each(|round| pair.round(round % 2));
    // The threads that unlink parts are not this test's.
    for shard in 0..2 {
        let plane = &pair.servers[shard].plane;
        assert!(plane.disks.number("wide").is_none() && plane.is_idle(), "shard {shard}");
    }
    drop(replies);
    let mut late = pair.nbd();
    late.write_all(&go("wide")).unwrap();
    let got = pair.until(&mut late, 18 + 20);
    assert_eq!(u32::from_be_bytes(got[18 + 12..18 + 16].try_into().unwrap()), 1 << 31 | 6);
}

#[test]
fn an_owner_that_is_not_there_answers_so() {
    let mut pair = Pair::of(64, "", WIDE);
    let number = pair.servers[0].plane.disks.number("wide").unwrap();
    // As if shard 0 had lost it, and shard 1 had not heard.
    let server = &mut pair.servers[0];
    extents::withdraw(&mut server.plane, number, server.now);
    let mut client = pair.nbd();
    client.write_all(&go("wide")).unwrap();
    pair.until(&mut client, SAID);
    client.write_all(&write(1, 0, 1, 131_072)).unwrap();
    let got = pair.until(&mut client, 16);
    assert_ne!(got[4..8], [0; 4], "half of it is nowhere");
    // Once it has heard, it waits for another owner.
    moving::tell_owners(&pair.servers[0], "wide", vec![(1, owner(0, number))], false);
    client.write_all(&write(2, 0, 1, 131_072)).unwrap();
    (0..20).for_each(|round| pair.round(round % 2));
    let mut buffer = [0; 16];
    assert_eq!(client.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn no_shard_ends_while_another_needs_it() {
    let mut pair = Pair::of(64, "", WIDE);
    let mut client = pair.nbd();
    client.write_all(&go("wide")).unwrap();
    pair.until(&mut client, SAID);
    let (begun, rest) = (write(1, 0, 1, 131_072), 100_000);
    client.write_all(&begun[..begun.len() - rest]).unwrap();
    (0..4).for_each(|round| pair.round(round % 2));
    for shard in [0, 1] {
        orders::begin_stopping(&mut pair.servers[shard], false);
    }
    // Shard 0 has nothing to do, and the client of shard 1 has begun something.
    for _ in 0..10 {
        pair.round(0);
        assert_eq!(orders::finished(&mut pair.servers[0]), None, "it will be needed");
    }
    client.write_all(&begun[begun.len() - rest..]).unwrap();
    let rounds = (0..100).take_while(|_| {
        pair.round(1);
        pair.servers[1].plane.inner.is_empty()
    });
    assert!(rounds.count() < 100, "it has sent shard 0 its half");
    (0..4).for_each(|_| pair.round(1));
    // The other half is over. The command's memory is lent to shard 0, and must not go.
    assert!(pair.servers[1].plane.pools.gates.iter().all(|gate| gate.pipeline.gate().in_flight() == 0));
    assert!(!pair.servers[1].plane.is_idle());
    let mut ended = [None; 2];
    for round in 0..40 {
        let shard = round % 2;
        if ended[shard].is_none() {
            pair.round(shard);
            ended[shard] = orders::finished(&mut pair.servers[shard]);
        }
    }
    assert_eq!(ended, [Some(0); 2]);
    let mut reply = [0; 16];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4], "it was done");
    assert!(pair.servers.iter().all(|server| server.plane.disks.unflushed().next().is_none()));
}

fn owner(shard: usize, number: usize) -> Owner {
    Owner { shard, number, unit: henge_link::WireUnit::Bytes, reach: None }
}

/// What a client of the property does next.
#[derive(Clone, Debug)]
enum Step {
    /// A write of a place of its own, in pieces of some odd length.
    Write {
        client: usize,
        place: u64,
        byte: u8,
    },
    Read {
        client: usize,
        place: u64,
    },
    /// It goes in the middle of whatever it does, and another comes.
    Leave {
        client: usize,
        pending: bool,
    },
    Rounds {
        shard: usize,
        count: usize,
    },
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    let client = 0usize..4;
    prop_oneof![
        4 => (client.clone(), 0u64..6, 1u8..255).prop_map(|(client, place, byte)| Step::Write { client, place, byte }),
        4 => (client.clone(), 0u64..6).prop_map(|(client, place)| Step::Read { client, place }),
        1 => (client, any::<bool>()).prop_map(|(client, pending)| Step::Leave { client, pending }),
        3 => (0usize..2, 1usize..4).prop_map(|(shard, count)| Step::Rounds { shard, count }),
    ]
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(48))]
    /// Whatever clients of a disk over both shards do, and in whatever order shards have their rounds: what was answered is read, and no memory is
    /// left when all are gone.
    #[test]
    fn what_was_answered_is_read(everywhere: bool, steps in proptest::collection::vec(step(), 1..60)) {
        // Places of odd lengths over several stripes, beside each other's.
        const LEN: u64 = 70_001;
        let mut pair = Pair::of(64, if everywhere { "every_core = true" } else { "" }, WIDE);
        let join = |pair: &mut Pair| {
            let mut client = pair.nbd();
            client.write_all(&go("wide")).unwrap();
            pair.until(&mut client, SAID);
            client
        };
        let mut clients: Vec<UnixStream> = (0..4).map(|_| join(&mut pair)).collect();
        let mut model = [0u8; 24];
        let at = |client: usize, place: u64| (client as u64 * 6 + place) * LEN;
        for step in steps {
            match step {
                Step::Write { client, place, byte } => {
                    clients[client].write_all(&write(1, at(client, place), byte, LEN as usize)).unwrap();
                    let got = pair.until(&mut clients[client], 16);
                    proptest::prop_assert_eq!(&got[4..8], &[0; 4]);
                    model[client * 6 + place as usize] = byte;
                }
                Step::Read { client, place } => {
                    clients[client].write_all(&command(0, 1, at(client, place), LEN as u32)).unwrap();
                    let got = pair.until(&mut clients[client], 16 + LEN as usize);
                    let byte = model[client * 6 + place as usize];
                    proptest::prop_assert!(got[16..].iter().all(|b| *b == byte));
                }
                Step::Leave { client, pending } => {
                    if pending {
                        // As it is already: whether it is done or not shows nowhere.
                        let byte = model[client * 6];
                        clients[client].write_all(&write(9, at(client, 0), byte, LEN as usize)).unwrap();
                        pair.round(client % 2);
                    }
                    clients[client] = join(&mut pair);
                }
                Step::Rounds { shard, count } => (0..count).for_each(|_| pair.round(shard)),
            }
        }
        drop(clients);
        (0..12).for_each(|round| pair.round(round % 2));
        for shard in 0..2 {
            let plane = &pair.servers[shard].plane;
            proptest::prop_assert!(plane.is_idle() && plane.memory.buffers.out() == 0);
        }
    }
}
