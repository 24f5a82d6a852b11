//! What a node was asked, made a scenario of: `henge record`, and the web page's comparison.
//!
//! A recording is a directory: `scenario.toml` with the pools' devices and schedulers and the disks' contracts, and a trace
//! per disk with what its clients sent (no payload). What-ifs are changes of that scenario.
//!
//! How a disk's load is replayed depends on what it was. Where as many commands as ever were pending nearly all the time,
//! its clients sent the next when one was answered (a closed loop): that number is kept outstanding, and the times are
//! forgotten. Else the commands came when they came (an open loop), and come then again.
//!
//! A pool on an emulated device is simulated with that device; any other as a number of slots: the requests in flight in the mean
//! while it was busy, each as slow as requests were in the mean. That holds as far as the load stays alike.

use anyhow::{Context, Result, bail};
use henge_api::{DiskStatus, PoolStatus, Reply, Request, Status, Tapped};
use henge_config::Source;
use henge_core::{Duration, Histogram, Instant, Op, Value};
use henge_sim::{Axis, Setting};
use henge_workload::{Format, Record, Trace, TraceOptions, TraceWriter};
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

mod listen;
mod windows;

pub use listen::{Session, record};
pub use windows::{About, Bounds, of_windows, rotate};

/// Mean pending over most pending, from which on a load counts as a closed loop.
const CLOSED: f64 = 0.7;
/// A closed loop's trace is repeated, so that it does not run out where it is served faster.
const REPEATS: u64 = 4;

/// Asks a node, wherever it is.
pub type Ask<'a> = &'a dyn Fn(Request) -> Result<Reply>;

/// A disk's load.
struct Load {
    status: DiskStatus,
    records: Vec<Record>,
    /// Commands pending at most, and in the mean.
    most: u32,
    mean: f64,
    /// How long its commands took.
    latency: Histogram,
}

/// What was recorded.
pub struct Recording {
    /// How long.
    time: Duration,
    /// When it began, in milliseconds since 1970.
    wall: u64,
    pools: Vec<PoolStatus>,
    device: String,
    /// Share of the time in which each pool's gates were busy.
    busy: Vec<f64>,
    loads: Vec<Load>,
    /// Commands that found no room.
    lost: u64,
    /// Commands answered.
    commands: usize,
}

/// The pools that are simulated together: all of a scenario's nodes are alike.
fn alike(status: &Status, wanted: Option<&str>) -> Result<Vec<PoolStatus>> {
    let known = || status.pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut names: Vec<&str> = match wanted {
        Some(name) if status.pools.iter().any(|p| p.name == name) => vec![name],
        Some(name) => bail!("there is no pool \"{name}\"; there are: {}", known()),
        None => status.pools.iter().map(|p| p.name.as_str()).collect(),
    };
    // Disks that are striped take their other pools along.
    for disk in &status.disks {
        if disk.layout.pools.iter().any(|p| names.contains(&p.as_str())) {
            let more: Vec<&str> =
                disk.layout.pools.iter().map(String::as_str).filter(|p| !names.contains(p)).collect();
            names.extend(more);
        }
    }
    let pools: Vec<PoolStatus> =
        status.pools.iter().filter(|p| names.contains(&p.name.as_str())).cloned().collect();
    let first = pools.first().context("the node has no pool")?;
    if pools.iter().any(|p| p.emulated != first.emulated || p.configured != first.configured) {
        bail!("these pools differ in device or scheduler, so record one of them: --pool, one of {}", known());
    }
    Ok(pools)
}

/// The mean share of the time in which the gates of a pool had something in flight.
fn busy(pool: &str, before: &Status, after: &Status) -> f64 {
    let sum = |status: &Status| {
        let gates = status.pools.iter().filter(|p| p.name == pool).flat_map(|p| &p.gates);
        gates.fold((0u64, 0u64), |(busy, n), gate| (busy + gate.busy, n + 1))
    };
    let ((old, _), (new, gates)) = (sum(before), sum(after));
    let time = after.uptime.saturating_sub(before.uptime).max(1) as f64 * gates.max(1) as f64;
    (new.saturating_sub(old) as f64 / time).clamp(0.0, 1.0)
}

/// The device that the pools are simulated with.
fn device(pools: &[PoolStatus], before: &Status, after: &Status) -> Result<String> {
    if let Some(emulated) = &pools[0].emulated {
        return Ok(emulated.clone());
    }
    let on = |d: &&DiskStatus| d.layout.pools.iter().any(|p| pools.iter().any(|pool| pool.name == *p));
    let grown = |of: fn(&DiskStatus) -> u64| {
        let sum = |s: &Status| s.disks.iter().filter(on).map(of).sum::<u64>();
        sum(after).saturating_sub(sum(before))
    };
    let commands = grown(|d| d.meters.commands);
    if commands == 0 {
        bail!(
            "nothing was asked of these disks, and their device is not emulated: there is nothing to go by"
        );
    }
    let time = (grown(|d| d.flow.service) / commands).max(1000);
    let gates = pools.iter().flat_map(|p| &p.gates);
    let slots = gates.map(|g| g.mean_depth).fold(1.0, f64::max).round() as u64;
    let capacity = pools.iter().map(|p| p.capacity).max().unwrap_or(0).max(1 << 30);
    Ok(format!("{{ constant = {{ time = \"{time}ns\", slots = {slots}, capacity = \"{capacity}B\" }} }}"))
}

impl Load {
    fn of(disk: &DiskStatus, mut commands: Vec<Tapped>, began: u64, time: Duration) -> Load {
        commands.sort_by_key(|c| c.4);
        let record = |c: &Tapped| Record {
            at: Instant::from_nanos(c.4 - began),
            device: 0,
            op: [Op::Read, Op::Write, Op::Flush, Op::Trim, Op::WriteZeroes][usize::from(c.1.min(4))],
            offset: c.2,
            len: c.3,
        };
        let (mut most, mut area) = (0, 0u128);
        let mut changes: Vec<(u64, i32)> =
            commands.iter().flat_map(|c| [(c.4, 1), (c.4 + c.5, -1)]).collect();
        changes.sort_unstable();
        let mut pending = 0i32;
        for (_, change) in &changes {
            pending += change;
            most = most.max(pending);
        }
        let mut latency = Histogram::default();
        for c in &commands {
            area += u128::from(c.5);
            latency.record(Duration::from_nanos(c.5));
        }
        let mean = area as f64 / time.as_nanos().max(1) as f64;
        let records = commands.iter().map(record).collect();
        Load { status: disk.clone(), records, most: most.max(1) as u32, mean, latency }
    }

    fn is_closed(&self) -> bool {
        self.mean >= CLOSED * f64::from(self.most)
    }

    fn workload(&self) -> String {
        let trace = format!("trace = \"{}.trace\"", self.status.name);
        if self.is_closed() {
            format!("{{ {trace}, outstanding = {} }}", self.most)
        } else {
            format!("{{ {trace} }}")
        }
    }
}

impl Recording {
    /// In words.
    pub fn about(&self) -> String {
        let disks = self.loads.iter().filter(|l| !l.records.is_empty()).count();
        let lost = if self.lost > 0 { format!("; {} more found no room", self.lost) } else { String::new() };
        format!("{} commands to {disks} disks in {}{lost}", self.commands, self.time)
    }

    /// Writes the directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        for load in self.loads.iter().filter(|l| !l.records.is_empty()) {
            let repeats = if load.is_closed() { REPEATS } else { 1 };
            let time = self.time;
            let all = (0..repeats).flat_map(|n| {
                load.records
                    .iter()
                    .map(move |r| Record { at: r.at + Duration::from_nanos(n * time.as_nanos()), ..*r })
            });
            write_trace(&dir.join(format!("{}.trace", load.status.name)), all)?;
        }
        let files = [
            ("admit.toml", self.plan()),
            (windows::ABOUT, self.known().text()),
            // Last: where it stands, the recording is whole.
            ("scenario.toml", self.scenario()),
        ];
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// Commands pending in the mean, over all disks.
    fn pressure(&self) -> f64 {
        self.loads.iter().map(|load| load.mean).sum()
    }

    /// What a scenario has no room for.
    fn known(&self) -> About {
        let latency = |load: &Load| {
            let at = |q: f64| load.latency.quantile(q).map_or(0, Duration::as_nanos);
            (load.status.name.clone(), [at(0.5), at(0.95), at(0.99)])
        };
        About {
            pools: self.pools.iter().map(|pool| pool.name.clone()).collect(),
            began: self.wall,
            commands: self.commands as u64,
            pending: self.pressure(),
            latency_ns: self.loads.iter().filter(|l| !l.records.is_empty()).map(latency).collect(),
        }
    }

    /// The recorded disks and pools as `henge admit` reads them.
    fn plan(&self) -> String {
        let mut out = String::from(
            "# Made by henge record; henge admit says what fits. iops is what was served in the time that the pool was busy: less
# than the pool can do, where it was seldom busy. henge profile measures it.
",
        );
        let mut put = |line: String| writeln!(out, "{line}").expect("writing to a string succeeds");
        let seconds = self.time.as_secs_f64();
        for (pool, busy) in self.pools.iter().zip(&self.busy) {
            let here = self.loads.iter().filter(|l| l.status.layout.pools.contains(&pool.name));
            let served: f64 = here.map(|l| l.records.len() as f64 / l.status.layout.pools.len() as f64).sum();
            let iops = served / seconds / busy.max(0.01);
            put(format!(
                "\n[[node]]\nname = \"{}\"\niops = \"{:.1}/s\"  # busy {:.0} %",
                pool.name,
                iops.max(1.0),
                busy * 100.0
            ));
            put(format!("capacity = \"{}B\"", pool.capacity));
        }
        for load in &self.loads {
            let disk = &load.status;
            let recorded = load.records.len() as f64 / seconds;
            let promised = disk.promise.rate.filter(|_| disk.promise.unit == "requests");
            put(format!(
                "\n[[disk]]\nname = \"{}\"\ncapacity = \"{}B\"\nparts = {}",
                disk.name,
                disk.capacity,
                disk.layout.pools.len()
            ));
            put(format!(
                "rate = \"{:.1}/s\"  # recorded: {recorded:.1}/s",
                promised.unwrap_or(recorded).max(1.0)
            ));
            if let (Some(ns), Some(percentile)) = (disk.promise.latency, disk.promise.percentile) {
                put(format!(
                    "latency = \"{}\"\npercentile = {percentile}\npending = {}",
                    Duration::from_nanos(ns),
                    load.most
                ));
            }
        }
        out
    }

    fn scenario(&self) -> String {
        let first = &self.pools[0];
        let mut out = String::new();
        let stripe = self.loads.iter().map(|l| l.status.layout.stripe).max().unwrap_or(65536).max(4096);
        let mut put = |line: String| writeln!(out, "{line}").expect("writing to a string succeeds");
        put("# Made by henge record; run it by henge sim, change it as you like.".into());
        put(format!("title = \"{}\"", self.about()));
        put(format!("duration = \"{}ns\"\noverbook = true\nstripe = \"{stripe}B\"\n", self.time.as_nanos()));
        put(format!("[node]\nnodes = {}\ndevice = {}", self.pools.len(), self.device));
        put(format!("scheduler = {}", first.configured));
        for load in self.loads.iter().filter(|l| !l.records.is_empty()) {
            let disk = &load.status;
            let nodes: Vec<String> = disk
                .layout
                .pools
                .iter()
                .filter_map(|p| self.pools.iter().position(|pool| pool.name == *p))
                .map(|n| n.to_string())
                .collect();
            put(format!("\n[[flow]]\nname = \"{}\"\ncapacity = \"{}B\"", disk.name, disk.capacity));
            put(format!(
                "nodes = [{}]\nleeway = {}",
                nodes.join(", "),
                disk.leeway.max(1_000_000) as f64 / 1e6
            ));
            let terms = disk.contract.iter().map(|(key, value)| format!("{key} = {}", bare(value)));
            let terms: Vec<String> = terms.collect();
            if !terms.is_empty() {
                put(format!("contract = {{ {} }}", terms.join(", ")));
            }
            put(format!("# {} commands pending at most, {:.1} in the mean", load.most, load.mean));
            put(format!("workload = {}", load.workload()));
        }
        out
    }
}

/// Numbers as they are, everything else quoted.
fn bare(value: &str) -> String {
    if value.parse::<f64>().is_ok() { value.to_owned() } else { format!("{value:?}") }
}

fn write_trace(path: &Path, records: impl Iterator<Item = Record>) -> Result<()> {
    let named = || format!("writing {}", path.display());
    let file = File::create(path).with_context(named)?;
    let writer = TraceWriter::new(Format::Henge, BufWriter::new(file)).with_context(named)?;
    let mut writer = writer.context("Henge's own format can be written")?;
    for record in records {
        writer.write(&record).with_context(named)?;
    }
    writer.finish().map(drop).with_context(named)
}

/// The axis "load": as recorded, and with some flows' loads multiplied. Writes the traces that this needs.
pub fn times(dir: &Path, wanted: &[String]) -> Result<Axis> {
    let source = Source::read(&dir.join("scenario.toml"))?;
    let mut params = source.parse("the scenario")?;
    let time =
        params.duration("duration").map_err(|e| source.point(e))?.context("a recording has a duration")?;
    let mut flows = std::collections::BTreeMap::new();
    for mut flow in params.tables("flow").map_err(|e| source.point(e))? {
        let name = flow.text("name").map_err(|e| source.point(e))?.unwrap_or_default();
        let load = flow.table("workload").map_err(|e| source.point(e))?.context("a flow has a workload")?;
        flows.insert(name, load);
    }
    let mut sets = Vec::new();
    for wish in wanted {
        let parsed = wish.split_once('=').and_then(|(name, n)| n.parse::<u64>().ok().map(|n| (name, n)));
        let Some((name, n)) = parsed.filter(|(_, n)| (1..=100).contains(n)) else {
            bail!("--times takes DISK=N with N from 1 to 100, like web=2; not \"{wish}\"");
        };
        let known = || flows.keys().cloned().collect::<Vec<_>>().join(", ");
        let load = flows
            .get(name)
            .with_context(|| format!("--times {wish}: no such disk was recorded; there are: {}", known()))?;
        let outstanding = load.clone().integer("outstanding", 1, 1 << 20).ok().flatten();
        if let Some(outstanding) = outstanding {
            sets.push((
                format!("flow.{name}.workload.outstanding"),
                Value::Integer((outstanding * n) as i64),
            ));
        } else {
            let file = format!("{name}-times-{n}.trace");
            multiply(&dir.join(format!("{name}.trace")), &dir.join(&file), n, time)?;
            sets.push((format!("flow.{name}.workload.trace"), Value::Text(file)));
        }
    }
    let changed = wanted.iter().map(|w| w.replace('=', " times ")).collect::<Vec<_>>().join(", ");
    let values =
        vec![Setting { name: "as recorded".into(), sets: Vec::new() }, Setting { name: changed, sets }];
    Ok(Axis { name: "load".into(), values })
}

/// The same load n times at once: copies turned around in time, so that bursts do not all fall on each other.
fn multiply(from: &Path, to: &Path, n: u64, time: Duration) -> Result<()> {
    let file = File::open(from).with_context(|| from.display().to_string())?;
    let trace = Trace::open(&from.display().to_string(), Box::new(file), &TraceOptions::default())?;
    let records: Vec<Record> = trace.collect::<Result<_, _>>()?;
    let whole = time.as_nanos().max(1);
    let turned = |copy: u64| {
        let by = (u128::from(whole) * u128::from(copy) / u128::from(n)) as u64;
        records.iter().map(move |r| Record { at: Instant::from_nanos((r.at.as_nanos() + by) % whole), ..*r })
    };
    let mut all: Vec<Record> = (0..n).flat_map(turned).collect();
    all.sort_by_key(|r| r.at);
    write_trace(to, all.into_iter())
}

#[cfg(test)]
mod tests;
