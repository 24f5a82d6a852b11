//! Flash: write amplification against theory, the write cliff, its recovery after TRIM, and the invariants.

use henge_core::{Backend, FlowId, Instant, Op, Pending, Request};
use henge_device::{FlashLayout, Ssd, SsdFacts, built_in};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::flash::{Host, UNIT, analytic, cliff, greedy, lambert_w, small};

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
        let (measured, expected) = greedy(spare);
        let off = measured / expected - 1.0;
        println!("{spare} %: {measured:.3}, theory {expected:.3}, {:+.1} %", off * 100.0);
        assert!(off.abs() < 0.05, "{spare} %: {measured:.3} instead of {expected:.3}");
    }
}

#[test]
fn the_write_cliff_and_its_recovery_after_trim() {
    let [fresh, steady, trimmed] = cliff();
    assert!(steady.0 < fresh.0 / 4.0, "the cliff: {steady:?} after {fresh:?}");
    assert!(trimmed.0 > steady.0 * 3.0, "the recovery: {trimmed:?} after {steady:?}");
    assert!(trimmed.1 < 1.3, "{trimmed:?}");
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

/// Writes that waited for room behind a flush opened a page, which nothing programmed: the drive stood still for ever.
#[test]
fn a_flush_behind_writes_that_wait_for_room_comes_to_an_end() {
    let mut drive = Ssd::new(SsdFacts::parse(built_in("sata-ssd").unwrap()).unwrap());
    let (mut now, mut ids) = (Instant::ZERO, Pending::new());
    let writes = (0..33).map(|i| (Op::Write, i << 20, (1 << 20) - UNIT));
    for (op, offset, len) in writes.chain([(Op::Flush, 0, 0), (Op::Write, 0, UNIT)]) {
        drive.submit(&Request::new(ids.insert(()), FlowId(0), op, offset, len, now), (), now);
    }
    while !ids.is_empty() {
        now = drive.wake_at().unwrap_or_else(|| panic!("{} commands never end", ids.len())).max(now);
        while let Some(done) = drive.reap(now) {
            ids.remove(done.id);
        }
    }
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

/// Half of a percent of 512 blocks is less than what a die keeps to collect into.
#[test]
fn whatever_is_a_drive_is_one_when_it_is_shrunk() {
    for spare in [1_000, 5_000, 70_000, 280_000, 1_000_000] {
        for (dies, pages_per_block) in [(1, 1), (3, 7), (16, 256)] {
            let facts = small(1, dies, 0);
            let layout = FlashLayout { spare, pages_per_block, capacity: 1 << 38, ..facts.layout };
            let facts = SsdFacts { layout, ..facts };
            facts.check().expect("a drive");
            let shrunk = facts.shrunk(8);
            shrunk.check().unwrap_or_else(|(key, what)| panic!("{spare} ppm of {dies} dies: {key} {what}"));
            assert!(shrunk.layout.units() * 2 < facts.layout.units());
        }
    }
}
