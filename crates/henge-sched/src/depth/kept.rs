//! Depth by promises kept: the stated depth, and before it a pace for whoever breaks another's promise.
//!
//! **Problem.** Whom the scheduler prefers waits all the same for whatever the device has already. With 32 places and a flood of
//! writes, a reader with eight requests outstanding never waits at the gate, so there is nothing to decide: it is slowed down at the device, whatever was
//! promised. Nor does a smaller depth help it always: on flash one write at a time keeps nearly all dies busy, and a reader finds them so. And a small depth
//! costs everybody's throughput for the sake of one.
//!
//! **Rule.** Each promise is measured in windows of at least 10 ms and 32 of the flow's completions (at most 250 ms), as what was had of what is due:
//!
//! ```text
//!   rate r       done / ( 1.02 · r · (window − idle) )       idle: nothing of it was here, for longer than its requests take
//!   latency l    in time / ( percentile · done )
//! ```
//!
//! A shortfall adds up until it is more than a few requests and half a percent of a second's promise. Then the *others* are held back: those that were
//! promised neither, and those that have more than twice theirs. Together they may send the scheduler a pace P of work a second, divided by weight, and 1.5 of
//! what they are promised besides.
//!
//! ```text
//!   looked for    P ← P · kept / 2      from what they sent a second lately; until every promise is kept
//!   kept          P ← P + P/8           after each four windows, while somebody is held back by it
//!   broken again  P ← 7/8 · P before    and where that was too much is not tried for 64 windows
//! ```
//!
//! A window begins when what was sent at the former pace is over. Where somebody was promised a rate or a latency, none of the others has more than
//! `most` requests in the scheduler: what it has, a pace does not hold back any more. FLUSHes are held as any other request, and an administrator's work is not.
//!
//! If no pace keeps all, the one is taken at which the worst kept was kept best. If that is not a tenth better than before, to hold
//! back is no remedy: the pace is lifted, and for 16 windows, then 32, to 1024, nobody looks again. Whoever is alone is never held back.
//!
//! **Example.** `nvme-dc`, 16 KiB reads, eight outstanding, `rate = "18777/s"`, a third of what it has alone, beside 1 MiB writes. The reader has
//! 8,400/s, 0.45 of it: after 10 ms it lacks 100 commands. At 0.22 of the writes' pace it has 23,000/s; P grows to where it is 18,777/s.
//!
//! **Guarantee.** Where some pace keeps all promises that stand against each other, one within a factor of four is found in log₂ of R/P windows, and is known from
//! then on, whether the others are there or not. Where none does, the others lose what one search in 1024 windows takes. Whoever asks for less than was
//! promised breaks nothing, and holds back nobody. A held request is let in within 10 ms of its time.
//!
//! **Where it falls short.** A weight is no promise here: of two flows with few requests outstanding one is slowed down at the device by the other as before.
//! A pace that was too much breaks the promise for a window or two, and what it has beyond at other times makes that good on average, not in that second.
//! A search takes as long as the device takes for what it has. On `sata-ssd`, whose buffer is full of the others' writes, a writer had half of what it was
//! promised in the first three seconds. On the hard disk `dtla-307075` nothing was found within 11 s; there a small depth, or `locality`, keeps promises.
//!
//! **Price.** Some 20 ns a request, 150 bytes a flow, and a look at up to 64 flows at the end of a window. Work that is held back is not done.
//!
//! **Source.** iocost (Linux) paces all by a clock of device time, slowed down by latency thresholds; K2 (Miller et al., RTSS 2019) bounds what is under way
//! by hand; Gimbal (Min et al., SIGCOMM 2021) shrinks a window while latencies exceed thresholds. Thresholds are guesses about a device. Here the promises
//! themselves are the thresholds, only those are held back whom no promise covers, and a promise that no pace keeps costs the others nothing.

mod watched;

use self::watched::{Judged, Watched};
use super::DEPTH_MAX;
use crate::Flows;
use crate::cost::in_unit;
use henge_core::{
    Contract, CostUnit, DepthController, Duration, FlowId, Instant, ParamError, Params, Request,
};

/// A window lasts for at least this, and for as many completions of each flow that is judged; but for no longer than the last.
const SHORT: u64 = 10_000_000;
const SAMPLES: u64 = 32;
const LONG: u64 = 250_000_000;
/// What was sent at the former pace is waited for no longer than this.
const SETTLES: u64 = 2_000_000_000;
/// Flows that are judged in a window.
const JUDGED: usize = 64;
/// Thousandths.
const WHOLE: u64 = 1000;
/// A promise counts as kept from here on, where a window judges.
const KEPT: u64 = 980;
/// Who has so much of what was promised may be held back to 1.5 of it: what is had beyond makes good what a pace that was too much took.
const AHEAD: u64 = 2000;
/// A search that gives less than this more was of no use.
const WORTH: u64 = 1100;
/// The least pace is this part of what was done without one.
const LEAST: u64 = 64;
/// Windows in which all was kept, before the pace grows.
const GOOD: u32 = 4;
/// Windows for which a pace that was too much is not tried again.
const MEMORY: u32 = 64;
/// Windows at the least pace before a search is in vain.
const BOTTOM: u32 = 8;
/// Windows after a search in vain, at first and at last.
const PATIENCE: (u32, u32) = (16, 1024);
/// Held requests are looked at again after this at the latest, and a pace catches up so much.
const AGAIN: Duration = Duration::from_millis(10);
const CATCH_UP: Duration = Duration::from_millis(1);
const CATCH_UP_DUE: Duration = Duration::from_millis(20);

/// What is being looked for: paces, with how well the worst kept was kept there.
#[derive(Clone, Copy)]
struct Search {
    /// What the others did a second before, and how well the promises were kept there, once that was measured.
    from: Option<(u64, u64)>,
    best: (u64, u64),
    /// Windows at the least pace.
    bottom: u32,
}

/// What was sent at the former pace is not over yet.
#[derive(Clone, Copy)]
enum Settling {
    /// The scheduler has some of it.
    Inside,
    /// The device has, so many requests at most.
    UnderWay(u32),
}

/// See the head of this file.
pub struct Kept {
    most: u32,
    flows: Flows<Watched>,
    in_flight: u32,
    /// Flows that were promised a rate or a latency.
    firm: u32,
    /// Of the others: let in and not dispatched.
    inside: u32,
    /// What the others may do a second, while some are there; no end where none is needed.
    pace: u64,
    /// The window's number, from 1; since when; and the flows seen in it.
    number: u64,
    since: Instant,
    active: Vec<FlowId>,
    seen: Seen,
    before: Seen,
    /// What the others sent a second at most lately; it fades by an eighth a window.
    sent: u64,
    /// Somebody was held back by the pace.
    pressed: bool,
    settling: Option<(Settling, Instant)>,
    search: Option<Search>,
    good: u32,
    /// The pace before it grew last.
    former: u64,
    /// This pace was too much, and for how many windows that is remembered.
    too_much: (u64, u32),
    /// For how many such a pace is remembered next time.
    memory: u32,
    /// Windows until the next search, and after the next one in vain.
    patience: (u32, u32),
    /// The last search found where all is kept.
    found: bool,
}

/// Of the flows of a window.
#[derive(Clone, Copy, Default)]
struct Seen {
    flows: u32,
    /// Of those that may be held back.
    others: u64,
    /// What these sent, in the gate's unit.
    cost: u64,
}

const NO_END: u64 = u64::MAX;

/// A pace that is less by as much as a promise is short by, and half of that.
fn less(pace: u64, kept: u64) -> u64 {
    (u128::from(pace) * u128::from(kept.clamp(WHOLE / 8, WHOLE)) / u128::from(2 * WHOLE)) as u64
}

impl Kept {
    /// At most so many in flight.
    pub fn new(most: u32) -> Self {
        Kept {
            most,
            flows: Flows::new(),
            in_flight: 0,
            firm: 0,
            inside: 0,
            pace: NO_END,
            number: 1,
            since: Instant::ZERO,
            active: Vec::new(),
            seen: Seen::default(),
            before: Seen::default(),
            sent: 0,
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

    fn contended(&self) -> bool {
        self.seen.flows.max(self.before.flows) > 1
    }

    /// The flow's, which has a request in this window.
    fn watched(&mut self, id: FlowId) -> Option<&mut Watched> {
        let flow = self.flows.get_mut(id)?;
        if flow.window != self.number {
            flow.begin(self.number);
            self.seen.flows += 1;
            self.seen.others += if flow.is_exempt() { 0 } else { u64::from(flow.weight) };
            if self.active.len() < JUDGED {
                self.active.push(id);
            }
        }
        Some(flow)
    }

    fn restart(&mut self, now: Instant) {
        self.before = std::mem::take(&mut self.seen);
        self.number += 1;
        self.since = now;
        self.pressed = false;
        self.active.clear();
    }

    /// The pace changed to a smaller one: nothing is judged until what was sent before is over.
    fn settle(&mut self, now: Instant) {
        self.settling = Some((Settling::Inside, now));
    }

    fn is_settled(&mut self, now: Instant) -> bool {
        let Some((state, since)) = self.settling else { return true };
        let state = match state {
            Settling::Inside if self.inside <= self.most / 4 => Settling::UnderWay(self.in_flight),
            Settling::UnderWay(n) => Settling::UnderWay(n.saturating_sub(1)),
            state => state,
        };
        let over = matches!(state, Settling::UnderWay(0)) || now.since(since).as_nanos() > SETTLES;
        self.settling = (!over).then_some((state, since));
        if over {
            let before = self.before;
            self.restart(now);
            self.before.flows = self.before.flows.max(before.flows);
        }
        over
    }

    /// A window is over, if it is long enough.
    fn close(&mut self, now: Instant) {
        let time = now.since(self.since).as_nanos();
        if time < SHORT {
            return;
        }
        let few = |flow: &FlowId| self.flows.get(*flow).is_some_and(|f| f.is_firm() && f.done < SAMPLES);
        if time < LONG && self.active.iter().any(few) {
            return;
        }
        if self.contended() {
            self.judge(now, time);
        }
        self.restart(now);
    }

    fn judge(&mut self, now: Instant, time: u64) {
        let mut all = Judged { kept: u64::MAX, behind: false };
        for id in &self.active {
            let Some(flow) = self.flows.get_mut(*id) else { continue };
            let Some(one) = flow.judge(now, time) else { continue };
            flow.kept = one.kept;
            all.kept = all.kept.min(one.kept);
            all.behind |= one.behind;
        }
        self.too_much.1 = self.too_much.1.saturating_sub(1);
        self.patience.0 = self.patience.0.saturating_sub(1);
        let done = u128::from(self.seen.cost) * 1_000_000_000 / u128::from(time.max(1));
        let done = u64::try_from(done).unwrap_or(u64::MAX);
        self.sent = (self.sent - self.sent / 8).max(done);
        let smaller = self.pace;
        match self.search {
            // Nobody is judged, or there is nobody to hold back.
            _ if all.kept == u64::MAX || self.sent == 0 => {}
            Some(search) => self.go_on(search, all.kept),
            None if all.behind && self.patience.0 == 0 => self.begin(all.kept),
            None if all.behind => self.good = 0,
            None => self.grow(),
        }
        if self.pace < smaller {
            self.settle(now);
        }
    }

    fn begin(&mut self, kept: u64) {
        if self.former > self.pace && self.former != NO_END {
            self.former = self.pace; // it never grew
        }
        if self.former < self.pace && self.pace != NO_END && self.good < 2 * GOOD {
            // It grew lately, and that was too much.
            self.memory = (self.memory * 2).min(PATIENCE.1);
            self.too_much = (self.pace, self.memory);
            // A step further back: what gathered at the device meanwhile is to go as well.
            self.pace = self.former - self.former / 8;
        } else if !self.found {
            // What was true of smaller paces then may not be now.
            self.pace = NO_END;
            self.search = Some(Search { from: None, best: (NO_END, 0), bottom: 0 });
        } else {
            let from = self.pace.min(self.sent);
            self.search = Some(Search { from: Some((from, kept)), best: (self.pace, kept), bottom: 0 });
            self.pace = less(from, kept).max(1);
            (self.too_much, self.memory) = ((from, MEMORY), MEMORY);
        }
        (self.good, self.former) = (0, self.pace);
        self.forgive();
    }

    fn go_on(&mut self, search: Search, kept: u64) {
        let from = search.from.unwrap_or((self.sent, kept));
        let best = if kept > search.best.1 { (self.pace, kept) } else { search.best };
        let least = (from.0 / LEAST).max(1);
        let here = self.pace.min(from.0);
        // What the device has in buffers of its own goes on for a while: at the least pace it is given time.
        if kept < KEPT && (here > least || search.bottom < BOTTOM) {
            let bottom = if here > least { 0 } else { search.bottom + 1 };
            self.too_much = (here, MEMORY);
            self.pace = less(here, kept).max(least);
            self.search = Some(Search { from: Some(from), best, bottom });
            return;
        }
        self.search = None;
        self.found = kept >= KEPT;
        if self.found {
            self.patience = (0, PATIENCE.0);
        } else {
            let worth = best.1.saturating_mul(WHOLE) >= from.1.saturating_mul(WORTH);
            self.pace = if worth { best.0 } else { NO_END };
            self.patience = (self.patience.1, (self.patience.1 * 2).min(PATIENCE.1));
        }
        (self.good, self.former) = (0, self.pace);
        self.forgive();
    }

    /// What was lacking at another pace is no reason for another search.
    fn forgive(&mut self) {
        for id in &self.active {
            if let Some(flow) = self.flows.get_mut(*id) {
                flow.lag = 0;
            }
        }
    }

    fn grow(&mut self) {
        self.good = self.good.saturating_add(1);
        if !self.good.is_multiple_of(GOOD) || !self.pressed || self.pace == NO_END {
            return;
        }
        let more = self.pace.saturating_add((self.pace / 8).max(1));
        if self.too_much.1 == 0 || more < self.too_much.0 {
            (self.former, self.pace, self.good) = (self.pace, more, 0);
        }
    }
}

impl DepthController for Kept {
    fn depth(&self) -> u32 {
        self.most
    }
    fn admits(&mut self, request: &Request, now: Instant) -> Option<Instant> {
        let (most, bounds) = (self.most, self.firm > 0);
        let pace = if self.contended() { self.pace } else { NO_END };
        let others = self.seen.others.max(self.before.others);
        let flow = self.flows.get_mut(request.flow)?;
        let mut later = None;
        if (bounds || pace != NO_END) && !flow.is_exempt() {
            if flow.inside >= most {
                later = Some(now + AGAIN);
            } else if pace != NO_END {
                let weight = u64::from(flow.weight);
                let own = u128::from(pace) * u128::from(weight) / u128::from(others.max(weight));
                later = flow.comes_in(request, own as u64, now);
                self.pressed |= later.is_some();
            }
        }
        if later.is_none() {
            flow.inside += 1;
            self.inside += u32::from(!flow.is_firm());
            self.seen.cost += if flow.is_exempt() { 0 } else { request.cost.get() };
        }
        later
    }
    fn passed(&mut self, flow: FlowId) {
        self.went(flow);
    }
    fn dispatched(&mut self, flow: FlowId, wait: Duration, in_flight: u32, now: Instant) {
        self.in_flight = in_flight;
        self.went(flow);
        let Some(flow) = self.watched(flow) else { return };
        if flow.in_flight == 0 {
            // It had nothing here from then on until this request came; what a client needs to ask for the next one is no idleness.
            let gap = (now - wait).since(flow.free_since).as_nanos();
            let own = flow.latencies.checked_div(flow.done).unwrap_or(0);
            flow.idle += gap.saturating_sub(own);
        }
        flow.in_flight += 1;
    }
    fn completed(&mut self, request: &Request, _: Duration, in_flight: u32, now: Instant) {
        self.in_flight = in_flight;
        let Some(flow) = self.watched(request.flow) else { return };
        flow.left(now);
        let latency = now.since(request.arrival);
        flow.done += 1;
        flow.latencies += latency.as_nanos();
        if let Some(rate) = flow.rate {
            flow.amount += in_unit(request, rate.unit, CostUnit::DiskTime).get();
        }
        flow.late += u64::from(flow.latency.is_some_and(|l| latency > l.bound));
        if self.is_settled(now) {
            self.close(now);
        }
    }
    fn gave_back(&mut self, flow: FlowId, now: Instant) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.left(now);
        }
    }
    fn set_flow(&mut self, flow: FlowId, contract: Option<&Contract>) {
        let Some(contract) = contract else {
            match self.flows.remove(flow) {
                Some(gone) if gone.is_firm() => self.firm -= 1,
                Some(gone) => self.inside -= gone.inside,
                None => {}
            }
            return;
        };
        let watched = self.flows.get_or_insert_with(flow, Watched::new);
        let promise = (contract.weight(), contract.rate, contract.latency);
        if promise != (watched.weight, watched.rate, watched.latency) {
            let was_firm = watched.is_firm();
            (watched.weight, watched.rate, watched.latency) = promise;
            match (was_firm, watched.is_firm()) {
                (true, false) => (self.firm, self.inside) = (self.firm - 1, self.inside + watched.inside),
                (false, true) => (self.firm, self.inside) = (self.firm + 1, self.inside - watched.inside),
                _ => {}
            }
            (watched.lag, watched.kept) = (0, 0);
            (self.patience, self.found) = ((0, PATIENCE.0), true);
        }
    }
}

impl Kept {
    /// A request that was let in is in the scheduler no more.
    fn went(&mut self, flow: FlowId) {
        if let Some(flow) = self.flows.get_mut(flow).filter(|flow| flow.inside > 0) {
            flow.inside -= 1;
            self.inside -= u32::from(!flow.is_firm());
        }
    }
}

/// `kept = { most = 32 }`
pub(super) fn build(params: &mut Params) -> Result<Box<dyn DepthController>, ParamError> {
    let most = params.integer("most", 1, DEPTH_MAX)?.unwrap_or(32);
    Ok(Box::new(Kept::new(most as u32)))
}

#[cfg(test)]
mod tests;
