//! The data plane: disks and gates, and how a command becomes requests and they an answer.
//!
//! No sockets and no clock here. The loop submits commands with their buffers, calls [`Plane::poll`], and
//! takes the answers. Everything is indexed by small numbers; once warm, nothing is allocated per request.

#![allow(unsafe_code)] // lends parts of a command's buffer to stores

use crate::config::{DiskConfig, NodeConfig, PoolConfig, at};
use crate::links::Links;
use crate::meters::DiskMeters;
use crate::operate::term;
use crate::record::Recorder;
use crate::spread::{INNER, Inner, Spread};
use crate::storage;
use crate::tap::{Taken, Tap, Tapped};
use henge_backend::{Buffer, BufferPool, Store};
use henge_core::{
    Backend, Contract, Cost, Fault, FlowId, Gate, Instant, Op, ParamError, Pending, Pipeline, Refused,
    Request, RequestId,
};
use henge_iscsi::scsi::Extent;
use henge_vdisk::{
    Array, Command, Data, Failure, GateId, Gates, Layout, Part, PartId, Patch, Place, Target, VirtualDisk,
};
use std::sync::Arc;

/// Who waits for a command: a connection and its name for the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub connection: RequestId,
    pub command: RequestId,
}

/// A command that is over, with its buffer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub disk: usize,
    pub owner: Owner,
    pub outcome: Result<(), Failure>,
    pub frame: Buffer,
    /// Where the command's own bytes begin in it.
    pub lead: u64,
    /// What it was charged, where somebody is to be told: at the home of a place.
    pub cost: Cost,
}

pub(crate) struct Flight {
    id: RequestId,
    pub frame: Buffer,
    owner: Owner,
    cost: Cost,
}

/// A virtual disk and its place in the node.
pub(crate) struct Disk {
    pub config: DiskConfig,
    pub vdisk: VirtualDisk,
    /// By the slot of the command.
    pub flights: Vec<Option<Flight>>,
    /// Where its part begins on each gate; a FLUSH is sent there.
    bases: Vec<(GateId, u64)>,
    /// Bytes of buffers it holds.
    pub held: usize,
    /// Clients connected.
    pub connections: usize,
    /// What its clients saw.
    pub meters: DiskMeters,
    /// The part's name on each of its pools.
    part: String,
    /// The number of its first part.
    first: u32,
    /// Of how many places it is one: its gates keep that much less of the contract.
    pub among: u64,
    /// Its places, where they are on several nodes.
    pub spread: Option<Box<Spread>>,
    /// The disk of which this is a place. Nobody but that disk's coordinators may use it.
    pub home_of: Option<usize>,
}

/// What a request at a gate is for.
struct Errand {
    disk: u32,
    part: PartId,
    scratch: Option<Patch>,
    parts: u32,
    seq: u64,
}

/// A gate with its storage.
pub(crate) struct GateState {
    pub name: String,
    pub pipeline: Pipeline<Box<dyn Store>>,
    errands: Pending<Errand>,
    submitted: u64,
    /// On the list of gates to be polled.
    listed: bool,
}

pub(crate) struct Pool {
    pub config: PoolConfig,
    pub gates: std::ops::Range<usize>,
    target: Target,
    /// Whole array, where its spindles have gates of their own.
    members: u64,
}

/// Everything between sessions and storage.
pub(crate) struct Plane {
    pub pools: Vec<Pool>,
    pub gates: Vec<GateState>,
    /// Removed disks leave a gap, so that flows keep their numbers.
    pub disks: Vec<Option<Disk>>,
    pub buffers: BufferPool,
    pub answers: Vec<Answer>,
    /// The other nodes.
    pub links: Links,
    /// Parts of spread disks that are at their homes here.
    pub inner: Pending<Inner>,
    listed: Vec<usize>,
    freed: bool,
    recorder: Option<Recorder>,
    tap: Option<Tap>,
}

/// Most steps of one look at what takes room.
const EXTENT_STEPS: usize = 512;

struct Rooms<'a>(&'a [GateState]);

impl Gates for Rooms<'_> {
    fn has_room(&mut self, gate: GateId, flow: FlowId) -> bool {
        self.0[gate.index()].pipeline.gate().has_room(flow)
    }
}

/// What a part is to its gate: the disk has room for so many commands that no gate refuses one of its parts.
const PENDING_MAX: u32 = 1 << 16;

impl Plane {
    /// Opens pools and disks.
    pub(crate) fn open(config: &NodeConfig, epoch: u64, now: Instant) -> Result<Plane, ParamError> {
        let recorder = match &config.requests {
            None => None,
            Some(path) => Some(Recorder::create(path).map_err(|e| at(&(0..0), e.to_string()))?),
        };
        let mut plane = Plane {
            pools: Vec::new(),
            gates: Vec::new(),
            disks: Vec::new(),
            buffers: BufferPool::new(config.buffers),
            answers: Vec::new(),
            links: Links::new(config.link.clone(), epoch),
            inner: Pending::new(),
            listed: Vec::new(),
            freed: false,
            recorder,
            tap: None,
        };
        for pool in &config.pools {
            plane.add_pool(pool, config)?;
        }
        for peer in &config.peers {
            plane.links.add(peer.clone(), None).map_err(|e| at(&(0..0), e))?;
        }
        for disk in &config.disks {
            plane.add_disk(disk.clone(), now)?;
        }
        Ok(plane)
    }

    fn add_pool(&mut self, pool: &PoolConfig, config: &NodeConfig) -> Result<(), ParamError> {
        let stores = storage::open(pool, config)?;
        let members = stores.members.len() as u64;
        let first = self.gates.len();
        for (i, store) in stores.members.into_iter().enumerate() {
            let assembly = henge_sched::build(&pool.scheduler.name, pool.scheduler.knobs.clone())?;
            let mut gate = Gate::new(assembly);
            gate.set_pending_max(PENDING_MAX);
            gate.leave_pending();
            let name = if stores.unit.is_some() { format!("{}/{i}", pool.name) } else { pool.name.clone() };
            self.gates.push(GateState {
                name,

                pipeline: Pipeline::new(gate, store),
                errands: Pending::new(),
                submitted: 0,
                listed: false,
            });
        }
        let gates = first..self.gates.len();
        let target = match stores.unit {
            Some(unit) => {
                let spindles = gates.clone().map(|g| GateId(g as u32)).collect();
                Target::Array(Arc::new(Array { unit, spindles }))
            }
            None => Target::Gate(GateId(first as u32)),
        };
        self.pools.push(Pool { config: pool.clone(), gates, target, members });
        Ok(())
    }

    /// Makes a disk, or finds its parts as they were left. Its number.
    pub(crate) fn add_disk(&mut self, config: DiskConfig, now: Instant) -> Result<usize, ParamError> {
        match config.places.is_empty() {
            true => self.add_parts(config, 0, 1, now),
            false => self.add_spread(config, now),
        }
    }

    /// The home of one place of a disk that is spread over nodes.
    pub(crate) fn add_home(
        &mut self,
        config: &DiskConfig,
        pool: usize,
        index: u32,
        len: u64,
        now: Instant,
    ) -> Result<usize, ParamError> {
        let mut home = DiskConfig { pools: vec![pool], places: Vec::new(), capacity: len, ..config.clone() };
        // Coordinators bound what they hand out; here it is room for all of them.
        home.contract.pending = None;
        home.settings.commands_max = 1 << 20;
        self.add_parts(home, index, config.places.len() as u64, now)
    }

    fn add_parts(
        &mut self,
        config: DiskConfig,
        first: u32,
        among: u64,
        now: Instant,
    ) -> Result<usize, ParamError> {
        let number = self.disks.iter().position(Option::is_none).unwrap_or(self.disks.len());
        let wrong =
            |e: &dyn std::fmt::Display| at(&config.capacity_span, format!("disk \"{}\": {e}", config.name));
        let part = format!("{}.part", config.name);
        let mut places = Vec::new();
        let mut bases = Vec::new();
        let mut block = 1;
        for (i, &p) in config.pools.iter().enumerate() {
            let on = config.pools.len() as u64;
            let len = henge_vdisk::striped_below(config.capacity, i as u64, on, config.stripe);
            let pool = &self.pools[p];
            let per_member = member_len(len, pool);
            let mut base = None;
            for g in pool.gates.clone() {
                let store = self.gates[g].pipeline.backend_mut();
                let found = store
                    .open_part(&format!("{part}{}", i + first as usize), per_member)
                    .map_err(|e| wrong(&e))?;
                block = block.max(store.block());
                bases.push((GateId(g as u32), found));
                if *base.get_or_insert(found) != found {
                    return Err(wrong(&"its parts on the spindles do not begin at the same address"));
                }
            }
            let base = base.expect("a pool has a gate") * pool.members;
            places.push(Place { target: pool.target.clone(), base, len: per_member * pool.members });
        }
        let layout = Layout::new(config.capacity, config.stripe, places).map_err(|e| wrong(&e))?;
        let settings = henge_vdisk::Settings { align: block.max(config.settings.align), ..config.settings };
        let flow = FlowId(number as u32);
        let vdisk = VirtualDisk::new(flow, layout, settings).map_err(|e| wrong(&e))?;
        let promised = self.promise(
            flow,
            &vdisk,
            &Contract::best_effort(),
            &config.contract,
            (config.leeway, among),
            now,
        );
        if let Err(refused) = promised {
            for gate in vdisk.layout().gates() {
                self.gates[gate.index()].pipeline.gate_mut().remove_flow(flow, now, &mut Vec::new());
            }
            let message = format!("disk \"{}\": {}", config.name, refused.why);
            let span = config.contract_span.clone();
            return Err(ParamError { message, help: Some(refused.instead), span });
        }
        let mut disk = Disk::new(config, vdisk, bases, part);
        (disk.first, disk.among) = (first, among);
        self.put_disk(number, disk);
        Ok(number)
    }

    /// Makes a disk of this node's pools longer: first every part, of which none may be in the way of another, then the disk.
    pub(crate) fn lengthen(&mut self, number: usize, capacity: u64) -> Result<(), String> {
        let disk = self.disks[number].as_ref().expect("a disk that was found");
        let on = disk.config.pools.len() as u64;
        let mut parts = Vec::new();
        let mut places = Vec::new();
        for (i, (&p, place)) in disk.config.pools.iter().zip(disk.vdisk.layout().places()).enumerate() {
            let pool = &self.pools[p];
            let len = henge_vdisk::striped_below(capacity, i as u64, on, disk.config.stripe);
            let per_member = member_len(len, pool);
            let name = format!("{}{}", disk.part, i + disk.first as usize);
            parts
                .extend(pool.gates.clone().map(|g| (g, name.clone(), per_member, place.base / pool.members)));
            places.push(Place { len: per_member * pool.members, ..place.clone() });
        }
        let layout = Layout::new(capacity, disk.vdisk.layout().unit(), places).map_err(|e| e.to_string())?;
        for (g, name, len, _) in &parts {
            self.gates[*g].pipeline.backend().could_grow(name, *len).map_err(|e| e.to_string())?;
        }
        for (g, name, len, base) in &parts {
            let store = self.gates[*g].pipeline.backend_mut();
            let found = store.open_part(name, *len).map_err(|e| e.to_string())?;
            assert_eq!(found, *base, "a part grows where it stands");
        }
        let disk = self.disk(number);
        disk.vdisk.resize(layout).map_err(|e| e.to_string())?;
        disk.config.capacity = capacity;
        Ok(())
    }

    pub(crate) fn put_disk(&mut self, number: usize, disk: Disk) {
        if number == self.disks.len() {
            self.disks.push(Some(disk));
        } else {
            self.disks[number] = Some(disk);
        }
    }

    /// The disks that clients may use.
    pub(crate) fn served(&self) -> impl Iterator<Item = (usize, &Disk)> {
        let disks = self.disks.iter().enumerate().filter_map(|(n, d)| d.as_ref().map(|d| (n, d)));
        disks.filter(|(_, disk)| disk.home_of.is_none())
    }

    /// Tells each gate its part of the contract. A refusal leaves all of them as they were.
    fn promise(
        &mut self,
        flow: FlowId,
        vdisk: &VirtualDisk,
        old: &Contract,
        new: &Contract,
        (leeway, among): (u64, u64),
        now: Instant,
    ) -> Result<(), Refused> {
        let gates: Vec<usize> = vdisk.layout().gates().iter().map(|g| g.index()).collect();
        let part = new.part(leeway, gates.len() as u64 * among);
        for (told, &g) in gates.iter().enumerate() {
            let gate = self.gates[g].pipeline.gate_mut();
            let Err(refused) = gate.set_flow(flow, &part, now) else { continue };
            let part = old.part(leeway, gates.len() as u64 * among);
            for &g in &gates[..told] {
                let back = self.gates[g].pipeline.gate_mut().set_flow(flow, &part, now);
                debug_assert!(back.is_ok(), "what was promised before can be promised again");
            }
            return Err(refused);
        }
        for g in gates {
            self.list(g);
        }
        Ok(())
    }

    /// Changes a disk's contract from now on, for queued and new requests.
    pub(crate) fn set_contract(
        &mut self,
        number: usize,
        config: DiskConfig,
        now: Instant,
    ) -> Result<(), Refused> {
        if self.disk(number).spread.is_some() {
            return self.set_homes(number, config, now);
        }
        let disk = self.disks[number].take().expect("a disk that was found");
        let result = self.promise(
            disk.vdisk.flow(),
            &disk.vdisk,
            &disk.config.contract,
            &config.contract,
            (config.leeway, disk.among),
            now,
        );
        let disk = self.disks[number].insert(disk);
        if result.is_ok() {
            disk.config = config;
        }
        result
    }

    /// Removes a disk that has nothing pending, and its data.
    pub(crate) fn remove_disk(&mut self, number: usize, now: Instant) -> std::io::Result<()> {
        if self.disk(number).spread.is_some() {
            return self.remove_spread(number, now);
        }
        let disk = self.disks[number].take().expect("a disk that was found");
        assert_eq!(disk.vdisk.pending(), 0, "commands are aborted before their disk goes");
        let mut result = Ok(());
        for (i, &p) in disk.config.pools.iter().enumerate() {
            for g in self.pools[p].gates.clone() {
                let mut orphans = Vec::new();
                let pipeline = &mut self.gates[g].pipeline;
                pipeline.gate_mut().remove_flow(disk.vdisk.flow(), now, &mut orphans);
                assert!(orphans.is_empty(), "a disk without commands has no requests");
                let removed =
                    pipeline.backend_mut().remove_part(&format!("{}{}", disk.part, i + disk.first as usize));
                result = result.and(removed);
            }
        }
        result
    }

    /// The disk of that number.
    pub(crate) fn disk(&mut self, number: usize) -> &mut Disk {
        self.disks[number].as_mut().expect("a disk in use is there")
    }

    /// Whether the disk takes another command: its contract's bound on pending ones.
    pub(crate) fn has_room(&self, number: usize) -> bool {
        let Some(disk) = &self.disks[number] else { return false };
        let pending = disk.config.contract.pending.map_or(usize::MAX, |n| n as usize);
        disk.vdisk.has_room() && disk.vdisk.pending() < pending
    }

    /// Memory for a command of this disk; `None` when it has to wait.
    ///
    /// A disk may hold as much as is left for all (a dynamic threshold, as in the shared buffers of switches): n
    /// disks that want everything get an n + 1st of it each, and as much is left for whoever comes.
    pub(crate) fn take_buffer(&mut self, number: usize, len: u64) -> Option<Buffer> {
        let len = usize::try_from(len).ok()?;
        let footprint = BufferPool::footprint(len);
        let held = self.disk(number).held;
        if held > 0 && held + footprint > self.buffers.room() {
            return None;
        }
        let buffer = self.buffers.get(len)?;
        self.disk(number).held += footprint;
        Some(buffer)
    }

    /// Which bytes of a disk take room, from `offset` on: at most so many stretches, which may end before the range
    /// does.
    pub(crate) fn extents(&mut self, number: usize, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        let Some(disk) = self.disks.get(number).and_then(Option::as_ref) else { return Vec::new() };
        let mut found: Vec<Extent> = Vec::new();
        let end = offset.saturating_add(len).min(disk.vdisk.capacity());
        let mut at = offset;
        // Each step asks the store once, which may be a system call.
        for _ in 0..EXTENT_STEPS {
            if at >= end || found.len() > most {
                break;
            }
            let spot = disk.vdisk.layout().locate(at);
            if disk.spread.is_some() {
                return vec![Extent { len: end - at, allocated: true }]; // its places are asked for data alone
            }
            let store = self.gates[spot.gate.index()].pipeline.backend();
            let (len, allocated) = store.extent(spot.offset, spot.run.min(end - at));
            match found.last_mut() {
                Some(last) if last.allocated == allocated => last.len += len,
                _ => found.push(Extent { len, allocated }),
            }
            at += len;
        }
        found.truncate(most);
        found
    }

    /// Gives a command's memory back.
    pub(crate) fn put_buffer(&mut self, number: usize, buffer: Buffer) {
        if let Some(disk) = &mut self.disks[number] {
            disk.held -= buffer.capacity();
        }
        self.freed |= buffer.capacity() > 0;
        self.buffers.put(buffer);
    }

    /// Whether memory came back since this was asked last.
    pub(crate) fn freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Takes a command in; `has_room` was asked before. Its name at the disk.
    pub(crate) fn submit(
        &mut self,
        number: usize,
        command: Command,
        frame: Buffer,
        owner: Owner,
        now: Instant,
    ) {
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        let id = disk.vdisk.submit(command).expect("room was asked for before");
        let slot = id.index();
        if disk.flights.len() <= slot {
            disk.flights.resize_with(slot + 1, || None);
        }
        disk.flights[slot] = Some(Flight { id, frame, owner, cost: Cost::ZERO });
        self.hand_out(number, now);
        self.collect(number, now);
    }

    /// Hands the disk's parts to their gates, as long as there is room.
    fn hand_out(&mut self, number: usize, now: Instant) {
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        if disk.spread.is_some() {
            return self.hand_out_places(number, now);
        }
        while let Some(part) = disk.vdisk.next_part(&mut Rooms(&self.gates)) {
            let Part { id: part_id, gate, mut request, data, .. } = part;
            let g = gate.index();
            let state = &mut self.gates[g];
            let (payload, scratch) = match data {
                Data::None => (Buffer::empty(), None),
                Data::Frame { at } => {
                    let flight = disk.flights[part_id.command.index()].as_mut();
                    let frame = &mut flight.expect("a pending command has its buffer here").frame;
                    // SAFETY: the frame stays in `flights` until the command is finished, which is when all its
                    // parts are done and their loans returned; parts of one command do not overlap; nobody reads
                    // the frame meanwhile. A node that cannot wait for its stores leaks the frames (`abandon`).
                    (unsafe { frame.lend(at as usize, request.len as usize) }, None)
                }
                Data::Scratch(patch) => (Buffer::zeroed(request.len as usize), Some(patch)),
                Data::Compare { .. } | Data::Discard => (Buffer::zeroed(request.len as usize), None),
            };
            if request.op == Op::Flush {
                let base = disk.bases.iter().find(|(on, _)| *on == gate);
                request.offset = base.expect("a disk knows its gates").1;
            }
            state.submitted += 1;
            let parts = (f64::from(Request::WHOLE) / f64::from(request.commands)).round().max(1.0) as u32;
            let errand = Errand { disk: number as u32, part: part_id, scratch, parts, seq: state.submitted };
            request.id = state.errands.insert(errand);
            let taken = state.pipeline.submit(request, payload, now);
            assert!(taken.is_ok(), "the gate said that it had room");
            if !state.listed {
                state.listed = true;
                self.listed.push(g);
            }
        }
    }

    /// Moves what the disk has finished to the answers.
    pub(crate) fn collect(&mut self, number: usize, now: Instant) {
        let mut disk = self.disks[number].as_mut().expect("a disk in use is there");
        while let Some(finished) = disk.vdisk.next_finished() {
            let flight = disk.flights[finished.id.index()].take().expect("a command is finished once");
            let Flight { frame, owner, cost, .. } = flight;
            if owner.connection == INNER {
                self.inner_done(&owner, &finished, frame, cost);
                disk = self.disks[number].as_mut().expect("a disk in use is there");
                continue;
            }
            disk.meters.finished(&finished, &disk.config.contract, now);
            if let Some(tap) = &mut self.tap
                && !tap.note(number, &finished, now)
            {
                self.tap = None;
            }
            let lead = finished.command.offset % disk.vdisk.settings().align;
            self.answers.push(Answer { disk: number, owner, outcome: finished.outcome, frame, lead, cost });
        }
    }

    /// Opens the tap, or empties it.
    pub(crate) fn tap(&mut self, buffer: Vec<Tapped>, now: Instant) -> Taken {
        let (commands, lost) = match &mut self.tap {
            Some(tap) => tap.empty(buffer, now),
            None => {
                self.tap = Some(Tap::open(buffer, now));
                (Vec::new(), 0)
            }
        };
        let name = |disk: &Option<Disk>| disk.as_ref().map_or_else(String::new, |d| d.config.name.clone());
        Taken { now: now.as_nanos(), lost, disks: self.disks.iter().map(name).collect(), commands }
    }

    /// Closes the tap.
    pub(crate) fn untap(&mut self) {
        self.tap = None;
    }

    /// Puts a gate on the list of those to be polled.
    pub(crate) fn list(&mut self, g: usize) {
        if !std::mem::replace(&mut self.gates[g].listed, true) {
            self.listed.push(g);
        }
    }

    /// Whether a gate is to be polled at once.
    pub(crate) fn is_listed(&self) -> bool {
        !self.listed.is_empty() || !self.links.returns.is_empty()
    }

    /// Lists the gates whose time has come.
    pub(crate) fn list_due(&mut self, now: Instant) {
        for g in 0..self.gates.len() {
            if self.gates[g].pipeline.wake_at().is_some_and(|at| at <= now) {
                self.list(g);
            }
        }
    }

    /// When `list_due` will find something.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.gates.iter().filter_map(|g| g.pipeline.wake_at()).min()
    }

    /// Polls the listed gates until nothing is left to do at `now`.
    pub(crate) fn poll(&mut self, now: Instant) {
        loop {
            self.poll_gates(now);
            if self.links.returns.is_empty() {
                return;
            }
            self.settle(now);
        }
    }

    fn poll_gates(&mut self, now: Instant) {
        while let Some(g) = self.listed.pop() {
            self.gates[g].listed = false;
            while let Some(finished) = self.gates[g].pipeline.poll(now) {
                let errand = self.gates[g].errands.remove(finished.served.request.id);
                let errand = errand.expect("what is finished was submitted");
                if let Some(recorder) = &mut self.recorder {
                    let disk = self.disks[errand.disk as usize].as_ref().expect("a disk in use is there");
                    recorder.row(&disk.config.name, &finished.served, g as u32, errand.seq, errand.parts);
                }
                let cost = finished.served.request.cost;
                self.done(&errand, finished.outcome, &finished.payload, cost, now);
            }
        }
    }

    fn done(
        &mut self,
        errand: &Errand,
        outcome: Result<(), Fault>,
        payload: &Buffer,
        cost: Cost,
        now: Instant,
    ) {
        let number = errand.disk as usize;
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        if disk.home_of.is_some() {
            let flight = disk.flights[errand.part.command.index()].as_mut();
            flight.expect("a pending command has its buffer here").cost += cost;
        }
        let mut outcome = outcome.map_err(Failure::from);
        if let (Some(patch), Ok(())) = (&errand.scratch, outcome) {
            let flight = disk.flights[errand.part.command.index()].as_mut();
            let frame = &mut flight.expect("a pending command has its buffer here").frame;
            outcome = patch.apply(payload, frame);
        }
        disk.vdisk.part_done(errand.part, outcome);
        self.hand_out(number, now);
        self.collect(number, now);
    }

    /// Gives up what a connection has pending at a disk, or one command of it: what waits is cancelled, what is
    /// in flight is over when the storage says so. Each is answered as all commands are.
    pub(crate) fn abort(
        &mut self,
        number: usize,
        connection: RequestId,
        command: Option<RequestId>,
        now: Instant,
    ) {
        let Some(disk) = self.disks[number].as_mut() else { return };
        let theirs = |owner: &Owner| {
            owner.connection == connection && command.is_none_or(|command| command == owner.command)
        };
        let flights = disk.flights.iter().flatten();
        let theirs: Vec<RequestId> = flights.filter(|f| theirs(&f.owner)).map(|f| f.id).collect();
        if theirs.is_empty() {
            return;
        }
        for id in &theirs {
            disk.vdisk.abort(*id);
        }
        if disk.spread.is_some() {
            self.abort_parts(number, &theirs, now);
            return self.collect(number, now);
        }
        for (gate, _) in disk.bases.clone() {
            let g = gate.index();
            let errands = self.gates[g].errands.iter();
            let waiting: Vec<RequestId> = errands
                .filter(|(_, e)| e.disk as usize == number && theirs.contains(&e.part.command))
                .map(|(id, _)| id)
                .collect();
            for id in waiting {
                // What is in flight stays so, and is over when the storage says it.
                let Some((_, payload)) = self.gates[g].pipeline.cancel(id, now) else { continue };
                let errand = self.gates[g].errands.remove(id).expect("what waits was submitted");
                self.list(g);
                self.done(&errand, Err(Fault::Cancelled), &payload, Cost::ZERO, now);
            }
        }
        self.hand_out(number, now);
        self.collect(number, now);
    }

    /// What is here, line by line.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for pool in &self.pools {
            let (config, state) = (&pool.config, &self.gates[pool.gates.start]);
            let gates = match pool.gates.len() {
                1 => String::new(),
                n => format!(", {n} gates (one per spindle)"),
            };
            let store = state.pipeline.backend();
            let gate = state.pipeline.gate();
            lines.push(format!(
                "pool     {}: {} in {}; {} at depth {}, charging {}{gates}",
                config.name,
                henge_core::format_size(store.capacity() * pool.members),
                store.describe(),
                config.scheduler.name,
                gate.depth(),
                gate.cost_unit(),
            ));
        }
        for (_, disk) in self.served() {
            let on = disk.config.pools.iter().map(|p| self.pools[*p].config.name.clone());
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

    /// Whether any request is waiting or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.gates.iter().all(|g| g.errands.is_empty()) && self.links.is_idle()
    }

    /// Writes the rest of the record, now that the run is over.
    pub(crate) fn end_record(&mut self) -> std::io::Result<()> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let lateness = self.gates.iter().filter_map(|g| g.pipeline.backend().lateness()?.quantile(0.99));
        if let Some(worst) = lateness.max() {
            recorder.lateness(worst);
        }
        recorder.flush()
    }

    /// Leaves buffers that storage may still be using where they are, for ever.
    fn abandon(&mut self) {
        for disk in self.disks.iter_mut().flatten() {
            for flight in disk.flights.iter_mut().filter_map(Option::take) {
                std::mem::forget(flight);
            }
        }
    }
}

impl Disk {
    pub(crate) fn new(
        config: DiskConfig,
        vdisk: VirtualDisk,
        bases: Vec<(GateId, u64)>,
        part: String,
    ) -> Disk {
        Disk {
            config,
            vdisk,
            flights: Vec::new(),
            bases,
            held: 0,
            connections: 0,
            meters: DiskMeters::default(),
            part,
            first: 0,
            among: 1,
            spread: None,
            home_of: None,
        }
    }

    /// As NBD clients see it.
    pub(crate) fn export(&self) -> henge_nbd::Export {
        let mut export = henge_nbd::Export::new(&self.config.name, self.vdisk.capacity());
        export.read_only = self.config.read_only;
        export.block.preferred = henge_backend::ALIGN as u32;
        export
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if !self.is_idle() {
            self.abandon();
        }
    }
}

/// What each gate of a pool holds of a part of `len` bytes: whole stripe units of the array.
fn member_len(len: u64, pool: &Pool) -> u64 {
    let page = henge_backend::ALIGN as u64;
    match &pool.target {
        Target::Gate(_) => len.next_multiple_of(page),
        Target::Array(array) => len.div_ceil(array.unit * pool.members) * array.unit,
    }
}
