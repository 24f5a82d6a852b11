//! `henge nodes`: the nodes of a manager. `henge token`: who may ask it.

use super::api::{Api, ManagerArg, escaped};
use anyhow::Result;
use comfy_table::{Table, presets};
use henge_core::{format_size, parse_duration};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `henge nodes`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// All nodes and what is left of their pools
    List {
        #[command(flatten)]
        manager: ManagerArg,
        /// Print the manager's answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// One node with its disks
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        manager: ManagerArg,
        /// Print the manager's answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Place no new disks on a node. Disks that other gateways can serve go to them, and no client sees an error; of each other disk it is
    /// said why it stays. Fails while a disk that has other gateways is still there
    Drain {
        /// Its name
        name: String,
        /// Place new disks there again, and let it have disks of gateways
        #[arg(long)]
        undo: bool,
        /// How long to wait for disks to go
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
        wait: henge_core::Duration,
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// Forget a node that is away and has no disks
    Forget {
        /// Its name
        name: String,
        #[command(flatten)]
        manager: ManagerArg,
    },
}

/// Asks the manager.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::List { manager, json } => {
            let answer = manager.connect()?.get("nodes")?;
            if json {
                println!("{answer}")
            } else {
                list(answer["nodes"].as_array().map_or(&[], Vec::as_slice))
            }
        }
        Action::Show { name, manager, json } => {
            let node = manager.connect()?.get(&format!("nodes/{}", escaped(&name)))?;
            if json { println!("{node}") } else { show(&node) }
        }
        Action::Drain { name, undo, wait, manager } => {
            let (api, path) = (manager.connect()?, format!("nodes/{}/drain", escaped(&name)));
            api.ask(if undo { "DELETE" } else { "POST" }, &path, None, &[])?;
            if undo {
                println!("{name} takes new disks again");
            } else {
                println!("{name} takes no new disks");
                return drained(&api, &name, Duration::from_nanos(wait.as_nanos()));
            }
        }
        Action::Forget { name, manager } => {
            manager.connect()?.ask("DELETE", &format!("nodes/{}", escaped(&name)), None, &[])?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A gateway tries again what it could not let go of before: what it said of that is a second old.
const SETTLES: Duration = Duration::from_secs(3);

/// Waits until all disks have gone that can, and says what became of each.
fn drained(api: &Api, name: &str, wait: Duration) -> Result<ExitCode> {
    let began = Instant::now();
    let disks = loop {
        let node = api.get(&format!("nodes/{}", escaped(name)))?;
        let disks = node["leaving"].as_array().cloned().unwrap_or_default();
        let moves = disks.iter().any(|disk| disk["state"] == "moving");
        let tries = disks.iter().any(|disk| disk["at"] == name) && began.elapsed() < SETTLES;
        if !(moves || tries) || began.elapsed() >= wait {
            break disks;
        }
        std::thread::sleep(Duration::from_millis(250));
    };
    for disk in &disks {
        println!("{:<12}{}", text(&disk["disk"]), left(disk));
    }
    let is_there = |disk: &Value| disk["state"] == "moving" || disk["at"] == name;
    Ok(if disks.iter().any(is_there) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What became of a disk of a node that is drained.
fn left(disk: &Value) -> String {
    match disk["state"].as_str() {
        Some("moved") => format!("is at {} now", text(&disk["at"])),
        Some("stays") => format!("stays: {}", text(&disk["why"])),
        _ => "is on its way still; `henge nodes show` says when it has gone".into(),
    }
}

fn names(list: &Value) -> String {
    let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join(", ")
}

fn state(node: &Value) -> &'static str {
    match (node["connected"] == true, node["draining"] == true) {
        (true, false) => "up",
        (true, true) => "up, draining",
        (false, false) => "away",
        (false, true) => "away, draining",
    }
}

fn list(nodes: &[Value]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "NODE",
        "STATE",
        "POOL",
        "CAPACITY",
        "FREE",
        "REQUESTS/S",
        "FREE",
        "COPIES",
        "SCHEDULER",
        "KEEPS",
        "DISKS",
    ]);
    for node in nodes {
        let disks = node["disks"].as_array().map_or(0, Vec::len);
        for (i, pool) in node["pools"].as_array().into_iter().flatten().enumerate() {
            let first = |text: String| if i == 0 { text } else { String::new() };
            let (capacity, used) =
                (pool["capacity"].as_u64().unwrap_or(0), pool["used"].as_u64().unwrap_or(0));
            let rate = |key: &str| pool[key].as_f64().map_or("-".to_owned(), |r| format!("{r:.1}"));
            table.add_row([
                first(text(&node["name"])),
                first(state(node).into()),
                text(&pool["name"]),
                format_size(capacity),
                format_size(capacity.saturating_sub(used)),
                rate("iops"),
                rate("free"),
                pool["copies"].to_string(),
                text(&pool["scheduler"]),
                keeps(pool),
                first(disks.to_string()),
            ]);
        }
    }
    println!("{table}");
}

/// Terms of a contract that a pool keeps, as its node says.
fn keeps(pool: &Value) -> String {
    match (pool["keeps"].is_array(), names(&pool["keeps"])) {
        (false, _) => "not said".into(),
        (true, terms) if terms.is_empty() => "none".into(),
        (true, terms) => terms,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn show(node: &Value) {
    let line = |what: &str, value: String| println!("{what:<12}{value}");
    line("name", text(&node["name"]));
    line("state", state(node).into());
    line("addresses", names(&node["addresses"]));
    line("disks", names(&node["disks"]));
    line("its own", names(&node["own"]));
    for disk in node["leaving"].as_array().into_iter().flatten() {
        line("leaving", format!("{} {}", text(&disk["disk"]), left(disk)));
    }
    println!();
    list(std::slice::from_ref(node));
}

/// Arguments of `henge token`.
#[derive(clap::Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(clap::Subcommand)]
enum TokenAction {
    /// Make a token for a tenant, or another administrator's; it is printed once
    Create {
        /// The tenant; none: an administrator
        tenant: Option<String>,
        /// How long it opens anything, like 720h
        #[arg(long, value_name = "TIME")]
        lasts: Option<String>,
        /// It may look, and change nothing
        #[arg(long)]
        read: bool,
        /// It opens this disk of the tenant alone
        #[arg(long, value_name = "NAME")]
        disk: Option<String>,
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// All tokens, without their secrets
    List {
        #[command(flatten)]
        manager: ManagerArg,
    },
    /// Remove a token; it opens nothing from now on, and pages that it has open end
    Rm {
        /// As `list` shows it
        id: String,
        #[command(flatten)]
        manager: ManagerArg,
    },
}

/// Asks the manager.
pub fn run_token(args: TokenArgs) -> Result<ExitCode> {
    match args.action {
        TokenAction::Create { tenant, lasts, read, disk, manager } => {
            let mut body = json!({ "read": read });
            for (key, value) in [("tenant", tenant), ("lasts", lasts), ("disk", disk)] {
                if let Some(value) = value {
                    body[key] = Value::String(value);
                }
            }
            let made = manager.connect()?.ask("POST", "tokens", Some(&body), &[])?.body;
            println!("{}", text(&made["token"]));
        }
        TokenAction::List { manager } => {
            let answer = manager.connect()?.get("tokens")?;
            let mut table = Table::new();
            table.load_style(presets::NOTHING).set_header(["TOKEN", "OF", "MAY", "DISK", "EXPIRES"]);
            for token in answer["tokens"].as_array().into_iter().flatten() {
                let of =
                    token["tenant"].as_str().map_or("an administrator".to_owned(), |t| format!("tenant {t}"));
                let expires = token["expires"].as_u64().map_or("never".to_owned(), crate::when::when);
                let may = if token["read"] == true { "look" } else { "change" };
                let disk = token["disk"].as_str().unwrap_or("all").to_owned();
                table.add_row([text(&token["id"]), of, may.to_owned(), disk, expires]);
            }
            println!("{table}");
        }
        TokenAction::Rm { id, manager } => {
            manager.connect()?.ask("DELETE", &format!("tokens/{}", escaped(&id)), None, &[])?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
