//! Which command a host calls by which name, of those that are not answered.
//!
//! A name is looked for from its low bits on, place by place (open addressing, linear probing). Hosts count their names, or number
//! places of a queue, so most lie where they are looked for first. A host that chooses others makes a look at most as long as its queue.
//!
//! Names stand in the order of the places where they are looked for first ("Robin Hood hashing"). So a name that goes leaves a gap that the
//! next one fills only if it is not at its own place. Of names that are counted none has to move, however many stand behind.

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
        self.find(cid).map(|at| self.places[at].1)
    }

    /// A command has a name that no other one has.
    #[inline]
    pub fn insert(&mut self, cid: u16, slot: u32) {
        if self.places.len() <= 2 * self.len {
            self.grow();
        }
        self.put(cid, slot);
        self.len += 1;
    }

    /// A name is free again. Those behind it that were kept from their places by it move up.
    #[inline]
    pub fn remove(&mut self, cid: u16) {
        let Some(mut free) = self.find(cid) else { return };
        loop {
            let next = self.after(free);
            if self.places[next].1 == FREE || self.distance(next) == 0 {
                break;
            }
            self.places[free] = self.places[next];
            free = next;
        }
        self.places[free].1 = FREE;
        self.len -= 1;
    }

    /// No command has a name any more.
    pub fn clear(&mut self) {
        *self = Cids::default();
    }

    /// Where a name is. Some places are free.
    #[inline]
    fn find(&self, cid: u16) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.home(cid);
        while self.places[at].1 != FREE {
            if self.places[at].0 == cid {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    /// Puts a name before the first one that is nearer to its own place; that one goes on.
    #[inline]
    fn put(&mut self, cid: u16, slot: u32) {
        let (mut name, mut at, mut distance) = ((cid, slot), self.home(cid), 0);
        while self.places[at].1 != FREE {
            debug_assert_ne!(self.places[at].0, name.0, "a name is given once");
            let other = self.distance(at);
            if other < distance {
                std::mem::swap(&mut self.places[at], &mut name);
                distance = other;
            }
            (at, distance) = (self.after(at), distance + 1);
        }
        self.places[at] = name;
    }

    /// Where a name is looked for first.
    #[inline]
    fn home(&self, cid: u16) -> usize {
        usize::from(cid) & (self.places.len() - 1)
    }

    /// How far a name is from there.
    #[inline]
    fn distance(&self, at: usize) -> usize {
        at.wrapping_sub(usize::from(self.places[at].0)) & (self.places.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(4);
        let before = std::mem::replace(&mut self.places, vec![(0, FREE); places]);
        for (cid, slot) in before.into_iter().filter(|(_, slot)| *slot != FREE) {
            self.put(cid, slot);
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
