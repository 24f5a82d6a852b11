//! What two releases can say to each other.
//!
//! **Problem.** Nodes are upgraded one after another. Meanwhile ends of two releases talk, and one knows more than the other.
//!
//! **Rule.** A conversation has a version, which stays as long as its form does. What is added later is a *feature*, a bit. Each end says its
//! release, the bits that it understands, and those without which it cannot go on. An end sends only what belongs to bits that both
//! understand. A bit that it does not know it passes over. It refuses an end that needs a bit which it lacks, or lacks one that it needs.
//!
//! **Example.** Release 0.2 adds bit 3, and says `offers = 0b1111, needs = 0`. Release 0.1 says `offers = 0b0111, needs = 0`. Both speak by
//! `0b0111`. Where 0.3 says `needs = 0b1000`, 0.1 refuses it, and names both releases.
//!
//! **Guarantee.** Both ends come to the same bits, or to none: bits are under the handshake's MAC, or said after it under seals.

use serde::{Deserialize, Serialize};

/// Longest name of a release that is believed.
const RELEASE_MAX: usize = 64;

/// What an end says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Speaks {
    /// Its release, for people.
    #[serde(default)]
    pub release: String,
    /// Bits that it understands.
    #[serde(default)]
    pub offers: u64,
    /// Those without which it cannot go on.
    #[serde(default)]
    pub needs: u64,
}

/// Why two ends cannot talk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Lack {
    /// The other end needs what this one does not have.
    #[error(
        "it runs Henge {theirs} and needs {bits}, which this end's Henge {ours} does not have: upgrade this end"
    )]
    Ours {
        /// Its release.
        theirs: String,
        /// Ours.
        ours: String,
        /// What.
        bits: Bits,
    },
    /// This end needs what the other one does not have.
    #[error(
        "it runs Henge {theirs}, which does not have {bits}; this end's Henge {ours} needs that: upgrade the other end"
    )]
    Theirs {
        /// Its release.
        theirs: String,
        /// Ours.
        ours: String,
        /// What.
        bits: Bits,
    },
}

/// A set of features, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits(pub u64);

impl std::fmt::Display for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.count_ones() == 1 { "feature" } else { "features" })?;
        let numbers = (0..u64::BITS).filter(|bit| self.0 & (1 << bit) != 0);
        numbers.enumerate().try_for_each(|(i, bit)| write!(f, "{}{bit}", if i == 0 { " " } else { ", " }))
    }
}

impl Speaks {
    /// What this release says.
    pub fn new(offers: u64, needs: u64) -> Speaks {
        assert!(needs & !offers == 0, "nobody needs what it does not understand");
        Speaks { release: env!("CARGO_PKG_VERSION").to_owned(), offers, needs }
    }

    /// The bits by which both ends speak.
    pub fn with(&self, other: &Speaks) -> Result<u64, Lack> {
        let (theirs, ours) = (other.shown(), self.shown());
        let (we_lack, they_lack) = (other.needs & !self.offers, self.needs & !other.offers);
        if we_lack != 0 {
            return Err(Lack::Ours { theirs, ours, bits: Bits(we_lack) });
        }
        if they_lack != 0 {
            return Err(Lack::Theirs { theirs, ours, bits: Bits(they_lack) });
        }
        Ok(self.offers & other.offers)
    }

    /// The release, as a stranger may have written it.
    fn shown(&self) -> String {
        let plain = |c: &char| c.is_ascii_graphic() || *c == ' ';
        let text: String = self.release.chars().filter(plain).take(RELEASE_MAX).collect();
        if text.is_empty() { "of an older release".to_owned() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(release: &str, offers: u64, needs: u64) -> Speaks {
        Speaks { release: release.into(), offers, needs }
    }

    #[test]
    fn both_ends_come_to_the_same_bits() {
        let (old, new) = (end("0.1.0", 0b0111, 0), end("0.2.0", 0b1101, 0b0001));
        assert_eq!((old.with(&new), new.with(&old)), (Ok(0b0101), Ok(0b0101)));
        assert_eq!(new.with(&end("9.0.0", u64::MAX, 0)), Ok(0b1101), "what nobody here knows is passed over");
        assert_eq!(old.with(&Speaks::default()), Ok(0), "who says nothing understands nothing of it");
    }

    #[test]
    fn what_is_missing_is_named_with_both_releases_by_either_end() {
        let (old, new) = (end("0.1.0", 0b0111, 0), end("0.3.0", 0b1_1111, 0b1_1000));
        for (here, there, which) in [(&old, &new, "upgrade this end"), (&new, &old, "upgrade the other end")]
        {
            let why = here.with(there).unwrap_err().to_string();
            assert!(why.contains("features 3, 4") && why.contains(which), "{why}");
            assert!(
                why.contains("Henge 0.1.0") && why.contains("Henge 0.3.0") && !why.contains('\n'),
                "{why}"
            );
        }
        let why = old.with(&end("\u{1b}[2J\n", 8, 8)).unwrap_err().to_string();
        assert!(why.contains("Henge [2J and needs feature 3,"), "{why}");
        let why = new.with(&Speaks::default()).unwrap_err().to_string();
        assert!(why.contains("Henge of an older release"), "{why}");
    }
}
