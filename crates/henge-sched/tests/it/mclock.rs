//! mClock and pClock keep what they promise, in simulated time.

use crate::world::{Next, World, gate, ms, secs, text};
use henge_core::{Contract, Cost, Duration, Instant, Latency, Rate, Value};
use proptest::prelude::*;
use rand::RngExt;

/// Requests a second that the device serves.
const SPEED: u64 = 1000;
const LEN: u64 = 4096;

#[derive(Clone, Copy, Debug)]
struct Terms {
    rate: u64,
    limit: u64,
    weight: u32,
}

impl Terms {
    fn contract(self) -> Contract {
        Contract {
            rate: (self.rate > 0).then(|| Rate::requests(self.rate)),
            limit: (self.limit > 0).then(|| Rate::requests(self.limit)),
            ..Contract::weighted(self.weight)
        }
    }
}

fn mclock(flows: &[Terms]) -> World {
    let mut world = World::new(1);
    world.node(gate("mclock", &[("depth", Value::Integer(4))]), SPEED * LEN);
    for (i, terms) in flows.iter().enumerate() {
        world.flow(i as u32, &terms.contract(), 0);
        world.steady(i as u32, 32, 0, LEN);
    }
    world
}

/// What each gets: between rate and limit by weight, all of the device used where the limits allow it.
fn allocation(flows: &[Terms]) -> Vec<f64> {
    let at = |level: f64| -> Vec<f64> {
        let share = |t: &Terms| {
            let most = if t.limit > 0 { t.limit as f64 } else { f64::INFINITY };
            (level * f64::from(t.weight)).clamp(t.rate as f64, most)
        };
        flows.iter().map(share).collect()
    };
    let (mut low, mut high) = (0.0, 1e7);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if at(middle).iter().sum::<f64>() > SPEED as f64 { high = middle } else { low = middle }
    }
    at(low)
}

fn check(flows: &[Terms]) -> Result<(), TestCaseError> {
    let mut world = mclock(flows);
    world.run(secs(1));
    let n = flows.len() as u32;
    let before: Vec<_> = (0..n).map(|f| world.total(f)).collect();
    world.run(secs(11));
    for (f, (terms, expected)) in flows.iter().zip(allocation(flows)).enumerate() {
        let got = (world.total(f as u32) - before[f]) as f64 / LEN as f64 / 10.0;
        let bound = expected == terms.rate as f64 || expected == terms.limit as f64;
        let within = if bound { 0.01 } else { 0.02 };
        let one = 0.2; // two requests in 10 s
        prop_assert!(
            (got - expected).abs() <= within * expected + one,
            "{f}: {got} for {expected} of {flows:?}"
        );
    }
    Ok(())
}

#[test]
fn the_worked_example() {
    let others = [Terms { rate: 0, limit: 0, weight: 1 }, Terms { rate: 0, limit: 0, weight: 2 }];
    for (weight, expected) in [(1, [250.0, 250.0, 500.0]), (5, [625.0, 125.0, 250.0])] {
        let flows = [Terms { rate: 250, limit: 0, weight }, others[0], others[1]];
        for (a, b) in allocation(&flows).iter().zip(expected) {
            assert!((a - b).abs() < 0.01);
        }
        check(&flows).unwrap();
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    let rate = prop_oneof![1 => Just(0u64), 2 => 20u64..180];
    let limit = prop_oneof![2 => Just(0u64), 1 => 1u64..400];
    (rate, limit, 1u32..10).prop_map(|(rate, above, weight)| Terms {
        rate,
        limit: if above == 0 { 0 } else { rate + above.max(20) },
        weight,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Reservations and limits within 1 % over 10 s, what lies between by weight within 2 %.
    #[test]
    fn rates_limits_and_weights_are_kept(flows in proptest::collection::vec(terms(), 2..6)) {
        check(&flows)?;
    }
}

/// The most requests of flow 0 in any second, looked at every 20 ms.
fn most_in_a_second(world: &mut World, seconds: u64) -> f64 {
    let mut totals = vec![world.total(0)];
    for step in 1..=seconds * 50 {
        world.run(world.now.max(ms(step * 20)));
        totals.push(world.total(0));
    }
    totals.windows(51).map(|w| (w[50] - w[0]) as f64 / LEN as f64).fold(0.0, f64::max)
}

/// Even when it was kept below its limit for long and may go again: no second exceeds the limit by more than 5 %.
#[test]
fn no_second_exceeds_a_limit() {
    let flows = [Terms { rate: 0, limit: 200, weight: 1 }];
    let mut world = mclock(&flows);
    world.flow(1, &Contract::weighted(50), 0);
    world.client(1, 64, |now, _| match now.as_nanos() / 3_000_000_000 {
        period if period % 2 == 1 => Next::SleepUntil(secs(3 * (period + 1))),
        _ => Next::Send { node: 0, len: LEN },
    });
    let most = most_in_a_second(&mut world, 12);
    assert!((199.0..=210.0).contains(&most), "{most}");
}

/// Reservations are kept while best effort floods, and best effort keeps its 2 % when they take everything.
#[test]
fn an_overbooked_device_leaves_best_effort_its_floor() {
    let flows = [Terms { rate: 800, limit: 0, weight: 1 }, Terms { rate: 800, limit: 0, weight: 1 }];
    let mut world = mclock(&flows);
    world.flow(2, &Contract::best_effort(), 0);
    world.steady(2, 64, 0, LEN);
    world.run(secs(20));
    let got = world.total(2) as f64 / LEN as f64 / 20.0;
    assert!((got / 20.0 - 1.0).abs() < 0.05, "{got}");
}

/// Cost in bytes, corrected afterwards, is kept as well as requests are.
#[test]
fn a_reservation_in_bytes_beside_a_flood() {
    let mut world = World::new(1);
    world.node(gate("mclock", &[("cost", text("bytes")), ("depth", Value::Integer(8))]), 100_000_000);
    world.flow(0, &Contract { rate: Some(Rate::bytes(30_000_000)), ..Contract::weighted(1) }, 0);
    world.flow(1, &Contract::weighted(1000), 0);
    world.client(0, 16, |_, rng| Next::Send { node: 0, len: rng.random_range(1..=32) * 4096 });
    world.steady(1, 64, 0, 131_072);
    world.run(secs(10));
    let got = world.total(0) as f64 / 10.0;
    assert!((got / 30e6 - 1.0).abs() < 0.01, "{got}");
}

fn curve(rate: u64, burst: u64, latency: u64) -> Contract {
    Contract {
        burst: Some(Cost::new(burst * 1_000_000)),
        latency: Some(Latency { bound: Duration::from_millis(latency), percentile: 1_000_000 }),
        ..Contract::reserved(Rate::requests(rate))
    }
}

#[test]
fn pclock_answers_in_time_whoever_keeps_to_the_curve() {
    let mut world = World::new(1);
    world.node(gate("pclock", &[("depth", Value::Integer(1))]), SPEED * LEN);
    world.flow(0, &curve(200, 10, 20), 0);
    world.flow(1, &curve(500, 5, 50), 0);
    world.flow(2, &Contract::best_effort(), 0);
    let mut sent = 0u64;
    world.client(0, 1000, move |now, _| {
        // Ten together, every 50 ms.
        let begin = Instant::from_nanos(sent / 10 * 50_000_000);
        if now < begin {
            return Next::SleepUntil(begin);
        }
        sent += 1;
        Next::Send { node: 0, len: LEN }
    });
    world.steady(1, 300, 0, LEN);
    world.steady(2, 100, 0, LEN);
    world.run(secs(20));
    let meters = |f| world.nodes[0].gate.flow_meters(henge_core::FlowId(f)).unwrap();
    let worst = meters(0).latency.max().unwrap();
    assert!(worst <= Duration::from_millis(22), "{worst}");
    assert!(meters(0).completed.requests >= 3980, "{}", meters(0).completed.requests);
    let rate = meters(1).completed.requests as f64 / 20.0;
    assert!(rate >= 495.0, "the flood has its rate: {rate}");
    let rest = meters(2).completed.requests as f64 / 20.0;
    assert!((rest - 300.0).abs() < 6.0, "what is spare: {rest}");
}

/// A flow took all that was spare for 10 s. When another comes, it is answered in time all the same, and so is the
/// first for its rate: it pays nothing for what nobody else wanted.
#[test]
fn pclock_does_not_hold_spare_service_against_a_flow() {
    let mut world = World::new(1);
    world.node(gate("pclock", &[("depth", Value::Integer(1))]), SPEED * LEN);
    world.flow(0, &curve(300, 5, 30), 0);
    world.flow(1, &curve(300, 5, 30), 0);
    world.steady(0, 16, 0, LEN);
    world.client(1, 16, |now, _| match now {
        now if now < secs(10) => Next::SleepUntil(secs(10)),
        _ => Next::Send { node: 0, len: LEN },
    });
    world.run(secs(10));
    let before = world.total(0);
    world.run(secs(11));
    let got = (world.total(0) - before) / LEN;
    assert!((490..=510).contains(&got), "half of the device from the first second on: {got}");
}

#[test]
fn rates_above_the_capacity_are_refused_with_the_numbers() {
    let capacity = ("capacity", text("100/s"));
    let mut world = World::new(1);
    world.node(gate("mclock", std::slice::from_ref(&capacity)), SPEED * LEN);
    let reserve = |n| Contract::reserved(Rate::requests(n));
    world.flow(0, &reserve(60), 0);
    let refused =
        world.nodes[0].gate.set_flow(henge_core::FlowId(1), &reserve(50), Instant::ZERO).unwrap_err();
    let said = refused.to_string();
    assert!(["50/s", "60/s", "110/s", "100/s", "overbook"].iter().all(|n| said.contains(n)), "{said}");
    // Less for the first makes room for the second, and so does its leaving.
    world.flow(0, &reserve(40), 0);
    world.flow(1, &reserve(50), 0);
    world.nodes[0].gate.remove_flow(henge_core::FlowId(1), Instant::ZERO, &mut Vec::new());
    world.flow(0, &reserve(100), 0);
    let mut world = World::new(1);
    world.node(gate("mclock", &[capacity, ("overbook", Value::Bool(true))]), SPEED * LEN);
    world.flow(0, &reserve(160), 0);
}

#[test]
fn curves_that_are_not_feasible_together_are_refused_with_the_numbers() {
    let mut world = World::new(1);
    let knobs = [("capacity", text("100/s")), ("service", text("8ms"))];
    world.node(gate("pclock", &knobs), SPEED * LEN);
    let curve = |rate, burst: u64, ms| Contract {
        rate: Some(Rate::requests(rate)),
        burst: Some(Cost::new(burst * 1_000_000)),
        latency: Some(Latency { bound: Duration::from_millis(ms), percentile: 950_000 }),
        ..Contract::default()
    };
    let set = |world: &mut World, flow, contract: &Contract| {
        world.nodes[0].gate.set_flow(henge_core::FlowId(flow), contract, Instant::ZERO)
    };
    // Four at once within 50 ms, while the device does five.
    set(&mut world, 0, &curve(30, 3, 50)).unwrap();
    // Within 100 ms: those four, 1.5 more of the first, and five of this one; the device does ten.
    let said = set(&mut world, 1, &curve(30, 4, 100)).unwrap_err().to_string();
    assert!(
        ["10.5 requests", "100ms", "10.0 requests", "overbook"].iter().all(|n| said.contains(n)),
        "{said}"
    );
    set(&mut world, 1, &curve(30, 3, 100)).unwrap();
    let said = set(&mut world, 2, &curve(41, 0, 10_000)).unwrap_err().to_string();
    assert!(["41/s", "60/s", "101/s", "100/s"].iter().all(|n| said.contains(n)), "{said}");
    let said = set(&mut world, 2, &curve(1, 0, 7)).unwrap_err().to_string();
    assert!(said.contains("7ms is below the 8ms"), "{said}");
}
