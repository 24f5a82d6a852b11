//! A node's figures: its gates' and what each pool's disks were promised.

use super::tenth;
use crate::source::NodeSample;
use crate::view::{GateView, NodeView, PoolView};
use henge_api::Status;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

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

#[derive(Default)]
pub(super) struct Node {
    pub uptime: u64,
    pub gates: BTreeMap<String, (u64, u64)>,
    pub view: NodeView,
    pub history: VecDeque<NodePoint>,
}

impl Node {
    pub(super) fn pools(
        &mut self,
        sample: &NodeSample,
        fresh: bool,
        passed: f64,
    ) -> (Vec<PoolView>, NodePoint) {
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
                keeps: pool.keeps.as_ref().map(|keeps| keeps.terms.clone()),
                unit: pool.unit.clone(),
                capacity: pool.capacity,
                promised: pool.promised,
                short: pool.short.clone(),
                capable: sample.capable.get(&pool.name).copied(),
                ..PoolView::default()
            };
            promised(status, &pool.name, &mut view);
            view.rates[0] = sample.reserved.get(&pool.name).copied().unwrap_or(view.rates[0]);
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
                point.queued = point.queued.saturating_add(u32::try_from(gate.queued).unwrap_or(u32::MAX));
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
                    work: gate.work.map(|both| both.map(|ns| ns / 1000)),
                    learned: gate.learned.clone(),
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
    for disk in status.disks.iter().filter(|d| d.layout.pools.iter().any(|p| p == pool)) {
        let parts = disk.layout.pools.len() as f64;
        let unit = match disk.promise.unit.as_str() {
            "bytes" => 1,
            "disk time" => 2,
            _ => 0,
        };
        view.rates[unit] += disk.promise.rate.unwrap_or(0.0) / parts;
    }
}
