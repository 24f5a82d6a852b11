//! `henge trace diff`: two runs of the same requests, compared.

use super::{duration, json};
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use henge_core::Duration;
use henge_workload::diff::{Both, Diff, LATENESS_MAX, RequestLog, TOLERANCE_PERCENT};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// The first run, as `henge node --requests` or `henge sim --requests` wrote it
    a: PathBuf,
    /// The second run
    b: PathBuf,
    /// Ask for the identical order of dispatch as well
    #[arg(long)]
    order: bool,
    /// The emulated disks' own 99th percentile of lateness in a live run, where the logs do not say
    #[arg(long, value_name = "TIME", value_parser = duration)]
    lateness: Option<Duration>,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let read = |path: &Path| -> Result<RequestLog> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| name.clone())?;
        Ok(RequestLog::read(&name, BufReader::new(file))?)
    };
    let diff = Diff::of(&read(&args.a)?, &read(&args.b)?, args.lateness);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&json::diff(&diff))?);
    } else {
        print(&diff);
    }
    let good = diff.is_valid() && diff.agrees() && (!args.order || diff.same_order());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(diff: &Diff) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["flow", "requests", "", "p50 ms", "", "", "p95 ms", "", "", "p99 ms", "", "", ""]);
    for f in &diff.flows {
        let mut row = vec![f.flow.clone(), f.requests[0].to_string(), f.requests[1].to_string()];
        for both in [f.p50, f.p95, f.p99] {
            row.extend(cells(both));
        }
        row.push(if f.agrees() { "agrees" } else { "DIFFERS" }.to_owned());
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    match &diff.parting {
        None => println!("order of dispatch: the same at every gate"),
        Some(p) => {
            println!("order of dispatch: parts at gate {} after {} equal dispatches", p.gate, p.after);
            println!("  first run:  {}", p.a.as_deref().unwrap_or("nothing more"));
            println!("  second run: {}", p.b.as_deref().unwrap_or("nothing more"));
        }
    }
    if let Some(late) = diff.lateness_p99 {
        println!("emulated disks late by {late} at the 99th percentile");
    }
    let verdict = match (diff.is_valid(), diff.agrees()) {
        (false, _) => format!("invalid: the emulated disks were late by more than {LATENESS_MAX} themselves"),
        (true, true) => format!("holds: every 95th percentile within {TOLERANCE_PERCENT} %"),
        (true, false) => {
            format!("does not hold: a 95th percentile differs by more than {TOLERANCE_PERCENT} %")
        }
    };
    println!("verdict: {verdict}");
}

fn cells(both: Both) -> [String; 3] {
    let ms = |d: Option<Duration>| d.map_or("-".to_owned(), |d| format!("{:.3}", d.as_millis_f64()));
    let percent = both.percent().map_or(String::new(), |p| format!("{p:+.1}%"));
    [ms(both.a), ms(both.b), percent]
}
