//! Virtual Clock (VC): the earliest finish time first. Work conserving but for limits.
//!
//! **Problem.** Each flow has a reservation in requests or bytes a second, and is to get it whatever the others do.
//!
//! **Rule.** A request has the finish time FT_i = max(arrival_i, FT_{i-1}) + cost_i / rate_j (`finish_clock.rs`, with the
//! bounded lead and the best-effort clock); serve the smallest FT. Here a request is tagged when it becomes the first of
//! its flow, which gives the same times as tagging at arrival, and lets a cancelled request, a changed rate, or a cost
//! that turns out different need no other tag.
//!
//! **Example.** A has 100/s, B 300/s, both always have something waiting, the device does 800/s. A's finish times are 10, 20, 30
//! … ms, B's 3.3, 6.7, 10 … ms; of four requests one is A's, so A gets 200/s and B 600/s: what is spare goes in
//! proportion to the reservations.
//!
//! **Guarantee.** While the rates sum to at most the device's capacity, each request is over by its FT plus the longest
//! service time (one request that cannot be interrupted), so a flow that always has something waiting gets its rate over any interval,
//! but for what it had before: a flow that took spare capacity may wait for as long as its lead, H at most. (Flows so slow
//! that 1/rate exceeds H keep this only as long as not more than H's worth of them fall due at once.)
//!
//! **Over several nodes** (`foreign = "total"`; not in the paper). A flow's clock stands for all of its service: if one server
//! did everything, FT would have advanced by cost / rate for each request wherever it is served now. So service elsewhere
//! advances the clock here as the flow's own does,
//!
//! ```text
//!   FT_i = max(arrival_i, FT_{i-1} + foreign_i / rate_j) + cost_i / rate_j        rate_j: the flow's in total
//! ```
//!
//! and what the nodes share is then the total in proportion to the reservations, where the load makes that possible: the
//! water-filling of DSFQ's theorem 3 with rates for weights. Example: A and B do 400/s each, f has 300/s and uses both, g 100/s
//! and uses A alone: with each node on its own f gets 700/s and g 100/s; with the term 600/s and 200/s. As `max` forgives
//! credit and never debt, service elsewhere moves a clock to at most τ = 2 s ahead of the others': a flow that comes back is
//! served within that. The term makes sense only where a node is told the total rate (a disk's `leeway` is then the number of its
//! gates): to a node that reserves 1/N of the rate, an even flow would seem N times ahead. So the default is `"single"`.
//!
//! **Price.** A heap over the flows that have something waiting: 42 ns a request with 10 of them, 155 ns with 10,000; 62 bytes an idle flow.

use crate::bucket::Bucket;
use crate::finish_clock::{ClockParams, FinishClocks};
use crate::registry::{DefaultDepth, Entry, Order, one_of};
use crate::sfq::Key;
use crate::{Backlog, Flows, IndexedHeap, Term, Terms};
use henge_core::{
    Completion, Contract, Cost, Dispatch, Duration, FlowId, Instant, ParamError, Params, Refused, Request,
    RequestId, Scheduler, Slots, WaitReason,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "vc",
    summary: "Virtual Clock: reservations, by finish time",
    keeps: &[Term::Rate, Term::Limit, Term::Burst, Term::Latency],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(1),
    cost: "requests",
    build,
};

fn build(params: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let clocks = FinishClocks::new(ClockParams::from_params(params, terms.unit)?, terms.unit);
    let total = one_of(params, "foreign", &[("single", false), ("total", true)])?.unwrap_or(false);
    Ok(Box::new(VirtualClock {
        terms,
        total,
        clocks,
        buckets: Flows::new(),
        backlog: Backlog::new(),
        ready: IndexedHeap::new(),
        held: IndexedHeap::new(),
    }))
}

/// No tag was made elsewhere.
const OWN: u64 = u64::MAX;

struct VirtualClock {
    terms: Terms,
    /// Service elsewhere counts.
    total: bool,
    clocks: FinishClocks,
    /// Of the flows that have a limit.
    buckets: Flows<Bucket>,
    /// With the lead in ns that a tag made elsewhere gives; `OWN`: there is none.
    backlog: Backlog<u64>,
    /// Flows whose first request may go, by its finish time, then arrival.
    ready: IndexedHeap<Key>,
    /// Flows whose first request is beyond their limit, by when it may go.
    held: IndexedHeap<Instant>,
}

impl VirtualClock {
    /// Tags the flow's first request, and puts the flow where it belongs.
    fn place(&mut self, flow: FlowId, now: Instant) {
        let Some(first) = self.backlog.front(flow) else {
            self.ready.remove(flow.0);
            self.held.remove(flow.0);
            return;
        };
        match self.buckets.get(flow).map(Bucket::ready_at).filter(|&at| at > now) {
            Some(at) => {
                self.ready.remove(flow.0);
                self.held.set(flow.0, at);
            }
            None => {
                let finish = match first.extra {
                    OWN => self.clocks.finish(&first.request),
                    lead => self.clocks.led(&first.request, Duration::from_nanos(lead)),
                };
                if !self.held.is_empty() {
                    self.held.remove(flow.0);
                }
                self.ready.set(flow.0, Key::new(finish, first.sequence));
            }
        }
    }

    /// Lets go whose limit allows it again.
    fn release(&mut self, now: Instant) {
        while let Some((flow, _)) = self.held.peek().filter(|&(_, at)| at <= now) {
            self.held.remove(flow);
            self.place(FlowId(flow), now);
        }
    }

    fn correct(&mut self, flow: FlowId, charged: Cost, actual: Cost, now: Instant) {
        if charged != actual {
            self.clocks.correct(flow, charged, actual);
            if let Some(bucket) = self.buckets.get_mut(flow) {
                bucket.correct(charged, actual);
            }
            self.place(flow, now);
        }
    }

    /// What is kept of a contract, or why it is refused.
    fn admit(&self, contract: &Contract) -> Result<Contract, Refused> {
        let contract = self.terms.admit(contract)?;
        if contract.burst.is_some() && contract.limit.is_none() {
            return Err(Refused {
                term: "burst",
                why: "a finish time allows no burst on top of a rate, only a limit does".into(),
                instead: "add a limit, or leave the burst out".into(),
            });
        }
        Ok(contract)
    }
}

impl Scheduler for VirtualClock {
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.clocks.check(flow, &self.admit(contract)?).map(drop)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.admit(contract)?;
        self.clocks.set_flow(flow, &contract)?;
        match (contract.limit, self.buckets.get_mut(flow)) {
            (Some(limit), Some(bucket)) => bucket.change(limit, contract.burst),
            (Some(limit), None) => {
                self.buckets.get_or_insert_with(flow, || Bucket::new(limit, contract.burst));
            }
            (None, _) => drop(self.buckets.remove(flow)),
        }
        self.place(flow, now);
        Ok(())
    }
    fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        self.backlog.drain_flow(flow, orphans);
        self.place(flow, now);
        self.clocks.forget(flow);
        self.buckets.remove(flow);
    }
    fn enqueue(&mut self, request: Request, now: Instant) {
        let (flow, foreign) = (request.flow, request.foreign);
        if self.backlog.push(request, OWN) {
            self.place(flow, now);
        }
        self.foreign(flow, foreign, now);
    }
    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let first = self.backlog.is_front(id);
        let queued = *self.backlog.remove(id)?;
        if first {
            self.place(queued.request.flow, now);
        }
        Some(queued.request)
    }
    fn dispatch(&mut self, now: Instant, slots: Slots) -> Dispatch {
        self.release(now);
        let Some((flow, key)) = self.ready.peek() else {
            return match self.held.peek() {
                Some((_, at)) => Dispatch::Wait { until: Some(at), reason: WaitReason::OwnLimit },
                None => Dispatch::Idle,
            };
        };
        let (flow, finish) = (FlowId(flow), key.start());
        let request = self.backlog.pop_front(flow).expect("a flow in the heap has something waiting").request;
        self.clocks.tagged(flow, finish);
        self.clocks.bound_leads(finish, now);
        self.clocks.dispatched(slots.in_flight, now);
        if let Some(bucket) = self.buckets.get_mut(flow) {
            bucket.take(request.cost, now);
        }
        self.place(flow, now);
        Dispatch::Ready(request)
    }
    fn complete(&mut self, completion: &Completion, now: Instant) {
        let Completion { request, actual, in_flight, .. } = *completion;
        self.clocks.completed(actual, in_flight, now);
        self.correct(request.flow, request.cost, actual, now);
    }
    fn adjust(&mut self, request: &Request, cost: Cost, now: Instant) {
        match self.backlog.get_mut(request.id) {
            Some(queued) => {
                queued.request.cost = cost;
                self.place(request.flow, now);
            }
            None => self.correct(request.flow, request.cost, cost, now),
        }
    }
    fn foreign(&mut self, flow: FlowId, service: Cost, now: Instant) {
        if self.total && service > Cost::ZERO {
            let smallest = self.ready.peek().map(|(_, key)| key.start());
            self.clocks.foreign(flow, service, smallest, now);
            self.place(flow, now);
        }
    }
    fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        let Some(queued) = self.backlog.get_mut(id) else { return false };
        queued.extra = lead.as_nanos().min(OWN - 1);
        let flow = queued.request.flow;
        if self.backlog.is_front(id) {
            self.place(flow, now);
        }
        true
    }
    fn queued(&self) -> usize {
        self.backlog.queued()
    }
    fn waiting(&self, flow: FlowId, _: Instant) -> Option<WaitReason> {
        if self.held.contains(flow.0) {
            return Some(WaitReason::OwnLimit);
        }
        (self.ready.contains(flow.0) && self.ready.len() > 1).then_some(WaitReason::OwnShare)
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.ready.clear();
        self.held.clear();
    }
    fn wake_at(&self) -> Option<Instant> {
        self.held.peek().map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests;
