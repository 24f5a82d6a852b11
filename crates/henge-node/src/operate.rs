//! Control requests carried out on the data plane. Runs on the loop, between two turns.

mod offer;

use crate::config::{self, DiskConfig, PoolConfig, SchedulerConfig};
use crate::front::Doors;
use crate::link_config::Nodes;
use crate::plane::tickets::PartOf;
use crate::plane::{Disk, Plane};
use crate::watch::{SLICE, Slice};
use henge_api::{
    AtGate, Buckets, Choice, DiskStatus, FailedDisk, GateStatus, Latencies, LearnedCost, PeerStatus,
    PoolStatus, Promise, Request, Status, Table,
};
use henge_core::{Contract, FlowId, Instant, ParamError, Params, Rate, Term, Value, WaitReason};
use std::collections::BTreeMap;

/// Disks that an error names at most.
const NAMED: usize = 100;

/// What went wrong, for people.
pub(crate) type Outcome<T = ()> = Result<T, String>;

impl Plane {
    /// The number of a disk by its name.
    pub(crate) fn find(&self, name: &str) -> Outcome<usize> {
        self.number(name).ok_or_else(|| {
            if let Some(failed) = self.failed.get(name) {
                return format!("disk \"{name}\" is not served: {}", failed.why);
            }
            let mut known: Vec<&str> =
                self.served().take(NAMED).map(|(_, d)| d.config.name.as_str()).collect();
            let all = self.served().nth(NAMED).is_none();
            known.extend((!all).then_some("…"));
            format!("there is no disk \"{name}\"; there are: {}", known.join(", "))
        })
    }

    pub(crate) fn set(
        &mut self,
        name: &str,
        terms: BTreeMap<String, String>,
        now: Instant,
    ) -> Outcome<usize> {
        let (number, config) = self.changed(name, terms)?;
        self.set_contract(number, config, now).map_err(|refused| refused.to_string())?;
        Ok(number)
    }

    /// A disk with other terms.
    fn changed(&mut self, name: &str, terms: BTreeMap<String, String>) -> Outcome<(usize, DiskConfig)> {
        let number = self.find(name)?;
        let mut config = self.disk(number).config.clone();
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
        &mut self,
        name: &str,
        mut terms: BTreeMap<String, String>,
    ) -> Outcome<Vec<String>> {
        let mut lines = Vec::new();
        if let Some(capacity) = terms.remove("capacity") {
            self.parts_for(&Request::Grow { name: name.to_owned(), capacity: capacity.clone() })?;
            lines.push(format!("its capacity would be {capacity}"));
        }
        let (number, config) = self.changed(name, terms)?;
        if self.disk(number).spread.is_none() {
            lines.extend(self.preview_of(number, &config.contract)?);
            return Ok(lines);
        }
        for owner in self.owners(number) {
            lines.extend(self.preview_of(owner, &config.contract)?);
        }
        Ok(lines)
    }

    fn preview_of(&self, number: usize, contract: &Contract) -> Outcome<Vec<String>> {
        let disk = self.disks[number].as_ref().expect("a disk that was found");
        if disk.spread.is_some() {
            return Ok(Vec::new()); // its gate is another shard's
        }
        let gates = disk.vdisk.layout().gates();
        let part = contract.part(disk.config.leeway, gates.len() as u64 * disk.among);
        for gate in gates {
            let gate = self.gates[gate.index()].pipeline.gate();
            gate.check(disk.vdisk.flow(), &part).map_err(|refused| refused.to_string())?;
        }
        Ok(disk.config.pools.iter().filter_map(|pool| self.promised(*pool, disk, contract)).collect())
    }

    /// What the disks of a pool are promised with the contract that a disk has, and with another.
    fn promised(&self, pool: usize, disk: &Disk, new: &Contract) -> Option<String> {
        let (old, new) = (disk.rate_on_each(&disk.config.contract), disk.rate_on_each(new));
        let unit = new.or(old)?.unit;
        let of = |rate: Option<Rate>| rate.filter(|r| r.unit == unit).map_or(0, |r| u128::from(r.per_second));
        let pool = &self.pools[pool];
        let before = pool.rates[unit as usize];
        let rate = |sum: u128| Rate { per_second: u64::try_from(sum).unwrap_or(u64::MAX), unit };
        let (before, after) = (rate(before), rate(before - of(old) + of(new)));
        Some(format!("promised on {}: {before} before, {after} after", pool.config.name))
    }

    pub(crate) fn add(&mut self, table: &Table, now: Instant) -> Outcome<usize> {
        let disk = self.read_disk(table)?;
        self.add_disk(disk, now).map_err(|e| e.error.to_string())
    }

    /// A disk's table that came by the control socket.
    fn read_disk(&self, table: &Table) -> Outcome<DiskConfig> {
        let params = table.params("the disk").map_err(|e| e.to_string())?;
        let pools: Vec<PoolConfig> = self.pools.iter().map(|p| p.config.clone()).collect();
        let peers = self.links.configs();
        let nodes = Nodes { here: self.links.here(), peers: Some(&peers) };
        let is_taken = |name: &str| self.number(name).is_some();
        let disk = config::disk(params, &pools, &is_taken, nodes, &self.kinds);
        let guarded =
            disk.and_then(|disk| match disk.doors.unguarded(&self.asked).and_then(|kind| kind.demand) {
                Some(demand) => Err(config::at(&disk.span, demand.into())),
                None => Ok(disk),
            });
        let disk = guarded.map_err(|e| e.to_string())?;
        match self.failed.get(&disk.name) {
            Some(failed) => {
                Err(format!("there is a disk \"{}\" that is not served: {}", disk.name, failed.why))
            }
            None => Ok(self.placed(disk)),
        }
    }

    /// A disk, and what a table says of its doors.
    pub(crate) fn doors(&self, name: &str, table: &Table) -> Outcome<(usize, Doors)> {
        let number = self.find(name)?;
        let mut params = table.params("who may use the disk").map_err(|e| e.to_string())?;
        let doors = Doors::read(&self.kinds, &mut params);
        let doors = doors.and_then(|doors| params.finish().map(|()| doors)).map_err(|e| e.to_string())?;
        match doors.unguarded(&self.asked).and_then(|kind| kind.demand) {
            Some(demand) => Err(demand.into()),
            None => Ok((number, doors)),
        }
    }

    /// The parts that a request makes or lengthens, and the disk that they belong to. What is refused already is refused here, before
    /// hours are spent on making them.
    pub(crate) fn parts_for(&self, request: &Request) -> Outcome<(String, Vec<PartOf>)> {
        match request {
            Request::Add { disk } => {
                let config = self.read_disk(disk)?;
                let elsewhere = |p: &usize| {
                    let mut gates = self.pools[*p].gates.clone();
                    gates.any(|g| self.gates[g].pipeline.backend().opens_elsewhere())
                };
                if config.adopt && !config.pools.iter().any(elsewhere) {
                    return Ok((config.name, Vec::new())); // they are there
                }
                if !config.places.is_empty() {
                    return Ok((config.name.clone(), self.parts_here(&config, config.capacity)));
                }
                let parts = self.parts_of(&config, config.capacity, 0);
                let part = config.contract.part(config.leeway, parts.len() as u64);
                let flow = FlowId(self.free_number() as u32);
                for PartOf { gate, .. } in &parts {
                    let accepted = self.gates[*gate].pipeline.gate().check(flow, &part);
                    accepted.map_err(|refused| format!("disk \"{}\": {refused}", config.name))?;
                }
                Ok((config.name, parts))
            }
            Request::Grow { name, capacity } | Request::Room { name, capacity } => {
                let (number, new) = self.larger(name, capacity)?;
                let parts = self.longer_parts(number, new);
                self.could_grow(&parts).map_err(|e| format!("disk \"{name}\": {e}"))?;
                Ok((name.clone(), parts))
            }
            _ => Ok((String::new(), Vec::new())),
        }
    }

    /// Makes a disk longer, where its parts stand. Of a disk over several nodes: its extents here, and as much as its clients see.
    pub(crate) fn grow(&mut self, name: &str, text: &str) -> Outcome {
        let (number, new) = self.larger(name, text)?;
        let disk = self.disk(number);
        let (old, spread) = (disk.vdisk.capacity(), disk.spread.is_some());
        let grown = match spread {
            _ if new == old => Ok(()),
            true => self.lengthen_extents(number, new).and_then(|()| self.lengthen_spread(number, new)),
            false => self.lengthen(number, new),
        };
        grown.map_err(|e| format!("disk \"{name}\": {e}"))
    }

    /// Makes the extents here of a disk over several nodes longer; its clients do not see it yet.
    pub(crate) fn lengthen_ahead(&mut self, name: &str, text: &str) -> Outcome {
        let (number, new) = self.larger(name, text)?;
        if self.disk(number).spread.is_none() {
            return Err(format!("disk \"{name}\" is this node's alone; let it grow"));
        }
        self.lengthen_extents(number, new).map_err(|e| format!("disk \"{name}\": {e}"))
    }

    /// A disk, and a capacity that it could have: none below what it has.
    fn larger(&self, name: &str, text: &str) -> Result<(usize, u64), String> {
        let new = henge_core::parse_size(text).map_err(|e| format!("capacity: {}", e.0))?;
        let number = self.find(name)?;
        let disk = self.disks[number].as_ref().expect("a disk that was found");
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

    pub(crate) fn reset_meters(&mut self, now: Instant) {
        // Each disk's are set back when they are next looked at: no turn of the loop goes through all of them.
        self.metered_since = now;
    }

    /// A part of everything, so that a turn of the loop tells of a bounded number of disks.
    pub(crate) fn slice(&mut self, from: usize, whole: bool, connections: usize, now: Instant) -> Slice {
        let to = (from + SLICE).min(self.disks.len());
        self.disks[from.min(to)..to].iter_mut().flatten().for_each(|d| {
            d.meters.not_before(self.metered_since);
            d.meters.pending(d.vdisk.pending(), now);
        });
        let disks = (from..to).filter_map(|n| self.disks[n].as_ref().map(|disk| (n, disk)));
        let disks = disks.filter(|(_, disk)| disk.extent_of.is_none());
        let disks = disks.map(|(number, disk)| self.disk_status(number, disk, whole, now)).collect();
        let head = (from == 0).then(|| self.head(connections, now));
        Slice { head, disks, next: (to < self.disks.len()).then_some(to) }
    }

    fn head(&mut self, connections: usize, now: Instant) -> Status {
        let mut status = Status {
            uptime: now.as_nanos(),
            connections,
            buffers_out: self.buffers.out(),
            buffers: self.buffers.budget(),
            ..Status::default()
        };
        for (number, pool) in self.pools.iter().enumerate().filter(|(_, pool)| pool.is_here()) {
            let gates = pool.gates.clone();
            let first = &self.gates[gates.start].pipeline;
            let keeps = henge_api::Keeps::of(&first.gate().keeps(), gates.len());
            let (store, unit) = (first.backend().describe(), first.gate().cost_unit().to_string());
            let capacity = gates.clone().map(|g| self.gates[g].pipeline.backend().capacity()).sum();
            status.pools.push(PoolStatus {
                name: pool.config.name.clone(),
                store,
                scheduler: pool.config.scheduler.name.clone(),
                configured: pool.config.scheduler.text(),
                emulated: pool.config.emulated_text.clone(),
                unit,
                capacity,
                promised: pool.promised,
                shared: first.backend().register().map(|register| register.store().to_owned()),
                quantum: self.quantum(number),
                keeps: Some(keeps),
                gates: self.gates[gates].iter_mut().map(|g| gate(g, now)).collect(),
            });
        }
        let failed = self.failed.iter();
        status.failed =
            failed.map(|(name, f)| FailedDisk { name: name.clone(), why: f.why.clone() }).collect();
        status.node = self.links.here().map(str::to_owned);
        status.tags = self.tags.counts;
        status.peers = self.links.peers.iter().flatten().map(peer).collect();
        status
    }

    fn disk_status(&self, number: usize, disk: &Disk, whole: bool, now: Instant) -> DiskStatus {
        let (busy, outstanding_us) = disk.meters.occupancy();
        let mut status = DiskStatus {
            name: disk.config.name.clone(),
            capacity: disk.vdisk.capacity(),
            contract: disk.config.terms.iter().map(|(key, value)| (key.clone(), term(value))).collect(),
            connections: disk.connections,
            metered: now.since(disk.meters.since).as_nanos(),
            commands: disk.meters.commands,
            reads: disk.meters.reads,
            bytes: disk.meters.bytes,
            failed: disk.meters.failed,
            late: disk.meters.late,
            pending: disk.vdisk.pending(),
            latency: Latencies::of(&disk.meters.latency),
            promise: Promise::of(&disk.config.contract),
            pools: disk.config.pools.iter().map(|p| self.pools[*p].config.name.clone()).collect(),
            stripe: disk.config.stripe,
            leeway: disk.config.leeway,
            histogram: whole.then(|| Buckets::from(&disk.meters.latency)),
            places: places(&disk.config),
            fronts: disk.config.doors.open().map(str::to_owned).collect(),
            trouble: self.trouble(disk),
            gateways: disk.config.gateways.clone(),
            seat: self.seat_of(disk),
            stays: self.stays(disk),
            busy: busy.as_nanos(),
            outstanding_us,
            ..DiskStatus::default()
        };
        self.add_gates(&mut status, number, disk, whole, now);
        status
    }

    /// What a disk's requests received and waited for at its gates here.
    fn add_gates(&self, status: &mut DiskStatus, number: usize, disk: &Disk, whole: bool, now: Instant) {
        let mut waits = [henge_core::Duration::ZERO; WaitReason::ALL.len()];
        let mut owners = self.owners(number);
        if disk.spread.is_none() {
            owners.push(number);
        } else if disk.config.places.iter().any(|place| !self.links.is_here(&place.node)) {
            // No coordinator sees all of a disk's clients, so none can judge what they receive together.
            status.promise.rate = None;
        }
        let owners = owners.iter().filter_map(|owner| self.disks[*owner].as_ref());
        let owners = owners.filter(|owner| owner.spread.is_none());
        for (g, flow) in owners.flat_map(|d| d.vdisk.layout().gates().iter().map(|g| (g, d.vdisk.flow()))) {
            let gate = self.gates[g.index()].pipeline.gate();
            let waiting = gate.waiting(flow, now).map(|reason| reason.as_str().to_owned());
            status.waiting = status.waiting.take().or(waiting);
            let Some(meters) = gate.flow_meters(flow) else { continue };
            status.wait += meters.wait_time().as_nanos();
            status.service += meters.service_time.as_nanos();
            status.disk_time += meters.disk_time.as_nanos();
            let mut waited = henge_core::Duration::ZERO;
            for reason in WaitReason::ALL {
                let time = gate.waited(flow, reason, now);
                waits[reason as usize] += time;
                waited += if reason == WaitReason::OwnLimit { henge_core::Duration::ZERO } else { time };
            }
            if whole {
                status.gates.push(AtGate {
                    gate: g.0,
                    weight: disk.config.contract.weight(),
                    service: meters.service.get(),
                    waited: waited.as_nanos(),
                    largest: meters.cost_max.get(),
                });
            }
        }
        let noted = WaitReason::ALL.iter().zip(waits).filter(|(_, time)| *time > henge_core::Duration::ZERO);
        status.waits = noted.map(|(reason, time)| (reason.as_str().to_owned(), time.as_nanos())).collect();
    }

    /// Adds a node, or says where it is now.
    pub(crate) fn add_peer(
        &mut self,
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
        self.links.add(config, at)
    }

    /// Forgets a node that no disk names.
    pub(crate) fn remove_peer(&mut self, name: &str) -> Outcome {
        let Some(found) = self.links.find(name) else {
            let known: Vec<String> = self.links.configs().into_iter().map(|peer| peer.name).collect();
            return Err(format!("there is no peer \"{name}\"; there are: {}", known.join(", ")));
        };
        if let Some(disk) = self.links.peer(found).a_disk() {
            let disk = &self.disk(disk).config.name;
            return Err(format!("disk \"{disk}\" lies on node {name}; remove it first"));
        }
        self.links.remove(found);
        Ok(())
    }
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
        pending: peer.pending(),
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
