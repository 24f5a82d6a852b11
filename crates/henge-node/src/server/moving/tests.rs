//! Two shards round by round, in one thread: real sockets, storage in memory, and no time that passes by itself.

use super::super::patience::Patience;
use super::super::slots::{ConnectionSlots, Counts, Most};
use super::super::{EVENTS, Setup};
use super::*;
use crate::config::NodeConfig;
use crate::listen::Listener;
use crate::plane::Plane;
use crate::shards::{Division, Shards};
use crate::spread::across::Across;
use henge_config::Source as Text;
use henge_core::{Duration, Instant};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;

/// A node of two shards without threads. Shard 0 has pool a with disk x, shard 1 has pool b with disks y and z. Shard 0 alone accepts.
struct Pair {
    servers: Vec<Server>,
    counts: Arc<Counts>,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new(per_disk: usize) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd");
        let listen =
            format!("[\"nbd+unix://{}\", \"iscsi://127.0.0.1:0\", \"nvme://127.0.0.1:0\"]", path.display());
        let pool = |name, shard| {
            format!("[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"64MiB\"\nshard = {shard}\n")
        };
        let disk =
            |name, pool| format!("[[disk]]\nname = \"{name}\"\npool = \"{pool}\"\ncapacity = \"8MiB\"\n");
        let disks = disk("x", "a") + &disk("y", "b") + &disk("z", "b");
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
                listeners: listeners.clone(),
                tls: None,
                limits: config.limits,
                state_dir: crate::state::StateDir::Forgets,
                slots: ConnectionSlots::new(most, Arc::clone(&counts), 2),
                patience: Patience { payload: Duration::from_secs(60), memory: Duration::from_secs(5) },
                busy_poll: Duration::ZERO,
                messages,
                shards: Arc::clone(&shards),
                here,
                started: std::time::Instant::now(),
            };
            let mut server = Server::new(setup).unwrap();
            let served: Vec<usize> = server.plane.served().map(|(number, _)| number).collect();
            served.into_iter().for_each(|number| server.publish(number));
            server
        };
        let mut servers: Vec<Server> =
            messages.into_iter().enumerate().zip(shards.lanes()).map(server).collect();
        servers[0].open(Vec::new());
        let mut pair = Pair { servers, counts, path, _dir: dir };
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
        [0, 1].map(|shard| self.servers[shard].connections.len())
    }

    fn nbd(&self) -> UnixStream {
        let socket = UnixStream::connect(&self.path).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn tcp(&self, scheme: &str) -> TcpStream {
        let at = self.servers[0].listeners.iter().find_map(|l| l.address.tcp(scheme)).unwrap();
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
    let number = pair.servers[1].plane.number("y").unwrap();
    assert_eq!(pair.servers[1].plane.disk(number).connections, 1);
    drop(client);
    (0..4).for_each(|round| pair.round(round % 2));
    assert_eq!((pair.counts.all(), pair.connected()), (0, [0, 0]));
    assert_eq!(pair.servers[1].plane.disk(number).connections, 0);
    assert_eq!(pair.servers[1].plane.buffers.out(), 0);
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
    pair.servers[1].begin_removing("y".into(), reply);
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
    let number = pair.servers[1].plane.number("y").unwrap();
    let (export, doors) = {
        let disk = pair.servers[1].plane.disk(number);
        (disk.export(), disk.config.doors.clone())
    };
    pair.servers[1].hide(number);
    pair.servers[1].show(number, export, &doors);
    assert!(pair.until(&mut client, usize::MAX).len() <= SAID, "it had come for the one before");
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

#[test]
fn an_initiator_logs_in_where_its_disk_is_and_finds_all_by_discovery() {
    let mut pair = Pair::new(64);
    let login = |text: &str| {
        let mut header = [0; 48];
        (header[0], header[1]) = (0x43, 0x87); // login; from operational negotiation to the full feature phase
        header[5..8].copy_from_slice(&(text.len() as u32).to_be_bytes()[1..]);
        let mut bytes = [&header[..], text.as_bytes()].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
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
fn a_host_connects_where_its_disk_is_and_is_greeted_once() {
    let mut pair = Pair::new(64);
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
    assert_eq!(pair.connected(), [0, 1]);
}
