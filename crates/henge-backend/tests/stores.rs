//! Every medium and wrapper is held to the same rule: what is read is what was written last, and before that zeroes.

#![allow(unsafe_code)] // a store names its descriptor by number

use henge_backend::{
    Buffer, Device, Directory, Emulated, EngineChoice, Faults, Faulty, Memory, Options, Store, Traced,
    Volatile, pools,
};
use henge_core::{Backend, Done, Duration, Fault, FlowId, Instant, Model, Op, Pending, Request, RequestId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::event::{Timespec, epoll};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::Path;

const BLOCK: u64 = 4096;
const PART: u64 = 3 << 20;

fn options(engine: EngineChoice, direct: bool) -> Options {
    Options { direct, engine, depth: 32, ..Options::default() }
}

struct Driver<S> {
    store: S,
    ids: Pending<()>,
    now: Instant,
}

impl<S: Store> Driver<S> {
    fn new(store: S) -> Self {
        Driver { store, ids: Pending::new(), now: Instant::ZERO }
    }
    fn submit(&mut self, op: Op, fua: bool, offset: u64, len: u64, payload: Buffer) -> RequestId {
        let id = self.ids.insert(());
        let mut request = Request::new(id, FlowId(0), op, offset, len, self.now);
        request.fua = fua;
        self.store.submit(&request, payload, self.now);
        id
    }
    fn wait(&mut self) -> Done<Buffer> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        if let Some(fd) = self.store.event_fd() {
            // SAFETY: the store keeps its descriptor open for as long as it lives.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), edge).unwrap();
        }
        for _ in 0..10_000 {
            if let Some(done) = self.store.reap(self.now) {
                self.ids.remove(done.id).expect("given back once");
                return done;
            }
            match self.store.wake_at() {
                Some(at) => self.now = self.now.max(at),
                None => {
                    let mut events = Vec::with_capacity(1);
                    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
                    let room = rustix::buffer::spare_capacity(&mut events);
                    match epoll::wait(&epoll, room, Some(&patience)) {
                        Ok(0) => panic!("{} is silent", self.store.describe()),
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            }
        }
        panic!("{} never finished", self.store.describe());
    }
    fn run(&mut self, op: Op, offset: u64, len: u64, payload: Buffer) -> Result<Buffer, Fault> {
        let id = self.submit(op, false, offset, len, payload);
        let done = self.wait();
        assert_eq!(done.id, id);
        done.outcome.map(|()| done.payload)
    }
    fn write(&mut self, offset: u64, len: u64, fill: u8) -> Result<(), Fault> {
        let mut data = Buffer::zeroed(len as usize);
        data.fill(fill);
        self.run(Op::Write, offset, len, data).map(drop)
    }
    fn read(&mut self, offset: u64, len: u64) -> Vec<u8> {
        let mut stale = Buffer::zeroed(len as usize);
        stale.fill(0xEE); // a buffer that held another tenant's data
        self.run(Op::Read, offset, len, stale).expect("a read within the part").to_vec()
    }
}

/// Random operations, several at once on ranges that do not overlap, against a plain array.
fn conforms(store: impl Store, seed: u64) {
    let mut d = Driver::new(store);
    let first = d.store.open_part("first", PART).unwrap();
    let second = d.store.open_part("second", PART).unwrap();
    assert!(first.abs_diff(second) >= PART, "parts do not overlap");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut want = vec![0u8; PART as usize];
    let area = PART / BLOCK / 8;
    for round in 0..60 {
        let mut reads = Vec::new();
        // Each of eight lanes works in its own eighth.
        for lane in 0..8 {
            let from = random.random_range(0..area);
            let len = (1 + random.random_range(0..(area - from).min(40))) * BLOCK;
            let offset = (lane * area + from) * BLOCK;
            let range = offset as usize..(offset + len) as usize;
            let fill = random.random_range(0..255) as u8 + 1;
            match random.random_range(0..8) {
                0..3 => {
                    let mut data = Buffer::zeroed(len as usize);
                    data.fill(fill);
                    want[range].fill(fill);
                    d.submit(Op::Write, random.random_range(0..4) == 0, first + offset, len, data);
                }
                3 => {
                    want[range].fill(0);
                    let op = if fill.is_multiple_of(2) { Op::Trim } else { Op::WriteZeroes };
                    d.submit(op, fill.is_multiple_of(3), first + offset, len, Buffer::empty());
                }
                4 => drop(d.submit(Op::Flush, false, first, 0, Buffer::empty())),
                _ => {
                    let id = d.submit(Op::Read, false, first + offset, len, Buffer::zeroed(len as usize));
                    reads.push((id, range));
                }
            }
        }
        while !d.ids.is_empty() {
            let done = d.wait();
            assert_eq!(done.outcome, Ok(()), "seed {seed} round {round}");
            if let Some((_, range)) = reads.iter().find(|(id, _)| *id == done.id) {
                assert!(done.payload[..] == want[range.clone()], "seed {seed} round {round} {range:?}");
            }
        }
    }
    assert!(d.read(first, PART) == want, "seed {seed}");
    assert!(d.read(second, PART).iter().all(|b| *b == 0), "the neighbour is as it was");
    assert_eq!(
        d.run(Op::Read, first + (64 << 20), BLOCK, Buffer::zeroed(4096)).unwrap_err(),
        Fault::OutOfRange
    );
    // Removed, and made again under another name: zeroes.
    d.store.remove_part("first").unwrap();
    let third = d.store.open_part("third", PART).unwrap();
    assert_eq!(third, first, "first fit");
    assert!(d.read(third, PART).iter().all(|b| *b == 0), "a removed disk's data never shows");
    assert!(d.store.open_part("huge", 1 << 40).is_err(), "beyond the capacity");
}

fn device_file(dir: &Path, bytes: u64) -> std::path::PathBuf {
    let path = dir.join("device");
    // What stood on the disk before: a fresh part must not show it.
    std::fs::write(&path, vec![0xDD; bytes as usize]).unwrap();
    path
}

#[test]
fn memory() {
    conforms(Memory::new(64 << 20).unwrap(), 1);
}

#[test]
fn directory_by_threads() {
    let dir = tempfile::tempdir().unwrap();
    conforms(Directory::open(dir.path(), "p", 64 << 20, options(EngineChoice::Threads, true)).unwrap(), 2);
}

#[test]
fn directory_by_whatever_is_best_here() {
    let dir = tempfile::tempdir().unwrap();
    conforms(Directory::open(dir.path(), "p", 64 << 20, options(EngineChoice::Auto, true)).unwrap(), 3);
    let dir = tempfile::tempdir().unwrap();
    conforms(Directory::open(dir.path(), "p", 64 << 20, options(EngineChoice::Auto, false)).unwrap(), 4);
}

#[test]
fn what_is_over_at_once_wakes_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(EngineChoice::Uring, false);
    let Ok(store) = Directory::open(dir.path(), "p", 64 << 20, options) else {
        return eprintln!("skipped: io_uring is forbidden here");
    };
    let mut d = Driver::new(store);
    let base = d.store.open_part("cached", PART).unwrap();
    d.write(base, BLOCK, 7).unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    // SAFETY: the store keeps its descriptor open for as long as it lives.
    let fd = unsafe { BorrowedFd::borrow_raw(d.store.event_fd().unwrap()) };
    let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, fd, epoll::EventData::new_u64(0), edge).unwrap();
    let wakes = |ms: i64| {
        let mut events = Vec::with_capacity(1);
        let patience = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)).unwrap()
    };
    wakes(0); // what the write left behind
    let mut byte = [0];
    let part = std::fs::File::open(dir.path().join("cached")).unwrap();
    let at_once = rustix::io::ReadWriteFlags::NOWAIT;
    if rustix::io::preadv2(&part, &mut [std::io::IoSliceMut::new(&mut byte)], 0, at_once) != Ok(1) {
        return eprintln!("skipped: this file system reads nothing at once");
    }
    for _ in 0..10 {
        d.submit(Op::Read, false, base, BLOCK, Buffer::zeroed(BLOCK as usize));
        // What was just written is in the page cache: the kernel reads it while it takes the request.
        let done = d.store.reap(d.now).expect("it is over at once");
        d.ids.remove(done.id).unwrap();
        assert!(done.payload.iter().all(|b| *b == 7) && d.store.reap(d.now).is_none());
        assert_eq!(wakes(0), 0, "a wake-up for what was reaped already");
    }
    // What takes its time still wakes.
    d.submit(Op::Flush, false, 0, 0, Buffer::empty());
    let done = d.store.reap(d.now);
    assert!(done.is_some() || wakes(900) == 1, "nobody hears that the flush is over");
}

#[test]
fn device() {
    let dir = tempfile::tempdir().unwrap();
    let path = device_file(dir.path(), 16 << 20);
    pools::format(&path, "p", true).unwrap();
    conforms(Device::open(&path, "p", 0, Options::default()).unwrap(), 5);
}

#[test]
fn wrappers_change_nothing_but_what_they_are_for() {
    let faults = Faults { reorder: Duration::from_millis(3), seed: 9, ..Faults::default() };
    conforms(Faulty::new(faults, Memory::new(64 << 20).unwrap()), 6);
    let dir = tempfile::tempdir().unwrap();
    conforms(
        Volatile::new(7, Directory::open(dir.path(), "p", 64 << 20, Options::default()).unwrap()).unwrap(),
        7,
    );
    conforms(Traced::new(Box::new(std::io::sink()), Memory::new(64 << 20).unwrap()).unwrap(), 8);
    conforms(Emulated::new(Box::new(Steady::new(64 << 20)), Memory::new(64 << 20).unwrap()), 9);
}

#[test]
fn directory_keeps_its_data_and_is_one_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Directory::open(dir.path(), "p", 64 << 20, Options::default());
    let mut d = Driver::new(open().unwrap());
    let base = d.store.open_part("web", PART).unwrap();
    d.write(base + BLOCK, BLOCK, 7).unwrap();
    assert!(open().is_err_and(|e| e.to_string().contains("another node")));
    drop(d);
    let mut d = Driver::new(open().unwrap());
    d.store.open_part("other", PART).unwrap();
    let base = d.store.open_part("web", 2 * PART).unwrap();
    assert_eq!(d.read(base + BLOCK, BLOCK), [7; 4096]);
    assert!(d.read(base + PART, PART).iter().all(|b| *b == 0), "what it grew by is zero");
    d.write(base + PART, BLOCK, 8).unwrap();
    drop(d);
    assert!(open().unwrap().open_part("web", PART).is_err_and(|e| e.to_string().contains("not shrunk")));
    assert!(open().unwrap().open_part("../web", PART).is_err());
}

#[test]
fn device_keeps_its_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = device_file(dir.path(), 16 << 20);
    pools::format(&path, "p", true).unwrap();
    let open = || Device::open(&path, "p", 0, Options::default());
    let mut d = Driver::new(open().unwrap());
    let a = d.store.open_part("a", PART).unwrap();
    let b = d.store.open_part("b", PART + 5 * BLOCK).unwrap();
    d.write(b + PART, BLOCK, 9).unwrap();
    drop(d);
    let mut d = Driver::new(open().unwrap());
    assert_eq!(
        (d.store.open_part("b", PART + 5 * BLOCK).unwrap(), d.store.open_part("a", PART).unwrap()),
        (b, a)
    );
    assert_eq!(d.read(b + PART, BLOCK), [9; 4096]);
    assert!(d.store.open_part("a", 2 * PART).is_err(), "its neighbour is in the way");
    d.store.open_part("b", 2 * PART).unwrap();
    assert!(
        d.read(b + PART + 5 * BLOCK, PART - 5 * BLOCK).iter().all(|x| *x == 0),
        "what it grew by is zero"
    );
    assert_eq!(d.read(b + PART, BLOCK), [9; 4096], "what it had is as it was");
    assert!(d.store.open_part("b", PART).is_err_and(|e| e.to_string().contains("not shrunk")));
    drop(d);
    // The growth was never acknowledged: the disk is as long as it was, or as long as it was to be.
    for len in [PART + 5 * BLOCK, 2 * PART] {
        open().unwrap().open_part("b", len).unwrap();
    }
    assert!(open().unwrap().open_part("b", PART).is_err_and(|e| e.to_string().contains("not shrunk")));
}

#[test]
fn power_cut_forgets_what_was_not_flushed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 1..20 {
        let store = Directory::open(dir.path(), "p", 64 << 20, Options::default()).unwrap();
        let mut d = Driver::new(Volatile::new(seed, store).unwrap());
        let base = d.store.open_part("p", PART).unwrap();
        d.write(base, 64 * BLOCK, 1).unwrap();
        d.run(Op::Flush, base, 0, Buffer::empty()).unwrap();
        d.write(base, 32 * BLOCK, 2).unwrap();
        let mut data = Buffer::zeroed(4096);
        data.fill(3);
        d.submit(Op::Write, true, base + 40 * BLOCK, BLOCK, data);
        assert_eq!(d.wait().outcome, Ok(()));
        assert!(d.store.dirty() > 0);
        assert_eq!(d.read(base, BLOCK), [2; 4096], "the cache is what is read");
        drop(d); // the power cut
        let mut d = Driver::new(Directory::open(dir.path(), "p", 64 << 20, Options::default()).unwrap());
        let base = d.store.open_part("p", PART).unwrap();
        for (i, sector) in d.read(base, 64 * BLOCK).chunks(512).enumerate() {
            let block = i / 8;
            assert!(sector.iter().all(|b| *b == sector[0]), "seed {seed}: sector {i} is torn");
            match block {
                0..32 => assert!(sector[0] == 1 || sector[0] == 2, "seed {seed}: sector {i}"),
                40 => assert_eq!(sector[0], 3, "seed {seed}: FUA is durable"),
                _ => assert_eq!(sector[0], 1, "seed {seed}: what was flushed is durable"),
            }
        }
        d.store.remove_part("p").unwrap();
    }
}

#[test]
fn faults_come_as_often_as_asked() {
    let faults = Faults { errors: 100_000, seed: 3, ..Faults::default() };
    let mut d = Driver::new(Faulty::new(faults, Memory::new(8 << 20).unwrap()));
    let base = d.store.open_part("p", PART).unwrap();
    let failed = (0..10_000).filter(|_| d.write(base, BLOCK, 1).is_err()).count();
    // Ten standard deviations of the binomial distribution: 10 · √(10000 · 0.1 · 0.9) = 300.
    assert!((700..=1300).contains(&failed), "{failed} of 10000 at 10%");
}

/// A model that takes 5 ms for each request, one after another.
struct Steady {
    capacity: u64,
    busy_until: Instant,
    queue: VecDeque<(RequestId, Instant)>,
}

impl Steady {
    fn new(capacity: u64) -> Self {
        Steady { capacity, busy_until: Instant::ZERO, queue: VecDeque::new() }
    }
}

impl Backend for Steady {
    type Payload = ();
    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        self.busy_until = self.busy_until.max(now) + Duration::from_millis(5);
        self.queue.push_back((request.id, self.busy_until));
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        let (id, _) = self.queue.pop_front_if(|(_, at)| *at <= now)?;
        Some(Done { id, outcome: Ok(()), busy: Some(Duration::from_millis(5)), payload: () })
    }
    fn wake_at(&self) -> Option<Instant> {
        self.queue.front().map(|(_, at)| *at)
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
}

#[test]
fn an_emulated_disk_takes_the_models_time_and_measures_its_lateness() {
    let model: Model = Box::new(Steady::new(64 << 20));
    let mut store = Emulated::new(model, Memory::new(64 << 20).unwrap());
    let base = store.open_part("p", PART).unwrap();
    let id = |slot| RequestId { slot, generation: 0 };
    for slot in 0..2 {
        let request = Request::new(id(slot), FlowId(0), Op::Read, base, BLOCK, Instant::ZERO);
        store.submit(&request, Buffer::zeroed(4096), Instant::ZERO);
    }
    let at = |us| Instant::ZERO + Duration::from_micros(us);
    assert!(store.reap(at(0)).is_none(), "the store is done, the model is not");
    assert_eq!(store.wake_at(), Some(at(5_000)));
    assert!(store.reap(at(4_999)).is_none());
    let done = store.reap(at(5_300)).unwrap();
    assert_eq!((done.id, done.busy), (id(0), Some(Duration::from_millis(5))));
    // The second one's time is the model's, not counted from the late moment.
    assert_eq!(store.wake_at(), Some(at(10_000)));
    assert_eq!(store.reap(at(10_000)).unwrap().id, id(1));
    let lateness = store.lateness().unwrap();
    assert_eq!((lateness.count(), lateness.max()), (2, Some(Duration::from_micros(300))));
}
