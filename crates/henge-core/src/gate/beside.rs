//! Requests that are at the device beside the depth: they wait there for something else than the others do, and tenants' requests keep
//! their slots.
//!
//! | who | how many | since |
//! |---|---|---|
//! | FLUSHes | [`Gate::FLUSHES`] | their dispatch |
//! | an administrator's work | [`Gate::ADMINISTRATION`] | its dispatch |
//! | whoever awaits a sync | [`Gate::DURABLE`] of a flow, or the depth | the backend says so |
//! | whoever awaits holes before it | [`Gate::HOLES`] of a flow | the backend says so |
//! | reads that [pass](super::passing) others | the depth, with those that have slots | their dispatch |
//! | whoever is [silent](super::silent) | [`Gate::SILENT`], of a flow what [`stall`](super::stall) says | a patience after its dispatch |
//!
//! Whatever comes beyond these has a slot like any other.

use super::silent::NONE;
use super::{Gate, RequestState};
use crate::{Instant, Op, Request, RequestId};

/// What a request in flight has of the depth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// One of its slots.
    Own,
    /// None: it is beside the depth by its nature.
    Beside,
    /// None: it is a read, and others have all slots.
    Passing,
    /// None any more: it awaits a sync, since its data is at the device, or holes before it.
    Awaiting,
    /// None any more: it is silent.
    GivenBack,
    /// None: it is dispatched and not at the device, since others of its flow are silent there, or since a read has overtaken it.
    Stalled,
}

/// How many there are of each.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside {
    pub flushes: u32,
    pub administration: u32,
    pub awaiting: u32,
    pub silent: u32,
    pub passing: u32,
    /// Not at the device, and not among what is in flight.
    pub stalled: u32,
}

impl Beside {
    /// The count of requests like this one, and most that may be.
    pub fn of(&mut self, request: &Request) -> Option<(&mut u32, u32)> {
        match request.op {
            _ if request.administration => Some((&mut self.administration, Gate::ADMINISTRATION)),
            Op::Flush => Some((&mut self.flushes, Gate::FLUSHES)),
            _ => None,
        }
    }
    pub fn all(self) -> u32 {
        self.flushes + self.administration + self.awaiting + self.silent + self.passing
    }
}

impl Gate {
    /// What has been silent for long gives its slots back.
    pub(super) fn release(&mut self, now: Instant) {
        let Some((long, short)) = self.watch.patience() else { return };
        if now < self.watch.look_at {
            return;
        }
        let most = self.watch.look((long, short), self.beside.silent > 0, now);
        let mut at = self.watch.line.oldest;
        while at != NONE && self.beside.silent < most {
            let RequestState::InFlight { request, dispatched, links, .. } = &self.states[at as usize] else {
                unreachable!("what is watched is in flight");
            };
            let (id, flow, next) = (request.id, request.flow, links.newer);
            let silent_for = now.since(*dispatched);
            if silent_for < short {
                break;
            }
            let known = self.flows[flow.index()].as_ref().is_some_and(|state| state.hung.silent > 0);
            if silent_for >= if known { short } else { long } {
                self.give_back(id, now);
            }
            at = next;
        }
    }

    /// Whether something is silent that was dispatched before.
    pub(super) fn has_silent_before(&self, dispatched: Instant) -> bool {
        let oldest = self.states.get(self.watch.silent.oldest as usize);
        matches!(oldest, Some(RequestState::InFlight { dispatched: before, .. }) if *before < dispatched)
    }

    /// A request in flight gives its slot back: it goes on beside the depth, and completes like any other. Whether it had one.
    pub fn give_back(&mut self, id: RequestId, now: Instant) -> bool {
        if self.beside.silent >= Self::SILENT || !self.leaves_slot(id, Slot::GivenBack, now) {
            return false;
        }
        self.beside.silent += 1;
        let joined = self.watch.silent.append(&mut self.states, id.slot);
        if let RequestState::InFlight { request, links, .. } = &mut self.states[id.index()] {
            *links = joined;
            let flow = request.flow;
            self.flow_mut(flow).hung.one_more();
        }
        true
    }

    /// A request in flight awaits others: a sync that it may share, or holes before it. It needs no slot for that, and
    /// completes like any other. Whether it had one.
    pub fn awaits_others(&mut self, id: RequestId, now: Instant) -> bool {
        self.bounds.beside = [Self::DURABLE.max(self.parts.depth.depth()), Self::HOLES];
        let left = self.leaves_slot(id, Slot::Awaiting, now);
        self.beside.awaiting += u32::from(left);
        left
    }

    /// Requests in flight that await others, or did, and have no slots any more.
    pub fn awaiting(&self) -> u32 {
        self.beside.awaiting
    }

    /// A request that has one of the depth's slots leaves it, and is from now on beside the depth.
    pub(super) fn leaves_slot(&mut self, id: RequestId, to: Slot, now: Instant) -> bool {
        let Some(RequestState::InFlight { request, epoch, slot, links, .. }) =
            self.states.get_mut(id.index())
        else {
            return false;
        };
        if request.id != id || *slot != Slot::Own {
            return false;
        }
        *slot = to;
        let (flow, cost, epoch, links) = (request.flow, request.cost, *epoch, *links);
        self.watch.line.unlink(&mut self.states, links);
        if self.change.is_recent(epoch) {
            // What it took is free. How long a silent one takes, or waits for one, is nobody's measure of the depth.
            if to != Slot::Awaiting {
                self.parts.depth.gave_back(flow, now);
            }
            self.parts.depth.freed(cost, self.parts.scheduler.queued() > 0, now);
        }
        self.ask_again = Some(now);
        true
    }
}
