//! One pass over (part of) a track: seek or head switch, wait, and the blocks going by one after the other.
//!
//! A pass is straight lines in time, so "how far is it at t" and "when has block j gone by" are divisions, and
//! reading ahead costs nothing per sector.

use super::arm::{Arm, Motion, Position};
use super::zones::PhysicalAddress;
use henge_core::{Duration, Instant};

/// A run of blocks of one track, and when each goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub lbn: u64,
    pub blocks: u32,
    pub address: PhysicalAddress,
    /// When the head is on the track.
    pub on_track: Instant,
    /// When the first block starts to go by.
    pub first: Instant,
    /// How long all of them take.
    span: Duration,
    /// The head is on the track and lets blocks go by until `first`: it can leave after any of them.
    idle: bool,
}

impl Pass {
    /// From `position` at `t` to `blocks` blocks from `lbn` on, of which those on one track are taken.
    pub fn plan(arm: &Arm, from: Position, t: Instant, lbn: u64, blocks: u64, motion: Motion) -> Pass {
        Pass::to(arm, from, t, arm.geometry().locate(lbn), lbn, blocks, motion)
    }
    /// The same where block `lbn` is known to lie at `address`.
    pub fn to(
        arm: &Arm,
        from: Position,
        t: Instant,
        address: PhysicalAddress,
        lbn: u64,
        blocks: u64,
        motion: Motion,
    ) -> Pass {
        let on_track = t + arm.move_time(from, address.position(), motion);
        let first = arm.arrives(on_track, &address);
        let blocks = u64::from(address.left_on_track).min(blocks) as u32;
        Pass { lbn, blocks, address, on_track, first, span: arm.passing(&address, lbn, blocks), idle: false }
    }
    /// Over `blocks` blocks from `lbn` on, which lies at `address` and starts to go by at `first`.
    pub fn over(arm: &Arm, address: PhysicalAddress, lbn: u64, blocks: u32, first: Instant) -> Pass {
        Pass {
            lbn,
            blocks,
            address,
            on_track: first,
            first,
            span: arm.passing(&address, lbn, blocks),
            idle: false,
        }
    }
    /// The blocks from `skip` on, waiting for them until `first`.
    pub fn rest(&self, skip: u32, first: Instant, idle: bool) -> Pass {
        let on_track = self.passed(skip);
        let span = self.span.saturating_sub(on_track.since(self.first));
        let mut address = self.address;
        address.left_on_track -= skip;
        address.before_on_track += skip;
        Pass {
            lbn: self.lbn + u64::from(skip),
            blocks: self.blocks - skip,
            address,
            on_track,
            first,
            span,
            idle,
        }
    }
    /// The first `n` blocks alone.
    pub fn cut(&self, n: u32) -> Pass {
        Pass { blocks: n, span: self.passed(n).since(self.first), ..*self }
    }
    /// The block after the last.
    pub fn end_lbn(&self) -> u64 {
        self.lbn + u64::from(self.blocks)
    }
    /// When the first `n` blocks have gone by.
    pub fn passed(&self, n: u32) -> Instant {
        self.first + self.span.mul_ratio(u64::from(n), u64::from(self.blocks.max(1)))
    }
    /// For a head that may start anywhere: if it lands among the blocks, how many of them lie before that place
    /// (they come by last); else 0.
    pub fn landed_at(&self, arm: &Arm) -> u32 {
        let revolution = arm.spindle().revolution();
        if self.blocks < 2 || self.first.since(self.on_track) > revolution {
            return 0;
        }
        // One revolution earlier the same blocks went by; those that had started when the head came are missed.
        let earlier = Pass { first: self.first - revolution, ..*self };
        if earlier.first + self.span <= self.on_track {
            return 0;
        }
        let landed = earlier.passed_at(self.on_track);
        let partly = earlier.passed(landed) < self.on_track;
        let head_part = landed + u32::from(partly);
        if head_part < self.blocks { head_part } else { 0 }
    }
    /// How long all of them take.
    pub fn span(&self) -> Duration {
        self.span
    }
    /// When all have.
    pub fn end(&self) -> Instant {
        self.first + self.span
    }
    /// How many have gone by at `t`.
    pub fn passed_at(&self, t: Instant) -> u32 {
        if t >= self.end() {
            return self.blocks;
        }
        // One more nanosecond, since `passed` rounds down: what has passed at its own time counts.
        let since = t.since(self.first).as_nanos();
        if t < self.first {
            return 0;
        }
        let n =
            Duration::from_nanos(since + 1).mul_ratio(u64::from(self.blocks), self.span.as_nanos().max(1));
        let n = n.as_nanos() as u32;
        if self.passed(n) <= t { n } else { n - 1 }
    }
    /// When the head can leave, if told to at `t`: a seek under way is finished, and, unless the drive stops within a
    /// sector, the wait or the sector.
    pub fn can_leave(&self, t: Instant, within_sector: bool) -> Instant {
        if t <= self.on_track {
            self.on_track
        } else if within_sector || t >= self.end() {
            t
        } else if t <= self.first && !self.idle {
            self.first
        } else if t <= self.first {
            let sector = (self.span.as_nanos() / u64::from(self.blocks.max(1))).max(1);
            let sectors = t.since(self.on_track).as_nanos().div_ceil(sector);
            (self.on_track + Duration::from_nanos(sector) * sectors).min(self.first)
        } else {
            let n = self.passed_at(t);
            let boundary = self.passed(n);
            if boundary >= t { boundary } else { self.passed(n + 1) }
        }
    }
}
