//! The one command.

mod cmd;

use clap::{Parser, Subcommand};

/// Storage that performs as promised, whatever the neighbours do.
#[derive(Parser)]
#[command(version, about, propagate_version = true)]
struct Henge {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a scenario in simulated time
    Sim(cmd::sim::Args),
}

fn main() -> std::process::ExitCode {
    let result = match Henge::parse().command {
        Command::Sim(args) => cmd::sim::run(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("henge: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
