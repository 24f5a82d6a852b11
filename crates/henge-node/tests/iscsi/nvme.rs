//! NVMe beside the others: one virtual disk, one contract, three kinds of client; and hosts without manners.

use super::{Initiator, Nbd, connect, reserve};
use henge_api::Request;
use henge_config::Source;
use henge_node::{Node, NodeConfig};
use henge_nvme::service_log;
use henge_nvme::wire::{Common, le16, le32, le64, pdu};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

mod crowd;

const NQN: &str = "nqn.2026-11.local.henge:web";
const HOST: &str = "nqn.2026-11.example:host";

fn start(disk: &str) -> (Node, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    (start_in(state.path(), disk), state)
}

fn start_in(state: &Path, disk: &str) -> Node {
    let text = format!(
        "listen = [\"nbd://127.0.0.1:0\", \"iscsi://127.0.0.1:0\", \"nvme://127.0.0.1:0\"]\nstate_dir = \"{}\"\n\
         [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"256MiB\"\n\
         scheduler = {{ sfq = {{ depth = 4, cost = \"requests\" }} }}\n\
         [[disk]]\nname = \"web\"\ncapacity = \"64MiB\"\n{disk}",
        state.display()
    );
    let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    Node::start(config).unwrap_or_else(|e| panic!("{e}"))
}

fn address(node: &Node) -> SocketAddr {
    let found = node.addresses().iter().find_map(|address| address.tcp("nvme"));
    found.expect("it was asked for")
}

/// A submission entry.
struct Entry([u8; 64]);

impl Entry {
    fn new(opcode: u8) -> Entry {
        let mut e = Entry([0; 64]);
        (e.0[0], e.0[1], e.0[39]) = (opcode, 0x40, 0x5a);
        e
    }
    fn put(mut self, at: usize, bytes: &[u8]) -> Entry {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
    fn dword(self, n: usize, value: u32) -> Entry {
        self.put(n * 4, &value.to_le_bytes())
    }
    /// Blocks of namespace 1.
    fn blocks(self, first: u64, count: usize) -> Entry {
        self.dword(1, 1).put(40, &first.to_le_bytes()).dword(12, count as u32 - 1)
    }
}

/// A queue, written from the specifications' text: one command at a time.
struct Queue {
    stream: TcpStream,
    cid: u16,
}

impl Queue {
    /// A connection and its Connect; how that ended.
    fn open(at: SocketAddr, qid: u16, cntlid: u16, nqn: &str) -> (Queue, u16, u64) {
        Queue::open_as(1, at, qid, cntlid, nqn)
    }

    /// The same, of the host whose identifier is made of this byte.
    fn open_as(host: u8, at: SocketAddr, qid: u16, cntlid: u16, nqn: &str) -> (Queue, u16, u64) {
        let mut queue = Queue { stream: connect(at), cid: 0 };
        let mut hello = [0; 128];
        (hello[2], hello[4]) = (128, 128);
        queue.stream.write_all(&hello).unwrap();
        queue.stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[0], pdu::IC_RESP);
        let mut data = vec![0; 1024];
        data[..16].fill(host);
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
        let entry = Entry::new(0x7f).put(4, &[1]).put(42, &qid.to_le_bytes()).put(44, &[31]);
        let (status, result, _) = queue.run(entry, 0, &data);
        (queue, status, result)
    }

    fn send(&mut self, entry: Entry, read: usize, data: &[u8]) {
        self.cid += 1;
        let mut entry = entry.put(2, &self.cid.to_le_bytes()).dword(8, read.max(data.len()) as u32);
        let in_capsule = !data.is_empty() && data.len() <= 8192;
        entry.0[39] = if in_capsule { 1 } else { 0x5a };
        let capsule = if in_capsule { data } else { &[] };
        let at = if in_capsule { 72 } else { 0 };
        let mut bytes = vec![0; 8];
        let len = (72 + capsule.len()) as u32;
        Common { kind: pdu::COMMAND, flags: 0, header: 72, data_at: at, len }.write(&mut bytes);
        bytes.extend(entry.0);
        bytes.extend(capsule);
        self.stream.write_all(&bytes).unwrap();
    }

    fn receive(&mut self) -> (Common, Vec<u8>) {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head).unwrap();
        let common = Common::read(&head).unwrap();
        let mut rest = vec![0; common.len as usize - 8];
        self.stream.read_exact(&mut rest).unwrap();
        (common, [head.to_vec(), rest].concat())
    }

    /// One command: its status, its result, and the data that came. Data of more than 8 KiB are sent when asked for.
    fn run(&mut self, entry: Entry, read: usize, data: &[u8]) -> (u16, u64, Vec<u8>) {
        self.send(entry, read, data);
        let mut got = Vec::new();
        loop {
            let (common, bytes) = self.receive();
            match common.kind {
                pdu::RESPONSE => return (le16(&bytes, 22) >> 1 & 0x7ff, le64(&bytes, 8), got),
                pdu::C2H_DATA => got.extend(&bytes[usize::from(common.data_at)..]),
                pdu::R2T => {
                    let (from, len) = (le32(&bytes, 12) as usize, le32(&bytes, 16) as usize);
                    let mut header = bytes[..24].to_vec();
                    let len_all = (24 + len) as u32;
                    let flags = pdu::LAST;
                    Common { kind: pdu::H2C_DATA, flags, header: 24, data_at: 24, len: len_all }
                        .write(&mut header);
                    self.stream.write_all(&header).unwrap();
                    self.stream.write_all(&data[from..from + len]).unwrap();
                }
                other => panic!("an unexpected PDU {other:#x}"),
            }
        }
    }
}

/// A host with a controller and one I/O queue.
struct Host {
    admin: Queue,
    io: Queue,
}

impl Host {
    fn connect(node: &Node) -> Host {
        Host::connect_as(1, node)
    }
    fn connect_as(host: u8, node: &Node) -> Host {
        let (mut admin, status, cntlid) = Queue::open_as(host, address(node), 0, 0xffff, NQN);
        assert_eq!(status, 0);
        let enable = Entry::new(0x7f).dword(11, 0x14).dword(12, 0x0046_0001);
        assert_eq!(admin.run(enable, 0, &[]).0, 0);
        let (io, status, _) = Queue::open_as(host, address(node), 1, cntlid as u16, NQN);
        assert_eq!(status, 0);
        Host { admin, io }
    }
    fn read(&mut self, first: u64, len: usize) -> Vec<u8> {
        let (status, _, data) = self.io.run(Entry::new(2).blocks(first, len / 512), len, &[]);
        assert_eq!(status, 0);
        data
    }
    fn write(&mut self, first: u64, data: &[u8]) -> u16 {
        self.io.run(Entry::new(1).blocks(first, data.len() / 512), 0, data).0
    }
    /// A change of who may use the disk, by the command's own dword and keys; its status.
    fn reserve(&mut self, opcode: u8, dword: u32, keys: &[u64]) -> u16 {
        let keys: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        self.io.run(Entry::new(opcode).dword(1, 1).dword(10, dword), 0, &keys).0
    }
    /// Reservation Report: its type, whether it persists, and for each registrant its key and whether it holds.
    fn report(&mut self) -> (u8, u8, Vec<(u64, u8)>) {
        let entry = Entry::new(0x0e).dword(1, 1).dword(10, 255).dword(11, 1);
        let (status, _, page) = self.io.run(entry, 1024, &[]);
        assert_eq!(status, 0);
        let entries = page[64..].chunks(64).take(usize::from(le16(&page, 5)));
        (page[4], page[9], entries.map(|entry| (le64(entry, 8), entry[2])).collect())
    }
    /// The reservation notification log: the type of the oldest one.
    fn notification(&mut self) -> u8 {
        let (status, _, page) = self.admin.run(Entry::new(2).dword(10, 0x80 | 15 << 16), 64, &[]);
        assert_eq!(status, 0);
        page[8]
    }
    fn service(&mut self) -> henge_nvme::Service {
        let (status, _, page) = self.admin.run(Entry::new(2).dword(10, 0xc0 | 127 << 16), 512, &[]);
        assert_eq!(status, 0);
        service_log::decode(&page).unwrap()
    }
}

#[test]
fn what_a_host_writes_all_others_read() {
    let (node, _state) = start("");
    let (mut host, mut initiator, mut nbd) =
        (Host::connect(&node), Initiator::connect(&node, 1), Nbd::connect(&node));
    let pattern = |seed: usize, len: usize| (0..len).map(|i| (i * 31 + seed) as u8).collect::<Vec<u8>>();
    // In the capsule, beside block borders of 4 KiB, and asked for.
    for (i, len) in [512, 4096, 1536, 65536, 1 << 20].into_iter().enumerate() {
        let (first, data) = (3000 * i as u32 + 3, pattern(i, len));
        assert_eq!(host.write(u64::from(first), &data), 0);
        assert!(nbd.read(u64::from(first) * 512, len) == data, "{len} bytes by NBD");
        assert!(initiator.read(first, len.min(65536)) == data[..len.min(65536)], "{len} bytes by iSCSI");
        let data = pattern(i + 100, len);
        nbd.ask(1, u64::from(first) * 512, len as u32, &data);
        assert!(host.read(u64::from(first), len) == data, "{len} bytes by NVMe");
    }
    // A fused compare and write sees what NBD wrote, and is seen by NBD. The first half is answered with the second.
    let mut swap = |old: u8, new: u8| {
        let compare = Entry::new(5).blocks(8, 1);
        let write = Entry::new(1).blocks(8, 1);
        host.io.send(compare.put(1, &[0x41]), 0, &[old; 512]);
        host.io.send(write.put(1, &[0x42]), 0, &[new; 512]);
        let status = |bytes: &[u8]| le16(bytes, 22) >> 1 & 0x7ff;
        (status(&host.io.receive().1), status(&host.io.receive().1))
    };
    nbd.ask(1, 4096, 512, &[1; 512]);
    assert_eq!(swap(2, 3), (0x285, 0x009));
    assert_eq!(nbd.read(4096, 512), [1; 512]);
    assert_eq!(swap(1, 4), (0, 0));
    assert_eq!(nbd.read(4096, 512), [4; 512]);
    // Deallocate: one range of one block.
    let mut range = vec![0; 16];
    (range[4], range[8]) = (1, 8);
    let (status, ..) = host.io.run(Entry::new(9).dword(1, 1).dword(11, 4), 0, &range);
    assert_eq!((status, nbd.read(4096, 512)), (0, vec![0; 512]));
    assert_eq!(host.io.run(Entry::new(0).dword(1, 1), 0, &[]).0, 0, "flush");
    let status = node.control().status().unwrap();
    assert_eq!(status.disk("web").unwrap().connections, 4, "two queues, and the others");
    drop((host, initiator, nbd));
    node.stop().unwrap();
}

#[test]
#[ignore = "in real time: make test-nvme"]
fn all_three_stay_within_the_one_contract_and_the_disk_says_so() {
    let limit = 400.0;
    let (node, _state) = start("contract = { limit = \"400/s\", burst = \"8\" }\n");
    let (mut host, mut initiator, mut nbd) =
        (Host::connect(&node), Initiator::connect(&node, 1), Nbd::connect(&node));
    let start = Instant::now();
    let until = start + Duration::from_millis(1500);
    let count = move |mut read: Box<dyn FnMut() + Send>| {
        std::thread::spawn(move || {
            let mut done = 0;
            while Instant::now() < until {
                read();
                done += 1;
            }
            done
        })
    };
    let by_nbd = count(Box::new(move || drop(nbd.read(0, 4096))));
    let by_iscsi = count(Box::new(move || drop(initiator.read(8, 4096))));
    let mut done = [0, 0, 0];
    while Instant::now() < until {
        host.read(16, 4096);
        done[2] += 1;
    }
    (done[0], done[1]) = (by_nbd.join().unwrap(), by_iscsi.join().unwrap());
    let seconds = start.elapsed().as_secs_f64();
    let total: i32 = done.iter().sum();
    // The bucket was full at first, and each may have ended one command after the time was up.
    assert!(f64::from(total) <= limit * seconds + 8.0 + 3.0, "{done:?} in {seconds} s");
    assert!(done.iter().all(|n| *n > 30), "{done:?}: none is kept out");
    let service = host.service();
    assert_eq!(service.contract.limit, Some(henge_core::Rate::requests(400)));
    assert!(service.reads >= total as u64, "{service:?}");
    let waited = service.waited[henge_core::WaitReason::OwnLimit as usize];
    assert!(waited > henge_core::Duration::from_millis(500), "it has waited for its own limit: {waited}");
    node.stop().unwrap();
}

#[test]
fn a_disk_that_grows_is_told_by_an_event() {
    let (node, _state) = start("");
    let mut host = Host::connect(&node);
    let events = Entry::new(9).dword(10, 0x0b).dword(11, 1 << 8);
    assert_eq!(host.admin.run(events, 0, &[]).0, 0);
    host.admin.send(Entry::new(0x0c), 0, &[]);
    let grow = Request::Grow { name: "web".into(), capacity: "128MiB".into() };
    assert!(node.control().ask(grow).unwrap().error.is_none());
    let (_, event) = host.admin.receive();
    assert_eq!(le32(&event, 8), 0x0004_0002, "namespace attribute changed: log page 4");
    let (status, _, space) = host.admin.run(Entry::new(6).dword(1, 1), 4096, &[]);
    assert_eq!((status, le64(&space, 0)), (0, (128 << 20) / 512));
    // One that goes takes its controllers along.
    assert!(node.control().ask(Request::Remove { name: "web".into() }).unwrap().error.is_none());
    assert_eq!(host.io.stream.read(&mut [0; 8]).unwrap_or(0), 0);
    node.stop().unwrap();
}

#[test]
fn only_listed_hosts_connect_and_find_the_disk() {
    let (node, _state) = start("nvme = { hosts = [\"nqn.2026-11.example:another\"] }\n");
    assert_eq!(Queue::open(address(&node), 0, 0xffff, NQN).1, 0x184);
    let (mut discovery, status, _) = Queue::open(address(&node), 0, 0xffff, henge_nvme::DISCOVERY);
    assert_eq!(status, 0);
    assert_eq!(discovery.run(Entry::new(0x7f).dword(11, 0x14).dword(12, 1), 0, &[]).0, 0);
    let (status, _, log) = discovery.run(Entry::new(2).dword(10, 0x70 | 255 << 16), 1024, &[]);
    assert_eq!((status, le64(&log, 8)), (0, 1), "the discovery subsystem itself, no more");
    node.stop().unwrap();
    let text = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\n[[disk]]\nname = \"web\"\ncapacity = \"1MiB\"\n";
    for wrong in
        ["nvme = { hosts = \"nqn.a:b\" }", "nvme = { hosts = [7] }", "nvme = { hosts = [\"iqn.a\"] }"]
    {
        let error = NodeConfig::parse(Source::new("node.toml", format!("{text}{wrong}\n"))).unwrap_err();
        assert!(error.to_string().contains("/etc/nvme/hostnqn"), "{error}");
    }
}

#[test]
fn broken_hosts_break_nobody_else() {
    let (node, _state) = start("");
    let mut good = Host::connect(&node);
    let at = address(&node);
    let mut garbage = connect(at);
    garbage.write_all(&[0xaa; 4096]).unwrap();
    let half_open: Vec<TcpStream> = (0..100).map(|_| connect(at)).collect();
    // A write whose data never come, and away.
    let mut rude = Host::connect(&node);
    rude.io.send(Entry::new(1).blocks(0, 128), 65536, &[]);
    assert_eq!(rude.io.receive().0.kind, pdu::R2T);
    drop(rude);
    // Many reads, and away before the first reply.
    let mut rude = Host::connect(&node);
    (0..30).for_each(|_| rude.io.send(Entry::new(2).blocks(0, 2048), 1 << 20, &[]));
    drop(rude);
    // More commands than the queue has entries: it alone ends.
    let mut rude = Host::connect(&node);
    let (mut bytes, entry) = (vec![0; 8], Entry::new(2).blocks(0, 8).dword(8, 4096));
    Common { kind: pdu::COMMAND, flags: 0, header: 72, data_at: 0, len: 72 }.write(&mut bytes);
    bytes.extend(entry.0);
    let many: Vec<u8> = (0..2000_u16)
        .flat_map(|cid| {
            bytes[10..12].copy_from_slice(&cid.to_le_bytes());
            bytes.clone()
        })
        .collect();
    let _ = rude.io.stream.write_all(&many);
    drop(rude);
    assert_eq!(good.write(8, &[5; 4096]), 0);
    assert_eq!(good.read(8, 4096), [5; 4096]);
    drop((garbage, half_open));
    let begin = Instant::now();
    loop {
        let status = node.control().status().unwrap();
        if status.disk("web").unwrap().connections == 2 && status.buffers_out == 0 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "memory of those that left does not come back");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(good.read(8, 4096), [5; 4096]);
    node.stop().unwrap();
}

/// SHA-256 of a key and a text.
fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

impl Queue {
    fn tell(&mut self, message: &[u8]) {
        let entry = Entry::new(0x7f).put(4, &[5]).put(41, &[1, 1, 0xe9]).dword(11, message.len() as u32);
        assert_eq!(self.run(entry, 0, message).0, 0);
    }
    fn ask(&mut self) -> Vec<u8> {
        let entry = Entry::new(0x7f).put(4, &[6]).put(41, &[1, 1, 0xe9]).dword(11, 4096);
        let (status, _, message) = self.run(entry, 4096, &[]);
        assert_eq!(status, 0);
        message
    }
    /// DH-HMAC-CHAP by SHA-256 and a group of 2048 bits, with the exponent 1: then 2^y is what both know. The last message.
    fn prove(&mut self, secret: &[u8]) -> Vec<u8> {
        use sha2::Digest;
        let mut negotiate = [0; 72];
        (negotiate[4], negotiate[7], negotiate[8]) = (1, 1, 1);
        (negotiate[10], negotiate[11], negotiate[12], negotiate[42]) = (1, 1, 1, 1);
        self.tell(&negotiate);
        let challenge = self.ask();
        assert_eq!((challenge[1], challenge[9], le16(&challenge, 10)), (1, 1, 256));
        let shared = sha2::Sha256::digest(&challenge[48..304]);
        let mut text = mac(&shared, &challenge[16..48]);
        text.extend(&challenge[12..16]);
        text.extend([1, 0, 0]);
        text.extend(["HostHost", HOST, "\0", NQN].concat().as_bytes());
        let mut reply = vec![0; 16];
        (reply[0], reply[1], reply[4], reply[6], reply[11]) = (1, 2, 1, 32, 1);
        reply.extend(mac(secret, &text));
        reply.resize(16 + 64 + 255, 0);
        reply.push(2);
        self.tell(&reply);
        self.ask()
    }
}

#[test]
fn a_host_proves_who_it_is_before_it_uses_the_disk() {
    const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let secret: Vec<u8> = (0..32).collect();
    let (node, _state) =
        start(&format!("nvme = {{ hosts = [{{ nqn = \"{HOST}\", secret = \"{SECRET}\" }}] }}\n"));
    let enable = || Entry::new(0x7f).dword(11, 0x14).dword(12, 0x0046_0001);
    let (mut liar, status, result) = Queue::open(address(&node), 0, 0xffff, NQN);
    assert_eq!((status, result >> 16), (0, 2), "it is asked to");
    assert_eq!(liar.run(enable(), 0, &[]).0, 0x191);
    assert_eq!(liar.prove(&[9; 32])[..8], [0, 0xf1, 0, 0, 1, 0, 1, 1]);
    assert_eq!(liar.stream.read(&mut [0]).unwrap(), 0, "and the connection is over");
    let (mut admin, _, cntlid) = Queue::open(address(&node), 0, 0xffff, NQN);
    assert_eq!(admin.prove(&secret)[..2], [1, 3]);
    assert_eq!(admin.run(enable(), 0, &[]).0, 0);
    let (mut io, ..) = Queue::open(address(&node), 1, cntlid as u16, NQN);
    assert_eq!(io.run(Entry::new(2).blocks(0, 1), 512, &[]).0, 0x191);
    assert_eq!(io.prove(&secret)[..2], [1, 3]);
    let mut host = Host { admin, io };
    assert_eq!(host.read(0, 512), [0; 512]);
    node.stop().unwrap();
}

const REGISTER: u8 = 0x0d;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;
const CONFLICT: u16 = 0x83;

#[test]
fn an_initiator_and_hosts_contest_one_reservation() {
    let (node, _state) = start("");
    let mut initiator = Initiator::connect(&node, 1);
    let (mut one, mut two) = (Host::connect_as(1, &node), Host::connect_as(2, &node));
    // The initiator has it: write exclusive.
    assert_eq!(reserve(&mut initiator, 0, 0, 0, 7), 0);
    assert_eq!(reserve(&mut initiator, 1, 1, 7, 0), 0);
    assert_eq!((one.write(0, &[1; 512]), one.read(0, 512)), (CONFLICT, vec![0; 512]));
    assert_eq!(one.reserve(ACQUIRE, 1 << 8, &[0x11, 0]), CONFLICT, "it is not registered");
    assert_eq!(one.reserve(REGISTER, 0, &[0, 0x11]), 0);
    assert_eq!(two.reserve(REGISTER, 0, &[0, 0x22]), 0);
    assert_eq!(one.reserve(ACQUIRE, 1 << 8, &[0x11, 0]), CONFLICT, "another holds it");
    assert_eq!(two.report().0, 1);
    let keys = |(_, _, mut entries): (u8, u8, Vec<(u64, u8)>)| {
        entries.sort_unstable();
        entries
    };
    assert_eq!(keys(two.report()), [(7, 1), (0x11, 0), (0x22, 0)]);
    let (status, all) = initiator.scsi(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 255, 0], 255, &[]);
    assert_eq!((status, all.len()), (0, 8 + 3 * 8), "READ KEYS");
    let (status, all) = initiator.scsi(&[0x5e, 3, 0, 0, 0, 0, 0, 1, 0, 0], 256, &[]);
    assert_eq!((status, &all[all.len() - 16..]), (0, &[2; 16][..]), "READ FULL STATUS names hosts");
    // A host preempts it: exclusive access.
    one.admin.send(Entry::new(0x0c), 0, &[]);
    two.admin.send(Entry::new(0x0c), 0, &[]);
    assert_eq!(one.reserve(ACQUIRE, 2 | 2 << 8, &[0x11, 7]), 0);
    assert_eq!(initiator.write(0, &[1; 512]), 2, "a unit attention: registrations preempted");
    assert_eq!(initiator.write(0, &[1; 512]), 0x18, "RESERVATION CONFLICT");
    assert_eq!((two.write(0, &[2; 512]), one.write(0, &[3; 512])), (CONFLICT, 0));
    assert_eq!(keys(two.report()), [(0x11, 1), (0x22, 0)]);
    // Its type is another than before: the host that stays is told that the former one has ended.
    let (_, event) = two.admin.receive();
    assert_eq!((le32(&event, 8), two.notification(), two.notification()), (0x80_0006, 2, 0));
    // And the initiator comes back and preempts the host, which is told.
    assert_eq!(reserve(&mut initiator, 0, 0, 0, 7), 0);
    assert_eq!(reserve(&mut initiator, 4, 3, 7, 0x11), 0);
    let (_, event) = one.admin.receive();
    assert_eq!((le32(&event, 8), one.notification()), (0x80_0006, 1));
    assert_eq!((one.write(0, &[4; 512]), initiator.write(0, &[5; 512])), (CONFLICT, 0));
    assert_eq!(one.reserve(RELEASE, 2 << 8, &[0x11]), CONFLICT, "it is registered no more");
    // A host that is registered clears all of it.
    assert_eq!(two.reserve(RELEASE, 1, &[0x22]), 0);
    assert_eq!(two.report(), (0, 1, vec![]));
    assert_eq!((one.write(0, &[6; 512]), two.write(0, &[7; 512])), (0, 0));
    node.stop().unwrap();
}

/// A disk that initiators have stopped, sanitize, or have reserved by RESERVE(6) is so for hosts too, and for NBD as far as it knows such states.
#[test]
fn what_initiators_say_of_a_disk_binds_other_protocols() {
    let (node, _state) = start("");
    let (mut initiator, mut nbd) = (Initiator::connect(&node, 1), Nbd::connect(&node));
    let mut host = Host::connect(&node);
    let (reserve, release) = ([0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]);
    initiator.scsi(&[0; 6], 0, &[]); // the unit attention of a new session
    assert_eq!(initiator.scsi(&reserve, 0, &[]).0, 0);
    assert_eq!(
        (host.write(0, &[1; 512]), host.io.run(Entry::new(2).blocks(0, 1), 512, &[]).0),
        (CONFLICT, CONFLICT)
    );
    assert_eq!(initiator.scsi(&release, 0, &[]).0, 0);
    assert_eq!(host.write(0, &[1; 512]), 0);
    // Stopped.
    assert_eq!(initiator.scsi(&[0x1b, 0, 0, 0, 0, 0], 0, &[]).0, 0);
    assert_eq!((host.write(0, &[2; 512]), nbd.error(1, 0, &[2; 512])), (0x82, 5));
    assert_eq!(
        (host.write(0, &[2; 1 << 20]), host.io.run(Entry::new(0).dword(1, 1), 0, &[]).0),
        (0x82, 0x82)
    );
    assert_eq!(initiator.scsi(&[0x1b, 0, 0, 0, 1, 0], 0, &[]).0, 0);
    assert_eq!((host.write(0, &[3; 512]), nbd.read(0, 512)), (0, vec![3; 512]));
    // Erased: BLOCK ERASE, answered at once. Meanwhile nothing is written, and afterwards everything may be.
    assert_eq!(initiator.scsi(&[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], 0, &[]).0, 0);
    assert_eq!(std::iter::repeat_with(|| host.write(8, &[4; 512])).find(|status| *status != 0x1d), Some(0));
    assert_eq!((nbd.error(1, 0, &[5; 512]), nbd.read(0, 512)), (0, vec![5; 512]));
    // Who has reserved it and goes has it no longer.
    assert_eq!(initiator.scsi(&reserve, 0, &[]).0, 0);
    assert_eq!(host.write(0, &[6; 512]), CONFLICT);
    drop(initiator);
    while host.write(0, &[6; 512]) == CONFLICT {}
    node.stop().unwrap();
}

#[test]
fn a_hosts_reservation_survives_a_restart_if_it_says_so() {
    let (node, state) = start("");
    let mut one = Host::connect_as(1, &node);
    assert_eq!(one.reserve(REGISTER, 3 << 30, &[0, 0x11]), 0);
    assert_eq!(one.reserve(ACQUIRE, 3 << 8, &[0x11, 0]), 0);
    node.stop().unwrap();
    let file = state.path().join("web.reservations");
    let text = std::fs::read_to_string(&file).unwrap();
    let name = format!("nvme,h,0x{}", "01".repeat(16));
    assert_eq!(text, format!("generation 1\nregister 0000000000000011 {name}\nreserve 5 {name}\n"));
    let node = start_in(state.path(), "nvme = { hosts = [\"nqn.2026-11.example:host\"] }\n");
    let (mut one, mut two) = (Host::connect_as(1, &node), Host::connect_as(2, &node));
    assert_eq!((two.write(0, &[2; 512]), one.write(0, &[1; 512])), (CONFLICT, 0));
    assert_eq!(two.report(), (3, 1, vec![(0x11, 1)]));
    // By Set Features it survives the next one no more.
    let set = Entry::new(9).dword(1, 1).dword(10, 0x83);
    assert_eq!(one.admin.run(set, 0, &[]).0, 0);
    node.stop().unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    // A file that nobody can read closes the disk to hosts, too.
    std::fs::write(&file, "garbage").unwrap();
    let node = start_in(state.path(), "");
    let mut one = Host::connect_as(1, &node);
    assert_eq!(one.write(0, &[1; 512]), 0x302, "by another path perhaps");
    assert_ne!(one.reserve(REGISTER, 0, &[0, 1]), 0);
    node.stop().unwrap();
}

#[test]
fn a_disk_that_only_hosts_find_has_reservations_too() {
    const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let (node, _state) = start(&format!("nvme = {{ secret = \"{SECRET}\" }}\n"));
    let secret: Vec<u8> = (0..32).collect();
    let join = |host: u8| {
        let (mut admin, _, cntlid) = Queue::open_as(host, address(&node), 0, 0xffff, NQN);
        assert_eq!(admin.prove(&secret)[..2], [1, 3]);
        let enable = Entry::new(0x7f).dword(11, 0x14).dword(12, 0x0046_0001);
        assert_eq!(admin.run(enable, 0, &[]).0, 0);
        let (mut io, ..) = Queue::open_as(host, address(&node), 1, cntlid as u16, NQN);
        assert_eq!(io.prove(&secret)[..2], [1, 3]);
        Host { admin, io }
    };
    let (mut one, mut two) = (join(1), join(2));
    assert_eq!(one.reserve(REGISTER, 0, &[0, 0x11]), 0);
    assert_eq!(one.reserve(ACQUIRE, 1 << 8, &[0x11, 0]), 0);
    assert_eq!((two.write(0, &[2; 512]), one.write(0, &[1; 512])), (CONFLICT, 0));
    // No initiator logs in, or is told of it.
    let text = super::discovered(&node);
    assert!(!text.contains("web"), "{text}");
    node.stop().unwrap();
}
