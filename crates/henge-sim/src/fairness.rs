//! The largest unfairness of a run, beside the bound that DSFQ's Theorem 2 gives it.
//!
//! For two flows f, g and a node A at which both had something waiting all through a stretch of time:
//!
//! ```text
//!   | W_f/φ_f − W_g/φ_g |  ≤  part(f) + part(g)          W = service at all nodes in that stretch
//!   part(f) = [ ((D + D_f)·N_f + 1)·cmax_f  +  (D_f + 1)·batchmax_f  +  2·E_f ] / φ_f
//! ```
//!
//! D is the node's depth, D_f the most requests of f that waited at one node, N_f its nodes, batchmax_f the most that
//! coordinators together sent elsewhere between two requests to a node (what is open at the end included), E_f the most
//! by which what a node knew of f's service elsewhere was wrong: where nodes send messages, the theorem's
//! (N_f − 1)·Cprop. All are taken from the run itself, so the bound is as tight as the run allows.
//!
//! The difference is looked at when it changes, for every pair of flows at every node they share; where that are more than
//! a few hundred for a flow, for a sample of them, which the result says.
//!
//! The theorem does not cover every setting; [`Caveat`] says where it does not, and then the figure stands alone.

use henge_core::{Cost, CostUnit, Dirty, FlowId};

/// Pairs at nodes that a flow may have before only a sample is watched.
const PAIRS_MAX: usize = 1024;
/// How many are watched then.
const PAIRS_SAMPLED: usize = 32;

/// Why the theorem's bound does not hold for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caveat {
    /// The scheduler is no start-time fair queueing.
    OtherScheduler,
    /// `foreign = "single"` or a hybrid: totals are not what is shared.
    OtherPolicy,
    /// The mode that is not work-conserving.
    NotWorkConserving,
    /// A contract has a limit, or changes on the way.
    OtherTerms,
    /// Debt was forgotten: it had become older than `memory`.
    Memory,
}

impl Caveat {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Caveat::OtherScheduler => "the bound is that of sfq",
            Caveat::OtherPolicy => "the bound is that of foreign = \"total\"",
            Caveat::NotWorkConserving => "the bound is that of the work-conserving mode",
            Caveat::OtherTerms => "the bound is that of weights alone",
            Caveat::Memory => "what the memory forgave is beyond the bound",
        }
    }
}

/// What a run showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fairness {
    /// In what service is counted.
    pub unit: Option<CostUnit>,
    /// The largest difference of two flows, in cost by weight.
    pub worst: f64,
    /// The bound of that pair.
    pub bound: f64,
    /// The pair, and the gate.
    pub who: Option<(u32, u32, u32)>,
    /// The largest share of its bound that any pair used.
    pub of_bound: f64,
    /// Pairs at nodes that were watched.
    pub watched: u64,
    /// Of this number of pairs.
    pub of: u64,
    /// Where the theorem says nothing.
    pub caveat: Option<Caveat>,
}

/// Two flows at a gate.
#[derive(Clone, Debug)]
struct Pair {
    gate: u32,
    flows: [u32; 2],
    /// Least and most of the difference while both wait.
    range: Option<(f64, f64)>,
    /// Whether both wait was not looked at yet, or has to be anew.
    unknown: bool,
    worst: f64,
}

/// One flow.
#[derive(Clone, Debug, Default)]
struct Flow {
    weight: f64,
    gates: u32,
    total: u64,
    largest: u64,
    waiting_max: u32,
    batch_max: u64,
    error_max: u64,
    /// Its pairs.
    pairs: Vec<u32>,
}

/// A flow at a gate.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    served: u64,
    /// What was charged here of service elsewhere.
    known: u64,
}

/// Watches a run.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    flows: Vec<Flow>,
    pairs: Vec<Pair>,
    by_gate: Vec<Vec<u32>>,
    /// By gate and flow.
    here: Vec<Here>,
    changed: Vec<u32>,
    of: u64,
    pub(crate) caveat: Option<Caveat>,
    /// Nobody asks for what it sees.
    idle: bool,
}

impl Watch {
    /// Watches nothing from now on.
    pub(crate) fn stop(&mut self) {
        *self = Watch { caveat: self.caveat, idle: true, ..Watch::default() };
    }

    /// Flows with their weights and gates.
    pub(crate) fn new(flows: &[(u32, Vec<u32>)], gates: usize) -> Self {
        let mut at_gate: Vec<Vec<u32>> = vec![Vec::new(); gates];
        for (f, (_, on)) in flows.iter().enumerate() {
            on.iter().for_each(|g| at_gate[*g as usize].push(f as u32));
        }
        let mut watch = Watch {
            flows: flows
                .iter()
                .map(|(weight, on)| Flow {
                    weight: f64::from(*weight),
                    gates: on.len() as u32,
                    ..Flow::default()
                })
                .collect(),
            by_gate: vec![Vec::new(); gates],
            here: vec![Here::default(); gates * flows.len()],
            ..Watch::default()
        };
        let mut pairs_of = vec![0usize; flows.len()];
        for on in &at_gate {
            on.iter().for_each(|f| pairs_of[*f as usize] += on.len() - 1);
        }
        watch.of = pairs_of.iter().map(|n| *n as u64).sum::<u64>() / 2;
        let most = pairs_of.iter().copied().max().unwrap_or(0);
        let step = if most <= PAIRS_MAX { 1 } else { most / PAIRS_SAMPLED };
        let mut number = 0;
        for (gate, on) in at_gate.iter().enumerate() {
            for (i, f) in on.iter().enumerate() {
                for g in &on[..i] {
                    number += 1;
                    if number % step == 0 {
                        watch.add(gate as u32, [*f, *g]);
                    }
                }
            }
        }
        watch
    }

    fn add(&mut self, gate: u32, flows: [u32; 2]) {
        let number = self.pairs.len() as u32;
        self.pairs.push(Pair { gate, flows, range: None, unknown: true, worst: 0.0 });
        self.by_gate[gate as usize].push(number);
        flows.iter().for_each(|f| self.flows[*f as usize].pairs.push(number));
    }

    fn here(&mut self, gate: u32, flow: u32) -> &mut Here {
        let flows = self.flows.len();
        &mut self.here[gate as usize * flows + flow as usize]
    }

    /// A request came; `waiting` of its flow wait at that gate now, and coordinators have sent `batch` elsewhere.
    pub(crate) fn submitted(&mut self, flow: u32, waiting: u32, batch: Cost) {
        if self.idle {
            return;
        }
        let flow = &mut self.flows[flow as usize];
        flow.waiting_max = flow.waiting_max.max(waiting);
        flow.batch_max = flow.batch_max.max(batch.get());
    }

    /// A request was served.
    pub(crate) fn served(&mut self, gate: u32, flow: u32, cost: Cost) {
        if self.idle {
            return;
        }
        self.here(gate, flow).served += cost.get();
        let state = &mut self.flows[flow as usize];
        state.total += cost.get();
        state.largest = state.largest.max(cost.get());
        if !self.changed.contains(&flow) {
            self.changed.push(flow);
        }
    }

    /// A gate learnt of service elsewhere.
    pub(crate) fn told(&mut self, gate: u32, flow: u32, service: Cost) {
        if self.idle {
            return;
        }
        let total = self.flows[flow as usize].total;
        let here = self.here(gate, flow);
        let elsewhere = total - here.served;
        let before = elsewhere.abs_diff(here.known);
        here.known += service.get();
        let error = before.max(elsewhere.abs_diff(here.known));
        let state = &mut self.flows[flow as usize];
        state.error_max = state.error_max.max(error);
    }

    /// A turn is over at a gate: who waits there goes on being compared. Nothing has changed for those that have not
    /// `dirty`; what is known of them is not in any cache.
    pub(crate) fn look(&mut self, gate: u32, dirty: Dirty, waits: impl Fn(u32) -> bool) {
        if self.idle {
            return;
        }
        let Watch { by_gate, pairs, flows, .. } = self;
        for number in &by_gate[gate as usize] {
            let pair = &mut pairs[*number as usize];
            if !pair.unknown && !pair.flows.iter().any(|f| dirty.may_have(FlowId(*f))) {
                debug_assert_eq!(pair.range.is_some(), waits(pair.flows[0]) && waits(pair.flows[1]));
                continue;
            }
            pair.unknown = false;
            let both = waits(pair.flows[0]) && waits(pair.flows[1]);
            match (both, pair.range) {
                (false, _) => pair.range = None,
                (true, None) => {
                    let d = difference(flows, pair.flows);
                    pair.range = Some((d, d));
                }
                (true, Some(_)) => {}
            }
        }
    }

    /// A turn is over: differences that changed are looked at.
    pub(crate) fn end_turn(&mut self) {
        let Watch { changed, pairs, flows, .. } = self;
        for flow in changed.drain(..) {
            for number in &flows[flow as usize].pairs {
                let pair = &mut pairs[*number as usize];
                if let Some((low, high)) = &mut pair.range {
                    let d = difference(flows, pair.flows);
                    (*low, *high) = (low.min(d), high.max(d));
                    pair.worst = pair.worst.max(*high - *low);
                }
            }
        }
    }

    /// A contract changed: comparing begins anew, and the theorem no longer covers the run.
    pub(crate) fn reweigh(&mut self, flow: u32, weight: u32) {
        if self.idle {
            return;
        }
        self.flows[flow as usize].weight = f64::from(weight);
        self.caveat.get_or_insert(Caveat::OtherTerms);
        for number in self.flows[flow as usize].pairs.clone() {
            let pair = &mut self.pairs[number as usize];
            (pair.range, pair.unknown) = (None, true);
        }
    }

    /// The run is over. `depth` of each gate; `messages` where nodes send some; `open` batches at the end.
    pub(crate) fn finish(
        mut self,
        depth: impl Fn(u32) -> u32,
        messages: bool,
        open: impl Fn(u32) -> Cost,
    ) -> Fairness {
        let flows = self.flows.len() as u32;
        for flow in 0..flows {
            let batch = open(flow).get();
            let state = &mut self.flows[flow as usize];
            state.batch_max = state.batch_max.max(batch);
            if messages {
                let total = state.total;
                let at = |gate: usize| self.here[gate * flows as usize + flow as usize];
                let gates = 0..self.by_gate.len();
                let error = gates
                    .map(at)
                    .filter(|h| h.served > 0)
                    .map(|h| (total - h.served).abs_diff(h.known))
                    .max();
                let state = &mut self.flows[flow as usize];
                state.error_max = state.error_max.max(error.unwrap_or(0));
            }
        }
        let mut result = Fairness {
            watched: self.pairs.len() as u64,
            of: self.of,
            caveat: self.caveat,
            ..Fairness::default()
        };
        for pair in &self.pairs {
            let depth = f64::from(depth(pair.gate));
            let bound: f64 = pair.flows.iter().map(|f| part(&self.flows[*f as usize], depth, messages)).sum();
            if pair.worst > 0.0 {
                result.of_bound = result.of_bound.max(pair.worst / bound);
            }
            if pair.worst > result.worst {
                (result.worst, result.bound) = (pair.worst, bound);
                result.who = Some((pair.flows[0], pair.flows[1], pair.gate));
            }
        }
        result
    }
}

fn difference(flows: &[Flow], pair: [u32; 2]) -> f64 {
    let normal = |f: u32| flows[f as usize].total as f64 / flows[f as usize].weight;
    normal(pair[0]) - normal(pair[1])
}

/// A flow's part of the bound.
fn part(flow: &Flow, depth: f64, messages: bool) -> f64 {
    let waiting = f64::from(flow.waiting_max);
    let largest = flow.largest as f64;
    let requests = ((depth + waiting) * f64::from(flow.gates) + 1.0) * largest;
    let elsewhere = match messages {
        true => 2.0 * flow.error_max as f64,
        false => (waiting + 1.0) * flow.batch_max as f64,
    };
    (requests + elsewhere) / flow.weight
}
