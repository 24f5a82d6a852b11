//! `henge tenant`: what each tenant of a manager may have, what it has, and what is left.

use super::api::{ManagerArg, escaped};
use anyhow::{Result, bail};
use comfy_table::{Table, presets};
use henge_core::{format_size, parse_size};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

const ABOUT: &str = "\
A quota counts all disks of a tenant together. The administrator sets the ceiling; with a tenant's own token the same command sets a quota
below it, and of both the lower one counts. What is beyond is refused with 409 and what is left. Lowering a quota takes nothing away.

    henge tenant set ann --disks 10 --bytes 1TB --rate 5000/s --latency 5ms
    henge tenant show ann
    henge tenant set ann --bytes none              # no bound any more

A tenant is there once it has a token, a disk or a quota. Its disk `web` is `ann.web` for nodes, clients and the administrator.";

/// Arguments of `henge tenant`.
#[derive(clap::Args)]
#[command(after_help = ABOUT)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Set what a tenant may have; what is not mentioned stays, "none" takes a bound away
    Set {
        /// The tenant
        name: String,
        #[command(flatten)]
        quota: QuotaArgs,
        #[command(flatten)]
        manager: ManagerArg,
        /// Print the manager's answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// All tenants, with what they have of what they may have
    List {
        #[command(flatten)]
        manager: ManagerArg,
        /// Print the manager's answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// One tenant: what it may have, what it has, and what is left
    Show {
        /// The tenant
        name: String,
        #[command(flatten)]
        manager: ManagerArg,
        /// Print the manager's answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget a tenant that has no disks, with its tokens and its clients' certificates; what they have open ends
    Rm {
        /// The tenant
        name: String,
        #[command(flatten)]
        manager: ManagerArg,
    },
}

#[derive(clap::Args, Default)]
#[group(required = true, multiple = true)]
struct QuotaArgs {
    /// Most disks
    #[arg(long, value_name = "N")]
    disks: Option<String>,
    /// Their capacities together, like 1TB
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// Requests a second that may be reserved for them together, like 5000/s; a promised latency takes a reservation, too
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Their limits together, like 20000/s; every disk states one then
    #[arg(long, value_name = "RATE")]
    limit: Option<String>,
    /// Their weights together; a disk that states none has 1
    #[arg(long, value_name = "N")]
    weight: Option<String>,
    /// The shortest latency that a disk may be promised, like 5ms
    #[arg(long, value_name = "TIME")]
    latency: Option<String>,
    /// Requests that may come at once on top of their rates and limits together; a tenant sets bursts only where this is stated
    #[arg(long, value_name = "N")]
    burst: Option<String>,
    /// Their shares of disk time together, at each pool that a disk lies on, like 50%; a tenant sets shares only where this is stated
    #[arg(long, value_name = "SHARE")]
    share: Option<String>,
}

impl QuotaArgs {
    fn patch(self) -> Result<Value> {
        let mut patch = Map::new();
        for (key, text) in [("disks", self.disks), ("weight", self.weight), ("burst", self.burst)] {
            let Some(text) = text else { continue };
            let value = match text.parse::<u32>() {
                Ok(n) => json!(n),
                Err(_) if text == "none" => Value::Null,
                Err(_) => bail!("{key} is a whole number or \"none\", not \"{text}\""),
            };
            patch.insert(key.into(), value);
        }
        let texts = [
            ("bytes", self.bytes),
            ("rate", self.rate),
            ("limit", self.limit),
            ("latency", self.latency),
            ("share", self.share),
        ];
        for (key, text) in texts {
            let Some(text) = text else { continue };
            patch.insert(key.into(), if text == "none" { Value::Null } else { Value::String(text) });
        }
        Ok(Value::Object(patch))
    }
}

/// Whether the terms of a quota are numbers where they have to be.
pub fn understood(args: Args) -> Result<()> {
    match args.action {
        Action::Set { quota, .. } => quota.patch().map(drop),
        _ => Ok(()),
    }
}

/// Asks the manager.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Set { name, quota, manager, json } => {
            let path = format!("tenants/{}", escaped(&name));
            let tenant = manager.connect()?.ask("PATCH", &path, Some(&quota.patch()?), &[])?.body;
            if json { println!("{tenant}") } else { show(&tenant) }
        }
        Action::List { manager, json } => {
            let answer = manager.connect()?.get("tenants")?;
            if json {
                println!("{answer}")
            } else {
                list(answer["tenants"].as_array().map_or(&[], Vec::as_slice))
            }
        }
        Action::Show { name, manager, json } => {
            let tenant = manager.connect()?.get(&format!("tenants/{}", escaped(&name)))?;
            if json { println!("{tenant}") } else { show(&tenant) }
        }
        Action::Rm { name, manager } => {
            let path = format!("tenants/{}", escaped(&name));
            let gone = manager.connect()?.ask("DELETE", &path, None, &[])?.body;
            println!(
                "{} token(s) ended, {} certificate(s) revoked, {} invitation(s) taken back",
                gone["tokens"], gone["certificates"], gone["invitations"]
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The terms of a quota, in the order in which they are shown.
const TERMS: [&str; 8] = ["disks", "bytes", "rate", "limit", "weight", "latency", "burst", "share"];

/// One term of a quota; "-" where it states none.
fn term(quota: &Value, key: &str) -> String {
    match &quota[key] {
        Value::Number(n) => n.to_string(),
        Value::String(text) if key == "bytes" => parse_size(text).map_or(text.clone(), format_size),
        Value::String(text) => text.clone(),
        _ => "-".into(),
    }
}

fn list(tenants: &[Value]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["TENANT", "DISKS", "LEFT", "BYTES", "LEFT", "RATE", "LEFT", "LIMIT", "LEFT", "TOKENS"]);
    for tenant in tenants {
        let mut row = vec![tenant["name"].as_str().unwrap_or_default().to_owned()];
        for key in &TERMS[..4] {
            row.extend([term(&tenant["used"], key), term(&tenant["left"], key)]);
        }
        row.push(tenant["tokens"].to_string());
        table.add_row(row);
    }
    println!("{table}");
}

fn show(tenant: &Value) {
    println!("{:<12}{}", "name", tenant["name"].as_str().unwrap_or_default());
    println!("{:<12}{}", "tokens", tenant["tokens"]);
    println!("{:<12}{}", "clients", tenant["clients"]);
    println!();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "CEILING", "OWN QUOTA", "IN USE", "LEFT"]);
    for key in TERMS {
        let cells = ["ceiling", "own", "used", "left"].map(|part| term(&tenant[part], key));
        let [ceiling, own, used, left] = cells;
        // The shortest latency is no amount: nothing of it is left.
        let left = if key == "latency" { "-".to_owned() } else { left };
        table.add_row([key.to_owned(), ceiling, own, used, left]);
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mentioned_stays_and_none_takes_away() {
        let args = QuotaArgs {
            disks: Some("10".into()),
            bytes: Some("none".into()),
            rate: Some("5000/s".into()),
            weight: Some("none".into()),
            burst: Some("64".into()),
            share: Some("none".into()),
            ..QuotaArgs::default()
        };
        let patch = args.patch().unwrap();
        let meant = json!({
            "disks": 10, "bytes": null, "rate": "5000/s", "weight": null, "burst": 64, "share": null
        });
        assert_eq!(patch, meant);
        let bad = QuotaArgs { disks: Some("ten".into()), ..QuotaArgs::default() };
        assert!(bad.patch().unwrap_err().to_string().contains("whole number"));
        assert_eq!(term(&json!({ "bytes": "40000000000B" }), "bytes"), "40GB");
        assert_eq!(term(&json!({}), "rate"), "-");
    }
}
