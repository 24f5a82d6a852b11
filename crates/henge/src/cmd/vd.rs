//! `henge vd`: virtual disks, of a manager or of one running node.

use super::api::{Api, ManagerArg};
use super::{vd_manager, vd_propose};
use crate::when::when;
use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use henge_api::{DiskStatus, FailedDisk, Kept, Request, Status, Table as Keys};
use henge_config::Source;
use henge_core::{Contract, Duration, Term, format_size};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const WHO: &str = "\
list, show and set ask a manager if one is named (--manager, HENGE_MANAGER), else the node at its control socket; a manager on this \
machine is asked where no socket is. create, rm and events need a manager, add and remove a node.";

/// Arguments of `henge vd`.
#[derive(clap::Args)]
#[command(after_help = WHO)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Create a disk on whichever node keeps what it asks for; or say why not, and what would fit
    Create {
        /// The disk's name
        name: String,
        #[command(flatten)]
        manager: ManagerArg,
        /// capacity=96GB rate=675/s latency=120ms percentile=95 pending=7 copies=1 weight=1 limit=2000/s burst=64; or a share of disk
        /// time: share=25% kind=rent; all terms: docs/reference.md. On a pool of images an administrator may say what it begins with:
        /// from=golden@1 (a snapshot), image=vm-17 (one that is there), adopt=true (what a former disk of its name has left)
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
        /// Whose it is, if the administrator asks
        #[arg(long)]
        tenant: Option<String>,
        /// Who may attach by NBD: a name in a certificate, like CN=ann (several: repeat it), or "anyone"; nobody if not stated. By iSCSI
        /// and NVMe, who knows the secret that is printed
        #[arg(long, value_name = "WHO")]
        nbd: Vec<String>,
        /// Only say what admission would
        #[arg(long)]
        preview: bool,
        /// Print the manager's answer as JSON
        #[arg(long)]
        json: bool,
    },
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
    /// A node's pools: what each gate has at its device, and what requests cost there, where that is learned
    Pools {
        #[command(flatten)]
        node: NodeArg,
    },
    /// Change terms of a contract, at once, for queued and new requests; or make a disk larger: capacity=12GB
    Set {
        /// The disk's name
        name: String,
        #[command(flatten)]
        node: NodeArg,
        /// Terms as the configuration writes them: limit=675/s weight=4; an empty value takes a term away. A larger capacity is
        /// seen by NBD clients that connect anew, and iSCSI initiators are told; a disk does not shrink. At a node, who may use a disk
        /// that was added there: nbd=nobody iscsi={…} nvme={…}, all that is to hold, and sessions from before end
        #[arg(required = true, value_name = "TERM=VALUE")]
        terms: Vec<String>,
    },
    /// The cheapest contract that the recorded load would have kept, to be pasted into `henge vd set`
    Propose(vd_propose::Args),
    /// Make a disk on a pool of one node, without a manager
    Add {
        /// The disk's name
        name: String,
        #[command(flatten)]
        node: NodeArg,
        /// Keys of the disk and terms of its contract, as the configuration has them: capacity=1GiB pool=ssd weight=4 limit=675/s
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// What happened: admitted, changed, violated, recovered; kept across restarts
    Events {
        /// Of this disk alone
        name: Option<String>,
        #[command(flatten)]
        node: NodeArg,
        /// At most so many, the newest
        #[arg(long, default_value_t = 50, value_name = "N")]
        most: usize,
        /// Wait for more
        #[arg(short, long)]
        follow: bool,
    },
    /// Give a disk other secrets, by the manager: those from before open nothing, and who is attached by them is sent away
    Rekey {
        /// The disk's name
        #[arg(required_unless_present = "tenant", conflicts_with = "tenant")]
        name: Option<String>,
        #[command(flatten)]
        manager: ManagerArg,
        /// All disks of this tenant
        #[arg(long)]
        tenant: Option<String>,
        /// Who may attach by NBD from now on: a name in a certificate, like CN=ann (several: repeat it), or "anyone"; as before if not stated
        #[arg(long, value_name = "WHO")]
        nbd: Vec<String>,
        /// Print the manager's answers as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a disk and its data, by the manager
    Rm {
        /// The disk's name
        name: String,
        #[command(flatten)]
        manager: ManagerArg,
        /// Even if clients are connected
        #[arg(long)]
        force: bool,
    },
    /// Remove a disk and its data, at its node
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
    #[arg(long, value_name = "SOCKET", env = "HENGE_NODE")]
    node: Option<PathBuf>,
    #[command(flatten)]
    manager: ManagerArg,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Where a node's control socket is by default.
const SOCKET: &str = "/run/henge/node.sock";

impl NodeArg {
    fn socket(&self) -> PathBuf {
        self.node.clone().unwrap_or_else(|| SOCKET.into())
    }

    /// The manager, if that is whom to ask.
    fn manager(&self) -> Result<Option<Api>> {
        let by_node = self.node.is_some() && self.manager.manager.is_none();
        if by_node || (self.manager.manager.is_none() && Path::new(SOCKET).exists()) {
            return Ok(None);
        }
        self.manager.connect().map(Some)
    }
}

/// Whether terms and keys are ones of a disk, with values as they are written.
pub fn understood(args: &Args) -> Result<()> {
    match &args.action {
        Action::Create { keys, .. } => {
            vd_manager::begins(pairs(keys)?).and_then(|(_, rest)| vd_manager::spec(rest)).map(drop)
        }
        Action::Add { name, keys, .. } => {
            let keys = pairs(keys)?;
            disk_of(name, &keys)?;
            terms_of(&keys)
        }
        Action::Set { terms, .. } => {
            let own = |key: &str| key == "capacity" || is_door(key);
            let (doors, terms): (Vec<_>, Vec<_>) = pairs(terms)?.into_iter().partition(|(key, _)| own(key));
            doors.iter().try_for_each(|(key, typed)| own_key(key, typed).map(drop))?;
            terms_of(&terms)
        }
        _ => Ok(()),
    }
}

/// Whether what is no key of a disk makes a contract. An empty value takes a term away.
fn terms_of(keys: &[(String, String)]) -> Result<()> {
    let mut contract = Keys::default();
    for (key, typed) in keys.iter().filter(|(key, _)| !is_own(key)) {
        if Term::of(key).is_none() {
            bail!("a contract has no \"{key}\"");
        }
        if !typed.is_empty() {
            contract.set(key, henge_api::json(&Term::value(key, typed).map_err(anyhow::Error::msg)?));
        }
    }
    let mut params = contract.params("the contract")?;
    Contract::from_params(&mut params)?;
    Ok(params.finish()?)
}

/// Asks the manager or the node.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Create { name, manager, keys, tenant, nbd, preview, json } => {
            let (begins, terms) = vd_manager::begins(pairs(&keys)?)?;
            let spec = vd_manager::spec(terms)?;
            if preview {
                let yes = vd_manager::preview(&manager.connect()?, spec, json)?;
                return Ok(if yes { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            vd_manager::create(&manager.connect()?, &name, (spec, begins), tenant, nbd, json)?;
        }
        Action::Rekey { name, manager, tenant, nbd, json } => {
            let api = manager.connect()?;
            let names = match (name, tenant) {
                (Some(name), _) => vec![name],
                (None, tenant) => vd_manager::exports_of(&api, tenant.as_deref())?,
            };
            names.iter().try_for_each(|name| vd_manager::rekey(&api, name, &nbd, json))?;
        }
        Action::Rm { name, manager, force } => vd_manager::remove(&manager.connect()?, &name, force)?,
        Action::List { node } => match node.manager()? {
            Some(api) => vd_manager::list(&api, node.json)?,
            None => list_at_node(&node)?,
        },
        Action::Show { name, node } => match node.manager()? {
            Some(api) => vd_manager::show(&api, &name, node.json)?,
            None => show_at_node(&name, &node)?,
        },
        Action::Pools { node } => {
            let status = status(&node.socket())?;
            match node.json {
                true => println!("{}", serde_json::to_string(&status.pools)?),
                false => super::vd_pools::show(&status.pools),
            }
        }
        Action::Set { name, node, terms } => match node.manager()? {
            Some(api) => vd_manager::set(&api, &name, vd_manager::spec(pairs(&terms)?)?, node.json)?,
            None => set_at_node(name, &node, &terms)?,
        },
        Action::Propose(args) => vd_propose::run(&args)?,
        Action::Add { name, node, keys } => {
            let disk = disk_of(&name, &pairs(&keys)?)?;
            ask(&node.socket(), &Request::Add { disk })?;
        }
        Action::Events { name, node, most, follow } => match node.manager()? {
            Some(api) => vd_manager::events(&api, name.as_deref(), most as u64, node.json)?,
            None => events(&node, name.as_deref(), most, follow)?,
        },
        Action::Remove { name, node } => drop(ask(&node.socket(), &Request::Remove { name })?),
    }
    Ok(ExitCode::SUCCESS)
}

fn list_at_node(node: &NodeArg) -> Result<()> {
    let status = status(&node.socket())?;
    match node.json {
        true => println!("{}", serde_json::to_string(&status)?),
        false => list(&status),
    }
    Ok(())
}

/// A disk, or why it is not served.
fn show_at_node(name: &str, node: &NodeArg) -> Result<()> {
    let status = status(&node.socket())?;
    if let Some(failed) = status.failed.iter().find(|failed| failed.name == name) {
        match node.json {
            true => println!("{}", serde_json::to_string(failed)?),
            false => show_failed(failed),
        }
        return Ok(());
    }
    let known = || status.disks.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ");
    let disk = status.disk(name);
    let disk = disk.with_context(|| format!("there is no disk \"{name}\"; there are: {}", known()))?;
    match node.json {
        true => println!("{}", serde_json::to_string(disk)?),
        false => show(disk),
    }
    Ok(())
}

/// Who may use it, then how large it is, then its contract: each is a request of its own.
fn set_at_node(name: String, node: &NodeArg, terms: &[String]) -> Result<()> {
    let mut contract = pairs(terms)?.into_iter().collect::<BTreeMap<_, _>>();
    let mut doors = Keys::default();
    for (key, typed) in contract.extract_if(.., |key, _| is_door(key)) {
        doors.set(&key, own_key(&key, &typed)?);
    }
    if !doors.is_empty() {
        ask(&node.socket(), &Request::Access { name: name.clone(), doors })?;
    }
    if let Some(capacity) = contract.remove("capacity") {
        ask(&node.socket(), &Request::Grow { name: name.clone(), capacity })?;
    }
    if !contract.is_empty() {
        ask(&node.socket(), &Request::Set { name, contract })?;
    }
    Ok(())
}

/// Keys of a disk that are no terms of its contract.
const DISK_KEYS: [&str; 14] = [
    "pool",
    "pools",
    "gateways",
    "through",
    "capacity",
    "stripe",
    "leeway",
    "commands",
    "read_only",
    "adopt",
    "image",
    "from",
    "fence",
    "contract",
];

/// Whether a key of a disk says who may use it, of whichever front end.
fn is_door(key: &str) -> bool {
    henge_node::door_keys().any(|door| door == key)
}

/// Whether a key is a disk's own, and no term.
fn is_own(key: &str) -> bool {
    DISK_KEYS.contains(&key) || is_door(key)
}

/// A disk's table. Terms of its contract may stand beside its own keys, as at a manager.
fn disk_of(name: &str, keys: &[(String, String)]) -> Result<Keys> {
    let mut disk = Keys::of_disk(name);
    for (key, typed) in keys.iter().filter(|(key, _)| is_own(key)) {
        disk.set(key, own_key(key, typed)?);
    }
    for (key, typed) in keys.iter().filter(|(key, _)| !is_own(key)) {
        disk.set_term(key, typed).map_err(anyhow::Error::msg)?;
    }
    Ok(disk)
}

/// The value of a disk's own key as somebody typed it. What it is, its key says: a pool called `7` keeps its name.
fn own_key(key: &str, typed: &str) -> Result<serde_json::Value> {
    let written = match key {
        "leeway" => typed.parse::<f64>().is_ok_and(f64::is_finite),
        "read_only" | "adopt" | "fence" => matches!(typed, "true" | "false"),
        "pools" | "gateways" | "through" => typed.starts_with('['),
        "commands" | "contract" => typed.starts_with('{'),
        door if is_door(door) => typed.starts_with('{') || matches!(typed, "true" | "false"),
        _ => false,
    };
    if !written {
        return Ok(typed.into());
    }
    // One line, so that nothing of it is another key's.
    let source = Source::new(key, format!("{key} = {}", typed.replace('\n', " ")));
    let mut read = Keys::from(&source.parse(key)?);
    read.remove(key).with_context(|| format!("{key} is not read"))
}

fn ask(node: &Path, request: &Request) -> Result<henge_api::Reply> {
    let reply = henge_api::ask(node, request)?;
    match reply.error {
        Some(why) => bail!("{why}"),
        None => Ok(reply),
    }
}

fn status(node: &Path) -> Result<Status> {
    ask(node, &Request::Status)?.status.context("the node sent no status")
}

/// Prints what happened, oldest first.
fn events(node: &NodeArg, name: Option<&str>, most: usize, follow: bool) -> Result<()> {
    let mut after = 0;
    loop {
        let request = Request::Events { name: name.map(str::to_owned), after, most };
        for event in ask(&node.socket(), &request)?.events.unwrap_or_default() {
            after = event.seq;
            if node.json {
                println!("{}", serde_json::to_string(&event)?);
            } else {
                println!(
                    "{}  {:<10} {:<12} {}",
                    when(event.at),
                    event.kind.as_str(),
                    event.name,
                    event.detail
                );
            }
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// `key=value`, several of them.
fn pairs(terms: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |term: &String| match term.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("\"{term}\" is not TERM=VALUE, like limit=675/s"),
    };
    terms.iter().map(pair).collect()
}

pub(super) fn time(ns: u64) -> String {
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
            disk.meters.pending.to_string(),
            format!("{:.1}", disk.meters.rate()),
            time(disk.meters.latency.p50),
            time(disk.meters.latency.p95),
            disk.flow.waiting.clone().unwrap_or_default(),
        ]);
    }
    for failed in &status.failed {
        table.add_row([failed.name.as_str(), "-", "-", "-", "-", "-", "-", "-", "not served"]);
    }
    println!("{table}");
    for failed in &status.failed {
        println!("not served: {}: {}", failed.name, failed.why);
    }
}

fn show_failed(disk: &FailedDisk) {
    let line = |what: &str, value: &str| println!("{what:<12}{value}");
    line("name", &disk.name);
    line("state", "not served; its data stays as it is");
    line("why", &disk.why);
    line("what to do", "mend its storage or its text in the configuration, and begin the node again");
    line(
        "",
        &format!("or `henge vd remove {}`, which gives up the name and keeps what was written", disk.name),
    );
}

fn show(disk: &DiskStatus) {
    let line = |what: &str, value: String| println!("{what:<12}{value}");
    line("name", disk.name.clone());
    line("capacity", format_size(disk.capacity));
    line("contract", contract(disk));
    line("clients", disk.connections.to_string());
    line("pending", disk.meters.pending.to_string());
    line("metered for", time(disk.meters.metered));
    line(
        "commands",
        format!("{} ({} reads, {} failed)", disk.meters.commands, disk.meters.reads, disk.meters.failed),
    );
    line(
        "received",
        format!("{:.1} commands/s, {} in all", disk.meters.rate(), format_size(disk.meters.bytes)),
    );
    let l = disk.meters.latency;
    line(
        "latency",
        format!("median {}, p95 {}, p99 {}, longest {}", time(l.p50), time(l.p95), time(l.p99), time(l.max)),
    );
    if disk.contract.contains_key("latency") {
        line("in bound", format!("{:.2} %", disk.meters.in_bound() * 100.0));
    }
    disk.kept.iter().for_each(show_kept);
    line("processor", format!("{} of the node's", time(disk.processor)));
    line("waits for", disk.flow.waiting.clone().unwrap_or_else(|| "nothing".into()));
    if !disk.layout.places.is_empty() {
        line("places", disk.layout.places.join(" "));
    }
    disk.layout.trouble.iter().for_each(|trouble| line("not served", trouble.clone()));
    disk.seating.stays.iter().for_each(|why| line("not moved", why.clone()));
}

/// How much of the time a promise was kept.
pub(super) fn show_kept(kept: &Kept) {
    for (what, seconds) in [("last day", &kept.day), ("last month", &kept.month), ("in all", &kept.ever)] {
        let said = seconds.line().unwrap_or_else(|| "it wanted nothing of what it is promised".into());
        println!("{what:<12}{said}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_of_the_contract_may_stand_beside_the_disks_keys() {
        let keys = pairs(&["pool=7", "capacity=1GB", "limit=675/s", "weight=4"].map(str::to_owned)).unwrap();
        let said = serde_json::to_value(disk_of("web", &keys).unwrap()).unwrap();
        let contract = json!({ "limit": "675/s", "weight": 4 });
        assert_eq!(said, json!({ "name": "web", "pool": "7", "capacity": "1GB", "contract": contract }));
    }

    #[test]
    fn lists_and_tables_are_typed_as_the_configuration_writes_them() {
        let typed = ["pools=[\"n1/a\", \"n2/a\"]", "leeway=1.5", "nbd={ users = [\"ann\"] }", "adopt=true"];
        let said = disk_of("web", &pairs(&typed.map(str::to_owned)).unwrap()).unwrap();
        let meant = json!({
            "name": "web", "pools": ["n1/a", "n2/a"], "leeway": 1.5, "nbd": { "users": ["ann"] }, "adopt": true,
        });
        assert_eq!(serde_json::to_value(said).unwrap(), meant);
        for door in henge_node::door_keys() {
            assert!(is_own(door), "{door}");
            assert_eq!(own_key(door, "true").unwrap(), json!(true));
        }
        let why = own_key("nbd", "{ users = ").unwrap_err().to_string();
        assert!(why.contains("nbd:1:"), "{why}");
        let why = disk_of("web", &pairs(&["weight=much".to_owned()]).unwrap()).unwrap_err().to_string();
        assert!(why.contains("weight is a whole number"), "{why}");
    }
}
