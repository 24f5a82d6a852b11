//! Changes tried on what was recorded: `henge plan` and `henge vd propose`.

mod change;
mod judged;

pub use change::{Added, Change, Term, flows};
pub use judged::{Judged, judged};

use crate::recording;
use crate::study::{Options, Study, on_all_cores};
use anyhow::{Context, Result};
use henge_sim::Outcome;
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

#[cfg(test)]
mod tests;
