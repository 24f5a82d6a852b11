//! The node's side of the control plane: it dials its manager, says what it has, sends meters, and takes orders.
//!
//! A thread of its own that asks the node as everybody does, by [`Control`](crate::Control). The node serves and enforces without it,
//! and what was ordered stands in the node's memory (`state.rs`).

mod agent;
pub(crate) mod config;
mod connection;
mod orders;
mod wanted;

pub use config::{ManagerConfig, profile};

pub(crate) use agent::{Agent, Facts};
