//! NVMe over TCP as state machines: bytes to commands and back, no sockets, no clock.
//!
//! ```text
//!   socket ─bytes─▶ Session::receive ─▶ Step::Execute ─▶ (virtual disk)
//!                   Session::delivered ◀─ a write's bytes go straight into its buffer
//!   socket ◀─writev─ segments ◀─ Session::complete
//! ```
//!
//! [`Session`] is one connection, which is one queue: the NVMe/TCP transport (revision 1.0) with header and data digests,
//! in-capsule data and R2T; Fabrics' Connect, properties and authentication ([`auth`]); admin and I/O commands (NVMe 1.4). [`Subsystems`] is what
//! sessions share: subsystems with a namespace each, the controllers that hosts have of them, discovery, events. Time is an
//! argument, payload lies in the driver's buffers.
//!
//! Quoted are "Base" (NVM Express Base Specification 2.0, which has the section numbers of 1.4's text in one place), "NVM"
//! (NVM Command Set 1.0) and "Transport" (NVMe over TCP Transport Specification 1.0).
//!
//! Not done, and refused as the specifications ask: namespace management, metadata and protection information, PRPs,
//! several data units in flight per R2T, Copy, TLS, and keys of TLS made by authentication.

#![forbid(unsafe_code)]

mod admin;
pub mod auth;
mod controller;
mod directory;
pub mod door;
mod fabrics;
mod namespace;
mod nvm;
mod output;
mod plan;
pub mod reservation;
pub mod service_log;
mod session;
mod status;
mod subsystem;
pub mod wire;

pub use namespace::{Namespace, Reach, Service};
pub use nvm::TRANSFER_MAX;
pub use output::{Digests, Segment};
pub use plan::{Action, Outcome};
pub use session::{Command, Limits, Payload, Session, Step, Want};
pub use status::{Ending, Status};
pub use subsystem::{Access, DISCOVERY, QueueId, SubsystemId, Subsystems};

/// The port where hosts look first (IANA).
pub const PORT: u16 = 4420;
