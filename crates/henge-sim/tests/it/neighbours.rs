//! What a reader keeps beside a flood of writes on emulated flash, as far as the gate decides it.
//!
//! The reader's own area was never written, so its reads meet no die that is programming. A written area does: then the 99.9th percentile on
//! `nvme-dc` is some 12 times what it is alone, because a die is busy for 700 us with each program (docs/promises.md). No order of requests helps there.

use crate::common::outcome;
use henge_sim::Outcome;

/// 4 KiB reads one at a time, and 128 KiB writes (1 MiB at 32, cut) where there are some.
fn beside(disk: &str, scheduler: &str, reads: bool, writes: u32, seed: u64) -> Outcome {
    let mut text = format!(
        "duration = \"4s\"\nwarmup = \"2s\"\nseed = {seed}\n\
         [node]\ndevice = {{ disk = \"{disk}\", capacity = \"32GB\", spare = \"25%\" }}\nscheduler = {{ sfq = {{ {scheduler} }} }}\n"
    );
    let mut flow = |name: &str, workload: &str| {
        text += &format!("[[flow]]\nname = \"{name}\"\nworkload = {{ {workload} }}\n");
    };
    if reads {
        flow("reader", "pattern = \"random\", size = \"4KiB\", read = 1.0, outstanding = 1");
    }
    if writes > 0 {
        let writer = format!("pattern = \"random\", size = \"128KiB\", read = 0.0, outstanding = {writes}");
        flow("writer", &writer);
    }
    outcome(&text)
}

/// The 99.9th percentile is at most three times what it is alone, and the writer has 95 % of what it has alone.
#[test]
fn a_single_reader_beside_a_flood_of_writes() {
    for disk in ["nvme-dc", "sata-ssd"] {
        for seed in 1..3 {
            let p999 = |o: &Outcome| o.flow("reader").unwrap().latency.quantile(0.999).unwrap().as_nanos();
            let writes = |o: &Outcome| o.flow("writer").unwrap().answered;
            let alone = beside(disk, "depth = 32", true, 0, seed);
            let whole = beside(disk, "depth = 256", false, 256, seed);
            let both = beside(disk, "depth = 32", true, 256, seed);
            let (a, b) = (p999(&alone), p999(&both));
            assert!(b <= 3 * a, "{disk}, seed {seed}: {b} ns beside, {a} alone");
            let (a, b) = (writes(&whole), writes(&both));
            assert!(a > 1000 && b * 100 >= a * 95, "{disk}, seed {seed}: {b} writes beside, {a} alone");
        }
    }
}
