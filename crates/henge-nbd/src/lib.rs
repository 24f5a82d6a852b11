//! The NBD protocol as state machines: bytes to commands and back, no sockets, no clock.
//!
//! ```text
//!   socket ─bytes─▶ Session::receive ─▶ Event::Command ─▶ (virtual disk)
//!                   Session::payload ◀─ a WRITE's bytes go straight into its buffer
//!   socket ◀─writev─ Output segments ◀─ Session::reply
//! ```
//!
//! [`Session`] is the server's end of one connection, [`Client`] the other end. Both take their input in
//! pieces of any size and produce [`Output`]: header bytes, and in between "then these bytes of command X's buffer",
//! so that a driver writes them with one `writev` and copies nothing.
//!
//! The protocol is that of `doc/proto.md` of the NetworkBlockDevice project, quoted here as "proto: section".
//! Not done, and refused as the protocol asks: TLS, extended headers, oldstyle negotiation.

#![forbid(unsafe_code)]

mod client;
mod client_reply;
mod command;
mod export;
mod options;
mod output;
pub mod proto;
mod reply;
mod session;

pub use client::{Ask, Client, ClientEvent, ClientFailure, Negotiated, Wish};
pub use command::{Command, CommandKind};
pub use export::{BlockSize, Export, Exports, Limits};
pub use output::{Output, Segment};
pub use proto::Error;
pub use reply::{Answer, Extent, Piece};
pub use session::{Closed, Event, Session, Wants};
