//! The PVFS2 (OrangeFS) wire protocol as a state machine: bytes to messages and back, no sockets.
//!
//! A quality-of-service proxy stands between unmodified clients and servers. It needs to know four things of
//! the bytes that pass: where a message ends ([`Header`]), which messages are I/O requests and for whom
//! ([`Request`], [`Capability`]), how many bytes each of them will move at *this* server ([`IoRequest::bytes_here`]),
//! and when it is over ([`Connection`]). Everything else passes untouched.
//!
//! ```text
//!   client ── UNEXP request ──▶ hold / release ──▶ server
//!          ◀─ EAGER response ── learn true cost ──
//!          ◀═ bulk data ═══════ count ════════════   (or ═▶ for a write, then ◀─ write completion)
//! ```
//!
//! Wire protocols 7000 (OrangeFS 2.9 to 2.10) and 6000 (PVFS2 2.8), little-endian byte-field encoding, TCP. What a
//! decoder does not understand is [`Opaque`](ConnectionEvent::Opaque): it passes, it is counted, nothing is guessed.
//!
//! Source: the OrangeFS sources, `src/io/bmi/bmi_tcp/bmi-tcp.c` (framing), `src/proto/pvfs2-req-proto.h` (messages),
//! `src/io/description/pint-request-encode.h` (file requests); named at each type.

#![forbid(unsafe_code)]

mod capability;
mod connection;
mod distribution;
mod encode;
mod file_request;
mod frame;
mod message;
mod metadata;
mod op;
mod sound;
mod wire;

pub use capability::{Capability, Credential, Hints};
pub use connection::{
    Connection, ConnectionEvent, ConnectionStats, IoState, News, Step, Stray, awaits_client, direction,
};
pub use distribution::{Distribution, SimpleStripe, Strip};
pub use encode::{
    encode_config, encode_failure, encode_get_config, encode_io, encode_io_response, encode_small_io,
    encode_small_io_response, encode_write_completion,
};
pub use file_request::FileRequest;
pub use frame::{HEADER_LEN, Header, MAGIC, Mode, PAYLOAD_MAX, UNEXPECTED_MAX};
pub use message::{
    Direction, IoRequest, Load, Request, RequestBody, Response, ServerLimits, Version, read_config,
};
pub use metadata::Metadata;
pub use op::{NAMES, Op};
pub use wire::{Malformed, Reader, Writer};
