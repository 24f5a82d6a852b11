//! What [`Kept`](super::Kept) sees of a flow.

use super::{AGAIN, AHEAD, CATCH_UP_DUE, MORE, PATIENCE, WHOLE, work};
use crate::cost::in_unit;
use henge_core::{Cost, CostUnit, Duration, Instant, Latency, Rate, Request};

/// What is seen of a flow.
pub(super) struct Watched {
    pub weight: u32,
    pub rate: Option<Rate>,
    pub latency: Option<Latency>,
    pub in_flight: u32,
    /// Let in and not dispatched.
    pub inside: u32,
    /// When its next request may come in: by the pace, and by its own promise.
    pub next: Instant,
    pub next_due: Instant,
    /// Since when it has nothing in flight.
    pub free_since: Instant,
    /// What it was behind its promise by, at the end of its last window: in units of its rate, late requests in thousandths, or windows.
    pub lag: u64,
    /// How well its promise was kept in its last window, in thousandths.
    pub kept: u64,
    /// No pace keeps its promise, or its share needs none, as was seen: until when nobody looks again, and for how many turns next time.
    pub hopeless_until: Instant,
    pub patience: u32,
    /// The number of the window that the rest is of.
    pub window: u64,
    pub done: u64,
    /// In units of its rate.
    pub amount: u64,
    /// In ns: how long its requests took in all, and how long nothing of it was here.
    pub latencies: u64,
    pub idle: u64,
    pub late: u64,
    /// In this window: what its requests cost; their work; and of that what was done while the others had nothing at the device.
    pub cost: u64,
    pub total: u64,
    pub quiet: u64,
    /// In ns: how long its requests were at the device.
    pub places: u64,
    /// By its weight: whether others are held back for its sake; what it did a second before they were; and what it does while they are.
    pub protected: bool,
    /// Its weight is above the average of those who were there.
    pub heavier: bool,
    pub before: u64,
    pub reference: u64,
    /// The window in which it came, after one without it.
    pub came: u64,
    /// The look at shares in which it was there last.
    pub look: u64,
    /// What it had when a trial found that to be enough.
    pub enough: u64,
    /// Of its requests in flight, those that count as the others'.
    pub loud: u32,
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
            weight: 1,
            rate: None,
            latency: None,
            in_flight: 0,
            inside: 0,
            next: Instant::ZERO,
            next_due: Instant::ZERO,
            free_since: Instant::ZERO,
            lag: 0,
            kept: 0,
            hopeless_until: Instant::ZERO,
            patience: PATIENCE.0,
            window: 0,
            done: 0,
            amount: 0,
            latencies: 0,
            idle: 0,
            late: 0,
            cost: 0,
            total: 0,
            quiet: 0,
            places: 0,
            protected: false,
            heavier: false,
            before: 0,
            reference: 0,
            came: 1,
            look: 0,
            enough: 0,
            loud: 0,
        }
    }

    pub fn begin(&mut self, number: u64) {
        if self.window + 1 < number {
            // Too long ago to say that it is ahead.
            (self.kept, self.came) = (0, number);
        }
        self.window = number;
        (self.done, self.amount, self.latencies, self.idle, self.late) = (0, 0, 0, 0, 0);
        (self.cost, self.total, self.quiet, self.places) = (0, 0, 0, 0);
    }

    pub fn left(&mut self, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            self.free_since = now;
        }
    }

    /// It was promised more than a share.
    pub fn is_firm(&self) -> bool {
        self.rate.is_some() || self.latency.is_some()
    }

    /// Nobody holds it back: it does not have more than was promised.
    pub fn is_exempt(&self) -> bool {
        self.protected || (self.is_firm() && self.kept < AHEAD)
    }

    /// For how long of a window something of it was here.
    pub fn here(&self, now: Instant, time: u64) -> u64 {
        let gone = if self.in_flight == 0 { now.since(self.free_since).as_nanos() } else { 0 };
        time.saturating_sub(self.idle + gone)
    }

    /// How well its promise was kept, where it has one.
    pub fn judge(&mut self, now: Instant, time: u64) -> Option<Judged> {
        if self.done == 0 {
            return None;
        }
        if let Some(rate) = self.rate {
            let here = self.here(now, time);
            // A fiftieth more than was promised: whoever is just short of it is noticed before it is missed.
            let due = rate.cost_in(Duration::from_nanos(here)).get();
            let due = due + due / 50;
            self.lag = (self.lag + due).saturating_sub(self.amount);
            // A few requests of the size that it has, and half a percent of a second.
            let few = 4 * (self.amount / self.done).max(1) + rate.per_second / 200;
            let kept = self.amount.saturating_mul(WHOLE).checked_div(due).unwrap_or(WHOLE);
            return Some(Judged { kept, factor: factor(kept), behind: self.lag > few });
        }
        if let Some(latency) = self.latency {
            let allowed = self.done * u64::from(1_000_000 - latency.percentile) / 1000;
            self.lag = (self.lag + self.late * WHOLE).saturating_sub(allowed);
            let in_time = (self.done - self.late) * WHOLE * 1_000_000;
            let kept = in_time / (self.done * u64::from(latency.percentile)).max(1);
            return Some(Judged { kept, factor: factor(kept), behind: self.lag > 4 * WHOLE });
        }
        None
    }

    /// When a request may come in that is held to a pace of `pace` for its flow, and what is promised to it.
    pub fn comes_in(&mut self, request: &Request, pace: u64, turn: u64, now: Instant) -> Option<Instant> {
        if let Some(rate) = self.rate.filter(|_| self.next_due <= now) {
            let amount = in_unit(request, rate.unit, CostUnit::DiskTime);
            let span = rate.time_for(amount).mul_ratio(2, 3);
            self.next_due = self.next_due.max(now - CATCH_UP_DUE) + span;
            return None;
        }
        let begin = Instant::from_nanos(now.as_nanos() / turn * turn);
        if self.next >= begin + Duration::from_nanos(turn) {
            // What is promised to it may be due sooner than its part of the pace.
            let next = self.rate.map_or(self.next, |_| self.next.min(self.next_due));
            return Some(next.min(now + AGAIN).max(now + Duration::from_nanos(1)));
        }
        let span = Rate { per_second: pace.max(1), unit: CostUnit::Bytes }.time_for(Cost::new(work(request)));
        self.next = self.next.max(begin) + span;
        None
    }
}
