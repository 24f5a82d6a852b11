//! What happened to disks and pools.

use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The node began to serve.
    Started,
    /// A disk's contract was accepted, and the disk is served.
    Admitted,
    /// A disk's contract was changed.
    Changed,
    /// A disk was not accepted, or its contract not changed.
    Refused,
    /// A disk was removed.
    Removed,
    /// A pool got another scheduler.
    Scheduler,
    /// A disk does not receive what it was promised.
    Violated,
    /// It does again.
    Recovered,
    /// Something about the storage of a disk or a pool that somebody should look at.
    Storage,
    /// A pool's device costs more or less than was measured or learned of it, or gives less than is promised on it, or that again.
    Drifted,
}

impl EventKind {
    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventKind::Started => "started",
            EventKind::Admitted => "admitted",
            EventKind::Changed => "changed",
            EventKind::Refused => "refused",
            EventKind::Removed => "removed",
            EventKind::Scheduler => "scheduler",
            EventKind::Violated => "violated",
            EventKind::Recovered => "recovered",
            EventKind::Storage => "storage",
            EventKind::Drifted => "drifted",
        }
    }
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1, across restarts.
    pub seq: u64,
    /// Milliseconds since 1970, by the clock of who noted it.
    pub at: u64,
    /// What.
    pub kind: EventKind,
    /// Which disk (or pool); empty where it is about the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The particulars, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}
