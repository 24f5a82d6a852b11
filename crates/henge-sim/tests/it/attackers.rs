//! What a victim keeps of its promise beside attackers that change what they are: kinds and depths, their contracts, and whether they are there.

use crate::isolation::{Load, VICTIMS, World, alone, kept, kept_shares, load, text};
use henge_core::{Contract, Cost, Duration, Latency, Op, Rate, Value};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const READS_1M: &[(Op, u64)] = &[(Op::Read, 1 << 20)];
const WRITES_1M: &[(Op, u64)] = &[(Op::Write, 1 << 20)];
const KINDS: [&[(Op, u64)]; 9] = [
    &[(Op::Read, 4 << 10)],
    &[(Op::Read, 16 << 10)],
    READS_1M,
    &[(Op::Write, 4 << 10)],
    &[(Op::Write, 128 << 10)],
    WRITES_1M,
    &[(Op::Trim, 4 << 10)],
    &[(Op::WriteZeroes, 1 << 20)],
    &[(Op::Flush, 0)],
];
const IDLE: Load = load("idle", READS_1M, 0);
const FLOOD: Load = load("flood", WRITES_1M, 32);

/// The attackers' disks: what one of them may be promised, and what chance says.
struct Attack {
    world: World,
    little: Contract,
    rng: Pcg64Mcg,
}

/// How many disks, and what they do in the n-th millisecond. Disk 0 is the victim's.
struct Pattern {
    name: &'static str,
    disks: usize,
    act: fn(&mut Attack, u64),
}

const fn pattern(name: &'static str, disks: usize, act: fn(&mut Attack, u64)) -> Pattern {
    Pattern { name, disks, act }
}

const PATTERNS: &[Pattern] = &[
    pattern("changes-20", 1, |a, t| a.change(t, 20)),
    pattern("changes-400", 1, |a, t| a.change(t, 400)),
    pattern("returns-100", 1, |a, t| a.come_back(t, 100)),
    pattern("returns-500", 1, |a, t| a.come_back(t, 500)),
    pattern("returns-2000", 1, |a, t| a.come_back(t, 2000)),
    pattern("two-in-turns-50", 2, |a, t| a.take_turns(t, 50, 2)),
    pattern("two-in-turns-300", 2, |a, t| a.take_turns(t, 300, 2)),
    pattern("two-in-turns-900", 2, |a, t| a.take_turns(t, 900, 2)),
    pattern("anew-5", 1, |a, t| a.be_made_anew(t, 5)),
    pattern("anew-50", 1, |a, t| a.be_made_anew(t, 50)),
    pattern("anew-300", 1, |a, t| a.be_made_anew(t, 300)),
    pattern("haggles-20", 1, |a, t| a.haggle(t, 20)),
    pattern("haggles-200", 1, |a, t| a.haggle(t, 200)),
    pattern("little-promise-70", 1, |a, t| a.use_little(t, 70)),
    pattern("little-promise-300", 1, |a, t| a.use_little(t, 300)),
    pattern("calm-reads-then-flood", 1, |a, t| {
        a.calm_then_flood(t, load("calm", &[(Op::Read, 512)], 64), READS_1M)
    }),
    pattern("calm-writes-then-flood", 1, |a, t| {
        a.calm_then_flood(t, load("calm", &[(Op::Write, 512)], 4), WRITES_1M)
    }),
    pattern("crowd-64", 64, |a, t| {
        if t < 64 {
            a.world.turn_to(1 + t as usize, load("one", WRITES_1M, 1));
        }
    }),
];

impl Attack {
    /// Another kind and depth at random.
    fn change(&mut self, t: u64, period: u64) {
        if t.is_multiple_of(period) {
            let kinds = KINDS[self.rng.random_range(0..KINDS.len())];
            self.world.turn_to(1, load("changes", kinds, 1 << self.rng.random_range(0..8)));
        }
    }

    /// Something heavy for half of the time.
    fn come_back(&mut self, t: u64, period: u64) {
        if t.is_multiple_of(period) {
            let kinds = KINDS[[2, 4, 5, 7][self.rng.random_range(0..4)]];
            self.world.turn_to(1, load("returns", kinds, 32));
        } else if t % period == period / 2 {
            self.world.turn_to(1, IDLE);
        }
    }

    fn take_turns(&mut self, t: u64, period: u64, disks: u64) {
        if t.is_multiple_of(period) {
            let turn = t / period % disks;
            self.world.turn_to(1 + ((turn + disks - 1) % disks) as usize, IDLE);
            self.world.turn_to(1 + turn as usize, load("turn", [WRITES_1M, READS_1M][turn as usize % 2], 32));
        }
    }

    /// It is removed, and made again.
    fn be_made_anew(&mut self, t: u64, period: u64) {
        if t == 0 {
            self.world.turn_to(1, FLOOD);
        } else if t.is_multiple_of(period) {
            self.world.anew(1, &Contract::best_effort());
        }
    }

    /// It is promised a little, and nothing, by turns.
    fn haggle(&mut self, t: u64, period: u64) {
        if t == 0 {
            self.world.turn_to(1, FLOOD);
        } else if t.is_multiple_of(period) {
            let contract =
                if (t / period).is_multiple_of(2) { Contract::best_effort() } else { self.little.clone() };
            self.world.promise(1, &contract);
        }
    }

    /// It is promised a little, and is there by chance.
    fn use_little(&mut self, t: u64, period: u64) {
        if t == 0 {
            self.world.promise(1, &self.little);
        }
        if t.is_multiple_of(period) {
            self.world.turn_to(1, if self.rng.random_bool(0.5) { FLOOD } else { IDLE });
        }
    }

    /// A second of little work, which teaches that it is harmless, and a second of much.
    fn calm_then_flood(&mut self, t: u64, calm: Load, kinds: &'static [(Op, u64)]) {
        match t % 2000 {
            0 => self.world.turn_to(1, calm),
            1000 => self.world.turn_to(1, load("flood", kinds, 64)),
            _ => {}
        }
    }
}

/// What a pool on a device has; two-level and cvc with a depth that follows promises, too.
pub fn settings(scheduler: &str) -> Vec<(&'static str, Value)> {
    match scheduler {
        "sfq" => vec![("depth", kept_shares()), ("cost", text("bytes"))],
        "mclock" => vec![("depth", kept_shares()), ("cost", text("time"))],
        "pclock" => vec![("depth", kept_shares()), ("cost", text("requests"))],
        _ => vec![("depth", kept()), ("cost", text("requests"))],
    }
}

/// What the scheduler takes of a promise of so many commands a second.
pub fn promised(scheduler: &str, rate: f64, bound: Duration) -> Contract {
    let latency = Some(Latency { bound, percentile: 950_000 });
    let rated = Contract::reserved(Rate::requests_micro((rate * 1e6) as u64));
    match scheduler {
        "sfq" => Contract::weighted(4),
        "mclock" | "vc" | "cvc" => rated,
        "pclock" => Contract { latency, burst: Some(Cost::new(32_000_000)), ..rated },
        _ => Contract { latency, ..rated },
    }
}

/// A promise that costs next to nothing; of `sfq`, another contract of the same weight.
pub fn little(scheduler: &str) -> Contract {
    match scheduler {
        "sfq" => Contract { limit: Some(Rate::bytes(1 << 50)), ..Contract::weighted(1) },
        _ => promised(scheduler, 10.0, Duration::from_millis(5)),
    }
}

/// The victim's seconds, as parts of what it is due.
fn beside(device: &str, scheduler: &str, pattern: &Pattern, seed: u64, warm: u64, seconds: u64) -> Vec<f64> {
    let victim = VICTIMS[0];
    let by_itself = alone(device, victim);
    let bound = Duration::from_micros(((4.0 * by_itself.p999) as u64).max(1000));
    let weights = pattern.disks as f64;
    let due = by_itself.rate * if scheduler == "sfq" { 4.0 / (4.0 + weights) } else { 1.0 / 3.0 };
    let little = little(scheduler);
    let mut world = World::new(device, scheduler, &settings(scheduler), seed);
    world.add(victim, &promised(scheduler, due, bound), Duration::ZERO);
    (0..pattern.disks).for_each(|_| world.add(IDLE, &Contract::best_effort(), Duration::ZERO));
    world.measure(Duration::from_millis(warm));
    let start = world.now();
    let mut attack = Attack { world, little, rng: Pcg64Mcg::seed_from_u64(seed) };
    for t in 0..warm + 1000 * seconds {
        if let Some(t) = t.checked_sub(200) {
            (pattern.act)(&mut attack, t);
        }
        attack.world.run_to(start + Duration::from_millis(t + 1));
    }
    attack.world.measured(seconds);
    attack.world.of(0).seconds.iter().map(|n| *n as f64 / due).collect()
}

/// The worst that were found: each second is kept.
#[test]
fn who_changes_what_it_is_breaks_no_promise() {
    let cells = [
        ("mclock", "haggles-20"),
        ("vc", "haggles-20"),
        ("edf", "haggles-20"),
        ("pclock", "haggles-20"),
        ("edf", "little-promise-70"),
        ("sfq", "calm-writes-then-flood"),
        ("sfq", "anew-5"),
    ];
    let mut short = Vec::new();
    for (scheduler, name) in cells {
        let pattern = PATTERNS.iter().find(|p| p.name == name).expect("one of them");
        let seconds = beside("nvme-dc", scheduler, pattern, 1, 2000, 2);
        if seconds.iter().any(|part| *part < 0.95) {
            short.push((scheduler, name, seconds));
        }
    }
    assert!(short.is_empty(), "{short:#?}");
}

/// Each look at who came had left the reader alone with a flood for a third of a second, every 64 turns: 0.94 of its share in its worst second.
#[test]
fn who_is_made_anew_and_lacks_nothing_is_not_looked_at() {
    let anew = PATTERNS.iter().find(|p| p.name == "anew-300").expect("it is there");
    for seed in 1..3 {
        let seconds = beside("nvme-dc", "sfq", anew, seed, 3000, 4);
        assert!(seconds.iter().all(|part| *part >= 0.99), "seed {seed}: {seconds:?}");
    }
}

/// `HENGE_CELLS=device,scheduler,pattern` picks.
#[test]
#[ignore = "a table for people"]
fn table() {
    let pick = std::env::var("HENGE_CELLS").unwrap_or_default();
    let seeds = std::env::var("HENGE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let picked =
        |name: &str, i: usize| pick.split(',').nth(i).is_none_or(|p| p.is_empty() || p == "*" || p == name);
    let schedulers = ["sfq", "mclock", "vc", "cvc", "edf", "pclock", "two-level"];
    for device in ["nvme-dc", "sata-ssd"].into_iter().filter(|d| picked(d, 0)) {
        for pattern in PATTERNS.iter().filter(|p| picked(p.name, 2)) {
            for scheduler in schedulers.into_iter().filter(|s| picked(s, 1)) {
                let least = (1..=seeds).map(|seed| {
                    let seconds = beside(device, scheduler, pattern, seed, 3000, 4);
                    format!("{:.2}", seconds.into_iter().fold(f64::MAX, f64::min))
                });
                let least = least.collect::<Vec<_>>().join(" ");
                println!("{device} {:<22} {scheduler:<9} least of due: {least}", pattern.name);
            }
        }
    }
}
