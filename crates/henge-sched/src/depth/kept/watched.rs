//! What [`Kept`](super::Kept) sees of a flow.

use super::{AGAIN, AHEAD, CATCH_UP, CATCH_UP_DUE, WHOLE};
use crate::cost::in_unit;
use henge_core::{CostUnit, Duration, Instant, Latency, Rate, Request};

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
    /// The number of the window that the rest is of.
    pub window: u64,
    pub done: u64,
    /// In units of its rate.
    pub amount: u64,
    /// In ns: how long its requests took in all, and how long nothing of it was here.
    pub latencies: u64,
    pub idle: u64,
    pub late: u64,
}

/// How well promises were kept in a window.
#[derive(Clone, Copy)]
pub(super) struct Judged {
    /// Thousandths.
    pub kept: u64,
    /// It has been short for long.
    pub behind: bool,
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
            window: 0,
            done: 0,
            amount: 0,
            latencies: 0,
            idle: 0,
            late: 0,
        }
    }

    pub fn begin(&mut self, number: u64) {
        if self.window + 1 < number {
            self.kept = 0; // too long ago to say that it is ahead
        }
        self.window = number;
        (self.done, self.amount, self.latencies, self.idle, self.late) = (0, 0, 0, 0, 0);
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
        self.is_firm() && self.kept < AHEAD
    }

    /// How well its promise was kept, where it has one.
    pub fn judge(&mut self, now: Instant, time: u64) -> Option<Judged> {
        if self.done == 0 {
            return None;
        }
        if let Some(rate) = self.rate {
            let gone = if self.in_flight == 0 { now.since(self.free_since).as_nanos() } else { 0 };
            let here = time.saturating_sub(self.idle + gone);
            // A fiftieth more than was promised: whoever is just short of it is noticed before it is missed.
            let due = rate.cost_in(Duration::from_nanos(here)).get();
            let due = due + due / 50;
            self.lag = (self.lag + due).saturating_sub(self.amount);
            // A few requests of the size that it has, and half a percent of a second.
            let few = 4 * (self.amount / self.done).max(1) + rate.per_second / 200;
            let kept = self.amount.saturating_mul(WHOLE).checked_div(due).unwrap_or(WHOLE);
            return Some(Judged { kept, behind: self.lag > few });
        }
        if let Some(latency) = self.latency {
            let allowed = self.done * u64::from(1_000_000 - latency.percentile) / 1000;
            self.lag = (self.lag + self.late * WHOLE).saturating_sub(allowed);
            let in_time = (self.done - self.late) * WHOLE * 1_000_000;
            let kept = in_time / (self.done * u64::from(latency.percentile)).max(1);
            return Some(Judged { kept, behind: self.lag > 4 * WHOLE });
        }
        None
    }

    /// When a request may come in that is held to a pace of `pace` for its flow, and what is promised to it.
    pub fn comes_in(&mut self, request: &Request, pace: u64, now: Instant) -> Option<Instant> {
        if let Some(rate) = self.rate.filter(|_| self.next_due <= now) {
            let amount = in_unit(request, rate.unit, CostUnit::DiskTime);
            let span = rate.time_for(amount).mul_ratio(2, 3);
            self.next_due = self.next_due.max(now - CATCH_UP_DUE) + span;
            return None;
        }
        if self.next > now {
            // What is promised to it may be due sooner than its part of the pace.
            let next = self.rate.map_or(self.next, |_| self.next.min(self.next_due));
            return Some(next.min(now + AGAIN));
        }
        let span = Rate { per_second: pace.max(1), unit: CostUnit::Bytes }.time_for(request.cost);
        self.next = self.next.max(now - CATCH_UP) + span;
        None
    }
}
