//! Layout-driven: where a flow's bytes are striped evenly, its total is *computed* from what it gets here.
//!
//! ```text
//!   foreign(p) = (N_f − 1) · cost(p)                        round-robin striping over N_f nodes
//!              = cost(p) · (len − here(p)) / here(p)        of a command that reaches all of them: its own stripes
//! ```
//!
//! A command that reaches some nodes alone says nothing of commands that pass this node by: 64 KiB at a time over four nodes of
//! 64 KiB stripes, each has nothing elsewhere, and yet three quarters of the flow are there. So it counts as evenly as the
//! flow is striped.
//!
//! Once per flow the layout's first node announces the layout to the others when it sees the flow's first request (all
//! nodes see one at once; if each announced, that were N² messages). Messages: O(flows · N), none per byte. A flow that
//! is quiet for a while is announced as departed, and its layout forgotten. (vPFS)
//!
//! Wrong for small or uneven I/O, by as much as the I/O is: see `predict.rs` for what corrects itself.

use super::heard::Totals;
use super::{Outbox, Served, Synchronizer};
use henge_core::{Cost, Duration, FlowId, Instant, News, NodeId, Sender, Striping, Sync};
use std::collections::{BTreeMap, BTreeSet};

/// Departures looked at in a step.
const STEP: usize = 64;

/// Computes totals from layouts.
#[derive(Clone, Debug)]
pub struct LayoutDriven {
    here: NodeId,
    epoch: u64,
    quiet: Duration,
    sequence: u64,
    flows: BTreeMap<FlowId, Flow>,
    totals: Totals,
    /// When active flows are to be looked at: no later than they depart.
    departures: BTreeSet<(Instant, FlowId)>,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    /// As it became known here (by a request, or by configuration).
    own: Option<Placed>,
    /// In force while the flow is active: whose share is computed.
    active: Option<Placed>,
    /// Nodes announced the flow, and must hear of its departure.
    announced: bool,
    last: Instant,
    /// Its time among the departures.
    departs: Option<Instant>,
}

impl LayoutDriven {
    /// How long a flow is quiet before it has departed, where configuration says nothing.
    pub const QUIET_DEFAULT: Duration = Duration::from_secs(1);

    /// The node `here`, since its `epoch`.
    pub fn new(here: NodeId, epoch: u64, quiet: Duration) -> Self {
        LayoutDriven {
            here,
            epoch,
            quiet,
            sequence: 0,
            flows: BTreeMap::new(),
            totals: Totals::default(),
            departures: BTreeSet::new(),
        }
    }

    /// Looks at the flow again once it may have been quiet for long enough.
    fn expect_departure(&mut self, flow: FlowId) {
        if let Some(state) = self.flows.get_mut(&flow).filter(|f| f.active.is_some() && f.departs.is_none()) {
            let at = state.last + self.quiet;
            state.departs = Some(at);
            self.departures.insert((at, flow));
        }
    }

    fn tell(&mut self, flow: FlowId, striping: &Striping, news: &News, out: &mut Outbox) {
        self.sequence += 1;
        let sync = Sync {
            sender: Sender::Node(self.here),
            epoch: self.epoch,
            sequence: self.sequence,
            flow,
            news: news.clone(),
        };
        let others = striping.nodes.iter().filter(|n| **n != self.here);
        out.extend(others.map(|n| (*n, sync.clone())));
    }
}

/// A layout, and where this node is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub striping: Striping,
    at: usize,
}

impl Placed {
    /// `None` when the layout does not reach this node, or is none.
    pub fn new(striping: &Striping, here: NodeId) -> Option<Self> {
        let at = striping.nodes.iter().position(|n| *n == here)?;
        (striping.stripe > 0).then(|| Placed { striping: striping.clone(), at })
    }

    /// What a request that cost `served.cost` here stands for at the other nodes.
    pub fn share_elsewhere(&self, served: &Served) -> Cost {
        let others = self.striping.nodes.len() as u64 - 1;
        let even = Cost::new(served.cost.get().saturating_mul(others));
        let Some(extent) = served.extent else { return even };
        let (first, end) = (extent.offset / self.striping.stripe, extent.offset.saturating_add(extent.len));
        if end.div_ceil(self.striping.stripe) - first <= others {
            return even;
        }
        match self.striping.bytes_on(self.at, extent.offset, extent.len) {
            0 => even, // not a part of this extent, whatever the caller thinks
            own => {
                let elsewhere =
                    u128::from(served.cost.get()) * u128::from(extent.len - own) / u128::from(own);
                Cost::new(u64::try_from(elsewhere).unwrap_or(u64::MAX))
            }
        }
    }
}

impl Synchronizer for LayoutDriven {
    fn set_flow(&mut self, flow: FlowId, _: &[NodeId]) {
        self.flows.entry(flow).or_default();
        self.totals.set_flow(flow);
    }
    fn remove_flow(&mut self, flow: FlowId) {
        if let Some(at) = self.flows.remove(&flow).and_then(|state| state.departs) {
            self.departures.remove(&(at, flow));
        }
        self.totals.remove_flow(flow);
    }
    fn set_striping(&mut self, flow: FlowId, striping: &Striping) {
        let Some(state) = self.flows.get_mut(&flow) else { return };
        if state.own.as_ref().is_some_and(|own| own.striping == *striping) {
            return;
        }
        if let Some(placed) = Placed::new(striping, self.here) {
            state.own = Some(placed);
            if state.active.is_some() {
                state.active.clone_from(&state.own);
            }
        }
    }

    fn arrived(&mut self, flow: FlowId, now: Instant, out: &mut Outbox) {
        let Some(state) = self.flows.get_mut(&flow) else { return };
        state.last = now;
        if state.active.is_some() {
            return;
        }
        let Some(own) = state.own.clone() else { return };
        state.active = Some(own.clone());
        state.announced |= own.at == 0;
        self.expect_departure(flow);
        if own.at == 0 {
            self.tell(flow, &own.striping, &News::Layout(own.striping.clone()), out);
        }
    }

    fn served(&mut self, served: &Served, now: Instant, _: &mut Outbox) -> Cost {
        let Some(state) = self.flows.get_mut(&served.flow) else { return Cost::ZERO };
        state.last = now;
        state.active.as_ref().map_or(Cost::ZERO, |placed| placed.share_elsewhere(served))
    }

    fn receive(&mut self, sync: &Sync, now: Instant) -> Cost {
        let here = self.here;
        let placed = |s: &Striping| if s.nodes.len() <= 65_536 { Placed::new(s, here) } else { None };
        if !self.totals.is_newer(sync) {
            return Cost::ZERO;
        }
        let Some(state) = self.flows.get_mut(&sync.flow) else { return Cost::ZERO };
        match &sync.news {
            News::Layout(striping) => {
                // What its own requests show, a node knows better.
                state.active = state.own.clone().or_else(|| placed(striping));
                state.last = now;
                self.expect_departure(sync.flow);
            }
            News::Departed => state.active = None,
            News::Total { .. } => {}
        }
        Cost::ZERO
    }

    fn wake_at(&self) -> Option<Instant> {
        self.departures.first().map(|(at, _)| *at)
    }

    fn tick(&mut self, now: Instant, out: &mut Outbox) {
        for _ in 0..STEP {
            let Some((at, flow)) = self.departures.first().copied().filter(|(at, _)| *at <= now) else {
                break;
            };
            self.departures.remove(&(at, flow));
            let state = self.flows.get_mut(&flow).expect("a flow that departs is there");
            state.departs = None;
            if state.active.is_some() && state.last + self.quiet > now {
                self.expect_departure(flow); // it was heard of since
            } else if let Some(placed) = state.active.take()
                && std::mem::take(&mut state.announced)
            {
                self.tell(flow, &placed.striping, &News::Departed, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extent;
    use super::*;

    const FLOW: FlowId = FlowId(3);

    fn striping() -> Striping {
        Striping { stripe: 64 << 10, nodes: vec![NodeId(5), NodeId(6), NodeId(7), NodeId(8)] }
    }

    fn node(n: u32) -> LayoutDriven {
        let mut node = LayoutDriven::new(NodeId(n), 1, Duration::from_secs(1));
        node.set_flow(FLOW, &striping().nodes);
        node
    }

    #[test]
    fn the_first_node_announces_once_and_the_rest_compute() {
        let (mut first, mut third) = (node(5), node(7));
        let mut out = Outbox::new();
        third.set_striping(FLOW, &striping());
        third.arrived(FLOW, Instant::ZERO, &mut out);
        assert!(out.is_empty(), "only the layout's first node announces");
        third = node(7);
        first.set_striping(FLOW, &striping());
        for _ in 0..5 {
            first.arrived(FLOW, Instant::ZERO, &mut out);
        }
        assert_eq!(out.iter().map(|(to, _)| to.0).collect::<Vec<_>>(), [6, 7, 8]);
        let served = Served { flow: FLOW, cost: Cost::new(1000), extent: None };
        assert_eq!(third.served(&served, Instant::ZERO, &mut Outbox::new()), Cost::ZERO);
        third.receive(&out[1].1, Instant::ZERO);
        assert_eq!(third.served(&served, Instant::ZERO, &mut Outbox::new()), Cost::new(3000));
        // 320 KiB from the start: two stripes on the first node, one on each of the others.
        let extent = Some(Extent { offset: 0, len: 320 << 10 });
        let part = Served { flow: FLOW, cost: Cost::new(128 << 10), extent };
        assert_eq!(first.served(&part, Instant::ZERO, &mut out), Cost::new(192 << 10));
        // 128 KiB are on the first two alone; others like it are on the other two.
        let extent = Some(Extent { offset: 0, len: 128 << 10 });
        let part = Served { flow: FLOW, cost: Cost::new(64 << 10), extent };
        assert_eq!(first.served(&part, Instant::ZERO, &mut out), Cost::new(3 * (64 << 10)));
    }

    #[test]
    fn a_quiet_flow_departs_and_an_overtaken_message_is_ignored() {
        let (mut first, mut second) = (node(5), node(6));
        first.set_striping(FLOW, &striping());
        let mut out = Outbox::new();
        first.arrived(FLOW, Instant::ZERO, &mut out);
        let layout = out.remove(0).1;
        out.clear();
        let at = first.wake_at().unwrap();
        assert_eq!(at, Instant::ZERO + Duration::from_secs(1));
        first.tick(at, &mut out);
        let departed = out.remove(0).1;
        assert_eq!(departed.news, News::Departed);
        second.receive(&departed, at);
        second.receive(&layout, at); // late
        let served = Served { flow: FLOW, cost: Cost::new(1000), extent: None };
        assert_eq!(second.served(&served, at, &mut Outbox::new()), Cost::ZERO);
        assert_eq!(first.wake_at(), None);
    }

    #[test]
    fn many_flows_depart_in_steps_each_when_it_has_been_quiet() {
        let mut first = node(5);
        let (ms, mut out) = (|ms| Instant::ZERO + Duration::from_millis(ms), Outbox::new());
        let flows = 3 * STEP as u32;
        for flow in 0..flows {
            first.set_flow(FlowId(flow), &[]);
            first.set_striping(FlowId(flow), &striping());
            first.arrived(FlowId(flow), ms(0), &mut out);
        }
        // A third is heard of again, and a third is removed.
        for flow in (0..flows).step_by(3) {
            first.arrived(FlowId(flow), ms(400), &mut out);
            first.remove_flow(FlowId(flow + 1));
        }
        let mut departures = Vec::new();
        while let Some(at) = first.wake_at() {
            out.clear();
            first.tick(at, &mut out);
            assert!(out.len() <= 3 * STEP, "each is told to three others");
            departures.extend(out.iter().step_by(3).map(|(_, sync)| (at, sync.flow.0)));
        }
        let of = |rest| (0..flows).filter(move |flow| flow % 3 == rest);
        let expected = of(2).map(|f| (ms(1000), f)).chain(of(0).map(|f| (ms(1400), f)));
        assert_eq!(departures, expected.collect::<Vec<_>>());
    }
}
