//! How close to DiskSim and to real drives the hard-disk model is, and how fast: `make bench-sim`.
//!
//! Needs the reference lists: HENGE_DATA names the directory that has `disks/`.

#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // It measures time.

#[path = "../tests/it/common/mod.rs"]
mod common;
#[path = "../tests/it/flash.rs"]
mod flash;
#[path = "sim_runs.rs"]
mod runs;

use henge_core::{Duration, Instant};
use henge_device::replay::{Mode, Replay, Row, demerit, mean, parse};
use henge_device::{DiskFacts, Hdd, HddOptions, model_names};
use std::io::Read;
use std::path::Path;

/// Whether lines of JSON were asked for instead of tables.
fn is_json() -> bool {
    std::env::args().any(|a| a == "--json")
}

/// A line for people.
macro_rules! say {
    ($($what:tt)*) => { if !is_json() { println!($($what)*) } };
}

/// A figure beside DiskSim's, where JSON was asked for.
fn line(name: &str, value: f64, unit: &str, ratio: f64) {
    line_beside(name, value, unit, "DiskSim", ratio);
}

fn line_beside(name: &str, value: f64, unit: &str, peer: &str, ratio: f64) {
    if is_json() {
        let name = name.replace(' ', "-").replace(',', "").replace('%', "percent");
        println!(
            "{{\"name\":\"sim/{name}\",\"value\":{value:.4},\"unit\":\"{unit}\",\"peer\":\"{peer}\",\"ratio\":{ratio:.4}}}"
        );
    }
}

fn main() {
    let Some(disks) = common::disks("bench-sim") else { return };
    let is_part = |part: &str| {
        let mut named = std::env::args().skip(1).filter(|a| !a.starts_with("--")).peekable();
        named.peek().is_none() || named.any(|a| a == part)
    };
    if is_part("accuracy") {
        accuracy(&disks);
    }
    if is_part("flash") {
        flash();
    }
    if is_part("speed") {
        speed(&disks);
    }
}

fn accuracy(disks: &Path) {
    say!("\nRequest lists: mean service time and demerit, this model and DiskSim 4.0\n");
    lists(disks);
    rates(disks);
    if !is_json() {
        println!("\nOther runs: fresh requests of the same kind\n");
        runs::all(disks);
    }
}

pub fn facts(disks: &Path, model: &str) -> DiskFacts {
    let path = disks.join(format!("facts/{model}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    DiskFacts::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn play(facts: &DiskFacts, options: HddOptions, rows: &[Row], mode: Mode) -> (Vec<Duration>, Instant) {
    let mut drive = Hdd::new(facts.clone(), options);
    let mut service = vec![Duration::ZERO; rows.len()];
    let mut end = Instant::ZERO;
    for answer in Replay::new(&mut drive, rows, mode) {
        service[answer.index] = answer.service();
        end = end.max(answer.complete);
    }
    (service, if mode == Mode::Drain { drive.quiet_at() } else { end })
}

fn unpack(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text
}

fn lists(disks: &Path) {
    say!("{:9} {:32} {:>9} {:>9} {:>8} {:>9}", "drive", "list", "ours ms", "DiskSim", "off", "demerit");
    let mut real = Vec::new();
    let mut paths: Vec<_> =
        std::fs::read_dir(disks.join("ref")).expect("lists").map(|e| e.expect("a file").path()).collect();
    paths.sort();
    let mut worst = 0.0f64;
    for path in paths {
        let name = path.file_name().expect("a file").to_string_lossy().replace(".csv.gz", "");
        let (model, list) =
            name.match_indices('_').nth(1).map(|(i, _)| (&name[..i], &name[i + 1..])).expect("drive_list");
        let facts = facts(disks, model);
        let rows = parse(&unpack(&path), facts.geometry.capacity()).expect("a sound list");
        let mode = match () {
            () if list.contains("_drain_") => Mode::Drain,
            () if list.contains("_open_") => Mode::Open,
            () => Mode::Closed,
        };
        let cache = list.contains("nocache").then_some(false);
        let (ours, _) = play(&facts, HddOptions { cache, ..HddOptions::default() }, &rows, mode);
        let reference: Vec<_> = rows.iter().map(|r| r.reference.expect("a reference")).collect();
        let (m, r) = (mean(&ours) * 1e3, mean(&reference) * 1e3);
        let off = (m / r - 1.0) * 100.0;
        worst = worst.max(off.abs());
        let share = demerit(&ours, &reference).expect("equal sizes") * 1e3 / r * 100.0;
        let drive = model.trim_start_matches("SEAGATE_");
        say!("{drive:9} {list:32} {m:9.4} {r:9.4} {off:+7.2}% {share:8.2}%");
        line(&format!("mean/{drive}/{list}"), m, "ms", m / r);
        let measured: Option<Vec<_>> = rows.iter().map(|r| r.real).collect();
        if let Some(measured) = measured {
            let of =
                |list: &[Duration]| demerit(list, &measured).expect("equal sizes") / mean(&measured) * 100.0;
            real.push((drive.to_owned(), of(&ours), of(&reference)));
        }
    }
    say!("the largest difference of a mean: {worst:.2} %");
    say!("\nAgainst the real drives: demerit as a share of the mean\n");
    say!("{:9} {:>8} {:>8}", "drive", "ours", "DiskSim");
    for (drive, ours, disksim) in real {
        say!("{drive:9} {ours:7.2}% {disksim:7.2}%");
    }
}

/// Requests a second of 10,000 of 512 bytes, and DiskSim's, from the README of the reference data.
const RATES: &[(&str, &str, bool, Mode, f64)] = &[
    ("SEAGATE_ST32171W", "sequential, drained", true, Mode::Drain, 3417.0),
    ("SEAGATE_ST34501N", "sequential, drained", true, Mode::Drain, 4432.0),
    ("SEAGATE_ST32171W", "random, closed", false, Mode::Closed, 71.0),
    ("SEAGATE_ST34501N", "random, closed", false, Mode::Closed, 86.0),
    ("SEAGATE_ST32171W", "random, drained", false, Mode::Drain, 32.0),
    ("SEAGATE_ST34501N", "random, drained", false, Mode::Drain, 44.0),
];

fn rates(disks: &Path) {
    say!("\nReads of 512 bytes a second, over 10,000 of them\n");
    say!("{:9} {:32} {:>9} {:>9}", "drive", "reads", "ours/s", "DiskSim/s");
    for (model, what, sequential, mode, theirs) in RATES {
        let facts = facts(disks, model);
        let kind = runs::Kind { sectors: 1, locality: 0.0, reads: 1.0 };
        let mut rows = kind.rows(facts.geometry.capacity(), 10_000, 7);
        if *sequential {
            (0..).zip(&mut rows).for_each(|(i, r)| r.lbn = i);
        }
        let (_, end) = play(&facts, HddOptions::default(), &rows, *mode);
        let rate = rows.len() as f64 / end.since(Instant::ZERO).as_secs_f64();
        let drive = model.trim_start_matches("SEAGATE_");
        say!("{drive:9} {what:32} {rate:9.1} {theirs:9.0}");
        line(&format!("rate/{drive}/{what}"), rate, "requests/s", rate / theirs);
    }
}

fn flash() {
    say!("\nFlash: amplification of uniform random writes, greedy collection (spare / exported capacity)\n");
    say!("{:>7} {:>9} {:>9} {:>7}", "spare", "ours", "theory", "off");
    for spare in [7, 15, 28] {
        let (ours, theory) = flash::greedy(spare);
        say!("{spare:5} % {ours:9.3} {theory:9.3} {:+6.2}%", (ours / theory - 1.0) * 100.0);
        line_beside(&format!("flash/amplification/{spare}"), ours, "", "theory", ours / theory);
    }
    say!("\nFlash: the write cliff at 7 %, and half of the drive given back by TRIM\n");
    say!("{:14} {:>10} {:>14}", "state", "writes/s", "amplification");
    for (state, (rate, amplification)) in ["fresh", "steady", "half trimmed"].iter().zip(flash::cliff()) {
        say!("{state:14} {rate:10.0} {amplification:14.2}");
    }
}

/// DiskSim's requests per CPU second, from the README of the reference data.
const DISKSIM: &[(&str, &str, u64, bool, f64, bool, f64)] = &[
    ("SEAGATE_ST32171W", "sequential 512 B reads", 1, true, 1.0, true, 287e3),
    ("SEAGATE_ST34501N", "sequential 512 B reads", 1, true, 1.0, true, 275e3),
    ("SEAGATE_ST32171W", "sequential 4 KiB reads", 8, true, 1.0, true, 148e3),
    ("SEAGATE_ST32171W", "random 512 B reads", 1, false, 1.0, true, 218e3),
    ("SEAGATE_ST34501N", "random 512 B reads", 1, false, 1.0, true, 213e3),
    ("SEAGATE_ST32171W", "random 4 KiB, 70 % reads", 8, false, 0.7, true, 137e3),
    ("SEAGATE_ST34501N", "random 4 KiB, 70 % reads", 8, false, 0.7, true, 132e3),
    ("SEAGATE_ST32171W", "random 4 KiB reads, no cache", 8, false, 1.0, false, 172e3),
];

fn speed(disks: &Path) {
    say!("\nSpeed: requests per second of CPU time, one thread; DiskSim's as measured on another machine\n");
    say!("{:9} {:30} {:>10} {:>10} {:>6}", "drive", "workload", "ours/s", "DiskSim/s", "times");
    for (model, what, sectors, sequential, reads, cache, theirs) in DISKSIM {
        let facts = facts(disks, model);
        let ours = rate(&facts, *sectors, *sequential, *reads, *cache);
        say!(
            "{:9} {what:30} {ours:10.0} {theirs:10.0} {:6.1}",
            model.trim_start_matches("SEAGATE_"),
            ours / theirs
        );
        line(
            &format!("speed/{}/{what}", model.trim_start_matches("SEAGATE_")),
            ours,
            "requests/s",
            ours / theirs,
        );
    }
    for (what, reads) in [("reads", 1.0), ("writes", 0.0)] {
        for kib in [4, 32, 128, 512, 2048, 8192] {
            let facts = facts(disks, "SEAGATE_ST34501N");
            let ours = rate(&facts, kib * 2, false, reads, true);
            say!("{:9} {:30} {ours:10.0}", "ST34501N", format!("random {kib} KiB {what}"));
            line(&format!("speed/ST34501N/random {kib} KiB {what}"), ours, "requests/s", ours / 132e3);
        }
    }
    say!("\nbuilt-in models: {}", model_names().collect::<Vec<_>>().join(", "));
}

/// CPU time of this thread, where the kernel says (Linux); else the clock's.
fn cpu_seconds() -> f64 {
    let ran = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = ran.and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok());
    ns.map_or_else(|| ORIGIN.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

static ORIGIN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);

/// The best of three, since others use the caches, too.
fn rate(facts: &DiskFacts, sectors: u64, sequential: bool, reads: f64, cache: bool) -> f64 {
    let locality = if sequential { 1.0 } else { 0.0 };
    let kind = runs::Kind { sectors, locality, reads };
    let mut rows = kind.rows(facts.geometry.capacity(), 300_000, 11);
    if sequential {
        (0..).zip(&mut rows).for_each(|(i, r)| r.lbn = i * sectors);
    }
    let once = || {
        let mut drive = Hdd::new(facts.clone(), HddOptions { cache: Some(cache), ..HddOptions::default() });
        let start = cpu_seconds();
        let answered = Replay::new(&mut drive, &rows, Mode::Closed).count();
        answered as f64 / (cpu_seconds() - start)
    };
    (0..3).map(|_| once()).fold(0.0, f64::max)
}
