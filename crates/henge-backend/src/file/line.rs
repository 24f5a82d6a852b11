//! How many syncs are under way at once, and which files wait for a place.
//!
//! # The problem
//! Through the page cache a sync is work of the processor: it finds pages, hands them to the device, and waits four times. Four at once of a quick
//! device were 5,700 a second, for 34,000 writes. Their workers had half of the loop's processor. A neighbour's read waited for a place at the
//! storage, where a write waited for them.
//!
//! # The rule
//! Where a sync takes less than [`QUICK`], one is under way at a time; else [`SYNCS`] are. Meanwhile writes gather for the next one. One that is not
//! over after [`PATIENCE`] holds up no other file: another begins beside it, up to [`SYNCS`].
//!
//! The time of a sync is divided by those that were under way when it began, since they share the device and the processor. Of such times a quarter
//! of each new one counts. Past the page cache a sync is a flush of the device's cache, and [`SYNCS`] are always under way.
//!
//! # Example
//! A device flushes in 0.1 ms: four syncs at once take 0.7 ms each, which is 0.18 ms for one. From then on there is one at a time. A disk needs 5 ms,
//! for one sync or for four: four at once take 1.25 ms each, so it stays at four.

use henge_core::{Duration, Instant};
use std::collections::VecDeque;
use std::os::fd::RawFd;

/// Most syncs under way on all files of a pool. Each keeps a worker of the kernel, which wants the loop's processor when it is over.
pub(super) const SYNCS: u32 = 4;

/// What takes less is the processor's work more than the device's.
const QUICK: Duration = Duration::from_micros(500);

/// So long a sync has its pool to itself.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

/// When a sync began, and how many were under way then.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    at: Instant,
    among: u32,
}

/// The syncs of all files of a pool.
pub(super) struct Line {
    /// Under way.
    pub under_way: u32,
    /// Files that want one, and have to wait for another file's.
    waiting: VecDeque<RawFd>,
    /// What one takes; unknown at first.
    each: Option<Duration>,
    /// Their data comes by way of the page cache.
    cached: bool,
    pub now: Instant,
    /// When the last one began.
    last: Instant,
}

impl Line {
    pub(super) fn new(cached: bool) -> Line {
        let (now, last) = (Instant::ZERO, Instant::ZERO);
        Line { under_way: 0, waiting: VecDeque::new(), each: None, cached, now, last }
    }

    /// Whether another one may begin.
    pub(super) fn has_place(&self) -> bool {
        let quick = self.cached && self.each.is_some_and(|each| each < QUICK);
        match self.under_way {
            0 => true,
            n => n < SYNCS && (!quick || self.now >= self.last + PATIENCE),
        }
    }

    /// Whether another one may begin that nobody has waited for.
    pub(super) fn is_free(&self) -> bool {
        self.waiting.is_empty() && self.has_place()
    }

    pub(super) fn wait(&mut self, fd: RawFd) {
        self.waiting.push_back(fd);
    }

    /// The file that has waited longest, where there is a place for it.
    pub(super) fn next(&mut self) -> Option<RawFd> {
        if self.has_place() { self.waiting.pop_front() } else { None }
    }

    /// When somebody waits who is not to wait for those that are under way.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        (!self.waiting.is_empty() && self.under_way < SYNCS).then(|| self.last + PATIENCE)
    }

    pub(super) fn forget(&mut self, fd: RawFd) {
        self.waiting.retain(|waits| *waits != fd);
    }

    pub(super) fn begin(&mut self) -> Begun {
        self.under_way += 1;
        self.last = self.now;
        Begun { at: self.now, among: self.under_way }
    }

    /// One has taken its time; its place is given back elsewhere.
    pub(super) fn took(&mut self, begun: Begun) {
        let took = self.now.since(begun.at).mul_ratio(1, u64::from(begun.among));
        self.each = Some(self.each.map_or(took, |each| each.mul_ratio(3, 4) + took.mul_ratio(1, 4)));
    }
}
