//! How many different numbers a stream holds, in bounded memory.

/// How many different numbers there were: exactly up to a bound, then estimated.
///
/// Up to half of 2^21 places are filled of an open-addressing table; beyond it, HyperLogLog with 2^14 registers goes
/// on alone (standard error 1.04 / √2^14 = 0.8 %), which has counted from the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Distinct {
    table: Vec<u64>,
    exact: u64,
    zero: bool,
    registers: Vec<u8>,
    full: bool,
}

const REGISTER_BITS: u32 = 14;
const TABLE_MAX: usize = 1 << 21;

impl Default for Distinct {
    fn default() -> Self {
        Distinct {
            table: vec![0; 1 << 12],
            exact: 0,
            zero: false,
            registers: vec![0; 1 << REGISTER_BITS],
            full: false,
        }
    }
}

/// Mixes bits well enough for a table (the finalizer of SplitMix64).
pub(crate) fn mixed(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Distinct {
    pub fn add(&mut self, x: u64) {
        let hash = mixed(x);
        let register = (hash >> (64 - REGISTER_BITS)) as usize;
        let rank = ((hash << REGISTER_BITS) | 1 << (REGISTER_BITS - 1)).leading_zeros() as u8 + 1;
        self.registers[register] = self.registers[register].max(rank);
        if !self.full {
            self.insert(x, hash);
        }
    }

    fn insert(&mut self, x: u64, hash: u64) {
        if x == 0 {
            self.exact += u64::from(!std::mem::replace(&mut self.zero, true));
            return;
        }
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        while self.table[at] != 0 {
            if self.table[at] == x {
                return;
            }
            at = (at + 1) & mask;
        }
        self.table[at] = x;
        self.exact += 1;
        if self.exact as usize * 2 > self.table.len() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        if self.table.len() == TABLE_MAX {
            self.full = true;
            self.table = Vec::new();
            return;
        }
        let old = std::mem::take(&mut self.table);
        self.table = vec![0; old.len() * 2];
        let mask = self.table.len() - 1;
        for x in old.into_iter().filter(|x| *x != 0) {
            let mut at = mixed(x) as usize & mask;
            while self.table[at] != 0 {
                at = (at + 1) & mask;
            }
            self.table[at] = x;
        }
    }

    /// How many, and whether that is exact.
    pub fn count(&self) -> (u64, bool) {
        if !self.full {
            return (self.exact, true);
        }
        let m = self.registers.len() as f64;
        let sum: f64 = self.registers.iter().map(|r| (-f64::from(*r)).exp2()).sum();
        let alpha = 0.7213 / (1.0 + 1.079 / m);
        ((alpha * m * m / sum) as u64, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_numbers_are_counted_exactly_then_closely() {
        let mut distinct = Distinct::default();
        for i in 0..300_000u64 {
            distinct.add(i % 100_000);
        }
        assert_eq!(distinct.count(), (100_000, true));
        for i in 0..3_000_000u64 {
            distinct.add(i);
        }
        let (n, exact) = distinct.count();
        assert!(!exact && (n as f64 / 3e6 - 1.0).abs() < 0.04, "{n}");
    }
}
