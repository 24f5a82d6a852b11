//! Memory for commands, and which of a disk's bytes take room.

use super::Plane;
use henge_backend::{Buffer, BufferPool, Store};
use henge_iscsi::scsi::Extent;

/// Most steps of one look at what takes room.
const EXTENT_STEPS: usize = 512;

impl Plane {
    /// Memory for a command of this disk; `None` when it has to wait.
    ///
    /// A disk may hold as much as is left for all (a dynamic threshold, as in the shared buffers of switches): n
    /// disks that want everything get an n + 1st of it each, and as much is left for whoever comes.
    pub(crate) fn take_buffer(&mut self, number: usize, len: u64) -> Option<Buffer> {
        let len = usize::try_from(len).ok()?;
        let footprint = BufferPool::footprint(len);
        let held = self.disk(number).held;
        if held > 0 && held + footprint > self.buffers.room() {
            return None;
        }
        let buffer = self.buffers.get(len)?;
        self.disk(number).held += footprint;
        Some(buffer)
    }

    /// Which bytes of a disk take room, from `offset` on: at most so many stretches, which may end before the range
    /// does.
    pub(crate) fn extents(&mut self, number: usize, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        let Some(disk) = self.disks.get(number).and_then(Option::as_ref) else { return Vec::new() };
        let mut found: Vec<Extent> = Vec::new();
        let end = offset.saturating_add(len).min(disk.vdisk.capacity());
        let mut at = offset;
        // Each step asks the store once, which may be a system call.
        for _ in 0..EXTENT_STEPS {
            if at >= end || found.len() > most {
                break;
            }
            let spot = disk.vdisk.layout().locate(at);
            if disk.spread.is_some() {
                return vec![Extent { len: end - at, allocated: true }]; // its places are asked for data alone
            }
            let store = self.gates[spot.gate.index()].pipeline.backend();
            let (len, allocated) = store.extent(spot.offset, spot.run.min(end - at));
            match found.last_mut() {
                Some(last) if last.allocated == allocated => last.len += len,
                _ => found.push(Extent { len, allocated }),
            }
            at += len;
        }
        found.truncate(most);
        found
    }

    /// Gives a command's memory back.
    pub(crate) fn put_buffer(&mut self, number: usize, buffer: Buffer) {
        if let Some(disk) = &mut self.disks[number] {
            disk.held -= buffer.capacity();
        }
        self.freed |= buffer.capacity() > 0;
        self.buffers.put(buffer);
    }

    /// Whether memory came back since this was asked last.
    pub(crate) fn freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }
}
