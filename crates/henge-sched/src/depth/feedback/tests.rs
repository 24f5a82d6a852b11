use super::*;
use crate::trial::{Pattern, Trial, anywhere, request, text};
use henge_core::Rate;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}
struct Queue(usize, usize);
impl QueueView for Queue {
    fn queued(&self) -> usize {
        self.0
    }
    fn due(&self, _: Instant) -> usize {
        self.1
    }
}
fn controller(params: Params) -> Box<dyn DepthController> {
    let mut params = params;
    let mut controller = build(&mut params, &Terms::FIFO).unwrap();
    let latency = Some(Latency { bound: Duration::from_millis(100), percentile: 950_000 });
    controller.set_flow(FlowId(0), Some(&Contract { latency, ..Contract::default() }));
    controller
}
/// A window in which `n` requests wait and are served so long, `depth` at once.
fn window(c: &mut dyn DepthController, k: u64, n: u64, wait: u64, service: u64, depth: u32, queue: Queue) {
    for _ in 0..n {
        c.dispatched(FlowId(0), Duration::from_millis(wait), depth, at(k * 1000));
        c.completed(&request(0, 0, 512), Duration::from_millis(service), depth - 1, at(k * 1000 + 1));
    }
    c.tick(&queue, at((k + 1) * 1000));
}

#[test]
fn the_example_of_the_head() {
    let mut c = controller(Params::new("feedback").with("floor", Value::Integer(8)));
    assert_eq!(c.depth(), 8);
    window(&mut *c, 0, 200, 20, 40, 8, Queue(193, 0));
    assert_eq!(c.depth(), 16); // E = 2; high is above that
    // No slack: E = (100 − 20) / 160 = 0.5, smoothed 1.25; then 0.875, and the floor.
    window(&mut *c, 1, 200, 20, 160, 16, Queue(193, 0));
    assert_eq!(c.depth(), 16);
    window(&mut *c, 2, 200, 20, 160, 16, Queue(193, 0));
    assert_eq!(c.depth(), 14);
    for k in 3..10 {
        let depth = c.depth();
        window(&mut *c, k, 200, 20, 160, depth, Queue(193, 0));
    }
    assert_eq!(c.depth(), 8);
}

/// Two gateways before one device, each with half of the requests and half of the depth, decide as one with all of them.
#[test]
fn gateways_that_divide_a_depth_decide_as_one() {
    for (floor, parts) in [(8, [(1, 2), (1, 2)]), (1, [(5, 16), (11, 16)]), (1, [(1, 7), (6, 7)])] {
        let params = || Params::new("feedback").with("floor", Value::Integer(floor));
        let mut one = controller(params());
        let mut divided = parts.map(|(mine, whole)| {
            let mut c = controller(params());
            c.divide(DepthPart::new(mine, whole));
            c
        });
        for k in 0..40 {
            // A device that serves one at a time, by turns quick and slow; 40 or more of each gateway's are judged.
            let each = if k / 10 % 2 == 0 { 2 } else { 9 };
            let depth = one.whole().unwrap();
            window(&mut *one, k, 280, 20, each * u64::from(depth), depth, Queue(290, 0));
            for (c, (mine, whole)) in divided.iter_mut().zip(parts) {
                let share = |n: u64| n * u64::from(mine) / u64::from(whole);
                let (all, own) = (c.whole().unwrap(), c.depth());
                window(
                    &mut **c,
                    k,
                    share(280),
                    20,
                    each * u64::from(all),
                    own,
                    Queue(share(290) as usize, 0),
                );
                let off = c.whole().unwrap().abs_diff(one.whole().unwrap());
                assert!(
                    off <= 1 + one.whole().unwrap() / 8,
                    "{parts:?}, window {k}: {:?} and {:?}",
                    c.whole(),
                    one.whole()
                );
            }
        }
    }
}

/// In an overload the most in flight stands for the depth: of a gateway with half of it, twice what it had.
#[test]
fn a_gateway_with_a_part_leaves_an_overload_as_one_with_all() {
    let mut one = controller(Params::new("feedback"));
    let mut half = controller(Params::new("feedback"));
    half.divide(DepthPart::new(1, 2));
    for (c, n) in [(&mut one, 2), (&mut half, 1)] {
        window(&mut **c, 0, 50 * n, 90, 100, 4 * n as u32, Queue(300 * n as usize, 250 * n as usize));
        assert!(c.spare(1000), "overloaded");
        window(&mut **c, 1, 350 * n, 0, 50, 6 * n as u32, Queue(0, 0));
    }
    // E is 2, smoothed 1.05, and Lmax 12.
    assert_eq!((one.whole(), half.whole(), half.depth()), (Some(13), Some(13), 7));
}

/// A device that serves one at a time, 25 ms each: at a depth of 8 each takes 200 ms, twice the bound.
#[test]
fn a_floor_that_nobody_stated_gives_way_to_a_bound() {
    for (floor, depths) in [(None, 1..=4), (Some(8), 8..=8)] {
        let params = Params::new("feedback");
        let params = floor.map_or(params.clone(), |n| params.with("floor", Value::Integer(n)));
        let mut c = controller(params);
        for k in 0..30 {
            let depth = c.depth();
            window(&mut *c, k, 40, 0, 25 * u64::from(depth), depth, Queue(40, 0));
        }
        assert!(depths.contains(&c.depth()), "{floor:?}: {}", c.depth());
    }
}

#[test]
fn too_few_samples_or_none_keep_the_depth() {
    let mut c = controller(Params::new("feedback"));
    window(&mut *c, 0, 19, 0, 1, 8, Queue(500, 0));
    assert_eq!(c.depth(), 8);
    window(&mut *c, 1, 0, 0, 1, 8, Queue(500, 400));
    assert_eq!(c.depth(), 8);
    window(&mut *c, 2, 20, 0, 1, 8, Queue(500, 0));
    assert_eq!(c.depth(), 16);
}

#[test]
fn an_overload_takes_all_and_ends() {
    for (rules, unlimited) in [("ours", 16), ("paper", DEPTH_MAX as u32)] {
        let mut c = controller(Params::new("feedback").with("rules", text(rules)));
        window(&mut *c, 0, 100, 90, 100, 8, Queue(600, 500)); // E = 0.1, 500 due, 100 done
        assert_eq!(c.depth(), unlimited, "{rules}");
        assert!(c.spare(1000));
        window(&mut *c, 1, 100, 90, 100, 16, Queue(600, 500));
        assert_eq!(c.depth(), unlimited, "{rules}");
        // The next window finishes everything. E = 2 (ours smoothes to 1.05), Lmax = 16.
        window(&mut *c, 2, 700, 0, 50, 16, Queue(0, 0));
        assert_eq!(c.depth(), if rules == "ours" { 16 } else { 32 });
        assert!(!c.spare(30), "underloaded again");
    }
}

/// 18 requests in a window are too few to judge by, and two windows' are not. A device that takes 20 ms for each, one at a time.
#[test]
fn a_flow_of_few_requests_has_its_say() {
    let mut c = controller(Params::new("feedback"));
    for k in 0..30 {
        let depth = c.depth();
        window(&mut *c, k, 18, 15, 20 * u64::from(depth), depth, Queue(18, 0));
    }
    // (100 − 15) / 20 keep the bound.
    assert_eq!(c.depth(), 4);
    // Who asks still less, in every other window, is not judged by what was long ago.
    let mut c = controller(Params::new("feedback"));
    for k in 0..90 {
        window(&mut *c, k, k % 2, 10, 1000, 8, Queue(1, 0));
    }
    assert_eq!(c.depth(), 8);
}

/// Between its windows with enough samples, what a flow of few requests needs holds against another's slack.
#[test]
fn a_flow_of_few_requests_holds_the_depth_meanwhile() {
    let mut c = controller(Params::new("feedback"));
    let latency = Some(Latency { bound: Duration::from_secs(10), percentile: 950_000 });
    c.set_flow(FlowId(1), Some(&Contract { latency, ..Contract::default() }));
    for k in 0..41 {
        let depth = c.depth();
        for _ in 0..40 {
            c.dispatched(FlowId(1), Duration::ZERO, depth, at(k * 1000));
            let service = Duration::from_millis(20 * u64::from(depth));
            c.completed(&request(1, 0, 512), service, depth - 1, at(k * 1000 + 1));
        }
        window(&mut *c, k, 10, 15, 20 * u64::from(depth), depth, Queue(400, 0));
        assert!(k < 20 || c.depth() == 4, "window {k}: {}", c.depth());
    }
}

#[test]
fn unused_depth_stays_as_it_is() {
    let mut c = controller(Params::new("feedback"));
    for k in 0..20 {
        window(&mut *c, k, 100, 0, 1, 4, Queue(0, 0));
        assert_eq!(c.depth(), 8);
    }
}

/// A window of many flows is looked at in steps, in which those that go on count for it and for the next.
#[test]
fn many_flows_are_decided_on_in_steps() {
    let latency = Some(Latency { bound: Duration::from_millis(100), percentile: 950_000 });
    let mut c = controller(Params::new("feedback").with("saturation", Value::Integer(1000)));
    for flow in 0..100 {
        c.set_flow(FlowId(flow), Some(&Contract { latency, ..Contract::default() }));
    }
    let request = |c: &mut Box<dyn DepthController>, flow, service, ms| {
        let depth = c.depth();
        c.dispatched(FlowId(flow), Duration::ZERO, depth, at(ms));
        c.completed(&request(flow, 0, 512), Duration::from_millis(service), depth - 1, at(ms));
    };
    // Flow 0 has E = 100 / 20, all others 100 / 10.
    for (flow, n) in (0..100).flat_map(|flow| (0..20).map(move |n| (flow, n))) {
        request(&mut c, flow, if flow == 0 { 20 } else { 10 }, n);
    }
    c.tick(&Queue(1_000_000, 0), at(1000));
    request(&mut c, 0, 10, 1000);
    request(&mut c, 99, 10, 1000);
    let mut steps = 1;
    while let Some(next) = c.wake_at().filter(|next| *next < at(2000)) {
        assert_eq!(c.depth(), 8, "before all were looked at");
        c.tick(&Queue(1_000_000, 0), next);
        steps += 1;
    }
    assert_eq!((steps, c.depth()), (4, 40));
    // What they did meanwhile counts for this window: 20 samples each, with the one of before.
    for (flow, n) in [0, 99].into_iter().flat_map(|flow| (1..20).map(move |n| (flow, n))) {
        request(&mut c, flow, 10, 1000 + n);
    }
    c.tick(&Queue(1_000_000, 0), at(2000));
    assert_eq!(c.depth(), 300); // E = 10, of flow 0 smoothed to (5 + 10) / 2
}

/// A device that stalls for 3 s: five windows later the flow is within its bound again.
#[test]
fn it_recovers_from_a_stall() {
    let params = [("deadline", text("conforming"))];
    let inner = Params::new("feedback");
    let depth = Value::Table(Params::new("depth").with("feedback", Value::Table(inner)));
    let mut stalled = false;
    let mut t = Trial::new("edf", &[params[0].clone(), ("depth", depth)]).device(move |r| {
        if !stalled && r.arrival >= at(10_000) {
            stalled = true;
            return Duration::from_secs(3);
        }
        Duration::from_micros(1250) // 64 KiB at 50 MB/s
    });
    let contract = |mb: u64, ms: u64| Contract {
        latency: Some(Latency { bound: Duration::from_millis(ms), percentile: 950_000 }),
        ..Contract::reserved(Rate::bytes(mb * 1_000_000))
    };
    t.flow(0, &contract(40, 100));
    t.flow(1, &contract(20, 300));
    // 30 and 12 MB/s in requests of 64 KiB.
    t.source(0, Pattern::Poisson(Duration::from_micros(2184)), anywhere(65536), at(40_000));
    t.source(1, Pattern::Poisson(Duration::from_micros(5461)), anywhere(65536), at(40_000));
    t.run(at(40_000));
    for (flow, ms) in [(0, 100), (1, 300)] {
        let bound = Duration::from_millis(ms);
        assert!(t.within(flow, bound, at(2000), at(10_000)) >= 0.99, "before");
        // The stall leaves 3 s of 42 MB/s behind, of which 8 MB/s are worked off.
        let late = (13..40).rev().find(|s| t.within(flow, bound, at(s * 1000), at(s * 1000 + 1000)) < 0.95);
        assert!(late.is_none_or(|s| s <= 33), "flow {flow} late in second {late:?}");
    }
}
