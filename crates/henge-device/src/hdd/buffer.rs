//! The drive's buffer: a few segments, each holding one contiguous run of blocks.
//!
//! A read is a hit when its first block is in a segment; the rest may still have to come. A miss takes an empty
//! segment, else the one used longest ago. A write takes a segment the same way (a clean one that overlaps it
//! first) and empties the others that overlap it, since what they hold is old; read-ahead under way keeps what
//! lies behind the write.

use super::facts::Cache;

/// One contiguous run of blocks, `start..end`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub start: u64,
    pub end: u64,
    /// How far read-ahead may go.
    pub limit: u64,
    /// How far it goes at least before another command can stop it.
    pub least: u64,
    written: bool,
    used: u64,
}

impl Segment {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }
    /// Blocks came in up to `end`; those that fell out at the other side are forgotten.
    pub fn grow(&mut self, end: u64, size: u64) {
        self.end = self.end.max(end);
        self.start = self.start.max(self.end.saturating_sub(size));
    }
}

/// All segments.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    segments: Vec<Segment>,
    size: u64,
    enabled: bool,
    hits_on_writes: bool,
    /// Segment 0 is for writes alone.
    separate_write: bool,
    clock: u64,
}

impl Buffer {
    pub fn new(cache: &Cache, segments: u32) -> Self {
        let separate_write = cache.write.separate_segment && segments > 1;
        Buffer {
            segments: vec![Segment::default(); segments as usize],
            size: u64::from(cache.segment_sectors),
            enabled: cache.enabled,
            hits_on_writes: cache.write.read_hits,
            separate_write,
            clock: 0,
        }
    }
    /// Blocks of a segment.
    pub fn size(&self) -> u64 {
        self.size
    }
    pub fn get(&self, index: usize) -> &Segment {
        &self.segments[index]
    }
    pub fn get_mut(&mut self, index: usize) -> &mut Segment {
        &mut self.segments[index]
    }

    /// The segment that holds block `lbn`: rather one that holds all up to `end`, then the one used last.
    pub fn find(&self, lbn: u64, end: u64) -> Option<usize> {
        if !self.enabled {
            return None;
        }
        let holds = |s: &Segment| s.start <= lbn && lbn < s.end && (self.hits_on_writes || !s.written);
        let readable = |i: usize| !(self.separate_write && i == 0);
        let found = self.segments.iter().enumerate().filter(|(i, s)| readable(*i) && holds(s));
        found.max_by_key(|(_, s)| (s.end >= end, s.used)).map(|(i, _)| i)
    }

    /// Takes a segment for a miss at `lbn`, and empties it; `active` is taken only when there is no other.
    pub fn take_for_read(&mut self, lbn: u64, active: Option<usize>) -> usize {
        let from = usize::from(self.separate_write);
        let index = self.oldest(from.., active, |_| false);
        self.reset(index, lbn, false);
        index
    }

    /// Takes a segment for a write of `lbn..end`, and forgets what it makes old.
    pub fn take_for_write(&mut self, lbn: u64, end: u64, active: Option<usize>) -> usize {
        let overlaps = |s: &Segment| s.start < end && lbn < s.end;
        let inactive = |(i, s): &(usize, &Segment)| active != Some(*i) && overlaps(s);
        let old = self.segments.iter().enumerate().filter(inactive).map(|(i, _)| i).min();
        let index = if self.separate_write { 0 } else { self.oldest(0.., active, |i| old == Some(i)) };
        for (i, s) in self.segments.iter_mut().enumerate().filter(|(_, s)| overlaps(s)) {
            if active == Some(i) {
                // What read-ahead has fetched behind the write is still good, but it goes no further.
                s.start = end.min(s.end);
                (s.limit, s.least) = (s.end, s.end);
            } else {
                s.end = s.start;
            }
        }
        self.reset(index, lbn, true);
        index
    }

    /// A segment for a write that appends to the one that `index` holds.
    pub fn append(&mut self, index: usize, end: u64) {
        let start = self.segments[index].end;
        for (i, s) in self.segments.iter_mut().enumerate() {
            if i != index && s.start < end && start < s.end {
                s.end = s.start;
            }
        }
        self.touch(index);
    }

    /// Marks as used last.
    pub fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.segments[index].used = self.clock;
    }

    fn reset(&mut self, index: usize, lbn: u64, written: bool) {
        self.clock += 1;
        self.segments[index] =
            Segment { start: lbn, end: lbn, limit: 0, least: 0, written, used: self.clock };
    }

    fn oldest(
        &self,
        range: std::ops::RangeFrom<usize>,
        active: Option<usize>,
        prefer: impl Fn(usize) -> bool,
    ) -> usize {
        let rank = |(i, s): &(usize, &Segment)| {
            let class = match () {
                () if active == Some(*i) => 3,
                () if prefer(*i) => 0,
                () if s.is_empty() => 1,
                () => 2,
            };
            (class, s.used)
        };
        let first = range.start;
        let found = self.segments.iter().enumerate().skip(first).min_by_key(rank);
        found.map(|(i, _)| i).expect("a buffer has a segment for reads")
    }
}
