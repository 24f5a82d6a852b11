//! Shares by weight as promises, where nobody was promised a rate or a latency, and `shares = true` asks for it.
//!
//! **Problem.** A scheduler shares among those who wait. Whoever has fewer requests outstanding than there are places never waits at the gate, and is
//! slowed down at the device by whoever fills the other places: 16 KiB reads, eight outstanding, four times as heavy as 1 MiB writes, had 0.15 of what they have
//! alone instead of 0.8.
//!
//! **Rule.** A flow is *behind* in a window if it had less than 3/4 of its share of what was charged, or of the places at the device; had at least an
//! eighth of the places' number
//! outstanding; and did not wait for them. What it would have alone nobody knows, so the others are held back for half a turn. In its last quarter,
//! while nothing of them
//! is at the device, the flow's work a second is its reference. It is due
//!
//! ```text
//!   reference · W / (W + V)         W: weights of the flows behind, V: of the others
//! ```
//!
//! for as long as it has something here. If it had that before, the pace is lifted, and the next trial comes 64 turns later at the earliest. Two
//! thirds of it are enough for a flow that
//! is no heavier than the others: nobody said whose requests are worth the others' waiting, and tenants who merely have more outstanding are no harm.
//! If not, the others have
//! a pace, from V / (W + V) of what they sent, which is judged turn by turn as that for a rate is ([`Kept`](super::Kept)). Each turn ends without the
//! others, so each turn measures the reference anew.
//!
//! **Why turns.** To hold back writes evenly leaves some die programming at all times, and a reader of all dies meets it. All writes in one part of a
//! turn cost the reader that
//! part. So each has about its share of what it has alone, and both together what the device gives one of them.

use super::watched::{Judged, Watched};
use super::{Kept, NO_END, PATIENCE, WHOLE};
use henge_core::Instant;

/// A share counts as short below this part of what is due.
const SHORT: u64 = 980;

/// Whoever is no heavier than the others must lack more: nobody said whose requests are worth the others' waiting.
const SHORT_OF_EQUALS: u64 = 667;

/// Turns from a trial that found nothing to the next.
pub(super) const TRIAL: u64 = 64;

/// Time without others' requests at the device, at the ends of turns.
#[derive(Default)]
pub(super) struct Quiet {
    /// Requests in flight of flows that may be held back.
    pub loud: u32,
    /// In this window.
    pub ns: u64,
    last: Option<Instant>,
}

impl Quiet {
    pub fn restart(&mut self) {
        self.ns = 0;
    }

    /// A request is over; whether all is quiet since the one before it.
    pub fn goes_on(&mut self, turn: u64, now: Instant) -> bool {
        let late = now.as_nanos() % turn >= turn / 4 * 3;
        if self.loud > 0 || !late {
            self.last = None;
            return false;
        }
        let last = self.last.replace(now).filter(|last| now.since(*last).as_nanos() < turn / 4);
        self.ns += last.map_or(0, |last| now.since(last).as_nanos());
        last.is_some()
    }
}

impl Watched {
    fn rate(&self, time: u64) -> u64 {
        per_second(self.total, time)
    }

    /// How long its requests were at the device, in ns.
    fn places(&self) -> u128 {
        self.latencies.saturating_sub(self.waited).into()
    }

    /// What it does while the others do nothing: what was seen lately, where there was enough of that.
    fn learn(&mut self, quiet: u64, time: u64) {
        if quiet > 0 && quiet >= time / 64 && self.quiet > 0 {
            let seen = per_second(self.quiet, quiet);
            self.reference =
                if self.reference == 0 { seen } else { self.reference - self.reference / 4 + seen / 4 };
        }
    }

    /// How well its share is kept, where others are held back for its sake.
    pub fn judge_share(
        &mut self,
        (own, all): (u64, u64),
        quiet: u64,
        time: u64,
        now: Instant,
    ) -> Option<Judged> {
        if !self.protected || self.done == 0 {
            return None;
        }
        self.learn(quiet, time);
        let second = u128::from(self.reference) * u128::from(own) / u128::from(all.max(1));
        let due = (second * u128::from(self.here(now, time)) / 1_000_000_000) as u64;
        let due = due + due / 50;
        self.lag = (self.lag + due).saturating_sub(self.total);
        let few = 4 * (self.total / self.done).max(1) + (second / 200) as u64;
        // What it has is the reference less what the others' part of a turn takes, and that part is as long as their pace is large.
        let (rate, due_rate) = (u128::from(self.rate(time)), second * 51 / 50);
        let spare = u128::from(self.reference).saturating_sub(due_rate) * u128::from(WHOLE);
        let taken = u128::from(self.reference).saturating_sub(rate).max(1);
        Some(Judged {
            kept: self.total.saturating_mul(WHOLE).checked_div(due).unwrap_or(WHOLE),
            room: (spare / taken).clamp(u128::from(WHOLE) / 4, 2 * u128::from(WHOLE)) as u64,
            behind: self.lag > few,
        })
    }
}

fn per_second(amount: u64, ns: u64) -> u64 {
    let all = u128::from(amount) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

impl Kept {
    /// Whether weights are promises here and now.
    pub(super) fn shares(&self) -> bool {
        self.weights && self.firm == 0
    }

    /// The weights of those for whose sake others are held back, and of all.
    pub(super) fn part(&self) -> (u64, u64) {
        let (own, others) = (self.seen.protected, self.seen.others.max(self.before.others));
        (own, own + others)
    }

    /// A window without a pace, or a trial.
    pub(super) fn consider(&mut self, now: Instant, time: u64) {
        let done = per_second(self.seen.cost, time);
        if self.trial {
            self.trial = false;
            return self.conclude(time);
        }
        self.sent = (self.sent - self.sent / 8).max(done);
        self.patience.0 = self.patience.0.saturating_sub(time);
        if self.patience.0 > 0 {
            return;
        }
        let (mut work, mut places, mut weights) = (0u128, 0u128, 0u128);
        for flow in self.active.iter().filter_map(|id| self.flows.get(*id)) {
            work += u128::from(flow.cost);
            places += flow.places();
            weights += u128::from(flow.weight);
        }
        let (mut behind, flows) = (0, self.active.len() as u128);
        for id in &self.active {
            let Some(flow) = self.flows.get_mut(*id) else { continue };
            let weight = u128::from(flow.weight);
            let little = |own: u128, all: u128| own * weights * 4 < all * weight * 3;
            let outstanding = flow.latencies / time.max(1);
            flow.heavier = weight * flows > weights;
            flow.protected = (little(flow.cost.into(), work) || little(flow.places(), places))
                && outstanding * 8 >= u64::from(self.most).saturating_sub(8)
                && flow.waited <= flow.latencies / 4;
            (flow.before, flow.reference, flow.lag) = (flow.rate(time), 0, 0);
            behind += usize::from(flow.protected);
        }
        if behind > 0 && behind < self.active.len() {
            self.trial = true;
            self.pace = self.sent / 2;
            self.settle(now);
        }
    }

    /// A trial is over: either the flows have no more than before, or the others have a pace from now on.
    fn conclude(&mut self, time: u64) {
        let (own, all) = self.part();
        let mut short = false;
        for id in &self.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.protected) else { continue };
            flow.learn(self.quiet.ns, time);
            let due = u128::from(flow.reference) * u128::from(own) / u128::from(all.max(1));
            let enough = if flow.heavier { SHORT } else { SHORT_OF_EQUALS };
            short |= u128::from(flow.before) * u128::from(WHOLE) < due * u128::from(enough);
        }
        if short {
            self.pace = (u128::from(self.sent) * u128::from(all - own) / u128::from(all.max(1))) as u64;
            (self.search, self.found, self.good, self.former) = (None, true, 0, self.pace);
            self.patience = (0, PATIENCE.0);
        } else {
            self.pace = NO_END;
            self.patience.0 = TRIAL * self.turn;
        }
    }
}
