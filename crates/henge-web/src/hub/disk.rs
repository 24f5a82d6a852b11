//! A disk's figures: what its counters grew by since the last look, and the percentiles of the last looks.

use super::{push, tenth};
use crate::view::{DiskView, REASONS, Row};
use henge_api::{DiskStatus, Seconds};
use henge_core::{Duration, Histogram};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Looks that percentiles are of.
const WINDOW: usize = 10;
/// Edges of the heat map's buckets: powers of two from 32 µs on; the last holds the rest.
pub const HEAT: usize = 21;

/// A disk's figures at one look.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Point {
    /// Milliseconds since 1970, by the server's clock.
    pub t: u64,
    /// Commands a second.
    pub rate: f32,
    /// Bytes a second.
    pub bytes: f32,
    /// Percentiles of this second, microseconds.
    pub p50: f32,
    /// The same.
    pub p95: f32,
    /// The same.
    pub p99: f32,
    /// Mean wait of a request, microseconds.
    pub wait: f32,
    /// Mean service of a request.
    pub service: f32,
    /// Pending.
    pub pending: u32,
    /// Why it waited most of the second, by number.
    pub reason: u8,
    /// What was promised then: rate in its unit a second.
    pub promised: f32,
    /// Commands by latency.
    #[serde(skip)]
    pub heat: [u16; HEAT],
}

/// Counters of a disk on a node, as they were.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub commands: u64,
    pub bytes: u64,
    pub late: u64,
    pub wait: u64,
    pub service: u64,
    pub latency: Histogram,
    pub waits: [u64; REASONS.len()],
    pub metered: u64,
    /// How its promise was kept, day by day, as the node told last.
    pub days: BTreeMap<u64, Seconds>,
    pub is_known: bool,
}

/// Of the window: latencies by bucket, and how many were late.
pub(super) type Look = (Vec<(u16, u64)>, u64);

/// How much they grew.
#[derive(Clone, Debug, Default)]
pub(super) struct Grown {
    pub commands: u64,
    pub bytes: u64,
    pub late: u64,
    pub wait: u64,
    pub service: u64,
    pub latency: Vec<(u16, u64)>,
    pub waits: [u64; REASONS.len()],
    /// The longest time it took, on the clock of its node.
    pub seconds: f64,
}

pub(super) struct TrackedDisk {
    pub view: DiskView,
    pub on: BTreeMap<String, Counted>,
    pub window: VecDeque<Look>,
    pub latency: BTreeMap<u16, u64>,
    pub late: u64,
    pub row: Row,
    pub sent: Row,
    pub history: VecDeque<Point>,
    pub present: bool,
}

impl Counted {
    /// Adds what came since the last look to `grown`; commands and bytes of it.
    pub(super) fn grow(&mut self, status: &DiskStatus, again: bool, grown: &mut Grown) -> (u64, u64) {
        let latency = status.meters.histogram.as_ref().map(Histogram::from).unwrap_or_default();
        let mut waits = [0; REASONS.len()];
        for (i, reason) in REASONS.iter().enumerate().skip(1) {
            waits[i] = status.flow.waits.get(*reason).copied().unwrap_or(0);
        }
        let told = status.kept.as_ref().map(|kept| &kept.days).filter(|days| !days.is_empty());
        let new = Counted {
            days: told.cloned().unwrap_or_else(|| std::mem::take(&mut self.days)),
            commands: status.meters.commands,
            bytes: status.meters.bytes,
            late: status.meters.late,
            wait: status.flow.wait,
            service: status.flow.service,
            latency,
            waits,
            metered: status.meters.metered,
            is_known: true,
        };
        let first = !self.is_known;
        let old = std::mem::replace(self, new);
        // Seen for the first time, begun anew or reset: nothing to subtract from.
        if first || again || self.metered < old.metered || self.commands < old.commands {
            return (0, 0);
        }
        let (commands, bytes) = (self.commands - old.commands, self.bytes.saturating_sub(old.bytes));
        grown.commands += commands;
        grown.bytes += bytes;
        grown.late += self.late.saturating_sub(old.late);
        grown.wait += self.wait.saturating_sub(old.wait);
        grown.service += self.service.saturating_sub(old.service);
        grown.latency.extend(self.latency.since(&old.latency).counts().map(|(i, n)| (i as u16, n)));
        for (sum, (new, old)) in grown.waits.iter_mut().zip(self.waits.iter().zip(old.waits)) {
            *sum += new.saturating_sub(old);
        }
        grown.seconds = grown.seconds.max((self.metered - old.metered) as f64 / 1e9);
        (commands, bytes)
    }
}

impl TrackedDisk {
    pub(super) fn new(id: u32, name: &str) -> TrackedDisk {
        TrackedDisk {
            view: DiskView { id, name: name.to_owned(), ..DiskView::default() },
            on: BTreeMap::new(),
            window: VecDeque::new(),
            latency: BTreeMap::new(),
            late: 0,
            row: Row(id, 0.0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0, 0),
            sent: Row::default(),
            history: VecDeque::new(),
            present: true,
        }
    }

    pub(super) fn figures(&mut self, statuses: &[&DiskStatus], grown: Option<&Grown>, at: u64, each: usize) {
        let pending = statuses.iter().map(|s| s.meters.pending).sum();
        let clients = statuses.iter().map(|s| s.connections).sum();
        let violated = statuses.iter().any(|s| s.violated);
        let waiting = statuses.iter().find_map(|s| s.flow.waiting.as_deref());
        let mut reason = waiting.map_or(0, number);
        let mut row = Row { 7: pending, 8: reason, 9: violated.into(), 12: clients, ..self.row };
        let Some(grown) = grown.filter(|g| g.seconds > 0.0) else {
            if statuses.is_empty() {
                row = Row(self.view.id, 0.0, 0, 0, 0, 0, 0.0, 0, 0, violated.into(), 0, 0, 0);
            }
            self.row = row;
            return;
        };
        // What it waited for most of the second says more than the moment at its end.
        let most = grown.waits.iter().enumerate().skip(1).max_by_key(|(_, time)| **time);
        if let Some((i, _)) = most.filter(|(_, time)| **time as f64 > 0.02e9 * grown.seconds) {
            reason = i as u8;
        }
        let requests = grown.commands.max(1);
        row = Row {
            1: tenth(grown.commands as f64 / grown.seconds),
            2: (grown.bytes as f64 / grown.seconds) as u64,
            8: reason,
            10: grown.wait / requests / 1000,
            11: grown.service / requests / 1000,
            ..row
        };
        self.add(grown);
        let window = Histogram::from_counts(
            self.latency.iter().map(|(i, n)| (usize::from(*i), *n)),
            0,
            Duration::from_nanos(u64::MAX),
        );
        let [p50, p95, p99] = percentiles(&window);
        let late = if window.count() == 0 { 0.0 } else { self.late as f64 * 100.0 / window.count() as f64 };
        self.row = Row { 3: p50, 4: p95, 5: p99, 6: tenth(late), ..row };
        let point = self.point(&row, grown, at);
        push(&mut self.history, point, each);
    }

    /// One second of the history: the row's figures, and the second's own latencies.
    fn point(&self, row: &Row, grown: &Grown, at: u64) -> Point {
        let second = Histogram::from_counts(
            grown.latency.iter().map(|(i, n)| (usize::from(*i), *n)),
            0,
            Duration::from_nanos(u64::MAX),
        );
        let [p50, p95, p99] = percentiles(&second);
        let mut heat = [0u16; HEAT];
        for (upper, n) in second.buckets() {
            let bucket = (63 - (upper.as_nanos() >> 15).max(1).leading_zeros()) as usize;
            let slot = &mut heat[bucket.min(HEAT - 1)];
            *slot = slot.saturating_add(u16::try_from(n).unwrap_or(u16::MAX));
        }
        Point {
            t: at,
            rate: row.1 as f32,
            bytes: row.2 as f32,
            p50: p50 as f32,
            p95: p95 as f32,
            p99: p99 as f32,
            wait: row.10 as f32,
            service: row.11 as f32,
            pending: row.7 as u32,
            reason: row.8,
            promised: self.view.promise.rate.unwrap_or(0.0) as f32,
            heat,
        }
    }

    /// Adds a look to the window and lets the oldest go.
    pub(super) fn add(&mut self, grown: &Grown) {
        for (i, n) in &grown.latency {
            *self.latency.entry(*i).or_default() += n;
        }
        self.late += grown.late;
        self.window.push_back((grown.latency.clone(), grown.late));
        if self.window.len() > WINDOW {
            let (gone, late) = self.window.pop_front().expect("longer than the window");
            self.late -= late;
            for (i, n) in gone {
                let left = self.latency.get_mut(&i).expect("what was added is there");
                *left -= n;
                if *left == 0 {
                    self.latency.remove(&i);
                }
            }
        }
    }
}

fn percentiles(h: &Histogram) -> [u64; 3] {
    [0.5, 0.95, 0.99].map(|q| h.quantile(q).map_or(0, |d| d.as_nanos() / 1000))
}

fn number(reason: &str) -> u8 {
    REASONS.iter().position(|r| *r == reason).unwrap_or(0) as u8
}
