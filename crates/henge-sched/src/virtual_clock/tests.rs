use crate::trial::{Pattern, Trial, anywhere, request, text};
use henge_core::{Contract, Cost, Duration, FlowId, Instant, Rate, Request, Value};
use proptest::prelude::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn closed(outstanding: u32) -> Pattern {
    Pattern::Closed(outstanding, Duration::ZERO)
}

fn reserved(per_second: u64) -> Contract {
    Contract::reserved(Rate::requests(per_second))
}

#[test]
fn the_example_of_the_head() {
    let mut t = Trial::new("vc", &[]).device(|_| Duration::from_micros(1250));
    for (flow, rate) in [(0, 100), (1, 300)] {
        t.flow(flow, &reserved(rate));
        t.source(flow, closed(20), anywhere(4096), at(10_000));
    }
    t.run(at(10_000));
    let (a, b) = (t.completed(0, at(0), at(10_000)), t.completed(1, at(0), at(10_000)));
    assert!(a.abs_diff(2000) <= 2 && b.abs_diff(6000) <= 2, "{a} {b}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Stonehenge, equation (3), and the theorem of Virtual Clock: while the rates fit, every request is over by its finish
    /// time and one service more, whatever the other flows do. The finish times are computed here, from the arrivals.
    #[test]
    fn every_request_is_over_by_its_finish_time(
        flows in prop::collection::vec((1u64..20, 0u8..3, 1u32..40, 0u64..3000), 2..6),
        floods in 1u32..40,
        seed in any::<u64>(),
    ) {
        let service = Duration::from_millis(1);
        let mut t = Trial::new("vc", &[("capacity", text("1000/s"))]).seed(seed).device(move |_| service);
        let parts: u64 = flows.iter().map(|f| f.0).sum();
        let rates: Vec<u64> = flows.iter().map(|f| f.0 * 980 / parts).collect(); // 2 % are left for best effort
        for (flow, (&rate, &(_, kind, outstanding, start))) in rates.iter().zip(&flows).enumerate() {
            t.flow(flow as u32, &reserved(rate));
            t.run(at(start).max(t.now));
            let pattern = match kind {
                0 => closed(outstanding),
                1 => Pattern::Closed(outstanding, Duration::from_millis(30)),
                _ => Pattern::Poisson(Duration::from_micros(1_000_000 * u64::from(outstanding) / (rate * 20))),
            };
            t.source(flow as u32, pattern, anywhere(4096), at(5000));
        }
        let best_effort = flows.len() as u32;
        t.flow(best_effort, &Contract::best_effort());
        t.source(best_effort, closed(floods), anywhere(4096), at(5000));
        t.run(at(6000));
        for (flow, &rate) in rates.iter().enumerate() {
            let mut finish = 0.0f64;
            for s in t.served.iter().filter(|s| s.request.flow == FlowId(flow as u32)) {
                finish = finish.max(s.request.arrival.as_secs_f64()) + 1.0 / rate as f64;
                let late = s.completed.as_secs_f64() - finish;
                prop_assert!(late <= 0.001 + 1e-6, "flow {flow} at {rate}/s: {late} s late at {:?}", s.completed);
            }
        }
    }
}

/// A takes what is spare at a rate of 0.000001/s: its finish times are 12 days apart, and soon beyond 584 years.
#[test]
fn whoever_has_no_clock_is_behind_finish_times_beyond_all_instants() {
    for lead in ["50ms", "0s"] {
        let mut t = Trial::new("vc", &[("best_effort", text("0%")), ("lead", text(lead))]);
        t.flow(0, &Contract::reserved(Rate::requests_micro(1)));
        t.flow(1, &reserved(300));
        t.flow(2, &Contract::best_effort());
        t.source(0, closed(4), anywhere(4096), at(20_000));
        t.run(at(20_000));
        t.source(1, closed(8), anywhere(4096), at(21_000));
        t.source(2, closed(8), anywhere(4096), at(21_000));
        t.run(at(21_000));
        let got = t.completed(1, at(20_100), at(21_000));
        assert!(got >= 270, "lead {lead}: {got} of 270");
    }
}

/// A used what was spare for ten seconds; then B comes and wants all. Paper: A pays for it. Ours: for 2 s at most.
#[test]
fn a_lead_is_bounded() {
    for (lead, least) in [("2s", 390), ("none", 0)] {
        let mut t = Trial::new("vc", &[("lead", text(lead))]);
        t.flow(0, &reserved(400));
        t.flow(1, &reserved(400));
        t.source(0, closed(4), anywhere(4096), at(20_000));
        t.run(at(10_000));
        t.source(1, closed(64), anywhere(4096), at(20_000));
        t.run(at(20_000));
        for second in 0..10 {
            let (from, to) = (at(10_000 + second * 1000), at(11_000 + second * 1000));
            let (a, b) = (t.completed(0, from, to), t.completed(1, from, to));
            assert!(b >= 390, "B gets its rate at once: {b}");
            assert!(second < 3 || a >= least, "lead {lead}, second {second}: {a}");
            assert!(lead != "none" || second > 3 || a < 100, "the paper's rule starves A: {a}");
        }
    }
}

#[test]
fn best_effort_keeps_its_share_of_the_capacity() {
    for (share, least, most) in [("2%", 190, 210), ("10%", 950, 1050), ("0%", 0, 0)] {
        let mut t = Trial::new("vc", &[("best_effort", text(share))]);
        t.flow(0, &reserved(900));
        t.source(0, closed(32), anywhere(4096), at(11_000));
        t.flow(1, &Contract::best_effort());
        t.source(1, closed(4), anywhere(4096), at(11_000));
        t.run(at(11_000));
        // The one with a reservation wants everything: both get in proportion, 900 to 20 or 100.
        let got = t.completed(1, at(1000), at(11_000));
        let share = got * 1000 / (t.completed(0, at(1000), at(11_000)) + got);
        let (low, high) = (least * 90 / 100, most * 110 / 100);
        assert!((low..=high).contains(&got) || (low / 10..=high / 10).contains(&share), "{share}: {got}");
    }
}

#[test]
fn parts_of_a_command_are_charged_their_part() {
    // A's commands come in two halves, B's are whole; both have 300 commands a second. The device does 1000 parts a second,
    // so it is full: 300 commands are 600 parts. Charged as whole commands, A gets half as many as B.
    for (split, ratio) in [(true, 2.0), (false, 1.0)] {
        let mut t = Trial::new("vc", &[("split", Value::Bool(split))]);
        t.flow(0, &reserved(300));
        t.flow(1, &reserved(300));
        let mut parts = [0usize; 2];
        for _ in 0..200 {
            t.submit(Request { commands: Request::WHOLE / 2, ..request(0, 0, 4096) });
            t.submit(request(1, 0, 4096));
        }
        for _ in 0..120 {
            let flow = t.dispatch().expect("there is plenty").flow;
            parts[flow.index()] += 1;
        }
        let got = parts[0] as f64 / parts[1] as f64;
        assert!((got - ratio).abs() < 0.06, "split = {split}: {got}");
    }
}

#[test]
fn a_limit_is_kept_and_does_not_hold_others() {
    let mut t = Trial::new("vc", &[]);
    t.flow(0, &Contract { limit: Some(Rate::requests(200)), ..reserved(100) });
    t.flow(1, &reserved(100));
    t.source(0, closed(8), anywhere(4096), at(10_000));
    t.source(1, closed(8), anywhere(4096), at(10_000));
    t.run(at(10_000));
    let (a, b) = (t.completed(0, at(0), at(10_000)), t.completed(1, at(0), at(10_000)));
    assert!((1980..=2020).contains(&a), "{a}");
    assert!(a + b >= 9990, "the device never idles: {b}");
}

#[test]
fn what_cannot_be_kept_is_refused_with_the_numbers() {
    let capacity = ("capacity", text("1000/s"));
    let mut t = Trial::new("vc", std::slice::from_ref(&capacity));
    t.flow(0, &reserved(700));
    let refused = t.try_flow(1, &reserved(400)).unwrap_err();
    assert_eq!(refused.term, "rate");
    assert!(refused.why.contains("1100/s") && refused.instead.contains("300/s"), "{refused}");
    t.flow(0, &reserved(600)); // a change counts once
    t.flow(1, &reserved(400));
    let mut t = Trial::new("vc", &[capacity, ("overbook", Value::Bool(true))]);
    t.flow(0, &reserved(5000));
    let burst = Contract { burst: Some(Cost::new(1)), ..reserved(1) };
    assert_eq!(t.try_flow(1, &burst).unwrap_err().term, "burst");
}

/// Costs that were charged wrong are put right: promised 1:2 in disk time, estimated alike, truly 1:4.
#[test]
fn corrected_costs_share_by_what_was_used() {
    let mut t = Trial::new("vc", &[("cost", text("disk time"))])
        .device(|r| Duration::from_micros(if r.flow == FlowId(0) { 500 } else { 2000 }));
    t.flow(0, &Contract::reserved(Rate::disk_time(300_000_000)));
    t.flow(1, &Contract::reserved(Rate::disk_time(600_000_000)));
    for flow in [0, 1] {
        t.source(flow, closed(8), anywhere(4096), at(10_000));
    }
    t.run(at(10_000));
    let time = |flow| t.completed(flow, at(0), at(10_000)) as f64 * if flow == 0 { 0.5 } else { 2.0 };
    assert!((time(1) / time(0) - 2.0).abs() < 0.05, "{} {}", time(0), time(1));
}
