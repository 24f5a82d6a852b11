//! Shares by weight as promises, where nobody was promised a rate or a latency, and `shares = true` asks for it.
//!
//! **Problem.** A scheduler shares what it charges among those who wait. Whoever has fewer requests outstanding than there are places never waits at
//! the gate, and is slowed down at the device by whoever fills the other places: 16 KiB reads, eight outstanding, four times as heavy as 1 MiB writes, had
//! 0.15 of what they have alone instead of 0.8. And whoever waits is served by what is charged: a trim of 4 KiB counts as little as a read, and may
//! take the device for longer than ten.
//!
//! **Rule.** A flow is *behind* in a window if it had less than 3/4 of its share of what was charged, or of the places at the device, and had at least an
//! eighth of the places' number outstanding. What it would have alone nobody knows, so the others are held back for half a turn. In its last quarter,
//! while nothing of them is at the device, the flow's work a second is its reference. It is due
//!
//! ```text
//!   reference · W / (W + V)         W: weights of the flows behind, V: of the others
//! ```
//!
//! for as long as it has something here. If it had that before, the pace is lifted, and the flow is not looked at for 64 turns, then 128, to 1024, unless it
//! loses a quarter of what it had. Two thirds of its due are enough for a flow that is no heavier than the others: nobody said whose requests are worth
//! the others' waiting, and tenants who merely have more outstanding are no harm.
//! If not, the others have a pace, from V / (W + V) of what they sent, which is judged turn by turn as that for a rate is ([`Kept`](super::Kept)). Each turn
//! ends without the others, so each turn measures the reference anew. Once a flow is there that was not when this began, all begins anew, after 64 turns at
//! the earliest.
//!
//! **Why turns.** To hold back writes evenly leaves some die programming at all times, and a reader of all dies meets it. All writes in one part of a
//! turn cost the reader that part. So each has about its share of what it has alone, and both together what the device gives one of them.
//!
//! **Why not by cost.** Learned time divides the device by what each kind and length takes of it. Where small requests always wait for long ones inside
//! the device, nothing that a gate sees tells their times apart (`cost/time.rs`). Half a turn without the others does.

use super::watched::{Judged, Watched};
use super::{Kept, NO_END, PATIENCE, SAMPLES, WHOLE};
use henge_core::{Duration, Instant};

/// A share counts as short below this part of what is due.
const SHORT: u64 = 980;

/// Whoever is no heavier than the others must lack more: nobody said whose requests are worth the others' waiting.
const SHORT_OF_EQUALS: u64 = 667;

/// A trial holds others back to no less than this part of what they sent.
const GENTLE: u64 = 16;

/// Turns from a trial that found nothing to the next.
pub(super) const TRIAL: u64 = 64;

/// Which flows were looked at last, and when that was.
#[derive(Default)]
pub(super) struct Look {
    pub number: u64,
    at: Instant,
}

/// Time without others' requests at the device, at the ends of turns.
#[derive(Default)]
pub(super) struct Quiet {
    /// Requests in flight of flows that may be held back.
    pub loud: u32,
    /// In this window.
    pub ns: u64,
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Quiet {
    pub fn restart(&mut self) {
        self.ns = 0;
    }

    /// A request is over; whether all is quiet since the one before it.
    pub fn goes_on(&mut self, turn: u64, now: Instant) -> bool {
        let late = now.as_nanos() % turn >= turn / 4 * 3;
        let another_turn = self.last.is_some_and(|last| now.since(last).as_nanos() >= turn / 4);
        if self.loud > 0 || !late || another_turn {
            (self.since, self.last) = (None, None);
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let last = self.last.replace(now);
        // What falls between others' requests that come all the time is not what a flow has alone: only its quickest are seen there.
        if now.since(since).as_nanos() < turn / 32 {
            return false;
        }
        self.ns += last.map_or(0, |last| now.since(last).as_nanos());
        last.is_some()
    }

    /// There was enough of it in a window to learn from.
    fn suffices(&self, time: u64) -> bool {
        self.ns > 0 && self.ns >= time / 64
    }
}

impl Watched {
    fn rate(&self, time: u64) -> u64 {
        per_second(self.total, time)
    }

    /// What it does while the others do nothing: what was seen lately, where there was enough of that.
    fn learn(&mut self, quiet: &Quiet, time: u64) {
        if quiet.suffices(time) && self.quiet > 0 {
            let seen = per_second(self.quiet, quiet.ns);
            self.reference =
                if self.reference == 0 { seen } else { self.reference - self.reference / 4 + seen / 4 };
        }
    }

    /// A trial found that it has enough, not long ago, and it has not lost since.
    fn had_enough(&self, now: Instant) -> bool {
        now < self.hopeless_until && self.before * 4 >= self.enough * 3
    }

    /// A trial found that it was short, or not.
    fn had(&mut self, short: bool, turn: u64, now: Instant) {
        if short {
            (self.hopeless_until, self.patience) = (Instant::ZERO, PATIENCE.0);
            return;
        }
        self.enough = self.before;
        self.hopeless_until = now + Duration::from_nanos(u64::from(self.patience) * turn);
        self.patience = (self.patience * 2).min(PATIENCE.1);
    }

    /// How well its share is kept, where others are held back for its sake.
    pub fn judge_share(
        &mut self,
        (own, all): (u64, u64),
        quiet: &Quiet,
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
            factor: (spare / taken).clamp(u128::from(WHOLE) / 4, 2 * u128::from(WHOLE)) as u64,
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
            return self.conclude(now, time);
        }
        self.sent = (self.sent - self.sent / 8).max(done);
        self.patience.0 = self.patience.0.saturating_sub(time);
        if self.patience.0 > 0 {
            return;
        }
        let (mut work, mut places, mut weights) = (0u128, 0u128, 0u128);
        for flow in self.active.iter().filter_map(|id| self.flows.get(*id)) {
            work += u128::from(flow.cost);
            places += u128::from(flow.places);
            weights += u128::from(flow.weight);
        }
        self.look = Look { number: self.look.number + 1, at: now };
        let (mut behind, flows) = (0, self.active.len() as u128);
        let depth = u64::from(self.part.of(self.most));
        for id in &self.active {
            let Some(flow) = self.flows.get_mut(*id) else { continue };
            let weight = u128::from(flow.weight);
            let little = |own: u128, all: u128| own * weights * 4 < all * weight * 3;
            let outstanding = flow.latencies / time.max(1);
            flow.heavier = weight * flows > weights;
            (flow.before, flow.reference, flow.lag, flow.look) = (flow.rate(time), 0, 0, self.look.number);
            flow.protected = (little(flow.cost.into(), work) || little(flow.places.into(), places))
                && outstanding * 8 >= depth.saturating_sub(8)
                && flow.came < self.number
                && !flow.had_enough(now);
            behind += usize::from(flow.protected);
        }
        if behind > 0 && behind < self.active.len() {
            self.trial = true;
            // What they sent at most lately may be more than the device does for long, and then nothing would be quiet.
            self.sent = if done > 0 { done } else { self.sent };
            self.pace = self.sent / 2;
            self.settle(now);
        }
    }

    /// Who was not there when others were held back for somebody's sake may be short as well, or be whom it is to be held back for: all begins anew.
    pub(super) fn look_again(&mut self, now: Instant) -> bool {
        let look = &self.look;
        let waited = now.since(look.at).as_nanos() >= TRIAL * self.turn;
        let new = |flow: &Watched| flow.look != look.number && flow.done >= SAMPLES;
        let again = waited && self.active.iter().filter_map(|id| self.flows.get(*id)).any(new);
        if again {
            (self.pace, self.search, self.patience.0) = (NO_END, None, 0);
        }
        again
    }

    /// A trial is over: either the flows have no more than before, or the others have a pace from now on.
    fn conclude(&mut self, now: Instant, time: u64) {
        let (own, all) = self.part();
        let there = |flow: &Watched| flow.protected && flow.here(now, time) >= time / 4 * 3;
        let there = self.active.iter().filter_map(|id| self.flows.get(*id)).any(there);
        if there && !self.quiet.suffices(time) && self.pace > self.sent / GENTLE {
            // The others were at the device to the end.
            (self.trial, self.pace) = (true, self.pace / 2);
            return self.settle(now);
        }
        let mut short = false;
        for id in &self.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.protected) else { continue };
            flow.learn(&self.quiet, time);
            let due = u128::from(flow.reference) * u128::from(own) / u128::from(all.max(1));
            let enough = if flow.heavier { SHORT } else { SHORT_OF_EQUALS };
            short |= u128::from(flow.before) * u128::from(WHOLE) < due * u128::from(enough);
        }
        for id in &self.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.protected) else { continue };
            flow.had(short, self.turn, now);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_enough_is_left_alone_longer_each_time_unless_it_loses_a_quarter() {
        const TURN: u64 = 1_000_000;
        let after = |turns: u64| Instant::from_nanos(turns * TURN);
        let mut flow = Watched::new();
        flow.before = 1000;
        assert!(!flow.had_enough(after(0)), "nobody has looked");
        flow.had(false, TURN, after(0));
        assert!(flow.had_enough(after(63)) && !flow.had_enough(after(64)));
        flow.before = 750;
        assert!(flow.had_enough(after(1)));
        flow.before = 749;
        assert!(!flow.had_enough(after(1)), "it has lost since");
        for turns in [128, 256, 512, 1024, 1024] {
            flow.had(false, TURN, after(0));
            assert!(flow.had_enough(after(turns - 1)) && !flow.had_enough(after(turns)), "{turns}");
        }
        flow.had(true, TURN, after(0));
        assert!(!flow.had_enough(after(0)), "it was short");
        flow.had(false, TURN, after(0));
        assert!(!flow.had_enough(after(64)), "all begins anew");
    }
}
