//! Requests that are not let in to the scheduler yet: by the depth controller ([`DepthController::admits`](crate::DepthController::admits)), or
//! because as many of their flow are to be durable as may be ([`Gate::DURABLE`]).
//!
//! A request that the scheduler has may go whenever a place is free: while it waits for nobody, nothing holds it back. So whoever must not have
//! too much under way for the sake of another's promise is held here, before the scheduler, in the order of arrival. To the scheduler it is a client that asks later.
//! A controller is asked again when it said so, and whenever a request of the flow has gone.
//! Whatever a flow asks for after a request that its controller holds waits behind it.
//! Requests beyond the bound on durable ones wait in a queue of their own, so that their flow's other requests pass them.

use super::{Flow, Gate, RequestState};
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
    /// By the depth controller.
    requests: VecDeque<Request>,
    ask_at: Option<Instant>,
    /// By the bound on durable ones.
    durable: VecDeque<Request>,
}

/// Requests of a flow that are to be durable, and are with the depth controller, in the scheduler or in flight. They leave their slots while
/// they await a sync, so that the depth does not bound them.
#[derive(Default)]
pub(super) struct Durable(u32);

impl Durable {
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
        (self.requests.len() + self.durable.len()) as u32
    }
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.durable.is_empty()
    }
}

impl Flow {
    /// Whether a request, to be durable or not, has to wait until fewer durable ones of its flow are under way.
    pub(super) fn bounds(&self, request: &Request, most: u32) -> bool {
        counts(request) && (self.durable.0 >= most || !self.held.durable.is_empty())
    }
    /// Whether a request has to wait behind one that the depth controller holds.
    pub(super) fn is_held(&self) -> bool {
        !self.held.requests.is_empty()
    }
    /// Durable requests that may be under way now queue up before the depth controller.
    fn let_durable_in(&mut self, most: u32) {
        while self.durable.0 < most
            && let Some(request) = self.held.durable.pop_front()
        {
            self.durable.enters(&request);
            self.held.requests.push_back(request);
        }
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

    /// As many durable ones of its flow are under way as may be: one that leaves wakes it.
    pub(super) fn hold_durable(&mut self, held: &mut Held, request: Request) {
        held.durable.push_back(request);
        self.held += 1;
    }

    /// A request of the flow has gone: another may come in.
    pub(super) fn wake(&mut self, flow: FlowId, held: &mut Held, now: Instant) {
        if !held.is_empty() {
            self.ask(flow, held, now);
        }
    }

    /// The flow is removed.
    pub(super) fn give_up(&mut self, state: &mut Flow, orphans: &mut Vec<Request>) {
        let Flow { held, durable, .. } = state;
        self.held -= held.len() as usize;
        held.requests.iter().for_each(|request| durable.leaves(request));
        orphans.extend(held.requests.drain(..).chain(held.durable.drain(..)));
    }

    /// A held request is given up.
    pub(super) fn cancel(&mut self, state: &mut Flow, id: RequestId) -> Option<Request> {
        let Flow { held, durable, .. } = state;
        let here = |queue: &VecDeque<Request>| queue.iter().position(|request| request.id == id);
        let request = match here(&held.requests) {
            Some(at) => held.requests.remove(at).inspect(|request| durable.leaves(request)),
            None => held.durable.remove(here(&held.durable)?),
        };
        self.held -= 1;
        request
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
            state.let_durable_in(self.bounds.durable);
            let mut left = STEP;
            while left > 0 {
                let Some(request) = state.held.requests.front().copied() else { break };
                left -= 1;
                if let Some(later) = self.parts.depth.admits(&request, now) {
                    self.pen.ask(FlowId(flow), &mut state.held, later);
                    break;
                }
                state.held.requests.pop_front();
                self.pen.held -= 1;
                self.states[request.id.index()] = RequestState::Waiting { id: request.id };
                let parts = self.change.holder(&state.epoch, &mut self.parts);
                let cost = parts.cost.estimate(&request);
                parts.scheduler.enqueue(Request { cost, ..request }, now);
            }
            if left == 0 && state.held.ask_at.is_none() && state.is_held() {
                // The rest in the next turn.
                self.pen.ask(FlowId(flow), &mut state.held, now);
                return;
            }
        }
    }
}
