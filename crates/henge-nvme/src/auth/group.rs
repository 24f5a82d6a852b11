//! Diffie-Hellman in the groups of RFC 7919: what host and controller agree on, and nobody who listens learns.
//!
//! Each side draws an exponent, x or y, and sends 2^x or 2^y mod p. Both compute 2^xy mod p. Exponents are short, as RFC 7919,
//! section 5.2, allows: more than twice as long as the group is strong. The power takes a time that depends on the group alone.

use super::primes::{P2048, P3072, P4096, P6144, P8192};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};

/// A group (Base, figure 447), weaker ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Group {
    /// None: the response alone proves who knows the secret.
    #[default]
    Null,
    /// 2048 bits.
    Ffdhe2048,
    /// 3072 bits.
    Ffdhe3072,
    /// 4096 bits.
    Ffdhe4096,
    /// 6144 bits.
    Ffdhe6144,
    /// 8192 bits.
    Ffdhe8192,
}

impl Group {
    /// All of them, weaker ones first.
    pub const ALL: [Group; 6] = [
        Group::Null,
        Group::Ffdhe2048,
        Group::Ffdhe3072,
        Group::Ffdhe4096,
        Group::Ffdhe6144,
        Group::Ffdhe8192,
    ];

    /// Its number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }
    /// Its name, as `nvme` and the kernel have it.
    pub fn name(self) -> &'static str {
        ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"][self as usize]
    }
    /// The one of that name.
    pub fn named(name: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.name() == name)
    }
    /// Bytes of its numbers.
    pub(super) fn len(self) -> usize {
        self.prime().len() / 2
    }
    /// Whether there is nothing to compute.
    pub fn is_null(self) -> bool {
        self == Group::Null
    }

    fn prime(self) -> &'static str {
        ["", P2048, P3072, P4096, P6144, P8192][self as usize]
    }
    fn bits(self) -> u32 {
        self.len() as u32 * 8
    }
    /// Bytes of exponents: RFC 7919 asks for 225, 275, 325, 375 and 400 bits.
    pub(super) fn exponent_len(self) -> usize {
        [0, 32, 40, 48, 56, 64][self as usize]
    }
    fn modulus(self) -> BoxedUint {
        BoxedUint::from_be_hex(self.prime(), self.bits()).into_option().expect("the constants are numbers")
    }

    /// Whether the other side may send this: 2 to p - 2, in as many bytes as p has (RFC 7919, section 5.1).
    pub(super) fn takes(self, value: &[u8]) -> bool {
        let Ok(number) = BoxedUint::from_be_slice(value, self.bits().max(8)) else { return false };
        let one = BoxedUint::one_with_precision(self.bits());
        value.len() == self.len() && number > one && number < self.modulus().wrapping_sub(&one)
    }
}

/// A power to be computed. It takes up to a tenth of a second, so drivers do it beside their loop.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Derivation {
    group: Group,
    /// The other side's value; `None`: the generator, 2.
    base: Option<Vec<u8>>,
    exponent: Vec<u8>,
}

impl std::fmt::Debug for Derivation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Derivation {{ group: {:?}, … }}", self.group)
    }
}

impl Derivation {
    /// What is sent to the other side.
    pub(super) fn public(group: Group, exponent: &[u8]) -> Derivation {
        Derivation { group, base: None, exponent: exponent.to_vec() }
    }
    /// What both know. The group takes the base.
    pub(super) fn shared(group: Group, exponent: &[u8], base: &[u8]) -> Derivation {
        Derivation { group, base: Some(base.to_vec()), exponent: exponent.to_vec() }
    }

    /// The power, in as many bytes as the prime has.
    pub fn run(&self) -> Vec<u8> {
        if self.group.is_null() {
            return Vec::new();
        }
        let modulus = Odd::new(self.group.modulus()).into_option().expect("primes beyond 2 are odd");
        let params = BoxedMontyParams::new_vartime(modulus);
        let number = |bytes: &[u8], bits| BoxedUint::from_be_slice(bytes, bits).expect("lengths are checked");
        let base = number(self.base.as_deref().unwrap_or(&[2]), self.group.bits());
        let exponent = number(&self.exponent, self.exponent.len() as u32 * 8);
        BoxedMontyForm::new(base, &params).pow(&exponent).retrieve().to_be_bytes().into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_come_to_the_same() {
        for group in Group::ALL.into_iter().skip(1) {
            let (x, y) = (vec![0x5a; group.exponent_len()], vec![0xa7; group.exponent_len()]);
            let public = |exponent: &[u8]| Derivation::public(group, exponent).run();
            let (gx, gy) = (public(&x), public(&y));
            assert_eq!((gx.len(), group.takes(&gx)), (group.len(), true));
            let shared = Derivation::shared(group, &x, &gy).run();
            assert_eq!(shared, Derivation::shared(group, &y, &gx).run());
            assert_ne!(shared, gx);
        }
    }

    #[test]
    fn powers_are_those_of_others() {
        // Python's pow(2, int("a5" * 64, 16), p), its first two bytes, for each prime.
        for (group, first) in
            Group::ALL[1..].iter().zip([[0x48, 0x9b], [0x3f, 0xb5], [8, 0], [0x43, 0xd6], [0x86, 0xc0]])
        {
            assert_eq!(Derivation::public(*group, &[0xa5; 64]).run()[..2], first);
        }
    }

    #[test]
    fn values_that_give_the_secret_away_are_not_taken() {
        for group in Group::ALL.into_iter().skip(1) {
            let len = group.len();
            let small = |last| [vec![0; len - 1], vec![last]].concat();
            let prime = group.modulus().to_be_bytes().into_vec();
            let less = |by| [&prime[..len - 1], &[prime[len - 1] - by]].concat();
            for (value, fine) in [
                (small(0), false),
                (small(1), false),
                (small(2), true),
                (less(2), true),
                (less(1), false),
                (less(0), false),
            ] {
                assert_eq!(group.takes(&value), fine);
            }
            assert!(!group.takes(&vec![255; len]) && !group.takes(&vec![1; len + 1]) && !group.takes(&[2]));
        }
        assert!(!Group::Null.takes(&[]) && !Group::Null.takes(&[2]));
    }
}
