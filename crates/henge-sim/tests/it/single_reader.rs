//! What bounds the rarest waits of one reader beside a flood of writes on flash: a read waits for the program that its die has begun
//! (docs/promises.md).

use crate::isolation::{ATTACKERS, Got, VICTIMS, World, alone, text};
use henge_core::{Contract, Cost, Duration, Rate, Value};

/// 4 KiB reads one at a time, beside 1 MiB writes with 32 outstanding that are limited to a share of what they have alone.
fn beside(device: &str, share: f64, seed: u64) -> (Got, f64) {
    let writes = *ATTACKERS.iter().find(|a| a.name == "writes-1m-32").expect("it is one of them");
    let whole = alone(device, writes).rate * writes.bytes();
    let limit = Rate::bytes((share * whole) as u64);
    let contract = Contract {
        limit: (share < 1.0).then_some(limit),
        burst: (share < 1.0).then_some(Cost::new(1 << 20)),
        ..Contract::weighted(1)
    };
    let settings = [("depth", Value::Integer(32)), ("cost", text("bytes"))];
    let mut world = World::new(device, "sfq", &settings, seed);
    world.add(VICTIMS[1], &Contract::weighted(1), Duration::ZERO);
    world.add(writes, &contract, Duration::ZERO);
    world.run(Duration::from_secs(2), 4);
    (world.of(0), world.of(1).rate * writes.bytes() / whole)
}

/// A die of `nvme-dc` programs for 0.7 of the time at full speed, for 700 us each. So of a thousand reads several meet a program unless writes have less than
/// some two thousandths; and none waits for much longer than a program.
#[test]
fn the_rarest_waits_of_a_single_reader_are_programs() {
    let by_itself = alone("nvme-dc", VICTIMS[1]).p999;
    let of = |share| {
        let (got, writes) = beside("nvme-dc", share, 1);
        (got.p999 / by_itself, writes)
    };
    let (times, writes) = of(1.0);
    assert!((8.0..14.0).contains(&times) && writes >= 0.95, "{times} times at {writes}");
    let (times, writes) = of(0.05);
    assert!((8.0..14.0).contains(&times) && writes >= 0.04, "{times} times at {writes}");
    let (times, writes) = of(0.001);
    assert!(times <= 3.0 && writes > 0.0, "{times} times at {writes}");
}

#[test]
#[ignore = "a table for people"]
fn table() {
    for device in ["nvme-dc", "sata-ssd"] {
        let by_itself = alone(device, VICTIMS[1]);
        println!("{device}: alone {:.0}/s, p99.9 {:.0} us", by_itself.rate, by_itself.p999);
        for share in [0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.1, 0.2, 0.5, 0.8, 0.95, 1.0] {
            let (got, writes) = beside(device, share, 1);
            println!(
                "  writes {writes:.4} of alone: {:>6.0} reads/s, p99.9 {:>6.0} us, {:>5.2} times",
                got.rate,
                got.p999,
                got.p999 / by_itself.p999
            );
        }
    }
}
