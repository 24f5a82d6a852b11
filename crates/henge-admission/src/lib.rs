//! Specifications of virtual disks, admission and placement. Pure: shared by manager, simulator and planner.
//!
//! ```text
//!   ⟨A, B, C, D, E⟩ ──convert──▶ requests/s to reserve ──decide──▶ yes, or no with the reason and what would do
//!                                        │
//!                                        └──split──▶ parts ──place──▶ which nodes
//! ```
//!
//! Source: the Stonehenge paper, sections 3 and 4.2. Where its rule turned out to over- or under-admit, ours stands beside
//! it behind a switch ([`Rules`]), so that both can be run and compared.

#![forbid(unsafe_code)]

mod convert;
mod decide;
mod edge;
pub mod place;
mod samples;
mod spec;
mod standing;

pub use convert::{Fixed, Sized, TooTight};
pub use decide::{
    Admission, Measured, PromisedPart, Rejection, Reservation, Rules, deterministic, measured, miss_ratio,
    needed, needed_worst, oracle, replay,
};
pub use samples::Samples;
pub use spec::{BadSpecification, Part, Specification};
pub use standing::{Entry, Standing};
