//! What is known of one flow's share by weight, and what it had in a window beside the others ([`Shares`](super::shares::Shares) has the rule).

use super::quiet::Quiet;
use super::watched::{FlowWindow, Judged, Respite, Watched};
use super::{WHOLE, per_second};
use henge_core::{Duration, Instant};

/// A share counts as short below this part of what is due.
pub(super) const SHORT: u64 = 980;

/// Whoever is no heavier than the others must lack more: nobody said whose requests are worth the others' waiting.
const SHORT_OF_EQUALS: u64 = 667;

/// Turns for which nobody measures a flow anew that was measured so in vain, at first and at most.
const KNOWN: (u64, u64) = (16, 64);

/// Where a flow stands in a look at shares.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Looked {
    /// It was not behind, or has enough.
    #[default]
    Not,
    /// The trial is for it.
    Now,
    /// One is to come.
    Later,
    /// It had less than its due.
    Short,
}

/// What a flow has alone, by the last trial of its own; and what it keeps of that in a trial of others, a second.
#[derive(Default)]
pub(super) struct Left {
    pub alone: u64,
    pub floor: u64,
}

/// What is known of a flow's share.
#[derive(Default)]
pub(super) struct Share {
    /// Others are held back for its sake.
    pub protected: bool,
    /// It is held to its due all the same, for the sake of others who are protected; and for how long that stays so.
    pub bounded: bool,
    pub bound_for: Respite,
    /// Until when nobody measures it anew, and how many turns that was for.
    pub known: (Instant, u64),
    /// What is due to it a second.
    pub due: u64,
    /// Its weight is above the average of those who were there.
    pub heavier: bool,
    /// What it did a second before others were held back; and what it does while they are.
    pub before: u64,
    pub reference: u64,
    /// What it did in the trial before this one, of the same flows.
    pub former: u64,
    pub left: Left,
    pub looked: Looked,
    /// The weights of those who had the trial with it.
    pub with: u64,
    /// A latency of its is for any amount, and it had more than its weight's share of the work in its last window.
    pub above: bool,
    /// The look at shares in which it was there last.
    pub look: u64,
    /// What it had when a trial found that to be enough.
    pub enough: u64,
}

impl Share {
    /// It is protected, and not held back for the sake of another one who is.
    pub fn goes_beside(&self) -> bool {
        self.protected && !self.bounded
    }

    /// No trial goes on: who was not there when its own ended is one who comes.
    pub fn leave_trial(&mut self) {
        if matches!(self.looked, Looked::Now | Looked::Later) {
            (self.looked, self.protected, self.look) = (Looked::Not, false, 0);
        }
    }

    pub fn bound(&mut self, turn: u64, now: Instant) {
        self.bounded = true;
        self.bound_for.begin(turn, now);
    }

    /// It was measured anew, and is what it was measured as, or was not seen alone: it is left longer each time.
    pub fn is_known(&mut self, turn: u64, now: Instant) {
        let turns = (2 * self.known.1).clamp(KNOWN.0, KNOWN.1);
        self.known = (now + Duration::from_nanos(turns * turn), turns);
    }

    /// What it may send a second where it is bounded: a tenth more than its due, so that it is not short.
    pub fn bounds(&self) -> u64 {
        self.due.saturating_add(self.due / 10).max(1)
    }

    /// It came and is looked at, held back as it is.
    pub fn came(&mut self, look: u64, heavier: bool, before: u64) {
        (self.look, self.heavier, self.before) = (look, heavier, before);
    }

    /// What it does while the others do nothing: what was seen lately, where there was enough of that.
    pub fn learn(&mut self, window: &FlowWindow, quiet: &Quiet, time: u64) {
        if quiet.suffices(time) && window.quiet > 0 {
            let seen = per_second(window.quiet, quiet.ns);
            self.reference =
                if self.reference == 0 { seen } else { self.reference - self.reference / 4 + seen / 4 };
        }
    }

    /// It had less than enough of its due before.
    pub fn was_short(&self, with: u64, all: u64) -> bool {
        let enough = if self.heavier { SHORT } else { SHORT_OF_EQUALS };
        u128::from(self.before) * u128::from(WHOLE) < self.due_of(with, all) * u128::from(enough)
    }

    /// So much of its reference is due to it: what it did together with `with` others of all these weights.
    pub fn due_of(&self, with: u64, all: u64) -> u128 {
        u128::from(self.reference) * u128::from(with) / u128::from(all.max(1))
    }
}

/// Weights of the flows of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    /// Of those for whose sake others are held back; and of those of them who are not held back themselves.
    pub own: u64,
    pub beside: u64,
    pub all: u64,
}

/// What all flows of a window had.
pub(super) struct All {
    pub now: Instant,
    pub time: u64,
    pub depth: u64,
    pub flows: u128,
    pub weights: u128,
    pub work: u128,
    pub cost: u128,
    pub places: u128,
}

impl All {
    /// Less than 3/4 of its share of the costs or of the places while it was here, for a flow that asks for enough.
    pub fn has_little(&self, flow: &Watched) -> bool {
        (self.little(flow, flow.window.cost, self.cost) || self.has_few_places(flow))
            && self.asks_for_enough(flow)
    }

    fn asks_for_enough(&self, flow: &Watched) -> bool {
        flow.window.done > 0 && flow.window.outstanding / self.time.max(1) * 8 >= self.depth.saturating_sub(8)
    }

    /// Its weight is above the average.
    pub fn is_heavier(&self, flow: &Watched) -> bool {
        u128::from(flow.promise.weight) * self.flows > self.weights
    }

    /// It may be short: it has little, or is worth more than others and waits at the device alone, where no scheduler has a say. A neighbour's few small writes
    /// keep dies busy, and show in no share.
    pub fn may_be_short(&self, flow: &Watched) -> bool {
        let at_device = flow.window.places * 8 >= flow.window.outstanding * 7;
        self.has_little(flow) || (self.is_heavier(flow) && at_device && self.asks_for_enough(flow))
    }

    /// Less than that of the places: whoever has more takes others' time at the device, however little its requests cost.
    pub fn has_few_places(&self, flow: &Watched) -> bool {
        self.little(flow, flow.window.places, self.places)
    }

    fn little(&self, flow: &Watched, own: u64, all: u128) -> bool {
        let (here, time) = (u128::from(flow.here(self.now, self.time)), u128::from(self.time));
        u128::from(own) * self.weights * 4 * time < all * u128::from(flow.promise.weight) * 3 * here
    }
}

impl Watched {
    pub fn rate(&self, time: u64) -> u64 {
        per_second(self.window.total, time)
    }

    /// A trial found that it has enough, not long ago, and it has not lost since.
    pub fn had_enough(&self, now: Instant) -> bool {
        now < self.respite.until && self.share.before * 4 >= self.share.enough * 3
    }

    /// A trial found that it was short, or not.
    pub fn had(&mut self, short: bool, turn: u64, now: Instant) {
        if short {
            self.respite = Respite::default();
            return;
        }
        self.share.enough = self.share.before;
        self.respite.begin(turn, now);
    }

    /// What it has alone was seen: whether it is short, and others are held back for its sake, too.
    pub fn is_short_of(&mut self, reference: u64, all: u64, turn: u64, now: Instant) -> bool {
        let (with, was) = (u64::from(self.promise.weight), self.share.protected);
        let former = self.share.reference;
        (self.share.reference, self.share.with) = (reference, with);
        let short = self.share.was_short(with, all);
        self.share.due = self.share.due_of(with, all).min(u128::from(u64::MAX)) as u64;
        if was {
            // It was measured anew, and is held to its due if it had more.
            self.share.bounded = self.share.before > self.share.due;
            if reference.abs_diff(former) <= former / 4 {
                self.share.is_known(turn, now);
            } else {
                self.share.known = Default::default();
            }
            return false;
        }
        self.share.protected = short;
        if short {
            // Nobody knows yet what it takes from others where nothing holds it.
            self.share.bound(turn, now);
        }
        self.had(short, turn, now);
        short
    }

    /// How well its share is kept, where others are held back for its sake.
    pub fn judge_share(
        &mut self,
        weights: Weights,
        quiet: &Quiet,
        time: u64,
        now: Instant,
    ) -> Option<Judged> {
        if !self.share.protected || self.window.done == 0 {
            return None;
        }
        // Of several sets each has its own time alone only while the others are not there.
        let with = self.share.with.min(weights.own);
        if weights.beside <= self.share.with {
            self.share.learn(&self.window, quiet, time);
        }
        if self.share.reference == 0 {
            return None;
        }
        let (second, total) = (self.share.due_of(with, weights.all), self.window.total);
        self.share.due = second.min(u128::from(u64::MAX)) as u64;
        let due = (second * u128::from(self.here(now, time)) / 1_000_000_000) as u64;
        let due = due + due / 50;
        self.lag = (self.lag + due).saturating_sub(total);
        let few = 4 * (total / self.window.done).max(1) + (second / 200) as u64;
        // What it has is the reference less what the others' part of a turn takes, and that part is as long as their pace is large.
        let (rate, due_rate) = (u128::from(self.rate(time)), second * 51 / 50);
        let spare = u128::from(self.share.reference).saturating_sub(due_rate) * u128::from(WHOLE);
        let taken = u128::from(self.share.reference).saturating_sub(rate).max(1);
        Some(Judged {
            kept: total.saturating_mul(WHOLE).checked_div(due).unwrap_or(WHOLE),
            factor: (spare / taken).clamp(u128::from(WHOLE) / 4, 2 * u128::from(WHOLE)) as u64,
            behind: self.lag > few,
        })
    }
}
