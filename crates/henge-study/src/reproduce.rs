//! `henge reproduce`: repeat a paper's experiment, and say whether it came out as it says.

use crate::report::results::{self, Done};
use crate::report::{json, table, totals};
use crate::scenarios;
use crate::study::{self, Options, Study};
use anyhow::{Context, Result, anyhow};
use henge_config::Source;
use henge_sim::{Judged, Measured, Verdict};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// So many seeds where nothing is said.
const SEEDS: u64 = 10;
/// More tell nothing more, and would be asked for by mistake.
const SEEDS_MAX: u64 = 1000;

/// Arguments of `henge reproduce`.
#[derive(clap::Args)]
pub struct Args {
    /// stonehenge/fig2, or a family (stonehenge/all), or all; without any: a list
    pub ids: Vec<String>,
    /// How many seeds judge each line: it holds where nine in ten do (10; 1 beside --seed)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub seeds: Option<u64>,
    /// This seed, or the first of --seeds; instead of the scenarios'
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where plots, index.html and results.md go
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Scenarios from this directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    pub scenarios: Option<PathBuf>,
}

/// An experiment that is to be made.
struct Wanted {
    id: String,
    study: Study,
    seeds: Vec<u64>,
}

/// One seed's verdict. What was measured is kept of the first one, which is drawn.
struct OneSeed {
    rows: Vec<Judged>,
    measured: Option<Measured>,
}

/// Runs it. The exit code says whether everything held.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.ids.is_empty() {
        return list();
    }
    let wanted = wanted(&args)?;
    let all = make(wanted, &args)?;
    if args.json {
        let list: Vec<_> = all.iter().map(|d| json::verdict(&d.id, &d.seeds, d.holds(), &d.rows)).collect();
        println!("{:#}", serde_json::Value::from(list));
    } else if all.len() > 1 {
        println!("{}", results::sum(&all));
    }
    if let Some(dir) = &args.output {
        results::write(&all, dir)?;
        eprintln!("{}", dir.join("index.html").display());
    }
    Ok(if all.iter().all(Done::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list() -> Result<ExitCode> {
    let mut table = table::table(&["experiment"]);
    table.set_header(["experiment", "shows"]);
    for id in scenarios::ids() {
        let study = load(id, None)?;
        table.add_row([id.to_owned(), study.experiment.title]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn load(id: &str, dir: Option<&Path>) -> Result<Study> {
    match dir {
        Some(dir) => Study::read(&dir.join(format!("{id}.toml"))),
        None => {
            let text = scenarios::text(id).expect("a chosen id is known");
            Study::new(Source::new(format!("{id}.toml"), text), Path::new("."))
        }
    }
}

fn wanted(args: &Args) -> Result<Vec<Wanted>> {
    // A directory of one's own may hold experiments that are not built in.
    let own =
        |id: &&String| args.scenarios.as_ref().is_some_and(|dir| dir.join(format!("{id}.toml")).is_file());
    let (own, built_in): (Vec<_>, Vec<_>) = args.ids.iter().partition(own);
    let mut ids: Vec<String> = own.into_iter().cloned().collect();
    if !built_in.is_empty() {
        ids.extend(scenarios::choose(&built_in.into_iter().cloned().collect::<Vec<_>>())?);
    }
    let one = |id: String| {
        let study = load(&id, args.scenarios.as_deref()).with_context(|| id.clone())?;
        let seeds = seeds(args, &study)?;
        Ok(Wanted { id, study, seeds })
    };
    ids.into_iter().map(one).collect()
}

/// Which seeds judge an experiment: `--seed` alone names one; otherwise that many from the first on.
fn seeds(args: &Args, study: &Study) -> Result<Vec<u64>> {
    let own = || {
        let mut base = study.experiment.base.clone();
        base.integer("seed", 0, u64::MAX >> 1).map_err(|e| study.source.point(e))
    };
    let first = match args.seed {
        Some(seed) => seed,
        None => own()?.unwrap_or(1),
    };
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { SEEDS });
    let end = first.checked_add(count).filter(|end| *end <= u64::MAX >> 1);
    let end = end.ok_or_else(|| anyhow!("--seed {first}: a seed has at most 63 bits"))?;
    Ok((first..end).collect())
}

/// Makes every experiment with every seed, on all cores, and shows each as soon as it and those before it are done.
fn make(wanted: Vec<Wanted>, args: &Args) -> Result<Vec<Done>> {
    let jobs: Vec<(usize, usize)> =
        wanted.iter().enumerate().flat_map(|(e, w)| (0..w.seeds.len()).map(move |s| (e, s))).collect();
    let mut made: Vec<Vec<Option<OneSeed>>> =
        wanted.iter().map(|w| w.seeds.iter().map(|_| None).collect()).collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let threads = study::cores().min(jobs.len().max(1));
    let options = Options {
        quiet: args.json || jobs.len() > 1,
        one_core: jobs.len() > 1,
        judged_alone: true,
        ..Options::default()
    };
    let (tell, told) = mpsc::channel();
    let worker = |tell: mpsc::Sender<_>| {
        while let Some(&(e, s)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                return;
            }
            let one = one(&wanted[e], s, &options);
            failed.fetch_or(one.is_err(), Ordering::Relaxed);
            if tell.send((e, s, one)).is_err() {
                return;
            }
        }
    };
    let mut all: Vec<(Vec<Verdict>, Measured)> = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..threads {
            let tell = tell.clone();
            scope.spawn(|| worker(tell));
        }
        drop(tell);
        for (e, s, one) in told {
            let what = || format!("{}, seed {}", wanted[e].id, wanted[e].seeds[s]);
            made[e][s] = Some(one.with_context(what)?);
            while made.get(all.len()).is_some_and(|seeds| seeds.iter().all(Option::is_some)) {
                let done = judged(std::mem::take(&mut made[all.len()]));
                if !args.json {
                    show(&wanted[all.len()], &done.0, &done.1);
                }
                all.push(done);
            }
        }
        Ok(())
    })?;
    let done = |(w, (rows, measured)): (Wanted, (Vec<Verdict>, Measured))| Done {
        id: w.id,
        seeds: w.seeds,
        experiment: w.study.experiment,
        measured,
        rows,
    };
    Ok(wanted.into_iter().zip(all).map(done).collect())
}

/// The lines over all seeds, and what the first one measured.
fn judged(seeds: Vec<Option<OneSeed>>) -> (Vec<Verdict>, Measured) {
    let mut measured = None;
    let mut rows = Vec::new();
    for one in seeds.into_iter().flatten() {
        measured = measured.or(one.measured);
        rows.push(one.rows);
    }
    (Verdict::over(&rows), measured.expect("there is a first seed, and it is kept"))
}

fn one(wanted: &Wanted, seed: usize, options: &Options) -> Result<OneSeed> {
    let study = &wanted.study;
    let options = Options { seed: Some(wanted.seeds[seed]), ..options.clone() };
    let measured = study.run(&options)?;
    let mut rows = study.experiment.judge(&measured).map_err(|e| study.source.point(e))?;
    rows.extend(measured.theorem_2());
    Ok(OneSeed { rows, measured: (seed == 0).then_some(measured) })
}

fn show(wanted: &Wanted, rows: &[Verdict], measured: &Measured) {
    println!("{}: {}", wanted.id, wanted.study.experiment.title);
    println!("{}", table::verdicts(rows));
    for row in rows.iter().filter(|row| row.holds() == Some(false)) {
        let shown = row.shown_by.as_ref().map(|id| format!(" (shown by {id})")).unwrap_or_default();
        if let Some(note) = &row.note {
            println!("{}: {note}{shown}", row.what);
        }
    }
    if let Some(summary) = totals::summary(measured) {
        println!("{summary}");
    }
    println!("{}\n", if results::holds(rows) { "holds" } else { "DIFFERS from the paper" });
}
