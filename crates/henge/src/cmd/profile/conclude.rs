//! What follows from the figures: the knee, what size and seeks cost, and the lines of a pool's configuration.

use super::measure::{Series, Spread};
use super::target::Target;
use anyhow::Result;
use henge_core::{Duration, format_size, parse_size};

/// Requests of a run between two seeks.
pub const RUN: u32 = 16;
/// Of so many bytes each, where the target takes that.
pub const STRETCH: u64 = 64 << 10;
/// A turn is so many times what it costs to begin one: the loss is 5 %.
const TURN: f64 = 20.0;
/// It is the difference of two figures, so its rounds may differ by this many times more.
const SWITCH_NOISE: f64 = 5.0;
/// Shorter turns gain nothing where switching is cheap, and cost exclusive use of the device.
const TURN_LEAST: Duration = Duration::from_millis(20);
const TURN_MOST: Duration = Duration::from_secs(1);
/// The knee is where so much of the peak is reached.
const KNEE: f64 = 0.9;

/// What was measured, job by job.
pub struct Measured {
    /// Random requests by depth, ascending.
    pub depths: Vec<Series>,
    /// Random requests at the knee by size, ascending.
    pub sizes: Vec<Series>,
    /// One after the other at depth 1; runs with seeks between them; large ones at the knee.
    pub sequential: Series,
    pub runs: Series,
    pub stream: Series,
    /// Random writes at depth 1 and at the knee, where the data may be destroyed.
    pub writes: Vec<Series>,
}

/// A figure that its rounds do not agree on.
pub struct Noisy {
    pub what: String,
    pub spread: Spread,
    /// Half the way from the least to the most, as a share of the median, or of a request's time where that is longer.
    pub relative: f64,
    /// The share allowed.
    pub limit: f64,
}

impl Measured {
    pub fn all(&self) -> impl Iterator<Item = &Series> {
        let three = [&self.sequential, &self.runs, &self.stream];
        self.depths.iter().chain(&self.sizes).chain(three).chain(&self.writes)
    }

    /// The time that going elsewhere takes, of each round: of a run's, what is not its requests'.
    pub fn switches(&self) -> Spread {
        let n = f64::from(RUN);
        let pairs = self.runs.samples.iter().zip(&self.sequential.samples);
        Spread::of(pairs.map(|(runs, sequential)| (n / runs.rate - n / sequential.rate).max(0.0)))
    }
}

/// The figures on which rounds differ by more than `limit`.
pub fn noisy(measured: &Measured, limit: f64) -> Vec<Noisy> {
    let mut noisy: Vec<Noisy> = measured
        .all()
        .map(|s| {
            let spread = s.rates();
            let relative = spread.relative();
            Noisy { what: format!("{} (requests/s)", s.job.name), spread, relative, limit }
        })
        .filter(|n| n.relative > limit)
        .collect();
    let (switch, limit) = (measured.switches(), SWITCH_NOISE * limit);
    // Where it costs next to nothing a request's time is the measure: any spread is infinitely many times nothing.
    let relative = switch.half() / switch.median.max(1.0 / measured.runs.rates().median);
    // Where it decides the length of turns at all.
    if switch.most * TURN > TURN_LEAST.as_secs_f64() && relative > limit && noisy.is_empty() {
        let what = "what it costs to begin elsewhere (ms)".into();
        noisy.push(Noisy { what, spread: switch.in_ms(), relative, limit });
    }
    noisy
}

/// The depth at which 90 % of the peak is reached, between those that were measured.
pub fn knee(points: &[(u32, f64)]) -> u32 {
    let peak = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let mut before = (0.0, 0.0);
    for &(depth, rate) in points {
        let depth = f64::from(depth);
        if rate >= KNEE * peak {
            // Not below the first depth that was measured.
            if before.0 == 0.0 {
                return depth as u32;
            }
            let part = (KNEE * peak - before.1) / (rate - before.1);
            return (before.0 + part * (depth - before.0)).ceil() as u32;
        }
        before = (depth, rate);
    }
    points.last().map_or(1, |p| p.0)
}

/// The depth from which on more brings little.
pub struct Knee {
    /// Of the medians, and the least and the most of single rounds.
    pub depth: u32,
    pub least: u32,
    pub most: u32,
    /// Still rising where the measurement ended.
    pub rising: bool,
}

/// A request at the knee takes `each` + size / `bandwidth`.
pub struct Charge {
    pub each: Duration,
    pub bandwidth: f64,
    /// The fit is off by up to that share.
    pub off: f64,
}

impl Charge {
    /// Bytes that cost as much as a request as such, in whole KiB; none where size costs nothing.
    pub fn overhead(&self) -> Option<u64> {
        let bytes = self.each.as_secs_f64() * self.bandwidth;
        (bytes < (1u64 << 30) as f64).then(|| ((bytes / 1024.0).round() as u64) << 10)
    }
}

/// What was found.
pub struct Findings {
    pub knee: Knee,
    /// A request's size in the depth measurement.
    pub size: u64,
    /// What requests of that size get at the knee in the worst round (reads, or writes where they get less).
    pub capacity: f64,
    pub charge: Charge,
    /// In sequence, large, at the knee: bytes a second.
    pub stream: f64,
    /// One alone takes so long, elsewhere and in sequence.
    pub alone: Duration,
    pub in_sequence: Duration,
    /// How much is asked in sequence.
    pub stretch: u64,
    pub switch: Spread,
    pub turn: Duration,
    /// How many times what a read takes a write takes, alone and at the knee.
    pub writes: Option<(f64, f64)>,
}

impl Findings {
    pub fn new(m: &Measured) -> Findings {
        let round = |i: usize| m.depths.iter().map(|s| (s.job.depth, s.samples[i].rate)).collect::<Vec<_>>();
        let medians: Vec<_> = m.depths.iter().map(|s| (s.job.depth, s.rates().median)).collect();
        let knees = (0..m.runs.samples.len()).map(|i| knee(&round(i)));
        let rising = match medians.as_slice() {
            [.., before, last] => last.1 > 1.1 * before.1,
            _ => false,
        };
        let first = m.depths.first().expect("at least one depth is measured");
        let size = first.job.size;
        let at_knee = m.sizes.first().expect("the size of the depths is among them").rates();
        let writes = match m.writes.as_slice() {
            [alone, busy] => {
                Some((first.rates().median / alone.rates().median, at_knee.median / busy.rates().median))
            }
            _ => None,
        };
        let least = m.writes.last().map_or(f64::INFINITY, |w| w.rates().least);
        let (each, bandwidth, off) = fit(&m.sizes);
        let switch = m.switches();
        let turn = Duration::from_secs_f64(switch.median * TURN).clamp(TURN_LEAST, TURN_MOST);
        Findings {
            knee: Knee {
                depth: knee(&medians),
                least: knees.clone().min().unwrap_or(1),
                most: knees.max().unwrap_or(1),
                rising,
            },
            size,
            capacity: at_knee.least.min(least),
            charge: Charge { each: Duration::from_secs_f64(each), bandwidth, off },
            stream: m.stream.bytes(),
            alone: Duration::from_secs_f64(1.0 / first.rates().median * f64::from(first.job.depth)),
            in_sequence: Duration::from_secs_f64(1.0 / m.sequential.rates().median),
            stretch: m.sequential.job.size,
            switch,
            turn: Duration::from_millis(turn.as_nanos().div_ceil(10_000_000) * 10),
            writes,
        }
    }

    /// A gate's `scheduler = …` for each kind of promise: what it is for, the scheduler's name, and its table.
    pub fn schedulers(&self) -> Vec<(&'static str, &'static str, String)> {
        let knee = self.knee.depth;
        let whole = (self.capacity.floor() as u64).max(1);
        let cost = match self.charge.overhead() {
            Some(0) => "cost = \"bytes\"".to_owned(),
            Some(overhead) => {
                format!("cost = {{ \"bytes+overhead\" = {{ overhead = \"{}KiB\" }} }}", overhead >> 10)
            }
            None => "cost = \"requests\"".to_owned(),
        };
        let bytes = match self.charge.overhead() {
            Some(_) => format!("capacity = \"{:.1}MB/s\"", (self.charge.bandwidth / 1e6).max(0.1)),
            None => format!("capacity = \"{whole}/s\""),
        };
        let requests = format!("cost = \"requests\", capacity = \"{whole}/s\"");
        let service = format!("service = \"{:.3}ms\"", self.alone.as_millis_f64().max(0.001));
        let (turn, most) = (self.turn.as_nanos() / 1_000_000, 2 * knee);
        vec![
            ("shares by weight, and limits", "sfq", format!("depth = {knee}, {cost}")),
            (
                "shares of the device's time, as it is learned",
                "sfq",
                format!("depth = {knee}, {}", self.learned()),
            ),
            ("requests/s reserved, limited, shared", "mclock", format!("depth = {knee}, {requests}")),
            ("requests/s reserved, with latencies", "cvc", format!("depth = {knee}, {requests}, {service}")),
            (
                "throughput and latency; the depth finds itself",
                "two-level",
                format!(
                    "depth = {{ feedback = {{ floor = {knee}, saturation = {most} }} }}, {cost}, {bytes}, {service}"
                ),
            ),
            (
                "shares of the device's time",
                "locality",
                format!("depth = {knee}, turn = \"{turn}ms\", {service}"),
            ),
        ]
    }

    /// A gate's `cost = …` that learns, beginning with what was measured: a drift is a departure from it.
    fn learned(&self) -> String {
        let mib = Duration::from_secs_f64((1u64 << 20) as f64 / self.charge.bandwidth);
        let micros = |d: Duration| format!("{:.2}us", d.as_nanos() as f64 / 1e3);
        let kind = |name: &str, times: f64| {
            let times = |d: Duration| micros(Duration::from_secs_f64(d.as_secs_f64() * times));
            format!("{name} = \"{}\", {name}_mib = \"{}\"", times(self.charge.each), times(mib))
        };
        let writes = self.writes.map(|(_, busy)| format!(", {}", kind("write", busy)));
        format!("cost = {{ time = {{ {}{} }} }}", kind("read", 1.0), writes.unwrap_or_default())
    }

    /// A pool with all of them, the first in force.
    pub fn pool(&self, name: &str, target: &Target) -> String {
        let mut lines = vec!["[[pool]]".to_owned(), format!("name = \"{name}\"")];
        lines.extend(target.pool());
        for (i, (what, scheduler, table)) in self.schedulers().into_iter().enumerate() {
            let off = if i == 0 { "" } else { "# " };
            lines.push(format!("# {what}:"));
            lines.push(format!("{off}scheduler = {{ {scheduler} = {{ {table} }} }}"));
        }
        lines.join("\n") + "\n"
    }

    /// Asks the schedulers themselves whether they take what is written for them.
    pub fn check(&self) -> Result<()> {
        for (_, scheduler, table) in self.schedulers() {
            let text = format!("scheduler = {{ {scheduler} = {{ {table} }} }}");
            let mut params = henge_config::Source::new(scheduler, text).parse(scheduler)?;
            if let Some((name, knobs)) = params.choice("scheduler")? {
                henge_sched::build(&name, knobs)?;
            }
        }
        Ok(())
    }
}

/// Time at the knee against size: seconds for a request as such, bytes a second, and by which share the line is off at
/// worst. Each point counts by its own time, so that small requests are met as well as large ones.
fn fit(sizes: &[Series]) -> (f64, f64, f64) {
    let points: Vec<(f64, f64)> = sizes.iter().map(|s| (s.job.size as f64, 1.0 / s.rates().median)).collect();
    let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, t) in &points {
        let (u, v) = (1.0 / t, x / t);
        uu += u * u;
        uv += u * v;
        vv += v * v;
        u1 += u;
        v1 += v;
    }
    let det = uu * vv - uv * uv;
    let (mut a, mut b) = ((u1 * vv - v1 * uv) / det, (v1 * uu - u1 * uv) / det);
    if det <= 0.0 || !a.is_finite() || b <= 0.0 {
        (a, b) = (u1 / uu, 1e-18); // one size, or size costs nothing
    } else if a < 0.0 {
        (a, b) = (0.0, v1 / vv);
    }
    let off = points.iter().map(|(x, t)| ((a + b * x) / t - 1.0).abs()).fold(0.0, f64::max);
    (a, 1.0 / b, off)
}

/// What size a rate of bytes is told in.
pub fn rate(bytes: f64) -> String {
    format!("{:.1} MB/s", bytes / 1e6)
}

/// Sizes from `first` on, each four times the one before, up to 1 MiB and what the target takes.
pub fn sizes(first: u64, longest: u64, capacity: u64) -> Vec<u64> {
    let most = (1 << 20).min(longest).min(capacity / 16).max(first);
    std::iter::successors(Some(first), |s| s.checked_mul(4)).take_while(|s| *s <= most).collect()
}

/// A size as an argument: a whole number of blocks.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("a request of 0 bytes measures nothing".into()),
        Ok(n) if !n.is_multiple_of(512) => Err(format!("{} is no multiple of 512B", format_size(n))),
        other => other.map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Job, Order, Sample};
    use super::*;
    use henge_core::Op;

    fn series(size: u64, depth: u32, rates: &[f64]) -> Series {
        let samples = rates.iter().map(|&rate| Sample { rate, ..Sample::default() }).collect();
        Series { job: Job::new(Op::Read, Order::Random, size, depth), samples }
    }

    #[test]
    fn the_knee_lies_between_depths() {
        assert_eq!(knee(&[(1, 100.0), (2, 100.0), (4, 101.0)]), 1);
        // 90 of 100 is half way from 80 at 4 to 100 at 8.
        assert_eq!(knee(&[(1, 25.0), (2, 50.0), (4, 80.0), (8, 100.0), (16, 100.0)]), 6);
        assert_eq!(knee(&[(4, 10.0)]), 4);
    }

    #[test]
    fn size_costs_what_it_costs() {
        // 5 ms and 20 MB/s.
        let time = |size: u64| 0.005 + size as f64 / 20e6;
        let all: Vec<Series> =
            [4096, 65536, 1 << 20].iter().map(|&s| series(s, 1, &[1.0 / time(s)])).collect();
        let (each, bandwidth, off) = fit(&all);
        assert!(
            (each - 0.005).abs() < 1e-6 && (bandwidth - 20e6).abs() < 1e3 && off < 1e-6,
            "{each} {bandwidth}"
        );
        // Size costs nothing.
        let flat: Vec<Series> = [4096, 65536].iter().map(|&s| series(s, 1, &[100.0])).collect();
        assert!((fit(&flat).0 - 0.01).abs() < 1e-6);
    }

    #[test]
    fn what_varies_is_named_with_its_spread() {
        let steady = |rate: f64| series(65536, 1, &[rate, 1.01 * rate, 0.99 * rate]);
        let mut measured = Measured {
            depths: vec![series(4096, 1, &[100.0, 101.0, 99.0]), series(4096, 8, &[400.0, 250.0, 410.0])],
            sizes: vec![steady(400.0)],
            sequential: steady(1000.0),
            runs: steady(100.0),
            stream: steady(50.0),
            writes: Vec::new(),
        };
        let found = noisy(&measured, 0.1);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("at depth 8"), "{}", found[0].what);
        assert!((found[0].relative - 0.2).abs() < 1e-9);
        // A run takes 1.8 ms longer than its requests in sequence, give or take 1.2: nobody knows what a seek costs.
        measured.depths.pop();
        measured.runs = series(65536, 1, &[900.0, 850.0, 980.0]);
        let found = noisy(&measured, 0.1);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("elsewhere"), "{}", found[0].what);
        measured.runs = steady(400.0);
        assert!(noisy(&measured, 0.1).is_empty());
        // A seek costs nothing in two rounds, and 0.3 of a request's time in one: little enough.
        measured.runs = series(65536, 1, &[1000.0, 1000.0, 980.0]);
        assert!(noisy(&measured, 0.1).is_empty());
    }

    #[test]
    fn every_scheduler_takes_what_is_written_for_it() {
        let curve = |size: u64| series(size, 4, &[1.0 / (0.003 + size as f64 / 60e6); 3]);
        let one = |rate: f64| series(65536, 1, &[rate; 3]);
        for (sizes, cost) in [
            (vec![curve(4096), curve(65536)], "overhead = \"176KiB\""),
            (vec![series(4096, 4, &[1e5; 3]), series(65536, 4, &[1e5 / 16.0; 3])], "cost = \"bytes\""),
            (vec![series(4096, 4, &[9.0; 3]), series(65536, 4, &[9.0; 3])], "cost = \"requests\""),
        ] {
            let found = Findings::new(&Measured {
                depths: vec![series(4096, 1, &[100.0; 3]), series(4096, 4, &[300.0; 3])],
                sizes,
                sequential: one(1000.0),
                runs: one(100.0),
                stream: one(50.0),
                writes: vec![series(4096, 1, &[50.0; 3]), series(4096, 4, &[100.0; 3])],
            });
            found.check().unwrap();
            assert!(found.schedulers()[0].2.contains(cost), "{:?}", found.schedulers());
            assert_eq!((found.knee.depth, found.writes.map(|w| w.0)), (4, Some(2.0)));
            // 144 ms more for a run of 16.
            assert_eq!(found.turn, TURN_MOST);
        }
    }
}
