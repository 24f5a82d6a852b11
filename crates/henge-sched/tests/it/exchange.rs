//! Shares hold while a scheduler is exchanged: what a flow gets differs from its share by what the theorem of fairness allows
//! before and after, and by what leaves by the old scheduler while flows move.

use henge_core::{
    Assembly, Contract, Dispatch, Duration, FlowId, Gate, Instant, Op, Params, Pending, Request, RequestId,
    Value,
};
use henge_sched::build;
use proptest::prelude::*;
use std::collections::VecDeque;

const LEN: u64 = 4096;

fn sfq() -> Assembly {
    // Each request costs one, so that what is counted is what is charged.
    build("sfq", Params::new("sfq").with("cost", Value::Text("requests".into()))).expect("a scheduler")
}

/// Flows that always have `backlog` requests waiting, and a device that has up to `depth` of them.
struct World {
    gate: Gate,
    ids: Pending<()>,
    now: Instant,
    served: Vec<u64>,
    in_flight: VecDeque<(RequestId, FlowId)>,
    depth: usize,
}

impl World {
    fn new(weights: &[u32], backlog: u32, depth: usize) -> World {
        let mut world = World {
            gate: Gate::new(sfq()),
            ids: Pending::new(),
            now: Instant::ZERO,
            served: vec![0; weights.len()],
            in_flight: VecDeque::new(),
            depth,
        };
        for (flow, weight) in weights.iter().enumerate() {
            let flow = FlowId(flow as u32);
            world.gate.set_flow(flow, &Contract::weighted(*weight), world.now).expect("a weight");
            (0..backlog).for_each(|_| world.submit(flow));
        }
        world
    }
    fn submit(&mut self, flow: FlowId) {
        let id = self.ids.insert(());
        let request = Request::new(id, flow, Op::Read, 0, LEN, self.now);
        self.gate.submit(request, self.now).expect("far fewer than may be pending");
    }
    /// One request is dispatched, and its flow submits another; the oldest in flight is over if the device is full.
    fn step(&mut self) {
        if self.in_flight.len() == self.depth {
            self.now += Duration::from_micros(10);
            let (id, _) = self.in_flight.pop_front().expect("the device is full");
            self.gate.complete(id, false, self.now);
            self.ids.remove(id).expect("over once");
        }
        let Dispatch::Ready(request) = self.gate.next(self.now) else {
            panic!("every flow has something waiting")
        };
        self.in_flight.push_back((request.id, request.flow));
        self.served[request.flow.index()] += 1;
        self.submit(request.flow);
    }
}

proptest! {
    #[test]
    fn shares_hold_through_exchanges(
        weights in proptest::collection::vec(1u32..8, 2..40),
        backlog in 1u32..4,
        depth in 1usize..9,
        step in 1usize..6,
        moments in proptest::collection::vec(0u32..400, 1..4),
    ) {
        let (n, waiting) = (weights.len(), weights.len() * backlog as usize);
        let mut world = World::new(&weights, backlog, depth);
        let mut exchanges = 0u64;
        for wait in moments {
            (0..wait).for_each(|_| world.step());
            world.gate.prepare(sfq(), step);
            while !world.gate.prepare_step(world.now).expect("an equal scheduler takes the same weights") {
                world.step();
            }
            world.gate.take_over(world.now);
            exchanges += 1;
            let mut by_the_old = 0;
            while world.gate.is_exchanging() {
                world.step();
                by_the_old += 1;
            }
            // The last of them is the new one's already.
            prop_assert!(by_the_old <= (n + waiting) / step + 3, "{by_the_old} while {n} flows moved");
        }
        (0..400).for_each(|_| world.step());
        // Nobody is lost, and nobody came twice.
        prop_assert_eq!(world.gate.queued(), waiting);
        prop_assert_eq!(world.gate.in_flight() as usize, world.in_flight.len());
        // SFQ, theorem 1, for requests that cost one: |W_f/φ_f − W_g/φ_g| ≤ 1/φ_f + 1/φ_g in each of the intervals that
        // exchanges part, D + 1 times as much at depth D; and what leaves by the old scheduler while flows move, at most all of
        // it one flow's.
        let amid = ((n + waiting) / step + 3) as f64;
        for f in 0..n {
            for g in 0..f {
                let (a, b) = (f64::from(weights[f]), f64::from(weights[g]));
                let apart = (world.served[f] as f64 / a - world.served[g] as f64 / b).abs();
                let fair = (depth as f64 + 1.0) * (1.0 / a + 1.0 / b);
                let bound = (exchanges + 1) as f64 * fair + exchanges as f64 * amid / a.min(b);
                prop_assert!(apart <= bound, "flows {f} and {g}, weights {a} and {b}: {apart} > {bound}");
            }
        }
    }
}

/// Completions find their way to whoever dispatched the request, or to nobody where that scheduler is gone.
#[test]
fn requests_in_flight_are_over_with_whoever_dispatched_them() {
    let mut world = World::new(&[1, 2, 3], 2, 3);
    (0..3).for_each(|_| world.step());
    for _ in 0..3 {
        world.gate.prepare(sfq(), 1);
        while !world.gate.prepare_step(world.now).unwrap() {}
        world.gate.take_over(world.now);
        // Some of those in flight are of the one before, some of the old one while flows moved, some of the new one.
        (0..2).for_each(|_| world.step());
    }
    (0..60).for_each(|_| world.step());
    assert_eq!((world.gate.in_flight(), world.gate.queued()), (3, 6));
}
