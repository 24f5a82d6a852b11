//! Storage that is forgotten at the end: for tests, demos and scratch disks.
//!
//! One private mapping of the whole capacity; the kernel gives pages when they are first written, and takes them
//! back when they are trimmed. Untouched memory reads as zeroes, so a fresh disk does. Other threads may read it by themselves ([`SharedMemory`]).

#![allow(unsafe_code)] // a mapping, because a Vec would touch all of its pages to read as zeroes

use crate::pages::{PAGE, Pages};
use crate::shared_memory::{self, SharedMemory};
use crate::space::{Space, check_name};
use crate::{Buffer, Step, Store};
use henge_core::{Backend, Done, Fault, Instant, Op, Request, RequestId};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Most that is copied when a result is asked for; of a longer request the rest is copied when it is asked for again.
const COPIED_MAX: u64 = SharedMemory::LEN_MAX;
/// Most that is zeroed then. Giving pages back takes a fifth as long as copying them.
const ZEROED_MAX: u64 = 512 << 10;

/// Most that another thread gives back to the kernel at once: whoever changes the process's mappings waits for it.
const HOLE_MAX: usize = 2 << 20;

/// A private anonymous mapping.
pub(crate) struct Map {
    pages: Arc<Pages>,
    len: usize,
    /// What other threads have of it.
    shared: Option<SharedMemory>,
}

/// Whole pages that nobody uses any more: given back by a thread that may take its time.
struct Hole {
    pages: Arc<Pages>,
    first: usize,
    last: usize,
}

impl Hole {
    fn give_back(self) -> io::Result<()> {
        for first in (self.first..self.last).step_by(HOLE_MAX) {
            // SAFETY: the part that has them is going: no request reaches them until that is over.
            unsafe { self.pages.give_back(first, self.last.min(first + HOLE_MAX))? };
        }
        Ok(())
    }
}

impl Map {
    pub(crate) fn new(len: u64) -> io::Result<Map> {
        let pages = Arc::new(Pages::map(len)?);
        Ok(Map { len: pages.len(), pages, shared: None })
    }
    pub(crate) fn slice(&mut self) -> &mut [u8] {
        assert!(self.shared.is_none(), "other threads read it");
        // SAFETY: the whole mapping is readable and writable, initialized to zero by the kernel, and only
        // reachable through this `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.pages.at().as_ptr(), self.len) }
    }
    /// Makes a range read as zeroes; whole pages go back to the kernel.
    pub(crate) fn zero(&mut self, from: usize, len: usize) {
        let (first, last) = (from.next_multiple_of(PAGE), (from + len) / PAGE * PAGE);
        if first >= last {
            return self.blank(from, from + len);
        }
        self.blank(from, first);
        self.blank(last, from + len);
        let pages = &self.pages;
        // SAFETY: whole pages inside our own mapping, to whose bytes nobody has a reference now.
        let give_back = || unsafe { pages.give_back(first, last) };
        let given = match &self.shared {
            Some(shared) => shared.change(first, last - first, |_| give_back()),
            None => give_back(),
        };
        if given.is_err() {
            self.blank(first, last);
        }
    }
    /// Makes bytes zeroes where they are.
    fn blank(&mut self, from: usize, to: usize) {
        match self.shared.is_some() {
            true => (from..to).step_by(PAGE).for_each(|at| self.write(at, &[0; PAGE][..PAGE.min(to - at)])),
            false => self.slice()[from..to].fill(0),
        }
    }
    fn read(&mut self, from: usize, to: &mut [u8]) {
        match &self.shared {
            Some(shared) => shared_memory::read(shared.words(), from, to),
            None => to.copy_from_slice(&self.slice()[from..from + to.len()]),
        }
    }
    fn write(&mut self, from: usize, bytes: &[u8]) {
        match &self.shared {
            Some(shared) => {
                shared.change(from, bytes.len(), |words| shared_memory::write(words, from, bytes))
            }
            None => self.slice()[from..from + bytes.len()].copy_from_slice(bytes),
        }
    }
    /// A part of it is about to go.
    fn part_goes(&self) {
        if let Some(shared) = &self.shared {
            shared.part_goes();
        }
    }
}

/// A store in memory. Requests are served one by one as they are asked for, so that whoever asks decides how much is copied at once.
pub struct Memory {
    map: Map,
    space: Space,
    /// One bit for each page that was written since it was last given back.
    written: Vec<u64>,
    waiting: VecDeque<(Request, Buffer)>,
    /// How much of the first is done, and the last piece of it that nobody was told of yet.
    served: u64,
    copied: Option<(RequestId, u64)>,
    /// A part whose pages another thread gives back.
    going: Option<String>,
}

impl Memory {
    /// `capacity` bytes of zeroes.
    pub fn new(capacity: u64) -> io::Result<Self> {
        let map = Map::new(capacity)?;
        let written = vec![0; (map.len / PAGE).div_ceil(64)];
        let (space, waiting) = (Space::new(capacity), VecDeque::new());
        Ok(Memory { map, space, written, waiting, served: 0, copied: None, going: None })
    }

    fn zero(&mut self, from: usize, len: usize) {
        self.map.zero(from, len);
        let (first, end) = (from.div_ceil(PAGE), (from + len) / PAGE);
        mark(&mut self.written, first, end, false);
    }

    /// A piece of the request, from byte `done` of it on: how many are done then.
    fn serve(&mut self, request: &Request, data: &mut [u8], done: u64) -> Result<u64, Fault> {
        if request.op == Op::Flush {
            return Ok(request.len);
        }
        if request.offset.checked_add(request.len).is_none_or(|end| end > self.space.capacity()) {
            return Err(Fault::OutOfRange);
        }
        let most = if matches!(request.op, Op::Read | Op::Write) { COPIED_MAX } else { ZEROED_MAX };
        let from = request.offset + done;
        // Pieces end where pages do, or none of two pieces' halves of a page would be given back.
        let len = (most - from % most).min(request.len - done) as usize;
        let (from, at) = (from as usize, done as usize);
        match request.op {
            // Whoever asks without a buffer shares the memory, and reads by itself when it hears that it may.
            Op::Read if data.is_empty() => return Ok(request.len),
            Op::Read => self.map.read(from, &mut data[at..at + len]),
            Op::Write => {
                self.map.write(from, &data[at..at + len]);
                mark(&mut self.written, from / PAGE, (from + len).div_ceil(PAGE), true);
            }
            Op::Trim | Op::WriteZeroes => self.zero(from, len),
            Op::Flush => {}
        }
        Ok(done + len as u64)
    }
}

/// Sets or clears the bits of the pages `first..end`.
fn mark(bits: &mut [u64], first: usize, end: usize, value: bool) {
    let mut page = first;
    while page < end {
        let (word, bit) = (page / 64, page % 64);
        let count = (64 - bit).min(end - page);
        let mask = (u64::MAX >> (64 - count)) << bit;
        if value {
            bits[word] |= mask;
        } else {
            bits[word] &= !mask;
        }
        page += count;
    }
}

impl Backend for Memory {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, _now: Instant) {
        self.waiting.push_back((*request, payload));
    }
    fn reap(&mut self, _now: Instant) -> Option<Done<Buffer>> {
        let (request, mut payload) = self.waiting.pop_front()?;
        match self.serve(&request, &mut payload, self.served) {
            Ok(served) if served < request.len => {
                self.copied = Some((request.id, served - self.served));
                self.served = served;
                self.waiting.push_front((request, payload));
                None
            }
            outcome => {
                self.served = 0;
                Some(Done { id: request.id, outcome: outcome.map(drop), busy: None, payload })
            }
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        if self.waiting.is_empty() { None } else { Some(Instant::ZERO) }
    }
    fn capacity(&self) -> u64 {
        self.space.capacity()
    }
}

impl Store for Memory {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        check_name(name)?;
        match self.space.find(name) {
            Some(part) if part.len < len => self.space.grow(name, len)?,
            Some(_) => {}
            None => drop(self.space.allocate(name, len)?),
        }
        Ok(self.space.find(name).expect("the part was just made").base)
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.space.could_grow(name, len)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        if let Some(part) = self.space.find(name).cloned() {
            self.map.part_goes();
            self.zero(part.base as usize, part.len as usize);
            self.space.free(name);
        }
        Ok(())
    }
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        let Some(part) = self.space.find(name) else { return Ok(Step::There(0)) };
        let (from, to) = (part.base as usize, (part.base + part.len) as usize);
        self.map.part_goes();
        let hole = Hole { pages: Arc::clone(&self.map.pages), first: from, last: to / PAGE * PAGE };
        self.going = Some(name.to_owned());
        Ok(Step::Run(Box::new(move || hole.give_back().map(|()| None))))
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        let going = self.going.take().filter(|going| going == name);
        outcome?;
        let part = going.and_then(|going| self.space.find(&going).cloned());
        let part = part.ok_or_else(|| io::Error::other(format!("nothing is under way with \"{name}\"")))?;
        let (from, to) = (part.base as usize, (part.base + part.len) as usize);
        // The end of a part that does not end at a page.
        self.map.blank(to / PAGE * PAGE, to);
        mark(&mut self.written, from / PAGE, to.div_ceil(PAGE), false);
        self.space.free(name);
        Ok(Step::There(0))
    }
    fn has_part(&self, name: &str) -> bool {
        self.space.find(name).is_some()
    }
    fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        let (from, to) = (offset as usize, (offset + len) as usize);
        let first = from / PAGE;
        let is_written = |page: usize| self.written[page / 64] >> (page % 64) & 1 != 0;
        let here = is_written(first);
        let all_alike = if here { u64::MAX } else { 0 };
        let mut page = first + 1;
        while page * PAGE < to {
            if page.is_multiple_of(64) && self.written[page / 64] == all_alike {
                page += 64;
            } else if is_written(page) == here {
                page += 1;
            } else {
                break;
            }
        }
        (len.min((page * PAGE - from) as u64), here)
    }
    fn copied(&mut self) -> Option<(RequestId, u64)> {
        self.copied.take()
    }
    fn share(&mut self) -> Option<SharedMemory> {
        let Map { pages, shared, .. } = &mut self.map;
        Some(shared.get_or_insert_with(|| SharedMemory::new(pages)).clone())
    }
    fn describe(&self) -> String {
        "memory, forgotten when the node ends".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::FlowId;

    fn run(store: &mut Memory, op: Op, offset: u64, len: u64) {
        let request = Request::new(RequestId::default(), FlowId(0), op, offset, len, Instant::ZERO);
        store.submit(&request, Buffer::zeroed(if op == Op::Write { len as usize } else { 0 }), Instant::ZERO);
        assert!(over(store).1.outcome.is_ok());
    }

    /// What is over next, after how many bytes that were told of before.
    fn over(store: &mut Memory) -> (u64, Done<Buffer>) {
        let mut told = 0;
        loop {
            if let Some(done) = store.reap(Instant::ZERO) {
                return (told, done);
            }
            assert_eq!(store.wake_at(), Some(Instant::ZERO), "there is more");
            told += store.copied().expect("something was copied").1;
        }
    }

    #[test]
    fn a_long_request_is_served_in_pieces_and_none_comes_in_between() {
        let mut store = Memory::new(1 << 20).expect("a mapping of 1 MiB");
        let whole = 3 * COPIED_MAX;
        let mut data = Buffer::zeroed(whole as usize);
        data.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
        let want = data.to_vec();
        let at = COPIED_MAX - 10;
        let request = |op, len| Request::new(RequestId::default(), FlowId(0), op, at, len, Instant::ZERO);
        store.submit(&request(Op::Write, whole), data, Instant::ZERO);
        store.submit(&request(Op::Read, whole), Buffer::zeroed(whole as usize), Instant::ZERO);
        store.submit(&request(Op::Read, 10), Buffer::zeroed(10), Instant::ZERO);
        // The first piece ends at a multiple of the longest, and the last needs not be told of.
        assert_eq!(over(&mut store).0, 10 + 2 * COPIED_MAX);
        let (told, read) = over(&mut store);
        assert_eq!(told, 10 + 2 * COPIED_MAX);
        assert!(read.payload[..] == want[..], "what was written is read");
        let (told, read) = over(&mut store);
        assert_eq!((told, &read.payload[..]), (0, &want[..10]));
        assert_eq!(store.wake_at(), None);
    }

    #[test]
    fn pages_that_were_written_take_room_until_they_are_given_back() {
        let mut store = Memory::new(1 << 20).expect("a mapping of 1 MiB");
        assert_eq!(store.extent(0, 1 << 20), (1 << 20, false));
        run(&mut store, Op::Write, 8192 + 512, 512);
        assert_eq!(store.extent(0, 1 << 20), (8192, false));
        assert_eq!(store.extent(8192, 1 << 19), (4096, true));
        run(&mut store, Op::Write, 0, 1 << 20);
        assert_eq!(store.extent(512, 1 << 19), (1 << 19, true));
        run(&mut store, Op::Trim, 4096 + 512, 8192); // one whole page, and parts of two
        assert_eq!(store.extent(0, 1 << 20), (8192, true));
        assert_eq!(store.extent(8192, 1 << 19), (4096, false));
        run(&mut store, Op::WriteZeroes, 0, 1 << 20);
        assert_eq!(store.extent(0, 1 << 20), (1 << 20, false));
    }

    #[test]
    fn who_has_had_its_turn_reads_by_itself_unless_something_was_changed_since() {
        let mut store = Memory::new(1 << 20).expect("a mapping of 1 MiB");
        let base = store.open_part("a", 1 << 19).unwrap();
        run(&mut store, Op::Write, 0, 4096);
        let shared = store.share().expect("memory is shared");
        let mut data = Buffer::zeroed(70_000);
        data.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
        let want = data.to_vec();
        let request = |op| Request::new(RequestId::default(), FlowId(0), op, 60_001, 70_000, Instant::ZERO);
        store.submit(&request(Op::Write), data, Instant::ZERO);
        assert!(over(&mut store).1.outcome.is_ok());
        let generation = shared.generation();
        store.submit(&request(Op::Read), Buffer::empty(), Instant::ZERO);
        assert!(over(&mut store).1.outcome.is_ok(), "its turn comes, and nothing is copied");
        let read = |at: u64, len| {
            let mut got = vec![9; len];
            shared.read(generation, at, &mut got).then_some(got)
        };
        assert_eq!(
            std::thread::scope(|scope| scope.spawn(|| read(60_001, 70_000)).join().unwrap()),
            Some(want)
        );
        store.submit(&request(Op::Read), Buffer::zeroed(70_000), Instant::ZERO);
        assert_eq!(
            Some(over(&mut store).1.payload.to_vec()),
            read(60_001, 70_000),
            "the store reads it, too"
        );
        // While something is written there, nobody reads it, and afterwards it is all there.
        let stripes = [(0, 60_000), (65_536, 5), (131_071, 1), (60_001, 70_000), (131_072, 10)];
        shared.change(65_536, 65_536, |_| {
            assert_eq!(stripes.map(|(at, len)| read(at, len).is_some()), [true, false, false, false, true]);
        });
        run(&mut store, Op::Trim, 65_536, 4096);
        let trimmed = read(65_530, 10).unwrap();
        assert!(trimmed[..6].iter().all(|byte| *byte > 0) && trimmed[6..] == [0; 4]);
        assert!(read(1 << 20, 1).is_none() && read(u64::MAX, 1).is_none());
        // A part goes: whoever asked before reads nothing any more, whose bytes these may be.
        let Ok(Step::Run(chore)) = store.begin_removal("a") else { panic!("a thread is to do it") };
        assert!(read(base, 1).is_none() && shared.read(shared.generation(), base, &mut [0]));
        assert!(store.go_on("a", chore()).is_ok());
    }

    /// To give the pages of a large part back takes as long as writing some of them. Whoever serves others does it elsewhere.
    #[test]
    fn a_removed_part_is_given_back_by_a_thread_and_nobody_gets_its_place_before() {
        let mut store = Memory::new(8 << 20).expect("a mapping of 8 MiB");
        let base = store.open_part("a", 5 << 20).unwrap();
        run(&mut store, Op::Write, base, 5 << 20);
        store.map.slice()[..5 << 20].fill(7);
        let Ok(Step::Run(fails)) = store.begin_removal("a") else { panic!("a thread is to do it") };
        drop(fails);
        assert!(store.go_on("a", Err(io::Error::other("it fails"))).is_err() && store.has_part("a"));
        let Ok(Step::Run(chore)) = store.begin_removal("a") else { panic!("a thread is to do it") };
        assert!(store.open_part("b", 5 << 20).is_err(), "its place is taken");
        let outcome = std::thread::spawn(chore).join().unwrap();
        assert!(matches!(store.go_on("a", outcome), Ok(Step::There(_))) && !store.has_part("a"));
        assert_eq!(store.open_part("b", 5 << 20).unwrap(), base);
        assert_eq!(store.extent(base, 5 << 20), (5 << 20, false));
        assert!(store.map.slice()[..5 << 20].iter().all(|byte| *byte == 0));
        assert!(
            matches!(store.begin_removal("a"), Ok(Step::There(_))) && store.go_on("a", Ok(None)).is_err()
        );
    }
}
