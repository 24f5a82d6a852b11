//! Nodes, clients and the loop that lets them meet.
//!
//! ```text
//! client ─command─▶ layout ─parts─▶ gate + device model (one Pipeline each)
//!        ◀─answer── join   ◀───────────────────────────┘
//! ```
//!
//! A turn of the loop is one instant: every event that is due then is handled (clients send, contracts change,
//! devices wake), and only then are the pipelines that were touched polled until nothing is left. So requests
//! that come at one instant are all in the queue before the first of them is chosen, as in a node that reads all
//! its sockets before it polls. Whatever can happen in two orders happens in the order of gate and client number.

use crate::fairness::{Caveat, Watch};
use crate::interrupted::Interrupted;
use crate::meter::{Answered, Asked, Meter};
use crate::net::Net;
use crate::outcome::{GateOutcome, Outcome};
use crate::{Calendar, SimError};
use henge_core::{
    Contract, Cost, Duration, Finished, FlowId, Histogram, Instant, Op, Pending, Pipeline, Request,
    RequestId, RequestRow, Striping, WaitReason,
};
use henge_sched::foreign;
use henge_vdisk::{Extent, Layout};
use henge_workload::{Next, Record, Workload};

/// Who watches a run.
pub trait Observer {
    /// A request is over.
    fn row(&mut self, _row: &RequestRow<'_>) {}
    /// Simulated time goes on; called at the end of every window.
    fn progress(&mut self, _now: Instant, _end: Instant) {}
    /// Whether [`row`](Self::row) is wanted at all.
    fn wants_rows(&self) -> bool {
        false
    }
}

/// Nobody watches.
pub struct Unwatched;
impl Observer for Unwatched {}

/// What happens at an instant.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A pipeline has something to do.
    Gate(u32),
    /// A client has something to send.
    Client(u32),
    /// The scenario changes something.
    Change(u32),
    /// A message between nodes arrives.
    Message(RequestId),
    /// A synchronizer wants to be called.
    Tick,
}

/// A gate with its device.
pub(crate) struct GateState {
    pub name: String,
    pub node: u32,
    pub pipeline: Pipeline<Interrupted>,
    parts: Pending<PartOf>,
    /// Submissions and completions so far.
    seen: u64,
    wake: Option<Instant>,
    touched: bool,
    service: Histogram,
    busy_at_warm: Duration,
    depth_at_warm: u128,
    depths: Vec<f64>,
    /// Most that could be in flight, at the end of each window.
    limits: Vec<u32>,
    /// Of the windows in `depths` together.
    depth_so_far: u128,
    served: u64,
    busy: Duration,
    /// Since when each flow waits, and why; used when the run explains.
    waiting: Vec<Option<(Instant, WaitReason)>>,
}

impl GateState {
    pub(crate) fn new(name: String, node: u32, pipeline: Pipeline<Interrupted>) -> Self {
        GateState {
            name,
            node,
            pipeline,
            parts: Pending::new(),
            seen: 0,
            wake: None,
            touched: false,
            service: Histogram::default(),
            busy_at_warm: Duration::ZERO,
            depth_at_warm: 0,
            depths: Vec::new(),
            limits: Vec::new(),
            depth_so_far: 0,
            served: 0,
            busy: Duration::ZERO,
            waiting: Vec::new(),
        }
    }
}

/// Which command a gate's request is a part of.
#[derive(Clone, Copy)]
struct PartOf {
    command: RequestId,
    seq: u64,
    parts: u32,
}

/// A client's command while it is pending.
struct Command {
    client: u32,
    thread: u32,
    asked: Asked,
    extent: foreign::Extent,
    left: u32,
    failed: bool,
}

/// Somebody who sends commands to one disk of a flow.
pub(crate) struct Client {
    pub flow: usize,
    pub layout: Layout,
    /// The same as nodes tell each other, where every place has one gate.
    pub striping: Option<Striping>,
    pub load: Workload,
    pub wake: Option<Instant>,
    pub ended: bool,
}

/// A flow and what it is promised.
pub(crate) struct FlowState {
    pub name: String,
    pub meter: Meter,
    /// Every gate that one of its disks touches, with the contract that holds there.
    pub gates: Vec<u32>,
    pub present: bool,
    /// Multiplies what is reserved at each gate, in millionths.
    pub leeway: u64,
}

/// Something that the scenario changes at a time.
pub(crate) struct Change {
    pub at: Instant,
    pub flow: usize,
    pub what: What,
}

/// What changes.
pub(crate) enum What {
    /// The flow's contract.
    Contract(Box<Contract>),
    /// The flow goes; what it had waiting is lost.
    Leave,
    /// Threads, or the window.
    Outstanding(u64),
    /// Rate of arrivals in millionths of a request per second.
    Rate(u64),
    /// Probability of adjacency in millionths.
    Locality(u64),
}

/// How a run is measured.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Not measured.
    pub warmup: Duration,
    /// Measured, after the warm-up.
    pub duration: Duration,
    /// Width of the windows.
    pub window: Duration,
}

/// A scenario that is ready to run.
pub struct World {
    pub(crate) timing: Timing,
    pub(crate) seed: u64,
    pub(crate) gates: Vec<GateState>,
    pub(crate) nodes: u32,
    pub(crate) flows: Vec<FlowState>,
    pub(crate) clients: Vec<Client>,
    pub(crate) changes: Vec<Change>,
    pub(crate) explain: bool,
    pub(crate) net: Net,
    pub(crate) watch: Watch,
    tick: Option<Instant>,
    /// A command counts against a rate once per started so many bytes.
    pub(crate) command_bytes: u64,
    calendar: Calendar<Event>,
    commands: Pending<Command>,
    touched: Vec<u32>,
    extents: Vec<Extent>,
    warm: bool,
    requests: u64,
}

impl World {
    pub(crate) fn empty(timing: Timing, seed: u64) -> Self {
        World {
            timing,
            seed,
            gates: Vec::new(),
            nodes: 0,
            flows: Vec::new(),
            clients: Vec::new(),
            changes: Vec::new(),
            explain: false,
            net: Net::none(),
            watch: Watch::default(),
            tick: None,
            command_bytes: 256 << 10,
            calendar: Calendar::new(),
            commands: Pending::new(),
            touched: Vec::new(),
            extents: Vec::new(),
            warm: false,
            requests: 0,
        }
    }

    /// Says for every flow why it waits, at some cost in speed.
    pub fn explain(&mut self) {
        self.explain = true;
    }
    /// When the run ends.
    pub fn end(&self) -> Instant {
        Instant::ZERO + self.timing.warmup + self.timing.duration
    }

    /// The rate that a gate owes a flow, both by number.
    pub fn promised_at(&self, gate: usize, flow: u32) -> Option<henge_core::Rate> {
        self.gates.get(gate)?.pipeline.gate().contract(FlowId(flow))?.rate
    }

    /// Runs to the end.
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<Outcome, SimError> {
        let end = self.end();
        let warm_from = Instant::ZERO + self.timing.warmup;
        for (i, change) in self.changes.iter().enumerate() {
            self.calendar.enter(change.at, Event::Change(i as u32));
        }
        for (i, client) in self.clients.iter_mut().enumerate() {
            client.wake = Some(Instant::ZERO);
            self.calendar.enter(Instant::ZERO, Event::Client(i as u32));
        }
        let mut window_end = Instant::ZERO + self.timing.window;
        while let Some(now) = self.calendar.next_at().filter(|at| *at <= end) {
            if now >= window_end {
                observer.progress(now, end);
            }
            self.end_windows(&mut window_end, now);
            if now >= warm_from && !self.warm {
                self.begin_measuring(warm_from);
            }
            while self.calendar.next_at() == Some(now) {
                let (_, event) = self.calendar.pop().expect("an event was just seen");
                self.handle(event, now)?;
            }
            self.settle(now, observer)?;
            self.send_messages(now);
        }
        observer.progress(end, end);
        self.end_windows(&mut window_end, end);
        Ok(self.finish(end))
    }

    /// Notes the gates' depths in the windows that have ended by `now`.
    fn end_windows(&mut self, window_end: &mut Instant, now: Instant) {
        let warm_from = Instant::ZERO + self.timing.warmup;
        let width = self.timing.window.as_nanos().max(1) as f64;
        while *window_end <= now {
            // Meters go forward only.
            if *window_end >= warm_from && !self.warm {
                self.begin_measuring(warm_from);
            }
            for gate in &mut self.gates {
                let so_far = gate.pipeline.gate_mut().meters(*window_end).in_flight_ns;
                gate.depths.push((so_far - gate.depth_so_far) as f64 / width);
                gate.limits.push(gate.pipeline.gate().depth());
                gate.depth_so_far = so_far;
            }
            *window_end += self.timing.window;
        }
    }

    fn begin_measuring(&mut self, warm_from: Instant) {
        self.warm = true;
        for gate in &mut self.gates {
            let meters = gate.pipeline.gate_mut().meters(warm_from);
            gate.busy_at_warm = meters.busy;
            gate.depth_at_warm = meters.in_flight_ns;
        }
    }

    fn handle(&mut self, event: Event, now: Instant) -> Result<(), SimError> {
        match event {
            Event::Gate(g) => {
                let gate = &mut self.gates[g as usize];
                // An earlier wake-up was entered since; this one is void.
                if gate.wake == Some(now) {
                    gate.wake = None;
                    self.touch(g);
                }
                Ok(())
            }
            Event::Client(c) => {
                if self.clients[c as usize].wake == Some(now) {
                    self.clients[c as usize].wake = None;
                    self.send(c, now)?;
                }
                Ok(())
            }
            Event::Change(i) => self.change(i as usize, now),
            Event::Message(id) => {
                let (g, flow, foreign, busy) = self.net.receive(id, now);
                let pipeline = &mut self.gates[g as usize].pipeline;
                pipeline.gate_mut().foreign(flow, foreign, now);
                if busy > Duration::ZERO {
                    pipeline.backend_mut().interrupt(busy, now);
                }
                if foreign > Cost::ZERO && self.net.has_messages() {
                    self.watch.told(g, flow.0, foreign);
                }
                self.touch(g);
                Ok(())
            }
            Event::Tick => {
                self.tick = None;
                self.net.tick(now);
                Ok(())
            }
        }
    }

    /// Puts what was written at this instant on the wires.
    fn send_messages(&mut self, now: Instant) {
        let World { net, calendar, gates, .. } = self;
        net.send(
            now,
            |at, id| calendar.enter(at, Event::Message(id)),
            |gate, busy| gates[gate as usize].pipeline.backend_mut().interrupt(busy, now),
        );
        if let Some(at) = net.wake_at().map(|at| at.max(now + Duration::from_nanos(1)))
            && self.tick.is_none_or(|tick| at < tick)
        {
            self.tick = Some(at);
            self.calendar.enter(at, Event::Tick);
        }
    }

    fn touch(&mut self, g: u32) {
        let gate = &mut self.gates[g as usize];
        if !gate.touched {
            gate.touched = true;
            self.touched.push(g);
        }
    }

    /// Polls every touched pipeline until nothing is left to do at this instant.
    fn settle(&mut self, now: Instant, observer: &mut dyn Observer) -> Result<(), SimError> {
        while !self.touched.is_empty() {
            let mut touched = std::mem::take(&mut self.touched);
            touched.sort_unstable();
            for &g in &touched {
                self.gates[g as usize].touched = false;
                while let Some(finished) = self.gates[g as usize].pipeline.poll(now) {
                    self.part_done(g, &finished, now, observer)?;
                }
                self.schedule_gate(g, now);
                let gate = self.gates[g as usize].pipeline.gate();
                self.watch.look(g, |flow| waiting(gate, flow) > 0);
            }
            touched.clear();
            if self.touched.is_empty() {
                self.touched = touched;
            }
        }
        self.watch.end_turn();
        Ok(())
    }

    fn schedule_gate(&mut self, g: u32, now: Instant) {
        if self.explain {
            self.note_waits(g as usize, now);
        }
        let gate = &mut self.gates[g as usize];
        let Some(at) = gate.pipeline.wake_at() else { return };
        // A pipeline that was just polled may want to be asked again at once only if it was touched again.
        let at = if at <= now && gate.touched { return } else { at };
        assert!(at > now, "{}: polled, and yet it wants to be woken at {at:?}, now being {now:?}", gate.name);
        if gate.wake.is_none_or(|wake| at < wake) {
            gate.wake = Some(at);
            self.calendar.enter(at, Event::Gate(g));
        }
    }

    /// Adds the time since the last look to the reasons for which flows waited.
    fn note_waits(&mut self, g: usize, now: Instant) {
        let gate = &mut self.gates[g];
        gate.waiting.resize(self.flows.len(), None);
        for (f, flow) in self.flows.iter_mut().enumerate() {
            let reason = gate.pipeline.gate().waiting(FlowId(f as u32), now);
            if let Some((since, reason)) = gate.waiting[f]
                && self.warm
            {
                flow.meter.outcome.waits[reason as usize] += now.since(since);
            }
            gate.waiting[f] = reason.map(|r| (now, r));
        }
    }

    /// Lets a client send whatever it may send now.
    fn send(&mut self, c: u32, now: Instant) -> Result<(), SimError> {
        loop {
            let client = &mut self.clients[c as usize];
            if client.ended || !self.flows[client.flow].present {
                return Ok(());
            }
            match client
                .load
                .next(now)
                .map_err(|error| SimError::load(&self.flows[client.flow].name, &error))?
            {
                Next::Issue { record, thread } => self.issue(c, thread, record, now)?,
                Next::At(at) => {
                    // At the end of time nothing is sent any more.
                    let at = at.max(now + Duration::from_nanos(1));
                    if client.wake != Some(at) {
                        client.wake = Some(at);
                        self.calendar.enter(at, Event::Client(c));
                    }
                    return Ok(());
                }
                Next::Full => return Ok(()),
                Next::End => {
                    client.ended = client.load.outstanding() == 0;
                    return Ok(());
                }
            }
        }
    }

    /// Cuts a command into parts and submits them.
    fn issue(&mut self, c: u32, thread: u32, record: Record, now: Instant) -> Result<(), SimError> {
        let client = &self.clients[c as usize];
        let flow = client.flow;
        let Record { op, offset, len, .. } = record;
        if record.end() > client.layout.capacity() {
            return Err(SimError::beyond(&self.flows[flow].name, &record, client.layout.capacity()));
        }
        cut(&client.layout, op, offset, len, &mut self.extents);
        let counts = len.div_ceil(self.command_bytes).max(1);
        let asked = Asked {
            arrival: record.at,
            pending: 0,
            tag: None,
            bytes: len,
            read: op == Op::Read,
            commands: counts * u64::from(Request::WHOLE),
        };
        let asked = self.flows[flow].meter.asked(asked, now);
        let parts = self.extents.len() as u32;
        let extent = foreign::Extent { offset, len };
        let command =
            self.commands.insert(Command { client: c, thread, asked, extent, left: parts, failed: false });
        let extents = std::mem::take(&mut self.extents);
        for (i, extent) in extents.iter().enumerate() {
            // The parts of a command are charged as one; what does not divide falls to the first.
            let whole = counts * u64::from(Request::WHOLE);
            let share = whole / u64::from(parts) + if i == 0 { whole % u64::from(parts) } else { 0 };
            let request = Request {
                commands: u32::try_from(share).expect("a command counts less than 4000 times"),
                ..Request::new(RequestId::default(), FlowId(flow as u32), op, extent.offset, extent.len, now)
            };
            self.submit(extent.gate.0, thread, request, command, parts, now);
        }
        self.extents = extents;
        self.answer_if_over(command, Duration::ZERO, Duration::ZERO, now);
        Ok(())
    }

    fn submit(
        &mut self,
        g: u32,
        thread: u32,
        mut request: Request,
        command: RequestId,
        parts: u32,
        now: Instant,
    ) {
        let gate = &mut self.gates[g as usize];
        let unit = gate.pipeline.gate().cost_unit();
        let batch;
        (request.foreign, batch) = self.net.piggyback(thread, g, &request, unit);
        let client = self.commands.get(command).expect("its command was just entered").client;
        let striping = self.clients[client as usize].striping.as_ref();
        self.net.arrived(g, &request, unit, striping, now);
        request.id = gate.parts.insert(PartOf { command, seq: gate.seen, parts });
        gate.seen += 1;
        self.requests += 1;
        if gate.pipeline.submit(request, (), now).is_err() {
            gate.parts.remove(request.id);
            self.lose(command);
        }
        let waiting = waiting(self.gates[g as usize].pipeline.gate(), request.flow.0);
        self.watch.asked(request.flow.0, waiting, batch);
        self.touch(g);
    }

    /// A part will never be served.
    fn lose(&mut self, command: RequestId) {
        let command = self.commands.get_mut(command).expect("a part's command is pending");
        command.left -= 1;
        command.failed = true;
    }

    fn part_done(
        &mut self,
        g: u32,
        finished: &Finished<()>,
        now: Instant,
        observer: &mut dyn Observer,
    ) -> Result<(), SimError> {
        let Finished { served, outcome, busy, .. } = finished;
        let request = &served.request;
        let gate = &mut self.gates[g as usize];
        let part = gate.parts.remove(request.id).expect("a request that is over was submitted here");
        gate.seen += 1;
        let service = now.since(served.dispatched);
        self.watch.served(g, request.flow.0, request.cost);
        let command = self.commands.get(part.command).expect("a part's command is pending");
        let striping = self.clients[command.client as usize].striping.as_ref();
        let foreign = self.net.served(g, request, striping, command.extent, now);
        if foreign > Cost::ZERO {
            gate.pipeline.gate_mut().foreign(request.flow, foreign, now);
            self.watch.told(g, request.flow.0, foreign);
        }
        let flow = &mut self.flows[request.flow.index()];
        flow.meter.served(request, served.disk_time, *busy, now);
        if self.warm {
            gate.served += 1;
            gate.service.record(service);
            gate.busy += busy.unwrap_or_default();
        }
        if observer.wants_rows() {
            observer.row(&RequestRow {
                flow: &flow.name,
                op: request.op,
                offset: request.offset,
                len: request.len,
                arrival: request.arrival,
                dispatch: served.dispatched,
                completion: now,
                gate: g,
                seq: part.seq,
                parts: part.parts,
                foreign: request.foreign.get(),
            });
        }
        let wait = served.dispatched.since(request.arrival);
        let command = self.commands.get_mut(part.command).expect("a part's command is pending");
        command.left -= 1;
        command.failed |= outcome.is_err();
        let client = command.client;
        if self.answer_if_over(part.command, wait, service, now) {
            self.send(client, now)?;
        }
        Ok(())
    }

    /// Answers a command whose parts are all over.
    fn answer_if_over(&mut self, id: RequestId, wait: Duration, service: Duration, now: Instant) -> bool {
        if self.commands.get(id).is_none_or(|command| command.left > 0) {
            return false;
        }
        let command = self.commands.remove(id).expect("it was just seen");
        let client = &mut self.clients[command.client as usize];
        let answered = Answered { wait, service, failed: command.failed };
        self.flows[client.flow].meter.answered(&command.asked, answered, now);
        client.load.complete(command.thread, now);
        // Commands that fail at once are answered inside `send`, which goes on by itself.
        true
    }

    fn change(&mut self, i: usize, now: Instant) -> Result<(), SimError> {
        let f = self.changes[i].flow;
        match std::mem::replace(&mut self.changes[i].what, What::Leave) {
            What::Contract(contract) => {
                self.set_contract(f, &contract, now)?;
                self.watch.reweigh(f as u32, contract.weight());
            }
            What::Leave => self.leave(f, now),
            What::Outstanding(n) => {
                self.each_client(f, |load| load.set_outstanding(henge_workload::Level::Constant(n)))
            }
            What::Rate(rate) => {
                self.each_client(f, |load| load.set_rate(henge_workload::Level::Constant(rate)))
            }
            What::Locality(ppm) => {
                self.each_client(f, |load| load.set_locality(henge_workload::Level::Constant(ppm)))
            }
        }
        for c in 0..self.clients.len() {
            if self.clients[c].flow == f {
                self.clients[c].ended = false;
                self.send(c as u32, now)?;
            }
        }
        Ok(())
    }

    fn each_client(&mut self, f: usize, change: impl Fn(&mut Workload)) {
        self.clients.iter_mut().filter(|c| c.flow == f).for_each(|c| change(&mut c.load));
    }

    /// Tells every gate of a flow its part of the contract.
    pub(crate) fn set_contract(
        &mut self,
        f: usize,
        contract: &Contract,
        now: Instant,
    ) -> Result<(), SimError> {
        let flow = &mut self.flows[f];
        let part = contract.part(flow.leeway, flow.gates.len() as u64);
        flow.meter.set_contract(contract);
        for g in flow.gates.clone() {
            let gate = self.gates[g as usize].pipeline.gate_mut();
            gate.set_flow(FlowId(f as u32), &part, now)
                .map_err(|refused| SimError::Refused { flow: self.flows[f].name.clone(), refused })?;
            self.touch(g);
        }
        Ok(())
    }

    fn leave(&mut self, f: usize, now: Instant) {
        self.flows[f].present = false;
        self.net.remove_flow(FlowId(f as u32));
        for g in self.flows[f].gates.clone() {
            let mut orphans = Vec::new();
            let gate = &mut self.gates[g as usize];
            gate.pipeline.gate_mut().remove_flow(FlowId(f as u32), now, &mut orphans);
            for orphan in orphans {
                let gate = &mut self.gates[g as usize];
                gate.pipeline.take_payload(orphan.id);
                let part = gate.parts.remove(orphan.id).expect("an orphan was submitted here");
                self.lose(part.command);
                self.answer_if_over(part.command, Duration::ZERO, Duration::ZERO, now);
            }
            self.touch(g);
        }
    }

    fn finish(mut self, end: Instant) -> Outcome {
        if !self.warm {
            self.begin_measuring(Instant::ZERO + self.timing.warmup);
        }
        let gates = &self.gates;
        let mut fairness = std::mem::take(&mut self.watch).finish(
            |g| gates[g as usize].pipeline.gate().depth(),
            self.net.has_messages(),
            |f| self.net.open(FlowId(f), &self.flows[f as usize].gates),
        );
        let forgave = gates.iter().any(|g| g.pipeline.gate().scheduler().forgiven() > Cost::ZERO);
        fairness.caveat = fairness.caveat.or(forgave.then_some(Caveat::Memory));
        fairness.unit = gates.first().map(|g| g.pipeline.gate().cost_unit());
        let mut unanswered: Vec<Vec<Asked>> = vec![Vec::new(); self.flows.len()];
        for (_, command) in self.commands.iter() {
            unanswered[self.clients[command.client as usize].flow].push(command.asked);
        }
        let mut flows = Vec::new();
        for (f, flow) in self.flows.into_iter().enumerate() {
            let mut outcome = flow.meter.finish(unanswered[f].iter(), end);
            let labels = self.clients.iter().filter(|c| c.flow == f).map(|c| c.load.label().to_owned());
            outcome.load = labels.collect::<Vec<_>>().join(" + ");
            flows.push(outcome);
        }
        let measured = self.timing.duration;
        let gates = self.gates.into_iter().map(|mut gate| {
            let meters = gate.pipeline.gate_mut().meters(end);
            let depth_ns = meters.in_flight_ns - gate.depth_at_warm;
            GateOutcome {
                name: gate.name,
                node: gate.node,
                served: gate.served,
                occupied: meters.busy.saturating_sub(gate.busy_at_warm),
                busy: gate.busy,
                depth_mean: depth_ns as f64 / measured.as_nanos().max(1) as f64,
                depths: gate.depths,
                limits: gate.limits,
                service: gate.service,
            }
        });
        Outcome {
            seed: self.seed,
            timing: self.timing,
            gates: gates.collect(),
            nodes: self.nodes,
            flows,
            requests: self.requests,
            traffic: self.net.traffic,
            fairness,
        }
    }
}

/// Requests of a flow that wait at a gate.
fn waiting(gate: &henge_core::Gate, flow: u32) -> u32 {
    gate.flow_meters(FlowId(flow)).map_or(0, |meters| meters.pending - meters.in_flight)
}

/// The parts of a command: one contiguous extent per gate it touches, first touched first.
fn cut(layout: &Layout, op: Op, offset: u64, len: u64, into: &mut Vec<Extent>) {
    into.clear();
    if op == Op::Flush || len == 0 {
        let gates = layout.gates().iter();
        into.extend(gates.map(|&gate| Extent { gate, offset: 0, len: 0 }));
        return;
    }
    for (_, piece) in layout.map(offset, len) {
        // Stripes that follow each other on one device are one part.
        match into.iter_mut().find(|e| e.gate == piece.gate && e.offset + e.len == piece.offset) {
            Some(extent) => extent.len += piece.len,
            None => into.push(piece),
        }
    }
}
