//! The bytes on a device and in a directory are those of docs/durability.md: read here by that page alone, with none of the crate's own
//! readers. Whoever changes the format changes the page, the version, and this.

use henge_backend::{Device, Directory, Options, Step, Store, pools};
use henge_core::{FlowId, Instant, Op, Request, RequestId};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Not a whole number of pages: the rest is nobody's.
const FILE: u64 = 40 * MIB + 1000;
const DEVICE: u64 = 40 * MIB;

fn options() -> Options {
    Options { patience: Duration::ZERO, apart: true, ..Options::default() }
}

/// CRC-32C bit by bit: the polynomial 1EDC6F41 reflected (RFC 3720, 12.1 and appendix B.4).
fn crc32c(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.into_iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(byte), step))
}

/// Some of a page's bytes, by what the document's tables call byte and length; each is looked at once.
struct Page {
    bytes: Vec<u8>,
    seen: Vec<bool>,
}

impl Page {
    fn at(device: &[u8], from: u64) -> Page {
        Page { bytes: device[from as usize..][..4096].to_vec(), seen: vec![false; 4096] }
    }
    fn take(&mut self, at: usize, len: usize) -> &[u8] {
        assert!(self.seen[at..at + len].iter().all(|seen| !seen), "{len} bytes at {at}: twice");
        self.seen[at..at + len].fill(true);
        &self.bytes[at..at + len]
    }
    fn number(&mut self, at: usize, len: usize) -> u64 {
        self.take(at, len).iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
    }
    fn zeroes(&mut self, at: usize, len: usize) {
        assert!(self.take(at, len).iter().all(|byte| *byte == 0), "{len} bytes at {at} are zeroes");
    }
    fn name(&mut self, at: usize, len: usize) -> String {
        let text = self.take(at, len);
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(len);
        assert!(text[end..].iter().all(|byte| *byte == 0), "zeroes behind the name");
        String::from_utf8(text[..end].to_vec()).unwrap()
    }
    /// A version 4 UUID.
    fn uuid(&mut self, at: usize) -> Vec<u8> {
        let uuid = self.take(at, 16).to_vec();
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 0b10), "a random UUID");
        uuid
    }
    fn whole(self) {
        assert!(self.seen.iter().all(|seen| *seen), "every byte is told of");
    }
}

/// What the superblock at that byte says: pool, pages of the table, data.start, data.end, and where the copies of the table begin.
fn superblock(device: &[u8], from: u64, name: &str) -> (Vec<u8>, u64, [u64; 4]) {
    let mut page = Page::at(device, from);
    assert_eq!(page.take(0, 16), b"HENGE POOL\x0d\x0a\x1a\x0a\0\0");
    assert_eq!(page.number(16, 4), 1, "version");
    let (pages, pool) = (page.number(20, 4), page.uuid(24));
    assert_eq!(page.number(40, 8), DEVICE, "whole pages of the device");
    let places = [48, 56, 64, 72].map(|at| page.number(at, 8));
    assert_eq!(page.name(80, 128), name);
    page.zeroes(208, 3884);
    let sum = page.number(4092, 4) as u32;
    assert_eq!(sum, crc32c(page.bytes[..4092].iter().copied()));
    page.whole();
    (pool, pages, places)
}

/// One record: its state, UUID, first byte, bytes, bytes before, and name.
type Record = (u64, Vec<u8>, u64, u64, u64, String);

/// A page of the table: its sequence number and its records, `None` for free ones.
fn table_page(device: &[u8], from: u64, number: u64, pool: &[u8]) -> (u64, Vec<Option<Record>>) {
    let mut page = Page::at(device, from);
    assert_eq!(page.take(0, 8), b"HENGETBL");
    assert_eq!(page.number(8, 4), number);
    let sum = page.number(12, 4) as u32;
    let blank = page.bytes.iter().enumerate().map(|(i, byte)| if (12..16).contains(&i) { 0 } else { *byte });
    assert_eq!(sum, crc32c(blank));
    let sequence = page.number(16, 8);
    assert_eq!(page.take(24, 16), pool);
    page.zeroes(40, 216);
    let records = (1..16).map(|i| 256 * i).map(|at| {
        let state = page.number(at, 1);
        if state == 0 {
            page.take(at + 1, 255);
            return None;
        }
        let letters = page.number(at + 1, 1) as usize;
        page.zeroes(at + 2, 14);
        let id = page.uuid(at + 16);
        let [base, len, before] = [32, 40, 48].map(|field| page.number(at + field, 8));
        page.zeroes(at + 56, 8);
        let name = page.name(at + 64, 128);
        assert_eq!(name.len(), letters);
        page.zeroes(at + 192, 64);
        Some((state, id, base, len, before, name))
    });
    let records: Vec<_> = records.collect();
    page.whole();
    (sequence, records)
}

/// The superblock's two copies, and the table's two, which say the same: data.start, and sequence number and records of each page.
fn pool_on(path: &Path, name: &str) -> (u64, Vec<u64>, Vec<Option<Record>>) {
    let device = std::fs::read(path).unwrap();
    let (pool, pages, places) = superblock(&device, 0, name);
    assert_eq!((pool.clone(), pages, places), superblock(&device, DEVICE - 4096, name));
    let [start, end, first, second] = places;
    // The drawing: superblock, copy 1, parts at whole MiB, copy 2, superblock.
    assert_eq!((first, second), (4096, DEVICE - 4096 - 4096 * pages));
    assert_eq!(start, (first + 4096 * pages).next_multiple_of(MIB));
    assert_eq!(end, second / MIB * MIB);
    // One part for each MiB, at 15 parts a page: 40 need three.
    assert_eq!(pages, 3);
    let (mut sequences, mut records) = (Vec::new(), Vec::new());
    for page in 0..pages {
        let copy = |from: u64| table_page(&device, from + 4096 * page, page, &pool);
        let (sequence, mut these) = copy(first);
        assert_eq!((sequence, these.clone()), copy(second), "both copies of page {page}");
        sequences.push(sequence);
        records.append(&mut these);
    }
    (start, sequences, records)
}

fn steps(store: &mut dyn Store, name: &str, first: std::io::Result<Step>) -> u64 {
    let mut step = first;
    loop {
        step = match step.unwrap() {
            Step::There(base) => return base,
            Step::Run(chore) => store.go_on(name, chore()),
            Step::Zero { .. } => store.go_on(name, Ok(None)),
        };
    }
}

#[test]
fn the_checksum_is_the_documents() {
    // RFC 3720, B.4: 32 bytes of zeroes.
    assert_eq!(crc32c([0; 32]), 0x8a91_36aa);
}

#[test]
fn a_device_is_as_the_document_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    std::fs::File::create(&path).unwrap().set_len(FILE).unwrap();
    pools::format(&path, "fast", false).unwrap();
    let (start, formatted, records) = pool_on(&path, "fast");
    assert!(records.iter().all(Option::is_none), "no parts");

    let mut store = Device::open(&path, "fast", 0, options()).unwrap();
    // A disk's, being made, and kept: each change is one page with a higher number.
    let begun = store.begin_part("web.part0", 3 * MIB);
    let web = steps(&mut store, "web.part0", begun);
    let (_, _, records) = pool_on(&path, "fast");
    let [Some((1, id, base, len, _, name))] = &records.iter().filter(|r| r.is_some()).collect::<Vec<_>>()[..]
    else {
        panic!("one part, which is being made: {records:?}")
    };
    assert_eq!((*base, *len, name.as_str()), (web, 3 * MIB, "web.part0"));
    let (_, before, _) = pool_on(&path, "fast");
    let claimed = store.begin_claim("web.part0");
    steps(&mut store, "web.part0", claimed);
    let (_, after, records) = pool_on(&path, "fast");
    let want = Some((2, id.clone(), web, 3 * MIB, 3 * MIB, "web.part0".to_owned()));
    let place = records.iter().position(Option::is_some).expect("the part");
    assert_eq!((place, &records[place]), (0, &want), "the first record");
    assert_eq!(after[0], before[0] + 2, "one number, and the one that would put back what was there");
    assert_eq!(after[1..], formatted[1..], "no other page");
    let grown = store.begin_part("web.part0", 5 * MIB);
    steps(&mut store, "web.part0", grown);
    let (_, _, records) = pool_on(&path, "fast");
    assert_eq!(records[0], Some((2, id.clone(), web, 5 * MIB, 3 * MIB, "web.part0".to_owned())));

    // The part's bytes are where the record says.
    let mut data = henge_backend::Buffer::zeroed(4096);
    data.fill(0xa5);
    let request = Request::new(RequestId::default(), FlowId(0), Op::Write, web + 8192, 4096, Instant::ZERO);
    henge_core::Backend::submit(&mut store, &request, data, Instant::ZERO);
    while henge_core::Backend::reap(&mut store, Instant::ZERO).is_none() {
        std::thread::yield_now();
    }
    let bytes = std::fs::read(&path).unwrap();
    let at = (start + web + 8192) as usize;
    assert!(bytes[at..at + 4096].iter().all(|byte| *byte == 0xa5));
    assert!(web.is_multiple_of(MIB), "a whole MiB");

    drop(store);
    let mut store = Device::open(&path, "fast", 0, options()).unwrap();
    store.settle(&|_| false).unwrap();
    assert_eq!(pool_on(&path, "fast").2[0].as_ref().map(|record| record.0), Some(3), "kept");
    drop(store);
    pools::rename(&path, "slow").unwrap();
    assert_eq!(pool_on(&path, "slow").2[0].as_ref().map(|record| &record.1), Some(id));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE);
}

#[test]
fn a_directory_is_as_the_document_says() {
    let dir = tempfile::tempdir().unwrap();
    drop(Directory::open(dir.path(), "ssd", 8 * MIB, options()).unwrap());
    let text = std::fs::read_to_string(dir.path().join(".henge.pool")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let [head, pool, name, sum] = lines[..] else { panic!("four lines: {text}") };
    assert_eq!((head, name), ("henge pool 1", "name ssd"));
    let pool = pool.strip_prefix("pool ").unwrap();
    assert!(pool.len() == 36 && pool.as_bytes()[14] == b'4', "a random UUID: {pool}");
    let before = text.find("crc32c").unwrap();
    assert_eq!(sum, format!("crc32c {:08x}", crc32c(text.bytes().take(before))));
    assert_eq!(std::fs::metadata(dir.path().join(".henge.lock")).unwrap().len(), 0);
}
