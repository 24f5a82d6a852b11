//! Who may use a disk: reservations that hold on every node that serves it.
//!
//! # The rule
//! The first place's node keeps the reservations of a disk over nodes; a disk of one node alone, that node. Another node passes a
//! PERSISTENT RESERVE OUT on to it. The keeper decides one at a time: what is decided is in its file, then in force here,
//! then told to every node with initiators' portals ([`henge_link::copies`]), and answered once each of them acts by it (or has been
//! silent for so long that it must have stopped), and once what PREEMPT AND ABORT aborts has left the storage, there and here.
//!
//! ```text
//! initiator ─ PR OUT ─▶ n2 ─ Reserve ─▶ n1, the keeper: file ─▶ in force ─┬─ Copy ─▶ n2 ─ Seen ─▶ ┐
//!                                                                          └─ Copy ─▶ n3 ─ Seen ─▶ n1: settled
//! initiator ◀── GOOD ── n2 ◀─ Reserved ────────────────────────────────────────────────────────────┘
//! ```
//!
//! A node whose copy may be old (the keeper has not answered it for four seconds) says so: its port is unavailable to initiators,
//! commands are NOT READY, and what has not begun is given up.
//!
//! # What it does not do
//! What such a node had handed to a third one before may still be written there. RESERVE(6) belongs to one node's session, and is
//! refused on disks over nodes. NBD knows no reservations; they bind initiators alone.

use super::replace;
use crate::links::{Links, News};
use henge_core::{Instant, RequestId};
use henge_iscsi::scsi::{Change, Effects, Key, Reservations, Sense, Status};
use henge_iscsi::{TargetId, Targets};
use henge_link::copies::{Arrived, Holder, Keeper};
use henge_link::{Message, WireSense};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Most changes of a disk that wait for the one before them.
const QUEUE_MAX: usize = 256;
/// Most changes of ours that peers have not answered.
const ASKED_MAX: usize = 4096;
/// Longest name of a port: an initiator's has 223 bytes.
const PORT_MAX: usize = 512;
/// Longest parameter list; longer ones are refused before they come here.
const LIST_MAX: usize = 4096;

/// Whose change it is.
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
}

struct Table {
    target: TargetId,
    number: usize,
    kept: Kept,
    file: PathBuf,
    queue: VecDeque<(Asker, Change)>,
    /// In force here, and not yet everywhere; what began before this epoch of the unit is still to end.
    current: Option<(Asker, u32)>,
    /// Of a peer's: which version is in force here.
    version: Option<u64>,
    /// And of which the peer is still to be told that it is.
    draining: Option<(u64, u32)>,
    /// Whether what is in force here is what holds.
    good: bool,
}

/// The reservations of all disks here.
pub(super) struct Desk {
    keeper: Keeper,
    holder: Holder,
    tables: BTreeMap<String, Table>,
    /// Disks with changes on their way.
    busy: BTreeSet<String>,
    /// Changes that peers are to decide.
    asked: BTreeMap<u64, (usize, Asker)>,
    last_asked: u64,
    /// Answers for sessions of this node.
    decided: VecDeque<(RequestId, RequestId, Status)>,
    /// When the first good copy may be so no longer.
    expires: Option<Instant>,
    /// Disks to which there is another way than before.
    ways: Vec<usize>,
}

impl Desk {
    /// `epoch` grows when the node starts anew.
    pub(super) fn new(epoch: u64) -> Desk {
        Desk {
            keeper: Keeper::new(epoch),
            holder: Holder::new(),
            tables: BTreeMap::new(),
            busy: BTreeSet::new(),
            asked: BTreeMap::new(),
            last_asked: epoch,
            decided: VecDeque::new(),
            expires: None,
            ways: Vec::new(),
        }
    }

    /// A disk of this node alone.
    pub(super) fn add(&mut self, name: &str, target: TargetId, number: usize, file: PathBuf) {
        self.insert(name, target, number, file, Kept::Alone);
    }

    /// A disk over nodes, kept here for all.
    pub(super) fn keep(
        &mut self,
        name: &str,
        (target, number, file): (TargetId, usize, PathBuf),
        kept: &Reservations,
        now: Instant,
    ) {
        self.keeper.add(name, kept.text(), now);
        self.insert(name, target, number, file, Kept::Here);
    }

    /// A disk over nodes, kept by a peer.
    pub(super) fn hold(
        &mut self,
        name: &str,
        (target, number, file): (TargetId, usize, PathBuf),
        (peer, linked): (usize, bool),
        now: Instant,
    ) {
        self.holder.add(name, peer as u32, linked, now);
        self.insert(name, target, number, file, Kept::There(peer));
    }

    fn insert(&mut self, name: &str, target: TargetId, number: usize, file: PathBuf, kept: Kept) {
        let table = Table {
            target,
            number,
            kept,
            file,
            queue: VecDeque::new(),
            current: None,
            version: None,
            draining: None,
            good: !matches!(kept, Kept::There(_)),
        };
        self.tables.insert(name.to_owned(), table);
    }

    /// A disk is gone, and its reservations.
    pub(super) fn remove(&mut self, name: &str, links: &mut Links) {
        let Some(table) = self.tables.remove(name) else { return };
        self.keeper.remove(name);
        self.holder.remove(name);
        self.busy.remove(name);
        // There may be none.
        let _ = std::fs::remove_file(&table.file);
        let askers = table.queue.into_iter().map(|(asker, _)| asker);
        for asker in askers.chain(table.current.map(|(asker, _)| asker)) {
            self.answer(asker, Status::Check(Sense::NO_UNIT), links);
        }
    }

    /// Whether what this node knows of a disk's reservations is what holds.
    pub(super) fn is_good(&self, name: &str) -> bool {
        self.tables.get(name).is_none_or(|table| table.good)
    }

    /// Peers that have served a disk kept here to initiators.
    pub(super) fn known(&self, name: &str) -> impl Iterator<Item = usize> {
        self.keeper.known(name).map(|peer| peer as usize)
    }

    /// A session's change. Its answer, where there is one at once.
    pub(super) fn change(
        &mut self,
        name: &str,
        change: Change,
        asker: Asker,
        links: &mut Links,
    ) -> Option<Status> {
        let Some(table) = self.tables.get_mut(name) else { return Some(Status::Check(Sense::NO_UNIT)) };
        let Kept::There(peer) = table.kept else {
            if table.queue.len() >= QUEUE_MAX {
                return Some(Status::Busy);
            }
            table.queue.push_back((asker, change));
            self.busy.insert(name.to_owned());
            return None;
        };
        if !table.good {
            return Some(Status::Check(Sense::UNAVAILABLE));
        }
        if self.asked.len() >= ASKED_MAX {
            return Some(Status::Busy);
        }
        let id = self.last_asked + 1;
        let Change { cdb, list, port } = change;
        if !links.tell(peer, Message::Reserve { id, disk: name.to_owned(), port, cdb, list }) {
            return Some(Status::Busy); // not linked just now
        }
        self.last_asked = id;
        self.asked.insert(id, (peer, asker));
        None
    }

    /// Whether [`Desk::settle`] may have something to do.
    pub(super) fn is_due(&self, links: &Links, now: Instant) -> bool {
        !links.news.is_empty() || !self.busy.is_empty() || self.wake_at(now).is_some_and(|at| at <= now)
    }

    /// When time alone gives it something to do.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let settled = self.busy.iter().filter_map(|name| self.keeper.settled_by(name, now)).min();
        [self.holder.wake_at(), self.expires, settled].into_iter().flatten().min()
    }

    /// Hears what peers have said, goes on with changes, says what there is to say. The disks to which the ways are others now:
    /// copies have become good, or are so no longer, or a node serves one that did not before.
    pub(super) fn settle(&mut self, targets: &mut Targets, links: &mut Links, now: Instant) -> Vec<usize> {
        // What was said on a link that is not joined yet is answered once it is.
        while links.joined.is_empty()
            && let Some(news) = links.news.pop_front()
        {
            self.hear(news, targets, links, now);
        }
        self.keeper.tick(now);
        self.holder.tick(now);
        for name in self.busy.iter().cloned().collect::<Vec<_>>() {
            self.advance(&name, targets, links, now);
        }
        let changed = self.judge(targets, now);
        while let Some((peer, message)) = self.keeper.next_message() {
            links.tell(peer as usize, message);
        }
        while let Some((peer, message)) = self.holder.next_message() {
            links.tell(peer as usize, message);
        }
        changed
    }

    /// The next answer for a session: its connection, its command, and how it ends.
    pub(super) fn next_decided(&mut self) -> Option<(RequestId, RequestId, Status)> {
        self.decided.pop_front()
    }

    fn answer(&mut self, asker: Asker, status: Status, links: &mut Links) {
        match asker {
            Asker::Here(connection, command) => self.decided.push_back((connection, command, status)),
            Asker::There(peer, id) => {
                let why = if let Status::Check(sense) = status { Some(wire(&sense)) } else { None };
                links.tell(peer, Message::Reserved { id, status: status.code(), why });
            }
        }
    }

    fn hear(&mut self, news: News, targets: &mut Targets, links: &mut Links, now: Instant) {
        match news {
            News::Up(peer) => self.holder.linked(peer as u32, now),
            News::Down(peer) => {
                self.holder.unlinked(peer as u32);
                let lost: Vec<u64> =
                    self.asked.iter().filter(|(_, (of, _))| *of == peer).map(|(id, _)| *id).collect();
                for id in lost {
                    let Some((_, asker)) = self.asked.remove(&id) else { continue };
                    self.answer(asker, Status::Check(Sense::UNANSWERED), links);
                }
            }
            News::Said(peer, Message::Reserve { id, disk, port, cdb, list }) => {
                let asker = Asker::There(peer, id);
                let sane =
                    list.len() <= LIST_MAX && port.len() <= PORT_MAX && !port.chars().any(char::is_control);
                let kept_here = self.tables.get(&disk).is_some_and(|table| table.kept == Kept::Here);
                let status = match (sane, kept_here) {
                    (false, _) => Some(Status::Check(Sense::LIST_LENGTH)),
                    (_, false) => Some(Status::Check(Sense::UNAVAILABLE)),
                    _ => self.change(&disk, Change { cdb, list, port }, asker, links),
                };
                if let Some(status) = status {
                    self.answer(asker, status, links);
                }
            }
            News::Said(peer, Message::Reserved { id, status, why }) => {
                if let Some((_, asker)) = self.asked.remove(&id).filter(|(of, _)| *of == peer) {
                    self.answer(asker, unwire(status, why), links);
                }
            }
            News::Said(peer, message) => {
                if let Message::Watch { thing } = &message
                    && let Some(table) = self.tables.get(thing).filter(|table| table.kept == Kept::Here)
                    && self.keeper.known(thing).all(|known| known != peer as u32)
                {
                    self.ways.push(table.number);
                }
                self.keeper.heard(peer as u32, &message, now);
                if let Some(copy) = self.holder.heard(peer as u32, &message) {
                    self.arrived(&copy, targets);
                }
            }
        }
    }

    /// A peer's disk has reservations that are these.
    fn arrived(&mut self, copy: &Arrived, targets: &mut Targets) {
        let Some(table) = self.tables.get_mut(&copy.thing) else { return };
        if table.version == Some(copy.version) {
            if table.draining.is_none() {
                self.holder.seen(&copy.thing, copy.version);
            }
            return;
        }
        let Ok((next, mut effects)) = Reservations::told(&copy.text) else {
            // Of a node that speaks otherwise: nothing is known of the disk.
            table.version = None;
            return;
        };
        let before = targets.unit(table.target, 0).map(|unit| unit.reservations().clone());
        match (table.version.and(before), copy.follows) {
            (_, true) => {}
            (None, false) => effects = Effects::default(),
            (Some(before), false) => {
                let missed = before.missed(&next);
                effects.attentions.extend(missed.attentions);
                effects.abort.extend(missed.abort);
            }
        }
        let epoch = targets.adopt(table.target, 0, next, &effects);
        table.version = Some(copy.version);
        table.draining = Some((copy.version, epoch));
        self.busy.insert(copy.thing.clone());
    }

    /// Goes on with a disk's changes as far as that is possible now.
    fn advance(&mut self, name: &str, targets: &mut Targets, links: &mut Links, now: Instant) {
        loop {
            let Some(table) = self.tables.get_mut(name) else { return };
            let Some(unit) = targets.unit(table.target, 0) else { return };
            if let Some((version, epoch)) = table.draining {
                if unit.quiet_before(epoch) {
                    table.draining = None;
                    self.holder.seen(name, version);
                    self.busy.remove(name);
                }
                return;
            }
            let alone = table.kept == Kept::Alone;
            let settled = alone || self.keeper.is_settled(name, now);
            if let Some((asker, epoch)) = table.current {
                if !settled || !unit.quiet_before(epoch) {
                    return;
                }
                table.current = None;
                self.answer(asker, Status::Good, links);
                continue;
            }
            if table.queue.is_empty() {
                self.busy.remove(name);
                return;
            }
            if !settled {
                return;
            }
            let Some((asker, change)) = table.queue.pop_front() else { return };
            let mut next = unit.reservations().clone();
            let status = match next.apply(&change) {
                Err(status) => Some(status),
                Ok(effects) => match keep(table, &next, &effects) {
                    Err(_) => Some(Status::Check(Sense::WRITE)),
                    Ok(()) => {
                        if !alone {
                            self.keeper.change(name, next.tell(&effects));
                        }
                        let epoch = targets.adopt(table.target, 0, next, &effects);
                        table.current = Some((asker, epoch));
                        None
                    }
                },
            };
            if let Some(status) = status {
                self.answer(asker, status, links);
            }
        }
    }

    /// Which copies are good now: their disks can be used here, others cannot.
    fn judge(&mut self, targets: &mut Targets, now: Instant) -> Vec<usize> {
        let mut changed = std::mem::take(&mut self.ways);
        self.expires = None;
        for (name, table) in &mut self.tables {
            if !matches!(table.kept, Kept::There(_)) {
                continue;
            }
            let until = self.holder.good_until(name).filter(|until| table.version.is_some() && now < *until);
            self.expires = self.expires.into_iter().chain(until).min();
            if until.is_some() != table.good {
                table.good = until.is_some();
                changed.push(table.number);
            }
            targets.set_available(table.target, 0, table.good);
        }
        changed
    }
}

/// Keeps what was decided, before it is in force anywhere.
fn keep(table: &Table, next: &Reservations, effects: &Effects) -> std::io::Result<()> {
    let text = match table.kept {
        Kept::Alone if !effects.keep => return Ok(()),
        Kept::Alone => next.save(),
        _ => next.text(),
    };
    replace(table.file.parent().unwrap_or(Path::new(".")), &table.file, &text)
}

fn wire(sense: &Sense) -> WireSense {
    use henge_iscsi::scsi::Detail;
    let at = match sense.detail {
        Detail::Parameter(at) => Some((true, at)),
        Detail::Cdb(at) => Some((false, at)),
        Detail::None | Detail::Progress(_) => None,
    };
    WireSense { key: sense.key as u8, code: sense.code, at }
}

fn unwire(status: u8, why: Option<WireSense>) -> Status {
    let plain = [Status::Good, Status::ReservationConflict, Status::Busy, Status::TaskSetFull];
    if let Some(found) = plain.into_iter().find(|plain| plain.code() == status) {
        return found;
    }
    let Some(why) = why else { return Status::Check(Sense::INTERNAL) };
    let base = match why.at {
        Some((true, at)) => Sense::parameter(at),
        Some((false, at)) => Sense::field(at),
        None => Sense::NONE,
    };
    let keys = [Key::NotReady, Key::Medium, Key::IllegalRequest, Key::Aborted];
    let key = keys.into_iter().find(|key| *key as u8 == why.key).unwrap_or(Key::Hardware);
    Status::Check(Sense { key, code: why.code, ..base })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_travel_as_they_are() {
        let checks = [Sense::UNAVAILABLE, Sense::RELEASE, Sense::parameter(8), Sense::field(2), Sense::WRITE];
        let all = checks.into_iter().map(Status::Check).chain([
            Status::Good,
            Status::ReservationConflict,
            Status::Busy,
        ]);
        for status in all {
            let why = if let Status::Check(sense) = status { Some(wire(&sense)) } else { None };
            assert_eq!(unwire(status.code(), why), status);
        }
    }
}
