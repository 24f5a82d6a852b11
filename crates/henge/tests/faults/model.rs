//! What every block of every disk may hold, by what its clients were told.
//!
//! A block is a sector with a stamp: whose it is, where, and which write it was. The versions that a block may hold are kept
//! in their order. The first is durable: it is what a flush that was acknowledged covered. Programs see the last one that was
//! acknowledged or a later one; after a loss of power any of them may be there. Whoever made the disk anew is another tenant.
//!
//! A client that was told that a FLUSH or a FUA write failed knows of no write since the last flush whether it will ever be
//! durable, also after the node has begun again (the kernel may have forgotten it): only what is written again is.

use crate::medium::SECTOR;
use std::collections::BTreeMap;

const MAGIC: u64 = 0x4845_4e47_4546_4c54;

/// Versions that a block may hold.
struct Block {
    versions: Vec<u64>,
    /// The last that was acknowledged.
    acknowledged: usize,
    /// Versions up to this one were there when a client was told that a flush had failed: no later flush vouches for them.
    doubtful: usize,
}

impl Default for Block {
    fn default() -> Self {
        Block { versions: vec![0], acknowledged: 0, doubtful: 0 }
    }
}

/// What happened between the writes and a look at them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    Nothing,
    /// The process was killed.
    Kill,
    Cut,
}

/// A disk and its tenant.
pub struct Disk {
    tenant: u64,
    /// Bytes that it may have; the first was acknowledged.
    pub capacity: Vec<u64>,
    /// Limits that it may have.
    pub limit: Vec<String>,
    blocks: BTreeMap<u64, Block>,
    next: u64,
    /// Blocks that were compared with something other than "never written".
    pub compared: u64,
}

impl Disk {
    pub fn new(tenant: u64, capacity: u64) -> Disk {
        Disk {
            tenant,
            capacity: vec![capacity],
            limit: vec![String::new()],
            blocks: BTreeMap::new(),
            next: 1,
            compared: 0,
        }
    }

    /// A write that begins: its version and its bytes.
    pub fn begin(&mut self, first: u64, count: u64, zeroes: bool) -> (u64, Vec<u8>) {
        let version = if zeroes { 0 } else { self.next };
        self.next += 1;
        let mut data = Vec::new();
        for at in first..first + count {
            self.blocks.entry(at).or_default().versions.push(version);
            data.extend(stamp(self.tenant, at, version));
        }
        (version, data)
    }

    /// It was acknowledged; with `durable`, as being on the medium.
    pub fn acknowledge(&mut self, first: u64, count: u64, version: u64, durable: bool) {
        for block in self.blocks.range_mut(first..first + count).map(|(_, block)| block) {
            let last = block.versions.iter().rposition(|v| *v == version);
            block.acknowledged = block.acknowledged.max(last.unwrap_or(0));
            if durable {
                block.settle();
            }
        }
    }

    /// A flush was acknowledged.
    pub fn flushed(&mut self) {
        self.blocks.values_mut().for_each(Block::settle);
    }

    /// A flush, or a write that was to be durable, failed.
    pub fn flush_failed(&mut self) {
        self.blocks.values_mut().for_each(|block| block.doubtful = block.versions.len() - 1);
    }

    /// A removal was begun, and nobody knows whether it was done: a disk that is still there may have been emptied.
    pub fn perhaps_emptied(&mut self) {
        self.blocks.values_mut().for_each(|block| block.versions.push(0));
    }

    /// Whether less is there than was acknowledged.
    pub fn is_behind(&self, at: u64, bytes: &[u8]) -> bool {
        let version = read(bytes).map_or(0, |(_, _, version)| version);
        let found = |block: &Block| block.versions.iter().rposition(|v| *v == version);
        self.blocks.get(&at).is_some_and(|block| found(block).is_some_and(|found| found < block.acknowledged))
    }

    /// Compares what is at a block with what may be there. What is wrong, if so.
    pub fn compare(&mut self, at: u64, bytes: &[u8], since: Since) -> Option<String> {
        let (tenant, place, version) = match read(bytes) {
            Some(found) => found,
            None if bytes.iter().all(|b| *b == 0) => (self.tenant, at, 0),
            None => return Some(format!("block {at}: torn")),
        };
        if tenant != self.tenant {
            return Some(format!("block {at}: FOREIGN, of tenant {tenant}, not {}", self.tenant));
        }
        if place != at {
            return Some(format!("block {at}: holds block {place}"));
        }
        let Some(block) = self.blocks.get_mut(&at) else {
            return (version != 0)
                .then(|| format!("block {at}: version {version}, and it was never written"));
        };
        self.compared += 1;
        let from = if since == Since::Cut { 0 } else { block.acknowledged };
        let Some(found) = block.versions.iter().rposition(|v| *v == version).filter(|found| *found >= from)
        else {
            let may = &block.versions[from..];
            return Some(format!("block {at}: LOST, version {version} is there, and only {may:?} may be"));
        };
        match since {
            Since::Nothing => {}
            // What is not seen now never came.
            Since::Kill => {
                block.versions.truncate(found + 1);
                block.acknowledged = found;
            }
            Since::Cut => *block = Block { versions: vec![version], acknowledged: 0, doubtful: 0 },
        }
        None
    }
}

impl Block {
    fn settle(&mut self) {
        if self.acknowledged <= self.doubtful && self.doubtful > 0 {
            return;
        }
        self.doubtful = 0;
        self.versions.drain(..self.acknowledged);
        self.acknowledged = 0;
    }
}

fn stamp(tenant: u64, at: u64, version: u64) -> Vec<u8> {
    let words = [MAGIC, tenant, at, version];
    words.iter().flat_map(|w| w.to_le_bytes()).cycle().take(SECTOR as usize).collect()
}

fn read(bytes: &[u8]) -> Option<(u64, u64, u64)> {
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes"));
    let found = (word(1), word(2), word(3));
    (bytes == stamp(found.0, found.1, found.2)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_there_is_what_was_acknowledged_or_came_later() {
        let at = |version| stamp(1, 5, version);
        let mut disk = Disk::new(1, 1 << 20);
        let look = |disk: &mut Disk, version, since| disk.compare(5, &at(version), since).is_none();
        for acknowledged in [true, true, false] {
            let (version, _) = disk.begin(5, 1, false);
            if acknowledged {
                disk.acknowledge(5, 1, version, false);
            }
        }
        assert!(!look(&mut disk, 1, Since::Nothing) && look(&mut disk, 2, Since::Nothing));
        assert!(look(&mut disk, 3, Since::Nothing) && !look(&mut disk, 4, Since::Nothing));
        disk.flushed();
        assert!(look(&mut disk, 2, Since::Cut), "durable");
        assert!(!look(&mut disk, 3, Since::Cut), "it was not there when the power went");
        let old = disk.compare(5, &at(1), Since::Cut).unwrap();
        assert!(old.contains("LOST"), "{old}");
        assert!(disk.compare(5, &stamp(2, 5, 2), Since::Nothing).unwrap().contains("FOREIGN"));
        assert!(disk.compare(5, &stamp(1, 6, 2), Since::Nothing).unwrap().contains("holds block 6"));
        assert!(
            disk.compare(5, &[at(1)[..256].to_vec(), vec![0; 256]].concat(), Since::Cut)
                .unwrap()
                .contains("torn")
        );
        assert!(disk.compare(6, &[0; 512], Since::Nothing).is_none(), "never written");
        // A flush that comes after one that failed vouches for what was written in between alone.
        for (versions, durable) in [(1, false), (2, true)] {
            let mut disk = Disk::new(1, 1 << 20);
            for _ in 0..versions {
                let (version, _) = disk.begin(5, 1, false);
                disk.acknowledge(5, 1, version, false);
                if version == 1 {
                    disk.flush_failed();
                }
            }
            disk.flushed();
            assert_eq!(disk.compare(5, &[0; 512], Since::Cut).is_some(), durable);
        }
    }
}
