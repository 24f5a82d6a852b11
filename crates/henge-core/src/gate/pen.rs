//! Requests that are not let in to the scheduler yet: by the depth controller ([`DepthController::admits`](crate::DepthController::admits)), or
//! because as many of their flow that may leave their slots are under way as may be ([`Gate::DURABLE`], [`Gate::HOLES`]).
//!
//! A request that the scheduler has may go whenever a place is free: while it waits for nobody, nothing holds it back. So whoever must not have
//! too much under way for the sake of another's promise is held here, before the scheduler, in the order of arrival. To the scheduler it is a client that asks later.
//! A controller is asked again when it said so, and whenever a request of the flow has gone.
//! Whatever a flow asks for after a request that its controller holds waits behind it.
//! Durable writes beyond their bound wait in a queue of their own, and so do holes and zeroes: their flow's other requests pass them.

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
    /// By the bound on their kind.
    bounded: [VecDeque<Request>; KINDS],
}

/// What may leave its slot while it awaits others, so that the depth does not bound it: durable writes, and holes and zeroes.
pub(super) const KINDS: usize = 2;

/// Requests of a flow of each kind that are with the depth controller, in the scheduler or in flight.
#[derive(Default)]
pub(super) struct Bounded([u32; KINDS]);

impl Bounded {
    pub(super) fn enters(&mut self, request: &Request) {
        kind(request).into_iter().for_each(|kind| self.0[kind] += 1);
    }
    pub(super) fn leaves(&mut self, request: &Request) {
        kind(request).into_iter().for_each(|kind| self.0[kind] -= 1);
    }
}

fn kind(request: &Request) -> Option<usize> {
    match request.op {
        _ if request.administration => None,
        Op::Write if request.fua => Some(0),
        Op::Trim | Op::WriteZeroes => Some(1),
        _ => None,
    }
}

impl Held {
    pub(super) fn len(&self) -> u32 {
        (self.requests.len() + self.bounded.iter().map(VecDeque::len).sum::<usize>()) as u32
    }
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Flow {
    /// Of which kind a request is that has to wait until fewer of it are under way.
    pub(super) fn bounds(&self, request: &Request, most: [u32; KINDS]) -> Option<usize> {
        kind(request)
            .filter(|kind| self.bounded.0[*kind] >= most[*kind] || !self.held.bounded[*kind].is_empty())
    }
    /// Whether a request has to wait behind one that the depth controller holds.
    pub(super) fn is_held(&self) -> bool {
        !self.held.requests.is_empty()
    }
    /// What may be under way now queues up before the depth controller.
    fn let_bounded_in(&mut self, most: [u32; KINDS]) {
        for (kind, most) in most.into_iter().enumerate() {
            while self.bounded.0[kind] < most
                && let Some(request) = self.held.bounded[kind].pop_front()
            {
                self.bounded.enters(&request);
                self.held.requests.push_back(request);
            }
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

    /// As many of its kind are under way as may be: one that leaves wakes it.
    pub(super) fn hold_bounded(&mut self, held: &mut Held, kind: usize, request: Request) {
        held.bounded[kind].push_back(request);
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
        let Flow { held, bounded, .. } = state;
        self.held -= held.len() as usize;
        held.requests.iter().for_each(|request| bounded.leaves(request));
        orphans
            .extend(held.requests.drain(..).chain(held.bounded.iter_mut().flat_map(|queue| queue.drain(..))));
    }

    /// A held request is given up.
    pub(super) fn cancel(&mut self, state: &mut Flow, id: RequestId) -> Option<Request> {
        let Flow { held, bounded, .. } = state;
        let take = |queue: &mut VecDeque<Request>| {
            let at = queue.iter().position(|request| request.id == id)?;
            queue.remove(at)
        };
        let request = match take(&mut held.requests) {
            Some(request) => Some(request).inspect(|request| bounded.leaves(request)),
            None => held.bounded.iter_mut().find_map(take),
        };
        self.held -= usize::from(request.is_some());
        request
    }
}

impl Gate {
    /// A request is neither in the scheduler nor in flight any more: another of its kind may come in.
    pub(super) fn no_more_bounded(&mut self, request: &Request, now: Instant) {
        if kind(request).is_some() {
            let state = self.flows[request.flow.index()].as_mut().expect("a pending request's flow is kept");
            state.bounded.leaves(request);
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
            state.let_bounded_in(self.bounds.beside);
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
                self.passing.waits(&request);
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
