//! How well the presets fit what they were fitted to: `cargo test --test fit -- --nocapture` prints the table.

use crate::common::{Skip, open_shared};
use henge_core::{Instant, Op, Params, Value};
use henge_workload::{Arrivals, Level, Next, Spec, Stats, TraceOptions, preset};
use std::collections::BTreeMap;

/// What is compared is within this of the source.
const TOLERANCE: f64 = 0.10;

/// Preset, trace, and the seconds for which arrivals are drawn; a trace of a tenth of a second has none to compare.
const SOURCES: [(&str, &str, u64); 5] = [
    ("tpc-c", "tpcc-7k.ns.ascii", 0),
    ("financial", "financial1-50k-4kpages.disksim.trace", 150_000),
    ("websearch", "websearch1-50k-4kpages.disksim.trace", 25_000),
    ("openmail", "cello2003-hour.srt", 1_500_000),
    ("postmark", "postmark.disksim.trace", 200_000),
];

/// Requests of each preset that are drawn for everything but arrivals.
const DRAWN: u64 = 250_000;

fn generated(name: &str) -> Stats {
    let p = Params::new("workload")
        .with("preset", Value::Text(name.to_owned()))
        .with("rate", Value::Text("1000/s".to_owned()));
    let spec = Spec::from_params(p).unwrap();
    let mut workload = spec.build(1 << 40, 1, 0, None).unwrap();
    let (mut stats, mut now) = (Stats::default(), Instant::ZERO);
    while stats.requests() < DRAWN {
        match workload.next(now).unwrap() {
            Next::Issue { record, .. } => stats.count(&record),
            Next::At(at) => now = at,
            other => panic!("an open workload is never {other:?}"),
        }
    }
    stats
}

/// Index of dispersion in bins of 0.1, 1 and 10 s of a preset's arrivals, in the long run.
fn long_run(name: &str, seconds: u64) -> [f64; 3] {
    let preset = preset::fitted(name).unwrap();
    let rng = rand_pcg::Pcg64::new(1, 1);
    let rate = Level::Constant(preset.rate.unwrap());
    let mut arrivals = Arrivals::new(preset.process, rate, Instant::ZERO, rng);
    let mut counts = vec![0u32; seconds as usize * 10];
    while let Some(at) = arrivals.next_arrival() {
        match counts.get_mut((at.as_nanos() / 100_000_000) as usize) {
            Some(n) => *n += 1,
            None => break,
        }
    }
    [1, 10, 100].map(|width| {
        let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for bin in counts.chunks_exact(width) {
            let count = f64::from(bin.iter().sum::<u32>());
            (n, sum, squares) = (n + 1.0, sum + count, squares + count * count);
        }
        let mean = sum / n;
        (squares / n - mean * mean) / mean
    })
}

/// Shares of reads (or writes) by size, in classes of powers of two.
fn classes(stats: &Stats, op: Op) -> BTreeMap<u32, f64> {
    let mut classes = BTreeMap::new();
    for (size, n) in stats.sizes(op) {
        *classes.entry(size.next_power_of_two().ilog2()).or_default() +=
            n as f64 / stats.of(op).requests as f64;
    }
    classes
}

#[test]
fn presets_fit_their_sources() {
    let mut wrong = Vec::new();
    println!("{:10} {:22} {:>10} {:>10} {:>7}", "preset", "what", "source", "preset", "off by");
    for (name, file, seconds) in SOURCES {
        let size_unit = file.contains("4kpages").then_some(4096);
        let options = TraceOptions { size_unit, ..TraceOptions::default() };
        let Some(trace) = open_shared(file, &options) else {
            return Skip("presets_fit_their_sources").report();
        };
        let mut source = Stats::default();
        trace.for_each(|r| source.count(&r.unwrap()));
        let made = generated(name);
        let mut row = |what: &str, source: f64, made: f64| {
            let off = made / source - 1.0;
            println!("{name:10} {what:22} {source:10.3} {made:10.3} {:+6.1}%", 100.0 * off);
            if off.abs() > TOLERANCE {
                wrong.push(format!("{name}: {what}: {made} for {source}"));
            }
        };
        row("read %", source.read_percent(), made.read_percent());
        row("sequential %", source.sequential_percent(), made.sequential_percent());
        row("after one of 32 %", source.near_percent(), made.near_percent());
        for op in [Op::Read, Op::Write] {
            // A handful of requests has no mix (WebSearch writes ten times in fifty thousand).
            if source.of(op).requests < 100 {
                continue;
            }
            let word = op.as_str();
            row(
                &format!("mean {word} KiB"),
                source.of(op).mean_kib().unwrap(),
                made.of(op).mean_kib().unwrap(),
            );
            let ours = classes(&made, op);
            for (class, share) in classes(&source, op).into_iter().filter(|(_, share)| *share >= 0.01) {
                let made = ours.get(&class).copied().unwrap_or(0.0);
                row(&format!("{word} up to {} B %", 1u64 << class), 100.0 * share, 100.0 * made);
            }
        }
        if seconds > 0 {
            let source = source.dispersion();
            for (made, (width, source)) in long_run(name, seconds).into_iter().zip(&source[2..5]) {
                row(&format!("dispersion at {width}"), source.unwrap(), made);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
