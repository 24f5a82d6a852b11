//! A namespace: what a subsystem's disk is made of, and what it can tell of its service.

use henge_core::{Contract, Duration, WaitReason};

/// How a namespace is reached by way of this node (asymmetric namespace access, Base 2.15).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// The node has a place of the disk.
    #[default]
    Optimized,
    /// The node passes everything on.
    Detour,
    /// Not now; by other nodes perhaps.
    Inaccessible,
}

impl Reach {
    /// ANA state (Base, figure 217).
    pub(crate) fn state(self) -> u8 {
        match self {
            Reach::Optimized => 1,
            Reach::Detour => 2,
            Reach::Inaccessible => 3,
        }
    }
}

/// A disk as hosts see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Capacity, a multiple of the block size.
    pub bytes: u64,
    /// Block size as a power of two: 9 for 512 bytes, 12 for 4 KiB.
    pub block_shift: u32,
    /// The same of what is best read and written whole.
    pub preferred_shift: u32,
    /// Whether it can be written.
    pub read_only: bool,
    /// Whether hosts can reserve it.
    pub reservable: bool,
    /// Serial number: printable ASCII, at most 20 bytes, the same on every node.
    pub serial: String,
    /// A number that no other disk has, the same on every node.
    pub uuid: [u8; 16],
    /// How it is reached.
    pub reach: Reach,
    /// How often that has changed.
    pub reach_changes: u64,
}

impl Namespace {
    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.bytes >> self.block_shift
    }
    /// The number as a UUID of version 8 (RFC 9562 5.8): its own rule, marked as such.
    pub(crate) fn marked_uuid(&self) -> [u8; 16] {
        let mut uuid = self.uuid;
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }
}

/// What a disk was promised, what it got, and why it waits: told by the SMART log and by a log page of our own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// What it is promised.
    pub contract: Contract,
    /// For how long the counters below have counted.
    pub since: Duration,
    /// Commands answered.
    pub commands: u64,
    /// Of them reads.
    pub reads: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Of them read.
    pub bytes_read: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Commands that took longer than was promised.
    pub late: u64,
    /// Latency of commands: mean, median, 95 %, 99 %, 99.9 %, and the longest.
    pub latency: [Duration; 6],
    /// Time that its requests have waited before the storage had them, in all.
    pub wait: Duration,
    /// Time that they have been at the storage, in all.
    pub service: Duration,
    /// Commands under way.
    pub pending: u32,
    /// Why the oldest waits now.
    pub waits: Option<WaitReason>,
    /// Time that oldest requests have waited, by reason, in the order of [`WaitReason::ALL`].
    pub waited: [Duration; WaitReason::ALL.len()],
}
