//! What a tap on the commands gives: what was asked and when, never what was in it.

use serde::{Deserialize, Serialize};

/// A command that was answered: disk (by number), operation (0 read, 1 write, 2 flush, 3 trim, 4 write zeroes), offset, length,
/// arrival and latency in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tapped(pub u32, pub u8, pub u64, pub u64, pub u64, pub u64);

/// What a tap gave.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// The node's clock now, in nanoseconds.
    pub now: u64,
    /// Commands that found no room.
    pub lost: u64,
    /// The disks that are among the commands for the first time since the tap was opened: their numbers and names. A number that
    /// is told again is another disk's from now on.
    pub disks: Vec<(u32, String)>,
    /// Commands in the order of their answers.
    pub commands: Vec<Tapped>,
}
