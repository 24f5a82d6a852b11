//! Hosts by NVMe of whose writes the data stops coming.

use super::{Bench, disk};
use crate::plane::manage;
use crate::server::doors;
use henge_api::Table;
use henge_core::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

const HOST: &str = "nqn.2026-11.example:host";
const MIB: u32 = 1 << 20;

/// One queue of a host, from the specifications' text (NVMe/TCP 1.0, section 3.6).
struct Queue {
    stream: TcpStream,
    command: u16,
}

impl Queue {
    fn open(bench: &mut Bench, number: u16, controller: u16) -> (Queue, u16) {
        let mut queue = Queue::come(bench);
        let joined = queue.connect(bench, number, controller);
        (queue, joined)
    }

    /// A controller's admin queue, and its first I/O queue.
    fn pair(bench: &mut Bench) -> (Queue, Queue) {
        let (mut admin, controller) = Queue::open(bench, 0, 0xffff);
        let mut enable = [0; 64];
        (enable[0], enable[4], enable[40], enable[44]) = (0x7f, 0, 0, 0x14);
        enable[48..52].copy_from_slice(&0x0046_0001u32.to_le_bytes());
        admin.send(enable, 0, &[]);
        assert_eq!(admin.answer(bench, 24)[0], 5);
        let (io, _) = Queue::open(bench, 1, controller);
        (admin, io)
    }

    /// How a READ of a block ends, which fails.
    fn refused(&mut self, bench: &mut Bench) -> u16 {
        let mut entry = [0; 64];
        (entry[0], entry[4]) = (2, 1);
        self.send(entry, 512, &[]);
        let response = self.answer(bench, 24);
        u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff
    }

    /// A connection that has agreed on how to speak.
    fn come(bench: &mut Bench) -> Queue {
        let address: SocketAddr = bench.server.entrance.listeners[1].address.tcp("nvme").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        // The kernel keeps nothing back: here time passes without it.
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut queue = Queue { stream, command: 0 };
        let mut hello = [0; 128];
        (hello[2], hello[4]) = (128, 128);
        queue.stream.write_all(&hello).unwrap();
        assert_eq!(queue.answer(bench, 128)[0], 1, "ICResp");
        queue
    }

    /// It becomes a queue, of this controller, whose number is answered.
    fn connect(&mut self, bench: &mut Bench, number: u16, controller: u16) -> u16 {
        let mut data = vec![0; 1024];
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        let name = b"nqn.2026-11.local.henge:d";
        data[256..256 + name.len()].copy_from_slice(name);
        data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
        let mut connect = [0; 64];
        (connect[0], connect[4]) = (0x7f, 1);
        connect[42..44].copy_from_slice(&number.to_le_bytes());
        connect[44] = 31;
        self.send(connect, data.len() as u32, &data);
        let response = self.answer(bench, 24);
        assert_eq!((response[0], response[22] >> 1), (5, 0), "Connect is answered well");
        u16::from_le_bytes([response[8], response[9]])
    }

    /// A command whose data goes with it, or is to be asked for.
    fn send(&mut self, mut entry: [u8; 64], len: u32, data: &[u8]) {
        self.command += 1;
        entry[1] = 0x40;
        entry[2..4].copy_from_slice(&self.command.to_le_bytes());
        entry[32..36].copy_from_slice(&len.to_le_bytes());
        entry[39] = if data.is_empty() { 0x5a } else { 1 };
        let at = if data.is_empty() { 0 } else { 72 };
        let mut capsule = vec![4, 0, 72, at];
        capsule.extend((72 + data.len() as u32).to_le_bytes());
        capsule.extend(entry);
        capsule.extend(data);
        self.stream.write_all(&capsule).unwrap();
    }

    /// A WRITE of a MiB.
    fn write(&mut self) {
        let mut entry = [0; 64];
        (entry[0], entry[4]) = (1, 1);
        entry[48..50].copy_from_slice(&((MIB / 512 - 1) as u16).to_le_bytes());
        self.send(entry, MIB, &[]);
    }

    /// The header of data for that R2T, and the first bytes of it.
    fn begin(&mut self, asked: &[u8], bytes: usize) {
        let len = u32::from_le_bytes(asked[16..20].try_into().unwrap());
        let mut header = vec![6, 4, 24, 24];
        header.extend((24 + len).to_le_bytes());
        header.extend(&asked[8..20]);
        header.extend([0; 4]);
        header.extend(vec![7; bytes]);
        self.stream.write_all(&header).unwrap();
    }

    /// The next so many bytes that the node sends.
    fn answer(&mut self, bench: &mut Bench, len: usize) -> Vec<u8> {
        let mut got = vec![0; len];
        let mut at = 0;
        let begun = std::time::Instant::now();
        // What goes by TCP may take a while.
        while begun.elapsed().as_secs() < 20 {
            bench.round();
            match self.stream.read(&mut got[at..]) {
                Ok(0) => panic!("the node has hung up"),
                Ok(n) => at += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            if at == len {
                return got;
            }
        }
        panic!("{at} of {len} bytes came");
    }

    fn is_over(&mut self) -> bool {
        let read = self.stream.read(&mut [0; 64]);
        !matches!(read, Err(e) if e.kind() == ErrorKind::WouldBlock)
    }
}

#[test]
fn a_hosts_payload_that_stops_coming_ends_its_connection_and_a_slow_one_does_not() {
    let mut bench = Bench::listening(&disk("d", "a", "weight = 1"), ", \"nvme://127.0.0.1:0\"");
    let (to, notices) = std::sync::mpsc::channel();
    manage::tell_notices(&mut bench.server.plane, to);
    // Three hosts: one stops within its data, one sends none, one is slow.
    let mut hosts: Vec<(Queue, Queue)> = (0..3).map(|_| Queue::pair(&mut bench)).collect();
    for (n, (_, io)) in hosts.iter_mut().enumerate() {
        io.write();
        let asked = io.answer(&mut bench, 24);
        assert_eq!(asked[0], 9, "R2T");
        if n != 1 {
            io.begin(&asked, 1000);
        }
    }
    let mut ended = [None; 3];
    for second in 0..200 {
        bench.round();
        bench.round();
        for ((_, io), ended) in hosts.iter_mut().zip(&mut ended) {
            if ended.is_none() && io.is_over() {
                *ended = Some(second);
            }
        }
        if second % 50 == 0 {
            let slow = hosts[2].1.stream.write_all(&[7; 100]);
            assert!(
                slow.is_ok(),
                "after {second} s: {slow:?} {ended:?}; {:?}",
                notices.try_iter().collect::<Vec<_>>()
            );
        }
        bench.server.now += Duration::from_secs(1);
    }
    for n in [0, 1] {
        assert!(ended[n].is_some_and(|second| (59..=62).contains(&second)), "{ended:?}");
    }
    assert_eq!(ended[2], None, "the slow one goes on");
    let texts: Vec<_> = notices.try_iter().collect();
    assert!(!texts.is_empty() && texts[0].1.contains("nothing of a payload for 60s"), "{texts:?}");
    drop(hosts);
    for _ in 0..4 {
        bench.round();
    }
    assert_eq!(bench.server.plane.memory.buffers.out(), 0, "its memory is free again");
}

/// Strangers who connect to a guarded disk and prove nothing take none of its places, and make way for each other.
#[test]
fn a_host_has_a_place_at_a_disk_once_it_has_proven_who_it_is() {
    let secret = "nvme = { secret = \"DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\" }\n";
    let disks = disk("d", "a", "weight = 1") + secret;
    let mut bench = Bench::listening(&disks, ", \"nvme://127.0.0.1:0\"");
    let mut strangers: Vec<Queue> = (0..20).map(|_| Queue::open(&mut bench, 0, 0xffff).0).collect();
    assert_eq!(bench.server.plane.disks.of(0).connections, 0);
    let over = strangers.iter_mut().map(Queue::is_over).filter(|over| *over).count();
    assert_eq!(over, 4, "of 64 places a quarter is for those who have proven nothing");
}

/// Nobody knows who reserved a disk whose table cannot be read. It stays closed, whoever is shut out and let in meanwhile.
#[test]
fn a_disk_that_is_closed_to_hosts_stays_so_when_its_doors_change() {
    const INACCESSIBLE: u16 = 0x302;
    let files = [("d.reservations", "nonsense\n")];
    let listen = ", \"nvme://127.0.0.1:0\", \"iscsi://127.0.0.1:0\"";
    let mut bench = Bench::remembering(&disk("d", "a", "weight = 1"), listen, &files);
    let (_admin, mut io) = Queue::pair(&mut bench);
    assert_eq!(io.refused(&mut bench), INACCESSIBLE);
    let mut guarded = Table::default();
    guarded.set("iscsi", serde_json::json!({ "user": "web", "secret": "twelve bytes" }));
    for table in [guarded, Table::default()] {
        doors::change_doors(&mut bench.server, "d", &table).unwrap();
    }
    let (_admin, mut io) = Queue::pair(&mut bench);
    assert_eq!(io.refused(&mut bench), INACCESSIBLE);
}

/// Commands that wait at a disk are given up all at once when their host says so, and those of others stay.
#[test]
fn commands_that_are_aborted_are_given_up_and_no_others() {
    const ABORTED: u16 = 7;
    let mut bench = Bench::listening(&disk("d", "a", "limit = \"1/s\""), ", \"nvme://127.0.0.1:0\"");
    let (mut admin, mut io) = Queue::pair(&mut bench);
    let (_other, mut others) = Queue::pair(&mut bench);
    let first = io.command + 1;
    let mut read = [0; 64];
    (read[0], read[4]) = (2, 1);
    for _ in 0..20 {
        io.send(read, 512, &[]);
    }
    bench.round();
    others.send(read, 512, &[]);
    let served = io.answer(&mut bench, 24 + 512 + 24);
    assert_eq!((served[0], bench.server.plane.disks.of(0).vdisk.pending()), (7, 20), "one a second");
    for command in first..first + 20 {
        let mut abort = [0; 64];
        abort[0] = 8;
        abort[40..42].copy_from_slice(&1u16.to_le_bytes());
        abort[42..44].copy_from_slice(&command.to_le_bytes());
        admin.send(abort, 0, &[]);
    }
    admin.answer(&mut bench, 20 * 24);
    let ends = io.answer(&mut bench, 19 * 24);
    let ends: Vec<u16> =
        ends.chunks(24).map(|end| u16::from_le_bytes([end[22], end[23]]) >> 1 & 0x7ff).collect();
    assert_eq!(ends, [ABORTED; 19]);
    assert_eq!(bench.server.plane.disks.of(0).vdisk.pending(), 1, "the other host's");
    bench.server.now += Duration::from_secs(2);
    assert_eq!(others.answer(&mut bench, 24 + 512 + 24)[0], 7);
}
