//! Which of a disk's bytes take room.

use super::Plane;
use henge_backend::Store;
use henge_iscsi::scsi::Extent;

/// Most steps of one look at what takes room: each may be two system calls, while everybody waits. The client asks again, for another turn.
pub(super) const EXTENT_STEPS: usize = 8;
/// What a step counts of its disk's turns: it takes about as long as copying so many bytes.
pub(super) const EXTENT_STEP: u64 = 8 << 10;

/// Which bytes of a disk take room, from `offset` on: at most `most` stretches, which may end before the range
/// does, and do where the round's time is over.
pub(crate) fn extents(plane: &mut Plane, number: usize, offset: u64, len: u64, most: usize) -> Vec<Extent> {
    let Some(disk) = plane.disks.get(number).and_then(Option::as_ref) else { return Vec::new() };
    let mut found: Vec<Extent> = Vec::new();
    let end = offset.saturating_add(len).min(disk.vdisk.capacity());
    let (mut at, mut steps) = (offset, 0);
    // Each step asks the store once, which may be a system call.
    for _ in 0..EXTENT_STEPS {
        // A file in many pieces has a map that is dear to read: then one step is the look.
        if at >= end || found.len() > most || steps > 0 && plane.round.is_late() {
            break;
        }
        let spot = disk.vdisk.layout().locate(at);
        if disk.spread.is_some() {
            return vec![Extent { len: end - at, allocated: true }]; // its extents are asked for data alone
        }
        let store = plane.pools.gates[spot.gate.index()].pipeline.backend();
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
    plane.round.note(number, steps * EXTENT_STEP);
    found
}
