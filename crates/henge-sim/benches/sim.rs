//! How many requests a second the simulator takes through SFQ(D) and a constant device, on one core.
//!
//! `make bench-sim`; `ARGS=small` leaves out the thousand nodes. Everything counts: the load's generator, the gate, the device model, the meters.

#![allow(clippy::disallowed_methods)] // It measures time.
use henge_config::Source;
use henge_sim::{Outside, Unwatched, World};
use rustix::time::{ClockId, clock_gettime};

const SCENARIO: &str = r#"
duration = "3s"
[node]
device = { constant = { time = "1us", slots = 32 } }
scheduler = { sfq = { depth = 32 } }
[[flow]]
contract = { weight = 1 }
workload = { pattern = "random", size = "4KiB", outstanding = 64 }
[[flow]]
contract = { weight = 3 }
workload = { pattern = "random", size = "4KiB", outstanding = 64 }
"#;

/// CPU time of this process, not time on the wall: others may use the machine.
fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// 1,000 nodes, 100 flows over all of them, and at least ten million requests, each told what its flow got elsewhere.
fn large() -> String {
    let mut text = "duration = \"11500ms\"\n[node]\nnodes = 1000
        device = { constant = { time = \"1ms\", capacity = \"100GiB\" } }
        scheduler = { sfq = { depth = 4 } }\n"
        .to_owned();
    for flow in 0..100 {
        text += &format!(
            "[[flow]]\ncapacity = \"64GiB\"\ncontract = {{ weight = {} }}
            workload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 40 }}\n",
            1 + flow % 8
        );
    }
    text
}

fn world(text: &str) -> World {
    let source = Source::new("bench", text);
    let params = source.parse("the bench").expect("a sound scenario");
    let traces = |_: &henge_workload::TraceSpec| Err("no traces here".to_owned());
    let outside = Outside { devices: &henge_device::no_files, traces: &traces };
    World::build(params, &outside).unwrap_or_else(|e| panic!("{}", source.point(e)))
}

/// The largest that this process ever was.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it says that too");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

fn run_large() {
    let (begun, began) = (std::time::Instant::now(), cpu_seconds());
    let outcome = world(&large()).run(&mut Unwatched).expect("a run without traces and events");
    println!(
        "1,000 nodes, 100 flows: {:.1} million requests in {:.1} s of CPU time ({:.1} s on the clock), one core, {:.2} GB at most",
        outcome.requests as f64 / 1e6,
        cpu_seconds() - began,
        begun.elapsed().as_secs_f64(),
        most_memory() as f64 / 1e9
    );
}

fn main() {
    if !std::env::args().any(|a| a == "small") {
        run_large();
    }
    for (name, device) in [("serial", "time = \"1us\""), ("32 slots", "time = \"32us\", slots = 32")] {
        let mut best = 0.0f64;
        for _ in 0..5 {
            let text = SCENARIO.replace("time = \"1us\", slots = 32", device);
            let world = world(&text);
            let begun = cpu_seconds();
            let outcome = world.run(&mut Unwatched).expect("a run without traces and events");
            let seconds = cpu_seconds() - begun;
            best = best.max(outcome.requests as f64 / seconds);
        }
        if std::env::args().any(|a| a == "--json") {
            let name = name.replace(' ', "-");
            println!(
                "{{\"name\":\"sim/sfq/{name}\",\"value\":{best:.0},\"unit\":\"requests/s\",\"peer\":null,\"ratio\":null}}"
            );
            continue;
        }
        println!(
            "sfq(32), constant device, {name:<8}: {:.2} million requests/s of CPU time (best of 5)",
            best / 1e6
        );
    }
}
