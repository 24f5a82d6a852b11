//! Turns counters into figures: once a second, however many look.
//!
//! Nodes count from their own start and with their own clocks. A figure is the growth of a counter divided by the
//! time that passed on the clock of the node that counted, so clocks that differ, samples that come late, and nodes that began
//! anew do no harm. Percentiles are of the last ten looks: sparse differences of histograms, added when they come and
//! subtracted when they go. History has a bound in all, [`POINTS`], which many disks share.

mod disk;
mod node;

pub use disk::{HEAT, Point};
pub use node::NodePoint;

use crate::source::{DiskMeta, NodeSample, Sample, Viewer};
use crate::view::{DiskView, NodeView, PoolView, REASONS, Snapshot, Tick};
use disk::{Grown, TrackedDisk};
use henge_api::{DiskStatus, Kept};
use node::Node;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Points of history in all, and of one disk.
const POINTS: usize = 300_000;
const POINTS_EACH: std::ops::RangeInclusive<usize> = 60..=600;
/// Clocks that differ by less are not mentioned.
const CLOCK_MS: i64 = 2000;

/// Everything that the page shows.
#[derive(Default)]
pub struct Hub {
    sample: Arc<Sample>,
    at: u64,
    next: u32,
    disks: BTreeMap<String, TrackedDisk>,
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
            failed: status.failed.clone(),
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
            TrackedDisk::new(*next, &status.name)
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
        view.pools.extend(status.layout.pools.iter().filter(|p| !old.pools.contains(p) || first).cloned());
        view.capacity = view.capacity.max(status.capacity);
        view.contract = meta.and_then(|m| m.contract.clone()).unwrap_or_else(|| status.contract.clone());
        view.promise = meta.and_then(|m| m.promise.clone()).unwrap_or_else(|| status.promise.clone());
        view.tenant = meta.and_then(|m| m.tenant.clone());
        changed || (first && *view != old)
    }

    fn may_see(viewer: &Viewer, disk: &DiskView) -> bool {
        viewer.may_see(&disk.name, disk.tenant.as_deref())
    }

    /// Everything that this viewer may see. A tenant sees its disks, and neither nodes nor pools.
    pub fn snapshot(&self, viewer: &Viewer) -> Snapshot {
        let disks = || self.disks.values().filter(|d| Self::may_see(viewer, &d.view));
        let all = viewer.sees_all();
        Snapshot {
            about: self.sample.about.clone(),
            viewer: viewer.clone(),
            at: self.at,
            reasons: REASONS.iter().map(|r| (*r).to_owned()).collect(),
            nodes: if all { self.node_views() } else { Vec::new() },
            pools: if all { self.pools.clone() } else { Vec::new() },
            disks: disks().map(|d| shown(viewer, &d.view)).collect(),
            rows: disks().map(|d| d.row).collect(),
        }
    }

    /// Of a tick what this viewer may see; `None` leaves it as it is.
    pub fn restrict(&self, viewer: &Viewer, tick: &Tick) -> Option<Tick> {
        if viewer.sees_all() {
            return None;
        }
        let theirs = self.disks.values().filter(|d| Self::may_see(viewer, &d.view)).map(|d| d.view.id);
        let theirs: std::collections::BTreeSet<u32> = theirs.collect();
        let rows = tick.rows.iter().filter(|row| theirs.contains(&row.0)).copied().collect();
        Some(Tick { at: tick.at, rows, ..Tick::default() })
    }

    /// A disk that this viewer may see.
    pub fn disk(&self, viewer: &Viewer, name: &str) -> Option<DiskView> {
        let view = &self.disks.get(name)?.view;
        Self::may_see(viewer, view).then(|| shown(viewer, view))
    }

    /// Its history after a moment of the server's clock.
    pub fn history(&self, name: &str, after: u64) -> Vec<Point> {
        let history = self.disks.get(name).map(|d| &d.history);
        history.into_iter().flatten().filter(|p| p.t > after).copied().collect()
    }

    /// How a disk's promise was kept, as all its nodes counted.
    pub fn kept(&self, name: &str) -> Option<Kept> {
        let counted = self.sample.nodes.iter().filter_map(|node| node.status.disk(name)?.kept.as_ref());
        let days = || self.disks.get(name).into_iter().flat_map(|disk| disk.on.values());
        let mut sum = Kept::sum(counted)?;
        sum.days.clear();
        for (day, seconds) in days().flat_map(|counted| &counted.days) {
            sum.days.entry(*day).or_default().add(seconds);
        }
        Some(sum)
    }

    /// The last minute of received service of some disks, in the unit of their promise, by id.
    pub fn sparks(&self, viewer: &Viewer, ids: &[u32]) -> BTreeMap<u32, Vec<f32>> {
        let wanted =
            self.disks.values().filter(|d| ids.contains(&d.view.id) && Self::may_see(viewer, &d.view));
        let of = |d: &TrackedDisk| {
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

/// A disk as this viewer sees it: a tenant is not told where it lies.
fn shown(viewer: &Viewer, view: &DiskView) -> DiskView {
    match viewer.sees_all() {
        true => view.clone(),
        false => DiskView { nodes: Vec::new(), pools: Vec::new(), ..view.clone() },
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    queue.push_back(item);
    while queue.len() > most {
        queue.pop_front();
    }
}

fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::{Buckets, CommandMeters, Status};
    use henge_core::{Duration, Histogram};

    fn status(seconds: u64, commands: u64) -> Status {
        let mut latency = Histogram::default();
        for i in 0..commands {
            latency.record(Duration::from_millis(1 + i % 10));
        }
        let disk = DiskStatus {
            name: "web".into(),
            meters: CommandMeters {
                metered: seconds * 1_000_000_000,
                commands,
                bytes: commands * 4096,
                histogram: Some(Buckets::from(&latency)),
                ..CommandMeters::default()
            },
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
        Arc::make_mut(&mut first.nodes[0].status).disks[0].layout.pools = vec!["p".into()];
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
        let places = |disk: &DiskView| (disk.nodes.len(), disk.pools.len());
        assert_eq!(places(&seen.disks[0]), (0, 0), "where it lies is the administrator's business");
        assert_eq!(hub.disk(&tenant, "web").as_ref().map(places), Some((0, 0)));
        assert_eq!(hub.disk(&Viewer::default(), "web").as_ref().map(places), Some((1, 1)));
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
