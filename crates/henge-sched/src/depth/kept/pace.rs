//! The pace of those who are held back: how it is looked for, grows, and is given up ([`Kept`](super::Kept) says the rule).

use super::watched::Judged;
use super::{MORE, NO_END, PATIENCE, WHOLE, per_second};
use henge_core::Instant;

/// What was sent at the former pace is waited for no longer than this.
const SETTLES: u64 = 2_000_000_000;
/// A promise counts as kept from here on, where a window judges.
const KEPT: u64 = 980;
/// A promise of which no pace keeps so much has no use of one.
pub(super) const NEARLY: u64 = 750;
/// A search that gives less than this more was of no use.
const WORTH: u64 = 1100;
/// The least pace is this part of what was done without one.
const LEAST: u64 = 64;
/// A pace becomes smaller by no less than this, in thousandths.
const LESS: u64 = 950;
/// Windows in which all was kept, before the pace grows.
const GOOD: u32 = 4;
/// Windows for which a pace that was too much is not tried again.
const MEMORY: u32 = 64;
/// Windows at the least pace before a search is in vain.
const BOTTOM: u32 = 8;
/// Turns of those who are held back last so many times what their requests take at the device, within these bounds.
const TURN: (u64, u64) = (64_000_000, 500_000_000);
const TURN_REQUESTS: u64 = 16;

/// What is being looked for: paces, with how well the worst kept was kept there.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// What the others did a second before, and how well the promises were kept there, once that was measured.
    from: Option<(u64, u64)>,
    best: (u64, u64),
    /// The pace before.
    before: u64,
    /// Windows at the least pace.
    bottom: u32,
}

/// What was sent at the former pace is not over yet.
#[derive(Clone, Copy)]
enum Settling {
    /// The scheduler has some of it, so many requests at most.
    Inside(u32),
    /// The device has, so many requests at most.
    UnderWay(u32),
}

/// What a window did to a search.
#[derive(PartialEq, Eq)]
pub(super) enum Searched {
    GoesOn,
    Over,
    /// Not even the least pace keeps some promises.
    InVain,
}

/// What the others may do.
pub(super) struct Pace {
    /// What they may do a second, while some are there; no end where none is needed.
    pub allowed: u64,
    /// How long a turn of theirs lasts, in ns.
    pub turn: u64,
    /// What they sent a second at most lately; it fades by an eighth a window.
    pub sent: u64,
    /// When the next request of whoever was removed might have come in.
    pub gone: Instant,
    /// Somebody was held back by it.
    pub pressed: bool,
    settling: Option<(Settling, Instant)>,
    pub search: Option<Search>,
    pub good: u32,
    /// The pace before it grew last.
    former: u64,
    /// This pace was too much, and for how many windows that is remembered.
    too_much: (u64, u32),
    /// For how many such a pace is remembered next time.
    memory: u32,
    /// In ns until the next search, and in turns after the next one in vain.
    pub patience: (u64, u32),
    /// The last search found where all is kept.
    found: bool,
}

/// So many thousandths of a pace.
fn part(pace: u64, thousandths: u64) -> u64 {
    (u128::from(pace) * u128::from(thousandths) / u128::from(WHOLE)) as u64
}

impl Pace {
    pub fn new() -> Self {
        Pace {
            allowed: NO_END,
            turn: TURN.0,
            sent: 0,
            gone: Instant::ZERO,
            pressed: false,
            settling: None,
            search: None,
            good: 0,
            former: NO_END,
            too_much: (NO_END, 0),
            memory: MEMORY,
            patience: (0, PATIENCE.0),
            found: true,
        }
    }

    pub fn is_set(&self) -> bool {
        self.allowed != NO_END
    }

    /// Promises changed: the next search need not wait.
    pub fn promises_changed(&mut self) {
        (self.patience, self.found) = ((0, PATIENCE.0), true);
    }

    /// From now on it is `allowed`, without a search.
    pub fn set(&mut self, allowed: u64) {
        self.allowed = allowed;
        (self.search, self.found, self.good, self.former) = (None, true, 0, allowed);
        self.patience = (0, PATIENCE.0);
    }

    /// Turns last by what requests take at the device: `done` of them took `service` in all.
    pub fn set_turn(&mut self, service: u64, done: u64) {
        if let Some(turn) = TURN_REQUESTS.saturating_mul(service).checked_div(done) {
            self.turn = turn.clamp(TURN.0, TURN.1);
        }
    }

    /// A window of `time` is over, in which the others sent work of `cost`.
    pub fn window_over(&mut self, cost: u64, time: u64) {
        self.sent = (self.sent - self.sent / 8).max(per_second(cost, time));
        self.patience.0 = self.patience.0.saturating_sub(time);
    }

    /// A pace that was too much is remembered for a window less.
    pub fn forget(&mut self) {
        self.too_much.1 = self.too_much.1.saturating_sub(1);
    }

    /// The pace changed to a smaller one: nothing is judged until what was sent before is over. The scheduler has so many requests of it `inside`.
    pub fn settle(&mut self, inside: u32, now: Instant) {
        self.settling = Some((Settling::Inside(inside), now));
    }

    /// A request that may have been sent at the former pace went to the device. Whoever fills the scheduler anew all the time delays no judgement.
    pub fn went(&mut self) {
        if let Some((Settling::Inside(left), _)) = &mut self.settling {
            *left = left.saturating_sub(1);
        }
    }

    pub fn settles(&self) -> bool {
        self.settling.is_some()
    }

    /// Whether what was sent before is over now. The scheduler has few of the others' requests, or not; the device has `in_flight` of all.
    pub fn has_settled(&mut self, few_inside: bool, in_flight: u32, now: Instant) -> bool {
        let Some((state, since)) = self.settling else { return true };
        let state = match state {
            Settling::Inside(left) if few_inside || left == 0 => Settling::UnderWay(in_flight),
            Settling::UnderWay(n) => Settling::UnderWay(n.saturating_sub(1)),
            state => state,
        };
        let over = matches!(state, Settling::UnderWay(0)) || now.since(since).as_nanos() > SETTLES;
        self.settling = (!over).then_some((state, since));
        over
    }

    /// A promise is broken: the pace before is taken again, or another one is looked for.
    pub fn begin(&mut self, Judged { kept, factor, .. }: Judged) {
        if self.former > self.allowed && self.former != NO_END {
            self.former = self.allowed; // it never grew
        }
        if self.former < self.allowed && self.is_set() && self.good < 2 * GOOD {
            // It grew lately, and that was too much.
            self.memory = (self.memory * 2).min(PATIENCE.1);
            self.too_much = (self.allowed, self.memory);
            // A step further back: what gathered at the device meanwhile is to go as well.
            self.allowed = self.former - self.former / 8;
        } else if !self.found {
            // What was true of smaller paces then may not be now.
            self.allowed = NO_END;
            self.search = Some(Search { from: None, best: (NO_END, 0), before: NO_END, bottom: 0 });
        } else {
            let (from, before) = (self.allowed.min(self.sent), self.allowed);
            self.search = Some(Search { from: Some((from, kept)), best: (before, kept), before, bottom: 0 });
            self.allowed = part(from, factor.min(LESS)).max(1);
            (self.too_much, self.memory) = ((from, MEMORY), MEMORY);
        }
        (self.good, self.former) = (0, self.allowed);
    }

    pub fn go_on(&mut self, search: Search, Judged { kept, factor, .. }: Judged) -> Searched {
        let from = search.from.unwrap_or((self.sent, kept));
        let best = if kept > search.best.1 { (self.allowed, kept) } else { search.best };
        let least = (from.0 / LEAST).max(1);
        let here = self.allowed.min(from.0);
        // What the device has in buffers of its own goes on for a while: at the least pace it is given time.
        if kept < KEPT && (here > least || search.bottom < BOTTOM) {
            let bottom = if here > least { 0 } else { search.bottom + 1 };
            self.too_much = (here, MEMORY);
            self.allowed = part(here, factor.min(LESS)).max(least);
            self.search = Some(Search { from: Some(from), best, bottom, ..search });
            return Searched::GoesOn;
        }
        self.search = None;
        self.found = kept >= KEPT;
        let mut searched = Searched::Over;
        if self.found {
            self.patience = (0, PATIENCE.0);
        } else if best.1 >= NEARLY {
            let worth = best.1.saturating_mul(WHOLE) >= from.1.saturating_mul(WORTH);
            self.allowed = if worth { best.0 } else { NO_END };
            self.patience = (u64::from(self.patience.1) * self.turn, (self.patience.1 * 2).min(PATIENCE.1));
        } else {
            self.allowed = search.before;
            searched = Searched::InVain;
        }
        (self.good, self.former) = (0, self.allowed);
        searched
    }

    /// All was kept.
    pub fn grow(&mut self, factor: u64) {
        self.good = self.good.saturating_add(1);
        let soon = factor > MORE;
        if !(soon || self.good.is_multiple_of(GOOD)) || !self.pressed || !self.is_set() {
            return;
        }
        let more = part(self.allowed, factor.max(MORE)).max(self.allowed + 1);
        // Where that was too much lately, half of the way is not.
        let half = self.allowed + (self.too_much.0.saturating_sub(self.allowed)) / 2;
        let more = if soon && self.too_much.1 > 0 { more.min(half) } else { more };
        if self.too_much.1 == 0 || more < self.too_much.0 {
            (self.former, self.allowed, self.good) = (self.allowed, more, 0);
        }
    }
}
