//! One command after the other: buffer, bus, arm, and what the drive does on its own behind them.
//!
//! The problem: a drive's answer time depends on what it was doing before: reading ahead, writing behind, holding
//! blocks in its buffer. The rules are those of DiskSim 4.0's controller, told as straight lines in time instead
//! of an event per sector:
//!
//! - *Read, first block in a segment*: the bus starts after the hit overhead and takes blocks as they are in.
//!   Read-ahead into that segment goes on, and further than before; otherwise blocks still missing are read.
//! - *Read, miss*: read-ahead is stopped (a sector, wait or seek under way is finished), then after the miss
//!   overhead the arm goes. The bus takes each block as it comes. Then the drive reads ahead.
//! - *Write*: data comes over the bus while the arm moves. With early acknowledgement the host is answered when
//!   all data has come; the arm finishes, and a command that needs it waits, except one write that appends to
//!   what is being written.
//! - A command's answer comes at the latest of bus and, where it has to be, medium.
//!
//! Bus against platter: block i leaves at c(i) = max(c(i-1), a(i)) + b, where a(i) is when it was in and b the bus
//! time of a block. Over blocks of one track a(i) is a straight line, so c(n) = max(c(0) + n b, a(1) + n b, a(n) + b).
//!
//! Example: ST34501N, a random 512 B read: 0.608 ms overhead, 7.86 ms seek, half a revolution 2.99 ms, one sector
//! 0.035 ms, one on the bus 0.106 ms: 11.60 ms on average (DiskSim measured 11.62).
//!
//! Guarantee: time only goes forward; one head position at a time; no block leaves before it has gone by.
//! Price: about 0.2 us a request, whatever its size (each track it crosses costs about 0.05 us).

use super::arm::{Arm, Motion, Position};
use super::buffer::Buffer;
use super::facts::{Cache, DiskFacts, Overheads, Prefetch};
use super::pass::Pass;
use super::stream::{Drain, Stream};
use super::write::{Incoming, write};
use henge_core::{Duration, Instant};
use std::collections::VecDeque;

/// Reads or writes some blocks.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// First block.
    pub lbn: u64,
    /// How many; at least one.
    pub blocks: u64,
    /// Onto the medium.
    pub write: bool,
    /// Answered only when it is on the medium.
    pub durable: bool,
}

/// A write on its way to the medium, already answered.
#[derive(Clone, Copy, Debug)]
struct Behind {
    segment: usize,
    end_lbn: u64,
    /// When the arm started on it, and when it is done.
    starts: Instant,
    ends: Instant,
}

/// A write in the buffer that the arm has not started on.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    data: Incoming,
    segment: usize,
    /// When the arm may start.
    ready: Instant,
}

/// The drive without its queue.
#[derive(Clone, Debug)]
pub struct Controller {
    arm: Arm,
    cache: Cache,
    overheads: Overheads,
    bus: Duration,
    buffer: Buffer,
    position: Position,
    stream: Option<Stream>,
    behind: Option<Behind>,
    dirty: VecDeque<Dirty>,
    after_read: bool,
    last_lbn: u64,
    /// When the last command was answered: the arm is not free for the drive's own work before.
    answered: Instant,
}

impl Controller {
    /// An idle drive, its arm on cylinder 0.
    pub fn new(facts: &DiskFacts) -> Self {
        let mut cache = facts.cache;
        if !cache.enabled {
            // Without a buffer that remembers, nothing is read ahead, acknowledged early, or combined.
            cache.prefetch = Prefetch::None;
            cache.fast_write = 0;
            cache.combine_writes = false;
            cache.read_any_free = false;
        }
        Controller {
            arm: Arm::new(facts),
            cache,
            overheads: facts.overheads,
            bus: facts.bus_sector,
            buffer: Buffer::new(&cache, cache.segments),
            position: Position::default(),
            stream: None,
            behind: None,
            dirty: VecDeque::new(),
            after_read: true,
            last_lbn: 0,
            answered: Instant::ZERO,
        }
    }
    /// The mechanism.
    pub fn arm(&self) -> &Arm {
        &self.arm
    }

    /// Carries out a command that arrives at `t`, when the one before it has been answered; returns when it is
    /// answered.
    pub fn execute(&mut self, command: Command, t: Instant) -> Instant {
        self.settle(t);
        let t = t + self.overheads.per_request;
        let answered = if command.write {
            self.write(command, t) + self.overheads.write_completion
        } else {
            self.read(command, t) + self.overheads.read_completion
        };
        self.after_read = !command.write;
        self.last_lbn = command.lbn + command.blocks;
        self.answered = answered;
        answered
    }

    /// When everything the drive does on its own is over: read-ahead ended, written data on the medium.
    pub fn quiet_at(&mut self) -> Instant {
        let stream = self.stream.as_mut().map_or(Instant::ZERO, |s| s.ends(&self.arm));
        stream.max(self.durable_at())
    }
    /// When all that was acknowledged is on the medium.
    pub fn durable_at(&mut self) -> Instant {
        self.settle(Instant::FAR);
        self.behind.map_or(Instant::ZERO, |b| b.ends)
    }

    /// The block behind the last command's.
    pub fn last_lbn(&self) -> u64 {
        self.last_lbn
    }
    /// When the first block of a command could go by that the arm takes up at `t`; `t` itself for a buffered read.
    pub fn reaches(&self, lbn: u64, end: u64, motion: Motion, t: Instant) -> Instant {
        if motion == Motion::Read && self.buffer.find(lbn, end).is_some() {
            return t;
        }
        let from = self.stream.map_or(self.position, |s| s.position());
        let start = t + self.overheads.read(false, self.after_read);
        Pass::plan(&self.arm, from, start, lbn, end - lbn, motion).first
    }

    /// Brings what the drive does on its own up to `t`.
    fn settle(&mut self, t: Instant) {
        if let Some(stream) = &mut self.stream {
            // `FAR` asks about writes alone; read-ahead is where it is.
            if t != Instant::FAR {
                stream.advance(&self.arm, t);
                let (segment, end, size) = (stream.segment, stream.end_at(t), self.buffer.size());
                self.buffer.get_mut(segment).grow(end, size);
                if stream.is_over(&self.arm, t) {
                    self.position = stream.position();
                    self.stream = None;
                }
            }
        }
        while let Some(next) = self.dirty.front() {
            let free = self.behind.map_or(Instant::ZERO, |b| b.ends).max(next.ready).max(self.answered);
            if free > t {
                break;
            }
            let next = self.dirty.pop_front().expect("the front was just looked at");
            let start = self.stop_reading(free);
            self.put_behind(next.data, next.segment, start);
        }
    }

    /// Starts the arm on a write whose data comes or has come.
    fn put_behind(&mut self, data: Incoming, segment: usize, start: Instant) -> (Instant, Instant) {
        let size = self.buffer.size();
        let written = write(&self.arm, self.position, start, data, size, self.cache.zero_latency_write);
        self.position = written.position;
        let end_lbn = data.lbn + data.blocks;
        self.buffer.get_mut(segment).grow(end_lbn, size);
        self.behind = Some(Behind { segment, end_lbn, starts: start, ends: written.end });
        (written.arrived, written.end)
    }

    /// Stops read-ahead for a command at `t`; returns when the arm is free.
    fn stop_reading(&mut self, t: Instant) -> Instant {
        let Some(mut stream) = self.stream.take() else { return t };
        stream.advance(&self.arm, t);
        let least = self.buffer.get(stream.segment).least;
        // Not before the least that read-ahead promises.
        let free = if stream.end_at(t) < least { stream.reaches(&self.arm, least).max(t) } else { t };
        let free = stream.pass.can_leave(free, self.cache.stop_in_sector);
        let size = self.buffer.size();
        self.buffer.get_mut(stream.segment).grow(stream.end_at(free), size);
        self.position = stream.position();
        free
    }

    /// How far the drive reads on behind a read that ends at `end`, in the segment that starts at `start`.
    fn read_limit(&self, start: u64, lbn: u64, end: u64) -> u64 {
        let c = &self.cache;
        let (capacity, size) = (self.arm.geometry().capacity(), self.buffer.size());
        let limit = match c.prefetch {
            Prefetch::None => end,
            Prefetch::TrackAhead if end < capacity => {
                let place = self.arm.geometry().locate(end);
                let track_end = end + u64::from(place.left_on_track);
                let track_start = end - u64::from(place.before_on_track);
                // A segment that began on an earlier track is a sequential stream: one track more.
                if start < track_start { track_end + u64::from(place.per_track) } else { track_end }
            }
            Prefetch::TrackAhead => capacity,
            _ if c.max_read_ahead > 0 => end + u64::from(c.max_read_ahead),
            _ if c.overwrite_returned => end + size,
            _ => (lbn + size).max(end + u64::from(c.min_read_ahead)),
        };
        limit.clamp(end, capacity)
    }

    fn read(&mut self, command: Command, t: Instant) -> Instant {
        let Command { lbn, blocks, .. } = command;
        let end = lbn + blocks;
        // A command that finds the arm writing waits, and has spent its overhead meanwhile.
        let free = self.behind.map_or(t, |b| b.ends.max(t));
        let ready = t + self.overheads.read(false, self.after_read);
        let hit = self.buffer.find(lbn, end).or_else(|| self.almost_hit(lbn));
        let Some(segment) = hit else {
            let active = self.stream.map(|s| s.segment);
            let segment = self.buffer.take_for_read(lbn, active);
            let start = free.max(ready) + self.stop_reading(free).since(free);
            self.set_limits(segment, lbn, lbn, end);
            return self.fetch(segment, lbn, end, lbn, start, ready);
        };
        let bus_from =
            if free > t { free.max(ready) } else { t + self.overheads.read(true, self.after_read) };
        self.buffer.touch(segment);
        let start = self.buffer.get(segment).start;
        self.set_limits(segment, start, lbn, end);
        let limit = self.buffer.get(segment).limit;
        if let Some(stream) = self.stream.as_mut().filter(|s| s.segment == segment) {
            stream.limit = stream.limit.max(limit);
            stream.resume(t);
            return self.take_out(lbn, end, bus_from);
        }
        let held = self.buffer.get(segment).end;
        let stopped = self.stop_reading(free).since(free);
        if held >= end {
            if self.cache.restart_on_hit && held < limit {
                self.fetch(segment, lbn, held, held, free.max(ready) + stopped, bus_from);
            }
            return bus_from + self.bus * blocks;
        }
        self.fetch(segment, lbn, end, held, free.max(ready) + stopped, bus_from)
    }

    /// The block that read-ahead is about to fetch counts as a hit, where the drive does so.
    fn almost_hit(&self, lbn: u64) -> Option<usize> {
        let stream = self.stream.filter(|_| self.cache.almost_hits && self.cache.enabled)?;
        (self.buffer.get(stream.segment).end == lbn).then_some(stream.segment)
    }

    fn set_limits(&mut self, segment: usize, start: u64, lbn: u64, end: u64) {
        let limit = self.read_limit(start, lbn, end);
        let least = (end + u64::from(self.cache.min_read_ahead)).min(limit);
        let s = self.buffer.get_mut(segment);
        s.limit = s.limit.max(limit);
        s.least = s.least.max(least);
    }

    /// Sends the arm to block `next` at `start`, for a read of `lbn..end`; returns when the host has it all.
    fn fetch(
        &mut self,
        segment: usize,
        lbn: u64,
        end: u64,
        next: u64,
        start: Instant,
        bus_from: Instant,
    ) -> Instant {
        let limit = self.buffer.get(segment).limit;
        let size = self.buffer.size();
        let pass =
            Pass::plan(&self.arm, self.position, start, next, limit.max(next + 1) - next, Motion::Read);
        if self.cache.read_any_free && self.buffer.get(segment).start == self.buffer.get(segment).end {
            // What comes by on the way to the first block is kept, too.
            let turned = pass.first.since(pass.on_track);
            let sector = self.arm.spindle().transfer(1, pass.place.per_track).as_nanos().max(1);
            let before = (turned.as_nanos() / sector).min(u64::from(pass.place.before_on_track));
            let s = self.buffer.get_mut(segment);
            (s.start, s.end) = (next - before, next);
        }
        // The host has nothing to take before the first block is in.
        let from = bus_from.max(pass.passed(1));
        let drain = Drain { lbn, from, block: self.bus, until: from + self.bus * (end - lbn) };
        let mut stream = Stream { segment, pass, limit, drain, size, mode: self.cache.prefetch };
        stream.pass = stream.fit(&self.arm, pass);
        self.stream = Some(stream);
        self.take_out(lbn, end, bus_from)
    }

    /// The host takes `lbn..end` out of the active stream's segment, from `bus_from` on; returns when it has all.
    fn take_out(&mut self, lbn: u64, end: u64, bus_from: Instant) -> Instant {
        let stream = self.stream.as_mut().expect("only called with a stream");
        let zero_latency = self.cache.zero_latency_read;
        // Before the current pass everything is in.
        let mut at = stream.pass.lbn.clamp(lbn, end);
        let mut bus = bus_from + self.bus * (at - lbn);
        stream.drain = Drain { lbn, from: stream.drain.from.max(bus_from), ..stream.drain };
        stream.drain.until = stream.drain.from + self.bus * (end - lbn);
        stream.pass = stream.fit(&self.arm, stream.pass);
        while at < end {
            let pass = stream.pass;
            if at < pass.end_lbn() {
                let stop = end.min(pass.end_lbn());
                let (skip, n) = ((at - pass.lbn) as u32, stop - at);
                let wanted = (stop - pass.lbn) as u32;
                // A head that lands among the blocks it wants reads the later ones first.
                let head_part = if zero_latency { pass.cut(wanted).landed_at(&self.arm) } else { 0 };
                let last = if head_part > skip { head_part } else { wanted };
                let after = self.bus * (u64::from(wanted - last) + 1);
                let blocks = self.bus * n;
                bus = (bus + blocks).max(pass.passed(skip + 1) + blocks).max(pass.passed(last) + after);
                at = stop;
            }
            if at < end {
                stream.pass = stream.next_pass(&self.arm, end).expect("what a command needs is read");
            }
        }
        stream.drain.until = bus;
        bus
    }

    fn write(&mut self, command: Command, t: Instant) -> Instant {
        let Command { lbn, blocks, durable, .. } = command;
        let end = lbn + blocks;
        let early = self.cache.fast_write > 0;
        let ready = t + self.overheads.write(early, self.after_read) + self.overheads.data_preparation;
        let busy = self.behind.filter(|b| b.ends > t);
        let block = self.bus;
        let incoming = |from| Incoming { lbn, blocks, from, block };
        if let Some(behind) = busy.filter(|b| self.may_append(b, lbn, t)) {
            self.buffer.append(behind.segment, end);
            let start = self.caught_up(behind.ends, &incoming(ready)).max(ready);
            let (arrived, on_medium) = self.put_behind(incoming(ready), behind.segment, start);
            return if durable { on_medium } else { arrived };
        }
        let active = self.stream.map(|s| s.segment);
        if let Some(behind) = busy
            && early
            && self.cache.write_prebuffering
            && self.dirty.len() + 1 < self.cache.write_segments as usize
            && !durable
            && blocks <= self.buffer.size()
        {
            // Taken into another segment while the arm is still writing.
            let segment = self.buffer.take_for_write(lbn, end, active.or(Some(behind.segment)));
            let size = self.buffer.size();
            self.buffer.get_mut(segment).grow(end, size);
            let data = incoming(ready);
            self.dirty.push_back(Dirty { data, segment, ready });
            return ready + self.bus * blocks;
        }
        let free = busy.map_or(t, |b| b.ends);
        let segment = self.buffer.take_for_write(lbn, end, active);
        let start = free.max(ready) + self.stop_reading(free).since(free);
        let (arrived, on_medium) = self.put_behind(incoming(free.max(ready)), segment, start);
        if early && !durable { arrived } else { on_medium.max(arrived) }
    }

    /// The write on the medium goes on into blocks of the one that joined it, as far as they have arrived, before
    /// that one's own turn begins, which writes them where they belong (a revolution later). When that turn begins.
    fn caught_up(&self, ends: Instant, joined: &Incoming) -> Instant {
        let place = self.arm.geometry().locate(joined.lbn);
        let sector = self.arm.spindle().transfer(1, place.per_track);
        let there = ends.since(joined.from).as_nanos();
        let (block, sector_ns) = (joined.block.as_nanos(), sector.as_nanos());
        if there < block {
            return ends;
        }
        // Block j has arrived when the head is there: from + (j + 1) block <= ends + j sector.
        let caught = match block.checked_sub(sector_ns) {
            None | Some(0) => joined.blocks,
            Some(slower) => ((there - block) / slower + 1).min(joined.blocks),
        };
        ends + sector * caught
    }

    /// A write may join the one that the arm is on if it continues it and no other has joined yet.
    fn may_append(&self, behind: &Behind, lbn: u64, t: Instant) -> bool {
        self.cache.fast_write > 0
            && self.cache.combine_writes
            && self.dirty.is_empty()
            && behind.end_lbn == lbn
            && behind.starts <= t
    }
}
