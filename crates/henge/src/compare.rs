//! The web page's comparison: records the load of a node and simulates it under several schedulers.

use crate::page::Comparer;
use crate::recording::{self, Recording};
use anyhow::{Result, anyhow};
use henge_api::Request;
use henge_core::{Duration, Histogram};
use henge_node::Control;
use henge_sim::{FlowOutcome, Outcome};
use henge_study::compare as schedulers;
use henge_study::study::{Options, Study};
use henge_web::{Compare, Comparison, Run, RunFlow};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Of one node, one at a time.
pub struct Compares {
    control: Control,
    busy: Mutex<()>,
}

/// A directory of its own, gone when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let base = std::env::temp_dir();
        // Whose name somebody has taken before is not used: others may write there.
        for n in 0..100 {
            let dir = base.join(format!("henge-compare-{}-{n}", std::process::id()));
            if std::fs::create_dir(&dir).is_ok() {
                return Ok(Scratch(dir));
            }
        }
        Err(anyhow!("{}: no directory can be made there", base.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Compares {
    /// Of this node.
    pub fn new(control: Control) -> Compares {
        Compares { control, busy: Mutex::new(()) }
    }

    fn record(&self, wanted: &Compare) -> Result<Recording> {
        let ask = |request: Request| Ok(self.control.ask(request)?);
        let pool = Some(wanted.pool.as_str()).filter(|pool| !pool.is_empty());
        recording::record(&ask, pool, Duration::from_secs(wanted.seconds.into()), |_, _| true)
    }
}

impl Comparer for Compares {
    fn compare(&self, wanted: &Compare) -> Result<Comparison, String> {
        let Ok(_busy) = self.busy.try_lock() else {
            return Err("somebody is recording already; try again when that is over".into());
        };
        let made = self.record(wanted).and_then(|recording| {
            let scratch = Scratch::new()?;
            recording.write(&scratch.0)?;
            Ok((recording.about(), scratch))
        });
        let (about, scratch) = made.map_err(|e| format!("{e:#}"))?;
        let mut comparison = Comparison { about, window: 1.0, runs: Vec::new() };
        for scheduler in &wanted.schedulers {
            let (run, window) = outcome(&scratch.0, scheduler);
            comparison.window = window.unwrap_or(comparison.window);
            comparison.runs.push(run);
        }
        Ok(comparison)
    }
}

/// What is wrong, without its place in a file that is gone.
fn why(error: &anyhow::Error) -> String {
    let text = error.root_cause().to_string();
    let line = text.lines().next().unwrap_or_default();
    let place = line.find("scenario.toml:").and_then(|at| line[at..].find(": ").map(|end| at + end + 2));
    line[place.unwrap_or(0)..].to_owned()
}

/// A recording under a scheduler, and how wide its windows are.
fn outcome(dir: &Path, scheduler: &str) -> (Run, Option<f64>) {
    let name = scheduler.to_owned();
    match simulate(dir, scheduler) {
        Ok(outcome) => {
            let flows = outcome.flows.iter().map(flow).collect();
            (Run { name, error: None, flows }, Some(outcome.timing.window.as_secs_f64()))
        }
        Err(e) => (Run { name, error: Some(why(&e)), flows: Vec::new() }, None),
    }
}

#[cfg(test)]
pub(crate) fn simulated(dir: &Path, scheduler: &str) -> Run {
    outcome(dir, scheduler).0
}

fn simulate(dir: &Path, scheduler: &str) -> Result<Outcome> {
    let mut study = Study::read(&dir.join("scenario.toml"))?;
    schedulers::compare(&mut study, &[scheduler.to_owned()])?;
    let measured = study.run(&Options { quiet: true, ..Options::default() })?;
    let mut runs = measured.runs();
    runs.next().map(|(_, outcome)| outcome.clone()).ok_or_else(|| anyhow!("nothing was simulated"))
}

fn flow(outcome: &FlowOutcome) -> RunFlow {
    let windows = outcome.windows.len().max(1) as f64;
    let (judged, missed) = (outcome.conformance.judged, outcome.conformance.missed);
    let seconds = |h: &Histogram, q: f64| h.quantile(q).map_or(0.0, Duration::as_secs_f64);
    RunFlow {
        name: outcome.name.clone(),
        rate: outcome.windows.iter().map(|w| w.commands).sum::<u64>() as f64 / windows,
        p50: seconds(&outcome.latency, 0.5),
        p95: seconds(&outcome.latency, 0.95),
        p99: seconds(&outcome.latency, 0.99),
        kept: if judged == 0 { 1.0 } else { 1.0 - missed as f64 / judged as f64 },
        rates: outcome.windows.iter().map(|w| w.commands as f64).collect(),
        p95s: outcome.windows.iter().map(|w| w.p95.as_secs_f64()).collect(),
    }
}
