//! Start-time fair queueing with depth, SFQ(D), and over many nodes DSFQ: shares in proportion to weights.
//!
//! **Problem.** Flows with weights φ share a device whose speed nobody knows and which holds D requests at once. Each
//! backlogged flow shall receive service in proportion to φ; what one leaves, the others share; nobody banks what it
//! did not use, or owes for what nobody else wanted. A flow that is served by several nodes shall have one share of
//! the total.
//!
//! **Rule** (Goyal, Vin, Cheng 1997; Jin, Chase, Kaur 2004; DSFQ, equations (5) and (6)):
//!
//! ```text
//!   S(p_i) = max( v(arrival of p_i), F(p_i−1) + foreign(p_i) / φ )        F(p_i) = S(p_i) + cost(p_i) / φ
//!   v(t)   = start tag of the request dispatched last; when nothing is queued or in flight: the largest finish tag
//! ```
//!
//! The request with the smallest start tag goes next; ties: the one that came first. How much `foreign` service a
//! request pays is its [`Policy`]'s business.
//!
//! **Example.** Weights 1 and 2, requests of cost 10, both flows backlogged from 0: S = 0, 10, 20 … and 0, 5, 10 …;
//! so in each stretch of 10 the second is served twice. If the first got 20 at another node meanwhile, its next tag
//! is 20 later, and the second is served four times more before it.
//!
//! **Guarantee** (Theorem 1), for two flows with something waiting all the time:
//! |W_f/φ_f − W_g/φ_g| ≤ (D + 1)·(cmax_f/φ_f + cmax_g/φ_g). Work conserving, except with `work_conserving = false`,
//! (its `capacity` stated or "measured": `line.rs`), and for flows at their `limit`. Theorem 2 says the same of totals
//! (`tests/dsfq.rs`).
//!
//! **Price.** A heap over the flows that have something waiting: O(log of them), whatever the number of requests.
//! 30 ns a request with one such flow, 95 with 1000, 150 with 10 000 (benches/README.md); 62 bytes an idle flow.
//!
//! **Departures**, each with a switch:
//! - `tag = "head"`: a request is tagged when it becomes its flow's first, from the virtual time stored at its
//!   arrival. On one node that is the same; over several it charges what is owed *now*: gaps in fig13 are 5 to 6
//!   times smaller. The paper tags at arrival (`tag = "arrival"`).
//! - `memory = "2s"`: see `foreign/owed.rs`; and a first request that has waited so long drops its foreign term.
//!   The paper's is `memory = "forever"`.
//! - `foreign = "hybrid"` remembers what its cap left over; `"hybrid-memoryless"` is the paper's.
//! - A cost that turns out different is corrected in the flow's finish tag when it is known.
//! - A limit counts what the contract says (commands or bytes) also where the gate charges time.
//! - `limit`: a flow at its limit is set aside until it may go. Its tag is then at least v, so nothing is banked.

use crate::cost::in_unit;
use crate::departed::Departed;
use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::foreign::{Owed, Policy};
use crate::line::Line;
use crate::{Backlog, Bucket, Flows, IndexedHeap, Terms, Weight};
use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, FlowId, Instant, Keeps, ParamError, Params, Refused,
    Request, RequestId, Scheduler, Slots, VTime, WaitReason,
};

mod rules;

pub(crate) use rules::Rules;

pub(crate) const ENTRY: Entry = Entry {
    name: "sfq",
    summary: "start-time fair queueing, SFQ(D) and DSFQ: shares by weight, of one node or of the total; limits",
    keeps: &["weight", "limit", "burst", "min_share"],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(32),
    cost: "bytes",
    on_device: OnDevice { time: false, kept: false, shares: true },
    build,
};

/// Kept whatever is known of other nodes.
const ALONE: &[&str] = &["weight", "limit", "burst"];

fn build(p: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let rules = Rules::from_params(p)?;
    let line = rules::line_from(p, terms.unit)?;
    let keeps = if matches!(rules.policy, Policy::Hybrid { .. }) { terms.keeps } else { ALONE };
    Ok(Box::new(Sfq::new(Terms { own_units: true, keeps, ..terms }, rules, line)))
}

/// Orders first requests: by tag, then by arrival. The tag's halves stand apart, so that an item of the heap
/// has 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    high: u64,
    low: u64,
    sequence: u64,
}

impl Key {
    pub(crate) fn new(start: VTime, sequence: u64) -> Self {
        Key { high: (start.raw() >> 64) as u64, low: start.raw() as u64, sequence }
    }
    pub(crate) fn start(self) -> VTime {
        VTime::from_raw(u128::from(self.high) << 64 | u128::from(self.low))
    }
    pub(crate) fn sequence(self) -> u64 {
        self.sequence
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.start(), self.sequence).cmp(&(other.start(), other.sequence))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
    /// What the heap asks all the time: one subtraction of 128 bits, mostly.
    fn lt(&self, other: &Self) -> bool {
        let (a, b) = (self.start(), other.start());
        a < b || (a == b && self.sequence < other.sequence)
    }
}

struct Flow {
    /// F of the request dispatched last, corrected since (tagging at arrival: of the request that came last).
    finish: VTime,
    weight: Weight,
    /// Of flows that were served elsewhere: most never are.
    elsewhere: Option<Box<Elsewhere>>,
    bucket: Option<Box<Bucket>>,
    /// What its limit counts.
    limits: CostUnit,
}

/// What concerns a flow's service at other nodes.
#[derive(Default)]
struct Elsewhere {
    owed: Owed,
    /// Foreign service that the flow's first request pays.
    head: Cost,
    /// φmin in millionths.
    min_share: Option<u32>,
    /// Never charged, since it became too old.
    forgiven: Cost,
}

impl Elsewhere {
    /// Notes what is missing of what was `before`: it became too old.
    fn forgive(&mut self, before: Cost, charged: Cost) {
        self.forgiven += before.saturating_sub(self.owed.total() + charged);
    }
}

impl Flow {
    /// The foreign service that a request of `cost` pays: taken from what is owed.
    fn charge(&mut self, cost: Cost, rules: &Rules, total_weight: u64, now: Instant) -> Cost {
        let Some(elsewhere) = self.elsewhere.as_mut().filter(|e| !e.owed.is_zero()) else {
            return Cost::ZERO;
        };
        let cap = rules.policy.cap(cost, self.weight, total_weight, elsewhere.min_share);
        let before = elsewhere.owed.total();
        let charged = elsewhere.owed.take(cap, rules.memory, now);
        elsewhere.forgive(before, charged);
        if rules.policy == (Policy::Hybrid { remembers: false }) {
            elsewhere.owed.clear();
        }
        charged
    }

    /// Foreign service that the first request pays.
    fn head_foreign(&self) -> Cost {
        self.elsewhere.as_ref().map_or(Cost::ZERO, |e| e.head)
    }

    fn set_head_foreign(&mut self, service: Cost) {
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.head = service;
        }
    }

    /// Service at other nodes that became known.
    fn owe(&mut self, service: Cost, rules: &Rules, now: Instant) {
        if service > Cost::ZERO {
            let elsewhere = self.elsewhere.get_or_insert_default();
            let before = elsewhere.owed.total() + service;
            elsewhere.owed.add(service, rules.memory, now);
            elsewhere.forgive(before, Cost::ZERO);
        }
    }
}

pub(crate) struct Sfq {
    terms: Terms,
    rules: Rules,
    line: Option<Line>,
    flows: Flows<Flow>,
    total_weight: u64,
    /// With each request: v at its arrival (tagging at arrival: its start tag).
    backlog: Backlog<VTime>,
    /// Flows whose first request may go.
    ready: IndexedHeap<Key>,
    /// Flows at their limit, until when.
    limited: IndexedHeap<Instant>,
    /// Flows whose first request pays foreign service, until when.
    paying: IndexedHeap<Instant>,
    v: VTime,
    /// The largest finish tag handed out.
    last: VTime,
    in_flight: u32,
    /// What flows that are gone took of their limits.
    departed: Departed,
}

impl Sfq {
    pub(crate) fn new(terms: Terms, rules: Rules, line: Option<Line>) -> Self {
        Sfq {
            terms,
            rules,
            line,
            flows: Flows::new(),
            total_weight: 0,
            backlog: Backlog::new(),
            ready: IndexedHeap::new(),
            limited: IndexedHeap::new(),
            paying: IndexedHeap::new(),
            v: VTime::ZERO,
            last: VTime::ZERO,
            in_flight: 0,
            departed: Departed::default(),
        }
    }

    /// Tags the flow's first request and puts the flow where it belongs; with nothing waiting, nowhere.
    fn new_head(&mut self, id: FlowId, now: Instant) {
        if !self.backlog.waits(id) {
            self.ready.remove(id.0);
            self.limited.remove(id.0);
            self.stop_paying(id);
            return;
        }
        if self.rules.tag_at_head && self.flows[id].elsewhere.is_some() {
            self.charge_head(id, now);
        }
        self.place(id, now);
    }

    /// What the flow's first request pays of the flow's service elsewhere.
    #[inline(never)]
    fn charge_head(&mut self, id: FlowId, now: Instant) {
        let cost = self.backlog.front(id).expect("a flow that is charged has a first request").request.cost;
        let flow = &mut self.flows[id];
        let foreign = flow.charge(cost, &self.rules, self.total_weight, now);
        flow.set_head_foreign(foreign);
        match (foreign, self.rules.memory) {
            (Cost::ZERO, _) | (_, None) => drop(self.paying.remove(id.0)),
            (_, Some(memory)) => self.paying.set(id.0, now + memory),
        }
    }

    /// Puts a flow with a tagged first request among those that may go, or sets it aside.
    fn place(&mut self, id: FlowId, now: Instant) {
        let head = self.backlog.front(id).expect("a flow that is placed has a first request");
        let flow = &self.flows[id];
        let mut start = head.extra;
        if self.rules.tag_at_head {
            // DSFQ, equation (5)
            start = start.max(flow.finish + flow.weight.span(flow.head_foreign()));
            if let Some(line) = &self.line {
                start = start.max(self.lag_allowed(line, flow, now));
            }
        }
        let (key, request) = (Key::new(start, head.sequence), head.request.id);
        let ready_at = |b: &Bucket| b.ready_at(in_unit(&head.request, flow.limits, self.terms.unit));
        match flow.bucket.as_deref().map(ready_at) {
            Some(until) if until > now => {
                self.ready.remove(id.0);
                self.limited.set(id.0, until);
                self.forgive_lag(request);
            }
            _ => {
                if !self.limited.is_empty() {
                    self.limited.remove(id.0);
                }
                self.ready.set(id.0, key);
            }
        }
    }

    /// The start tag of a request that is tagged as it arrives.
    #[inline(never)]
    fn tag_arrival(&mut self, id: FlowId, cost: Cost, now: Instant) -> VTime {
        let flow = &mut self.flows[id];
        let foreign = flow.charge(cost, &self.rules, self.total_weight, now);
        let mut tag = self.v.max(flow.finish + flow.weight.span(foreign));
        if let Some(line) = &self.line {
            tag = tag.max(self.lag_allowed(line, &self.flows[id], now));
        }
        let flow = &mut self.flows[id];
        flow.finish = tag + flow.weight.span(cost);
        self.last = self.last.max(flow.finish);
        tag
    }

    /// The flow weighs more from now on, and so does what waits.
    fn retag_arrivals(&mut self, id: FlowId, old: Weight, new: Weight) {
        let waiting: Vec<_> = self.backlog.iter(id).map(|q| (q.request.id, q.extra)).collect();
        for (request, tag) in waiting {
            let queued = self.backlog.get_mut(request).expect("it was just listed");
            queued.extra = old.retagged(new, tag, self.v);
        }
    }

    /// How far a start tag may lie behind the line; zero until it is drawn.
    fn lag_allowed(&self, line: &Line, flow: &Flow, now: Instant) -> VTime {
        match line.is_drawn() {
            true => line.at(self.total_weight, now) - flow.weight.span(line.burst),
            false => VTime::ZERO,
        }
    }

    /// What its limit keeps a flow from, it does not bank: its tag does not fall behind.
    fn forgive_lag(&mut self, head: RequestId) {
        let head = self.backlog.get_mut(head).expect("a flow's first request waits");
        head.extra = head.extra.max(self.v);
    }

    fn stop_paying(&mut self, id: FlowId) {
        self.paying.remove(id.0);
        if let Some(flow) = self.flows.get_mut(id) {
            flow.set_head_foreign(Cost::ZERO);
        }
    }

    /// A first request is taken out without being served: what it would have paid is owed again.
    fn lose_head(&mut self, id: FlowId, now: Instant) {
        let flow = &mut self.flows[id];
        let back = flow.elsewhere.as_mut().map_or(Cost::ZERO, |e| std::mem::take(&mut e.head));
        flow.owe(back, &self.rules, now);
    }

    /// Flows whose limit allows it again, and first requests that have waited for the memory's length.
    fn pass_time(&mut self, now: Instant) {
        while let Some((id, until)) = self.limited.peek()
            && until <= now
        {
            self.limited.remove(id);
            self.place(FlowId(id), now);
        }
        while let Some((id, until)) = self.paying.peek()
            && until <= now
        {
            if let Some(elsewhere) = self.flows.get_mut(FlowId(id)).and_then(|f| f.elsewhere.as_mut()) {
                elsewhere.forgiven += elsewhere.head;
            }
            self.stop_paying(FlowId(id));
            self.place(FlowId(id), now);
        }
    }

    /// With nothing queued and nothing in flight, virtual time is the largest finish tag: whoever comes next starts
    /// level with whoever was served last.
    fn settle(&mut self, now: Instant) {
        if self.in_flight == 0 && self.backlog.is_empty() {
            // What a light flow was served may be worth hours of the line, and those are its own.
            let line = self.line.as_ref().filter(|line| line.is_drawn());
            let furthest = line.map_or(self.last, |line| line.at(self.total_weight, now));
            self.v = self.v.max(self.last.min(furthest));
        }
    }

    /// A request's cost turned out different: its flow's finish tag moves, and with it its first request.
    fn correct(&mut self, id: FlowId, charged: Cost, actual: Cost, now: Instant) {
        if charged == actual {
            return;
        }
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.finish = flow.finish + flow.weight.span(actual.saturating_sub(charged));
        flow.finish -= flow.weight.span(charged.saturating_sub(actual));
        self.last = self.last.max(flow.finish);
        if let Some(bucket) = flow.bucket.as_mut().filter(|_| flow.limits == self.terms.unit) {
            bucket.correct(charged, actual);
        }
        if self.backlog.waits(id) {
            self.place(id, now);
        }
    }

    /// The flow's first request leaves.
    fn go(&mut self, id: FlowId, start: VTime, now: Instant) -> Request {
        let request = self.backlog.pop_front(id).expect("a flow that may go has a request").request;
        let flow = &mut self.flows[id];
        if self.rules.tag_at_head {
            flow.finish = start + flow.weight.span(request.cost); // DSFQ, equation (6)
            self.last = self.last.max(flow.finish);
        }
        if let Some(bucket) = &mut flow.bucket {
            bucket.take(in_unit(&request, flow.limits, self.terms.unit), now);
        }
        self.in_flight += 1;
        self.new_head(id, now);
        request
    }

    /// A request that waits.
    pub(crate) fn waiting_request(&self, id: RequestId) -> Option<Request> {
        self.backlog.get(id).map(|queued| queued.request)
    }

    /// The flow's first request.
    pub(crate) fn head(&self, id: FlowId) -> Option<&Request> {
        self.backlog.front(id).map(|queued| &queued.request)
    }

    /// Whose turn it would be.
    pub(crate) fn first(&self) -> Option<FlowId> {
        self.ready.peek().map(|(id, _)| FlowId(id))
    }

    /// Whether others than one flow have something that may go.
    pub(crate) fn is_shared(&self) -> bool {
        self.ready.len() > 1
    }

    /// The flow's first request leaves out of its turn, or when the flow's limit lets it. It is charged as ever; virtual
    /// time does not go on, since that would take from those whose turn it is.
    ///
    /// # Panics
    /// When the flow has nothing waiting.
    pub(crate) fn dispatch_of(&mut self, id: FlowId, now: Instant) -> Result<Request, Instant> {
        if let Some(until) = self.limited.get(id.0) {
            if until > now {
                return Err(until);
            }
            self.limited.remove(id.0);
            self.place(id, now);
        }
        let start = self.ready.get(id.0).expect("a flow that waits, and is not at its limit, may go").start();
        Ok(self.go(id, start, now))
    }

    /// What is kept of a contract, or why it is refused.
    fn admit(&self, contract: &Contract) -> Result<Contract, Refused> {
        self.terms.admit(contract).map_err(|refused| match refused.term {
            "min_share" => Refused {
                term: "min_share",
                why: "a least share of one node goes with foreign = \"hybrid\"".into(),
                instead: "set foreign = \"hybrid\" on the scheduler, or leave min_share out".into(),
            },
            _ => refused,
        })
    }
}

impl Scheduler for Sfq {
    fn name(&self) -> &'static str {
        self.terms.name
    }

    fn keeps(&self) -> Keeps {
        self.terms.keeps()
    }

    fn check(&self, _: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.admit(contract).map(drop)
    }

    fn set_flow(&mut self, id: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.admit(contract)?;
        if let Some(line) = &mut self.line {
            line.advance(self.total_weight, now);
        }
        let weight = Weight::new(contract.weight());
        self.total_weight -= self.flows.get(id).map_or(0, |flow| u64::from(flow.weight.get()));
        self.total_weight += u64::from(contract.weight());
        let flow = self.flows.get_or_insert_with(id, || Flow {
            finish: VTime::ZERO,
            weight,
            elsewhere: None,
            bucket: None,
            limits: CostUnit::Bytes,
        });
        let old = std::mem::replace(&mut flow.weight, weight);
        flow.finish = old.retagged(weight, flow.finish, self.v);
        let limits = contract.limit.map_or(flow.limits, |limit| limit.unit);
        if std::mem::replace(&mut flow.limits, limits) != limits || contract.limit.is_none() {
            self.departed.add(flow.bucket.take().map_or(VTime::ZERO, |bucket| bucket.paid()));
        }
        let least = contract.amount("min_share").filter(|share| *share > 0).map(|share| share as u32);
        if contract.states("min_share") || flow.elsewhere.is_some() {
            flow.elsewhere.get_or_insert_default().min_share = least;
        }
        flow.bucket = match (contract.limit, flow.bucket.take()) {
            (Some(limit), Some(mut bucket)) => {
                bucket.change(limit, contract.burst, &mut self.departed, now);
                Some(bucket)
            }
            _ => Bucket::of(&contract).map(|bucket| Box::new(bucket.begins(&self.departed, now))),
        };
        if !self.rules.tag_at_head && weight.get() > old.get() {
            self.retag_arrivals(id, old, weight);
        }
        if let Some(head) = self.backlog.front(id).map(|q| q.request.id) {
            if self.limited.contains(id.0) {
                self.forgive_lag(head);
            }
            self.place(id, now);
        }
        Ok(())
    }

    fn remove_flow(&mut self, id: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        let Some(flow) = self.flows.remove(id) else { return };
        self.departed.add(flow.bucket.as_ref().map_or(VTime::ZERO, |bucket| bucket.paid()));
        if let Some(line) = &mut self.line {
            line.advance(self.total_weight, now);
        }
        self.total_weight -= u64::from(flow.weight.get());
        self.backlog.drain_flow(id, orphans);
        self.ready.remove(id.0);
        self.limited.remove(id.0);
        self.paying.remove(id.0);
        self.settle(now);
    }

    fn enqueue(&mut self, request: Request, now: Instant) {
        let id = request.flow;
        if request.foreign > Cost::ZERO && self.rules.policy != Policy::Single {
            self.flows[id].owe(request.foreign, &self.rules, now);
        }
        // Its parts, not its address: a request that is passed on is copied once more before it is pushed.
        let tag = if self.rules.tag_at_head { self.v } else { self.tag_arrival(id, request.cost, now) };
        if self.backlog.push(request, tag) {
            self.new_head(id, now);
        }
    }

    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let first = self.backlog.is_front(id);
        let request = self.backlog.remove(id)?.request;
        if first {
            self.lose_head(request.flow, now);
            self.new_head(request.flow, now);
        }
        self.settle(now);
        Some(request)
    }

    fn dispatch(&mut self, now: Instant, slots: Slots) -> Dispatch {
        self.pass_time(now);
        let Some((id, key)) = self.ready.peek() else {
            return match self.limited.peek() {
                Some((_, until)) => Dispatch::Wait { until: Some(until), reason: WaitReason::OwnLimit },
                None => Dispatch::Idle,
            };
        };
        let (id, start) = (FlowId(id), key.start());
        if let Some(line) = &mut self.line
            && line.is_drawn()
            && start > line.advance(self.total_weight, now)
        {
            let reached = line.reaches(start, self.total_weight);
            let others = [self.limited.peek(), self.paying.peek()];
            let until = others.iter().flatten().map(|(_, t)| *t).fold(reached, Instant::min);
            return Dispatch::Wait { until: Some(until), reason: WaitReason::OwnShare };
        }
        if let Some(line) = &mut self.line
            && slots.in_flight + 1 >= slots.depth
        {
            line.filled(now);
        }
        self.v = self.v.max(start);
        Dispatch::Ready(self.go(id, start, now))
    }

    fn complete(&mut self, completion: &Completion, now: Instant) {
        self.in_flight -= 1;
        if let Some(line) = &mut self.line {
            line.freed(completion.actual, self.total_weight, self.v, now);
        }
        self.correct(completion.request.flow, completion.request.cost, completion.actual, now);
        self.settle(now);
    }

    fn adjust(&mut self, request: &Request, cost: Cost, now: Instant) {
        match self.backlog.get_mut(request.id) {
            Some(queued) => queued.request.cost = cost,
            None => self.correct(request.flow, request.cost, cost, now),
        }
    }

    fn foreign(&mut self, id: FlowId, service: Cost, now: Instant) {
        if let Some(flow) = self.flows.get_mut(id)
            && self.rules.policy != Policy::Single
        {
            flow.owe(service, &self.rules, now);
        }
    }

    fn forgiven(&self) -> Cost {
        self.flows.iter().filter_map(|(_, flow)| flow.elsewhere.as_ref()).map(|e| e.forgiven).sum()
    }

    fn queued(&self) -> usize {
        self.backlog.queued()
    }

    fn waiting(&self, id: FlowId, _: Instant) -> Option<WaitReason> {
        if self.limited.contains(id.0) {
            return Some(WaitReason::OwnLimit);
        }
        let start = self.ready.get(id.0)?.start();
        let flow = self.flows.get(id)?;
        if start <= self.v {
            None
        } else if flow.head_foreign() > Cost::ZERO && flow.finish <= self.v {
            Some(WaitReason::ForeignService)
        } else {
            Some(WaitReason::OwnShare)
        }
    }

    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.ready.clear();
        self.limited.clear();
        self.paying.clear();
        self.settle(Instant::ZERO);
    }

    fn virtual_time(&self) -> VTime {
        self.v
    }
}
