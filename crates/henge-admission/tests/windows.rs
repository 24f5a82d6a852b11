//! What admission by measurement lets in holds in the next window, too: disks that burst, on a node that takes one request at a time.

use henge_admission::{Fixed, Measured, Part, PromisedPart, Rules, Samples, measured, miss_ratio};
use henge_core::Duration;

/// Requests a second, and how long one takes.
const NODE: Fixed = Fixed { iops_max: 400.0, service: 0.0025 };
const BOUND: f64 = 0.120;
const PENDING: u32 = 7;
const SECONDS: usize = 120;

/// Numbers in [0, 1) that depend on the seed alone.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next()).ln()
    }
}

/// When a disk asks: 10/s, and 16/s more during bursts of 4 s on average, which are off for 5.
fn arrivals(numbers: &mut Numbers) -> Vec<f64> {
    let (mut now, mut on, mut until) = (0.0, false, 0.0);
    let mut times = Vec::new();
    while now < SECONDS as f64 {
        if now >= until {
            on = !on;
            until = now + numbers.exponential(if on { 4.0 } else { 5.0 });
        }
        let gap = numbers.exponential(1.0 / if on { 26.0 } else { 10.0 });
        now = (now + gap).min(until);
        if now < until.min(SECONDS as f64) {
            times.push(now);
        }
    }
    times
}

/// Whose request comes when, of as many disks as were asked for last.
struct Arrivals {
    seed: u64,
    disks: usize,
    sorted: Vec<(f64, usize)>,
}

impl Arrivals {
    fn new(seed: u64) -> Self {
        Arrivals { seed, disks: 0, sorted: Vec::new() }
    }
    /// Of `n` disks, of which there are never fewer than before.
    fn of(&mut self, n: usize) -> &[(f64, usize)] {
        for disk in self.disks..n {
            let mut numbers = Numbers(self.seed.wrapping_mul(1 << 20) + disk as u64);
            numbers.next();
            self.sorted.extend(arrivals(&mut numbers).into_iter().map(|at| (at, disk)));
        }
        self.disks = self.disks.max(n);
        self.sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        &self.sorted
    }
}

/// One window of n disks: what is measured of each, and its late requests of those that it tolerates.
fn window(n: usize, all: &[(f64, usize)], elasticity: f64) -> (Vec<Measured>, Vec<f64>) {
    let (mut delays, mut rates) = (vec![Vec::new(); n], vec![vec![0.0; SECONDS]; n]);
    let mut ends = vec![Vec::<f64>::new(); n];
    let mut free = 0.0f64;
    for &(at, disk) in all {
        free = free.max(at) + NODE.service;
        rates[disk][at as usize] += 1.0;
        ends[disk].retain(|end| *end > at);
        if ends[disk].len() <= PENDING as usize {
            delays[disk].push(free - at);
        }
        ends[disk].push(free);
    }
    let late = |of: &Vec<f64>| of.iter().filter(|d| **d > BOUND).count() as u64;
    let violations = delays.iter().map(|d| miss_ratio(late(d), d.len() as u64, elasticity)).collect();
    let seen = delays.into_iter().zip(rates).map(|(delays, rates)| Measured {
        delays: Samples::new(delays),
        delay_ratios: Samples::default(),
        whole_window: true,
        peak_rate: rates.iter().copied().fold(0.0, f64::max),
        rates,
    });
    (seen.collect(), violations)
}

fn part(elasticity: f64) -> Part {
    let delay = Some(Duration::from_secs_f64(BOUND));
    Part { rate: 15.0, capacity: 1, pending: PENDING, delay, elasticity, copies: 1 }
}

/// So many are admitted and kept anyway.
const FEWEST: usize = 14;

/// How many are admitted, how many could be in the next window, and the worst disk's late requests there.
fn sequence(seed: u64, elasticity: f64) -> (usize, usize, f64) {
    let part = part(elasticity);
    let (mut now, mut next) = (Arrivals::new(seed), Arrivals::new(seed + (1 << 30)));
    let mut admits = |n: usize| {
        let seen = window(n, now.of(n), elasticity).0.into_iter().map(Some).chain([None]);
        let disks: Vec<PromisedPart> = seen.map(|measured| PromisedPart { part, measured }).collect();
        measured(&NODE, &disks, &Rules::OURS).is_ok()
    };
    let (mut admitted, mut possible, mut worst) = (FEWEST, FEWEST, 0.0);
    let (mut admitting, mut keeping) = (true, true);
    for n in FEWEST.. {
        let late = window(n, next.of(n), elasticity).1.into_iter().fold(0.0, f64::max);
        keeping &= late <= 1.0;
        if keeping {
            possible = n;
        }
        if n == admitted {
            worst = late;
            admitting = admits(n);
            admitted += usize::from(admitting);
        }
        if !admitting && !keeping {
            break;
        }
    }
    (admitted, possible, worst)
}

/// A lax guarantee is no leave to fill the node: were 95 % of a disk's requests not looked at, 2 and 4 of these 20 sequences would break one.
#[test]
fn what_one_window_admits_the_next_one_keeps() {
    for elasticity in [0.70, 0.50] {
        let all: Vec<_> = (1..=20).map(|seed| (seed, sequence(seed, elasticity))).collect();
        let broken: Vec<_> = all.iter().filter(|(_, (_, _, worst))| *worst > 1.0).collect();
        assert!(broken.len() <= 1, "seed, admitted, possible, late of those tolerated: {broken:?}");
        let (admitted, possible) = all.iter().fold((0, 0), |sum, (_, s)| (sum.0 + s.0, sum.1 + s.1));
        assert!(admitted * 100 >= possible * 85, "{elasticity}: {admitted} of {possible}");
    }
}
