//! A workload as configuration writes it.
//!
//! ```toml
//! workload = { pattern = "sequential", size = "64KiB", read = 1.0, outstanding = 8 }
//! workload = { preset = "tpc-c", rate = "128/s", outstanding = 64 }
//! workload = { trace = "financial1.spc", speed = 1.25, window = 32 }
//! ```
//!
//! | keys | |
//! |---|---|
//! | `pattern` | `sequential`, `random` or `zipf` (with `skew`, 1 if unsaid) |
//! | `preset` | a name of [`preset::NAMES`](crate::preset::NAMES), `ior` or `btio` |
//! | `trace` | a file; `format`, `time_unit`, `offset_unit`, `size_unit`, `event`, `module`, `skip_damaged` say how to read it, `speed`, `place`, `extent`, `devices`, `device`, `reorder`, `backwards`, `dedup` how to replay it |
//! | what | `size` (a size, `{ from, to }`, or a list of `{ size, share }`), `read`, `locality`, `recent`, `align`, `streams` |
//! | where | `offset`, `span`: the area on the virtual disk; all of it if unsaid |
//! | when | `outstanding` alone: closed loop of that many threads, with `think` (a time or `{ exponential = time }`); `rate` alone: open, with `arrivals`; both: open arrivals through a window of `outstanding` (a trace calls it `window`) |
//! | arrivals | `poisson`, `constant`, `{ on-off = { on, off, random } }`, `{ self-similar = { hurst, sources, period } }`, `{ gamma = { shape } }`; `rate` may be a ramp, see [`Level`] |
//! | how long | `start`, `stop` (times of the run), `requests` |
//!
//! `rate`, `outstanding` and `locality` may change over time, see [`Level`].

use crate::level::positive;
use crate::preset::{self, Preset};
use crate::workload::{Maker, Pace, Timed, Untimed};
use crate::{
    Arrivals, Burst, Format, Gaps, Jump, Level, Mix, Pattern, Period, Place, Process, Program, Ranks,
    Records, Replay, ReplayOptions, Sizes, Think, TraceOptions, Workload,
};
use henge_core::{CostUnit, Duration, Instant, ParamError, Params, Value};
use rand_pcg::Pcg64;
use std::cmp::Reverse;

/// A trace that a workload names. The caller opens the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// As it was written; relative to whatever the caller says.
    pub file: String,
    /// How to read it.
    pub options: TraceOptions,
    /// How to replay it.
    pub replay: ReplayOptions,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Mix(Mix),
    Ranks(Program),
    Trace(TraceSpec),
}

/// A workload's description; [`Spec::build`] makes the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    what: What,
    /// Requests a second in millionths, with the arrival process; `None` is a closed loop, or a trace's own times.
    arrivals: Option<(Process, Level)>,
    /// Threads of a closed loop, or the window.
    outstanding: Option<Level>,
    think: Think,
    offset: u64,
    span: Option<u64>,
    start: Instant,
    stop: Instant,
    requests: u64,
    label: String,
}

impl Spec {
    /// Reads the table `workload = { … }` and refuses keys that it does not know.
    pub fn from_params(mut p: Params) -> Result<Spec, ParamError> {
        let spec = match (p.text("pattern")?, p.text("preset")?, p.text("trace")?) {
            (Some(pattern), None, None) => made(&mut p, &pattern)?,
            (None, Some(name), None) => named(&mut p, &name)?,
            (None, None, Some(file)) => traced(&mut p, file)?,
            _ => {
                let what = "a workload has exactly one of pattern, preset and trace";
                return Err(p.error_here(what.to_owned()));
            }
        };
        p.finish()?;
        Ok(spec)
    }

    /// The trace that [`Spec::build`] wants to be given, if it is one.
    pub fn trace(&self) -> Option<&TraceSpec> {
        match &self.what {
            What::Trace(trace) => Some(trace),
            _ => None,
        }
    }

    /// One line on what this is; it says so where it is synthetic.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Mean bytes of a request, where that is known beforehand.
    pub fn mean_size(&self) -> Option<f64> {
        match &self.what {
            What::Mix(mix) => Some(mix.mean_size()),
            _ => None,
        }
    }

    /// The workload on a virtual disk of `capacity` bytes. Equal seeds and streams give equal requests; give every flow
    /// a stream of its own. `trace` holds the records of the trace that [`Spec::trace`] names.
    pub fn build(
        &self,
        capacity: u64,
        seed: u64,
        stream: u64,
        trace: Option<Records>,
    ) -> Result<Workload, String> {
        let rest = capacity.checked_sub(self.offset).filter(|rest| *rest > 0);
        let rest =
            rest.ok_or_else(|| format!("offset {} lies beyond the disk of {capacity} bytes", self.offset))?;
        let span = self.span.unwrap_or(rest);
        if span > rest {
            return Err(format!(
                "the area of {span} bytes at {} ends beyond the disk of {capacity} bytes",
                self.offset
            ));
        }
        // Three generators of one stream number, so that what is asked does not depend on when.
        let rng = |part: u64| Pcg64::new(u128::from(seed) << 64 | u128::from(stream), u128::from(part));
        let pace = match &self.what {
            What::Trace(spec) => {
                let records = trace.ok_or("the trace was not opened")?;
                let replay = Replay::new(records, spec.replay.clone(), self.offset, span, self.start);
                match (&self.outstanding, spec.replay.speed) {
                    (Some(threads), 0) => self.closed(Untimed::Trace(replay), threads, rng(2)),
                    (window, _) => timed(Timed::Trace(replay), window.clone()),
                }
            }
            made => {
                let maker = match made {
                    What::Mix(mix) => Maker::Pattern(Pattern::new(mix.clone(), self.offset, span, rng(0))?),
                    What::Ranks(program) => Maker::Ranks(Ranks::new(*program, self.offset, span)?),
                    What::Trace(_) => unreachable!("handled above"),
                };
                match (&self.arrivals, &self.outstanding) {
                    (Some((process, rate)), window) => {
                        let arrivals = Arrivals::new(process.clone(), rate.clone(), self.start, rng(1));
                        timed(Timed::Made(maker, arrivals), window.clone())
                    }
                    (None, Some(threads)) => self.closed(Untimed::Made(maker), threads, rng(2)),
                    (None, None) => unreachable!("from_params sees to it that there is a pace"),
                }
            }
        };
        Ok(Workload {
            pace,
            stop: self.stop,
            requests_left: self.requests,
            outstanding: 0,
            label: self.label.clone(),
        })
    }

    fn closed(&self, source: Untimed, threads: &Level, rng: Pcg64) -> Pace {
        let most = u32::try_from(threads.max()).unwrap_or(u32::MAX);
        Pace::Closed {
            source,
            threads: threads.clone(),
            think: self.think,
            ready: (0..most).map(|thread| Reverse((self.start, thread))).collect(),
            drawn: vec![None; most as usize],
            parked: Default::default(),
            rng,
        }
    }
}

fn timed(source: Timed, window: Option<Level>) -> Pace {
    Pace::Timed { source, window, ahead: None, room_since: Instant::ZERO }
}

/// `pattern = …`.
fn made(p: &mut Params, pattern: &str) -> Result<Spec, ParamError> {
    let (locality, zipf) = match pattern {
        "sequential" => (1_000_000, false),
        "random" => (0, false),
        "zipf" => (0, true),
        other => {
            return Err(p.error(
                "pattern",
                format!("there is no pattern \"{other}\"; there are sequential, random and zipf"),
            ));
        }
    };
    let jump = if zipf { Jump::Zipf(number(p, "skew", 1.0, 0.0, 10.0)?) } else { Jump::Uniform };
    let sizes = sizes(p)?;
    let sizes = p.required("size", sizes)?;
    let align = if sizes.aligned(4096) { 4096 } else { 512 };
    let usual = Mix {
        read: 1_000_000,
        read_sizes: sizes.clone(),
        write_sizes: sizes,
        locality: Level::Constant(locality),
        recent: 0,
        jump,
        align,
        streams: 1,
    };
    let mix = changed(p, usual)?;
    let size = mix.mean_size();
    let label = format!("synthetic: {pattern}, {:.1} KiB on average", size / 1024.0);
    paced(p, What::Mix(mix), Process::poisson(), None, label)
}

/// `preset = …`.
fn named(p: &mut Params, name: &str) -> Result<Spec, ParamError> {
    if let Some(program) = program(p, name)? {
        let label = format!("synthetic: {name}, {} ranks", program.ranks());
        let mut spec = paced(p, What::Ranks(program), Process::poisson(), None, label)?;
        if spec.arrivals.is_some() {
            return Err(
                p.error("rate", format!("{name} runs as fast as its ranks are answered; it has no rate"))
            );
        }
        spec.outstanding = Some(Level::Constant(u64::from(program.ranks())));
        return Ok(spec);
    }
    let Some(Preset { source, mut mix, process, rate, .. }) = preset::fitted(name) else {
        let names = preset::NAMES.join(", ");
        return Err(
            p.error("preset", format!("there is no preset \"{name}\"; there are {names}, ior and btio"))
        );
    };
    if let Some(sizes) = sizes(p)? {
        mix.read_sizes = sizes.clone();
        mix.write_sizes = sizes;
    }
    let mix = changed(p, mix)?;
    let speed = number(p, "speed", 1.0, 1e-6, 1e6)?;
    let rate = rate.map(|r| (r as f64 * speed) as u64);
    let label = format!("synthetic: {name}-like, after {source}");
    paced(p, What::Mix(mix), process, rate, label)
}

/// The keys that change what a mix asks.
fn changed(p: &mut Params, mut mix: Mix) -> Result<Mix, ParamError> {
    let share = |p: &mut Params, key: &str| Ok(p.share(key)?.map(u64::from));
    if let Some(read) = p.share("read")? {
        mix.read = read;
    }
    if let Some(locality) = Level::from_params(p, "locality", false, share)? {
        mix.locality = locality;
    }
    if let Some(recent) = p.share("recent")? {
        mix.recent = recent;
    }
    if let Some(align) = p.size("align")? {
        if align == 0 {
            return Err(p.error("align", "align must be above zero".to_owned()));
        }
        mix.align = align;
    }
    if let Some(streams) = p.integer("streams", 1, 65536)? {
        mix.streams = streams as u32;
    }
    Ok(mix)
}

/// `size = …`.
fn sizes(p: &mut Params) -> Result<Option<Sizes>, ParamError> {
    const MOST: u64 = 1 << 30;
    let fits = |p: &Params, key: &str, bytes: u64| {
        let right = bytes > 0 && bytes <= MOST;
        if right { Ok(bytes) } else { Err(p.error(key, format!("{key} is from 1B to 1GiB"))) }
    };
    match p.get_mut("size") {
        Some(Value::Table(_)) => {
            let mut q = p.table("size")?.expect("it was just seen");
            let mut need = |key: &str| {
                let bytes = q.size(key)?;
                let bytes = q.required(key, bytes)?;
                fits(&q, key, bytes)
            };
            let (from, to) = (need("from")?, need("to")?);
            let step = q.size("step")?.unwrap_or(if from.is_multiple_of(1024) { 1024 } else { 512 });
            if step == 0 || from.div_ceil(step) > to / step || (to - from) / step > 1 << 16 {
                return Err(p.error(
                    "size",
                    "there is no size, or there are too many, from …, to …, by step".to_owned(),
                ));
            }
            q.finish()?;
            Ok(Some(Sizes::uniform(from, to, step)))
        }
        Some(Value::List(_)) => {
            let mut parts = Vec::new();
            for mut part in p.tables("size")? {
                let (size, share) = (part.size("size")?, part.share("share")?);
                let size = part.required("size", size)?;
                parts.push((fits(&part, "size", size)?, u64::from(part.required("share", share)?)));
                part.finish()?;
            }
            if parts.iter().all(|(_, share)| *share == 0) {
                return Err(p.error("size", "the shares of the sizes are all zero".to_owned()));
            }
            Ok(Some(Sizes::mix(&parts)))
        }
        _ => match p.size("size")? {
            None => Ok(None),
            Some(bytes) => Ok(Some(Sizes::fixed(fits(p, "size", bytes)?))),
        },
    }
}

/// The keys that say when: `rate`, `arrivals`, `outstanding`, `think`, and how long.
fn paced(
    p: &mut Params,
    what: What,
    process: Process,
    rate: Option<u64>,
    label: String,
) -> Result<Spec, ParamError> {
    let mean = match &what {
        What::Mix(mix) => mix.mean_size(),
        _ => 1.0,
    };
    let per_second = |p: &mut Params, key: &str| {
        let Some(rate) = p.rate(key)? else { return Ok(None) };
        match rate.unit {
            CostUnit::Requests => Ok(Some(rate.per_second)),
            CostUnit::Bytes => Ok(Some((rate.per_second as f64 * 1e6 / mean) as u64)),
            CostUnit::DiskTime => Err(p.error(key, format!("{key} is in requests or bytes a second here"))),
        }
    };
    let written = Level::from_params(p, "rate", false, per_second)?;
    let own = arrivals(p)?;
    let outstanding = Level::from_params(p, "outstanding", true, |p, key| p.integer(key, 0, 1 << 20))?;
    let closed = written.is_none() && outstanding.is_some();
    let arrivals = match (written, rate) {
        (Some(level), _) => Some((own.unwrap_or(process), level)),
        (None, Some(rate)) if !closed => Some((own.unwrap_or(process), Level::Constant(rate))),
        _ if own.is_some() => return Err(p.error("arrivals", "arrivals need a rate".to_owned())),
        _ => None,
    };
    if arrivals.is_none() && outstanding.is_none() && !matches!(what, What::Ranks(_)) {
        let message = format!("{} needs a rate, or how many requests are outstanding, or both", p.name());
        return Err(p.error_here(message));
    }
    for (key, level) in [("rate", arrivals.as_ref().map(|a| &a.1)), ("outstanding", outstanding.as_ref())] {
        if level.is_some_and(|level| level.max() == 0) {
            return Err(p.error(key, format!("{key} must be above zero at some time")));
        }
    }
    with_times(p, what, arrivals, outstanding, label)
}

/// The keys that every workload has: where, how long, and what threads do between requests.
fn with_times(
    p: &mut Params,
    what: What,
    arrivals: Option<(Process, Level)>,
    outstanding: Option<Level>,
    label: String,
) -> Result<Spec, ParamError> {
    let offset = p.size("offset")?.unwrap_or(0);
    let span = p.size("span")?;
    if span == Some(0) {
        return Err(p.error("span", "span must be above zero".to_owned()));
    }
    let start = Instant::ZERO + p.duration("start")?.unwrap_or(Duration::ZERO);
    let stop = p.duration("stop")?.map_or(Instant::FAR, |stop| Instant::ZERO + stop);
    if stop <= start {
        return Err(p.error("stop", "stop comes after start".to_owned()));
    }
    let requests = p.integer("requests", 1, i64::MAX as u64)?.unwrap_or(u64::MAX);
    let think = think(p)?;
    Ok(Spec { what, arrivals, outstanding, think, offset, span, start, stop, requests, label })
}

fn think(p: &mut Params) -> Result<Think, ParamError> {
    if matches!(p.get_mut("think"), Some(Value::Table(_))) {
        let mut q = p.table("think")?.expect("it was just seen");
        let mean = positive(&mut q, "exponential")?;
        q.finish()?;
        return Ok(Think::Exponential(mean));
    }
    Ok(Think::Constant(p.duration("think")?.unwrap_or(Duration::ZERO)))
}

/// `arrivals = …`.
fn arrivals(p: &mut Params) -> Result<Option<Process>, ParamError> {
    if let Some(Value::Text(_)) = p.get_mut("arrivals") {
        let process = match p.text("arrivals")?.as_deref() {
            Some("poisson") => Process::poisson(),
            Some("constant") => Process::constant(),
            Some("self-similar") => Process::self_similar(0.8, 32, Duration::from_secs(1)),
            Some(other) => {
                let message = format!(
                    "there are no arrivals \"{other}\"; there are poisson, constant, self-similar, on-off and gamma"
                );
                return Err(p.error("arrivals", message));
            }
            None => unreachable!("it was just seen"),
        };
        return Ok(Some(process));
    }
    let Some((kind, mut q)) = p.choice("arrivals")? else { return Ok(None) };
    let process = match kind.as_str() {
        "on-off" => {
            let (on, off) = (positive(&mut q, "on")?, positive(&mut q, "off")?);
            let period = if q.bool("random")?.unwrap_or(false) { Period::Exponential } else { Period::Fixed };
            let burst = Burst { on: period(on), off: period(off), adds: 1.0 };
            Process { gaps: Gaps::Exponential, base: 0.0, bursts: vec![burst] }
        }
        "self-similar" => {
            let hurst = number(&mut q, "hurst", 0.8, 0.5, 0.99)?;
            let sources = q.integer("sources", 1, 4096)?.unwrap_or(32);
            let period = q.duration("period")?.unwrap_or(Duration::from_secs(1));
            if period == Duration::ZERO {
                return Err(q.error("period", "period must be above zero".to_owned()));
            }
            Process::self_similar(hurst, sources as usize, period)
        }
        "gamma" => {
            Process { gaps: Gaps::Gamma(number(&mut q, "shape", 1.0, 0.01, 1000.0)?), ..Process::poisson() }
        }
        other => {
            let message = format!(
                "there are no arrivals \"{other}\"; there are poisson, constant, self-similar, on-off and gamma"
            );
            return Err(p.error("arrivals", message));
        }
    };
    q.finish()?;
    Ok(Some(process))
}

/// A number within bounds.
fn number(p: &mut Params, key: &str, usual: f64, least: f64, most: f64) -> Result<f64, ParamError> {
    match p.number(key)? {
        None => Ok(usual),
        Some(x) if (least..=most).contains(&x) => Ok(x),
        Some(x) => Err(p.error(key, format!("{key} = {x} is out of range; it is from {least} to {most}"))),
    }
}

/// `preset = "ior"` and `"btio"`.
fn program(p: &mut Params, name: &str) -> Result<Option<Program>, ParamError> {
    use crate::{Btio, Ior};
    use henge_core::Op;
    match name {
        "ior" => {
            let ranks = p.integer("ranks", 1, 1 << 16)?.unwrap_or(32) as u32;
            let block = p.size("block")?.unwrap_or(16 << 20);
            let transfer = p.size("transfer")?.unwrap_or(1 << 20);
            let segments = p.integer("segments", 1, 1 << 40)?.unwrap_or(1);
            let read = p.share("read")?.unwrap_or(0);
            let op = match read {
                0 => Op::Write,
                1_000_000 => Op::Read,
                _ => return Err(p.error("read", "ior reads (1.0) or writes (0.0)".to_owned())),
            };
            if transfer == 0 || block == 0 || !block.is_multiple_of(transfer) {
                return Err(
                    p.error("transfer", "block is a multiple of transfer, both above zero".to_owned())
                );
            }
            let repeat = p.bool("repeat")?.unwrap_or(false);
            Ok(Some(Program::Ior(Ior { ranks, block, transfer, segments, op, repeat })))
        }
        "btio" => {
            let class = p.text("class")?.unwrap_or_else(|| "A".to_owned());
            let side = match class.as_str() {
                "A" => 64,
                "B" => 102,
                "C" => 162,
                _ => {
                    return Err(
                        p.error("class", format!("there is no class \"{class}\"; there are A, B and C"))
                    );
                }
            };
            let ranks = p.integer("ranks", 1, 4096)?.unwrap_or(16) as u32;
            if ranks.isqrt().pow(2) != ranks || u64::from(ranks.isqrt()) > side {
                return Err(p.error(
                    "ranks",
                    "btio has a square number of ranks, of at most a grid side each way".to_owned(),
                ));
            }
            let buffer = match p.text("kind")?.as_deref() {
                None | Some("full") => p.size("buffer")?.unwrap_or(16 << 20),
                Some("simple") => 0,
                Some(other) => {
                    return Err(p.error("kind", format!("btio is full or simple, not \"{other}\"")));
                }
            };
            let compute = p.duration("compute")?.unwrap_or(Duration::ZERO);
            let dumps = p.integer("dumps", 1, 1 << 20)?.unwrap_or(40);
            let repeat = p.bool("repeat")?.unwrap_or(false);
            Ok(Some(Program::Btio(Btio { ranks, side, dumps, buffer, compute, repeat })))
        }
        _ => Ok(None),
    }
}

/// `trace = …`.
fn traced(p: &mut Params, file: String) -> Result<Spec, ParamError> {
    let options = trace_options(p)?;
    let speed = match p.number("speed")? {
        None => 1_000_000,
        Some(x) if (1e-6..=1e6).contains(&x) => (x * 1e6).round() as u64,
        Some(x) => {
            return Err(
                p.error("speed", format!("speed = {x} is out of range; it is from 0.000001 to 1000000"))
            );
        }
    };
    let mut replay = ReplayOptions { speed, ..ReplayOptions::default() };
    replay.place = match p.text("place")?.as_deref() {
        None | Some("refuse") => Place::Refuse,
        Some("wrap") => Place::Wrap,
        Some("scale") => {
            let extent = p.size("extent")?;
            match p.required("extent", extent)? {
                0 => return Err(p.error("extent", "extent must be above zero".to_owned())),
                extent => Place::Scale { extent },
            }
        }
        Some(other) => {
            return Err(p.error("place", format!("place is refuse, wrap or scale, not \"{other}\"")));
        }
    };
    replay.devices = p.integer("devices", 1, 1 << 20)?.unwrap_or(1) as u32;
    replay.only = p.integer("device", 0, u64::from(u32::MAX))?.map(|d| d as u32);
    replay.reorder = p.integer("reorder", 0, 1 << 24)?.unwrap_or(0) as usize;
    replay.clamp = match p.text("backwards")?.as_deref() {
        None | Some("refuse") => false,
        Some("clamp") => true,
        Some(other) => {
            return Err(p.error("backwards", format!("backwards is refuse or clamp, not \"{other}\"")));
        }
    };
    replay.dedup = p.duration("dedup")?;
    let count = |p: &mut Params, key: &str| p.integer(key, 1, 1 << 20);
    let window = Level::from_params(p, "window", true, count)?;
    let threads = Level::from_params(p, "outstanding", true, count)?;
    if window.is_some() && threads.is_some() {
        let what = "window keeps the trace's times and outstanding forgets them; choose one";
        return Err(p.error("outstanding", what.to_owned()));
    }
    if threads.is_some() {
        replay.speed = 0;
    }
    let pace = if threads.is_some() {
        ", its times forgotten".to_owned()
    } else {
        format!(" at {} times its speed", speed as f64 / 1e6)
    };
    let label = format!("trace {file}{pace}");
    let what = What::Trace(TraceSpec { file, options, replay });
    with_times(p, what, None, window.or(threads), label)
}

/// The keys that say how a trace is read.
fn trace_options(p: &mut Params) -> Result<TraceOptions, ParamError> {
    let format = match p.text("format")? {
        None => None,
        Some(name) => match Format::by_name(&name) {
            Some(format) => Some(format),
            None => {
                let message = format!("there is no trace format \"{name}\"; there are {}", Format::names());
                return Err(p.error("format", message));
            }
        },
    };
    let event = match p.text("event")? {
        None => None,
        Some(text) if text.len() == 1 && text.as_bytes()[0].is_ascii_uppercase() => Some(text.as_bytes()[0]),
        Some(_) => {
            return Err(
                p.error("event", "event is one capital letter of blkparse, \"Q\" or \"D\"".to_owned())
            );
        }
    };
    let mpiio = match p.text("module")?.as_deref() {
        None | Some("posix") => false,
        Some("mpiio") => true,
        Some(other) => return Err(p.error("module", format!("module is posix or mpiio, not \"{other}\""))),
    };
    let time_unit = p.duration("time_unit")?.map(Duration::as_nanos);
    let (offset_unit, size_unit) = (p.size("offset_unit")?, p.size("size_unit")?);
    for (key, unit) in [("time_unit", time_unit), ("offset_unit", offset_unit), ("size_unit", size_unit)] {
        if unit == Some(0) {
            return Err(p.error(key, format!("{key} must be above zero")));
        }
    }
    let skip_damaged = p.bool("skip_damaged")?.unwrap_or(false);
    Ok(TraceOptions { format, time_unit, offset_unit, size_unit, event, mpiio, skip_damaged })
}
