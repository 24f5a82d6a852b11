//! `henge admit`: what fits on this hardware? Without a cluster.

use anyhow::{Context, Result, bail};
use comfy_table::{Cell, Color, Table, presets};
use henge_admission::place::{self, Node, Placement, Score, Wish};
use henge_admission::{Fixed, PromisedPart, Rejection, Specification, deterministic};
use henge_config::Source;
use henge_core::{Duration, ParamError, Params, format_size};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLE: &str = "\
The file names nodes and disks:

    [[node]]
    name = \"array0\"
    iops = \"500/s\"         # measured at saturation
    service = \"14ms\"       # what 95 % of requests take; 1/iops where it is not stated
    capacity = \"280GB\"
    copies = 1             # how many the node's own storage keeps

    [[disk]]
    name = \"mail\"
    rate = \"128/s\"
    latency = \"120ms\"
    percentile = 95
    pending = 7
    capacity = \"15GB\"
    parts = 3              # striped over so many nodes
    leeway = 1.5           # for uneven load over the parts
    count = 4              # so many alike";

/// Arguments of `henge admit`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Nodes and disks, a TOML file
    #[arg(required_unless_present_any = ["evaluate", "sequences"])]
    file: Option<PathBuf>,

    /// Instead: how far each way of placing stays behind the optimum, over N random small instances
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    evaluate: Option<u64>,

    /// Instead: how many disks each rule of admission takes, beside an oracle, over N simulated random sequences of every family
    #[arg(long, value_name = "N", conflicts_with = "evaluate", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    sequences: Option<u64>,

    /// With --sequences: one family of them
    #[arg(long, value_name = "NAME", requires = "sequences")]
    family: Option<String>,

    /// With --sequences: how long disks are measured, and judged
    #[arg(long, value_name = "TIME", default_value = "200s")]
    window: String,

    /// Place the disks in the order of the file, as they would come one by one; else the best set is sought
    #[arg(long)]
    online: bool,

    /// Steps of the search for the best set
    #[arg(long, default_value_t = 2000, value_name = "N")]
    steps: u32,

    /// Seed of the search
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

struct Server {
    name: String,
    fixed: Fixed,
    capacity: u64,
    copies: u32,
}

struct PlannedDisk {
    name: String,
    specification: Specification,
    parts: u32,
}

struct Plan {
    servers: Vec<Server>,
    disks: Vec<PlannedDisk>,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(instances) = args.evaluate {
        evaluate(instances, args.seed);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(sequences) = args.sequences {
        super::admit_sequences::run(sequences, args.family.as_deref(), &args.window, args.seed, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan(&args.file.unwrap_or_default())?;
    let nodes: Vec<Node> = plan
        .servers
        .iter()
        .map(|s| Node { free: vec![s.fixed.iops_max, s.capacity as f64], copies: s.copies })
        .collect();
    let wishes: Vec<Result<Wish, String>> = plan.disks.iter().map(|d| wish(d, &plan.servers)).collect();
    let possible: Vec<Wish> = wishes.iter().filter_map(|w| w.as_ref().ok().cloned()).collect();
    let placed = match args.online {
        true => place::online(&nodes, &possible, Score::Dot),
        false => place::search(&nodes, &possible, args.steps, args.seed),
    };
    let placement = spread(&wishes, placed);
    match args.json {
        true => println!("{:#}", as_json(&plan, &nodes, &wishes, &placement, sought(args.online))),
        false => show(&plan, &nodes, &wishes, &placement, sought(args.online)),
    }
    let all = placement.iter().all(Option::is_some);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An empty table with these columns.
pub(super) fn table_of(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(columns.iter().copied());
    table
}

fn evaluate(instances: u64, seed: u64) {
    let mut table = table_of(&["placement", "against the", "mean loss", "largest", "nothing lost in"]);
    for loss in place::evaluate(instances, seed) {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        table.add_row([
            loss.name,
            if loss.online { "on-line optimum" } else { "optimum" }.to_owned(),
            percent(loss.mean),
            percent(loss.worst),
            percent(loss.optimal),
        ]);
    }
    println!("{table}\n{instances} random instances of 2 to 4 nodes and 6 to 9 disks, seed {seed}");
}

/// Whether a file is a plan.
pub(super) fn understood(file: &Path) -> Result<()> {
    plan(file).map(drop)
}

fn plan(file: &Path) -> Result<Plan> {
    // A command that ends may read what another one writes: `henge admit /dev/stdin`.
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let source = Source::new(file.display().to_string(), text);
    let params = source.parse("the plan")?;
    let plan = read(params).map_err(|e| source.point(e))?;
    if plan.servers.is_empty() {
        bail!("{}: there is no [[node]] to place disks on", source.name());
    }
    Ok(plan)
}

fn read(mut p: Params) -> Result<Plan, ParamError> {
    let mut plan = Plan { servers: Vec::new(), disks: Vec::new() };
    for mut table in p.tables("node")? {
        let name = table.text("name")?;
        let iops = table.rate("iops")?;
        let iops = table.required("iops", iops)?;
        if iops.unit != henge_core::CostUnit::Requests || iops.per_second == 0 {
            return Err(table.error("iops", "iops counts requests; write it like \"500/s\"".into()));
        }
        let iops_max = iops.per_second as f64 / 1e6;
        let service = table.duration("service")?.map_or(1.0 / iops_max, Duration::as_secs_f64);
        let capacity = table.size("capacity")?;
        plan.servers.push(Server {
            name: table.required("name", name)?,
            fixed: Fixed { iops_max, service },
            capacity: table.required("capacity", capacity)?,
            copies: table.integer("copies", 1, 16)?.unwrap_or(1) as u32,
        });
        table.finish()?;
    }
    for mut table in p.tables("disk")? {
        let name = table.text("name")?;
        let name = table.required("name", name)?;
        let count = table.integer("count", 1, 100_000)?.unwrap_or(1);
        let parts = table.integer("parts", 1, 1000)?.unwrap_or(1) as u32;
        let specification = Specification::from_params(&mut table)?;
        table.finish()?;
        for i in 1..=count {
            let name = if count > 1 { format!("{name}-{i}") } else { name.clone() };
            plan.disks.push(PlannedDisk { name, specification: specification.clone(), parts });
        }
    }
    p.finish()?;
    Ok(plan)
}

/// What each part of a disk takes of a node; `Err` says why no node could ever keep it.
fn wish(asked: &PlannedDisk, servers: &[Server]) -> Result<Wish, String> {
    let part = asked.specification.part(asked.parts);
    let disk = [PromisedPart { part, measured: None }];
    // Nodes may differ: what is reserved is what the weakest node that can keep it would need.
    let alone: Vec<Result<f64, Rejection>> =
        servers.iter().map(|s| deterministic(&s.fixed, &disk).map(|a| a.reservations[0].rate())).collect();
    let rate = alone
        .iter()
        .filter_map(|r| r.as_ref().ok())
        .copied()
        .fold(None, |m: Option<f64>, r| Some(m.map_or(r, |m| m.max(r))));
    let Some(rate) = rate else {
        let why = alone.into_iter().find_map(Result::err).map_or_else(String::new, |r| r.to_string());
        return Err(format!("no node could keep it even alone: {why}"));
    };
    if servers.iter().all(|s| s.copies < part.copies) {
        return Err(format!("it asks for {} copies, and no node keeps so many", part.copies));
    }
    if servers.iter().all(|s| s.capacity < part.capacity) {
        return Err(format!(
            "a part of {} is larger than any node; take more parts",
            format_size(part.capacity)
        ));
    }
    if servers.len() < asked.parts as usize {
        return Err(format!("{} parts need as many nodes; there are {}", asked.parts, servers.len()));
    }
    Ok(Wish {
        part: vec![rate, part.capacity as f64],
        parts: asked.parts as usize,
        value: 1.0,
        copies: part.copies,
    })
}

/// The placement of possible disks, back at the places of all disks.
fn spread(wishes: &[Result<Wish, String>], placed: Placement) -> Placement {
    let mut placed = placed.into_iter();
    wishes.iter().map(|w| w.as_ref().ok().and_then(|_| placed.next().flatten())).collect()
}

fn left(nodes: &[Node], wishes: &[Result<Wish, String>], placement: &Placement) -> Vec<Node> {
    let mut left = nodes.to_vec();
    for (wish, places) in wishes.iter().zip(placement) {
        let (Ok(wish), Some(places)) = (wish, places) else { continue };
        for at in places {
            left[*at].free.iter_mut().zip(&wish.part).for_each(|(f, d)| *f -= d);
        }
    }
    left
}

/// Why a disk that some node could keep was not placed.
fn shortfall(wish: &Wish, left: &[Node]) -> String {
    let fits = left.iter().filter(|n| n.fits(wish)).count();
    let most = |dimension: usize| left.iter().map(|n| n.free[dimension]).fold(0.0, f64::max);
    format!(
        "needs {:.1}/s and {} on each of {} nodes, {fits} have that left (most left: {:.1}/s, {})",
        wish.part[0],
        format_size(wish.part[1] as u64),
        wish.parts,
        most(0),
        format_size(most(1).max(0.0) as u64)
    )
}

fn outcome(
    plan: &Plan,
    wish: &Result<Wish, String>,
    places: Option<&Vec<usize>>,
    left: &[Node],
) -> (bool, String) {
    match (wish, places) {
        (Err(why), _) => (false, why.clone()),
        (Ok(_), Some(places)) => {
            let names: Vec<&str> = places.iter().map(|i| plan.servers[*i].name.as_str()).collect();
            (true, names.join(", "))
        }
        (Ok(wish), None) => (false, shortfall(wish, left)),
    }
}

/// What a placement tries to make most of.
fn sought(online: bool) -> &'static str {
    match online {
        true => "each disk in the order of the file, wherever it fits best",
        false => "sought is the largest number of disks, all of the same worth",
    }
}

fn show(plan: &Plan, nodes: &[Node], wishes: &[Result<Wish, String>], placement: &Placement, sought: &str) {
    let left = left(nodes, wishes, placement);
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["disk", "reserved", "decided by", "capacity", "admitted", "where, or why not"]);
    for ((asked, wish), places) in plan.disks.iter().zip(wishes).zip(placement) {
        let (yes, text) = outcome(plan, wish, places.as_ref(), &left);
        let reserved =
            wish.as_ref().map_or("-".to_owned(), |w| format!("{:.1}/s", w.part[0] * w.parts as f64));
        let part = asked.specification.part(asked.parts);
        let for_delay = wish.as_ref().is_ok_and(|w| w.part[0] > part.rate);
        table.add_row([
            Cell::new(&asked.name),
            Cell::new(reserved),
            Cell::new(if for_delay { "its delay" } else { "its rate" }),
            Cell::new(format_size(asked.specification.capacity)),
            Cell::new(if yes { "yes" } else { "no" }).fg(if yes { Color::Green } else { Color::Red }),
            Cell::new(text),
        ]);
    }
    println!("{table}\n");
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["node", "requests/s reserved", "of", "capacity used", "of"]);
    for ((server, node), whole) in plan.servers.iter().zip(&left).zip(nodes) {
        table.add_row([
            server.name.clone(),
            format!("{:.1}", whole.free[0] - node.free[0]),
            format!("{:.1}", whole.free[0]),
            format_size((whole.free[1] - node.free[1]) as u64),
            format_size(server.capacity),
        ]);
    }
    let admitted = placement.iter().flatten().count();
    println!(
        "{table}\n\n{admitted} of {} disks admitted, by worst-case arithmetic; {sought}",
        plan.disks.len()
    );
}

fn as_json(
    plan: &Plan,
    nodes: &[Node],
    wishes: &[Result<Wish, String>],
    placement: &Placement,
    sought: &str,
) -> serde_json::Value {
    let left = left(nodes, wishes, placement);
    let disks = plan.disks.iter().zip(wishes).zip(placement).map(|((asked, wish), places)| {
        let (admitted, text) = outcome(plan, wish, places.as_ref(), &left);
        let names: Option<Vec<&str>> =
            places.as_ref().map(|p| p.iter().map(|i| plan.servers[*i].name.as_str()).collect());
        json!({
            "name": asked.name, "admitted": admitted, "nodes": names,
            "reserved_per_part": wish.as_ref().ok().map(|w| w.part[0]), "why": (!admitted).then_some(text),
        })
    });
    let nodes = plan.servers.iter().zip(&left).map(|(server, node)| {
        json!({ "name": server.name, "rate_left": node.free[0], "capacity_left": node.free[1].max(0.0) as u64 })
    });
    json!({ "sought": sought, "disks": disks.collect::<Vec<_>>(), "nodes": nodes.collect::<Vec<_>>() })
}
