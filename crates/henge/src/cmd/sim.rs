//! `henge sim`: run a scenario in simulated time.

use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `henge sim`.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario, a TOML file
    pub scenario: PathBuf,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    let source = henge_config::Source::read(&args.scenario)?;
    source.parse("the scenario")?;
    Ok(ExitCode::SUCCESS)
}
