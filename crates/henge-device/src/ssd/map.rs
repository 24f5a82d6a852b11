//! Which flash unit holds a logical unit. Allocated where it is written, so that an empty terabyte costs nothing.

/// Logical units a leaf covers.
const LEAF: usize = 4096;
/// No place: never written, or trimmed.
const NOWHERE: u32 = u32::MAX;

/// Logical to physical.
#[derive(Clone, Debug)]
pub(super) struct Map {
    leaves: Vec<Option<Box<[u32]>>>,
}

impl Map {
    pub fn new(units: u64) -> Self {
        Map { leaves: vec![None; (units as usize).div_ceil(LEAF)] }
    }
    pub fn get(&self, unit: u64) -> Option<u32> {
        let leaf = self.leaves[unit as usize / LEAF].as_ref()?;
        Some(leaf[unit as usize % LEAF]).filter(|p| *p != NOWHERE)
    }
    /// The first unit from `from` on that may have a place: empty leaves are passed over.
    pub fn skip_empty(&self, mut from: u64) -> u64 {
        while let Some(None) = self.leaves.get(from as usize / LEAF) {
            from = (from / LEAF as u64 + 1) * LEAF as u64;
        }
        from
    }
    /// Puts a unit somewhere else; where it was.
    pub fn set(&mut self, unit: u64, place: Option<u32>) -> Option<u32> {
        let leaf = &mut self.leaves[unit as usize / LEAF];
        if place.is_none() && leaf.is_none() {
            return None;
        }
        let leaf = leaf.get_or_insert_with(|| vec![NOWHERE; LEAF].into_boxed_slice());
        let old = std::mem::replace(&mut leaf[unit as usize % LEAF], place.unwrap_or(NOWHERE));
        Some(old).filter(|p| *p != NOWHERE)
    }
}
