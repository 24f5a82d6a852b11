//! Disks come, change their contracts, and go.

use super::pools::member_len;
use super::{Disk, Plane};
use crate::config::{DiskConfig, at};
use henge_core::{Contract, FlowId, Instant, ParamError, Refused};
use henge_vdisk::{GateId, Layout, Place, VirtualDisk};

impl Plane {
    /// Makes a disk, or finds its parts as they were left. Its number.
    pub(crate) fn add_disk(&mut self, config: DiskConfig, now: Instant) -> Result<usize, ParamError> {
        let name = config.name.clone();
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
        let number = self.free_number();
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
        for (pool, bytes) in disk.promised() {
            self.pools[pool].promised += bytes;
        }
        self.count_rates(&disk, &Contract::best_effort(), &disk.config.contract);
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
        let before: Vec<(usize, u64)> = disk.promised().collect();
        disk.config.capacity = capacity;
        let after: Vec<(usize, u64)> = disk.promised().collect();
        for ((pool, before), (_, after)) in before.into_iter().zip(after) {
            let promised = &mut self.pools[pool].promised;
            *promised = *promised - before + after;
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
    }

    /// Takes a disk from its number, and what it was promised from its pools.
    pub(crate) fn take_disk(&mut self, number: usize) -> Option<Disk> {
        let disk = self.disks[number].take()?;
        self.gaps.insert(number);
        for (pool, bytes) in disk.promised() {
            self.pools[pool].promised -= bytes;
        }
        self.count_rates(&disk, &disk.config.contract, &Contract::best_effort());
        if self.by_name.get(&disk.config.name) == Some(&number) {
            self.by_name.remove(&disk.config.name);
        }
        Some(disk)
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
        if result.is_ok() {
            self.count_rates(&disk, &disk.config.contract, &config.contract);
        }
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
        let disk = self.take_disk(number).expect("a disk that was found");
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
}
