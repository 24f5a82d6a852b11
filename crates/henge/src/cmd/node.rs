//! `henge node`: serve virtual disks.

use anyhow::{Context, Result};
use henge_node::{Address, Node, NodeConfig, Signals};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `henge node`.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration, a TOML file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Say what it would do here, and end
    #[arg(long)]
    check: bool,
    /// Write one row per request to this file, with the simulator's columns
    #[arg(long, value_name = "FILE")]
    requests: Option<PathBuf>,
}

/// Serves until it is told to end.
pub fn run(args: Args) -> Result<ExitCode> {
    let mut config = NodeConfig::read(&args.config)?;
    if args.check {
        for line in henge_node::check(&config)? {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    config.requests = args.requests.or(config.requests);
    let disks: Vec<String> = config.disks.iter().map(|disk| disk.name.clone()).collect();
    let signals = Signals::block();
    let node = Node::start(config)?;
    for address in node.addresses() {
        announce(address, &disks);
    }
    while !signals.wait(Duration::from_secs(1)) && !node.has_ended() {}
    node.stop().context("the node did not end well")?;
    Ok(ExitCode::SUCCESS)
}

fn announce(address: &Address, disks: &[String]) {
    match disks {
        [] => println!("listening on {}", address.uri("")),
        disks => disks.iter().for_each(|disk| println!("serving {}", address.uri(disk))),
    }
}
