//! `henge trace`: look at traces, change them, replay them, compare runs.

mod change;
mod diff;
mod info;
mod json;
mod picture;
mod replay;
mod sort;

use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use henge_core::{Duration, parse_duration, parse_size};
use henge_workload::{Format, Trace, TraceOptions};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `henge trace`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Statistics of a trace: amounts, sizes, locality, burstiness; with -o also as plots
    Info(info::Args),
    /// Write a trace in another format
    Convert(change::ConvertArgs),
    /// Write a part of a trace
    Cut(change::CutArgs),
    /// Send a trace's requests to an NBD server with the trace's timing
    Replay(replay::Args),
    /// Compare two runs: order of dispatch, latency percentiles per flow
    Diff(diff::Args),
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Info(args) => info::run(&args),
        What::Convert(args) => change::convert(&args),
        What::Cut(args) => change::cut(&args),
        What::Replay(args) => replay::run(&args),
        What::Diff(args) => diff::run(&args),
    }
}

/// How a trace is read.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Reading the trace")]
struct Reading {
    /// The format; recognized by content where it is not named
    #[arg(long, value_parser = format)]
    format: Option<Format>,
    /// What one step of the time column is, such as "1us"
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time_unit: Option<Duration>,
    /// What one step of the offset column is, such as "512B"
    #[arg(long, value_name = "SIZE", value_parser = size)]
    offset_unit: Option<u64>,
    /// What one step of the size column is, such as "4KiB"
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size_unit: Option<u64>,
    /// The blkparse event that counts as a request: Q (arrival, if unsaid), D (to the device) …
    #[arg(long, value_name = "LETTER", value_parser = event)]
    event: Option<u8>,
    /// Count Darshan's MPI-IO calls instead of the POSIX ones
    #[arg(long)]
    mpiio: bool,
    /// Pass over damaged lines; they are counted and reported
    #[arg(long)]
    skip_damaged: bool,
}

impl Reading {
    fn options(&self) -> TraceOptions {
        TraceOptions {
            format: self.format,
            time_unit: self.time_unit.map(Duration::as_nanos),
            offset_unit: self.offset_unit,
            size_unit: self.size_unit,
            event: self.event,
            mpiio: self.mpiio,
            skip_damaged: self.skip_damaged,
        }
    }

    /// Opens a trace; `-` is the standard input.
    fn open(&self, path: &Path) -> Result<Trace> {
        let name = path.display().to_string();
        let reader: Box<dyn std::io::Read + Send> = if path == Path::new("-") {
            Box::new(std::io::stdin())
        } else {
            let file = File::open(path).with_context(|| name.clone())?;
            if file.metadata().is_ok_and(|m| m.is_dir()) {
                bail!("{name} is a directory, not a trace");
            }
            Box::new(file)
        };
        Ok(Trace::open(&name, reader, &self.options())?)
    }
}

/// Says on the standard error what a reader passed over or wondered about.
fn notes(trace: &Trace, path: &Path) {
    for note in remarks(trace) {
        eprintln!("henge: {}: {note}", path.display());
    }
}

fn remarks(trace: &Trace) -> Vec<String> {
    let mut remarks = Vec::new();
    if trace.damaged() > 0 {
        let first = trace.first_damage().map_or(String::new(), |e| format!("; the first: {e}"));
        remarks.push(format!("{} damaged lines were passed over{first}", trace.damaged()));
    }
    if trace.incomplete() > 0 {
        remarks.push(format!(
            "{} lines have no operation or no address, which their format allows",
            trace.incomplete()
        ));
    }
    if trace.sizes_look_like_pages() {
        remarks.push(
            "the sizes look like pages of 4 KiB, not blocks of 512 bytes: try --size-unit 4KiB".to_owned(),
        );
    }
    if trace.read_ahead() > 0 {
        remarks.push(format!(
            "{} more reads are marked as read-ahead (RA); the share and size of reads leave them out",
            trace.read_ahead()
        ));
    }
    remarks
}

/// The reads that somebody asked for: read-ahead, which blktrace marks, is counted apart.
struct Reads {
    requests: u64,
    percent: f64,
    mean_kib: Option<f64>,
}

fn asked_for(trace: &Trace, s: &henge_workload::Stats) -> Reads {
    let all = s.of(henge_core::Op::Read);
    let requests = all.requests.saturating_sub(trace.read_ahead());
    let bytes = all.bytes.saturating_sub(trace.read_ahead_bytes());
    Reads {
        requests,
        percent: 100.0 * requests as f64 / s.requests().max(1) as f64,
        mean_kib: (requests > 0).then(|| bytes as f64 / requests as f64 / 1024.0),
    }
}

fn format(text: &str) -> Result<Format> {
    Format::by_name(text).ok_or_else(|| anyhow!("there is no such format; there are {}", Format::names()))
}

fn positive<T: PartialEq + Default>(value: T) -> Result<T> {
    if value == T::default() {
        bail!("it must be above zero");
    }
    Ok(value)
}

fn duration(text: &str) -> Result<Duration> {
    positive(parse_duration(text)?)
}

fn size(text: &str) -> Result<u64> {
    positive(parse_size(text)?)
}

fn event(text: &str) -> Result<u8> {
    match text.as_bytes() {
        [letter] if letter.is_ascii_uppercase() => Ok(*letter),
        _ => bail!("it is one capital letter, Q or D"),
    }
}

/// A number of seconds for people: three significant digits, with its unit.
fn seconds(s: f64) -> String {
    match s {
        _ if s >= 172_800.0 => format!("{:.1} days", s / 86_400.0),
        _ if s >= 7_200.0 => format!("{:.1} h", s / 3_600.0),
        _ if s >= 1.0 => format!("{s:.3} s"),
        _ if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        _ => format!("{:.1} us", s * 1e6),
    }
}

/// A size for people, in binary units.
fn bytes(n: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = if n < 1.0 { 0 } else { ((n.log2() / 10.0) as usize).min(UNITS.len() - 1) };
    let scaled = n / 1024f64.powi(power as i32);
    if power == 0 { format!("{n:.0} B") } else { format!("{scaled:.2} {}", UNITS[power]) }
}
