//! A part of a disk, as a store knows it.

use henge_backend::{Claim, Origin};

/// A part on the store behind a gate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PartOf {
    pub gate: usize,
    pub name: String,
    pub len: u64,
    /// It takes what a former disk left.
    pub adopt: bool,
    /// Where its bytes come from.
    pub origin: Origin,
    /// Other nodes may have it.
    pub claim: Option<Claim>,
}
