//! A trace as a source of requests: its times moved to the run's, its addresses put on the run's disk.
//!
//! - *Time.* The first record comes at the start; later ones at their distance from it divided by `speed`.
//! - *Order.* A trace whose times run backwards is refused with its line, unless `reorder` records are kept to
//!   sort them as they pass (traces recorded by several processors are out of order by a little), or `backwards =
//!   "clamp"` lets a late record leave with its predecessor.
//! - *Addresses.* `refuse` (the default) takes addresses as they are, and a request beyond the end of the disk is an error.
//!   `wrap` takes the offset modulo the disk (locality survives, except at the seam). `scale` multiplies offsets by
//!   capacity / extent, aligned to 4 KiB and moved back where the end would be passed (distances shrink or grow,
//!   adjacency is lost). With `devices = n` the disk is divided into n equal slices, and the trace's k-th device (in
//!   order of appearance) lives in slice k mod n; without it all devices share the disk's addresses.
//!
//! Example: speed 1.25, a record 10 s after the first is sent at 8 s.

use crate::{Dedup, Record, TraceError};
use henge_core::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

/// Where records come from.
pub trait Source: Iterator<Item = Result<Record, TraceError>> + Send {
    /// What errors call it, if it has a name.
    fn name(&self) -> &str {
        ""
    }
    /// The line of the record that came last; 0 where there are no lines.
    fn line(&self) -> u64 {
        0
    }
}

impl Source for std::vec::IntoIter<Result<Record, TraceError>> {}

/// A stream of records: a [`Trace`](crate::Trace), or anything else that yields them.
pub type Records = Box<dyn Source>;

/// How a trace's addresses become the disk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Addressing {
    /// As they are; beyond the end is an error.
    #[default]
    Refuse,
    /// Modulo the disk.
    Wrap,
    /// Times capacity / extent.
    Scale {
        /// The trace's own address space in bytes.
        extent: u64,
    },
}

/// How a trace is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// How much faster than recorded, in millionths; 0 forgets the times altogether.
    pub speed: u64,
    /// Addresses.
    pub addressing: Addressing,
    /// Slices of the disk; devices of the trace are dealt to them.
    pub devices: u32,
    /// Only this device of the trace.
    pub only: Option<u32>,
    /// Records kept to sort by time.
    pub reorder: usize,
    /// Whether a record that is late even so leaves with its predecessor instead of being an error.
    pub clamp: bool,
    /// A record that repeats the previous one of its device within this span is left out.
    pub dedup: Option<Duration>,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions {
            speed: 1_000_000,
            addressing: Addressing::Refuse,
            devices: 1,
            only: None,
            reorder: 0,
            clamp: false,
            dedup: None,
        }
    }
}

/// Yields a trace's records with the run's times and the disk's addresses.
pub struct Replay {
    records: Records,
    options: ReplayOptions,
    /// Bytes of one slice.
    slice: u64,
    base: u64,
    start: Instant,
    /// The first record's time in the trace.
    origin: Option<Instant>,
    /// Records waiting to be sorted: by time, then by arrival in the file.
    sorter: BinaryHeap<Reverse<(Instant, u64, Sortable)>>,
    taken: u64,
    last: Instant,
    slices: BTreeMap<u32, u32>,
    dedup: Option<Dedup>,
    error: Option<TraceError>,
    ended: bool,
}

/// A record and its line. Compares equal to all others: time and number decide alone.
#[derive(Clone, Copy, Debug)]
struct Sortable(Record, u64);
impl PartialEq for Sortable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Sortable {}
impl PartialOrd for Sortable {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Sortable {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("options", &self.options)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl Replay {
    /// Replays `records` from `start` on, over the `span` bytes of the disk that begin at `base`.
    pub fn new(records: Records, options: ReplayOptions, base: u64, span: u64, start: Instant) -> Self {
        let slice = span / u64::from(options.devices.max(1)) / 4096 * 4096;
        let slice = if options.devices > 1 { slice } else { span };
        let dedup = options.dedup.map(Dedup::new);
        Replay {
            records,
            options,
            slice,
            base,
            start,
            origin: None,
            sorter: BinaryHeap::new(),
            taken: 0,
            last: Instant::ZERO,
            slices: BTreeMap::new(),
            dedup,
            error: None,
            ended: false,
        }
    }

    /// The next record; an error ends the replay.
    pub fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        while !self.ended && self.sorter.len() <= self.options.reorder {
            match self.records.next() {
                None => self.ended = true,
                Some(Err(error)) => {
                    self.error = Some(error);
                    self.ended = true;
                }
                Some(Ok(record)) => self.keep(record),
            }
        }
        let Some(Reverse((_, number, Sortable(record, line)))) = self.sorter.pop() else {
            return self.error.take().map_or(Ok(None), Err);
        };
        self.placed(record, number, line).map(Some)
    }

    fn keep(&mut self, record: Record) {
        self.taken += 1;
        if self.options.only.is_some_and(|only| only != record.device) {
            return;
        }
        if self.dedup.as_mut().is_some_and(|dedup| dedup.repeats(&record)) {
            return;
        }
        let line = self.records.line();
        self.sorter.push(Reverse((record.at, self.taken, Sortable(record, line))));
    }

    /// A record with the run's time and the disk's address.
    fn placed(&mut self, record: Record, number: u64, line: u64) -> Result<Record, TraceError> {
        let origin = *self.origin.get_or_insert(record.at);
        let mut at = if self.options.speed == 0 { origin } else { record.at };
        if at < self.last.max(origin) {
            if !self.options.clamp {
                self.ended = true;
                self.sorter.clear();
                let (place, by) = (self.place(line), self.last.max(origin).since(at));
                return Err(TraceError::Backwards { place, record: number, by });
            }
            at = self.last.max(origin);
        }
        self.last = at;
        let at = self.start + at.since(origin).mul_ratio(1_000_000, self.options.speed.max(1));
        let slices = self.slices.len() as u32;
        let slice = if self.options.devices > 1 {
            *self.slices.entry(record.device).or_insert(slices % self.options.devices)
        } else {
            0
        };
        let beyond =
            |place| TraceError::Beyond { place, record: number, end: record.end(), capacity: self.slice };
        let offset = self.offset(&record).ok_or_else(|| beyond(self.place(line)))?;
        Ok(Record { at, offset: self.base + u64::from(slice) * self.slice + offset, ..record })
    }

    /// For messages: which line of which file.
    fn place(&self, line: u64) -> String {
        if line == 0 { String::new() } else { format!("{}:{line}: ", self.records.name()) }
    }

    /// Where the record lies on the disk, if it does.
    fn offset(&self, record: &Record) -> Option<u64> {
        let room = self.slice.checked_sub(record.len)?;
        match self.options.addressing {
            Addressing::Refuse => Some(record.offset).filter(|offset| *offset <= room),
            Addressing::Wrap => {
                let at = record.offset % self.slice;
                // What would pass the end begins at the start.
                Some(if at > room { 0 } else { at })
            }
            Addressing::Scale { extent } => {
                let at = u128::from(record.offset) * u128::from(self.slice) / u128::from(extent);
                let at = u64::try_from(at).unwrap_or(u64::MAX) / 4096 * 4096;
                Some(at.min(room / 512 * 512))
            }
        }
    }
}
