//! What can be read of a gate: its flows, their meters, what is in flight and what waits for what.

use super::Gate;
use crate::{Contract, Duration, FlowId, FlowMeters, GateMeters, Instant, Learned, Scheduler, WaitReason};

impl Gate {
    /// Requests in flight that have given their slots back.
    pub fn silent(&self) -> u32 {
        self.beside.silent
    }
    /// Whether a submission of `flow` would be taken in now.
    pub fn has_capacity(&self, flow: FlowId) -> bool {
        self.flows
            .get(flow.index())
            .and_then(|s| s.as_deref())
            .is_some_and(|s| !s.removed && s.meters.pending < self.bounds.pending(&s.meters))
    }
    /// The contract in force.
    pub fn contract(&self, flow: FlowId) -> Option<&Contract> {
        self.flows.get(flow.index())?.as_deref().filter(|s| !s.removed).map(|s| &s.contract)
    }
    /// The flow's meters.
    pub fn flow_meters(&self, flow: FlowId) -> Option<&FlowMeters> {
        self.flows.get(flow.index())?.as_deref().map(|s| &s.meters)
    }
    /// The flows that are set.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows
            .iter()
            .enumerate()
            .filter(|(_, s)| s.as_ref().is_some_and(|s| !s.removed))
            .map(|(i, _)| FlowId(i as u32))
    }
    /// The gate's meters, brought up to `now`.
    pub fn meters(&mut self, now: Instant) -> &GateMeters {
        self.meters.advance(self.in_flight, now);
        &self.meters
    }
    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }
    /// Requests waiting.
    pub fn queued(&self) -> usize {
        let old = self.change.old().map_or(0, |parts| parts.scheduler.queued());
        self.parts.scheduler.queued() + old + self.pen.held
    }
    /// Most requests in flight now, beside FLUSHes and administration in slots of their own.
    pub fn depth(&self) -> u32 {
        self.parts.depth.depth()
    }
    /// Why `flow` waits now.
    pub fn waiting(&self, flow: FlowId, now: Instant) -> Option<WaitReason> {
        let state = self.flows.get(flow.index())?.as_deref()?;
        if !state.meters.waits() {
            return None;
        }
        if state.meters.pending - state.meters.in_flight == state.held.len() {
            return Some(WaitReason::Depth);
        }
        let busy = self.in_flight - self.beside.all() >= self.parts.depth.depth();
        let old = self.change.old().filter(|_| state.epoch != self.change.epoch());
        old.unwrap_or(&self.parts).scheduler.waiting(flow, now).or(busy.then(|| self.why_full()))
    }
    /// Time during which the oldest request of `flow` waited for `reason`, the one that waits now included.
    pub fn waited(&self, flow: FlowId, reason: WaitReason, now: Instant) -> Duration {
        let Some(state) = self.flows.get(flow.index()).and_then(|s| s.as_deref()) else {
            return Duration::ZERO;
        };
        let meters = &state.meters;
        let open = meters.why == Some(reason) && meters.waits();
        meters.waits[reason as usize] + if open { now.since(meters.oldest_since) } else { Duration::ZERO }
    }
    /// In which unit it charges.
    pub fn cost_unit(&self) -> crate::CostUnit {
        self.parts.cost.unit()
    }
    /// Device time under way and most that may be, where the depth counts work.
    pub fn work(&self) -> Option<(Duration, Duration)> {
        self.parts.depth.work()
    }
    /// What its cost model has learned.
    pub fn learned(&self) -> Vec<Learned> {
        let mut learned = Vec::new();
        self.parts.cost.learned(&mut learned);
        learned
    }
    /// The scheduler, to look at.
    pub fn scheduler(&self) -> &dyn Scheduler {
        &*self.parts.scheduler
    }
}
