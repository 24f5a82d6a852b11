//! pClock: (burst, rate, latency). A flow that keeps to its arrival curve is answered in time. Work conserving.
//!
//! **Problem.** A tenant sends bursts of at most σ, ρ on average, and wants each request answered within δ, whatever the
//! others do; and having used what was spare is not to be held against it.
//!
//! **Rule** (Gulati, Merchant, Varman, SIGMETRICS 2007). A request's start tag S is the moment at which it would have
//! come had its flow kept to the curve σ + ρ·t; its finish tag is its deadline, F = S + δ; the smallest F goes first.
//!
//! ```text
//!   S_i = max( t, E − σ/ρ )        E = max( E, S_i ) + cost_i / ρ        (E: when the bucket of ρ, σ is paid off)
//! ```
//!
//! When all flows that have something waiting are ahead of their curves (the smallest S is in the future), there is
//! spare service: the smallest S goes, and all tags are moved back until it is now, so whoever uses what is spare pays nothing
//! for it later (`turns.rs`). Flows without a rate come first whenever there is spare service, among themselves by weight.
//!
//! **Example.** ρ = 100/s, σ = 2, δ = 20 ms; four requests at t = 0: S = 0, 0, 0 and 10 ms (the bucket holds two beyond
//! the one that it is paying), so F = 20, 20, 20 and 30 ms.
//!
//! **Guarantee.** While the curves are feasible together, a flow that keeps to its own misses no deadline by more than
//! one request's service, however the others behave (`tests/mclock.rs`).
//!
//! **Price.** Two heaps over the flows that have something waiting: 32 ns a request with one such flow, 105 with 1000, 168
//! with 10 000 (without curves; with them, two heaps instead of one).
//!
//! **Departures.** The paper serves the smallest F even if its S is in the future: a flow with a short δ then runs ahead of one with a long
//! δ by the difference, and gets nothing for as long when others come. Here only
//! who is not ahead is compared by F. Tokens and the largest start tag are one number, E. Moving all tags back is moving the clock on
//! instead (`ahead`), which touches no flow; idle flows' tags move as well, and only refill their buckets sooner.
//! Flows without a rate keep 2 % (`best_effort`) where promises could take all. With a `capacity`, curves that are not
//! feasible together are refused (`overbook = true` takes them).

use crate::booking::Booking;
use crate::departed::Departed;
use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::floor::Floor;
use crate::spread::{At, Spread};
use crate::turns::Turns;
use crate::weight::since_epoch;
use crate::{Backlog, Flows, IndexedHeap, Pace, Terms, Weight};
use henge_core::{
    Completion, Contract, Cost, Dispatch, Duration, FlowId, Instant, Keeps, Need, ParamError, Params, Rate,
    Refused, Request, RequestId, Scheduler, Slots, VTime, With, check_bound, check_curves,
};
use std::collections::BTreeMap;

pub(crate) const ENTRY: Entry = Entry {
    name: "pclock",
    summary: "pClock: burst, rate and latency; a flow that keeps to its curve is answered in time",
    keeps: &["weight", "rate", "burst", "latency"],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Fixed(4),
    cost: "requests",
    on_device: OnDevice { time: false, kept: true, shares: true },
    build,
};

/// A latency is kept for a rate.
const NEEDS: &[Need] = &[Need::of("latency", &[With::any("rate")])];
/// δ of a flow with a rate and no latency.
const LATENCY_DEFAULT: Duration = Duration::from_millis(100);

fn build(params: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    Ok(Box::new(PClock {
        terms: Terms { needs: NEEDS, ..terms },
        floor: Floor::from_params(params)?,
        promises: Promises {
            booking: Booking::from_params(params, terms.unit)?,
            service: params.duration("service")?,
            curves: Flows::new(),
            within: BTreeMap::new(),
        },
        flows: Flows::new(),
        backlog: Backlog::new(),
        spread: Spread::default(),
        turns: Turns::default(),
        spare: IndexedHeap::new(),
        ahead: VTime::ZERO,
        v: VTime::ZERO,
        departed: Departed::default(),
    }))
}

/// A flow that was promised something.
struct Curve {
    rate: Pace,
    /// Where that is a part of it: that of the whole disk.
    whole: Pace,
    /// σ/ρ
    burst: VTime,
    /// δ
    latency: VTime,
}

#[derive(Default)]
struct Flow {
    curve: Option<Curve>,
    weight: Weight,
    /// With a curve: E, on the clock that runs ahead. Without: the finish tag of start-time fair queueing.
    paid: VTime,
    /// With a curve, until its first request comes: when what was taken before is paid off (`departed.rs`).
    before: VTime,
}

impl Flow {
    /// The first request comes, of this cost: the bucket is as empty as those before, and no more than empty.
    fn begin(&mut self, cost: Cost, clock: VTime) {
        let before = std::mem::take(&mut self.before);
        if let (true, Some(curve)) = (before > VTime::ZERO, &self.curve) {
            self.paid = self.paid.max(before.min(clock + curve.burst + curve.rate.span(cost)));
        }
    }
}

/// A curve as it was stated.
#[derive(Clone, Copy)]
struct Stated {
    rate: Rate,
    burst: Cost,
    latency: Duration,
}

/// What is promised in all, against what the device can do.
struct Promises {
    booking: Booking,
    /// What one request takes on the device, where that is known.
    service: Option<Duration>,
    /// Of all flows, where there is a capacity to hold them against.
    curves: Flows<Stated>,
    /// The same by latency: what is due at once, and what comes each second from then on.
    within: BTreeMap<Duration, Due>,
}

/// Of all curves of one latency.
#[derive(Clone, Copy, Default)]
struct Due {
    flows: u32,
    all: henge_core::Due,
}

impl Due {
    fn of(curve: &Stated) -> Due {
        Due { flows: 1, all: henge_core::Due::of(curve.rate, curve.burst) }
    }
    fn plus(self, other: Due) -> Due {
        Due { flows: self.flows + other.flows, all: self.all.plus(other.all) }
    }
}

impl Promises {
    /// Promises `new` to `id` instead of what it has, or refuses and changes nothing.
    fn change(&mut self, id: FlowId, contract: &Contract, new: Option<Stated>) -> Result<(), Refused> {
        self.check(id, contract, new)?;
        if self.booking.capacity.is_none() {
            return Ok(());
        }
        self.booking.change(self.curves.get(id).map(|s| s.rate), new.map(|s| s.rate))?;
        self.forget(id);
        if let Some(new) = new {
            self.curves.get_or_insert_with(id, || new);
            let due = self.within.entry(new.latency).or_default();
            *due = due.plus(Due::of(&new));
        }
        Ok(())
    }
    fn check(&self, id: FlowId, contract: &Contract, new: Option<Stated>) -> Result<(), Refused> {
        if let (Some(latency), Some(service)) = (contract.latency, self.service) {
            check_bound(latency, service)?;
        }
        if !self.booking.overbook {
            self.feasible(id, new)?;
        }
        self.booking.with(self.curves.get(id).map(|s| s.rate), new.map(|s| s.rate)).map(drop)
    }
    fn release(&mut self, id: FlowId) {
        let old = self.forget(id);
        self.booking.release(old.map(|s| s.rate));
    }
    fn forget(&mut self, id: FlowId) -> Option<Stated> {
        let old = self.curves.remove(id)?;
        let left = self.without(&old);
        match left.flows {
            0 => drop(self.within.remove(&old.latency)),
            _ => drop(self.within.insert(old.latency, left)),
        }
        Some(old)
    }
    /// What is due within a curve's latency but for the curve itself.
    fn without(&self, curve: &Stated) -> Due {
        let (all, own) = (self.within[&curve.latency], Due::of(curve));
        let (at_once, rate) = (all.all.at_once - own.all.at_once, all.all.rate - own.all.rate);
        Due { flows: all.flows - 1, all: henge_core::Due { at_once, rate } }
    }

    /// Whether all curves are feasible together.
    fn feasible(&self, id: FlowId, new: Option<Stated>) -> Result<(), Refused> {
        let Some(capacity) = self.booking.capacity else { return Ok(()) };
        let mut within = self.within.clone();
        if let Some(old) = self.curves.get(id) {
            within.insert(old.latency, self.without(old));
        }
        if let Some(new) = &new {
            let due = within.entry(new.latency).or_default();
            *due = due.plus(Due::of(new));
        }
        let within = within.into_iter().filter(|(_, due)| due.flows > 0);
        check_curves(within.map(|(latency, due)| (latency, due.all)), capacity)
    }
}

struct PClock {
    terms: Terms,
    floor: Floor,
    promises: Promises,
    flows: Flows<Flow>,
    /// With each request: when it came, on the clock that runs ahead; v for flows without a curve.
    backlog: Backlog<VTime>,
    /// What clocks of disks on several gates say.
    spread: Spread,
    turns: Turns,
    /// Flows without a curve, by start tag.
    spare: IndexedHeap<(VTime, u64)>,
    /// How far the tags' clock has been moved on.
    ahead: VTime,
    /// Virtual time of the flows without a curve.
    v: VTime,
    departed: Departed,
}

impl PClock {
    fn clock(&self, now: Instant) -> VTime {
        since_epoch(now) + self.ahead
    }

    fn latency(&self, id: FlowId) -> VTime {
        self.flows[id].curve.as_ref().map_or(VTime::ZERO, |curve| curve.latency)
    }

    fn place(&mut self, id: FlowId, now: Instant) {
        let Some(head) = self.backlog.front(id) else {
            self.turns.remove(id);
            self.spread.remove(id);
            self.spare.remove(id.0);
            return;
        };
        let (flow, clock) = (&mut self.flows[id], since_epoch(now) + self.ahead);
        flow.begin(head.request.cost, clock);
        let since = self.spread.since(head.request.id).filter(|_| flow.curve.is_some());
        self.spread.wait(id, since, head.sequence, flow.paid, At { now, clock });
        match &flow.curve {
            Some(curve) => {
                let start = head.extra.max(flow.paid - curve.burst);
                self.spare.remove(id.0);
                self.turns.set(id, start, start + curve.latency, head.sequence, clock);
            }
            None => {
                self.turns.remove(id);
                self.spare.set(id.0, (head.extra.max(flow.paid), head.sequence));
            }
        }
    }

    fn go_promised(&mut self, id: FlowId, now: Instant) -> Request {
        let queued = self.backlog.pop_front(id).expect("an ordered flow has a request");
        let (request, came) = (queued.request, queued.extra);
        let flow = &mut self.flows[id];
        let curve = flow.curve.as_ref().expect("a flow with tags has a curve");
        let start = came.max(flow.paid - curve.burst);
        flow.paid = flow.paid.max(start) + curve.rate.span(request.cost);
        self.floor.promise_served(request.cost, !self.spare.is_empty());
        self.place(id, now);
        request
    }

    /// What is owed by the clock of the whole disk costs its curve here nothing.
    fn go_owed(&mut self, id: FlowId, now: Instant) -> Request {
        let request = self.backlog.pop_front(id).expect("an ordered flow has a request").request;
        self.spread.went(request.id);
        self.floor.promise_served(request.cost, !self.spare.is_empty());
        self.place(id, now);
        request
    }

    fn go_spare(&mut self, id: FlowId, start: VTime, now: Instant) -> Request {
        let request = self.backlog.pop_front(id).expect("an ordered flow has a request").request;
        let flow = &mut self.flows[id];
        flow.paid = start + flow.weight.span(request.cost);
        self.v = self.v.max(start);
        self.floor.served(request.cost);
        self.place(id, now);
        request
    }

    fn correct(&mut self, request: &Request, actual: Cost, now: Instant) {
        let Some(flow) = self.flows.get_mut(request.flow) else { return };
        let (more, less) = (actual.saturating_sub(request.cost), request.cost.saturating_sub(actual));
        if more == less || self.spread.was_owed(request.id) {
            return;
        }
        let span = |cost| flow.curve.as_ref().map_or(flow.weight.span(cost), |curve| curve.rate.span(cost));
        flow.paid = flow.paid + span(more) - span(less);
        self.place(request.flow, now);
    }

    /// What is kept of a contract, and its curve; or why it is refused.
    fn admit(&self, contract: &Contract) -> Result<(Contract, Option<Stated>), Refused> {
        let contract = self.terms.admit(contract)?;
        let stated = contract.rate.map(|rate| Stated {
            rate,
            burst: contract.burst.unwrap_or_default(),
            latency: contract.latency.map_or(LATENCY_DEFAULT, |l| l.bound),
        });
        Ok((contract, stated))
    }
}

impl Scheduler for PClock {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn keeps(&self) -> Keeps {
        let most = self.promises.booking.most();
        let service = self.promises.service.map(|service| (1_000_000, service));
        let curves = most.map(|_| LATENCY_DEFAULT);
        Keeps { rate: most, service: service.into_iter().collect(), curves, ..self.terms.keeps() }
    }

    fn check(&self, id: FlowId, contract: &Contract) -> Result<(), Refused> {
        let (contract, stated) = self.admit(contract)?;
        self.promises.check(id, &contract, stated)
    }

    fn set_flow(&mut self, id: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let (contract, stated) = self.admit(contract)?;
        self.promises.change(id, &contract, stated)?;
        let clock = self.clock(now);
        let flow = self.flows.get_or_insert_with(id, Flow::default);
        let curve = contract.rate.map(|rate| {
            let whole = Pace::new(contract.whole.filter(|whole| whole.per_second > 0).unwrap_or(rate));
            let (rate, latency) = (Pace::new(rate), contract.latency.map_or(LATENCY_DEFAULT, |l| l.bound));
            let burst = contract.burst.map_or(VTime::ZERO, |burst| rate.span(burst));
            Curve { rate, whole, burst, latency: since_epoch(Instant::ZERO + latency) }
        });
        let weight = Weight::new(contract.weight());
        let begin = match (&flow.curve, &curve) {
            (Some(old), Some(new)) => {
                if (old.rate, old.burst) != (new.rate, new.burst) {
                    self.departed.add(flow.paid.max(flow.before));
                    flow.before = self.departed.paid();
                }
                flow.paid = old.rate.retagged(new.rate, flow.paid, clock);
                None
            }
            (None, None) => {
                flow.paid = flow.weight.retagged(weight, flow.paid, self.v);
                None
            }
            // The two kinds count on different clocks: begin anew, and so do the requests that wait.
            (None, Some(_)) => {
                flow.before = self.departed.paid();
                Some(clock)
            }
            (Some(_), None) => {
                self.departed.add(flow.paid.max(std::mem::take(&mut flow.before)));
                Some(self.v)
            }
        };
        (flow.weight, flow.curve) = (weight, curve);
        if let Some(begin) = begin {
            flow.paid = begin;
            let waiting: Vec<_> = self.backlog.iter(id).map(|q| q.request.id).collect();
            for request in waiting {
                self.backlog.get_mut(request).expect("it was just listed").extra = begin;
            }
        }
        self.place(id, now);
        Ok(())
    }

    fn remove_flow(&mut self, id: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        self.backlog.drain_flow(id, orphans);
        self.place(id, now);
        if let Some(gone) = self.flows.remove(id).filter(|flow| flow.curve.is_some()) {
            self.departed.add(gone.paid.max(gone.before));
        }
        self.promises.release(id);
    }

    fn enqueue(&mut self, request: Request, now: Instant) {
        let id = request.flow;
        let tag = if self.flows[id].curve.is_some() { self.clock(now) } else { self.v };
        self.spread.came(request.id);
        if self.backlog.push(request, tag) {
            self.place(id, now);
        }
    }

    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let first = self.backlog.is_front(id);
        let request = self.backlog.remove(id)?.request;
        if first {
            self.place(request.flow, now);
        }
        Some(request)
    }

    fn dispatch(&mut self, now: Instant, _: Slots) -> Dispatch {
        let due = self.turns.due(self.clock(now)).map(|(id, deadline)| match self.spread.due(now) {
            Some((kept, since)) if since + self.ahead + self.latency(kept) < deadline => kept,
            _ => id,
        });
        let owed = if due.is_none() { self.spread.owed(now) } else { None };
        if let Some((id, (start, _))) = self.spare.peek() {
            let cost = self.backlog.front(FlowId(id)).expect("an ordered flow has a request").request.cost;
            if due.or(owed).is_none() || self.floor.covers(cost) {
                return Dispatch::Ready(self.go_spare(FlowId(id), start, now));
            }
        }
        if let Some(id) = due {
            return Dispatch::Ready(self.go_promised(id, now));
        }
        if let Some(id) = owed {
            return Dispatch::Ready(self.go_owed(id, now));
        }
        let Some((id, start, _)) = self.turns.early() else { return Dispatch::Idle };
        self.ahead = start - since_epoch(now); // it is not due, so this is further ahead than before
        Dispatch::Ready(self.go_promised(id, now))
    }

    fn complete(&mut self, completion: &Completion, now: Instant) {
        self.correct(&completion.request, completion.actual, now);
    }

    fn adjust(&mut self, request: &Request, cost: Cost, now: Instant) {
        match self.backlog.get_mut(request.id) {
            Some(queued) => queued.request.cost = cost,
            None => self.correct(request, cost, now),
        }
    }

    fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        let Some(request) = self.backlog.get(id).map(|queued| queued.request) else { return false };
        let Some(curve) = &self.flows[request.flow].curve else { return false };
        self.spread.told(&request, lead, curve.whole.span(request.cost));
        if self.backlog.is_front(id) {
            self.place(request.flow, now);
        }
        true
    }

    fn queued(&self) -> usize {
        self.backlog.queued()
    }

    /// Deadlines on the tags' clock are no later than those on ours.
    fn due(&self, until: Instant) -> usize {
        let until = self.clock(until);
        self.turns.before(until)
    }

    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.turns.clear();
        self.spread.clear();
        self.spare.clear();
    }

    fn virtual_time(&self) -> VTime {
        self.v
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{Latency, Value};
    use proptest::prelude::*;

    /// Whether curves fit together, by the sum of them all at each latency.
    fn fits(curves: &[(u64, u64, u64)], capacity: u64) -> bool {
        let due = |t: u64| -> u64 {
            let within = curves.iter().filter(|(_, _, ms)| *ms <= t);
            within.map(|(rate, burst, ms)| (burst + 1) * 1000 + rate * (t - ms)).sum()
        };
        let rates: u64 = curves.iter().map(|(rate, _, _)| rate).sum();
        rates <= capacity && curves.iter().all(|(_, _, ms)| due(*ms) <= capacity * ms)
    }

    proptest! {
        #[test]
        fn curves_are_taken_as_long_as_they_fit(
            asked in proptest::collection::vec((0u32..5, 1u64..40, 0u64..6, 1u64..8), 1..30),
        ) {
            let knobs = Params::new("pclock").with("capacity", Value::Text("100/s".into()));
            let mut parts = crate::build("pclock", knobs.with("cost", Value::Text("requests".into()))).unwrap();
            let mut held: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
            for (flow, rate, burst, latency) in asked {
                let bound = Duration::from_millis(latency * 25);
                let contract = Contract {
                    burst: Some(Cost::new(burst * 1_000_000)),
                    latency: Some(Latency { bound, percentile: 950_000 }),
                    ..Contract::reserved(Rate::requests(rate))
                };
                let mut with = held.clone();
                with.insert(flow, (rate, burst, latency * 25));
                let wanted = fits(&with.values().copied().collect::<Vec<_>>(), 100);
                let taken = parts.scheduler.set_flow(FlowId(flow), &contract, Instant::ZERO);
                prop_assert_eq!(taken.is_ok(), wanted, "{:?} with {:?}: {:?}", (rate, burst, latency), held, taken);
                if wanted {
                    held = with;
                }
            }
        }
    }
}
