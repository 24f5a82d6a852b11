//! Disks come, change their contracts, and go: those of this shard alone, and those over several shards or nodes.

use super::tickets::Work;
use super::{Failed, NotAdded, Notice, PartOf, Plane, make};
use crate::config::DiskConfig;
use crate::spread::{across, extents};
use henge_backend::Store;
use henge_core::{Instant, Refused};
use std::sync::mpsc::Sender;

/// Why a disk is not served that is going.
const GOING: &str = "its removal had begun when the node ended, and goes on";

impl Failed {
    /// A disk whose removal had begun when the node ended is not served. What is left of it is to be removed.
    pub(crate) fn going(plane: &Plane, config: DiskConfig) -> Failed {
        let config = across::placed(plane, config);
        Failed { why: GOING.into(), remains: extents::parts_of_new(plane, &config) }
    }
}

impl Plane {
    /// Makes a disk, or finds its parts as they were left. Its number.
    pub(crate) fn add_disk(&mut self, config: DiskConfig, now: Instant) -> Result<usize, NotAdded> {
        let (name, config) = (config.name.clone(), across::placed(self, config));
        let number = match config.places.is_empty() {
            true => make::add_parts(self, config, 0, 1, now)?,
            false => extents::add_spread(self, config, now)?,
        };
        self.disks.show(name, number);
        Ok(number)
    }

    /// Changes a disk's contract from now on, for queued and new requests.
    pub(crate) fn set_contract(
        &mut self,
        number: usize,
        config: DiskConfig,
        now: Instant,
    ) -> Result<(), Refused> {
        if self.disks.of(number).spread.is_some() {
            return extents::set_owners(self, number, config, now);
        }
        let disk = self.disks[number].take().expect("a disk that was found");
        let among = (config.leeway, disk.extent.among);
        let result = self.pools.promise(&disk.vdisk, &config.contract, among, now);
        if result.is_ok() {
            self.pools.count_rates(&disk, &disk.config.contract, &config.contract);
        }
        let disk = self.disks[number].insert(disk);
        if result.is_ok() {
            disk.config = config;
            disk.follow_contract();
            self.disks.weigh_links();
        }
        result
    }

    /// Removes a disk that has nothing pending. Its parts are [retired](super::tickets::Tickets::retired).
    pub(crate) fn remove_disk(&mut self, number: usize, now: Instant) {
        if self.disks.of(number).spread.is_some() {
            return extents::remove_spread(self, number, now);
        }
        let disk = make::take_disk(self, number).expect("a disk that was found");
        assert_eq!(disk.vdisk.pending(), 0, "commands are aborted before their disk goes");
        for part in self.pools.parts_of(&disk.config, disk.config.capacity, disk.extent.first) {
            let mut orphans = Vec::new();
            let gate = self.pools.gates[part.gate].pipeline.gate_mut();
            gate.remove_flow(disk.vdisk.flow(), now, &mut orphans);
            assert!(orphans.is_empty(), "a disk without commands has no requests");
            self.tickets.retire(part);
        }
    }
}

/// Tells what is to be known, from now on; and what is already.
pub(crate) fn tell_notices(plane: &mut Plane, to: Sender<Notice>) {
    for (name, failed) in &plane.disks.failed {
        let _ = to.send((name.clone(), format!("it is not served: {}", failed.why)));
    }
    plane.observers.notices = Some(to);
    plane.pools.gates.iter_mut().for_each(|gate| plane.observers.hear(gate));
}

/// All disks that were here before are here again: what nobody has claimed is nobody's by its name.
pub(crate) fn settle_parts(plane: &mut Plane) {
    plane.disks.settled = true;
    for g in 0..plane.pools.gates.len() {
        let failed = &plane.disks.failed;
        let is_spared =
            |part: &str| part.rsplit_once(".part").is_some_and(|(disk, _)| failed.contains_key(disk));
        let settled = plane.pools.gates[g].pipeline.backend_mut().settle(&is_spared);
        let name = &plane.pools.gates[g].name;
        match settled {
            Ok(parts) => {
                parts.iter().for_each(|part| plane.observers.notice(name, henge_backend::put_aside(part)));
            }
            Err(e) => {
                plane.observers.notice(name, format!("parts that are no disk's cannot be put aside: {e}"))
            }
        }
    }
}

/// Parts of a disk that was removed are still there: no disk gets the name until they are removed. What to tell whoever asked.
pub(crate) fn left_behind(plane: &mut Plane, disk: String, why: &str, parts: &[PartOf]) -> String {
    let why = format!("it could not be removed whole ({why}); remove it again");
    plane.disks.failed.insert(disk, Failed { why: why.clone(), remains: parts.to_vec() });
    why
}

/// Gives up a disk that is not served: what is still to be removed of it, and what could not be opened, is to be kept.
pub(crate) fn remove_failed(plane: &mut Plane, name: &str) -> Vec<Work> {
    let Some(failed) = plane.disks.failed.remove(name) else { return Vec::new() };
    if failed.remains.is_empty() {
        let of = |gate| Work::Keep(PartOf { gate, name: name.to_owned(), ..PartOf::default() });
        return (0..plane.pools.gates.len()).map(of).collect();
    }
    failed.remains.into_iter().map(Work::Remove).collect()
}
