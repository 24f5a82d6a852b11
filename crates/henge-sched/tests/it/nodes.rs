//! Promises of rates over two to four nodes: each node keeps its part of every promise, whatever flows get at the others and
//! however unevenly they spread what they ask for. For every scheduler that promises a rate, in every way of counting foreign service.

use crate::world::{World, gate, secs, text};
use henge_core::{Contract, Rate, Value};
use henge_sched::SCHEDULERS;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const LEN: u64 = 16 << 10;
/// Bytes a second that each node serves.
const EACH: u64 = 2_000 * LEN;

/// What is set beside the cost, the depth and the capacity.
const VARIANTS: &[(&str, &[(&str, &str)])] = &[
    ("vc", &[("foreign", "total")]),
    ("two-level", &[("foreign", "single")]),
    ("two-level", &[("foreign", "total")]),
];

fn subjects() -> Vec<(&'static str, Vec<(&'static str, Value)>)> {
    let promising = SCHEDULERS.iter().filter(|entry| entry.keeps.contains(&"rate"));
    let plain = promising.map(|entry| (entry.name, &[] as &[(&str, &str)]));
    let all = plain.chain(VARIANTS.iter().copied()).map(|(name, more)| {
        let mut settings = vec![("cost", text("bytes")), ("depth", Value::Integer(4))];
        settings.push(("capacity", text(&format!("{EACH}B/s"))));
        // Every node is told of all flows, though most ask for something at one alone.
        settings.push(("overbook", Value::Bool(true)));
        settings.extend(more.iter().map(|(key, value)| (*key, text(value))));
        (name, settings)
    });
    all.collect()
}

/// Flow 0 is spread over all nodes; flow 1 + k has a promise on node k alone, flow 1 + n + k none. All flood, flow 0 far more on
/// the first node than on the others, or there alone.
#[test]
fn every_node_keeps_its_part_of_every_promise() {
    let subjects = subjects();
    assert!(subjects.len() >= 8, "{}", subjects.len());
    for (name, settings) in subjects {
        for seed in 0..6 {
            one(name, &settings, seed);
        }
    }
}

fn one(name: &str, settings: &[(&str, Value)], seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let nodes = rng.random_range(2..=4usize);
    let mut world = World::new(seed);
    (0..nodes).for_each(|_| world.node(gate(name, settings), EACH));
    let alone = seed % 3 == 2;
    let part = EACH * rng.random_range(10..60) / 100;
    let spread = Contract::reserved(Rate::bytes(part * nodes as u64)).part(1_000_000, nodes as u64);
    world.flow(0, &spread, rng.random_range(1..3));
    let mut promised = Vec::new();
    for node in 0..nodes {
        let rate = EACH * 96 / 100 - part - rng.random_range(0..EACH / 4);
        promised.push(rate);
        world.flow(1 + node as u32, &Contract::reserved(Rate::bytes(rate)), 0);
        world.steady(1 + node as u32, rng.random_range(16..48), node, LEN);
    }
    for node in 0..nodes {
        let flow = (1 + nodes + node) as u32;
        world.flow(flow, &Contract::best_effort(), 0);
        world.steady(flow, rng.random_range(8..48), node, LEN);
        if node == 0 || !alone {
            world.steady(0, if node == 0 { 96 } else { rng.random_range(12..24) }, node, LEN);
        }
    }
    world.run(secs(3));
    let before: Vec<Vec<u64>> = world.nodes.iter().map(|n| n.service.clone()).collect();
    let seconds = 6;
    world.run(secs(3 + seconds));
    for node in 0..nodes {
        let got = |flow: usize| (world.nodes[node].service[flow] - before[node][flow]) / seconds;
        let wants = if node == 0 || !alone { part } else { 0 };
        for (flow, owed) in [(0, wants), (1 + node, promised[node])] {
            let percent = (got(flow) * 1000).checked_div(owed).unwrap_or(1000);
            assert!(
                percent >= 985,
                "{name} {settings:?} seed {seed}: flow {flow} has {} of {owed} B/s on node {node} of {nodes}",
                got(flow)
            );
        }
    }
}
