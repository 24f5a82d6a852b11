//! SFQ(D) on one node: Theorem 1, idle virtual time, corrections, limits, the mode that is not work conserving.

use crate::world::{Next, Unfairness, World, gate, secs, text};
use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, Duration, FlowId, Instant, Op, Params, Rate, Request,
    RequestId, Scheduler, Slots, Value,
};
use henge_sched::build;
use proptest::prelude::*;

/// A scheduler without its gate, for tests of single tags.
struct Bare(Box<dyn Scheduler>, u32);

impl Bare {
    fn new(settings: &[(&str, Value)], weights: &[u32]) -> Self {
        let params = settings.iter().fold(Params::new("sfq"), |p, (k, v)| p.with(k, v.clone()));
        let mut scheduler = build("sfq", params).unwrap().scheduler;
        for (flow, weight) in weights.iter().enumerate() {
            let contract = Contract::weighted(*weight);
            scheduler.set_flow(FlowId(flow as u32), &contract, Instant::ZERO).unwrap();
        }
        Bare(scheduler, 0)
    }
    fn put(&mut self, flow: u32, cost: u64) -> Request {
        let id = RequestId { slot: self.1, generation: 0 };
        self.1 += 1;
        let request = Request::new(id, FlowId(flow), Op::Read, 0, cost, Instant::ZERO);
        let request = Request { cost: Cost::new(cost), ..request };
        self.0.enqueue(request, Instant::ZERO);
        request
    }
    fn next(&mut self) -> Request {
        match self.0.dispatch(Instant::ZERO, Slots { in_flight: 0, depth: 1, spare: false }) {
            Dispatch::Ready(request) => request,
            other => panic!("{other:?}"),
        }
    }
    fn done(&mut self, request: Request, actual: u64) {
        let completion = Completion {
            request,
            actual: Cost::new(actual),
            dispatched: Instant::ZERO,
            service: Duration::ZERO,
            in_flight: 0,
        };
        self.0.complete(&completion, Instant::ZERO);
    }
    /// Dispatches and completes n requests; whose they were.
    fn serve(&mut self, n: usize) -> Vec<u32> {
        let mut one = || {
            let request = self.next();
            self.done(request, request.cost.get());
            request.flow.0
        };
        (0..n).map(|_| one()).collect()
    }
}

#[test]
fn the_worked_example() {
    let mut s = Bare::new(&[], &[1, 2]);
    for _ in 0..6 {
        s.put(0, 10);
        s.put(1, 10);
        s.put(1, 10);
    }
    // Start tags 0, 10, 20 … and 0, 5, 10 …; ties go to the one that came first.
    assert_eq!(s.serve(9), [0, 1, 1, 0, 1, 1, 0, 1, 1]);
}

/// When the node empties, v becomes the largest finish tag: who comes back first gains nothing, and who had the
/// node alone pays nothing.
#[test]
fn after_idling_all_start_level() {
    let mut s = Bare::new(&[], &[1, 1]);
    s.put(0, 1_000_000);
    s.serve(1);
    let v = s.0.virtual_time();
    assert_eq!(v.as_f64(), 1_000_000.0);
    for _ in 0..4 {
        s.put(1, 10);
        s.put(0, 10);
    }
    assert_eq!(s.serve(8), [1, 0, 1, 0, 1, 0, 1, 0]);
}

#[test]
fn a_returning_flow_neither_monopolizes_nor_starves() {
    let mut s = Bare::new(&[], &[1, 1]);
    for _ in 0..100 {
        s.put(0, 10);
    }
    s.serve(50); // flow 1 was away meanwhile, and flow 0 took it all
    for _ in 0..20 {
        s.put(1, 10);
    }
    let served = s.serve(20);
    assert_eq!(served.iter().filter(|f| **f == 1).count(), 10, "{served:?}");
}

#[test]
fn an_estimate_is_corrected_when_the_truth_is_known() {
    let mut s = Bare::new(&[("cost", text("disk time"))], &[1, 1]);
    for _ in 0..40 {
        s.put(0, 10);
        s.put(1, 10);
    }
    let mut used = [0u64; 2];
    while used[0] + used[1] < 600 {
        let request = s.next();
        let actual = if request.flow == FlowId(0) { 40 } else { 10 }; // four times the estimate
        used[request.flow.index()] += actual;
        s.done(request, actual);
    }
    assert!(used[0].abs_diff(used[1]) <= 50, "{used:?}");
}

#[test]
fn a_cancelled_request_is_not_paid() {
    let mut s = Bare::new(&[], &[1, 1]);
    let long: Vec<_> = (0..10).map(|_| s.put(0, 1000)).collect();
    for _ in 0..4 {
        s.put(0, 10);
        s.put(1, 10);
    }
    for request in long {
        assert_eq!(s.0.cancel(request.id, Instant::ZERO), Some(request));
        assert_eq!(s.0.cancel(request.id, Instant::ZERO), None);
    }
    assert_eq!(s.serve(8), [0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn a_changed_weight_governs_what_is_queued() {
    let mut s = Bare::new(&[], &[1, 1]);
    for _ in 0..40 {
        s.put(0, 10);
        s.put(1, 10);
    }
    s.serve(10);
    s.0.set_flow(FlowId(1), &Contract::weighted(4), Instant::ZERO).unwrap();
    let ones = s.serve(30).iter().filter(|f| **f == 1).count();
    assert!((23..=25).contains(&ones), "{ones} of 30 for a weight of 4 in 5");
}

#[derive(Clone, Debug)]
struct Flow {
    weight: u32,
    outstanding: u32,
    len: u64,
    /// Sleeps so long after every so many requests.
    pause: (u32, u64),
}

fn flow() -> impl Strategy<Value = Flow> {
    let len = prop_oneof![Just(4096u64), Just(65_536), 512u64..300_000];
    (1u32..20, 1u32..40, len, (1u32..60, 0u64..40)).prop_map(|(weight, outstanding, len, pause)| Flow {
        weight,
        outstanding,
        len,
        pause,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Theorem 1: |W_f/φ_f − W_g/φ_g| ≤ (D + 1)·(cmax_f/φ_f + cmax_g/φ_g) while both have something waiting.
    #[test]
    fn theorem_1(flows in proptest::collection::vec(flow(), 2..6), depth in 1i64..20, at_head in any::<bool>(), seed in 0u64..1000) {
        let mut world = World::new(seed);
        let tag = text(if at_head { "head" } else { "arrival" });
        world.node(gate("sfq", &[("depth", Value::Integer(depth)), ("tag", tag)]), 100_000_000);
        for (i, flow) in flows.iter().enumerate() {
            world.flow(i as u32, &Contract::weighted(flow.weight), 0);
            let (len, (burst, pause)) = (flow.len, flow.pause);
            let mut sent = 0;
            world.client(i as u32, flow.outstanding, move |now, _| {
                sent += 1;
                if sent % (burst + 1) == 0 && pause > 0 {
                    return Next::SleepUntil(now + Duration::from_millis(pause));
                }
                Next::Send { node: 0, len }
            });
        }
        let n = flows.len();
        let mut pairs: Vec<Unfairness> = (0..n * n).map(|_| Unfairness::default()).collect();
        let normal = |w: &World, f: usize| w.total(f as u32) as f64 / f64::from(flows[f].weight);
        world.run_watched(secs(2), |w| {
            for f in 0..n {
                for g in 0..f {
                    let backlogged = w.waiting(0, f as u32) > 0 && w.waiting(0, g as u32) > 0;
                    pairs[f * n + g].see(backlogged, normal(w, f) - normal(w, g));
                }
            }
        });
        for f in 0..n {
            for g in 0..f {
                let c = |i: usize| flows[i].len as f64 / f64::from(flows[i].weight);
                let bound = (depth + 1) as f64 * (c(f) + c(g));
                prop_assert!(pairs[f * n + g].worst <= bound + 1.0, "{} > {bound}", pairs[f * n + g].worst);
            }
        }
    }
}

/// 1 : 4 within 2 %, whatever the sizes of the requests and however many each keeps outstanding.
#[test]
fn shares_follow_weights_whatever_the_sizes_and_depths() {
    for (outstanding, lens) in
        [([64, 64], [4096, 131_072]), ([64, 4], [4096, 131_072]), ([4, 64], [131_072, 4096])]
    {
        let mut world = World::new(1);
        world.node(gate("sfq", &[("depth", Value::Integer(2))]), 200_000_000);
        for flow in 0..2 {
            world.flow(flow, &Contract::weighted(1 + 3 * flow), 0);
            world.steady(flow, outstanding[flow as usize], 0, lens[flow as usize]);
        }
        world.run(secs(10));
        let ratio = world.total(1) as f64 / world.total(0) as f64;
        assert!((ratio / 4.0 - 1.0).abs() < 0.02, "{outstanding:?} {lens:?}: {ratio}");
    }
}

/// A limit is kept within 1 % over 10 s, alone and beside others, for small requests and large ones.
#[test]
fn a_limit_is_kept_within_a_percent() {
    for (limit, len, expected) in [
        (Rate::requests(5000), 4096u64, 5000.0 * 4096.0),
        (Rate::bytes(50_000_000), 131_072, 50e6),
        (Rate::bytes(50_000_000), 4096, 50e6),
        (Rate::requests(300), 131_072, 300.0 * 131_072.0),
    ] {
        for others in [0, 3] {
            let cost = if limit.unit == CostUnit::Bytes { "bytes" } else { "requests" };
            let mut world = World::new(1);
            world.node(gate("sfq", &[("depth", Value::Integer(8)), ("cost", text(cost))]), 400_000_000);
            world.flow(0, &Contract { limit: Some(limit), ..Contract::weighted(3) }, 0);
            world.steady(0, 32, 0, len);
            for flow in 1..=others {
                world.flow(flow, &Contract::weighted(1), 0);
                world.steady(flow, 16, 0, len);
            }
            world.run(secs(10));
            let got = world.total(0) as f64 / 10.0;
            assert!((got / expected - 1.0).abs() < 0.01, "{limit}, {len} B, {others} others: {got}");
            let all: u64 = (0..=others).map(|f| world.total(f)).sum();
            assert!(others == 0 || all as f64 > 3.99e9, "the others get what it may not have: {all}");
        }
    }
}

/// A flow that was held back by its limit banks nothing for the time after.
#[test]
fn a_lifted_limit_leaves_no_credit() {
    let mut world = World::new(1);
    world.node(gate("sfq", &[("depth", Value::Integer(4))]), 100_000_000);
    world.flow(0, &Contract { limit: Some(Rate::bytes(1_000_000)), ..Contract::weighted(1) }, 0);
    world.flow(1, &Contract::weighted(1), 0);
    world.steady(0, 600, 0, 65_536);
    world.steady(1, 600, 0, 65_536);
    world.run(secs(5));
    world.flow(0, &Contract::weighted(1), 0);
    let before = [world.total(0), world.total(1)];
    world.run(secs(6));
    let gained = [world.total(0) - before[0], world.total(1) - before[1]];
    let ratio = gained[0] as f64 / gained[1] as f64;
    assert!((ratio - 1.0).abs() < 0.02, "{gained:?}");
}

#[test]
fn without_work_conservation_a_lone_flow_gets_its_share_and_no_more() {
    for tag in ["head", "arrival"] {
        lone_flow(tag);
    }
}

fn lone_flow(tag: &str) {
    let settings = [
        ("tag", text(tag)),
        ("work_conserving", Value::Bool(false)),
        ("capacity", text("100MB/s")),
        ("depth", Value::Integer(4)),
    ];
    let mut world = World::new(1);
    world.node(gate("sfq", &settings), 120_000_000);
    world.flow(0, &Contract::weighted(3), 0);
    world.flow(1, &Contract::weighted(1), 0);
    world.steady(0, 16, 0, 65_536);
    world.run(secs(10));
    let got = world.total(0) as f64 / 10.0;
    assert!((got / 75e6 - 1.0).abs() < 0.005, "{got}");
    world.steady(1, 16, 0, 65_536);
    world.run(secs(20));
    let got = world.total(1) as f64 / 10.0; // it banked nothing while it was away, but for a burst
    assert!((got / 25e6 - 1.0).abs() < 0.01, "{tag}: {got}");
}

/// By its share, a flow of weight 1 has one request of 1 MB in hours. Its finish tag is not where the others go on.
#[test]
fn without_work_conservation_nobody_waits_for_the_share_of_a_light_flow() {
    for tag in ["head", "arrival"] {
        let settings = [
            ("tag", text(tag)),
            ("work_conserving", Value::Bool(false)),
            ("capacity", text("100MB/s")),
            ("depth", Value::Integer(4)),
        ];
        let mut world = World::new(1);
        world.node(gate("sfq", &settings), 120_000_000);
        world.flow(0, &Contract::weighted(1), 0);
        world.flow(1, &Contract::weighted(1_000_000), 0);
        let mut sent = false;
        world.client(0, 1, move |_, _| match std::mem::replace(&mut sent, true) {
            true => Next::SleepUntil(secs(1000)),
            false => Next::Send { node: 0, len: 1_000_000 },
        });
        world.run(secs(1));
        world.steady(1, 16, 0, 65_536);
        world.run(secs(11));
        let got = world.total(1) as f64 / 10.0;
        assert!((got / 100e6 - 1.0).abs() < 0.01, "{tag}: {got}");
    }
}

/// Nobody says what the device does: it is found while it is full, and then a lone flow gets its share of that.
#[test]
fn without_work_conservation_the_capacity_may_be_measured() {
    let settings = [
        ("work_conserving", Value::Bool(false)),
        ("capacity", text("measured")),
        ("depth", Value::Integer(4)),
    ];
    let mut world = World::new(1);
    world.node(gate("sfq", &settings), 120_000_000);
    world.flow(0, &Contract::weighted(3), 0);
    world.flow(1, &Contract::weighted(1), 0);
    world.steady(0, 16, 0, 65_536);
    world.run(secs(1));
    let learning = world.total(0) as f64;
    assert!(
        (learning / 120e6 - 1.0).abs() < 0.01,
        "nothing is held back before anything is known: {learning}"
    );
    world.run(secs(2));
    let before = world.total(0);
    world.run(secs(12));
    let got = (world.total(0) - before) as f64 / 10.0;
    assert!((got / 90e6 - 1.0).abs() < 0.01, "three quarters of what it does: {got}");
    world.steady(1, 16, 0, 65_536);
    world.run(secs(22));
    let got = world.total(1) as f64 / 10.0;
    assert!((got / 30e6 - 1.0).abs() < 0.02, "{got}");
}

#[test]
fn wrong_settings_are_named() {
    let wrong = |key: &str, value: Value| {
        let params = Params::new("sfq").with(key, value);
        build("sfq", params).err().unwrap_or_else(|| panic!("{key} was taken")).to_string()
    };
    assert!(wrong("foreign", text("totl")).contains("did you mean \"total\"?"));
    assert!(wrong("tag", text("tail")).contains("head, arrival"));
    assert!(wrong("memory", Value::Integer(2)).contains("\"20ms\""));
    assert!(wrong("memory", text("0s")).contains("charges nothing"));
    assert!(wrong("work_conserving", Value::Bool(false)).contains("needs capacity"));
    assert!(wrong("depht", Value::Integer(1)).contains("depth"));
    let mut plain = gate("sfq", &[]);
    let contract = Contract::weighted(1).with("min_share", 100_000);
    let refused = plain.set_flow(FlowId(0), &contract, Instant::ZERO).unwrap_err();
    assert!(refused.to_string().contains("hybrid"), "{refused}");
    let refused = plain.set_flow(FlowId(0), &Contract::reserved(Rate::bytes(5)), Instant::ZERO).unwrap_err();
    assert_eq!(refused.term, "rate");
}
