//! Initiators and hosts of disks whose pool is served by every core: one loop shows each disk, and its gate may be at another.

use super::*;

/// A SCSI initiator's connection to one of the pair's disks (RFC 7143, section 11).
struct Initiator {
    stream: TcpStream,
    command: u32,
}

impl Initiator {
    /// One that is logged in to a disk, by a port of its own, and has been told of the unit attention.
    fn open(pair: &mut Pair, disk: &str, port: u8) -> Initiator {
        let stream = pair.tcp("iscsi");
        stream.set_nodelay(true).unwrap();
        let mut initiator = Initiator { stream, command: 1 };
        let text = format!("InitiatorName=iqn.i{port}\0TargetName=iqn.2026-11.local.henge:{disk}\0");
        let mut bytes = login(&text);
        (bytes[8], bytes[13], bytes[27]) = (0x80, port, 1);
        initiator.stream.write_all(&bytes).unwrap();
        let got = pair.until(&mut initiator.stream, 48);
        assert!(got.len() >= 48 && (got[0], got[36]) == (0x23, 0), "logged in to {disk}: {got:x?}");
        assert_eq!(initiator.ask(pair, 0x80, &[0; 6], &[], 0).0, 2, "a unit attention");
        initiator
    }

    fn send(&mut self, flags: u8, cdb: &[u8], data: &[u8], expected: usize) {
        let mut header = [0; 48];
        (header[0], header[1]) = (1, flags);
        header[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
        header[16..20].copy_from_slice(&self.command.to_be_bytes());
        header[20..24].copy_from_slice(&(data.len().max(expected) as u32).to_be_bytes());
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command += 1;
        self.stream.write_all(&[&header[..], data].concat()).unwrap();
    }

    /// A command with its data (flags F 0x80, R 0x40, W 0x20): its status, and what it reads.
    fn ask(&mut self, pair: &mut Pair, flags: u8, cdb: &[u8], data: &[u8], expected: usize) -> (u8, Vec<u8>) {
        self.send(flags, cdb, data, expected);
        self.hear(pair)
    }

    fn hear(&mut self, pair: &mut Pair) -> (u8, Vec<u8>) {
        let (mut got, mut read) = (Vec::new(), Vec::new());
        loop {
            let more = pair.until(&mut self.stream, 1);
            assert!(!more.is_empty(), "the node has hung up");
            got.extend(more);
            while got.len() >= 48 {
                let len = u32::from_be_bytes([0, got[5], got[6], got[7]]) as usize;
                let whole = 48 + len.next_multiple_of(4);
                if got.len() < whole {
                    break;
                }
                let pdu: Vec<u8> = got.drain(..whole).collect();
                match pdu[0] {
                    0x25 => read.extend(&pdu[48..48 + len]),
                    0x21 => return (pdu[3], read),
                    other => panic!("{other:#x}"),
                }
                if pdu[0] == 0x25 && pdu[1] & 1 != 0 {
                    return (pdu[3], read);
                }
            }
        }
    }

    fn write(&mut self, pair: &mut Pair, block: u8, byte: u8) -> u8 {
        self.ask(pair, 0xa0, &[0x2a, 0, 0, 0, 0, block, 0, 0, 8, 0], &[byte; 4096], 0).0
    }

    fn read(&mut self, pair: &mut Pair, block: u8) -> (u8, Vec<u8>) {
        self.ask(pair, 0xc0, &[0x28, 0, 0, 0, 0, block, 0, 0, 8, 0], &[], 4096)
    }

    /// COMPARE AND WRITE of the first block.
    fn swap(&mut self, pair: &mut Pair, before: u8, after: u8) -> u8 {
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x89, 1);
        self.ask(pair, 0xa0, &cdb, &[[before; 512], [after; 512]].concat(), 0).0
    }

    /// PERSISTENT RESERVE OUT: REGISTER (0), or RESERVE (1) for writes alone.
    fn reserve(&mut self, pair: &mut Pair, action: u8, key: u8, next: u8) -> u8 {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, next);
        self.ask(pair, 0xa0, &[0x5f, action, action, 0, 0, 0, 0, 0, 24, 0], &list, 0).0
    }
}

/// By disk, the loop that shows it, and that of its gate.
fn places(pair: &Pair, disk: &str) -> (usize, usize) {
    let plane = &pair.servers[0].plane;
    let disk = plane.disks[plane.disks.number(disk).unwrap()].as_ref().unwrap();
    (plane.across.division.lead_of(&disk.config), plane.across.division.gate_of(&disk.config))
}

#[test]
fn an_initiator_of_a_hot_disk_comes_to_it_whoever_accepts_it() {
    let mut pair = Pair::of(64, "every_core = true", "");
    for disk in ["x", "y", "z"] {
        let (shown, _) = places(&pair, disk);
        let mut initiator = Initiator::open(&mut pair, disk, 1);
        assert_eq!(pair.connected()[shown], 1, "{disk}");
        assert_eq!(initiator.write(&mut pair, 0, 7), 0, "{disk}");
        assert_eq!(initiator.read(&mut pair, 0), (0, vec![7; 4096]), "{disk}");
        drop(initiator);
        (0..6).for_each(|round| pair.round(round % 2));
    }
}

/// Disks y and z have their gate at shard 1, and are shown at shard 0.
fn shown_away_from_its_gate() -> Pair {
    let mut pair = Pair::of(64, "every_core = true", "");
    assert_eq!(["x", "y", "z"].map(|disk| places(&pair, disk)), [(1, 0), (0, 1), (0, 1)], "in turn");
    (0..2).for_each(|shard| pair.round(shard));
    pair
}

#[test]
fn what_is_said_of_a_hot_disk_means_what_it_means_of_any() {
    let mut pair = shown_away_from_its_gate();
    let (mut one, mut other) = (Initiator::open(&mut pair, "y", 1), Initiator::open(&mut pair, "y", 2));
    assert_eq!(pair.connected(), [2, 0], "its gate is at the other");
    // What one writes the other reads, and an NBD client at either loop.
    assert_eq!(one.write(&mut pair, 0, 7), 0);
    assert_eq!(other.read(&mut pair, 0), (0, vec![7; 4096]));
    for _ in 0..2 {
        let mut client = pair.nbd();
        client.write_all(&go("y")).unwrap();
        pair.until(&mut client, SAID);
        client.write_all(&command(0, 2, 0, 4096)).unwrap();
        assert_eq!(pair.until(&mut client, 16 + 4096)[16..], [7; 4096]);
    }
    // Its gate's loop compares.
    assert_eq!((one.swap(&mut pair, 6, 1), one.swap(&mut pair, 7, 8), one.swap(&mut pair, 7, 9)), (2, 0, 2));
    assert_eq!(other.read(&mut pair, 0).1[..1024], [[8; 512], [7; 512]].concat());
    // Blocks that are unmapped are zeroes.
    let mut list = [0; 24];
    (list[1], list[3], list[19]) = (22, 16, 1); // one block from the first on
    assert_eq!(one.ask(&mut pair, 0xa0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list, 0).0, 0);
    assert_eq!(other.read(&mut pair, 0).1[..1024], [[0; 512], [7; 512]].concat());
    // Who reserves it keeps the other's writes out, and not its reads.
    assert_eq!((one.reserve(&mut pair, 0, 0, 5), one.reserve(&mut pair, 1, 5, 0)), (0, 0));
    assert_eq!((other.write(&mut pair, 0, 9), other.read(&mut pair, 0).0), (0x18, 0));
    assert_eq!(one.write(&mut pair, 0, 9), 0);
    // A reset is heard of by all.
    let mut reset = [0; 48];
    (reset[0], reset[1], reset[19]) = (0x42, 0x85, 99); // LOGICAL UNIT RESET, at once
    one.send(0xa0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[3; 4096], 0);
    other.stream.write_all(&reset).unwrap();
    let done = pair.until(&mut other.stream, 48);
    assert_eq!((done[0], done[2]), (0x22, 0), "the function is complete");
    let owner = &pair.servers[1].plane;
    assert!(owner.is_idle(), "and nothing that began before is at the gate");
    assert_eq!(one.ask(&mut pair, 0x80, &[0; 6], &[], 0).0, 2, "a unit attention");
}

#[test]
fn an_initiator_that_goes_leaves_nothing_at_the_gate_of_a_hot_disk() {
    for rounds in 0..12 {
        let mut pair = shown_away_from_its_gate();
        let mut initiator = Initiator::open(&mut pair, "y", 1);
        for block in 0..16 {
            initiator.send(0xa0, &[0x2a, 0, 0, 0, 0, block * 8, 0, 0, 8, 0], &[3; 4096], 0);
        }
        (0..rounds).for_each(|round| pair.round(round % 2));
        drop(initiator);
        (0..12).for_each(|round| pair.round(round % 2));
        assert_eq!((pair.counts.all(), pair.connected()), (0, [0, 0]));
        for server in &pair.servers {
            assert!(server.plane.is_idle() && server.plane.memory.buffers.out() == 0, "{rounds}");
        }
    }
}

#[test]
fn who_stops_a_hot_disk_stops_it_for_clients_of_all_loops() {
    let mut pair = shown_away_from_its_gate();
    let mut initiator = Initiator::open(&mut pair, "y", 1);
    let mut clients = [pair.nbd(), pair.nbd()];
    for client in &mut clients {
        client.write_all(&go("y")).unwrap();
        pair.until(client, SAID);
    }
    assert_eq!(pair.connected(), [2, 1], "one at each");
    for (start, error) in [(0, 5), (1, 0)] {
        assert_eq!(initiator.ask(&mut pair, 0x80, &[0x1b, 0, 0, 0, start, 0], &[], 0).0, 0);
        (0..4).for_each(|round| pair.round(round % 2));
        for client in &mut clients {
            client.write_all(&command(0, 2, 0, 4096)).unwrap();
            let got = pair.until(client, 16);
            assert_eq!(u32::from_be_bytes(got[4..8].try_into().unwrap()), error, "{start}");
        }
    }
}

/// A node's name is for disks that other nodes know. One of the node's own is reached by one way, over however many loops it lies.
#[test]
fn a_disk_of_this_node_alone_has_one_way_to_it() {
    let link = "[link]\nname = \"n2\"\nlisten = \"127.0.0.1:0\"\nsecret = \"0123456789abcdef\"\n";
    for (of_pools, disk) in [("", "x"), ("", "wide"), ("every_core = true", "y")] {
        let mut pair = Pair::of(64, of_pools, &[WIDE, link].concat());
        (0..4).for_each(|round| pair.round(round % 2));
        let mut initiator = Initiator::open(&mut pair, disk, 1);
        let (status, inquiry) = initiator.ask(&mut pair, 0xc0, &[0x12, 0, 0, 0, 36, 0], &[], 36);
        assert_eq!((status, inquiry[5] >> 4 & 3), (0, 0), "{disk}: no groups of target ports");
        assert_eq!(initiator.ask(&mut pair, 0x80, &[0x16, 0, 0, 0, 0, 0], &[], 0).0, 0, "{disk}: RESERVE(6)");
    }
}
