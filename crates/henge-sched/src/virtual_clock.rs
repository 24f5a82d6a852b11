//! Virtual Clock (VC): the earliest finish time first. Work conserving but for limits.
//!
//! **Problem.** Each flow has a reservation in requests or bytes a second, and is to get it whatever the others do.
//!
//! **Rule.** A request has the finish time FT_i = max(arrival_i, FT_{i-1}) + cost_i / rate_j (`finish_clock.rs`, with the
//! best-effort clock and the bounded lead, H = 50 ms); serve the smallest FT. Here a request is tagged when it becomes the first of
//! its flow, which gives the same times as tagging at arrival, and lets a cancelled request, a changed rate, or a cost
//! that turns out different need no other tag.
//!
//! **Example.** A has 100/s, B 300/s, both always have something waiting, the device does 800/s. A's finish times are 10, 20, 30
//! … ms, B's 3.3, 6.7, 10 … ms; of four requests one is A's, so A gets 200/s and B 600/s: what is spare goes in
//! proportion to the reservations.
//!
//! **Guarantee.** While the rates sum to at most the device's capacity, each request is over by its FT plus the longest
//! service time (one request that cannot be interrupted), so a flow that always has something waiting gets its rate over any interval,
//! but for what it had before: a flow that took spare capacity may wait for as long as its lead, H at most (the paper's rule, `lead = "none"`:
//! until time has caught up; `lead = "0s"`: not at all, by the two orders of `turns.rs`). Flows so slow that 1/rate exceeds H keep this only as long
//! as not more than H's worth of them fall due at once.
//!
//! **Over several nodes** (`foreign = "total"`; not in the paper). A flow's rate in all is B, and f·B/N of it is reserved here. What is
//! reserved here is served as with `lead = "0s"`, whatever the flow got elsewhere. A second clock per flow, at B, orders what is spare, and that one service
//! elsewhere advances as the flow's own does:
//!
//! ```text
//!   due here     the smallest FT of the clock at f·B/N, which spare service does not advance
//!   else         the smallest FT of the clock at B:  FT_i = max(arrival_i, FT_{i-1} + foreign_i / B) + cost_i / B
//! ```
//!
//! So every node keeps what it promised, and what the nodes share beyond that brings the totals in proportion to the reservations, where the
//! load makes that possible: the water-filling of DSFQ's theorem 3 with rates for weights. Example: A and B do 400/s each, f
//! has 300/s and uses both, g 100/s and uses A alone: with each node on its own f gets 640/s and g 160/s; with the term 600/s and
//! 200/s. (Charged against what is reserved here, f·B/N would be divided twice: 12 MB/s over three nodes beside others on one
//! came out as 5.2.) As `max` forgives credit and never debt, service elsewhere moves a clock to at most τ = 2 s ahead of the
//! others': a flow that comes back has its part of what is spare within that.
//!
//! **Price.** A heap over the flows that have something waiting (`lead = "0s"`: two; `total`: three, and a clock more).

use crate::bucket::Bucket;
use crate::departed::Departed;
use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::finish_clock::{ClockParams, FinishClocks, LATENCY, LATENCY_OF_REQUESTS};
use crate::names::one_of;
use crate::sfq::Key;
use crate::spread::{At, Spread};
use crate::turns::Turns;
use crate::{Backlog, Flows, IndexedHeap, Terms};
use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, Duration, FlowId, Instant, Keeps, Need, ParamError,
    Params, Refused, Request, RequestId, Scheduler, Slots, VTime, WaitReason, With,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "vc",
    summary: "Virtual Clock: reservations, by finish time",
    keeps: &["rate", "limit", "burst", "latency"],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(1),
    cost: "requests",
    on_device: OnDevice { time: false, kept: true, shares: false },
    build,
};

/// A finish time allows no burst on top of a rate, only a limit does.
const BURST: Need = Need::of("burst", &[With::any("limit")]);

fn build(params: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let knobs = ClockParams::from_params(params, terms.unit, LEAD)?;
    let total = one_of(params, "foreign", &[("single", false), ("total", true)])?.unwrap_or(false);
    let needs: &[Need] = match terms.unit {
        CostUnit::Requests => const { &[BURST, LATENCY_OF_REQUESTS] },
        _ => const { &[BURST, LATENCY] },
    };
    Ok(Box::new(VirtualClock {
        terms: Terms { needs, ..terms },
        regulated: knobs.lead == Some(Duration::ZERO) || total && knobs.lead.is_some(),
        total: total.then(|| Total::new(knobs, terms.unit)),
        clocks: FinishClocks::new(knobs, terms.unit),
        buckets: Flows::new(),
        departed: Departed::default(),
        backlog: Backlog::new(),
        spread: Spread::default(),
        turns: Turns::default(),
        held: IndexedHeap::new(),
    }))
}

/// H: what a flow took of what was spare is held against it for no longer.
const LEAD: Duration = Duration::from_millis(50);

/// How what is spare is shared by what flows get at all nodes.
struct Total {
    /// At the whole rates.
    clocks: FinishClocks,
    /// Flows whose first request may go, by its finish time on those.
    order: IndexedHeap<Key>,
    /// By slot: whether the request in flight took what was spare.
    spare: Vec<bool>,
}

impl Total {
    /// How far what is spare may run ahead of time.
    const LEAD: Duration = Duration::from_secs(2);

    fn new(knobs: ClockParams, unit: CostUnit) -> Self {
        let mut booking = knobs.booking;
        booking.overbook = true; // the other clocks refuse
        let lead = knobs.lead.map(|lead| lead.max(Self::LEAD));
        let clocks = FinishClocks::new(ClockParams { booking, lead, ..knobs }, unit);
        Total { clocks, order: IndexedHeap::new(), spare: Vec::new() }
    }

    fn took_spare(&mut self, slot: usize) -> &mut bool {
        if self.spare.len() <= slot {
            self.spare.resize(slot + 1, false);
        }
        &mut self.spare[slot]
    }
}

struct VirtualClock {
    terms: Terms,
    /// Who has started goes by finish time, and spare service is not held against anybody.
    regulated: bool,
    total: Option<Total>,
    clocks: FinishClocks,
    /// Of the flows that have a limit.
    buckets: Flows<Bucket>,
    /// What flows that are gone took of their limits.
    departed: Departed,
    backlog: Backlog<()>,
    /// What clocks of disks on several gates say.
    spread: Spread,
    /// Flows whose first request may go.
    turns: Turns,
    /// Flows whose first request is beyond their limit, by when it may go.
    held: IndexedHeap<Instant>,
}

impl VirtualClock {
    fn forget_limit(&mut self, flow: FlowId) {
        let gone = self.buckets.remove(flow);
        self.departed.add(gone.map_or(VTime::ZERO, |bucket| bucket.paid()));
    }

    /// Tags the flow's first request, and puts the flow where it belongs.
    fn place(&mut self, flow: FlowId, now: Instant) {
        let Some(first) = self.backlog.front(flow) else {
            self.stand_back(flow);
            self.held.remove(flow.0);
            return;
        };
        match self.buckets.get(flow).map(|b| b.ready_at(first.request.cost)).filter(|&at| at > now) {
            Some(at) => {
                self.stand_back(flow);
                self.held.set(flow.0, at);
            }
            None => {
                let (request, sequence) = (&first.request, first.sequence);
                let finish = self.clocks.finish(request);
                let start = if self.regulated { self.clocks.start(request, finish) } else { VTime::ZERO };
                let since = self.spread.since(request.id).filter(|_| self.clocks.is_reserved(flow));
                let at = At { now, clock: self.clocks.clock(now) };
                self.spread.wait(flow, since, sequence, self.clocks.paid(flow), at);
                if !self.held.is_empty() {
                    self.held.remove(flow.0);
                }
                self.turns.set(flow, start, finish, sequence, self.clocks.clock(now));
                if let Some(total) = &mut self.total {
                    total.order.set(flow.0, Key::new(total.clocks.finish(request), sequence));
                }
            }
        }
    }

    /// The flow has nothing that may go.
    fn stand_back(&mut self, flow: FlowId) {
        self.turns.remove(flow);
        self.spread.remove(flow);
        if let Some(total) = &mut self.total {
            total.order.remove(flow.0);
        }
    }

    /// Lets go whose limit allows it again.
    fn release(&mut self, now: Instant) {
        while let Some((flow, _)) = self.held.peek().filter(|&(_, at)| at <= now) {
            self.held.remove(flow);
            self.place(FlowId(flow), now);
        }
    }

    /// Whose turn it is; its clocks go on.
    fn choose(&mut self, now: Instant) -> Option<FlowId> {
        if let Some((mut flow, mut finish)) = self.turns.due(self.clocks.clock(now)) {
            if let Some((kept, since)) = self.spread.due(now) {
                let request = &self.backlog.front(kept).expect("it has something waiting").request;
                if self.clocks.whole_finish(request, since) < finish {
                    (flow, finish) = (kept, self.clocks.finish(request));
                }
            }
            self.clocks.tagged(flow, finish);
            if !self.regulated {
                self.clocks.bound_leads(finish, now);
            }
            self.share(flow, false, now);
            return Some(flow);
        }
        if let Some(flow) = self.spread.owed(now) {
            self.share(flow, true, now);
            self.spread.went(self.backlog.front(flow).expect("it has something waiting").request.id);
            return Some(flow);
        }
        let (flow, start, finish) = self.turns.early()?;
        match self.total.as_ref().and_then(|total| total.order.peek()) {
            Some((flow, _)) => {
                self.share(FlowId(flow), true, now);
                Some(FlowId(flow))
            }
            None => {
                self.clocks.jump(start, now);
                self.clocks.tagged(flow, finish);
                Some(flow)
            }
        }
    }

    /// The flow's turn counts in what it gets at all nodes.
    fn share(&mut self, flow: FlowId, spare: bool, now: Instant) {
        let Some(total) = &mut self.total else { return };
        let finish = total.order.get(flow.0).expect("it may go").start();
        total.clocks.tagged(flow, finish);
        let (_, smallest) = total.order.peek().expect("it may go");
        total.clocks.bound_leads(smallest.start(), now);
        let slot = self.backlog.front(flow).expect("it has something waiting").request.id.index();
        *total.took_spare(slot) = spare;
    }

    fn correct(&mut self, request: &Request, actual: Cost, now: Instant) {
        let (flow, charged) = (request.flow, request.cost);
        if charged == actual {
            return;
        }
        let mut spare = self.spread.was_owed(request.id);
        if let Some(total) = &mut self.total {
            total.clocks.correct(flow, charged, actual);
            spare |= *total.took_spare(request.id.index());
        }
        if !spare {
            self.clocks.correct(flow, charged, actual);
        }
        if let Some(bucket) = self.buckets.get_mut(flow) {
            bucket.correct(charged, actual);
        }
        self.place(flow, now);
    }

    /// What is kept of a contract, or why it is refused.
    fn admit(&self, contract: &Contract) -> Result<Contract, Refused> {
        self.terms.admit(contract)
    }
}

impl Scheduler for VirtualClock {
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn keeps(&self) -> Keeps {
        self.clocks.keeps(self.terms.keeps())
    }
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.clocks.check(flow, &self.admit(contract)?).map(drop)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.admit(contract)?;
        self.clocks.set_flow(flow, &contract, now)?;
        if let Some(total) = &mut self.total {
            let whole = Contract { rate: contract.whole.or(contract.rate), ..contract.clone() };
            total.clocks.set_flow(flow, &whole, now).expect("more may be promised there");
        }
        match (contract.limit, self.buckets.get_mut(flow)) {
            (Some(limit), Some(bucket)) => bucket.change(limit, contract.burst, &mut self.departed, now),
            (Some(limit), None) => {
                let new = Bucket::new(limit, contract.burst).begins(&self.departed, now);
                self.buckets.get_or_insert_with(flow, || new);
            }
            (None, _) => self.forget_limit(flow),
        }
        self.place(flow, now);
        Ok(())
    }
    fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        self.backlog.drain_flow(flow, orphans);
        self.place(flow, now);
        self.clocks.forget(flow);
        if let Some(total) = &mut self.total {
            total.clocks.forget(flow);
        }
        self.forget_limit(flow);
    }
    fn enqueue(&mut self, request: Request, now: Instant) {
        let (flow, foreign) = (request.flow, request.foreign);
        self.spread.came(request.id);
        if self.backlog.push(request, ()) {
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
        let Some(flow) = self.choose(now) else {
            return match self.held.peek() {
                Some((_, at)) => Dispatch::Wait { until: Some(at), reason: WaitReason::OwnLimit },
                None => Dispatch::Idle,
            };
        };
        let request = self.backlog.pop_front(flow).expect("a flow that may go has something waiting").request;
        self.clocks.dispatched(slots.in_flight, now);
        if let Some(total) = &mut self.total {
            total.clocks.dispatched(slots.in_flight, now);
        }
        if let Some(bucket) = self.buckets.get_mut(flow) {
            bucket.take(request.cost, now);
        }
        self.place(flow, now);
        Dispatch::Ready(request)
    }
    fn complete(&mut self, completion: &Completion, now: Instant) {
        let Completion { request, actual, in_flight, .. } = completion;
        self.clocks.completed(*actual, *in_flight, now);
        if let Some(total) = &mut self.total {
            total.clocks.completed(*actual, *in_flight, now);
        }
        self.correct(request, *actual, now);
    }
    fn adjust(&mut self, request: &Request, cost: Cost, now: Instant) {
        match self.backlog.get_mut(request.id) {
            Some(queued) => {
                queued.request.cost = cost;
                self.place(request.flow, now);
            }
            None => self.correct(request, cost, now),
        }
    }
    fn foreign(&mut self, flow: FlowId, service: Cost, now: Instant) {
        let Some(total) = self.total.as_mut().filter(|_| service > Cost::ZERO) else { return };
        let smallest = total.order.peek().map(|(_, key)| key.start());
        total.clocks.foreign(flow, service, smallest, now);
        self.place(flow, now);
    }
    fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        let Some(request) = self.backlog.get(id).map(|queued| queued.request) else { return false };
        let Some(span) = self.clocks.whole_span(&request) else { return false };
        self.spread.told(&request, lead, span);
        self.regulated = true; // else what is spare would be whose deadlines are nearest, not who is owed
        if self.backlog.is_front(id) {
            self.place(request.flow, now);
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
        (self.backlog.waits(flow) && self.turns.len() > 1).then_some(WaitReason::OwnShare)
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.turns.clear();
        self.spread.clear();
        self.held.clear();
        if let Some(total) = &mut self.total {
            total.order.clear();
        }
    }
}

#[cfg(test)]
mod tests;
