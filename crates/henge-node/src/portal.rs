//! The iSCSI targets of a node: one for each virtual disk, which is its LUN 0.
//!
//! Persistent reservations are kept in `state_dir`, one small file for each disk that has some.

use crate::config::DiskConfig;
use crate::job::{Job, Step, Verdict};
use crate::plane::{Answer, Owner, Plane};
use henge_core::{Instant, RequestId};
use henge_iscsi::scsi::{Disk, Nexus, Outcome, Reservations};
use henge_iscsi::{TargetId, Targets};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

mod ways;

/// What the names of all targets begin with.
pub(crate) const PREFIX: &str = "iqn.2026-11.local.henge:";

/// Who works for a unit itself; there is no such connection.
const SELF: RequestId = RequestId { slot: u32::MAX - 1, generation: u32::MAX };

/// Work that belongs to a unit.
struct Chore {
    target: TargetId,
    unit: u16,
    disk: usize,
    job: Job,
}

/// Targets, and which disk each of them is.
pub(crate) struct Portal {
    pub targets: Targets,
    disks: BTreeMap<TargetId, (usize, String)>,
    by_disk: BTreeMap<usize, TargetId>,
    /// Which connection a session is on.
    pub connections: BTreeMap<Nexus, RequestId>,
    chores: BTreeMap<u32, Chore>,
    next_chore: u32,
    state_dir: PathBuf,
    enabled: bool,
    /// Which other nodes were linked at the last look.
    linked: Vec<bool>,
}

impl Portal {
    /// `addresses`: where initiators come; without any, nothing is offered. `node`: its name in its cluster.
    pub(crate) fn new(state_dir: PathBuf, addresses: &[String], node: Option<&str>) -> Portal {
        let mut targets = node.map_or_else(Targets::new, |node| Targets::at(ways::port(node)));
        addresses.iter().for_each(|address| targets.add_portal(address));
        Portal {
            targets,
            disks: BTreeMap::new(),
            by_disk: BTreeMap::new(),
            connections: BTreeMap::new(),
            chores: BTreeMap::new(),
            next_chore: 0,
            state_dir,
            enabled: !addresses.is_empty(),
            linked: Vec::new(),
        }
    }

    /// A disk is there: a target for it. Of one that was there before, initiators are told how long it is now.
    pub(crate) fn add(&mut self, number: usize, disk: &crate::plane::Disk, links: &crate::links::Links) {
        if !self.enabled {
            return;
        }
        if let Some(&id) = self.by_disk.get(&number) {
            if let Some(unit) = self.targets.unit(id, 0) {
                unit.resize(disk.vdisk.capacity());
            }
            return;
        }
        let config = &disk.config;
        let name = format!("{PREFIX}{}", config.name);
        let Some(id) = self.targets.add_target(&name, config.access.clone()) else { return };
        // A disk with several ways to it has no reservations: see `henge_iscsi::scsi`.
        let kept = if disk.spread.is_some() { Reservations::default() } else { self.kept(&config.name) };
        self.targets.add_unit(id, 0, lun(config, disk.vdisk.capacity(), disk.vdisk.settings().align), kept);
        self.disks.insert(id, (number, config.name.clone()));
        self.by_disk.insert(number, id);
        self.tell_ways(number, disk, links);
    }

    /// A disk is gone, and its target.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(id) = self.by_disk.remove(&number) {
            self.disks.remove(&id);
            self.targets.remove_target(id);
        }
    }

    /// The disk behind a target.
    pub(crate) fn disk(&self, target: TargetId) -> Option<usize> {
        self.disks.get(&target).map(|(number, _)| *number)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.state_dir.join(format!("{name}.reservations"))
    }

    /// A file that cannot be read keeps nobody from the disk: reservations are advice among initiators.
    fn kept(&self, name: &str) -> Reservations {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        Reservations::restore(&text).unwrap_or_default()
    }

    /// Keeps a unit's reservations, before the initiator is told that they are kept.
    pub(crate) fn keep(&self, target: TargetId, text: &str) -> Verdict {
        let Some((_, name)) = self.disks.get(&target) else { return Verdict::Failed(henge_core::Fault::Io) };
        match replace(&self.state_dir, &self.file(name), text) {
            Ok(()) => Verdict::Done,
            Err(_) => Verdict::Failed(henge_core::Fault::Io),
        }
    }

    /// Begins what units have to do for themselves, and goes on with what had to wait.
    pub(crate) fn work(&mut self, plane: &mut Plane, now: Instant) {
        while let Some((target, unit, action)) = self.targets.background() {
            let Some(disk) = self.disk(target) else {
                self.targets.background_done(target, unit, &Outcome::Failed(henge_core::Fault::Io));
                continue;
            };
            let chore = Chore { target, unit, disk, job: Job::new(action) };
            self.next_chore = self.next_chore.wrapping_add(1);
            let number = self.next_chore;
            self.chores.insert(number, chore);
            if !self.go_on(number, plane, now) {
                return; // no room; asked again in a later turn
            }
        }
    }

    /// False when it has to wait.
    fn go_on(&mut self, number: u32, plane: &mut Plane, now: Instant) -> bool {
        let Some(chore) = self.chores.get_mut(&number) else { return true };
        let owner = Owner { connection: SELF, command: RequestId { slot: number, generation: 0 } };
        match chore.job.step(&mut None, chore.disk, owner, plane, now) {
            Step::Submitted => true,
            Step::Later => {
                self.end(number, Outcome::Full);
                false
            }
            Step::Over(verdict) => {
                self.end(number, verdict.outcome());
                true
            }
        }
    }

    fn end(&mut self, number: u32, outcome: Outcome<'_>) {
        if let Some(chore) = self.chores.remove(&number) {
            self.targets.background_done(chore.target, chore.unit, &outcome);
        }
    }

    /// Whether an answer is for the units themselves.
    pub(crate) fn owns(owner: &Owner) -> bool {
        owner.connection == SELF
    }

    pub(crate) fn answer(&mut self, answer: Answer, plane: &mut Plane, now: Instant) {
        let number = answer.owner.command.slot;
        let Some(chore) = self.chores.get_mut(&number) else {
            return plane.put_buffer(answer.disk, answer.frame);
        };
        match chore.job.answered(answer, &mut None, plane) {
            Some(verdict) => self.end(number, verdict.outcome()),
            None => {
                self.go_on(number, plane, now);
            }
        }
    }
}

/// The disk as a unit. Its number comes from its name, so that every node says the same.
fn lun(config: &DiskConfig, capacity: u64, align: u64) -> Disk {
    let id = fnv(config.name.as_bytes());
    Disk {
        bytes: capacity,
        block_shift: 9,
        physical_shift: align.max(512).ilog2(),
        thin: true,
        read_only: config.read_only,
        serial: format!("{id:016x}"),
        id,
    }
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Replaces a file by another that is whole on the medium before it takes the name.
fn replace(directory: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let fresh = path.with_extension("reservations.new");
    let mut file = std::fs::File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    std::fs::File::open(directory)?.sync_all()
}
