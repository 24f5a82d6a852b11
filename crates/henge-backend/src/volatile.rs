//! A write cache that is forgotten when the power goes: what a disk does to clients that do not flush.
//!
//! Writes are answered as soon as they are in the cache. They reach the store when a FLUSH or a FUA write asks for
//! it, or, sector by sector and in any order, when chance has it. Kill the process, and everything else is gone:
//! that is the power cut. Sectors are written as wholes, as disks do: of 512 bytes, or of a block of the store.

use crate::memory::Map;
use crate::{Buffer, Store, Watch};
use henge_core::{Backend, Done, Fault, FlowId, Histogram, Instant, Op, Pending, Request, RequestId};
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::RawFd;

const SECTOR_LEAST: u64 = 512;
/// Longest write to the store.
const RUN_MAX: u64 = 1 << 20;

/// Sectors on their way to the store; one at a time, so that no old content overtakes a new one.
struct Cleaning {
    /// Who is told at the end; nobody, when chance began it.
    asked_by: Option<Request>,
    payload: Buffer,
    from: u64,
    to: u64,
    flush: bool,
}

/// A store behind a volatile write cache.
pub struct Volatile<S> {
    store: S,
    cache: Map,
    /// Bytes that are written as a whole.
    sector: u64,
    /// Numbers of the sectors that the store does not have yet.
    dirty: BTreeSet<u64>,
    parts: Vec<(String, u64, u64)>,
    queue: VecDeque<Cleaning>,
    current: Option<Cleaning>,
    /// The present cleaning's requests at the store.
    under_way: Pending<()>,
    outcome: Result<(), Fault>,
    done: VecDeque<Done<Buffer>>,
    random: u64,
}

impl<S: Store> Volatile<S> {
    /// A cache in front of `store`; `seed` decides which unflushed sectors survive.
    pub fn new(seed: u64, store: S) -> io::Result<Self> {
        Ok(Volatile {
            cache: Map::new(store.capacity())?,
            sector: store.block().max(SECTOR_LEAST),
            store,
            dirty: BTreeSet::new(),
            parts: Vec::new(),
            queue: VecDeque::new(),
            current: None,
            under_way: Pending::new(),
            outcome: Ok(()),
            done: VecDeque::new(),
            random: seed | 1,
        })
    }

    /// Sectors that would be forgotten now.
    pub fn dirty(&self) -> usize {
        self.dirty.len()
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % of
    }

    /// The part around an address.
    fn part(&self, offset: u64) -> Option<(u64, u64)> {
        let part = self.parts.iter().find(|(_, base, len)| offset >= *base && offset - base < *len)?;
        Some((part.1, part.1 + part.2.next_multiple_of(self.sector)))
    }

    fn change(&mut self, request: &Request, payload: &Buffer) {
        let (from, len) = (request.offset as usize, request.len as usize);
        match request.op {
            Op::Write => self.cache.slice()[from..from + len].copy_from_slice(payload),
            _ => self.cache.zero(from, len),
        }
        self.dirty.extend(request.offset / self.sector..request.end().div_ceil(self.sector));
        // Now and then one sector of it goes to the store by itself.
        if self.chance(4) == 0 && self.queue.len() < 16 {
            let sectors = request.len.div_ceil(self.sector).max(1);
            let from = request.offset / self.sector * self.sector + self.chance(sectors) * self.sector;
            let payload = Buffer::empty();
            let cleaning = Cleaning { asked_by: None, payload, from, to: from + self.sector, flush: false };
            self.queue.push_back(cleaning);
        }
    }

    /// Starts the next cleaning, if none is going on.
    fn clean(&mut self, now: Instant) {
        while self.current.is_none() {
            let Some(cleaning) = self.queue.pop_front() else { return };
            self.outcome = Ok(());
            let (mut at, last) = (cleaning.from / self.sector, cleaning.to.div_ceil(self.sector));
            while let Some(first) = self.dirty.range(at..last).next().copied() {
                let mut end = first;
                while end < last && (end - first) * self.sector < RUN_MAX && self.dirty.remove(&end) {
                    end += 1;
                }
                self.write(first * self.sector, (end - first) * self.sector, now);
                at = end;
            }
            self.current = Some(cleaning);
            self.settle(now);
        }
    }

    fn write(&mut self, offset: u64, len: u64, now: Instant) {
        let id = self.under_way.insert(());
        let mut data = Buffer::zeroed(len as usize);
        data.copy_from_slice(&self.cache.slice()[offset as usize..(offset + len) as usize]);
        let request = Request::new(id, FlowId(0), Op::Write, offset, len, now);
        self.store.submit(&request, data, now);
    }

    /// With all sectors written: the flush; with that: the answer.
    fn settle(&mut self, now: Instant) {
        if !self.under_way.is_empty() {
            return;
        }
        let Some(mut cleaning) = self.current.take() else { return };
        if std::mem::take(&mut cleaning.flush) && self.outcome.is_ok() {
            let id = self.under_way.insert(());
            let request = Request::new(id, FlowId(0), Op::Flush, cleaning.from, 0, now);
            self.store.submit(&request, Buffer::empty(), now);
            self.current = Some(cleaning);
        } else if let Some(request) = cleaning.asked_by {
            let (outcome, payload) = (self.outcome, cleaning.payload);
            self.done.push_back(Done { id: request.id, outcome, busy: None, payload });
        }
    }

    /// Waits for one request, as the start may.
    fn wait_for(&mut self, id: RequestId) -> Done<Buffer> {
        let begun = std::time::Instant::now();
        loop {
            let now = Instant::from_nanos(begun.elapsed().as_nanos() as u64);
            // Nobody waits for its descriptor here.
            self.store.signalled();
            match self.store.reap(now) {
                Some(done) if done.id == id => return done,
                Some(done) => self.over(done.id, done.outcome, now),
                None => std::thread::sleep(std::time::Duration::from_micros(50)),
            }
        }
    }

    fn over(&mut self, id: RequestId, outcome: Result<(), Fault>, now: Instant) {
        self.under_way.remove(id).expect("the store returns what it was given");
        self.outcome = self.outcome.and(outcome);
        self.settle(now);
    }
}

impl<S: Store> Backend for Volatile<S> {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, mut payload: Buffer, now: Instant) {
        let part = self.part(request.offset).filter(|(_, end)| request.end() <= *end);
        let Some((base, end)) = part else {
            let (id, outcome) = (request.id, Err(Fault::OutOfRange));
            return self.done.push_back(Done { id, outcome, busy: None, payload });
        };
        let (mut from, mut to) = (request.offset, request.end());
        match request.op {
            Op::Read => payload.copy_from_slice(&self.cache.slice()[from as usize..to as usize]),
            Op::Flush => (from, to) = (base, end),
            _ => self.change(request, &payload),
        }
        if request.op == Op::Flush || (request.fua && request.op != Op::Read) {
            let asked_by = Some(*request);
            self.queue.push_back(Cleaning { asked_by, payload, from, to, flush: true });
        } else {
            self.done.push_back(Done { id: request.id, outcome: Ok(()), busy: None, payload });
        }
        self.clean(now);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        while let Some(Done { id, outcome, .. }) = self.store.reap(now) {
            self.over(id, outcome, now);
            self.clean(now);
        }
        self.done.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        if self.done.is_empty() { self.store.wake_at() } else { Some(Instant::ZERO) }
    }
    fn capacity(&self) -> u64 {
        self.store.capacity()
    }
    fn quantum(&self) -> u64 {
        self.store.quantum()
    }
}

impl<S: Store> Store for Volatile<S> {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        let base = self.store.open_part(name, len)?;
        self.parts.retain(|(part, ..)| part != name);
        self.parts.push((name.to_owned(), base, len));
        // What the store has is what is read until something is written.
        let mut at = base;
        while at < base + len {
            let step = RUN_MAX.min(base + len - at);
            let id = self.under_way.insert(());
            let request = Request::new(id, FlowId(0), Op::Read, at, step, Instant::ZERO);
            self.store.submit(&request, Buffer::zeroed(step as usize), Instant::ZERO);
            let done = self.wait_for(id);
            self.under_way.remove(done.id).expect("the store returns what it was given");
            done.outcome.map_err(io::Error::other)?;
            self.cache.slice()[at as usize..(at + step) as usize].copy_from_slice(&done.payload);
            at += step;
        }
        Ok(base)
    }
    fn could_grow(&self, name: &str, _len: u64) -> io::Result<()> {
        Err(io::Error::other(format!("\"{name}\" does not grow behind a volatile cache, which is for tests")))
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        if let Some(i) = self.parts.iter().position(|(part, ..)| part == name) {
            let (_, base, len) = self.parts.remove(i);
            let gone: Vec<u64> =
                self.dirty.range(base / self.sector..(base + len).div_ceil(self.sector)).copied().collect();
            for sector in gone {
                self.dirty.remove(&sector);
            }
            self.cache.zero(base as usize, len as usize);
        }
        self.store.remove_part(name)
    }
    fn has_part(&self, name: &str) -> bool {
        self.store.has_part(name)
    }
    fn part_len(&self, name: &str) -> Option<u64> {
        self.store.part_len(name)
    }
    fn is_new(&self, name: &str) -> bool {
        self.store.is_new(name)
    }
    fn forget_part(&mut self, name: &str) {
        self.store.forget_part(name);
    }
    fn adopt_part(&mut self, name: &str) -> io::Result<()> {
        self.store.adopt_part(name)
    }
    fn expect_part(&mut self, name: &str) {
        self.store.expect_part(name);
    }
    fn settle(&mut self, is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        self.store.settle(is_spared)
    }
    fn notice(&mut self) -> Option<String> {
        self.store.notice()
    }
    fn block(&self) -> u64 {
        self.store.block()
    }
    fn event_fd(&self) -> Option<RawFd> {
        self.store.event_fd()
    }
    fn signalled(&mut self) {
        self.store.signalled();
    }
    fn be_watched(&mut self, watch: &Watch) -> io::Result<()> {
        self.store.be_watched(watch)
    }
    fn happened(&mut self, name: u32, flags: EventFlags) {
        self.store.happened(name, flags);
    }
    fn opens_elsewhere(&self) -> bool {
        self.store.opens_elsewhere()
    }
    fn describe(&self) -> String {
        format!("volatile write cache in front of {}", self.store.describe())
    }
    fn lateness(&self) -> Option<&Histogram> {
        self.store.lateness()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    /// As storage behind a network, of large blocks: it looks for answers only where its descriptor has told of some.
    struct Far {
        memory: Memory,
        signalled: bool,
        looks: u32,
    }

    impl Backend for Far {
        type Payload = Buffer;
        fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
            assert!((request.offset | request.len).is_multiple_of(4096), "no whole blocks: {request:?}");
            self.memory.submit(request, payload, now);
        }
        fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
            self.looks += 1;
            assert!(self.looks < 1000, "nobody says that its descriptor has told of something");
            std::mem::take(&mut self.signalled).then(|| self.memory.reap(now))?
        }
        fn wake_at(&self) -> Option<Instant> {
            None
        }
        fn capacity(&self) -> u64 {
            self.memory.capacity()
        }
    }

    impl Store for Far {
        fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
            self.memory.open_part(name, len)
        }
        fn remove_part(&mut self, name: &str) -> io::Result<()> {
            self.memory.remove_part(name)
        }
        fn has_part(&self, name: &str) -> bool {
            self.memory.has_part(name)
        }
        fn block(&self) -> u64 {
            4096
        }
        fn signalled(&mut self) {
            (self.signalled, self.looks) = (true, 0);
        }
        fn describe(&self) -> String {
            "far away".into()
        }
    }

    #[test]
    fn storage_that_signals_is_rehearsed_too() {
        let memory = Memory::new(1 << 20).expect("a mapping of 1 MiB");
        let mut cache = Volatile::new(1, Far { memory, signalled: false, looks: 0 }).expect("another one");
        let at = cache.open_part("p", 128 << 10).expect("there is room");
        let id = RequestId::default();
        for n in 0..32 {
            let write = Request::new(id, FlowId(0), Op::Write, at + n * 4096, 4096, Instant::ZERO);
            cache.submit(&write, Buffer::zeroed(4096), Instant::ZERO);
            assert!(cache.reap(Instant::ZERO).is_some_and(|done| done.outcome.is_ok()));
        }
        cache.submit(
            &Request::new(id, FlowId(0), Op::Flush, at, 0, Instant::ZERO),
            Buffer::empty(),
            Instant::ZERO,
        );
        let over = (0..100).find_map(|_| {
            cache.signalled();
            cache.reap(Instant::ZERO)
        });
        assert_eq!(over.map(|done| done.outcome), Some(Ok(())));
    }
}
