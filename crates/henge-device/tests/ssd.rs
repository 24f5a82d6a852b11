//! Flash: write amplification against theory, the write cliff, its recovery after TRIM, and the invariants.

use henge_core::{Backend, Duration, FlowId, Instant, Op, Pending, Request};
use henge_device::{FlashCounts, Ssd, SsdFacts, built_in};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const UNIT: u64 = 4096;

/// A small drive with the preset's times: one die of many blocks, where theory speaks of one pool of them.
fn small(spare_percent: u32, dies: u32, mib: u64) -> SsdFacts {
    let facts = SsdFacts::parse(built_in("nvme-dc").unwrap()).unwrap();
    SsdFacts {
        capacity: mib << 20,
        spare: spare_percent * 10_000,
        page: 4 * UNIT as u32,
        pages_per_block: 16,
        channels: 1,
        dies_per_channel: dies,
        buffer: 64 * UNIT,
        ..facts
    }
}

/// One request after the other; returns the time.
struct Host {
    drive: Ssd,
    now: Instant,
}

impl Host {
    fn new(facts: SsdFacts) -> Self {
        Host { drive: Ssd::new(facts), now: Instant::ZERO }
    }
    fn run(&mut self, op: Op, offset: u64, len: u64) -> Duration {
        let id = Pending::new().insert(());
        let start = self.now;
        self.drive.submit(&Request::new(id, FlowId(0), op, offset, len, start), (), start);
        loop {
            if let Some(done) = self.drive.reap(self.now) {
                assert_eq!(done.outcome, Ok(()));
                return self.now.since(start);
            }
            let next = self.drive.wake_at().expect("what is under way ends");
            assert!(next > self.now, "time goes on");
            self.now = next;
        }
    }
    /// Writes all units once, in order.
    fn fill(&mut self) {
        for at in (0..self.drive.capacity()).step_by(1 << 20) {
            self.run(Op::Write, at, (1 << 20).min(self.drive.capacity() - at));
        }
    }
    /// Random single-unit writes over the first `units`; writes a second, and what the flash did.
    fn random_writes(&mut self, random: &mut Pcg64, units: u64, count: u64) -> (f64, FlashCounts) {
        let (start, before) = (self.now, self.drive.counts());
        for _ in 0..count {
            let unit = random.random_range(0..units);
            self.run(Op::Write, unit * UNIT, UNIT);
        }
        (count as f64 / self.now.since(start).as_secs_f64(), self.drive.counts().since(before))
    }
}

/// Lambert's W, principal branch, for -1/e < x < 0 (Newton's method).
fn lambert_w(x: f64) -> f64 {
    let mut w = -1.0 + (2.0 * (1.0 + std::f64::consts::E * x)).sqrt();
    for _ in 0..100 {
        let e = w.exp();
        w -= (w * e - x) / (e * (w + 1.0));
    }
    w
}

/// Write amplification of greedy collection under uniform random writes: Desnoyers, "Analytic modeling of SSD
/// write performance", SYSTOR 2012, for blocks of `np` units and α = physical / logical.
fn analytic(alpha: f64, np: f64) -> f64 {
    let c = 1.0 + 1.0 / (2.0 * np);
    let x0 = 0.5 - np / alpha * lambert_w(-c * alpha * (-c * alpha).exp());
    np / (np - (x0 - 1.0))
}

#[test]
fn the_formula_agrees_with_its_own_limit() {
    // For large blocks it is α / (α + W(-α e^-α)); at α = 1.28: 2.5 or so.
    let alpha: f64 = 1.28;
    let limit = alpha / (alpha + lambert_w(-alpha * (-alpha).exp()));
    assert!((analytic(alpha, 1e6) / limit - 1.0).abs() < 1e-3);
    let w = lambert_w(-0.2);
    assert!((w * w.exp() + 0.2).abs() < 1e-12);
}

#[test]
fn write_amplification_is_that_of_greedy_collection() {
    for spare in [7, 15, 28] {
        let mut host = Host::new(small(spare, 1, 512));
        host.fill();
        let units = host.drive.capacity() / UNIT;
        let mut random = Pcg64::seed_from_u64(u64::from(spare));
        host.random_writes(&mut random, units, 3 * units);
        let (_, counts) = host.random_writes(&mut random, units, 2 * units);
        // What the reserve takes is not there for collection.
        let expected = analytic(1.0 + f64::from(spare) / 100.0, 64.0);
        let off = counts.amplification() / expected - 1.0;
        println!("{spare} %: {:.3}, theory {expected:.3}, {:+.1} %", counts.amplification(), off * 100.0);
        assert!(off.abs() < 0.05, "{spare} %: {:.3} instead of {expected:.3}", counts.amplification());
    }
}

#[test]
fn the_write_cliff_and_its_recovery_after_trim() {
    let mut host = Host::new(small(7, 4, 512));
    let units = host.drive.capacity() / UNIT;
    let mut random = Pcg64::seed_from_u64(1);
    host.fill();
    let (fresh, _) = host.random_writes(&mut random, units, units / 50);
    host.random_writes(&mut random, units, 2 * units);
    let (steady, at_cliff) = host.random_writes(&mut random, units, units / 4);
    // Half of the disk is given back, and the other half goes on being written.
    host.run(Op::Trim, host.drive.capacity() / 2, host.drive.capacity() / 2);
    host.random_writes(&mut random, units / 2, units);
    let (trimmed, after) = host.random_writes(&mut random, units / 2, units / 4);
    println!("writes a second: fresh {fresh:.0}, steady {steady:.0}, after trim {trimmed:.0}");
    println!(
        "amplification: steady {:.2}, after trim {:.2}",
        at_cliff.amplification(),
        after.amplification()
    );
    assert!(steady < fresh / 4.0, "the cliff: {steady} after {fresh}");
    assert!(trimmed > steady * 3.0, "the recovery: {trimmed} after {steady}");
    assert!(after.amplification() < 1.3, "{}", after.amplification());
}

#[test]
fn presets_are_as_fast_as_their_data_sheets() {
    for (name, read_iops, read_rate, write_rate) in
        [("nvme-dc", 400e3, 3000e6, 1050e6), ("sata-ssd", 95e3, 560e6, 490e6)]
    {
        let mut drive = Ssd::new(SsdFacts::parse(built_in(name).unwrap()).unwrap());
        let mut random = Pcg64::seed_from_u64(5);
        let mut now = Instant::ZERO;
        let area = 1u64 << 30;
        let seq = many(&mut drive, &mut now, 8192, 32, |i| (Op::Write, i * (128 << 10), 128 << 10));
        assert!((seq.0 / write_rate - 1.0).abs() < 0.05, "{name} writes {:.0} MB/s", seq.0 / 1e6);
        let seq = many(&mut drive, &mut now, 8192, 32, |i| (Op::Read, i * (128 << 10), 128 << 10));
        assert!((seq.0 / read_rate - 1.0).abs() < 0.05, "{name} reads {:.0} MB/s", seq.0 / 1e6);
        let depth = if name == "sata-ssd" { 32 } else { 128 };
        let small = many(&mut drive, &mut now, 40_000, depth, |_| {
            (Op::Read, random.random_range(0..area / UNIT) * UNIT, UNIT)
        });
        println!("{name}: {:.0} random reads a second at depth {depth}", small.1);
        assert!(
            small.1 > read_iops * 0.8 && small.1 < read_iops * 1.2,
            "{name}: {:.0} reads a second",
            small.1
        );
    }
}

/// Runs `count` requests, `depth` at a time; bytes and requests a second.
fn many(
    drive: &mut Ssd,
    now: &mut Instant,
    count: u64,
    depth: u64,
    mut request: impl FnMut(u64) -> (Op, u64, u64),
) -> (f64, f64) {
    let mut pending = Pending::new();
    let start = *now;
    let (mut issued, mut over, mut bytes) = (0, 0, 0);
    while over < count {
        while issued < count && issued - over < depth {
            let (op, offset, len) = request(issued);
            let id = pending.insert(());
            drive.submit(&Request::new(id, FlowId(0), op, offset, len, *now), (), *now);
            (issued, bytes) = (issued + 1, bytes + len);
        }
        while let Some(done) = drive.reap(*now) {
            pending.remove(done.id).expect("each request is finished once");
            over += 1;
        }
        if over < count && issued - over == depth.min(count - over) {
            *now = drive.wake_at().expect("what is under way ends").max(*now);
        }
    }
    let seconds = now.since(start).as_secs_f64();
    (bytes as f64 / seconds, count as f64 / seconds)
}

/// Whatever the host writes, however it picks on one die, collection finds room.
#[test]
fn no_pattern_fills_a_die() {
    let mut host = Host::new(small(7, 4, 96));
    host.fill();
    let units = host.drive.capacity() / UNIT;
    // Always the units that were not written lately, in strides that favor single dies.
    for round in 0..40u64 {
        for unit in (round % 4..units).step_by(16).flat_map(|u| u..(u + 3).min(units)) {
            host.run(Op::Write, unit * UNIT, UNIT);
        }
    }
    assert!(host.drive.counts().erased > 0);
}
