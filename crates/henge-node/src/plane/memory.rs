//! Memory for commands.

use super::budget::Budget;
use super::disk::Disk;
use super::disks::Disks;
use super::sub_request::Submitter;
use henge_backend::{Buffer, BufferPool};
use henge_core::format_size;
use std::collections::BTreeMap;

/// Payloads of all disks here, and who may hold how much of them (`budget.rs`).
pub(crate) struct Memory {
    pub buffers: BufferPool,
    pub(super) budget: Budget,
    /// How often memory was asked for and not there.
    pub refused: u64,
    freed: bool,
    /// By disk, the command that has memory beyond what the disk may hold, and the addresses of that.
    beyond: BTreeMap<usize, (Submitter, Vec<usize>)>,
    /// Bytes of all that.
    lent: usize,
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Memory {
        let (buffers, budget) = (BufferPool::new(bytes), Budget::new(bytes));
        Memory { buffers, budget, refused: 0, freed: false, beyond: BTreeMap::new(), lent: 0 }
    }

    /// Memory for a command of this disk; `None` when it has to wait.
    pub(super) fn take(&mut self, disk: &mut Disk, len: u64) -> Option<Buffer> {
        let len = usize::try_from(len).ok()?;
        let footprint = BufferPool::footprint(len);
        if !self.budget.take(disk.held, footprint) {
            self.refused += 1;
            return None;
        }
        // What is lent is at the cost of nobody's minimum.
        let fits = self.buffers.out() + footprint <= self.buffers.budget() + self.lent;
        match fits.then(|| self.buffers.get_beyond(len)).flatten() {
            Some(buffer) => {
                disk.held += footprint;
                Some(buffer)
            }
            None => {
                self.budget.give(disk.held + footprint, footprint);
                self.refused += 1;
                None
            }
        }
    }

    /// Memory for a command that keeps what it has while it waits: of several that wait for each other's, none would ever go on. So one of each
    /// disk has it beyond what the disk may hold.
    pub(super) fn take_more(
        &mut self,
        (number, disk): (usize, &mut Disk),
        len: u64,
        whose: Submitter,
    ) -> Option<Buffer> {
        if let Some(buffer) = self.take(disk, len) {
            return Some(buffer);
        }
        let another = |(one, _): &(Submitter, Vec<usize>)| *one != whose;
        if self.beyond.get(&number).is_some_and(another) {
            return None;
        }
        let buffer = self.buffers.get_beyond(usize::try_from(len).ok()?)?;
        let (_, addresses) = self.beyond.entry(number).or_insert((whose, Vec::new()));
        addresses.push(buffer.as_ptr().addr());
        self.lent += buffer.capacity();
        self.count_extra(disk, buffer.capacity());
        Some(buffer)
    }

    /// Memory of a disk comes back: perhaps what one command had beyond.
    fn end_beyond(&mut self, number: usize, buffer: &Buffer) {
        if let Some((_, addresses)) = self.beyond.get_mut(&number) {
            let before = addresses.len();
            addresses.retain(|address| *address != buffer.as_ptr().addr());
            self.lent -= if addresses.len() < before { buffer.capacity() } else { 0 };
            if addresses.is_empty() {
                self.beyond.remove(&number);
            }
        }
    }

    /// Gives a command's memory back.
    pub(super) fn put(&mut self, (number, disk): (usize, Option<&mut Disk>), buffer: Buffer) {
        self.end_beyond(number, &buffer);
        if let Some(disk) = disk {
            // A disk that has the number of one that went has not held what comes back of that one.
            self.give(disk, buffer.capacity());
        }
        self.freed |= buffer.capacity() > 0;
        self.buffers.put(buffer);
    }

    fn give(&mut self, disk: &mut Disk, bytes: usize) {
        let back = bytes.min(disk.held);
        self.budget.give(disk.held, back);
        disk.held -= back;
    }

    /// A request has so much beside its command's memory.
    pub(super) fn count_extra(&mut self, disk: &mut Disk, bytes: usize) {
        self.budget.add(disk.held, bytes);
        disk.held += bytes;
    }

    /// What a request had beside its command's memory is given back.
    pub(super) fn uncount_extra(&mut self, disk: Option<&mut Disk>, bytes: usize) {
        if bytes > 0
            && let Some(disk) = disk
        {
            self.give(disk, bytes);
            self.freed = true;
        }
    }

    /// A disk is gone, with all that it held.
    pub(super) fn forget(&mut self, disk: &Disk) {
        self.budget.give(disk.held, disk.held);
    }

    /// What a disk holds, and who holds most of what all share; for people.
    pub(crate) fn holders(&self, disks: &Disks, number: usize, most: usize) -> String {
        let least = self.budget.least();
        let own = of(disks[number].as_ref().map_or(0, |disk| disk.held), least);
        let (shared, beyond) = self.budget.shared();
        let disks = disks.iter().flatten();
        let mut others: Vec<(usize, &str)> =
            disks.map(|disk| (disk.held.saturating_sub(least), disk.config.name.as_str())).collect();
        others.retain(|(held, _)| *held > 0);
        others.sort_unstable_by(|a, b| b.cmp(a));
        others.truncate(most);
        let list: Vec<String> =
            others.iter().map(|(held, name)| format!("{name} {}", format_size(*held as u64))).collect();
        let list = if list.is_empty() { String::new() } else { format!(", most of it {}", list.join(", ")) };
        format!("it holds {own} that are its own; of what disks share, {} are held{list}", of(beyond, shared))
    }

    /// What each disk can have, whatever the others hold.
    pub(crate) fn least(&self) -> u64 {
        self.budget.least() as u64
    }

    /// Whether so much more is still the disk's own.
    pub(crate) fn is_own(&self, disk: &Disk, footprint: usize) -> bool {
        disk.held + footprint <= self.budget.least()
    }

    /// There is one disk more, or one less.
    pub(super) fn count_disks(&mut self, disks: &Disks) {
        self.budget.set_disks(disks.count(), disks.iter().flatten().map(|disk| disk.held));
    }

    /// What waits for memory may look again.
    pub(super) fn note_freed(&mut self) {
        self.freed = true;
    }

    /// Whether memory came back since this was asked last.
    pub(crate) fn freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }
}

/// "8 MiB of 16 MiB".
pub(crate) fn of(part: usize, whole: usize) -> String {
    format!("{} of {}", format_size(part as u64), format_size(whole as u64))
}
