//! How many requests a second the simulator takes through SFQ(D) and a constant device, on one core.
//!
//! `make bench-sim`. Everything counts: the load's generator, the gate, the device model, the meters.

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

fn main() {
    let source = Source::new("bench", SCENARIO);
    for (name, device) in [("serial", "time = \"1us\""), ("32 slots", "time = \"32us\", slots = 32")] {
        let mut best = 0.0f64;
        for _ in 0..5 {
            let text = SCENARIO.replace("time = \"1us\", slots = 32", device);
            let params = Source::new("bench", text).parse("the bench").expect("a sound scenario");
            let traces = |_: &henge_workload::TraceSpec| Err("no traces here".to_owned());
            let outside = Outside { devices: &henge_device::no_files, traces: &traces };
            let world = World::build(params, &outside).unwrap_or_else(|e| panic!("{}", source.point(e)));
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
