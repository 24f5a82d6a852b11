//! Turns counters into figures: once a second, however many look.
//!
//! Nodes count from their own start and with their own clocks. A figure is the growth of a counter divided by the
//! time that passed on the clock of the node that counted, so clocks that differ, samples that come late, and nodes that began
//! anew do no harm. Percentiles are of the last [`WINDOW`] looks: sparse differences of histograms, added when they come and
//! subtracted when they go. History has a bound in all, [`POINTS`], which many disks share.

use crate::source::{DiskMeta, NodeSample, Sample, Viewer};
use crate::view::{DiskView, GateView, NodeView, PoolView, REASONS, Row, Snapshot, Tick};
use henge_core::{Duration, Histogram};
use henge_node::{DiskStatus, Status};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Looks that percentiles are of.
const WINDOW: usize = 10;
/// Points of history in all, and of one disk.
const POINTS: usize = 300_000;
const POINTS_EACH: std::ops::RangeInclusive<usize> = 60..=600;
/// Clocks that differ by less are not mentioned.
const CLOCK_MS: i64 = 2000;

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

/// A node's figures at one look.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NodePoint {
    /// Milliseconds since 1970, by the server's clock.
    pub t: u64,
    /// Commands a second.
    pub rate: f32,
    /// Bytes a second.
    pub bytes: f32,
    /// Share of the time in which something was in flight, the mean over its gates.
    pub utilization: f32,
    /// Mean requests in flight, over all gates.
    pub depth: f32,
    /// Waiting.
    pub queued: u32,
    /// Unfairness over its bound, the worst gate's; negative where nothing could be compared.
    pub unfairness: f32,
}

/// Counters of a disk on a node, as they were.
#[derive(Clone, Debug, Default)]
struct Counted {
    commands: u64,
    bytes: u64,
    late: u64,
    wait: u64,
    service: u64,
    latency: Histogram,
    waits: [u64; REASONS.len()],
    metered: u64,
    is_known: bool,
}

/// Of the window: latencies by bucket, and how many were late.
type Look = (Vec<(u16, u64)>, u64);

/// How much they grew.
#[derive(Clone, Debug, Default)]
struct Grown {
    commands: u64,
    bytes: u64,
    late: u64,
    wait: u64,
    service: u64,
    latency: Vec<(u16, u64)>,
    waits: [u64; REASONS.len()],
    /// The longest time it took, on the clock of its node.
    seconds: f64,
}

struct Disk {
    view: DiskView,
    on: BTreeMap<String, Counted>,
    window: VecDeque<Look>,
    latency: BTreeMap<u16, u64>,
    late: u64,
    row: Row,
    sent: Row,
    history: VecDeque<Point>,
    present: bool,
}

#[derive(Default)]
struct Node {
    uptime: u64,
    gates: BTreeMap<String, (u64, u64)>,
    view: NodeView,
    history: VecDeque<NodePoint>,
}

/// Everything that the page shows.
#[derive(Default)]
pub struct Hub {
    sample: Arc<Sample>,
    at: u64,
    next: u32,
    disks: BTreeMap<String, Disk>,
    nodes: BTreeMap<String, Node>,
    pools: Vec<PoolView>,
    /// Grows whenever pages must be told everything anew: disks came, went, or have other contracts.
    pub generation: u64,
}

impl Hub {
    /// Takes a look in; `at` is the server's clock in milliseconds since 1970. What changed.
    pub fn see(&mut self, sample: Sample, at: u64) -> Tick {
        self.at = at;
        self.sample = Arc::new(sample);
        let sample = Arc::clone(&self.sample);
        let mut grown: BTreeMap<&str, Grown> = BTreeMap::new();
        self.disks.values_mut().for_each(|d| d.present = false);
        let mut changed = 0;
        for node in &sample.nodes {
            for status in &node.status.disks {
                let meta = sample.disks.get(&status.name);
                changed += usize::from(self.describe(status, &node.name, meta));
            }
        }
        self.pools.clear();
        for node in &sample.nodes {
            self.node(node, at, &mut grown);
        }
        self.nodes.retain(|name, _| sample.nodes.iter().any(|n| n.name == *name));
        let before = self.disks.len();
        self.disks.retain(|_, d| d.present);
        changed += before - self.disks.len();
        let each = (POINTS / self.disks.len().max(1)).clamp(*POINTS_EACH.start(), *POINTS_EACH.end());
        for (name, disk) in &mut self.disks {
            let statuses = sample.nodes.iter().filter(|n| n.up).filter_map(|n| n.status.disk(name));
            let statuses: Vec<&DiskStatus> = statuses.collect();
            disk.figures(&statuses, grown.get(name.as_str()), at, each);
        }
        self.generation += u64::from(changed > 0);
        let mut rows = Vec::new();
        for disk in self.disks.values_mut() {
            if disk.row != disk.sent {
                disk.sent = disk.row;
                rows.push(disk.row);
            }
        }
        Tick { at, nodes: self.node_views(), pools: self.pools.clone(), rows }
    }

    fn node_views(&self) -> Vec<NodeView> {
        self.nodes.values().map(|n| n.view.clone()).collect()
    }

    fn node<'a>(&mut self, sample: &'a NodeSample, at: u64, grown: &mut BTreeMap<&'a str, Grown>) {
        let status = &*sample.status;
        let node = self.nodes.entry(sample.name.clone()).or_default();
        let fresh = sample.up && status.uptime > node.uptime;
        let again = status.uptime < node.uptime;
        let passed = if again || node.uptime == 0 { 0.0 } else { (status.uptime - node.uptime) as f64 / 1e9 };
        let mut sums = (0.0, 0.0);
        if fresh || again {
            node.uptime = status.uptime;
            for disk in &status.disks {
                let known = self.disks.get_mut(&disk.name);
                let Some(counted) = known.map(|d| d.on.entry(sample.name.clone()).or_default()) else {
                    continue;
                };
                let entry = grown.entry(disk.name.as_str()).or_default();
                let (commands, bytes) = counted.grow(disk, again, entry);
                if passed > 0.0 {
                    sums = (sums.0 + commands as f64 / passed, sums.1 + bytes as f64 / passed);
                }
            }
        }
        let ahead =
            if status.wall == 0 { 0 } else { status.wall as i64 - (at as i64 - sample.age_ms as i64) };
        let kept = (node.view.rate, node.view.bytes);
        let (rate, bytes) = if fresh {
            sums
        } else if sample.up {
            kept
        } else {
            (0.0, 0.0)
        };
        node.view = NodeView {
            name: sample.name.clone(),
            up: sample.up,
            age_ms: sample.age_ms,
            ahead_ms: if ahead.abs() < CLOCK_MS { 0 } else { ahead },
            uptime: status.uptime / 1_000_000_000,
            connections: status.connections,
            buffers: [status.buffers_out, status.buffers],
            rate: tenth(rate),
            bytes: bytes.round(),
            peers: status.peers.clone(),
        };
        let (pools, point) = node.pools(sample, fresh, passed);
        self.pools.extend(pools);
        if fresh && passed > 0.0 {
            push(
                &mut node.history,
                NodePoint { t: at, rate: rate as f32, bytes: bytes as f32, ..point },
                600,
            );
        }
    }

    /// What seldom changes of a disk; whether it did.
    fn describe(&mut self, status: &DiskStatus, node: &str, meta: Option<&DiskMeta>) -> bool {
        let next = &mut self.next;
        let mut changed = false;
        let disk = self.disks.entry(status.name.clone()).or_insert_with(|| {
            changed = true;
            *next += 1;
            Disk::new(*next, &status.name)
        });
        let first = !std::mem::replace(&mut disk.present, true);
        let old = disk.view.clone();
        let view = &mut disk.view;
        if first {
            view.nodes.clear();
            view.pools.clear();
            view.capacity = 0;
        }
        if !view.nodes.iter().any(|n| n == node) {
            view.nodes.push(node.to_owned());
        }
        view.pools.extend(status.pools.iter().filter(|p| !old.pools.contains(p) || first).cloned());
        view.capacity = view.capacity.max(status.capacity);
        view.contract = meta.and_then(|m| m.contract.clone()).unwrap_or_else(|| status.contract.clone());
        view.promise = meta.and_then(|m| m.promise.clone()).unwrap_or_else(|| status.promise.clone());
        view.tenant = meta.and_then(|m| m.tenant.clone());
        changed || (first && *view != old)
    }

    fn may_see(viewer: &Viewer, disk: &DiskView) -> bool {
        viewer.tenant.is_none() || viewer.tenant == disk.tenant
    }

    /// Everything that this viewer may see. A tenant sees its disks, and neither nodes nor pools.
    pub fn snapshot(&self, viewer: &Viewer) -> Snapshot {
        let disks = || self.disks.values().filter(|d| Self::may_see(viewer, &d.view));
        let all = viewer.tenant.is_none();
        Snapshot {
            about: self.sample.about.clone(),
            viewer: viewer.clone(),
            at: self.at,
            reasons: REASONS.iter().map(|r| (*r).to_owned()).collect(),
            nodes: if all { self.node_views() } else { Vec::new() },
            pools: if all { self.pools.clone() } else { Vec::new() },
            disks: disks().map(|d| d.view.clone()).collect(),
            rows: disks().map(|d| d.row).collect(),
        }
    }

    /// Of a tick what this viewer may see; `None` leaves it as it is.
    pub fn restrict(&self, viewer: &Viewer, tick: &Tick) -> Option<Tick> {
        viewer.tenant.as_ref()?;
        let theirs = self.disks.values().filter(|d| Self::may_see(viewer, &d.view)).map(|d| d.view.id);
        let theirs: std::collections::BTreeSet<u32> = theirs.collect();
        let rows = tick.rows.iter().filter(|row| theirs.contains(&row.0)).copied().collect();
        Some(Tick { at: tick.at, rows, ..Tick::default() })
    }

    /// A disk that this viewer may see.
    pub fn disk(&self, viewer: &Viewer, name: &str) -> Option<&DiskView> {
        self.disks.get(name).map(|d| &d.view).filter(|view| Self::may_see(viewer, view))
    }

    /// Its history after a moment of the server's clock.
    pub fn history(&self, name: &str, after: u64) -> Vec<Point> {
        let history = self.disks.get(name).map(|d| &d.history);
        history.into_iter().flatten().filter(|p| p.t > after).copied().collect()
    }

    /// The last minute of received service of some disks, in the unit of their promise, by id.
    pub fn sparks(&self, viewer: &Viewer, ids: &[u32]) -> BTreeMap<u32, Vec<f32>> {
        let wanted =
            self.disks.values().filter(|d| ids.contains(&d.view.id) && Self::may_see(viewer, &d.view));
        let of = |d: &Disk| {
            let bytes = d.view.promise.unit == "bytes";
            let tail = d.history.iter().skip(d.history.len().saturating_sub(60));
            tail.map(|p| if bytes { p.bytes } else { p.rate }).collect()
        };
        wanted.map(|d| (d.view.id, of(d))).collect()
    }

    /// A node's history after a moment of the server's clock.
    pub fn node_history(&self, name: &str, after: u64) -> Vec<NodePoint> {
        let history = self.nodes.get(name).map(|n| &n.history);
        history.into_iter().flatten().filter(|p| p.t > after).copied().collect()
    }

    /// The last sample.
    pub fn sample(&self) -> &Sample {
        &self.sample
    }
}

impl Counted {
    /// Adds what came since the last look to `grown`; commands and bytes of it.
    fn grow(&mut self, status: &DiskStatus, again: bool, grown: &mut Grown) -> (u64, u64) {
        let latency = status.histogram.as_ref().map(Histogram::from).unwrap_or_default();
        let mut waits = [0; REASONS.len()];
        for (i, reason) in REASONS.iter().enumerate().skip(1) {
            waits[i] = status.waits.get(*reason).copied().unwrap_or(0);
        }
        let new = Counted {
            commands: status.commands,
            bytes: status.bytes,
            late: status.late,
            wait: status.wait,
            service: status.service,
            latency,
            waits,
            metered: status.metered,
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

impl Disk {
    fn new(id: u32, name: &str) -> Disk {
        Disk {
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

    fn figures(&mut self, statuses: &[&DiskStatus], grown: Option<&Grown>, at: u64, each: usize) {
        let pending = statuses.iter().map(|s| s.pending).sum();
        let clients = statuses.iter().map(|s| s.connections).sum();
        let violated = statuses.iter().any(|s| s.violated);
        let waiting = statuses.iter().find_map(|s| s.waiting.as_deref());
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
        let point = Point {
            t: at,
            rate: row.1 as f32,
            bytes: row.2 as f32,
            p50: p50 as f32,
            p95: p95 as f32,
            p99: p99 as f32,
            wait: row.10 as f32,
            service: row.11 as f32,
            pending: pending as u32,
            reason,
            promised: self.view.promise.rate.unwrap_or(0.0) as f32,
            heat,
        };
        push(&mut self.history, point, each);
    }

    /// Adds a look to the window and lets the oldest go.
    fn add(&mut self, grown: &Grown) {
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

impl Node {
    fn pools(&mut self, sample: &NodeSample, fresh: bool, passed: f64) -> (Vec<PoolView>, NodePoint) {
        let status = &*sample.status;
        let mut views = Vec::new();
        let mut point = NodePoint { unfairness: -1.0, ..NodePoint::default() };
        let mut gates = 0.0;
        for pool in &status.pools {
            let mut view = PoolView {
                node: sample.name.clone(),
                name: pool.name.clone(),
                store: pool.store.clone(),
                scheduler: pool.scheduler.clone(),
                unit: pool.unit.clone(),
                capacity: pool.capacity,
                promised: pool.promised,
                capable: sample.capable.get(&pool.name).copied(),
                ..PoolView::default()
            };
            promised(status, &pool.name, &mut view);
            for gate in &pool.gates {
                let (busy, depth) =
                    self.gates.get(&gate.name).copied().unwrap_or((gate.busy, gate.in_flight_ms));
                let share = |new: u64, old: u64, per: f64| {
                    if passed > 0.0 { new.saturating_sub(old) as f64 / per / passed } else { 0.0 }
                };
                let utilization = share(gate.busy, busy, 1e9).min(1.0);
                let mean_depth = share(gate.in_flight_ms, depth, 1e3);
                if fresh {
                    self.gates.insert(gate.name.clone(), (gate.busy, gate.in_flight_ms));
                }
                gates += 1.0;
                point.utilization += utilization as f32;
                point.depth += mean_depth as f32;
                point.queued += gate.queued as u32;
                if let Some(u) = gate.unfairness.filter(|u| u.bound > 0.0) {
                    point.unfairness = point.unfairness.max((u.difference / u.bound) as f32);
                }
                view.gates.push(GateView {
                    name: gate.name.clone(),
                    queued: gate.queued,
                    in_flight: gate.in_flight,
                    depth: gate.depth,
                    utilization: (utilization * 1e3).round() / 1e3,
                    mean_depth: tenth(mean_depth),
                    unfairness: gate.unfairness.map(|u| [u.difference, u.bound]),
                    lateness: gate.lateness_p99.map(|ns| ns / 1000),
                });
            }
            views.push(view);
        }
        point.utilization /= f32::max(gates, 1.0);
        (views, point)
    }
}

/// What a pool's disks were promised and receive, each with the part that lies on it.
fn promised(status: &Status, pool: &str, view: &mut PoolView) {
    for disk in status.disks.iter().filter(|d| d.pools.iter().any(|p| p == pool)) {
        let parts = disk.pools.len() as f64;
        let unit = match disk.promise.unit.as_str() {
            "bytes" => 1,
            "disk time" => 2,
            _ => 0,
        };
        view.rates[unit] += disk.promise.rate.unwrap_or(0.0) / parts;
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    queue.push_back(item);
    while queue.len() > most {
        queue.pop_front();
    }
}

fn percentiles(h: &Histogram) -> [u64; 3] {
    [0.5, 0.95, 0.99].map(|q| h.quantile(q).map_or(0, |d| d.as_nanos() / 1000))
}

fn number(reason: &str) -> u8 {
    REASONS.iter().position(|r| *r == reason).unwrap_or(0) as u8
}

fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_node::Buckets;

    fn status(seconds: u64, commands: u64) -> Status {
        let mut latency = Histogram::default();
        for i in 0..commands {
            latency.record(Duration::from_millis(1 + i % 10));
        }
        let disk = DiskStatus {
            name: "web".into(),
            metered: seconds * 1_000_000_000,
            commands,
            bytes: commands * 4096,
            histogram: Some(Buckets::from(&latency)),
            ..DiskStatus::default()
        };
        Status { uptime: seconds * 1_000_000_000, disks: vec![disk], ..Status::default() }
    }

    fn sample(nodes: &[(&str, Status)]) -> Sample {
        let node = |(name, status): &(&str, Status)| NodeSample {
            name: (*name).to_owned(),
            up: true,
            status: Arc::new(status.clone()),
            ..NodeSample::default()
        };
        Sample { nodes: nodes.iter().map(node).collect(), ..Sample::default() }
    }

    #[test]
    fn rates_are_by_the_nodes_clocks_and_survive_their_restarts() {
        let mut hub = Hub::default();
        let row = |hub: &Hub| hub.snapshot(&Viewer::default()).rows[0];
        // The server's clock stands still and then jumps; the nodes' differ by years.
        hub.see(sample(&[("a", status(10, 100)), ("b", status(1000, 0))]), 5);
        hub.see(sample(&[("a", status(10, 100)), ("b", status(1000, 0))]), 5);
        let tick = hub.see(sample(&[("a", status(12, 300)), ("b", status(1001, 50))]), 5);
        // 200 + 50 commands in the longest time that passed, 2 s.
        assert_eq!((row(&hub).1, tick.rows.len()), (125.0, 1));
        assert!((9_000..=10_500).contains(&row(&hub).4), "{:?}", row(&hub));
        // A node that began anew is not a burst of 2^64 commands.
        hub.see(sample(&[("a", status(1, 7)), ("b", status(1002, 60))]), 9_999_999);
        assert_eq!(row(&hub).1, 10.0);
        hub.see(sample(&[("a", status(2, 17)), ("b", status(1003, 60))]), 1);
        assert_eq!(row(&hub).1, 10.0);
    }

    #[test]
    fn only_what_changed_is_sent_and_tenants_see_their_own() {
        let mut hub = Hub::default();
        let mut first = sample(&[("a", status(1, 0))]);
        let mut other = first.nodes[0].status.disks[0].clone();
        other.name = "<script>".into();
        Arc::make_mut(&mut first.nodes[0].status).disks.push(other);
        let meta = |tenant: &str| DiskMeta { tenant: Some(tenant.to_owned()), ..DiskMeta::default() };
        first.disks = BTreeMap::from([("web".into(), meta("t1")), ("<script>".into(), meta("t2"))]);
        assert_eq!(hub.see(first.clone(), 0).rows.len(), 2);
        assert_eq!(hub.generation, 1);
        let tick = hub.see(first, 0);
        assert_eq!((tick.rows.len(), hub.generation), (0, 1));
        let tenant = Viewer { tenant: Some("t1".into()), ..Viewer::default() };
        let seen = hub.snapshot(&tenant);
        assert_eq!((seen.disks.len(), seen.rows.len(), seen.nodes.len()), (1, 1, 0));
        assert!(hub.disk(&tenant, "<script>").is_none() && hub.disk(&tenant, "web").is_some());
        let all = Tick { rows: hub.snapshot(&Viewer::default()).rows, ..Tick::default() };
        assert_eq!(hub.restrict(&tenant, &all).unwrap().rows, seen.rows);
    }

    #[test]
    fn the_window_forgets() {
        let mut hub = Hub::default();
        for t in 1..=30 {
            // 100 commands a second until second 10, none later.
            hub.see(sample(&[("a", status(t, 100 * t.min(10)))]), t * 1000);
            let p95 = hub.snapshot(&Viewer::default()).rows[0].4;
            assert_eq!(p95 > 0, (2..20).contains(&t), "second {t}: {p95}");
        }
        assert!(hub.history("web", 0).len() < 30);
    }
}
