//! Runs whose results can be worked out by hand, and runs that must repeat.

use crate::common::{run, world};
use henge_core::{Duration, RequestRow};
use henge_sim::{Feed, Recording, Unwatched};

/// 1 ms per request, one after another.
const ONE_MS: &str = "[node]\ndevice = { constant = { time = \"1ms\" } }\n";

#[test]
fn a_closed_loop_on_a_constant_device() {
    // 4 outstanding, one served at a time: 1000/s, each takes 4 ms, 3 of them waiting.
    let (outcome, rows) = run(&format!(
        "duration = \"2s\"\nwarmup = \"1s\"\n{ONE_MS}scheduler = {{ fifo = {{ depth = 1 }} }}\n\
         [[flow]]\nname = \"a\"\nworkload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 4 }}\n"
    ))
    .unwrap();
    let flow = &outcome.flows[0];
    assert!((1999..=2001).contains(&flow.answered), "{}", flow.answered);
    assert_eq!(flow.latency.max(), Some(Duration::from_millis(4)));
    assert_eq!(flow.latency.mean(), Some(Duration::from_millis(4)));
    assert_eq!(flow.left, 4);
    assert_eq!(flow.service.wait.as_nanos(), 3_000_000 * flow.answered);
    assert_eq!(outcome.gates[0].occupied, Duration::from_secs(2));
    assert!((outcome.gates[0].depth_mean - 1.0).abs() < 1e-9);
    // Windows of a second each, the warm-up's among them.
    assert_eq!(outcome.gates[0].depths, [1.0; 3]);
    // Rows cover the warm-up, in order of completion, one millisecond apart.
    let rows: Vec<RequestRow<'_>> = rows.lines().map(|l| RequestRow::parse(l).unwrap()).collect();
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row.completion.as_nanos(), (i as u64 + 1) * 1_000_000);
        // Four come at once; from then on one comes after each that is over.
        assert_eq!(row.seq, if i < 4 { i as u64 } else { 2 * i as u64 - 3 });
    }
    assert_eq!(rows.len(), 3000);
}

/// A run of years has so many windows at most, where its scenario says nothing of them.
#[test]
fn a_run_of_years_keeps_no_line_for_each_second() {
    let text = "
        duration = \"20000d\"
        [node]
        device = { constant = { time = \"1ms\" } }
        scheduler = \"fifo\"
        [[flow]]
        workload = { pattern = \"random\", size = \"4KiB\", outstanding = 1, think = \"100d\" }
    ";
    let (outcome, _) = run(text).unwrap();
    let flow = &outcome.flows[0];
    assert!(
        flow.windows.len() <= 1 << 20 && flow.answered >= 199,
        "{} {}",
        flow.windows.len(),
        flow.answered
    );
}

#[test]
fn a_command_over_three_nodes_waits_for_its_slowest_part() {
    // 192 KiB from 0 on: one stripe unit on each node; each node moves 64 KiB in 1 ms.
    let (outcome, rows) = run("duration = \"1s\"\n[node]\nnodes = 3\n\
         device = { constant = { rate = \"65536000B/s\" } }\nscheduler = \"fifo\"\n\
         [[flow]]\nworkload = { pattern = \"sequential\", size = \"192KiB\", outstanding = 1 }\n")
    .unwrap();
    let flow = &outcome.flows[0];
    assert_eq!(flow.answered, 1000);
    assert_eq!(flow.bytes, 1000 * 192 * 1024);
    // A command counts once, whatever it was cut into.
    assert_eq!(flow.counted, 1000 * 1_000_000);
    let parts: Vec<RequestRow<'_>> = rows.lines().map(|l| RequestRow::parse(l).unwrap()).collect();
    assert_eq!(parts.len(), 3 * 1000);
    assert!(parts.iter().all(|p| p.parts == 3 && p.len == 65536));
    assert_eq!(parts.iter().filter(|p| p.gate == 2).count(), 1000);
}

#[test]
fn spindles_have_gates_of_their_own() {
    let scenario = |per: &str| {
        format!(
            "duration = \"1s\"\n[node]\ndevice = {{ raid0 = 4, stripe = \"64KiB\", constant = {{ time = \"1ms\" }} }}\n\
             scheduler = {{ fifo = {{ per = \"{per}\", depth = 1 }} }}\n\
             [[flow]]\nworkload = {{ pattern = \"sequential\", size = \"64KiB\", outstanding = 4 }}\n"
        )
    };
    let (whole, _) = run(&scenario("array")).unwrap();
    let (split, _) = run(&scenario("spindle")).unwrap();
    assert_eq!((whole.gates.len(), split.gates.len()), (1, 4));
    assert_eq!(split.gates[3].name, "node0/spindle3");
    // One at a time over the array leaves three spindles idle.
    assert_eq!((whole.flows[0].answered, split.flows[0].answered), (1000, 4000));
}

#[test]
fn a_reservation_is_divided_among_gates_with_its_leeway() {
    let world = world(
        "duration = \"1s\"\n[node]\nnodes = 3\ndevice = { constant = { time = \"1ms\" } }\nscheduler = \"vc\"\n\
         [[flow]]\nleeway = 1.5\ncontract = { rate = \"300/s\" }\n\
         workload = { pattern = \"random\", size = \"4KiB\", outstanding = 1 }\n",
    )
    .unwrap();
    // 1.5 · 300 / 3
    assert_eq!(world.promised_at(1, 0).unwrap().to_string(), "150/s");
}

const MIX: &str = "duration = \"3s\"\nwarmup = \"1s\"\n[node]\nnodes = 2\n\
     device = { raid0 = 2, stripe = \"64KiB\", disk = \"dtla-307075\" }\n\
     scheduler = { cvc = { per = \"spindle\" } }\n\
     [[flow]]\nname = \"web\"\ncontract = { rate = \"100/s\" }\nworkload = { preset = \"websearch\", rate = \"120/s\", outstanding = 8 }\n\
     [[flow]]\nname = \"fin\"\ncontract = { rate = \"60/s\", latency = \"90ms\" }\nworkload = { preset = \"financial\" }\n\
     [[flow]]\nname = \"rest\"\nworkload = { preset = \"tpc-c\", outstanding = 16 }\n\
     [[event]]\nat = \"2s\"\nflow = \"web\"\ncontract = { rate = \"50/s\" }\n\
     [[event]]\nat = \"3s\"\nflow = \"rest\"\nleave = true\n";

#[test]
fn equal_seeds_give_equal_rows_and_other_seeds_give_others() {
    let once = run(MIX).unwrap();
    let again = run(MIX).unwrap();
    assert_eq!(once.1, again.1);
    assert_eq!(format!("{:?}", once.0), format!("{:?}", again.0));
    let other = run(&format!("seed = 2\n{MIX}")).unwrap();
    assert_ne!(once.1, other.1);
}

#[test]
fn explaining_and_watching_change_nothing() {
    let watched = run(MIX).unwrap().0;
    let mut explained = world(MIX).unwrap();
    explained.explain();
    let explained = explained.run(&mut Unwatched).unwrap();
    for (a, b) in watched.flows.iter().zip(&explained.flows) {
        assert_eq!((a.answered, a.bytes, &a.windows), (b.answered, b.bytes, &b.windows));
    }
    let waited: Duration = explained.flows[2].service.waits.iter().copied().sum();
    assert!(waited > Duration::ZERO, "a best-effort flow with 16 outstanding waits");
}

#[test]
fn who_leaves_gets_nothing_more() {
    let (outcome, rows) = run(MIX).unwrap();
    let last = rows.lines().map(|l| RequestRow::parse(l).unwrap()).rfind(|r| r.flow == "rest").unwrap();
    // What was in flight at 3 s still completes.
    assert!(last.completion.as_secs_f64() < 3.1, "{last:?}");
    assert!(outcome.flow("rest").unwrap().faults > 0, "what waited is answered with an error");
}

/// MIX without its events (they are not in a recording), its loads ending early enough that all is answered.
fn recorded() -> String {
    let scenario = MIX.split("[[event]]").next().unwrap();
    scenario.replace("workload = { preset", "workload = { stop = \"3s\", preset")
}

fn recording(rows: &str) -> Recording {
    let mut recording = Recording::default();
    rows.lines().for_each(|line| recording.push(&RequestRow::parse(line).unwrap()));
    recording
}

#[test]
fn a_recorded_run_is_dispatched_again_identically() {
    let scenario = recorded();
    for scheduler in ["cvc", "vc", "sfq", "fifo", "cscan"] {
        let knobs = if scheduler.ends_with('c') && scheduler != "fifo" { "" } else { "depth = 3, " };
        let text = scenario
            .replace("{ cvc = { per", &format!("{{ {scheduler} = {{ {knobs}unkept = \"ignore\", per"));
        let (_, rows) = run(&text).unwrap();
        let replayed = world(&text).unwrap().replay(&recording(&rows), Feed::Completions).unwrap();
        assert!(replayed.requests > 500, "{scheduler}: {}", replayed.requests);
        assert_eq!((replayed.same, replayed.first), (replayed.requests, None), "{scheduler}");
    }
}

#[test]
fn a_replay_with_another_scheduler_differs_and_says_where() {
    let scenario = recorded();
    let (_, rows) = run(&scenario).unwrap();
    let other = scenario.replace("cvc", "vc");
    let replayed = world(&other).unwrap().replay(&recording(&rows), Feed::Completions).unwrap();
    assert!(replayed.same < replayed.requests && replayed.first.unwrap().starts_with("gate "));
}

#[test]
fn arrivals_alone_give_the_same_latencies_on_the_same_model() {
    // Not the identical run: in a closed loop a request comes at the instant at which another is over, and arrivals
    // alone do not say which of the two the gate saw first.
    let scenario = recorded();
    let (_, rows) = run(&scenario).unwrap();
    let replayed = world(&scenario).unwrap().replay(&recording(&rows), Feed::Arrivals).unwrap();
    for flow in &replayed.flows {
        let p95 = |h: &henge_core::Histogram| h.quantile(0.95).unwrap().as_secs_f64();
        let ratio = p95(&flow.now) / p95(&flow.then);
        assert!((0.9..=1.1).contains(&ratio), "{}: {ratio}", flow.name);
    }
}
