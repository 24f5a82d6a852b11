//! A flow whose requests are silent has no more of them at the device.
//!
//! # The problem
//! Whoever asks for what hangs gets slot after slot, since each is given back after a while ([`silent`](super::silent)). So thousands of holes that hang
//! come to the storage, others wait for a look before each of their requests, and once [`Gate::SILENT`] are silent nobody gets a slot.
//!
//! # The rule
//! A flow with s silent requests has no more at the device where
//!
//! > s ≥ min( 8 + 2·a, max( 1, (S − all)/8 ) )
//!
//! a counts its own answers since it has silent ones, S is [`Gate::SILENT`] and all counts everybody's. What the scheduler dispatches of such a flow
//! is *stalled*: it has no slot, and is not at the device. Once the flow may have more there, its oldest stalled one goes whenever the scheduler
//! dispatches one of the flow, and besides, what is stalled has every other slot, and all that the scheduler has no use for.
//!
//! # Example
//! 4,096 holes of one tenant, and the first hang for five seconds; depth 4. Four are silent after P, four more after P/10. From then on the scheduler
//! dispatches the rest without any slot, and another tenant's reads have the whole depth. As these are over, the others follow.
//!
//! # Guarantee
//! While something hangs, the scheduler's order and shares are as if stalled requests were at the device. When they follow, others have half of the slots at
//! least, until at most as many as a flow may have pending are over. However many flows have silent requests, some places are left: each
//! has an eighth of what the others leave (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN 1998). A flow of whose requests some are answered, since
//! its disk has many servers and one hangs, goes on.
//!
//! # Price
//! A comparison for each dispatch of a flow that has silent requests. At most [`AT_ONCE`] requests are stalled in one step.

use super::beside::Slot;
use super::{Gate, RequestState};
use crate::{Completion, Duration, FlowId, Instant, Request, RequestId};
use std::collections::VecDeque;

/// Requests of a flow that are silent before others are stalled, and how many more for each of its answers.
const FEW: u32 = 8;
const MORE: u32 = 2;
/// Of the places that silent requests leave, a flow may have so much of them.
const PART: u32 = 8;
/// Most that are stalled before somebody else has a turn.
pub(super) const AT_ONCE: u32 = 64;

/// What of a flow hangs.
#[derive(Default)]
pub(super) struct Hung {
    /// Of its requests at the device, those that have given their slots back.
    pub silent: u32,
    /// Its answers since there are some.
    answers: u32,
    /// What goes once one of them is over, in the order of dispatch.
    stalled: VecDeque<RequestId>,
}

impl Hung {
    pub(super) fn one_more(&mut self) {
        if self.silent == 0 {
            self.answers = 0;
        }
        self.silent += 1;
    }

    /// Whether it has as many silent as it may, of so many in all.
    fn is_full(&self, all: u32) -> bool {
        let own = FEW.saturating_add(MORE.saturating_mul(self.answers));
        self.silent > 0 && self.silent >= own.min(((Gate::SILENT - all.min(Gate::SILENT)) / PART).max(1))
    }
}

impl Gate {
    /// A request was dispatched just now: whether it is stalled.
    pub(super) fn stalls(&mut self, request: &Request, now: Instant) -> bool {
        if !self.is_to_stall(request) || !self.leaves_slot(request.id, Slot::Stalled, now) {
            return false;
        }
        self.meters.advance(self.in_flight, now);
        self.in_flight -= 1;
        self.beside.stalled += 1;
        self.flow_mut(request.flow).hung.stalled.push_back(request.id);
        true
    }

    /// Whether no more of its flow go to the device. Those before it go first.
    fn is_to_stall(&mut self, request: &Request) -> bool {
        let all = self.beside.silent;
        let hung = &self.flow_mut(request.flow).hung;
        hung.is_full(all) || !hung.stalled.is_empty()
    }

    /// A request has no slot, and would go now: whether it is stalled instead.
    pub(super) fn joins_stalled(&mut self, request: &Request) -> bool {
        let stalls = self.is_to_stall(request);
        if stalls {
            self.flow_mut(request.flow).hung.stalled.push_back(request.id);
        }
        stalls
    }

    /// A request of the flow is answered, or was silent and is over: others may go.
    pub(super) fn one_less(&mut self, flow: FlowId, was_silent: bool) {
        let hung = &mut self.flow_mut(flow).hung;
        if hung.silent == 0 {
            return;
        }
        match was_silent {
            true => hung.silent -= 1,
            false => hung.answers = hung.answers.saturating_add(1),
        }
        if !hung.stalled.is_empty() && self.watch.resuming.back() != Some(&flow) {
            self.watch.resuming.push_back(flow);
        }
    }

    /// The next that was stalled and goes now, of any flow. There is a slot for it.
    pub(super) fn resume(&mut self, now: Instant) -> Option<Request> {
        while let Some(&flow) = self.watch.resuming.front() {
            let request = self.resume_of(flow, now);
            if request.is_some() {
                return request;
            }
            self.watch.resuming.pop_front();
        }
        None
    }

    /// The same of one flow.
    pub(super) fn resume_of(&mut self, flow: FlowId, now: Instant) -> Option<Request> {
        let all = self.beside.silent;
        // It may be gone by now.
        let hung = &mut self.flows[flow.index()].as_mut()?.hung;
        let id = if hung.is_full(all) { None } else { hung.stalled.pop_front() }?;
        Some(self.goes(id, now))
    }

    /// One that has waited without a slot since it was dispatched goes to the device.
    pub(super) fn goes(&mut self, id: RequestId, now: Instant) -> Request {
        self.meters.advance(self.in_flight, now);
        self.in_flight += 1;
        self.beside.stalled -= 1;
        let waited = match &mut self.states[id.index()] {
            RequestState::InFlight { dispatched, .. } => now.since(std::mem::replace(dispatched, now)),
            _ => unreachable!("what is stalled is dispatched"),
        };
        self.has_slot(id, waited, now)
    }

    /// One that is dispatched has a slot from now on, and had to wait for it so long.
    pub(super) fn has_slot(&mut self, id: RequestId, waited: Duration, now: Instant) -> Request {
        let joined = self.watch.line.append(&mut self.states, id.slot);
        let seen = self.watch.answers;
        let RequestState::InFlight { request, answers, epoch, slot, links, .. } =
            &mut self.states[id.index()]
        else {
            unreachable!("what has no slot yet is dispatched");
        };
        (*answers, *slot, *links) = (seen, Slot::Own, joined);
        let (request, epoch) = (*request, *epoch);
        if self.change.is_recent(epoch) {
            let in_flight = self.in_flight - self.beside.all();
            self.parts.depth.dispatched(request.flow, waited, in_flight, now);
            self.parts.depth.took(request.cost, now);
        }
        request
    }

    /// One that is stalled does not go any more.
    pub(super) fn cancel_stalled(&mut self, request: Request, now: Instant) {
        let RequestState::InFlight { dispatched, epoch, .. } = self.states[request.id.index()] else {
            unreachable!("what is stalled is dispatched");
        };
        self.beside.stalled -= 1;
        self.passing.forget(request.id);
        self.passing.over(&request);
        let state = self.flow_mut(request.flow);
        state.hung.stalled.retain(|other| *other != request.id);
        state.meters.in_flight -= 1;
        let (service, in_flight) = (Duration::ZERO, self.in_flight);
        let over = Completion { request, actual: request.cost, dispatched, service, in_flight };
        if let Some(parts) = self.change.dispatcher(epoch, &mut self.parts) {
            parts.scheduler.complete(&over, now);
        }
        self.no_more_bounded(&request, now);
    }

    /// Requests that were dispatched and are stalled.
    pub fn stalled(&self) -> u32 {
        self.beside.stalled
    }
}
