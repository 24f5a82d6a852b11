//! Disks that lie on pools of several shards, or whose clients are served by several: the same owners and coordinators as over several nodes,
//! with lanes instead of links.
//!
//! Each shard that has a pool of such a disk keeps the owners of the extents there. One shard, the *lead*, shows the disk to clients, and
//! coordinates it. Where the pool says so (`every_core`), every shard coordinates it for its own NBD clients, one of them for initiators and hosts
//! (`shards/leads.rs`), and the locks and the gate stay where the pool is:
//!
//! ```text
//! client ─▶ coordinator's disk (shard 1) ─▶ lane ─▶ owner (shard 0) ─▶ gate ─▶ store
//! ```
//!
//! A sub-request crosses with its command's memory on loan. The command keeps that memory until all of its sub-requests are back, however its client
//! goes. So the loan outlives whatever storage does with it.
//!
//! Where a pool's memory is shared (`henge_backend::SharedMemory`), a short READ crosses without memory. Once its turn at the gate is over, the
//! coordinator's shard reads the bytes by itself. What was written meanwhile it asks for again, with its memory.
//!
//! Links to other nodes are the first shard's. There a *relay* stands for an owner at another shard: it is found as an owner is, by coordinators here
//! and at other nodes, and passes everything on.
//!
//! Who has which owner shards tell each other, as they tell of disks ([`News`](crate::message::News)). Until a coordinator knows
//! of an owner, commands for that extent wait.

use super::layout::{align_of, layout};
use super::parts::loan;
use super::{At, FLOW, Inner, coordinator};
use crate::config::DiskConfig;
use crate::link_config::PlaceConfig;
use crate::plane::{Disk, Plane, Submitter, make};
use crate::shards::across::{Owner, Reach, submitter_for};
use crate::shards::lanes::Crossing;
use crate::turns;
use henge_backend::{Buffer, SharedMemory};
use henge_core::{Cost, Fault, FlowId, Instant, RequestId};
use henge_link::WireUnit;
use henge_vdisk::{Command, Data, Failure, Frame, Kind, Part, Portion, Settings, VirtualDisk};
use std::collections::BTreeSet;

/// Crossings taken before clients of this shard have their turns again: each is as much work as a client's command, of which a connection has so many
/// in one turn.
const ROUND: u32 = turns::COMMANDS;

/// A disk that concerns several shards has its pools as places.
pub(crate) fn placed(plane: &Plane, config: DiskConfig) -> DiskConfig {
    if !config.places.is_empty() || plane.across.division.shards_of(&config).len() < 2 {
        return config;
    }
    let place =
        |pool: &usize| PlaceConfig { node: String::new(), pool: plane.pools[*pool].config.name.clone() };
    DiskConfig { places: config.pools.iter().map(place).collect(), ..config }
}

/// Whether every shard serves NBD clients of a disk.
pub(crate) fn is_everywhere(plane: &Plane, number: usize) -> bool {
    plane.disks[number].as_ref().is_some_and(|d| plane.across.division.is_everywhere(&d.config))
}

/// The shard that has a disk's gate.
pub(crate) fn gate_of(plane: &Plane, number: usize) -> usize {
    plane.disks[number].as_ref().map_or(0, |disk| plane.across.division.gate_of(&disk.config))
}

/// The owners here of a disk that other shards coordinate, too.
pub(crate) fn owners_to_tell(plane: &Plane, number: usize) -> Vec<(u32, Owner)> {
    let shard = plane.across.here;
    let Some(disk) = &plane.disks[number] else { return Vec::new() };
    if plane.across.division.shards_of(&disk.config).len() < 2 {
        return Vec::new();
    }
    let extents = disk.spread.iter().flat_map(|spread| spread.extents.iter().enumerate());
    let here = extents.filter_map(|(i, at)| match at {
        At::Here(owner) if !plane.disks.is_relay(*owner) => {
            let unit = coordinator::unit_of(plane, *owner).expect("its gate is here");
            Some((i as u32, Owner { shard, number: *owner, unit, reach: reach(plane, *owner) }))
        }
        _ => None,
    });
    here.collect()
}

/// What other shards read of an owner here.
fn reach(plane: &Plane, owner: usize) -> Option<Reach> {
    let layout = plane.disks[owner].as_ref()?.vdisk.layout();
    let (gate, extent) = (layout.gates().first()?, layout.extents().first()?);
    let memory = plane.pools.gates[gate.index()].shared.clone()?;
    Some(Reach { memory, base: extent.base })
}

/// An owner is at another shard; or is no more.
pub(crate) fn hear_owner(plane: &mut Plane, disk: &str, extent: u32, owner: Option<Owner>, now: Instant) {
    let key = (disk.to_owned(), extent);
    match &owner {
        Some(owner) => drop(plane.across.owners.insert(key, owner.clone())),
        None => drop(plane.across.owners.remove(&key)),
    }
    let Some(mut number) = plane.disks.number(disk) else { return };
    let Some(spread) = plane.disks.of(number).spread.as_mut() else { return };
    let mut extent = extent as usize;
    let Some(&at) = spread.extents.get(extent) else { return };
    spread.units[extent] = owner.as_ref().map(|owner| owner.unit);
    match at {
        At::Here(relay) if plane.disks.is_relay(relay) => (number, extent) = (relay, 0),
        At::Here(_) | At::There(..) => return,
        At::Across(..) | At::Nowhere => {}
    }
    let spread = plane.disks.of(number).spread.as_mut().expect("a spread disk");
    spread.extents[extent] =
        owner.as_ref().map_or(At::Nowhere, |owner| At::Across(owner.shard, owner.number));
    spread.units[extent] = owner.as_ref().map(|owner| owner.unit);
    spread.reach[extent] = owner.and_then(|owner| owner.reach);
    plane.hand_out_extents(number, now);
}

/// What stands here for the owner of one extent of a disk that other nodes know.
pub(super) fn add_relay(
    plane: &mut Plane,
    config: &DiskConfig,
    index: u32,
    len: u64,
) -> Result<usize, String> {
    let pool = config.places[index as usize].pool.clone();
    let places = vec![PlaceConfig { node: String::new(), pool }];
    let mut relay = DiskConfig { pools: Vec::new(), places, capacity: len, ..config.clone() };
    // Coordinators bound what they hand out; here it is room for all of them.
    relay.contract.pending = None;
    let settings =
        Settings { owners: true, align: align_of(config), commands_max: 1 << 20, ..config.cutting.settings };
    let vdisk = layout(&relay, len).map_err(|e| e.to_string())?;
    let vdisk = VirtualDisk::new(FLOW, vdisk, settings).map_err(|e| e.to_string())?;
    let mut spread = coordinator::spread(plane, &relay, 1);
    let (at, unit, reach) = across(plane, &config.name, index);
    (spread.extents, spread.units, spread.reach) = (vec![at], vec![unit], vec![reach]);
    let mut disk = Disk::new(relay, vdisk, Vec::new());
    disk.spread = Some(Box::new(spread));
    let number = plane.disks.free_number();
    make::put_disk(plane, number, disk);
    Ok(number)
}

/// Where another shard has an extent, as far as it has said so.
pub(super) fn across(plane: &Plane, disk: &str, extent: u32) -> (At, Option<WireUnit>, Option<Reach>) {
    match plane.across.owners.get(&(disk.to_owned(), extent)) {
        Some(owner) => (At::Across(owner.shard, owner.number), Some(owner.unit), owner.reach.clone()),
        None => (At::Nowhere, None, None),
    }
}

/// Hands a sub-request to an owner at another shard.
pub(super) fn give_across(plane: &mut Plane, number: usize, (shard, owner): (usize, usize), part: &Part) {
    let frame = frame_of(plane, number, part);
    let reads = reads(plane, number, part);
    let (command, frame, id) = plane.lend(number, part, frame, reads);
    ask(plane, shard, id, Crossing::Part { owner, command, frame, id });
}

fn ask(plane: &mut Plane, shard: usize, id: RequestId, part: Crossing) {
    if plane.across.lanes.send(shard, part).is_err() {
        // Its loop has ended, which happens by itself only when the system fails it.
        plane.inner_done(id, Err(Failure::Fault(Fault::Unreachable)), Buffer::empty(), Cost::ZERO);
    }
}

/// A sub-request's frame as its owner has it, which completes blocks.
fn frame_of(plane: &mut Plane, number: usize, part: &Part) -> Frame {
    let settings = Settings { owners: false, ..*plane.disks.of(number).vdisk.settings() };
    settings.frame(part.kind, part.request.offset, part.request.len)
}

/// Whether a sub-request's bytes are read here: the generation of their memory.
fn reads(plane: &mut Plane, number: usize, part: &Part) -> Option<u64> {
    let is_short = (1..=SharedMemory::LEN_MAX).contains(&part.request.len);
    let spread = plane.disks.of(number).spread.as_ref().filter(|_| part.kind == Kind::Read && is_short)?;
    spread.reach[part.gate.index()].as_ref().map(|reach| reach.memory.generation())
}

/// A sub-request at another shard has had its turn. Bytes that were read here.
fn done(plane: &mut Plane, id: RequestId, outcome: Result<(), Failure>, cost: Cost, frame: Buffer) -> u64 {
    let inner = plane.inner.get_mut(id).expect("a part at an owner is over once");
    let Some(generation) = inner.reads.take().filter(|_| outcome.is_ok()) else {
        plane.inner_done(id, outcome, frame, cost);
        return 0;
    };
    let (number, part) = (inner.disk, inner.part);
    plane.round.note(number, part.request.len);
    match read_here(plane, number, &part, generation) {
        true => plane.inner_done(id, outcome, frame, cost),
        false => ask_again(plane, number, id, &part),
    }
    part.request.len
}

/// Reads what has had its turn. False where it was changed meanwhile.
fn read_here(plane: &mut Plane, number: usize, part: &Part, generation: u64) -> bool {
    let disk = plane.disks.of(number);
    let reach = disk.spread.as_ref().and_then(|spread| spread.reach[part.gate.index()].as_ref());
    let (Some(reach), Data::Frame { at }) = (reach, part.data) else { return false };
    let whole = disk.in_flight[part.id.command.index()].as_mut();
    let frame = &mut whole.expect("a pending command has its buffer here").frame;
    let bytes = &mut frame[at as usize..][..part.request.len as usize];
    reach.memory.read(generation, reach.base + part.request.offset, bytes)
}

/// Has an owner at another shard read what was written while it was read here.
fn ask_again(plane: &mut Plane, number: usize, id: RequestId, part: &Part) {
    let at = plane.disks.of(number).spread.as_ref().map(|spread| spread.extents[part.gate.index()]);
    let Some(At::Across(shard, owner)) = at else {
        let gone = Err(Failure::Fault(Fault::Unreachable));
        return plane.inner_done(id, gone, Buffer::empty(), Cost::ZERO);
    };
    let frame = frame_of(plane, number, part);
    let (frame, _) = loan(plane.disks.of(number), part, frame);
    let request = &part.request;
    let portion = Some(Portion { commands: request.commands, foreign: Cost::ZERO });
    let command =
        Command { portion, ..Command::new(part.kind, request.offset, request.len, request.arrival, 0) };
    ask(plane, shard, id, Crossing::Part { owner, command, frame, id });
}

/// An owner of this shard has finished what another shard submitted.
pub(crate) fn answer_across(
    plane: &mut Plane,
    shard: usize,
    id: RequestId,
    outcome: Result<(), Failure>,
    frame: Buffer,
    cost: Cost,
) {
    // Of a shard that has ended nobody waits.
    drop(plane.across.lanes.send(shard, Crossing::Done { id, outcome, cost, frame }));
}

/// Gives up sub-requests at an owner of another shard, of these commands of a disk.
pub(super) fn abort_across(
    plane: &mut Plane,
    number: usize,
    (shard, owner): (usize, usize),
    theirs: &[RequestId],
) {
    let extents = plane.disks[number].iter().flat_map(|disk| disk.spread.iter().flat_map(|s| &s.extents));
    let at: Vec<bool> = extents.map(|at| *at == At::Across(shard, owner)).collect();
    let is_theirs = |inner: &Inner| {
        inner.disk == number
            && at[inner.extent as usize]
            && theirs.binary_search(&inner.part.id.command).is_ok()
    };
    let ids: Vec<RequestId> =
        plane.inner.iter().filter(|(_, inner)| is_theirs(inner)).map(|(id, _)| id).collect();
    if !ids.is_empty() {
        drop(plane.across.lanes.send(shard, Crossing::Abort { owner, ids }));
    }
}

/// Tells an owner at another shard of service at other extents.
pub(super) fn announce_across(plane: &mut Plane, (shard, owner): (usize, usize), service: Cost) {
    drop(plane.across.lanes.send(shard, Crossing::Foreign { owner, service }));
}

/// Gives up what other shards have at an owner that goes.
pub(crate) fn abort_all_across(plane: &mut Plane, owner: usize, now: Instant) {
    for shard in 0..plane.across.lanes.count() {
        plane.abort(owner, submitter_for(shard), None, now);
    }
}

/// Takes what has come from other shards, as much as is sensible in a round.
pub(crate) fn cross(plane: &mut Plane, now: Instant) {
    let (mut left, mut bytes) = (ROUND, turns::ROUND_BYTES);
    while left > 0
        && bytes > 0
        && let Some((from, crossing)) = plane.across.lanes.next()
    {
        left -= 1;
        match crossing {
            Crossing::Part { owner, command, frame, id } => {
                if plane.disks.get(owner).is_none_or(|d| d.as_ref().is_none_or(|d| d.extent.disk.is_none())) {
                    let outcome = Err(Failure::Fault(Fault::Unreachable));
                    answer_across(plane, from, id, outcome, frame, Cost::ZERO);
                    continue;
                }
                let submitter = Submitter { connection: submitter_for(from), command: id };
                plane.submit(owner, command, frame, submitter, now);
            }
            Crossing::Done { id, outcome, cost, frame } => {
                bytes = bytes.saturating_sub(done(plane, id, outcome, cost, frame));
            }
            Crossing::Abort { owner, ids } => {
                let ids: BTreeSet<RequestId> = ids.into_iter().collect();
                let connection = submitter_for(from);
                plane.abort_those(owner, |s| s.connection == connection && ids.contains(&s.command), now);
            }
            Crossing::Foreign { owner, service } => foreign_at(plane, owner, service, now),
        }
    }
}

/// An owner's flow was served so much elsewhere.
pub(crate) fn foreign_at(plane: &mut Plane, owner: usize, service: Cost, now: Instant) {
    let disk = plane.disks.get(owner).and_then(Option::as_ref);
    if let Some(spread) = disk.and_then(|disk| disk.spread.as_ref()) {
        if let At::Across(shard, owner) = spread.extents[0] {
            announce_across(plane, (shard, owner), service);
        }
        return;
    }
    let gate = plane.disks.get(owner).and_then(Option::as_ref).map(|d| d.vdisk.layout().gates()[0]);
    if let Some(gate) = gate {
        plane.pools.gates[gate.index()].pipeline.gate_mut().foreign(FlowId(owner as u32), service, now);
    }
}
