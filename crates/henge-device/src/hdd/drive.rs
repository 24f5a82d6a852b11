//! The drive as a device: its queue around the controller.
//!
//! Commands are taken first come, first served, unless the drive orders its own queue: then, each time it is
//! ready for the next, it picks among the first `length` that wait.

use super::arm::Motion;
use super::controller::{Command, Controller};
use super::facts::DiskFacts;
use super::reader::FactsError;
use crate::completions::Completions;
use henge_core::{Backend, Done, Duration, Fault, Instant, Op, Request, RequestId};
use std::collections::VecDeque;

/// How the drive orders the commands it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DriveOrder {
    /// First come, first served.
    #[default]
    Fifo,
    /// The one that the head reaches first (SPTF).
    Nearest,
    /// Upwards by block, then from the lowest again (C-LOOK).
    Ascending,
}

/// What an owner may change about a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct HddOptions {
    /// Segments of the buffer, instead of the file's.
    pub segments: Option<u32>,
    /// Buffer on or off, instead of the file's.
    pub cache: Option<bool>,
    /// Early acknowledgement of writes on or off, instead of the file's.
    pub write_back: Option<bool>,
    /// Commands that the drive orders among, instead of the file's.
    pub queue: Option<u32>,
    /// How it orders them.
    pub order: Option<DriveOrder>,
    /// A command is answered only when the drive has nothing left to do: read-ahead ended, data on the medium.
    /// So disk time includes what a command causes later.
    pub drained: bool,
}

impl HddOptions {
    /// The facts, changed accordingly.
    pub fn apply(&self, facts: &mut DiskFacts) -> Result<(), FactsError> {
        if let Some(segments) = self.segments {
            facts.cache.segments = segments;
            facts.cache.write.segments = facts.cache.write.segments.min(segments);
        }
        facts.cache.enabled = self.cache.unwrap_or(facts.cache.enabled);
        match self.write_back {
            Some(true) if facts.cache.write.fast_write == 0 => facts.cache.write.fast_write = 2,
            Some(false) => facts.cache.write.fast_write = 0,
            _ => {}
        }
        facts.queue.length = self.queue.unwrap_or(facts.queue.length);
        facts.queue.policy = match self.order {
            None => facts.queue.policy,
            Some(DriveOrder::Fifo) => 1,
            Some(DriveOrder::Ascending) => 3,
            Some(DriveOrder::Nearest) => 8,
        };
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Waiting {
    id: RequestId,
    command: Option<Command>,
    since: Instant,
}

/// A hard disk.
pub struct Hdd {
    controller: Controller,
    capacity: u64,
    sector: u64,
    order: DriveOrder,
    length: usize,
    drained: bool,
    waiting: VecDeque<Waiting>,
    /// When the command in service is over.
    free_at: Instant,
    done: Completions,
}

impl Hdd {
    /// A drive whose arm rests on cylinder 0.
    pub fn new(mut facts: DiskFacts, options: HddOptions) -> Self {
        options.apply(&mut facts).expect("options fit any drive");
        let order = match facts.queue.policy {
            _ if facts.queue.length == 1 => DriveOrder::Fifo,
            1 => DriveOrder::Fifo,
            2 | 3 | 5 | 6 => DriveOrder::Ascending,
            _ => DriveOrder::Nearest,
        };
        let sector = u64::from(facts.geometry.sector_bytes());
        Hdd {
            controller: Controller::new(&facts),
            capacity: facts.geometry.capacity() * sector,
            sector,
            order,
            length: facts.queue.length as usize,
            drained: options.drained,
            waiting: VecDeque::new(),
            free_at: Instant::ZERO,
            done: Completions::default(),
        }
    }

    /// When the drive has nothing left to do, if nothing more comes.
    pub fn quiet_at(&mut self) -> Instant {
        self.take_up(Instant::FAR);
        self.controller.quiet_at().max(self.free_at)
    }

    /// Bytes of a sector.
    pub fn sector_bytes(&self) -> u64 {
        self.sector
    }

    fn command(&self, request: &Request) -> Option<Command> {
        if !crate::moves_data(request.op) || request.len == 0 {
            return None;
        }
        let lbn = request.offset / self.sector;
        let blocks = request.end().div_ceil(self.sector) - lbn;
        Some(Command { lbn, blocks, write: request.op != Op::Read, durable: request.fua })
    }

    /// Starts every command that can start by `now`.
    fn take_up(&mut self, now: Instant) {
        while let Some(first) = self.waiting.front() {
            let start = self.free_at.max(first.since);
            if start > now {
                return;
            }
            let next = self.pick(start);
            let Waiting { id, command, .. } = self.waiting.remove(next).expect("the pick is in the queue");
            self.serve(id, command, start);
        }
    }

    fn serve(&mut self, id: RequestId, command: Option<Command>, start: Instant) {
        let mut end = match command {
            Some(command) => self.controller.execute(command, start),
            // A flush is over when all is on the medium.
            None => self.controller.durable_at().max(start),
        };
        if self.drained {
            end = end.max(self.controller.quiet_at());
        }
        self.free_at = end;
        self.done.push(end, id, Ok(()), end.since(start));
    }

    /// Which of the waiting is next; all of those looked at have come by `start`.
    fn pick(&self, start: Instant) -> usize {
        let here = self.waiting.iter().take(self.length).take_while(|w| w.since <= start);
        let commands = here.enumerate().filter_map(|(i, w)| Some((i, w.command?)));
        match self.order {
            DriveOrder::Fifo => None,
            DriveOrder::Ascending => {
                let lbn = self.controller.last_lbn();
                commands.min_by_key(|(i, c)| (c.lbn < lbn, c.lbn, *i)).map(|(i, _)| i)
            }
            DriveOrder::Nearest => {
                let reach = |c: &Command| {
                    let motion = if c.write { Motion::Write } else { Motion::Read };
                    self.controller.reaches(c.lbn, c.lbn + c.blocks, motion, start)
                };
                commands.min_by_key(|(i, c)| (reach(c), *i)).map(|(i, _)| i)
            }
        }
        .unwrap_or(0)
    }
}

impl Backend for Hdd {
    type Payload = ();

    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        if request.end() > self.capacity {
            return self.done.push(now, request.id, Err(Fault::OutOfRange), Duration::ZERO);
        }
        if request.op == Op::Trim {
            return self.done.push(now, request.id, Ok(()), Duration::ZERO);
        }
        let command = self.command(request);
        self.waiting.push_back(Waiting { id: request.id, command, since: now });
        // First come, first served can be worked out at once; an order of its own waits for who else comes.
        self.take_up(if self.order == DriveOrder::Fifo { Instant::FAR } else { now });
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        self.take_up(now);
        self.done.pop(now)
    }
    fn wake_at(&self) -> Option<Instant> {
        let next = self.waiting.front().map(|w| self.free_at.max(w.since));
        match (self.done.next_at(), next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn quantum(&self) -> u64 {
        henge_core::DEVICE_QUANTUM
    }
}
