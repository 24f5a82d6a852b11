//! Locality disks: contracts in disk time. Not work conserving: it waits for clients that think.
//!
//! **Problem.** Random access is ten times slower than sequential, so bytes or requests a second say little about what a flow takes
//! from others. Here a flow has the fraction f of the disk's *time*; its own locality decides what that yields.
//!
//! | kind | promise |
//! |---|---|
//! | rent-a-disk | what a dedicated disk with f times the peak bandwidth would deliver |
//! | latency-conscious, L | the same, and within b whenever that dedicated disk would be; first claim on spare time |
//! | throughput-conscious, T | average throughput ≥ c; second claim on spare time; may be overdrawn down to (1 − τ)·c |
//!
//! **Rule** (Yan and Jiang, section 3). A system clock S and a clock V_j per disk, in ns of disk time; a new disk has V_j = S. After a request that took t:
//!
//! ```text
//!   charged, disk j                S += t     V_j += t / f_j
//!   bonus (spare)                  S += t                          bonus = "free" leaves S alone, as the paper
//!   borrowed (C's time, for B)     S += t     V_C += t / f_C
//! ```
//!
//! 1. Among the disks with V_j ≤ S and a request the one with the largest S − V_j, charged; one without a request gets V_j := S.
//! 2. If that is a T disk which stays above (1 − τ)·c after the loan, and an L disk has an urgent request: that one, borrowed.
//! 3. None with V_j ≤ S has a request: spare, as bonus for the most urgent L disk, else for a T disk, never for rent-a-disk.
//! 4. Only rent-a-disk disks have requests: S jumps to the smallest V_j (`work_conserving = false`: the device idles until then).
//!
//! Request k of an L disk's queue is *urgent* when arrival + b < now + k·s̄/f + p90, p90 being what the first of a turn takes
//! (p99.9 where it is to end another's turn: it waits until then, and with p90 one in ten requests that waited so long was late).
//!
//! **Ours**, each with its switch:
//! - *Turns* (`turn` = 200 ms; `"0s"` is the paper's rule): the chosen disk keeps the device for a turn while it has requests; V_j may pass S.
//!   Two sequential clients fall from 5737 requests/s to 284 without. An L disk with V ≤ S ends another's turn (`urgency`) when it holds an urgent request
//!   that the dedicated disk (D := max(D, arrival) + s̄/f, s̄ of all disks until its own is known) would still meet. The turn ends earlier by the
//!   longest of the last 512 requests: one may be at the device. Nobody ends the turn of a T disk that is within a turn of falling below (1 − τ)·c, since
//!   cut turns are mostly seeks; but anybody ends that of one whose share never yields (1 − τ)·c. Who would be urgent during that turn goes before it.
//! - *Exclusive* turns: only the owner has requests at the device, as many as the depth allows; the turn's time with its drain is the owner's.
//!   With turn 0 the interval between completions belongs to the request that completed.
//! - *Thinking* (`think` = 2 ms, `think_max` = 8 ms, `think = "0s"` off): the disk served last is not idle while its client thinks: it is waited
//!   for, at its own charge. The wait follows the client's own times, and is left out for clients that take longer.
//! - A T disk's average counts time in which it had something to do, and it may save up at most `save` = 5 s of c.
//! - Among L disks the one whose request is the most urgent comes first (the paper: the one with the most such requests); it is found in O(log).
//! - A new disk has V_j = max(S, min(V of all that went, S + turn / f_j)): at most as if it had just had its turn. A V_j that is ahead of S when
//!   f_j grows becomes no less than that. So nobody has a turn each time that it comes anew, or changes its share to and fro.
//! - Flows without a share divide `best_effort` = 2 % among them, in turns of 1 s · f.
//!
//! **Example.** f = 0.75 and 0.25, both always with requests, turn 200 ms. A's turn: S = 200, V_A = 267, V_B = 0. B's: S = 400, V_B = 800. A: S = 600, V_A = 533,
//! again: S = 800, V_A = 800. So three turns to one.
//!
//! **Guarantee.** A disk that always has something waiting receives f·S but for one turn, whatever the others ask for. Within a flow requests
//! leave in the order they came.
//!
//! **Price.** Heaps over the disks that have something waiting: 0.2 us a request, 0.3 us with 10,000 waiting.

mod choice;
mod disk;
mod orders;

use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::names::one_of;
use crate::{Backlog, Flows, Terms};
use disk::{Average, Bound, Clock, Due, LocalityDisk, Longest, time};
use henge_core::{
    Completion, Contract, Cost, DiskTimeKind, Dispatch, Duration, FlowId, Instant, Keeps, Need, ParamError,
    Params, Refused, Request, RequestId, Scheduler, Slots, WaitReason, With, check_bound, check_share,
};
use orders::Orders;

pub(crate) const ENTRY: Entry = Entry {
    name: "locality",
    summary: "shares of the disk's time: rent-a-disk, latency-conscious, throughput-conscious",
    keeps: &["share", "latency"],
    order: Order::Arrival,
    work_conserving: false,
    depth: DefaultDepth::Fixed(1),
    cost: "disk time",
    on_device: OnDevice { time: false, kept: false, shares: false },
    build,
};

#[derive(Clone, Copy)]
struct Rules {
    turn: Duration,
    urgency: bool,
    think: Duration,
    think_max: Duration,
    bonus_counts: bool,
    work_conserving: bool,
    save: Duration,
    /// In millionths, of all such flows together.
    best_effort: u64,
    service: Option<Duration>,
}

/// Only a latency-conscious disk is answered within a bound.
const NEEDS: &[Need] = &[Need::of("latency", &[With::word("kind", "latency")])];
/// All of the disk's time, in millionths.
const WHOLE: u32 = 1_000_000;

fn build(p: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    let time = |p: &mut Params, key, default| p.duration(key).map(|t| t.unwrap_or(default));
    let rules = Rules {
        turn: time(p, "turn", Duration::from_millis(200))?,
        urgency: p.bool("urgency")?.unwrap_or(true),
        think: time(p, "think", Duration::from_millis(2))?,
        think_max: time(p, "think_max", Duration::from_millis(8))?,
        bonus_counts: one_of(p, "bonus", &[("counted", true), ("free", false)])?.unwrap_or(true),
        work_conserving: p.bool("work_conserving")?.unwrap_or(true),
        save: time(p, "save", Duration::from_secs(5))?,
        best_effort: u64::from(p.share("best_effort")?.unwrap_or(20_000)).max(1),
        service: p.duration("service")?,
    };
    Ok(Box::new(Locality::new(Terms { needs: NEEDS, ..terms }, rules)))
}

/// On whose account the device works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Charged,
    Bonus,
    Borrowed { from: FlowId },
}

#[derive(Clone, Copy)]
struct Turn {
    owner: FlowId,
    kind: Kind,
    ends: Instant,
}

/// A request in flight, by its slot: on whose account, and what was charged for it already.
#[derive(Clone, Copy)]
struct Charge {
    kind: Kind,
    charged: Clock,
}

struct Locality {
    terms: Terms,
    rules: Rules,
    disks: Flows<LocalityDisk>,
    backlog: Backlog<Due>,
    /// S.
    s: Clock,
    orders: Orders,
    turn: Option<Turn>,
    /// Served last; perhaps its client thinks.
    last: Option<FlowId>,
    /// Since when the device has stood still for a thinking client, or for S (rule 4).
    still: Option<Instant>,
    /// Until here the device's time has been charged.
    mark: Instant,
    charges: Vec<Charge>,
    in_flight: u32,
    /// What one request took lately at most: so long it may be until a turn can end; and on average, whosever it was.
    longest: Longest,
    selection: Selection,
    promised: Promised,
}

/// The last choice of a disk: its number, and S then.
#[derive(Clone, Copy, Default)]
struct Selection {
    number: u64,
    s: Clock,
}

/// What contracts have of the disk's time in all, in millionths, and how many flows have none. And the latest V of flows that went.
#[derive(Default)]
struct Promised {
    shares: u64,
    best_efforts: u64,
    departed: Clock,
}

impl Promised {
    fn add(&mut self, disk: &LocalityDisk) {
        self.shares += if disk.best_effort { 0 } else { disk.share };
        self.best_efforts += u64::from(disk.best_effort);
    }
    fn remove(&mut self, disk: &LocalityDisk) {
        self.shares -= if disk.best_effort { 0 } else { disk.share };
        self.best_efforts -= u64::from(disk.best_effort);
    }
}

impl Locality {
    fn new(terms: Terms, rules: Rules) -> Self {
        Locality {
            terms,
            rules,
            disks: Flows::new(),
            backlog: Backlog::new(),
            s: 0,
            orders: Orders::new(),
            turn: None,
            last: None,
            still: None,
            mark: Instant::ZERO,
            charges: Vec::new(),
            in_flight: 0,
            longest: Longest::default(),
            selection: Selection::default(),
            promised: Promised::default(),
        }
    }

    /// Puts a disk where its clock and its queue say.
    fn place(&mut self, flow: FlowId) {
        match self.disks.get(flow).filter(|_| self.backlog.waits(flow)) {
            Some(disk) => self.orders.place(flow, disk, self.s),
            None => self.orders.remove(flow),
        }
    }

    /// The device worked for `flow` for the time t.
    fn charge(&mut self, flow: FlowId, kind: Kind, t: Clock) {
        if kind != Kind::Bonus || self.rules.bonus_counts {
            self.s += t;
        }
        let payer = match kind {
            Kind::Charged => flow,
            Kind::Bonus => return,
            Kind::Borrowed { from } => from,
        };
        if self.disks.get(payer).is_some() {
            let scaled = self.scaled(payer, t);
            self.disks[payer].v += scaled;
            self.place(payer);
        }
    }

    fn serve(&mut self, flow: FlowId, kind: Kind, now: Instant) -> Dispatch {
        let queued = *self.backlog.pop_front(flow).expect("the chosen disk has something waiting");
        let disk = &mut self.disks[flow];
        disk.in_flight += 1;
        disk.seen = self.selection.number;
        if let Some(bound) = &mut disk.bound {
            bound.left(queued.extra, queued.sequence);
            bound.dispatched(queued.request.id.slot, self.last != Some(flow));
        }
        // Without turns several disks may have requests at the device: what is there counts already.
        let charged = if self.rules.turn == Duration::ZERO { time(queued.request.cost) } else { 0 };
        let slot = queued.request.id.index();
        if self.charges.len() <= slot {
            self.charges.resize(slot + 1, Charge { kind, charged });
        }
        self.charges[slot] = Charge { kind, charged };
        self.in_flight += 1;
        self.last = Some(flow);
        self.place(flow);
        if charged > 0 {
            self.charge(flow, kind, charged);
        }
        debug_assert!(self.mark <= now, "time goes forward");
        Dispatch::Ready(queued.request)
    }

    fn drained(&mut self, request: &Request, due: Due, seq: u64, now: Instant) {
        let disk = &mut self.disks[request.flow];
        disk.pending -= 1;
        if let Some(bound) = &mut disk.bound {
            bound.left(due, seq);
        }
        if disk.pending == 0
            && let Some(average) = &mut disk.average
        {
            average.backlogged(false, now);
        }
        self.place(request.flow);
    }

    /// f in millionths; what is kept for best effort is divided among those without a contract.
    fn share(&self, disk: &LocalityDisk) -> u64 {
        match disk.best_effort {
            true => (self.rules.best_effort / self.promised.best_efforts).max(1),
            false => disk.share,
        }
    }

    /// How long a turn is. One of 200 ms at 2 % would be followed by 10 s of waiting: where nothing is promised, turns
    /// are so short that it is a second.
    fn turn_of(&self, flow: FlowId) -> Duration {
        let disk = &self.disks[flow];
        match disk.best_effort {
            true => self.rules.turn.min(Duration::from_micros(self.share(disk))),
            false => self.rules.turn,
        }
    }

    /// t / f.
    fn scaled(&self, flow: FlowId, t: Clock) -> Clock {
        t * 1_000_000 / i128::from(self.share(&self.disks[flow]))
    }

    /// How long the dedicated disk takes for a request, by what all disks' requests take.
    fn guess(&self, flow: FlowId) -> Duration {
        if self.disks[flow].bound.is_none() {
            return Duration::ZERO;
        }
        Duration::from_nanos(u64::try_from(self.scaled(flow, self.longest.mean())).unwrap_or(u64::MAX))
    }

    /// Checks a contract; the share in millionths (zero for best effort).
    fn admit(&self, flow: FlowId, contract: &Contract) -> Result<u64, Refused> {
        let Some(wanted) = contract.disk_time else { return Ok(0) };
        if let (Some(latency), Some(service)) = (contract.latency, self.rules.service) {
            check_bound(latency, service)?;
        }
        if let DiskTimeKind::ThroughputConscious { tolerance: 1_000_000.., .. } = wanted.kind {
            let (why, instead) = ("a tolerance of 100% leaves nothing".into(), "state less than 100%".into());
            return Err(Refused { term: "tolerance", why, instead });
        }
        let share = u64::from(wanted.share);
        let old = self.disks.get(flow).filter(|d| !d.best_effort).map_or(0, |d| d.share);
        check_share(share, self.promised.shares - old, WHOLE.into())?;
        Ok(share)
    }
}

impl Scheduler for Locality {
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn keeps(&self) -> Keeps {
        let service = self.rules.service.map(|service| (WHOLE, service));
        Keeps { share: Some(WHOLE), service: service.into_iter().collect(), ..self.terms.keeps() }
    }
    fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.admit(flow, &self.terms.admit(contract)?).map(drop)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        let contract = self.terms.admit(contract)?;
        let share = self.admit(flow, &contract)?;
        let (s, departed) = (self.s, self.promised.departed.max(self.s));
        let before = self.disks.get(flow).map(|disk| self.share(disk));
        let disk = self.disks.get_or_insert_with(flow, || LocalityDisk::new(0, s));
        self.promised.remove(disk);
        disk.best_effort = share == 0;
        disk.share = share;
        self.promised.add(disk);
        let turn = i128::from(self.rules.turn.as_nanos()).max(self.longest.get());
        let had_its_turn = s + self.scaled(flow, turn);
        let (new, disk) = (self.share(&self.disks[flow]), &mut self.disks[flow]);
        match before {
            // A larger share holds at once: its clock is ahead of S by what it had at the share before.
            Some(old) if old < new && disk.v > s => {
                let ahead = s + (disk.v - s) * i128::from(old) / i128::from(new);
                disk.v = ahead.max(disk.v.min(had_its_turn));
            }
            Some(_) => {}
            None => disk.v = departed.min(had_its_turn),
        }
        let average = match contract.disk_time.map(|d| d.kind) {
            Some(DiskTimeKind::ThroughputConscious { throughput, tolerance }) => {
                let new = Average::new(throughput, tolerance, self.rules.save);
                Some(Box::new(match disk.average.take() {
                    Some(old) => old.changed(new),
                    None => new,
                }))
            }
            _ => None,
        };
        disk.average = average;
        disk.bound = contract.latency.map(|l| Bound::changed(disk.bound.take(), l.bound));
        if let Some(average) = disk.average.as_mut().filter(|_| disk.pending > 0) {
            average.backlogged(true, now);
        }
        // What waits is looked at with the new bound.
        let waiting: Vec<_> = self.backlog.iter(flow).map(|q| (q.request, q.sequence)).collect();
        let guess = self.guess(flow);
        for (request, seq) in waiting {
            let bound = self.disks[flow].bound.as_mut();
            let due = bound.map_or(Due::NONE, |b| b.arrived(&request, seq, guess));
            self.backlog.get_mut(request.id).expect("it was just listed").extra = due;
        }
        self.orders.ready_average.remove(flow.0);
        self.place(flow);
        Ok(())
    }
    fn remove_flow(&mut self, flow: FlowId, _: Instant, orphans: &mut Vec<Request>) {
        self.backlog.drain_flow(flow, orphans);
        let Some(disk) = self.disks.remove(flow) else { return };
        self.promised.departed = self.promised.departed.max(disk.v);
        self.place(flow);
        self.promised.remove(&disk);
    }
    fn enqueue(&mut self, request: Request, now: Instant) {
        let seq = self.backlog.arrivals();
        let disk = &mut self.disks[request.flow];
        if disk.pending == 0 {
            disk.thinking.over(now, self.rules.think_max);
            if let Some(average) = &mut disk.average {
                average.backlogged(true, now);
            }
            // Rule 1: it was passed over with nothing waiting, so its idle time is no credit.
            let waited_for = self.last == Some(request.flow) && self.still.is_some();
            if disk.seen < self.selection.number && !waited_for {
                disk.v = disk.v.max(self.selection.s);
            }
        }
        disk.pending += 1;
        let guess = self.guess(request.flow);
        let bound = self.disks[request.flow].bound.as_mut();
        let due = bound.map_or(Due::NONE, |b| b.arrived(&request, seq, guess));
        self.backlog.push(request, due);
        self.place(request.flow);
    }
    fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let queued = *self.backlog.remove(id)?;
        self.drained(&queued.request, queued.extra, queued.sequence, now);
        Some(queued.request)
    }
    fn dispatch(&mut self, now: Instant, _: Slots) -> Dispatch {
        if self.backlog.is_empty() {
            self.still = None; // nobody waits for whoever thinks
            return Dispatch::Idle;
        }
        if let Some(turn) = self.turn {
            let goes_on = self.goes_on(turn, now);
            if goes_on && self.backlog.waits(turn.owner) {
                self.end_stillness(now);
                return self.serve(turn.owner, turn.kind, now);
            }
            if goes_on
                && turn.kind == Kind::Charged
                && self.in_flight == 0
                && let Some(until) = self.thinks_until(turn.owner, now)
            {
                return self.stand_still(until.min(turn.ends), now);
            }
        }
        if self.rules.turn > Duration::ZERO && self.in_flight > 0 {
            return Dispatch::Wait { until: None, reason: WaitReason::Turn };
        }
        self.turn = None;
        self.end_stillness(now);
        let (owner, kind) = match self.select(now) {
            Ok(chosen) => chosen,
            Err(wait) => return wait,
        };
        if self.rules.turn > Duration::ZERO {
            self.turn = Some(Turn { owner, kind, ends: now + self.turn_of(owner) });
        }
        self.serve(owner, kind, now)
    }
    fn complete(&mut self, completion: &Completion, now: Instant) {
        let Completion { request, dispatched, .. } = *completion;
        self.in_flight -= 1;
        let Charge { kind, charged } = self.charges[request.id.index()];
        let t = i128::from(now.since(dispatched.max(self.mark)).as_nanos()).max(1); // at least one tick
        self.mark = now;
        self.longest.add(t);
        self.charge(request.flow, kind, t - charged);
        let Some(disk) = self.disks.get_mut(request.flow).filter(|d| d.in_flight > 0) else { return };
        disk.in_flight -= 1;
        disk.pending -= 1;
        if let Some(bound) = &mut disk.bound {
            bound.completed(completion, disk.share, now);
        }
        if let Some(average) = &mut disk.average {
            average.served(&request, t, now);
            average.backlogged(disk.pending > 0, now);
        }
        if disk.pending == 0 {
            disk.thinking.idle(now);
        }
        self.place(request.flow);
    }
    fn adjust(&mut self, request: &Request, cost: Cost, _: Instant) {
        if let Some(queued) = self.backlog.get_mut(request.id) {
            queued.request.cost = cost;
        }
    }
    fn queued(&self) -> usize {
        self.backlog.queued()
    }
    fn waiting(&self, flow: FlowId, _: Instant) -> Option<WaitReason> {
        let waits = self.backlog.waits(flow);
        match self.turn {
            Some(turn) if waits && turn.owner != flow => Some(WaitReason::Turn),
            None if waits && self.orders.ready.len() > 1 => Some(WaitReason::OwnShare),
            _ => None,
        }
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.orders.clear();
        for (_, disk) in self.disks.iter_mut() {
            disk.pending = disk.in_flight;
            if let Some(bound) = &mut disk.bound {
                bound.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests;
