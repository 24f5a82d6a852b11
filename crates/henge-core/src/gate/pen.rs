//! Requests that are not let in to the scheduler yet: by the depth controller ([`DepthController::admits`](crate::DepthController::admits)), or
//! because as many of their flow are to be durable as may be ([`Gate::DURABLE`]).
//!
//! A request that the scheduler has may go whenever a place is free: while it waits for nobody, nothing holds it back. So whoever must not have
//! too much under way for the sake of another's promise is held here, before the scheduler, in the order of arrival. To the scheduler it is a client that asks later.
//! A controller is asked again when it said so, and whenever a request of the flow has gone.
//! Whatever a flow asks for after a request that is held waits behind it: within a flow nothing overtakes.

use super::{Flow, Gate, Place};
use crate::{FlowId, Instant, Op, Request, RequestId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Requests of a flow that are let in at once.
const STEP: usize = 64;

/// What is held, of all flows.
#[derive(Default)]
pub(super) struct Pen {
    pub held: usize,
    /// When a flow is worth asking for. What is not the flow's own time any more is passed over.
    times: BinaryHeap<Reverse<(Instant, u32)>>,
}

/// What is held of a flow.
#[derive(Default)]
pub(super) struct Held {
    requests: VecDeque<Request>,
    ask_at: Option<Instant>,
}

/// Requests of a flow that are to be durable, and are in the scheduler or in flight. They leave their slots while they await a sync, so that
/// the depth does not bound them.
#[derive(Default)]
pub(super) struct Durable(u32);

impl Durable {
    /// Whether a request may come in, where there are at most so many.
    pub(super) fn has_room(&self, request: &Request, most: u32) -> bool {
        !counts(request) || self.0 < most
    }
    pub(super) fn enters(&mut self, request: &Request) {
        self.0 += u32::from(counts(request));
    }
    pub(super) fn leaves(&mut self, request: &Request) {
        self.0 -= u32::from(counts(request));
    }
}

fn counts(request: &Request) -> bool {
    request.fua && request.op != Op::Read && !request.administration
}

impl Held {
    pub(super) fn len(&self) -> u32 {
        self.requests.len() as u32
    }
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

impl Pen {
    /// When the next flow is worth asking for.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.times.peek().filter(|_| self.held > 0).map(|Reverse((at, _))| *at)
    }

    fn ask(&mut self, flow: FlowId, held: &mut Held, at: Instant) {
        if held.ask_at.is_none_or(|known| at < known) {
            held.ask_at = Some(at);
            self.times.push(Reverse((at, flow.0)));
        }
    }

    pub(super) fn hold(&mut self, state: &mut Flow, request: Request, ask_at: Instant) {
        state.held.requests.push_back(request);
        self.held += 1;
        self.ask(request.flow, &mut state.held, ask_at);
    }

    /// A request of the flow has gone: another may come in.
    pub(super) fn wake(&mut self, flow: FlowId, held: &mut Held, now: Instant) {
        if !held.is_empty() {
            self.ask(flow, held, now);
        }
    }

    /// The flow is removed.
    pub(super) fn give_up(&mut self, held: &mut Held, orphans: &mut Vec<Request>) {
        self.held -= held.requests.len();
        orphans.extend(held.requests.drain(..));
    }

    /// A held request is given up.
    pub(super) fn cancel(&mut self, held: &mut Held, id: RequestId) -> Option<Request> {
        let at = held.requests.iter().position(|request| request.id == id)?;
        self.held -= 1;
        held.requests.remove(at)
    }
}

impl Gate {
    /// A request is neither in the scheduler nor in flight any more: another that is to be durable may come in.
    pub(super) fn no_more_durable(&mut self, request: &Request, now: Instant) {
        if counts(request) {
            let state = self.flows[request.flow.index()].as_mut().expect("a pending request's flow is kept");
            state.durable.leaves(request);
            self.pen.wake(request.flow, &mut state.held, now);
        }
    }

    /// Lets in what may come in now.
    pub(super) fn let_in(&mut self, now: Instant) {
        while let Some(Reverse((at, flow))) =
            self.pen.times.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.pen.times.pop();
            let Some(Some(state)) = self.flows.get_mut(flow as usize) else { continue };
            if state.held.ask_at != Some(at) {
                continue;
            }
            state.held.ask_at = None;
            let mut left = STEP;
            while left > 0 {
                let Some(request) = state.held.requests.front().copied() else { break };
                if !state.durable.has_room(&request, self.most_durable) {
                    break; // one that leaves wakes it
                }
                left -= 1;
                if let Some(later) = self.parts.depth.admits(&request, now) {
                    self.pen.ask(FlowId(flow), &mut state.held, later);
                    break;
                }
                state.held.requests.pop_front();
                state.durable.enters(&request);
                self.pen.held -= 1;
                self.places[request.id.index()] = Place::Waiting { id: request.id };
                let parts = self.change.holder(&state.epoch, self.epoch, &mut self.parts);
                let cost = parts.cost.estimate(&request);
                parts.scheduler.enqueue(Request { cost, ..request }, now);
            }
            if left == 0 && state.held.ask_at.is_none() && !state.held.is_empty() {
                // The rest in the next turn.
                self.pen.ask(FlowId(flow), &mut state.held, now);
                return;
            }
        }
    }
}
