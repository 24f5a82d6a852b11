//! Finish times that are made in one place: a disk whose requests gather on one of its nodes gets what it was promised in all.

use crate::common::{complaint, outcome};
use henge_sim::Outcome;

/// Two nodes of 200/s. "a" has 150/s over both, 75/s at each, and asks 100/s of node 0; "b" has a rate of node 0 alone and takes all
/// it gets.
fn gathered(scheduler: &str, of_b: u32, network: &str) -> Outcome {
    let text = format!(
        "duration = \"60s\"\nwarmup = \"5s\"\nseed = 3\n\
         [node]\nnodes = 2\ndevice = {{ constant = {{ time = \"5ms\" }} }}\nscheduler = {{ {scheduler} = {{ capacity = \"200/s\" }} }}\n\
         [network]\n{network}\n\
         [[flow]]\nname = \"a\"\ncontract = {{ rate = \"150/s\" }}\n\
         [[flow.client]]\nnodes = [0]\nworkload = {{ pattern = \"random\", size = \"4KiB\", rate = \"100/s\" }}\n\
         [[flow.client]]\nnodes = [1]\nworkload = {{ pattern = \"random\", size = \"4KiB\", rate = \"1/s\" }}\n\
         [[flow]]\nname = \"b\"\nnodes = [0]\ncontract = {{ rate = \"{of_b}/s\" }}\n\
         workload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 32 }}\n"
    );
    outcome(&text)
}

fn rate(outcome: &Outcome, flow: &str) -> f64 {
    outcome.flow(flow).unwrap().answered as f64 / outcome.seconds()
}

#[test]
fn a_disk_gets_its_rate_wherever_its_requests_gather() {
    let late = |outcome: &Outcome| outcome.flow("a").unwrap().conformance.missed;
    // By its own clock node 0 owes 75 : 90 of 200/s: 91/s for "a", of whose 100/s more and more wait.
    let local = gathered("vc", 90, "");
    assert!(rate(&local, "a") < 95.0, "{}", rate(&local, "a"));
    assert!(local.traffic.tags == 0 && late(&local) > 1000, "{}", late(&local));
    // By one clock for all of it "a" is owed all that it asks: what "b" was promised goes first, and 35/s are left.
    let central = gathered("vc", 90, "tags = \"central\"\nlatency = \"25us\"");
    assert!(rate(&central, "a") > 98.0, "{}", rate(&central, "a"));
    assert!(rate(&central, "b") > 97.0, "{}", rate(&central, "b"));
    assert_eq!(late(&central), 0);
}

/// Here nothing is spare, 75/s and 125/s of 200/s: who gathers takes nothing of what the gate promised to its neighbour.
#[test]
fn a_sweep_keeps_what_the_gate_promised() {
    let central = gathered("cvc", 125, "tags = \"central\"\nlatency = \"25us\"");
    assert!(rate(&central, "a") > 74.0, "{}", rate(&central, "a"));
    assert!(rate(&central, "b") > 0.98 * 125.0, "{}", rate(&central, "b"));
}

/// Nobody waits for a tag: a manager that is slow, or away, costs precision.
#[test]
fn a_tag_that_comes_late_changes_nothing() {
    let (local, slow) =
        (gathered("vc", 100, ""), gathered("vc", 100, "tags = \"central\"\nlatency = \"100s\""));
    assert!(slow.traffic.tags > 10_000);
    let counts = |o: &Outcome| o.flows.iter().map(|f| (f.answered, f.latency.max())).collect::<Vec<_>>();
    assert_eq!(counts(&local), counts(&slow));
}

#[test]
fn who_makes_tags_is_one_of_two() {
    let text = "duration = \"5s\"\n[node]\ndevice = { constant = { time = \"5ms\" } }\nscheduler = \"vc\"\n\
                [network]\ntags = \"remote\"\n[[flow]]\nworkload = { pattern = \"random\", size = \"4KiB\", outstanding = 4 }\n";
    assert!(complaint(text).contains("\"central\""), "{}", complaint(text));
}
