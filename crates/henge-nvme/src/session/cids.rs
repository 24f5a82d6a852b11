//! Which command a host calls by which name, of those that are not answered.
//!
//! A name is looked for from its low bits on, place by place (open addressing, linear probing). Hosts count their names, or number
//! places of a queue, so most lie where they are looked for first. A host that chooses others makes a look at most as long as its queue.

/// A place without a name.
const FREE: u32 = u32::MAX;

/// The names of a queue's commands. At most half of the places are taken.
#[derive(Debug, Default)]
pub(super) struct Cids {
    /// A name, and the slot of its command.
    places: Vec<(u16, u32)>,
    len: usize,
}

impl Cids {
    /// How many commands have names.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The slot of the command with this name.
    #[inline]
    pub fn slot(&self, cid: u16) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let (_, slot) = self.places[self.find(cid)];
        (slot != FREE).then_some(slot)
    }

    /// A command has a name that no other one has.
    #[inline]
    pub fn insert(&mut self, cid: u16, slot: u32) {
        if self.places.len() <= 2 * self.len {
            self.grow();
        }
        let at = self.find(cid);
        debug_assert_eq!(self.places[at].1, FREE, "a name is given once");
        self.places[at] = (cid, slot);
        self.len += 1;
    }

    /// A name is free again. Those behind it that were kept from their places by it move up.
    pub fn remove(&mut self, cid: u16) {
        if self.places.is_empty() {
            return;
        }
        let mask = self.places.len() - 1;
        let mut free = self.find(cid);
        if self.places[free].1 == FREE {
            return;
        }
        let mut at = free;
        loop {
            at = (at + 1) & mask;
            let (other, slot) = self.places[at];
            if slot == FREE {
                break;
            }
            let (from_home, from_free) = (at.wrapping_sub(usize::from(other)), at.wrapping_sub(free));
            if from_home & mask >= from_free & mask {
                self.places[free] = (other, slot);
                free = at;
            }
        }
        self.places[free].1 = FREE;
        self.len -= 1;
    }

    /// No command has a name any more.
    pub fn clear(&mut self) {
        *self = Cids::default();
    }

    /// Where a name is, or would be. Some places are free.
    #[inline]
    fn find(&self, cid: u16) -> usize {
        let mask = self.places.len() - 1;
        let mut at = usize::from(cid) & mask;
        while self.places[at].1 != FREE && self.places[at].0 != cid {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(4);
        let before = std::mem::replace(&mut self.places, vec![(0, FREE); places]);
        for (cid, slot) in before.into_iter().filter(|(_, slot)| *slot != FREE) {
            let at = self.find(cid);
            self.places[at] = (cid, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Whatever names come and go, also those that want one place: each is found, and no other.
        #[test]
        fn names_are_found(steps in proptest::collection::vec((any::<bool>(), 0u16..12, 0u16..4), 0..400)) {
            let (mut cids, mut known) = (Cids::default(), BTreeMap::new());
            for (slot, (comes, low, high)) in steps.into_iter().enumerate() {
                let cid = high << 12 | low.wrapping_sub(3);
                if comes && !known.contains_key(&cid) {
                    cids.insert(cid, slot as u32);
                    known.insert(cid, slot as u32);
                } else {
                    cids.remove(cid);
                    known.remove(&cid);
                }
                prop_assert_eq!(cids.len(), known.len());
                for cid in (0..4).flat_map(|high| (0..12).map(move |low: u16| high << 12 | low.wrapping_sub(3))) {
                    prop_assert_eq!(cids.slot(cid), known.get(&cid).copied());
                }
            }
        }
    }
}
