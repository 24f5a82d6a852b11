//! A connection over a socket pair, its loop by hand: what it holds while its client dawdles, and that bytes arrive as they are.

use super::Connection;
use crate::client::Client;
use crate::inflow::EARLY;
use crate::session::Stop;
use crate::session::bench::Bench;
use henge_core::Instant;
use henge_nbd::Limits;
use proptest::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

const MIB: usize = 1 << 20;
const CAPACITY: usize = 40 * MIB;
const READ: u16 = 0;
const WRITE: u16 = 1;
const CACHE: u16 = 5;

struct Rig {
    bench: Bench,
    ours: Client,
    client: UnixStream,
    received: Vec<u8>,
    most_held: usize,
    /// The node has ended the connection.
    over: bool,
}

impl Rig {
    fn new(structured: bool, disk: &str, limits: &str) -> Rig {
        let text = format!(
            "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"48MiB\"\n{limits}\n[[disk]]\nname = \"d\"\ncapacity = \"40MiB\"\n{disk}\n"
        );
        let mut bench = Bench::new(&text);
        let export = bench.plane.disks.of(0).export();
        bench.catalog.add(0, export, &crate::access::NbdAccess::Anyone, 0);
        let (ours, client) = Bench::client(Connection::new(None, Limits::default(), Instant::ZERO));
        bench.now = Instant::from_nanos(1);
        let (received, most_held, over) = (Vec::new(), 0, false);
        let mut rig = Rig { bench, ours, client, received, most_held, over };
        rig.send(&[0, 0, 0, 3]);
        if structured {
            rig.send(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
        }
        rig.send(b"IHAVEOPT\0\0\0\x01\0\0\0\x01d");
        rig.turn();
        rig.take(usize::MAX);
        rig.received.clear();
        rig
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        for _ in 0..100_000 {
            match self.client.write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.turn(),
                Err(e) => panic!("{e}"),
            }
            if sent == bytes.len() {
                return;
            }
        }
        panic!("it takes no more");
    }

    fn ask(&mut self, kind: u16, cookie: u64, offset: usize, len: usize) {
        let mut header = 0x2560_9513u32.to_be_bytes().to_vec();
        header.extend([0, 0]);
        header.extend(kind.to_be_bytes());
        header.extend(cookie.to_be_bytes());
        header.extend((offset as u64).to_be_bytes());
        header.extend((len as u32).to_be_bytes());
        self.send(&header);
    }

    /// What the loop does: until nothing moves any more.
    fn turn(&mut self) {
        for _ in 0..200 {
            if self.over {
                return;
            }
            let stop = self.bench.read(&mut self.ours);
            let idle = self.bench.answer(&mut self.ours) == 0 && !self.bench.plane.is_runnable();
            let before = self.nbd().output().len();
            self.over |= !self.bench.write(&mut self.ours) || stop == Stop::Gone || self.nbd().is_over();
            self.most_held = self.most_held.max(self.bench.plane.disks.of(0).held);
            let wrote = self.nbd().output().len() < before;
            if idle && !wrote && !self.bench.plane.is_runnable() && stop != Stop::Turn {
                return;
            }
        }
    }

    fn nbd(&mut self) -> &mut henge_nbd::Session {
        &mut self.ours.session::<Connection>().unwrap().session
    }

    /// Bytes that are to be written, and memory that is held.
    fn state(&mut self) -> (u64, usize) {
        (self.nbd().output().len(), self.bench.plane.disks.of(0).held)
    }

    /// The client takes so many bytes, if they come.
    fn take(&mut self, mut most: usize) {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let n = bytes.len().min(most);
            match self.client.read(&mut bytes[..n]) {
                Ok(0) => return,
                Ok(n) => {
                    self.received.extend_from_slice(&bytes[..n]);
                    most -= n;
                }
                Err(_) => {
                    let before = self.state();
                    self.turn();
                    if self.state() == before {
                        match self.client.read(&mut bytes[..n]) {
                            Ok(n) if n > 0 => {
                                self.received.extend_from_slice(&bytes[..n]);
                                most -= n;
                            }
                            _ => return,
                        }
                    }
                }
            }
            if most == 0 {
                return;
            }
        }
    }

    fn fill(&mut self) {
        for at in (0..CAPACITY).step_by(MIB) {
            self.ask(WRITE, 1, at, MIB);
            self.send(&FILLED[at..at + MIB]);
            self.take(usize::MAX);
        }
        let replies = CAPACITY / MIB * 16;
        assert_eq!(self.received.len(), replies);
        self.received.clear();
        self.most_held = 0;
    }

    fn assert_clean(&mut self) {
        let plane = &mut self.bench.plane;
        assert_eq!((plane.memory.buffers.out(), plane.disks.of(0).held), (0, 0), "all memory is back");
        assert!(self.nbd().in_flight() == 0 && self.ours.session::<Connection>().unwrap().long.is_empty());
    }
}

/// What the disk is filled with.
static FILLED: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..CAPACITY).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect());

/// What simple replies say, in their order: cookie, error, and whether the bytes of a read are right.
fn simple(mut bytes: &[u8], reads: &[(u64, usize, usize)]) -> Vec<(u64, u32)> {
    let mut replies = Vec::new();
    while bytes.len() >= 16 {
        let (header, rest) = bytes.split_at(16);
        assert_eq!(header[..4], [0x67, 0x44, 0x66, 0x98], "a reply begins here");
        let error = u32::from_be_bytes(header[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(header[8..].try_into().unwrap());
        bytes = rest;
        if let Some((_, offset, len)) = reads.iter().find(|(c, ..)| *c == cookie && error == 0) {
            assert!(bytes[..*len] == FILLED[*offset..offset + len], "cookie {cookie}");
            bytes = &bytes[*len..];
        }
        replies.push((cookie, error));
    }
    assert!(bytes.is_empty(), "{} bytes belong to nothing", bytes.len());
    replies
}

/// The same of structured ones: each read is whole, once.
fn structured(mut bytes: &[u8], reads: &[(u64, usize, usize)]) -> Vec<(u64, u32)> {
    let mut replies = Vec::new();
    let mut got = std::collections::BTreeMap::<u64, usize>::new();
    while !bytes.is_empty() {
        if bytes[..4] == [0x67, 0x44, 0x66, 0x98] {
            replies.push((u64::from_be_bytes(bytes[8..16].try_into().unwrap()), 0));
            bytes = &bytes[16..];
            continue;
        }
        assert_eq!(bytes[..4], [0x66, 0x8e, 0x33, 0xef], "a chunk begins here");
        let (flags, kind) = (bytes[5], u16::from_be_bytes(bytes[6..8].try_into().unwrap()));
        let cookie = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
        let len = u32::from_be_bytes(bytes[16..20].try_into().unwrap()) as usize;
        let data = &bytes[20..20 + len];
        if kind == 1 {
            let at = u64::from_be_bytes(data[..8].try_into().unwrap()) as usize;
            assert!(data[8..] == FILLED[at..at + len - 8], "cookie {cookie}");
            *got.entry(cookie).or_default() += len - 8;
        }
        if flags & 1 == 1 {
            let wanted = reads.iter().find(|(c, ..)| *c == cookie).map_or(0, |r| r.2);
            let error = if kind < 0x8000 { 0 } else { u32::from_be_bytes(data[..4].try_into().unwrap()) };
            assert!(
                error > 0 || got.get(&cookie).copied().unwrap_or(0) == wanted,
                "cookie {cookie} is whole"
            );
            replies.push((cookie, error));
        }
        bytes = &bytes[20 + len..];
    }
    replies
}

#[test]
fn a_reader_of_32_mib_that_takes_nothing_holds_four() {
    for kind in [false, true] {
        let mut rig = Rig::new(kind, "", "");
        rig.fill();
        let reads = [(9, 12_345, 32 * MIB)];
        rig.ask(READ, 9, 12_345, 32 * MIB);
        rig.turn();
        assert!((MIB..=4 * MIB).contains(&rig.most_held), "{} held", rig.most_held);
        rig.take(usize::MAX);
        assert!(rig.most_held <= 4 * MIB, "{} held", rig.most_held);
        let replies = if kind { structured(&rig.received, &reads) } else { simple(&rig.received, &reads) };
        assert_eq!(replies, [(9, 0)]);
        rig.assert_clean();
    }
}

#[test]
fn a_payload_has_memory_as_it_comes() {
    let mut rig = Rig::new(false, "", "");
    rig.fill();
    rig.ask(WRITE, 5, 4096 * 3 + 7, 20 * MIB);
    rig.send(&[1; 1000]);
    rig.turn();
    assert!(rig.most_held <= EARLY, "1000 bytes of 20 MiB have come, {} are held", rig.most_held);
    rig.send(&vec![1; 20 * MIB - 1000]);
    rig.take(usize::MAX);
    assert!(rig.most_held <= 5 * MIB, "{} held", rig.most_held);
    assert_eq!(simple(&rig.received, &[]), [(5, 0)]);
    rig.received.clear();
    rig.ask(READ, 6, 4096 * 3, 20 * MIB + 4096);
    rig.take(usize::MAX);
    let data = &rig.received[16..];
    let (first, last) = (7, 20 * MIB + 7);
    assert!(data[first..last].iter().all(|b| *b == 1), "what was written");
    let was = &FILLED[4096 * 3..][..data.len()];
    assert!(
        data[..first] == was[..first] && data[last..] == was[last..],
        "what was there before and behind it"
    );
    rig.assert_clean();
}

/// A read that fails after its beginning was sent: with structured replies it says so, with simple ones the connection ends.
#[test]
fn a_long_read_that_fails_is_never_answered_well() {
    for kind in [false, true] {
        let mut failed = 0;
        for seed in 0..12 {
            let pool = format!("faults = {{ errors = \"8%\", seed = {seed} }}");
            let mut rig = Rig::new(kind, "", &pool);
            rig.ask(READ, 9, 0, 32 * MIB);
            rig.take(usize::MAX);
            rig.turn();
            if kind {
                let mut bytes = &rig.received[..];
                let (mut got, mut last) = (0, None);
                while bytes.len() >= 20 {
                    let len = u32::from_be_bytes(bytes[16..20].try_into().unwrap()) as usize;
                    let kind = u16::from_be_bytes(bytes[6..8].try_into().unwrap());
                    got += if kind == 1 { len - 8 } else { 0 };
                    last = Some((bytes[5], kind));
                    bytes = &bytes[20 + len..];
                }
                let error = last.is_some_and(|(flags, kind)| flags == 1 && kind >= 0x8000);
                assert!(error != (got == 32 * MIB) && !rig.over, "seed {seed}: {got} bytes, then {last:?}");
                failed += u32::from(error);
            } else {
                let refused = rig.received.len() == 16 && rig.received[7] == 5;
                let whole = rig.received.len() == 16 + 32 * MIB;
                assert!(refused || whole != rig.over, "seed {seed}: {} bytes", rig.received.len());
                failed += u32::from(!whole);
            }
            rig.ours.close(&mut rig.bench.around());
            assert_eq!(rig.bench.plane.memory.buffers.out(), 0);
        }
        assert!(failed > 5, "of 12 reads in 32 pieces, each of which fails in 8 of 100 cases: {failed}");
    }
}

#[test]
fn a_cache_of_everything_stays_within_its_windows() {
    let mut rig = Rig::new(false, "commands = { prefetch = true }", "");
    rig.ask(CACHE, 3, 0, CAPACITY);
    rig.take(usize::MAX);
    assert_eq!(simple(&rig.received, &[]), [(3, 0)]);
    assert!((1..=256 << 10).contains(&rig.most_held), "{} held", rig.most_held);
    rig.assert_clean();
}

/// A CACHE answers nobody in between, and storage in memory answers at once. Yet between two turns of its connection no more is done than
/// the pieces that were begun: whatever the disk's size, and however many such commands there are.
#[test]
fn caches_of_everything_go_on_by_turns() {
    let mut rig = Rig::new(false, "commands = { prefetch = true }", "");
    for cookie in 0..16 {
        rig.ask(CACHE, cookie, 0, CAPACITY);
    }
    let (mut pieces, mut turns) = (0, 0);
    for _ in 0..10_000 {
        rig.bench.read(&mut rig.ours);
        let mut of_this_turn = 0;
        loop {
            match rig.bench.answer(&mut rig.ours) {
                0 => break,
                more => of_this_turn += more,
            }
        }
        assert!(of_this_turn <= 4 * 2, "{of_this_turn} pieces between two turns");
        let held = rig.bench.plane.disks.of(0).held;
        assert!(held <= MIB, "{held} held");
        rig.bench.write(&mut rig.ours);
        (pieces, turns) = (pieces + of_this_turn, turns + 1);
        if rig.nbd().in_flight() == 0 {
            break;
        }
    }
    assert_eq!(pieces, 16 * CAPACITY / (128 << 10));
    assert!(turns >= pieces / 8, "{turns} turns");
    rig.take(usize::MAX);
    let replies = simple(&rig.received, &[]);
    assert_eq!(replies.len(), 16);
    assert!(replies.iter().all(|(_, error)| *error == 0));
    assert_eq!(rig.bench.plane.disks.of(0).fetches, 0);
    rig.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Reads of all lengths at once, a client that takes bytes as it likes, few commands at the disk at once: every read is
    /// answered once and whole, and nothing is left.
    #[test]
    fn reads_of_all_lengths_come_whole(
        asked in proptest::collection::vec((0usize..CAPACITY - 5 * MIB, prop_oneof![1usize..70_000, 1usize..5 * MIB]), 1..8),
        takes in proptest::collection::vec(1usize..3 * MIB, 1..6),
        kind in any::<bool>(),
        few in any::<bool>(),
    ) {
        let mut rig = Rig::new(kind, if few { "contract = { pending = 2 }" } else { "" }, "");
        rig.fill();
        let reads: Vec<_> = asked.iter().enumerate().map(|(i, (offset, len))| (i as u64 + 1, *offset, *len)).collect();
        for (i, (cookie, offset, len)) in reads.iter().enumerate() {
            rig.ask(READ, *cookie, *offset, *len);
            rig.take(takes[i % takes.len()]);
        }
        let whole: usize = reads.iter().map(|r| r.2).sum();
        for _ in 0..2000 {
            if rig.received.len() >= whole && rig.nbd().in_flight() == 0 {
                break;
            }
            rig.take(usize::MAX);
        }
        let mut replies = if kind { structured(&rig.received, &reads) } else { simple(&rig.received, &reads) };
        replies.sort_unstable();
        prop_assert_eq!(replies, (1..=reads.len() as u64).map(|c| (c, 0)).collect::<Vec<_>>());
        rig.assert_clean();
    }
}
