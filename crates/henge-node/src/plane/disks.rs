//! The disks of a shard, by number and by name.

use super::disk::Disk;
use super::failed::Failed;
use crate::spread::At;
use crate::spread::seat::Seat;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

/// Disks that an error names at most.
const NAMED: usize = 100;

/// All disks here: those that clients may use, and the owners of extents.
#[derive(Default)]
pub(crate) struct Disks {
    /// Removed disks leave a gap, so that flows keep their numbers.
    all: Vec<Option<Disk>>,
    /// Those gaps.
    gaps: BTreeSet<usize>,
    /// The disks that clients may use, by name.
    by_name: BTreeMap<String, usize>,
    /// Disks that are not served although they should be. Nobody else gets their names, nor their parts.
    pub failed: BTreeMap<String, Failed>,
    /// The weights of all extents that other nodes ask of here.
    pub links_weight: u32,
    /// Disks that are stopped, or are being erased.
    barred: BTreeSet<usize>,
    /// Every disk that was here before is here again: who comes now is a new one.
    pub settled: bool,
}

impl Deref for Disks {
    type Target = [Option<Disk>];
    fn deref(&self) -> &[Option<Disk>] {
        &self.all
    }
}

impl DerefMut for Disks {
    fn deref_mut(&mut self) -> &mut [Option<Disk>] {
        &mut self.all
    }
}

impl Disks {
    /// The disk of that number.
    pub(crate) fn of(&mut self, number: usize) -> &mut Disk {
        self.all[number].as_mut().expect("a disk in use is there")
    }

    /// The disks that clients may use.
    pub(crate) fn served(&self) -> impl Iterator<Item = (usize, &Disk)> {
        let disks = self.all.iter().enumerate().filter_map(|(n, d)| d.as_ref().map(|d| (n, d)));
        disks.filter(|(_, disk)| disk.extent.disk.is_none())
    }

    /// Disks whose FLUSH at the end has failed.
    pub(crate) fn unflushed(&self) -> impl Iterator<Item = &str> {
        self.all.iter().flatten().filter(|disk| disk.doubts.unflushed).map(|disk| disk.config.name.as_str())
    }

    /// The number of a disk by its name.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The same; or why there is none, for people.
    pub(crate) fn find(&self, name: &str) -> Result<usize, String> {
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

    /// Clients find the disk of that number by its name from now on.
    pub(super) fn show(&mut self, name: String, number: usize) {
        self.by_name.insert(name, number);
    }

    /// Whether the disk takes another command: its contract's bound on pending ones.
    pub(crate) fn has_capacity(&self, number: usize) -> bool {
        let Some(disk) = &self.all[number] else { return false };
        let pending = disk.config.contract.pending.map_or(usize::MAX, |n| n as usize);
        disk.vdisk.has_capacity() && disk.vdisk.pending() < pending
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all.len() - self.gaps.len()
    }

    /// The number that the next disk gets.
    pub(crate) fn free_number(&self) -> usize {
        self.gaps.first().copied().unwrap_or(self.all.len())
    }

    /// A number that no disk gets until it is given back.
    pub(super) fn take_number(&mut self) -> usize {
        let number = self.free_number();
        self.gaps.remove(&number);
        if number == self.all.len() {
            self.all.push(None);
        }
        number
    }

    /// It is a gap again.
    pub(super) fn give_number(&mut self, number: usize) {
        self.gaps.insert(number);
    }

    /// Puts a disk at a number that is free.
    pub(super) fn put(&mut self, number: usize, disk: Disk) {
        self.gaps.remove(&number);
        if number == self.all.len() {
            self.all.push(Some(disk));
        } else {
            self.all[number] = Some(disk);
        }
        self.weigh_links();
    }

    /// Initiators have stopped a disk, or it is being erased; or no longer. Whether that is new.
    pub(crate) fn set_barred(&mut self, number: usize, barred: bool) -> bool {
        match barred {
            true => self.barred.insert(number),
            false => self.barred.remove(&number),
        }
    }
    /// Whether nobody may use a disk now.
    pub(crate) fn is_barred(&self, number: usize) -> bool {
        self.barred.contains(&number)
    }

    /// Takes a disk from its number.
    pub(super) fn take(&mut self, number: usize) -> Option<Disk> {
        let disk = self.all[number].take()?;
        self.gaps.insert(number);
        self.barred.remove(&number);
        self.weigh_links();
        if self.by_name.get(&disk.config.name) == Some(&number) {
            self.by_name.remove(&disk.config.name);
        }
        Some(disk)
    }

    /// What links serve weighs as much as the extents that other nodes ask for.
    pub(super) fn weigh_links(&mut self) {
        let owners = self.all.iter().flatten().filter(|disk| disk.extent.disk.is_some());
        let sum = owners.fold(0u32, |sum, disk| sum.saturating_add(disk.config.contract.weight()));
        self.links_weight = sum.max(1);
    }

    /// A disk's owners on this node.
    pub(crate) fn owners(&self, number: usize) -> Vec<usize> {
        let spread = self.all[number].as_ref().and_then(|d| d.spread.as_ref());
        let extents = spread.into_iter().flat_map(|s| &s.extents);
        extents.filter_map(|at| if let At::Here(owner) = at { Some(*owner) } else { None }).collect()
    }

    /// Whether what stands here for an owner passes everything on to the owner itself, at another shard. Other nodes, which come by this shard's
    /// links, and this shard's coordinator find an owner so.
    pub(crate) fn is_relay(&self, owner: usize) -> bool {
        self.all[owner].as_ref().is_some_and(|disk| disk.extent.disk.is_some() && disk.spread.is_some())
    }

    /// Where a disk's seat is, if it has one, and what is known of it.
    pub(crate) fn seat(&mut self, number: usize) -> Option<(&mut At, &mut Seat)> {
        let spread = self.all.get_mut(number)?.as_mut()?.spread.as_deref_mut()?;
        let seat = spread.shared.as_mut()?;
        Some((&mut spread.extents[0], seat))
    }

    /// A long CACHE of a disk is over, and another may begin.
    pub(super) fn end_fetch(&mut self, number: usize) {
        if let Some(disk) = self.all.get_mut(number).and_then(Option::as_mut) {
            disk.fetches = disk.fetches.saturating_sub(1);
        }
    }
}
