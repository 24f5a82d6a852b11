//! Runs an experiment: what is measured beforehand, then every combination of its axes, on all cores.

use anyhow::{Context, Result, anyhow};
use henge_config::Source;
use henge_core::{Instant, ParamError, RequestRow, Value};
use henge_sim::admission::{Fault, Sequence};
use henge_sim::rule::Bindings;
use henge_sim::{Experiment, Measure, Measured, Observer, Outcome, Outside, World, edit};
use henge_workload::TraceSpec;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A scenario file, and where the files that it names are looked for.
pub struct Study {
    /// For errors that point into the file.
    pub source: Source,
    /// What it holds.
    pub experiment: Experiment,
    /// Relative names of traces and device models start here.
    pub dir: PathBuf,
}

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Instead of the scenario's.
    pub seed: Option<u64>,
    /// Why flows wait is recorded.
    pub explain: bool,
    /// One row per request goes here.
    pub requests: Option<PathBuf>,
    /// No bar, whatever stderr is.
    pub quiet: bool,
    /// One run after another: somebody else uses the other cores.
    pub one_core: bool,
    /// Unfairness is measured only where Theorem 2 covers a run, unless the scenario asks for it.
    pub judged_alone: bool,
}

impl Study {
    /// Reads a scenario's text.
    pub fn new(source: Source, dir: &Path) -> Result<Self> {
        let params = source.parse("the scenario")?;
        let experiment = Experiment::read(params).map_err(|e| source.point(e))?;
        Ok(Study { source, experiment, dir: dir.to_owned() })
    }

    /// Reads a scenario file.
    pub fn read(path: &Path) -> Result<Self> {
        let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
        Study::new(Source::read(path)?, &dir)
    }

    fn point(&self, error: ParamError) -> anyhow::Error {
        self.source.point(error).into()
    }

    /// Runs everything.
    pub fn run(&self, options: &Options) -> Result<Measured> {
        let mut measured = Measured::new(&self.experiment);
        let mut last: Option<(&Measure, Measured)> = None;
        for measure in &self.experiment.measures {
            // Measures that set the same are taken from one run.
            let (_, alone) = match last.take().filter(|(before, _)| before.sets == measure.sets) {
                Some(same) => last.insert(same),
                None => last.insert((measure, self.measure(measure, &measured, options)?)),
            };
            let value = measure
                .value
                .number(&*alone, &Bindings::new())
                .map_err(|e| anyhow!("{}: {e}", measure.name))?;
            measured.set_variable(&measure.name, value);
        }
        let runs = self.experiment.runs();
        if runs.len() > 1 && options.requests.is_some() {
            return Err(anyhow!(
                "--requests records one run, and these are {}; choose with --set",
                runs.len()
            ));
        }
        let mut scenarios = Vec::new();
        for run in &runs {
            scenarios.push(self.experiment.scenario(run, &measured).map_err(|e| self.point(e))?);
        }
        let bar = Bar::new(runs.len(), options.quiet);
        let one = |params| self.one(params, options, &bar);
        let outcomes = match options.one_core {
            true => scenarios.into_iter().map(one).collect(),
            false => on_all_cores(scenarios, one),
        };
        bar.bar.finish_and_clear();
        for (run, outcome) in runs.iter().zip(outcomes) {
            let named = || run.iter().map(|(a, v)| format!("{a} = {v}")).collect::<Vec<_>>().join(", ");
            let outcome = outcome.with_context(|| {
                if run.is_empty() { "the run".into() } else { format!("the run with {}", named()) }
            });
            measured.add(run, outcome?);
        }
        Ok(measured)
    }

    /// The run that a measure is taken from.
    fn measure(&self, measure: &Measure, variables: &Measured, options: &Options) -> Result<Measured> {
        let params = self.experiment.measuring(measure, variables).map_err(|e| self.point(e))?;
        let bar = Bar::new(1, options.quiet);
        let outcome = self.one(params, &Options { requests: None, ..options.clone() }, &bar)?;
        let mut alone = Measured::new(&Experiment { axes: Vec::new(), ..self.experiment.clone() });
        alone.add(&Bindings::new(), outcome);
        Ok(alone)
    }

    /// The scenario's world, where it is one run.
    pub fn world(&self, seed: Option<u64>) -> Result<World> {
        let runs = self.experiment.runs();
        let [run] = runs.as_slice() else {
            return Err(anyhow!(
                "this is one run's work, and the scenario has {}; choose with --set",
                runs.len()
            ));
        };
        let measured = Measured::new(&self.experiment);
        self.build(self.experiment.scenario(run, &measured).map_err(|e| self.point(e))?, seed)
    }

    fn build(&self, mut params: henge_core::Params, seed: Option<u64>) -> Result<World> {
        self.seed(&mut params, seed)?;
        self.with_outside(|outside| World::build(params, outside)).map_err(|e| self.point(e))
    }

    fn seed(&self, params: &mut henge_core::Params, seed: Option<u64>) -> Result<()> {
        let Some(seed) = seed else { return Ok(()) };
        let seed = i64::try_from(seed).context("a seed has at most 63 bits")?;
        edit::set(params, "seed", Value::Integer(seed)).map_err(|e| self.point(e))
    }

    fn with_outside<T>(&self, work: impl FnOnce(&Outside<'_>) -> T) -> T {
        let files = |name: &str| {
            let path = self.dir.join(name);
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let traces = |spec: &TraceSpec| crate::data::open(&self.dir, spec);
        work(&Outside { devices: &files, traces: &traces })
    }

    /// Disks that ask one after another, and what each rule of admission answers.
    pub fn sequence(&self, mut params: henge_core::Params, seed: Option<u64>) -> Result<Outcome> {
        self.seed(&mut params, seed)?;
        let sequence = Sequence::read(params).map_err(|e| self.point(e))?;
        let (admitted, outcome) =
            self.with_outside(|outside| sequence.run(outside)).map_err(|e| match e {
                Fault::Params(e) => self.point(e),
                Fault::Run(e) => anyhow!("{e}"),
            })?;
        Ok(Outcome { admission: Some(admitted), ..outcome })
    }

    fn one(&self, mut params: henge_core::Params, options: &Options, bar: &Bar) -> Result<Outcome> {
        if Sequence::is_meant(&mut params) {
            let outcome = self.sequence(params, options.seed)?;
            bar.add(1000);
            return Ok(outcome);
        }
        let mut world = self.build(params, options.seed)?;
        if options.explain {
            world.explain();
        }
        if options.judged_alone && !self.source.text().contains("unfairness") {
            world.watch_where_covered();
        }
        let mut watch = Watch { bar, done: 0, rows: None };
        if let Some(path) = &options.requests {
            let file = std::fs::File::create(path).with_context(|| format!("writing {}", path.display()))?;
            watch.rows = Some(Rows {
                out: BufWriter::new(file),
                line: format!("{}\n", RequestRow::HEADER),
                error: None,
            });
        }
        let outcome = world.run(&mut watch).map_err(|e| anyhow!("{e}"))?;
        bar.add(1000 - watch.done);
        if let Some(rows) = watch.rows {
            rows.finish().context("writing the requests")?;
        }
        Ok(outcome)
    }
}

/// How many threads can run at once.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` for every item, on as many threads as there are cores; results in the items' order.
pub fn on_all_cores<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cores = cores().min(items.len().max(1));
    let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|i| Mutex::new(Some(i))).collect();
    let results: Mutex<BTreeMap<usize, R>> = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { return };
            let item = item.lock().expect("nobody panics with it").take().expect("each index comes once");
            let result = work(item);
            results.lock().expect("nobody panics with it").insert(i, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(worker);
        }
    });
    results.into_inner().expect("all threads are joined").into_values().collect()
}

/// How far the runs are, on stderr, when somebody looks and it takes long.
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new(runs: usize, quiet: bool) -> Self {
        let bar = ProgressBar::new(runs as u64 * 1000);
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style =
            ProgressStyle::with_template("{wide_bar} {percent} % {eta} left").expect("a sound template");
        bar.set_style(style);
        Bar { bar }
    }
    fn add(&self, thousandths: u64) {
        self.bar.inc(thousandths);
    }
}

struct Rows {
    out: BufWriter<std::fs::File>,
    line: String,
    error: Option<std::io::Error>,
}

impl Rows {
    fn finish(mut self) -> std::io::Result<()> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.write_all(self.line.as_bytes())?;
        self.out.flush()
    }
}

struct Watch<'a> {
    bar: &'a Bar,
    done: u64,
    rows: Option<Rows>,
}

impl Observer for Watch<'_> {
    fn row(&mut self, row: &RequestRow<'_>) {
        let Some(rows) = &mut self.rows else { return };
        row.write(&mut rows.line);
        if rows.line.len() > 1 << 16 {
            if let Err(error) = rows.out.write_all(rows.line.as_bytes()) {
                rows.error.get_or_insert(error);
            }
            rows.line.clear();
        }
    }
    fn wants_rows(&self) -> bool {
        self.rows.is_some()
    }
    fn progress(&mut self, now: Instant, end: Instant) {
        let done = (u128::from(now.as_nanos()) * 1000 / u128::from(end.as_nanos().max(1))) as u64;
        self.bar.add(done.saturating_sub(self.done));
        self.done = done.max(self.done);
    }
}
