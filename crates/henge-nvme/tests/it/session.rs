//! A host and a controller: what hosts do, and what the answers must be.

use crate::host::*;
use henge_core::{Duration, Fault, Instant};
use henge_nvme::wire::{le16, le32, le64, pdu};
use henge_nvme::{Access, Action, DISCOVERY, Limits, Reach, Status, Want};

const READ: u8 = 2;
const WRITE: u8 = 1;
const COMPARE: u8 = 5;

/// A controller with one I/O queue.
fn pair(wire: Wire, flow_control: bool) -> (henge_nvme::Subsystems, henge_nvme::SubsystemId, Driver, Driver) {
    let (mut subsystems, id) = subsystems();
    let (admin, cntlid) = admin(&mut subsystems, wire, NQN);
    let io = io(&mut subsystems, wire, cntlid, Limits::default(), flow_control);
    (subsystems, id, admin, io)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[test]
fn a_write_in_the_capsule_and_one_that_is_asked_for_are_read_again() {
    for wire in [Wire::default(), Wire::both(), Wire { header: true, data: false }] {
        let (mut s, _, _admin, mut io) = pair(wire, true);
        let small = pattern(4096);
        io.feed(&mut s, &wire.command(Entry::new(WRITE, 5).blocks(8, 8).in_capsule(4096), &small));
        let done = io.completion();
        // Connect was the queue's first entry.
        assert_eq!((done.status, done.cid, done.head), (0, 5, 2));
        let large = pattern(65536);
        io.feed(&mut s, &wire.command(Entry::new(WRITE, 6).blocks(100, 128).at_host(65536), &[]));
        let r2t = io.replies();
        assert_eq!((r2t.len(), le32(&r2t[0].header, 16)), (1, 65536));
        io.feed(&mut s, &wire.answer(&r2t[0], &large));
        assert_eq!(io.completion().status, 0);
        for (first, data) in [(8, &small), (100, &large)] {
            let blocks = (data.len() / 512) as u32;
            io.feed(
                &mut s,
                &wire.command(Entry::new(READ, 9).blocks(first, blocks).at_host(data.len()), &[]),
            );
            let replies = io.replies();
            assert_eq!((replies[0].kind, replies[0].flags & 0x0c), (pdu::C2H_DATA, pdu::LAST));
            assert!(replies[0].data == *data, "other bytes");
            assert_eq!(replies[1].completion().status, 0);
        }
        assert!(io.buffers.is_empty(), "every buffer is free again");
    }
}

#[test]
fn without_flow_control_a_read_is_one_pdu() {
    let (mut s, _, _admin, mut io) = pair(Wire::default(), false);
    io.feed(&mut s, &Wire::default().command(Entry::new(READ, 9).blocks(0, 1).at_host(512), &[]));
    let replies = io.replies();
    assert_eq!((replies.len(), replies[0].flags & 0x0c), (1, pdu::LAST | pdu::SUCCESS));
    // One that fails has a completion, which says nothing of the queue's head.
    io.feed(&mut s, &Wire::default().command(Entry::new(READ, 9).blocks(2047, 2).at_host(1024), &[]));
    let failed = io.completion();
    assert_eq!((failed.status, failed.head, failed.final_), (0x80, 0xffff, true));
}

#[test]
fn data_come_aligned_as_the_host_asks() {
    let (mut s, _) = subsystems();
    let mut driver = Driver::new(&mut s, Limits::default());
    let mut hello = Wire::default().hello();
    hello[10] = 7; // multiples of 32 bytes
    driver.feed(&mut s, &hello);
    let (entry, data) = connect(0, 0xffff, NQN, true);
    driver.feed(&mut s, &Wire::default().command(entry, &data));
    driver.feed(&mut s, &Wire::default().command(enable(1), &[]));
    driver.sent.clear();
    driver.feed(&mut s, &Wire::default().command(Entry::new(6, 2).dword(10, 1).at_host(4096), &[]));
    assert_eq!(driver.sent[3], 32, "data begin there");
    let replies = driver.replies();
    assert_eq!(&replies[0].data[24..42], b"Henge virtual disk");
}

#[test]
fn what_a_host_reads_first() {
    let (mut s, _, mut admin, _io) = pair(Wire::default(), true);
    let mut ask = |entry: Entry| {
        admin.feed(&mut s, &Wire::default().command(entry.at_host(4096), &[]));
        admin.replies()[0].data.clone()
    };
    let controller = ask(Entry::new(6, 2).dword(10, 1));
    assert_eq!(&controller[768..768 + NQN.len()], NQN.as_bytes());
    assert_eq!(le32(&controller, 1792), (64 + 16384) / 16, "IOCCSZ");
    let space = ask(Entry::new(6, 2).nsid(1));
    assert_eq!((le64(&space, 0), space[130]), ((BYTES / 512) as u64, 9));
    let active = ask(Entry::new(6, 2).dword(10, 2));
    assert_eq!((le32(&active, 0), le32(&active, 4)), (1, 0));
    let names = ask(Entry::new(6, 2).nsid(1).dword(10, 3));
    assert_eq!((names[0], names[1], names[20], &names[24..30]), (2, 16, 3, &[7; 6][..]));
    let ana = ask(Entry::new(2, 2).dword(10, 0x0c | 9 << 16));
    assert_eq!((ana.len(), le16(&ana, 8), ana[32]), (40, 1, 1));
    let effects = ask(Entry::new(2, 2).dword(10, 0x05 | 1023 << 16));
    assert_eq!((effects[6 * 4], effects[1024 + 4], effects[1024 + 8], effects[1024 + 3 * 4]), (1, 3, 1, 0));
    let smart = ask(Entry::new(2, 2).dword(10, 0x02 | 127 << 16));
    assert_eq!((le64(&smart, 48), le64(&smart, 64), le64(&smart, 80)), (2, 1, 2));
    let service = ask(Entry::new(2, 2).dword(10, 0xc0 | 127 << 16));
    assert_eq!((&service[..8], le64(&service, 64)), (&b"HENGEQOS"[..], 3));
}

#[test]
fn properties_say_what_the_controller_is() {
    let (mut s, _, mut admin, _io) = pair(Wire::default(), true);
    let mut get = |eight: u8, at: u32| {
        admin.feed(
            &mut s,
            &Wire::default().command(Entry::new(0x7f, 2).put(4, &[4]).put(40, &[eight]).dword(11, at), &[]),
        );
        let c = admin.completion();
        (c.status, c.result)
    };
    let (status, cap) = get(1, 0);
    assert_eq!((status, cap & 0xffff, cap >> 37 & 1), (0, 127, 1));
    assert_eq!(get(0, 8), (0, 0x10400));
    assert_eq!(get(0, 0x1c), (0, 1), "ready");
    assert_eq!(get(0, 0x1d).0, 2, "no such property");
}

#[test]
fn who_may_not_connect_is_told_why() {
    let (mut s, id) = subsystems();
    let refused = |s: &mut henge_nvme::Subsystems, qid, cntlid, nqn: &str| {
        let mut driver = Driver::new(s, Limits::default());
        let (entry, data) = connect(qid, cntlid, nqn, true);
        driver.feed(s, &Wire::default().hello());
        driver.replies();
        driver.feed(s, &Wire::default().command(entry, &data));
        let c = driver.completion();
        (c.status, c.result)
    };
    assert_eq!(refused(&mut s, 0, 0xffff, "nqn.2026-11.example:other"), (0x182, 1 << 16 | 256));
    assert_eq!(refused(&mut s, 0, 3, NQN), (0x182, 1 << 16 | 16));
    assert_eq!(refused(&mut s, 1, 3, NQN), (0x182, 1 << 16 | 16));
    s.set_access(
        id,
        Access { hosts: vec!["nqn.2014-08.org.nvmexpress:uuid:else".into()], ..Access::default() },
    );
    assert_eq!(refused(&mut s, 0, 0xffff, NQN), (0x184, 0));
    assert_eq!(
        refused(&mut s, 0, 0xffff, "nqn.2026-11.example:other"),
        (0x184, 0),
        "as one that is not there"
    );
    s.set_access(id, Access { hosts: vec![HOST.into()], ..Access::default() });
    assert_eq!(refused(&mut s, 0, 0xffff, NQN).0, 0);
}

/// SPDK's programs give none unless they are told one, and its target and the kernel's take that.
#[test]
fn a_host_without_a_name_is_let_in_where_any_host_may() {
    let (mut s, id) = subsystems();
    let connects = |s: &mut henge_nvme::Subsystems, name: &[u8]| {
        let mut driver = Driver::new(s, Limits::default());
        let (entry, mut data) = connect(0, 0xffff, NQN, true);
        data[512..768].fill(0);
        data[512..512 + name.len()].copy_from_slice(name);
        driver.feed(s, &Wire::default().hello());
        driver.replies();
        driver.feed(s, &Wire::default().command(entry, &data));
        let c = driver.completion();
        (c.status, c.result)
    };
    assert_eq!(connects(&mut s, b"").0, 0);
    assert_eq!(
        connects(&mut s, b"two words"),
        (0x182, 1 << 16 | 512),
        "no name at all, which is another thing"
    );
    s.set_access(id, Access { hosts: vec![HOST.into()], ..Access::default() });
    assert_eq!(connects(&mut s, b""), (0x184, 0));
}

#[test]
fn nothing_but_connect_comes_first() {
    let (mut s, _) = subsystems();
    let mut driver = Driver::new(&mut s, Limits::default());
    driver.feed(&mut s, &Wire::default().hello());
    driver.replies();
    driver.feed(&mut s, &Wire::default().command(Entry::new(READ, 3).blocks(0, 1).at_host(512), &[]));
    assert_eq!(driver.completion().status, 0x0c);
    // A controller that is not enabled has no I/O queues and answers no admin commands.
    let (entry, data) = connect(0, 0xffff, NQN, true);
    driver.feed(&mut s, &Wire::default().command(entry, &data));
    let cntlid = driver.completion().result as u16;
    driver.feed(&mut s, &Wire::default().command(Entry::new(6, 2).dword(10, 1).at_host(4096), &[]));
    assert_eq!(driver.completion().status, 0x0c);
    let mut io = Driver::new(&mut s, Limits::default());
    let (entry, data) = connect(1, cntlid, NQN, true);
    io.feed(&mut s, &Wire::default().hello());
    io.replies();
    io.feed(&mut s, &Wire::default().command(entry, &data));
    assert_eq!(io.completion().status, 0x0c);
}

#[test]
fn discovery_tells_a_host_what_it_may_use() {
    let (mut s, id) = subsystems();
    s.set_elsewhere(id, vec![("192.0.2.2".into(), "4421".into())]);
    let other = namespace();
    s.add("nqn.2026-11.example:secret", Access { hosts: vec!["nobody".into()], ..Access::default() }, other)
        .expect("another");
    let (mut driver, _) = admin(&mut s, Wire::default(), DISCOVERY);
    let page = Entry::new(2, 2).dword(10, 0x70 | 1023 << 16).at_host(4096);
    driver.feed(&mut s, &Wire::default().command(page, &[]));
    let log = driver.replies()[0].data.clone();
    assert_eq!(le64(&log, 8), 3, "the discovery subsystem, and two ways to the disk");
    let text =
        |at: usize, len: usize| String::from_utf8_lossy(&log[at..at + len]).trim_end_matches('\0').to_owned();
    assert_eq!((text(1024 + 256, 256), log[1024 + 2]), (DISCOVERY.into(), 3));
    assert_eq!((text(2048 + 256, 256), text(2048 + 512, 256)), (NQN.into(), "192.0.2.1".into()));
    assert_eq!((text(3072 + 512, 256), text(3072 + 32, 32)), ("192.0.2.2".into(), "4421".into()));
    assert_eq!(log[1024 + 3] & 3, 0, "nothing is said of TLS: nvme-cli would try to use it");
    // An event tells that there is more, once, until the log is read again.
    driver.feed(&mut s, &Wire::default().command(Entry::new(9, 3).dword(10, 0x0b).dword(11, 1 << 31), &[]));
    driver.feed(&mut s, &Wire::default().command(Entry::new(0x0c, 4), &[]));
    driver.feed(&mut s, &Wire::default().command(Entry::new(0x0c, 5), &[]));
    driver.replies();
    s.remove(id);
    poke(&mut s, &mut [&mut driver]);
    assert_eq!((driver.completion().result, le64(&log, 0)), (0x70_f002, 4));
    s.add(NQN, Access::default(), namespace()).expect("again");
    poke(&mut s, &mut [&mut driver]);
    assert_eq!(driver.replies(), []);
    driver.feed(&mut s, &Wire::default().command(page, &[]));
    driver.replies();
    s.set_elsewhere(id, vec![]);
    s.add("nqn.2026-11.example:third", Access::default(), namespace()).expect("a third");
    poke(&mut s, &mut [&mut driver]);
    assert_eq!(driver.completion().cid, 5);
}

/// Whatever bytes of the log are asked for, they are those of the whole; what is behind its end is zeroes.
#[test]
fn a_discovery_log_is_read_piece_by_piece() {
    let (mut s, _) = subsystems();
    for n in 0..20 {
        s.add(&format!("nqn.2026-11.example:{n:02}"), Access::default(), namespace()).expect("another");
    }
    let (mut driver, _) = admin(&mut s, Wire::default(), DISCOVERY);
    let mut read = |offset: u32, len: u32| {
        let page = Entry::new(2, 2).dword(10, 0x70 | (len / 4 - 1) << 16).dword(12, offset);
        driver.feed(&mut s, &Wire::default().command(page.at_host(len as usize), &[]));
        driver.replies().remove(0).data
    };
    let whole = read(0, 32 << 10);
    assert_eq!(le64(&whole, 8), 22);
    for (offset, len) in [(0, 4), (8, 1016), (8, 1020), (1020, 8), (1024, 4096), (5000, 12), (23 << 10, 64)] {
        let to = (offset + len) as usize;
        assert_eq!(read(offset, len), whole[offset as usize..to], "{len} bytes at {offset}");
    }
    assert_eq!(read((23 << 10) + 4, 4), [], "there is nothing behind the end");
    assert_eq!(
        (read(0, 64 << 10).len(), read(0, (64 << 10) + 4).len()),
        (64 << 10, 0),
        "no longer at a time"
    );
}

/// A host finds what is for everybody, and what names it, each once; entry by entry it reads what it reads at once.
#[test]
fn each_entry_of_a_discovery_log_is_found() {
    let (mut s, first) = subsystems();
    let hosts = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    let other =
        |n: u32| vec![("192.0.2.9".to_owned(), n.to_string()), ("192.0.2.8".to_owned(), n.to_string())];
    let mut wanted = vec![NQN.to_owned()];
    for n in 0..30 {
        let named = match n % 4 {
            0 => hosts(&[]),
            1 => hosts(&[HOST, "nobody", HOST]),
            2 => hosts(&["nobody"]),
            _ => hosts(&[HOST]),
        };
        let nqn = format!("nqn.2026-11.example:{n:02}");
        let id = s.add(&nqn, Access { hosts: named, ..Access::default() }, namespace()).expect("another");
        if n % 3 == 0 {
            s.set_elsewhere(id, other(n));
        }
        let entries = if n % 3 == 0 { 3 } else { 1 };
        wanted.extend(std::iter::repeat_n(nqn, if n % 4 == 2 { 0 } else { entries }));
    }
    let (mut driver, _) = admin(&mut s, Wire::default(), DISCOVERY);
    let mut read = |s: &mut henge_nvme::Subsystems, offset: usize, len: usize| {
        let page = Entry::new(2, 2).dword(10, 0x70 | (len as u32 / 4 - 1) << 16).dword(12, offset as u32);
        driver.feed(s, &Wire::default().command(page.at_host(len), &[]));
        driver.replies().remove(0).data
    };
    let whole = read(&mut s, 0, 64 << 10);
    assert_eq!(le64(&whole, 8), 1 + wanted.len() as u64);
    let mut found: Vec<String> = (2..2 + wanted.len())
        .map(|n| {
            String::from_utf8_lossy(&whole[n * 1024 + 256..n * 1024 + 512]).trim_end_matches('\0').to_owned()
        })
        .collect();
    for n in 0..2 + wanted.len() {
        assert_eq!(read(&mut s, n * 1024, 1024), whole[n * 1024..(n + 1) * 1024], "entry {n}");
    }
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    s.remove(first);
    let page = read(&mut s, 0, 16);
    assert_eq!(le64(&page, 8), wanted.len() as u64, "one less");
}

#[test]
fn a_namespace_that_grows_or_moves_is_told() {
    let (mut s, id, mut admin, _io) = pair(Wire::default(), true);
    let wire = Wire::default();
    admin.feed(&mut s, &wire.command(Entry::new(9, 3).dword(10, 0x0b).dword(11, 1 << 8 | 1 << 11), &[]));
    admin.feed(&mut s, &wire.command(Entry::new(0x0c, 4), &[]));
    admin.feed(&mut s, &wire.command(Entry::new(0x0c, 5), &[]));
    admin.replies();
    s.resize(id, 2 << 20);
    s.resize(id, 2 << 20);
    s.set_reach(id, Reach::Inaccessible);
    poke(&mut s, &mut [&mut admin]);
    let told: Vec<u64> = admin.replies().iter().map(|reply| reply.completion().result).collect();
    assert_eq!(told, [0x04_0002, 0x0c_0302]);
    admin.feed(&mut s, &wire.command(Entry::new(2, 6).dword(10, 0x04 | 1023 << 16).at_host(4096), &[]));
    assert_eq!(le32(&admin.replies()[0].data, 0), 1, "the changed one");
    admin.feed(&mut s, &wire.command(Entry::new(2, 6).dword(10, 0x04 | 1023 << 16).at_host(4096), &[]));
    assert_eq!(le32(&admin.replies()[0].data, 0), 0);
}

#[test]
fn what_cannot_be_reached_is_refused_so_that_another_path_is_tried() {
    let (mut s, id, _admin, mut io) = pair(Wire::default(), true);
    s.set_reach(id, Reach::Inaccessible);
    io.feed(&mut s, &Wire::default().command(Entry::new(READ, 2).blocks(0, 1).at_host(512), &[]));
    let refused = io.completion();
    assert_eq!((refused.status, refused.final_), (0x302, false));
}

#[test]
fn a_fused_pair_writes_only_what_was_as_expected() {
    let wire = Wire::default();
    let (mut s, _, _admin, mut io) = pair(wire, true);
    let (old, new) = (vec![0; 1024], pattern(1024));
    let compare = |cid| Entry::new(COMPARE, cid).blocks(4, 2).fuse(1);
    let write = |cid| Entry::new(WRITE, cid).blocks(4, 2).fuse(2);
    let ended = |io: &mut Driver| -> Vec<(u16, u16)> {
        io.replies().iter().map(|reply| (reply.completion().cid, reply.completion().status)).collect()
    };
    // Both in capsules; then both asked for; then one of each.
    io.feed(&mut s, &wire.command(compare(1).in_capsule(1024), &old));
    assert_eq!(io.replies(), [], "the first waits for the second");
    io.feed(&mut s, &wire.command(write(2).in_capsule(1024), &new));
    assert_eq!(ended(&mut io), [(1, 0), (2, 0)]);
    assert_eq!(io.disk[2048..3072], new);
    io.feed(&mut s, &wire.command(compare(1).at_host(1024), &[]));
    io.feed(&mut s, &wire.command(write(2).at_host(1024), &[]));
    let asked = io.replies();
    assert_eq!(asked.len(), 2);
    io.feed(&mut s, &wire.answer(&asked[1], &new));
    io.feed(&mut s, &wire.answer(&asked[0], &old));
    assert_eq!(ended(&mut io), [(1, 0x285), (2, 0x09)], "it is not what it was");
    io.feed(&mut s, &wire.command(compare(1).at_host(1024), &[]));
    let asked = io.replies();
    io.feed(&mut s, &wire.command(write(2).in_capsule(1024), &old));
    io.feed(&mut s, &wire.answer(&asked[0], &new));
    assert_eq!(ended(&mut io), [(1, 0), (2, 0)]);
    assert_eq!(io.disk[2048..3072], old);
    // Halves alone, and of other blocks.
    io.feed(&mut s, &wire.command(write(3).in_capsule(1024), &new));
    assert_eq!(ended(&mut io), [(3, 0x0a)]);
    io.feed(&mut s, &wire.command(compare(1).in_capsule(1024), &old));
    io.feed(&mut s, &wire.command(Entry::new(0, 4).nsid(1), &[]));
    assert_eq!(ended(&mut io), [(1, 0x0a), (4, 0)]);
    io.feed(&mut s, &wire.command(compare(1).in_capsule(1024), &old));
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 2).blocks(5, 2).fuse(2).in_capsule(1024), &new));
    assert_eq!(ended(&mut io), [(1, 2), (2, 2)]);
    assert!(io.buffers.is_empty() && io.disk[2048..3072] == old);
}

#[test]
fn ranges_are_given_back_and_read_as_zeroes() {
    let wire = Wire::default();
    let (mut s, _, _admin, mut io) = pair(wire, true);
    io.disk.fill(1);
    let mut list = vec![0; 4096];
    for (n, (first, blocks)) in [(1_u64, 2_u32), (100, 0), (64, 8)].into_iter().enumerate() {
        list[n * 16 + 4..n * 16 + 8].copy_from_slice(&blocks.to_le_bytes());
        list[n * 16 + 8..n * 16 + 16].copy_from_slice(&first.to_le_bytes());
    }
    let entry = Entry::new(9, 7).nsid(1).dword(10, 2).dword(11, 4).in_capsule(4096);
    io.feed(&mut s, &wire.command(entry, &list));
    assert_eq!(io.completion().status, 0);
    assert_eq!(io.disk.iter().filter(|byte| **byte == 0).count(), 10 * 512);
    list[4..8].copy_from_slice(&4000_u32.to_le_bytes());
    io.feed(&mut s, &wire.command(entry, &list));
    assert_eq!(io.completion().status, 0x80, "beyond the end");
    io.feed(&mut s, &wire.command(Entry::new(8, 7).blocks(0, 4), &[]));
    assert_eq!(io.completion().status, 0);
    assert!(io.disk[..2048].iter().all(|byte| *byte == 0));
    io.feed(&mut s, &wire.command(Entry::new(0x0c, 7).blocks(0, 4), &[]));
    assert_eq!(io.completion().status, 0);
}

/// Force Unit Access reaches the storage, for zeroes too (NVM 3.2.8), and also where they might be given back.
#[test]
fn zeroes_that_must_be_durable_are() {
    const FUA: u32 = 1 << 30;
    const DEALLOCATE: u32 = 1 << 25;
    let (offset, len) = (0, 4 * 512);
    for (bits, wanted) in [
        (0, Action::Zero { offset, len, fua: false }),
        (FUA, Action::Zero { offset, len, fua: true }),
        (DEALLOCATE, Action::Trim { offset, len }),
        (FUA | DEALLOCATE, Action::Zero { offset, len, fua: true }),
    ] {
        let wire = Wire::default();
        let (mut s, _, _admin, mut io) = pair(wire, true);
        io.hold = true;
        io.feed(&mut s, &wire.command(Entry::new(8, 7).blocks(0, 4).dword(12, 3 | bits), &[]));
        assert_eq!(io.pending[0].action, wanted);
    }
}

#[test]
fn the_storage_fails_and_the_host_hears_of_it() {
    let (mut s, _, mut admin, mut io) = pair(Wire::default(), true);
    for (fault, reads, writes) in [
        (Fault::Io, 0x281, 0x280),
        (Fault::NoSpace, 0x81, 0x81),
        (Fault::Cancelled, 7, 7),
        (Fault::Unreachable, 6, 6),
    ] {
        io.fault = Some(fault);
        io.feed(&mut s, &Wire::default().command(Entry::new(READ, 2).blocks(0, 1).at_host(512), &[]));
        assert_eq!(io.completion().status, reads);
        io.feed(
            &mut s,
            &Wire::default().command(Entry::new(WRITE, 3).blocks(0, 1).in_capsule(512), &[0; 512]),
        );
        assert_eq!(io.completion().status, writes);
    }
    admin.feed(&mut s, &Wire::default().command(Entry::new(2, 6).dword(10, 1 | 31 << 16).at_host(128), &[]));
    let log = admin.replies()[0].data.clone();
    assert_eq!((le64(&log, 0), le64(&log, 64), le16(&log, 10)), (8, 7, 3));
}

#[test]
fn buffers_are_bounded_and_data_asked_for_in_turn() {
    let wire = Wire::default();
    let (mut s, _) = subsystems();
    let (_admin, cntlid) = admin(&mut s, wire, NQN);
    let limits = Limits { held: 300 << 10, asked: 128 << 10, ..Limits::default() };
    let mut io = io(&mut s, wire, cntlid, limits, true);
    for cid in 0..8 {
        io.feed(&mut s, &wire.command(Entry::new(WRITE, cid).blocks(0, 128).at_host(65536), &[]));
    }
    let mut asked = io.replies();
    assert_eq!(asked.len(), 2, "128 KiB at a time");
    let mut done = 0;
    while let Some(r2t) = (!asked.is_empty()).then(|| asked.remove(0)) {
        io.feed(&mut s, &wire.answer(&r2t, &pattern(65536)));
        assert!(io.buffers.values().map(Vec::len).sum::<usize>() <= 300 << 10);
        for reply in io.replies() {
            match reply.kind {
                pdu::R2T => asked.push(reply),
                _ => done += u32::from(reply.completion().status == 0),
            }
        }
    }
    assert_eq!(done, 8);
}

#[test]
fn more_commands_than_the_queue_has_entries_end_it() {
    let wire = Wire::default();
    let (mut s, _, _admin, mut io) = pair(wire, true);
    io.hold = true;
    for cid in 0..32 {
        io.feed(&mut s, &wire.command(Entry::new(READ, cid).blocks(0, 1).at_host(512), &[]));
    }
    assert_eq!(io.replies(), []);
    io.feed(&mut s, &wire.command(Entry::new(READ, 7).blocks(0, 1).at_host(512), &[]));
    assert_eq!(io.completion().status, 3, "that name is in use");
    io.feed(&mut s, &wire.command(Entry::new(READ, 99).blocks(0, 1).at_host(512), &[]));
    let last = io.replies();
    assert_eq!((last[0].kind, le16(&last[0].header, 8)), (pdu::C2H_TERM, 2));
    assert_eq!((io.session.want(), io.cancelled.len()), (Want::Nothing, 32));
    assert!(!io.session.is_over());
    io.finish(&mut s);
    assert!(io.session.is_over() && io.buffers.is_empty());
}

#[test]
fn damage_on_the_way_ends_the_command_or_the_connection() {
    let wire = Wire::both();
    let (mut s, _, _admin, mut io) = pair(wire, true);
    let mut bytes = wire.command(Entry::new(WRITE, 5).blocks(0, 8).in_capsule(4096), &pattern(4096));
    bytes[200] ^= 1;
    io.feed(&mut s, &bytes);
    let damaged = io.completion();
    assert_eq!((damaged.status, damaged.final_), (0x22, false));
    assert!(io.disk[..4096].iter().all(|byte| *byte == 0) && io.buffers.is_empty());
    let mut bytes = wire.command(Entry::new(READ, 5).blocks(0, 8).at_host(4096), &[]);
    bytes[50] ^= 1;
    io.feed(&mut s, &bytes);
    assert_eq!(le16(&io.replies()[0].header, 8), 3);
    assert_eq!(io.session.want(), Want::Nothing);
}

#[test]
fn data_that_were_not_asked_for_end_the_connection() {
    let wire = Wire::default();
    // Another tag, another place, too many bytes, no end mark: header field, range, range, sequence.
    for (tag, offset, len, last, status) in
        [(9, 0, 65536, true, 1), (0, 512, 65536, true, 4), (0, 0, 66048, true, 4), (0, 0, 65536, false, 2)]
    {
        let (mut s, _, _admin, mut io) = pair(wire, true);
        io.feed(&mut s, &wire.command(Entry::new(WRITE, 6).blocks(0, 128).at_host(65536), &[]));
        let tag = tag + le16(&io.replies()[0].header, 10);
        io.feed(&mut s, &wire.data(6, tag, offset, &pattern(len), last));
        let last = io.replies();
        assert_eq!((last[0].kind, le16(&last[0].header, 8)), (pdu::C2H_TERM, status));
        assert_eq!(io.session.want(), Want::Nothing);
    }
}

#[test]
fn a_silent_host_loses_its_controller_and_all_queues() {
    let wire = Wire::default();
    let (mut s, _, mut admin, mut io) = pair(wire, true);
    admin.feed(&mut s, &wire.command(Entry::new(9, 3).dword(10, 0x0f).dword(11, 5000), &[]));
    assert_eq!(admin.completion().status, 0);
    let at = |seconds: u64| Instant::ZERO + Duration::from_secs(seconds);
    admin.session.tick(&mut s, at(1));
    io.session.tick(&mut s, at(1));
    // A read keeps it alive as well as Keep Alive does.
    io.feed(&mut s, &wire.command(Entry::new(READ, 2).blocks(0, 1).at_host(512), &[]));
    io.session.tick(&mut s, at(7));
    admin.session.tick(&mut s, at(8));
    assert_eq!(admin.session.want(), Want::Header);
    admin.feed(&mut s, &wire.command(Entry::new(0x18, 3), &[]));
    admin.session.tick(&mut s, at(13));
    admin.session.tick(&mut s, at(19));
    assert_eq!(admin.session.want(), Want::Header, "two seconds of grace");
    admin.session.tick(&mut s, at(21));
    poke(&mut s, &mut [&mut io]);
    assert_eq!((admin.session.want(), io.session.want()), (Want::Nothing, Want::Nothing));
}

#[test]
fn a_connection_that_becomes_no_queue_ends() {
    let (mut s, _) = subsystems();
    let mut driver = Driver::new(&mut s, Limits::default());
    driver.session.tick(&mut s, Instant::ZERO + Duration::from_secs(9));
    assert_eq!(driver.session.want(), Want::Header);
    driver.session.tick(&mut s, Instant::ZERO + Duration::from_secs(10));
    assert!(driver.session.is_over());
}

#[test]
fn a_reset_or_a_shutdown_closes_the_io_queues() {
    for value in [0x0046_0000, 0x0046_4001] {
        let wire = Wire::default();
        let (mut s, _, mut admin, mut io) = pair(wire, true);
        admin.feed(&mut s, &wire.command(enable(1).dword(12, value), &[]));
        assert_eq!(admin.completion().status, 0);
        poke(&mut s, &mut [&mut io]);
        assert_eq!((admin.session.want(), io.session.want()), (Want::Header, Want::Nothing));
    }
}

/// What was taken in before the disk was barred, and whose data have come since, does not reach it either.
#[test]
fn a_barred_disk_takes_nothing_whenever_it_was_asked() {
    let wire = Wire::default();
    let (mut s, id, _admin, mut io) = pair(wire, true);
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 6).blocks(0, 128).at_host(65536), &[]));
    let r2t = io.replies();
    s.set_barred(id, Some(Status::SANITIZING));
    io.feed(&mut s, &wire.answer(&r2t[0], &pattern(65536)));
    assert_eq!((io.completion().status, io.disk[0]), (0x1d, 0));
    io.feed(&mut s, &wire.command(Entry::new(READ, 7).blocks(0, 1).at_host(512), &[]));
    assert_eq!(io.completion().status, 0x1d);
    s.set_barred(id, None);
    io.feed(&mut s, &wire.command(Entry::new(READ, 7).blocks(0, 1).at_host(512), &[]));
    assert_eq!(io.replies().len(), 2, "data and a completion");
}

/// A subsystem that is gone is quiet once its hosts' commands have left the storage: who is told so may rely on it.
#[test]
fn a_subsystem_that_is_gone_is_quiet_when_its_commands_are_over() {
    let wire = Wire::default();
    let (mut s, id, _admin, mut io) = pair(wire, true);
    io.hold = true;
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 6).blocks(0, 1).in_capsule(512), &pattern(512)));
    assert_eq!(io.pending.len(), 1);
    s.remove(id);
    while s.next_poked().is_some() {}
    io.session.poke(&mut s);
    assert!(!s.is_quiet_before(id, 1), "it is at the storage");
    io.finish(&mut s);
    assert!(s.is_quiet_before(id, 1));
}

/// Whoever asks again and again that a command be given up has it looked for once.
#[test]
fn a_command_is_given_up_once_however_often_that_is_asked() {
    let wire = Wire::default();
    let (mut s, _, mut admin, mut io) = pair(wire, true);
    io.hold = true;
    io.feed(&mut s, &wire.command(Entry::new(READ, 7).blocks(0, 1).at_host(512), &[]));
    for _ in 0..100 {
        admin.feed(&mut s, &wire.command(Entry::new(8, 2).dword(10, 1 | 7 << 16), &[]));
        assert_eq!(admin.completion().result, 1);
        while s.next_poked().is_some() {}
        io.session.poke(&mut s);
        io.work(&mut s);
    }
    assert_eq!(io.cancelled.len(), 1);
}

#[test]
fn an_abort_reaches_a_command_that_waits() {
    let wire = Wire::default();
    let (mut s, _, mut admin, mut io) = pair(wire, true);
    io.feed(&mut s, &wire.command(Entry::new(WRITE, 6).blocks(0, 128).at_host(65536), &[]));
    let r2t = io.replies();
    io.hold = true;
    io.feed(&mut s, &wire.command(Entry::new(READ, 7).blocks(0, 1).at_host(512), &[]));
    for cid in [6_u32, 7, 8] {
        admin.feed(&mut s, &wire.command(Entry::new(8, 2).dword(10, 1 | cid << 16), &[]));
        assert_eq!((admin.completion().result, s.next_poked()), (1, Some(io.session.queue())));
        io.session.poke(&mut s);
        io.work(&mut s);
    }
    assert_eq!(
        (io.replies(), io.cancelled.len()),
        (vec![], 1),
        "its data are on their way; the other is at the storage"
    );
    io.feed(&mut s, &wire.answer(&r2t[0], &pattern(65536)));
    assert_eq!((io.completion().status, io.disk[0]), (7, 0));
}

#[test]
fn features_are_read_as_they_were_set() {
    let wire = Wire::default();
    let (mut s, _) = subsystems();
    let (mut admin, _) = admin(&mut s, wire, NQN);
    let mut run = |opcode: u8, feature: u32, value: u32| {
        let entry = Entry::new(opcode, 3).dword(10, feature).dword(11, value);
        admin.feed(&mut s, &wire.command(entry, &[]));
        let c = admin.completion();
        (c.status, c.result)
    };
    assert_eq!(run(9, 0x07, 3 | 3 << 16), (0, 3 | 3 << 16));
    assert_eq!(run(9, 0x07, 99 | 99 << 16), (0, 15 | 15 << 16), "no more than there are");
    assert_eq!(run(10, 0x07, 0), (0, 15 | 15 << 16));
    assert_eq!(run(9, 0x0f, 1234), (0, 0));
    assert_eq!(run(10, 0x0f, 0), (0, 1300), "in whole tenths of a second");
    assert_eq!(run(9, 0x0b, u32::MAX), (0, 0));
    assert_eq!(run(10, 0x0b, 0), (0, 1 << 8 | 1 << 11), "the events that there are");
    assert_eq!(run(9, 0x06, 0).0, 0x10e);
    assert_eq!(run(9, 1 << 31 | 1, 0).0, 0x10d);
    assert_eq!(run(9, 1 << 31 | 0x16, 0).0, 0x10d, "no feature is saved, nor is one that is a page");
    assert_eq!(run(9, 0x77, 0).0, 2);
}

const COPY: u8 = 0x19;

/// Source ranges of a Copy in format 0: first block and blocks of each.
fn sources(ranges: &[(u64, u16)]) -> Vec<u8> {
    let mut list = vec![0; ranges.len() * 32];
    for (entry, (first, blocks)) in list.chunks_mut(32).zip(ranges) {
        entry[8..16].copy_from_slice(&first.to_le_bytes());
        entry[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
    }
    list
}

/// A Copy to block `to`.
fn copy(cid: u16, to: u64, ranges: &[(u64, u16)]) -> (Entry, Vec<u8>) {
    let list = sources(ranges);
    let count = ranges.len() as u32;
    (Entry::new(COPY, cid).blocks(to, 1).dword(12, count - 1).in_capsule(list.len()), list)
}

/// Ranges are written one behind the other; one may overlap where it goes.
#[test]
fn ranges_are_copied_within_the_disk() {
    let (mut s, _, _admin, mut io) = pair(Wire::default(), true);
    io.disk = pattern(BYTES);
    let before = io.disk.clone();
    let (entry, list) = copy(7, 100, &[(8, 4), (1000, 2)]);
    io.feed(&mut s, &Wire::default().command(entry, &list));
    assert_eq!((io.completion().status, io.changes.len()), (0, 0));
    assert_eq!(io.disk[100 * 512..104 * 512], before[8 * 512..12 * 512]);
    assert_eq!(io.disk[104 * 512..106 * 512], before[1000 * 512..1002 * 512]);
    assert_eq!(io.disk[106 * 512..], before[106 * 512..], "and nothing behind");
    io.disk = before.clone();
    let (entry, list) = copy(7, 2, &[(0, 16)]);
    io.feed(&mut s, &Wire::default().command(entry, &list));
    assert_eq!(io.completion().status, 0);
    assert_eq!(io.disk[2 * 512..18 * 512], before[..16 * 512]);
}

#[test]
fn a_copy_that_cannot_be_says_where_it_ended() {
    let (mut s, _, _admin, mut io) = pair(Wire::default(), true);
    let last = (BYTES / 512) as u64 - 1;
    let mut ends = |entry: Entry, list: &[u8]| {
        io.feed(&mut s, &Wire::default().command(entry, list));
        let done = io.completion();
        assert!(done.final_);
        done.status
    };
    let whole = copy(7, 0, &[(0, 1)]).0;
    for (entry, list, status, why) in [
        (copy(7, 0, &[(last, 2)]).0, sources(&[(last, 2)]), 0x80, "a source beyond the end"),
        (copy(7, last, &[(0, 1), (0, 1)]).0, sources(&[(0, 1), (0, 1)]), 0x80, "a target beyond the end"),
        (copy(7, u64::MAX, &[(0, 1)]).0, sources(&[(0, 1)]), 0x80, "a target that wraps"),
        (copy(7, 0, &[(0, 2049)]).0, sources(&[(0, 2049)]), 0x183, "a range that is too long"),
        (whole.dword(12, 1 << 8), sources(&[(0, 1)]), 2, "another format"),
        (whole.dword(12, 1 << 12), sources(&[(0, 1)]), 2, "protection information, read"),
        (whole.dword(12, 1 << 26), sources(&[(0, 1)]), 2, "protection information, written"),
        (whole.fuse(2), sources(&[(0, 1)]), 2, "fused"),
        (whole.dword(12, 128), sources(&[(0, 1)]), 0x183, "more ranges than are taken"),
        (whole.dword(12, 1), sources(&[(0, 1)]), 0x0f, "less than it says"),
    ] {
        assert_eq!(ends(entry, &list), status, "{why}");
    }
    // The second of three fails.
    io.hold = true;
    let (entry, list) = copy(7, 100, &[(0, 1), (1, 1), (2, 1)]);
    io.feed(&mut s, &Wire::default().command(entry, &list));
    io.hold = false;
    io.fault = None;
    let first = io.pending.remove(0);
    assert_eq!(first.action, Action::Copy { from: 0, to: 100 * 512, len: 512, fua: false });
    io.session.complete(&mut s, first.task, henge_nvme::Outcome::Done, &[]);
    io.fault = Some(Fault::Io);
    io.work(&mut s);
    let failed = io.completion();
    assert_eq!((failed.status, failed.result), (0x280, 1), "which was not copied");
}
