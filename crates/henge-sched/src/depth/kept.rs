//! Depth by promises kept: the stated depth, and before it turns for whoever breaks another's promise.
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
//! (By weight, where `shares = true` asks for it: `kept/shares.rs`.) A shortfall adds up until it is more than a few requests and half a percent of a
//! second's promise. Then the *others* are
//! held back: those that were promised neither, and those that have more than twice theirs. Together they may send the scheduler a pace P of work a second, divided
//! by weight, and 1.5 of what they are promised besides. Work is bytes, and 16 KiB for each request. They send it all at the beginning of each *turn*,
//! which lasts 16 times what their requests take at the device (64 to 500 ms), and nothing for the rest of it.
//!
//! ```text
//!   looked for    P ← P · kept / 2      from what they sent a second lately; until every promise is kept
//!   kept          P ← P + P/8           after each four turns, while somebody is held back by it; sooner where there is much room
//!   broken again  P ← 7/8 · P before    and where that was too much is not tried for 64 windows
//! ```
//!
//! While there is a pace, a window is a turn at least. It begins when what was sent at the former pace is over. Where there are several,
//! none of the others has more than `most` requests in the scheduler: what it has, a pace does not hold back any more. FLUSHes are held as any other request,
//! and an administrator's work is not.
//!
//! If no pace keeps all, and the best keeps three quarters of the worst, that one is taken, provided that it is a tenth better than none. If even that is out of reach,
//! the promises that lack so much are *hopeless*: they are not looked at for 64 turns, then 128, to 1024, and the pace is what it was before. The
//! other promises are kept
//! meanwhile. Whoever is alone is never held back.
//!
//! **Why turns.** Writes spread evenly keep some dies programming at all times, which slows down every read. Sent together they leave the rest of the
//! turn to the reader: each has
//! its part of a turn as if alone. On `nvme-dc` a third of what a reader has alone costs the writer nine tenths of its throughput if its writes are spread evenly, and
//! a third in turns.
//!
//! **Example.** `nvme-dc`, 16 KiB reads, eight outstanding, `rate = "18777/s"`, a third of what it has alone, beside 1 MiB writes. The reader has
//! 8,400/s, 0.45 of it: after 10 ms it lacks 100 commands. At 0.22 of the writes' pace it has 47,000/s; P grows to where the reader has little more than
//! promised, and the writer 0.7 of what it has alone.
//!
//! **Guarantee.** Where some pace keeps all promises that stand against each other, one within a factor of four is found in log₂ of R/P windows, and is known from
//! then on, whether the others are there or not. Where none does, the others lose what searches take: some 14 turns each, the next after 64 turns,
//! then 128, to 1024 (1 %).
//! That holds also for a promise of more than its flow's few requests outstanding could ever come to. A held request is let in at the beginning of a
//! turn, half a second
//! later at most, if its flow's part of the pace allows.
//!
//! **Where it falls short.** A request may wait for the next turn, however few its flow sends, once its flow's part of this turn is used.
//! A pace that was too much breaks the promise for a window or two, and what it has beyond at other times makes that good on average, not in that second.
//! A search takes as long as the device takes for what it has: on `sata-ssd`, whose buffer is full of the others' writes, up to three seconds, and on the hard disk
//! `dtla-307075` some ten. On that disk nothing of a turn is left without the others' requests, so shares by weight find no remedy there.
//!
//! **Price.** Some 20 ns a request, 200 bytes a flow, and a look at up to 64 flows at the end of a window. Work that is held back is not done.
//!
//! **Source.** iocost (Linux) paces all by a clock of device time, slowed down by latency thresholds; K2 (Miller et al., RTSS 2019) bounds what is under way
//! by hand; Gimbal (Min et al., SIGCOMM 2021) shrinks a window while latencies exceed thresholds; FIOS (Park and Shen, FAST 2012) and CFQ (Linux) give time slices to
//! clients always. Thresholds are guesses about a device. Here the promises
//! themselves are the thresholds, only those are held back whom no promise covers, and a promise that no pace keeps costs the others nothing.

mod shares;
mod watched;

use self::shares::{Look, Quiet};
use self::watched::{Judged, Watched};
use super::DEPTH_MAX;
use crate::Flows;
use crate::cost::in_unit;
use henge_core::{
    Contract, CostUnit, DepthController, DepthPart, Duration, FlowId, Instant, ParamError, Params, Request,
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
/// A promise of which no pace keeps so much has no use of one.
const NEARLY: u64 = 750;
/// A search that gives less than this more was of no use.
const WORTH: u64 = 1100;
/// The least pace is this part of what was done without one.
const LEAST: u64 = 64;
/// A pace grows so much, in thousandths, or by more where that is known to do no harm; and becomes smaller by no less.
const MORE: u64 = 1125;
const LESS: u64 = 950;
/// Windows in which all was kept, before the pace grows.
const GOOD: u32 = 4;
/// Windows for which a pace that was too much is not tried again.
const MEMORY: u32 = 64;
/// Windows at the least pace before a search is in vain.
const BOTTOM: u32 = 8;
/// Turns after a search in vain, at first and at last.
const PATIENCE: (u32, u32) = (64, 1024);
/// Held requests are looked at again after this at the latest, and a pace catches up so much.
const AGAIN: Duration = Duration::from_millis(10);
/// Turns of those who are held back last so many times what their requests take at the device, within these bounds.
const TURN: (u64, u64) = (64_000_000, 500_000_000);
const TURN_REQUESTS: u64 = 16;
const CATCH_UP_DUE: Duration = Duration::from_millis(20);

/// What is being looked for: paces, with how well the worst kept was kept there.
#[derive(Clone, Copy)]
struct Search {
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
    /// The scheduler has some of it.
    Inside,
    /// The device has, so many requests at most.
    UnderWay(u32),
}

/// See the head of this file.
pub struct Kept {
    most: u32,
    part: DepthPart,
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
    /// In ns until the next search, and in turns after the next one in vain.
    patience: (u64, u32),
    /// The last search found where all is kept.
    found: bool,
    /// In ns.
    turn: u64,
    /// Weights are promises, too, where nobody was promised more.
    weights: bool,
    /// Others are held back for a turn, to see what that does for whom.
    trial: bool,
    quiet: Quiet,
    look: Look,
}

/// Of the flows of a window.
#[derive(Clone, Copy, Default)]
struct Seen {
    flows: u32,
    /// Of those that may be held back.
    others: u64,
    /// The work that these sent.
    cost: u64,
    /// How many of their requests are over, and how long they took at the device, in ns.
    done: u64,
    service: u64,
    /// Weights of those who are not held back for the sake of theirs.
    protected: u64,
}

const NO_END: u64 = u64::MAX;

/// What paces count: bytes, and as much for a request as for 16 KiB. Learned costs change with what is let in, and a pace that is looked for must not.
fn work(request: &Request) -> u64 {
    in_unit(request, CostUnit::Bytes, CostUnit::Requests).get() + (16 << 10)
}

/// So many thousandths of a pace.
fn part(pace: u64, thousandths: u64) -> u64 {
    (u128::from(pace) * u128::from(thousandths) / u128::from(WHOLE)) as u64
}

impl Kept {
    /// At most so many in flight; weights are promises, or not.
    pub fn new(most: u32, weights: bool) -> Self {
        Kept {
            most,
            part: DepthPart::ALL,
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
            turn: TURN.0,
            weights,
            trial: false,
            quiet: Quiet::default(),
            look: Look::default(),
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
            self.seen.protected += if flow.protected { u64::from(flow.weight) } else { 0 };
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
        self.quiet.restart();
    }

    /// The pace changed to a smaller one: nothing is judged until what was sent before is over.
    fn settle(&mut self, now: Instant) {
        self.settling = Some((Settling::Inside, now));
    }

    fn is_settled(&mut self, now: Instant) -> bool {
        let Some((state, since)) = self.settling else { return true };
        let state = match state {
            Settling::Inside if self.inside <= self.depth() / 4 => Settling::UnderWay(self.in_flight),
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
        let shares = self.shares();
        if time < SHORT || (time < self.turn && (shares || self.pace != NO_END)) {
            return;
        }
        let few = |flow: &FlowId| {
            self.flows.get(*flow).is_some_and(|f| (f.is_firm() || shares) && f.done < SAMPLES)
        };
        if time < LONG && self.active.iter().any(few) {
            return;
        }
        let paced = self.pace != NO_END;
        if !self.contended() {
            self.trial = false;
        } else if shares && (self.trial || !paced) {
            self.consider(now, time);
        } else if !(shares && self.look_again(now)) {
            self.judge(now, time);
        }
        if !paced && self.seen.done > 0 {
            self.turn = (TURN_REQUESTS * self.seen.service / self.seen.done).clamp(TURN.0, TURN.1);
        }
        self.restart(now);
    }

    fn judge(&mut self, now: Instant, time: u64) {
        let mut all = Judged { kept: u64::MAX, factor: u64::MAX, behind: false };
        let shares = self.shares().then(|| self.part());
        for id in &self.active {
            let Some(flow) = self.flows.get_mut(*id) else { continue };
            let one = match shares {
                Some(part) => flow.judge_share(part, &self.quiet, time, now),
                None => flow.judge(now, time),
            };
            let Some(one) = one else { continue };
            flow.kept = one.kept;
            if shares.is_none() && now < flow.hopeless_until {
                flow.lag = 0;
                continue;
            }
            all.kept = all.kept.min(one.kept);
            all.factor = all.factor.min(one.factor);
            all.behind |= one.behind;
        }
        self.too_much.1 = self.too_much.1.saturating_sub(1);
        self.patience.0 = self.patience.0.saturating_sub(time);
        let done = u128::from(self.seen.cost) * 1_000_000_000 / u128::from(time.max(1));
        let done = u64::try_from(done).unwrap_or(u64::MAX);
        self.sent = (self.sent - self.sent / 8).max(done);
        let smaller = self.pace;
        match self.search {
            // Nobody is judged, or there is nobody to hold back.
            _ if all.kept == u64::MAX && shares.is_some() => (self.pace, self.search) = (NO_END, None),
            _ if all.kept == u64::MAX || self.sent == 0 => {}
            Some(search) => self.go_on(search, all, now),
            None if all.behind && self.patience.0 == 0 => self.begin(all),
            None if all.behind => self.good = 0,
            None => self.grow(all.factor),
        }
        if self.pace < smaller {
            self.settle(now);
        }
    }

    fn begin(&mut self, Judged { kept, factor, .. }: Judged) {
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
            self.search = Some(Search { from: None, best: (NO_END, 0), before: NO_END, bottom: 0 });
        } else {
            let (from, before) = (self.pace.min(self.sent), self.pace);
            self.search = Some(Search { from: Some((from, kept)), best: (before, kept), before, bottom: 0 });
            self.pace = part(from, factor.min(LESS)).max(1);
            (self.too_much, self.memory) = ((from, MEMORY), MEMORY);
        }
        (self.good, self.former) = (0, self.pace);
        self.forgive();
    }

    fn go_on(&mut self, search: Search, Judged { kept, factor, .. }: Judged, now: Instant) {
        let from = search.from.unwrap_or((self.sent, kept));
        let best = if kept > search.best.1 { (self.pace, kept) } else { search.best };
        let least = (from.0 / LEAST).max(1);
        let here = self.pace.min(from.0);
        // What the device has in buffers of its own goes on for a while: at the least pace it is given time.
        if kept < KEPT && (here > least || search.bottom < BOTTOM) {
            let bottom = if here > least { 0 } else { search.bottom + 1 };
            self.too_much = (here, MEMORY);
            self.pace = part(here, factor.min(LESS)).max(least);
            self.search = Some(Search { from: Some(from), best, bottom, ..search });
            return;
        }
        self.search = None;
        self.found = kept >= KEPT;
        if self.found {
            self.patience = (0, PATIENCE.0);
        } else if best.1 >= NEARLY {
            let worth = best.1.saturating_mul(WHOLE) >= from.1.saturating_mul(WORTH);
            self.pace = if worth { best.0 } else { NO_END };
            self.patience = (u64::from(self.patience.1) * self.turn, (self.patience.1 * 2).min(PATIENCE.1));
        } else {
            self.pace = search.before;
            self.give_up(now);
        }
        (self.good, self.former) = (0, self.pace);
        self.forgive();
    }

    /// Not even the least pace keeps some promises: they are not looked at for a time, so they cost the others nothing, and the rest are kept.
    fn give_up(&mut self, now: Instant) {
        if self.shares() {
            self.patience.0 = shares::TRIAL * self.turn;
            return;
        }
        for id in &self.active {
            if let Some(flow) = self.flows.get_mut(*id).filter(|flow| flow.is_firm() && flow.kept < NEARLY) {
                flow.hopeless_until = now + Duration::from_nanos(u64::from(flow.patience) * self.turn);
                flow.patience = (flow.patience * 2).min(PATIENCE.1);
            }
        }
    }

    /// What was lacking at another pace is no reason for another search.
    fn forgive(&mut self) {
        for id in &self.active {
            if let Some(flow) = self.flows.get_mut(*id) {
                flow.lag = 0;
            }
        }
    }

    fn grow(&mut self, factor: u64) {
        self.good = self.good.saturating_add(1);
        let soon = factor > MORE;
        if !(soon || self.good.is_multiple_of(GOOD)) || !self.pressed || self.pace == NO_END {
            return;
        }
        let more = part(self.pace, factor.max(MORE)).max(self.pace + 1);
        // Where that was too much lately, half of the way is not.
        let half = self.pace + (self.too_much.0.saturating_sub(self.pace)) / 2;
        let more = if soon && self.too_much.1 > 0 { more.min(half) } else { more };
        if self.too_much.1 == 0 || more < self.too_much.0 {
            (self.former, self.pace, self.good) = (self.pace, more, 0);
        }
    }
}

impl DepthController for Kept {
    fn depth(&self) -> u32 {
        self.part.of(self.most)
    }
    fn whole(&self) -> Option<u32> {
        Some(self.most)
    }
    fn divide(&mut self, part: DepthPart) {
        self.part = part;
    }
    fn admits(&mut self, request: &Request, now: Instant) -> Option<Instant> {
        let most = self.depth();
        let pace = if self.contended() { self.pace } else { NO_END };
        let others = self.seen.others.max(self.before.others);
        let bounds = self.firm > 0 || (self.weights && self.contended());
        let flow = self.flows.get_mut(request.flow)?;
        let mut later = None;
        if bounds && !flow.is_exempt() {
            if flow.inside >= most {
                later = Some(now + AGAIN);
            } else if pace != NO_END {
                let weight = u64::from(flow.weight);
                let own = u128::from(pace) * u128::from(weight) / u128::from(others.max(weight));
                later = flow.comes_in(request, own as u64, self.turn, now);
                self.pressed |= later.is_some();
            }
        }
        if later.is_none() {
            flow.inside += 1;
            self.inside += u32::from(!flow.is_firm());
            self.seen.cost += if flow.is_exempt() { 0 } else { work(request) };
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
        if !flow.protected {
            flow.loud += 1;
            self.quiet.loud += 1;
        }
    }
    fn completed(&mut self, request: &Request, service: Duration, in_flight: u32, now: Instant) {
        self.in_flight = in_flight;
        let quiet = self.quiet.goes_on(self.turn, now);
        let Some(flow) = self.watched(request.flow) else { return };
        flow.left(now);
        let (done, exempt) = (work(request), flow.is_exempt());
        flow.cost += request.cost.get();
        flow.total += done;
        flow.quiet += if quiet { done } else { 0 };
        let loud = flow.loud.min(1);
        flow.loud -= loud;
        let latency = now.since(request.arrival);
        flow.done += 1;
        flow.latencies += latency.as_nanos();
        flow.places += service.as_nanos();
        if let Some(rate) = flow.rate {
            flow.amount += in_unit(request, rate.unit, CostUnit::DiskTime).get();
        }
        flow.late += u64::from(flow.latency.is_some_and(|l| latency > l.bound));
        self.quiet.loud -= loud;
        if !exempt {
            self.seen.done += 1;
            self.seen.service += service.as_nanos();
        }
        if self.is_settled(now) {
            self.close(now);
        }
    }
    fn gave_back(&mut self, flow: FlowId, now: Instant) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.left(now);
            let loud = flow.loud.min(1);
            flow.loud -= loud;
            self.quiet.loud -= loud;
        }
    }
    fn set_flow(&mut self, flow: FlowId, contract: Option<&Contract>) {
        let Some(contract) = contract else {
            let gone = self.flows.remove(flow);
            self.quiet.loud -= gone.as_ref().map_or(0, |gone| gone.loud);
            match gone {
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
            (watched.lag, watched.kept, watched.protected, watched.look) = (0, 0, false, 0);
            (watched.hopeless_until, watched.patience) = (Instant::ZERO, PATIENCE.0);
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

/// `kept = { most = 32, shares = false }`
pub(super) fn build(params: &mut Params, weights: bool) -> Result<Box<dyn DepthController>, ParamError> {
    let most = params.integer("most", 1, DEPTH_MAX)?.unwrap_or(32);
    let shares = params.bool("shares")?.unwrap_or(false);
    if shares && !weights {
        let who = crate::registry::schedulers_that_keep("weight");
        return Err(
            params.error("shares", format!("the scheduler has no weights to keep; these have: {who}"))
        );
    }
    Ok(Box::new(Kept::new(most as u32, shares)))
}

#[cfg(test)]
mod tests;
