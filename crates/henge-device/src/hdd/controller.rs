//! One command after the other: buffer, bus, arm, and what the drive does on its own behind them.
//!
//! The problem: a drive's answer time depends on what it was doing before: reading ahead, writing behind, holding
//! blocks in its buffer. The rules are taken from DiskSim 4.0's controller, told as straight lines in time instead
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
//! Price: about 0.2 us a request, one of many tracks at most about five times that, whatever its size (see `laps`).

use super::arm::{Arm, Motion, Position};
use super::buffer::Buffer;
use super::facts::{Cache, DiskFacts, Overheads, Prefetch};
use super::pass::Pass;
use super::stream::Stream;
use super::write::{Incoming, Ring, write};
use henge_core::{Duration, Instant};
use std::collections::VecDeque;

mod reading;
mod writing;

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
            cache.read_ahead.prefetch = Prefetch::None;
            cache.write.fast_write = 0;
            cache.write.combine = false;
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
    /// The same drive, every track taken by itself.
    #[cfg(test)]
    pub(super) fn without_laps(mut self) -> Self {
        self.arm = self.arm.with_geometry(self.arm.geometry().clone());
        self
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
        let ring = self.ring(data.blocks);
        let written = write(&self.arm, self.position, start, data, ring, self.cache.zero_latency_write);
        self.position = written.position;
        let end_lbn = data.lbn + data.blocks;
        self.buffer.get_mut(segment).grow(end_lbn, size);
        self.behind = Some(Behind { segment, end_lbn, starts: start, ends: written.end });
        (written.arrived, written.end)
    }

    /// The segment of a write of `blocks`, as a ring.
    fn ring(&self, blocks: u64) -> Ring {
        let capacity = self.buffer.size().max(1);
        let low = self.cache.write_mark(blocks);
        // Room for something is made before more is asked for: a ring of one block is empty then.
        Ring { capacity, low: low.min(capacity - 1), reselect: self.overheads.reselect }
    }

    /// Stops read-ahead for a command at `t`; returns when the arm is free.
    fn stop_reading(&mut self, t: Instant) -> Instant {
        let Some(mut stream) = self.stream.take() else { return t };
        stream.advance(&self.arm, t);
        let least = self.buffer.get(stream.segment).least;
        // Not before the least that read-ahead promises.
        let free = if stream.end_at(t) < least { stream.reaches(&self.arm, least).max(t) } else { t };
        // What goes by while it comes to a stop is not kept.
        let size = self.buffer.size();
        self.buffer.get_mut(stream.segment).grow(stream.end_at(free), size);
        let free = stream.pass.can_leave(free, self.cache.read_ahead.stop_in_sector);
        self.position = stream.position();
        free
    }
}
