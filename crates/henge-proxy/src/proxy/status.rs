//! What a proxy says of itself.

use super::Proxy;
use crate::control::{FlowStatus, Status};
use crate::peers::Peers;
use henge_core::{FlowId, Instant};

impl Proxy {
    /// What it does now.
    pub fn status(&self, now: Instant) -> Status {
        let flows = self.config.flows.iter().enumerate().map(|(i, flow)| {
            let id = FlowId(i as u32);
            let meters = self.requests.gate.flow_meters(id).expect("every flow of the file is set");
            FlowStatus {
                name: flow.name.clone(),
                requests: meters.completed.requests,
                bytes: self.requests.moved[i],
                pending: meters.pending,
                in_flight: meters.in_flight,
                late: meters.late,
                latency_p50: meters.latency.quantile(0.5),
                latency_p95: meters.latency.quantile(0.95),
                latency_p99: meters.latency.quantile(0.99),
                waiting: self.requests.gate.waiting(id, now),
            }
        });
        let mut counts = self.counts;
        let mut buffered = 0;
        for (_, pair) in self.pairs.open.iter() {
            let stats = pair.connection.stats();
            counts.malformed += stats.malformed;
            counts.unsound += stats.unsound;
            counts.unfollowed += stats.unfollowed;
            counts.between_servers += stats.between_servers;
            counts.refused += stats.refused;
            counts.opaque += u64::from(pair.connection.is_opaque());
            buffered += pair.buffered();
        }
        let (linked, peers) = self.peers.as_ref().map_or((0, 0), Peers::linked);
        Status {
            flows: flows.collect(),
            connections: self.pairs.open.len(),
            buffered,
            in_flight: self.requests.gate.in_flight(),
            depth: self.requests.gate.depth(),
            client_timeout: self.patience.limits.client_message,
            counts,
            peers,
            linked,
            links: self.peers.as_ref().map(Peers::counts).unwrap_or_default(),
        }
    }
}
