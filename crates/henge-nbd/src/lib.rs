//! The NBD protocol as state machines: bytes to commands and back, no sockets, no clock.
//!
//! ```text
//!   socket ─bytes─▶ Session::receive ─▶ SessionEvent::Command ─▶ (virtual disk)
//!                   Session::payload ◀─ a WRITE's bytes go straight into its buffer
//!   socket ◀─writev─ Output segments ◀─ Session::reply
//! ```
//!
//! [`Session`] is the server's end of one connection, [`Client`] the other end. Both take their input in
//! pieces of any size and produce [`Output`]: header bytes, and in between "then these bytes of command X's buffer",
//! so that a driver writes them with one `writev` and copies nothing.
//!
//! A server in a few lines, its disk a vector; real drivers read into and write from the buffers without copying:
//!
//! ```
//! use henge_core::Instant;
//! use henge_nbd::{Answer, CommandKind, Export, Limits, Segment, Session, SessionEvent, Wants};
//!
//! let (mut disk, exports) = (vec![0u8; 1 << 16], [Export::new("disk", 1 << 16)]);
//! let mut session = Session::new(Limits::default(), Instant::ZERO);
//! // What a client sends: its flags, EXPORT_NAME, READ of 4 bytes at 0 with cookie 7.
//! let mut input = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04disk".to_vec();
//! input.extend(b"\x25\x60\x95\x13\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\x04");
//! let mut buffer = Vec::new();
//! while !input.is_empty() {
//!     let command = match session.wants() {
//!         Wants::Nothing => break,
//!         Wants::Bytes => {
//!             let (taken, event) = session.receive(&input, &exports[..], Instant::ZERO);
//!             input.drain(..taken);
//!             match event {
//!                 SessionEvent::Command(command) => Some(command),
//!                 SessionEvent::Payload(command) => { buffer = vec![0; command.len as usize]; None }
//!                 _ => None,
//!             }
//!         }
//!         Wants::Payload { at, len, .. } => {
//!             let n = input.len().min(len as usize);
//!             buffer[at as usize..at as usize + n].copy_from_slice(&input[..n]);
//!             input.drain(..n);
//!             session.payload(n as u32, Instant::ZERO)
//!         }
//!     };
//!     let Some(command) = command else { continue };
//!     let range = command.offset as usize..command.offset as usize + command.len as usize;
//!     match command.kind {
//!         CommandKind::Read { .. } => buffer = disk[range].to_vec(),
//!         CommandKind::Write => disk[range].copy_from_slice(&buffer),
//!         _ => {}
//!     }
//!     session.reply(command.id, Answer::Done);
//! }
//! let reply = session.output().segments().map(|segment| match segment {
//!     Segment::Bytes(bytes) => bytes.to_vec(),
//!     Segment::Payload { at, len, .. } => buffer[at as usize..at as usize + len].to_vec(),
//! }).collect::<Vec<_>>().concat();
//! assert!(reply.ends_with(b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0"));
//! session.written(reply.len(), |_id| { /* that command's buffer is free */ });
//! ```
//!
//! The protocol is that of `doc/proto.md` of the NetworkBlockDevice project, quoted here as "proto: section".
//! TLS is negotiated here and done by the driver ([`SessionEvent::StartTls`]).
//! Not done, and refused as the protocol asks: extended headers, oldstyle negotiation.

#![forbid(unsafe_code)]

mod client;
mod client_handshake;
mod client_reply;
mod command;
mod event;
mod export;
mod options;
mod output;
pub mod proto;
mod reply;
mod session;
mod windows;

pub use client::{Ask, Client, ClientEvent, ClientFailure, Negotiated, Wish};
pub use command::{Command, CommandKind};
pub use event::{Closed, SessionEvent, Wants};
pub use export::{BlockSize, Export, Exports, Limits, Tls};
pub use output::{Output, Segment};
pub use proto::Error;
pub use reply::{Answer, Extent, Piece};
pub use session::{Rest, Session};
