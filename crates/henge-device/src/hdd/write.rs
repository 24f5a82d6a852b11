//! Blocks going from the host onto the platter.
//!
//! Block j of a write can go onto the medium once it has arrived, `arrives + (j + 1) * block`. A block that is
//! late when its place comes by waits a revolution. Where the buffer is smaller than the write, it is filled and
//! emptied in turns.

use super::arm::{Arm, Motion, Position};
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

/// Writes `data` with the arm at `from` from `start` on, through a buffer of `room` blocks.
pub(super) fn write(
    arm: &Arm,
    from: Position,
    start: Instant,
    data: Incoming,
    room: u64,
    zero_latency: bool,
) -> Written {
    let mut written = Written { arrived: data.from, end: start, position: from };
    let end = data.lbn + data.blocks;
    let mut lbn = data.lbn;
    let mut supply = data;
    while lbn < end {
        supply = Incoming { lbn, blocks: room.min(end - lbn), ..supply };
        written.arrived = supply.from + supply.block * supply.blocks;
        let batch_end = lbn + supply.blocks;
        while lbn < batch_end {
            let pass = Pass::plan(arm, written.position, written.end, lbn, batch_end - lbn, Motion::Write);
            written.end = lay_down(arm, &pass, &supply, zero_latency);
            written.position = pass.place.position();
            lbn = pass.end_lbn();
        }
        supply.from = written.arrived.max(written.end);
    }
    written
}

/// When the blocks of one pass are all on the medium.
fn lay_down(arm: &Arm, pass: &Pass, supply: &Incoming, zero_latency: bool) -> Instant {
    let revolution = arm.spindle().revolution();
    if zero_latency && arrived_at(supply, pass.end_lbn() - 1) <= pass.on_track {
        let head_part = pass.landed_at(arm);
        if head_part > 0 {
            return pass.passed(head_part);
        }
    }
    let mut pass = *pass;
    loop {
        // The first block that is late; if they come slower than they pass, all before it are in time.
        let on_time = |j: u32| arrived_at(supply, pass.lbn + u64::from(j)) <= pass.passed(j);
        if on_time(0) && on_time(pass.blocks - 1) {
            return pass.end();
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
        let behind = arrived_at(supply, pass.lbn + u64::from(late)).since(pass.passed(late)).as_nanos();
        let first = pass.passed(late) + revolution * behind.div_ceil(revolution.as_nanos()).max(1);
        pass = pass.rest(late, first, true);
    }
}

fn arrived_at(supply: &Incoming, lbn: u64) -> Instant {
    supply.from + supply.block * (lbn - supply.lbn + 1)
}
