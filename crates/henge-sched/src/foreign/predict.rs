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
//!
//! **Price.** Between announcements every estimate grows along a straight line in what is served here, from where it
//! passes what was charged until it is T beyond the announcement. So a flow keeps the sum of the slopes that are in force
//! and the places where one begins or ends: constant time a request, and a logarithm of the nodes an announcement. T is
//! read anew with each announcement, and when it has changed by a factor of two.

use super::heard::Totals;
use super::layout::Placed;
use super::threshold::Announcer;
use super::{Outbox, Served, Synchronizer};
use henge_core::{Cost, FlowId, Instant, News, NodeId, Sender, Striping, Sync};
use std::collections::{BTreeMap, BTreeSet};

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
    /// How many of them were never heard of.
    unheard: usize,
    /// Served here, in all.
    served: u64,
    /// Σ k of the estimates that grow now.
    slope: u64,
    /// Where in `served` an estimate begins to grow, or ends.
    turns: BTreeSet<(u64, NodeId)>,
    /// Charged beyond whole units, in parts of [`ONE`].
    fraction: u64,
    /// T, as it was when it was read last.
    every: u64,
    placed: Option<Placed>,
}

/// What one other node is believed to have served. Amounts are in parts of [`ONE`], except service here.
#[derive(Clone, Copy, Debug)]
struct Prediction {
    k: u64,
    /// It has announced something.
    heard: bool,
    /// Announced, since we listen.
    announced: u128,
    /// Served here when that was heard.
    served_then: u64,
    /// The largest estimate: charged so far, or when it began to grow.
    charged: u128,
    /// Its estimate grows since then.
    growing_since: Option<u64>,
    /// When it begins to grow, or ends.
    turn: Option<u64>,
}

impl Prediction {
    fn new(k: u64, served: u64) -> Self {
        Prediction {
            k,
            heard: false,
            announced: 0,
            served_then: served,
            charged: 0,
            growing_since: None,
            turn: None,
        }
    }

    /// The estimate at `served`, which is no later than where T ends it.
    fn estimate(&self, served: u64) -> u128 {
        self.announced + u128::from(self.k) * u128::from(served - self.served_then)
    }

    /// The last place before T ends its growth.
    fn ends_at(&self, every: u64) -> u64 {
        let ahead = (u128::from(every) << K_BITS) / u128::from(self.k);
        self.served_then.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX))
    }

    /// The first place at which the estimate is not below what was charged; `None` if T comes before.
    fn begins_at(&self, every: u64) -> Option<u64> {
        let behind = self.charged.saturating_sub(self.announced);
        if self.k == 0 || behind >= u128::from(every) << K_BITS {
            return None;
        }
        let wait = u64::try_from(behind.div_ceil(u128::from(self.k))).ok()?;
        Some(self.served_then.checked_add(wait)?.min(self.ends_at(every)))
    }
}

impl Flow {
    /// Goes on by `service`; what is to be charged for it.
    fn advance(&mut self, service: u64) -> Cost {
        let end = self.served + service;
        let mut growth = 0;
        while let Some((at, node)) = self.turns.first().copied().filter(|(at, _)| *at <= end) {
            self.turns.pop_first();
            // A turn that was planned behind the present is due now.
            let at = at.max(self.served);
            growth += u128::from(self.slope) * u128::from(at - self.served);
            self.served = at;
            growth += self.turn(node);
        }
        growth += u128::from(self.slope) * u128::from(end - self.served);
        self.served = end;
        self.whole(growth)
    }

    /// An estimate begins to grow, or has reached T.
    fn turn(&mut self, node: NodeId) -> u128 {
        let (served, every) = (self.served, self.every);
        let p = self.others.get_mut(&node).expect("whoever turns is predicted");
        p.turn = None;
        let (before, after) = match p.growing_since.take() {
            None => {
                let estimate = p.estimate(served).max(p.charged);
                let before = std::mem::replace(&mut p.charged, estimate);
                p.growing_since = Some(served);
                self.slope += p.k;
                let end = p.ends_at(every).max(served);
                p.turn = Some(end);
                self.turns.insert((end, node));
                (before, estimate)
            }
            Some(since) => {
                self.slope -= p.k;
                let grown = p.charged + u128::from(p.k) * u128::from(served - since);
                p.charged = grown.max(p.announced + (u128::from(every) << K_BITS));
                (grown, p.charged)
            }
        };
        after - before
    }

    /// Stops an estimate where it is, to change what it rests on.
    fn stop(&mut self, node: NodeId) -> Option<&mut Prediction> {
        let served = self.served;
        let p = self.others.get_mut(&node)?;
        if let Some(turn) = p.turn.take() {
            self.turns.remove(&(turn, node));
        }
        if let Some(since) = p.growing_since.take() {
            self.slope -= p.k;
            p.charged += u128::from(p.k) * u128::from(served - since);
        }
        Some(p)
    }

    /// Plans when a stopped estimate grows.
    fn plan(&mut self, node: NodeId) {
        let Some(p) = self.others.get_mut(&node) else { return };
        p.turn = p.begins_at(self.every).map(|at| at.max(self.served));
        if let Some(at) = p.turn {
            self.turns.insert((at, node));
        }
    }

    /// A node announced so much more.
    fn correct(&mut self, node: NodeId, increase: Cost) -> Cost {
        let served = self.served;
        let Some(p) = self.stop(node) else { return Cost::ZERO };
        let since = served - p.served_then;
        if let Some(ratio) = (u128::from(increase.get()) << K_BITS).checked_div(u128::from(since)) {
            let ratio = u64::try_from(ratio).unwrap_or(u64::MAX).min(K_MAX);
            p.k = u64::midpoint(p.k, ratio);
        }
        p.announced += u128::from(increase.get()) << K_BITS;
        p.served_then = served;
        let known_now = p.announced.saturating_sub(p.charged);
        p.charged += known_now;
        let first = !std::mem::replace(&mut p.heard, true);
        self.unheard -= usize::from(first);
        self.plan(node);
        self.whole(known_now)
    }

    /// Plans all anew, for another T or another k.
    fn plan_all(&mut self, every: u64, k_unheard: Option<u64>) {
        self.every = every;
        let nodes: Vec<NodeId> = self.others.keys().copied().collect();
        for node in nodes {
            let p = self.stop(node).expect("a listed node");
            if let Some(k) = k_unheard.filter(|_| !p.heard) {
                p.k = k;
            }
            self.plan(node);
        }
    }

    /// Whole units of cost; parts are kept.
    fn whole(&mut self, amount: u128) -> Cost {
        let amount = amount + u128::from(self.fraction);
        self.fraction = (amount & u128::from(ONE - 1)) as u64;
        Cost::new(u64::try_from(amount >> K_BITS).unwrap_or(u64::MAX))
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
        let every = self.announcer.every(flow).get();
        let state = self.flows.entry(flow).or_default();
        // Nothing is predicted for a node that left, and nothing is remembered of it.
        let gone: Vec<NodeId> = state.others.keys().filter(|n| !nodes.contains(n)).copied().collect();
        for node in gone {
            self.totals.remove_sender(flow, Sender::Node(node));
            state.stop(node);
            let left = state.others.remove(&node).expect("a listed node");
            state.unheard -= usize::from(!left.heard);
        }
        for node in nodes.iter().filter(|n| **n != self.here) {
            if !state.others.contains_key(node) {
                state.others.insert(*node, Prediction::new(ONE, state.served));
                state.unheard += 1;
            }
        }
        state.plan_all(every, None);
    }
    fn remove_flow(&mut self, flow: FlowId) {
        self.announcer.remove_flow(flow);
        self.totals.remove_flow(flow);
        self.flows.remove(&flow);
    }
    fn arrived(&mut self, flow: FlowId, _: Instant, _: &mut Outbox) {
        self.announcer.arrived(flow);
    }
    /// A layout says on how many nodes bytes lie, not always on which (a proxy knows its peers, not the file system's
    /// numbers of them). So those never heard of are predicted its mean, and announcements show who they are.
    fn set_striping(&mut self, flow: FlowId, striping: &Striping) {
        let Some(state) = self.flows.get_mut(&flow) else { return };
        if state.placed.as_ref().is_some_and(|placed| placed.striping == *striping) {
            return;
        }
        let Some(placed) = Placed::new(striping, self.here) else { return };
        let elsewhere = (striping.nodes.len() as u64 - 1) * ONE;
        let mean = elsewhere.checked_div(state.others.len() as u64).unwrap_or(0).min(ONE);
        let known_before = state.placed.replace(placed).is_some();
        if state.unheard > 0 && !known_before {
            state.plan_all(state.every, Some(mean));
        }
    }

    fn served(&mut self, served: &Served, _: Instant, out: &mut Outbox) -> Cost {
        let every = self.announcer.served(served.flow, served.cost, out).get();
        let Some(state) = self.flows.get_mut(&served.flow) else { return Cost::ZERO };
        if every > state.every.saturating_mul(2) || every < state.every / 2 {
            state.plan_all(every, None);
        }
        // Where the extent shows how the stripes fall, it counts as if so much had been served here.
        let base = match (&state.placed, served.extent) {
            (Some(placed), Some(_)) => {
                placed.share_elsewhere(served).get() / (placed.striping.nodes.len() as u64 - 1).max(1)
            }
            _ => served.cost.get(),
        };
        state.advance(base)
    }

    fn receive(&mut self, sync: &Sync, _: Instant) -> Cost {
        let (News::Total { .. }, Sender::Node(from)) = (&sync.news, sync.sender) else {
            return self.totals.increase(sync);
        };
        let Some(state) = self.flows.get_mut(&sync.flow) else { return Cost::ZERO };
        if !state.others.contains_key(&from) {
            return Cost::ZERO; // it left, or never was
        }
        let increase = self.totals.increase(sync);
        if increase == Cost::ZERO {
            return Cost::ZERO;
        }
        state.correct(from, increase)
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

    /// Two that are known by number alone, one file on two of three nodes: whoever announces is believed.
    #[test]
    fn a_layout_says_how_many_and_announcements_say_who() {
        const C: NodeId = NodeId(2);
        let mut p = Predictor::new(A, 1, Some(Cost::new(1000)));
        p.set_flow(FLOW, &[A, B, C]);
        p.set_striping(FLOW, &Striping { stripe: 64, nodes: vec![A, B] });
        assert_eq!(serve(&mut p, 100), 100, "half of it for each of the two");
        let news = News::Total { total: Cost::new(100), before: Cost::ZERO };
        let from_c = Sync { sender: Sender::Node(C), epoch: 1, sequence: 1, flow: FLOW, news };
        assert_eq!(p.receive(&from_c, Instant::ZERO), Cost::new(50), "100 where 50 were predicted");
    }

    /// The slow way: every estimate by itself, at every step.
    #[derive(Clone, Copy)]
    struct Plain {
        k: u64,
        announced: u128,
        served_then: u64,
        charged: u128,
    }

    proptest::proptest! {
        /// The sum of slopes charges what the estimates one by one would, to a unit for each node and step of T.
        #[test]
        fn slopes_are_the_estimates_one_by_one(
            steps in proptest::collection::vec((0u32..5, 1u64..400), 1..200),
            nodes in 1u32..5,
        ) {
            const T: u64 = 1000;
            let all: Vec<NodeId> = (0..=nodes).map(NodeId).collect();
            let mut p = Predictor::new(A, 1, Some(Cost::new(T)));
            p.set_flow(FLOW, &all);
            let mut plain = vec![Plain { k: ONE, announced: 0, served_then: 0, charged: 0 }; nodes as usize];
            let mut totals = vec![0u64; nodes as usize];
            let (mut here, mut fast, mut k_most) = (0u64, 0u64, ONE);
            for (who, amount) in steps {
                if who == 0 || who > nodes {
                    fast += serve(&mut p, amount);
                    here += amount;
                } else {
                    let i = who as usize - 1;
                    let before = totals[i];
                    totals[i] += amount;
                    let news = News::Total { total: Cost::new(totals[i]), before: Cost::new(before) };
                    let sync = Sync { sender: Sender::Node(NodeId(who)), epoch: 1, sequence: totals[i], flow: FLOW, news };
                    fast += p.receive(&sync, Instant::ZERO).get();
                    let q = &mut plain[i];
                    if here > q.served_then {
                        let ratio = (u128::from(amount) << K_BITS) / u128::from(here - q.served_then);
                        q.k = u64::midpoint(q.k, (ratio as u64).min(K_MAX));
                    }
                    (q.announced, q.served_then) = (q.announced + (u128::from(amount) << K_BITS), here);
                }
                for q in &mut plain {
                    let ahead = u128::from(q.k) * u128::from(here - q.served_then);
                    q.charged = q.charged.max(q.announced + ahead.min(u128::from(T) << K_BITS));
                    k_most = k_most.max(q.k);
                }
                let slow = plain.iter().map(|q| q.charged).sum::<u128>() >> K_BITS;
                // An estimate that reaches T inside a step is charged all of it.
                let early = u64::from(nodes) * (k_most >> K_BITS) + 1;
                proptest::prop_assert!(fast.abs_diff(slow as u64) <= early, "{fast} {slow}");
            }
        }
    }

    #[test]
    fn nothing_is_predicted_for_a_node_that_left() {
        let mut p = predictor();
        p.set_flow(FLOW, &[A]);
        assert_eq!(serve(&mut p, 50), 0);
        assert_eq!(p.receive(&total(0, 500), Instant::ZERO), Cost::ZERO);
    }
}
