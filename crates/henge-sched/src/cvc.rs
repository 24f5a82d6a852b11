//! CVC: Virtual Clock with a CSCAN queue beside it. Reorders by position and finish time. Work conserving.
//!
//! **Problem.** Serving by finish time makes the arm jump: Virtual Clock keeps promises at half of the disk's speed. But most
//! requests have time to spare. Spend it on serving what lies ahead of the arm.
//!
//! **Rule** (Stonehenge, section 4.1). Two orders over the same requests: the *QoS queue* by finish time FT
//! (`finish_clock.rs`), the *utilization queue* in CSCAN order (`cscan.rs`). The latest moment at which the QoS queue must
//! be begun, if each of its requests takes δ:
//!
//! ```text
//!   LST_Q = FT_Q − δ,   LST_i = min(LST_{i+1}, FT_i) − δ        equation (4)
//!   LST_1 = min over ranks i of (FT_i − i·δ)                    the same, kept in a tree (`rank_tree.rs`)
//! ```
//!
//! Y is the head of the utilization queue. If now + estimate(Y) ≤ LST_1 (equation (5)) serve Y, else the QoS head. At most M
//! utilization dispatches in a row while the QoS queue has somebody. Dispatching goes on up to the gate's depth K.
//!
//! **Example.** now = 100 ms, δ = 8 ms, estimate 13 ms, FT = 130 and 131 ms: LST_1 = min(130 − 8, 131 − 16) = 115 ms, and 100 + 13
//! is not beyond: serve Y. At now = 103 ms it is: serve the request of 130 ms.
//!
//! **Guarantee.** While no request takes longer than the estimate and δ say, Y never costs anybody the finish time who is
//! already waiting: it is over by LST_1, and from there the QoS queue can still be served in time, as it is, in order of its
//! deadlines. Who comes after that finds less room than under Virtual Clock: ten flows may stand at their latest start when
//! a fast one wakes up, and one of the eleven is late by as many δ as the fast one has requests in that stretch. Rates are kept
//! all the same, and when LST_1 is past CVC is Virtual Clock.
//!
//! **Departures (ours)**, each with its switch, besides those of `finish_clock.rs`:
//! - `soft_deadlines`: a burst pushes a latency-bound flow's FT seconds ahead, and plain CVC takes that for slack. Such a flow
//!   has a second deadline min(FT, arrival + D). A flow with a rate alone that used spare capacity is ahead as well, by H: its D is what all of it that
//!   is unfinished takes at its rate. Else it had nothing for up to H once others came. If no LST is violated but one by second deadlines is, the smallest second
//!   deadline goes next. Soft, not hard: hard ones let a flood break the reservations of others. The soft order holds all that
//!   have a clock, so that a rank in it counts everybody who will really be served before; its δ, where measured, is the mean of
//!   the requests that were taken out of the sweep, since those due by it will be (in the test beside: 95 % in bound with the
//!   mean of all), and its head is allowed their 90th percentile.
//! - Best effort has its clock of 2 % in the soft order only: it cannot break a reservation. Once finish times have passed anyway
//!   (more was promised than the device can do) it is served by its own like everybody else, as under Virtual Clock.
//! - `delta = "measured"` is the mean time per slot (the paper's 1/IOPSmax violates four times as many deadlines).
//! - `m = "unlimited"`: the paper prints M = 1, and argues for long-term fairness only.
//! - Until 20 requests are over nothing is known of the device, and the QoS queue goes first.
//!
//! **Price.** Three orders of O(log Q): 0.3 us a request with 10 waiting, 0.9 us with 10,000.

use crate::cscan::Sweep;
use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::finish_clock::{ClockParams, FinishClocks, LATENCY, LATENCY_OF_REQUESTS, NEVER, fine, instant};
use crate::rank_tree::{RankTree, Ranked};
use crate::service_times::ServiceTimes;
use crate::{Backlog, Flows, Terms};
use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, Duration, FlowId, Instant, Keeps, Latency, Need,
    ParamError, Params, Refused, Request, RequestId, Scheduler, Slots, VTime, Value, check_bound,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "cvc",
    summary: "CSCAN while every finish time can still be met: reservations and latencies at the disk's own speed",
    keeps: &["rate", "latency"],
    order: Order::Position,
    work_conserving: true,
    depth: DefaultDepth::Fixed(1),
    cost: "requests",
    on_device: OnDevice { time: false, kept: false, shares: false },
    build,
};

/// How long the next request will take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Estimate {
    /// The 90th percentile of the last service times.
    Measured,
    /// By distance.
    Predicted,
    Fixed(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    estimate: Estimate,
    /// `None` is measured.
    delta: Option<Duration>,
    /// M.
    row_max: u64,
    soft_deadlines: bool,
}

impl Rules {
    fn from_params(p: &mut Params) -> Result<Self, ParamError> {
        let estimate = match word(p, "estimate") {
            Some("measured") => (p.take("estimate"), Estimate::Measured).1,
            Some("predicted") => (p.take("estimate"), Estimate::Predicted).1,
            _ => p.duration("estimate")?.map_or(Estimate::Measured, Estimate::Fixed),
        };
        let delta = match word(p, "delta") {
            Some("measured") => p.text("delta")?.and(None),
            _ => p.duration("delta")?,
        };
        let row_max = match word(p, "m") {
            Some("unlimited") => p.text("m")?.and(None),
            _ => p.integer("m", 1, 1 << 32)?,
        };
        let soft_deadlines = p.bool("soft_deadlines")?.unwrap_or(true);
        Ok(Rules { estimate, delta, row_max: row_max.unwrap_or(u64::MAX), soft_deadlines })
    }
}

fn word<'a>(p: &'a mut Params, key: &str) -> Option<&'a str> {
    match p.get_mut(key) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// H, in the terms of `finish_clock.rs`: less of it costs efficiency near full booking.
const LEAD: Duration = Duration::from_secs(2);

fn build(params: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let rules = Rules::from_params(params)?;
    let clocks = FinishClocks::new(ClockParams::from_params(params, terms.unit, LEAD)?, terms.unit);
    let needs: &[Need] = match terms.unit {
        CostUnit::Requests => const { &[LATENCY_OF_REQUESTS] },
        _ => const { &[LATENCY] },
    };
    Ok(Box::new(Cvc::new(Terms { needs, ..terms }, rules, clocks)))
}

/// What is remembered with a waiting request: where it stands in the three orders.
#[derive(Clone, Copy)]
struct Ranks {
    address: u64,
    /// FT in ns, at most [`LAST`]; `u64::MAX` where it is in neither deadline order.
    finish: u64,
    soft: u64,
}

/// The latest finish time that orders know: 584 years. What is due after it goes as it came.
const LAST: u64 = u64::MAX - 1;

struct Flow {
    /// What was promised; its bound is D where there are soft deadlines.
    latency: Option<Latency>,
    /// Its second deadlines are not its finish times.
    differs: bool,
    /// Cost waiting and in flight.
    unfinished: Cost,
}

struct Cvc {
    terms: Terms,
    rules: Rules,
    clocks: FinishClocks,
    flows: Flows<Flow>,
    backlog: Backlog<Ranks>,
    /// The utilization queue.
    sweep: Sweep,
    /// The QoS queue: FT of the flows with a reservation.
    hard: RankTree,
    /// FT of the flows without one.
    best_effort: RankTree,
    /// Second deadlines, of all that have a clock and were tagged since some flow's differ from its finish times. What was
    /// tagged before is let go: to look at all that waits as the first such flow comes would take time linear in it.
    soft: RankTree,
    /// How many wait that were tagged and are not in it.
    not_soft: usize,
    /// How many flows' do: flows with a bound, and best effort, which has no place in the QoS queue.
    soft_flows: usize,
    times: ServiceTimes,
    /// Utilization dispatches since the QoS head was served last.
    row: u64,
    /// Completions until δ is looked at again.
    delta_due: usize,
    /// How much longer than δ the soft head's own service may take: its 90th percentile, while δ is a mean.
    soft_margin: i64,
}

/// Where δ is looked at again at the earliest.
const DELTA_EVERY: usize = 64;

impl Cvc {
    fn new(terms: Terms, rules: Rules, clocks: FinishClocks) -> Self {
        let mut cvc = Cvc {
            terms,
            rules,
            clocks,
            flows: Flows::new(),
            backlog: Backlog::new(),
            sweep: Sweep::default(),
            hard: RankTree::new(),
            best_effort: RankTree::new(),
            soft: RankTree::new(),
            not_soft: 0,
            soft_flows: 0,
            times: ServiceTimes::default(),
            row: 0,
            delta_due: 0,
            soft_margin: 0,
        };
        let delta = rules.delta.unwrap_or_default();
        cvc.set_delta(delta, delta);
        cvc
    }

    fn set_delta(&mut self, hard: Duration, soft: Duration) {
        self.hard.set_delta(hard.as_nanos());
        self.soft.set_delta(soft.as_nanos());
    }

    /// Tags a request, and puts it into the deadline orders.
    fn tag(&mut self, request: &Request, seq: u64, now: Instant) -> (u64, u64) {
        let unfinished = self.flows[request.flow].unfinished;
        let bound = self.flows[request.flow].latency.map(|l| l.bound);
        self.clocks.bound_lead(request.flow, unfinished, bound, now);
        self.clocks.save(request);
        let finish = self.clocks.finish(request);
        self.enter(request, seq, finish, None)
    }

    /// Puts a request into the deadline orders by its finish time, and by what a clock of its whole disk says, if one does.
    fn enter(&mut self, request: &Request, seq: u64, finish: VTime, owed: Option<Duration>) -> (u64, u64) {
        if finish == NEVER {
            return (u64::MAX, u64::MAX);
        }
        let flow = &self.flows[request.flow];
        if owed.is_none() {
            self.clocks.tagged(request.flow, finish);
        }
        let finish = instant(finish).as_nanos().min(LAST);
        let bound = flow.latency.map(|l| l.bound).or_else(|| self.at_its_rate(request));
        let by = [bound.filter(|_| self.rules.soft_deadlines), owed]
            .into_iter()
            .flatten()
            .map(|d| (request.arrival + d).as_nanos());
        let by = by.fold(finish, u64::min);
        let soft = if self.soft_flows > 0 || owed.is_some() { by } else { u64::MAX };
        let slot = request.id.slot;
        let reserved = self.clocks.is_reserved(request.flow);
        let queue = if reserved { &mut self.hard } else { &mut self.best_effort };
        queue.insert(Ranked { key: finish, seq, slot });
        match soft {
            u64::MAX => self.not_soft += 1,
            _ => self.soft.insert(Ranked { key: soft, seq, slot }),
        }
        (finish, soft)
    }

    /// How long a flow's rate takes for this request and what is unfinished of it, where leads are bounded.
    fn at_its_rate(&self, request: &Request) -> Option<Duration> {
        let flow = request.flow;
        let all = self.flows[flow].unfinished + self.clocks.charge(request);
        let span = self
            .clocks
            .span(flow, all)
            .filter(|_| self.clocks.is_reserved(flow) && self.clocks.bounds_leads())?;
        Some(instant(span).since(Instant::ZERO))
    }

    /// Takes a request out of the deadline orders; it is in one where it was tagged, and in the hard one where its flow
    /// had a reservation then.
    fn untag(&mut self, ranks: Ranks, seq: u64) {
        if ranks.finish != u64::MAX {
            let tagged =
                self.hard.remove(ranks.finish, seq).or_else(|| self.best_effort.remove(ranks.finish, seq));
            tagged.expect("a tagged request has its finish time in one order");
            match ranks.soft {
                u64::MAX => self.not_soft -= 1,
                soft => drop(self.soft.remove(soft, seq).expect("a soft deadline is in the soft order")),
            }
        }
    }

    /// Tags all that the flow has waiting anew, from what its clock shows.
    fn retag(&mut self, flow: FlowId, now: Instant) {
        let waiting: Vec<_> = self.backlog.iter(flow).copied().collect();
        for queued in waiting {
            self.untag(queued.extra, queued.sequence);
            let (finish, soft) = self.tag(&queued.request, queued.sequence, now);
            let ranks = &mut self.backlog.get_mut(queued.request.id).expect("it was just listed").extra;
            (ranks.finish, ranks.soft) = (finish, soft);
        }
    }

    /// What the flow's clock showed before its first waiting request was tagged.
    fn before_first(&self, flow: FlowId) -> Option<VTime> {
        let first = self.backlog.front(flow).filter(|q| q.extra.finish != u64::MAX)?;
        let span = self.clocks.span(flow, self.clocks.charge(&first.request))?;
        Some(fine(Instant::from_nanos(first.extra.finish)) - span)
    }

    /// When Y will be over, if that is known.
    fn over_at(&self, next: &Ranked, now: Instant) -> Option<i64> {
        let estimate = match self.rules.estimate {
            Estimate::Fixed(estimate) => Some(estimate),
            Estimate::Measured => self.times.percentile(900_000),
            Estimate::Predicted => self.times.predicted(self.sweep.head(), next.key),
        };
        Some(i64::try_from((now + estimate?).as_nanos()).unwrap_or(i64::MAX))
    }

    /// The slot of the request to serve now, and whether it is the next of the sweep.
    fn choose(&mut self, now: Instant) -> Option<(u32, bool)> {
        let next = self.sweep.next()?;
        let over_at = self.over_at(&next, now);
        // Stonehenge, equation (5)
        let in_time = |queue: &RankTree, margin: i64| {
            queue.latest_start().is_none_or(|lst| over_at.is_some_and(|over| over <= lst - margin))
        };
        let (hard, soft) = (self.hard.first(), self.soft.first());
        let chosen = if !in_time(&self.hard, 0) || (self.row >= self.rules.row_max && hard.is_some()) {
            let hard = hard.expect("a queue that is late has somebody");
            let too_late = hard.key < now.as_nanos();
            self.best_effort.first().filter(|b| too_late && b.key < hard.key).unwrap_or(hard)
        } else if !in_time(&self.soft, self.soft_margin) {
            soft.expect("a queue that is late has somebody")
        } else {
            next
        };
        let to_head = hard.is_none_or(|hard| hard.slot == chosen.slot);
        self.row = if to_head { 0 } else { self.row + 1 };
        Some((chosen.slot, chosen.slot == next.slot))
    }

    fn take(&mut self, id: RequestId) -> Option<Request> {
        let queued = *self.backlog.remove(id)?;
        self.sweep.remove(queued.extra.address, queued.sequence);
        self.untag(queued.extra, queued.sequence);
        Some(queued.request)
    }

    fn finished(&mut self, flow: FlowId, cost: Cost) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.unfinished = flow.unfinished.saturating_sub(cost);
        }
    }

    /// A bound that one request alone misses is no promise to make.
    fn check_latency(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        let unchanged = self.flows.get(flow).is_some_and(|f| f.latency == contract.latency);
        let Some(latency) = contract.latency.filter(|_| !unchanged) else { return Ok(()) };
        self.takes(latency.percentile).map_or(Ok(()), |service| check_bound(latency, service))
    }

    /// What so many millionths of the requests take at most on the device, as far as that is known.
    fn takes(&self, percentile: u32) -> Option<Duration> {
        match self.rules.estimate {
            Estimate::Fixed(estimate) => Some(estimate),
            _ => self.times.percentile(percentile),
        }
    }
}

impl Scheduler for Cvc {
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn keeps(&self) -> Keeps {
        let mut keeps = self.clocks.keeps(self.terms.keeps());
        let at = [500_000, 900_000, 950_000, 990_000, 999_000, 1_000_000];
        let stated = keeps.service.first().map(|(_, service)| *service);
        let takes = |share| Some((share, self.takes(share).max(stated)?));
        keeps.service = at.into_iter().filter_map(takes).collect();
        keeps
    }
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        let contract = self.terms.admit(contract)?;
        self.check_latency(flow, &contract)?;
        self.clocks.check(flow, &contract).map(drop)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.terms.admit(contract)?;
        self.check_latency(flow, &contract)?;
        self.clocks.check(flow, &contract)?;
        if let Some(from) = self.before_first(flow) {
            self.clocks.rewind(flow, from);
        }
        self.clocks.set_flow(flow, &contract, now)?;
        let differs = self.rules.soft_deadlines || !self.clocks.is_reserved(flow);
        let old = self.flows.remove(flow);
        let unfinished = old.as_ref().map_or(Cost::ZERO, |f| f.unfinished);
        let differed = old.is_some_and(|f| f.differs);
        self.flows.get_or_insert_with(flow, || Flow { latency: contract.latency, differs, unfinished });
        self.soft_flows = self.soft_flows + usize::from(differs) - usize::from(differed);
        self.retag(flow, now);
        Ok(())
    }
    fn remove_flow(&mut self, flow: FlowId, _: Instant, orphans: &mut Vec<Request>) {
        while let Some(first) = self.backlog.front(flow) {
            let id = first.request.id;
            orphans.extend(self.take(id));
        }
        self.clocks.forget(flow);
        let differed = self.flows.remove(flow).is_some_and(|f| f.differs);
        self.soft_flows -= usize::from(differed);
    }
    fn enqueue(&mut self, request: Request, now: Instant) {
        let seq = self.backlog.arrivals();
        let address = self.sweep.insert(&request, seq);
        let (finish, soft) = self.tag(&request, seq, now);
        let flow = &mut self.flows[request.flow];
        flow.unfinished += request.cost;
        self.backlog.push(request, Ranks { address, finish, soft });
    }
    fn cancel(&mut self, id: RequestId, _: Instant) -> Option<Request> {
        let request = self.take(id)?;
        self.finished(request.flow, request.cost);
        // Its tag's place is taken back from the end: what came after it keeps a tag that is earlier than it might be.
        self.clocks.correct(request.flow, self.clocks.charge(&request), Cost::ZERO);
        Some(request)
    }
    fn dispatch(&mut self, now: Instant, slots: Slots) -> Dispatch {
        let Some((slot, in_sweep)) = self.choose(now) else { return Dispatch::Idle };
        let queued = *self.backlog.take(slot);
        self.times.dispatched(slot, self.sweep.head(), queued.extra.address, !in_sweep);
        self.sweep.remove(queued.extra.address, queued.sequence);
        self.sweep.passed(queued.extra.address, queued.sequence);
        self.untag(queued.extra, queued.sequence);
        self.clocks.dispatched(slots.in_flight, now);
        Dispatch::Ready(queued.request)
    }
    fn complete(&mut self, completion: &Completion, now: Instant) {
        let Completion { request, actual, in_flight, .. } = *completion;
        self.finished(request.flow, request.cost);
        self.clocks.completed(actual, in_flight, now);
        self.clocks.correct(request.flow, request.cost, actual);
        self.times.completed(completion, now);
        if self.rules.delta.is_none() {
            // A new δ means looking at all that wait: at most once in as many completions.
            self.delta_due = self.delta_due.saturating_sub(1);
            if self.delta_due == 0
                && let (Some(mean), Some(apart)) = (self.times.mean_slot(), self.times.mean_slot_apart())
            {
                self.set_delta(mean, apart);
                let longest = self.times.apart().unwrap_or(apart);
                self.soft_margin = longest.saturating_sub(apart).as_nanos() as i64;
                self.delta_due = DELTA_EVERY.max(self.backlog.queued());
            }
        }
    }
    fn adjust(&mut self, request: &Request, cost: Cost, _: Instant) {
        if let Some(queued) = self.backlog.get_mut(request.id) {
            queued.request.cost = cost;
        }
        self.clocks.correct(request.flow, request.cost, cost);
        self.finished(request.flow, request.cost);
        if let Some(flow) = self.flows.get_mut(request.flow) {
            flow.unfinished += cost;
        }
    }
    fn retag(&mut self, id: RequestId, lead: Duration, _: Instant) -> bool {
        let Some(queued) = self.backlog.get(id).copied() else { return false };
        if queued.extra.finish == u64::MAX || !self.clocks.is_reserved(queued.request.flow) {
            return false;
        }
        let Some(span) = self.clocks.whole_span(&queued.request) else { return false };
        let since = fine(queued.request.arrival + lead) - span;
        let finish =
            self.clocks.spend(&queued.request, fine(Instant::from_nanos(queued.extra.finish)), since);
        self.untag(queued.extra, queued.sequence);
        let (finish, soft) = self.enter(&queued.request, queued.sequence, finish, Some(lead));
        let ranks = &mut self.backlog.get_mut(id).expect("it was just seen").extra;
        (ranks.finish, ranks.soft) = (finish, soft);
        true
    }
    fn queued(&self) -> usize {
        self.backlog.queued()
    }
    fn due(&self, until: Instant) -> usize {
        let order = if self.not_soft == 0 { &self.soft } else { &self.hard };
        order.count_below(until.as_nanos())
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.sweep.clear();
        self.hard.clear();
        self.best_effort.clear();
        self.soft.clear();
        self.not_soft = 0;
    }
}

#[cfg(test)]
mod tests;
