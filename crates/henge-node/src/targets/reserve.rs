//! Who may use a disk: reservations that hold on every node that serves it, of initiators (iSCSI) and hosts (NVMe) in one table.
//!
//! # The rule
//! The first extent's owner keeps the reservations of a disk over nodes; a disk of one node alone, that node. Another node passes a
//! PERSISTENT RESERVE OUT on to it, and so task management that takes away everybody's commands (LOGICAL UNIT RESET and the like),
//! once it has done its own part. The owner decides one at a time: what is decided is in its file, then in force here,
//! then told to every node that serves initiators or hosts ([`henge_link::copies`]), and answered once each of them acts by it (or has been
//! silent for so long that it must have stopped), and once what is aborted has left the storage, there and here.
//!
//! ```text
//! initiator ─ PR OUT ─▶ n2 ─ Reserve ─▶ n1, the owner: file ─▶ in force ─┬─ Copy ─▶ n2 ─ Seen ─▶ ┐
//!                                                                          └─ Copy ─▶ n3 ─ Seen ─▶ n1: settled
//! initiator ◀── GOOD ── n2 ◀─ Reserved ────────────────────────────────────────────────────────────┘
//! ```
//!
//! A node whose copy may be old (the owner has not answered it for four seconds) says so: its port is unavailable to initiators,
//! commands are NOT READY, and what has not begun is given up.
//!
//! # What it does not do
//! What such a node had handed to a third one before may still be written there. RESERVE(6) belongs to one node's session, and is
//! refused on disks over nodes. NBD knows no reservations; they bind initiators and NVMe's hosts alone, RESERVE(6) too. The owner does not move while its node has the
//! first extent, which is as long as the disk is there. Of a disk on storage that nodes share it moves with the seat (`moves.rs`).

mod askers;
mod course;
mod moves;
mod portion;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

use crate::links::Links;
use crate::nvme::Fabric;
use crate::plane::Disk;
use crate::spread::acts;
use askers::{Answers, PassedOn};
use henge_core::{Instant, RequestId};
use henge_iscsi::scsi::{Change, Effects, Reservations, Sense, Status, Sweep};
use henge_iscsi::{TargetId, Targets};
use henge_link::copies::{LeaseOwner, Replica};
pub(super) use moves::Acting;
use moves::{Moves, Verdicts};
use portion::Portion;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use writer::{Medium, Writer, Writers};

/// Most changes of a disk that wait for the one before them.
const QUEUE_MAX: usize = 256;

/// What is decided for all nodes of a disk, one thing after another.
#[derive(Clone, Debug)]
pub(crate) enum OwnerTask {
    /// A PERSISTENT RESERVE OUT.
    Change(Change),
    /// Task management that takes away everybody's commands.
    Sweep(Sweep),
}

/// Whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A session's of this node: its connection, its command.
    Here(RequestId, RequestId),
    /// A peer's, by its name for it.
    There(usize, u64),
}

/// Who keeps a disk's reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// This node, which serves the disk alone.
    Alone,
    /// This node, for others too.
    Here,
    /// A peer.
    There(usize),
    /// This node, which cannot read what it kept: nobody may use the disk by a reservation or past one.
    Unreadable,
    /// Nobody now: the disk is on its way from one gateway to another.
    Nowhere,
}

/// What a disk's reservations are in force for: the unit that initiators see, and the namespace that hosts see.
pub(super) struct Units<'a> {
    pub targets: &'a mut Targets,
    pub nvme: &'a mut Fabric,
    pub disks: &'a [Option<Disk>],
}

/// The commands that were at the disk before a change: of initiators, and of hosts.
#[derive(Clone, Copy, Debug)]
struct Epochs {
    unit: u32,
    namespace: u32,
    /// Commands were aborted, also those of peers whose link is lost.
    aborts: bool,
}

impl Units<'_> {
    /// These reservations of a disk hold from now on.
    fn adopt(
        &mut self,
        (target, number): (TargetId, usize),
        next: Reservations,
        effects: &Effects,
    ) -> Epochs {
        let namespace = self.nvme.adopt(number, &next, effects);
        let aborts = !effects.abort.is_empty() || effects.sweep.is_some();
        Epochs { unit: self.targets.adopt(target, 0, next, effects), namespace, aborts }
    }

    /// Whether nothing that began before is at the disk.
    fn is_quiet_before(
        &mut self,
        (target, number): (TargetId, usize),
        epochs: Epochs,
        links: &Links,
    ) -> bool {
        let unit = self.targets.unit(target, 0);
        unit.is_none_or(|unit| unit.quiet_before(epochs.unit))
            && self.nvme.is_quiet_before(number, epochs.namespace)
            && !(epochs.aborts && self.nvme.has_leaving(number))
            && !(epochs.aborts && acts::has_orphans(self.disks, &links.connections, number))
    }

    /// What is known of a disk's reservations may be old, or is not.
    fn set_stale(&mut self, (target, number): (TargetId, usize), stale: bool) {
        self.targets.set_stale(target, 0, stale);
        self.nvme.set_stale(number, stale);
    }
}

struct Table {
    target: TargetId,
    number: usize,
    kept: Kept,
    medium: Medium,
    queue: VecDeque<(Asker, OwnerTask)>,
    /// Decided, and not yet in its file: by the number of the writing.
    writing: Option<(u64, Asker, Reservations, Effects)>,
    /// In force here, and not yet everywhere; what began before this epoch of the unit is still to end.
    current: Option<(Asker, Epochs)>,
    /// Of a peer's: which version is in force here.
    version: Option<u64>,
    /// And of which the peer is still to be told that it is.
    draining: Option<(u64, Epochs)>,
    /// Whether what is in force here is what holds.
    good: bool,
    /// It goes from gateway to gateway.
    moves: Option<Moves>,
}

impl Table {
    fn new((target, number, file): (TargetId, usize, Option<PathBuf>), kept: Kept) -> Table {
        Table {
            target,
            number,
            kept,
            medium: file.map_or(Medium::Nothing, Medium::File),
            queue: VecDeque::new(),
            writing: None,
            current: None,
            version: None,
            draining: None,
            good: !matches!(kept, Kept::There(_) | Kept::Unreadable),
            moves: None,
        }
    }
}

/// The reservations of all disks here.
pub(super) struct ReservationTables {
    owner: LeaseOwner,
    replica: Replica,
    writers: Writers,
    tables: BTreeMap<String, Table>,
    /// Disks with changes on their way.
    busy: BTreeSet<String>,
    passed_on: PassedOn,
    pub answers: Answers,
    /// When the first good copy may be so no longer.
    expires: Option<Instant>,
    /// Disks to which there is another way than before.
    ways: Vec<usize>,
    /// Tables to be read again, and when.
    again: BTreeSet<(Instant, String)>,
    pub verdicts: Verdicts,
    pub portion: Portion,
}

impl ReservationTables {
    /// `epoch` grows when the node starts anew; `wake` wakes the loop. `linked`: there may be other nodes.
    pub(super) fn new(epoch: u64, linked: bool, wake: Arc<OwnedFd>) -> std::io::Result<ReservationTables> {
        let to_images = if linked { Some(Writer::new(Arc::clone(&wake), false)?) } else { None };
        Ok(ReservationTables::writing(epoch, Writers::new(Writer::new(wake, true)?, to_images)))
    }

    fn writing(epoch: u64, writers: Writers) -> ReservationTables {
        ReservationTables {
            writers,
            owner: LeaseOwner::new(epoch),
            replica: Replica::new(),
            tables: BTreeMap::new(),
            busy: BTreeSet::new(),
            passed_on: PassedOn::new(epoch),
            answers: Answers::default(),
            expires: None,
            ways: Vec::new(),
            again: BTreeSet::new(),
            verdicts: Verdicts::default(),
            portion: Portion::new(),
        }
    }

    /// A disk of this node alone.
    pub(super) fn add(&mut self, name: &str, disk: (TargetId, usize, Option<PathBuf>)) {
        self.tables.insert(name.to_owned(), Table::new(disk, Kept::Alone));
    }

    /// A disk whose reservations cannot be read: initiators, here and at other nodes, wait until they can.
    pub(super) fn close(&mut self, name: &str, disk: (TargetId, usize, Option<PathBuf>)) {
        self.tables.insert(name.to_owned(), Table::new(disk, Kept::Unreadable));
    }

    /// A disk over nodes, kept here for all.
    pub(super) fn keep(
        &mut self,
        name: &str,
        disk: (TargetId, usize, Option<PathBuf>),
        kept: &Reservations,
        now: Instant,
    ) {
        self.owner.add(name, kept.text(), now);
        self.tables.insert(name.to_owned(), Table::new(disk, Kept::Here));
    }

    /// A disk over nodes, kept by a peer.
    pub(super) fn hold(
        &mut self,
        name: &str,
        disk: (TargetId, usize, Option<PathBuf>),
        (peer, linked): (usize, bool),
        now: Instant,
    ) {
        self.replica.add(name, peer as u32, linked, now);
        self.tables.insert(name.to_owned(), Table::new(disk, Kept::There(peer)));
    }

    /// A disk is gone, and its reservations.
    pub(super) fn remove(&mut self, name: &str, links: &mut Links) {
        let Some(table) = self.tables.remove(name) else { return };
        self.owner.remove(name);
        self.replica.remove(name);
        self.busy.remove(name);
        let writer = self.writers.of(table.moves.is_some());
        if let (Some(writer), Kept::Alone | Kept::Here | Kept::Unreadable) = (writer, table.kept) {
            writer.remove(name, table.medium);
        }
        let askers = table.queue.into_iter().map(|(asker, _)| asker);
        let begun = table.current.map(|(asker, _)| asker).into_iter();
        for asker in askers.chain(begun).chain(table.writing.map(|(_, asker, ..)| asker)) {
            self.answers.give(asker, Status::Check(Sense::NO_UNIT), links);
        }
    }

    /// Whether what this node knows of a disk's reservations is what holds.
    pub(super) fn is_good(&self, name: &str) -> bool {
        self.tables.get(name).is_none_or(|table| table.good)
    }

    /// Peers that have served a disk kept here to initiators.
    pub(super) fn known(&self, name: &str) -> impl Iterator<Item = usize> {
        self.owner.known(name).map(|peer| peer as usize)
    }

    /// What a session asks. Its answer, where there is one at once.
    pub(super) fn ask(
        &mut self,
        name: &str,
        what: OwnerTask,
        asker: Asker,
        links: &mut Links,
    ) -> Option<Status> {
        let Some(table) = self.tables.get_mut(name) else { return Some(Status::Check(Sense::NO_UNIT)) };
        if table.is_closed() {
            return Some(Status::Check(Sense::UNAVAILABLE));
        }
        let Kept::There(peer) = table.kept else {
            if table.queue.len() >= QUEUE_MAX {
                return Some(Status::Busy);
            }
            table.queue.push_back((asker, what));
            self.busy.insert(name.to_owned());
            return None;
        };
        if !table.good {
            return Some(Status::Check(Sense::UNAVAILABLE));
        }
        self.passed_on.pass((peer, name), what, asker, links)
    }

    /// Whether changes were left for the next turn.
    pub(super) fn goes_on(&self) -> bool {
        self.portion.is_over() && !self.busy.is_empty()
    }

    /// Whether [`ReservationTables::settle`] may have something to do.
    pub(super) fn is_due(&self, links: &Links, now: Instant) -> bool {
        !links.news.is_empty() || !self.busy.is_empty() || self.wake_at(now).is_some_and(|at| at <= now)
    }

    /// When time alone gives it something to do.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let settled = self.busy.iter().filter_map(|name| self.owner.settled_by(name, now)).min();
        let again = self.again.first().map(|(at, _)| *at);
        [self.replica.wake_at(), self.expires, settled, again].into_iter().flatten().min()
    }

    /// Hears what peers have said, goes on with changes, says what there is to say. The disks to which the ways are others now:
    /// copies have become good, or are so no longer, or a node serves one that did not before.
    pub(super) fn settle(&mut self, units: &mut Units<'_>, links: &mut Links, now: Instant) -> Vec<usize> {
        // What was said on a link that is not joined yet is answered once it is.
        while links.joined.is_empty()
            && let Some(news) = links.news.pop_front()
        {
            self.hear(news, units, links, now);
        }
        self.owner.tick(now);
        self.replica.tick(now);
        self.read_again(now);
        while let Some(done) = self.writers.next_done() {
            match self.tables.get(&done.name).is_some_and(|table| table.awaits(done.number)) {
                true => self.was_read(done, units, now),
                false => self.written(done, units, links),
            }
        }
        for name in self.portion.in_turn(self.busy.iter()) {
            self.advance(&name, units, links, now);
        }
        let mut changed = self.judge(units.targets, now);
        self.judge_moves(units, &mut changed, now);
        while let Some((peer, message)) = self.owner.next_message() {
            links.tell(peer as usize, message);
        }
        while let Some((peer, message)) = self.replica.next_message() {
            links.tell(peer as usize, message);
        }
        changed
    }
}
