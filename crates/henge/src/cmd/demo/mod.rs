//! `henge demo`: three tenants on emulated disk arrays, over NBD, under three schedulers.

mod loads;
mod show;

use anyhow::{Context, Result, bail};
use henge_config::Source;
use henge_core::Duration;
use henge_node::{Control, Node, NodeConfig, Signals};
use henge_web::Access;
use loads::{Measured, Tenant};
use show::Screen;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `henge demo`.
#[derive(clap::Args)]
pub struct Args {
    /// How long each scheduler is shown
    #[arg(long, default_value = "20s", value_name = "TIME", value_parser = duration)]
    each: Duration,

    /// Take VD1's and VD2's loads from the traces in this folder whose names begin with financial1 and websearch1 (any
    /// format; sizes are 4 KiB pages where the name has 4kpages) instead of generators with their statistics
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,

    /// Leave the node up afterwards, for clients of your own
    #[arg(long)]
    keep: bool,

    /// Where clients come in
    #[arg(long, default_value = "nbd://127.0.0.1:0", value_name = "URI")]
    listen: String,

    /// Where the web page is meanwhile, like 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    http: Option<std::net::SocketAddr>,

    /// Where the node's control socket is, for henge top, henge vd and henge record
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Seed of the loads
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = henge_core::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_secs(1) {
        Err("show each scheduler for a second at least".into())
    } else {
        Ok(time)
    }
}

/// One scheduler's turn on the stage.
pub struct Act {
    /// As people know it.
    name: &'static str,
    /// What it does, in a few words.
    what: &'static str,
    /// As the pools are told.
    scheduler: &'static str,
}

const ACTS: [Act; 3] = [
    Act {
        name: "CSCAN",
        what: "an ordinary disk scheduler: the nearest request ahead of the head goes next, whoever's it is",
        scheduler: "{ cscan = { per = \"spindle\", unkept = \"ignore\" } }",
    },
    Act {
        name: "VC",
        what: "Virtual Clock: the earliest finish time goes next, wherever the head is",
        scheduler: "{ vc = { per = \"spindle\" } }",
    },
    Act {
        name: "CVC",
        what: "Virtual Clock with a CSCAN queue: the nearest request, as long as no finish time is missed for it",
        scheduler: "{ cvc = { per = \"spindle\" } }",
    },
];

const POOLS: [&str; 3] = ["array0", "array1", "array2"];

/// How one act went.
pub struct ActResult {
    act: &'static Act,
    tenants: Vec<Measured>,
    /// Worst p99 of the emulated disks' lateness.
    lateness: Duration,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    let signals = Signals::block();
    let text = include_str!("demo.toml").replace("nbd://127.0.0.1:0", &args.listen);
    let mut config = NodeConfig::parse(Source::new("demo.toml", text))?;
    config.control.clone_from(&args.control);
    config.state.forgets = true;
    if let Some(http) = args.http.filter(|http| !http.ip().is_loopback()) {
        bail!(
            "--http {http}: the demo's page has no tokens, so it is for this machine alone, like 127.0.0.1:8080"
        );
    }
    let tenants = loads::tenants(args.traces.as_deref(), args.seed)?;
    let node = Node::start(config)?;
    let _page = args.http.map(|http| super::node::page(&node, http, None, Access::default())).transpose()?;
    let address = node.addresses().first().context("the node listens nowhere")?.clone();
    let mut screen = Screen::new(args.json);
    screen.introduce(&tenants, &args.each, args.traces.is_some());
    let mut results = Vec::new();
    for act in &ACTS {
        let measured = play(act, &node, &address, &tenants, args.each, &mut screen, &signals)?;
        let Some(result) = measured else { break };
        screen.act_is_over(&result);
        results.push(result);
    }
    if results.len() < ACTS.len() {
        bail!("interrupted");
    }
    screen.conclude(&results);
    if args.keep {
        screen.keep(&address);
        while !signals.wait(std::time::Duration::from_secs(3600)) {}
    }
    node.stop().context("stopping the node")?;
    Ok(ExitCode::SUCCESS)
}

/// All tenants under one scheduler; `None` when the user ended it.
fn play(
    act: &'static Act,
    node: &Node,
    address: &henge_node::Address,
    tenants: &[Tenant],
    each: Duration,
    screen: &mut Screen,
    signals: &Signals,
) -> Result<Option<ActResult>> {
    for pool in POOLS {
        node.control().exchange(pool, act.scheduler)?;
    }
    node.control().reset()?;
    screen.act_begins(act);
    let running = loads::start(tenants, address, each)?;
    while !running.are_over() {
        if signals.wait(std::time::Duration::from_millis(200)) {
            return Ok(None);
        }
        screen.progress(act, &running.progress());
    }
    let measured = running.finish()?;
    Ok(Some(ActResult { act, tenants: measured, lateness: lateness(node.control())? }))
}

/// The emulated disks' own lateness: the worst gate's 99th percentile.
fn lateness(control: &Control) -> Result<Duration> {
    let status = control.status()?;
    let gates = status.pools.iter().flat_map(|p| &p.gates);
    let worst = gates.filter_map(|g| g.lateness_p99).max().unwrap_or(0);
    Ok(Duration::from_nanos(worst))
}
