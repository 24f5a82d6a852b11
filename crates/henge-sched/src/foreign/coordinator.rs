//! Coordinators piggyback: whoever routes a flow's requests to nodes writes on each what it sent elsewhere.
//!
//! ```text
//!   delay(p at A) = cost of the flow's requests that this coordinator sent to other nodes since its last one to A
//! ```
//!
//! (DSFQ, equation (7).) No extra message. With several coordinators each counts what it sent itself, and as every
//! request is sent by one of them, it still counts once. Example, requests to A, B, C, A: the second one to A carries
//! the cost of those to B and C.
//!
//! **Disjoint coordinators.** A coordinator that never sends to A tells A nothing, and A undercounts (2.00 times the
//! share; left open by the paper). So a coordinator whose unannounced service toward A reaches T sends A that counter
//! alone: 0.9997 with 0.017 messages a request. Not in the paper; T = `None` is the paper's rule.
//!
//! Per flow one running total and, per node, the total at the last request to it: a request costs one look-up. Where a T
//! is set, the node that has waited longest stands first in an ordered set besides, so that it costs O(log nodes).

use super::Outbox;
use henge_core::{Cost, FlowId, News, NodeId, Sender, Sync};
use std::collections::{BTreeMap, BTreeSet};

/// Counts what a coordinator sends where.
#[derive(Clone, Debug)]
pub struct Coordinator {
    here: NodeId,
    epoch: u64,
    every: Option<Cost>,
    flows: BTreeMap<FlowId, Sent>,
}

#[derive(Clone, Debug, Default)]
struct Sent {
    total: Cost,
    nodes: Nodes,
    /// (`told.at`, node): whoever was told longest ago, measured in service, comes first. `None` where nobody is told.
    order: Option<BTreeSet<(Cost, NodeId)>>,
}

/// In order of their numbers. These have few gaps, so a node mostly stands where its number says.
#[derive(Clone, Debug, Default)]
struct Nodes(Vec<(NodeId, Told)>);

impl Nodes {
    fn place(&self, node: NodeId) -> Result<usize, usize> {
        let first = self.0.first().map_or(0, |(first, _)| first.0);
        let guess = node.0.wrapping_sub(first) as usize;
        match self.0.get(guess) {
            Some((there, _)) if *there == node => Ok(guess),
            _ => self.0.binary_search_by_key(&node, |(there, _)| *there),
        }
    }
    fn get(&self, node: NodeId) -> Option<&Told> {
        self.place(node).ok().map(|at| &self.0[at].1)
    }
    /// What a node was told; one that is new was told everything.
    fn told(&mut self, node: NodeId, total: Cost) -> &mut Told {
        let at = self.place(node).unwrap_or_else(|at| {
            self.0.insert(at, (node, Told { at: total, announced: Cost::ZERO }));
            at
        });
        &mut self.0[at].1
    }
}

/// What one node was told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The flow's running total up to which it knows everything.
    at: Cost,
    /// Of that, by messages of their own, all in all.
    announced: Cost,
}

impl Coordinator {
    /// The coordinator at `here`, since its `epoch`; announces to nodes that it does not reach when their count
    /// passes `every`.
    pub fn new(here: NodeId, epoch: u64, every: Option<Cost>) -> Self {
        assert!(every != Some(Cost::ZERO), "announcing nothing, endlessly");
        Coordinator { here, epoch, every, flows: BTreeMap::new() }
    }

    /// The nodes that serve `flow`, whether by this coordinator or another.
    pub fn set_flow(&mut self, flow: FlowId, nodes: &[NodeId]) {
        let sent = self.flows.entry(flow).or_default();
        let wanted: BTreeSet<NodeId> = nodes.iter().copied().collect();
        sent.nodes.0.retain(|(node, _)| wanted.contains(node));
        let total = sent.total;
        for node in wanted {
            sent.nodes.told(node, total);
        }
        let order = || sent.nodes.0.iter().map(|(node, told)| (told.at, *node)).collect();
        sent.order = self.every.map(|_| order());
    }

    /// The flow is routed here no longer.
    pub fn remove_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// The batch of `flow` toward `to` that is open: sent elsewhere, and not yet told. Theorem 2 speaks of it.
    pub fn open(&self, flow: FlowId, to: NodeId) -> Cost {
        let Some(sent) = self.flows.get(&flow) else { return Cost::ZERO };
        sent.nodes.get(to).map_or(Cost::ZERO, |told| sent.total.saturating_sub(told.at))
    }

    /// A request of `cost` goes to `to`; what it has to carry as `Request::foreign`.
    pub fn send(&mut self, flow: FlowId, to: NodeId, cost: Cost, out: &mut Outbox) -> Cost {
        let foreign = self.take(flow, to);
        self.served(flow, to, cost, out);
        foreign
    }

    /// A request goes to `to`: what it has to carry. For coordinators that learn a request's cost when it is over, and
    /// call [`served`](Self::served) then.
    pub fn take(&mut self, flow: FlowId, to: NodeId) -> Cost {
        let Some(sent) = self.flows.get_mut(&flow) else { return Cost::ZERO };
        let total = sent.total;
        let told = sent.nodes.told(to, total);
        let before = std::mem::replace(&mut told.at, total);
        sent.reorder(to, before, total);
        total.saturating_sub(before)
    }

    /// The flow's service at `at`, which everybody else is to know.
    pub fn served(&mut self, flow: FlowId, at: NodeId, cost: Cost, out: &mut Outbox) {
        let Some(sent) = self.flows.get_mut(&flow) else { return };
        let total = sent.total;
        let told = sent.nodes.told(at, total);
        let before = told.at;
        told.at += cost; // what it served itself is no news to it
        let after = told.at;
        sent.total += cost;
        sent.reorder(at, before, after);
        let Some(every) = self.every else { return };
        while let Some((node, news)) = sent.announce(every) {
            let (epoch, sequence) = (self.epoch, sent.total.get());
            out.push((node, Sync { sender: Sender::Coordinator(self.here), epoch, sequence, flow, news }));
        }
    }
}

impl Sent {
    fn reorder(&mut self, node: NodeId, before: Cost, after: Cost) {
        if let Some(order) = &mut self.order {
            order.remove(&(before, node));
            order.insert((after, node));
        }
    }

    /// The node that was told longest ago is told, if it has missed T.
    fn announce(&mut self, every: Cost) -> Option<(NodeId, News)> {
        let &(at, node) = self.order.as_ref()?.first()?;
        let missed = self.total.saturating_sub(at);
        if missed < every {
            return None;
        }
        self.reorder(node, at, self.total);
        let told = self.nodes.told(node, self.total);
        let before = told.announced;
        *told = Told { at: self.total, announced: before + missed };
        Some((node, News::Total { total: told.announced, before }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::heard::Totals;
    use proptest::prelude::*;

    const FLOW: FlowId = FlowId(1);
    const NODES: [NodeId; 3] = [NodeId(0), NodeId(1), NodeId(2)];

    /// DSFQ, figure 5: the requests to A carry 0, 2 and 0.
    #[test]
    fn the_figure_of_the_paper() {
        let mut c = Coordinator::new(NodeId(9), 1, None);
        c.set_flow(FLOW, &NODES);
        let mut out = Outbox::new();
        let mut send = |n: u32| c.send(FLOW, NodeId(n), Cost::new(1), &mut out).get();
        assert_eq!([send(0), send(1), send(2), send(0), send(0)], [0, 1, 2, 2, 0]);
        assert!(out.is_empty());
    }

    proptest! {
        /// With messages, each node knows of all service elsewhere but for less than T per coordinator, and what
        /// requests and messages carry is never counted twice.
        #[test]
        fn each_request_counts_once(
            sends in proptest::collection::vec((0usize..2, 0usize..3, 1u64..500), 1..300),
            disjoint in any::<bool>(),
        ) {
            const T: u64 = 2000;
            let mut coordinators = [4, 5].map(|n| {
                let mut c = Coordinator::new(NodeId(n), 1, Some(Cost::new(T)));
                c.set_flow(FLOW, &NODES);
                c
            });
            let mut heard = [(); 3].map(|()| { let mut t = Totals::default(); t.set_flow(FLOW); t });
            let (mut known, mut served) = ([0u64; 3], [0u64; 3]);
            for (by, to, cost) in sends {
                // Disjoint: the first reaches only node 0, the second the others.
                let to = match (disjoint, by) { (true, 0) => 0, (true, _) => 1 + to % 2, (false, _) => to };
                let mut out = Outbox::new();
                known[to] += coordinators[by].send(FLOW, NODES[to], Cost::new(cost), &mut out).get();
                served[to] += cost;
                for (node, sync) in out {
                    known[node.0 as usize] += heard[node.0 as usize].increase(&sync).get();
                }
                for n in 0..3 {
                    let elsewhere: u64 = served.iter().sum::<u64>() - served[n];
                    prop_assert!(known[n] <= elsewhere && elsewhere < known[n] + 2 * T, "{n}: {known:?} {served:?}");
                }
            }
        }
    }
}
