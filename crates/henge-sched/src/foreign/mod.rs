//! Foreign service: what a flow received at other nodes, and what it owes for that here.
//!
//! A virtual disk that is spread over nodes should have *one* share of the total. DSFQ (Wang & Merchant, FAST '07)
//! gets it without a global clock: each node runs start-time fair queueing, and a request's start tag is moved by
//! what its flow got elsewhere. Two questions are separate, and so are the files:
//!
//! | question | answered by |
//! |---|---|
//! | how much of it is charged, and when is it forgotten? | [`Policy`] in `policy.rs`, [`Owed`] in `owed.rs`: inside a scheduler |
//! | who knows what the flow got elsewhere? | `coordinator.rs`, `threshold.rs`, `layout.rs`, `predict.rs`: beside it |
//!
//! The second kind are state machines that count service, and produce and consume [`henge_core::Sync`] messages. What
//! they find goes into `Request::foreign` (with the request) or `Scheduler::foreign` (without one), never into both.

mod coordinator;
mod heard;
mod layout;
mod owed;
mod policy;
mod predict;
mod synchronizer;
mod threshold;

pub use coordinator::Coordinator;
pub use heard::Totals;
pub use layout::LayoutDriven;
pub use owed::{MEMORY_DEFAULT, Owed};
pub use policy::Policy;
pub use predict::Predictor;
pub use synchronizer::{Extent, Outbox, Served, Silent, Synchronizer, synchronizer};
pub use threshold::Threshold;
