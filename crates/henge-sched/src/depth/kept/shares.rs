//! Shares by weight as promises, where nobody was promised a rate or a latency, and `shares = true` asks for it.
//!
//! **Problem.** A scheduler shares what it charges among those who wait. Whoever has fewer requests outstanding than there are places never waits at
//! the gate, and is slowed down at the device by whoever fills the other places: 16 KiB reads, eight outstanding, four times as heavy as 1 MiB writes, had
//! 0.15 of what they have alone instead of 0.8. And whoever waits is served by what is charged: a trim of 4 KiB counts as little as a read, and may
//! take the device for longer than ten.
//!
//! **Rule.** A flow is *behind* in a window if it had less than 3/4 of its share of what was charged, or of the places at the device, and had at least an
//! eighth of the places' number outstanding. Whoever is heavier than the average, and hardly waits at the gate, is looked at
//! as if it were. What it would have alone nobody knows, so the others are held back for half a turn. In its last quarter,
//! while nothing of them is at the device, the flow's work a second is its reference. It is due
//!
//! ```text
//!   reference · W / (W + V)         W: weights of the flows behind, V: of the others
//! ```
//!
//! for as long as it has something here. If it had that before, the pace is lifted, and the flow is not looked at for 64 turns, then 128, to 1024, unless it
//! loses a quarter of what it had. Nor is any other flow for 64 turns, unless it has lost a quarter since this look: else a neighbour's calm would be
//! good for a flood of so many turns. Two thirds of its due are enough for a flow that is no heavier than the others: nobody said whose requests are worth
//! the others' waiting, and tenants who merely have more outstanding are no harm.
//! If not, the others have a pace, from V / (W + V) of what they sent, which is judged turn by turn as that for a rate is ([`Kept`](super::Kept)). Each turn
//! ends without the others, so each turn measures the reference anew. Once a flow is behind that was not there when this began, it is looked at while the
//! others stay held back (`newcomer.rs`). Who came and is not behind is no reason. Where no share shows that anybody
//! lacks something, the window in which somebody came is not looked at, but the next one is.
//!
//! Some of those behind may be so because of others of them: a flood has few of the places beside a third flow's many small requests. So where some have little
//! beside the rest of those behind, they have a trial of their own, and then the rest has one; so on within either, [`SPLITS`] times at most. Where each has
//! little of something, those with few places are told from the rest: writes of 512 bytes cost little, and keep the device from a reader. Once a set is short no
//! further trial follows, which would hold it back: those of the rest are looked at as who comes is. Each of these
//! sets is due its weights' part of what it has alone. Those that had less are protected, and no others: whoever has much by itself is found out, and
//! whoever is short is not left out because another one is shorter.
//!
//! Of several sets each is measured by itself only. Whoever is protected and has more than 1.25 of its due, while another one is short, is *bounded* for 64 turns,
//! then 128, to 1024: it sends its due at the beginning of each turn. If it has half as much again as another one nevertheless, it may not be what it was measured
//! as. Then it is measured anew, as who comes is: not for the sake of one who was there for less than half of the window, and
//! not for 16 turns, then 32, then 64, if the last time showed nothing new.
//!
//! Whoever was not seen alone in its trial, or was away when that ended, is neither short nor has enough: it is one who comes. Whoever is heavier than the
//! average, and had enough in its last trial, keeps its due while others have theirs, as far as [`LEFT`] of a turn reaches for all of these.
//!
//! A device goes on with what others left in its buffers, and what a flow has alone is more than it shows then. So nobody has enough by one trial: another one
//! follows at half of the pace, and again while it shows a tenth more.
//!
//! **Why turns.** To hold back writes evenly leaves some die programming at all times, and a reader of all dies meets it. All writes in one part of a
//! turn cost the reader that part. So each has about its share of what it has alone, and both together what the device gives one of them.
//!
//! **Why not by cost.** Learned time divides the device by what each kind and length takes of it. Where small requests always wait for long ones inside
//! the device, nothing that a gate sees tells their times apart (`cost/time.rs`). Half a turn without the others does.

use super::newcomer::{Look, Newcomer};
use super::quiet::Quiet;
use super::share::{All, Looked, SHORT, Weights};
use super::watched::{Respite, Watched};
use super::{Kept, NO_END, WHOLE, per_second};
use crate::Flows;
use henge_core::{FlowId, Instant};

/// A trial holds others back to no less than this part of what they sent.
const GENTLE: u64 = 16;

/// Turns from a trial that found nothing to the next.
pub(super) const TRIAL: u64 = 64;

/// Who has so much of its due, in thousandths, while another one is short, is held to its due.
const MUCH: u64 = 1250;

/// The part of a turn that is left to the dues of others in a trial.
const LEFT: (u128, u128) = (5, 8);

/// How often those behind are measured apart.
const SPLITS: u32 = 3;

/// Weights as promises.
pub(super) struct Shares {
    /// They are promises, where nobody was promised more.
    pub wanted: bool,
    /// Others are held back for a turn, to see what that does for whom.
    pub trial: bool,
    pub quiet: Quiet,
    /// It came while others were held back, and is looked at.
    pub newcomer: Option<Newcomer>,
    pub look: Look,
    /// How often those behind were divided since the last look.
    splits: u32,
    /// The window before this one was not looked at for the sake of who came.
    waited: bool,
}

impl Shares {
    pub fn new(wanted: bool) -> Self {
        Shares {
            wanted,
            trial: false,
            quiet: Quiet::default(),
            newcomer: None,
            look: Look::new(),
            splits: 0,
            waited: false,
        }
    }

    /// Somebody came in this window, and no share shows that anybody has little: what was done in it was mostly done without that one. The next one says more. A
    /// window is waited for once, or whoever comes all the time would never be seen.
    fn waits_for_who_came(&mut self, came: bool, little: bool) -> bool {
        self.waited = came && !little && !self.waited;
        self.waited
    }
}

/// So much of an amount as one is of another.
fn part(amount: u64, one: u64, another: u64) -> u64 {
    (u128::from(amount) * u128::from(one) / u128::from(another.max(1))) as u64
}

/// All are behind in something: those with few places have the trial, and the others one after it. How many have it.
fn tell_by_places(active: &[FlowId], flows: &mut Flows<Watched>, all: &All) -> usize {
    let mut behind = 0;
    for id in active {
        let Some(flow) = flows.get_mut(*id) else { continue };
        flow.share.protected = all.has_few_places(flow);
        flow.share.looked = if flow.share.protected { Looked::Now } else { Looked::Later };
        behind += usize::from(flow.share.protected);
    }
    behind
}

/// Whoever is worth more than others, and had enough when it was measured lately, keeps its due while these are. Of all dues no more is left than makes
/// [`LEFT`] of a turn, or nothing would be quiet at its end. `all`: the weights of all.
fn leave_dues(active: &[FlowId], flows: &mut Flows<Watched>, all: u128, now: Instant) {
    let keeps = |flow: &Watched| flow.share.heavier && !flow.share.protected && flow.had_enough(now);
    let theirs = active.iter().filter_map(|id| flows.get(*id)).filter(|flow| keeps(flow));
    let all = all.max(theirs.map(|flow| u128::from(flow.promise.weight)).sum::<u128>() * LEFT.1 / LEFT.0);
    for id in active {
        let Some(flow) = flows.get_mut(*id).filter(|flow| keeps(flow)) else { continue };
        let due = u128::from(flow.share.left.alone) * u128::from(flow.promise.weight) / all.max(1);
        flow.share.left.floor = due.min(u128::from(u64::MAX)) as u64;
    }
}

/// No due is left any more; whether one was.
fn leave_nothing(active: &[FlowId], flows: &mut Flows<Watched>) -> bool {
    let mut any = false;
    for id in active {
        let Some(flow) = flows.get_mut(*id) else { continue };
        any |= std::mem::take(&mut flow.share.left.floor) > 0;
    }
    any
}

impl Kept {
    /// Whether weights are promises here and now.
    pub(super) fn weights_count(&self) -> bool {
        self.shares.wanted && self.firm == 0
    }

    pub(super) fn weights(&self) -> Weights {
        let own = self.window.seen.protected;
        Weights { own, beside: self.window.seen.beside, all: own + self.window.others() }
    }

    /// A protected flow was kept as badly as this: whoever else is protected and has much is held to its due from now on. Whoever has half as much again as that
    /// by a due that does not say so, or in spite of it, is measured anew. Whether there is such a flow.
    pub(super) fn bound_who_takes_much(&mut self, worst: u64, now: Instant, time: u64) -> bool {
        let (own, turn) = (self.window.seen.protected, self.pace.turn);
        let judged = |flow: &&Watched| flow.window.done > 0 && flow.share.reference > 0;
        let there = |flow: &&Watched| judged(flow) && flow.here(now, time) >= time / 2;
        let least = self.protected().filter(there).map(|flow| flow.kept).min().unwrap_or(WHOLE);
        let (mut any, mut most) = (false, (least.saturating_add(least / 2), None));
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.share.protected) else { continue };
            flow.share.bounded &= now < flow.share.bound_for.until;
            if worst >= SHORT || flow.window.done == 0 {
                continue;
            }
            if flow.kept > MUCH && !flow.share.bounded {
                flow.share.bound(turn, now);
                any = true;
            } else if least < SHORT
                && flow.share.with < own
                && flow.kept > most.0
                && now >= flow.share.known.0
            {
                most = (flow.kept, Some(*id));
            }
        }
        let (kept, Some(id)) = most else { return any };
        if any || !self.shares.look.may_be_again(turn, now) {
            return any;
        }
        if let Some(flow) = self.flows.get_mut(id) {
            flow.share.before = flow.rate(time);
            flow.share.due = part(flow.share.before, least, kept);
            flow.share.bound(turn, now);
            self.shares.measure_alone(id, turn, now);
        }
        true
    }

    /// A window without a pace, or a trial.
    pub(super) fn consider(&mut self, now: Instant, time: u64) {
        if self.shares.trial {
            self.shares.trial = false;
            return self.conclude(now, time);
        }
        self.pace.window_over(self.window.seen.cost, time);
        let all = self.all(now, time);
        if self.pace.patience.0 > 0 && !self.has_lost(&all) {
            return;
        }
        let active = || self.window.active.iter().filter_map(|id| self.flows.get(*id));
        if self.shares.waits_for_who_came(
            active().any(|flow| flow.came == self.window.number),
            active().any(|flow| all.has_little(flow)),
        ) {
            return;
        }
        (self.shares.look.number, self.shares.look.at) = (self.shares.look.number + 1, now);
        self.shares.splits = 0;
        let mut behind = 0;
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id) else { continue };
            flow.share.heavier = all.is_heavier(flow);
            (flow.share.before, flow.share.reference) = (flow.rate(time), 0);
            (flow.lag, flow.share.look, flow.share.former, flow.share.left.floor) =
                (0, self.shares.look.number, 0, 0);
            (flow.share.bounded, flow.share.bound_for) = (false, Respite::default());
            flow.share.known = Default::default();
            flow.share.protected =
                all.may_be_short(flow) && flow.came < self.window.number && !flow.had_enough(now);
            flow.share.looked = if flow.share.protected { Looked::Now } else { Looked::Not };
            behind += usize::from(flow.share.protected);
        }
        if behind == self.window.seen.flows as usize {
            behind = tell_by_places(&self.window.active, &mut self.flows, &all);
        }
        if behind > 0 && behind < self.window.seen.flows as usize {
            // What they sent at most lately may be more than the device does for long, and then nothing would be quiet.
            let done = per_second(self.window.seen.cost, time);
            self.pace.sent = if done > 0 { done } else { self.pace.sent };
            leave_dues(&self.window.active, &mut self.flows, all.weights, now);
            self.begin_trial(now);
        }
    }

    /// The others have half of what they sent, for a turn.
    fn begin_trial(&mut self, now: Instant) {
        (self.shares.trial, self.pace.allowed) = (true, self.pace.sent / 2);
        self.pace.settle(self.inside, now);
    }

    /// What the flows of this window had.
    pub(super) fn all(&self, now: Instant, time: u64) -> All {
        let active = || self.window.active.iter().filter_map(|id| self.flows.get(*id));
        All {
            now,
            time,
            depth: u64::from(self.part.of(self.most)),
            flows: self.window.active.len() as u128,
            weights: active().map(|flow| u128::from(flow.promise.weight)).sum(),
            work: active().map(|flow| u128::from(flow.window.total)).sum(),
            cost: self.window.seen.all_cost,
            places: self.window.seen.places,
        }
    }

    /// Whether a flow has less than its share now, and a quarter less than at the last look. Others may have made a calm then.
    fn has_lost(&self, all: &All) -> bool {
        let lost = |flow: &Watched| {
            let share = &flow.share;
            share.look == self.shares.look.number
                && flow.rate(all.time) * 4 < share.before * 3
                && all.may_be_short(flow)
        };
        self.window.active.iter().filter_map(|id| self.flows.get(*id)).any(lost)
    }

    /// A trial is over: who had it is short or not, and once nobody is to have another one, the others have a pace from now on for the sake of the short ones.
    fn conclude(&mut self, now: Instant, time: u64) {
        let Weights { own: with, all, .. } = self.weights();
        let there = self.protected().any(|flow| flow.here(now, time) >= time / 4 * 3);
        if there && !self.shares.quiet.suffices(time) {
            // The others were at the device to the end. Dues that leave nothing quiet at the least pace are not left.
            if self.pace.allowed > self.pace.sent / GENTLE
                || leave_nothing(&self.window.active, &mut self.flows)
            {
                return self.halve(now);
            }
        }
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.share.protected) else { continue };
            flow.share.learn(&flow.window, &self.shares.quiet, time);
        }
        if self.divides(now, time) {
            return self.begin_trial(now);
        }
        let short = self.is_short(with, all);
        if (!short || self.shares.splits > 0) && self.rises() {
            return self.halve(now);
        }
        if self.goes_on(short, with, now) {
            return self.begin_trial(now);
        }
        let own = self.protect_short();
        if own > 0 {
            let rest =
                u128::from(self.pace.sent) * u128::from(all.saturating_sub(own)) / u128::from(all.max(1));
            self.pace.set(rest as u64);
        } else {
            self.pace.allowed = NO_END;
            self.pace.patience.0 = TRIAL * self.pace.turn;
        }
    }

    /// Another trial of the same flows, at half of the pace.
    fn halve(&mut self, now: Instant) {
        (self.shares.trial, self.pace.allowed) = (true, self.pace.allowed / 2);
        self.pace.settle(self.inside, now);
    }

    /// Those of this window for whose sake others are held back.
    pub(super) fn protected(&self) -> impl Iterator<Item = &Watched> {
        let active = self.window.active.iter().filter_map(|id| self.flows.get(*id));
        active.filter(|flow| flow.share.protected)
    }

    /// Whether one of them had less than its due before.
    fn is_short(&self, with: u64, all: u64) -> bool {
        self.protected().any(|flow| flow.share.was_short(with, all))
    }

    /// Some of them have little beside the others of them: they have the trial that follows, and the others one after it. Where each has little of something,
    /// they are those with few places: small requests of the others may cost little and keep the device busy.
    fn divides(&mut self, now: Instant, time: u64) -> bool {
        let mut all = All { flows: 0, weights: 0, cost: 0, places: 0, ..self.all(now, time) };
        for flow in self.protected() {
            all.flows += 1;
            all.weights += u128::from(flow.promise.weight);
            all.cost += u128::from(flow.window.cost);
            all.places += u128::from(flow.window.places);
        }
        let count = |few: fn(&All, &Watched) -> bool| {
            let behind = self.protected().filter(|flow| few(&all, flow)).count();
            (behind > 0 && (behind as u128) < all.flows).then_some(few)
        };
        let few = count(All::has_little).or_else(|| count(All::has_few_places));
        let Some(few) = few.filter(|_| self.shares.splits < SPLITS) else { return false };
        self.shares.splits += 1;
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.share.protected) else { continue };
            (flow.share.reference, flow.share.former) = (0, 0);
            flow.share.protected = few(&all, flow);
            flow.share.looked = if flow.share.protected { Looked::Now } else { Looked::Later };
        }
        true
    }

    /// Those who had the trial, of these weights together, are short or not; whether others have one now. A further trial would hold back those who are short, so
    /// the others are looked at as who comes is, the heaviest first.
    fn goes_on(&mut self, short: bool, with: u64, now: Instant) -> bool {
        let (mut goes_on, mut next, look) = (false, None, self.shares.look.number);
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.share.look == look) else { continue };
            match flow.share.looked {
                Looked::Now => {
                    let seen = flow.share.reference > 0;
                    flow.share.looked = if short && seen { Looked::Short } else { Looked::Not };
                    // Of who was not there at the end nothing is known: it is one who comes.
                    flow.share.look = if short && !seen { 0 } else { look };
                    (flow.share.protected, flow.share.with) = (false, with);
                    flow.share.left.alone = part(flow.share.reference, with, u64::from(flow.promise.weight));
                    if short || seen {
                        flow.had(short, self.pace.turn, now);
                    }
                }
                Looked::Later if short => {
                    (flow.share.looked, flow.share.look) = (Looked::Not, 0);
                    next = next.max(Some((flow.promise.weight, *id)));
                }
                Looked::Later => {
                    (flow.share.looked, flow.share.protected) = (Looked::Now, true);
                    goes_on = true;
                }
                Looked::Not | Looked::Short => {}
            }
        }
        if let Some((_, id)) = next {
            if let Some(flow) = self.flows.get_mut(id) {
                flow.share.look = look;
            }
            self.shares.measure_alone(id, self.pace.turn, now);
        }
        goes_on
    }

    /// Others are held back for the sake of all who were found short; their weights together.
    fn protect_short(&mut self) -> u64 {
        let look = self.shares.look.number;
        let is_short = |flow: &Watched| flow.share.looked == Looked::Short && flow.share.look == look;
        let active = self.window.active.iter().filter_map(|id| self.flows.get(*id));
        let own =
            active.filter(|flow| is_short(flow)).map(|flow| u64::from(flow.promise.weight)).sum::<u64>();
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id) else { continue };
            flow.share.protected = is_short(flow);
        }
        own
    }

    /// What they have alone may be more yet, while the device is about what the others left in its buffers: another trial at half of the pace says.
    fn rises(&mut self) -> bool {
        let rises =
            |flow: &Watched| u128::from(flow.share.reference) * 10 > u128::from(flow.share.former) * 11;
        if self.pace.allowed <= self.pace.sent / GENTLE || !self.protected().any(rises) {
            return false;
        }
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.share.protected) else { continue };
            (flow.share.former, flow.share.reference) = (flow.share.reference, 0);
        }
        true
    }
}

#[cfg(test)]
mod tests;
