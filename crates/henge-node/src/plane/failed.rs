//! Disks that are not served because their storage fails, and what an administrator is to know.

use super::part::PartOf;
use henge_core::ParamError;

/// Which disk or pool, and what an administrator is to know of it.
pub(crate) type Notice = (String, String);

/// Why a disk is not there.
pub(crate) struct NotAdded {
    pub error: ParamError,
    /// Its storage fails; what is asked for may be right.
    pub storage: bool,
}

impl From<ParamError> for NotAdded {
    fn from(error: ParamError) -> Self {
        NotAdded { error, storage: false }
    }
}

/// A disk that is not served although it should be.
#[derive(Debug)]
pub(crate) struct Failed {
    pub why: String,
    /// Parts that are still to be removed; none where it could not be opened.
    pub remains: Vec<PartOf>,
}

impl Failed {
    pub(crate) fn unopened(why: String) -> Failed {
        Failed { why, remains: Vec::new() }
    }
}
