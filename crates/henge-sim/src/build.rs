//! A scenario's table to a [`World`].
//!
//! ```toml
//! duration = "60s"                       # measured; after
//! warmup = "5s"
//! seed = 1
//! [node]
//! nodes = 3
//! device = { raid0 = 4, stripe = "64KiB", disk = "dtla-307075" }
//! scheduler = { cvc = { per = "spindle", depth = 1 } }
//! [[flow]]
//! name = "web"
//! capacity = "96GB"
//! leeway = 1.1
//! contract = { rate = "675/s" }
//! workload = { preset = "websearch", speed = 2.0, outstanding = 32 }
//! [[event]]
//! at = "20s"
//! flow = "web"
//! contract = { rate = "300/s" }
//! ```
//!
//! Disks are packed from the outer edge: each node's space is handed out from address 0 on, in the order in
//! which flows are written.

use crate::components::Components;
use crate::fairness::{Caveat, Watch};
use crate::interrupted::Interrupted;
use crate::meter::Meter;
use crate::net::NetParams;
use crate::stall::Stall;
use crate::timing::Timing;
use crate::world::{Change, Client, FlowState, GateState, What, World};
use henge_core::{
    Assembly, Contract, Duration, FlowId, Gate, Instant, Model, NodeId, ParamError, Params, Pipeline,
    Striping, Value, format_size,
};
use henge_device::{Built, DeviceSpec};
use henge_vdisk::{Array, Extent, GateId, Layout, Target};
use henge_workload::{Records, TraceSpec};
use std::sync::Arc;

/// What a scenario may need from outside: this crate opens no files.
pub struct Outside<'a> {
    /// Device models by name.
    pub devices: henge_device::Files<'a>,
    /// Opens the trace that a workload names, or says why it cannot.
    pub traces: &'a dyn Fn(&TraceSpec) -> Result<Records, String>,
}

/// Most nodes of a scenario.
const NODES_MAX: u64 = 100_000;
/// Longest run: 58 years, so that nothing in it comes near the end of time.
const RUN_MAX: Duration = Duration::from_secs(58 * 365 * 86_400);
/// Most windows of a run: each flow and gate keeps a line of each.
const WINDOWS_MAX: u64 = 1 << 20;
/// Most requests waiting per flow and gate; a scenario that fills it up has lost its balance.
const QUEUE_MAX: u32 = 1 << 20;

/// One node's space and where it is.
struct NodeSpace {
    target: Target,
    capacity: u64,
    used: u64,
}

impl World {
    /// Reads a scenario. Every key must be understood; errors point at their place.
    pub fn build(mut p: Params, outside: &Outside<'_>) -> Result<World, ParamError> {
        let timing = timing(&mut p)?;
        let seed = p.integer("seed", 0, u64::MAX >> 1)?.unwrap_or(1);
        // What is promised beyond the capacity is the scenario's own business when it says so.
        let overbook = p.bool("overbook")?.unwrap_or(false);
        let stripe = p.size("stripe")?.unwrap_or(64 << 10);
        let mut world = World::empty(timing, seed);
        world.commands.piece = p.size("command")?.unwrap_or(world.commands.piece).max(1);
        if let Some(true) = p.bool("explain")? {
            world.explain();
        }
        let mut spaces = Vec::new();
        let flows = p.tables("flow")?;
        let contracts = stated(&flows);
        let nodes = p.tables("node")?;
        if nodes.is_empty() {
            return Err(p.error_here(format!("{} needs a [node] with a device and a scheduler", p.name())));
        }
        for node in nodes {
            add_nodes(&mut world, node, (overbook, &contracts), outside, &mut spaces)?;
        }
        if flows.is_empty() {
            return Err(p.error_here(format!("{} needs at least one [[flow]]", p.name())));
        }
        let network = p.table("network")?.map(NetParams::read).transpose()?.unwrap_or_default();
        world.net = network.build(world.gates.len())?;
        let mut refusals = Vec::new();
        for (number, flow) in flows.into_iter().enumerate() {
            refusals.push(add_flow(&mut world, flow, number, (stripe, &network), outside, &mut spaces)?);
        }
        for event in p.tables("event")? {
            add_event(&mut world, event)?;
        }
        p.finish()?;
        promise(&mut world, refusals)?;
        begin_watch(&mut world);
        Ok(world)
    }
}

fn add_nodes(
    world: &mut World,
    mut p: Params,
    (overbook, contracts): (bool, &[Contract]),
    outside: &Outside<'_>,
    spaces: &mut Vec<NodeSpace>,
) -> Result<(), ParamError> {
    let count = p.integer("nodes", 1, NODES_MAX)?.unwrap_or(1);
    let spec = DeviceSpec::from_params(&mut p, "device", outside.devices)?;
    let spec = p.required("device", spec)?;
    let scheduler = p.choice("scheduler")?;
    let (name, mut knobs) = p.required("scheduler", scheduler)?;
    let per = knobs.text("per")?;
    let per_spindle = match per.as_deref() {
        None | Some("array" | "device") => false,
        Some("spindle") => true,
        Some(other) => {
            return Err(knobs.error("per", format!("per is \"spindle\" or \"array\", not \"{other}\"")));
        }
    };
    henge_sched::charge_as(&mut knobs, contracts);
    let stalls = Stall::read(&mut p)?;
    let quantum = p.size("quantum")?;
    if quantum == Some(0) {
        return Err(p.error("quantum", "quantum is at least one byte".into()));
    }
    p.finish()?;
    for _ in 0..count {
        let node = world.nodes;
        world.nodes += 1;
        let built = spec.build();
        let capacity = built.capacity();
        let (models, unit) = match built {
            Built::Array(array) if per_spindle => (array.spindles, Some(array.stripes.unit)),
            built => (vec![built.into_model()], None),
        };
        let first = world.gates.len() as u32;
        if let Some(caveat) = caveat(&name, &knobs) {
            world.watch.caveat.get_or_insert(caveat);
        }
        for (i, model) in models.into_iter().enumerate() {
            let assembly = assemble(&name, &knobs, overbook)?;
            let name = if unit.is_some() { format!("node{node}/spindle{i}") } else { format!("node{node}") };
            let mut gate = gate(name, node, assembly, Stall::add(model, &stalls));
            gate.quantum = quantum.unwrap_or(gate.quantum);
            world.gates.push(gate);
        }
        let gates = (first..world.gates.len() as u32).map(GateId);
        let target = match unit {
            Some(unit) => Target::Array(Arc::new(Array { unit, spindles: gates.collect() })),
            None => Target::Gate(GateId(first)),
        };
        spaces.push(NodeSpace { target, capacity, used: 0 });
    }
    Ok(())
}

/// Adds a flow with its disks; returns where its contract is written.
fn add_flow(
    world: &mut World,
    mut p: Params,
    number: usize,
    (stripe, network): (u64, &NetParams),
    outside: &Outside<'_>,
    spaces: &mut [NodeSpace],
) -> Result<std::ops::Range<usize>, ParamError> {
    let name = p.text("name")?.unwrap_or_else(|| format!("flow{number}"));
    if world.flows.iter().any(|f| f.name == name) {
        return Err(p.error("name", format!("there is a flow \"{name}\" already")));
    }
    let place = p.error("contract", String::new()).span;
    let contract = contract(&mut p)?.unwrap_or_default();
    let leeway = p.number("leeway")?.unwrap_or(1.0);
    if !(1.0..=100.0).contains(&leeway) {
        return Err(p.error("leeway", format!("leeway = {leeway} is out of range; it is from 1 to 100")));
    }
    let mut clients = p.tables("client")?;
    if clients.is_empty() {
        // A flow with one client has the client's keys beside its own.
        let mut only = Params::at(p.name(), p.span());
        for key in ["capacity", "nodes", "workload"] {
            let span = p.error(key, String::new()).span;
            if let Some(value) = p.take(key) {
                only.set(key, value, span);
            }
        }
        clients.push(only);
    }
    let flow = FlowId(world.flows.len() as u32);
    let coordinators = p.integer("coordinators", 1, 1 << 16)?.unwrap_or(1);
    let own_stream = p.integer("stream", 0, u64::from(u32::MAX))?.unwrap_or(number as u64);
    let mut gates = Vec::new();
    for (i, client) in clients.into_iter().enumerate() {
        // Every client draws from a stream of its own; flows of one stream with equal loads ask in lockstep.
        let stream = own_stream << 32 | i as u64;
        let client = read_client(world, client, world.flows.len(), stream, stripe, outside, spaces)?;
        gates.extend(client.layout.gates().iter().map(|g| g.0));
        world.clients.push(client);
    }
    gates.sort_unstable();
    gates.dedup();
    p.finish()?;
    world.net.add_flow(network.coordinators(flow, &gates, coordinators));
    world.net.set_flow(flow, &gates);
    let warm_from = Instant::ZERO + world.timing.warmup;
    let meter = Meter::new(&name, contract, warm_from, world.timing.window);
    let leeway = (leeway * 1e6).round() as u64;
    world.flows.push(FlowState { name, meter, gates, present: true, leeway });
    Ok(place)
}

fn read_client(
    world: &World,
    mut p: Params,
    flow: usize,
    stream: u64,
    stripe: u64,
    outside: &Outside<'_>,
    spaces: &mut [NodeSpace],
) -> Result<Client, ParamError> {
    let on = nodes_of(&mut p, spaces.len())?;
    let capacity = p.size("capacity")?;
    let layout = pack(&p, capacity, stripe, &on, spaces)?;
    let place = p.error("workload", String::new()).span;
    let workload = p.table("workload")?;
    let spec = henge_workload::Spec::from_params(p.required("workload", workload)?)?;
    let wrong = |message: String| ParamError { message, help: None, span: place.clone() };
    let trace = spec.trace().map(|trace| (outside.traces)(trace)).transpose().map_err(wrong)?;
    let load = spec.build(layout.capacity(), world.seed, stream, trace).map_err(wrong)?;
    p.finish()?;
    let striping = striping_of(&layout);
    Ok(Client { flow, layout, striping, load, wake: None, ended: false })
}

fn add_event(world: &mut World, mut p: Params) -> Result<(), ParamError> {
    let at = p.duration("at")?;
    let at = Instant::ZERO + p.required("at", at)?;
    let name = p.text("flow")?;
    let name = p.required("flow", name)?;
    let known = || world.flows.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", ");
    let flow = world.flows.iter().position(|f| f.name == name);
    let flow =
        flow.ok_or_else(|| p.error("flow", format!("there is no flow \"{name}\"; there are: {}", known())))?;
    let mut what = Vec::new();
    if let Some(contract) = contract(&mut p)? {
        what.push(What::Contract(Box::new(contract)));
    }
    if let Some(n) = p.integer("outstanding", 0, 1 << 20)? {
        what.push(What::Outstanding(n));
    }
    if let Some(rate) = p.rate("rate")? {
        what.push(What::Rate(rate.per_second));
    }
    if let Some(locality) = p.share("locality")? {
        what.push(What::Locality(u64::from(locality)));
    }
    if let Some(true) = p.bool("leave")? {
        what.push(What::Leave);
    }
    if what.is_empty() {
        return Err(p.error_here(
            "this event changes nothing; it has contract, outstanding, rate, locality or leave = true".into(),
        ));
    }
    world.changes.extend(what.into_iter().map(|what| Change { at, flow, what }));
    p.finish()
}

/// Watches the fairness of flows to each other.
fn begin_watch(world: &mut World) {
    let caveat = world.watch.caveat;
    let contracts = || world.flows.iter().map(|f| &f.meter.outcome.contract);
    let limited = contracts().any(|c| c.limit.is_some());
    let flows: Vec<_> =
        world.flows.iter().zip(contracts()).map(|(f, c)| (c.weight(), f.gates.clone())).collect();
    world.watch = Watch::new(&flows, world.gates.len());
    world.watch.caveat = caveat.or(limited.then_some(Caveat::OtherTerms));
    world.components = Components::new(&world.timing, world.flows.len(), world.gates.len());
}

/// Tells the gates all contracts; a refusal points at the contract.
fn promise(world: &mut World, places: Vec<std::ops::Range<usize>>) -> Result<(), ParamError> {
    for (f, place) in places.into_iter().enumerate() {
        let contract = world.flows[f].meter.outcome.contract.clone();
        world.set_contract(f, &contract, Instant::ZERO).map_err(|e| ParamError {
            message: e.to_string(),
            help: None,
            span: place,
        })?;
    }
    Ok(())
}

/// Where a scheduler is not the one of the theorem.
fn caveat(name: &str, knobs: &Params) -> Option<Caveat> {
    let mut knobs = knobs.clone();
    let mut is = |key: &str, value: &str| matches!(knobs.get_mut(key), Some(Value::Text(t)) if t == value);
    if name != "sfq" {
        return Some(Caveat::OtherScheduler);
    }
    let other = ["single", "hybrid", "hybrid-memoryless"].iter().any(|policy| is("foreign", policy));
    if other {
        return Some(Caveat::OtherPolicy);
    }
    matches!(knobs.get_mut("work_conserving"), Some(Value::Bool(false))).then_some(Caveat::NotWorkConserving)
}

/// How a disk's bytes lie on gates, where each extent has one.
fn striping_of(layout: &Layout) -> Option<Striping> {
    let gate = |extent: &Extent| match &extent.target {
        Target::Gate(gate) => Some(NodeId(gate.0)),
        Target::Array(_) => None,
    };
    let nodes = layout.extents().iter().map(gate).collect::<Option<Vec<_>>>()?;
    Some(Striping { stripe: layout.unit(), nodes })
}

fn timing(p: &mut Params) -> Result<Timing, ParamError> {
    let duration = p.duration("duration")?;
    let duration = p.required("duration", duration)?;
    if duration == Duration::ZERO {
        return Err(p.error("duration", "a run of 0s measures nothing".into()));
    }
    let warmup = p.duration("warmup")?.unwrap_or_default();
    let whole = (warmup + duration).as_nanos();
    if whole > RUN_MAX.as_nanos() {
        return Err(p.error("duration", format!("a run lasts for {RUN_MAX} at most, with its warmup")));
    }
    let least = Duration::from_secs((whole / WINDOWS_MAX).div_ceil(1_000_000_000));
    let window = match p.duration("window")? {
        Some(Duration::ZERO) => return Err(p.error("window", "a window of 0s holds nothing".into())),
        Some(window) if whole / window.as_nanos() > WINDOWS_MAX => {
            let message = format!(
                "this run has {} windows of {window}, and at most {WINDOWS_MAX} are kept; \"{least}\" would do",
                whole / window.as_nanos()
            );
            return Err(p.error("window", message));
        }
        Some(window) => window,
        None => Duration::from_secs(1).max(least).min(duration),
    };
    Ok(Timing { warmup, duration, window })
}

/// A scheduler that holds reservations against a capacity takes `overbook`; the others have nothing to overbook.
fn assemble(name: &str, knobs: &Params, overbook: bool) -> Result<Assembly, ParamError> {
    let allowed = || henge_sched::build(name, knobs.clone().with("overbook", Value::Bool(true)));
    match overbook.then(allowed) {
        Some(Ok(assembly)) => Ok(assembly),
        _ => henge_sched::build(name, knobs.clone()),
    }
}

fn gate(name: String, node: u32, assembly: Assembly, model: Model) -> GateState {
    let mut gate = Gate::new(assembly);
    gate.set_pending_max(QUEUE_MAX);
    gate.leave_pending();
    GateState::new(name, node, Pipeline::new(gate, Interrupted::new(model)))
}

fn contract(p: &mut Params) -> Result<Option<Contract>, ParamError> {
    let Some(mut table) = p.table("contract")? else { return Ok(None) };
    let contract = Contract::from_params(&mut table)?;
    table.finish()?;
    Ok(Some(contract))
}

/// The contracts of the flows that can be read; what is wrong with the others is said where they are added.
fn stated(flows: &[Params]) -> Vec<Contract> {
    let read = |flow: &Params| {
        flow.clone().table("contract").ok()?.and_then(|mut t| Contract::from_params(&mut t).ok())
    };
    flows.iter().filter_map(read).collect()
}

/// `nodes = [0, 2]`, all where nothing is said.
fn nodes_of(p: &mut Params, count: usize) -> Result<Vec<usize>, ParamError> {
    let Some(value) = p.take("nodes") else { return Ok((0..count).collect()) };
    let wrong = |p: &Params| p.error("nodes", "nodes is a list of node numbers, like [0, 2]".into());
    let Value::List(items) = value else { return Err(wrong(p)) };
    let mut nodes = Vec::new();
    for (item, span) in items {
        let Value::Integer(n) = item else { return Err(wrong(p)) };
        match usize::try_from(n).ok().filter(|n| *n < count && !nodes.contains(n)) {
            Some(n) => nodes.push(n),
            None => {
                let message = format!("there is no node {n} (twice); nodes are 0 to {}", count - 1);
                return Err(ParamError { message, help: None, span });
            }
        }
    }
    if nodes.is_empty() { Err(wrong(p)) } else { Ok(nodes) }
}

/// A disk of `capacity` on each node of `on`, behind what lies there already. Without a capacity: a quarter of
/// what the fullest of them has left.
fn pack(
    p: &Params,
    capacity: Option<u64>,
    stripe: u64,
    on: &[usize],
    spaces: &mut [NodeSpace],
) -> Result<Layout, ParamError> {
    let n = on.len() as u64;
    let least = on.iter().map(|&i| spaces[i].capacity - spaces[i].used).min().unwrap_or(0);
    let align = |bytes: u64| bytes / stripe * stripe;
    let capacity = capacity.unwrap_or_else(|| align(least / 4) * n);
    let part = capacity.div_ceil(n).div_ceil(stripe) * stripe;
    if capacity == 0 || part > least {
        let message = format!(
            "a capacity of {} does not fit: the fullest of its {n} nodes has {} left for its part of {}",
            format_size(capacity),
            format_size(least),
            format_size(part)
        );
        return Err(p.error("capacity", message));
    }
    let mut extents = Vec::new();
    for &i in on {
        let space = &mut spaces[i];
        extents.push(Extent { target: space.target.clone(), base: space.used, len: part });
        space.used += part;
    }
    Layout::new(capacity, stripe, extents).map_err(|e| p.error("capacity", e.to_string()))
}
