//! Disks come, change their contracts, and go.

use super::tickets::PartOf;
use super::{Disk, NotAdded, Plane};
use crate::config::{DiskConfig, at};
use crate::spread::align_of;
use henge_core::{Contract, FlowId, Instant, ParamError, Refused};
use henge_vdisk::{Extent, GateId, Layout, VirtualDisk};

/// A disk's parts, opened.
struct Opened {
    /// One on each of its pools.
    extents: Vec<Extent>,
    /// Where each part begins, at its gate.
    bases: Vec<(GateId, u64)>,
    /// The largest block of its stores.
    block: u64,
}

impl Plane {
    /// Makes a disk, or finds its parts as they were left. Its number.
    pub(crate) fn add_disk(&mut self, config: DiskConfig, now: Instant) -> Result<usize, NotAdded> {
        let (name, config) = (config.name.clone(), self.placed(config));
        let number = match config.places.is_empty() {
            true => self.add_parts(config, 0, 1, now)?,
            false => self.add_spread(config, now)?,
        };
        self.by_name.insert(name, number);
        Ok(number)
    }

    /// The number that the next disk gets.
    pub(crate) fn free_number(&self) -> usize {
        self.gaps.first().copied().unwrap_or(self.disks.len())
    }

    /// A number that no disk gets until it is given back.
    pub(super) fn take_number(&mut self) -> usize {
        let number = self.free_number();
        self.gaps.remove(&number);
        if number == self.disks.len() {
            self.disks.push(None);
        }
        number
    }

    /// It is a gap again.
    pub(super) fn give_number(&mut self, number: usize) {
        self.gaps.insert(number);
    }

    /// The owner of one extent of a disk that is spread over nodes.
    pub(crate) fn add_extent(
        &mut self,
        config: &DiskConfig,
        pool: usize,
        index: u32,
        len: u64,
        now: Instant,
    ) -> Result<usize, NotAdded> {
        let mut owner = DiskConfig { pools: vec![pool], places: Vec::new(), capacity: len, ..config.clone() };
        // Coordinators bound what they hand out; here it is room for all of them.
        owner.contract.pending = None;
        owner.settings.commands_max = 1 << 20;
        if !self.across.division.is_whole() {
            // As coordinators at other shards lend memory.
            owner.settings.align = align_of(config);
        }
        self.add_parts(owner, index, config.places.len() as u64, now)
    }

    fn add_parts(
        &mut self,
        config: DiskConfig,
        first: u32,
        among: u64,
        now: Instant,
    ) -> Result<usize, NotAdded> {
        let mut made = Vec::new();
        let added = self.add_with(config, first, among, &mut made, now);
        if added.is_err() {
            // What was not there before takes no room after a refusal.
            for (g, part) in made {
                if let Err(e) = self.gates[g].pipeline.backend_mut().remove_part(&part) {
                    tracing::warn!(part, error = %e, "a part of a refused disk stays until the node begins again");
                }
            }
        }
        added
    }

    /// The disk; with the parts that were made for it.
    fn add_with(
        &mut self,
        config: DiskConfig,
        first: u32,
        among: u64,
        made: &mut Vec<(usize, String)>,
        now: Instant,
    ) -> Result<usize, NotAdded> {
        let number = self.free_number();
        let wrong =
            |e: &dyn std::fmt::Display| at(&config.capacity_span, format!("disk \"{}\": {e}", config.name));
        let Opened { extents, bases, block } = self.open_parts(&config, first, made)?;
        let layout = Layout::new(config.capacity, config.stripe, extents).map_err(|e| wrong(&e))?;
        let settings = self.settings_of(&config, block);
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
            return Err(ParamError { message, help: Some(refused.instead), span }.into());
        }
        let mut disk = Disk::new(config, vdisk, bases);
        (disk.first, disk.among) = (first, among);
        for (pool, bytes) in disk.promised() {
            self.pools[pool].promised += bytes;
        }
        self.count_rates(&disk, &Contract::best_effort(), &disk.config.contract);
        self.put_disk(number, disk);
        Ok(number)
    }

    /// Opens a disk's parts, or makes them, and says what was made.
    fn open_parts(
        &mut self,
        config: &DiskConfig,
        first: u32,
        made: &mut Vec<(usize, String)>,
    ) -> Result<Opened, NotAdded> {
        let mut parts = self.parts_of(config, config.capacity, first).into_iter();
        let wrong =
            |e: &dyn std::fmt::Display| at(&config.capacity_span, format!("disk \"{}\": {e}", config.name));
        // That a pool is full is the configuration's to mend.
        let failed = |e: &std::io::Error| NotAdded {
            error: wrong(e),
            storage: e.kind() != std::io::ErrorKind::StorageFull,
        };
        let mut extents = Vec::new();
        let mut bases = Vec::new();
        let mut block = 1;
        for &p in &config.pools {
            let pool = &self.pools[p];
            let (mut base, mut per_member) = (None, 0);
            for part in parts.by_ref().take(pool.gates.len()) {
                let store = self.gates[part.gate].pipeline.backend_mut();
                if part.adopt {
                    store.adopt_part(&part.name).map_err(|e| failed(&e))?;
                }
                if !part.origin.is_default() {
                    store.set_origin(&part.name, &part.origin).map_err(|e| failed(&e))?;
                }
                let was_there = store.has_part(&part.name);
                let found = store.open_part(&part.name, part.len).map_err(|e| failed(&e))?;
                // What lies elsewhere may have been there, and not been looked for before.
                if !was_there && (store.is_new(&part.name) || !store.opens_elsewhere()) {
                    made.push((part.gate, part.name.clone()));
                }
                block = block.max(store.block());
                bases.push((GateId(part.gate as u32), found));
                per_member = part.len;
                if *base.get_or_insert(found) != found {
                    return Err(wrong(&"its parts on the spindles do not begin at the same address").into());
                }
            }
            let base = base.expect("a pool has a gate") * pool.members;
            extents.push(Extent { target: pool.target.clone(), base, len: per_member * pool.members });
        }
        Ok(Opened { extents, bases, block })
    }

    /// How a disk's commands are cut on these pools, whose largest block has `block` bytes.
    fn settings_of(&self, config: &DiskConfig, block: u64) -> henge_vdisk::Settings {
        let mut settings = config.settings;
        settings.align = settings.align.max(block);
        if config.cut_by_pool {
            let pools = config.pools.iter().map(|p| self.quantum(*p));
            let quantum = pools.fold(settings.quantum, u64::min);
            settings.quantum = (quantum / settings.align).max(1) * settings.align;
        }
        settings
    }

    /// Makes a disk of this node's pools longer: first every part, of which none may be in the way of another, then the disk.
    pub(crate) fn lengthen(&mut self, number: usize, capacity: u64) -> Result<(), String> {
        let disk = self.disks[number].as_ref().expect("a disk that was found");
        let parts = self.parts_of(&disk.config, capacity, disk.first);
        let mut on_gates = parts.iter();
        let mut bases = Vec::new();
        let mut extents = Vec::new();
        for (&p, extent) in disk.config.pools.iter().zip(disk.vdisk.layout().extents()) {
            let pool = &self.pools[p];
            bases.extend(pool.gates.clone().map(|_| extent.base / pool.members));
            let len = on_gates.by_ref().take(pool.gates.len()).last().map_or(0, |part| part.len);
            extents.push(Extent { len: len * pool.members, ..extent.clone() });
        }
        let layout = Layout::new(capacity, disk.vdisk.layout().unit(), extents).map_err(|e| e.to_string())?;
        self.could_grow(&parts)?;
        for (part, base) in parts.iter().zip(bases) {
            let store = self.gates[part.gate].pipeline.backend_mut();
            let found = store.open_part(&part.name, part.len).map_err(|e| e.to_string())?;
            assert_eq!(found, base, "a part grows where it stands");
        }
        let disk = self.disk(number);
        disk.vdisk.resize(layout).map_err(|e| e.to_string())?;
        let before: Vec<(usize, u64)> = disk.promised().collect();
        disk.config.capacity = capacity;
        let after: Vec<(usize, u64)> = disk.promised().collect();
        for ((pool, before), (_, after)) in before.into_iter().zip(after) {
            let promised = &mut self.pools[pool].promised;
            *promised = *promised - before + after;
        }
        Ok(())
    }

    /// Whether each part could be so long.
    pub(crate) fn could_grow(&self, parts: &[PartOf]) -> Result<(), String> {
        for PartOf { gate, name, len, .. } in parts {
            self.gates[*gate].pipeline.backend().could_grow(name, *len).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    pub(crate) fn put_disk(&mut self, number: usize, disk: Disk) {
        self.gaps.remove(&number);
        if let Some(tap) = &mut self.tap {
            tap.rename(number);
        }
        if number == self.disks.len() {
            self.disks.push(Some(disk));
        } else {
            self.disks[number] = Some(disk);
        }
        self.count_disks();
        self.weigh_links();
    }

    /// Takes a disk from its number, and what it was promised from its pools.
    pub(crate) fn take_disk(&mut self, number: usize) -> Option<Disk> {
        let disk = self.disks[number].take()?;
        self.gaps.insert(number);
        self.budget.give(disk.held, disk.held);
        self.count_disks();
        self.weigh_links();
        for (pool, bytes) in disk.promised() {
            self.pools[pool].promised -= bytes;
        }
        self.count_rates(&disk, &disk.config.contract, &Contract::best_effort());
        if self.by_name.get(&disk.config.name) == Some(&number) {
            self.by_name.remove(&disk.config.name);
        }
        Some(disk)
    }

    /// What links serve weighs as much as the extents that other nodes ask for.
    fn weigh_links(&mut self) {
        let owners = self.disks.iter().flatten().filter(|disk| disk.extent_of.is_some());
        let sum = owners.fold(0u32, |sum, disk| sum.saturating_add(disk.config.contract.weight()));
        self.links_weight = sum.max(1);
    }

    /// A disk has another contract: so much more or less is promised on its pools.
    fn count_rates(&mut self, disk: &Disk, old: &Contract, new: &Contract) {
        let (old, new) = (disk.rate_on_each(old), disk.rate_on_each(new));
        for &pool in &disk.config.pools {
            let rates = &mut self.pools[pool].rates;
            if let Some(rate) = new {
                rates[rate.unit as usize] += u128::from(rate.per_second);
            }
            if let Some(rate) = old {
                rates[rate.unit as usize] -= u128::from(rate.per_second);
            }
            let pool = &self.pools[pool];
            let promised = pool.promised_by_gate();
            pool.gates.clone().for_each(|g| self.gates[g].promised = promised);
        }
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
            return self.set_owners(number, config, now);
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
        if result.is_ok() {
            self.count_rates(&disk, &disk.config.contract, &config.contract);
        }
        let disk = self.disks[number].insert(disk);
        if result.is_ok() {
            disk.config = config;
            disk.follow_contract();
            self.weigh_links();
        }
        result
    }

    /// Removes a disk that has nothing pending. Its parts are [retired](Plane::retired).
    pub(crate) fn remove_disk(&mut self, number: usize, now: Instant) {
        if self.disk(number).spread.is_some() {
            return self.remove_spread(number, now);
        }
        let disk = self.take_disk(number).expect("a disk that was found");
        assert_eq!(disk.vdisk.pending(), 0, "commands are aborted before their disk goes");
        for part in self.parts_of(&disk.config, disk.config.capacity, disk.first) {
            let mut orphans = Vec::new();
            let gate = self.gates[part.gate].pipeline.gate_mut();
            gate.remove_flow(disk.vdisk.flow(), now, &mut orphans);
            assert!(orphans.is_empty(), "a disk without commands has no requests");
            self.retire(part);
        }
    }
}
