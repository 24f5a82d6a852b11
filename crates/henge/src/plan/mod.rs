//! Changes tried on what was recorded: `henge plan` and `henge vd propose`.

mod change;
mod judged;
mod need;

pub use change::{Added, Change, Term, flows};
pub use judged::{Judged, judged};
pub use need::{Came, Need};

use crate::recording;
use anyhow::{Context, Result};
use henge_sim::Outcome;
use henge_study::study::{Options, Study, on_all_cores};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A recording: its windows, and the disks that asked for something in one of them.
pub struct Recorded {
    pub windows: Vec<PathBuf>,
    pub disks: BTreeSet<String>,
}

impl Recorded {
    /// Looks at the recording in `dir`.
    pub fn read(dir: &Path) -> Result<Recorded> {
        let windows = recording::of_windows(dir)?;
        let mut disks = BTreeSet::new();
        for window in &windows {
            disks.extend(flows(&mut Study::read(&window.join("scenario.toml"))?));
        }
        Ok(Recorded { windows, disks })
    }

    /// Whether the scheduler in force takes the change, in every window; else why not.
    pub fn fits(&self, change: &Change) -> Result<()> {
        for window in &self.windows {
            let mut study = Study::read(&window.join("scenario.toml"))?;
            change.apply(&mut study, window)?;
            study.world(None)?;
        }
        Ok(())
    }

    /// Simulates every window with the change.
    pub fn run(&self, change: &Change) -> Result<Vec<Outcome>> {
        let mut studies = Vec::new();
        for window in &self.windows {
            let mut study = Study::read(&window.join("scenario.toml"))?;
            change.apply(&mut study, window)?;
            study.world(None)?; // what is wrong with it is said before anything is simulated
            studies.push((window.clone(), study));
        }
        let run = |(window, study): (PathBuf, Study)| -> Result<Outcome> {
            let measured = study.run(&Options { quiet: true, ..Options::default() })?;
            let outcome = measured.runs().next().map(|(_, outcome)| outcome.clone());
            outcome.with_context(|| format!("{}: nothing was simulated", window.display()))
        };
        on_all_cores(studies, run).into_iter().collect()
    }

    /// The same, judged.
    pub fn judge(&self, change: &Change) -> Result<BTreeMap<String, Judged>> {
        Ok(judged(&self.run(change)?))
    }
}

/// The scheduler of a recorded window, and what it charges, where that is said.
pub fn scheduler_of(window: &Path) -> Result<(String, Option<String>)> {
    let mut study = Study::read(&window.join("scenario.toml"))?;
    let point = |e| study.source.point(e);
    let node = study.experiment.base.table("node").map_err(point)?;
    let mut node = node.context("a recording has a [node]")?;
    let (name, mut knobs) = node.choice("scheduler").map_err(point)?.context("a node has a scheduler")?;
    let cost = knobs.text("cost").ok().flatten();
    Ok((name, cost))
}

#[cfg(test)]
pub(crate) mod tests;
