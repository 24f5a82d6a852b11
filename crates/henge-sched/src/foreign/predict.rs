//! Predict and correct: what a flow gets elsewhere is predicted from what it gets here, and each announcement sets the
//! error right. Joins the thresholds' truth with the layouts' evenness.
//!
//! For each flow and each other node B that serves it:
//!
//! ```text
//!   estimate = announced_B + min( k_B · served here since that announcement, T )
//!   charged  = the increase of the largest estimate so far
//!   k_B      = 1 at first; at each announcement the mean of k_B and  Δannounced / Δserved here
//! ```
//!
//! The prediction is never more than T beyond the truth, and it is the *largest* estimate that counts: after too high
//! a prediction nothing is charged until B has caught up, so nothing is charged twice. Worked example: T = 100, 60
//! served here: 60 predicted. B announces 100 where 80 were served here: 100 − 80 charged, and k = (1 + 100/80) / 2.
//!
//! With T = 10 MiB and D = 4, a ratio of 4 : 1 comes out as 0.992 of it (plain threshold: 0.802), with the same
//! messages. Weak where nodes are many and T is large (96 nodes at 10 MiB), and where messages take half a second.
//! Not in the papers.

use super::heard::Totals;
use super::layout::share_elsewhere;
use super::threshold::Announcer;
use super::{Outbox, Served, Synchronizer};
use henge_core::{Cost, FlowId, Instant, News, NodeId, Sender, Striping, Sync};
use std::collections::BTreeMap;

const K_BITS: u32 = 16;
const ONE: u64 = 1 << K_BITS;
/// Largest k: whatever lies beyond it is left to announcements.
const K_MAX: u64 = ONE << 16;

/// Announces at a threshold, charges predictions.
#[derive(Clone, Debug)]
pub struct Predictor {
    here: NodeId,
    announcer: Announcer,
    totals: Totals,
    flows: BTreeMap<FlowId, Flow>,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    others: BTreeMap<NodeId, Prediction>,
    /// Served here, in all.
    served: Cost,
    striping: Option<Striping>,
}

/// What one other node is believed to have served.
#[derive(Clone, Copy, Debug)]
struct Prediction {
    k: u64,
    /// Announced, since we listen.
    announced: Cost,
    /// Served here when that was heard.
    served_then: Cost,
    /// The largest estimate: charged so far.
    charged: Cost,
}

impl Prediction {
    fn new(k: u64, served: Cost) -> Self {
        Prediction { k, announced: Cost::ZERO, served_then: served, charged: Cost::ZERO }
    }
    fn charge(&mut self, served: Cost, every: Cost) -> Cost {
        let since = served.saturating_sub(self.served_then).get();
        let ahead = (u128::from(since) * u128::from(self.k)) >> K_BITS;
        let ahead = Cost::new(u64::try_from(ahead).unwrap_or(u64::MAX)).min(every);
        let estimate = self.announced + ahead;
        let increase = estimate.saturating_sub(self.charged);
        self.charged = self.charged.max(estimate);
        increase
    }
    fn correct(&mut self, increase: Cost, served: Cost) {
        let since = served.saturating_sub(self.served_then).get();
        let ratio = (u128::from(increase.get()) << K_BITS).checked_div(u128::from(since));
        if let Some(ratio) = ratio {
            let ratio = u64::try_from(ratio).unwrap_or(u64::MAX).min(K_MAX);
            self.k = u64::midpoint(self.k, ratio);
        }
        self.announced += increase;
        self.served_then = served;
    }
}

impl Predictor {
    /// The node `here`, since its `epoch`, with T = `every`.
    pub fn new(here: NodeId, epoch: u64, every: Option<Cost>) -> Self {
        Predictor {
            here,
            announcer: Announcer::new(here, epoch, every),
            totals: Totals::default(),
            flows: BTreeMap::new(),
        }
    }
}

impl Synchronizer for Predictor {
    fn set_flow(&mut self, flow: FlowId, nodes: &[NodeId]) {
        self.announcer.set_flow(flow, nodes);
        self.totals.set_flow(flow);
        let state = self.flows.entry(flow).or_default();
        // Nothing is predicted for a node that left, and nothing is remembered of it.
        for gone in state.others.keys().filter(|n| !nodes.contains(n)) {
            self.totals.remove_sender(flow, Sender::Node(*gone));
        }
        state.others.retain(|n, _| nodes.contains(n));
        for node in nodes.iter().filter(|n| **n != self.here) {
            state.others.entry(*node).or_insert(Prediction::new(ONE, state.served));
        }
    }
    fn remove_flow(&mut self, flow: FlowId) {
        self.announcer.remove_flow(flow);
        self.totals.remove_flow(flow);
        self.flows.remove(&flow);
    }
    fn arrived(&mut self, flow: FlowId, cost: Cost, _: Instant, _: &mut Outbox) {
        self.announcer.arrived(flow, cost);
    }
    /// A layout says which nodes to predict for at first.
    fn set_striping(&mut self, flow: FlowId, striping: &Striping) {
        if self.flows.contains_key(&flow) && striping.stripe > 0 && striping.nodes.contains(&self.here) {
            self.set_flow(flow, &striping.nodes);
            let state = self.flows.get_mut(&flow).expect("it was just seen");
            state.striping = Some(striping.clone());
        }
    }

    fn served(&mut self, served: &Served, _: Instant, out: &mut Outbox) -> Cost {
        let every = self.announcer.every(served.flow);
        self.announcer.served(served.flow, served.cost, out);
        let Some(state) = self.flows.get_mut(&served.flow) else { return Cost::ZERO };
        // Where the extent shows how the stripes fall, it counts as if so much had been served here.
        let base = match (&state.striping, served.extent) {
            (Some(striping), Some(_)) => {
                let elsewhere = share_elsewhere(striping, self.here, served).get();
                Cost::new(elsewhere / (striping.nodes.len() as u64 - 1).max(1))
            }
            _ => served.cost,
        };
        state.served += base;
        let total = state.served;
        state.others.values_mut().map(|p| p.charge(total, every)).sum()
    }

    fn receive(&mut self, sync: &Sync, _: Instant) -> Cost {
        let (News::Total { .. }, Sender::Node(from)) = (&sync.news, sync.sender) else {
            return self.totals.increase(sync);
        };
        if !self.announcer.is_peer(sync.flow, from) {
            return Cost::ZERO; // it left, or never was
        }
        let increase = self.totals.increase(sync);
        let every = self.announcer.every(sync.flow);
        let Some(state) = self.flows.get_mut(&sync.flow) else { return Cost::ZERO };
        let Some(prediction) = state.others.get_mut(&from) else { return increase };
        if increase > Cost::ZERO {
            prediction.correct(increase, state.served);
        }
        prediction.charge(state.served, every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: FlowId = FlowId(0);
    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);

    fn total(before: u64, total: u64) -> Sync {
        let news = News::Total { total: Cost::new(total), before: Cost::new(before) };
        Sync { sender: Sender::Node(B), epoch: 1, sequence: total, flow: FLOW, news }
    }

    fn serve(p: &mut Predictor, cost: u64) -> u64 {
        let served = Served { flow: FLOW, cost: Cost::new(cost), extent: None };
        p.served(&served, Instant::ZERO, &mut Outbox::new()).get()
    }

    fn predictor() -> Predictor {
        let mut p = Predictor::new(A, 1, Some(Cost::new(100)));
        p.set_flow(FLOW, &[A, B]);
        p
    }

    #[test]
    fn the_worked_example() {
        let mut p = predictor();
        assert_eq!(serve(&mut p, 60), 60);
        assert_eq!(serve(&mut p, 20), 20);
        assert_eq!(p.receive(&total(0, 100), Instant::ZERO), Cost::new(20));
        assert_eq!(serve(&mut p, 16), 18); // k = 1.125
    }

    #[test]
    fn never_more_than_t_beyond_the_truth_and_never_twice() {
        let mut p = predictor();
        assert_eq!(serve(&mut p, 5000), 100, "a flow that is not served there is predicted T at most");
        assert_eq!(p.receive(&total(0, 70), Instant::ZERO), Cost::ZERO, "already charged");
        assert_eq!(p.receive(&total(0, 70), Instant::ZERO), Cost::ZERO, "doubled");
        let charged: u64 = (0..1000).map(|_| serve(&mut p, 10)).sum();
        assert_eq!(charged, 70, "70 + T in all");
    }

    #[test]
    fn nothing_is_predicted_for_a_node_that_left() {
        let mut p = predictor();
        p.set_flow(FLOW, &[A]);
        assert_eq!(serve(&mut p, 50), 0);
        assert_eq!(p.receive(&total(0, 500), Instant::ZERO), Cost::ZERO);
    }
}
