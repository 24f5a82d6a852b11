//! Jobs, and what they came to, repeated in rounds: what drifts shows as spread.

use super::target::{Bench, DEPTH_MAX};
use anyhow::Result;
use henge_core::{Duration, Histogram, Op};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// In which order offsets are asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Random,
    /// One offset after the other, from about the middle on: a disk is faster outside than inside.
    Sequential,
    /// So many in sequence, then from another random offset on.
    Runs(u32),
}

/// A way of asking, `depth` requests at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// As messages call it.
    pub name: String,
    pub op: Op,
    pub order: Order,
    pub size: u64,
    pub depth: u32,
}

impl Job {
    pub fn new(op: Op, order: Order, size: u64, depth: u32) -> Job {
        let op_name = if op == Op::Read { "reads" } else { "writes" };
        let size_name = henge_core::format_size(size);
        let order_name = match order {
            Order::Random => "random".to_owned(),
            Order::Sequential => "sequential".to_owned(),
            Order::Runs(n) => format!("runs of {n} sequential"),
        };
        Job { name: format!("{order_name} {size_name} {op_name} at depth {depth}"), op, order, size, depth }
    }
}

/// What one run of a job came to.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Requests a second.
    pub rate: f64,
    /// Of each request.
    pub latency: Histogram,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Each job, each round.
    pub time: Duration,
    pub rounds: u32,
    pub seed: u64,
}

/// Fewer requests than this say nothing: a slow job goes on until it has them, but for at most four times its time.
const LEAST: u64 = 50;
/// In simulated time nothing more comes of more.
const ENOUGH: u64 = 20_000;

/// Runs one job.
pub fn run(bench: &mut dyn Bench, job: &Job, time: Duration, seed: u64) -> Result<Sample> {
    let mut offsets = Offsets::new(job, bench.capacity(), seed);
    let begun = bench.now();
    let (stop, last) = (begun + time, begun + time * 4);
    let mut sent = [begun; DEPTH_MAX as usize];
    for number in 0..job.depth {
        sent[number as usize] = bench.now();
        bench.send(number, job.op, offsets.next(), job.size)?;
    }
    let mut sample = Sample::default();
    let (mut in_flight, mut counted, mut at_last) = (job.depth, 0u64, begun);
    let mut done = Vec::new();
    while in_flight > 0 {
        bench.wait(&mut done)?;
        for (number, at) in done.drain(..) {
            let over =
                (at >= stop && counted >= LEAST) || at >= last || (bench.simulated() && counted >= ENOUGH);
            if over {
                in_flight -= 1;
                continue;
            }
            sample.latency.record(at.since(sent[number as usize]));
            counted += 1;
            at_last = at;
            sent[number as usize] = bench.now();
            bench.send(number, job.op, offsets.next(), job.size)?;
        }
    }
    sample.rate = counted as f64 / at_last.since(begun).as_secs_f64().max(1e-9);
    Ok(sample)
}

/// Every job once a round, so that a device that drifts cannot hide it.
pub fn rounds(
    bench: &mut dyn Bench,
    jobs: &[Job],
    plan: &Plan,
    step: &mut dyn FnMut(),
) -> Result<Vec<Series>> {
    let mut all: Vec<Series> =
        jobs.iter().map(|job| Series { job: job.clone(), samples: Vec::new() }).collect();
    for round in 0..plan.rounds {
        for (i, series) in all.iter_mut().enumerate() {
            let seed = plan.seed ^ (u64::from(round) << 32 | i as u64);
            let sample = run(bench, &series.job, plan.time, seed)?;
            series.samples.push(sample);
            step();
        }
    }
    Ok(all)
}

/// A job's samples, one a round.
#[derive(Clone, Debug)]
pub struct Series {
    pub job: Job,
    pub samples: Vec<Sample>,
}

impl Series {
    pub fn rates(&self) -> Spread {
        Spread::of(self.samples.iter().map(|s| s.rate))
    }
    /// Bytes a second.
    pub fn bytes(&self) -> f64 {
        self.rates().median * self.job.size as f64
    }
    /// Over all rounds.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.samples.iter().for_each(|s| all.merge(&s.latency));
        all
    }
}

/// What rounds agree on, and how far they do.
#[derive(Clone, Debug)]
pub struct Spread {
    /// In the order of the rounds.
    pub all: Vec<f64>,
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let all: Vec<f64> = values.collect();
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        let median = match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        };
        let (least, most) = (sorted.first().copied(), sorted.last().copied());
        Spread { all, median, least: least.unwrap_or(f64::NAN), most: most.unwrap_or(f64::NAN) }
    }
    /// The same in thousandths: seconds to milliseconds.
    pub fn in_ms(&self) -> Spread {
        Spread::of(self.all.iter().map(|x| x * 1e3))
    }
    /// Half the way from the least to the most.
    pub fn half(&self) -> f64 {
        (self.most - self.least) / 2.0
    }
    /// The same as a share of the median.
    pub fn relative(&self) -> f64 {
        self.half() / self.median.abs().max(f64::MIN_POSITIVE)
    }
}

/// Where a job's requests go.
struct Offsets {
    order: Order,
    size: u64,
    /// Whole requests that the target holds.
    count: u64,
    at: u64,
    left: u32,
    rng: Pcg64Mcg,
}

impl Offsets {
    fn new(job: &Job, capacity: u64, seed: u64) -> Offsets {
        let count = (capacity / job.size).max(1);
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let at = count / 2 + rng.random_range(0..count / 100 + 1);
        Offsets { order: job.order, size: job.size, count, at, left: 0, rng }
    }
    fn next(&mut self) -> u64 {
        let begins = match self.order {
            Order::Random => true,
            Order::Sequential => false,
            Order::Runs(_) => self.left == 0,
        };
        if begins {
            self.at = self.rng.random_range(0..self.count);
            if let Order::Runs(n) = self.order {
                self.left = n;
            }
        }
        self.left = self.left.saturating_sub(1);
        let number = self.at;
        self.at = (self.at + 1) % self.count;
        number * self.size
    }
}
