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
//! **Ours** (with conforming deadlines alone). Requests that conform go first; then flows without a rate and a latency, by arrival; then
//! who is least ahead of its bucket, which fills at once to where that one conforms (`turns.rs`): what nobody else wanted is never held against a flow.
//! Flows without a promise keep 2 % where promises could take all.
//!
//! **Example.** t = 100/s, l = 50 ms, bucket 2 requests; five come at 0. They conform at 0, 0, 10, 20, 30 ms, and are due at 50, 50, 60,
//! 70, 80 ms.
//!
//! **Guarantee.** With one request at a time, all equally long, whatever set of requests can be answered in time at all is answered
//! in time (Jackson; requests that cannot be interrupted and differ in length cost one service time at most). Within a flow
//! requests leave in the order they came. A flow that took more than t while nobody wanted it has t from the next request on. A
//! latency without a rate is kept for whatever comes: whoever gives one trusts the flow. A bucket begins full,
//! but for what flows had used that are gone (`departed.rs`): neither does coming anew bring a burst, nor a contract that changes.
//!
//! **Price.** A place in one of two heaps over the flows that have something waiting, and a counter for each request.

use crate::booking::Booking;
use crate::departed::Departed;
use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::floor::Floor;
use crate::horizon::Horizon;
use crate::names::one_of;
use crate::spread::{At, Spread};
use crate::turns::Turns;
use crate::weight::since_epoch;
use crate::{Backlog, Flows, IndexedHeap, Pace, Terms};
use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, Duration, FlowId, Instant, Keeps, Need, ParamError,
    Params, Rate, Refused, Request, RequestId, Scheduler, Slots, VTime, WaitReason, With, check_bound,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "edf",
    summary: "earliest deadline first: latencies, for flows that keep to their rate",
    keeps: &["rate", "latency", "burst"],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(12),
    cost: "bytes",
    on_device: OnDevice { time: false, kept: true, shares: false },
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

/// A burst comes on top of a rate.
const NEEDS: &[Need] = &[Need::of("burst", &[With::any("rate")])];

fn build(params: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let rules = Rules::from_params(params, terms.unit)?;
    Ok(Box::new(Edf::new(Terms { needs: NEEDS, ..terms }, rules)))
}

struct Flow {
    /// Promised a second, in the gate's unit; zero where nothing is.
    rate: u64,
    /// Where that is a part of it: the pace of the whole disk.
    whole: Option<Pace>,
    /// Whether it goes only where promises leave room.
    best_effort: bool,
    latency: Duration,
    /// What went because it was owed would have taken so long at its rate (`spread.rs`): whatever waits conforms so much sooner.
    given: VTime,
    /// Counts only where something is promised, and deadlines count from when requests conform.
    bucket: ConformingBucket,
}

impl Flow {
    fn deadline(&self, start: VTime) -> VTime {
        start + since_epoch(Instant::ZERO + self.latency)
    }
    /// When a request conforms that came at `arrival`, as far as is known now.
    fn start(&self, tag: &Tag, arrival: VTime) -> VTime {
        if self.given == tag.given { tag.start } else { (tag.start - (self.given - tag.given)).max(arrival) }
    }
}

/// When requests conform: *empty* is when all that was taken is paid off at the rate.
#[derive(Clone, Copy)]
pub(crate) struct ConformingBucket {
    pace: Pace,
    size: Duration,
    /// A [`VTime`] in two halves, which leave no gaps where they are kept.
    empty: [u64; 2],
}

impl ConformingBucket {
    /// Full at `now`.
    pub fn new(pace: Pace, size: Duration, now: VTime) -> Self {
        let mut bucket = ConformingBucket { pace, size, empty: [0; 2] };
        bucket.set_empty(now);
        bucket
    }
    /// What was taken of another bucket stays taken, but for what waits still; and a bucket that differs is no fuller.
    pub fn follow(&mut self, old: &ConformingBucket, waiting: Cost, departed: &mut Departed, clock: VTime) {
        let paid = old.paid(waiting);
        if (self.pace, self.size) == (old.pace, old.size) {
            return self.set_empty(paid);
        }
        departed.add(paid);
        self.begin(departed, clock);
        self.set_empty(self.empty().max(old.pace.retagged(self.pace, paid, clock)));
    }
    /// It begins as empty as those of who went, and no more than empty.
    pub fn begin(&mut self, departed: &Departed, clock: VTime) {
        let empty = clock + since_epoch(Instant::ZERO + self.size);
        self.set_empty(departed.paid().min(empty).max(clock));
    }
    /// When all that was taken is paid off, but for what waits still.
    pub fn paid(&self, waiting: Cost) -> VTime {
        self.empty() - self.pace.span(waiting)
    }
    /// When a request of this cost that comes at `arrival` conforms.
    pub fn conforms(&self, cost: Cost, arrival: VTime) -> VTime {
        let empty = self.empty().max(arrival) + self.pace.span(cost);
        arrival.max(empty - since_epoch(Instant::ZERO + self.size))
    }
    /// The same, and takes it.
    pub fn take(&mut self, cost: Cost, arrival: VTime) -> VTime {
        let conforms = self.conforms(cost, arrival);
        self.set_empty(self.empty().max(arrival) + self.pace.span(cost));
        conforms
    }
    /// What was taken cost something else.
    pub fn correct(&mut self, charged: Cost, actual: Cost) {
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

/// What is remembered with a waiting request.
#[derive(Clone, Copy)]
struct Tag {
    /// When it conforms, on the clock of the turns.
    start: VTime,
    /// What the flow had been given then.
    given: VTime,
    /// When it came here.
    here: Instant,
    /// It is due after all that the horizon has counters for.
    later: bool,
}

pub(crate) struct Edf {
    terms: Terms,
    rules: Rules,
    flows: Flows<Flow>,
    backlog: Backlog<Tag>,
    /// What clocks of disks on several gates say.
    spread: Spread,
    turns: Turns,
    /// How far the clock of the turns has jumped.
    ahead: VTime,
    /// Flows without a promise, by arrival.
    spare: IndexedHeap<(u64, u64)>,
    floor: Floor,
    horizon: Horizon,
    departed: Departed,
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
            spread: Spread::default(),
            turns: Turns::default(),
            ahead: VTime::ZERO,
            spare: IndexedHeap::new(),
            floor: Floor::default(),
            horizon: Horizon::default(),
            departed: Departed::default(),
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

    /// A full bucket of what a flow is promised, and within which time.
    pub(crate) fn promise(&self, flow: FlowId, clock: VTime) -> Option<(ConformingBucket, Duration)> {
        let kept = self.flows.get(flow).filter(|f| f.rate > 0)?;
        Some((ConformingBucket::new(kept.bucket.pace, kept.bucket.size, clock), kept.latency))
    }

    /// How long a request takes at the rate of its whole disk.
    pub(crate) fn whole_span(&self, request: &Request) -> Option<VTime> {
        let flow = self.flows.get(request.flow).filter(|flow| flow.rate > 0)?;
        Some(flow.whole.unwrap_or(flow.bucket.pace).span(request.cost))
    }

    /// A request that waits is owed from `since`, by the clock of its whole disk.
    pub(crate) fn owe(&mut self, id: RequestId, since: VTime, now: Instant) {
        let Some(request) = self.backlog.get(id).map(|queued| queued.request) else { return };
        if self.rules.conforming && self.rate(request.flow).is_some() {
            self.spread.owe(id, since);
        }
        if self.backlog.is_front(id) {
            self.place(request.flow, now);
        }
    }

    /// Whether the scheduler knows the flow.
    pub(crate) fn knows(&self, flow: FlowId) -> bool {
        self.flows.get(flow).is_some()
    }

    fn clock(&self, t: Instant) -> VTime {
        since_epoch(t) + self.ahead
    }

    /// The tag of a request that is here since `here`; counts it among those that are due.
    fn tag(&mut self, request: &Request, here: Instant, now: Instant) -> Tag {
        let (arrival, clock) = (self.clock(request.arrival), self.clock(now));
        let flow = &mut self.flows[request.flow];
        let start = match self.rules.conforming && flow.rate > 0 {
            true => flow.bucket.take(request.cost, arrival),
            false => arrival,
        };
        let (due, given) = (flow.deadline(start), flow.given);
        Tag { start, given, here, later: self.horizon.add(millis(due), millis(clock)) }
    }

    /// A waiting request has this tag no more.
    fn untag(&mut self, flow: FlowId, tag: Tag, now: Instant) {
        let (due, clock) = (self.flows[flow].deadline(tag.start), self.clock(now));
        self.horizon.remove(millis(due), tag.later, millis(clock));
    }

    /// Puts a flow where its first request belongs.
    fn place(&mut self, id: FlowId, now: Instant) {
        let Some(head) = self.backlog.front(id) else {
            self.turns.remove(id);
            self.spread.remove(id);
            self.spare.remove(id.0);
            return;
        };
        let flow = &self.flows[id];
        let start = flow.start(&head.extra, since_epoch(head.request.arrival) + self.ahead);
        let since = self.spread.since(head.request.id).filter(|_| flow.rate > 0);
        let at = At { now, clock: since_epoch(now) + self.ahead };
        self.spread.wait(id, since, head.sequence, start, at);
        if flow.best_effort {
            self.turns.remove(id);
            self.spare.set(id.0, (head.request.arrival.as_nanos(), head.sequence));
        } else {
            if !self.spare.is_empty() {
                self.spare.remove(id.0);
            }
            self.turns.set(id, start, flow.deadline(start), head.sequence, since_epoch(now) + self.ahead);
        }
    }

    /// Whose turn it is.
    fn choose(&mut self, now: Instant) -> Option<FlowId> {
        let due = self.turns.due(self.clock(now)).map(|(flow, deadline)| match self.spread.due(now) {
            Some((kept, since)) if self.flows[kept].deadline(since + self.ahead) < deadline => kept,
            _ => flow,
        });
        let owed = if due.is_none() { self.spread.owed(now) } else { None };
        let cost = |flow| self.backlog.front(flow).expect("an ordered flow has a request").request.cost;
        if let Some((flow, _)) = self.spare.peek() {
            let flow = FlowId(flow);
            if due.or(owed).is_none() || self.floor.covers(cost(flow)) {
                self.floor.served(cost(flow));
                return Some(flow);
            }
        }
        if let Some(flow) = due.or(owed) {
            self.floor.promise_served(cost(flow), !self.spare.is_empty());
            if owed.is_some() {
                // What is owed by the clock of the whole disk costs the bucket here nothing.
                let request = self.backlog.front(flow).expect("an ordered flow has a request").request;
                let flow = &mut self.flows[flow];
                flow.bucket.correct(request.cost, Cost::ZERO);
                flow.given = flow.given + flow.bucket.pace.span(request.cost);
                self.spread.went(request.id);
            }
            return Some(flow);
        }
        let (flow, start, _) = self.turns.early()?;
        self.ahead = start - since_epoch(now); // it is not due, so this is further ahead than before
        Some(flow)
    }

    fn take(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let first = self.backlog.is_front(id);
        let queued = *self.backlog.remove(id)?;
        self.untag(queued.request.flow, queued.extra, now);
        if first {
            self.place(queued.request.flow, now);
        }
        Some(queued.request)
    }

    fn correct(&mut self, request: &Request, actual: Cost) {
        let (charged, conforming) = (request.cost, self.rules.conforming);
        if charged == actual || self.spread.was_owed(request.id) {
            return;
        }
        if let Some(flow) = self.flows.get_mut(request.flow).filter(|f| conforming && f.rate > 0) {
            flow.bucket.correct(charged, actual);
        }
    }

    /// The bucket that a contract asks for, full.
    fn bucket(&self, contract: &Contract, now: Instant) -> ConformingBucket {
        let pace = Pace::new(contract.rate.unwrap_or(Rate { per_second: 1, unit: self.terms.unit }));
        let size = contract.burst.map_or(self.rules.bucket, |burst| pace.time(burst));
        ConformingBucket::new(pace, size, self.clock(now))
    }

    /// What is kept of a contract, or why it is refused.
    fn admit(&self, contract: &Contract) -> Result<Contract, Refused> {
        let contract = self.terms.admit(contract)?;
        if let (Some(latency), Some(service)) = (contract.latency, self.rules.service) {
            check_bound(latency, service)?;
        }
        Ok(contract)
    }
}

/// The millisecond of a time on the turns' clock.
fn millis(t: VTime) -> u64 {
    u64::try_from((t.raw() >> VTime::FRACTION_BITS) / 1_000_000).unwrap_or(u64::MAX)
}

/// When the turns' clock, `ahead` of time, shows `t`.
fn real(t: VTime, ahead: VTime) -> Instant {
    Instant::from_nanos(u64::try_from((t - ahead).raw() >> VTime::FRACTION_BITS).unwrap_or(u64::MAX))
}

impl Scheduler for Edf {
    fn name(&self) -> &'static str {
        self.terms.name
    }
    fn keeps(&self) -> Keeps {
        let service = self.rules.service.map(|service| (1_000_000, service));
        let (rate, service) = (self.rules.booking.most(), service.into_iter().collect());
        Keeps { rate, service, ..self.terms.keeps() }
    }
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        let contract = self.admit(contract)?;
        self.rules.booking.with(self.rate(flow), contract.rate).map(drop)
    }
    fn set_flow(&mut self, id: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.admit(contract)?;
        let old = self.rate(id);
        self.rules.booking.change(old, contract.rate)?;
        let latency = contract.latency.map_or(self.rules.best_effort, |l| l.bound);
        // What waits is looked at anew, so that the flow's deadlines stay in its order.
        let waiting: Vec<_> = self.backlog.iter(id).copied().collect();
        for queued in &waiting {
            self.untag(id, queued.extra, now);
        }
        let (mut bucket, clock) = (self.bucket(&contract, now), self.clock(now));
        let left = waiting.iter().map(|q| q.request.cost).sum();
        match self.flows.get(id).filter(|flow| flow.rate > 0) {
            Some(old) if contract.rate.is_some() => {
                bucket.follow(&old.bucket, left, &mut self.departed, clock)
            }
            Some(old) => self.departed.add(old.bucket.paid(left)),
            None => bucket.begin(&self.departed, clock),
        }
        let promised = contract.rate.is_some() || contract.latency.is_some();
        let (rate, best_effort) =
            (contract.rate.map_or(0, |r| r.per_second), self.rules.conforming && !promised);
        self.flows.remove(id);
        let whole = contract.whole.filter(|whole| whole.per_second > 0).map(Pace::new);
        self.flows.get_or_insert_with(id, || Flow {
            rate,
            whole,
            given: VTime::ZERO,
            best_effort,
            bucket,
            latency,
        });
        for queued in waiting {
            let tag = self.tag(&queued.request, queued.extra.here, now);
            self.backlog.get_mut(queued.request.id).expect("it was just listed").extra = tag;
        }
        self.place(id, now);
        Ok(())
    }
    fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        while let Some(id) = self.backlog.front(flow).map(|first| first.request.id) {
            orphans.extend(self.cancel(id, now));
        }
        if let Some(gone) = self.flows.get(flow).filter(|gone| gone.rate > 0) {
            self.departed.add(gone.bucket.paid(Cost::ZERO));
        }
        self.rules.booking.release(self.rate(flow));
        self.flows.remove(flow);
    }
    fn enqueue(&mut self, request: Request, now: Instant) {
        let tag = self.tag(&request, now, now);
        self.spread.came(request.id);
        if self.backlog.push(request, tag) {
            self.place(request.flow, now);
        }
    }
    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let request = self.take(id, now)?;
        self.correct(&request, Cost::ZERO);
        Some(request)
    }
    fn dispatch(&mut self, now: Instant, _: Slots) -> Dispatch {
        let Some(flow) = self.choose(now) else { return Dispatch::Idle };
        let queued = *self.backlog.pop_front(flow).expect("an ordered flow has a request");
        self.untag(flow, queued.extra, now);
        self.last_since = real(queued.extra.start, self.ahead).max(queued.extra.here).min(now);
        self.place(flow, now);
        Dispatch::Ready(queued.request)
    }
    fn complete(&mut self, completion: &Completion, _: Instant) {
        self.correct(&completion.request, completion.actual);
    }
    fn adjust(&mut self, request: &Request, cost: Cost, _: Instant) {
        if let Some(queued) = self.backlog.get_mut(request.id) {
            queued.request.cost = cost;
        }
        self.correct(request, cost);
    }
    fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        let Some(request) = self.backlog.get(id).map(|queued| queued.request) else { return false };
        let Some(span) = self.whole_span(&request) else { return false };
        self.owe(id, since_epoch(request.arrival + lead) - span, now);
        true
    }
    fn queued(&self) -> usize {
        self.backlog.queued()
    }
    fn waiting(&self, flow: FlowId, _: Instant) -> Option<WaitReason> {
        let waits = self.backlog.waits(flow) && self.turns.len() + self.spare.len() > 1;
        (waits && !self.turns.is_due(flow)).then_some(WaitReason::OwnShare)
    }
    fn waits_from(&self, _: &Request) -> Instant {
        self.last_since
    }
    fn due(&self, until: Instant) -> usize {
        self.horizon.before(millis(self.clock(until)))
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.turns.clear();
        self.spread.clear();
        self.spare.clear();
        self.horizon = Horizon::default();
    }
}

#[cfg(test)]
mod tests;
