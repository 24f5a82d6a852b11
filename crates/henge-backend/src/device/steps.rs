//! A part is made, lengthened and removed in steps, beside those that are served: the same steps as [`Device::open_part`] and
//! [`Device::remove_part`] take at once, in the same order, so that each can fail and be done again.

use super::table::{Change, Record, State};
use super::{Device, PAGE};
use crate::Store;
use crate::store::{Chore, Growth, Step, is_of, put_aside};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use uuid::Uuid;

/// What is under way.
pub(super) struct Half {
    name: String,
    slot: usize,
    len: u64,
    stage: Stage,
}

enum Stage {
    /// Make: the record `making` is written.
    Recording(Change),
    /// Make: the space is zeroed.
    Zeroing,
    /// Make: the zeroes become durable. The part is whole then, and nobody's.
    Syncing,
    /// Adopt: the record `used` of a part that was kept is written.
    Adopting(Change),
    /// Keep: the record `kept` of a part that nobody has opened is written. More of its disk may follow.
    Keeping(Change),
    /// Claim: the record `used` is written.
    Using(Change),
    /// Grow: the new end is zeroed.
    ZeroingEnd,
    /// Grow: the new length is written, or which part of it the disk is to have. Or it is shorter than a growth that nobody was told of.
    Length(Change),
    /// Remove, or take back what failed for that reason: the record is freed.
    Freeing(Change, Option<io::Error>),
}

type Outcome = io::Result<Option<File>>;

impl Device {
    pub(super) fn begin_steps(&mut self, name: &str, len: u64) -> io::Result<Step> {
        crate::space::check_name(name)?;
        let found = self.table.find(name);
        let seen = self.open.get(name).map(|(_, len)| *len);
        if let Some((slot, has)) = self.unclaimed.get(name) {
            let base = self.table.get(*slot).base;
            let why = || io::Error::other(format!("\"{name}\" was just made with {has} bytes, for another"));
            return if *has == len { Ok(Step::There(base)) } else { Err(why()) };
        }
        match (found, seen) {
            (None, _) if len.is_multiple_of(PAGE) => self.begin_making(name, len),
            // Also one that nobody has opened, as one that was adopted is: what it grows by is zeroed step by step.
            (Some(slot), seen)
                if seen.is_none_or(|seen| seen < len)
                    && self.table.get(slot).len < len
                    && len.is_multiple_of(PAGE) =>
            {
                self.begin_lengthening(name, slot, len)
            }
            (Some(slot), Some(before)) if before < len && self.table.get(slot).len > len => {
                self.begin_shortening(name, slot, before, len)
            }
            // It is there.
            _ => self.open_part(name, len).map(Step::There),
        }
    }

    fn begin_making(&mut self, name: &str, len: u64) -> io::Result<Step> {
        if let Some((_, id, len)) = self.kept(name).first() {
            return Err(crate::store::kept(name, &id.to_string(), *len));
        }
        self.zeroes_are_there()?; // rather than after hours
        let slot = self.table.free_slot()?;
        let i = self.space.allocate(name, len)?;
        let base = self.space.extents()[i].base;
        let id = Uuid::new_v4();
        let record =
            Record { id, state: State::Making, name: name.to_owned(), base, len, before: len, told: 0 };
        match self.begin_change(slot, Some(record), false) {
            Ok((change, chore)) => Ok(self.wait(name, slot, len, Stage::Recording(change), Step::Run(chore))),
            Err(e) => {
                self.space.free(name);
                Err(e)
            }
        }
    }

    /// The record says what the disk has and is about to have: the node may begin again with either. What was made beyond that stays, since another
    /// node may have told of it.
    pub(super) fn begin_growing(&mut self, name: &str, to: Growth) -> io::Result<Step> {
        let Growth { has, len, is_told } = to;
        let Some((slot, seen)) = self.open.get_mut(name).filter(|_| len.is_multiple_of(PAGE)) else {
            return self.begin_steps(name, len);
        };
        *seen = has;
        let slot = *slot;
        let record = self.table.get(slot);
        if record.len < len {
            return self.begin_lengthening(name, slot, len);
        }
        if !is_told || record.len == len || has >= len {
            return Ok(Step::There(record.base));
        }
        let told = Record { before: has, told: len, ..record.clone() };
        let (change, chore) = self.begin_change(slot, Some(told), false)?;
        Ok(self.wait(name, slot, len, Stage::Length(change), Step::Run(chore)))
    }

    fn begin_lengthening(&mut self, name: &str, slot: usize, len: u64) -> io::Result<Step> {
        self.space.could_grow(name, len)?;
        self.zeroes_are_there()?;
        let record = self.table.get(slot);
        // What lies between its end and the next MiB may hold what an unacknowledged growth left there.
        let from = record.base + record.len.next_multiple_of(PAGE);
        let zero = Step::Zero { from, len: record.base + len - from };
        // Its disk does not know yet that it has more.
        self.space.grow(name, len)?;
        Ok(self.wait(name, slot, len, Stage::ZeroingEnd, zero))
    }

    /// A growth that nobody was told of made more of it: what lies beyond was never anybody's.
    fn begin_shortening(&mut self, name: &str, slot: usize, before: u64, len: u64) -> io::Result<Step> {
        let shorter = Record { len, before, told: 0, ..self.table.get(slot).clone() };
        let (change, chore) = self.begin_change(slot, Some(shorter), false)?;
        Ok(self.wait(name, slot, len, Stage::Length(change), Step::Run(chore)))
    }

    /// What a former disk left is a disk's again.
    pub(super) fn begin_adopting(&mut self, name: &str) -> io::Result<Step> {
        crate::space::check_name(name)?;
        let slot = match self.kept(name)[..] {
            _ if self.has_part(name) => return Ok(Step::There(0)),
            [] => return Ok(Step::There(0)),
            [(slot, ..)] => slot,
            _ => return Err(crate::store::several(name)),
        };
        let used = Record { state: State::Used, ..self.table.get(slot).clone() };
        let (change, chore) = self.begin_change(slot, Some(used), false)?;
        Ok(self.wait(name, slot, 0, Stage::Adopting(change), Step::Run(chore)))
    }

    /// What nobody has opened of a disk is nobody's by its name: one part after the other.
    pub(super) fn begin_keeping_of(&mut self, disk: &str) -> io::Result<Step> {
        let is_left =
            |r: &Record| r.state == State::Used && is_of(&r.name, disk) && !self.open.contains_key(&r.name);
        let Some((slot, record)) = self.table.records().find(|(_, r)| is_left(r)) else {
            return Ok(Step::There(0));
        };
        let kept = Record { state: State::Kept, ..record.clone() };
        let (change, chore) = self.begin_change(slot, Some(kept), false)?;
        Ok(self.wait(disk, slot, 0, Stage::Keeping(change), Step::Run(chore)))
    }

    /// The part is a disk's from now on.
    pub(super) fn begin_using(&mut self, name: &str) -> io::Result<Step> {
        let Some(&(slot, len)) = self.unclaimed.get(name) else { return Ok(Step::There(0)) };
        let used = Record { state: State::Used, ..self.table.get(slot).clone() };
        let (change, chore) = self.begin_change(slot, Some(used), false)?;
        Ok(self.wait(name, slot, len, Stage::Using(change), Step::Run(chore)))
    }

    pub(super) fn begin_freeing(&mut self, name: &str) -> io::Result<Step> {
        crate::space::check_name(name)?;
        let Some(slot) = self.slot_of(name) else {
            self.open.remove(name);
            return Ok(Step::There(0));
        };
        let (change, chore) = self.begin_change(slot, None, false)?;
        Ok(self.wait(name, slot, 0, Stage::Freeing(change, None), Step::Run(chore)))
    }

    /// Goes on after a step.
    pub(super) fn next_step(&mut self, name: &str, outcome: Outcome) -> io::Result<Step> {
        let half = self.half.take().filter(|half| half.name == name);
        let Half { slot, len, stage, .. } =
            half.ok_or_else(|| io::Error::other(format!("nothing is under way with \"{name}\"")))?;
        match stage {
            Stage::Recording(change) => match self.ended(change, outcome) {
                Ok(()) => {
                    let from = self.table.get(slot).base;
                    Ok(self.wait(name, slot, len, Stage::Zeroing, Step::Zero { from, len }))
                }
                Err(e) => {
                    self.space.free(name);
                    Err(e)
                }
            },
            Stage::Zeroing => match outcome {
                Ok(_) => {
                    let file = Arc::clone(&self.file);
                    self.files.elsewhere(self.file.as_raw_fd());
                    let sync: Chore = Box::new(move || crate::open::synced(file.sync_data()).map(|()| None));
                    Ok(self.wait(name, slot, len, Stage::Syncing, Step::Run(sync)))
                }
                Err(e) => self.take_back(name, slot, e),
            },
            Stage::Syncing => match self
                .files
                .heed_elsewhere(self.file.as_raw_fd(), outcome)
                .and_then(|_| self.zeroes_are_there())
            {
                Ok(()) => {
                    self.unclaimed.insert(name.to_owned(), (slot, len));
                    Ok(Step::There(self.table.get(slot).base))
                }
                Err(e) => self.take_back(name, slot, e),
            },
            Stage::Adopting(change) => {
                self.ended(change, outcome)?;
                self.place_again(slot).map(|()| Step::There(0))
            }
            Stage::Keeping(change) => {
                self.ended(change, outcome)?;
                self.place_again(slot)?;
                self.notices.push_back(put_aside(&self.table.get(slot).name));
                self.begin_keeping_of(name)
            }
            // After an error it is still unclaimed, and can be removed.
            Stage::Using(change) => self.ended(change, outcome).map(|()| {
                self.unclaimed.remove(name);
                self.opened(name, slot, len)
            }),
            Stage::ZeroingEnd => match outcome
                .and_then(|_| self.zeroes_are_there())
                .and_then(|()| self.begin_length(slot, name, len))
            {
                Ok((change, chore)) => {
                    Ok(self.wait(name, slot, len, Stage::Length(change), Step::Run(chore)))
                }
                Err(e) => self.place_again(slot).and(Err(e)),
            },
            Stage::Length(change) => {
                let ended = self.ended(change, outcome);
                self.place_again(slot)?;
                ended.map(|()| self.opened(name, slot, len))
            }
            Stage::Freeing(change, why) => {
                let freed = self.ended(change, outcome);
                match &freed {
                    Ok(()) => {
                        self.space.free(name);
                        self.open.remove(name);
                        self.unclaimed.remove(name);
                    }
                    // It stays `making`: nobody's, and its space with it, until the next start. Another part may have its name.
                    Err(_) if why.is_some() => self.place_again(slot)?,
                    Err(_) => {}
                }
                why.map_or(freed, Err).map(|()| Step::There(0))
            }
        }
    }

    /// After a sync that failed no other one is told of zeroes that were lost. What stood there before may show again.
    fn zeroes_are_there(&self) -> io::Result<()> {
        match self.files.has_failed(self.file.as_raw_fd()) {
            true => Err(crate::open::named(&self.path, &io::Error::other(crate::store::SYNC_FAILED))),
            false => Ok(()),
        }
    }

    fn begin_length(&mut self, slot: usize, name: &str, len: u64) -> io::Result<(Change, Chore)> {
        let record = self.table.get(slot).clone();
        let before = self.open.get(name).map_or(record.len, |(_, len)| *len);
        self.begin_change(slot, Some(Record { len, before, told: 0, ..record }), true)
    }

    /// Making failed: there is no such part.
    fn take_back(&mut self, name: &str, slot: usize, why: io::Error) -> io::Result<Step> {
        match self.begin_change(slot, None, false) {
            Ok((change, chore)) => {
                Ok(self.wait(name, slot, 0, Stage::Freeing(change, Some(why)), Step::Run(chore)))
            }
            Err(_) => self.place_again(slot).and(Err(why)),
        }
    }

    fn begin_change(
        &mut self,
        slot: usize,
        record: Option<Record>,
        after_sync: bool,
    ) -> io::Result<(Change, Chore)> {
        let file = Arc::clone(&self.file);
        let sync = move |file: &File| if after_sync { crate::open::synced(file.sync_data()) } else { Ok(()) };
        let begun = self.table.begin(file, slot, record, sync)?;
        self.files.elsewhere(self.file.as_raw_fd());
        Ok(begun)
    }

    fn ended(&mut self, change: Change, outcome: Outcome) -> io::Result<()> {
        let outcome = self.files.heed_elsewhere(self.file.as_raw_fd(), outcome);
        self.table.end(change, outcome.as_ref().map(drop));
        outcome.map(drop).map_err(|e| crate::open::named(&self.path, &e))
    }

    fn opened(&mut self, name: &str, slot: usize, len: u64) -> Step {
        self.open.insert(name.to_owned(), (slot, len));
        Step::There(self.table.get(slot).base)
    }

    fn wait(&mut self, name: &str, slot: usize, len: u64, stage: Stage, step: Step) -> Step {
        self.half = Some(Half { name: name.to_owned(), slot, len, stage });
        step
    }
}

#[cfg(test)]
mod tests;
