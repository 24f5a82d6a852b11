//! A flash drive: dies on channels behind a write buffer, page mapping, greedy collection.
//!
//! The problem: flash is written page by page and erased block by block, so that rewriting costs moving what is
//! still valid. How much depends on the spare capacity and on what the host wrote before: the drive's speed has a
//! memory. The rules:
//!
//! - *Write*: over the host link into the buffer (waiting for room), answered then. Units fill the open page of one
//!   die after the other; a full page goes over the channel and is programmed; then its room is free again.
//! - *Collection*: per die, the full block with the fewest valid units, paced.
//! - *Read*: each page on its die, then the channel, then the host link. What was never written or was trimmed
//!   comes from nowhere and costs the command alone; so does what is still in an open page.
//! - *Trim* makes units old at once. *Flush* programs open pages, unless the buffer is protected.
//!
//! Example: 4 KiB units, 32 KiB pages, 46.8 MB/s a die, 32 dies: 1.5 GB/s of programming. With 7 % spare capacity
//! uniform random writes move 6.5 units for each of the host's, so that 0.2 GB/s, 49 000 a second, are left, less
//! what reading and erasing take: the write cliff.
//!
//! Guarantee: a unit is in one place; writes / host's writes settles at the analytic value of greedy collection
//! (Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012), within 5 % in the tests.
//! Price: about 0.1 us a unit written.

use super::die::{Die, PageWrite};
use super::facts::SsdFacts;
use super::map::Map;
use crate::completions::Completions;
use henge_core::{Backend, Cost, Done, Duration, Fault, Instant, Op, Rate, Request, RequestId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What the flash has done so far, in units and blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlashCounts {
    /// Units that the host wrote.
    pub written: u64,
    /// Units that collection moved.
    pub moved: u64,
    /// Blocks erased.
    pub erased: u64,
}

impl FlashCounts {
    /// Units programmed for each that the host wrote.
    pub fn amplification(&self) -> f64 {
        (self.written + self.moved) as f64 / self.written.max(1) as f64
    }
    /// What was done since `before`.
    pub fn since(&self, before: FlashCounts) -> FlashCounts {
        FlashCounts {
            written: self.written - before.written,
            moved: self.moved - before.moved,
            erased: self.erased - before.erased,
        }
    }
}

/// A write that is not all in the buffer yet.
#[derive(Clone, Copy)]
struct Incoming {
    id: RequestId,
    next: u64,
    end: u64,
    since: Instant,
    /// When its data can be here.
    arrived: Instant,
    /// A flush, which waits until what came before it is programmed.
    flush: bool,
}

/// The drive.
pub struct Ssd {
    facts: SsdFacts,
    map: Map,
    dies: Vec<Die>,
    /// When each die at work has programmed its page.
    programming: BinaryHeap<Reverse<(Instant, usize)>>,
    channels: Vec<Instant>,
    host_out: Instant,
    host_in: Instant,
    /// When the controller can take up the next command.
    controller: Instant,
    /// The die whose page is being filled.
    filling: usize,
    /// Units in the buffer, and how many it holds.
    buffered: u64,
    buffer: u64,
    incoming: VecDeque<Incoming>,
    counts: FlashCounts,
    now: Instant,
    done: Completions,
}

impl Ssd {
    /// An empty drive; `facts` are checked.
    pub fn new(facts: SsdFacts) -> Self {
        facts.check().unwrap_or_else(|(key, what)| panic!("an unchecked drive: {key} {what}"));
        let die = Die::new(facts.layout.blocks_per_die(), facts.layout.units_per_block());
        Ssd {
            map: Map::new(facts.layout.units()),
            dies: vec![die; facts.layout.dies() as usize],
            programming: BinaryHeap::new(),
            channels: vec![Instant::ZERO; facts.layout.channels as usize],
            host_out: Instant::ZERO,
            host_in: Instant::ZERO,
            controller: Instant::ZERO,
            filling: 0,
            buffered: 0,
            buffer: facts.buffer / u64::from(facts.layout.unit),
            incoming: VecDeque::new(),
            counts: FlashCounts::default(),
            now: Instant::ZERO,
            done: Completions::default(),
            facts,
        }
    }
    /// What the flash has done so far.
    pub fn counts(&self) -> FlashCounts {
        self.counts
    }

    /// Places of a die. It is asked for each unit.
    fn die_units(&self) -> u32 {
        self.dies[0].blocks.places()
    }

    fn transfer(bytes: u64, rate: u64) -> Duration {
        Rate::bytes(rate).time_for(Cost::new(bytes))
    }

    /// When the controller takes up a command that comes at `now`.
    fn take_up(&mut self, now: Instant) -> Instant {
        let start = self.controller.max(now);
        self.controller = start + self.facts.times.command_interval;
        start
    }

    fn read(&mut self, request: &Request, now: Instant) {
        let unit = u64::from(self.facts.layout.unit);
        let start = self.take_up(now) + self.facts.times.read_overhead;
        let mut ready = start;
        let mut last_page = None;
        for u in request.offset / unit..request.end().div_ceil(unit) {
            ready = ready.max(self.fetch(u, start, &mut last_page));
        }
        self.host_out = self.host_out.max(ready) + Self::transfer(request.len, self.facts.rates.host_read);
        self.done.push(self.host_out, request.id, Ok(()), self.host_out.since(now));
    }

    /// When unit `u` is out of its die and over the channel; `last_page` is the page read before, which is not
    /// read again.
    fn fetch(&mut self, u: u64, start: Instant, last_page: &mut Option<(u32, Instant)>) -> Instant {
        let Some(place) = self.map.get(u) else { return start };
        let (die, page) = ((place / self.die_units()) as usize, place / self.facts.layout.units_per_page());
        if self.dies[die].unprogrammed.contains(&(place % self.die_units())) {
            return start;
        }
        let on_die = match *last_page {
            Some((last, read)) if last == page => read,
            _ => {
                let d = &mut self.dies[die];
                d.free_at = d.free_at.max(start) + self.facts.times.read;
                d.free_at
            }
        };
        *last_page = Some((page, on_die));
        let channel = &mut self.channels[die / self.facts.layout.dies_per_channel as usize];
        *channel = (*channel).max(on_die)
            + Self::transfer(u64::from(self.facts.layout.unit), self.facts.rates.channel);
        *channel
    }

    fn write(&mut self, request: &Request, now: Instant) {
        let unit = u64::from(self.facts.layout.unit);
        let (first, end) = (request.offset / unit, request.end().div_ceil(unit));
        let mut arrived = self.take_up(now) + self.facts.times.write_overhead;
        self.host_in = self.host_in.max(arrived) + Self::transfer(request.len, self.facts.rates.host_write);
        arrived = self.host_in;
        // A unit of which only a part is written is read first.
        let mut cut =
            [request.offset, request.end()].map(|at| (!at.is_multiple_of(unit)).then_some(at / unit));
        if cut[0] == cut[1] {
            cut[1] = None;
        }
        for u in cut.into_iter().flatten() {
            arrived = arrived.max(self.fetch(u, now, &mut None));
        }
        self.incoming.push_back(Incoming {
            id: request.id,
            next: first,
            end,
            since: now,
            arrived,
            flush: false,
        });
        self.take_in(now);
    }

    /// Takes waiting writes into the buffer, in their order, as far as there is room at `now`.
    fn take_in(&mut self, now: Instant) {
        while let Some(first) = self.incoming.front().copied() {
            if first.flush {
                // Writes that came before it and waited for room may have opened pages meanwhile.
                self.close_pages(now);
                if self.buffered > 0 {
                    return;
                }
                self.done.push(now, first.id, Ok(()), now.since(first.since));
                self.incoming.pop_front();
                continue;
            }
            let fits = (self.buffer - self.buffered).min(first.end - first.next);
            for u in first.next..first.next + fits {
                self.place(u, now);
            }
            let front = self.incoming.front_mut().expect("it was just looked at");
            front.next += fits;
            if front.next < front.end {
                return;
            }
            let at = now.max(front.arrived);
            self.done.push(at, first.id, Ok(()), at.since(first.since));
            self.incoming.pop_front();
        }
    }

    /// The die whose page is being filled: the next one that has room. Collection needs slack on every die, and
    /// all dies together have room for whatever the host can write.
    fn filling_die(&mut self) -> usize {
        let per_page = self.facts.layout.units_per_page();
        let dies = self.dies.len();
        if self.dies[self.filling].open_units == 0 {
            let with_room = (0..dies).map(|i| (self.filling + i) % dies);
            let found = with_room.into_iter().find(|d| self.dies[*d].blocks.has_capacity(per_page));
            self.filling = found.expect("the spare capacity is more than the dies' slack");
        }
        self.filling
    }

    /// Gives logical unit `u` a place in the page being filled.
    fn place(&mut self, u: u64, now: Instant) {
        self.buffered += 1;
        self.counts.written += 1;
        let die_units = self.die_units();
        if let Some(old) = self.map.get(u) {
            self.dies[(old / die_units) as usize].blocks.invalidate(old % die_units);
        }
        let die = self.filling_die();
        let place = self.dies[die].blocks.append(u as u32);
        self.dies[die].unprogrammed.push_back(place);
        self.map.set(u, Some(die as u32 * die_units + place));
        self.dies[die].open_units += 1;
        if self.dies[die].open_units == self.facts.layout.units_per_page() {
            self.close_page(die, now);
            self.filling = (die + 1) % self.dies.len();
        }
    }

    /// Sends the open page of a die to be programmed, after as much collection as that asks for.
    fn close_page(&mut self, die: usize, now: Instant) {
        let (layout, times) = (&self.facts.layout, &self.facts.times);
        let (die_units, per_page) = (self.die_units(), layout.units_per_page());
        let (map, d) = (&mut self.map, &mut self.dies[die]);
        let units = std::mem::take(&mut d.open_units);
        let moved = d.collect(units, |logical, place| {
            map.set(u64::from(logical), Some(die as u32 * die_units + place));
        });
        self.counts.moved += u64::from(moved.units);
        self.counts.erased += u64::from(moved.erased);
        // Moved units are read where they lie and programmed page by page, without leaving the die.
        let each = (times.read + times.program).as_nanos() * u64::from(moved.units) / u64::from(per_page);
        let takes = times.program + Duration::from_nanos(each) + times.erase * u64::from(moved.erased);
        d.backlog.push_back(PageWrite { takes, units });
        if d.programming.is_none() {
            self.program_next(die, now);
        }
    }

    fn close_pages(&mut self, now: Instant) {
        for die in 0..self.dies.len() {
            if self.dies[die].open_units > 0 {
                self.close_page(die, now);
            }
        }
    }

    fn program_next(&mut self, die: usize, now: Instant) {
        let d = &mut self.dies[die];
        let Some(page) = d.backlog.pop_front() else { return };
        let channel = &mut self.channels[die / self.facts.layout.dies_per_channel as usize];
        let start = now.max(*channel);
        *channel = start + Self::transfer(u64::from(self.facts.layout.page), self.facts.rates.channel);
        d.free_at = d.free_at.max(*channel) + page.takes;
        d.programming = Some(page.units);
        self.programming.push(Reverse((d.free_at, die)));
    }

    fn first_programmed(&self) -> Option<(Instant, usize)> {
        self.programming.peek().map(|Reverse(first)| *first)
    }

    /// Programs what is programmed by `now`; waiting writes follow into the room that this makes.
    fn advance(&mut self, now: Instant) {
        while let Some((at, die)) = self.first_programmed().filter(|(at, _)| *at <= now) {
            self.programming.pop();
            let units = self.dies[die].programming.take().expect("a die at work has a page");
            self.buffered -= u64::from(units);
            self.dies[die].unprogrammed.drain(..units as usize);
            self.program_next(die, at);
            self.take_in(at);
        }
        self.now = self.now.max(now);
    }

    fn flush(&mut self, request: &Request, now: Instant) {
        if self.facts.power_protected {
            let at = self.incoming.iter().map(|w| w.arrived).max().unwrap_or(now).max(now);
            return self.done.push(at, request.id, Ok(()), at.since(now));
        }
        let (next, end) = (0, 0);
        self.incoming.push_back(Incoming {
            id: request.id,
            next,
            end,
            since: now,
            arrived: now,
            flush: true,
        });
        self.take_in(now);
    }

    fn trim(&mut self, request: &Request, now: Instant) {
        let unit = u64::from(self.facts.layout.unit);
        let die_units = self.die_units();
        let end = request.end() / unit;
        let mut u = self.map.skip_empty(request.offset.div_ceil(unit));
        while u < end {
            if let Some(old) = self.map.set(u, None) {
                self.dies[(old / die_units) as usize].blocks.invalidate(old % die_units);
            }
            u = self.map.skip_empty(u + 1);
        }
        let at = now + self.facts.times.write_overhead;
        self.done.push(at, request.id, Ok(()), at.since(now));
    }
}

impl Backend for Ssd {
    type Payload = ();

    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        self.advance(now);
        if request.end() > self.capacity() {
            return self.done.push(now, request.id, Err(Fault::OutOfRange), Duration::ZERO);
        }
        match request.op {
            Op::Flush => self.flush(request, now),
            _ if request.len == 0 => self.done.push(now, request.id, Ok(()), Duration::ZERO),
            Op::Read => self.read(request, now),
            Op::Write | Op::WriteZeroes => self.write(request, now),
            Op::Trim => self.trim(request, now),
        }
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        self.advance(now);
        self.done.pop(now)
    }
    fn wake_at(&self) -> Option<Instant> {
        let room = if self.incoming.is_empty() { None } else { self.first_programmed().map(|(at, _)| at) };
        match (self.done.next_at(), room) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    fn capacity(&self) -> u64 {
        self.facts.layout.units() * u64::from(self.facts.layout.unit)
    }
    fn quantum(&self) -> u64 {
        henge_core::DEVICE_QUANTUM
    }
}
