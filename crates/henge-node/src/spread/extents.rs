//! The extents of a spread disk: made, found, changed and taken away.

use super::{At, FLOW, Spread, announce, seat, shape};
use crate::config::DiskConfig;
use crate::plane::tickets::PartOf;
use crate::plane::{Disk, NotAdded, Plane};
use henge_core::{CostUnit, Instant, NodeId, ParamError};
use henge_link::WireUnit;
use henge_sched::foreign::{Coordinator, Outbox};
use henge_vdisk::{Extent, GateId, Layout, Target, VirtualDisk};

/// What extents end at a multiple of.
pub(crate) fn align_of(config: &DiskConfig) -> u64 {
    (henge_backend::ALIGN as u64).max(config.settings.align)
}

/// What a disk is striped by over its extents.
fn unit_of_stripes(config: &DiskConfig) -> u64 {
    if config.places.len() == 1 { u64::MAX } else { config.stripe }
}

/// How long each extent of a disk of `capacity` bytes is.
pub(super) fn extent_lens(config: &DiskConfig, capacity: u64) -> Vec<u64> {
    let (count, unit) = (config.places.len() as u64, unit_of_stripes(config));
    let len = |i| henge_vdisk::striped_below(capacity, i, count, unit).next_multiple_of(align_of(config));
    (0..count).map(len).collect()
}

/// Which address of a disk of `capacity` bytes is where. Of two sizes the larger one only has more: what both have is at the same place.
pub(super) fn layout(config: &DiskConfig, capacity: u64) -> Result<Layout, henge_vdisk::LayoutError> {
    let extent = |(i, len)| Extent { target: Target::Gate(GateId(i as u32)), base: 0, len };
    let extents = extent_lens(config, capacity).into_iter().enumerate().map(extent);
    Layout::new(capacity, unit_of_stripes(config), extents.collect())
}

impl Plane {
    /// Makes a disk over several nodes' pools: the owners of its extents here, and the disk itself.
    pub(crate) fn add_spread(&mut self, config: DiskConfig, now: Instant) -> Result<usize, NotAdded> {
        if !config.gateways.is_empty() {
            return self.add_shared(config, now);
        }
        let wrong = |message: String| ParamError {
            message: format!("disk \"{}\": {message}", config.name),
            help: None,
            span: config.capacity_span.clone(),
        };
        let count = config.places.len() as u64;
        let align = align_of(&config);
        let settings = henge_vdisk::Settings { owners: true, align, ..config.settings };
        let lens = extent_lens(&config, config.capacity);
        let layout = layout(&config, config.capacity).map_err(|e| wrong(e.to_string()))?;
        // Any number will do: no gate ever sees this flow.
        let vdisk = VirtualDisk::new(FLOW, layout, settings).map_err(|e| wrong(e.to_string()))?;
        let shape = shape(&config);
        let mut owners = Vec::new();
        let mut local = config.pools.iter();
        for (i, place) in config.places.iter().enumerate() {
            if !self.links.is_here(&place.node) {
                continue;
            }
            let &pool = local.next().expect("every place here names a pool here");
            let added = match self.pools[pool].is_here() {
                true => self.add_extent(&config, pool, i as u32, lens[i], now),
                false if !config.is_of_cluster() || self.links.is_passive => continue,
                false => self.add_relay(&config, i as u32, lens[i]).map_err(|e| wrong(e).into()),
            };
            match added {
                Ok(owner) => owners.push((i, owner)),
                Err(e) => {
                    owners.iter().for_each(|(_, owner)| self.drop_extent(*owner, now));
                    return Err(e);
                }
            }
        }
        let number = self.free_number();
        let mut spread = self.spread(&config, count as u32);
        for (i, place) in config.places.iter().enumerate() {
            let here = owners.iter().find(|(at, _)| *at == i).map(|(_, owner)| *owner);
            let (at, unit) = match here {
                Some(owner) => (At::Here(owner), self.unit_of(owner)),
                None if self.links.is_passive && !self.links.is_here(&place.node) => (At::Nowhere, None),
                None if self.links.is_here(&place.node) => self.across(&config.name, i as u32),
                None => {
                    let peer = self.links.find(&place.node).expect("the configuration names peers");
                    (At::There(peer, self.links.attach(peer, &config.name, number, i as u32, shape)), None)
                }
            };
            spread.extents.push(at);
            spread.units.push(unit);
        }
        for (_, owner) in &owners {
            self.disk(*owner).extent_of = Some(number);
        }
        let mut disk = Disk::new(config, vdisk, Vec::new());
        disk.spread = Some(Box::new(spread));
        self.put_disk(number, disk);
        Ok(number)
    }

    /// The parts here of a disk over several nodes that has, or is to have, `capacity` bytes.
    pub(crate) fn parts_here(&self, config: &DiskConfig, capacity: u64) -> Vec<PartOf> {
        let lens = extent_lens(config, capacity);
        if !config.gateways.is_empty() {
            return self.parts_to_make(config, lens[0]);
        }
        let here = config.places.iter().enumerate();
        let here = here.filter(|(_, place)| self.links.is_here(&place.node));
        let mut parts = Vec::new();
        for ((i, _), &pool) in here.zip(&config.pools).filter(|(_, pool)| self.pools[**pool].is_here()) {
            let owner = DiskConfig { pools: vec![pool], places: Vec::new(), ..config.clone() };
            parts.extend(self.parts_of(&owner, lens[i], i as u32));
        }
        parts
    }

    /// The parts here that are too short for a disk of `capacity` bytes.
    pub(crate) fn longer_parts(&self, number: usize, capacity: u64) -> Vec<PartOf> {
        let disk = self.disks[number].as_ref().expect("a disk that was found");
        let Some(spread) = &disk.spread else {
            return self.parts_of(&disk.config, capacity, disk.first);
        };
        let mut parts = Vec::new();
        for (at, len) in spread.extents.iter().zip(extent_lens(&disk.config, capacity)) {
            let owner = if let At::Here(owner) = at { self.disks[*owner].as_ref() } else { None };
            if let Some(owner) = owner.filter(|owner| len > owner.vdisk.capacity()) {
                parts.extend(self.parts_of(&owner.config, len, owner.first));
            }
        }
        parts
    }

    /// Makes the owners here as long as a disk of `capacity` bytes takes. One that cannot be leaves those before it longer, which
    /// nobody sees.
    pub(crate) fn lengthen_extents(&mut self, number: usize, capacity: u64) -> Result<(), String> {
        let disk = self.disk(number);
        let lens = extent_lens(&disk.config, capacity);
        let extents = disk.spread.as_ref().map_or_else(Vec::new, |s| s.extents.clone());
        for (at, len) in extents.into_iter().zip(lens) {
            if let At::Here(owner) = at
                && len > self.disk(owner).vdisk.capacity()
            {
                match self.is_relay(owner) {
                    true => self.lengthen_spread(owner, len)?,
                    false => self.lengthen(owner, len)?,
                }
            }
        }
        Ok(())
    }

    /// Shows clients a larger disk; what is beyond the end of an extent that is not as long yet is out of range there.
    pub(crate) fn lengthen_spread(&mut self, number: usize, capacity: u64) -> Result<(), String> {
        let disk = self.disk(number);
        let larger = layout(&disk.config, capacity).map_err(|e| e.to_string())?;
        disk.vdisk.resize(larger).map_err(|e| e.to_string())?;
        disk.config.capacity = capacity;
        Ok(())
    }

    pub(super) fn spread(&self, config: &DiskConfig, count: u32) -> Spread {
        // A gate here says what costs count; else the scheduler's default, bytes.
        let pool = config.pools.iter().map(|p| &self.pools[*p]).find(|pool| pool.is_here());
        let gate = pool.map(|pool| pool.gates.start);
        let unit = gate.map_or(CostUnit::Bytes, |g| self.gates[g].pipeline.gate().cost_unit());
        let every = self.links.config.as_ref().and_then(|link| link.announce);
        let every = every.map(|bytes| announce(bytes, unit));
        let mut coordinator = Coordinator::new(NodeId(u32::MAX), self.links.epoch, every);
        coordinator.set_flow(FLOW, &(0..count).map(NodeId).collect::<Vec<_>>());
        Spread {
            extents: Vec::new(),
            coordinator,
            units: Vec::new(),
            inside: 0,
            outbox: Outbox::new(),
            shared: None,
        }
    }

    /// The unit in which an owner's gate charges; of a relay, once it is known.
    pub(crate) fn unit_of(&self, owner: usize) -> Option<WireUnit> {
        let disk = self.disks[owner].as_ref().expect("an owner in use is there");
        if let Some(relay) = &disk.spread {
            return relay.units[0];
        }
        let gate = disk.vdisk.layout().gates()[0];
        Some(crate::links::unit(self.gates[gate.index()].pipeline.gate().cost_unit()))
    }

    /// The owner of a disk's extent, if that is here, the disk is known as the coordinator knows it, and the coordinator is a node that it
    /// names: a node that is linked for other disks' sake reaches those alone.
    pub(crate) fn owner(&self, name: &str, index: u32, digest: u64, by: &str) -> Result<usize, String> {
        let here = self.links.here().unwrap_or_default();
        let number = self.find(name).map_err(|_| format!("node {here} does not serve a disk \"{name}\""))?;
        let disk = self.disks[number].as_ref().expect("a disk that was found");
        let Some(spread) = &disk.spread else {
            return Err(format!("on node {here} the disk \"{name}\" is its own, not the cluster's"));
        };
        if !disk.config.names(by) {
            return Err(format!(
                "on node {here} the disk \"{name}\" does not name node {by}; where clients come by that, state through = [\"{by}\"]"
            ));
        }
        if shape(&disk.config) != digest {
            return Err(format!("node {here} knows the disk \"{name}\" with another stripe or other pools"));
        }
        match spread.extents.get(index as usize) {
            Some(At::Here(owner)) if self.unit_of(*owner).is_none() => {
                Err(format!("extent {index} of the disk \"{name}\" is not there yet on node {here}"))
            }
            Some(At::Here(owner)) if spread.shared.as_ref().is_none_or(|seat| seat.acts.here()) => Ok(*owner),
            _ if spread.shared.is_some() => Err(format!("node {here} does not have the disk \"{name}\" now")),
            _ => Err(format!("extent {index} of the disk \"{name}\" is not on node {here}")),
        }
    }

    /// Changes the contract of every owner here; the other nodes hear of it from whoever changes it.
    pub(crate) fn set_owners(
        &mut self,
        number: usize,
        config: DiskConfig,
        now: Instant,
    ) -> Result<(), henge_core::Refused> {
        let owners = self.owners(number);
        for (told, &owner) in owners.iter().enumerate() {
            let old = self.disk(owner).config.clone();
            let mut new =
                DiskConfig { contract: config.contract.clone(), terms: config.terms.clone(), ..old.clone() };
            new.contract.pending = None;
            let Err(refused) = self.set_contract(owner, new, now) else { continue };
            for &owner in &owners[..told] {
                let back = DiskConfig { contract: old.contract.clone(), ..self.disk(owner).config.clone() };
                let kept = self.set_contract(owner, back, now);
                debug_assert!(kept.is_ok(), "what was promised before can be promised again");
            }
            return Err(refused);
        }
        self.disk(number).config = config;
        Ok(())
    }

    /// Its owners on this node.
    pub(crate) fn owners(&self, number: usize) -> Vec<usize> {
        let spread = self.disks[number].as_ref().and_then(|d| d.spread.as_ref());
        let extents = spread.into_iter().flat_map(|s| &s.extents);
        extents.filter_map(|at| if let At::Here(owner) = at { Some(*owner) } else { None }).collect()
    }

    /// Removes a spread disk that has nothing pending, and its parts here.
    pub(crate) fn remove_spread(&mut self, number: usize, now: Instant) {
        let owners = self.owners(number);
        let disk = self.take_disk(number).expect("a disk that was found");
        assert_eq!(disk.vdisk.pending(), 0, "commands are aborted before their disk goes");
        let spread = disk.spread.expect("a spread disk");
        self.seats.forget(number);
        let shared = spread.shared.iter().flat_map(seat::Seat::extents);
        let own = spread.extents.iter().copied().filter(|_| spread.shared.is_none());
        for at in own.chain(shared) {
            if let At::There(peer, toward) = at {
                self.links.detach(peer, toward);
            }
        }
        for owner in owners {
            self.remove_disk(owner, now);
        }
    }

    /// Takes back a disk on several shards, without commands. Its parts stay where they are.
    pub(crate) fn withdraw(&mut self, number: usize, now: Instant) {
        let owners = self.owners(number);
        self.take_disk(number);
        owners.into_iter().for_each(|owner| self.drop_extent(owner, now));
    }

    /// Takes back an owner that was just made. Its part stays where it is: it may be an old one, with data.
    pub(super) fn drop_extent(&mut self, owner: usize, now: Instant) {
        let Some(disk) = self.take_disk(owner) else { return };
        if disk.spread.is_some() {
            return; // a relay: its gate is another shard's
        }
        for gate in disk.vdisk.layout().gates() {
            let gate = self.gates[gate.index()].pipeline.gate_mut();
            gate.remove_flow(disk.vdisk.flow(), now, &mut Vec::new());
        }
    }

    /// Where a disk's extents are not served, for people.
    pub(crate) fn trouble(&self, disk: &Disk) -> Vec<String> {
        let Some(spread) = &disk.spread else { return Vec::new() };
        if let Some(seat) = &spread.shared {
            return seat.trouble(spread.extents[0]).into_iter().collect();
        }
        let extents = spread.extents.iter().zip(&disk.config.places);
        let trouble = extents.filter_map(|(at, place)| match at {
            At::Here(_) | At::Across(..) | At::Nowhere => None,
            At::There(peer, toward) => {
                let peer = self.links.peers[*peer].as_ref()?;
                peer.trouble(*toward).map(|why| format!("{place}: {why}"))
            }
        });
        trouble.collect()
    }
}
