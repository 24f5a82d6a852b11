//! The iSCSI targets of a node: one for each virtual disk, which is its LUN 0.
//!
//! Persistent reservations are kept in `state_dir`, one small file for each disk that has some; those of a disk over nodes by the
//! first extent's owner, for all of them; those of a disk that goes from gateway to gateway beside its image.

use crate::config::DiskConfig;
use crate::fnv::fnv;
use crate::front::Doors;
use crate::job::{Job, Step};
use crate::links::Links;
use crate::nvme::Fabric;
use crate::plane::{Answer, Plane, Submitter};
use crate::spread::acts;
use crate::state::StateDir;
use crate::turns::BYTES_PER_NS;
use henge_core::{Instant, RequestId};
use henge_iscsi::chap::Access;
use henge_iscsi::scsi::{Bar, Effects, Nexus, Outcome, Reservations, Sense, Status, UnitProperties};
use henge_iscsi::{TargetId, Targets};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod reserve;
mod ways;

use reserve::{Acting, ReservationTables, Units};
pub(crate) use reserve::{Asker, OwnerTask};

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
pub(crate) struct TargetRegistry {
    pub targets: Targets,
    /// The same disks by NVMe.
    pub nvme: Fabric,
    disks: BTreeMap<TargetId, (usize, String)>,
    by_disk: BTreeMap<usize, TargetId>,
    /// Other shards' disks, by their numbers among all: initiators find them here, and are sent there.
    elsewhere: BTreeMap<usize, TargetId>,
    /// Which connection a session is on.
    pub connections: BTreeMap<Nexus, RequestId>,
    chores: BTreeMap<u32, Chore>,
    next_chore: u32,
    state_dir: StateDir,
    /// Whether initiators come here at all.
    enabled: bool,
    reservations: ReservationTables,
    /// Which other nodes were linked at the last look.
    linked: Vec<bool>,
    /// The disk from which on targets are to hear of their ways.
    untold: Option<usize>,
    /// The session that was looked at last, while there are more.
    looked: Option<Nexus>,
}

impl TargetRegistry {
    /// `addresses`: where initiators come; without any, and where no hosts come by NVMe, nothing is offered. `node`: its name in its cluster.
    /// `epoch` grows when the node starts anew; `wake` wakes the loop.
    pub(crate) fn new(
        state_dir: StateDir,
        addresses: &[String],
        hosts_come: bool,
        (node, epoch): (Option<&str>, u64),
        wake: Arc<OwnedFd>,
    ) -> std::io::Result<TargetRegistry> {
        let port = node.map_or(henge_iscsi::PORT, ways::port);
        let mut targets = Targets::at(port);
        addresses.iter().for_each(|address| targets.add_portal(address));
        Ok(TargetRegistry {
            targets,
            nvme: Fabric::new(port, hosts_come, Arc::clone(&wake)),
            disks: BTreeMap::new(),
            by_disk: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            connections: BTreeMap::new(),
            untold: None,
            looked: None,
            chores: BTreeMap::new(),
            next_chore: 0,
            state_dir,
            enabled: !addresses.is_empty() || hosts_come,
            reservations: ReservationTables::new(epoch, node.is_some(), wake)?,
            linked: Vec::new(),
        })
    }

    /// A disk is there: a target for it, which initiators find if `shown`. Of one that was there before, initiators are told how long it is now.
    pub(crate) fn add(
        &mut self,
        number: usize,
        disk: &crate::plane::Disk,
        shown: bool,
        links: &Links,
        now: Instant,
    ) {
        let shared = disk.is_shared();
        let of_cluster = disk.spread.is_some() && links.here().is_some() && !shared;
        let lease_owner = disk.config.places.first().filter(|_| of_cluster);
        let here = lease_owner.is_some_and(|place| Some(place.node.as_str()) == links.here());
        if !self.enabled && !here && !shared {
            return; // nobody asks for it; for others, reservations may be kept
        }
        if let Some(&id) = self.by_disk.get(&number) {
            if let Some(unit) = self.targets.unit(id, 0) {
                unit.resize(disk.vdisk.capacity());
                // Hosts may come to it since just now.
                self.nvme.adopt(number, unit.reservations(), &Effects::default());
                self.nvme.set_stale(number, unit.is_stale());
                self.nvme.set_barred(number, unit.bar());
            }
            return self.tell_ways(number, disk, links);
        }
        let config = &disk.config;
        let name = format!("{PREFIX}{}", config.name);
        let access = config.doors.of().cloned().unwrap_or_default();
        let id = match shown {
            true => self.targets.add_target(&name, access),
            false => Some(self.targets.add_hidden(&name)),
        };
        let Some(id) = id else { return };
        let there = lease_owner.filter(|_| !here).and_then(|place| links.find(&place.node));
        let kept = self.keep_reservations(disk, (id, number), (here, there), links, now);
        self.nvme.adopt(number, &kept, &Effects::default());
        self.targets.add_unit(id, 0, lun(config, disk.vdisk.capacity()), kept);
        self.disks.insert(id, (number, config.name.clone()));
        self.by_disk.insert(number, id);
        self.targets.set_available(id, 0, self.reservations.is_good(&config.name));
        self.targets.set_stale(id, 0, shared);
        self.nvme.set_stale(number, shared);
        self.tell_ways(number, disk, links);
    }

    /// A disk's table of reservations: owned here, followed as a copy of the one that a peer owns (`there`), or the disk's alone. What was kept.
    fn keep_reservations(
        &mut self,
        disk: &crate::plane::Disk,
        (id, number): (TargetId, usize),
        (here, there): (bool, Option<usize>),
        links: &Links,
        now: Instant,
    ) -> Reservations {
        let (config, shared) = (&disk.config, disk.is_shared());
        let file = self.file(&config.name);
        let read =
            if there.is_some() || shared { Ok(Reservations::default()) } else { kept(file.as_deref()) };
        let (kept, trouble) = match read {
            Ok(kept) => (kept, None),
            Err(why) => (Reservations::default(), Some(why)),
        };
        let disk_here = (id, number, file);
        match there {
            _ if let Some(why) = trouble => {
                tracing::error!(
                    "disk \"{}\" is closed to iSCSI initiators and NVMe hosts, since nobody knows who reserved it: {why}; restore the file, or \
                     remove it if no reservation matters, and restart the node",
                    config.name
                );
                self.reservations.close(&config.name, disk_here);
            }
            Some(peer) => {
                let linked = links.peers[peer].as_ref().is_some_and(|peer| peer.link.is_some());
                self.reservations.hold(&config.name, disk_here, (peer, linked), now);
            }
            None if here => self.reservations.keep(&config.name, disk_here, &kept, now),
            None if shared => self.reservations.follow(&config.name, (disk_here.0, disk_here.1)),
            None => self.reservations.add(&config.name, disk_here),
        }
        kept
    }

    /// Who may use a disk from now on, and whether initiators find it.
    pub(crate) fn set_access(&mut self, number: usize, access: Access, shown: bool) {
        if let Some(&id) = self.by_disk.get(&number) {
            self.targets.set_access(id, access, shown);
        }
    }

    /// A disk is gone, and its target.
    pub(crate) fn remove(&mut self, number: usize, links: &mut Links) {
        if let Some(id) = self.by_disk.remove(&number) {
            if let Some((_, name)) = self.disks.remove(&id) {
                self.reservations.remove(&name, links);
            }
            self.targets.remove_target(id);
        }
    }

    /// A disk of another shard is there: initiators and hosts find it.
    pub(crate) fn add_elsewhere(&mut self, number: usize, export: &henge_nbd::Export, doors: &Doors) {
        if doors.shown_by("nvme") {
            self.nvme.add_elsewhere(number, export, doors);
        }
        if !self.enabled || !doors.shown_by("iscsi") || self.elsewhere.contains_key(&number) {
            return;
        }
        let name = format!("{PREFIX}{}", export.name);
        let target = self.targets.add_target(&name, doors.of().cloned().unwrap_or_default());
        self.elsewhere.extend(target.map(|target| (number, target)));
    }

    /// It is gone.
    pub(crate) fn remove_elsewhere(&mut self, number: usize) {
        self.nvme.remove_elsewhere(number);
        if let Some(target) = self.elsewhere.remove(&number) {
            self.targets.remove_target(target);
        }
    }

    /// Whether a target is another shard's.
    pub(crate) fn is_elsewhere(&self, target: TargetId) -> bool {
        !self.elsewhere.is_empty() && self.elsewhere.values().any(|known| *known == target)
    }

    /// The disk behind a target.
    pub(crate) fn disk(&self, target: TargetId) -> Option<usize> {
        self.disks.get(&target).map(|(number, _)| *number)
    }

    /// Where a disk's reservations are kept, where anything is.
    fn file(&self, name: &str) -> Option<PathBuf> {
        self.state_dir.file(&format!("{name}.reservations"))
    }

    /// A session wants to change who may use a disk, or to sweep it. Its answer, where there is one at once.
    pub(crate) fn ask(
        &mut self,
        target: TargetId,
        what: OwnerTask,
        asker: Asker,
        links: &mut Links,
    ) -> Option<Status> {
        match self.disks.get(&target) {
            Some((_, name)) => self.reservations.ask(name, what, asker, links),
            None => Some(Status::Check(Sense::NO_UNIT)),
        }
    }

    /// Whether reservations need to be looked at.
    pub(crate) fn is_due(&self, links: &Links, now: Instant) -> bool {
        !self.nvme.wishes.is_empty() || self.reservations.is_due(links, now)
    }

    /// A turn of the loop begins.
    pub(crate) fn begin_turn(&mut self) {
        self.reservations.portion.begin();
    }

    /// Whether there is more to be done at once, in the next turn.
    pub(crate) fn goes_on(&self) -> bool {
        self.reservations.goes_on()
    }

    /// When time alone makes it necessary.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.reservations.wake_at(now)
    }

    /// Goes on with whatever concerns reservations.
    pub(crate) fn settle(&mut self, plane: &mut Plane, now: Instant) {
        while let Some(wish) = self.nvme.wishes.pop_front() {
            let asker = (wish.connection, wish.command);
            let status = match self.by_disk.get(&wish.disk).copied() {
                None => Some(Status::Check(Sense::NO_UNIT)),
                Some(id) if self.targets.unit(id, 0).is_some_and(|unit| unit.is_taken()) => {
                    Some(Status::ReservationConflict)
                }
                Some(id) => {
                    let what = OwnerTask::Change(wish.change);
                    self.ask(id, what, Asker::Here(asker.0, asker.1), &mut plane.links)
                }
            };
            if let Some(status) = status {
                self.reservations.answers.refuse(asker, status);
            }
        }
        let mut units = Units { targets: &mut self.targets, nvme: &mut self.nvme, disks: &plane.disks };
        let changed = self.reservations.settle(&mut units, &mut plane.links, now);
        while let Some((number, nanoseconds)) = self.reservations.portion.next_spent() {
            plane.round.note(number, nanoseconds * BYTES_PER_NS);
        }
        while let Some((target, number)) = self.reservations.verdicts.next_recheck() {
            self.targets.recheck(target, 0);
            self.nvme.recheck(number);
        }
        while let Some(Acting { number, turn, peer, acts }) = self.reservations.verdicts.next_acting() {
            match peer {
                None => acts::act(plane, number, turn, acts),
                Some(peer) => acts::admit(plane, number, turn, peer, acts),
            }
        }
        for number in changed {
            if let Some(disk) = &plane.disks[number] {
                self.tell_ways(number, disk, &plane.links);
            }
        }
    }

    /// The next session whose change is decided: its connection, its command, how it ends.
    pub(crate) fn next_decided(&mut self) -> Option<(RequestId, RequestId, Status)> {
        self.reservations.answers.next_decided()
    }

    /// What initiators have said of disks holds for whoever else uses them, at whichever shard. NBD clients know no reservations.
    fn tell_bars(&mut self, plane: &mut Plane) {
        while let Some(target) = self.targets.next_barred() {
            let Some(number) = self.disk(target) else { continue };
            let bar = self.targets.unit(target, 0).and_then(|unit| unit.bar());
            self.nvme.set_barred(number, bar);
            let barred = bar.is_some_and(|bar| bar != Bar::Reserved);
            if plane.disks.set_barred(number, barred) {
                plane.across.bars.push((number, barred));
            }
        }
    }

    /// Begins what units have to do for themselves, and goes on with what had to wait.
    pub(crate) fn work(&mut self, plane: &mut Plane, now: Instant) {
        self.tell_bars(plane);
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
        let submitter = Submitter { connection: SELF, command: RequestId { slot: number, generation: 0 } };
        match chore.job.step(&mut None, chore.disk, submitter, plane, now) {
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
    pub(crate) fn owns(submitter: &Submitter) -> bool {
        submitter.connection == SELF
    }

    pub(crate) fn answer(&mut self, answer: Answer, plane: &mut Plane, now: Instant) {
        let number = answer.submitter.command.slot;
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

/// What a file says of a disk's reservations. No file, no reservations; a file that cannot be read may say anything.
fn kept(file: Option<&Path>) -> Result<Reservations, String> {
    let Some(file) = file else { return Ok(Reservations::default()) };
    let named = |why: String| format!("{}: {why}", file.display());
    match std::fs::read_to_string(file) {
        Ok(text) => Reservations::restore(&text).map_err(named),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Reservations::default()),
        Err(e) => Err(named(e.to_string())),
    }
}

/// The disk as a unit. Its number comes from its name, and a physical block is a logical one whatever storage is behind it: a sector is never
/// torn, every node says the same of a disk, and the disk of itself wherever it lies. That 4 KiB are best written whole, as NBD
/// clients are told, the block limits say (optimal transfer length granularity).
fn lun(config: &DiskConfig, capacity: u64) -> UnitProperties {
    let id = fnv(config.name.as_bytes());
    UnitProperties {
        bytes: capacity,
        block_shift: 9,
        physical_shift: 9,
        thin: true,
        read_only: config.read_only,
        reservable: true,
        serial: format!("{id:016x}"),
        id,
    }
}
