//! What [`Kept`](super::Kept) sees of a flow.

use super::pace::Pace;
use super::share::Share;
use super::{AGAIN, AHEAD, CATCH_UP_DUE, LONG, MORE, PATIENCE, WHOLE, work};
use crate::cost::in_unit;
use henge_core::{Contract, Cost, CostUnit, Duration, Instant, Latency, Op, Rate, Request};

/// What a flow was promised.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Promise {
    pub weight: u32,
    pub rate: Option<Rate>,
    pub latency: Option<Latency>,
    /// How long its burst takes at its rate.
    burst: Duration,
    /// A latency, and nothing says for how much.
    loose: bool,
}

impl Promise {
    pub fn of(contract: &Contract) -> Self {
        let Contract { rate, latency, burst, .. } = *contract;
        let burst = rate.zip(burst).map_or(Duration::ZERO, |(rate, burst)| rate.time_for(burst));
        let loose = latency.is_some() && rate.is_none() && contract.pending.is_none();
        Promise { weight: contract.weight(), rate, latency, burst, loose }
    }

    /// More than a share.
    pub fn is_firm(&self) -> bool {
        self.rate.is_some() || self.latency.is_some()
    }
}

/// No pace keeps a flow's promise, or its share needs none, as was seen: nobody looks again for a time.
pub(super) struct Respite {
    pub until: Instant,
    /// For how many turns next time.
    turns: u32,
}

impl Default for Respite {
    fn default() -> Self {
        Respite { until: Instant::ZERO, turns: PATIENCE.0 }
    }
}

impl Respite {
    pub fn begin(&mut self, turn: u64, now: Instant) {
        self.until = now + Duration::from_nanos(u64::from(self.turns) * turn);
        self.turns = (self.turns * 2).min(PATIENCE.1);
    }
}

/// What is seen of a flow in a window.
#[derive(Default)]
pub(super) struct FlowWindow {
    /// The window's number.
    pub number: u64,
    /// Its requests that are over; and those of them that are no FLUSHes.
    pub over: u64,
    pub done: u64,
    /// In units of its rate.
    pub amount: u64,
    /// In ns: how long its requests took in all; those that are no FLUSHes; and how long nothing of it was here.
    pub latencies: u64,
    pub outstanding: u64,
    pub idle: u64,
    pub late: u64,
    /// What its requests cost; their work; and of that what was done while the others had nothing at the device.
    pub cost: u64,
    pub total: u64,
    pub quiet: u64,
    /// In ns: how long its requests were at the device.
    pub places: u64,
}

/// What is seen of a flow.
pub(super) struct Watched {
    pub promise: Promise,
    pub in_flight: u32,
    /// Let in and not dispatched.
    pub inside: u32,
    /// When its next request may come in: by the pace, and by its own promise.
    pub next: Instant,
    pub next_due: Instant,
    /// Its part of the pace when that was made.
    paced: u64,
    /// Since when it has nothing in flight.
    pub free_since: Instant,
    /// What it was behind its promise by, at the end of its last window: in units of its rate, late requests in thousandths, or windows.
    pub lag: u64,
    /// How well its promise was kept in its last window, in thousandths.
    pub kept: u64,
    pub respite: Respite,
    /// The last in which it had a request.
    pub window: FlowWindow,
    /// The window in which it came, after one without it.
    pub came: u64,
    pub share: Share,
    /// Of its requests in flight, those that count as the others'.
    pub loud: u32,
    /// When all that it sent beside a pace is paid off at twice its rate.
    spent: Option<Instant>,
}

/// How well promises were kept in a window.
#[derive(Clone, Copy)]
pub(super) struct Judged {
    /// Thousandths.
    pub kept: u64,
    /// Which part of their pace the others may have, in thousandths.
    pub factor: u64,
    /// It has been short for long.
    pub behind: bool,
}

/// Of what a pace does to a promise nothing is known but how well it was kept.
fn factor(kept: u64) -> u64 {
    if kept > WHOLE { MORE + kept.saturating_sub(1200).min(500) / 4 } else { kept.max(WHOLE / 8) / 2 }
}

impl Watched {
    pub fn new() -> Self {
        Watched {
            promise: Promise::of(&Contract::best_effort()),
            in_flight: 0,
            inside: 0,
            next: Instant::ZERO,
            next_due: Instant::ZERO,
            paced: 0,
            free_since: Instant::ZERO,
            lag: 0,
            kept: 0,
            respite: Respite::default(),
            window: FlowWindow::default(),
            came: 1,
            share: Share::default(),
            loud: 0,
            spent: None,
        }
    }

    /// A window begins, in which weights are promises or not.
    pub fn begin(&mut self, number: u64, weights: bool) {
        if self.window.number + 1 < number {
            // Too long ago to say that it is ahead.
            (self.kept, self.share.above, self.came) = (0, false, number);
        }
        self.share.protected &= weights;
        self.share.bounded &= weights;
        self.window = FlowWindow { number, ..FlowWindow::default() };
    }

    /// It has another promise: what was seen says nothing of that.
    pub fn begin_anew(&mut self) {
        (self.lag, self.kept, self.share.above, self.respite, self.spent) =
            (0, 0, false, Respite::default(), None);
        (self.share.protected, self.share.bounded, self.share.look) = (false, false, 0);
    }

    pub fn left(&mut self, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            self.free_since = now;
        }
    }

    /// A request is over after `service` at the device, while the others had nothing there, or not.
    ///
    /// A FLUSH has a place at the device, and is a command of a rate. It is no work: a share of FLUSHes says nothing, and a flood of them that counted as
    /// behind would be one that others are held back for.
    pub fn over(&mut self, request: &Request, service: Duration, quiet: bool, now: Instant) {
        let window = &mut self.window;
        window.over += 1;
        window.places += service.as_nanos();
        let latency = now.since(request.arrival);
        window.latencies += latency.as_nanos();
        if let Some(rate) = self.promise.rate {
            let amount = in_unit(request, rate.unit, CostUnit::DiskTime).get();
            window.amount = window.amount.saturating_add(amount);
        }
        if request.op == Op::Flush {
            return;
        }
        let done = work(request);
        window.cost = window.cost.saturating_add(request.cost.get());
        window.total += done;
        window.quiet += if quiet { done } else { 0 };
        window.done += 1;
        window.outstanding += latency.as_nanos();
        window.late += u64::from(self.promise.latency.is_some_and(|l| latency > l.bound));
    }

    /// A request of its has left: how many fewer of those in flight count as the others'.
    pub fn falls_silent(&mut self) -> u32 {
        let loud = self.loud.min(1);
        self.loud -= loud;
        loud
    }

    /// Nobody holds it back: it does not have more than was promised.
    pub fn is_exempt(&self) -> bool {
        self.share.goes_beside() || (self.promise.is_firm() && self.kept < AHEAD && !self.share.above)
    }

    /// Whether a request is held neither to the pace, where there is one, nor to the `many` that the scheduler has of a flow.
    pub fn goes_beside(&mut self, request: &Request, paced: bool, many: bool, now: Instant) -> bool {
        if !self.is_exempt() || self.promise.rate.is_none() {
            return self.is_exempt() && !many;
        }
        !(paced || many) || !self.is_ahead(request, now)
    }

    /// Whether a request that goes beside the pace is beyond twice what is promised to its flow, a burst, and what comes late. Who was promised something
    /// just now has nothing saved up, or a promise that is changed to and fro would be good for a flood each time.
    fn is_ahead(&mut self, request: &Request, now: Instant) -> bool {
        let Some(rate) = self.promise.rate else { return false };
        let span = rate.time_for(in_unit(request, rate.unit, CostUnit::DiskTime)).mul_ratio(WHOLE, AHEAD);
        let saved = self.promise.burst.mul_ratio(WHOLE, AHEAD) + Duration::from_nanos(LONG);
        let spent = self.spent.map_or(now, |spent| spent.max(now - saved));
        self.spent = Some(if spent > now { spent } else { spent + span });
        spent > now
    }

    /// For how long of a window something of it was here.
    pub fn here(&self, now: Instant, time: u64) -> u64 {
        let gone = if self.in_flight == 0 { now.since(self.free_since).as_nanos() } else { 0 };
        time.saturating_sub(self.window.idle + gone)
    }

    /// Sees whether it has more than its share of what flows of all these weights did.
    pub fn compare(&mut self, weights: u128, work: u128) {
        let more = u128::from(self.window.total) * weights > work * u128::from(self.promise.weight);
        self.share.above = self.promise.loose && more;
    }

    /// How well its promise was kept, where it has one.
    pub fn judge(&mut self, now: Instant, time: u64) -> Option<Judged> {
        if self.window.over == 0 {
            return None;
        }
        if let Some(rate) = self.promise.rate {
            let here = self.here(now, time);
            // A fiftieth more than was promised: whoever is just short of it is noticed before it is missed.
            let due = rate.cost_in(Duration::from_nanos(here)).get();
            let due = due.saturating_add(due / 50);
            self.lag = self.lag.saturating_add(due).saturating_sub(self.window.amount);
            // A few requests of the size that it has, and half a percent of a second.
            let each = (self.window.amount / self.window.over).max(1);
            let few = each.saturating_mul(4).saturating_add(rate.per_second / 200);
            let kept = self.window.amount.saturating_mul(WHOLE).checked_div(due).unwrap_or(WHOLE);
            return Some(Judged { kept, factor: factor(kept), behind: self.lag > few });
        }
        if self.share.above {
            self.lag = 0;
            return Some(Judged { kept: WHOLE, factor: MORE, behind: false });
        }
        if let Some(latency) = self.promise.latency.filter(|_| self.window.done > 0) {
            let allowed = self.window.done * u64::from(1_000_000 - latency.percentile) / 1000;
            self.lag = (self.lag + self.window.late * WHOLE).saturating_sub(allowed);
            let in_time = (self.window.done - self.window.late) * WHOLE * 1_000_000;
            let kept = in_time / (self.window.done * u64::from(latency.percentile)).max(1);
            return Some(Judged { kept, factor: factor(kept), behind: self.lag > 4 * WHOLE });
        }
        None
    }

    /// Its part of a pace that is for `others` of these weights. Who is held to what is due to it has that instead.
    pub fn part_of(&self, pace: u64, others: u64) -> u64 {
        if self.share.protected {
            return self.share.bounds();
        }
        let weight = u64::from(self.promise.weight);
        (u128::from(pace) * u128::from(weight) / u128::from(others.max(weight))) as u64
    }

    /// When a request may come in that is held to `own` of a pace, and what is promised to its flow.
    pub fn comes_in(&mut self, request: &Request, all: &Pace, own: u64, now: Instant) -> Option<Instant> {
        // Not for what went beside the pace already.
        let due = self.spent.map_or(self.next_due, |spent| spent.max(self.next_due));
        if let Some(rate) = self.promise.rate.filter(|_| due <= now) {
            let amount = in_unit(request, rate.unit, CostUnit::DiskTime);
            let span = rate.time_for(amount).mul_ratio(2, 3);
            self.next_due = self.next_due.max(now - CATCH_UP_DUE) + span;
            return None;
        }
        let turn = all.turn;
        let begin = Instant::from_nanos(now.as_nanos() / turn * turn);
        if self.paced == 0 {
            // Who came in place of another has what that one left of this turn.
            self.next = all.gone.min(begin + Duration::from_nanos(turn));
        } else if own > self.paced {
            // Others are gone, or the pace grew: what it has sent is paid off sooner.
            self.next = begin + self.next.since(begin).mul_ratio(self.paced, own);
        }
        self.paced = own.max(1);
        if self.next >= begin + Duration::from_nanos(turn) {
            // What is promised to it may be due sooner than its part of the pace.
            let next = self.promise.rate.map_or(self.next, |_| self.next.min(due));
            return Some(next.min(now + AGAIN).max(now + Duration::from_nanos(1)));
        }
        let span = Rate { per_second: own.max(1), unit: CostUnit::Bytes }.time_for(Cost::new(work(request)));
        self.next = self.next.max(begin) + span;
        None
    }
}
