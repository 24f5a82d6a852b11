//! Earliest deadline first. Work conserving.
//!
//! **Problem.** A flow has a contract (t, l): as long as it asks for no more than t, most of its requests are answered within
//! l. What is served first, so that as many as possible are?
//!
//! **Rule** (two-level I/O control, section 3.2). The smallest deadline first.
//!
//! ```text
//!   deadline(p) = arrival + l                                                          deadline = "arrival", the paper's
//!   deadline(p) = max(arrival, when p conforms to a token bucket of t) + l             deadline = "conforming", ours, the default
//! ```
//!
//! With the paper's rule a flow that floods takes the others' promise: requests far beyond t have deadlines as near as everybody's
//! (a conforming flow was in bound 0 % of the time, with ours 100 %). The bucket's size is the contract's burst, else `bucket` = 100 ms of
//! t: p conforms when the bucket, which fills at t, holds its cost.
//!
//! **Example.** t = 100/s, l = 50 ms, bucket 2 requests; five come at 0. They conform at 0, 0, 10, 20, 30 ms, and are due at 50, 50, 60,
//! 70, 80 ms.
//!
//! **Guarantee.** With one request at a time, all equally long, whatever set of requests can be answered in time at all is answered
//! in time (Jackson; requests that cannot be interrupted and differ in length cost one service time at most). Within a flow
//! requests leave in the order they came. Flows without a latency have one of `best_effort` = 1 s, so they do not starve.
//!
//! **Price.** One order of O(log queued): 0.25 to 0.4 us a request with 10,000 waiting.

use crate::booking::{Booking, check_bound};
use crate::rank_tree::{RankTree, Ranked};
use crate::registry::{DefaultDepth, Entry, Order, one_of};
use crate::{Backlog, Flows, Pace, Term, Terms};
use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, Duration, FlowId, Instant, ParamError, Params, Rate,
    Refused, Request, RequestId, Scheduler, Slots, VTime,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "edf",
    summary: "earliest deadline first: latencies, for flows that keep to their rate",
    keeps: &[Term::Rate, Term::Latency, Term::Burst],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(12),
    cost: "bytes",
    build,
};

/// The switches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Deadlines count from when a request conforms.
    conforming: bool,
    bucket: Duration,
    best_effort: Duration,
    /// What one request takes on the device, where that is known: no bound can be below it.
    service: Option<Duration>,
    pub booking: Booking,
}

impl Rules {
    pub(crate) fn from_params(p: &mut Params, unit: CostUnit) -> Result<Self, ParamError> {
        Ok(Rules {
            conforming: one_of(p, "deadline", &[("conforming", true), ("arrival", false)])?.unwrap_or(true),
            bucket: p.duration("bucket")?.unwrap_or(Duration::from_millis(100)),
            best_effort: p.duration("best_effort")?.unwrap_or(Duration::from_secs(1)),
            service: p.duration("service")?,
            booking: Booking::from_params(p, unit)?,
        })
    }
}

fn build(params: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let rules = Rules::from_params(params, terms.unit)?;
    Ok(Box::new(Edf::new(terms, rules)))
}

struct Flow {
    /// Promised a second, in the gate's unit; zero where nothing is.
    rate: u64,
    latency: Duration,
    /// Counts only where something is promised, and deadlines count from when requests conform.
    bucket: Bucket,
}

/// When requests conform: *empty* is when all that was taken is paid off at the rate.
#[derive(Clone, Copy)]
struct Bucket {
    pace: Pace,
    size: Duration,
    /// A [`VTime`] in two halves, which leave no gaps where they are kept.
    empty: [u64; 2],
}

impl Bucket {
    /// When a request of this cost conforms; takes it.
    fn take(&mut self, cost: Cost, arrival: Instant) -> Instant {
        let arrival = nanos(arrival);
        let empty = self.empty().max(arrival) + self.pace.span(cost);
        self.set_empty(empty);
        let conforms = arrival.max(empty - nanos(Instant::ZERO + self.size));
        Instant::from_nanos(u64::try_from(conforms.raw() >> VTime::FRACTION_BITS).unwrap_or(u64::MAX))
    }
    fn correct(&mut self, charged: Cost, actual: Cost) {
        let empty = self.empty() + self.pace.span(actual.saturating_sub(charged));
        self.set_empty(empty - self.pace.span(charged.saturating_sub(actual)));
    }
    fn empty(&self) -> VTime {
        VTime::from_raw(u128::from(self.empty[0]) << 64 | u128::from(self.empty[1]))
    }
    fn set_empty(&mut self, t: VTime) {
        self.empty = [(t.raw() >> 64) as u64, t.raw() as u64];
    }
}

fn nanos(t: Instant) -> VTime {
    VTime::from_raw(u128::from(t.as_nanos()) << VTime::FRACTION_BITS)
}

/// What is remembered with a waiting request.
#[derive(Clone, Copy)]
struct Due {
    deadline: u64,
    /// When it conformed and was here: its wait counts from then.
    since: Instant,
}

pub(crate) struct Edf {
    terms: Terms,
    rules: Rules,
    flows: Flows<Flow>,
    backlog: Backlog<Due>,
    order: RankTree,
    /// Since when the request dispatched last had waited.
    last_since: Instant,
}

impl Edf {
    pub(crate) fn new(terms: Terms, rules: Rules) -> Self {
        Edf {
            terms,
            rules,
            flows: Flows::new(),
            backlog: Backlog::new(),
            order: RankTree::new(),
            last_since: Instant::ZERO,
        }
    }

    /// Capacity and rates promised.
    pub(crate) fn booking(&self) -> &Booking {
        &self.rules.booking
    }

    /// What a flow is promised.
    pub(crate) fn rate(&self, flow: FlowId) -> Option<Rate> {
        let per_second = self.flows.get(flow)?.rate;
        (per_second > 0).then_some(Rate { per_second, unit: self.terms.unit })
    }

    /// Whether the scheduler knows the flow.
    pub(crate) fn knows(&self, flow: FlowId) -> bool {
        self.flows.get(flow).is_some()
    }

    /// When a request is due whose flow has nothing due later than `before`: a cost that was corrected or given back must
    /// not let a request overtake its own flow.
    fn due(&mut self, request: &Request, before: u64, now: Instant) -> Due {
        let flow = &mut self.flows[request.flow];
        let from = match self.rules.conforming && flow.rate > 0 {
            true => flow.bucket.take(request.cost, request.arrival),
            false => request.arrival,
        };
        let due = (from + flow.latency).as_nanos();
        Due { deadline: due.max(before), since: from.max(now) }
    }

    fn take(&mut self, id: RequestId) -> Option<Request> {
        let queued = self.backlog.remove(id)?;
        self.order.remove(queued.extra.deadline, queued.sequence).expect("what waits has a deadline");
        Some(queued.request)
    }

    fn correct(&mut self, flow: FlowId, charged: Cost, actual: Cost) {
        let conforming = self.rules.conforming;
        if let Some(flow) = self.flows.get_mut(flow).filter(|f| conforming && f.rate > 0) {
            flow.bucket.correct(charged, actual);
        }
    }

    /// The bucket that a contract asks for, full.
    fn bucket(&self, contract: &Contract, now: Instant) -> Bucket {
        let pace = Pace::new(contract.rate.unwrap_or(Rate { per_second: 1, unit: self.terms.unit }));
        let size = contract.burst.map_or(self.rules.bucket, |burst| pace.time(burst));
        let mut bucket = Bucket { pace, size, empty: [0; 2] };
        bucket.set_empty(nanos(now));
        bucket
    }

    /// What is kept of a contract, or why it is refused.
    fn admit(&self, contract: &Contract) -> Result<Contract, Refused> {
        let contract = self.terms.admit(contract)?;
        if let (Some(latency), Some(service)) = (contract.latency, self.rules.service) {
            check_bound(latency, service)?;
        }
        if contract.burst.is_some() && contract.rate.is_none() {
            return Err(Refused {
                term: "burst",
                why: "a burst comes on top of a rate, and there is none".into(),
                instead: "add a rate, or leave the burst out".into(),
            });
        }
        Ok(contract)
    }
}

impl Scheduler for Edf {
    fn name(&self) -> &'static str {
        self.terms.name
    }
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        let contract = self.admit(contract)?;
        self.rules.booking.with(self.rate(flow), contract.rate).map(drop)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.admit(contract)?;
        let old = self.rate(flow);
        self.rules.booking.change(old, contract.rate)?;
        let latency = contract.latency.map_or(self.rules.best_effort, |l| l.bound);
        // What waits is looked at anew, so that the flow's deadlines stay in its order.
        let oldest = self.backlog.front(flow).map_or(now, |q| q.request.arrival);
        let bucket = self.bucket(&contract, oldest);
        self.flows.remove(flow);
        self.flows.get_or_insert_with(flow, || Flow {
            rate: contract.rate.map_or(0, |r| r.per_second),
            bucket,
            latency,
        });
        let waiting: Vec<_> = self.backlog.iter(flow).copied().collect();
        let mut before = 0;
        for queued in waiting {
            let due = Due { since: queued.extra.since, ..self.due(&queued.request, before, now) };
            before = due.deadline;
            self.order.remove(queued.extra.deadline, queued.sequence).expect("what waits has a deadline");
            let slot = queued.request.id.slot;
            self.order.insert(Ranked { key: due.deadline, seq: queued.sequence, slot });
            self.backlog.get_mut(queued.request.id).expect("it was just listed").extra = due;
        }
        Ok(())
    }
    fn remove_flow(&mut self, flow: FlowId, _: Instant, orphans: &mut Vec<Request>) {
        while let Some(first) = self.backlog.front(flow) {
            let id = first.request.id;
            orphans.extend(self.take(id));
        }
        self.rules.booking.release(self.rate(flow));
        self.flows.remove(flow);
    }
    fn enqueue(&mut self, request: Request, now: Instant) {
        let before = self.backlog.back(request.flow).map_or(0, |last| last.extra.deadline);
        let (due, seq) = (self.due(&request, before, now), self.backlog.arrivals());
        self.order.insert(Ranked { key: due.deadline, seq, slot: request.id.slot });
        self.backlog.push(request, due);
    }
    fn cancel(&mut self, id: RequestId, _: Instant) -> Option<Request> {
        let request = self.take(id)?;
        self.correct(request.flow, request.cost, Cost::ZERO);
        Some(request)
    }
    fn dispatch(&mut self, _: Instant, _: Slots) -> Dispatch {
        let Some(first) = self.order.first() else { return Dispatch::Idle };
        let queued = self.backlog.take(first.slot);
        self.order.remove(first.key, first.seq);
        self.last_since = queued.extra.since;
        Dispatch::Ready(queued.request)
    }
    fn complete(&mut self, completion: &Completion, _: Instant) {
        self.correct(completion.request.flow, completion.request.cost, completion.actual);
    }
    fn adjust(&mut self, request: &Request, cost: Cost, _: Instant) {
        if let Some(queued) = self.backlog.get_mut(request.id) {
            queued.request.cost = cost;
        }
        self.correct(request.flow, request.cost, cost);
    }
    fn queued(&self) -> usize {
        self.backlog.queued()
    }
    fn waits_from(&self, _: &Request) -> Instant {
        self.last_since
    }
    fn due(&self, until: Instant) -> usize {
        self.order.count_below(until.as_nanos())
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.order.clear();
    }
}

#[cfg(test)]
mod tests;
