//! The control plane: virtual disks on request, admitted, placed, remembered.
//!
//! ```text
//!   tenants ──REST──▶ rest ─┐                       ┌─▶ store (redb, etcd)
//!                           ├─▶ Core ─▶ Machine ────┤
//!   nodes ───lines──▶ nodes ┘   one thread, pure    └─▶ orders to nodes
//! ```
//!
//! The [`Machine`] is pure: it is told what was asked and what time it is, and answers with changes to be stored and orders
//! to be sent. The [`Core`] is the one thread that runs it: it stores the changes first, all or none, and only then lets
//! anybody see the answer. So nothing that anybody was told can be forgotten by a crash, and nothing half done is ever stored.

#![forbid(unsafe_code)]

mod access;
mod audit;
mod authority;
pub mod config;
mod core;
mod decide;
mod heard;
mod kept;
pub mod machine;
mod measure;
pub mod model;
mod nodes;
mod page;
mod rest;
mod serve;
mod shorten;
pub mod store;
mod tags;
mod tenant;
mod tokens;

pub use audit::{AuditTo, Keep};
pub use config::{ManagerConfig, ManagerConfigError};
pub use core::{Core, Unavailable};
pub use heard::hear_line;
pub use machine::Machine;
pub use rest::{harness, openapi};
pub use serve::{Manager, StartError};
pub use store::Leadership;
