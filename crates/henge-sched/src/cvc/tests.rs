use crate::trial::{Pattern, Shape, Trial, anywhere, request, text};
use henge_core::{Contract, Duration, FlowId, Instant, Latency, Rate, Request, Value};
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
fn at(t: u64) -> Instant {
    Instant::ZERO + ms(t)
}
fn closed(outstanding: u32) -> Pattern {
    Pattern::Closed(outstanding, Duration::ZERO)
}
fn reserved(per_second: u64) -> Contract {
    Contract::reserved(Rate::requests(per_second))
}
fn bound(per_second: u64, latency: u64) -> Contract {
    Contract { latency: Some(Latency { bound: ms(latency), percentile: 950_000 }), ..reserved(per_second) }
}

/// Places all over a disk of 2^30 bytes, the same for equal `salt`.
fn scattered(salt: u64) -> Shape {
    Box::new(move |n| ((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(salt as u32) >> 34, 4096))
}
/// 1 ms, and up to 8 ms for a seek across a disk of 2^30 bytes.
fn disk() -> impl FnMut(&Request) -> Duration {
    let mut arm = 0u64;
    move |r| {
        let distance = arm.abs_diff(r.offset);
        arm = r.end();
        ms(1) + Duration::from_micros(if distance == 0 { 0 } else { 1000 + ((distance * 7000) >> 30) })
    }
}

#[test]
fn the_example_of_the_head() {
    // Two requests with a rate each, so that they finish at 130 and 131 ms, and a third that lies ahead of the arm.
    for (now, expected) in [(100, 2), (103, 0)] {
        let fixed = [("estimate", text("13ms")), ("delta", text("8ms")), ("best_effort", text("0%"))];
        let mut t = Trial::new("cvc", &fixed);
        t.flow(0, &Contract::reserved(Rate::requests_micro(7_692_308))); // 130 ms
        t.flow(1, &Contract::reserved(Rate::requests_micro(7_633_588))); // 131 ms
        t.flow(2, &Contract::best_effort());
        t.submit(request(0, 1 << 30, 4096));
        t.submit(request(1, 1 << 29, 4096));
        t.submit(request(2, 4096, 4096));
        t.now = at(now);
        assert_eq!(t.dispatch().map(|r| r.flow.0), Some(expected), "at {now} ms");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Stonehenge, equations (4) and (5): what waits and can be served in time is, however much time CVC spends on
    /// the order of addresses, if no request takes longer than the estimate.
    #[test]
    fn who_waits_is_served_by_the_finish_time_when_the_estimate_holds(
        flows in prop::collection::vec((5u64..80, prop::collection::vec(0u64..1 << 30, 1..12)), 1..8),
        best_effort in prop::collection::vec(0u64..1 << 30, 0..20),
        row_max in prop::option::of(1u64..6),
    ) {
        let m = row_max.map_or(text("unlimited"), |m| Value::Integer(m as i64));
        let fixed = [("estimate", text("9ms")), ("delta", text("9ms")), ("m", m)];
        let mut t = Trial::new("cvc", &fixed).device(disk());
        let mut finish: Vec<u64> = Vec::new();
        for (flow, (rate, offsets)) in flows.iter().enumerate() {
            t.flow(flow as u32, &reserved(*rate));
            for (i, &offset) in offsets.iter().enumerate() {
                t.submit(request(flow as u32, offset, 4096));
                finish.push((i as u64 + 1) * 1_000_000_000 / rate);
            }
        }
        let n = flows.len() as u32;
        t.flow(n, &Contract::best_effort());
        for &offset in &best_effort {
            t.submit(request(n, offset, 4096));
        }
        finish.sort_unstable();
        let feasible = finish.iter().zip(1u64..).all(|(ft, rank)| *ft >= rank * 9_000_000);
        t.run(at(60_000));
        prop_assert_eq!(t.gate.queued(), 0);
        let mut sent = vec![0u64; flows.len()];
        let mut served: Vec<_> = t.served.iter().filter(|s| s.request.flow.0 < n).collect();
        served.sort_by_key(|s| s.request.id.slot); // as they came
        for s in served {
            let flow = s.request.flow.index();
            sent[flow] += 1;
            let finish = sent[flow] * 1_000_000_000 / flows[flow].0 + 1;
            prop_assert!(!feasible || s.completed.as_nanos() <= finish, "{:?} after {finish}", s.completed);
        }
    }
}

/// Requests over in 20 s by a disk that seeks, when the three flows reserve so many in all.
fn throughput(scheduler: &str, params: &[(&str, Value)], reserve: u64) -> (usize, [usize; 3]) {
    let mut t = Trial::new(scheduler, params).device(disk());
    for (flow, (part, outstanding)) in [(2, 24), (5, 16), (14, 16)].into_iter().enumerate() {
        if scheduler != "cscan" {
            t.flow(flow as u32, &reserved(part * reserve / 21));
        } else {
            t.flow(flow as u32, &Contract::best_effort());
        }
        t.source(flow as u32, closed(outstanding), scattered(flow as u64), at(21_000));
    }
    t.run(at(21_000));
    let got = [0, 1, 2].map(|flow| t.completed(flow, at(1000), at(21_000)));
    (got.iter().sum(), got)
}

#[test]
fn with_room_it_is_nearly_cscan_and_fully_booked_it_keeps_rates() {
    let cscan = throughput("cscan", &[], 0).0 as f64;
    let vc = throughput("vc", &[], 40).0 as f64;
    let cvc = throughput("cvc", &[], 40).0 as f64;
    assert!(cvc >= 0.95 * cscan, "cvc {cvc}, cscan {cscan}");
    assert!(cvc >= 1.2 * vc, "cvc {cvc}, vc {vc}");
    let m8 = throughput("cvc", &[("m", Value::Integer(8))], 40).0 as f64;
    assert!(vc < m8 && m8 < cvc, "vc {vc}, M = 8 {m8}, unlimited {cvc}");
    // As much as Virtual Clock can do on this disk.
    let capacity = vc as u64 / 20;
    let (_, got) = throughput("cvc", &[], capacity);
    for (got, part) in got.into_iter().zip([2, 5, 14]) {
        let promised = (part * capacity / 21 * 20) as f64;
        assert!(got as f64 >= 0.99 * promised, "{got} of {promised}");
    }
}

#[test]
fn m_bounds_what_is_served_past_the_qos_head() {
    let params = [("m", Value::Integer(3)), ("estimate", text("1us")), ("best_effort", text("0%"))];
    let mut t = Trial::new("cvc", &params);
    t.flow(0, &reserved(1)); // time enough
    t.flow(1, &Contract::best_effort());
    for n in 0..12 {
        t.submit(request(1, n * 4096, 4096));
    }
    for n in 0..3 {
        t.submit(request(0, (102 - n) * 4096, 4096)); // behind the arm when it is their turn
    }
    let order: Vec<_> = std::iter::from_fn(|| t.dispatch()).map(|r| r.flow.0).collect();
    assert_eq!(order, [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]);
}

/// A bursty flow with a bound beside a flood so deep that a sweep takes longer than the bound: its finish times lie far
/// ahead when a burst has come, its bound does not.
#[test]
fn soft_deadlines_keep_a_bursty_flow_within_its_bound() {
    let run = |soft: bool| {
        let mut t = Trial::new("cvc", &[("soft_deadlines", Value::Bool(soft))]).device(disk());
        t.flow(0, &bound(30, 200));
        t.flow(1, &reserved(100));
        // Bursts of 12 within 0.2 s, once a second: less than the rate on average, 0.4 s of it at once.
        let bursts = (1..40u64).flat_map(|s| (0..12).map(move |i| at(s * 1000 + i * 16))).collect();
        t.source(0, Pattern::At(bursts), scattered(7), at(41_000));
        t.source(1, closed(160), scattered(11), at(41_000));
        t.run(at(41_000));
        let (from, to) = (at(2000), at(41_000));
        (t.within(0, ms(200), from, to), t.completed(1, from, to))
    };
    let (with, flood_with) = run(true);
    let (without, flood_without) = run(false);
    assert!(with >= 0.98, "{with} within the bound");
    assert!(without < 0.9, "the plain rule takes the finish times for slack: {without}");
    assert!(flood_with >= 39 * 100 && flood_without >= 39 * 100, "{flood_with} {flood_without}");
}

/// Soft, not hard: a flow that floods far beyond its rate may ask for its bound, and others keep their rates.
#[test]
fn a_flood_with_a_bound_does_not_break_reservations() {
    let mut t = Trial::new("cvc", &[]).device(disk());
    t.flow(0, &bound(20, 50));
    t.flow(1, &reserved(120));
    t.source(0, closed(64), scattered(3), at(20_000));
    t.source(1, closed(8), scattered(5), at(20_000));
    t.run(at(20_000));
    let got = t.completed(1, at(2000), at(20_000));
    assert!(got >= 18 * 120 * 99 / 100, "{got} of {}", 18 * 120);
}

#[test]
fn best_effort_is_not_starved_by_a_sequential_stream() {
    for (share, low, high) in [("2%", 14, 60), ("0%", 0, 1)] {
        let mut t =
            Trial::new("cvc", &[("best_effort", text(share)), ("capacity", text("1000/s"))]).device(disk());
        t.flow(0, &reserved(300));
        t.flow(1, &Contract::best_effort());
        let stream: Shape = Box::new(|n| ((1 << 26) + n * 4096, 4096)); // never wraps
        t.source(0, closed(16), stream, at(11_000));
        t.run(at(500));
        t.source(1, closed(4), Box::new(|_| (0, 4096)), at(11_000));
        t.run(at(11_000));
        let per_second = t.completed(1, at(1000), at(11_000)) / 10;
        assert!((low..=high).contains(&per_second), "{share}: {per_second}/s");
    }
}

#[test]
fn until_it_knows_the_device_it_serves_by_finish_time() {
    let mut t = Trial::new("cvc", &[]);
    t.flow(0, &reserved(10));
    t.flow(1, &reserved(20));
    for n in 0..4 {
        t.submit(request(0, n * 4096, 4096));
        t.submit(request(1, (1 << 30) - n * 4096, 4096));
    }
    let order: Vec<_> = std::iter::from_fn(|| t.dispatch()).map(|r| r.flow.0).collect();
    assert_eq!(order, [1, 0, 1, 1, 0, 1, 0, 0]); // at 50, 100, 100, 150, 200, 200, 300, 400 ms
}

#[test]
fn a_changed_rate_moves_the_finish_times_of_what_waits() {
    let fixed = [("estimate", text("1ms")), ("delta", text("1ms"))];
    let mut t = Trial::new("cvc", &fixed);
    t.flow(0, &reserved(10));
    t.flow(1, &reserved(50));
    for _ in 0..4 {
        t.submit(request(0, 4096, 4096));
        t.submit(request(1, 0, 4096));
    }
    assert_eq!(t.gate.scheduler().due(at(100)), 4); // 20 … 80 ms; the first of the other stands at 100
    t.flow(0, &reserved(100));
    assert_eq!(t.gate.scheduler().due(at(100)), 8); // 10 … 40 ms
    t.flow(0, &Contract::best_effort());
    assert_eq!(t.gate.scheduler().due(at(100)), 4);
}

#[test]
fn what_a_cancelled_request_was_charged_is_given_back() {
    let mut t = Trial::new("cvc", &[("estimate", text("1ms"))]);
    t.flow(0, &reserved(10));
    let ids: Vec<_> = (0..5).map(|_| t.submit(request(0, 0, 4096))).collect();
    for id in &ids[1..] {
        assert!(t.gate.cancel(*id, at(0)).is_some());
    }
    t.submit(request(0, 0, 4096));
    assert_eq!(t.gate.scheduler().due(at(201)), 2); // 100 and 200 ms, not 600
}

#[test]
fn what_cannot_be_kept_is_refused_with_the_numbers() {
    let mut t = Trial::new("cvc", &[("estimate", text("13ms")), ("capacity", text("125/s"))]);
    let refused = t.try_flow(0, &bound(10, 12)).unwrap_err();
    assert_eq!(refused.term, "latency");
    assert!(refused.why.contains("12ms") && refused.why.contains("13ms"), "{refused}");
    assert_eq!(t.try_flow(0, &bound(126, 200)).unwrap_err().term, "rate");
    t.flow(0, &bound(125, 200));
    let refused = t.try_flow(0, &Contract::weighted(3)).unwrap_err();
    assert_eq!(refused.term, "weight");
    // A bound alone, with the most requests that may be pending: (7 + 1) / 120 ms.
    let alone = Contract { rate: None, pending: Some(7), ..bound(1, 120) };
    t.flow(0, &alone);
    assert!(t.try_flow(1, &reserved(59)).is_err());
    t.flow(1, &reserved(58));
    let mut measured = Trial::new("cvc", &[]).device(|_| ms(8));
    measured.flow(0, &reserved(10));
    measured.source(0, closed(1), anywhere(4096), at(1000));
    measured.run(at(1000));
    assert_eq!(measured.try_flow(1, &bound(10, 7)).unwrap_err().term, "latency");
    measured.flow(1, &bound(10, 9));
    assert_eq!(FlowId(1), measured.gate.flows().last().unwrap());
}

/// Requests at a rate of 0.000001/s are due 12 days apart: in the end beyond all that a clock shows.
#[test]
fn finish_times_beyond_the_clock_keep_the_order_of_arrival() {
    let mut t = Trial::new("cvc", &[("lead", text("none")), ("m", Value::Integer(1))]);
    t.flow(0, &Contract::reserved(Rate::requests_micro(1)));
    t.flow(1, &reserved(300));
    let ids: Vec<_> = (0..20_000).map(|n| t.submit(request(0, n * 4096, 4096))).collect();
    assert!(t.gate.cancel(ids[19_999], t.now).is_some());
    t.submit(request(1, 0, 4096));
    let order: Vec<_> = std::iter::from_fn(|| t.dispatch()).map(|r| (r.flow.0, r.id)).collect();
    assert_eq!(order[0].0, 1, "what is due goes first");
    assert!(order[1..].iter().map(|(_, id)| id).eq(&ids[..19_999]), "and the rest as it came");
}

/// A took what was spare for 40 s; then B comes and wants all. Paper: A pays for it. Ours: it has its rate at once; it had paid for 2 s.
#[test]
fn a_lead_is_bounded() {
    for (lead, bounded) in [("2s", true), ("none", false)] {
        let mut t = Trial::new("cvc", &[("lead", text(lead))]);
        t.flow(0, &reserved(400));
        t.flow(1, &reserved(400));
        t.source(0, closed(4), anywhere(4096), at(60_000));
        t.run(at(40_000));
        // B lies ahead of the arm: it has the sweep for itself.
        let ahead: Shape = Box::new(|n| (8192 + n * 4096, 4096));
        t.source(1, closed(64), ahead, at(60_000));
        t.run(at(60_000));
        let first = t.completed(0, at(40_100), at(42_100));
        assert!(!bounded || first >= 780, "lead {lead}: {first} of 800 in the first two seconds");
        let got = t.completed(0, at(43_000), at(53_000));
        assert!(!bounded || got >= 3900, "lead {lead}: {got} of 4000");
        assert!(bounded || got < 1000, "the paper's rule starves A: {got}");
    }
}

/// Twice as much is promised as the device can do: finish times pass, and best effort is served by its own all the same.
#[test]
fn an_overbooked_device_leaves_best_effort_its_part() {
    let params = [("capacity", text("1000/s")), ("overbook", Value::Bool(true))];
    let mut t = Trial::new("cvc", &params);
    for flow in [0, 1] {
        t.flow(flow, &reserved(1000));
        t.source(flow, closed(32), scattered(u64::from(flow)), at(20_000));
    }
    t.flow(2, &Contract::best_effort());
    t.source(2, closed(4), scattered(9), at(20_000));
    t.run(at(20_000));
    // By finish time: 20 of 2020.
    let got = t.completed(2, at(5000), at(20_000)) / 15;
    assert!((8..=25).contains(&got), "{got}/s");
}
