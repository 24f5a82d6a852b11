//! Disks' numbers among those of all shards.

/// By how many bits a disk's number among all shards has its shard before its number there.
pub(super) const SHIFT: u32 = 24;

/// A disk's number among those of all shards.
pub(crate) fn global(shard: usize, number: usize) -> usize {
    debug_assert!(number >> SHIFT == 0, "a shard has not that many disks");
    shard << SHIFT | number
}

/// The shard of a disk, and its number there.
pub(crate) fn local(global: usize) -> (usize, usize) {
    (global >> SHIFT, global & ((1 << SHIFT) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disks_number_says_its_shard() {
        for (shard, number) in [(0, 0), (0, 7), (1, 0), (31, (1 << SHIFT) - 1)] {
            assert_eq!(local(global(shard, number)), (shard, number));
        }
        assert_eq!(global(0, 7), 7, "with one shard, numbers are what they were");
    }
}
