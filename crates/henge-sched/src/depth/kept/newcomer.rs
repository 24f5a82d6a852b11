//! A look at who came while others are held back.
//!
//! **Problem.** Who was not there when others were held back for somebody's sake may be short as well, and is held back with them. Whether it is short shows
//! what it has alone. To let all go again and to begin anew says so, too, and costs those who are protected most of what they have for half a second.
//!
//! **Rule.** In one turn of the others all but the newcomer are stopped after 9/16 of it. From 11/16 on the newcomer sends what it likes. In the last quarter
//! its work is measured while nothing else is at the device. It is short if what it had until then, held back, is less than its weight's part of
//! that. Then others are held back for its sake as well. It is held to its due for 64 turns at first, as whoever takes more than that (`shares.rs`).
//!
//! One newcomer has a look: the heaviest, and of equals the one that had the least of its share. The next one has its look after 16 turns, then 32, to 1024 where
//! newcomers do not end.
//!
//! **Price.** Those who are protected lose half a turn, and what the newcomer's requests leave in the device's buffers.

use super::shares::Shares;
use super::{Kept, NO_END, SAMPLES, per_second};
use henge_core::{FlowId, Instant, Request};

/// Sixteenths of a turn: all others are stopped; the newcomer goes; and it is measured.
const STOPPED: u64 = 9;
const GOES: u64 = 11;
const MEASURED: u64 = 12;

/// Turns from a look at who came to the next one, at first and at most, where flows come again and again.
const CAME: u64 = 16;
const CAME_MAX: u64 = 1024;

/// Turns from any look at one flow to one at another that was measured before.
const AGAIN: u64 = 4;

/// Which flows were looked at last, when that was, and for how many turns nobody looks again for the sake of who comes.
pub(super) struct Look {
    pub number: u64,
    pub at: Instant,
    pub turns: u64,
}

impl Look {
    pub fn new() -> Self {
        Look { number: 0, at: Instant::ZERO, turns: CAME }
    }

    /// Whether the last look at a newcomer is long enough ago for one at a flow that was looked at before.
    pub fn may_be_again(&self, turn: u64, now: Instant) -> bool {
        now.since(self.at).as_nanos() / turn >= AGAIN
    }

    /// Who comes is looked at after so many turns; twice as many, where others came not long before.
    pub fn again(&mut self, turns: u64) {
        let soon = turns < 2 * self.turns;
        self.turns = if soon { (2 * self.turns).min(CAME_MAX) } else { CAME };
    }
}

/// What a look at a newcomer means for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// Nothing.
    Not,
    /// It is another flow's, and waits for the next turn.
    Held,
    /// It is the newcomer's, and goes from this instant on.
    Soon(Instant),
    /// It goes.
    Goes,
}

/// Who came, and what it does alone.
pub(super) struct Newcomer {
    flow: FlowId,
    /// In which turn it is measured.
    turn: u64,
    last: Option<Instant>,
    ns: u64,
    work: u64,
}

impl Newcomer {
    /// From the next turn on.
    fn new(flow: FlowId, turn: u64, now: Instant) -> Self {
        Newcomer { flow, turn: now.as_nanos() / turn + 1, last: None, ns: 0, work: 0 }
    }

    /// Whether it is this flow's look: it is gone, or was promised something else.
    pub fn is_of(&self, flow: FlowId) -> bool {
        self.flow == flow
    }

    /// The next turn begins.
    pub fn again(turn: u64, now: Instant) -> Instant {
        Instant::from_nanos((now.as_nanos() / turn + 1) * turn)
    }

    pub fn admits(&self, flow: FlowId, turn: u64, now: Instant) -> Apart {
        let (number, at) = (now.as_nanos() / turn, now.as_nanos() % turn);
        match (number == self.turn, flow == self.flow) {
            (true, true) if at >= turn / 16 * GOES => Apart::Goes,
            (true, true) => Apart::Soon(Instant::from_nanos(number * turn + turn / 16 * GOES)),
            (true, false) if at >= turn / 16 * STOPPED => Apart::Held,
            _ => Apart::Not,
        }
    }

    /// A request is over, and only the flow's own are at the device, or not.
    pub fn over(&mut self, request: &Request, alone: bool, turn: u64, now: Instant) {
        let (number, at) = (now.as_nanos() / turn, now.as_nanos() % turn);
        if request.flow != self.flow || !alone || number != self.turn || at < turn / 16 * MEASURED {
            self.last = None;
            return;
        }
        if let Some(last) = self.last.replace(now) {
            self.ns += now.since(last).as_nanos();
            self.work += super::work(request);
        }
    }

    /// What it does a second alone, once its turn is over; none where that was not seen.
    fn reference(&self, turn: u64, now: Instant) -> Option<Option<u64>> {
        let over = now.as_nanos() / turn > self.turn;
        over.then(|| (self.ns >= turn / 64).then(|| per_second(self.work, self.ns)))
    }
}

impl Shares {
    /// The flow is measured in the next turn.
    pub fn measure_alone(&mut self, id: FlowId, turn: u64, now: Instant) {
        self.look.at = now;
        self.newcomer = Some(Newcomer::new(id, turn, now));
    }
}

impl Kept {
    /// Begins a look, where somebody came that has little, and nothing else is being tried.
    pub(super) fn look_at_who_came(&mut self, now: Instant, time: u64) {
        let look = &self.shares.look;
        let turns = now.since(look.at).as_nanos() / self.pace.turn;
        let calm = self.pace.is_set() && self.pace.search.is_none() && !self.pace.settles();
        if turns < look.turns || !calm {
            return;
        }
        let (all, number) = (self.all(now, time), look.number);
        let new = |id: &FlowId| {
            let flow = self.flows.get(*id)?;
            let new =
                flow.share.look != number && flow.came < self.window.number && flow.window.done >= SAMPLES;
            let weight = u64::from(flow.promise.weight);
            (new && all.has_little(flow)).then_some((
                weight,
                std::cmp::Reverse(flow.window.total / weight.max(1)),
                *id,
            ))
        };
        let Some((_, _, id)) = self.window.active.iter().filter_map(new).max() else { return };
        self.shares.look.again(turns);
        if let Some(flow) = self.flows.get_mut(id) {
            flow.share.came(number, all.is_heavier(flow), flow.rate(time));
        }
        self.shares.measure_alone(id, self.pace.turn, now);
    }

    /// The look is over, or its turn is not.
    pub(super) fn conclude_newcomer(&mut self, now: Instant) {
        let Some(newcomer) = &self.shares.newcomer else { return };
        let Some(reference) = newcomer.reference(self.pace.turn, now) else { return };
        let (id, all, others) = (newcomer.flow, self.weights().all, self.window.others());
        self.shares.newcomer = None;
        let turn = self.pace.turn;
        if let Some(flow) = self.flows.get_mut(id).filter(|_| self.pace.allowed != NO_END) {
            let weight = u64::from(flow.promise.weight);
            let Some(reference) = reference else {
                // It was not seen alone. If it came, it still is one who came.
                if flow.share.protected {
                    flow.share.is_known(turn, now);
                } else {
                    flow.share.look = 0;
                }
                return self.begin_judging_anew(now);
            };
            if flow.is_short_of(reference, all, turn, now) && others > weight {
                let rest = u128::from(self.pace.allowed) * u128::from(others - weight) / u128::from(others);
                self.pace.allowed = (rest as u64).max(1);
            }
        }
        self.begin_judging_anew(now);
    }

    /// What was had in the newcomer's turn says nothing of the pace.
    fn begin_judging_anew(&mut self, now: Instant) {
        self.forgive();
        let before = self.window.before.flows;
        self.restart(now);
        self.window.before.flows = self.window.before.flows.max(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_again_and_again_is_looked_at_less_often() {
        let mut look = Look::new();
        for turns in [32, 64, 128, 256, 512, 1024, 1024] {
            look.again(look.turns);
            assert_eq!(look.turns, turns);
        }
        look.again(2047);
        assert_eq!(look.turns, CAME_MAX);
        look.again(2048);
        assert_eq!(look.turns, CAME, "nobody came for long");
    }
}
