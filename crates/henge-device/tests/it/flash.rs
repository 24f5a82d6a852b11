//! Flash drives written at random, beside theory.

use henge_core::{Backend, Duration, FlowId, Instant, Op, Pending, Request};
use henge_device::{FlashCounts, FlashLayout, Ssd, SsdFacts, built_in};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

pub const UNIT: u64 = 4096;

/// A small drive with the preset's times: one die of many blocks, where theory speaks of one pool of them.
pub fn small(spare_percent: u32, dies: u32, mib: u64) -> SsdFacts {
    let facts = SsdFacts::parse(built_in("nvme-dc").unwrap()).unwrap();
    SsdFacts {
        layout: FlashLayout {
            capacity: mib << 20,
            spare: spare_percent * 10_000,
            page: 4 * UNIT as u32,
            pages_per_block: 16,
            channels: 1,
            dies_per_channel: dies,
            ..facts.layout
        },
        buffer: 64 * UNIT,
        ..facts
    }
}

/// One request after the other; returns the time.
pub struct Host {
    pub drive: Ssd,
    pub now: Instant,
}

impl Host {
    pub fn new(facts: SsdFacts) -> Self {
        Host { drive: Ssd::new(facts), now: Instant::ZERO }
    }
    pub fn run(&mut self, op: Op, offset: u64, len: u64) -> Duration {
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
    pub fn fill(&mut self) {
        for at in (0..self.drive.capacity()).step_by(1 << 20) {
            self.run(Op::Write, at, (1 << 20).min(self.drive.capacity() - at));
        }
    }
    /// Random single-unit writes over the first `units`; writes a second, and what the flash did.
    pub fn random_writes(&mut self, random: &mut Pcg64, units: u64, count: u64) -> (f64, FlashCounts) {
        let (start, before) = (self.now, self.drive.counts());
        for _ in 0..count {
            let unit = random.random_range(0..units);
            self.run(Op::Write, unit * UNIT, UNIT);
        }
        (count as f64 / self.now.since(start).as_secs_f64(), self.drive.counts().since(before))
    }
}

/// Lambert's W, principal branch, for -1/e < x < 0 (Newton's method).
pub fn lambert_w(x: f64) -> f64 {
    let mut w = -1.0 + (2.0 * (1.0 + std::f64::consts::E * x)).sqrt();
    for _ in 0..100 {
        let e = w.exp();
        w -= (w * e - x) / (e * (w + 1.0));
    }
    w
}

/// Write amplification of greedy collection under uniform random writes: Desnoyers, "Analytic modeling of SSD
/// write performance", SYSTOR 2012, for blocks of `np` units and α = physical / logical.
pub fn analytic(alpha: f64, np: f64) -> f64 {
    let c = 1.0 + 1.0 / (2.0 * np);
    let x0 = 0.5 - np / alpha * lambert_w(-c * alpha * (-c * alpha).exp());
    np / (np - (x0 - 1.0))
}

/// Write amplification of uniform random writes to a drive with `spare` percent of its exported capacity to spare, and
/// the theory's.
pub fn greedy(spare: u32) -> (f64, f64) {
    let mut host = Host::new(small(spare, 1, 512));
    host.fill();
    let units = host.drive.capacity() / UNIT;
    let mut random = Pcg64::seed_from_u64(u64::from(spare));
    host.random_writes(&mut random, units, 3 * units);
    let (_, counts) = host.random_writes(&mut random, units, 2 * units);
    // What the reserve takes is not there for collection.
    (counts.amplification(), analytic(1.0 + f64::from(spare) / 100.0, 64.0))
}

/// Random writes a second and their amplification: fresh, in the steady state, and after half of the drive was
/// given back.
pub fn cliff() -> [(f64, f64); 3] {
    let mut host = Host::new(small(7, 4, 512));
    let units = host.drive.capacity() / UNIT;
    let mut random = Pcg64::seed_from_u64(1);
    let figures = |(rate, counts): (f64, FlashCounts)| (rate, counts.amplification());
    host.fill();
    let fresh = host.random_writes(&mut random, units, units / 50);
    host.random_writes(&mut random, units, 2 * units);
    let steady = host.random_writes(&mut random, units, units / 4);
    // Half of the disk is given back, and the other half goes on being written.
    host.run(Op::Trim, host.drive.capacity() / 2, host.drive.capacity() / 2);
    host.random_writes(&mut random, units / 2, units);
    let trimmed = host.random_writes(&mut random, units / 2, units / 4);
    [fresh, steady, trimmed].map(figures)
}
