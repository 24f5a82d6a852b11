//! Neighbours come and go, give up what waits, and wake up together after years: whoever is promised a rate has it.

use henge_core::{
    Contract, Cost, DiskTime, DiskTimeKind, Dispatch, Duration, FlowId, Gate, Instant, Latency, Op, Params,
    Pending, Rate, Request, RequestId, Value,
};
use henge_sched::{Entry, SCHEDULERS, build};
use proptest::prelude::*;
use std::collections::VecDeque;

/// What neighbours do every 20 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trick {
    /// They are removed, and added under the same number.
    Return,
    /// They are removed, and added 20 ms later.
    Pause,
    /// They give up what they were promised, and are promised it again.
    Renounce,
    /// They are promised little, and as much as before again.
    Haggle,
    /// They give up all that waits, and ask anew.
    GiveUp,
    /// They give up the oldest that waits.
    GiveUpOldest,
    /// What they have under way turns out to cost a thousand times as much.
    Dear,
    /// They have got much elsewhere.
    Foreign,
}

struct World {
    gate: Gate,
    now: Instant,
    ids: Pending<()>,
    waiting: Vec<(u32, RequestId)>,
    flying: VecDeque<(Instant, RequestId, u32)>,
    there: [bool; 7],
    victim: Vec<Instant>,
}

impl World {
    /// A device of 1000/s and a flow of 300/s, and room for six more.
    fn new(entry: &Entry) -> World {
        let mut world = World::empty(entry);
        world.set(0, &promised(entry, 300, 100, 10));
        world
    }
    fn empty(entry: &Entry) -> World {
        let knobs: &[_] = match entry.name {
            "locality" => &[("cost", "disk time"), ("turn", "20ms")],
            _ => &[("cost", "requests")],
        };
        let text = |text: &str| Value::Text(text.into());
        let params = knobs.iter().fold(Params::new(entry.name), |p, (key, value)| p.with(key, text(value)));
        let params = params.with("depth", Value::Integer(2));
        let gate = Gate::new(build(entry.name, params).unwrap_or_else(|e| panic!("{e}")));
        World {
            gate,
            now: Instant::ZERO,
            ids: Pending::new(),
            waiting: Vec::new(),
            flying: VecDeque::new(),
            there: [false; 7],
            victim: Vec::new(),
        }
    }
    fn set(&mut self, flow: u32, contract: &Contract) {
        self.gate.set_flow(FlowId(flow), contract, self.now).unwrap_or_else(|e| panic!("{e}"));
        self.there[flow as usize] = true;
    }
    /// So many requests of the flow are outstanding from now on.
    fn fill(&mut self, flow: u32, outstanding: usize) {
        let waiting = self.waiting.iter().filter(|w| w.0 == flow).count();
        (waiting..outstanding).for_each(|_| self.submit(flow));
    }
    /// What the first flow got in so long from `from` on.
    fn got(&self, from: Instant, time: Duration) -> usize {
        self.victim.iter().filter(|t| **t > from && **t <= from + time).count()
    }
    fn submit(&mut self, flow: u32) {
        let id = self.ids.insert(());
        let request = Request::new(id, FlowId(flow), Op::Read, 0, 4096, self.now);
        self.gate.submit(request, self.now).expect("few are outstanding");
        self.waiting.push((flow, id));
    }
    fn give_up(&mut self, flow: u32, most: usize) -> usize {
        let all: Vec<_> = self.waiting.iter().filter(|w| w.0 == flow).map(|w| w.1).take(most).collect();
        let mut n = 0;
        for id in &all {
            if self.gate.cancel(*id, self.now).is_some() {
                self.ids.remove(*id);
                n += 1;
            }
        }
        self.waiting.retain(|w| !all.contains(&w.1));
        n
    }
    fn remove(&mut self, flow: u32) {
        let mut orphans = Vec::new();
        self.gate.remove_flow(FlowId(flow), self.now, &mut orphans);
        for request in orphans {
            self.ids.remove(request.id);
        }
        self.waiting.retain(|w| w.0 != flow);
        self.there[flow as usize] = false;
    }
    fn run(&mut self, end: Instant) {
        while self.now < end {
            while let Dispatch::Ready(request) = self.gate.next(self.now) {
                let free = self.flying.back().map_or(self.now, |f| f.0).max(self.now);
                self.flying.push_back((free + Duration::from_millis(1), request.id, request.flow.0));
                self.waiting.retain(|w| w.1 != request.id);
            }
            let over = self.flying.front().map(|f| f.0);
            let wake = self.gate.wake_at().filter(|t| *t > self.now);
            self.now = [over, wake, Some(end)].into_iter().flatten().min().expect("the end");
            while self.flying.front().is_some_and(|f| f.0 <= self.now) {
                let (_, id, flow) = self.flying.pop_front().expect("it was just seen");
                self.gate.complete(id, false, self.now);
                self.ids.remove(id);
                if flow == 0 {
                    self.victim.push(self.now);
                }
                if self.there[flow as usize] {
                    self.submit(flow);
                }
            }
        }
    }
}

/// Whether a scheduler promises a rate, or a share of the time.
fn promises(entry: &Entry) -> bool {
    ["rate", "share"].iter().any(|term| entry.keeps.contains(term))
}

/// What the scheduler takes of such a promise.
fn promised(entry: &Entry, rate: u64, ms: u64, burst: u64) -> Contract {
    let bound = Latency { bound: Duration::from_millis(ms), percentile: 950_000 };
    if entry.keeps.contains(&"share") {
        let kind = if ms < 100 { DiskTimeKind::LatencyConscious } else { DiskTimeKind::RentADisk };
        let disk_time = Some(DiskTime { share: rate as u32 * 1000, kind });
        return Contract { latency: Some(bound).filter(|_| ms < 100), disk_time, ..Contract::default() };
    }
    let latency = entry.keeps.contains(&"latency").then_some(bound);
    let bursts = matches!(entry.name, "pclock" | "edf" | "two-level");
    let burst = bursts.then_some(Cost::new(burst * 1_000_000));
    Contract { latency, burst, ..Contract::reserved(Rate::requests(rate)) }
}

/// The flow of 300/s, and six others of a rate or none, from three years on.
fn try_one(entry: &Entry, trick: Trick, others: u64) -> Option<String> {
    let mut world = World::new(entry);
    let contract = match others {
        0 => Contract::best_effort(),
        _ => promised(entry, others, 15, 10),
    };
    (1..7).for_each(|flow| world.set(flow, &contract));
    world.now += Duration::from_secs(3 * 365 * 86_400);
    let start = world.now;
    (0..7).for_each(|flow| world.fill(flow, if flow == 0 { 16 } else { 64 }));
    for step in 1..200u64 {
        world.run(start + Duration::from_millis(20 * step));
        for flow in 1..7u32 {
            match trick {
                Trick::Return => {
                    world.remove(flow);
                    world.set(flow, &contract);
                    world.fill(flow, 64);
                }
                Trick::Renounce | Trick::Haggle => {
                    let less = match trick {
                        Trick::Renounce => Contract::best_effort(),
                        _ => promised(entry, 1, 20, 10),
                    };
                    world.set(flow, &less);
                    world.set(flow, &contract);
                }
                Trick::Pause if (step + u64::from(flow)) % 2 == 0 => world.remove(flow),
                Trick::Pause => {
                    if !world.there[flow as usize] {
                        world.set(flow, &contract);
                        world.fill(flow, 64);
                    }
                }
                Trick::GiveUp | Trick::GiveUpOldest => {
                    let n = world.give_up(flow, if trick == Trick::GiveUp { 64 } else { 1 });
                    (0..n).for_each(|_| world.submit(flow));
                }
                Trick::Dear => {
                    let cost = Cost::new(1_000_000_000);
                    let ids: Vec<_> = world.flying.iter().filter(|f| f.2 == flow).map(|f| f.1).collect();
                    ids.into_iter().for_each(|id| world.gate.adjust(id, cost, world.now));
                }
                Trick::Foreign => world.gate.foreign(FlowId(flow), Cost::new(1 << 40), world.now),
            }
        }
    }
    let got = world.got(start + Duration::from_secs(1), Duration::from_millis(2900));
    (got < 840).then(|| format!("{} {trick:?}, others {others}: {got} of 870", entry.name))
}

#[test]
fn neighbours_that_come_and_go_take_nothing_of_a_promise() {
    use Trick::{Dear, Foreign, GiveUp, GiveUpOldest, Haggle, Pause, Renounce, Return};
    let mut short = Vec::new();
    for entry in SCHEDULERS.iter().filter(|entry| promises(entry)) {
        for trick in [Return, Pause, Renounce, Haggle, GiveUp, GiveUpOldest, Dear, Foreign] {
            short.extend([0, 100].into_iter().filter_map(|others| try_one(entry, trick, others)));
        }
    }
    assert!(short.is_empty(), "{short:#?}");
}

/// Whoever is removed and added again, or gives its limit up and takes it again, has no more than the limit, and its burst once.
#[test]
fn a_limit_holds_for_who_comes_again() {
    let mut long = Vec::new();
    for entry in SCHEDULERS.iter().filter(|entry| entry.keeps.contains(&"limit")) {
        let burst = entry.keeps.contains(&"burst").then_some(Cost::new(50_000_000));
        let limited = |limit| Contract { limit: Some(Rate::requests(limit)), burst, ..Contract::default() };
        let tricks = [Trick::Return, Trick::Renounce, Trick::Haggle];
        for (trick, ms) in tricks.into_iter().flat_map(|trick| [5u64, 50, 500].map(|ms| (trick, ms))) {
            let mut world = World::empty(entry);
            world.set(0, &limited(100));
            world.fill(0, 64);
            for step in 1..4000 / ms {
                world.run(Instant::ZERO + Duration::from_millis(ms * step));
                match trick {
                    Trick::Return => world.remove(0),
                    Trick::Renounce => world.set(0, &Contract::best_effort()),
                    _ => world.set(0, &limited(101)),
                }
                world.set(0, &limited(100));
                world.fill(0, 64);
            }
            let got = world.victim.len();
            if got > 404 + 50 + 4 {
                long.push(format!("{} {trick:?}, each {ms} ms: {got}", entry.name));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// What a neighbour does.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Goes,
    /// It comes, or its contract changes: to a rate, a bound in ms, and a burst; or to nothing, where the rate is 0.
    Comes {
        rate: u64,
        bound: u64,
        burst: u64,
    },
    GivesUp,
}

fn deeds() -> impl Strategy<Value = Vec<(u64, u32, Deed)>> {
    let comes = (prop_oneof![0u64..=100, 90u64..=100], 5u64..50, 0u64..=20);
    let deed = prop_oneof![
        5 => Just(Deed::Goes),
        6 => comes.prop_map(|(rate, bound, burst)| Deed::Comes { rate, bound, burst }),
        1 => Just(Deed::GivesUp),
    ];
    prop::collection::vec((50u64..4_000, 1u32..7, deed), 4..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Of 1000/s at most 900/s are promised at any time, whoever comes, goes or changes when, and whatever burst a contract has.
    #[test]
    fn whatever_comes_and_goes_takes_nothing_of_a_promise(deeds in deeds()) {
        for entry in SCHEDULERS.iter().filter(|entry| promises(entry)) {
            let mut world = World::new(entry);
            world.fill(0, 16);
            for &(wait, flow, deed) in deeds.iter().cycle() {
                world.run(world.now + Duration::from_micros(wait));
                match deed {
                    _ if world.now > Instant::ZERO + Duration::from_secs(3) => break,
                    Deed::Goes if world.there[flow as usize] => world.remove(flow),
                    Deed::Comes { rate: 0, .. } => world.set(flow, &Contract::best_effort()),
                    Deed::Comes { rate, bound, burst } => world.set(flow, &promised(entry, rate, bound, burst)),
                    Deed::GivesUp => drop(world.give_up(flow, 64)),
                    Deed::Goes => {}
                }
                if world.there[flow as usize] {
                    world.fill(flow, 64);
                }
            }
            let got = world.got(Instant::ZERO + Duration::from_secs(1), Duration::from_secs(2));
            prop_assert!(got >= 570, "{}: {} of 600", entry.name, got);
        }
    }
}
