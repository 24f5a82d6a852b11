//! iSCSI and SCSI as state machines: bytes to commands and back, no sockets.
//!
//! [`Session`] is one connection (RFC 7143, error recovery level 0): login with CHAP, commands in order within
//! their window, data with and without asking, digests, task management. [`Targets`] is what sessions share:
//! targets, their [`scsi::Unit`]s, reservations. [`scsi`] is the disk as SPC-4 and SBC-3 describe it and knows
//! nothing of iSCSI. Time and randomness are arguments; payload lies in the driver's buffers.

#![forbid(unsafe_code)]

pub mod chap;
mod directory;
pub mod door;
mod login;
mod output;
mod params;
pub mod scsi;
mod session;
mod target;
mod text;
pub mod wire;

pub use output::{HEADER_MAX, Segment};
pub use params::{Negotiated, Offer};
pub use session::{Command, Limits, Payload, Session, Step, Want};
pub use target::{PORT, TargetId, Targets};
