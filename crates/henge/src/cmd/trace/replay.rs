//! `henge trace replay`: a trace's requests sent to a real server, when the trace says.

use super::{Reading, duration, picture, remarks, seconds, size};
use crate::nbd::{Clock, Connection, Load, Sent, Uri};
use anyhow::{Context, Result, anyhow, bail};
use henge_core::{Duration, Histogram, Instant, Op, Params, RequestRow, Value};
use henge_workload::Spec;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// When requests are sent.
#[derive(clap::Args)]
struct Pace {
    /// How much faster than recorded
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// At most so many requests outstanding; what is held back leaves when there is room
    #[arg(long, value_name = "N")]
    window: Option<u32>,
    /// Forget the trace's times and keep so many requests outstanding
    #[arg(long, value_name = "N", conflicts_with_all = ["window", "speed"])]
    outstanding: Option<u32>,
}

/// Which requests are sent, and where they go in the export.
#[derive(clap::Args)]
struct Placement {
    /// What happens to requests beyond the end of the export: refuse, wrap, scale (with --extent)
    #[arg(long, default_value = "refuse")]
    place: String,
    /// The trace's own address space, for --place scale
    #[arg(long, value_name = "SIZE", value_parser = size)]
    extent: Option<u64>,
    /// Divide the export into so many slices and deal the trace's devices to them
    #[arg(long, value_name = "N")]
    devices: Option<u32>,
    /// Only this device of the trace
    #[arg(long)]
    device: Option<u32>,
}

#[derive(clap::Args)]
pub struct Args {
    /// The trace; "-" is the standard input
    trace: PathBuf,
    /// The server and its export: nbd://host:port/export or nbd+unix:///export?socket=PATH.
    /// The trace's writes overwrite what the export holds
    uri: Uri,
    #[command(flatten)]
    pace: Pace,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    placement: Placement,
    /// Keep so many requests to sort them by time
    #[arg(long, value_name = "N")]
    reorder: Option<u32>,
    /// Leave out a request that repeats its device's previous one within this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    dedup: Option<Duration>,
    /// Write one CSV row per request
    #[arg(long, value_name = "FILE")]
    requests: Option<PathBuf>,
    /// Write a plot of the latencies (SVG and PNG) to this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

impl Args {
    /// The workload as a scenario would write it.
    fn spec(&self) -> Result<Spec> {
        let Args { pace, placement, .. } = self;
        let name = self.trace.display().to_string();
        let mut p = Params::new("replay")
            .with("trace", Value::Text(name))
            .with("place", Value::Text(placement.place.clone()));
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                p.set(key, value, 0..0);
            }
        };
        let integer = |n: Option<u32>| n.map(|n| Value::Integer(n.into()));
        let time = |d: Option<Duration>| d.map(|d| Value::Text(format!("{}ns", d.as_nanos())));
        set("speed", pace.outstanding.is_none().then_some(Value::Float(pace.speed)));
        set("window", integer(pace.window));
        set("outstanding", integer(pace.outstanding));
        set("extent", placement.extent.map(|bytes| Value::Text(format!("{bytes}B"))));
        set("devices", integer(placement.devices));
        set("device", integer(placement.device));
        set("reorder", integer(self.reorder));
        set("dedup", time(self.dedup));
        Spec::from_params(p).map_err(|e| anyhow!("{e}"))
    }
}

/// What is measured.
#[derive(Default)]
struct Measured {
    latency: [Histogram; 2],
    all: Histogram,
    late: Histogram,
    bytes: u64,
    failed: u64,
    not_sent: u64,
    first_failure: Option<henge_nbd::Error>,
    first: Option<Instant>,
    last: Instant,
}

impl Measured {
    fn count(&mut self, sent: &Sent) {
        match sent.outcome {
            Err(henge_nbd::Error::NotSupported) => {
                self.not_sent += 1;
                return;
            }
            Err(error) => {
                self.failed += 1;
                self.first_failure.get_or_insert(error);
            }
            Ok(()) => self.bytes += sent.record.len,
        }
        self.all.record(sent.latency());
        self.late.record(sent.late());
        if let Op::Read | Op::Write = sent.record.op {
            self.latency[usize::from(sent.record.op == Op::Write)].record(sent.latency());
        }
        self.first.get_or_insert(sent.sent);
        self.last = self.last.max(sent.done);
    }
    fn seconds(&self) -> f64 {
        self.last.since(self.first.unwrap_or(self.last)).as_secs_f64()
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if !args.pace.speed.is_finite() || args.pace.speed <= 0.0 {
        bail!("--speed is above zero");
    }
    let spec = args.spec()?;
    let trace = args.reading.open(&args.trace)?;
    for note in remarks(&trace) {
        eprintln!("henge: {}: {note}", args.trace.display());
    }
    let connection = Connection::open(&args.uri)?;
    let size = connection.negotiated().size;
    let workload = spec.build(size, 0, 0, Some(Box::new(trace))).map_err(|e| anyhow!("{e}"))?;
    let mut rows = args.requests.as_deref().map(Rows::create).transpose()?;
    let mut measured = Measured::default();
    let clock = Clock::start();
    let stop = args.duration.map_or(Instant::FAR, |d| clock.now() + d);
    let ran = Load::new(connection, workload, clock).run(stop, |sent| {
        measured.count(sent);
        if let Some(rows) = &mut rows {
            rows.add(sent);
        }
    });
    if let Some(rows) = rows {
        rows.finish()?;
    }
    // What was measured before an error is shown all the same.
    if measured.all.count() > 0 || ran.is_ok() {
        report(args, &measured)?;
    }
    ran?;
    Ok(if measured.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(args: &Args, m: &Measured) -> Result<()> {
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let name = args.trace.file_name().map_or_else(|| "replay".into(), |n| n.to_string_lossy());
        let scene = picture::latencies(&format!("{name} against {}", args.uri), &m.all, &m.late, false);
        picture::write(
            &scene,
            &dir.join(format!("{name}.replay.svg")),
            &dir.join(format!("{name}.replay.png")),
        )?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&as_json(m))?);
        return Ok(());
    }
    let n = m.all.count();
    println!("{} to {}", args.trace.display(), args.uri);
    println!(
        "  {n} requests in {}, {:.1}/s, {}/s",
        seconds(m.seconds()),
        n as f64 / m.seconds().max(1e-9),
        super::bytes(m.bytes as f64 / m.seconds().max(1e-9))
    );
    for (what, h) in [
        ("latency", &m.all),
        ("  reads", &m.latency[0]),
        ("  writes", &m.latency[1]),
        ("sent late by", &m.late),
    ] {
        let Some(mean) = h.mean() else { continue };
        let q = |q| h.quantile(q).map_or(0.0, |d| d.as_secs_f64());
        println!(
            "  {what:13} mean {}, p50 {}, p95 {}, p99 {}, p99.9 {}, largest {}",
            seconds(mean.as_secs_f64()),
            seconds(q(0.5)),
            seconds(q(0.95)),
            seconds(q(0.99)),
            seconds(q(0.999)),
            seconds(q(1.0)),
        );
    }
    if m.not_sent > 0 {
        println!("  {} requests were not sent: the server has no such command", m.not_sent);
    }
    if let Some(error) = m.first_failure {
        println!("  {} requests FAILED, the first with: {error}", m.failed);
    }
    Ok(())
}

fn as_json(m: &Measured) -> serde_json::Value {
    let figures = |h: &Histogram| {
        let ms = |q| h.quantile(q).map(Duration::as_millis_f64);
        json!({
            "requests": h.count(), "mean_ms": h.mean().map(Duration::as_millis_f64), "p50_ms": ms(0.5),
            "p95_ms": ms(0.95), "p99_ms": ms(0.99), "p999_ms": ms(0.999), "max_ms": h.max().map(Duration::as_millis_f64),
        })
    };
    json!({
        "seconds": m.seconds(), "bytes": m.bytes, "failed": m.failed, "not_sent": m.not_sent,
        "latency": figures(&m.all), "reads": figures(&m.latency[0]), "writes": figures(&m.latency[1]),
        "lateness": figures(&m.late),
    })
}

/// One row per request, as node and simulator write them.
struct Rows {
    out: BufWriter<File>,
    path: PathBuf,
    line: String,
    n: u64,
}

impl Rows {
    fn create(path: &Path) -> Result<Rows> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Rows {
            out: BufWriter::new(file),
            path: path.to_owned(),
            line: format!("{}\n", RequestRow::HEADER),
            n: 0,
        })
    }
    fn add(&mut self, sent: &Sent) {
        let r = &sent.record;
        let row = RequestRow {
            flow: "replay",
            op: r.op,
            offset: r.offset,
            len: r.len,
            arrival: r.at,
            dispatch: sent.sent,
            completion: sent.done,
            gate: 0,
            seq: self.n,
            parts: 1,
            foreign: 0,
        };
        row.write(&mut self.line);
        self.n += 1;
        // An error shows again at the end, where it is reported.
        if self.out.write_all(self.line.as_bytes()).is_ok() {
            self.line.clear();
        }
    }
    fn finish(mut self) -> Result<()> {
        let all = self.out.write_all(self.line.as_bytes()).and_then(|()| self.out.flush());
        all.with_context(|| self.path.display().to_string())
    }
}
