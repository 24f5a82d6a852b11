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
//! A latency without a rate, and without a `pending`, is for no more than the flow's weight's share of the work of all. Whoever has more is one of the others.
//! Whoever was promised a rate sends beside the pace twice that at most, with its burst and 250 ms of it saved up. It has nothing saved up when it comes or
//! its promise changes. Who comes anew has what the last that was removed had left of its turn.
//!
//! ```text
//!   looked for    P ← P · kept / 2      from what they sent a second lately; until every promise is kept
//!   kept          P ← P + P/8           after each four turns, while somebody is held back by it; sooner where there is much room
//!   broken again  P ← 7/8 · P before    and where that was too much is not tried for 64 windows
//! ```
//!
//! While there is a pace, a window is a turn at least. It begins when what was sent at the former pace is over. Where there are
//! promises, none of the others has more than `most` requests in the scheduler: what it has, a pace does not hold back any more. Nor has anybody more there who
//! sends beyond twice a rate, or was promised neither. FLUSHes are held as any other request, and an administrator's work is not.
//!
//! If no pace keeps all, and the best keeps three quarters of the worst, that one is taken, provided that it is a tenth better than none. If even that is out of reach,
//! the promises that lack so much are *hopeless*: they are not looked at for 64 turns, then 128, to 1024, and the pace is what it was before. The
//! other promises are kept
//! meanwhile. Whoever is alone is never held back. Nor is anybody while no promise is wanted: whoever has one asked for nothing in this window and the
//! one before, or nothing has gone to the device or come back for as long.
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
//! `dtla-307075` some ten. On that disk little of a turn is left without the others' requests: shares by weight are
//! kept there beside long writes, and missed beside much else.
//!
//! **Price.** Some 20 ns a request, 200 bytes a flow, and a look at up to 64 flows at the end of a window. Work that is held back is not done.
//!
//! **Source.** iocost (Linux) paces all by a clock of device time, slowed down by latency thresholds; K2 (Miller et al., RTSS 2019) bounds what is under way
//! by hand; Gimbal (Min et al., SIGCOMM 2021) shrinks a window while latencies exceed thresholds; FIOS (Park and Shen, FAST 2012) and CFQ (Linux) give time slices to
//! clients always. Thresholds are guesses about a device. Here the promises
//! themselves are the thresholds, only those are held back whom no promise covers, and a promise that no pace keeps costs the others nothing.

mod newcomer;
mod pace;
mod quiet;
mod share;
mod shares;
mod watched;

use self::newcomer::{Apart, Newcomer};
use self::pace::{NEARLY, Pace, Searched};
use self::shares::Shares;
use self::watched::{Judged, Promise, Watched};
use super::fixed::DEPTH_MAX;
use crate::Flows;
use crate::cost::in_unit;
use crate::terms::Terms;
use henge_core::{
    Contract, CostUnit, DepthController, DepthPart, Duration, FlowId, Instant, Op, ParamError, Params,
    Request,
};

/// A window lasts for at least this, and for as many completions of each flow that is judged; but for no longer than the last.
const SHORT: u64 = 10_000_000;
const SAMPLES: u64 = 32;
const LONG: u64 = 250_000_000;
/// Flows that are judged in a window.
const JUDGED: usize = 64;
/// 2^64 by the golden ratio.
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Thousandths.
const WHOLE: u64 = 1000;
/// Who has so much of what was promised may be held back to 1.5 of it: what is had beyond makes good what a pace that was too much took.
const AHEAD: u64 = 2000;
/// A pace grows so much, in thousandths, or by more where that is known to do no harm.
const MORE: u64 = 1125;
/// Turns after a search in vain, at first and at last.
const PATIENCE: (u32, u32) = (64, 1024);
/// Held requests are looked at again after this at the latest, and a pace catches up so much.
const AGAIN: Duration = Duration::from_millis(10);
const CATCH_UP_DUE: Duration = Duration::from_millis(20);

/// See the head of this file.
pub struct Kept {
    most: u32,
    part: DepthPart,
    flows: Flows<Watched>,
    in_flight: u32,
    /// When a request went to the device or came back last.
    heard: Instant,
    /// Flows that were promised a rate or a latency.
    firm: u32,
    /// Of the others: let in and not dispatched.
    inside: u32,
    window: Window,
    pace: Pace,
    shares: Shares,
}

/// The window that is open.
struct Window {
    /// Its number, from 1; since when; and flows seen in it, of which these many first have a promise.
    number: u64,
    since: Instant,
    active: Vec<FlowId>,
    promised: usize,
    seen: Seen,
    /// Seen in the one before.
    before: Seen,
}

impl Window {
    fn first() -> Self {
        Window {
            number: 1,
            since: Instant::ZERO,
            active: Vec::new(),
            promised: 0,
            seen: Seen::default(),
            before: Seen::default(),
        }
    }

    /// The next one begins.
    fn next(&mut self, now: Instant) {
        self.before = std::mem::take(&mut self.seen);
        self.number += 1;
        self.since = now;
        self.active.clear();
        self.promised = 0;
    }

    fn contended(&self) -> bool {
        self.seen.flows.max(self.before.flows) > 1
    }

    /// Whether somebody is there for whose sake others are held back.
    fn is_wanted(&self) -> bool {
        self.seen.firm.max(self.before.firm) > 0
    }

    /// Weights of those that may be held back, in this window or the one before.
    fn others(&self) -> u64 {
        self.seen.others.max(self.before.others)
    }

    /// A flow has its first request in it.
    fn joined(&mut self, id: FlowId, flow: &Watched) {
        let weight = u64::from(flow.promise.weight);
        let wants = flow.promise.is_firm() || flow.share.protected;
        self.seen.flows += 1;
        self.seen.firm += u32::from(wants);
        if !flow.is_exempt() && !flow.share.protected {
            let instead = self.seen.gone.min(weight);
            self.seen.others += weight - instead;
            self.seen.gone -= instead;
        }
        self.seen.protected += if flow.share.protected { weight } else { 0 };
        self.seen.beside += if flow.share.goes_beside() { weight } else { 0 };
        self.judges(id, wants);
    }

    /// The flow is judged, if there is room: whoever has a promise before a crowd that has none. Where more than can be judged have one, those that came
    /// last are, since whoever is slowed down comes late. Of a crowd without promises each is as likely as any other to be looked at.
    fn judges(&mut self, id: FlowId, wants: bool) {
        let all = self.active.len();
        if all < JUDGED {
            self.active.push(id);
            if wants {
                self.active.swap(self.promised, all);
                self.promised += 1;
            }
        } else if wants {
            let at = if self.promised < JUDGED { self.promised } else { self.seen.firm as usize % JUDGED };
            self.active[at] = id;
            self.promised = JUDGED.min(self.promised + 1);
        } else {
            // The n-th takes one of n places, by a hash of both numbers (Knuth's multiplier): most are none of those that are looked at.
            let (n, hash) = (
                u64::from(self.seen.flows),
                (self.number << 32 | u64::from(self.seen.flows)).wrapping_mul(HASH),
            );
            let at = ((u128::from(hash) * u128::from(n)) >> 64) as usize;
            if (self.promised..JUDGED).contains(&at) {
                self.active[at] = id;
            }
        }
    }

    /// A flow is removed: whoever comes in its place counts instead of it.
    fn left(&mut self, id: FlowId, flow: &Watched) {
        if flow.window.number == self.number {
            let other = !(flow.is_exempt() || flow.share.protected);
            self.seen.gone += if other { u64::from(flow.promise.weight) } else { 0 };
            if let Some(at) = self.active.iter().position(|other| *other == id) {
                self.active.remove(at);
                self.promised -= usize::from(at < self.promised);
            }
        }
    }
}

/// Of the flows of a window.
#[derive(Clone, Copy, Default)]
struct Seen {
    flows: u32,
    /// Those for whose sake others are held back.
    firm: u32,
    /// Of those that may be held back.
    others: u64,
    /// The work that these sent.
    cost: u64,
    /// How many of their requests are over, and how long they took at the device, in ns.
    done: u64,
    service: u64,
    /// Weights of those for the sake of whose shares others are held back, and of those of them who are not held back themselves.
    protected: u64,
    beside: u64,
    /// Weights of others that were removed, and that nobody has taken the place of.
    gone: u64,
    /// What all requests that are over cost, and how long they were at the device, in ns.
    all_cost: u128,
    places: u128,
}

const NO_END: u64 = u64::MAX;

/// What paces count: bytes, and as much for a request as for 16 KiB. Learned costs change with what is let in, and a pace that is looked for must not.
fn work(request: &Request) -> u64 {
    in_unit(request, CostUnit::Bytes, CostUnit::Requests).get() + (16 << 10)
}

fn per_second(amount: u64, ns: u64) -> u64 {
    let all = u128::from(amount) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

impl Kept {
    /// At most so many in flight; weights are promises, or not.
    pub fn new(most: u32, weights: bool) -> Self {
        Kept {
            most,
            part: DepthPart::ALL,
            flows: Flows::new(),
            in_flight: 0,
            heard: Instant::ZERO,
            firm: 0,
            inside: 0,
            window: Window::first(),
            pace: Pace::new(),
            shares: Shares::new(weights),
        }
    }

    /// The flow's, which has a request in this window.
    fn watched(&mut self, id: FlowId) -> Option<&mut Watched> {
        let weights = self.weights_count();
        let flow = self.flows.get_mut(id)?;
        if flow.window.number != self.window.number {
            flow.begin(self.window.number, weights);
            if !self.shares.trial {
                flow.share.leave_trial();
            }
            self.window.joined(id, flow);
        }
        Some(flow)
    }

    /// Nothing has gone to the device or come back for long, and the window that is open says nothing of now: only completions close it.
    fn is_stale(&self, now: Instant) -> bool {
        now.since(self.heard).as_nanos() > 2 * self.pace.turn.max(LONG)
    }

    fn restart(&mut self, now: Instant) {
        self.window.next(now);
        self.pace.pressed = false;
        self.shares.quiet.restart();
    }

    fn is_settled(&mut self, now: Instant) -> bool {
        if !self.pace.settles() {
            return true;
        }
        let few = self.inside <= self.depth() / 4;
        let over = self.pace.has_settled(few, self.in_flight, now);
        if over {
            let before = self.window.before.flows;
            self.restart(now);
            self.window.before.flows = self.window.before.flows.max(before);
        }
        over
    }

    /// A window is over, if it is long enough.
    fn close(&mut self, now: Instant) {
        let time = now.since(self.window.since).as_nanos();
        let (shares, paced) = (self.weights_count(), self.pace.is_set());
        if time < SHORT || (time < self.pace.turn && (shares || paced)) {
            return;
        }
        let few = |flow: &FlowId| {
            self.flows.get(*flow).is_some_and(|f| (f.promise.is_firm() || shares) && f.window.over < SAMPLES)
        };
        if time < LONG && self.window.active.iter().any(few) {
            return;
        }
        if shares && self.shares.newcomer.is_some() {
            return self.conclude_newcomer(now);
        }
        if !self.window.contended() {
            // Nobody is there to hold back, and what a trial saw until then says nothing.
            if std::mem::take(&mut self.shares.trial) {
                self.pace.allowed = NO_END;
            }
        } else if shares && (self.shares.trial || !paced) {
            self.consider(now, time);
        } else {
            self.judge(now, time);
            if shares {
                self.look_at_who_came(now, time);
            }
        }
        if !paced {
            self.pace.set_turn(self.window.seen.service, self.window.seen.done);
        }
        self.restart(now);
    }

    fn judge(&mut self, now: Instant, time: u64) {
        let shares = self.weights_count();
        let all = self.judge_all(now, time);
        self.pace.forget();
        self.pace.window_over(self.window.seen.cost, time);
        if shares && self.bound_who_takes_much(all.kept, now, time) {
            self.forgive();
            return self.pace.settle(self.inside, now);
        }
        let smaller = self.pace.allowed;
        match self.pace.search {
            // Nobody is judged, or there is nobody to hold back.
            _ if all.kept == u64::MAX && shares => (self.pace.allowed, self.pace.search) = (NO_END, None),
            _ if all.kept == u64::MAX || self.pace.sent == 0 => {}
            Some(search) => match self.pace.go_on(search, all) {
                Searched::GoesOn => {}
                Searched::Over => self.forgive(),
                Searched::InVain => {
                    self.give_up(now);
                    self.forgive();
                }
            },
            None if all.behind && self.pace.patience.0 == 0 => {
                self.pace.begin(all);
                self.forgive();
            }
            None if all.behind => self.pace.good = 0,
            None => self.pace.grow(all.factor),
        }
        if self.pace.allowed < smaller {
            self.pace.settle(self.inside, now);
        }
    }

    /// How well the worst kept promise was kept; no end where none is judged.
    fn judge_all(&mut self, now: Instant, time: u64) -> Judged {
        let mut all = Judged { kept: u64::MAX, factor: u64::MAX, behind: false };
        let shares = self.weights_count().then(|| self.weights());
        let there = self.all(now, time);
        for id in &self.window.active {
            let Some(flow) = self.flows.get_mut(*id) else { continue };
            flow.compare(there.weights, there.work);
            let one = match shares {
                Some(weights) => flow.judge_share(weights, &self.shares.quiet, time, now),
                None => flow.judge(now, time),
            };
            let Some(one) = one else { continue };
            flow.kept = one.kept;
            if shares.is_none() && now < flow.respite.until {
                flow.lag = 0;
                continue;
            }
            all.kept = all.kept.min(one.kept);
            all.factor = all.factor.min(one.factor);
            all.behind |= one.behind;
        }
        all
    }

    /// Not even the least pace keeps some promises: they are not looked at for a time, so they cost the others nothing, and the rest are kept.
    fn give_up(&mut self, now: Instant) {
        if self.weights_count() {
            self.pace.patience.0 = shares::TRIAL * self.pace.turn;
            let own = self.window.seen.protected;
            if self.protected().any(|flow| flow.share.with < own) {
                // Of sets that were measured apart nothing is measured anew while all are there: all begins anew.
                (self.pace.allowed, self.pace.search) = (NO_END, None);
            }
            return;
        }
        for id in &self.window.active {
            let hopeless = |flow: &&mut Watched| flow.promise.is_firm() && flow.kept < NEARLY;
            if let Some(flow) = self.flows.get_mut(*id).filter(hopeless) {
                flow.respite.begin(self.pace.turn, now);
            }
        }
    }

    /// What was lacking at another pace is no reason for another search.
    fn forgive(&mut self) {
        for id in &self.window.active {
            if let Some(flow) = self.flows.get_mut(*id) {
                flow.lag = 0;
            }
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
        let contended = self.window.contended();
        let wanted = (self.shares.trial || self.window.is_wanted()) && !self.is_stale(now);
        let pace = if contended && wanted { self.pace.allowed } else { NO_END };
        let others = self.window.others();
        let bounds = self.firm > 0 || self.shares.wanted;
        let apart = match &self.shares.newcomer {
            Some(newcomer) if pace != NO_END => newcomer.admits(request.flow, self.pace.turn, now),
            _ => Apart::Not,
        };
        let flow = self.flows.get_mut(request.flow)?;
        let mut later = None;
        let many = flow.inside >= most;
        let exempt = apart != Apart::Held && flow.goes_beside(request, pace != NO_END, many, now);
        if let Apart::Held = apart {
            later = Some(Newcomer::again(self.pace.turn, now));
        } else if bounds && !exempt {
            if many {
                later = Some(now + AGAIN);
            } else if pace != NO_END && apart != Apart::Goes {
                let own =
                    flow.part_of(pace, others).max(if self.shares.trial { flow.share.left.floor } else { 0 });
                later = flow.comes_in(request, &self.pace, own, now);
                self.pace.pressed |= later.is_some() && !flow.share.protected;
                if let (Some(next), Apart::Soon(begin)) = (later, apart) {
                    later = Some(next.min(begin));
                }
            }
        }
        if later.is_none() {
            flow.inside += 1;
            self.inside += u32::from(!flow.promise.is_firm());
            self.window.seen.cost += if exempt || flow.share.protected { 0 } else { work(request) };
        }
        later
    }
    fn passed(&mut self, flow: FlowId) {
        self.went(flow);
    }
    fn dispatched(&mut self, flow: FlowId, wait: Duration, in_flight: u32, now: Instant) {
        (self.in_flight, self.heard) = (in_flight, now);
        self.went(flow);
        let since = self.window.since;
        let Some(flow) = self.watched(flow) else { return };
        if flow.in_flight == 0 {
            // It had nothing here from then on until this request came; what a client needs to ask for the next one is no idleness.
            let gap = (now - wait).since(flow.free_since.max(since)).as_nanos();
            let own = flow.window.latencies.checked_div(flow.window.over).unwrap_or(0);
            flow.window.idle += gap.saturating_sub(own);
        }
        flow.in_flight += 1;
        if !flow.share.goes_beside() {
            flow.loud += 1;
            self.shares.quiet.loud += 1;
        }
    }
    fn completed(&mut self, request: &Request, service: Duration, in_flight: u32, now: Instant) {
        (self.in_flight, self.heard) = (in_flight, now);
        let quiet = self.shares.quiet.goes_on(self.pace.turn, now);
        self.left(request.flow, now);
        let moves = request.op != Op::Flush;
        self.window.seen.all_cost += if moves { u128::from(request.cost.get()) } else { 0 };
        self.window.seen.places += u128::from(service.as_nanos());
        let Some(flow) = self.watched(request.flow) else { return };
        let exempt = flow.is_exempt();
        flow.over(request, service, quiet, now);
        let alone = in_flight <= flow.in_flight;
        if let Some(newcomer) = &mut self.shares.newcomer {
            newcomer.over(request, alone, self.pace.turn, now);
        }
        if !exempt {
            self.window.seen.done += 1;
            self.window.seen.service += service.as_nanos();
        }
        if self.is_settled(now) {
            self.close(now);
        }
    }
    // A FLUSH may break promises as anything else does.
    fn went_beside(&mut self, flow: FlowId, wait: Duration, now: Instant) {
        self.dispatched(flow, wait, self.in_flight, now);
    }
    fn completed_beside(&mut self, request: &Request, service: Duration, now: Instant) {
        self.completed(request, service, self.in_flight, now);
    }
    fn gave_back(&mut self, flow: FlowId, now: Instant) {
        self.left(flow, now);
    }
    fn set_flow(&mut self, flow: FlowId, contract: Option<&Contract>) {
        self.shares.newcomer.take_if(|newcomer| newcomer.is_of(flow));
        let Some(contract) = contract else {
            let gone = self.flows.remove(flow);
            if let Some(gone) = &gone {
                self.shares.quiet.gone += gone.loud;
                self.pace.gone = self.pace.gone.max(gone.next);
                self.window.left(flow, gone);
            }
            match gone {
                Some(gone) if gone.promise.is_firm() => self.firm -= 1,
                Some(gone) => self.inside -= gone.inside,
                None => {}
            }
            return;
        };
        let watched = self.flows.get_or_insert_with(flow, Watched::new);
        let promise = Promise::of(contract);
        if promise != watched.promise {
            let was_firm = watched.promise.is_firm();
            watched.promise = promise;
            match (was_firm, promise.is_firm()) {
                (true, false) => (self.firm, self.inside) = (self.firm - 1, self.inside + watched.inside),
                (false, true) => (self.firm, self.inside) = (self.firm + 1, self.inside - watched.inside),
                _ => {}
            }
            watched.begin_anew();
            self.pace.promises_changed();
        }
    }
}

impl Kept {
    /// A request has left the device, of a flow that may be gone.
    fn left(&mut self, flow: FlowId, now: Instant) {
        match self.flows.get_mut(flow).filter(|flow| flow.in_flight > 0) {
            Some(flow) => {
                flow.left(now);
                self.shares.quiet.loud -= flow.falls_silent();
            }
            None => self.shares.quiet.falls_silent(),
        }
    }

    /// A request that was let in is in the scheduler no more.
    fn went(&mut self, flow: FlowId) {
        if let Some(flow) = self.flows.get_mut(flow).filter(|flow| flow.inside > 0) {
            flow.inside -= 1;
            if !flow.promise.is_firm() {
                self.inside -= 1;
                self.pace.went();
            }
        }
    }
}

/// `kept = { most = 32, shares = false }`
pub(super) fn build(params: &mut Params, terms: &Terms) -> Result<Box<dyn DepthController>, ParamError> {
    let most = params.integer("most", 1, DEPTH_MAX)?.unwrap_or(32);
    let shares = params.bool("shares")?.unwrap_or(false);
    if shares && !terms.keeps.contains(&"weight") {
        let who = (terms.keepers)("weight");
        return Err(
            params.error("shares", format!("the scheduler has no weights to keep; these have: {who}"))
        );
    }
    Ok(Box::new(Kept::new(most as u32, shares)))
}

#[cfg(test)]
mod tests;
