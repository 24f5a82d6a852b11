//! Threshold-driven: each node counts what a flow got here since it last said so, and says so when that passes T.
//!
//! Where no coordinator sees all requests (a proxy in front of each server of a parallel file system), nodes tell each
//! other. What arrives is owed by the flow's next request here. Messages: O(flows · N² · bytes / T).
//!
//! T must stay below what the flow keeps outstanding at a node: a larger lump empties its queue, and what is charged
//! to an empty queue is forgiven. At 64 KiB a request, 32 processes and T = 10 MiB a ratio of 4 : 1 came out as 0.68
//! of it. Where no T is stated it is a quarter of what the flow has outstanding here, at least 64 KiB. (vPFS) That is counted in requests, at the mean
//! of what some 16 of them cost: what one asks for and does not get lets nobody say less.

use super::heard::Totals;
use super::{Outbox, Served, Synchronizer};
use henge_core::{Cost, FlowId, Instant, News, NodeId, Sender, Sync};
use std::collections::BTreeMap;

/// The least T that is chosen by itself.
const EVERY_MIN: Cost = Cost::new(64 << 10);

/// What a node says of itself: the sending half, which `predict.rs` has as well.
#[derive(Clone, Debug)]
pub(super) struct Announcer {
    here: NodeId,
    epoch: u64,
    every: Option<Cost>,
    flows: BTreeMap<FlowId, Announced>,
}

#[derive(Clone, Debug, Default)]
struct Announced {
    peers: Vec<NodeId>,
    /// Served here since the epoch began.
    total: Cost,
    /// As the peers were told last.
    said: Cost,
    /// Requests.
    outstanding: u64,
    /// What a request costs, over about 16.
    mean: u64,
}

impl Announcer {
    pub fn new(here: NodeId, epoch: u64, every: Option<Cost>) -> Self {
        Announcer { here, epoch, every, flows: BTreeMap::new() }
    }
    pub fn set_flow(&mut self, flow: FlowId, nodes: &[NodeId]) {
        let here = self.here;
        let peers = nodes.iter().copied().filter(|n| *n != here).collect();
        self.flows.entry(flow).or_default().peers = peers;
    }
    pub fn remove_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }
    pub fn arrived(&mut self, flow: FlowId) {
        if let Some(announced) = self.flows.get_mut(&flow) {
            announced.outstanding += 1;
        }
    }
    /// Whether `node` serves the flow as well.
    pub fn is_peer(&self, flow: FlowId, node: NodeId) -> bool {
        self.flows.get(&flow).is_some_and(|a| a.peers.contains(&node))
    }
    /// T for the flow now.
    pub fn every(&self, flow: FlowId) -> Cost {
        let outstanding = self.flows.get(&flow).map_or(0, |a| a.outstanding.saturating_mul(a.mean));
        self.every.unwrap_or(Cost::new(outstanding / 4).max(EVERY_MIN))
    }
    /// A request is over. T as it was with it.
    pub fn served(&mut self, flow: FlowId, cost: Cost, out: &mut Outbox) -> Cost {
        if let Some(announced) = self.flows.get_mut(&flow) {
            announced.learn(cost);
        }
        let every = self.every(flow);
        let Some(announced) = self.flows.get_mut(&flow) else { return every };
        announced.total += cost;
        announced.outstanding = announced.outstanding.saturating_sub(1);
        if announced.total.saturating_sub(announced.said) < every {
            return every;
        }
        let before = std::mem::replace(&mut announced.said, announced.total);
        let sync = Sync {
            sender: Sender::Node(self.here),
            epoch: self.epoch,
            sequence: announced.total.get(),
            flow,
            news: News::Total { total: announced.total, before },
        };
        out.extend(announced.peers.iter().map(|peer| (*peer, sync.clone())));
        every
    }
}

impl Announced {
    fn learn(&mut self, cost: Cost) {
        self.mean = match self.mean {
            0 => cost.get(),
            mean => mean - mean / 16 + cost.get() / 16,
        };
    }
}

/// Announces at a threshold, charges what is announced.
#[derive(Clone, Debug)]
pub struct Threshold {
    announcer: Announcer,
    totals: Totals,
}

impl Threshold {
    /// The node `here`, since its `epoch`, with T = `every`.
    pub fn new(here: NodeId, epoch: u64, every: Option<Cost>) -> Self {
        Threshold { announcer: Announcer::new(here, epoch, every), totals: Totals::default() }
    }
}

impl Synchronizer for Threshold {
    fn set_flow(&mut self, flow: FlowId, nodes: &[NodeId]) {
        self.announcer.set_flow(flow, nodes);
        self.totals.set_flow(flow);
    }
    fn remove_flow(&mut self, flow: FlowId) {
        self.announcer.remove_flow(flow);
        self.totals.remove_flow(flow);
    }
    fn arrived(&mut self, flow: FlowId, _: Instant, _: &mut Outbox) {
        self.announcer.arrived(flow);
    }
    fn served(&mut self, served: &Served, _: Instant, out: &mut Outbox) -> Cost {
        self.announcer.served(served.flow, served.cost, out);
        Cost::ZERO
    }
    fn receive(&mut self, sync: &Sync, _: Instant) -> Cost {
        match sync.sender {
            Sender::Node(from) if !self.announcer.is_peer(sync.flow, from) => Cost::ZERO,
            _ => self.totals.increase(sync),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: FlowId = FlowId(0);
    const NODES: [NodeId; 3] = [NodeId(0), NodeId(1), NodeId(2)];

    #[test]
    fn what_one_serves_the_others_charge_in_lumps_of_t() {
        let new = |n| {
            let mut t = Threshold::new(NodeId(n), 1, Some(Cost::new(1000)));
            t.set_flow(FLOW, &NODES);
            t
        };
        let (mut a, mut b) = (new(0), new(1));
        let mut charged = Cost::ZERO;
        for i in 1..=35 {
            let mut out = Outbox::new();
            let served = Served { flow: FLOW, cost: Cost::new(100), extent: None };
            a.served(&served, Instant::ZERO, &mut out);
            assert_eq!(out.len(), if i % 10 == 0 { 2 } else { 0 }, "every tenth tells two peers");
            for (to, sync) in out {
                assert_ne!(to, NodeId(0));
                if to == NodeId(1) {
                    charged += b.receive(&sync, Instant::ZERO);
                    charged += b.receive(&sync, Instant::ZERO); // doubled
                }
            }
        }
        assert_eq!(charged, Cost::new(3000));
    }

    #[test]
    fn without_a_threshold_it_is_a_quarter_of_what_is_outstanding() {
        let mut t = Announcer::new(NodeId(0), 1, None);
        t.set_flow(FLOW, &NODES);
        assert_eq!(t.every(FLOW), Cost::new(64 << 10));
        for _ in 0..32 {
            t.arrived(FLOW);
        }
        assert_eq!(t.served(FLOW, Cost::new(64 << 10), &mut Outbox::new()), Cost::new(8 * (64 << 10)));
    }

    /// Reads past a file's end ask for megabytes and move nothing; what counts as requests or time counts no bytes.
    #[test]
    fn what_a_request_asked_for_and_did_not_cost_lets_nobody_say_less() {
        let mut t = Announcer::new(NodeId(0), 1, None);
        t.set_flow(FLOW, &NODES);
        let mut out = Outbox::new();
        for _ in 0..1000 {
            t.arrived(FLOW);
            t.served(FLOW, Cost::ZERO, &mut out);
        }
        (0..8).for_each(|_| t.arrived(FLOW));
        for _ in 0..64 {
            t.arrived(FLOW);
            t.served(FLOW, Cost::new(1 << 20), &mut out);
        }
        assert!(out.len() >= 2 * 16, "{} messages for 64 MiB, with 9 MiB outstanding", out.len());
    }
}
