//! `henge profile`: measure storage, and write the lines that a pool's configuration needs.
//!
//! Random reads against depth give the knee; random reads of several sizes at the knee give what a request costs as
//! such and by its bytes; sequential runs with seeks between them give what it costs to begin elsewhere, and from that
//! the length of turns. Every job is run once in each of several rounds. Where rounds do not agree nothing is concluded:
//! a gate that believes a wrong figure breaks promises for ever.

mod conclude;
mod measure;
mod show;
mod target;

use anyhow::{Context, Result, bail};
use conclude::{Findings, Measured};
use henge_core::{Duration, Op, format_size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::{Job, Order, Plan, Series};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use target::{Bench, Target};

const EXAMPLES: &str = "\
TARGET is

    nbd://host/export, nbd+unix:///export?socket=PATH    an NBD export
    /dev/sdb, /srv/disk.img                              a device or a file
    st34501n, facts.json                                 a model, in simulated time
    '{ raid0 = 4, stripe = \"64KiB\", disk = \"dtla-307075\" }'

A device is opened for reading alone, and nothing is written without --destroy-data. What was never written may be answered
without touching the device: fill it before. The lines it prints go into the file of `henge node`, and the tables of
schedulers into scenarios.";

/// Arguments of `henge profile`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What is measured
    target: String,
    /// Of the requests with which depth is measured
    #[arg(long, value_name = "SIZE", value_parser = conclude::size, default_value = "4KiB")]
    size: u64,
    /// Depths, ascending
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    depths: Vec<u32>,
    /// For each figure in each round [default: 1s; of models 10s of simulated time]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// How far the rounds may differ before nothing is concluded: half of most less least, of the median; may be over 100%
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "10%")]
    noise: f64,
    /// Measure writes as well. DESTROYS what is on the target
    #[arg(long)]
    destroy_data: bool,
    /// What the pool will be called
    #[arg(long, value_name = "NAME", default_value = "pool")]
    name: String,
    /// Of the places that are asked
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the plots go: depth, latency and size, each as SVG, PNG and CSV
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = henge_core::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_millis(1) { Err("a figure takes at least 1ms".into()) } else { Ok(time) }
}

/// A share that may be more than the whole: rounds can differ by any number of times their median.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|p| p.trim().parse::<f64>().ok());
    percent
        .filter(|p| p.is_finite() && *p >= 0.0)
        .map(|p| p / 100.0)
        .ok_or_else(|| format!("\"{text}\" is not a share; write it like \"30%\""))
}

/// Measures, concludes, and shows both; fails where it cannot conclude.
pub fn run(args: Args) -> Result<ExitCode> {
    check_depths(&args.depths)?;
    let target = Target::parse(&args.target)?;
    let (mut bench, how) = target.open(args.destroy_data)?;
    if bench.capacity() < 16 * args.size.max(bench.block()) {
        bail!("{} holds {}, too little to measure", args.target, format_size(bench.capacity()));
    }
    if !args.size.is_multiple_of(bench.block()) {
        bail!("--size {}: {how} takes multiples of {}", format_size(args.size), format_size(bench.block()));
    }
    if !args.json {
        println!("{}: {}, {how}\n", args.target, format_size(bench.capacity()));
    }
    let (measured, noisy) = measure(&mut *bench, &args)?;
    let found = noisy.is_empty().then(|| Findings::new(&measured));
    let pool = found.as_ref().map(|f| f.pool(&args.name, &target)).unwrap_or_default();
    if let Some(found) = &found {
        found.check().context("what was measured makes no configuration")?;
    }
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        for figure in show::figures(&measured, found.as_ref()) {
            figure.write(dir)?;
        }
    }
    let time = args.time.unwrap_or(default_time(&*bench));
    if args.json {
        println!("{:#}", show::json(&args.target, &measured, found.as_ref(), &noisy, &pool));
    } else {
        println!("{}\n", show::jobs(measured.all()));
        if let Some(found) = &found {
            println!("{}\n\n{pool}", show::findings(found).join("\n"));
        }
    }
    if found.is_none() {
        bail!("{}: {}", args.target, show::refusal(&noisy, args.noise, time));
    }
    Ok(ExitCode::SUCCESS)
}

fn check_depths(depths: &[u32]) -> Result<()> {
    if depths.is_empty() || depths[0] == 0 || depths.windows(2).any(|d| d[0] >= d[1]) {
        bail!("--depths ascend from at least 1, like 1,2,4,8");
    }
    match depths.last() {
        Some(&most) if most > target::DEPTH_MAX => bail!("--depths: at most {}", target::DEPTH_MAX),
        _ => Ok(()),
    }
}

fn default_time(bench: &dyn Bench) -> Duration {
    Duration::from_secs(if bench.simulated() { 10 } else { 1 })
}

/// Everything, and what of it is too noisy to conclude from.
fn measure(bench: &mut dyn Bench, args: &Args) -> Result<(Measured, Vec<conclude::Noisy>)> {
    let plan = Plan { time: args.time.unwrap_or(default_time(bench)), rounds: args.rounds, seed: args.seed };
    let read = |order, size, depth| Job::new(Op::Read, order, size, depth);
    let by_depth: Vec<Job> = args.depths.iter().map(|&d| read(Order::Random, args.size, d)).collect();
    let sizes = conclude::sizes(args.size, bench.longest(), bench.capacity());
    let writes = if args.destroy_data { 2 } else { 0 };
    let steps = (by_depth.len() + sizes.len() + 3 + writes) as u64 * u64::from(plan.rounds);
    let bar = progress(steps, args.json);
    // The first requests find caches and queues as nobody will find them again.
    measure::run(bench, &by_depth[0], plan.time.mul_ratio(1, 4), plan.seed)?;
    let depths = measure::rounds(bench, &by_depth, &plan, &mut || bar.inc(1))?;
    let points: Vec<_> = depths.iter().map(|s| (s.job.depth, s.rates().median)).collect();
    let knee = conclude::knee(&points);
    // What was measured at the knee already is not measured again.
    let known = depths.iter().find(|s| s.job.depth == knee).cloned();
    let skip = usize::from(known.is_some());
    let mut jobs: Vec<Job> = sizes.iter().skip(skip).map(|&size| read(Order::Random, size, knee)).collect();
    let largest = *sizes.last().expect("at least the first size");
    let stretch = largest.min(conclude::STRETCH);
    jobs.push(read(Order::Sequential, stretch, 1));
    jobs.push(read(Order::Runs(conclude::RUN), stretch, 1));
    jobs.push(read(Order::Sequential, largest, knee));
    if args.destroy_data {
        jobs.extend([1, knee].map(|depth| Job::new(Op::Write, Order::Random, args.size, depth)));
    }
    let plan = Plan { seed: plan.seed ^ 1 << 63, ..plan };
    let mut rest = measure::rounds(bench, &jobs, &plan, &mut || bar.inc(1))?;
    bar.finish_and_clear();
    let mut others: Vec<Series> = rest.split_off(sizes.len() - skip);
    let rest: Vec<Series> = known.into_iter().chain(rest).collect();
    let writes = others.split_off(3);
    let [sequential, runs, stream] = <[Series; 3]>::try_from(others).expect("three jobs were added");
    let measured = Measured { depths, sizes: rest, sequential, runs, stream, writes };
    let noisy = conclude::noisy(&measured, args.noise);
    Ok((measured, noisy))
}

fn progress(steps: u64, quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(
        ProgressStyle::with_template("{wide_bar} {percent} % {eta} left").expect("a sound template"),
    );
    bar
}
