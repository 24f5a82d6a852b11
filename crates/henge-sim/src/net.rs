//! How gates learn what a flow got at others: from coordinators, with the requests, or by messages.
//!
//! To DSFQ every gate is a node: a scenario's nodes, or the spindles of an array that are scheduled one by one.
//! The state machines are the ones that nodes use (`henge_sched::foreign`); here are the wires between them.

use henge_core::{
    Contract, Cost, CostUnit, Duration, FlowId, Instant, News, NodeId, ParamError, Params, Pending, Request,
    RequestId, Sender, Striping, Sync, Value,
};
use henge_sched::CentralClock;
use henge_sched::foreign::{Coordinator, Extent, Outbox, Served, Synchronizer, synchronizer};

/// A total as links between nodes send it, in its frame, with the headers of Ethernet, IP and TCP.
const TOTAL_BYTES: u64 = 40 + 66;
/// Besides, for each node that a layout names.
const NODE_BYTES: u64 = 8;

/// What was sent for synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Of them delivered before the end.
    pub delivered: u64,
    /// Bytes of them all, headers of the network included.
    pub bytes: u64,
    /// What nodes spent on sending and receiving them.
    pub time: Duration,
    /// Finish times that were made centrally.
    pub tags: u64,
    /// Of them those that came when their request had gone already: it went by its gate's own.
    pub tags_late: u64,
}

/// A finish time on its way from the manager to a gate.
#[derive(Clone, Copy)]
pub(crate) struct Tag {
    pub gate: u32,
    pub id: RequestId,
    pub lead: Duration,
}

/// The network of a scenario.
pub(crate) struct Net {
    latency: Duration,
    /// Bytes a second that a node can send.
    bandwidth: Option<u64>,
    /// What a message takes of a node's time, at each end.
    message: Duration,
    /// By gate: until when it sends what was written before.
    sending: Vec<Instant>,
    /// By flow: its coordinators.
    coordinators: Vec<Vec<Coordinator>>,
    /// By gate; empty where coordinators piggyback.
    synchronizers: Vec<Box<dyn Synchronizer>>,
    /// No synchronizer wants to be called before; it may be earlier than any wants it by now.
    due: Option<Instant>,
    outbox: Outbox,
    wires: Pending<(NodeId, Sync)>,
    /// Where finish times are made centrally: by flow, the clock of its whole contract.
    central: Option<Vec<Option<CentralClock>>>,
    tags: Pending<Tag>,
    pub traffic: Traffic,
}

/// `sync` of a scenario, read once and built per gate.
#[derive(Default)]
pub(crate) struct NetParams {
    latency: Duration,
    bandwidth: Option<u64>,
    message: Duration,
    /// T of coordinators that reach disjoint nodes.
    every: Option<Cost>,
    /// Between nodes; `None` leaves it to coordinators.
    sync: Option<Params>,
    central: bool,
}

impl NetParams {
    /// Reads `[network]`: `latency`, `bandwidth`, `message` (what one takes of a node's time, at each end),
    /// `sync = "piggyback"` (or with `every`), `"predict"`, `"threshold"`, `"layout"`; `tags = "local"` or `"central"`.
    pub(crate) fn read(mut p: Params) -> Result<Self, ParamError> {
        let latency = p.duration("latency")?.unwrap_or_default();
        let bandwidth = match p.rate("bandwidth")? {
            None => None,
            Some(rate) if rate.unit == CostUnit::Bytes && rate.per_second > 0 => Some(rate.per_second),
            Some(_) => return Err(p.error("bandwidth", "a bandwidth is in bytes, like \"125MB/s\"".into())),
        };
        let message = p.duration("message")?.unwrap_or_default();
        let central = match p.text("tags")?.as_deref() {
            None | Some("local") => false,
            Some("central") => true,
            Some(other) => {
                let message = format!(
                    "tags are \"local\" (every gate's own) or \"central\" (the manager's), not \"{other}\""
                );
                return Err(p.error("tags", message));
            }
        };
        let mut all = NetParams { latency, bandwidth, message, central, ..NetParams::default() };
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

    /// The network of `gates` gates.
    pub(crate) fn build(&self, gates: usize) -> Result<Net, ParamError> {
        let mut net = Net::none();
        net.latency = self.latency;
        net.bandwidth = self.bandwidth;
        net.message = self.message;
        net.central = self.central.then(Vec::new);
        net.sending = vec![Instant::ZERO; gates];
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
            bandwidth: None,
            message: Duration::ZERO,
            sending: Vec::new(),
            coordinators: Vec::new(),
            synchronizers: Vec::new(),
            due: None,
            outbox: Outbox::new(),
            wires: Pending::new(),
            central: None,
            tags: Pending::new(),
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

    /// The whole contract of a flow, for the clock that makes its finish times.
    pub(crate) fn promise(&mut self, flow: FlowId, contract: &Contract) {
        let Some(central) = &mut self.central else { return };
        central.resize(central.len().max(flow.index() + 1), None);
        let clock = &mut central[flow.index()];
        if !clock.as_mut().is_some_and(|clock| clock.change(contract)) {
            *clock = CentralClock::new(contract);
        }
    }

    /// A gate relays a request to the manager: the finish time that it is given, and when the gate has it. Messages take as long
    /// one as the other, so the manager sees requests in the order in which they came.
    pub(crate) fn relay(&mut self, gate: u32, request: &Request, now: Instant) -> Option<(Instant, Tag)> {
        let clock = self.clock(request)?;
        let unit = clock.rate().unit;
        let lead = clock.tag(cost_of(request, unit), now);
        self.traffic.tags += 1;
        Some((now + self.latency * 2, Tag { gate, id: request.id, lead }))
    }

    /// The clock of the request's flow, where there is one. Nobody promises a rate of disk time.
    fn clock(&mut self, request: &Request) -> Option<&mut CentralClock> {
        let clock = self.central.as_mut()?.get_mut(request.flow.index())?.as_mut()?;
        Some(clock).filter(|clock| clock.rate().unit != CostUnit::DiskTime)
    }

    /// A request that was relayed is over.
    pub(crate) fn over(&mut self, request: &Request) {
        if let Some(clock) = self.clock(request) {
            let unit = clock.rate().unit;
            clock.over(cost_of(request, unit));
        }
    }

    /// A finish time is on its way.
    pub(crate) fn send_tag(&mut self, tag: Tag) -> RequestId {
        self.tags.insert(tag)
    }

    /// It is there.
    pub(crate) fn receive_tag(&mut self, id: RequestId) -> Tag {
        self.tags.remove(id).expect("a tag arrives once")
    }

    /// Whether nodes tell each other anything.
    pub(crate) fn has_messages(&self) -> bool {
        !self.synchronizers.is_empty()
    }

    /// What the request carries: service elsewhere that its coordinator knows of. And what all coordinators together had
    /// not told the gate before.
    pub(crate) fn piggyback(
        &mut self,
        thread: u32,
        gate: u32,
        request: &Request,
        unit: CostUnit,
    ) -> (Cost, Cost) {
        let Some(coordinators) = self.coordinators.get_mut(request.flow.index()) else {
            return (Cost::ZERO, Cost::ZERO);
        };
        if coordinators.is_empty() {
            return (Cost::ZERO, Cost::ZERO);
        }
        let cost = cost_of(request, unit);
        let (flow, to) = (request.flow, NodeId(gate));
        let open = match coordinators.as_slice() {
            [_] => None,
            several => Some(several.iter().map(|c| c.open(flow, to)).sum::<Cost>()),
        };
        let coordinator = thread as usize % coordinators.len();
        let carried = coordinators[coordinator].send(flow, to, cost, &mut self.outbox);
        (carried, open.unwrap_or(carried) + cost)
    }

    /// The most that the coordinators of a flow have not told one of its gates.
    pub(crate) fn open(&self, flow: FlowId, gates: &[u32]) -> Cost {
        let Some(coordinators) = self.coordinators.get(flow.index()) else { return Cost::ZERO };
        let toward = |gate: &u32| coordinators.iter().map(|c| c.open(flow, NodeId(*gate))).sum::<Cost>();
        gates.iter().map(toward).max().unwrap_or_default()
    }

    /// A request came in at a gate; `striping` is the layout of what it touches.
    pub(crate) fn arrived(
        &mut self,
        gate: u32,
        request: &Request,
        striping: Option<&Striping>,
        now: Instant,
    ) {
        if let Some(synchronizer) = self.synchronizers.get_mut(gate as usize) {
            if let Some(striping) = striping {
                synchronizer.set_striping(request.flow, striping);
            }
            synchronizer.arrived(request.flow, now, &mut self.outbox);
            self.due = earlier(self.due, synchronizer.wake_at());
        }
    }

    /// A request was served at a gate, a part of the command's `extent`; what becomes known there of service elsewhere.
    pub(crate) fn served(
        &mut self,
        gate: u32,
        request: &Request,
        striping: Option<&Striping>,
        extent: Extent,
        now: Instant,
    ) -> Cost {
        let Some(synchronizer) = self.synchronizers.get_mut(gate as usize) else { return Cost::ZERO };
        if let Some(striping) = striping {
            synchronizer.set_striping(request.flow, striping);
        }
        let extent = striping.map(|_| extent);
        let served = Served { flow: request.flow, cost: request.cost, extent };
        synchronizer.served(&served, now, &mut self.outbox)
    }

    /// Messages that were written go on the wires: `enter` when each arrives, under which name; `busy` is what each
    /// takes of its sender's time.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        mut enter: impl FnMut(Instant, RequestId),
        mut busy: impl FnMut(u32, Duration),
    ) {
        for (to, message) in self.outbox.drain(..) {
            let bytes = match &message.news {
                News::Layout(striping) => TOTAL_BYTES + NODE_BYTES * striping.nodes.len() as u64,
                News::Total { .. } | News::Departed => TOTAL_BYTES,
            };
            self.traffic.messages += 1;
            self.traffic.bytes += bytes;
            let mut leaves = now;
            if let Sender::Node(from) = message.sender {
                if let Some(rate) = self.bandwidth {
                    let free = &mut self.sending[from.0 as usize];
                    *free = (*free).max(now) + Duration::from_nanos((bytes * 1_000_000_000).div_ceil(rate));
                    leaves = *free;
                }
                if self.message > Duration::ZERO {
                    self.traffic.time += self.message;
                    busy(from.0, self.message);
                }
            }
            enter(leaves + self.latency, self.wires.insert((to, message)));
        }
    }

    /// A message arrives: at which gate, about whom, what it tells, and what it takes of the gate's time.
    pub(crate) fn receive(&mut self, id: RequestId, now: Instant) -> (u32, FlowId, Cost, Duration) {
        let (to, message) = self.wires.remove(id).expect("a message arrives once");
        self.traffic.delivered += 1;
        self.traffic.time += self.message;
        let cost = match self.synchronizers.get_mut(to.0 as usize) {
            Some(synchronizer) => {
                let cost = synchronizer.receive(&message, now);
                self.due = earlier(self.due, synchronizer.wake_at());
                cost
            }
            None => announced(&message),
        };
        (to.0, message.flow, cost, self.message)
    }

    /// The next time that a synchronizer wants to be called.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        for synchronizer in &mut self.synchronizers {
            if synchronizer.wake_at().is_some_and(|at| at <= now) {
                synchronizer.tick(now, &mut self.outbox);
            }
        }
        self.due = self.synchronizers.iter().filter_map(|s| s.wake_at()).min();
    }
}

/// The earlier of two, where there are any.
fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A coordinator's own counter: the increase since its last message.
fn announced(message: &Sync) -> Cost {
    match message.news {
        henge_core::News::Total { total, before } => total.saturating_sub(before),
        _ => Cost::ZERO,
    }
}
