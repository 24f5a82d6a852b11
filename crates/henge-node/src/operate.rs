//! Control requests carried out on the data plane. Runs on the loop, between two turns.

pub(crate) mod offer;

use crate::config::{self, DiskConfig, PoolConfig, SchedulerConfig};
use crate::front::Doors;
use crate::link_config::Nodes;
use crate::message::{SLICE, Slice};
use crate::plane::PartOf;
use crate::plane::make;
use crate::plane::tickets::Work;
use crate::plane::{Disk, Failed, Plane};
use crate::spread::across;
use crate::spread::extents;
use crate::spread::seating;
use henge_api::{
    AtGate, Buckets, Choice, CommandMeters, DiskLayout, DiskStatus, FailedDisk, GateStatus, Latencies,
    LearnedCost, PeerStatus, PoolStatus, Promise, Received, Request, Seating, Status, Table,
};
use henge_backend::Growth;
use henge_core::{Contract, FlowId, Instant, ParamError, Params, Rate, Term, Value, WaitReason};
use std::collections::{BTreeMap, BTreeSet};

/// What went wrong, for people.
pub(crate) type Outcome<T = ()> = Result<T, String>;

pub(crate) fn set(
    plane: &mut Plane,
    name: &str,
    terms: BTreeMap<String, String>,
    now: Instant,
) -> Outcome<usize> {
    let (number, config) = changed(plane, name, terms)?;
    plane.set_contract(number, config, now).map_err(|refused| refused.to_string())?;
    Ok(number)
}

/// A disk with other terms.
fn changed(plane: &mut Plane, name: &str, terms: BTreeMap<String, String>) -> Outcome<(usize, DiskConfig)> {
    let number = plane.disks.find(name)?;
    let mut config = plane.disks.of(number).config.clone();
    for (key, text) in terms {
        config.terms.retain(|(known, _)| *known != key);
        if !text.is_empty() {
            let value = Term::value(&key, &text)?;
            config.terms.push((key, value));
        }
    }
    config.contract = contract(&config.terms).map_err(|e| e.to_string())?;
    Ok((number, config))
}

/// Whether a change of a contract would be accepted; those at work notice nothing. What is promised on each of its pools,
/// before and after.
pub(crate) fn preview(
    plane: &mut Plane,
    name: &str,
    mut terms: BTreeMap<String, String>,
) -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    if let Some(capacity) = terms.remove("capacity") {
        works_for(plane, &Request::Grow { name: name.to_owned(), capacity: capacity.clone() })?;
        lines.push(format!("its capacity would be {capacity}"));
    }
    let (number, config) = changed(plane, name, terms)?;
    if plane.disks.of(number).spread.is_none() {
        lines.extend(preview_of(plane, number, &config.contract)?);
        return Ok(lines);
    }
    for owner in plane.disks.owners(number) {
        lines.extend(preview_of(plane, owner, &config.contract)?);
    }
    Ok(lines)
}

fn preview_of(plane: &Plane, number: usize, contract: &Contract) -> Outcome<Vec<String>> {
    let disk = plane.disks[number].as_ref().expect("a disk that was found");
    if disk.spread.is_some() {
        return Ok(Vec::new()); // its gate is another shard's
    }
    let gates = disk.vdisk.layout().gates();
    let part = contract.part(disk.config.leeway, gates.len() as u64 * disk.extent.among);
    for gate in gates {
        let gate = plane.pools.gates[gate.index()].pipeline.gate();
        gate.check(disk.vdisk.flow(), &part).map_err(|refused| refused.to_string())?;
    }
    Ok(disk.config.pools.iter().filter_map(|pool| promised(plane, *pool, disk, contract)).collect())
}

/// What the disks of a pool are promised with the contract that a disk has, and with another.
fn promised(plane: &Plane, pool: usize, disk: &Disk, new: &Contract) -> Option<String> {
    let (old, new) = (disk.rate_on_each(&disk.config.contract), disk.rate_on_each(new));
    let unit = new.or(old)?.unit;
    let of = |rate: Option<Rate>| rate.filter(|r| r.unit == unit).map_or(0, |r| u128::from(r.per_second));
    let pool = &plane.pools[pool];
    let before = pool.rates[unit as usize];
    let rate = |sum: u128| Rate { per_second: u64::try_from(sum).unwrap_or(u64::MAX), unit };
    let (before, after) = (rate(before), rate(before - of(old) + of(new)));
    Some(format!("promised on {}: {before} before, {after} after", pool.config.name))
}

pub(crate) fn add(plane: &mut Plane, table: &Table, now: Instant) -> Outcome<usize> {
    let disk = read_disk(plane, table)?;
    plane.add_disk(disk, now).map_err(|e| e.error.to_string())
}

/// A disk's table that came by the control socket.
fn read_disk(plane: &Plane, table: &Table) -> Outcome<DiskConfig> {
    let params = table.params("the disk").map_err(|e| e.to_string())?;
    let pools: Vec<PoolConfig> = plane.pools.iter().map(|p| p.config.clone()).collect();
    let peers = plane.links.configs();
    let nodes = Nodes { here: plane.links.here(), peers: Some(&peers) };
    let is_taken = |name: &str| plane.disks.number(name).is_some();
    let disk = config::disk(params, &pools, &is_taken, nodes, &plane.kinds.all);
    let guarded =
        disk.and_then(|disk| match disk.doors.unguarded(&plane.kinds.asked).and_then(|kind| kind.demand) {
            Some(demand) => Err(config::at(&disk.spans.whole, demand.into())),
            None => Ok(disk),
        });
    let disk = guarded.map_err(|e| e.to_string())?;
    match plane.disks.failed.get(&disk.name) {
        Some(failed) => Err(format!("there is a disk \"{}\" that is not served: {}", disk.name, failed.why)),
        None => Ok(across::placed(plane, disk)),
    }
}

/// A disk, and what a table says of its doors.
pub(crate) fn doors(plane: &Plane, name: &str, table: &Table) -> Outcome<(usize, Doors)> {
    let number = plane.disks.find(name)?;
    let mut params = table.params("who may use the disk").map_err(|e| e.to_string())?;
    let doors = Doors::read(&plane.kinds.all, &mut params);
    let doors = doors.and_then(|doors| params.finish().map(|()| doors)).map_err(|e| e.to_string())?;
    match doors.unguarded(&plane.kinds.asked).and_then(|kind| kind.demand) {
        Some(demand) => Err(demand.into()),
        None => Ok((number, doors)),
    }
}

/// How a request makes or lengthens parts, and the disk that they belong to. What is refused already is refused here, before
/// hours are spent on making them.
pub(crate) fn works_for(plane: &Plane, request: &Request) -> Outcome<(String, Vec<Work>)> {
    let making = |parts: Vec<PartOf>| {
        let work = |part: PartOf| {
            let adopted = part.adopt.then(|| Work::Adopt(part.clone()));
            adopted.into_iter().chain([Work::Make(part)])
        };
        parts.into_iter().flat_map(work).collect()
    };
    match request {
        Request::Add { disk } => {
            let config = read_disk(plane, disk)?;
            let parts = extents::parts_of_new(plane, &config);
            if !config.places.is_empty() {
                return Ok((config.name, making(parts)));
            }
            let part = config.contract.part(config.leeway, parts.len() as u64);
            let flow = FlowId(plane.disks.free_number() as u32);
            for PartOf { gate, .. } in &parts {
                let accepted = plane.pools.gates[*gate].pipeline.gate().check(flow, &part);
                accepted.map_err(|refused| format!("disk \"{}\": {refused}", config.name))?;
            }
            Ok((config.name, making(parts)))
        }
        Request::Grow { name, capacity } | Request::Room { name, capacity } => {
            let (number, new) = larger(plane, name, capacity)?;
            let parts = extents::parts_at(plane, number, new);
            plane.pools.could_grow(&parts).map_err(|e| format!("disk \"{name}\": {e}"))?;
            let is_told = matches!(request, Request::Grow { .. });
            let capacity = plane.disks[number].as_ref().map_or(0, |disk| disk.config.capacity);
            let has = extents::parts_at(plane, number, capacity).into_iter();
            let longer = |(part, has): (PartOf, PartOf)| {
                let to = Growth { has: has.len, len: part.len, is_told };
                Work::Lengthen(part, to)
            };
            // Where another gateway has the seat, clients here are to see no more than it lets them write. Room is made there and seen by nobody.
            let elsewhere = if is_told { seating::parts_elsewhere(plane, number, new) } else { Vec::new() };
            let looks = elsewhere.into_iter().map(Work::Look);
            Ok((name.clone(), looks.chain(parts.into_iter().zip(has).map(longer)).collect()))
        }
        _ => Ok((String::new(), Vec::new())),
    }
}

/// Whether the parts of a disk that was here before are there, as far as they were on these pools.
pub(crate) fn find_parts(plane: &mut Plane, request: &Request, on: &BTreeSet<String>) -> Outcome {
    let (disk, works) = works_for(plane, request)?;
    let parts: Vec<PartOf> = works.into_iter().map(|work| work.part().clone()).collect();
    make::find_parts(plane, &disk, &parts, on)
}

/// A disk's removal had begun before: what is left of it is to be removed, and is known from now on.
pub(crate) fn find_remains(plane: &mut Plane, table: &Table) -> Outcome {
    let name = table.name().unwrap_or_default();
    let is_known = plane.disks.failed.get(name).is_some_and(|failed| !failed.remains.is_empty());
    if is_known || plane.disks.number(name).is_some() {
        return Ok(());
    }
    // That it is not served is no reason not to know its parts.
    let before = plane.disks.failed.remove(name);
    match read_disk(plane, table) {
        Ok(config) => {
            let failed = Failed::going(plane, config);
            plane.disks.failed.insert(name.to_owned(), failed);
        }
        Err(why) => {
            plane.disks.failed.extend(before.map(|failed| (name.to_owned(), failed)));
            return Err(format!("its removal had begun, and cannot go on: {why}"));
        }
    }
    Ok(())
}

/// Makes a disk longer, where its parts stand. Of a disk over several nodes: its extents here, and as much as its clients see.
pub(crate) fn grow(plane: &mut Plane, name: &str, text: &str) -> Outcome {
    let (number, new) = larger(plane, name, text)?;
    let disk = plane.disks.of(number);
    let (old, spread) = (disk.vdisk.capacity(), disk.spread.is_some());
    let grown = match spread {
        _ if new == old => Ok(()),
        true => extents::lengthen_extents(plane, number, new)
            .and_then(|()| extents::lengthen_spread(plane, number, new)),
        false => make::lengthen(plane, number, new),
    };
    grown.map_err(|e| format!("disk \"{name}\": {e}"))
}

/// Makes the extents here of a disk over several nodes longer; its clients do not see it yet.
pub(crate) fn lengthen_ahead(plane: &mut Plane, name: &str, text: &str) -> Outcome {
    let (number, new) = larger(plane, name, text)?;
    if plane.disks.of(number).spread.is_none() {
        return Err(format!("disk \"{name}\" is this node's alone; let it grow"));
    }
    extents::lengthen_extents(plane, number, new).map_err(|e| format!("disk \"{name}\": {e}"))
}

/// A disk, and a capacity that it could have: none below what it has.
fn larger(plane: &Plane, name: &str, text: &str) -> Result<(usize, u64), String> {
    let new = henge_core::parse_size(text).map_err(|e| format!("capacity: {}", e.0))?;
    let number = plane.disks.find(name)?;
    let disk = plane.disks[number].as_ref().expect("a disk that was found");
    let (old, align) = (disk.vdisk.capacity(), disk.vdisk.settings().align);
    let size = henge_core::format_size;
    if new < old {
        return Err(format!(
            "disk \"{name}\" does not shrink: what lies beyond {} would be lost; it has {}. Make a smaller one and copy",
            size(new),
            size(old)
        ));
    }
    if !new.is_multiple_of(align) {
        let lower = new / align * align;
        return Err(format!(
            "capacity is a multiple of {align} bytes here, like {lower}B or {}B",
            lower + align
        ));
    }
    Ok((number, new))
}

pub(crate) fn reset_meters(plane: &mut Plane, now: Instant) {
    // Each disk's are set back when they are next looked at: no turn of the loop goes through all of them.
    plane.observers.metered_since = now;
}

/// A part of everything, so that a turn of the loop tells of a bounded number of disks.
pub(crate) fn slice(plane: &mut Plane, from: usize, whole: bool, connections: usize, now: Instant) -> Slice {
    let to = (from + SLICE).min(plane.disks.len());
    plane.disks[from.min(to)..to].iter_mut().flatten().for_each(|d| {
        d.meters.not_before(plane.observers.metered_since);
        d.meters.pending(d.vdisk.pending(), now);
    });
    let disks = (from..to).filter_map(|n| plane.disks[n].as_ref().map(|disk| (n, disk)));
    let disks = disks.filter(|(_, disk)| disk.extent.disk.is_none());
    let disks = disks.map(|(number, disk)| disk_status(plane, number, disk, whole, now)).collect();
    let head = (from == 0).then(|| head(plane, connections, now));
    Slice { head, disks, next: (to < plane.disks.len()).then_some(to) }
}

fn head(plane: &mut Plane, connections: usize, now: Instant) -> Status {
    let mut status = Status {
        uptime: now.as_nanos(),
        connections,
        buffers_out: plane.memory.buffers.out(),
        buffers: plane.memory.buffers.budget(),
        ..Status::default()
    };
    for (number, pool) in plane.pools.all.iter().enumerate().filter(|(_, pool)| pool.is_here()) {
        let gates = pool.gates.clone();
        let first = &plane.pools.gates[gates.start].pipeline;
        let keeps = henge_api::Keeps::of(&first.gate().keeps(), gates.len());
        let (store, unit) = (first.backend().describe(), first.gate().cost_unit().to_string());
        let capacity = gates.clone().map(|g| plane.pools.gates[g].pipeline.backend().capacity()).sum();
        status.pools.push(PoolStatus {
            name: pool.config.name.clone(),
            store,
            scheduler: pool.config.scheduler.name.clone(),
            configured: pool.config.scheduler.text(),
            emulated: pool.config.emulated.as_ref().map(|emulated| emulated.text.clone()),
            unit,
            capacity,
            promised: pool.promised,
            shared: first.backend().register().map(|register| register.store().to_owned()),
            quantum: plane.pools.quantum(number),
            keeps: Some(keeps),
            short: None,
            short_ms: 0,
            received: None,
            gates: plane.pools.gates[gates].iter_mut().map(|g| gate(g, now)).collect(),
        });
    }
    let failed = plane.disks.failed.iter();
    status.failed = failed.map(|(name, f)| FailedDisk { name: name.clone(), why: f.why.clone() }).collect();
    status.node = plane.links.here().map(str::to_owned);
    status.tags = plane.tags.counts;
    status.peers = plane.links.peers.iter().flatten().map(peer).collect();
    status
}

fn disk_status(plane: &Plane, number: usize, disk: &Disk, whole: bool, now: Instant) -> DiskStatus {
    let mut status = DiskStatus {
        name: disk.config.name.clone(),
        capacity: disk.vdisk.capacity(),
        contract: disk.config.terms.iter().map(|(key, value)| (key.clone(), term(value))).collect(),
        connections: disk.connections,
        meters: meters(disk, whole, now),
        promise: Promise::of(&disk.config.contract),
        leeway: disk.config.leeway,
        layout: DiskLayout {
            pools: disk.config.pools.iter().map(|p| plane.pools[*p].config.name.clone()).collect(),
            stripe: disk.config.stripe,
            places: places(&disk.config),
            trouble: extents::trouble(plane, disk),
        },
        fronts: disk.config.doors.open().map(str::to_owned).collect(),
        seating: Seating {
            gateways: disk.config.gateways.clone(),
            seat: seating::seat_of(plane, disk),
            stays: seating::stays(disk),
        },
        ..DiskStatus::default()
    };
    add_gates(plane, &mut status, number, disk, whole, now);
    status
}

/// What a disk's clients saw here.
fn meters(disk: &Disk, whole: bool, now: Instant) -> CommandMeters {
    let (busy, outstanding_us) = disk.meters.occupancy();
    CommandMeters {
        metered: now.since(disk.meters.since).as_nanos(),
        commands: disk.meters.commands,
        reads: disk.meters.reads,
        bytes: disk.meters.bytes,
        failed: disk.meters.failed,
        late: disk.meters.late,
        pending: disk.vdisk.pending(),
        latency: Latencies::of(&disk.meters.latency),
        busy: busy.as_nanos(),
        outstanding_us,
        histogram: whole.then(|| Buckets::from(&disk.meters.latency)),
    }
}

/// What a disk's requests received and waited for at its gates here.
fn add_gates(plane: &Plane, status: &mut DiskStatus, number: usize, disk: &Disk, whole: bool, now: Instant) {
    let mut waits = [henge_core::Duration::ZERO; WaitReason::ALL.len()];
    let mut owners = plane.disks.owners(number);
    let is_shared = disk.spread.as_ref().is_some_and(|spread| spread.shared.is_some());
    if disk.spread.is_none() {
        owners.push(number);
    } else if is_shared && status.seating.seat.as_deref() == plane.links.here() {
        // All that its clients ask for, whichever gateway they come to, passes the gate of this one.
        status.flow.all = Some(Received::default());
    } else if is_shared || disk.config.places.iter().any(|place| !plane.links.is_here(&place.node)) {
        // No coordinator sees all of a disk's clients, so none can judge what they receive together.
        status.promise.rate = None;
    }
    let mut millionths = 0;
    let owners = owners.iter().filter_map(|owner| plane.disks[*owner].as_ref());
    let owners = owners.filter(|owner| owner.spread.is_none());
    let received = &mut status.flow;
    for (g, flow) in owners.flat_map(|d| d.vdisk.layout().gates().iter().map(|g| (g, d.vdisk.flow()))) {
        let gate = plane.pools.gates[g.index()].pipeline.gate();
        let waiting = gate.waiting(flow, now).map(|reason| reason.as_str().to_owned());
        received.waiting = received.waiting.take().or(waiting);
        let Some(meters) = gate.flow_meters(flow) else { continue };
        received.wait += meters.wait_time().as_nanos();
        received.service += meters.completed.service_time.as_nanos();
        received.disk_time += meters.completed.disk_time.as_nanos();
        if let Some(all) = &mut received.all {
            millionths += meters.completed.commands;
            (all.commands, all.bytes) = (millionths / 1_000_000, all.bytes + meters.completed.bytes);
        }
        let mut waited = henge_core::Duration::ZERO;
        for reason in WaitReason::ALL {
            let time = gate.waited(flow, reason, now);
            waits[reason as usize] += time;
            waited += if reason == WaitReason::OwnLimit { henge_core::Duration::ZERO } else { time };
        }
        if whole {
            received.gates.push(AtGate {
                gate: g.0,
                weight: disk.config.contract.weight(),
                service: meters.completed.service.get(),
                waited: waited.as_nanos(),
                largest: meters.completed.cost_max.get(),
            });
        }
    }
    let noted = WaitReason::ALL.iter().zip(waits).filter(|(_, time)| *time > henge_core::Duration::ZERO);
    received.waits = noted.map(|(reason, time)| (reason.as_str().to_owned(), time.as_nanos())).collect();
}

/// Adds a node, or says where it is now.
pub(crate) fn add_peer(
    plane: &mut Plane,
    name: &str,
    address: &str,
    iscsi: Option<&str>,
    at: Option<std::net::SocketAddr>,
) -> Outcome {
    let keys = [("name", Some(name)), ("address", Some(address)), ("iscsi", iscsi)];
    let stated = keys.into_iter().filter_map(|(key, text)| Some((key, text?)));
    let fill = |p: Params, (key, text): (&str, &str)| p.with(key, Value::Text(text.to_owned()));
    let params = stated.fold(Params::new("the peer"), fill);
    let config = crate::link_config::peer(params).map_err(|e| e.to_string())?;
    plane.links.add(config, at)
}

/// Forgets a node that no disk names.
pub(crate) fn remove_peer(plane: &mut Plane, name: &str) -> Outcome {
    let Some(found) = plane.links.find(name) else {
        let known: Vec<String> = plane.links.configs().into_iter().map(|peer| peer.name).collect();
        return Err(format!("there is no peer \"{name}\"; there are: {}", known.join(", ")));
    };
    if let Some(disk) = plane.links.peer(found).extents.a_disk() {
        let disk = &plane.disks.of(disk).config.name;
        return Err(format!("disk \"{disk}\" lies on node {name}; remove it first"));
    }
    plane.links.remove(found);
    Ok(())
}

/// What is here, line by line.
pub(crate) fn describe(plane: &Plane) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, pool) in plane.pools.iter().enumerate() {
        let (config, state) = (&pool.config, &plane.pools.gates[pool.gates.start]);
        let gates = match pool.gates.len() {
            1 => String::new(),
            n => format!(", {n} gates (one per spindle)"),
        };
        let store = state.pipeline.backend();
        let gate = state.pipeline.gate();
        lines.push(format!(
            "pool     {}: {} in {}; {} at depth {}{}, charging {}, {} at once{gates}",
            config.name,
            henge_core::format_size(store.capacity() * pool.members),
            store.describe(),
            config.scheduler.name,
            gate.depth(),
            config.scheduler.steered(),
            gate.cost_unit(),
            henge_core::format_size(plane.pools.quantum(number)),
        ));
    }
    for (_, disk) in plane.disks.served() {
        let on = disk.config.pools.iter().map(|p| plane.pools[*p].config.name.clone());
        let places = disk.config.places.iter().map(ToString::to_string);
        let on: Vec<String> = if disk.spread.is_some() { places.collect() } else { on.collect() };
        let terms = disk.config.terms.iter().map(|(key, value)| format!("{key} = {}", term(value)));
        let terms: Vec<String> = terms.collect();
        let contract = if terms.is_empty() { "best effort".into() } else { terms.join(", ") };
        lines.push(format!(
            "disk     {}: {} on {}; accepted: {contract}",
            disk.config.name,
            henge_core::format_size(disk.vdisk.capacity()),
            on.join(" + "),
        ));
    }
    lines
}

/// Where a disk lies on pools of the cluster.
fn places(config: &DiskConfig) -> Vec<String> {
    let all = config.places.iter().filter(|_| config.is_of_cluster());
    all.map(ToString::to_string).collect()
}

fn peer(peer: &crate::links::Peer) -> PeerStatus {
    let counts = peer.counts;
    PeerStatus {
        name: peer.config.name.clone(),
        address: peer.config.address.clone(),
        linked: peer.link.is_some(),
        error: peer.error.clone(),
        pending: peer.in_flight.len(),
        parts: counts.parts,
        failed: counts.failed,
        served: counts.served,
        announced: counts.announced,
        established: counts.established,
    }
}

fn gate(state: &mut crate::plane::GateState, now: Instant) -> GateStatus {
    let lateness = state.pipeline.backend().lateness().and_then(|h| h.quantile(0.99));
    let gate = state.pipeline.gate_mut();
    let meters = gate.meters(now);
    let (busy, in_flight_ns) = (meters.busy.as_nanos(), meters.in_flight_ns);
    GateStatus {
        virtual_time: (gate.scheduler().virtual_time().raw() >> henge_core::VTime::FRACTION_BITS) as u64,
        in_flight_ms: (in_flight_ns / 1_000_000) as u64,
        unfairness: None,
        name: state.name.clone(),
        queued: gate.queued(),
        in_flight: gate.in_flight(),
        depth: gate.depth(),
        depth_of_all: gate.depth_of_all(),
        busy,
        mean_depth: if busy == 0 { 0.0 } else { in_flight_ns as f64 / busy as f64 },
        lateness_p99: lateness.map(|d| d.as_nanos()),
        work: gate.work().map(|(under_way, most)| [under_way.as_nanos(), most.as_nanos()]),
        learned: gate.learned().iter().map(learned).collect(),
    }
}

fn learned(learned: &henge_core::Learned) -> LearnedCost {
    LearnedCost {
        kind: learned.kind.to_owned(),
        fixed: learned.fixed.as_nanos(),
        per_mib: learned.per_mib.as_nanos(),
        error: f64::from(learned.error) / 1e4,
        drift: learned.drift.map(|thousandths| thousandths as f64 / 1e3),
    }
}

pub(crate) fn build(scheduler: &SchedulerConfig) -> Outcome<henge_core::Assembly> {
    henge_sched::build(&scheduler.name, scheduler.knobs.clone()).map_err(|e| e.to_string())
}

/// A scheduler for a pool that is a device, or not.
pub(crate) fn scheduler(new: &Choice, per_spindle: bool, device: bool) -> Outcome<SchedulerConfig> {
    let read = new.value("scheduler").and_then(|value| {
        config::scheduler(&mut Params::new("the scheduler").with("scheduler", value), device)
    });
    let mut scheduler = read.map_err(|e| e.to_string())?;
    // A bare name says nothing about spindles: they stay as they are.
    scheduler.per_spindle |= per_spindle;
    Ok(scheduler)
}

/// A contract from its terms.
pub(crate) fn contract(terms: &[(String, Value)]) -> Result<Contract, ParamError> {
    let mut params = Params::new("the contract");
    for (key, value) in terms {
        params = params.with(key, value.clone());
    }
    let contract = Contract::from_params(&mut params)?;
    params.finish()?;
    Ok(contract)
}

/// As the configuration writes it.
pub(crate) fn term(value: &Value) -> String {
    match value {
        Value::Bool(b) => b.to_string(),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Text(text) => text.clone(),
        Value::Table(_) | Value::List(_) => "…".into(),
    }
}
