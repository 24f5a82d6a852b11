//! Theorem 2 of DSFQ, as every run reports it: no run that it covers exceeds its bound.

use crate::common::outcome;
use henge_sim::Caveat;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Runs of each way of keeping nodes informed.
const RUNS: u64 = 300;

/// A random scenario: two to four nodes, two to four flows on some of them, sizes, threads, weights and latencies at random.
fn scenario(rng: &mut Pcg64Mcg, sync: &str) -> String {
    let nodes = rng.random_range(2..=4);
    let depth = rng.random_range(1..=8);
    let tag = if rng.random_bool(0.5) { "head" } else { "arrival" };
    let slots = rng.random_range(1..=depth);
    let mut text = format!(
        "duration = \"{}ms\"\nwindow = \"100ms\"\nseed = {}
        [node]\nnodes = {nodes}\ndevice = {{ constant = {{ rate = \"20MB/s\", slots = {slots} }} }}
        scheduler = {{ sfq = {{ depth = {depth}, memory = \"forever\", tag = \"{tag}\" }} }}
        [network]\nlatency = \"{}us\"\nmessage = \"{}us\"\nbandwidth = \"125MB/s\"\nsync = {sync}\n",
        rng.random_range(500..1500),
        rng.random_range(0..1_000_000),
        rng.random_range(0..3000),
        rng.random_range(0..20),
    );
    for flow in 0..rng.random_range(2..=4) {
        text += &format!(
            "[[flow]]\nname = \"f{flow}\"\ncoordinators = {}\ncontract = {{ weight = {} }}\n",
            rng.random_range(1..=3),
            rng.random_range(1..=8)
        );
        for _ in 0..rng.random_range(1..=2) {
            let first = rng.random_range(0..nodes);
            let on: Vec<String> = (first..nodes).map(|n: i32| n.to_string()).collect();
            text += &format!(
                "[[flow.client]]\nnodes = [{}]\ncapacity = \"64MiB\"\nworkload = {{ pattern = \"random\", size = \"{}KiB\", outstanding = {} }}\n",
                on.join(", "),
                4 * rng.random_range(1..=32),
                rng.random_range(1..=40)
            );
        }
    }
    text
}

#[test]
fn no_random_run_exceeds_the_bound_of_theorem_2() {
    let ways = [
        "\"piggyback\"",
        "{ threshold = { every = \"256KiB\" } }",
        "{ predict = { every = \"1MiB\" } }",
        "\"predict\"",
        "\"layout\"",
    ];
    let mut runs = 0;
    for (i, sync) in ways.iter().enumerate() {
        let (mut most, mut messages) = (0.0f64, 0);
        for seed in 0..RUNS {
            let seed = seed + 1000 * i as u64;
            let text = scenario(&mut Pcg64Mcg::seed_from_u64(seed), sync);
            let outcome = outcome(&text);
            let fairness = &outcome.fairness;
            assert_eq!(fairness.caveat, None);
            assert!(
                fairness.of_bound <= 1.0,
                "seed {seed}: {} of {} between {:?}:\n{text}",
                fairness.worst,
                fairness.bound,
                fairness.who
            );
            most = most.max(fairness.of_bound);
            messages += outcome.traffic.messages;
            runs += 1;
        }
        println!("{sync}: {RUNS} runs, at most {:.0} % of the bound, {messages} messages", most * 100.0);
    }
    assert!(runs >= 1000);
}

/// The bound is not so wide that nothing could exceed it: nodes that share by themselves do.
#[test]
fn nodes_on_their_own_exceed_it() {
    let text = "duration = \"20s\"
        [node]\nnodes = 2\ndevice = { constant = { rate = \"20MB/s\" } }
        scheduler = { sfq = { depth = 4, foreign = \"POLICY\", memory = \"forever\" } }
        [[flow]]\nname = \"one\"\nnodes = [0]\nworkload = { pattern = \"random\", size = \"64KiB\", outstanding = 8 }
        [[flow]]\nname = \"two\"\n[[flow.client]]\nnodes = [0]\nworkload = { pattern = \"random\", size = \"64KiB\", outstanding = 8 }
        [[flow.client]]\nnodes = [1]\nworkload = { pattern = \"random\", size = \"64KiB\", outstanding = 8 }\n";
    let single = outcome(&text.replace("POLICY", "single")).fairness;
    assert_eq!(single.caveat, Some(Caveat::OtherPolicy));
    assert!(single.of_bound > 10.0, "{single:?}");
    // Flow two gets 20 MB/s on the other node: all it can have, and one gets the whole of the shared node.
    let total = outcome(&text.replace("POLICY", "total")).fairness;
    assert!(total.caveat.is_none() && total.of_bound <= 1.0, "{total:?}");
}
