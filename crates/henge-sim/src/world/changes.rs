//! What the scenario changes, and the end of the run.

use super::{What, World};
use crate::SimError;
use crate::fairness::Caveat;
use crate::meter::Submitted;
use crate::outcome::{GateOutcome, Outcome};
use henge_core::{Contract, Cost, Duration, FlowId, Instant};
use henge_workload::Workload;

impl World {
    pub(super) fn change(&mut self, i: usize, now: Instant) -> Result<(), SimError> {
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

    pub(super) fn each_client(&mut self, f: usize, change: impl Fn(&mut Workload)) {
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
        self.net.promise(FlowId(f as u32), contract);
        for g in flow.gates.clone() {
            let gate = self.gates[g as usize].pipeline.gate_mut();
            gate.set_flow(FlowId(f as u32), &part, now)
                .map_err(|refused| SimError::Refused { flow: self.flows[f].name.clone(), refused })?;
            self.touch(g);
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, f: usize, now: Instant) {
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

    pub(super) fn finish(mut self, end: Instant) -> Outcome {
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
        let mut unanswered: Vec<Vec<Submitted>> = vec![Vec::new(); self.flows.len()];
        for (_, command) in self.commands.pending.iter() {
            unanswered[self.clients[command.client as usize].flow].push(command.asked);
        }
        let mut flows = Vec::new();
        for (f, flow) in self.flows.into_iter().enumerate() {
            let mut outcome = flow.meter.finish(unanswered[f].iter(), end);
            outcome.arrivals = self.components.take(f, &flow.gates);
            let labels = self.clients.iter().filter(|c| c.flow == f).map(|c| c.load.label().to_owned());
            outcome.load = labels.collect::<Vec<_>>().join(" + ");
            flows.push(outcome);
        }
        let measured = self.timing.duration;
        let gates = self.gates.into_iter().map(|mut gate| {
            let meters = gate.pipeline.gate_mut().meters(end);
            let (occupied, depth_ns) = gate.meter.occupied(meters);
            GateOutcome {
                name: gate.name,
                node: gate.node,
                served: gate.meter.served,
                bytes: gate.meter.bytes,
                occupied,
                busy: gate.meter.busy,
                depth_mean: depth_ns as f64 / measured.as_nanos().max(1) as f64,
                depths: gate.meter.depths,
                limits: gate.meter.limits,
                service: gate.meter.service,
            }
        });
        Outcome {
            seed: self.seed,
            timing: self.timing,
            gates: gates.collect(),
            nodes: self.nodes,
            flows,
            requests: self.commands.requests,
            traffic: self.net.traffic,
            fairness,
            admission: None,
        }
    }
}
