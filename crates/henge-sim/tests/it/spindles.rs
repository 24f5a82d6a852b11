//! A disk over several gates has its whole rate, wherever its requests fall by chance, and takes nobody's.

use crate::common::outcome;
use henge_sim::Outcome;

/// Schedulers that promise a rate; with their knobs.
const RATES: [(&str, &str); 6] = [
    ("vc", ""),
    ("cvc", ""),
    ("mclock", "depth = 1"),
    ("pclock", "depth = 1"),
    ("edf", "cost = \"requests\", depth = 1"),
    ("two-level", "cost = \"requests\", depth = { fixed = { depth = 1 } }"),
];

/// `nodes` gates of 100/s, of which 97.5 % are promised. "a" has 60/s over all of them and keeps 8 outstanding, whose places chance
/// chooses; "b" has the rest and takes all that it gets.
fn random(scheduler: &str, knobs: &str, nodes: u32, central: bool, seed: u64) -> Outcome {
    let tags = if central { "central" } else { "local" };
    let b = nodes * 195 / 2 - 60;
    let text = format!(
        "duration = \"60s\"\nwarmup = \"5s\"\nseed = {seed}\n\
         [node]\nnodes = {nodes}\ndevice = {{ constant = {{ time = \"10ms\" }} }}\nscheduler = {{ {scheduler} = {{ {knobs} }} }}\n\
         [network]\ntags = \"{tags}\"\n\
         [[flow]]\nname = \"a\"\ncontract = {{ rate = \"60/s\" }}\n\
         workload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 8 }}\n\
         [[flow]]\nname = \"b\"\ncontract = {{ rate = \"{b}/s\" }}\n\
         workload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 64 }}\n"
    );
    outcome(&text)
}

fn rate(outcome: &Outcome, flow: &str) -> f64 {
    outcome.flow(flow).unwrap().answered as f64 / outcome.seconds()
}

/// By what a gate keeps for it, 8 outstanding on four gates have 248 / 251 of their rate in the long run; a minute has 1 % less at worst.
#[test]
fn who_spreads_by_chance_has_its_whole_rate() {
    for (scheduler, knobs) in RATES {
        for nodes in [2, 3, 4] {
            for seed in 1..=3 {
                let o = random(scheduler, knobs, nodes, true, seed);
                let (a, b) = (rate(&o, "a"), rate(&o, "b"));
                assert!(a >= 0.975 * 60.0, "{scheduler}, {nodes} gates, seed {seed}: {a}");
                let promised = f64::from(nodes * 195 / 2 - 60);
                assert!(b >= 0.99 * promised, "{scheduler}, {nodes} gates, seed {seed}: {b} of {promised}");
            }
        }
    }
    // By each gate's own clock alone it has not.
    let local = random("vc", "", 4, false, 1);
    assert!(rate(&local, "a") < 0.93 * 60.0, "{}", rate(&local, "a"));
}

/// Four gates of 100/s. "a" has 200/s in all, and asks 90/s of the first gate, which promised 50/s to it and the rest to "b".
fn gathered(scheduler: &str, knobs: &str, of_b: u32, seed: u64) -> Outcome {
    let text = format!(
        "duration = \"90s\"\nwarmup = \"20s\"\nseed = {seed}\n\
         [node]\nnodes = 4\ndevice = {{ constant = {{ time = \"10ms\" }} }}\nscheduler = {{ {scheduler} = {{ {knobs} }} }}\n\
         [network]\ntags = \"central\"\n\
         [[flow]]\nname = \"a\"\ncontract = {{ rate = \"200/s\" }}\n\
         [[flow.client]]\nnodes = [0]\nworkload = {{ pattern = \"random\", size = \"4KiB\", rate = \"90/s\" }}\n\
         [[flow.client]]\nnodes = [1, 2, 3]\nworkload = {{ pattern = \"random\", size = \"4KiB\", rate = \"30/s\" }}\n\
         [[flow]]\nname = \"b\"\nnodes = [0]\ncontract = {{ rate = \"{of_b}/s\" }}\n\
         workload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 32 }}\n"
    );
    outcome(&text)
}

/// Whoever gathers on a gate has what nobody was promised there, and no more: the neighbour keeps its promise.
#[test]
fn who_gathers_breaks_no_promise() {
    for (scheduler, knobs) in RATES {
        for of_b in [50, 30, 10] {
            for seed in 1..=2 {
                let o = gathered(scheduler, knobs, of_b, seed);
                let (a, b) = (rate(&o, "a") - 30.0, rate(&o, "b"));
                let promised = f64::from(of_b);
                // Once, and never again, what the gate kept for "a" in 4 s: 200 requests.
                let least = if of_b == 50 { promised - 200.0 / o.seconds() } else { 0.99 * promised };
                assert!(b >= least, "{scheduler}, seed {seed}: {b} of {promised} beside {a}");
                let owed = (100.0 - promised).min(90.0);
                assert!(a >= 0.97 * owed, "{scheduler}, seed {seed}: {a} of {owed} beside {b} of {promised}");
            }
        }
    }
}
