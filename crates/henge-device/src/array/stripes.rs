//! The striping formula.
//!
//! Byte x of the array lies in stripe unit u = x / unit; the unit is number u / n of spindle u mod n, so x is
//! at `(u / n) * unit + x mod unit` there. A contiguous range touches one contiguous range of each spindle:
//! at most n pieces, however long it is.

/// Part of a request on one spindle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which spindle.
    pub spindle: usize,
    /// First byte there.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// n spindles, striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes {
    /// Bytes per stripe unit.
    pub unit: u64,
    /// How many spindles.
    pub spindles: usize,
}

impl Stripes {
    /// Where byte `offset` lies: spindle and offset there.
    pub fn locate(&self, offset: u64) -> (usize, u64) {
        let (unit, n) = (offset / self.unit, self.spindles as u64);
        ((unit % n) as usize, unit / n * self.unit + offset % self.unit)
    }

    /// The array's byte that lies at `offset` of `spindle`.
    pub fn global(&self, spindle: usize, offset: u64) -> u64 {
        (offset / self.unit * self.spindles as u64 + spindle as u64) * self.unit + offset % self.unit
    }

    /// The pieces of a range, each spindle's once, first touched first; none for an empty range.
    pub fn split(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let stripes = *self;
        let end = offset.saturating_add(len);
        let first = offset / stripes.unit;
        let touched =
            if len == 0 { 0 } else { ((end - 1) / stripes.unit - first + 1).min(stripes.spindles as u64) };
        (0..touched).map(move |i| {
            let start = if i == 0 { offset } else { (first + i) * stripes.unit };
            let (spindle, at) = stripes.locate(start);
            Piece { spindle, offset: at, len: stripes.local_end(spindle, end) - at }
        })
    }

    /// How many bytes of `spindle` belong to the array's bytes 0..end.
    fn local_end(&self, spindle: usize, end: u64) -> u64 {
        let row = self.unit * self.spindles as u64;
        let within = (end % row).saturating_sub(spindle as u64 * self.unit).min(self.unit);
        end / row * self.unit + within
    }

    /// Bytes of an array whose smallest spindle holds `spindle_capacity`.
    pub fn capacity(&self, spindle_capacity: u64) -> u64 {
        spindle_capacity / self.unit * self.unit * self.spindles as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every byte of a request is in exactly one piece, where `locate` says.
        #[test]
        fn pieces_cover_the_range(unit in 1u64..9, n in 1usize..6, offset in 0u64..200, len in 0u64..200) {
            let stripes = Stripes { unit, spindles: n };
            let mut left: Vec<(usize, u64)> = (offset..offset + len).map(|x| stripes.locate(x)).collect();
            for piece in stripes.split(offset, len) {
                for at in piece.offset..piece.offset + piece.len {
                    let x = stripes.global(piece.spindle, at);
                    prop_assert_eq!(stripes.locate(x), (piece.spindle, at));
                    let found = left.iter().position(|l| *l == (piece.spindle, at));
                    prop_assert!(found.is_some(), "{:?} holds byte {} twice or wrongly", piece, x);
                    left.swap_remove(found.unwrap());
                }
            }
            prop_assert!(left.is_empty());
            prop_assert!(stripes.split(offset, len).count() <= n);
        }
    }

    #[test]
    fn the_formula_by_hand() {
        let stripes = Stripes { unit: 64, spindles: 4 };
        assert_eq!(stripes.locate(64 * 5 + 3), (1, 64 + 3));
        assert_eq!(stripes.capacity(1000), 960 * 4);
    }
}
