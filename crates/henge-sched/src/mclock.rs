//! mClock: a least rate, a highest rate, and a weight for what lies between. Work conserving but for limits.
//!
//! **Problem.** A tenant wants at least r whatever the others do, must not get more than l, and shares what is spare in
//! proportion to a weight w.
//!
//! **Rule** (Gulati, Merchant, Varman, OSDI 2010). Each request of flow i that comes at time t has three tags:
//!
//! ```text
//!   R = max( R' + c'/r, t )      L = max( L' + c'/l, t )      P = max( P' + c'/w, P of whoever is least ahead )
//! ```
//!
//! (R', L', P' and c' are the tags and the cost of the flow's request before.) *By reservation:* while some R is not in
//! the future, the request with the smallest R goes. *By weight:* otherwise, of those whose L is not in the future the
//! one with the smallest P goes, and its flow's R stay where they are, so that spare service does not count against
//! the reservation.
//!
//! **Example.** A: r = 250/s; B and C: weights 1 and 2; the device does 1000/s. By R, A has a request every 4 ms. The 750
//! others go by P, where A's own advance counts as well: with w = 1 for A it is a quarter ahead already, and gets no
//! more; B gets 250, C 500. Were A's weight 5, it would get 625, B 125, C 250.
//!
//! **Guarantee.** While the reservations are feasible, each flow that always has something waiting gets at least r, at
//! most l, and otherwise in proportion to w: each within 1 %, 1 % and 2 % over 10 s (`tests/mclock.rs`).
//!
//! **Price.** Up to three heaps over the flows that have something waiting: 50 ns a request with one such flow, 131 with
//! 1000, 185 with 10 000.
//!
//! **Departures.** Costs instead of requests. Where the gate charges time, rates and limits count what the contract says (commands or
//! bytes) and weights share time. A request is tagged when it is its flow's first. The paper shifts the P
//! of all others when a flow becomes active; here the flow starts level with the least of them, which is the same
//! without touching every flow. A limit binds in both phases, and what a flow was kept from (the device was busy
//! with others) it may catch up by 20 ms of its limit, so no second exceeds it by more than 2 % and one request.
//! Flows without a reservation keep 2 % (`best_effort`) where reservations could take all. With a `capacity`, rates that
//! exceed it together are refused (`overbook = true` takes them).

use crate::booking::Booking;
use crate::departed::Departed;
use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::floor::Floor;
use crate::spread::{At, Spread};
use crate::weight::{OwnPace, ceil_instant, since_epoch};
use crate::{Backlog, Flows, IndexedHeap, Terms, Weight};
use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, Duration, FlowId, Instant, Keeps, ParamError, Params,
    Rate, Refused, Request, RequestId, Scheduler, Slots, VTime, WaitReason,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "mclock",
    summary: "mClock: a reserved rate, a limit, and a weight for what lies between",
    keeps: &["weight", "rate", "limit"],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(32),
    cost: "requests",
    on_device: OnDevice { time: true, kept: true, shares: true },
    build,
};

/// How much of its limit a flow may catch up.
const CATCH_UP: Duration = Duration::from_millis(20);

fn build(params: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    Ok(Box::new(MClock {
        terms: Terms { own_units: true, ..terms },
        floor: Floor::from_params(params)?,
        booking: Booking::from_params(params, terms.unit)?,
        flows: Flows::new(),
        backlog: Backlog::new(),
        spread: Spread::default(),
        reserved: IndexedHeap::new(),
        eligible: IndexedHeap::new(),
        limited: IndexedHeap::new(),
        by_reservation: Vec::new(),
        v: VTime::ZERO,
        last: VTime::ZERO,
        in_flight: 0,
        gone: Gone::default(),
    }))
}

#[derive(Default)]
struct Flow {
    weight: Weight,
    /// What was promised, in the unit of the gate.
    booked: Option<Rate>,
    rate: Option<OwnPace>,
    /// Where the rate is a part of it: that of the whole disk.
    whole: Option<OwnPace>,
    limit: Option<OwnPace>,
    /// R' + c'/r and so on: the next request's tags, but for its arrival. R and L in nanoseconds.
    next_r: VTime,
    next_l: VTime,
    next_p: VTime,
    /// R and L are those of who went, until its first request comes (`departed.rs`).
    fresh: Fresh,
}

#[derive(Clone, Copy, Default)]
struct Fresh {
    r: bool,
    l: bool,
}

impl Flow {
    /// Takes other terms: what they promise more holds at once, so tags that were made by less come nearer.
    fn follow(&mut self, contract: &Contract, v: VTime, gone: &mut Gone, now: VTime) {
        let [rate, limit] = [contract.rate, contract.limit].map(|rate| rate.map(OwnPace::new));
        let retagged = |old: Option<OwnPace>, new: Option<OwnPace>, tag: VTime| match (old, new) {
            (Some(old), Some(new)) => old.retagged(&new, tag, now),
            _ => tag.min(now),
        };
        self.leave(gone, rate.is_none(), limit.is_none());
        // A promise counts from when it was made.
        self.next_r = retagged(self.rate, rate, self.next_r).max(now);
        self.next_l = retagged(self.limit, limit, self.next_l);
        if self.rate.is_none() && rate.is_some() {
            (self.next_r, self.fresh.r) = (self.next_r.max(gone.reserved.paid()), true);
        }
        if self.limit.is_none() && limit.is_some() {
            (self.next_l, self.fresh.l) = (self.next_l.max(gone.limited.paid()), true);
        }
        let weight = Weight::new(contract.weight());
        self.next_p = self.weight.retagged(weight, self.next_p, v);
        self.whole = contract.whole.filter(|whole| whole.per_second > 0).map(OwnPace::new).or(rate);
        (self.rate, self.limit, self.weight) = (rate, limit, weight);
    }

    /// It gives up its rate, or its limit.
    fn leave(&mut self, gone: &mut Gone, rate: bool, limit: bool) {
        if rate && self.rate.is_some() {
            gone.reserved.add(self.next_r);
        }
        if limit && self.limit.is_some() {
            gone.limited.add(self.next_l);
        }
    }

    /// The first request of one that comes waits for its own cost at most.
    fn begin(&mut self, first: &Request, now: VTime, unit: CostUnit) {
        let Fresh { r, l } = std::mem::take(&mut self.fresh);
        if let Some(rate) = self.rate.filter(|_| r) {
            self.next_r = self.next_r.min(now + rate.span(first, unit));
        }
        if let Some(limit) = self.limit.filter(|_| l) {
            self.next_l = self.next_l.min(now + limit.span(first, unit));
        }
    }
}

/// What flows that are gone took by reservation, and of their limits.
#[derive(Default)]
struct Gone {
    reserved: Departed,
    limited: Departed,
}

struct MClock {
    terms: Terms,
    floor: Floor,
    booking: Booking,
    flows: Flows<Flow>,
    /// With each request: when it came.
    backlog: Backlog<Instant>,
    /// What clocks of disks on several gates say.
    spread: Spread,
    /// Flows with a reservation, by R (or L where that is later).
    reserved: IndexedHeap<(VTime, u64)>,
    /// Flows below their limit, by P.
    eligible: IndexedHeap<(VTime, u64)>,
    /// Flows at their limit, by L.
    limited: IndexedHeap<VTime>,
    /// By slot: whether the request in flight went by reservation.
    by_reservation: Vec<bool>,
    /// P of the request dispatched last; when all is idle, the largest P handed out.
    v: VTime,
    last: VTime,
    in_flight: u32,
    gone: Gone,
}

impl MClock {
    /// Where a flow starts that becomes active, or comes back from its limit.
    fn least_p(&self) -> VTime {
        self.eligible.peek().map_or(self.v, |(_, (p, _))| p)
    }

    /// Tags a flow's first request and puts the flow where it belongs.
    fn place(&mut self, id: FlowId, now: Instant) {
        let Some(head) = self.backlog.front(id) else {
            self.reserved.remove(id.0);
            self.eligible.remove(id.0);
            self.limited.remove(id.0);
            self.spread.remove(id);
            return;
        };
        let (arrival, sequence) = (since_epoch(head.extra), head.sequence);
        let since = self.spread.since(head.request.id);
        let least = self.least_p();
        let flow = &mut self.flows[id];
        if flow.fresh.r || flow.fresh.l {
            flow.begin(&head.request, since_epoch(now), self.terms.unit);
        }
        let since = since.filter(|_| flow.rate.is_some());
        let l = if flow.limit.is_some() { flow.next_l.max(arrival) } else { VTime::ZERO };
        match flow.rate {
            Some(_) => self.reserved.set(id.0, (flow.next_r.max(arrival).max(l), sequence)),
            None => drop(self.reserved.remove(id.0)),
        }
        if l > since_epoch(now) {
            // What its limit keeps it from, it does not bank.
            flow.next_p = flow.next_p.max(least);
            self.eligible.remove(id.0);
            self.spread.remove(id);
            self.limited.set(id.0, l);
        } else {
            self.limited.remove(id.0);
            self.spread.wait(id, since, sequence, flow.next_r, At { now, clock: since_epoch(now) });
            self.eligible.set(id.0, (flow.next_p, sequence));
        }
    }

    fn go(&mut self, id: FlowId, by_reservation: bool, now: Instant) -> Request {
        let queued = self.backlog.pop_front(id).expect("a flow that is ordered has a request");
        let (request, arrival) = (queued.request, since_epoch(queued.extra));
        let unit = self.terms.unit;
        let waits = self.eligible.len() > 1 || !self.limited.is_empty();
        let flow = &mut self.flows[id];
        let r = flow.next_r.max(arrival);
        flow.next_r = r;
        if by_reservation {
            flow.next_r =
                r + flow.rate.expect("only flows with a rate are reserved for").span(&request, unit);
            self.floor.promise_served(request.cost, waits);
        } else {
            self.floor.served(request.cost);
        }
        if let Some(limit) = flow.limit {
            flow.next_l =
                flow.next_l.max(arrival).max(since_epoch(now - CATCH_UP)) + limit.span(&request, unit);
        }
        self.v = flow.next_p;
        flow.next_p = flow.next_p + flow.weight.span(request.cost);
        self.last = self.last.max(flow.next_p);
        let slot = request.id.index();
        if self.by_reservation.len() <= slot {
            self.by_reservation.resize(slot + 1, false);
        }
        self.by_reservation[slot] = by_reservation;
        self.in_flight += 1;
        self.place(id, now);
        request
    }

    fn correct(&mut self, request: &Request, actual: Cost, now: Instant) {
        let Some(flow) = self.flows.get_mut(request.flow) else { return };
        let (more, less) = (actual.saturating_sub(request.cost), request.cost.saturating_sub(actual));
        if more == less {
            return;
        }
        let unit = self.terms.unit;
        let moved = |tag: VTime, pace: Option<OwnPace>| {
            pace.map_or(tag, |p| tag + p.moved(more, unit) - p.moved(less, unit))
        };
        if self.by_reservation[request.id.index()] {
            flow.next_r = moved(flow.next_r, flow.rate);
        }
        flow.next_l = moved(flow.next_l, flow.limit);
        flow.next_p = flow.next_p + flow.weight.span(more) - flow.weight.span(less);
        self.last = self.last.max(flow.next_p);
        self.place(request.flow, now);
    }

    fn settle(&mut self) {
        if self.in_flight == 0 && self.backlog.is_empty() {
            self.v = self.v.max(self.last);
        }
    }
}

impl Scheduler for MClock {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn keeps(&self) -> Keeps {
        Keeps { rate: self.booking.most(), ..self.terms.keeps() }
    }

    fn check(&self, id: FlowId, contract: &Contract) -> Result<(), Refused> {
        let contract = self.terms.admit(contract)?;
        self.booking.with(self.flows.get(id).and_then(|f| f.booked), contract.rate).map(drop)
    }

    fn set_flow(&mut self, id: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.terms.admit(contract)?;
        let old = self.flows.get(id).and_then(|f| f.booked);
        self.booking.change(old, contract.rate)?;
        let flow = self.flows.get_or_insert_with(id, Flow::default);
        flow.booked = contract.rate;
        flow.follow(&contract, self.v, &mut self.gone, since_epoch(now));
        self.place(id, now);
        Ok(())
    }

    fn remove_flow(&mut self, id: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        self.backlog.drain_flow(id, orphans);
        self.place(id, now);
        let mut old = self.flows.remove(id);
        if let Some(old) = &mut old {
            old.leave(&mut self.gone, true, true);
        }
        self.booking.release(old.and_then(|f| f.booked));
        self.settle();
    }

    fn enqueue(&mut self, request: Request, now: Instant) {
        let id = request.flow;
        self.spread.came(request.id);
        if self.backlog.push(request, now) {
            let least = self.least_p();
            let flow = &mut self.flows[id];
            flow.next_p = flow.next_p.max(least);
            self.place(id, now);
        }
    }

    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let first = self.backlog.is_front(id);
        let request = self.backlog.remove(id)?.request;
        if first {
            self.place(request.flow, now);
        }
        self.settle();
        Some(request)
    }

    fn dispatch(&mut self, now: Instant, _: Slots) -> Dispatch {
        while let Some((id, until)) = self.limited.peek()
            && ceil_instant(until) <= now
        {
            self.place(FlowId(id), now);
        }
        let due = self.reserved.peek().filter(|(_, (r, _))| *r <= since_epoch(now));
        let due = due.map(|(id, (r, _))| match self.spread.due(now) {
            Some((kept, since)) if since < r => kept,
            _ => FlowId(id),
        });
        let spare = self.eligible.peek().map(|(id, _)| FlowId(id));
        let cost = |id: FlowId| self.backlog.front(id).expect("an ordered flow has a request").request.cost;
        let owed = if due.is_none() { self.spread.owed(now) } else { None };
        match (due.or(owed), spare) {
            (Some(_), Some(spare)) if self.floor.covers(cost(spare)) => {
                Dispatch::Ready(self.go(spare, due == Some(spare), now))
            }
            (Some(owed), _) if due.is_none() => {
                self.floor.promise_served(cost(owed), self.eligible.len() > 1);
                Dispatch::Ready(self.go(owed, false, now))
            }
            (Some(due), _) => Dispatch::Ready(self.go(due, true, now)),
            (None, Some(spare)) => Dispatch::Ready(self.go(spare, false, now)),
            (None, None) => match self.limited.peek() {
                Some((_, until)) => {
                    Dispatch::Wait { until: Some(ceil_instant(until)), reason: WaitReason::OwnLimit }
                }
                None => Dispatch::Idle,
            },
        }
    }

    fn complete(&mut self, completion: &Completion, now: Instant) {
        self.in_flight -= 1;
        self.correct(&completion.request, completion.actual, now);
        self.settle();
    }

    fn adjust(&mut self, request: &Request, cost: Cost, now: Instant) {
        match self.backlog.get_mut(request.id) {
            Some(queued) => queued.request.cost = cost,
            None => self.correct(request, cost, now),
        }
    }

    fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        let Some(request) = self.backlog.get(id).map(|queued| queued.request) else { return false };
        let flow = &self.flows[request.flow];
        let (Some(whole), Some(_)) = (flow.whole, flow.rate) else { return false };
        self.spread.told(&request, lead, whole.span(&request, self.terms.unit));
        if self.backlog.is_front(id) {
            self.place(request.flow, now);
        }
        true
    }

    fn queued(&self) -> usize {
        self.backlog.queued()
    }

    fn waiting(&self, id: FlowId, _: Instant) -> Option<WaitReason> {
        if self.limited.contains(id.0) {
            return Some(WaitReason::OwnLimit);
        }
        let (p, _) = self.eligible.get(id.0)?;
        (p > self.least_p()).then_some(WaitReason::OwnShare)
    }

    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.reserved.clear();
        self.eligible.clear();
        self.limited.clear();
        self.spread.clear();
        self.settle();
    }

    fn virtual_time(&self) -> VTime {
        self.v
    }
}
