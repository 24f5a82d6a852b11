//! What nodes that share a store need from it: a place to tell each other that they live, and a rule for taking a part from one that does
//! not.
//!
//! # The problem
//! Two nodes, *gateways*, can open the same image. One has it at a time. When that one dies, another is to have it within seconds, and the
//! dead one's last writes must not come later. Nodes that cannot hear each other by network may both be well.
//!
//! # The rule
//! Each gateway writes a growing count into a [`Register`] in the store itself. So a gateway is missed by the others exactly when it does not
//! reach the storage, and then it cannot serve either. Who opens a part brings a [`Claim`]: which gateways are dead, and which start of the
//! others is the latest. The lock of a dead gateway, or of an earlier start, is broken, which shuts that process out of the storage first.
//! A lock of anybody else stays.
//!
//! # Example
//! `n1` (epoch 7) has `web`, and dies. `n2` reads the same count five times while its own grow, and claims `web` with `dead = [n1]`. It breaks
//! the lock of `n1 7`, and takes it. `n1` begins again as epoch 8 and finds the lock of `n2`, which lives: it passes commands on.
//!
//! # Guarantee and price
//! Two never write, whatever the counts say: the lock is broken by shutting its holder out, and the counts only decide who tries. A gateway
//! that was only slow is shut out and must begin again.

use std::io;

/// A few words of each node, in the store that they share. Its calls block.
pub trait Register: Send + Sync {
    /// Writes this node's word.
    fn write(&self, node: &str, word: &str) -> io::Result<()>;
    /// Reads a node's word; `None` where it never wrote one.
    fn read(&self, node: &str) -> io::Result<Option<String>>;
    /// The store's own name: the same at every node that has it, and another one of another store. It does not block.
    fn store(&self) -> &str;
}

/// A text that the store keeps with a part's image, and so goes with it from node to node. Its calls block.
///
/// Who has been shut out writes nothing there any more, as in the part itself; whoever is next reads what was written before.
pub trait ImageMetadata: Send + Sync {
    /// What was written last; `None` where nothing ever was. What is no text is [`io::ErrorKind::InvalidData`].
    fn read(&self) -> io::Result<Option<String>>;
    /// Writes it anew, as a whole. After an error either may be there.
    fn write(&self, text: &str) -> io::Result<()>;
    /// What it is and where, for people.
    fn place(&self) -> &str;
}

/// By what a node takes a part that other nodes may have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// This node.
    pub me: String,
    /// Of this start of it.
    pub epoch: u64,
    /// Nodes that are dead.
    pub dead: Vec<String>,
    /// Nodes that live, by their latest start.
    pub alive: Vec<(String, u64)>,
    /// The part may be made where it is not there.
    pub makes: bool,
    /// The disk was here before: what is there is its own.
    pub known: bool,
}

impl Claim {
    /// Whether that start of a node does not serve any more, so that what it holds may be taken.
    pub fn outlives(&self, node: &str, epoch: u64) -> bool {
        let later = |(name, now): &(String, u64)| name == node && *now > epoch;
        let mine = node == self.me && epoch < self.epoch;
        mine || self.dead.iter().any(|dead| dead == node) || self.alive.iter().any(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_and_earlier_starts_are_outlived_and_nobody_else() {
        let claim = Claim {
            me: "n2".into(),
            epoch: 5,
            dead: vec!["n1".into()],
            alive: vec![("n3".into(), 9)],
            ..Claim::default()
        };
        let outlived = [("n1", 1), ("n1", u64::MAX), ("n3", 8), ("n2", 4)];
        let stays = [("n3", 9), ("n3", 10), ("n2", 5), ("n2", 6), ("n4", 0), ("", 0)];
        for (node, epoch) in outlived {
            assert!(claim.outlives(node, epoch), "{node} {epoch}");
        }
        for (node, epoch) in stays {
            assert!(!claim.outlives(node, epoch), "{node} {epoch}");
        }
    }
}
