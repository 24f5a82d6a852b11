//! Why a run could not go on.

use henge_core::{Refused, format_size};
use henge_workload::{Record, TraceError};
use std::fmt;

/// Why a run could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// A flow's load could not be read further, or does not fit its disk.
    Load {
        /// Whose.
        flow: String,
        /// What.
        why: String,
    },
    /// A gate cannot keep a contract.
    Refused {
        /// Whose.
        flow: String,
        /// What, why, and what would do.
        refused: Refused,
    },
}

impl SimError {
    pub(crate) fn load(flow: &str, error: &TraceError) -> Self {
        SimError::Load { flow: flow.to_owned(), why: error.to_string() }
    }
    pub(crate) fn beyond(flow: &str, record: &Record, capacity: u64) -> Self {
        let end = format_size(record.end());
        let why = format!(
            "it asks for bytes up to {end} of a disk of {}; give the flow that capacity, or let the load wrap",
            format_size(capacity)
        );
        SimError::Load { flow: flow.to_owned(), why }
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Load { flow, why } => write!(f, "the load of {flow}: {why}"),
            SimError::Refused { flow, refused } => write!(f, "the contract of {flow}: {refused}"),
        }
    }
}
impl std::error::Error for SimError {}
