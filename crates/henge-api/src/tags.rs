//! Finish times that a manager makes for parts of disks over several nodes: what is asked, what is answered, how many.

use serde::{Deserialize, Serialize};

/// A part that the manager is told of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// Its disk.
    pub disk: String,
    /// What it costs, in the unit of the contract's rate: millionths of a command, or bytes.
    pub cost: u64,
    /// Where it waits: gate, slot, generation.
    pub at: (u32, u32, u32),
}

/// What the manager answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lead {
    /// As it was asked.
    pub at: (u32, u32, u32),
    /// Nanoseconds from its arrival to its finish time.
    pub ns: u64,
}

/// How many, since the node began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TagCounts {
    /// Parts that the manager was told of.
    pub asked: u64,
    /// Of them those whose finish time came while they waited, and was taken.
    pub taken: u64,
    /// Finish times that came later.
    pub late: u64,
    /// Parts that were not told: as many as may waited already.
    pub untold: u64,
}

impl TagCounts {
    /// Whether nothing was counted.
    pub fn is_none(&self) -> bool {
        *self == TagCounts::default()
    }
}
