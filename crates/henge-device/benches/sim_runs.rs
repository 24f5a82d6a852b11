//! The runs of results.csv that have no request list: requests of the same kind, drawn anew.

use crate::{facts, play};
use henge_core::{Backend, Duration, FlowId, Instant, Op, Pending, Request, RequestId};
use henge_device::replay::{Mode, Row, mean};
use henge_device::{DiskFacts, Hdd, HddOptions};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};
use rand_pcg::Pcg64;
use std::path::Path;

/// A kind of request stream: with the probability `locality` a request starts where the one before ended, else at
/// a random place aligned to its size.
#[derive(Clone, Copy)]
pub struct Kind {
    pub sectors: u64,
    pub locality: f64,
    pub reads: f64,
}

impl Kind {
    pub fn rows(&self, capacity: u64, count: u64, seed: u64) -> Vec<Row> {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut next = u64::MAX;
        let mut row = || {
            let goes_on = next.saturating_add(self.sectors) <= capacity && random.random_bool(self.locality);
            let lbn =
                if goes_on { next } else { random.random_range(0..capacity / self.sectors) * self.sectors };
            next = lbn + self.sectors;
            let write = !random.random_bool(self.reads);
            Row { write, lbn, sectors: self.sectors, ..Row::default() }
        };
        (0..count).map(|_| row()).collect()
    }
}

/// One line of results.csv.
struct Run<'a> {
    get: Box<dyn Fn(&str) -> &'a str + 'a>,
}

impl Run<'_> {
    fn number(&self, column: &str) -> f64 {
        (self.get)(column).parse().unwrap_or_else(|_| panic!("{column} is a number"))
    }
    fn what(&self) -> String {
        const NAMES: [&str; 9] = [
            "model",
            "config",
            "mode",
            "queue_depth",
            "policy",
            "size",
            "rw",
            "locality",
            "load_vs_random_closed",
        ];
        NAMES.map(|name| (self.get)(name)).join(" ")
    }
}

/// How a host orders what waits for the drive, which gets one request at a time.
#[derive(Clone, Copy)]
enum Host {
    /// Upwards by block, then from the lowest again (C-LOOK).
    Cycle,
    /// Upwards by block, then downwards (LOOK).
    Look,
    /// The nearest block (SSTF).
    Nearest,
}

impl Host {
    /// By DiskSim's name.
    fn named(name: &str) -> Option<Host> {
        match name {
            "CYCLE_LBN" => Some(Host::Cycle),
            "ELEVATOR_LBN" => Some(Host::Look),
            "SSTF_LBN" => Some(Host::Nearest),
            _ => None,
        }
    }
    /// Which of the waiting is next, after a request at `last` that went `up`.
    fn next(self, waiting: &[(Instant, Row)], last: u64, up: bool) -> usize {
        let rank = |row: &Row| match self {
            Host::Cycle => (row.lbn < last, row.lbn),
            Host::Nearest => (false, row.lbn.abs_diff(last)),
            Host::Look => (row.lbn != last && (row.lbn > last) != up, row.lbn.abs_diff(last)),
        };
        (0..waiting.len()).min_by_key(|i| (rank(&waiting[*i].1), *i)).expect("somebody waits")
    }
}

/// Starts of sequential runs differ in their zone, so those are drawn several times.
const SEEDS: u64 = 8;

pub fn all(disks: &Path) {
    let text = std::fs::read_to_string(disks.join("results.csv")).expect("results.csv");
    let header: Vec<&str> = text.lines().next().expect("a header").split(',').collect();
    let (mut total, mut met) = (0, 0);
    let mut without = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let column = |name: &str| header.iter().position(|h| *h == name).expect("the column is there");
        let run = Run { get: Box::new(|name| fields[column(name)]) };
        if !(run.get)("per_request_csv").is_empty() {
            continue;
        }
        let policy = (run.get)("policy");
        if Host::named(policy).is_none() && policy != "FCFS" && (run.get)("queue_depth") != "1" {
            without.push(run.what());
            continue;
        }
        total += 1;
        let facts = facts(disks, (run.get)("model"));
        let seeds = measure(&facts, &run);
        let ours = seeds.iter().sum::<f64>() / SEEDS as f64;
        // Drained writes report the acknowledgement alone; there the rate counts.
        let drained_write = (run.get)("mode") == "drain" && (run.get)("rw") == "write";
        let theirs = if drained_write { 1e3 / run.number("iops") } else { run.number("mean_ms") };
        // Requests of one run hang together (queues, zones), so that the spread of whole runs may be the larger.
        let spread = (seeds.iter().map(|s| (s - ours).powi(2)).sum::<f64>() / (SEEDS - 1) as f64).sqrt();
        let error = (run.number("std_ms") / run.number("n").sqrt()).max(spread);
        let off = ours / theirs - 1.0;
        let within = off.abs() <= 0.02 || (ours - theirs).abs() <= 3.0 * error;
        met += usize::from(within);
        if !within || policy != "FCFS" {
            println!(
                "{:7} {:66} {ours:9.4} {theirs:9.4} {:+6.2}%, {:.1} standard errors",
                if within { "" } else { "missed:" },
                run.what(),
                off * 100.0,
                (ours - theirs) / error
            );
        }
    }
    for what in without {
        println!(
            "{:7} {what:66} not compared: the host guesses positions it cannot know (see the data's README)",
            ""
        );
    }
    println!("{met} of {total} runs within 2 % or 3 standard errors");
}
/// Mean service time in ms of each seed; for drained writes the mean interval.
fn measure(facts: &DiskFacts, run: &Run<'_>) -> Vec<f64> {
    let reads = match (run.get)("rw") {
        "read" => 1.0,
        "write" => 0.0,
        _ => 0.7,
    };
    let kind = Kind { sectors: run.number("sectors") as u64, locality: run.number("locality"), reads };
    let cache = ((run.get)("config") == "nocache").then_some(false);
    let options = HddOptions { cache, ..HddOptions::default() };
    let n = run.number("n") as u64;
    let capacity = facts.geometry.capacity();
    let one = |seed: u64| {
        let mut rows = kind.rows(capacity, n, 1000 + seed);
        let mode = (run.get)("mode");
        let seconds = match mode {
            "open" => {
                let rate = Exp::new(run.number("arrival_rate_per_s")).expect("a rate");
                let mut random = Pcg64::seed_from_u64(2000 + seed);
                let mut at = 0.0;
                for row in &mut rows {
                    at += rate.sample(&mut random);
                    row.issue = Some(Instant::ZERO + Duration::from_secs_f64(at));
                }
                mean(&play(facts, options, &rows, Mode::Open).0)
            }
            "drain" => {
                let (service, end) = play(facts, options, &rows, Mode::Drain);
                if reads == 0.0 { end.as_secs_f64() / n as f64 } else { mean(&service) }
            }
            _ => {
                let depth = run.number("queue_depth") as u32;
                match Host::named((run.get)("policy")) {
                    Some(host) => hosted(facts, options, &rows, depth, host),
                    None => queued(facts, options, &rows, depth),
                }
            }
        };
        seconds * 1e3
    };
    (0..SEEDS).map(one).collect()
}

/// `depth` requests outstanding at all times; the mean in seconds from issue to answer.
fn queued(facts: &DiskFacts, options: HddOptions, rows: &[Row], depth: u32) -> f64 {
    let mut drive = Hdd::new(facts.clone(), options);
    let mut pending: Pending<Instant> = Pending::new();
    let mut now = Instant::ZERO;
    let mut service = Vec::with_capacity(rows.len());
    let mut next = rows.iter();
    loop {
        while pending.len() < depth as usize {
            let Some(row) = next.next() else { break };
            let op = if row.write { Op::Write } else { Op::Read };
            let id = pending.insert(now);
            drive.submit(&Request::new(id, FlowId(0), op, row.lbn * 512, row.sectors * 512, now), (), now);
        }
        let Some(at) = drive.wake_at() else { break };
        now = now.max(at);
        if let Some(done) = drive.reap(now) {
            service.push(now.since(pending.remove(done.id).expect("each is finished once")));
        }
    }
    mean(&service)
}

/// The same with a host that orders what waits, and gives the drive one request at a time.
fn hosted(facts: &DiskFacts, options: HddOptions, rows: &[Row], depth: u32, host: Host) -> f64 {
    let mut drive = Hdd::new(facts.clone(), options);
    let (mut next, mut waiting) = (rows.iter(), Vec::new());
    let (mut now, mut last, mut up) = (Instant::ZERO, 0, true);
    let mut service = Vec::with_capacity(rows.len());
    loop {
        // The next is chosen before whoever was answered asks for more.
        let chosen = (!waiting.is_empty()).then(|| waiting.remove(host.next(&waiting, last, up)));
        while waiting.len() + usize::from(chosen.is_some()) < depth as usize {
            let Some(row) = next.next() else { break };
            waiting.push((now, *row));
        }
        if chosen.is_none() && waiting.is_empty() {
            return mean(&service);
        }
        let (since, row) = chosen.unwrap_or_else(|| waiting.remove(host.next(&waiting, last, up)));
        if row.lbn != last {
            up = row.lbn > last;
        }
        last = row.lbn + row.sectors;
        let id = RequestId { slot: 0, generation: 0 };
        let op = if row.write { Op::Write } else { Op::Read };
        drive.submit(&Request::new(id, FlowId(0), op, row.lbn * 512, row.sectors * 512, now), (), now);
        now = drive.wake_at().expect("one request is under way");
        drive.reap(now).expect("it is answered");
        service.push(now.since(since));
    }
}
