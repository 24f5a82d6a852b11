use crate::trial::{Pattern, Trial, anywhere, text};
use henge_core::{Contract, Cost, Duration, Instant, Latency, Params, Rate, Request, Value};

const KIB64: u64 = 65_536;

fn at(s: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(s)
}
fn contract(mb: u64, ms: u64) -> Contract {
    let latency = Some(Latency { bound: Duration::from_millis(ms), percentile: 950_000 });
    Contract { latency, ..Contract::reserved(Rate::bytes(mb * 1_000_000)) }
}
/// `mb` MB/s in requests of 64 KiB.
fn offered(mb: u64) -> Pattern {
    Pattern::Poisson(Duration::from_nanos(KIB64 * 1000 / mb))
}
/// 50 MB/s.
fn device(r: &Request) -> Duration {
    Duration::from_nanos(r.len * 20)
}
fn trial(params: &[(&str, Value)]) -> Trial {
    let overbook = [("overbook", Value::Bool(true)), ("capacity", text("50MB/s"))];
    Trial::new("two-level", &[&overbook[..], params].concat()).device(device)
}
/// Share of one-second windows in which the 95th percentile is within the bound.
fn windows(t: &Trial, flow: u32, ms: u64, from: u64, to: u64) -> f64 {
    let good = |s: u64| t.within(flow, Duration::from_millis(ms), at(s), at(s + 1)) >= 0.95;
    (from..to).filter(|s| good(*s)).count() as f64 / (to - from) as f64
}
fn mb_per_second(t: &Trial, flow: u32, from: u64, to: u64) -> f64 {
    (t.completed(flow, at(from), at(to)) as u64 * KIB64) as f64 / 1e6 / (to - from) as f64
}

/// App1 30 MB/s of 40 within 100 ms, App2 12 of 20 within 300 ms, on 50 MB/s.
#[test]
fn within_their_rates_both_get_throughput_and_latency() {
    for seed in 0..3 {
        let mut t = trial(&[]).seed(seed);
        t.flow(0, &contract(40, 100));
        t.flow(1, &contract(20, 300));
        t.source(0, offered(30), anywhere(KIB64), at(62));
        t.source(1, offered(12), anywhere(KIB64), at(62));
        t.run(at(62));
        for (flow, ms, mb) in [(0, 100, 30.0), (1, 300, 12.0)] {
            let good = windows(&t, flow, ms, 2, 62);
            assert!(good >= 0.99, "seed {seed}: flow {flow} in bound in {good} of the windows");
            // What was offered in this run, not what its mean is.
            let arrived =
                t.served.iter().filter(|s| s.request.flow.0 == flow && s.request.arrival > at(2)).count();
            let done = t.completed(flow, at(2), at(62));
            assert!(done as f64 >= 0.98 * arrived as f64, "{done} of {arrived}, {mb} MB/s");
        }
    }
}

#[test]
fn a_flood_does_not_harm_who_keeps_to_the_contract() {
    for seed in 0..3 {
        let mut t = trial(&[]).seed(seed);
        t.flow(0, &contract(30, 100));
        t.flow(1, &contract(20, 300));
        t.source(0, offered(27), anywhere(KIB64), at(62));
        t.source(1, offered(60), anywhere(KIB64), at(62));
        t.run(at(62));
        let good = t.within(0, Duration::from_millis(100), at(2), at(62));
        assert!(good >= 0.98, "seed {seed}: {good}");
        let rest = mb_per_second(&t, 1, 2, 62);
        assert!(rest >= 0.98 * 20.0, "the flood gets its rate all the same: {rest} MB/s");
    }
}

/// The promises are all that the device does: App1's 30 MB/s of 40, and the 20 of App2, which asks for 60. App2 wanders behind its promise then, and
/// its deadlines into the past; App1, which keeps to its rate, must not pay for that.
#[test]
fn overloaded_by_one_promise_the_other_keeps_its_bound() {
    for seed in 0..8 {
        let mut t = trial(&[("depth", Value::Integer(1))]).seed(seed);
        t.flow(0, &contract(40, 100));
        t.flow(1, &contract(20, 300));
        t.source(0, offered(30), anywhere(KIB64), at(62));
        t.source(1, offered(60), anywhere(KIB64), at(62));
        t.run(at(62));
        let good = windows(&t, 0, 100, 2, 62);
        let rest = mb_per_second(&t, 1, 2, 62);
        // What App1 leaves of 50 MB/s is 20 on average.
        let arrived = t.served.iter().filter(|s| s.request.flow.0 == 0 && s.request.arrival > at(2)).count();
        let left = 50.0 - (arrived as u64 * KIB64) as f64 / 1e6 / 60.0;
        assert!(rest >= 0.98 * left, "seed {seed}: the flood gets what is left: {rest} of {left} MB/s");
        assert!(good >= 0.98, "seed {seed}: in bound in {good} of the windows");
    }
}

/// Both flood: shares as the rates, 2 : 1; with the lower queue unbounded they are lost.
#[test]
fn floods_share_by_their_rates_because_the_lower_queue_is_bounded() {
    let run = |bound: &str| {
        let mut t = trial(&[("bound", text(bound))]);
        t.flow(0, &contract(40, 100));
        t.flow(1, &contract(20, 20)); // the shorter bound would take all by deadline
        for flow in [0, 1] {
            t.source(flow, Pattern::Closed(400, Duration::ZERO), anywhere(KIB64), at(20));
        }
        t.run(at(20));
        (mb_per_second(&t, 0, 2, 20), mb_per_second(&t, 1, 2, 20))
    };
    let (a, b) = run("2L");
    assert!((a / b - 2.0).abs() < 0.05 && a + b >= 49.0, "{a} : {b}");
    let (a, b) = run("none");
    assert!((a / b - 2.0).abs() > 0.1, "{a} : {b}");
}

/// The paper's credit alone, beneath a depth that never reports spareness, holds a fast device to the sum of the rates.
#[test]
fn credit_alone_holds_a_fast_device_back() {
    let run = |refill: &str| {
        let depth = ("depth", Value::Integer(12));
        let mut t = Trial::new("two-level", &[("refill", text(refill)), depth])
            .device(|r| Duration::from_nanos(r.len * 1000 / 90)); // 90 MB/s
        t.flow(0, &contract(40, 100));
        t.flow(1, &contract(20, 300));
        for flow in [0, 1] {
            t.source(flow, Pattern::Closed(100, Duration::ZERO), anywhere(KIB64), at(20));
        }
        t.run(at(20));
        mb_per_second(&t, 0, 2, 20) + mb_per_second(&t, 1, 2, 20)
    };
    let (ours, paper) = (run("short"), run("paper"));
    assert!(ours >= 0.99 * 90.0, "{ours}");
    assert!((55.0..65.0).contains(&paper), "{paper}");
}

/// The device stalls for 3 s; five windows after the backlog is worked off both are within their bounds.
#[test]
fn it_recovers_from_a_stall() {
    let mut stalled = false;
    let stall = move |r: &Request| {
        if !stalled && r.arrival >= at(20) {
            stalled = true;
            return Duration::from_secs(3);
        }
        device(r)
    };
    let mut t = Trial::new("two-level", &[]).device(stall);
    t.flow(0, &contract(40, 100));
    t.flow(1, &contract(20, 300));
    t.source(0, offered(30), anywhere(KIB64), at(60));
    t.source(1, offered(12), anywhere(KIB64), at(60));
    t.run(at(60));
    for (flow, ms) in [(0, 100), (1, 300)] {
        // 3 s of 42 MB/s are worked off with the 8 MB/s that are spare: 16 s.
        let good = windows(&t, flow, ms, 23 + 16 + 5, 60);
        assert!(good >= 0.99, "flow {flow}: {good}");
    }
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let mut t = Trial::new("two-level", &[("capacity", text("50MB/s"))]);
    t.flow(0, &contract(40, 100));
    assert_eq!(t.try_flow(1, &contract(20, 300)).unwrap_err().term, "rate");
    let no_rate = Contract { rate: None, ..contract(1, 100) };
    assert_eq!(t.try_flow(1, &no_rate).unwrap_err().term, "latency");
    assert_eq!(t.try_flow(1, &Contract::weighted(2)).unwrap_err().term, "weight");
    let params = Params::new("two-level").with("bound", text("3L"));
    assert!(crate::build("two-level", params).is_err());
}

/// Fifty flows without a promise, which share as if each were promised a MB/s.
fn crowd(t: &mut Trial) {
    for flow in 10..60 {
        t.flow(flow, &Contract::best_effort());
        t.source(flow, Pattern::Closed(16, Duration::ZERO), anywhere(KIB64), at(12));
    }
}

/// What a flow may not use because of its limit makes it not late: the clock of the promises goes on for others.
#[test]
fn a_burst_behind_a_limit_stops_nobodys_clock() {
    let mut t = trial(&[]);
    t.flow(0, &contract(20, 300));
    let burst = Some(Cost::new(1_000_000_000));
    t.flow(1, &Contract { limit: Some(Rate::bytes(1_000_000)), burst, ..contract(1, 300) });
    t.source(0, Pattern::Closed(64, Duration::ZERO), anywhere(KIB64), at(12));
    t.source(1, Pattern::Closed(1000, Duration::ZERO), anywhere(KIB64), at(12));
    crowd(&mut t);
    t.run(at(12));
    let got = mb_per_second(&t, 0, 2, 12);
    assert!(got >= 0.98 * 20.0, "{got} MB/s");
}

/// Whoever is at its limit goes down for its promise as soon as the limit lets it.
#[test]
fn a_rate_that_is_also_the_limit_is_kept() {
    let mut t = trial(&[]);
    t.flow(0, &Contract { limit: Some(Rate::bytes(20_000_000)), ..contract(20, 300) });
    t.source(0, Pattern::Closed(64, Duration::ZERO), anywhere(KIB64), at(12));
    crowd(&mut t);
    t.run(at(12));
    let got = mb_per_second(&t, 0, 2, 12);
    assert!(got >= 0.98 * 20.0, "{got} MB/s");
}
