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

mod changes;
mod commands;
mod gate_meter;
mod state;

use crate::SimError;
use crate::components::Components;
use crate::fairness::Watch;
use crate::net::Net;
use crate::outcome::Outcome;
use crate::timing::Timing;
use henge_core::{Cost, Duration, FlowId, Instant, RequestId, RequestRow};
use state::{Agenda, Command, Commands, Polls};
pub(crate) use state::{Change, Client, FlowState, GateState, What};

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
enum SimEvent {
    /// A pipeline has something to do.
    Gate(u32),
    /// A client has something to send.
    Client(u32),
    /// The scenario changes something.
    Change(u32),
    /// A message between nodes arrives.
    Message(RequestId),
    /// A finish time that was made centrally arrives.
    Tag(RequestId),
    /// A synchronizer wants to be called.
    Tick,
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
    pub(crate) components: Components,
    pub(crate) commands: Commands,
    agenda: Agenda,
    polls: Polls,
    warm: bool,
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
            components: Components::default(),
            commands: Commands::new(),
            agenda: Agenda::new(),
            polls: Polls::default(),
            warm: false,
        }
    }

    /// Leaves out the unfairness of flows where the theorem does not cover the run: it is looked at after each request, and a tenth of the time.
    pub fn watch_where_covered(&mut self) {
        if self.watch.caveat.is_some() {
            self.watch.stop();
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
            self.agenda.enter(change.at, SimEvent::Change(i as u32));
        }
        for (i, client) in self.clients.iter_mut().enumerate() {
            client.wake = Some(Instant::ZERO);
            self.agenda.enter(Instant::ZERO, SimEvent::Client(i as u32));
        }
        let mut window_end = Instant::ZERO + self.timing.window;
        while let Some(now) = self.agenda.calendar.next_at().filter(|at| *at <= end) {
            if now >= window_end {
                observer.progress(now, end);
            }
            self.end_windows(&mut window_end, now);
            if now >= warm_from && !self.warm {
                self.begin_measuring(warm_from);
            }
            while self.agenda.calendar.next_at() == Some(now) {
                let (_, event) = self.agenda.calendar.pop().expect("an event was just seen");
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
                gate.meter.end_window(so_far, width, gate.pipeline.gate().depth());
            }
            *window_end += self.timing.window;
        }
    }

    fn begin_measuring(&mut self, warm_from: Instant) {
        self.warm = true;
        for gate in &mut self.gates {
            gate.meter.begin(gate.pipeline.gate_mut().meters(warm_from));
        }
    }

    fn handle(&mut self, event: SimEvent, now: Instant) -> Result<(), SimError> {
        match event {
            SimEvent::Gate(g) => {
                let gate = &mut self.gates[g as usize];
                // An earlier wake-up was entered since; this one is void.
                if gate.wake == Some(now) {
                    gate.wake = None;
                    self.touch(g);
                }
                Ok(())
            }
            SimEvent::Client(c) => {
                if self.clients[c as usize].wake == Some(now) {
                    self.clients[c as usize].wake = None;
                    self.send(c, now)?;
                }
                Ok(())
            }
            SimEvent::Change(i) => self.change(i as usize, now),
            SimEvent::Message(id) => {
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
            SimEvent::Tag(id) => {
                let tag = self.net.receive_tag(id);
                self.retag(tag, now);
                Ok(())
            }
            SimEvent::Tick => {
                self.agenda.ticked();
                self.net.tick(now);
                Ok(())
            }
        }
    }

    /// Puts what was written at this instant on the wires.
    fn send_messages(&mut self, now: Instant) {
        let World { net, agenda, gates, .. } = self;
        net.send(
            now,
            |at, id| agenda.enter(at, SimEvent::Message(id)),
            |gate, busy| gates[gate as usize].pipeline.backend_mut().interrupt(busy, now),
        );
        if let Some(at) = net.wake_at().map(|at| at.max(now + Duration::from_nanos(1))) {
            agenda.enter_tick(at);
        }
    }

    fn touch(&mut self, g: u32) {
        let gate = &mut self.gates[g as usize];
        if !gate.touched {
            gate.touched = true;
            self.polls.touched.push(g);
        }
    }

    /// Polls every touched pipeline until nothing is left to do at this instant.
    fn settle(&mut self, now: Instant, observer: &mut dyn Observer) -> Result<(), SimError> {
        while !self.polls.touched.is_empty() {
            self.polls.begin();
            for i in 0..self.polls.settling.len() {
                let g = self.polls.settling[i];
                // What it is given meanwhile is seen by the next poll: it is not touched again by that.
                while let Some(finished) = self.gates[g as usize].pipeline.poll(now) {
                    self.part_done(g, &finished, now, observer)?;
                }
                self.gates[g as usize].touched = false;
                self.schedule_gate(g, now);
                let gate = self.gates[g as usize].pipeline.gate_mut();
                let dirty = gate.take_dirty();
                self.watch.look(g, dirty, |flow| waiting(gate, flow) > 0);
            }
            self.polls.settling.clear();
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
        assert!(at > now, "{}: polled, and yet it wants to be woken at {at:?}, now being {now:?}", gate.name);
        if gate.wake.is_none_or(|wake| at < wake) {
            gate.wake = Some(at);
            self.agenda.enter(at, SimEvent::Gate(g));
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
                flow.meter.outcome.service.waits[reason as usize] += now.since(since);
            }
            gate.waiting[f] = reason.map(|r| (now, r));
        }
    }
}

/// Requests of a flow that wait at a gate.
fn waiting(gate: &henge_core::Gate, flow: u32) -> u32 {
    gate.flow_meters(FlowId(flow)).map_or(0, |meters| meters.pending - meters.in_flight)
}
