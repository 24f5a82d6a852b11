//! Whether somebody has said something to a shard, and whether it sleeps.
//!
//! # The problem
//! A shard that sleeps must be woken for what another one puts into a lane, and a wake-up is a system call. One that is awake looks by
//! itself, so that nobody should pay for waking it. If "it sleeps" and "there is something" were two words, one could be read before the other is
//! written: then a shard sleeps with something in its lanes.
//!
//! # The rule
//! Both are one word. Whoever has put something into a lane sets its own bit there, and learns from the same operation whether the receiver
//! sleeps. A shard goes to sleep only by an exchange of nothing for [`ASLEEP`], which fails when any bit is set.
//!
//! # Example
//! Shard 1 writes to shard 0's lane and sets bit 1: the word was 0, so shard 0 is awake, and nothing more is done. Shard 0 wants to sleep: the word
//! is not 0, so it does not. It takes the word (0 again), empties lane 1, and sleeps. Shard 1 sets bit 1 again: the word was `ASLEEP`, so it writes to
//! shard 0's event descriptor.
//!
//! # Guarantee, and price
//! Whoever speaks may wake the sleeper later, and asks first whether it still sleeps over what was said.
//! No wake-up is lost, and at most one a sleeper is made by each shard (`inbox/tests.rs` tries all interleavings). One atomic operation for each lane
//! in each round in which something was said there.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bit of the shard that sleeps.
const ASLEEP: u64 = 1 << 63;

/// A word that several threads change at once.
pub(crate) trait Word {
    /// Sets these bits: what was there.
    fn set(&self, bits: u64) -> u64;
    /// Clears these bits.
    fn clear(&self, bits: u64);
    /// Takes everything.
    fn take(&self) -> u64;
    /// Puts this there if nothing is.
    fn begin(&self, bits: u64) -> bool;
    /// What is there, or was: nothing older than what this thread has put there.
    fn look(&self) -> u64;
}

/// The same for an atomic integer: the standard library's, and loom's.
macro_rules! word {
    ($integer:ty) => {
        impl Word for $integer {
            fn set(&self, bits: u64) -> u64 {
                self.fetch_or(bits, Ordering::AcqRel)
            }
            fn clear(&self, bits: u64) {
                self.fetch_and(!bits, Ordering::AcqRel);
            }
            fn take(&self) -> u64 {
                self.swap(0, Ordering::AcqRel)
            }
            fn begin(&self, bits: u64) -> bool {
                self.compare_exchange(0, bits, Ordering::AcqRel, Ordering::Acquire).is_ok()
            }
            fn look(&self) -> u64 {
                self.load(Ordering::Relaxed)
            }
        }
    };
}
word!(AtomicU64);

/// The word of one shard.
#[derive(Default, Debug)]
pub(crate) struct Inbox<W = AtomicU64>(W);

/// The bit of a shard that speaks; of more than 63, some share one.
pub(crate) fn bit(shard: usize) -> u64 {
    1 << (shard % 63)
}

impl<W: Word> Inbox<W> {
    /// That shard has put something into its lane. Whether the receiver is to be woken.
    pub(crate) fn spoke(&self, shard: usize) -> bool {
        self.0.set(bit(shard)) & ASLEEP != 0
    }

    /// Whether the receiver still sleeps over what that shard has said.
    pub(crate) fn sleeps_over(&self, shard: usize) -> bool {
        let there = self.0.look();
        there & ASLEEP != 0 && there & bit(shard) != 0
    }

    /// Whoever looks here is about to sleep. False when somebody has said something, which is to be looked at first.
    pub(crate) fn sleep(&self) -> bool {
        self.0.begin(ASLEEP)
    }

    /// It is awake.
    pub(crate) fn awake(&self) {
        self.0.clear(ASLEEP);
    }

    /// The bits of those that have said something since this was asked last. Only asked by whoever is awake.
    pub(crate) fn heard(&self) -> u64 {
        if self.0.look() != 0 { self.0.take() } else { 0 }
    }
}

#[cfg(test)]
mod tests;
