//! Memory for commands, and which of a disk's bytes take room.

use super::Plane;
use crate::server::patience::of;
use henge_backend::{Buffer, BufferPool, Store};
use henge_iscsi::scsi::Extent;

/// Most steps of one look at what takes room: each may be two system calls, while everybody waits. The client asks again, for another turn.
pub(super) const EXTENT_STEPS: usize = 8;
/// What a step counts of its disk's turns: it takes about as long as copying so many bytes.
pub(super) const EXTENT_STEP: u64 = 8 << 10;

/// Most long CACHEs of a disk at once; others wait, as what waits for memory does.
const FETCHES: u32 = 4;

impl Plane {
    /// Memory for a command of this disk; `None` when it has to wait (`budget.rs` says for how much nobody has to).
    pub(crate) fn take_buffer(&mut self, number: usize, len: u64) -> Option<Buffer> {
        let len = usize::try_from(len).ok()?;
        let footprint = BufferPool::footprint(len);
        let held = self.disk(number).held;
        if !self.budget.take(held, footprint) {
            self.refused += 1;
            return None;
        }
        match self.buffers.get(len) {
            Some(buffer) => {
                self.disk(number).held += footprint;
                Some(buffer)
            }
            None => {
                self.budget.give(held + footprint, footprint);
                self.refused += 1;
                None
            }
        }
    }

    /// Which bytes of a disk take room, from `offset` on: at most `most` stretches, which may end before the range
    /// does.
    pub(crate) fn extents(&mut self, number: usize, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        let Some(disk) = self.disks.get(number).and_then(Option::as_ref) else { return Vec::new() };
        let mut found: Vec<Extent> = Vec::new();
        let end = offset.saturating_add(len).min(disk.vdisk.capacity());
        let (mut at, mut steps) = (offset, 0);
        // Each step asks the store once, which may be a system call.
        for _ in 0..EXTENT_STEPS {
            if at >= end || found.len() > most {
                break;
            }
            let spot = disk.vdisk.layout().locate(at);
            if disk.spread.is_some() {
                return vec![Extent { len: end - at, allocated: true }]; // its extents are asked for data alone
            }
            let store = self.gates[spot.gate.index()].pipeline.backend();
            let (len, allocated) = store.extent(spot.offset, spot.run.min(end - at));
            match found.last_mut() {
                Some(last) if last.allocated == allocated => last.len += len,
                _ => found.push(Extent { len, allocated }),
            }
            at += len;
            steps += 1;
        }
        found.truncate(most);
        // Its disk's turns come later for it. Not the round's bytes: who looks in each round would leave none for what gates have to copy.
        self.copied.push((number, steps * EXTENT_STEP));
        found
    }

    /// A command's bytes were copied beside its requests: its disk's turns come later for it.
    pub(crate) fn note_copied(&mut self, number: usize, bytes: u64) {
        self.copied.push((number, bytes));
    }

    /// Gives a command's memory back.
    pub(crate) fn put_buffer(&mut self, number: usize, buffer: Buffer) {
        if let Some(disk) = &mut self.disks[number] {
            // A disk that has the number of one that went has not held what comes back of that one.
            let back = buffer.capacity().min(disk.held);
            self.budget.give(disk.held, back);
            disk.held -= back;
        }
        self.freed |= buffer.capacity() > 0;
        self.buffers.put(buffer);
    }

    /// A long CACHE of this disk is to begin. False when as many as may are under way.
    pub(crate) fn begin_fetch(&mut self, number: usize) -> bool {
        let disk = self.disk(number);
        let may = disk.fetches < FETCHES;
        disk.fetches += u32::from(may);
        may
    }

    /// One is over, and another may begin.
    pub(crate) fn end_fetch(&mut self, number: usize) {
        if let Some(disk) = self.disks.get_mut(number).and_then(Option::as_mut) {
            disk.fetches = disk.fetches.saturating_sub(1);
        }
        self.freed = true;
    }

    /// What a request had beside its command's memory is given back.
    pub(super) fn uncount_extra(&mut self, number: usize, bytes: usize) {
        if bytes > 0
            && let Some(disk) = self.disks.get_mut(number).and_then(Option::as_mut)
        {
            let back = bytes.min(disk.held);
            self.budget.give(disk.held, back);
            disk.held -= back;
            self.freed = true;
        }
    }

    /// What a disk holds, and who holds most of what all share; for people.
    pub(crate) fn holders(&mut self, number: usize, most: usize) -> String {
        let least = self.budget.least();
        let own = of(self.disk(number).held, least);
        let (shared, beyond) = self.budget.shared();
        let disks = self.disks.iter().flatten();
        let mut others: Vec<(usize, &str)> =
            disks.map(|disk| (disk.held.saturating_sub(least), disk.config.name.as_str())).collect();
        others.retain(|(held, _)| *held > 0);
        others.sort_unstable_by(|a, b| b.cmp(a));
        others.truncate(most);
        let list: Vec<String> = others
            .iter()
            .map(|(held, name)| format!("{name} {}", henge_core::format_size(*held as u64)))
            .collect();
        let list = if list.is_empty() { String::new() } else { format!(", most of it {}", list.join(", ")) };
        format!("it holds {own} that are its own; of what disks share, {} are held{list}", of(beyond, shared))
    }

    /// What each disk can have, whatever the others hold.
    pub(crate) fn least(&self) -> u64 {
        self.budget.least() as u64
    }

    /// Whether so much more is still the disk's own.
    pub(crate) fn is_own(&mut self, number: usize, footprint: usize) -> bool {
        self.disk(number).held + footprint <= self.budget.least()
    }

    /// There is one disk more, or one less.
    pub(crate) fn count_disks(&mut self) {
        let disks = self.disks.iter().flatten();
        self.budget.set_disks(self.disks.len() - self.gaps.len(), disks.map(|disk| disk.held));
    }

    /// Whether memory came back since this was asked last.
    pub(crate) fn freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }
}
