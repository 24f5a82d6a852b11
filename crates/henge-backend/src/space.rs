//! Who has which addresses of a store: parts, in order of address, that never overlap.

use std::io;

/// One part's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Whose.
    pub name: String,
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

/// Where new parts begin and how their lengths are rounded: 1 MiB, so that no two share a device's block or page.
pub const GRAIN: u64 = 1 << 20;

/// First-fit allocation of `[0, capacity)`; or, where addresses cost nothing, of as many ranges of that length as there are
/// parts, so that each can grow until the capacity is used up.
#[derive(Clone, Debug, Default)]
pub struct Space {
    capacity: u64,
    /// Parts begin at multiples of it; 0: wherever there is room.
    stride: u64,
    extents: Vec<Extent>,
}

impl Space {
    /// All of it free.
    pub fn new(capacity: u64) -> Self {
        Space { capacity, stride: 0, extents: Vec::new() }
    }
    /// The same, with parts so far apart that none is in another's way.
    pub fn apart(capacity: u64) -> Self {
        Space { capacity, stride: capacity.max(1).next_multiple_of(GRAIN), extents: Vec::new() }
    }
    /// Bytes in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
    /// The parts, in order of address.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }
    /// The part of that name.
    pub fn find(&self, name: &str) -> Option<&Extent> {
        self.extents.iter().find(|e| e.name == name)
    }
    /// Index and extent of the part that holds all of `[offset, offset + len)`.
    pub fn locate(&self, offset: u64, len: u64) -> Option<(usize, &Extent)> {
        let i = self.extents.partition_point(|e| e.base <= offset).checked_sub(1)?;
        let extent = &self.extents[i];
        (offset - extent.base <= extent.len && len <= extent.len - (offset - extent.base))
            .then_some((i, extent))
    }
    /// Puts an extent where it was, as remembered.
    pub fn restore(&mut self, extent: Extent) -> io::Result<()> {
        let end = extent.base.checked_add(extent.len).filter(|end| *end <= self.capacity);
        let at = self.extents.partition_point(|e| e.base < extent.base);
        let after_previous =
            at == 0 || self.extents[at - 1].base + taken(&self.extents[at - 1]) <= extent.base;
        let before_next = end.is_some_and(|end| self.extents.get(at).is_none_or(|next| end <= next.base));
        if !after_previous || !before_next {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("part \"{}\" overlaps another, or lies beyond the end", extent.name),
            ));
        }
        self.extents.insert(at, extent);
        Ok(())
    }
    /// Finds room for a new part; its index.
    pub fn allocate(&mut self, name: &str, len: u64) -> io::Result<usize> {
        if self.stride > 0 {
            return self.allocate_apart(name, len);
        }
        let mut base = 0;
        let mut at = self.extents.len();
        for (i, extent) in self.extents.iter().enumerate() {
            if extent.base - base >= len {
                at = i;
                break;
            }
            base = extent.base + taken(extent);
        }
        if base.checked_add(len).is_none_or(|end| end > self.capacity) {
            return Err(self.full(name, len));
        }
        self.extents.insert(at, Extent { name: name.to_owned(), base, len });
        Ok(at)
    }
    fn allocate_apart(&mut self, name: &str, len: u64) -> io::Result<usize> {
        if len > self.free_bytes() {
            return Err(self.full(name, len));
        }
        // The first range that nobody has.
        let at = self.extents.iter().zip(0u64..).position(|(e, i)| e.base != i * self.stride);
        let at = at.unwrap_or(self.extents.len());
        let base = self.stride.checked_mul(at as u64).ok_or_else(|| self.full(name, len))?;
        self.extents.insert(at, Extent { name: name.to_owned(), base, len });
        Ok(at)
    }
    fn free_bytes(&self) -> u64 {
        self.capacity.saturating_sub(self.extents.iter().map(taken).sum())
    }
    fn full(&self, name: &str, len: u64) -> io::Error {
        let free = self.free_bytes();
        let why = format!("no room for {len} bytes of \"{name}\": {free} of {} are free", self.capacity);
        io::Error::new(io::ErrorKind::StorageFull, why)
    }
    /// Whether a part could be so long, where it stands; why not.
    pub fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        let Some(i) = self.extents.iter().position(|e| e.name == name) else { return Ok(()) };
        let own = &self.extents[i];
        if self.stride > 0 {
            let fits = len <= self.free_bytes().saturating_add(taken(own)).min(self.capacity);
            return if fits { Ok(()) } else { Err(self.full(name, len.saturating_sub(own.len))) };
        }
        let end = self.extents.get(i + 1).map_or(self.capacity, |next| next.base);
        if own.base.checked_add(len).is_none_or(|e| e > end) {
            let why = format!(
                "\"{name}\" cannot grow to {len} bytes where it stands: its neighbour or the end is in the way; \
                 {} would fit",
                end - own.base
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        Ok(())
    }
    /// Makes a part longer, where it stands.
    pub fn grow(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.could_grow(name, len)?;
        let part = self.extents.iter_mut().find(|e| e.name == name);
        part.expect("the part was just found").len = len;
        Ok(())
    }
    /// Another name for a part's place.
    pub fn rename(&mut self, name: &str, to: String) {
        if let Some(part) = self.extents.iter_mut().find(|e| e.name == name) {
            part.name = to;
        }
    }
    /// Frees a part's place; its index was.
    pub fn free(&mut self, name: &str) -> Option<usize> {
        let i = self.extents.iter().position(|e| e.name == name)?;
        self.extents.remove(i);
        Some(i)
    }
}

fn taken(extent: &Extent) -> u64 {
    extent.len.next_multiple_of(GRAIN)
}

/// A part's name becomes a file's name, so it holds nothing that a path would read differently.
pub fn check_name(name: &str) -> io::Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if fits {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("\"{name}\" is no name for a part; letters, digits, '.', '_' and '-' are"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is made and removed, no two parts overlap, all lie within, and each is found where it is.
        #[test]
        fn parts_never_overlap(steps in prop::collection::vec((0u8..3, 0u8..6, 1u64..40), 1..60)) {
            let mut space = Space::new(64 * GRAIN);
            for (what, who, len) in steps {
                let name = format!("disk{who}");
                let len = len * GRAIN / 3;
                match (what, space.find(&name).cloned()) {
                    (0 | 2, None) => drop(space.allocate(&name, len)),
                    (2, Some(old)) if old.len < len => drop(space.grow(&name, len)),
                    (1, _) => drop(space.free(&name)),
                    _ => {}
                }
                let mut end = 0;
                for (i, e) in space.extents().iter().enumerate() {
                    prop_assert!(e.base >= end && e.base % GRAIN == 0, "{:?}", space);
                    end = e.base + e.len;
                    prop_assert_eq!(space.locate(e.base, e.len).unwrap().0, i);
                    prop_assert!(space.locate(e.base, e.len + 1).is_none());
                }
                prop_assert!(end <= space.capacity());
            }
        }
    }

    proptest! {
        /// Far apart: whatever is made, grown and removed, no more is promised than there is, and nobody is in the way.
        #[test]
        fn parts_apart_grow_until_the_capacity_is_used(steps in prop::collection::vec((0u8..3, 0u8..6, 1u64..40), 1..60)) {
            let mut space = Space::apart(64 * GRAIN);
            for (what, who, len) in steps {
                let name = format!("disk{who}");
                let len = len * GRAIN;
                let used: u64 = space.extents().iter().map(|e| e.len).sum();
                match (what, space.find(&name).cloned()) {
                    (0 | 2, None) => prop_assert_eq!(space.allocate(&name, len).is_ok(), used + len <= 64 * GRAIN),
                    (2, Some(old)) if old.len < len => {
                        prop_assert_eq!(space.grow(&name, len).is_ok(), used - old.len + len <= 64 * GRAIN);
                    }
                    (1, _) => drop(space.free(&name)),
                    _ => {}
                }
                let mut end = 0;
                for (i, e) in space.extents().iter().enumerate() {
                    prop_assert!(e.base >= end && e.base % GRAIN == 0, "{:?}", space);
                    end = e.base + e.len;
                    prop_assert_eq!(space.locate(e.base, e.len).unwrap().0, i);
                    prop_assert!(space.locate(e.base, e.len + 1).is_none());
                }
            }
        }
    }

    #[test]
    fn what_was_remembered_wrongly_is_not_believed() {
        let mut space = Space::new(4 * GRAIN);
        let part = |name: &str, base, len| Extent { name: name.into(), base, len };
        space.restore(part("a", GRAIN, GRAIN)).unwrap();
        assert!(space.restore(part("b", GRAIN, GRAIN)).is_err());
        assert!(space.restore(part("b", 0, GRAIN + 1)).is_err());
        assert!(space.restore(part("b", 2 * GRAIN, 3 * GRAIN)).is_err());
        assert!(space.restore(part("b", u64::MAX, 2)).is_err());
        space.restore(part("b", 2 * GRAIN, 2 * GRAIN)).unwrap();
    }

    #[test]
    fn names_stay_inside_their_directory() {
        for bad in ["", "..", ".hidden", "a/b", "ä", "a\0b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        check_name("web-1.part0").unwrap();
    }
}
