//! The table of a disk that goes from gateway to gateway.
//!
//! # The problem
//! The table must outlive each gateway, and a gateway that is not the last one any more must not let through what the table forbids.
//!
//! # The rule
//! The table lies in the metadata of the image ([`henge_backend::ImageMetadata`]). The gateway with the seat is its owner: it reads the
//! table once it has the image's lock, and writes each change there before the change is in force anywhere. A gateway without the seat
//! follows by a copy of that one's. Whose copy is of a former owner, or may be old, acts by nothing: commands wait.
//!
//! | the seat | the table here | commands |
//! |---|---|---|
//! | is here, and the table is being read | unknown | wait; peers hear that the disk is not here yet |
//! | is here | owned | go on |
//! | is at a peer, whose copy has not come | unknown | wait |
//! | is at a peer | a copy | go on |
//! | is nowhere | unknown | wait |
//!
//! A table that comes after a time in which others may have changed it is not only in force from then on: what waits was taken in by an older
//! one. Commands that it forbids are given up, and answered with RESERVATION CONFLICT. The extent's owner refuses what a peer sent before it said that it
//! acts by this owner's table ([`henge_link::copies`]).
//!
//! # Example
//! `n1` has `web`, a host registers and reserves there, and `n1` dies. `n2` breaks the lock, which shuts `n1` out, reads the table in
//! the image's metadata, and lets its clients' commands go on. A stranger's write that waited at `n2` is a conflict. `n1` was only hung, and goes on: its
//! clients' writes fail at the storage, wait for a copy of `n2`'s table, and conflict, too.
//!
//! # When something goes wrong
//! - A table that nobody understands closes the disk to initiators and hosts of all gateways. It is read again each second.
//! - A change whose writing failed may be there all the same: it is answered with an error, and the table is read again before the next one.
//! - A change whose gateway is lost before its answer may be in force or not; its initiator hears that nobody answered.

use super::writer::{Done, Medium};
use super::{Asker, Epochs, Kept, ReservationTables, Table, Units};
use crate::links::{Links, Seated};
use henge_core::{Duration, Instant};
use henge_iscsi::TargetId;
use henge_iscsi::scsi::{Reservations, Sense, Status};
use henge_link::copies::Arrived;
use std::collections::VecDeque;
use std::io;

/// A table that could not be read is read again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// What the other gateways are told of a table that nobody understands.
const UNREADABLE: &str = "unreadable\n";

/// What is known of a table that moves.
#[derive(Default)]
pub(super) struct Moves {
    /// The seat's move that was heard of last.
    turn: u64,
    /// The number of the reading under way.
    reading: Option<u64>,
    /// What the image's metadata says is what is known here: what is changed is that.
    sure: bool,
    /// The owner's table, or that it has none, is known here.
    known: bool,
    /// Nobody understands it.
    closed: bool,
    /// What the administrator was told.
    said: String,
    /// Commands go on.
    acts: bool,
}

impl Table {
    /// Whether it is to be read before it can be changed.
    pub(super) fn is_unsure(&self) -> bool {
        self.moves.as_ref().is_some_and(|moves| self.kept == Kept::Here && !moves.sure && !moves.closed)
    }

    /// Whether that reading is waited for.
    pub(super) fn awaits(&self, number: u64) -> bool {
        self.moves.as_ref().is_some_and(|moves| moves.reading == Some(number))
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.kept == Kept::Unreadable || self.moves.as_ref().is_some_and(|moves| moves.closed)
    }

    /// Tells the administrator, once, why it is not known.
    fn complain(&mut self, name: &str, senseless: bool, why: &str) {
        let place = match &self.medium {
            Medium::Image(metadata) => metadata.place(),
            _ => "its gateway says where it is",
        };
        let Some(moves) = self.moves.as_mut().filter(|moves| moves.said != why) else { return };
        moves.said = why.to_owned();
        if senseless {
            tracing::error!(
                "disk \"{name}\" is closed to iSCSI initiators and NVMe hosts, since nobody knows who reserved it: {why} ({place}); mend it, or \
                 remove it if no reservation matters (`rbd image-meta`); it is read again each second"
            );
        } else {
            tracing::warn!(
                "commands of disk \"{name}\" wait, since nobody knows who reserved it: {why}; it is read again each second"
            );
        }
    }

    /// This table holds, and others may have held since the one that was in force here: whatever was taken in by that is looked at again.
    fn catch_up(&self, next: Reservations, units: &mut Units<'_>, verdicts: &mut Verdicts) -> Option<Epochs> {
        let effects = units.targets.unit(self.target, 0)?.reservations().missed(&next);
        let epochs = units.adopt((self.target, self.number), next, &effects);
        verdicts.recheck.push((self.target, self.number));
        Some(epochs)
    }
}

/// Whether commands of a disk go on by its table from now on, since that move of its seat; or those that a peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::targets) struct Acting {
    pub number: usize,
    pub turn: u64,
    pub peer: Option<usize>,
    pub acts: bool,
}

/// What tables that move mean to commands.
#[derive(Default)]
pub(in crate::targets) struct Verdicts {
    /// Whose commands go on, or wait.
    acting: VecDeque<Acting>,
    /// Units whose commands were taken in by older tables.
    recheck: Vec<(TargetId, usize)>,
}

impl Verdicts {
    /// The next disk whose commands go on, or wait.
    pub(in crate::targets) fn next_acting(&mut self) -> Option<Acting> {
        self.acting.pop_front()
    }

    /// The next unit whose commands are looked at again.
    pub(in crate::targets) fn next_recheck(&mut self) -> Option<(TargetId, usize)> {
        self.recheck.pop()
    }
}

impl ReservationTables {
    /// A disk that goes from gateway to gateway.
    pub(in crate::targets) fn follow(&mut self, name: &str, (target, number): (TargetId, usize)) {
        let table = Table::new((target, number, None), Kept::Nowhere);
        self.tables.insert(name.to_owned(), Table { moves: Some(Moves::default()), ..table });
    }

    /// A disk's seat has moved.
    pub(super) fn seat(
        &mut self,
        name: &str,
        (turn, seated): (u64, Seated),
        links: &mut Links,
        now: Instant,
    ) {
        let Some(table) = self.tables.get_mut(name).filter(|table| table.moves.is_some()) else { return };
        match table.kept {
            Kept::Here => self.owner.remove(name),
            Kept::There(_) => self.replica.remove(name),
            _ => {}
        }
        let said = table.moves.take().map(|moves| moves.said).unwrap_or_default();
        table.moves = Some(Moves { turn, said, ..Moves::default() });
        (table.version, table.draining, table.medium) = (None, None, Medium::Nothing);
        // What is done cannot be told from here any more; what has not begun waits for the next owner.
        let begun = table.writing.take().map(|(_, asker, ..)| asker).into_iter();
        let begun: Vec<Asker> = begun.chain(table.current.take().map(|(asker, _)| asker)).collect();
        let (waiting, theirs): (Vec<_>, Vec<_>) =
            table.queue.drain(..).partition(|(asker, _)| matches!(asker, Asker::Here(..)));
        table.kept = match seated {
            Seated::Here(metadata) => {
                table.medium = metadata.map_or(Medium::Nothing, Medium::Image);
                Kept::Here
            }
            Seated::There(peer) => {
                let linked = links.peers.get(peer).and_then(Option::as_ref).is_some_and(|p| p.link.is_some());
                self.replica.add(name, peer as u32, linked, now);
                Kept::There(peer)
            }
            Seated::Nowhere => Kept::Nowhere,
        };
        let is_here = table.kept == Kept::Here;
        begun.into_iter().for_each(|asker| self.answers.give(asker, Status::Check(Sense::UNANSWERED), links));
        theirs.into_iter().for_each(|(asker, _)| self.answers.give(asker, Status::Busy, links));
        for (asker, what) in waiting {
            if let Some(status) = self.ask(name, what, asker, links) {
                self.answers.give(asker, status, links);
            }
        }
        if is_here {
            self.read(name);
        }
    }

    /// Asks for the table, if it moves.
    pub(super) fn read(&mut self, name: &str) {
        let Some(table) = self.tables.get_mut(name) else { return };
        let medium = table.medium.clone();
        let (Some(moves), Some(writer)) = (&mut table.moves, self.writers.of(true)) else { return };
        moves.sure = false;
        moves.reading = Some(writer.read(name, medium));
        self.busy.insert(name.to_owned());
    }

    /// Reads those again whose time has come.
    pub(super) fn read_again(&mut self, now: Instant) {
        while self.again.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, name)) = self.again.pop_first()
        {
            let is_read = |table: &Table| table.moves.as_ref().is_none_or(|moves| moves.reading.is_some());
            let due = |table: &Table| table.kept == Kept::Here && !is_read(table);
            if self.tables.get(&name).is_some_and(due) {
                self.read(&name);
            }
        }
    }

    /// A table was read. Whether that was what was waited for.
    pub(super) fn was_read(&mut self, done: Done, units: &mut Units<'_>, now: Instant) {
        let Some(table) = self.tables.get_mut(&done.name) else { return };
        let Some(moves) = table.moves.as_mut().filter(|moves| moves.reading == Some(done.number)) else {
            return;
        };
        moves.reading = None;
        let was_closed = moves.closed;
        let found = match done.outcome {
            Ok(Some(text)) if text.is_empty() => Err((true, "it is empty".into())),
            Ok(text) => Reservations::restore(&text.unwrap_or_default()).map_err(|why| (true, why)),
            Err(e) => Err((e.kind() == io::ErrorKind::InvalidData, e.to_string())),
        };
        match found {
            Ok(next) => {
                (moves.closed, moves.known, moves.sure) = (false, true, true);
                moves.said.clear();
                self.owns(&done.name, next, was_closed, units);
            }
            Err((senseless, why)) => {
                self.again.insert((now + AGAIN, done.name.clone()));
                if senseless {
                    (moves.closed, moves.known) = (true, true);
                    match self.owner.decides(&done.name) {
                        true if was_closed => {}
                        true => self.owner.change(&done.name, UNREADABLE.into()),
                        false => self.owner.take(&done.name, UNREADABLE.into()),
                    }
                }
                table.complain(&done.name, senseless, &why);
            }
        }
        self.busy.insert(done.name);
    }

    /// This table holds, by this node's word.
    fn owns(&mut self, name: &str, next: Reservations, was_closed: bool, units: &mut Units<'_>) {
        let Some(table) = self.tables.get_mut(name) else { return };
        let Some(unit) = units.targets.unit(table.target, 0) else { return };
        if !self.owner.decides(name) {
            self.owner.take(name, next.text());
        } else if was_closed || *unit.reservations() != next {
            let effects = unit.reservations().missed(&next);
            self.owner.change(name, next.tell(&effects));
        }
        table.catch_up(next, units, &mut self.verdicts);
    }

    /// A copy of the owner's table has come: whether others before it were missed, of a table that moves, and it is taken care of.
    pub(super) fn arrived_late(&mut self, copy: &Arrived, units: &mut Units<'_>) -> bool {
        let Some(table) = self.tables.get_mut(&copy.thing) else { return true };
        let Some(moves) = &mut table.moves else { return false };
        let told = Reservations::told(&copy.text).map(|(next, _)| next);
        if told.is_ok() && copy.follows && moves.known && !moves.closed {
            return false;
        }
        (moves.known, moves.closed) = (true, told.is_err());
        table.version = Some(copy.version);
        let epochs = match told {
            Ok(next) => table.catch_up(next, units, &mut self.verdicts),
            Err(_) => {
                table.complain(&copy.thing, true, "the gateway that has it cannot read its table");
                None
            }
        };
        match (epochs, self.tables.get_mut(&copy.thing)) {
            (Some(epochs), Some(table)) => {
                table.draining = Some((copy.version, epochs));
                self.busy.insert(copy.thing.clone());
            }
            _ => self.replica.seen(&copy.thing, copy.version),
        }
        true
    }

    /// Which disks' commands go on, where that has changed; and when a copy by which they do may be old.
    pub(super) fn judge_moves(&mut self, units: &mut Units<'_>, changed: &mut Vec<usize>, now: Instant) {
        for (name, table) in &mut self.tables {
            let Some(moves) = &mut table.moves else { continue };
            let until = if let Kept::There(_) = table.kept { self.replica.good_until(name) } else { None };
            let until = until.filter(|until| now < *until);
            self.expires = self.expires.into_iter().chain(until).min();
            let acts = moves.known && (table.kept == Kept::Here || until.is_some());
            if std::mem::replace(&mut table.good, !moves.closed) == moves.closed {
                changed.push(table.number);
                units.targets.set_available(table.target, 0, table.good);
            }
            if acts != moves.acts {
                moves.acts = acts;
                units.set_stale((table.target, table.number), !acts);
                self.verdicts.acting.push_back(Acting {
                    number: table.number,
                    turn: moves.turn,
                    peer: None,
                    acts,
                });
            }
        }
        while let Some((name, peer, acts)) = self.owner.next_acting() {
            let Some(table) = self.tables.get(&name) else { continue };
            let Some(moves) = &table.moves else { continue };
            let (number, turn, peer) = (table.number, moves.turn, Some(peer as usize));
            self.verdicts.acting.push_back(Acting { number, turn, peer, acts });
        }
    }
}
