//! What whoever asks is answered: what admission says, what was made, why something was not done.

use crate::decide::{Instead, Refusal};
use crate::tenant::Quota;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why something was not done.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Failure {
    /// It makes no sense, whoever asks when.
    #[error("{0}")]
    Bad(String),
    /// It is somebody else's.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such thing.
    #[error("{0}")]
    Missing(String),
    /// Something is in the way.
    #[error("{0}")]
    Conflict(String),
    /// Too often for now.
    #[error("{0}")]
    Often(String),
    /// It is not what the caller thinks it is.
    #[error("{0}")]
    Changed(String),
    /// Not admitted.
    #[error("{}", .0.why)]
    Refused(Refusal),
    /// More than its tenant may have.
    #[error("{why}")]
    Quota {
        /// In words.
        why: String,
        /// What is left.
        left: Box<Quota>,
    },
}

/// A part's place, for people.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// The node.
    pub node: String,
    /// Its pool.
    pub pool: String,
    /// What is reserved there.
    #[schema(example = "67.796611/s")]
    pub reserved: String,
}

/// What admission says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Whether it would be admitted.
    pub admitted: bool,
    /// Why, or why not.
    pub why: String,
    /// Where it would lie.
    pub places: Vec<Place>,
    /// What would be admitted, each with everything else as asked; empty if it is admitted, or nothing would do.
    pub instead: Instead,
}

/// A disk was created, or was there already, just so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// The disk.
    pub name: String,
    /// Whether this request made it.
    pub fresh: bool,
}
