//! Neighbours come and go, give up what waits, and wake up together after years: whoever is promised a rate has it.

use henge_core::{
    Contract, Cost, Dispatch, Duration, FlowId, Gate, Instant, Latency, Op, Params, Pending, Rate, Request,
    RequestId, Value,
};
use henge_sched::{Entry, SCHEDULERS, build};
use std::collections::VecDeque;

/// What neighbours do every 20 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trick {
    /// They are removed, and added under the same number.
    Return,
    /// They are removed, and added 20 ms later.
    Pause,
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

/// A device of 1000/s, a flow of 300/s, and six others of a rate or none, from three years on.
fn try_one(entry: &Entry, trick: Trick, others: u64) -> Option<String> {
    let params = Params::new(entry.name).with("cost", Value::Text("requests".into()));
    let params = params.with("depth", Value::Integer(2));
    let gate = Gate::new(build(entry.name, params).unwrap_or_else(|e| panic!("{e}")));
    let mut world = World {
        gate,
        now: Instant::ZERO,
        ids: Pending::new(),
        waiting: Vec::new(),
        flying: VecDeque::new(),
        there: [false; 7],
        victim: Vec::new(),
    };
    let promised = |rate, ms| {
        let bound = Latency { bound: Duration::from_millis(ms), percentile: 950_000 };
        let latency = entry.keeps.contains(&"latency").then_some(bound);
        Contract { latency, ..Contract::reserved(Rate::requests(rate)) }
    };
    let set = |world: &mut World, flow: u32| {
        let contract = match (flow, others) {
            (0, _) => promised(300, 100),
            (_, 0) => Contract::best_effort(),
            _ => promised(others, 20),
        };
        world.gate.set_flow(FlowId(flow), &contract, world.now).unwrap_or_else(|e| panic!("{e}"));
        world.there[flow as usize] = true;
    };
    (0..7).for_each(|flow| set(&mut world, flow));
    world.now += Duration::from_secs(3 * 365 * 86_400);
    let start = world.now;
    (0..7).for_each(|flow| (0..if flow == 0 { 16 } else { 64 }).for_each(|_| world.submit(flow)));
    for step in 1..200u64 {
        world.run(start + Duration::from_millis(20 * step));
        for flow in 1..7u32 {
            match trick {
                Trick::Return => {
                    world.remove(flow);
                    set(&mut world, flow);
                    (0..64).for_each(|_| world.submit(flow));
                }
                Trick::Pause if (step + u64::from(flow)) % 2 == 0 => world.remove(flow),
                Trick::Pause => {
                    if !world.there[flow as usize] {
                        set(&mut world, flow);
                        (0..64).for_each(|_| world.submit(flow));
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
    let from = start + Duration::from_secs(1);
    let got = world.victim.iter().filter(|t| **t > from && **t <= from + Duration::from_millis(2900)).count();
    (got < 850).then(|| format!("{} {trick:?}, others {others}: {got} of 870", entry.name))
}

#[test]
fn neighbours_that_come_and_go_take_nothing_of_a_promise() {
    use Trick::{Dear, Foreign, GiveUp, GiveUpOldest, Pause, Return};
    let mut short = Vec::new();
    for entry in SCHEDULERS.iter().filter(|entry| entry.keeps.contains(&"rate")) {
        for trick in [Return, Pause, GiveUp, GiveUpOldest, Dear, Foreign] {
            // A bucket begins full, and whoever comes often has a burst each time.
            let bursts = matches!(entry.name, "edf" | "two-level") && matches!(trick, Return | Pause);
            short.extend(try_one(entry, trick, 0));
            short.extend(if bursts { None } else { try_one(entry, trick, 100) });
        }
    }
    assert!(short.is_empty(), "{short:#?}");
}
