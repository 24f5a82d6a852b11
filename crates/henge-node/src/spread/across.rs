//! Disks that lie on pools of several shards, or whose clients are served by several: the same owners and coordinators as over several nodes,
//! with lanes instead of links.
//!
//! Each shard that has a pool of such a disk keeps the owners of the extents there. One shard, the *lead*, shows the disk to clients, and
//! coordinates it. Where the pool says so (`every_core`), every shard coordinates it for its own NBD clients, and the locks and the gate stay where
//! the pool is:
//!
//! ```text
//! client ─▶ coordinator's disk (shard 1) ─▶ lane ─▶ owner (shard 0) ─▶ gate ─▶ store
//! ```
//!
//! A sub-request crosses with its command's memory on loan. The command keeps that memory until all of its sub-requests are back, however its client
//! goes. So the loan outlives whatever storage does with it.
//!
//! Links to other nodes are the first shard's. There a *relay* stands for an owner at another shard: it is found as an owner is, by coordinators here
//! and at other nodes, and passes everything on.
//!
//! Who has which owner shards tell each other, as they tell of disks ([`News`](crate::server::moving::News)). Until a coordinator knows
//! of an owner, commands for that extent wait.

use super::extents::{align_of, layout};
use super::{At, FLOW, Inner};
use crate::config::DiskConfig;
use crate::link_config::PlaceConfig;
use crate::plane::{Disk, Plane, Submitter};
use crate::shards::Division;
use crate::shards::lanes::{Crossing, Lanes};
use henge_backend::Buffer;
use henge_core::{Cost, Fault, FlowId, Instant, RequestId};
use henge_link::WireUnit;
use henge_vdisk::{Failure, Part, Settings, VirtualDisk};
use std::collections::{BTreeMap, BTreeSet};

/// Crossings taken before clients of this shard have their turns again: each is as much work as a client's command, of which a connection has so many
/// in one turn.
const ROUND: usize = crate::turns::COMMANDS as usize;
/// Sub-requests of one coordinator under way at owners of other shards: an owner has places for those of all shards there may be.
pub(super) const ACROSS_MAX: u32 = (1 << 20) / crate::config::pool::CORES_MAX as u32;
/// The slot in the name of whoever submits for another shard; there is no such connection.
const SLOT: u32 = u32::MAX - 3;

/// An owner at some shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub shard: usize,
    /// Its number there.
    pub number: usize,
    /// What its gate charges.
    pub unit: WireUnit,
}

/// What a shard knows of the others.
#[derive(Default)]
pub(crate) struct Across {
    pub lanes: Lanes,
    /// Which shard this is.
    pub here: usize,
    pub division: Division,
    /// Owners at other shards, by disk and extent.
    owners: BTreeMap<(String, u32), Owner>,
}

impl Across {
    pub(crate) fn new(lanes: Lanes, here: usize, division: Division) -> Across {
        Across { lanes, here, division, owners: BTreeMap::new() }
    }
}

/// Who submits for a shard.
fn submitter_for(shard: usize) -> RequestId {
    RequestId { slot: SLOT, generation: shard as u32 }
}

/// The shard for which that one submits, if it does.
pub(crate) fn shard_of(submitter: RequestId) -> Option<usize> {
    (submitter.slot == SLOT).then_some(submitter.generation as usize)
}

impl Plane {
    /// A disk that concerns several shards has its pools as places.
    pub(crate) fn placed(&self, config: DiskConfig) -> DiskConfig {
        if !config.places.is_empty() || self.across.division.shards_of(&config).len() < 2 {
            return config;
        }
        let place =
            |pool: &usize| PlaceConfig { node: String::new(), pool: self.pools[*pool].config.name.clone() };
        DiskConfig { places: config.pools.iter().map(place).collect(), ..config }
    }

    /// Whether this shard shows a disk to clients of every kind.
    pub(crate) fn leads(&self, config: &DiskConfig) -> bool {
        self.across.division.lead_of(config) == self.across.here
    }

    /// Whether this shard serves NBD clients of a disk.
    pub(crate) fn serves(&self, config: &DiskConfig) -> bool {
        self.leads(config) || self.across.division.is_everywhere(config)
    }

    /// Whether every shard serves NBD clients of a disk.
    pub(crate) fn is_everywhere(&self, number: usize) -> bool {
        self.disks[number].as_ref().is_some_and(|d| self.across.division.is_everywhere(&d.config))
    }

    /// The shard that has a disk's gate.
    pub(crate) fn lead_of(&self, number: usize) -> usize {
        self.disks[number].as_ref().map_or(0, |disk| self.across.division.lead_of(&disk.config))
    }

    /// The owners here of a disk that other shards coordinate, too.
    pub(crate) fn owners_to_tell(&self, number: usize) -> Vec<(u32, Owner)> {
        let shard = self.across.here;
        let Some(disk) = &self.disks[number] else { return Vec::new() };
        if self.across.division.shards_of(&disk.config).len() < 2 {
            return Vec::new();
        }
        let extents = disk.spread.iter().flat_map(|spread| spread.extents.iter().enumerate());
        let here = extents.filter_map(|(i, at)| match at {
            At::Here(owner) if !self.is_relay(*owner) => {
                let unit = self.unit_of(*owner).expect("its gate is here");
                Some((i as u32, Owner { shard, number: *owner, unit }))
            }
            _ => None,
        });
        here.collect()
    }

    /// An owner is at another shard; or is no more.
    pub(crate) fn hear_owner(&mut self, disk: &str, extent: u32, owner: Option<Owner>, now: Instant) {
        let key = (disk.to_owned(), extent);
        match owner {
            Some(owner) => drop(self.across.owners.insert(key, owner)),
            None => drop(self.across.owners.remove(&key)),
        }
        let Some(mut number) = self.number(disk) else { return };
        let Some(spread) = self.disk(number).spread.as_mut() else { return };
        let mut extent = extent as usize;
        let Some(&at) = spread.extents.get(extent) else { return };
        spread.units[extent] = owner.map(|owner| owner.unit);
        match at {
            At::Here(relay) if self.is_relay(relay) => (number, extent) = (relay, 0),
            At::Here(_) | At::There(..) => return,
            At::Across(..) | At::Nowhere => {}
        }
        let spread = self.disk(number).spread.as_mut().expect("a spread disk");
        spread.extents[extent] = owner.map_or(At::Nowhere, |owner| At::Across(owner.shard, owner.number));
        spread.units[extent] = owner.map(|owner| owner.unit);
        self.hand_out_extents(number, now);
    }

    /// Whether what stands here for an owner passes everything on to the owner itself, at another shard. Other nodes, which come by this shard's
    /// links, and this shard's coordinator find an owner so.
    pub(crate) fn is_relay(&self, owner: usize) -> bool {
        self.disks[owner].as_ref().is_some_and(|disk| disk.extent_of.is_some() && disk.spread.is_some())
    }

    /// What stands here for the owner of one extent of a disk that other nodes know.
    pub(super) fn add_relay(&mut self, config: &DiskConfig, index: u32, len: u64) -> Result<usize, String> {
        let pool = config.places[index as usize].pool.clone();
        let places = vec![PlaceConfig { node: String::new(), pool }];
        let mut relay = DiskConfig { pools: Vec::new(), places, capacity: len, ..config.clone() };
        // Coordinators bound what they hand out; here it is room for all of them.
        relay.contract.pending = None;
        let settings =
            Settings { owners: true, align: align_of(config), commands_max: 1 << 20, ..config.settings };
        let vdisk = layout(&relay, len).map_err(|e| e.to_string())?;
        let vdisk = VirtualDisk::new(FLOW, vdisk, settings).map_err(|e| e.to_string())?;
        let mut spread = self.spread(&relay, 1);
        let (at, unit) = self.across(&config.name, index);
        (spread.extents, spread.units) = (vec![at], vec![unit]);
        let mut disk = Disk::new(relay, vdisk, Vec::new());
        disk.spread = Some(Box::new(spread));
        let number = self.free_number();
        self.put_disk(number, disk);
        Ok(number)
    }

    /// Where another shard has an extent, as far as it has said so.
    pub(super) fn across(&self, disk: &str, extent: u32) -> (At, Option<WireUnit>) {
        match self.across.owners.get(&(disk.to_owned(), extent)) {
            Some(owner) => (At::Across(owner.shard, owner.number), Some(owner.unit)),
            None => (At::Nowhere, None),
        }
    }

    /// Hands a sub-request to an owner at another shard.
    pub(super) fn give_across(&mut self, number: usize, (shard, owner): (usize, usize), part: &Part) {
        let settings = *self.disk(number).vdisk.settings();
        // As the owner has them, which completes blocks.
        let settings = Settings { owners: false, ..settings };
        let frame = settings.frame(part.kind, part.request.offset, part.request.len);
        let (command, frame, id) = self.lend(number, part, frame);
        let crossing = Crossing::Part { owner, command, frame, id };
        if self.across.lanes.send(shard, crossing).is_err() {
            // Its loop has ended, which happens by itself only when the system fails it.
            self.inner_done(id, Err(Failure::Fault(Fault::Unreachable)), Buffer::empty(), Cost::ZERO);
        }
    }

    /// An owner of this shard has finished what another shard submitted.
    pub(crate) fn answer_across(
        &mut self,
        shard: usize,
        id: RequestId,
        outcome: Result<(), Failure>,
        frame: Buffer,
        cost: Cost,
    ) {
        // Of a shard that has ended nobody waits.
        drop(self.across.lanes.send(shard, Crossing::Done { id, outcome, cost, frame }));
    }

    /// Gives up sub-requests at an owner of another shard, of these commands of a disk.
    pub(super) fn abort_across(
        &mut self,
        number: usize,
        (shard, owner): (usize, usize),
        theirs: &[RequestId],
    ) {
        let extents = self.disks[number].iter().flat_map(|disk| disk.spread.iter().flat_map(|s| &s.extents));
        let at: Vec<bool> = extents.map(|at| *at == At::Across(shard, owner)).collect();
        let is_theirs = |inner: &Inner| {
            inner.disk == number && at[inner.extent as usize] && theirs.contains(&inner.part.id.command)
        };
        let ids: Vec<RequestId> =
            self.inner.iter().filter(|(_, inner)| is_theirs(inner)).map(|(id, _)| id).collect();
        if !ids.is_empty() {
            drop(self.across.lanes.send(shard, Crossing::Abort { owner, ids }));
        }
    }

    /// Tells an owner at another shard of service at other extents.
    pub(super) fn announce_across(&mut self, (shard, owner): (usize, usize), service: Cost) {
        drop(self.across.lanes.send(shard, Crossing::Foreign { owner, service }));
    }

    /// Gives up what other shards have at an owner that goes.
    pub(crate) fn abort_all_across(&mut self, owner: usize, now: Instant) {
        for shard in 0..self.across.lanes.count() {
            self.abort(owner, submitter_for(shard), None, now);
        }
    }

    /// Takes what has come from other shards, as much as is sensible in a round.
    pub(crate) fn cross(&mut self, now: Instant) {
        for _ in 0..ROUND {
            let Some((from, crossing)) = self.across.lanes.next() else { return };
            match crossing {
                Crossing::Part { owner, command, frame, id } => {
                    if self.disks.get(owner).is_none_or(|d| d.as_ref().is_none_or(|d| d.extent_of.is_none()))
                    {
                        let outcome = Err(Failure::Fault(Fault::Unreachable));
                        self.answer_across(from, id, outcome, frame, Cost::ZERO);
                        continue;
                    }
                    let submitter = Submitter { connection: submitter_for(from), command: id };
                    self.submit(owner, command, frame, submitter, now);
                }
                Crossing::Done { id, outcome, cost, frame } => self.inner_done(id, outcome, frame, cost),
                Crossing::Abort { owner, ids } => {
                    let ids: BTreeSet<RequestId> = ids.into_iter().collect();
                    let connection = submitter_for(from);
                    self.abort_those(owner, |s| s.connection == connection && ids.contains(&s.command), now);
                }
                Crossing::Foreign { owner, service } => self.foreign_at(owner, service, now),
            }
        }
    }

    /// An owner's flow was served so much elsewhere.
    pub(crate) fn foreign_at(&mut self, owner: usize, service: Cost, now: Instant) {
        let disk = self.disks.get(owner).and_then(Option::as_ref);
        if let Some(spread) = disk.and_then(|disk| disk.spread.as_ref()) {
            if let At::Across(shard, owner) = spread.extents[0] {
                self.announce_across((shard, owner), service);
            }
            return;
        }
        let gate = self.disks.get(owner).and_then(Option::as_ref).map(|d| d.vdisk.layout().gates()[0]);
        if let Some(gate) = gate {
            self.gates[gate.index()].pipeline.gate_mut().foreign(FlowId(owner as u32), service, now);
        }
    }
}
