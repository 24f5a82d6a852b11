//! Which objects of an image hold something.
//!
//! # The rule
//! A bit for each object. An image that was made of nothing holds nothing; of another one Ceph says which objects there are, after it was
//! opened. Meanwhile all count as data. What is written sets its bits before it is written, so no answer is too late. Nothing clears
//! them: what was trimmed may count as data until the node begins again. Of an image that others may write, all is data.
//!
//! # Price
//! 32 KiB for an image of 1 TiB with objects of 4 MiB.

/// The bits, and whether they say all.
#[derive(Debug)]
pub(crate) struct Objects {
    object: u64,
    bits: Vec<u64>,
    known: bool,
    /// Others may write it.
    is_open: bool,
}

fn words(object: u64, len: u64) -> usize {
    len.div_ceil(object).div_ceil(64) as usize
}

/// Sets the bits of the objects that a range touches, as far as there are any.
pub(crate) fn mark(bits: &mut [u64], object: u64, offset: u64, len: u64) {
    if len == 0 {
        return;
    }
    let last = ((offset + len - 1) / object).min((bits.len() as u64 * 64).saturating_sub(1));
    for i in offset / object..=last {
        bits[(i / 64) as usize] |= 1 << (i % 64);
    }
}

impl Objects {
    /// Of an image of `len` bytes, which is empty, or about which nothing is known yet.
    pub(crate) fn new(object: u64, len: u64, empty: bool) -> Objects {
        Objects { object, bits: vec![0; words(object, len)], known: empty, is_open: false }
    }

    /// As many words as its bits take.
    pub(crate) fn words(&self) -> usize {
        self.bits.len()
    }

    /// A range is about to be written.
    pub(crate) fn written(&mut self, offset: u64, len: u64) {
        mark(&mut self.bits, self.object, offset, len);
    }

    /// What Ceph has said.
    pub(crate) fn learn(&mut self, bits: &[u64]) {
        self.bits.iter_mut().zip(bits).for_each(|(own, said)| *own |= said);
        self.known = !self.is_open;
    }

    /// Others may have written it: all counts as data from now on.
    pub(crate) fn open_to_others(&mut self) {
        (self.known, self.is_open) = (false, true);
    }

    /// It has become longer; what is new holds nothing.
    pub(crate) fn grow(&mut self, len: u64) {
        self.bits.resize(words(self.object, len).max(self.bits.len()), 0);
    }

    /// How many of the first bytes are alike, and whether they hold something.
    pub(crate) fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        if !self.known {
            return (len, true);
        }
        let is_set = |i: u64| self.bits.get((i / 64) as usize).is_none_or(|word| word >> (i % 64) & 1 != 0);
        let first = offset / self.object;
        let here = is_set(first);
        let mut i = first + 1;
        while i * self.object < offset + len && is_set(i) == here {
            i += 1;
        }
        (len.min(i * self.object - offset), here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn objects_hold_what_was_written_and_what_was_said() {
        let mut objects = Objects::new(4 * MIB, 400 * MIB, true);
        assert_eq!(objects.extent(0, 400 * MIB), (400 * MIB, false));
        objects.written(8 * MIB - 1, 2); // the last byte of one, the first of the next
        assert_eq!(objects.extent(MIB, 399 * MIB), (3 * MIB, false));
        assert_eq!(objects.extent(4 * MIB, 300 * MIB), (8 * MIB, true));
        assert_eq!(objects.extent(12 * MIB, 388 * MIB), (388 * MIB, false));
        objects.written(0, 0);
        assert!(!objects.extent(0, 1).1);
    }

    #[test]
    fn until_ceph_has_said_all_are_data_and_writes_meanwhile_count() {
        let mut objects = Objects::new(4 * MIB, 400 * MIB, false);
        assert_eq!(objects.extent(0, 400 * MIB), (400 * MIB, true));
        objects.written(396 * MIB, 1);
        let mut said = vec![0; objects.words()];
        mark(&mut said, 4 * MIB, 0, 4 * MIB);
        mark(&mut said, 4 * MIB, 396 * MIB, 400 * MIB); // beyond the end, as an image may be
        said[1] = 0;
        objects.learn(&said);
        assert_eq!(objects.extent(0, 400 * MIB), (4 * MIB, true));
        assert_eq!(objects.extent(4 * MIB, 396 * MIB), (392 * MIB, false));
        assert_eq!(objects.extent(396 * MIB, 4 * MIB), (4 * MIB, true));
        objects.grow(4000 * MIB);
        assert_eq!(objects.extent(400 * MIB, 3600 * MIB), (3600 * MIB, false));
        objects.open_to_others();
        objects.learn(&said); // by who had begun to look before
        assert_eq!(objects.extent(4 * MIB, 396 * MIB), (396 * MIB, true));
    }
}
