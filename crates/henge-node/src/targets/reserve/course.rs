//! What becomes of a change: decided, written, in force here, in force everywhere, answered.

use super::wire::{unsweep, unwire};
use super::writer::Done;
use super::{Asker, Kept, OwnerTask, ReservationTables, Units};
use crate::links::{Links, News};
use henge_core::Instant;
use henge_iscsi::Targets;
use henge_iscsi::scsi::{Change, Effects, Reservations, Sense, Status};
use henge_link::Message;
use henge_link::copies::Arrived;

/// Longest name of a registrant: an initiator's has 223 bytes.
const PORT_MAX: usize = 512;
/// Longest parameter list; longer ones are refused before they come here.
const LIST_MAX: usize = 4096;

/// What a peer asks about, or asks to be told of.
fn asked_about(message: &Message) -> Option<&str> {
    match message {
        Message::Watch { thing } | Message::Seen { thing, .. } => Some(thing),
        Message::Reserve { disk, .. } | Message::Sweep { disk, .. } => Some(disk),
        _ => None,
    }
}

impl ReservationTables {
    /// Whether a disk here names the peer: who is linked for other disks' sake learns and changes nothing of its reservations.
    fn names(&self, name: &str, peer: usize, units: &Units<'_>, links: &Links) -> bool {
        let disk = self.tables.get(name).and_then(|table| units.disks.get(table.number)?.as_ref());
        disk.is_none_or(|disk| disk.config.names(links.name(Some(peer))))
    }

    pub(super) fn hear(&mut self, news: News, units: &mut Units<'_>, links: &mut Links, now: Instant) {
        match news {
            News::Up(peer) => self.replica.linked(peer as u32, now),
            News::Seat { disk, turn, seated } => self.seat(&disk, (turn, seated), links, now),
            News::Down(peer) => {
                self.replica.unlinked(peer as u32);
                self.passed_on.lose(peer, &mut self.answers, links);
            }
            News::Said(peer, message)
                if asked_about(&message).is_some_and(|disk| !self.names(disk, peer, units, links)) =>
            {
                if let Message::Reserve { id, .. } | Message::Sweep { id, .. } = message {
                    self.answers.give(Asker::There(peer, id), Status::Check(Sense::UNAVAILABLE), links);
                }
            }
            News::Said(peer, Message::Reserve { id, disk, port, cdb, list }) => {
                let sane =
                    list.len() <= LIST_MAX && port.len() <= PORT_MAX && !port.chars().any(char::is_control);
                let asker = Asker::There(peer, id);
                if sane {
                    self.asked_by(asker, &disk, OwnerTask::Change(Change { cdb, list, port }), links);
                } else {
                    self.answers.give(asker, Status::Check(Sense::LIST_LENGTH), links);
                }
            }
            News::Said(peer, Message::Sweep { id, disk, what }) => {
                self.asked_by(Asker::There(peer, id), &disk, OwnerTask::Sweep(unsweep(what)), links);
            }
            News::Said(peer, Message::Reserved { id, status, why }) => {
                if let Some(asker) = self.passed_on.answered(peer, id) {
                    self.answers.give(asker, unwire(status, why), links);
                }
            }
            News::Said(peer, message) => {
                if let Message::Watch { thing } = &message
                    && let Some(table) = self.tables.get(thing).filter(|table| table.kept == Kept::Here)
                    && self.owner.known(thing).all(|known| known != peer as u32)
                {
                    self.ways.push(table.number);
                }
                self.owner.heard(peer as u32, &message, now);
                if let Some(copy) = self.replica.heard(peer as u32, &message) {
                    self.arrived(&copy, links.here(), units);
                }
            }
        }
    }

    /// A peer asks for what only the owner decides.
    fn asked_by(&mut self, asker: Asker, disk: &str, what: OwnerTask, links: &mut Links) {
        let kept_here = self.tables.get(disk).is_some_and(|table| table.kept == Kept::Here);
        let status = match kept_here {
            true => self.ask(disk, what, asker, links),
            // It has moved, and whoever asked has not heard of that yet.
            false if self.tables.get(disk).is_some_and(|table| table.moves.is_some()) => Some(Status::Busy),
            false => Some(Status::Check(Sense::UNAVAILABLE)),
        };
        if let Some(status) = status {
            self.answers.give(asker, status, links);
        }
    }

    /// A peer's disk has reservations that are these.
    fn arrived(&mut self, copy: &Arrived, here: Option<&str>, units: &mut Units<'_>) {
        let Some(table) = self.tables.get_mut(&copy.thing) else { return };
        if table.version == Some(copy.version) {
            if table.draining.is_none() {
                self.replica.seen(&copy.thing, copy.version);
            }
            return;
        }
        if self.arrived_late(copy, units) {
            return;
        }
        let Some(table) = self.tables.get_mut(&copy.thing) else { return };
        let Ok((next, mut effects)) = Reservations::told(&copy.text) else {
            // Of a node that speaks otherwise: nothing is known of the disk.
            table.version = None;
            return;
        };
        let before = units.targets.unit(table.target, 0).map(|unit| unit.reservations().clone());
        match (table.version.and(before), copy.follows) {
            (_, true) => {}
            (None, false) => effects = Effects::default(),
            (Some(before), false) => {
                let missed = before.missed(&next);
                effects.attentions.extend(missed.attentions);
                effects.abort.extend(missed.abort);
                effects.sweep = missed.sweep;
            }
        }
        // What came from here was done here before it was asked for.
        effects.sweep = effects.sweep.filter(|(_, by)| Some(by.as_str()) != here);
        let epochs = units.adopt((table.target, table.number), next, &effects);
        table.version = Some(copy.version);
        table.draining = Some((copy.version, epochs));
        self.busy.insert(copy.thing.clone());
    }

    /// Goes on with a disk's changes as far as that is possible now.
    pub(super) fn advance(&mut self, name: &str, units: &mut Units<'_>, links: &mut Links, now: Instant) {
        loop {
            let Some(table) = self.tables.get_mut(name) else { return };
            let disk = (table.target, table.number);
            if let Some((version, epochs)) = table.draining {
                if units.is_quiet_before(disk, epochs, links) {
                    table.draining = None;
                    self.replica.seen(name, version);
                    self.busy.remove(name);
                }
                return;
            }
            let alone = table.kept == Kept::Alone;
            let settled = alone || self.owner.is_settled(name, now);
            if table.writing.is_some() {
                return;
            }
            if let Some((asker, epochs)) = table.current {
                if !settled || !units.is_quiet_before(disk, epochs, links) {
                    return;
                }
                table.current = None;
                self.answers.give(asker, Status::Good, links);
                continue;
            }
            if table.queue.is_empty() && !table.is_unsure() {
                self.busy.remove(name);
                return;
            }
            if !settled || table.is_unsure() {
                return;
            }
            if self.portion.is_over() {
                return self.portion.stop_at(name);
            }
            let Some((asker, what)) = table.queue.pop_front() else { return };
            if table.is_closed() {
                self.answers.give(asker, Status::Check(Sense::UNAVAILABLE), links);
                continue;
            }
            if !self.decide(name, asker, what, units, links) {
                return;
            }
        }
    }

    /// Decides one thing: what is to survive is on the medium before it is in force anywhere. Whether the next one may follow now.
    fn decide(
        &mut self,
        name: &str,
        asker: Asker,
        what: OwnerTask,
        units: &mut Units<'_>,
        links: &mut Links,
    ) -> bool {
        let Some(table) = self.tables.get_mut(name) else { return false };
        let Some(unit) = units.targets.unit(table.target, 0) else { return false };
        let mut next = unit.reservations().clone();
        self.portion.spend(table.number, next.registrants().count());
        let decided = match what {
            OwnerTask::Change(change) => next.apply(&change),
            OwnerTask::Sweep(what) => Ok(next.sweep(what, by(asker, links))),
        };
        let effects = match decided {
            Ok(effects) => effects,
            Err(status) => {
                self.answers.give(asker, status, links);
                return true;
            }
        };
        let text = match table.kept == Kept::Alone {
            true => effects.keep.then(|| next.save()),
            false => Some(next.text()),
        };
        let Some(text) = text else {
            let epochs = units.adopt((table.target, table.number), next, &effects);
            table.current = Some((asker, epochs));
            return true;
        };
        let Some(writer) = self.writers.of(table.moves.is_some()) else { return false };
        let number = writer.write(name, table.medium.clone(), text);
        table.writing = Some((number, asker, next, effects));
        false
    }

    /// What was decided is in its file, or could not be written there.
    pub(super) fn written(&mut self, done: Done, units: &mut Units<'_>, links: &mut Links) {
        let Some(table) = self.tables.get_mut(&done.name) else { return };
        if table.writing.as_ref().is_none_or(|(number, ..)| *number != done.number) {
            return; // of a disk of that name before this one
        }
        let Some((_, asker, next, mut effects)) = table.writing.take() else { return };
        if done.outcome.is_err() {
            // It may be there all the same: a table that moves is read before the next change.
            self.read(&done.name);
            return self.answers.give(asker, Status::Check(Sense::WRITE), links);
        }
        if table.kept == Kept::Here {
            self.owner.change(&done.name, next.tell(&effects));
        }
        effects.sweep = effects.sweep.filter(|_| matches!(asker, Asker::There(..)));
        let epochs = units.adopt((table.target, table.number), next, &effects);
        table.current = Some((asker, epochs));
    }

    /// Which copies are good now: their disks can be used here, others cannot.
    pub(super) fn judge(&mut self, targets: &mut Targets, now: Instant) -> Vec<usize> {
        let mut changed = std::mem::take(&mut self.ways);
        self.expires = None;
        for (name, table) in &mut self.tables {
            if !matches!(table.kept, Kept::There(_)) || table.moves.is_some() {
                continue;
            }
            let until = self.replica.good_until(name).filter(|until| table.version.is_some() && now < *until);
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

/// The node by which somebody asks.
fn by(asker: Asker, links: &Links) -> &str {
    let peer = match asker {
        Asker::Here(..) => return links.here().unwrap_or_default(),
        Asker::There(peer, _) => peer,
    };
    let peer = links.peers.get(peer).and_then(Option::as_ref);
    peer.map_or("", |peer| &peer.config.name)
}
