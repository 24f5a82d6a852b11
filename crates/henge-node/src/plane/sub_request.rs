//! What is under way between sessions and storage: who waits for a command, its answer, and the requests it was cut into.

use henge_backend::Buffer;
use henge_core::{Cost, RequestId};
use henge_vdisk::{Failure, PartId, Patch};

/// Who waits for a command: a connection and its name for the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Submitter {
    pub connection: RequestId,
    pub command: RequestId,
}

/// A command that is over, with its buffer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub disk: usize,
    pub submitter: Submitter,
    pub outcome: Result<(), Failure>,
    pub frame: Buffer,
    /// Where the command's own bytes begin in it.
    pub lead: u64,
    /// The disk's address of its first byte.
    pub at: u64,
    /// What it was charged, where somebody is to be told: at the owner of an extent.
    pub cost: Cost,
}

/// What a request at a gate is for.
pub(super) struct SubRequest {
    pub disk: u32,
    pub part: PartId,
    pub scratch: Option<Patch>,
    /// Memory that it has beside its command's, counted for its disk.
    pub extra: usize,
    /// Bytes that were copied for it, and charged; or that another shard copies.
    pub copied: u64,
    pub parts: u32,
    pub seq: u64,
    /// The sub-requests of the same disk before and after this one.
    pub older: Option<At>,
    pub newer: Option<At>,
}

/// Where a sub-request is: its gate, and its name there.
pub(super) type At = (u32, RequestId);
