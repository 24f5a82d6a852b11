//! `henge sim`: run a scenario in simulated time.

use crate::report::{figure::Figure, json, page, plots, table, totals};
use crate::study::{Options, Study};
use anyhow::{Context, Result, anyhow};
use henge_config::Source;
use henge_core::{RequestRow, Value};
use henge_sim::{Axis, Feed, Measured, Recording, Setting, edit};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `henge sim`.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario, a TOML file
    #[arg(required_unless_present = "disk")]
    pub scenario: Option<PathBuf>,
    /// The same under several schedulers: fifo,sfq,cvc
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub compare: Vec<String>,
    /// Change a key: node.scheduler=vc, flow.web.contract.rate=300/s
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run once for each value: flow.web.workload.speed=1,1.5,2
    #[arg(long, value_name = "KEY=A,B,C")]
    pub sweep: Vec<String>,
    /// Say where this flow's time went
    #[arg(long, value_name = "FLOW")]
    pub explain: Option<String>,
    /// Instead of the scenario's seed
    #[arg(long)]
    pub seed: Option<u64>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// One CSV row per request (times in ns)
    #[arg(long, value_name = "FILE")]
    pub requests: Option<PathBuf>,
    /// Dispatch a recorded run (--requests of a simulation or a node) again with this scenario's gates
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Replay completions, too: the device completes when it did, and every dispatch must repeat
    #[arg(long, requires = "replay")]
    pub completions: bool,
    /// A page to look at, with its figures as SVG, PNG and CSV
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// A single disk instead of a scenario.
    #[command(flatten)]
    pub disk: crate::sim_disk::DiskArgs,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    let Some(scenario) = &args.scenario else {
        return crate::sim_disk::run(&args.disk, args.requests.as_deref(), args.json);
    };
    let mut study = Study::read(scenario)?;
    for hint in crate::compare::spelling(&mut study.experiment) {
        eprintln!("{}: {hint}", scenario.display());
    }
    change(&mut study, &args.set)?;
    for sweep in &args.sweep {
        let (key, values) = pair(sweep, "--sweep")?;
        study.experiment.vary(swept(key, values));
    }
    for dropped in crate::compare::compare(&mut study, &args.compare)? {
        eprintln!("{dropped}");
    }
    if let Some(recording) = &args.replay {
        return replay(&study, recording, &args);
    }
    let options = Options {
        seed: args.seed,
        explain: args.explain.is_some(),
        requests: args.requests.clone(),
        quiet: args.json,
        one_core: false,
        judged_alone: false,
    };
    let measured = study.run(&options)?;
    if args.json {
        println!("{:#}", json::runs(&study.experiment, &measured));
    } else {
        print_tables(&study, &measured, &args)?;
    }
    if let Some(dir) = &args.report {
        report(&study, &measured, dir)?;
        eprintln!("{}", dir.join("index.html").display());
    }
    Ok(ExitCode::SUCCESS)
}

/// `--set`: changes keys.
pub fn change(study: &mut Study, changes: &[String]) -> Result<()> {
    for change in changes {
        let (key, value) = pair(change, "--set")?;
        // An axis is set by its name to one of its values.
        if let Some(axis) = study.experiment.axes.iter_mut().find(|axis| axis.name == key) {
            axis.values.retain(|setting| setting.name == value);
            if axis.values.is_empty() {
                return Err(anyhow!("--set {change}: {key} has no such value"));
            }
            // What other runs would show is not drawn.
            study.experiment.plots.retain_mut(|plot| plot.keep(key, value));
            continue;
        }
        edit::set(&mut study.experiment.base, key, value_of(value))
            .map_err(|e| anyhow!("--set {change}: {e}"))?;
    }
    Ok(())
}

/// The outcome, as tables or JSON, and as a page.
pub fn show(study: &Study, measured: &Measured, as_json: bool, dir: Option<&Path>) -> Result<()> {
    if as_json {
        println!("{:#}", json::runs(&study.experiment, measured));
    } else {
        let axes: Vec<&str> = study.experiment.axes.iter().map(|a| a.name.as_str()).collect();
        for (run, outcome) in measured.runs() {
            let named: Vec<String> = axes.iter().zip(run).map(|(a, v)| format!("{a} = {v}")).collect();
            println!("{}\n{}\n", named.join(", "), table::flows(outcome));
        }
    }
    if let Some(dir) = dir {
        report(study, measured, dir)?;
        eprintln!("{}", dir.join("index.html").display());
    }
    Ok(())
}

/// Feeds a recording to the scenario's gates.
fn replay(study: &Study, path: &Path, args: &Args) -> Result<ExitCode> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut recording = Recording::default();
    // The header, and what a node remarks about the run, are no requests.
    let is_row = |line: &str| !line.starts_with("flow,") && !line.starts_with('#');
    for (i, line) in text.lines().enumerate().filter(|(_, line)| is_row(line)) {
        let row = RequestRow::parse(line).with_context(|| format!("{}:{}", path.display(), i + 1))?;
        recording.push(&row);
    }
    let feed = if args.completions { Feed::Completions } else { Feed::Arrivals };
    let replayed = study.world(args.seed)?.replay(&recording, feed)?;
    if let Some(out) = &args.requests {
        let rows = format!("{}\n{}", RequestRow::HEADER, replayed.rows);
        std::fs::write(out, rows).with_context(|| format!("writing {}", out.display()))?;
    }
    if args.json {
        println!("{:#}", json::replayed(&replayed));
    } else {
        println!("{}", table::replayed(&replayed));
        println!(
            "{} of {} requests were dispatched when they were recorded to be",
            replayed.same, replayed.requests
        );
        replayed.first.iter().for_each(|first| println!("the first that was not: {first}"));
    }
    let repeated = replayed.same == replayed.requests || !args.completions;
    Ok(if repeated { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn pair<'a>(text: &'a str, option: &str) -> Result<(&'a str, &'a str)> {
    text.split_once('=').ok_or_else(|| anyhow!("{option} takes KEY=VALUE, not \"{text}\""))
}

/// As TOML writes it; what is no TOML is a text, so that quotes need no quoting.
pub fn value_of(text: &str) -> Value {
    let source = Source::new("value", format!("value = {text}"));
    let parsed = source.parse("value").ok().and_then(|mut p| p.take("value"));
    parsed.unwrap_or_else(|| Value::Text(text.to_owned()))
}

fn swept(key: &str, values: &str) -> Axis {
    let setting = |v: &str| Setting { name: v.to_owned(), sets: vec![(key.to_owned(), value_of(v))] };
    Axis { name: key.to_owned(), values: values.split(',').map(setting).collect() }
}

fn print_tables(study: &Study, measured: &Measured, args: &Args) -> Result<()> {
    let axes: Vec<&str> = study.experiment.axes.iter().map(|a| a.name.as_str()).collect();
    let many = measured.runs().count() > 1;
    for (run, outcome) in measured.runs() {
        if many {
            let named: Vec<String> = axes.iter().zip(run).map(|(a, v)| format!("{a} = {v}")).collect();
            println!("{}", named.join(", "));
        } else if !study.experiment.title.is_empty() {
            println!("{}", study.experiment.title);
        }
        println!("{}", table::flows(outcome));
        if !many {
            println!("{}", table::gates(outcome));
            for flow in &outcome.flows {
                println!("{}: {}", flow.name, flow.load);
            }
        }
        let totals = totals::sentence(outcome);
        if !totals.is_empty() {
            println!("{totals}");
        }
        if let Some(name) = &args.explain {
            let known = || outcome.flows.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", ");
            let flow = outcome.flow(name);
            let flow = flow.ok_or_else(|| anyhow!("there is no flow \"{name}\"; there are: {}", known()))?;
            print!("{}", table::explain(flow));
        }
        println!();
    }
    if !study.experiment.rows.is_empty()
        && args.sweep.is_empty()
        && args.compare.is_empty()
        && args.set.is_empty()
    {
        let rows = study.experiment.judge(measured).map_err(|e| study.source.point(e))?;
        println!("{}", table::verdicts(&rows.iter().map(henge_sim::Verdict::new).collect::<Vec<_>>()));
    }
    Ok(())
}

/// Writes index.html and the figures' files.
fn report(study: &Study, measured: &Measured, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let axes: Vec<&str> = study.experiment.axes.iter().map(|a| a.name.as_str()).collect();
    let mut page = page::Page {
        title: if study.experiment.title.is_empty() {
            "A simulated run".into()
        } else {
            study.experiment.title.clone()
        },
        about: study.experiment.about.clone(),
        ..page::Page::default()
    };
    let wanted = plots::wanted(&study.experiment, measured)?;
    if !wanted.is_empty() {
        page.sections.push(page::Section { figures: draw(&wanted, dir)?, ..page::Section::default() });
    }
    if measured.runs().count() > 1 {
        page.sections.push(side_by_side(&axes, measured));
    }
    for (number, (run, outcome)) in measured.runs().enumerate() {
        let named: Vec<String> = axes.iter().zip(run).map(|(a, v)| format!("{a} = {v}")).collect();
        let prefix = if run.is_empty() { String::new() } else { format!("run{number}-") };
        page.footer = format!(
            "Seed {}. {} measured after {} of warm-up, in simulated time.",
            outcome.seed, outcome.timing.duration, outcome.timing.warmup
        );
        page.sections.push(page::Section {
            title: named.join(", "),
            about: totals::sentence(outcome),
            tables: table::rows_of(outcome),
            figures: draw(&plots::of_run(outcome, &prefix)?, dir)?,
            ..page::Section::default()
        });
    }
    let path = dir.join("index.html");
    std::fs::write(&path, page.render()?).with_context(|| format!("writing {}", path.display()))
}

/// All runs in one table, flow by flow.
fn side_by_side(axes: &[&str], measured: &Measured) -> page::Section {
    let mut rows = Vec::new();
    let first = measured.runs().next().map(|(_, outcome)| outcome);
    for flow in first.into_iter().flat_map(|outcome| &outcome.flows) {
        for (run, outcome) in measured.runs() {
            let Some(here) = outcome.flow(&flow.name) else { continue };
            let named: Vec<String> = axes.iter().zip(run).map(|(a, v)| format!("{a} = {v}")).collect();
            let time = |q| {
                here.latency.quantile(q).map_or("–".to_owned(), |d| format!("{:.1} ms", d.as_millis_f64()))
            };
            let promise = &here.conformance;
            let kept =
                (promise.judged > 0).then(|| 100.0 * (1.0 - promise.missed as f64 / promise.judged as f64));
            rows.push(vec![
                flow.name.clone(),
                named.join(", "),
                format!("{:.1}/s", here.answered as f64 / outcome.timing.duration.as_secs_f64()),
                time(0.5),
                time(0.95),
                time(0.99),
                kept.map_or("–".to_owned(), |kept| format!("{kept:.1} %")),
            ]);
        }
    }
    let head = ["flow", "run", "received", "p50", "p95", "p99", "kept"].map(str::to_owned).to_vec();
    let table = page::Rows { head, rows, ..page::Rows::default() };
    page::Section { title: "Side by side".into(), tables: vec![table], ..page::Section::default() }
}

fn draw(figures: &[Figure], dir: &Path) -> Result<Vec<page::Picture>> {
    figures
        .iter()
        .map(|figure| figure.write(dir).map(|()| page::Picture::new(figure, &figure.name)))
        .collect()
}
