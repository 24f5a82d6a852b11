//! Links between nodes, and between proxies: bytes to messages and back, no sockets.
//!
//! Each end says hello (protocol version, cluster, its name, its epoch, a fresh nonce, its features), then proves that it knows the cluster's
//! shared secret, the one that dialled first; the secret itself never travels. After that, messages flow both ways, each
//! sealed, with a ping when there is nothing else to say, so that a peer that is gone is noticed.
//!
//! ```text
//!   frame = length of the body (u32 LE) | length of the data (u32 LE) | body (postcard) | seals | data (raw)
//!   seals = none before the proofs; then [of the data, if any: 16 bytes |] of all before it: 16 bytes
//!
//!   A ── Hello ──▶ B        A ── Proof ──▶ B                            A ── Message … ──▶ B
//!   A ◀── Hello ── B                             A ◀── Proof ── B        A ◀── Message … ── B
//! ```
//!
//! Between nodes travel parts of commands: an *extent* is attached once (a disk's piece on one pool of the other node), then
//! each part names it, says what its flow got elsewhere, and is answered with its outcome, its bytes, and its cost. How many
//! parts of an extent may be under way is the other end's to say, so that one flow's backlog never fills the link for others.
//!
//! What one node decides and others act by, such as who may use a disk, is told as [`copies`] with a lease.
//! Nodes that share storage tell each other there that they live ([`lives`]), and divide one depth among them ([`depths`]).
//!
//! An end sends only what the other one understands (`features.rs`). A node of another version, of
//! another cluster, or with the wrong secret is refused with the reason, in words.

#![forbid(unsafe_code)]

pub mod copies;
pub mod depths;
mod features;
mod handshake;
mod link;
pub mod lives;
mod message;
pub mod seal;

pub use features::{Bits, Lack, Speaks};
pub use handshake::{Hello, Identity, Refusal, Role};
pub use link::{Link, LinkEvent, Received};
pub use message::{
    BODY_MAX, DATA_MAX, FRAME_HEADER, Message, PartKind, PartOutcome, WireNews, WirePart, WireSense,
    WireSweep, WireUnit,
};

/// The link protocol's version; both ends must have the same. What is added without changing what is there is a feature.
pub const VERSION: u16 = 6;

/// Features of the link protocol.
pub mod feature {
    /// [`Message::Ended`](crate::Message::Ended): an end that ends in order says so.
    pub const ENDED: u64 = 1 << 0;
    /// What this release understands.
    pub const ALL: u64 = ENDED;
}
