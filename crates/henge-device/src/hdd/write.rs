//! Blocks going from the host onto the platter.
//!
//! Block j of a write can go onto the medium once it has arrived, `arrives + (j + 1) * block`. A block that is
//! late when its place comes by waits a revolution.
//!
//! Where the segment is smaller than the write it is a ring. The host sends as many blocks as it holds; has the
//! head laid some of them down by then, as many more follow without a pause, and so on. Has it laid none, the drive
//! lets go of the bus and asks for more only when no more than the *low water mark* is left in the ring.
//!
//! Example: a ring of 64 blocks, a write of 128, 0.1 ms a block on the bus. All 64 are in after 6.4 ms. If the arm
//! was there after 5 ms and has laid 40, 40 more follow at once, and after 10.4 ms the rest. Was it still under
//! way, the bus is free until 63 of the 64 are on the medium (the mark is 1 block), and the other 64 follow; the
//! head has missed their place by then, and waits for it.

use super::arm::{Arm, Motion, Position};
use super::laps;
use super::pass::Pass;
use henge_core::{Duration, Instant};

/// Blocks to write and how they come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub lbn: u64,
    pub blocks: u64,
    /// When the first block's transfer starts.
    pub from: Instant,
    /// How long each takes.
    pub block: Duration,
}

impl Incoming {
    /// When the last has come.
    pub fn done(&self) -> Instant {
        self.from + self.block * self.blocks
    }
    fn end(&self) -> u64 {
        self.lbn + self.blocks
    }
}

/// The segment that a write goes through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    /// Blocks that it holds.
    pub capacity: u64,
    /// The drive asks for more when this many are left.
    pub low: u64,
    /// How long it takes until they come then.
    pub reselect: Duration,
}

/// What a write came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// When all data had arrived.
    pub arrived: Instant,
    /// When all of it was on the medium.
    pub end: Instant,
    /// Where the head is then.
    pub position: Position,
}

/// Writes `data` with the arm at `from` from `start` on, through `ring`.
pub(super) fn write(
    arm: &Arm,
    from: Position,
    start: Instant,
    data: Incoming,
    ring: Ring,
    zero_latency: bool,
) -> Written {
    let mut supply = Supply::new(data, ring);
    let mut written = Written { arrived: data.from, end: start, position: from };
    let mut lbn = data.lbn;
    while lbn < data.end() {
        let known = supply.line.end() - lbn;
        let pass = Pass::plan(arm, written.position, written.end, lbn, known, Motion::Write);
        let (end, waited) = lay_down(arm, &pass, &mut supply, zero_latency);
        written.end = end;
        written.position = pass.address.position();
        lbn = pass.end_lbn();
        if waited
            && !zero_latency
            && let Some(before) = supply.skip(arm, &pass)
        {
            written.end = before.end();
            written.position = before.address.position();
            lbn = before.end_lbn();
        }
    }
    written.arrived = supply.line.done();
    written
}

/// What has come or is on its way, and how far the head is with it.
struct Supply {
    /// The blocks on the bus; those before them are in.
    line: Incoming,
    end: u64,
    ring: Ring,
    /// Blocks before this one are on the medium.
    laid: u64,
    /// The bus is free until the blocks before this one are on the medium.
    until: Option<u64>,
}

impl Supply {
    fn new(data: Incoming, ring: Ring) -> Self {
        let line = Incoming { blocks: data.blocks.min(ring.capacity.max(1)), ..data };
        Supply { line, end: data.end(), ring, laid: data.lbn, until: None }
    }

    fn arrived_at(&self, lbn: u64) -> Instant {
        match (lbn + 1).checked_sub(self.line.lbn) {
            Some(blocks) if blocks > 0 => self.line.from + self.line.block * blocks,
            _ => Instant::ZERO,
        }
    }

    /// The head has laid down `pass` and waited for blocks: leaves out what goes on like this, up to the block returned,
    /// which is laid down then.
    fn skip(&mut self, arm: &Arm, pass: &Pass) -> Option<Pass> {
        if self.until.is_some() {
            return None;
        }
        let (line, capacity) = (self.line, self.ring.capacity);
        // The bus never waits for the head.
        let came = |lbn: u64| line.from + line.block * (lbn + 1).saturating_sub(line.lbn);
        let block = laps::skip_waiting(arm, pass, line.block, capacity, self.end, came)?;
        self.line.blocks = self.end - line.lbn;
        self.laid = block.end_lbn();
        Some(block)
    }

    /// The blocks of `run` go onto the medium: does more come?
    fn lay(&mut self, run: &Pass) {
        let laid_by = |t: Instant, laid: u64| laid.max(run.lbn + u64::from(run.passed_at(t)));
        while self.line.end() < self.end {
            let left = self.end - self.line.end();
            if let Some(mark) = self.until {
                if mark > run.end_lbn() {
                    break;
                }
                let at = run.passed(mark.saturating_sub(run.lbn) as u32).max(self.line.done());
                let blocks = (self.ring.capacity - self.ring.low).min(left);
                let from = at + self.ring.reselect;
                self.line = Incoming { lbn: self.line.end(), blocks, from, ..self.line };
                self.until = None;
            } else {
                let done = self.line.done();
                if done > run.end() {
                    break;
                }
                let held = self.line.end() - laid_by(done, self.laid);
                match self.ring.capacity.saturating_sub(held) {
                    0 => self.until = Some(self.line.end() - self.ring.low),
                    free => self.line.blocks += free.min(left),
                }
            }
        }
        self.laid = run.end_lbn();
    }
}

/// When the blocks of one pass are all on the medium, and whether the head waited for some of them.
fn lay_down(arm: &Arm, pass: &Pass, supply: &mut Supply, zero_latency: bool) -> (Instant, bool) {
    let revolution = arm.spindle().revolution();
    if zero_latency && supply.arrived_at(pass.end_lbn() - 1) <= pass.on_track {
        let head_part = pass.landed_at(arm);
        if head_part > 0 {
            supply.lay(&pass.rest(pass.blocks, pass.passed(head_part), false));
            return (pass.passed(head_part), false);
        }
    }
    let mut pass = *pass;
    let mut waited = false;
    loop {
        // The first block that is late; if they come slower than they pass, all before it are in time.
        let on_time = |j: u32| supply.arrived_at(pass.lbn + u64::from(j)) <= pass.passed(j);
        if on_time(0) && on_time(pass.blocks - 1) {
            supply.lay(&pass);
            return (pass.end(), waited);
        }
        let late = if on_time(0) {
            let (mut good, mut late) = (0, pass.blocks - 1);
            while good + 1 < late {
                let middle = good + (late - good) / 2;
                if on_time(middle) { good = middle } else { late = middle }
            }
            late
        } else {
            0
        };
        let behind = supply.arrived_at(pass.lbn + u64::from(late)).since(pass.passed(late)).as_nanos();
        let first = pass.passed(late) + revolution * behind.div_ceil(revolution.as_nanos()).max(1);
        if late > 0 {
            supply.lay(&pass.cut(late));
        }
        pass = pass.rest(late, first, true);
        waited = true;
    }
}
