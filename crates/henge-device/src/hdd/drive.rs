//! The drive as a device.

use super::arm::{Arm, Motion, Position};
use super::facts::DiskFacts;
use crate::completions::Completions;
use henge_core::{Backend, Done, Duration, Fault, Instant, Op, Request};

/// What an owner may change about a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct HddOptions {
    /// Segments of the buffer, instead of the file's.
    pub segments: Option<u32>,
    /// Buffer on or off, instead of the file's.
    pub cache: Option<bool>,
}

/// A hard disk.
pub struct Hdd {
    facts: DiskFacts,
    arm: Arm,
    position: Position,
    free_at: Instant,
    after_read: bool,
    done: Completions,
}

impl Hdd {
    /// A drive whose arm rests on cylinder 0.
    pub fn new(facts: DiskFacts, _options: HddOptions) -> Self {
        let arm = Arm::new(&facts);
        let position = Position::default();
        Hdd { facts, arm, position, free_at: Instant::ZERO, after_read: true, done: Completions::default() }
    }

    fn access(&mut self, start: Instant, mut lbn: u64, mut blocks: u64, motion: Motion) -> Instant {
        let mut t = start;
        while blocks > 0 {
            let place = self.arm.geometry().locate(lbn);
            t += self.arm.move_time(self.position, place.position(), motion);
            self.position = place.position();
            t = self.arm.arrives(t, &place);
            let run = u64::from(place.left_on_track).min(blocks);
            t += self.arm.passing(&place, lbn, run as u32);
            (lbn, blocks) = (lbn + run, blocks - run);
        }
        t
    }

    fn overhead(&self, write: bool) -> Duration {
        let o = &self.facts.overheads;
        match (write, self.after_read) {
            (false, true) => o.read_miss_after_read,
            (false, false) => o.read_miss_after_write,
            (true, true) => o.write_miss_after_read,
            (true, false) => o.write_miss_after_write,
        }
    }
}

impl Backend for Hdd {
    type Payload = ();

    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        if request.end() > self.capacity() {
            return self.done.push(now, request.id, Err(Fault::OutOfRange), Duration::ZERO);
        }
        let start = now.max(self.free_at);
        let mut end = start + self.facts.overheads.per_request;
        if crate::moves_data(request.op) && request.len > 0 {
            let write = request.op != Op::Read;
            let sector = u64::from(self.facts.geometry.sector_bytes());
            let lbn = request.offset / sector;
            let blocks = request.end().div_ceil(sector) - lbn;
            let motion = if write { Motion::Write } else { Motion::Read };
            end = self.access(end + self.overhead(write), lbn, blocks, motion) + self.facts.bus_sector;
            self.after_read = !write;
        }
        self.free_at = end;
        self.done.push(end, request.id, Ok(()), end.since(start));
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        self.done.pop(now)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.done.next_at()
    }
    fn capacity(&self) -> u64 {
        self.facts.geometry.capacity() * u64::from(self.facts.geometry.sector_bytes())
    }
}
