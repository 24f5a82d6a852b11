//! How gates learn what a flow got at others: from coordinators, with the requests, or by messages.
//!
//! To DSFQ every gate is a node: a scenario's nodes, or the spindles of an array that are scheduled one by one.
//! The state machines are the ones that nodes use (`henge_sched::foreign`); here are the wires between them.

use henge_core::{
    Cost, CostUnit, Duration, FlowId, Instant, NodeId, ParamError, Params, Pending, Request, RequestId, Sync,
    Value,
};
use henge_sched::foreign::{Coordinator, Outbox, Served, Synchronizer, synchronizer};

/// What was sent for synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Of them delivered before the end.
    pub delivered: u64,
}

/// The network of a scenario.
pub(crate) struct Net {
    latency: Duration,
    /// By flow: its coordinators.
    coordinators: Vec<Vec<Coordinator>>,
    /// By gate; empty where coordinators piggyback.
    synchronizers: Vec<Box<dyn Synchronizer>>,
    outbox: Outbox,
    wires: Pending<(NodeId, Sync)>,
    pub traffic: Traffic,
}

/// `sync` of a scenario, read once and built per gate.
pub(crate) struct NetParams {
    latency: Duration,
    /// T of coordinators that reach disjoint nodes.
    every: Option<Cost>,
    /// Between nodes; `None` leaves it to coordinators.
    sync: Option<Params>,
}

impl Default for NetParams {
    fn default() -> Self {
        NetParams { latency: Duration::ZERO, every: None, sync: None }
    }
}

impl NetParams {
    /// Reads `[network]`: `latency`, `sync = "piggyback"` (or with `every`), `"predict"`, `"threshold"`, `"layout"`.
    pub(crate) fn read(mut p: Params) -> Result<Self, ParamError> {
        let latency = p.duration("latency")?.unwrap_or_default();
        let mut all = NetParams { latency, ..NetParams::default() };
        let named = match p.get_mut("sync") {
            Some(Value::Text(name)) => Some(name.clone()),
            Some(Value::Table(table)) => table.keys().first().cloned(),
            _ => None,
        };
        match named.as_deref() {
            None => {}
            Some("piggyback") => {
                let (_, mut inner) = p.choice("sync")?.expect("it was just seen");
                all.every = inner.size("every")?.filter(|t| *t > 0).map(Cost::new);
                inner.finish()?;
            }
            Some(_) => {
                let value = p.take("sync").expect("it was just seen");
                let sync = Params::at("network", p.span()).with("sync", value);
                // Read once here, so that an error has its place.
                synchronizer(&mut sync.clone(), NodeId(0), 0)?;
                all.sync = Some(sync);
            }
        }
        p.finish()?;
        Ok(all)
    }

    /// The network of so many gates.
    pub(crate) fn build(&self, gates: usize) -> Result<Net, ParamError> {
        let mut net = Net::none();
        net.latency = self.latency;
        if let Some(sync) = &self.sync {
            for gate in 0..gates {
                net.synchronizers.push(synchronizer(&mut sync.clone(), NodeId(gate as u32), 0)?);
            }
        }
        Ok(net)
    }

    /// The coordinators of `flow`, which lies on `gates`.
    pub(crate) fn coordinators(&self, flow: FlowId, gates: &[u32], count: u64) -> Vec<Coordinator> {
        let nodes: Vec<NodeId> = gates.iter().map(|g| NodeId(*g)).collect();
        if nodes.len() < 2 || self.sync.is_some() {
            return Vec::new();
        }
        let make = |i: u64| {
            let mut coordinator = Coordinator::new(NodeId(flow.0 << 16 | i as u32), 0, self.every);
            coordinator.set_flow(flow, &nodes);
            coordinator
        };
        (0..count).map(make).collect()
    }
}

/// What a part costs at a gate, as far as a coordinator can know.
fn cost_of(request: &Request, unit: CostUnit) -> Cost {
    match unit {
        CostUnit::Requests => Cost::new(u64::from(request.commands)),
        // Disk time is not known before; bytes are the best that is.
        CostUnit::Bytes | CostUnit::DiskTime => Cost::new(request.len.max(1)),
    }
}

impl Net {
    /// No wires at all.
    pub(crate) fn none() -> Self {
        Net {
            latency: Duration::ZERO,
            coordinators: Vec::new(),
            synchronizers: Vec::new(),
            outbox: Outbox::new(),
            wires: Pending::new(),
            traffic: Traffic::default(),
        }
    }

    pub(crate) fn add_flow(&mut self, coordinators: Vec<Coordinator>) {
        self.coordinators.push(coordinators);
    }

    /// Which gates serve a flow.
    pub(crate) fn set_flow(&mut self, flow: FlowId, gates: &[u32]) {
        let nodes: Vec<NodeId> = gates.iter().map(|g| NodeId(*g)).collect();
        for gate in gates {
            if let Some(synchronizer) = self.synchronizers.get_mut(*gate as usize) {
                synchronizer.set_flow(flow, &nodes);
            }
        }
    }

    pub(crate) fn remove_flow(&mut self, flow: FlowId) {
        self.synchronizers.iter_mut().for_each(|s| s.remove_flow(flow));
    }

    /// What the request carries: service elsewhere that its coordinator knows of.
    pub(crate) fn piggyback(&mut self, thread: u32, gate: u32, request: &Request, unit: CostUnit) -> Cost {
        let Some(coordinators) = self.coordinators.get_mut(request.flow.index()) else { return Cost::ZERO };
        if coordinators.is_empty() {
            return Cost::ZERO;
        }
        let coordinator = thread as usize % coordinators.len();
        let cost = cost_of(request, unit);
        coordinators[coordinator].send(request.flow, NodeId(gate), cost, &mut self.outbox)
    }

    /// A request came in at a gate.
    pub(crate) fn arrived(&mut self, gate: u32, request: &Request, unit: CostUnit, now: Instant) {
        if let Some(synchronizer) = self.synchronizers.get_mut(gate as usize) {
            synchronizer.arrived(request.flow, cost_of(request, unit), now, &mut self.outbox);
        }
    }

    /// A request was served at a gate; what becomes known there of service elsewhere.
    pub(crate) fn served(&mut self, gate: u32, request: &Request, now: Instant) -> Cost {
        let Some(synchronizer) = self.synchronizers.get_mut(gate as usize) else { return Cost::ZERO };
        let served = Served { flow: request.flow, cost: request.cost, extent: None };
        synchronizer.served(&served, now, &mut self.outbox)
    }

    /// Messages that were written: when each arrives, and under which name.
    pub(crate) fn send(&mut self, now: Instant, mut enter: impl FnMut(Instant, RequestId)) {
        for (to, message) in self.outbox.drain(..) {
            self.traffic.messages += 1;
            enter(now + self.latency, self.wires.insert((to, message)));
        }
    }

    /// A message arrives: at which gate, about whom, and what it tells.
    pub(crate) fn receive(&mut self, id: RequestId, now: Instant) -> (u32, FlowId, Cost) {
        let (to, message) = self.wires.remove(id).expect("a message arrives once");
        self.traffic.delivered += 1;
        let cost = match self.synchronizers.get_mut(to.0 as usize) {
            Some(synchronizer) => synchronizer.receive(&message, now),
            None => announced(&message),
        };
        (to.0, message.flow, cost)
    }

    /// The next time that a synchronizer wants to be called.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.synchronizers.iter().filter_map(|s| s.wake_at()).min()
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        for synchronizer in &mut self.synchronizers {
            if synchronizer.wake_at().is_some_and(|at| at <= now) {
                synchronizer.tick(now, &mut self.outbox);
            }
        }
    }
}

/// A coordinator's own counter: the increase since its last message.
fn announced(message: &Sync) -> Cost {
    match message.news {
        henge_core::News::Total { total, before } => total.saturating_sub(before),
        _ => Cost::ZERO,
    }
}
