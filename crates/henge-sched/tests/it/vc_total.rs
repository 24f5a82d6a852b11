//! Virtual Clock over two nodes: what a flow gets at one counts at the other.

use crate::world::{World, gate, secs, text};
use henge_core::{Contract, CostUnit, Rate, Value};

const LEN: u64 = 4096;
/// Requests of LEN bytes a second that each node serves.
const EACH: u64 = 400;

fn rate(requests: u64) -> Contract {
    let rate = Rate { per_second: requests * LEN, unit: CostUnit::Bytes };
    Contract { rate: Some(rate), ..Contract::best_effort() }
}

fn two(foreign: &str) -> World {
    let settings = [
        ("foreign", text(foreign)),
        ("cost", text("bytes")),
        ("depth", Value::Integer(4)),
        ("capacity", text("1638400B/s")),
    ];
    let mut world = World::new(1);
    for _ in 0..2 {
        world.node(gate("vc", &settings), EACH * LEN);
    }
    world.flow(0, &rate(300).part(1_000_000, 2), 1);
    world.flow(1, &rate(100), 1);
    world
}

/// The example of `virtual_clock.rs`: f uses A and B, g uses A alone.
#[test]
fn totals_are_in_proportion_to_the_reservations() {
    for (foreign, f, g) in [("single", 640, 160), ("total", 600, 200)] {
        let mut world = two(foreign);
        world.steady(0, 32, 0, LEN);
        world.steady(0, 32, 1, LEN);
        world.steady(1, 32, 0, LEN);
        world.run(secs(4));
        let before = [world.total(0), world.total(1)];
        world.run(secs(24));
        let got = [0, 1].map(|i| (world.total(i as u32) - before[i]) / LEN / 20);
        let near = |got: u64, wanted: u64| got.abs_diff(wanted) <= wanted / 50;
        assert!(near(got[0], f) && near(got[1], g), "{foreign}: {got:?}");
    }
}

/// f was served at B alone for 50 s, far more than it reserved; when it comes to A, which g keeps busy, it is served
/// soon, and so is g.
#[test]
fn service_elsewhere_is_not_held_against_a_flow_for_long() {
    let mut world = two("total");
    world.steady(0, 32, 1, LEN);
    world.steady(1, 32, 0, LEN);
    world.run(secs(50));
    world.steady(0, 32, 0, LEN);
    let there = |world: &World| world.nodes[0].service[0];
    assert_eq!(there(&world), 0);
    world.run(secs(50) + henge_core::Duration::from_millis(2500));
    assert!(there(&world) > 0, "not served within 2.5 s");
}
