//! One locality disk: its clock, what it may lend, and when it becomes urgent.

use crate::rank_tree::{RankTree, Ranked};
use crate::service_times::ServiceTimes;
use henge_core::{Completion, Cost, CostUnit, Duration, Instant, Rate, Request};

const WHOLE: u64 = 1_000_000;
const NS: i128 = 1_000_000_000;

/// Disk time in ns, on the system clock S or on a disk's clock V. Signed: an estimate may be taken back.
pub(super) type Clock = i128;

/// What is remembered with a waiting request.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// arrival + b; zero where there is no bound.
    deadline: u64,
    /// The dedicated disk would still meet the bound.
    meetable: bool,
}

pub(super) struct LocalityDisk {
    /// f in millionths.
    pub share: u64,
    /// Without a contract: a part of what is kept for best effort.
    pub best_effort: bool,
    /// V.
    pub v: Clock,
    /// The selection at which it was last seen with something waiting.
    pub seen: u64,
    /// Waiting and in flight.
    pub pending: u32,
    pub in_flight: u32,
    pub thinking: Thinking,
    /// Latency-conscious.
    pub bound: Option<Box<Bound>>,
    /// Throughput-conscious.
    pub average: Option<Box<Average>>,
}

impl LocalityDisk {
    pub fn new(share: u64, v: Clock) -> Self {
        LocalityDisk {
            share,
            best_effort: false,
            v,
            seen: 0,
            pending: 0,
            in_flight: 0,
            thinking: Thinking::default(),
            bound: None,
            average: None,
        }
    }
}

/// How long a client takes from an answer to its next request.
#[derive(Default)]
pub(super) struct Thinking {
    /// Its last request was over then, with nothing left.
    since: Option<Instant>,
    /// Mean over the last few times, in ns.
    mean: Option<u64>,
}

impl Thinking {
    pub fn idle(&mut self, now: Instant) {
        self.since = Some(now);
    }
    /// A request came.
    pub fn over(&mut self, now: Instant, most: Duration) {
        let Some(since) = self.since.take() else { return };
        let thought = now.since(since).as_nanos().min(4 * most.as_nanos());
        self.mean = Some(self.mean.map_or(thought, |mean| mean - mean / 4 + thought / 4));
    }
    /// Until when it is worth waiting for the next: w after the last answer, w twice the client's mean time and
    /// `least` while that is unknown; no wait for clients that take longer than `most`.
    pub fn until(&self, least: Duration, most: Duration) -> Option<Instant> {
        let w = match self.mean {
            None => least,
            Some(mean) if mean > most.as_nanos() => return None,
            Some(mean) => Duration::from_nanos((2 * mean).max(least.as_nanos() / 10)).min(most),
        };
        Some(self.since? + w)
    }
}

/// The latency bound of a latency-conscious disk.
pub(super) struct Bound {
    b: Duration,
    /// By arrival + b, all and those that the dedicated disk would meet; δ = s̄/f.
    all: RankTree,
    meetable: RankTree,
    times: ServiceTimes,
    /// D: when the dedicated disk would be through with all that came.
    dedicated: Instant,
    /// Completions until s̄ is looked at again.
    refresh: usize,
}

impl Bound {
    /// The bound b from now on; what was measured stays.
    pub fn changed(old: Option<Box<Bound>>, b: Duration) -> Box<Bound> {
        let Some(mut bound) = old else { return Box::new(Bound::new(b)) };
        bound.b = b;
        bound.clear();
        bound
    }
    fn new(b: Duration) -> Self {
        Bound {
            b,
            all: RankTree::new(),
            meetable: RankTree::new(),
            times: ServiceTimes::default(),
            dedicated: Instant::ZERO,
            refresh: 0,
        }
    }

    /// s̄: mean time of a request; zero until it is known.
    pub fn mean(&self) -> Duration {
        self.times.mean_slot().unwrap_or_default()
    }

    /// A request comes; `guess` is s̄/f by what requests of all disks take, for as long as nothing is known of this one's.
    pub fn arrived(&mut self, request: &Request, seq: u64, guess: Duration) -> Due {
        let deadline = request.arrival + self.b;
        // The dedicated disk takes s̄/f for each; δ is just that.
        let each = if self.all.delta() > 0 { Duration::from_nanos(self.all.delta()) } else { guess };
        self.dedicated = self.dedicated.max(request.arrival) + each;
        let due = Due { deadline: deadline.as_nanos(), meetable: self.dedicated <= deadline };
        let entry = Ranked { key: due.deadline, seq, slot: request.id.slot };
        self.all.insert(entry);
        if due.meetable {
            self.meetable.insert(entry);
        }
        due
    }
    pub fn left(&mut self, due: Due, seq: u64) {
        self.all.remove(due.deadline, seq).expect("a waiting request stands in its disk's order");
        if due.meetable {
            self.meetable.remove(due.deadline, seq).expect("and in the order of those that can be met");
        }
    }

    /// Dispatched, as the first of a turn or not.
    pub fn dispatched(&mut self, slot: u32, first: bool) {
        self.times.dispatched(slot, 0, 0, first);
    }
    pub fn completed(&mut self, completion: &Completion, share: u64, now: Instant) {
        self.times.completed(completion, now);
        self.refresh = self.refresh.saturating_sub(1);
        if self.refresh == 0
            && let Some(mean) = self.times.mean_slot()
        {
            let scaled = mean.mul_ratio(WHOLE, share).as_nanos();
            self.all.set_delta(scaled);
            self.meetable.set_delta(scaled);
            self.refresh = 16.max(self.all.len());
        }
    }

    /// When one of its requests becomes urgent: number k (k before it) at arrival + b − k·s̄/f − p90; of all, and of
    /// those that the dedicated disk would meet, with p99.9, since nothing comes to their help later: with p90 one in ten of
    /// those that waited so long was late. Both are those of the first of a turn: so the urgent one will be served.
    pub fn urgent_at(&self) -> (Option<i64>, Option<i64>) {
        let p90 = self.times.apart().unwrap_or_default().as_nanos() as i64;
        let most = self.times.apart_at_most().unwrap_or_default().as_nanos() as i64;
        // LST_1 = min (key − (k + 1)·δ), so one δ comes back.
        let at = |tree: &RankTree, takes| tree.latest_start().map(|lst| lst + tree.delta() as i64 - takes);
        (at(&self.all, p90), at(&self.meetable, most))
    }

    /// What a loan may take: the next request as the first of a turn.
    pub fn loan(&self) -> Duration {
        self.mean().max(self.times.apart().unwrap_or_default())
    }
    pub fn clear(&mut self) {
        self.all.clear();
        self.meetable.clear();
    }
}

/// The average of a throughput-conscious disk: how far it is ahead of (1 − τ)·c, counted while it had something to do.
pub(super) struct Average {
    c: Rate,
    /// (1 − τ)·c a second.
    floor: i128,
    /// Units · 10⁹ ahead of the floor.
    ahead: i128,
    since: Option<Instant>,
    /// It may save up so much of c.
    saved_max: Duration,
    yields: Yield,
}

/// What a second of the device's time yields a disk, at best: over each second that it had, and a sixteenth less with each.
#[derive(Clone, Copy, Default)]
struct Yield {
    units: i128,
    time: Clock,
    best: Option<i128>,
}

impl Yield {
    fn add(&mut self, units: i128, t: Clock) {
        self.units += units;
        self.time += t;
        if self.time >= NS {
            let seen = self.units * NS / self.time;
            self.best = Some(self.best.map_or(seen, |best| seen.max(best - best / 16)));
            (self.units, self.time) = (0, 0);
        }
    }
}

impl Average {
    pub fn new(c: Rate, tolerance: u32, saved_max: Duration) -> Self {
        let floor = c.mul_ratio(WHOLE - u64::from(tolerance), WHOLE).per_second;
        let yields = Yield::default();
        Average { c, floor: i128::from(floor), ahead: 0, since: None, saved_max, yields }
    }
    /// The same disk under another contract. What it lacked of the one before is a second of this one at most.
    pub fn changed(self, new: Average) -> Average {
        let yields = if self.c.unit == new.c.unit { self.yields } else { Yield::default() };
        Average { ahead: self.ahead.clamp(-new.floor * NS, 0), since: self.since, yields, ..new }
    }
    /// Whether all of the time that its share, in millionths, gives it does not yield its floor.
    pub fn is_beyond(&self, share: u64) -> bool {
        self.yields.best.is_some_and(|best| best * i128::from(share) < self.floor * i128::from(WHOLE))
    }

    fn advance(&mut self, now: Instant) {
        if let Some(since) = self.since.replace(now) {
            self.ahead -= self.floor * i128::from(now.since(since).as_nanos());
        }
    }
    /// It has something to do from now on, or no longer.
    pub fn backlogged(&mut self, backlogged: bool, now: Instant) {
        self.advance(now);
        if !backlogged {
            self.since = None;
        }
    }
    pub fn served(&mut self, request: &Request, t: Clock, now: Instant) {
        self.advance(now);
        let units = match self.c.unit {
            CostUnit::Requests => i128::from(request.commands),
            CostUnit::Bytes => i128::from(request.len),
            CostUnit::DiskTime => t,
        };
        self.yields.add(units, t);
        let most = i128::from(self.c.per_second) * i128::from(self.saved_max.as_nanos());
        self.ahead = (self.ahead + units * NS).min(most);
    }
    /// Whether it stays above its floor if it stands still for so long from now.
    pub fn can_spare(&mut self, standstill: Clock, now: Instant) -> bool {
        self.advance(now);
        self.ahead >= self.floor * standstill
    }
}

/// The longest time of the last 512 to 1024 requests, and their mean. A drive that reads ahead makes one request in some 270 wait for a whole revolution.
#[derive(Default)]
pub(super) struct Longest {
    newer: Clock,
    older: Clock,
    count: u32,
    /// Over about 16.
    mean: Clock,
}

impl Longest {
    const WINDOW: u32 = 512;

    pub fn add(&mut self, t: Clock) {
        if self.count == Self::WINDOW {
            (self.older, self.newer, self.count) = (self.newer, 0, 0);
        }
        self.newer = self.newer.max(t);
        self.count += 1;
        self.mean = if self.mean == 0 { t } else { self.mean + (t - self.mean) / 16 };
    }
    pub fn mean(&self) -> Clock {
        self.mean
    }
    pub fn get(&self) -> Clock {
        self.newer.max(self.older)
    }
}

impl Due {
    pub const NONE: Due = Due { deadline: 0, meetable: false };
}

/// Costs are disk time here.
pub(super) fn time(cost: Cost) -> Clock {
    i128::from(cost.get())
}
