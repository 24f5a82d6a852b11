//! Scenarios from text, for tests.
#![allow(dead_code)] // each test file uses some of it

use henge_config::Source;
use henge_core::{ParamError, RequestRow};
use henge_sim::{Observer, Outcome, Outside, SimError, Unwatched, World};

/// Collects the rows of a run as CSV.
#[derive(Default)]
pub struct Rows(pub String);

impl Observer for Rows {
    fn row(&mut self, row: &RequestRow<'_>) {
        row.write(&mut self.0);
    }
    fn wants_rows(&self) -> bool {
        true
    }
}

/// A scenario's world, or what is wrong with its text.
pub fn world(text: &str) -> Result<World, ParamError> {
    let source = Source::new("test.toml", text);
    let params = source.parse("the scenario").map_err(|e| e.param().clone())?;
    let traces = |spec: &henge_workload::TraceSpec| Err(format!("{} is not here", spec.file));
    World::build(params, &Outside { devices: &henge_device::no_files, traces: &traces })
}

/// What the user would read.
pub fn complaint(text: &str) -> String {
    let error = world(text).err().expect("this scenario is wrong");
    Source::new("test.toml", text).point(error).to_string()
}

fn built(text: &str) -> World {
    world(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Runs it, and writes a row of each request.
pub fn run(text: &str) -> Result<(Outcome, String), SimError> {
    let mut rows = Rows::default();
    let outcome = built(text).run(&mut rows)?;
    Ok((outcome, rows.0))
}

/// Runs it: what comes of it, and no rows.
pub fn outcome(text: &str) -> Outcome {
    built(text).run(&mut Unwatched).unwrap_or_else(|e| panic!("{e}\n{text}"))
}
