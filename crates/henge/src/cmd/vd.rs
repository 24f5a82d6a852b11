//! `henge vd`: virtual disks of a running node.

use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use henge_core::{Duration, format_size};
use henge_node::{DiskStatus, Request, Status};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `henge vd`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// All disks with their contracts and what they receive
    List {
        #[command(flatten)]
        node: NodeArg,
    },
    /// Everything about one disk
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        node: NodeArg,
    },
    /// Change terms of a contract; at once, for queued and new requests
    Set {
        /// The disk's name
        name: String,
        #[command(flatten)]
        node: NodeArg,
        /// Terms as the configuration writes them: limit=675/s weight=4; an empty value takes a term away
        #[arg(required = true, value_name = "TERM=VALUE")]
        terms: Vec<String>,
    },
    /// Make a disk on a pool of the node
    Add {
        /// The disk's name
        name: String,
        #[command(flatten)]
        node: NodeArg,
        /// Keys of the disk, as the configuration has them: capacity=1GiB pool=ssd stripe=64KiB
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Remove a disk and its data
    Remove {
        /// The disk's name
        name: String,
        #[command(flatten)]
        node: NodeArg,
    },
}

#[derive(clap::Args)]
struct NodeArg {
    /// The node's control socket
    #[arg(long, value_name = "SOCKET", env = "HENGE_NODE", default_value = "/run/henge/node.sock")]
    node: PathBuf,
    /// Print the node's answer as JSON
    #[arg(long)]
    json: bool,
}

/// Asks the node.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::List { node } => {
            let status = status(&node.node)?;
            if node.json {
                println!("{}", serde_json::to_string(&status)?);
            } else {
                list(&status);
            }
        }
        Action::Show { name, node } => {
            let status = status(&node.node)?;
            let known = || status.disks.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
            let disk = status.disk(&name);
            let disk =
                disk.with_context(|| format!("there is no disk \"{name}\"; there are: {}", known()))?;
            if node.json {
                println!("{}", serde_json::to_string(disk)?);
            } else {
                show(disk);
            }
        }
        Action::Set { name, node, terms } => {
            let contract = pairs(&terms)?.into_iter().collect::<BTreeMap<_, _>>();
            ask(&node.node, &Request::Set { name, contract })?;
        }
        Action::Add { name, node, keys } => {
            let mut disk = format!("name = {name:?}\n");
            for (key, value) in pairs(&keys)? {
                disk.push_str(&format!("{key} = {}\n", toml_value(&value)));
            }
            ask(&node.node, &Request::Add { disk })?;
        }
        Action::Remove { name, node } => drop(ask(&node.node, &Request::Remove { name })?),
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(node: &Path, request: &Request) -> Result<henge_node::Reply> {
    let reply = henge_node::ask(node, request)?;
    match reply.error {
        Some(why) => bail!("{why}"),
        None => Ok(reply),
    }
}

fn status(node: &Path) -> Result<Status> {
    ask(node, &Request::Status)?.status.context("the node sent no status")
}

/// `key=value`, several of them.
fn pairs(terms: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |term: &String| match term.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("\"{term}\" is not TERM=VALUE, like limit=675/s"),
    };
    terms.iter().map(pair).collect()
}

/// Numbers, lists and tables as they are; everything else is a text.
fn toml_value(value: &str) -> String {
    let bare = value.parse::<f64>().is_ok() || matches!(value, "true" | "false");
    if bare || value.starts_with(['{', '[', '"']) { value.to_owned() } else { format!("{value:?}") }
}

fn time(ns: u64) -> String {
    let rounded = match ns {
        0..10_000 => ns,
        10_000..10_000_000 => ns / 1_000 * 1_000,
        _ => ns / 100_000 * 100_000,
    };
    Duration::from_nanos(rounded).to_string()
}

fn contract(disk: &DiskStatus) -> String {
    if disk.contract.is_empty() {
        return "best effort".into();
    }
    disk.contract.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

fn list(status: &Status) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "DISK",
        "CAPACITY",
        "CONTRACT",
        "CLIENTS",
        "PENDING",
        "IOPS",
        "MEDIAN",
        "P95",
        "WAITS FOR",
    ]);
    for disk in &status.disks {
        table.add_row([
            disk.name.clone(),
            format_size(disk.capacity),
            contract(disk),
            disk.connections.to_string(),
            disk.pending.to_string(),
            format!("{:.1}", disk.rate()),
            time(disk.latency.p50),
            time(disk.latency.p95),
            disk.waiting.clone().unwrap_or_default(),
        ]);
    }
    println!("{table}");
}

fn show(disk: &DiskStatus) {
    let line = |what: &str, value: String| println!("{what:<12}{value}");
    line("name", disk.name.clone());
    line("capacity", format_size(disk.capacity));
    line("contract", contract(disk));
    line("clients", disk.connections.to_string());
    line("pending", disk.pending.to_string());
    line("metered for", time(disk.metered));
    line("commands", format!("{} ({} reads, {} failed)", disk.commands, disk.reads, disk.failed));
    line("received", format!("{:.1} commands/s, {} in all", disk.rate(), format_size(disk.bytes)));
    let l = disk.latency;
    line(
        "latency",
        format!("median {}, p95 {}, p99 {}, longest {}", time(l.p50), time(l.p95), time(l.p99), time(l.max)),
    );
    if disk.contract.contains_key("latency") {
        line("in bound", format!("{:.2} %", disk.in_bound() * 100.0));
    }
    line("waits for", disk.waiting.clone().unwrap_or_else(|| "nothing".into()));
}
