//! `henge sim`: run a scenario in simulated time.

use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `henge sim`.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario, a TOML file
    #[arg(required_unless_present = "disk")]
    pub scenario: Option<PathBuf>,
    /// One CSV row per request
    #[arg(long, value_name = "FILE")]
    pub requests: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// A single disk instead of a scenario.
    #[command(flatten)]
    pub disk: super::sim_disk::DiskArgs,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    let Some(scenario) = &args.scenario else {
        return super::sim_disk::run(&args.disk, args.requests.as_deref(), args.json);
    };
    let source = henge_config::Source::read(scenario)?;
    source.parse("the scenario")?;
    Ok(ExitCode::SUCCESS)
}
