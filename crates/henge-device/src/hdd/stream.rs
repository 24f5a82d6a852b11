//! Blocks coming off the platter into a segment: what a read needs, and read-ahead behind it.
//!
//! Only the pass over the current track is planned; the next follows when somebody asks about a later time.
//! While the host has not yet got all it asked for, the segment must not overflow: a block that finds no room
//! is missed, and comes by again a revolution later.

use super::arm::{Arm, Motion, Position};
use super::facts::Prefetch;
use super::pass::Pass;
use henge_core::{Duration, Instant};

/// The host taking the blocks `start..end` out, one each `block`. Those before `lbn` are all taken by `before`, the
/// others follow from `from` on without a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub start: u64,
    pub lbn: u64,
    pub end: u64,
    pub before: Instant,
    pub from: Instant,
    pub block: Duration,
}

impl Drain {
    /// The same where the next block comes with `pass`: not before that.
    fn with(self, pass: &Pass) -> Drain {
        if self.lbn >= self.end || !(pass.lbn..pass.end_lbn()).contains(&self.lbn) {
            return self;
        }
        Drain { from: self.from.max(pass.passed((self.lbn - pass.lbn) as u32 + 1)), ..self }
    }
    /// When the host has all.
    fn until(&self) -> Instant {
        if self.lbn < self.end { self.from + self.block * (self.end - self.lbn) } else { self.before }
    }
    /// When there is room for `lbn` in a segment of `size` blocks.
    pub fn space_at(&self, lbn: u64, size: u64) -> Instant {
        let taken = (lbn + 1).saturating_sub(size).min(self.end);
        if taken <= self.start {
            Instant::ZERO
        } else if taken <= self.lbn {
            let since = (self.block * (self.lbn - taken)).as_nanos();
            Instant::from_nanos(self.before.as_nanos().saturating_sub(since))
        } else {
            self.from + self.block * (taken - self.lbn)
        }
    }
}

/// A read under way, or read-ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub segment: usize,
    pub pass: Pass,
    /// Where it ends at the latest.
    pub limit: u64,
    pub drain: Drain,
    /// Blocks of one segment.
    pub size: u64,
    pub mode: Prefetch,
}

impl Stream {
    /// Where the head is.
    pub fn position(&self) -> Position {
        self.pass.address.position()
    }

    /// Plans the next pass; `None` when there is nothing more to read. `needed` blocks are read wherever they
    /// lie; read-ahead behind them keeps to its track or cylinder if told so.
    pub fn next_pass(&self, arm: &Arm, needed: u64) -> Option<Pass> {
        let lbn = self.pass.end_lbn();
        if lbn >= self.limit {
            return None;
        }
        let address = arm.geometry().after(&self.pass.address, self.pass.lbn, self.pass.blocks);
        let (end, left) = (self.pass.end(), self.limit - lbn);
        let pass = Pass::to(arm, self.position(), end, address, lbn, left, Motion::Read);
        let from = self.pass.address;
        let stays = match self.mode {
            Prefetch::Track => from.position() == pass.address.position(),
            Prefetch::Cylinder => from.cylinder == pass.address.cylinder,
            _ => true,
        };
        (stays || lbn < needed).then(|| self.fit(arm, pass))
    }

    /// Cuts a pass where the segment overflows, or delays it when its first block already finds no room.
    pub fn fit(&self, arm: &Arm, pass: Pass) -> Pass {
        let drain = self.drain.with(&pass);
        let until = drain.until();
        let fits = |n: u32| {
            let starts = pass.passed(n);
            starts >= until || drain.space_at(pass.lbn + u64::from(n), self.size) <= starts
        };
        if pass.end_lbn() <= drain.start + self.size {
            return pass;
        }
        if !fits(0) {
            let late = drain.space_at(pass.lbn, self.size).since(pass.first).as_nanos();
            let revolution = arm.spindle().revolution();
            let first = pass.first + revolution * late.div_ceil(revolution.as_nanos()).max(1);
            return self.fit(arm, pass.rest(0, first, true));
        }
        // The last that comes before the host has all: what comes later finds room.
        let last = pass.passed_at(until).min(pass.blocks - 1);
        let last = if pass.passed(last) < until { last } else { last.saturating_sub(1) };
        if fits(last) {
            return pass;
        }
        // Up to there blocks come faster than they are taken, so those that fit come first. How late the last one is says
        // about how many before it are late, too.
        let late = drain.space_at(pass.lbn + u64::from(last), self.size).since(pass.passed(last));
        let sector = pass.span().as_nanos() / u64::from(pass.blocks);
        let gain = drain.block.as_nanos().saturating_sub(sector).max(1);
        let mut guess = last.saturating_sub((late.as_nanos() / gain).min(u64::from(last)) as u32);
        let (mut fit, mut not) = (0, last);
        while fit + 1 < not {
            let at = guess.clamp(fit + 1, not - 1);
            if fits(at) {
                (fit, guess) = (at, if at == guess { at + 1 } else { at + (not - at) / 2 });
            } else {
                (not, guess) = (at, if at == guess { at - 1 } else { fit + (at - fit) / 2 });
            }
        }
        pass.cut(not)
    }

    /// Splits the current pass at `t`, so that what is still to come can be fitted anew.
    pub fn resume(&mut self, t: Instant) {
        let passed = self.pass.passed_at(t);
        if passed > 0 && passed < self.pass.blocks {
            self.pass = self.pass.rest(passed, self.pass.passed(passed), false);
        }
    }
    /// Goes on until `t`.
    pub fn advance(&mut self, arm: &Arm, t: Instant) {
        while self.pass.end() <= t {
            match self.next_pass(arm, 0) {
                Some(pass) => self.pass = pass,
                None => return,
            }
        }
    }
    /// When it ends if nobody stops it.
    pub fn ends(&mut self, arm: &Arm) -> Instant {
        while let Some(pass) = self.next_pass(arm, 0) {
            self.pass = pass;
        }
        self.pass.end()
    }
    /// When all blocks before `lbn` are in, or it ends; it is brought there.
    pub fn reaches(&mut self, arm: &Arm, lbn: u64) -> Instant {
        while self.pass.end_lbn() < lbn {
            match self.next_pass(arm, 0) {
                Some(pass) => self.pass = pass,
                None => return self.pass.end(),
            }
        }
        self.pass.passed(lbn.saturating_sub(self.pass.lbn) as u32)
    }
    /// Whether it is over at `t`, for a stream advanced to it.
    pub fn is_over(&self, arm: &Arm, t: Instant) -> bool {
        self.pass.end() <= t && self.next_pass(arm, 0).is_none()
    }
    /// The block after the last that is in at `t`, for a stream advanced to it.
    pub fn end_at(&self, t: Instant) -> u64 {
        self.pass.lbn + u64::from(self.pass.passed_at(t))
    }
}
