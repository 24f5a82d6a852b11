//! `henge trace info`: what a trace is like.

use super::{Reading, bytes, json, picture, remarks, seconds};
use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use henge_core::Op;
use henge_workload::{Stats, Trace};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Traces, plain, gzip or zstd; "-" is the standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print the statistics as JSON
    #[arg(long)]
    json: bool,
    /// Write plots (SVG and PNG) and the statistics (JSON) of each trace to this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Plots on a dark ground
    #[arg(long)]
    dark: bool,
    #[command(flatten)]
    reading: Reading,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut all = Vec::new();
    for path in &args.files {
        let mut trace = args.reading.open(path)?;
        let mut stats = Stats::default();
        for record in trace.by_ref() {
            stats.count(&record?);
        }
        let name = path.file_name().map_or_else(|| "trace".into(), |n| n.to_string_lossy().into_owned());
        let name = name.trim_end_matches(".zst").trim_end_matches(".gz").to_owned();
        let value = json::stats(&name, &trace, &stats);
        if !args.json {
            print(path, &trace, &stats);
        }
        if let Some(dir) = &args.output {
            write(dir, &name, &stats, &value, args.dark)?;
        }
        all.push(value);
    }
    if args.json {
        let one = if all.len() == 1 { all.remove(0) } else { all.into() };
        println!("{}", serde_json::to_string_pretty(&one)?);
    }
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, name: &str, stats: &Stats, value: &serde_json::Value, dark: bool) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let scene = picture::draw(name, stats, dark);
    let file = |extension: &str| dir.join(format!("{name}.{extension}"));
    picture::write(&scene, &file("svg"), &file("png"))?;
    std::fs::write(file("json"), serde_json::to_string_pretty(value)?)?;
    eprintln!("henge: {}: drawn, beside it .svg and .json", file("png").display());
    Ok(())
}

fn print(path: &Path, trace: &Trace, stats: &Stats) {
    let packed = match trace.packing() {
        henge_workload::Packing::Plain => "",
        henge_workload::Packing::Gzip => ", gzip",
        henge_workload::Packing::Zstd => ", zstd",
    };
    println!("{}: {}{packed}", path.display(), trace.format().name());
    for note in remarks(trace) {
        println!("  note: {note}");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (what, value) in rows(trace, stats) {
        table.add_row([format!("  {what}"), value]);
    }
    for line in table.lines() {
        println!("{}", line.trim_end());
    }
    println!();
}

fn rows(trace: &Trace, s: &Stats) -> Vec<(&'static str, String)> {
    let all = s.all();
    let mut rows =
        vec![("requests", format!("{} over {}", s.requests(), seconds(s.duration().as_secs_f64())))];
    if let Some(iops) = s.mean_iops() {
        rows.push(("rate", format!("{iops:.1}/s on average, {} in the busiest second", s.peak_second())));
        let rate = all.bytes as f64 / s.duration().as_secs_f64();
        rows.push(("throughput", format!("{}/s, {} in all", bytes(rate), bytes(all.bytes as f64))));
    }
    let ahead = match trace.read_ahead() {
        0 => String::new(),
        n => format!(", and {:.2} % read-ahead", 100.0 * n as f64 / s.requests() as f64),
    };
    rows.push(("reads", format!("{:.2} %{ahead}", super::asked_for(trace, s).percent)));
    for op in [Op::Read, Op::Write, Op::Flush, Op::Trim, Op::WriteZeroes] {
        let amount = s.of(op);
        if let Some(mean) = amount.mean_kib() {
            let largest = bytes(amount.largest as f64);
            let what = format!("{}, mean {}, largest {largest}", amount.requests, bytes(mean * 1024.0));
            rows.push((op.as_str(), what));
        }
    }
    let common: Vec<_> = s
        .common_sizes()
        .iter()
        .take(5)
        .map(|(size, n)| format!("{} {:.1} %", bytes(*size as f64), 100.0 * *n as f64 / s.requests() as f64))
        .collect();
    rows.push(("sizes", common.join(", ")));
    rows.push(("unaligned to 4 KiB", format!("{:.1} %", s.unaligned_percent())));
    let (devices, busiest) = s.devices();
    rows.push(("devices", format!("{devices}, the busiest has {busiest:.1} %")));
    let (starts, exact) = s.distinct_starts();
    let about = if exact { "" } else { "about " };
    rows.push((
        "addresses",
        format!("up to {}, {about}{starts} different 4 KiB starts", bytes(s.max_end() as f64)),
    ));
    rows.push((
        "sequential",
        format!(
            "{:.1} % strictly, {:.1} % after one of the previous 32",
            s.sequential_percent(),
            s.near_percent()
        ),
    ));
    let dispersion: Vec<_> =
        s.dispersion().iter().filter_map(|(width, d)| d.map(|d| format!("{d:.2} at {width}"))).collect();
    let dispersion =
        if dispersion.is_empty() { "too short to say".to_owned() } else { dispersion.join(", ") };
    rows.push(("dispersion", dispersion));
    if let (Some(median), Some(p99)) = (s.gaps().quantile(0.5), s.gaps().quantile(0.99)) {
        let (median, p99) = (seconds(median.as_secs_f64()), seconds(p99.as_secs_f64()));
        rows.push(("gaps", format!("median {median}, 99th percentile {p99}")));
    }
    if s.backwards() > 0 {
        let what =
            format!("{} requests are earlier than the one before; replay needs --reorder", s.backwards());
        rows.push(("out of order", what));
    }
    rows
}
