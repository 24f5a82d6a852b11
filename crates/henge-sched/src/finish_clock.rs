//! Finish times: the clock of Virtual Clock, one per flow.
//!
//! **Problem.** A reservation in requests or bytes a second is to become a wall-clock time by which each request
//! should be over, so that serving the earliest first gives every flow its rate.
//!
//! **Rule.** (Stonehenge, equations (1) to (3); which one is the cost model's choice.)
//!
//! ```text
//!   FT_i = max(arrival_i, FT_{i-1}) + cost_i / rate_j
//! ```
//!
//! cost: 1 request, or a bytes + overhead model's size_i + avg_overhead·T.
//!
//! **Ours**, each with its switch:
//! - *Bounded lead* (`lead`, H): a flow that used spare capacity has an FT far ahead of time and would be punished when a
//!   neighbour joins (31 to 110 requests/s of 400 reserved were seen), so no lead grows beyond H. CVC bounds each flow's
//!   own (H = 2 s, or half the flow's latency bound if that is less): FT_{i-1} counts as min(FT_{i-1}, now + max(H, q_j / rate_j)), q_j its
//!   unfinished requests. Virtual Clock serves the
//!   smallest FT, so when that is further ahead than H = 50 ms all are, and the excess is taken back from all; bounding each alone
//!   would give what is spare to the flow with the highest rate (1 : 5 instead of 1 : 3). `lead = "none"` is the paper's rule.
//! - *Best effort* (`best_effort`): the flows without a reservation have clocks that make 2 % of the capacity in all.
//!   `"0%"` is the paper's rule: no finish time, so behind everybody who has one.
//! - *Split charging* (`split`): one of n parts of a command is charged what its cost model says, 1/n of a command;
//!   `false` charges each part as a whole command, as the paper does.
//!
//! **Example.** 100 requests/s: requests that all come at 0 finish at 10, 20, 30 ms; one that comes at 95 ms at 105.
//!
//! Finish times are nanoseconds since the epoch with 40 bits behind the point, in the [`VTime`] of other tags.

use crate::booking::Booking;
use crate::foreign::MEMORY_DEFAULT;
use crate::spread::SAVED;
use crate::{Flows, Pace};
use henge_core::{
    Contract, Cost, CostUnit, Duration, FlowId, Instant, Keeps, Need, ParamError, Params, Rate, Refused,
    Request, VTime, With, check_bound,
};

/// The finish time of a flow without a clock: after all others, whose clocks may be beyond any instant.
pub(crate) const NEVER: VTime = VTime::from_raw(1 << 127);

/// An instant as a finish time: nanoseconds with 40 bits behind the point.
pub(crate) const fn fine(t: Instant) -> VTime {
    VTime::from_raw((t.as_nanos() as u128) << VTime::FRACTION_BITS)
}

/// A finish time rounded down to the nanosecond.
pub(crate) fn instant(finish: VTime) -> Instant {
    Instant::from_nanos(u64::try_from(finish.raw() >> VTime::FRACTION_BITS).unwrap_or(u64::MAX))
}

/// The knobs that Virtual Clock and CVC have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockParams {
    /// The device's capacity (measured where it is not stated), and how much of it is promised.
    pub booking: Booking,
    /// Share of the capacity that flows without a reservation have clocks for, in millionths.
    pub best_effort: u32,
    /// H; `None` is the paper's unbounded lead.
    pub lead: Option<Duration>,
    /// Parts of split commands are charged their part.
    pub split: bool,
    /// What one request takes on the device, where that is known: no bound can be below it.
    pub service: Option<Duration>,
}

impl ClockParams {
    /// Reads `capacity`, `overbook`, `best_effort`, `lead`, `split` and `service`; the capacity counts in `unit`.
    pub fn from_params(p: &mut Params, unit: CostUnit, lead: Duration) -> Result<Self, ParamError> {
        Ok(ClockParams {
            booking: Booking::from_params(p, unit)?,
            best_effort: p.share("best_effort")?.unwrap_or(20_000),
            lead: none_or(p, "lead", Some(lead))?,
            split: p.bool("split")?.unwrap_or(true),
            service: p.duration("service")?,
        })
    }
}

/// A time, or `"none"`.
pub(crate) fn none_or(
    p: &mut Params,
    key: &str,
    default: Option<Duration>,
) -> Result<Option<Duration>, ParamError> {
    match p.text(key)?.as_deref() {
        None => Ok(default),
        Some("none") => Ok(None),
        Some(text) => {
            henge_core::parse_duration(text).map(Some).map_err(|e| p.error(key, format!("{key}: {e}")))
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The reservation; `None` for best effort.
    reserved: Option<(Rate, Pace)>,
    /// Where this is a part of it: the pace of the whole.
    whole: Option<Pace>,
    /// What it left unused of late.
    saved: VTime,
    /// FT of the request tagged last.
    finish: VTime,
}

impl Clock {
    fn rate(&self) -> Option<Rate> {
        self.reserved.map(|(rate, _)| rate)
    }
}

/// A latency alone does not say how much may come.
pub(crate) const LATENCY: Need = Need::of("latency", &[With::any("rate")]);
/// Where the gate charges requests, the most that are pending say it, too.
pub(crate) const LATENCY_OF_REQUESTS: Need = Need::of("latency", &[With::any("rate"), With::any("pending")]);

/// The clocks of all flows of one scheduler.
pub(crate) struct FinishClocks {
    params: ClockParams,
    unit: CostUnit,
    flows: Flows<Clock>,
    /// How many flows have no reservation, and the pace of each.
    best_effort: u64,
    best_effort_pace: Option<Pace>,
    capacity: Capacity,
    /// Added to arrivals: what was taken back from the leads of all flows together.
    shift: VTime,
}

impl FinishClocks {
    /// No flows yet; rates count in `unit`.
    pub fn new(params: ClockParams, unit: CostUnit) -> Self {
        let capacity =
            Capacity { known: params.booking.capacity.map(|c| c.per_second), ..Capacity::default() };
        FinishClocks {
            params,
            unit,
            flows: Flows::new(),
            best_effort: 0,
            best_effort_pace: None,
            capacity,
            shift: VTime::ZERO,
        }
    }

    /// Whether the flow has a reservation.
    pub fn is_reserved(&self, flow: FlowId) -> bool {
        self.flows.get(flow).is_some_and(|c| c.reserved.is_some())
    }

    /// Whether a flow's lead is bounded; by the paper it is not.
    pub fn bounds_leads(&self) -> bool {
        self.params.lead.is_some()
    }

    /// The rate that a contract takes (or one that keeps its latency), if it can be promised.
    pub fn check(&self, flow: FlowId, contract: &Contract) -> Result<Option<Rate>, Refused> {
        if let (Some(latency), Some(service)) = (contract.latency, self.params.service) {
            check_bound(latency, service)?;
        }
        let rate = Self::reservation(contract);
        self.params.booking.with(self.flows.get(flow).and_then(Clock::rate), rate)?;
        Ok(rate)
    }

    /// Takes a contract's rate (or one that keeps its latency), or refuses it and changes nothing. A higher rate holds at once.
    pub fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let rate = self.check(flow, contract)?;
        let old = self.flows.remove(flow);
        self.params.booking.change(old.and_then(|c| c.rate()), rate)?;
        let whole = contract.whole.filter(|whole| whole.per_second > 0).map(Pace::new);
        let reserved = rate.map(|r| (r, Pace::new(r)));
        let finish = match old.map(|c| (c.finish, c.reserved, reserved)) {
            Some((finish, Some((_, old)), Some((_, new)))) => old.retagged(new, finish, self.clock(now)),
            Some((finish, None, None)) => finish,
            // A finish time of a promise says nothing about the time after it, nor the other way round. What has waited so far is not promised now.
            Some(_) => self.clock(now),
            None => VTime::ZERO,
        };
        self.flows.get_or_insert_with(flow, || Clock { reserved, whole, saved: VTime::ZERO, finish });
        self.best_effort += u64::from(rate.is_none());
        self.best_effort -= u64::from(old.is_some_and(|c| c.reserved.is_none()));
        self.pace_best_effort();
        Ok(())
    }

    /// The rate to reserve: the stated one, or the rate that a latency bound for `pending` requests takes ([`LATENCY`]).
    fn reservation(contract: &Contract) -> Option<Rate> {
        contract.rate.or_else(|| contract.rate_of_latency())
    }

    /// With what is known of the device here.
    pub fn keeps(&self, keeps: Keeps) -> Keeps {
        let service = self.params.service.map(|service| (1_000_000, service));
        Keeps { rate: self.params.booking.most(), service: service.into_iter().collect(), ..keeps }
    }

    /// Forgets a flow and its reservation.
    pub fn forget(&mut self, flow: FlowId) {
        let Some(clock) = self.flows.remove(flow) else { return };
        self.params.booking.release(clock.rate());
        self.best_effort -= u64::from(clock.reserved.is_none());
        self.pace_best_effort();
    }

    fn pace(&self, clock: &Clock) -> Option<Pace> {
        clock.reserved.map(|(_, pace)| pace).or(self.best_effort_pace)
    }

    /// What a request is charged.
    pub fn charge(&self, request: &Request) -> Cost {
        if self.params.split || request.commands == Request::WHOLE {
            return request.cost;
        }
        let whole = u128::from(request.cost.get()) * u128::from(Request::WHOLE);
        Cost::new(u64::try_from(whole / u128::from(request.commands.max(1))).unwrap_or(u64::MAX))
    }

    /// FT of a request if it is tagged now: Stonehenge, equations (1) to (3).
    pub fn finish(&self, request: &Request) -> VTime {
        let clock = &self.flows[request.flow];
        let Some(pace) = self.pace(clock) else { return NEVER };
        (fine(request.arrival) + self.shift).max(clock.finish) + pace.span(self.charge(request))
    }

    /// How long a request takes at the rate of the whole disk.
    pub fn whole_span(&self, request: &Request) -> Option<VTime> {
        let clock = self.flows.get(request.flow)?;
        let (_, pace) = clock.reserved?;
        Some(clock.whole.unwrap_or(pace).span(self.charge(request)))
    }

    /// The deadline of a request of a disk whose clock starts it at `since` (`spread.rs`).
    pub fn whole_finish(&self, request: &Request, since: VTime) -> VTime {
        since + self.shift + self.whole_span(request).unwrap_or(NEVER)
    }

    /// When what the flow was served is paid off.
    pub fn paid(&self, flow: FlowId) -> VTime {
        self.flows.get(flow).map_or(VTime::ZERO, |clock| clock.finish)
    }

    /// Keeps what the flow's reservation left unused until this request came, 4 s of it at most (`spread.rs`).
    pub fn save(&mut self, request: &Request) {
        let Some(clock) = self.flows.get_mut(request.flow).filter(|clock| clock.whole.is_some()) else {
            return;
        };
        clock.saved = (clock.saved + (fine(request.arrival) - clock.finish)).min(SAVED);
    }

    /// A request that has this finish time is of a disk that one clock runs for, which starts it at `since`: it takes of what was kept,
    /// and is over so much sooner.
    pub fn spend(&mut self, request: &Request, finish: VTime, since: VTime) -> VTime {
        let span = self.span(request.flow, self.charge(request)).unwrap_or(VTime::ZERO);
        let clock = &mut self.flows[request.flow];
        let spent = clock.saved.min(finish - span - since);
        clock.saved -= spent;
        clock.finish -= spent;
        finish - spent
    }

    /// Bounds the lead of all flows alike, where `smallest` is the smallest finish time of all that waits: nobody is
    /// less than H ahead, so that much can be taken back from everybody. Spare capacity stays in proportion.
    pub fn bound_leads(&mut self, smallest: VTime, now: Instant) {
        let Some(lead) = self.params.lead.filter(|_| smallest != NEVER) else { return };
        self.shift = self.shift.max(smallest - fine(now + lead));
    }

    /// Bounds the lead of one flow that has `unfinished` waiting and in flight, and perhaps a bound on its latency.
    pub fn bound_lead(&mut self, flow: FlowId, unfinished: Cost, bound: Option<Duration>, now: Instant) {
        let (Some(lead), Some(clock)) = (self.params.lead, self.flows.get(flow)) else { return };
        let lead = bound.map_or(lead, |bound| lead.min(Duration::from_nanos(bound.as_nanos() / 2)));
        let Some(pace) = self.pace(clock).filter(|_| clock.finish > fine(now + lead)) else { return };
        let furthest = fine(now) + pace.span(unfinished).max(fine(Instant::ZERO + lead));
        let clock = &mut self.flows[flow];
        clock.finish = clock.finish.min(furthest);
    }

    /// What finish times are compared with to see who has had what was promised.
    pub fn clock(&self, now: Instant) -> VTime {
        fine(now) + self.shift
    }

    /// When the request of this finish time would have come had its flow kept to its rate.
    pub fn start(&self, request: &Request, finish: VTime) -> VTime {
        if finish == NEVER {
            return NEVER;
        }
        let pace = self.pace(&self.flows[request.flow]).expect("a finish time was made by a clock");
        finish - pace.span(self.charge(request))
    }

    /// Nobody has less than was promised: the clock jumps to whoever is least ahead.
    pub fn jump(&mut self, start: VTime, now: Instant) {
        if start != NEVER {
            self.shift = self.shift.max(start - fine(now));
        }
    }

    /// A request was given this finish time: the next one's starts from here.
    pub fn tagged(&mut self, flow: FlowId, finish: VTime) {
        if finish != NEVER {
            self.flows[flow].finish = finish;
        }
    }

    /// The flow was served elsewhere: its clock goes on, to at most as far ahead of `smallest`, the smallest finish time
    /// of all that waits, as foreign service is remembered.
    pub fn foreign(&mut self, flow: FlowId, service: Cost, smallest: Option<VTime>, now: Instant) {
        let Some(clock) = self.flows.get(flow) else { return };
        let Some(pace) = self.pace(clock) else { return };
        let base = smallest.filter(|tag| *tag != NEVER).unwrap_or(VTime::ZERO).max(fine(now) + self.shift);
        let furthest = clock.finish.max(base + fine(Instant::ZERO + MEMORY_DEFAULT));
        let finish = clock.finish + pace.span(service);
        self.flows[flow].finish = finish.min(furthest);
    }

    /// How long a cost takes at the flow's rate; `None` where it has no clock.
    pub fn span(&self, flow: FlowId, cost: Cost) -> Option<VTime> {
        self.pace(self.flows.get(flow)?).map(|pace| pace.span(cost))
    }

    /// The flow goes on from here, whatever it was tagged before.
    pub fn rewind(&mut self, flow: FlowId, finish: VTime) {
        self.flows[flow].finish = finish;
    }

    /// Something tagged was charged `charged` and should have been `actual` (nothing, if it was cancelled).
    pub fn correct(&mut self, flow: FlowId, charged: Cost, actual: Cost) {
        let Some(clock) = self.flows.get(flow) else { return };
        let Some(pace) = self.pace(clock) else { return };
        let clock = &mut self.flows[flow];
        clock.finish = clock.finish + pace.span(actual.saturating_sub(charged));
        clock.finish -= pace.span(charged.saturating_sub(actual));
    }

    /// A request was dispatched while `in_flight` others were in flight.
    pub fn dispatched(&mut self, in_flight: u32, now: Instant) {
        self.capacity.dispatched(in_flight, now);
    }

    /// A request is over, having cost so much; `in_flight` no longer counts it.
    pub fn completed(&mut self, cost: Cost, in_flight: u32, now: Instant) {
        if self.capacity.known.is_none() && self.capacity.completed(cost, in_flight, now) {
            self.pace_best_effort();
        }
    }

    fn pace_best_effort(&mut self) {
        let capacity = self.capacity.per_second();
        let rate = u128::from(capacity) * u128::from(self.params.best_effort) / 1_000_000;
        let each = u64::try_from(rate).unwrap_or(u64::MAX) / self.best_effort.max(1);
        self.best_effort_pace = (each > 0).then(|| Pace::new(Rate { per_second: each, unit: self.unit }));
    }
}

/// Cost a second while busy: stated, or measured over periods of a second of busy time.
#[derive(Default)]
struct Capacity {
    known: Option<u64>,
    measured: Option<u64>,
    cost: u64,
    busy: Duration,
    since: Option<Instant>,
}

impl Capacity {
    const PERIOD: Duration = Duration::from_secs(1);
    /// While nothing is known: as if a hundred requests a second were all that the device can do.
    const UNKNOWN: u64 = Rate::requests(100).per_second;

    fn per_second(&self) -> u64 {
        self.known.or(self.measured).unwrap_or(Self::UNKNOWN)
    }
    fn dispatched(&mut self, in_flight: u32, now: Instant) {
        if in_flight == 0 || self.since.is_none() {
            self.since = Some(now);
        }
    }
    /// Whether the measurement changed.
    fn completed(&mut self, cost: Cost, in_flight: u32, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        self.busy += now.since(since);
        self.since = (in_flight > 0).then_some(now);
        self.cost = self.cost.saturating_add(cost.get());
        let first = self.measured.is_none() && self.busy > Duration::ZERO;
        if !first && self.busy < Self::PERIOD {
            return false;
        }
        let latest = u128::from(self.cost) * 1_000_000_000 / u128::from(self.busy.as_nanos());
        let latest = u64::try_from(latest).unwrap_or(u64::MAX);
        self.measured = Some(self.measured.map_or(latest, |m| m / 2 + latest / 2));
        if self.busy >= Self::PERIOD {
            (self.cost, self.busy) = (0, Duration::ZERO);
        }
        true
    }
}
