//! Two levels: shares of throughput by DSFQ on credit, above latencies by EDF with feedback depth.
//!
//! **Problem.** A flow's contract is (t, l): throughput t whatever the others do, and latency l as long as it asks for no more than t.
//! Deadlines alone do not share, shares alone know no deadline.
//!
//! **Rule** (two-level I/O control, sections 3.1 to 3.3).
//!
//! ```text
//!   submit ─▶ DSFQ, weights in proportion to t ─▶ EDF (edf.rs) ─▶ depth L (depth/feedback.rs) ─▶ device
//!              while there is credit                while fewer than L are in flight
//! ```
//!
//! The upper level's depth is a *credit* in cost units: at first Σ t·window (`credit_window` = 1 s). Letting p down spends cost(p); its
//! completion does not give it back. Credit is refilled, whole and for all flows at once, when the depth controller sees
//! spareness, or when the credit window ends.
//!
//! **Ours** (`refill = "paper"`, `bound = "none"` switch them off):
//! - The lower level is *bounded*: the upper lets down while lower queue + in flight < 2·L. Without a bound it empties
//!   itself into EDF, and the shares are lost (28 : 22 instead of 33 : 17 for 2 : 1).
//! - While lower queue + in flight < L the device has room by definition: that is spareness too. Credit alone held a device of
//!   85 to 95 MB/s to 62.
//! - What is *promised here* goes down first: a flow that has had less than its t of this node, by the token bucket of `edf.rs`, before what
//!   the fair queue shares (and that counts there). A flow on N nodes has t = f·B/N here, and its weight is B: service elsewhere counts in
//!   shares alone, and breaks no promise. (With f·B/N as the weight *and* service elsewhere charged, the split counted twice: 12 MB/s
//!   promised gave 5.2.) What is shared keeps 2 % where promises could take all.
//! - A promise is late by no more than half its bound, or 20 ms where that is more: the clock of the promises stands then. Whom its own limit keeps
//!   waiting is not late. (With 1 s, a flow whose promise is
//!   late for good had deadlines before those of one that kept to its rate, which was in bound in 48 % of the windows.)
//! - Flows without a rate share as if theirs were 2 % of the capacity (1 MB/s, or a request a second, where none is stated).
//!
//! **Example.** t = 40 and 20 MB/s: credit 60 MB. Both flood with 1 MB, L = 8: the upper level lets 16 down, 2 : 1 in DSFQ's order, then one for
//! each completion. When 60 MB went down it waits until fewer than 8 are below, or the window ends, and goes on with 60 MB more.
//!
//! **Guarantee.** Shares as DSFQ's with the depth 2·L; a flow that keeps to t is answered as EDF would with at most 2·L requests of
//! others before it, whatever they ask for. Work conserving by default; with the paper's refill it waits for credit. Within a flow
//! requests leave in the order they came.
//!
//! **Price.** A fair queue and a deadline order: 0.35 us a request with 10,000 waiting.

use crate::departed::Departed;
use crate::edf::{self, ConformingBucket, Edf};
use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::floor::Floor;
use crate::names::one_of;
use crate::sfq::{self, Sfq};
use crate::spread::{At, Spread};
use crate::turns::Turns;
use crate::weight::since_epoch;
use crate::{Flows, Terms};
use henge_core::{
    Completion, Contract, Cost, Dispatch, Duration, FlowId, Instant, Keeps, Need, ParamError, Params, Rate,
    Refused, Request, RequestId, Scheduler, Slots, VTime, WaitReason, With,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "two-level",
    summary: "shares of throughput above deadlines: a rate, and a latency for who keeps to it",
    keeps: &["rate", "limit", "burst", "latency"],
    order: Order::Arrival,
    work_conserving: true,
    depth: DefaultDepth::Controller("feedback"),
    cost: "bytes",
    on_device: OnDevice { time: false, kept: false, shares: false },
    build,
};

/// A latency holds for what a rate says, and a burst comes on top of a rate or a limit.
const NEEDS: &[Need] =
    &[Need::of("latency", &[With::any("rate")]), Need::of("burst", &[With::any("rate"), With::any("limit")])];
/// What the upper level is asked for.
const UPPER: &[&str] = &["weight", "limit", "burst"];
/// What the lower level is asked for.
const LOWER: &[&str] = &["rate", "latency", "burst"];

#[derive(Clone, Copy)]
struct Rules {
    credit_window: Duration,
    /// Fewer than L below count as spareness.
    refill_when_short: bool,
    /// Most below, in multiples of L; `None` is no bound.
    bound: Option<u32>,
}

fn build(p: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let credit_window = p.duration("credit_window")?.unwrap_or(Duration::from_secs(1));
    if credit_window == Duration::ZERO {
        return Err(p.error("credit_window", "a window of 0s never ends".into()));
    }
    let rules = Rules {
        credit_window,
        refill_when_short: one_of(p, "refill", &[("short", true), ("paper", false)])?.unwrap_or(true),
        bound: one_of(p, "bound", &[("2L", Some(2)), ("none", None)])?.unwrap_or(Some(2)),
    };
    let lower = Terms { keeps: LOWER, ..terms };
    let lower = Edf::new(lower, edf::Rules::from_params(p, terms.unit)?);
    let upper = Sfq::new(Terms { keeps: UPPER, ..terms }, sfq::Rules::from_params(p)?, None);
    Ok(Box::new(TwoLevel {
        terms: Terms { needs: NEEDS, ..terms },
        rules,
        upper,
        lower,
        promised: Promised::default(),
        rates: 0,
        credit: 0,
        credit_whole: 0,
        window_ends: None,
    }))
}

/// What is promised of this node, for the upper level: who has had less goes down first.
///
/// Its clock runs with time, and stands while the flow that is served is late by half its bound, or by [`Promised::BEHIND`] where that is more (more
/// was promised than the device does): so all are late alike, by rate and not by bound. Deadlines are on this clock. Were a flow late by more, they
/// would be before those of flows that are not late at all, and these would pay with their bounds for what it is promised.
#[derive(Default)]
struct Promised {
    /// Of the flows that have a rate.
    flows: Flows<Share>,
    /// Flows with a rate that have something waiting above.
    turns: Turns,
    /// What clocks of disks on several gates say.
    spread: Spread,
    floor: Floor,
    departed: Departed,
    /// How long the clock stood.
    stood: VTime,
    /// By slot: whether the request went down as promised.
    counted: Vec<bool>,
}

/// A flow's promise here.
struct Share {
    bucket: ConformingBucket,
    bound: VTime,
    /// The clock stands where it is late by this.
    behind: VTime,
    /// Since when it has something waiting above.
    since: VTime,
}

impl Promised {
    /// A few requests' time on a slow device: to be late by less is no overload.
    const BEHIND: VTime = since_epoch(Instant::from_nanos(20_000_000));

    fn clock(&self, now: Instant) -> VTime {
        since_epoch(now) - self.stood
    }

    /// A flow that had nothing waiting above has something.
    fn came(&mut self, flow: FlowId, now: Instant) {
        let clock = self.clock(now);
        if let Some(share) = self.flows.get_mut(flow) {
            share.since = clock;
        }
    }

    /// The flow's first request above is this one.
    fn place(&mut self, flow: FlowId, head: Option<&Request>, now: Instant) {
        let (Some(share), Some(head)) = (self.flows.get(flow), head) else {
            self.spread.remove(flow);
            return self.turns.remove(flow);
        };
        let start = share.bucket.conforms(head.cost, share.since);
        let (since, at) = (self.spread.since(head.id), At { now, clock: self.clock(now) });
        self.spread.wait(flow, since, u64::from(flow.0), start, at);
        self.turns.set(flow, start, start + share.bound, u64::from(flow.0), self.clock(now));
    }

    /// The flow that goes down next for its promise.
    fn due(&mut self, now: Instant) -> Option<FlowId> {
        let clock = self.clock(now);
        let (flow, deadline) = self.turns.due(clock)?;
        match self.spread.due(now) {
            Some((kept, since)) if (since - self.stood) + self.flows[kept].bound < deadline => Some(kept),
            _ => Some(flow),
        }
    }

    /// The flow may go down no sooner than its limit lets it: until then it is not late.
    fn held(&mut self, flow: FlowId, head: Option<&Request>, until: Instant, now: Instant) {
        let until = self.clock(until);
        if let Some(share) = self.flows.get_mut(flow) {
            share.since = share.since.max(until);
        }
        self.place(flow, head, now);
        self.spread.remove(flow);
    }

    /// The request goes down, as promised or not. Where one that was promised is late by more than it may be, the clock has stood.
    fn gone(&mut self, request: &Request, counts: bool, now: Instant) {
        let slot = request.id.index();
        if self.counted.len() <= slot {
            self.counted.resize(slot + 1, false);
        }
        self.counted[slot] = counts;
        let clock = self.clock(now);
        if let (true, Some(share)) = (counts, self.flows.get_mut(request.flow)) {
            let start = share.bucket.take(request.cost, share.since);
            self.stood = self.stood + ((clock - start) - share.behind);
        }
    }

    /// What went down cost something else.
    fn correct(&mut self, request: &Request, actual: Cost) {
        let counts = self.counted.get(request.id.index()).is_some_and(|counts| *counts);
        if let (true, Some(share)) = (counts, self.flows.get_mut(request.flow)) {
            share.bucket.correct(request.cost, actual);
        }
    }
}

struct TwoLevel {
    terms: Terms,
    rules: Rules,
    upper: Sfq,
    lower: Edf,
    promised: Promised,
    /// Sum of the rates by which flows share.
    rates: u128,
    /// Cost that may still be let down; below zero after a large request.
    credit: i64,
    credit_whole: i64,
    /// When the credit window ends, while one runs.
    window_ends: Option<Instant>,
}

impl TwoLevel {
    /// What a flow without a rate shares by.
    fn best_effort(&self) -> Rate {
        match (self.lower.booking().capacity, self.terms.unit) {
            (Some(capacity), _) => capacity.mul_ratio(2, 100),
            (None, unit) => Rate { per_second: 1_000_000, unit },
        }
    }

    /// By which a flow shares; nothing, if it is not set.
    fn share(&self, flow: FlowId) -> u128 {
        let rate = self.lower.knows(flow).then(|| self.lower.rate(flow).unwrap_or(self.best_effort()));
        rate.map_or(0, |rate| u128::from(rate.per_second))
    }

    /// A flow shared by `old` until now: the credit of a window changes with the sum.
    fn recount(&mut self, flow: FlowId, old: u128) {
        self.rates = self.rates + self.share(flow) - old;
        let whole = self.rates * u128::from(self.rules.credit_window.as_nanos()) / 1_000_000_000;
        self.credit_whole = i64::try_from(whole).unwrap_or(i64::MAX).max(1);
        self.credit = self.credit_whole;
    }

    fn refill_if_due(&mut self, slots: Slots, now: Instant) {
        let below = self.lower.queued() + slots.in_flight as usize;
        let short = self.rules.refill_when_short && below < slots.depth as usize;
        let ended = self.window_ends.is_some_and(|end| end <= now);
        if ended {
            self.window_ends = None;
        }
        if slots.spare || short || ended {
            self.credit = self.credit_whole;
        }
    }

    /// Lets down what may go.
    fn let_down(&mut self, slots: Slots, now: Instant) -> Dispatch {
        let most = self.rules.bound.map_or(usize::MAX, |times| times as usize * slots.depth as usize);
        loop {
            self.refill_if_due(slots, now);
            if self.credit <= 0 || self.lower.queued() + slots.in_flight as usize >= most {
                return Dispatch::Idle;
            }
            match self.next_above(slots, now) {
                Dispatch::Ready(request) => {
                    self.place_above(request.flow, now);
                    self.credit -= i64::try_from(request.cost.get()).unwrap_or(i64::MAX);
                    self.window_ends.get_or_insert(now + self.rules.credit_window);
                    self.lower.enqueue(request, now);
                    if let Some(since) = self.promised.spread.since(request.id) {
                        self.lower.owe(request.id, since, now);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Who goes down: whoever has had less than was promised here, then who is owed by a clock of its whole disk, else by the shares.
    fn next_above(&mut self, slots: Slots, now: Instant) -> Dispatch {
        loop {
            let due = self.promised.due(now);
            let Some(flow) = due.or_else(|| self.promised.spread.owed(now)) else { break };
            let shared = self.upper.first().and_then(|first| self.upper.head(first));
            if shared.is_some_and(|request| self.promised.floor.covers(request.cost)) {
                break;
            }
            let waits = self.upper.is_shared();
            match self.upper.dispatch_of(flow, now) {
                Ok(request) => {
                    self.promised.floor.promise_served(request.cost, waits);
                    self.promised.gone(&request, due.is_some(), now);
                    return Dispatch::Ready(request);
                }
                Err(until) => self.promised.held(flow, self.upper.head(flow), until, now),
            }
        }
        let answer = self.upper.dispatch(now, slots);
        if let Dispatch::Ready(request) = &answer {
            self.promised.floor.served(request.cost);
            self.promised.gone(request, false, now);
        }
        answer
    }

    fn place_above(&mut self, flow: FlowId, now: Instant) {
        self.promised.place(flow, self.upper.head(flow), now);
    }

    /// What the lower level gave back without serving it costs nothing.
    fn undo(&mut self, request: Request, now: Instant) {
        let unserved = Completion {
            request,
            actual: Cost::ZERO,
            dispatched: now,
            service: Duration::ZERO,
            in_flight: 0,
        };
        self.upper.complete(&unserved, now);
        self.promised.correct(&request, Cost::ZERO);
        let cost = i64::try_from(request.cost.get()).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(cost).min(self.credit_whole);
    }

    /// What the level above keeps of a contract, and what the level below.
    fn levels(&self, contract: &Contract) -> Result<(Contract, Contract), Refused> {
        let contract = self.terms.admit(contract)?;
        let rate = contract.whole.or(contract.rate).unwrap_or(self.best_effort());
        let limit_burst = contract.burst.filter(|_| contract.rate.is_none());
        let above = Contract {
            weight: Some(weight(rate)),
            limit: contract.limit,
            burst: limit_burst,
            ..Contract::default()
        };
        let below = Contract {
            limit: None,
            weight: None,
            burst: contract.burst.filter(|_| contract.rate.is_some()),
            ..contract
        };
        Ok((above, below))
    }
}

/// Shares in proportion to rates: weights go from 1 to 10⁶, 10 kB/s (or 0.01 requests/s, or 10 us/s) each.
fn weight(rate: Rate) -> u32 {
    (rate.per_second / 10_000).clamp(1, u64::from(Contract::WEIGHT_MAX)) as u32
}

impl Scheduler for TwoLevel {
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn keeps(&self) -> Keeps {
        let Keeps { rate, service, .. } = self.lower.keeps();
        Keeps { rate, service, ..self.terms.keeps() }
    }
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.lower.check(flow, &self.levels(contract)?.1)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let (above, below) = self.levels(contract)?;
        let old = self.share(flow);
        self.lower.set_flow(flow, &below, now)?;
        self.upper.set_flow(flow, &above, now).expect("a weight and a limit are kept above");
        let had = self.promised.flows.remove(flow);
        let clock = self.promised.clock(now);
        let promise = self.lower.promise(flow, clock);
        if let Some(had) = had.as_ref().filter(|_| promise.is_none()) {
            self.promised.departed.add(had.bucket.paid(Cost::ZERO));
        }
        if let Some((mut bucket, bound)) = promise {
            match had {
                Some(had) => bucket.follow(&had.bucket, Cost::ZERO, &mut self.promised.departed, clock),
                None => bucket.begin(&self.promised.departed, clock),
            }
            let behind = since_epoch(Instant::ZERO + bound.mul_ratio(1, 2)).max(Promised::BEHIND);
            let bound = since_epoch(Instant::ZERO + bound);
            self.promised.flows.get_or_insert_with(flow, || Share { bucket, bound, behind, since: clock });
        }
        self.place_above(flow, now);
        self.recount(flow, old);
        Ok(())
    }
    fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        let (first, old) = (orphans.len(), self.share(flow));
        self.lower.remove_flow(flow, now, orphans);
        for request in &orphans[first..] {
            self.undo(*request, now);
        }
        self.upper.remove_flow(flow, now, orphans);
        if let Some(gone) = self.promised.flows.remove(flow) {
            self.promised.departed.add(gone.bucket.paid(Cost::ZERO));
        }
        self.place_above(flow, now);
        self.recount(flow, old);
    }
    fn enqueue(&mut self, request: Request, now: Instant) {
        let first = self.upper.head(request.flow).is_none();
        self.promised.spread.came(request.id);
        self.upper.enqueue(request, now);
        if first {
            self.promised.came(request.flow, now);
            self.place_above(request.flow, now);
        }
    }
    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        if let Some(request) = self.lower.cancel(id, now) {
            self.undo(request, now);
            return Some(request);
        }
        let request = self.upper.cancel(id, now)?;
        self.place_above(request.flow, now);
        Some(request)
    }
    fn dispatch(&mut self, now: Instant, slots: Slots) -> Dispatch {
        let above = self.let_down(slots, now);
        match (self.lower.dispatch(now, slots), above) {
            (Dispatch::Ready(request), _) => Dispatch::Ready(request),
            (_, Dispatch::Wait { until, reason }) => Dispatch::Wait { until, reason },
            _ if self.upper.queued() == 0 => Dispatch::Idle,
            // Nothing below, and no credit: the window's end brings some.
            _ => Dispatch::Wait { until: self.window_ends, reason: WaitReason::OwnShare },
        }
    }
    fn complete(&mut self, completion: &Completion, now: Instant) {
        self.upper.complete(completion, now);
        self.lower.complete(completion, now);
        self.promised.correct(&completion.request, completion.actual);
        self.place_above(completion.request.flow, now);
    }
    fn adjust(&mut self, request: &Request, cost: Cost, now: Instant) {
        self.upper.adjust(request, cost, now);
        self.lower.adjust(request, cost, now);
        self.promised.correct(request, cost);
        self.place_above(request.flow, now);
    }
    fn foreign(&mut self, flow: FlowId, service: Cost, now: Instant) {
        self.upper.foreign(flow, service, now);
    }
    fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        // What went down already is not far from the device.
        let Some(request) = self.upper.waiting_request(id) else { return false };
        let Some(span) = self.lower.whole_span(&request) else { return false };
        self.promised.spread.told(&request, lead, span);
        self.place_above(request.flow, now);
        true
    }
    fn queued(&self) -> usize {
        self.upper.queued() + self.lower.queued()
    }
    fn waiting(&self, flow: FlowId, now: Instant) -> Option<WaitReason> {
        self.upper.waiting(flow, now)
    }
    fn waits_from(&self, request: &Request) -> Instant {
        self.lower.waits_from(request)
    }
    fn due(&self, until: Instant) -> usize {
        self.lower.due(until)
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        let first = into.len();
        self.lower.drain(into);
        self.upper.drain(into);
        self.promised.turns.clear();
        self.promised.spread.clear();
        into[first..].sort_by_key(|r| r.arrival); // stable: what was let down came first
    }
    fn virtual_time(&self) -> VTime {
        self.upper.virtual_time()
    }
    fn wake_at(&self) -> Option<Instant> {
        self.upper.wake_at()
    }
}

#[cfg(test)]
mod tests;
