//! What a stream of requests is like: amounts, mix, sizes, locality, burstiness.
//!
//! One pass, in memory that is bounded whatever comes. Locality: a request is *strictly sequential* when it begins
//! where the previous one of its device ended, *nearly* when it begins where one of the previous 32 ended. Burstiness:
//! the index of dispersion of counts (variance / mean), for spans from 1 ms to 100 s.

use crate::Record;
use crate::bins::{Bins, Timeline};
use crate::distinct::{Distinct, mixed};
use henge_core::{Duration, Histogram, Instant, Op};
use std::collections::BTreeMap;

/// Ends that are remembered for each device.
const ENDS: usize = crate::RECENT;
/// Devices and sizes that are told apart; the others count together.
const KINDS_MAX: usize = 65_536;
/// First requests among which the earliest is looked for.
const EARLY: usize = 4096;
/// Points kept for a picture of addresses over time.
const POINTS: usize = 4_000;
/// Widths of the bins for the index of dispersion, in milliseconds.
const WIDTHS_MS: [u64; 6] = [1, 10, 100, 1_000, 10_000, 100_000];

/// Requests and bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub requests: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// The largest size.
    pub largest: u64,
}

impl Amount {
    fn add(&mut self, len: u64) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(len);
        self.largest = self.largest.max(len);
    }
    /// Mean size in KiB; `None` for none.
    pub fn mean_kib(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.bytes as f64 / self.requests as f64 / 1024.0)
    }
}

#[derive(Clone, Debug)]
struct Device {
    requests: u64,
    ends: [u64; ENDS],
    next: usize,
    known: usize,
}

/// How near requests are to the ones before them.
#[derive(Clone, Debug, Default)]
struct Locality {
    devices: BTreeMap<u32, Device>,
    strict: u64,
    near: u64,
}

impl Locality {
    fn count(&mut self, record: &Record) {
        let known = self.devices.len() < KINDS_MAX || self.devices.contains_key(&record.device);
        let device = self.devices.entry(if known { record.device } else { u32::MAX }).or_insert(Device {
            requests: 0,
            ends: [0; ENDS],
            next: 0,
            known: 0,
        });
        device.requests += 1;
        let last = (device.next + ENDS - 1) % ENDS;
        self.strict += u64::from(device.known > 0 && device.ends[last] == record.offset);
        self.near += u64::from(device.ends[..device.known].contains(&record.offset));
        device.ends[device.next] = record.end();
        device.next = (device.next + 1) % ENDS;
        device.known = (device.known + 1).min(ENDS);
    }
}

/// When requests came.
#[derive(Clone, Debug)]
struct Times {
    first: Option<Instant>,
    earliest: Instant,
    latest: Instant,
    previous: Instant,
    backwards: u64,
    gaps: Histogram,
    bins: Vec<Bins>,
    /// The first times, kept until it is known which is the earliest: bins begin there.
    early: Option<Vec<Instant>>,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            first: None,
            earliest: Instant::FAR,
            latest: Instant::ZERO,
            previous: Instant::ZERO,
            backwards: 0,
            gaps: Histogram::default(),
            bins: WIDTHS_MS.iter().map(|ms| Bins::new(Duration::from_millis(*ms))).collect(),
            early: Some(Vec::new()),
        }
    }
}

impl Times {
    fn count(&mut self, at: Instant) {
        if self.first.is_some() {
            self.backwards += u64::from(at < self.previous);
            self.gaps.record(at.since(self.previous));
        }
        self.first.get_or_insert(at);
        self.previous = at;
        self.earliest = self.earliest.min(at);
        self.latest = self.latest.max(at);
        match &mut self.early {
            Some(early) if early.len() < EARLY => early.push(at),
            _ => {
                let (early, origin) = (self.early.take().unwrap_or_default(), self.earliest);
                for bins in &mut self.bins {
                    bins.count_all(&early, origin);
                    bins.count(at);
                }
            }
        }
    }

    /// The bins, with the requests that still wait to be sorted in.
    fn binned(&self, which: usize) -> Bins {
        let mut bins = self.bins[which].clone();
        if let Some(early) = &self.early {
            bins.count_all(early, self.earliest);
        }
        bins
    }
}

/// Where requests lie.
#[derive(Clone, Debug, Default)]
struct Addresses {
    max_start: u64,
    max_end: u64,
    unaligned: u64,
    starts: Distinct,
}

impl Addresses {
    fn count(&mut self, record: &Record) {
        // 64 bits for device and block: two of n pairs fall together with probability n² / 2^65.
        self.starts.add(mixed(u64::from(record.device)) ^ (record.offset / 4096));
        self.max_start = self.max_start.max(record.offset);
        self.max_end = self.max_end.max(record.end());
        self.unaligned += u64::from(!record.offset.is_multiple_of(4096) || !record.len.is_multiple_of(4096));
    }
}

/// An even sample of the records.
#[derive(Clone, Debug)]
struct Sample {
    points: Vec<Record>,
    /// Every how many requests a point is kept.
    stride: u64,
}

impl Sample {
    /// The record is number `requests` of all.
    fn count(&mut self, record: &Record, requests: u64) {
        if requests.is_multiple_of(self.stride) {
            self.points.push(*record);
            if self.points.len() >= 2 * POINTS {
                let mut keep = false;
                self.points.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
        }
    }
}

/// Gathers statistics of a stream of records.
#[derive(Clone, Debug)]
pub struct Stats {
    kinds: [Amount; 5],
    sizes: [BTreeMap<u64, u64>; 2],
    locality: Locality,
    addresses: Addresses,
    times: Times,
    timeline: Timeline,
    sample: Sample,
}

impl Default for Stats {
    fn default() -> Self {
        Stats {
            kinds: Default::default(),
            sizes: Default::default(),
            locality: Locality::default(),
            addresses: Addresses::default(),
            times: Times::default(),
            timeline: Timeline::default(),
            sample: Sample { points: Vec::new(), stride: 1 },
        }
    }
}

impl Stats {
    /// Counts one record.
    pub fn count(&mut self, record: &Record) {
        self.kinds[record.op as usize].add(record.len);
        self.locality.count(record);
        self.times.count(record.at);
        self.timeline.count(record.at, record.len);
        self.addresses.count(record);
        if matches!(record.op, Op::Read | Op::Write) {
            let sizes = &mut self.sizes[usize::from(record.op == Op::Write)];
            let known = sizes.len() < KINDS_MAX || sizes.contains_key(&record.len);
            *sizes.entry(if known { record.len } else { record.len.next_power_of_two() }).or_default() += 1;
        }
        self.sample.count(record, self.requests());
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.kinds.iter().map(|k| k.requests).sum()
    }
    /// Requests and bytes of one operation.
    pub fn of(&self, op: Op) -> Amount {
        self.kinds[op as usize]
    }
    /// Requests and bytes of all operations.
    pub fn all(&self) -> Amount {
        let mut all = Amount::default();
        for kind in self.kinds {
            all.requests += kind.requests;
            all.bytes = all.bytes.saturating_add(kind.bytes);
            all.largest = all.largest.max(kind.largest);
        }
        all
    }
    /// From the earliest to the latest request.
    pub fn duration(&self) -> Duration {
        self.times.latest.since(self.times.earliest)
    }
    /// When the earliest request came, in the trace's own time.
    pub fn earliest(&self) -> Instant {
        self.times.earliest
    }
    /// Requests per second over the whole length; `None` without length.
    pub fn mean_iops(&self) -> Option<f64> {
        let seconds = self.duration().as_secs_f64();
        (seconds > 0.0).then(|| self.requests() as f64 / seconds)
    }
    /// Most requests in one second, counted in bins from the earliest request on.
    pub fn peak_second(&self) -> u64 {
        self.times.binned(3).most()
    }
    /// Reads among all, in percent.
    pub fn read_percent(&self) -> f64 {
        percent(self.of(Op::Read).requests, self.requests())
    }
    /// How many devices, and the share of the busiest in percent.
    pub fn devices(&self) -> (usize, f64) {
        let busiest = self.locality.devices.values().map(|d| d.requests).max().unwrap_or(0);
        (self.locality.devices.len(), percent(busiest, self.requests()))
    }
    /// Strictly sequential requests, in percent.
    pub fn sequential_percent(&self) -> f64 {
        percent(self.locality.strict, self.requests())
    }
    /// Requests that begin where one of the previous 32 ended, in percent.
    pub fn near_percent(&self) -> f64 {
        percent(self.locality.near, self.requests())
    }
    /// The largest first byte.
    pub fn max_start(&self) -> u64 {
        self.addresses.max_start
    }
    /// The byte after the last: how large a disk the trace needs.
    pub fn max_end(&self) -> u64 {
        self.addresses.max_end
    }
    /// Requests that are not whole 4 KiB blocks, in percent.
    pub fn unaligned_percent(&self) -> f64 {
        percent(self.addresses.unaligned, self.requests())
    }
    /// Different 4 KiB blocks at which requests begin, over all devices, and whether that is exact.
    pub fn distinct_starts(&self) -> (u64, bool) {
        self.addresses.starts.count()
    }
    /// Requests earlier than their predecessor.
    pub fn backwards(&self) -> u64 {
        self.times.backwards
    }
    /// Sizes of reads (or writes) with their counts, ascending.
    pub fn sizes(&self, op: Op) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.sizes[usize::from(op == Op::Write)].iter().map(|(size, n)| (*size, *n))
    }
    /// Sizes of reads and writes together with their counts, the most frequent first.
    pub fn common_sizes(&self) -> Vec<(u64, u64)> {
        let mut both = self.sizes[0].clone();
        for (size, n) in &self.sizes[1] {
            *both.entry(*size).or_default() += n;
        }
        let mut all: Vec<_> = both.into_iter().collect();
        all.sort_by_key(|(size, n)| (std::cmp::Reverse(*n), *size));
        all
    }
    /// Index of dispersion for counts in bins of each width; `None` where the trace has fewer than ten.
    pub fn dispersion(&self) -> Vec<(Duration, Option<f64>)> {
        let each = |(i, ms): (usize, &u64)| (Duration::from_millis(*ms), self.times.binned(i).dispersion());
        WIDTHS_MS.iter().enumerate().map(each).collect()
    }
    /// Times between one request and the next.
    pub fn gaps(&self) -> &Histogram {
        &self.times.gaps
    }
    /// Rates over time.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }
    /// An even sample of the records, for a picture of addresses over time.
    pub fn points(&self) -> &[Record] {
        &self.sample.points
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
