//! A small world to test schedulers in: nodes that serve one request after the other at a constant rate, clients
//! that keep so many requests outstanding, coordinators, and messages that take time and get lost.
#![allow(dead_code)] // each test file uses a part of it

use henge_core::{
    Contract, Cost, Dispatch, Duration, FlowId, Gate, Instant, NodeId, Op, Params, Pending, Request,
    RequestId, Sync, Value,
};
use henge_sched::build;
use henge_sched::foreign::{Coordinator, Outbox, Served, Synchronizer};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;

pub fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

pub fn secs(s: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(s)
}

/// A gate as `scheduler = { name = { … } }` makes it.
pub fn gate(name: &str, settings: &[(&str, Value)]) -> Gate {
    let params = settings.iter().fold(Params::new(name), |p, (key, value)| p.with(key, value.clone()));
    let mut gate = Gate::new(build(name, params).unwrap_or_else(|e| panic!("{e}")));
    gate.set_pending_max(1 << 20);
    gate
}

pub fn text(s: &str) -> Value {
    Value::Text(s.into())
}

/// What a client does next: a request of so many bytes to a node, or nothing before a moment.
pub enum Next {
    Send { node: usize, len: u64 },
    SleepUntil(Instant),
    Stop,
}

type Behaviour = Box<dyn FnMut(Instant, &mut Pcg64Mcg) -> Next>;

struct Client {
    flow: FlowId,
    behaviour: Behaviour,
    /// Requests that it may still add to those outstanding.
    idle: u32,
    sleeping_until: Instant,
    stopped: bool,
}

pub struct Node {
    pub gate: Gate,
    ids: Pending<usize>,
    in_service: VecDeque<(Instant, RequestId)>,
    free_at: Instant,
    bytes_per_second: u64,
    pub synchronizer: Option<Box<dyn Synchronizer>>,
    /// Bytes completed, by flow.
    pub service: Vec<u64>,
    /// When each flow was first and last served.
    pub first: Vec<Option<Instant>>,
}

pub struct World {
    pub nodes: Vec<Node>,
    clients: Vec<Client>,
    /// Per flow, taken in turn.
    pub coordinators: Vec<Vec<Coordinator>>,
    turn: usize,
    pub now: Instant,
    pub rng: Pcg64Mcg,
    pub latency: Duration,
    pub loss: f64,
    pub messages: u64,
    mail: VecDeque<(Instant, NodeId, Sync)>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        World {
            nodes: Vec::new(),
            clients: Vec::new(),
            coordinators: Vec::new(),
            turn: 0,
            now: Instant::ZERO,
            rng: Pcg64Mcg::seed_from_u64(seed),
            latency: Duration::from_micros(100),
            loss: 0.0,
            messages: 0,
            mail: VecDeque::new(),
        }
    }

    pub fn node(&mut self, gate: Gate, bytes_per_second: u64) {
        self.nodes.push(Node {
            gate,
            ids: Pending::new(),
            in_service: VecDeque::new(),
            free_at: Instant::ZERO,
            bytes_per_second,
            synchronizer: None,
            service: Vec::new(),
            first: Vec::new(),
        });
    }

    /// Sets a flow at all nodes, with `coordinators` (0: none) that piggyback.
    pub fn flow(&mut self, flow: u32, contract: &Contract, coordinators: u32) {
        let all: Vec<_> = (0..self.nodes.len() as u32).map(NodeId).collect();
        for node in &mut self.nodes {
            node.gate.set_flow(FlowId(flow), contract, self.now).unwrap_or_else(|e| panic!("{e}"));
            node.service.resize(node.service.len().max(flow as usize + 1), 0);
            node.first.resize(node.first.len().max(flow as usize + 1), None);
            if let Some(synchronizer) = &mut node.synchronizer {
                synchronizer.set_flow(FlowId(flow), &all);
            }
        }
        let make = |n| {
            let mut c = Coordinator::new(NodeId(100 + n), 1, None);
            c.set_flow(FlowId(flow), &all);
            c
        };
        self.coordinators.resize_with(self.coordinators.len().max(flow as usize + 1), Vec::new);
        self.coordinators[flow as usize] = (0..coordinators).map(make).collect();
    }

    /// A client of `flow` with so many requests outstanding.
    pub fn client(
        &mut self,
        flow: u32,
        outstanding: u32,
        behaviour: impl FnMut(Instant, &mut Pcg64Mcg) -> Next + 'static,
    ) {
        self.clients.push(Client {
            flow: FlowId(flow),
            behaviour: Box::new(behaviour),
            idle: outstanding,
            sleeping_until: self.now,
            stopped: false,
        });
    }

    /// The plainest client: all to one node, all of one size.
    pub fn steady(&mut self, flow: u32, outstanding: u32, node: usize, len: u64) {
        self.client(flow, outstanding, move |_, _| Next::Send { node, len });
    }

    /// Bytes that the flow got at all nodes.
    pub fn total(&self, flow: u32) -> u64 {
        self.nodes.iter().map(|n| n.service[flow as usize]).sum()
    }

    /// Requests of the flow that wait at the node.
    pub fn waiting(&self, node: usize, flow: u32) -> u32 {
        let meters = self.nodes[node].gate.flow_meters(FlowId(flow)).expect("a flow that is set");
        meters.pending - meters.in_flight
    }

    pub fn run(&mut self, until: Instant) {
        self.run_watched(until, |_| {});
    }

    /// Runs, and shows the world to `watch` after every event.
    pub fn run_watched(&mut self, until: Instant, mut watch: impl FnMut(&World)) {
        loop {
            self.deliver();
            self.send();
            (0..self.nodes.len()).for_each(|n| self.dispatch(n));
            watch(self);
            let Some(next) = self.next_event().filter(|t| *t <= until) else { break };
            assert!(next >= self.now, "time goes on");
            self.now = next;
            (0..self.nodes.len()).for_each(|n| self.complete(n));
        }
        self.now = until;
    }

    fn next_event(&self) -> Option<Instant> {
        let node =
            |n: &Node| [n.in_service.front().map(|s| s.0), n.gate.wake_at()].into_iter().flatten().min();
        let nodes = self.nodes.iter().filter_map(node);
        let sleeping = |c: &&Client| c.idle > 0 && !c.stopped && c.sleeping_until > self.now;
        let clients = self.clients.iter().filter(sleeping).map(|c| c.sleeping_until);
        nodes.chain(clients).chain(self.mail.front().map(|m| m.0)).min()
    }

    fn send(&mut self) {
        for i in 0..self.clients.len() {
            loop {
                let client = &mut self.clients[i];
                if client.idle == 0 || client.stopped || client.sleeping_until > self.now {
                    break;
                }
                match (client.behaviour)(self.now, &mut self.rng) {
                    Next::Stop => client.stopped = true,
                    Next::SleepUntil(t) => client.sleeping_until = t.max(self.now + Duration::from_nanos(1)),
                    Next::Send { node, len } => {
                        client.idle -= 1;
                        let flow = client.flow;
                        self.submit(i, flow, node, len);
                    }
                }
            }
        }
    }

    fn submit(&mut self, client: usize, flow: FlowId, to: usize, len: u64) {
        let mut outbox = Outbox::new();
        let coordinators = &mut self.coordinators[flow.index()];
        let mut foreign = Cost::ZERO;
        if !coordinators.is_empty() {
            self.turn += 1;
            let at = self.turn % coordinators.len();
            foreign = coordinators[at].send(flow, NodeId(to as u32), Cost::new(len), &mut outbox);
        }
        let node = &mut self.nodes[to];
        let id = node.ids.insert(client);
        let request = Request { foreign, ..Request::new(id, flow, Op::Read, 0, len, self.now) };
        node.gate.submit(request, self.now).expect("room for every test");
        if let Some(synchronizer) = &mut node.synchronizer {
            synchronizer.arrived(flow, self.now, &mut outbox);
        }
        self.post(outbox);
    }

    fn dispatch(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        while let Dispatch::Ready(request) = node.gate.next(self.now) {
            let ns = request.len * 1_000_000_000 / node.bytes_per_second;
            node.free_at = node.free_at.max(self.now) + Duration::from_nanos(ns);
            node.in_service.push_back((node.free_at, request.id));
        }
    }

    fn complete(&mut self, n: usize) {
        let mut outbox = Outbox::new();
        let now = self.now;
        let node = &mut self.nodes[n];
        while node.in_service.front().is_some_and(|s| s.0 <= now) {
            let (_, id) = node.in_service.pop_front().expect("it was just seen");
            let served = node.gate.complete(id, false, now);
            let (flow, cost) = (served.request.flow, served.request.cost);
            node.service[flow.index()] += served.request.len;
            node.first[flow.index()].get_or_insert(now);
            let client = node.ids.remove(id).expect("a request is over once");
            self.clients[client].idle += 1;
            if let Some(synchronizer) = &mut node.synchronizer {
                let foreign = synchronizer.served(&Served { flow, cost, extent: None }, now, &mut outbox);
                node.gate.foreign(flow, foreign, now);
            }
        }
        self.post(outbox);
    }

    fn post(&mut self, outbox: Outbox) {
        for (to, sync) in outbox {
            self.messages += 1;
            if self.loss == 0.0 || !self.rng.random_bool(self.loss) {
                self.mail.push_back((self.now + self.latency, to, sync));
            }
        }
    }

    fn deliver(&mut self) {
        while self.mail.front().is_some_and(|m| m.0 <= self.now) {
            let (_, to, sync) = self.mail.pop_front().expect("it was just seen");
            let node = &mut self.nodes[to.0 as usize];
            if let Some(synchronizer) = &mut node.synchronizer {
                let foreign = synchronizer.receive(&sync, self.now);
                node.gate.foreign(sync.flow, foreign, self.now);
            }
        }
    }
}

/// Largest |ΔW_f/φ_f − ΔW_g/φ_g| over all stretches of time in which something held all through.
#[derive(Default)]
pub struct Unfairness {
    range: Option<(f64, f64)>,
    pub worst: f64,
}

impl Unfairness {
    pub fn see(&mut self, holds: bool, difference: f64) {
        if !holds {
            self.range = None;
            return;
        }
        let (low, high) = self.range.unwrap_or((difference, difference));
        let (low, high) = (low.min(difference), high.max(difference));
        self.range = Some((low, high));
        self.worst = self.worst.max(high - low);
    }
}
