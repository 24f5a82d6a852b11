//! First in, first out: no promises, the yardstick for all others. Work conserving.
//!
//! One list for all flows: who asks more gets more. 27 ns a request.

use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::{Backlog, Terms};
use henge_core::{
    Completion, Contract, Cost, Dispatch, FlowId, Instant, Keeps, ParamError, Params, Refused, Request,
    RequestId, Scheduler, Slots,
};
use std::collections::VecDeque;

pub(crate) const ENTRY: Entry = Entry {
    name: "fifo",
    summary: "first in, first out; promises nothing",
    keeps: &[],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(32),
    cost: "bytes",
    on_device: OnDevice { time: false, kept: false, shares: false },
    build,
};

fn build(_: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    Ok(Box::new(Fifo { terms, backlog: Backlog::new(), order: VecDeque::new() }))
}

struct Fifo {
    terms: Terms,
    backlog: Backlog<()>,
    /// All that came and were not dispatched; those taken out of the middle are skipped when their turn comes.
    order: VecDeque<RequestId>,
}

impl Fifo {
    /// Keeps the order's length within twice the backlog's: what was taken out is forgotten in time.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.backlog.queued() + 16 {
            let backlog = &self.backlog;
            self.order.retain(|&id| backlog.get(id).is_some());
        }
    }
}

impl Scheduler for Fifo {
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn keeps(&self) -> Keeps {
        self.terms.keeps()
    }
    fn check(&self, _: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.terms.admit(contract).map(drop)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, _: Instant) -> Result<(), Refused> {
        self.check(flow, contract)
    }
    fn remove_flow(&mut self, flow: FlowId, _: Instant, orphans: &mut Vec<Request>) {
        self.backlog.drain_flow(flow, orphans);
        self.tidy();
    }
    fn enqueue(&mut self, request: Request, _: Instant) {
        self.backlog.push(request, ());
        self.order.push_back(request.id);
    }
    fn cancel(&mut self, id: RequestId, _: Instant) -> Option<Request> {
        let queued = *self.backlog.remove(id)?;
        self.tidy();
        Some(queued.request)
    }
    fn dispatch(&mut self, _: Instant, _: Slots) -> Dispatch {
        while let Some(id) = self.order.pop_front() {
            if let Some(queued) = self.backlog.remove(id) {
                return Dispatch::Ready(queued.request);
            }
        }
        Dispatch::Idle
    }
    fn complete(&mut self, _: &Completion, _: Instant) {}
    fn adjust(&mut self, request: &Request, cost: Cost, _: Instant) {
        if let Some(queued) = self.backlog.get_mut(request.id) {
            queued.request.cost = cost;
        }
    }
    fn queued(&self) -> usize {
        self.backlog.queued()
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.order.clear();
    }
}
