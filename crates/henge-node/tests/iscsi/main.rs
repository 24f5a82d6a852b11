//! iSCSI, NBD and NVMe at once: one virtual disk, one contract, several kinds of client.

mod bad;
#[allow(dead_code)] // whoever closes a connection here waits until the node has noticed
#[path = "../../../henge-proxy/src/children.rs"]
mod children;
mod nvme;

use henge_api::{Request, Table};
use henge_config::Source;
use henge_iscsi::wire::{Header, padding, request, response};
use henge_node::{Node, NodeConfig};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn start(disk: &str) -> (Node, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    (start_in(state.path(), disk), state)
}

fn start_in(state: &Path, disk: &str) -> Node {
    let text = format!(
        "listen = [\"nbd://127.0.0.1:0\", \"iscsi://127.0.0.1:0\"]\nstate_dir = \"{}\"\n\
         [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"256MiB\"\n\
         scheduler = {{ sfq = {{ depth = 4, cost = \"requests\" }} }}\n\
         [[disk]]\nname = \"web\"\ncapacity = \"64MiB\"\n{disk}",
        state.display()
    );
    let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    Node::start(config).unwrap_or_else(|e| panic!("{e}"))
}

fn addresses(node: &Node) -> (SocketAddr, SocketAddr) {
    let find = |scheme| node.addresses().iter().find_map(|address| address.tcp(scheme));
    find("nbd").zip(find("iscsi")).expect("both were asked for")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// An initiator, written from the RFC's text.
struct Initiator {
    stream: TcpStream,
    number: u32,
}

impl Initiator {
    fn connect(node: &Node, isid: u8) -> Initiator {
        let mut initiator = Initiator::log_in(node, isid, "InitialR2T=No\0");
        assert_eq!(initiator.scsi(&[0; 6], 0, &[]).0, 2, "the unit attention of a new session");
        initiator
    }
    /// The same, before its first command.
    fn log_in(node: &Node, isid: u8, keys: &str) -> Initiator {
        let stream = connect(addresses(node).1);
        let mut initiator = Initiator { stream, number: 1 };
        let text =
            format!("InitiatorName=iqn.2026-11.example:host\0TargetName=iqn.2026-11.local.henge:web\0{keys}");
        let mut login = Header::reply(0x40 | request::LOGIN);
        login.put(1, 0x87).put(8, 0x80).put(13, isid).put_u32(24, 1);
        initiator.send(login, text.as_bytes());
        let (reply, _) = initiator.receive();
        assert_eq!((reply.opcode(), reply.u16_at(36)), (response::LOGIN, 0));
        initiator
    }
    fn send(&mut self, mut header: Header, data: &[u8]) {
        header.put_data_len(data.len());
        let mut bytes = header.0.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + padding(data.len()), 0);
        self.stream.write_all(&bytes).unwrap();
    }
    fn receive(&mut self) -> (Header, Vec<u8>) {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header).unwrap();
        let header = Header(header);
        let len = header.data_len();
        let mut data = vec![0; len + padding(len)];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(len);
        (header, data)
    }
    /// One command, with its data within it; status, and the data or sense that came.
    fn scsi(&mut self, cdb: &[u8], read: u32, data: &[u8]) -> (u8, Vec<u8>) {
        let direction = if data.is_empty() { 0x40 } else { 0x20 };
        let expected = if data.is_empty() { read } else { data.len() as u32 };
        let mut header = Header::reply(request::SCSI);
        header.put(1, 0x80 | if expected > 0 { direction } else { 0 });
        header.put_u32(16, self.number).put_u32(20, expected).put_u32(24, self.number);
        header.0[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        self.send(header, data);
        let mut all = Vec::new();
        loop {
            let (reply, data) = self.receive();
            all.extend_from_slice(&data);
            match reply.opcode() {
                response::DATA if reply.0[1] & 1 == 0 => {}
                response::DATA | response::SCSI => return (reply.0[3], all),
                other => panic!("an unexpected PDU {other:#x}"),
            }
        }
    }
    fn write(&mut self, lba: u32, data: &[u8]) -> u8 {
        self.scsi(&cdb10(0x2a, lba, data.len()), 0, data).0
    }
    fn read(&mut self, lba: u32, len: usize) -> Vec<u8> {
        let (status, data) = self.scsi(&cdb10(0x28, lba, len), len as u32, &[]);
        assert_eq!(status, 0);
        data
    }
}

fn cdb10(opcode: u8, lba: u32, len: usize) -> [u8; 10] {
    let (lba, blocks) = (lba.to_be_bytes(), ((len / 512) as u16).to_be_bytes());
    [opcode, 0, lba[0], lba[1], lba[2], lba[3], 0, blocks[0], blocks[1], 0]
}

/// An NBD client of the oldest kind.
struct Nbd(TcpStream);

impl Nbd {
    fn connect(node: &Node) -> Nbd {
        let mut stream = connect(addresses(node).0);
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x03web");
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        Nbd(stream)
    }
    fn ask(&mut self, kind: u16, offset: u64, len: u32, data: &[u8]) {
        assert_eq!(self.error_of(kind, offset, len, data), 0);
    }
    /// How it ends.
    fn error(&mut self, kind: u16, offset: u64, data: &[u8]) -> u32 {
        self.error_of(kind, offset, data.len() as u32, data)
    }
    fn error_of(&mut self, kind: u16, offset: u64, len: u32, data: &[u8]) -> u32 {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend([0, 0]);
        request.extend(kind.to_be_bytes());
        request.extend(7u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request).unwrap();
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]])
    }
    fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.ask(0, offset, len as u32, &[]);
        let mut data = vec![0; len];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}

#[test]
fn what_one_kind_of_client_writes_the_other_reads() {
    let (node, _state) = start("");
    let (mut initiator, mut nbd) = (Initiator::connect(&node, 1), Nbd::connect(&node));
    let pattern = |seed: usize, len: usize| (0..len).map(|i| (i * 31 + seed) as u8).collect::<Vec<u8>>();
    for (i, len) in [512, 4096, 1536, 65536].into_iter().enumerate() {
        let (lba, data) = (1000 * i as u32 + 3, pattern(i, len));
        assert_eq!(initiator.write(lba, &data), 0);
        assert!(nbd.read(u64::from(lba) * 512, len) == data, "{len} bytes by NBD");
        let data = pattern(i + 100, len);
        nbd.ask(1, u64::from(lba) * 512, len as u32, &data);
        assert!(initiator.read(lba, len) == data, "{len} bytes by iSCSI");
    }
    // COMPARE AND WRITE sees what NBD wrote; ORWRITE and UNMAP are seen by NBD.
    nbd.ask(1, 4096, 512, &[1; 512]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[9], cdb[13]) = (0x89, 8, 1);
    let with = |old: u8, new: u8| [vec![old; 512], vec![new; 512]].concat();
    assert_eq!(initiator.scsi(&cdb, 0, &with(2, 3)).0, 2);
    assert_eq!(nbd.read(4096, 512), [1; 512]);
    assert_eq!(initiator.scsi(&cdb, 0, &with(1, 4)).0, 0);
    assert_eq!(nbd.read(4096, 512), [4; 512]);
    (cdb[0], cdb[13]) = (0x8b, 1);
    assert_eq!(initiator.scsi(&cdb, 0, &[3; 512]).0, 0);
    assert_eq!(nbd.read(4096, 512), [7; 512]);
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(8u64.to_be_bytes());
    list.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(initiator.scsi(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list).0, 0);
    assert_eq!(nbd.read(4096, 512), [0; 512]);
    let status = node.control().status().unwrap();
    assert_eq!(status.disk("web").unwrap().connections, 2);
    drop((initiator, nbd));
    node.stop().unwrap();
}

#[test]
fn four_kibibytes_are_best_written_whole_and_none_is_torn() {
    let (node, _state) = start("");
    let mut initiator = Initiator::connect(&node, 1);
    // READ CAPACITY(16): 2^0 logical blocks of 512 bytes in a physical one.
    let (status, data) = initiator.scsi(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], 32, &[]);
    assert_eq!((status, &data[8..12], data[13] & 0xf), (0, &[0, 0, 2, 0][..], 0));
    // Block limits: granularity of transfers and of UNMAP.
    let (status, page) = initiator.scsi(&[0x12, 1, 0xb0, 0, 64, 0, 0, 0, 0, 0], 64, &[]);
    assert_eq!((status, &page[6..8], &page[28..32]), (0, &[0, 8][..], &[0, 0, 0, 8][..]));
    node.stop().unwrap();
}

#[test]
fn both_together_stay_within_the_one_contract() {
    let limit = 400.0;
    let (node, _state) = start("contract = { limit = \"400/s\", burst = \"8\" }\n");
    let (mut initiator, mut nbd) = (Initiator::connect(&node, 1), Nbd::connect(&node));
    const EACH: u32 = 100;
    let start = Instant::now();
    let other = std::thread::spawn(move || (0..EACH).for_each(|_| drop(nbd.read(0, 4096))));
    (0..EACH).for_each(|_| drop(initiator.read(8, 4096)));
    other.join().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    // The bucket was full at first, and then it has one at once.
    assert!(f64::from(2 * EACH) <= limit * seconds + 8.0 + 1.0, "{} in {seconds} s", 2 * EACH);
    node.stop().unwrap();
}

#[test]
fn a_broken_initiator_breaks_nobody_else() {
    let (node, _state) = start("");
    let mut good = Initiator::connect(&node, 1);
    let iscsi = addresses(&node).1;
    let mut garbage = connect(iscsi);
    garbage.write_all(&[0xaa; 4096]).unwrap();
    let _half_open: Vec<TcpStream> = (0..100).map(|_| connect(iscsi)).collect();
    // A command whose data never come, and away.
    let mut rude = Initiator::connect(&node, 2);
    let mut header = Header::reply(request::SCSI);
    header.put(1, 0x20).put_u32(16, 9).put_u32(20, 65536).put_u32(24, rude.number);
    header.0[32..42].copy_from_slice(&cdb10(0x2a, 0, 65536));
    rude.send(header, &[1; 512]);
    drop(rude);
    // Many reads, and away before the first reply.
    let mut rude = Initiator::connect(&node, 3);
    for i in 0..100 {
        let mut header = Header::reply(request::SCSI);
        let number = rude.number + i;
        header.put(1, 0xc0).put_u32(16, number).put_u32(20, 65536).put_u32(24, number);
        header.0[32..42].copy_from_slice(&cdb10(0x28, 0, 65536));
        rude.send(header, &[]);
    }
    drop(rude);
    assert_eq!(good.write(8, &[5; 4096]), 0);
    assert_eq!(good.read(8, 4096), [5; 4096]);
    let begin = Instant::now();
    loop {
        let status = node.control().status().unwrap();
        if status.disk("web").unwrap().connections == 1 && status.buffers_out == 0 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "memory of those that left does not come back");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.stop().unwrap();
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_thousand_half_open_logins_cost_little_and_hinder_nobody() {
    if !children::is_alone("a_thousand_half_open_logins_cost_little_and_hinder_nobody") {
        return;
    }
    // Both ends are in this process.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 4096) {
        println!("skipped: a_thousand_half_open_logins_cost_little_and_hinder_nobody needs 4096 open files");
        return;
    }
    let raised = rustix::process::Rlimit { current: limit.current.map(|now| now.max(4096)), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let (node, _state) = start("");
    let mut good = Initiator::connect(&node, 1);
    assert_eq!(good.write(0, &[3; 4096]), 0);
    let iscsi = addresses(&node).1;
    let before = resident();
    let mut login = Header::reply(0x40 | request::LOGIN);
    login.put(1, 0x87).put(8, 0x80).put_u32(24, 1);
    let half_open: Vec<TcpStream> = (0..1000)
        .map(|i| {
            let mut stream = connect(iscsi);
            // Nothing, half of a header, or a header whose text never comes.
            login.put_data_len(4096);
            stream.write_all(&login.0[..[0, 24, 48][i % 3]]).unwrap();
            stream
        })
        .collect();
    for i in 0..50 {
        assert_eq!(good.write(i * 8, &[7; 4096]), 0);
        assert_eq!(good.read(i * 8, 4096), [7; 4096]);
    }
    let another = Initiator::connect(&node, 2);
    let grown = resident().saturating_sub(before);
    println!("{} half-open logins took {} KiB each", half_open.len(), grown / 1024 / half_open.len() as u64);
    assert!(grown < 64 << 20, "{grown} bytes");
    drop((half_open, another));
    node.stop().unwrap();
}

#[test]
fn who_is_not_let_in_is_told_so() {
    let (node, _state) = start("iscsi = { user = \"alice\", secret = \"twelve bytes\" }\n");
    let mut stranger = Initiator { stream: connect(addresses(&node).1), number: 1 };
    let text = "InitiatorName=iqn.a\0TargetName=iqn.2026-11.local.henge:web\0AuthMethod=None\0";
    let mut login = Header::reply(0x40 | request::LOGIN);
    login.put(1, 0x81).put_u32(24, 1);
    stranger.send(login, text.as_bytes());
    assert_eq!(stranger.receive().0.u16_at(36), 0x0201, "authentication failure");
    node.stop().unwrap();
    let text = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\n[[disk]]\nname = \"web\"\n\
                capacity = \"64MiB\"\niscsi = { user = \"alice\", secret = \"short\" }\n";
    let error = NodeConfig::parse(Source::new("node.toml", text.to_owned())).unwrap_err().to_string();
    assert!(error.contains("secret has 12 to 255 bytes"), "{error}");
}

#[test]
fn discovery_names_peers_that_were_made_known_while_the_node_runs() {
    let link = "[link]\nname = \"n1\"\nlisten = \"127.0.0.1:0\"\nsecret = \"sixteen bytes and more\"\n";
    let (node, state) = start(link);
    let peer = |node: &Node, iscsi: Option<&str>| {
        let (name, address) = ("n2".to_owned(), "127.0.0.1:1".to_owned()); // where nobody is
        let peer = Request::Peer { name, address, iscsi: iscsi.map(str::to_owned), at: None };
        node.control().ask(peer).map(drop).map_err(|e| e.to_string())
    };
    peer(&node, Some("192.0.2.2:3260")).unwrap();
    assert!(peer(&node, Some("192.0.2.2:none")).unwrap_err().contains("no HOST:PORT"));
    let disk = "name = \"wide\"\npools = [\"n1/p\", \"n2/p\"]\ncapacity = \"24MiB\"\nstripe = \"64KiB\"\n";
    let disk = Table::from(&Source::new("wide", disk).parse("the disk").unwrap());
    node.control().ask(Request::Add { disk }).unwrap_or_else(|e| panic!("{e}"));
    let others = |node: &Node| {
        let text = discovered(node);
        let others = text.split('\0').filter_map(|line| line.strip_prefix("TargetAddress=192.0.2."));
        others.map(|at| at.split_once(',').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(others(&node), ["2:3260"]);
    peer(&node, None).unwrap();
    assert_eq!(others(&node), ["2:3260"], "an order that states none takes none away");
    peer(&node, Some("192.0.2.3")).unwrap();
    assert_eq!(others(&node), ["3:3260"]);
    node.stop().unwrap();
    let node = start_in(state.path(), link);
    assert_eq!(others(&node), ["3:3260"], "it is remembered");
    node.stop().unwrap();
}

/// What discovery tells of all targets.
fn discovered(node: &Node) -> String {
    let mut initiator = Initiator { stream: connect(addresses(node).1), number: 1 };
    let mut login = Header::reply(0x40 | request::LOGIN);
    login.put(1, 0x87).put(8, 0x80).put_u32(24, 1);
    initiator.send(login, b"InitiatorName=iqn.2026-11.example:host\0SessionType=Discovery\0");
    assert_eq!(initiator.receive().0.u16_at(36), 0);
    let mut ask = Header::reply(request::TEXT);
    ask.put(1, 0x80).put_u32(16, 2).put_u32(20, u32::MAX).put_u32(24, 1);
    initiator.send(ask, b"SendTargets=All\0");
    String::from_utf8(initiator.receive().1).unwrap()
}

/// PERSISTENT RESERVE OUT, to survive a loss of power (APTPL); its status.
fn reserve(initiator: &mut Initiator, action: u8, kind: u8, key: u8, new: u8) -> u8 {
    let mut list = [0; 24];
    (list[7], list[15], list[20]) = (key, new, 1);
    initiator.scsi(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], 0, &list).0
}

#[test]
fn reservations_survive_a_restart() {
    let (node, state) = start("");
    let mut one = Initiator::connect(&node, 1);
    assert_eq!(reserve(&mut one, 0, 0, 0, 7), 0);
    assert_eq!(reserve(&mut one, 1, 3, 7, 0), 0);
    node.stop().unwrap();
    let file = state.path().join("web.reservations");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("reserve 3 iqn.2026-11.example:host,i,0x800000000001"), "{text}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let node = start_in(state.path(), "");
    let mut other = Initiator::connect(&node, 2);
    assert_eq!(other.write(0, &[1; 512]), 0x18, "RESERVATION CONFLICT");
    let mut one = Initiator::connect(&node, 1);
    assert_eq!(one.write(0, &[1; 512]), 0);
    node.stop().unwrap();
}

#[test]
fn a_file_of_reservations_that_cannot_be_read_is_not_one_without_reservations() {
    let (node, state) = start("");
    let mut one = Initiator::connect(&node, 1);
    assert_eq!(reserve(&mut one, 0, 0, 0, 7), 0);
    assert_eq!(reserve(&mut one, 1, 3, 7, 0), 0);
    node.stop().unwrap();
    let file = state.path().join("web.reservations");
    let text = std::fs::read(&file).unwrap();
    let not_text = [&text[..20], b"\xff"].concat();
    let cut = [&text[..], b"reserve 9"].concat();
    for wrong in [Some(not_text), Some(cut), None] {
        std::fs::remove_file(&file).unwrap();
        match &wrong {
            Some(wrong) => std::fs::write(&file, wrong).unwrap(),
            None => std::fs::create_dir(&file).unwrap(),
        }
        let node = start_in(state.path(), "");
        let mut other = Initiator::connect(&node, 2);
        assert_eq!(other.write(0, &[1; 512]), 2, "CHECK CONDITION");
        assert_eq!(other.scsi(&[0; 6], 0, &[]).0, 2, "NOT READY");
        assert_ne!(reserve(&mut other, 0, 0, 0, 9), 0, "nobody reserves over what nobody knows");
        node.stop().unwrap();
        match &wrong {
            Some(wrong) => {
                assert_eq!(&std::fs::read(&file).unwrap(), wrong, "it is left as it is");
                std::fs::remove_file(&file).unwrap();
            }
            None => std::fs::remove_dir(&file).unwrap(),
        }
        std::fs::write(&file, &text).unwrap();
    }
    let node = start_in(state.path(), "");
    assert_eq!(Initiator::connect(&node, 2).write(0, &[1; 512]), 0x18, "RESERVATION CONFLICT");
    node.stop().unwrap();
}
