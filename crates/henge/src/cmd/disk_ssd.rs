//! `henge disk info` of a flash drive: its numbers, and the write cliff with its recovery after TRIM.

use super::disk::save;
use anyhow::{Result, anyhow};
use comfy_table::Table;
use henge_core::{Backend, FlowId, Instant, Op, Pending, Request};
use henge_device::{FlashCounts, Ssd, SsdFacts};
use kuva::prelude::LinePlot;
use std::path::Path;

/// A drive under test, with requests always outstanding.
struct Bench {
    drive: Ssd,
    now: Instant,
    random: u64,
}

/// What a stretch of writes came to.
struct Stretch {
    phase: &'static str,
    /// Host's writes so far, in capacities.
    until: f64,
    per_second: f64,
    amplification: f64,
}

/// Requests outstanding.
const DEPTH: u64 = 64;
/// Stretches of one capacity written.
const STRETCHES: u64 = 20;

impl Bench {
    fn below(&mut self, n: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.random) * u128::from(n)) >> 64) as u64
    }

    /// `count` requests, each as `next` says; requests a second.
    fn run(&mut self, count: u64, mut next: impl FnMut(&mut Bench, u64) -> (Op, u64, u64)) -> f64 {
        let (start, mut pending) = (self.now, Pending::new());
        let (mut issued, mut over) = (0, 0);
        while over < count {
            while issued < count && issued - over < DEPTH {
                let (op, offset, len) = next(self, issued);
                let id = pending.insert(());
                self.drive.submit(&Request::new(id, FlowId(0), op, offset, len, self.now), (), self.now);
                issued += 1;
            }
            match self.drive.reap(self.now) {
                Some(done) => {
                    pending.remove(done.id);
                    over += 1;
                }
                None => self.now = self.drive.wake_at().expect("what is under way ends").max(self.now),
            }
        }
        count as f64 / self.now.since(start).as_secs_f64()
    }
}

/// Fills the drive, writes it at random three times over, trims half of it, and goes on with the other half.
fn wear_in(facts: &SsdFacts) -> Vec<Stretch> {
    let mut bench = Bench { drive: Ssd::new(facts.clone()), now: Instant::ZERO, random: 1 };
    let (unit, units) = (u64::from(facts.layout.unit), facts.layout.units());
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut before = FlashCounts::default();
    let mut note = |phase, per_second: f64, bench: &Bench| {
        let counts = bench.drive.counts();
        let amplification = counts.since(before).amplification();
        before = counts;
        stretches.push(Stretch {
            phase,
            until: counts.written as f64 / units as f64,
            per_second,
            amplification,
        });
    };
    let chunk = 64;
    for i in 0..STRETCHES {
        let count = units / chunk / STRETCHES;
        let rate = bench.run(count, |_, n| (Op::Write, (i * count + n) * chunk * unit, chunk * unit));
        note("filling, in order", rate * chunk as f64, &bench);
    }
    for _ in 0..3 * STRETCHES {
        let rate = bench.run(units / STRETCHES, |b, _| (Op::Write, b.below(units) * unit, unit));
        note("random writes", rate, &bench);
    }
    bench.run(1, |_, _| (Op::Trim, units / 2 * unit, units / 2 * unit));
    for _ in 0..STRETCHES {
        let rate = bench.run(units / STRETCHES, |b, _| (Op::Write, b.below(units / 2) * unit, unit));
        note("half trimmed, random writes to the rest", rate, &bench);
    }
    stretches
}

/// Prints what is known of the drive, and how it wears in; plots go to `dir`.
pub fn info(text: &str, name: &str, dir: Option<&Path>, json: bool) -> Result<()> {
    let facts = SsdFacts::parse(text).map_err(|e| anyhow!("{name}: {e}"))?;
    let small = facts.shrunk(8);
    let stretches = wear_in(&small);
    let last = |phase: &str| {
        stretches.iter().rfind(|s| s.phase.starts_with(phase)).expect("each phase has stretches")
    };
    let phases = [last("filling"), last("random"), last("half")];
    if json {
        let rows = stretches.iter().map(|s| {
            serde_json::json!({ "phase": s.phase, "written": s.until, "per_second": s.per_second, "amplification": s.amplification })
        });
        let rows: Vec<_> = rows.collect();
        println!("{:#}", serde_json::json!({ "model": facts.model, "source": facts.source, "writes": rows }));
    } else {
        println!("{}: {}\n{}\n", facts.model, facts.description, facts.source);
        println!(
            "capacity  {}, {} % spare",
            henge_core::format_size(facts.layout.capacity),
            f64::from(facts.layout.spare) / 1e4
        );
        println!(
            "flash     {} channels of {} dies, pages of {}, {} pages a block",
            facts.layout.channels,
            facts.layout.dies_per_channel,
            henge_core::format_size(u64::from(facts.layout.page)),
            facts.layout.pages_per_block
        );
        println!(
            "times     read {}, program {}, erase {}",
            facts.times.read, facts.times.program, facts.times.erase
        );
        println!(
            "\n4 KiB writes, {DEPTH} outstanding, on the same drive shrunk to {}:",
            henge_core::format_size(small.layout.capacity)
        );
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
        table.set_header(["at the end of", "writes/s", "amplification"]);
        for s in phases {
            table.add_row([
                s.phase.to_owned(),
                format!("{:.0}", s.per_second),
                format!("{:.2}", s.amplification),
            ]);
        }
        println!("{table}");
    }
    let Some(dir) = dir else { return Ok(()) };
    let points: Vec<_> = stretches.iter().map(|s| (s.until, s.per_second / 1e3)).collect();
    let line = LinePlot::new().with_data(points).with_stroke_width(2.0);
    let title = format!("{name}: the write cliff, and its recovery after TRIM");
    save(vec![line.into()], &title, "written, in capacities", "1000 writes/s of 4 KiB", dir, "cliff", true)
}
