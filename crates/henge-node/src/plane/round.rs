//! What gates may copy in memory in one round of the loop, and for whom they did; which disks have more answers than fit in one.

use henge_core::Duration;
use std::collections::VecDeque;
use std::time::Instant;

/// What a request counts of a round beside the bytes that it copies: passing it on takes about as long as copying so many.
pub(super) const REQUEST: u64 = 2 << 10;

/// Requests between two looks at the clock. A durable write through the page cache takes the loop 10 us, and a look some 25 ns.
const LOOK: u32 = 2;

/// A round of the loop.
pub(crate) struct Round {
    /// Bytes that gates may still copy in it.
    left: u64,
    /// When it is over at the latest: what the kernel does for requests while they are asked for has no fixed price. `None` where no real
    /// time passes.
    until: Option<Instant>,
    /// When gates are to be looked at again, whatever has been moved until then by estimate.
    step: Option<Instant>,
    /// It was seen to be over.
    timed_out: bool,
    /// Requests until the clock is looked at.
    unseen: u32,
    /// Disks whose bytes were copied, and how many: the loop charges them for it.
    copied: Vec<(usize, u64)>,
    /// Disks with commands that are over and were not taken …
    unanswered: VecDeque<usize>,
    /// … and whether a disk is there.
    is_unanswered: Vec<bool>,
}

impl Round {
    pub(super) fn new() -> Round {
        Round {
            left: u64::MAX,
            until: None,
            step: None,
            timed_out: false,
            unseen: LOOK,
            copied: Vec::new(),
            unanswered: VecDeque::new(),
            is_unanswered: Vec::new(),
        }
    }

    /// One begins, in which gates may copy `bytes` bytes in memory.
    pub(crate) fn begin(&mut self, bytes: u64) {
        self.left = bytes;
        self.timed_out = false;
        self.unseen = LOOK;
    }

    /// The one that begins next is over then, whatever its requests have cost by estimate.
    pub(crate) fn ends_at(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Whether its time is over: whoever is at a piece ends it.
    pub(super) fn has_timed_out(&self) -> bool {
        self.timed_out
    }

    /// Whether its time is over now: whoever has its processor meanwhile takes of it, too.
    pub(crate) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Bytes are moved, for so long at most, and then gates are looked at: who was read first does not wait for what somebody else's question
    /// costs the kernel. No longer than the round; where no real time passes it has no end.
    pub(crate) fn begin_step(&mut self, time: Duration) {
        self.step = self
            .until
            .map(|until| until.min(Instant::now() + std::time::Duration::from_nanos(time.as_nanos())));
    }

    /// Whether the step has had its time.
    pub(crate) fn is_step_over(&self) -> bool {
        self.step.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether it has done its part.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// A gate has passed a request on, or several of one disk were answered: so much of the round is done.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        self.unseen -= 1;
        if self.unseen == 0 {
            self.unseen = LOOK;
            if self.until.is_some_and(|until| Instant::now() >= until) {
                (self.left, self.timed_out) = (0, true);
            }
        }
    }

    /// A disk's bytes were copied: its turns come later for it.
    pub(crate) fn note(&mut self, disk: usize, bytes: u64) {
        self.copied.push((disk, bytes));
    }

    /// What was copied since this was asked last.
    pub(crate) fn next_copied(&mut self) -> Option<(usize, u64)> {
        self.copied.pop()
    }

    /// Some of a disk's commands are over and wait to be taken.
    pub(super) fn put_unanswered(&mut self, disk: usize) {
        if self.is_unanswered.len() <= disk {
            self.is_unanswered.resize(disk + 1, false);
        }
        if !std::mem::replace(&mut self.is_unanswered[disk], true) {
            self.unanswered.push_back(disk);
        }
    }

    /// Whether some of a disk's are.
    pub(super) fn is_unanswered(&self, disk: usize) -> bool {
        self.is_unanswered.get(disk).is_some_and(|is| *is)
    }

    /// Whether any disk's are.
    pub(super) fn has_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// The disk whose turn it is to have some taken.
    pub(super) fn next_unanswered(&mut self) -> Option<usize> {
        let disk = self.unanswered.pop_front()?;
        self.is_unanswered[disk] = false;
        Some(disk)
    }
}
