//! Copies: one node decides about a thing, others act by what it has decided, and none of them by what is old.
//!
//! # The problem
//! Any node may serve a disk, and none may let through what a reservation forbids, wherever that was made. So a change must be
//! known to every node that acts by it before whoever asked for it is told that it holds; and a node that cannot be told must
//! have stopped by then.
//!
//! # The rule
//! A thing has one *lease owner*, the owner for short. Its *replicas* watch it, and get its text whenever that changes. A replica sends
//! the owner a heartbeat each [`HEARTBEAT`]. It acts by its copies for [`LEASE`] from the *sending* of the last heartbeat that was
//! answered. A change is *settled* once every replica has said that it has seen it. A replica from which the owner has heard nothing
//! for [`KEPT`], which is longer, is one no more, and the owner begins a new *term* with it. Texts and answers to heartbeats name their
//! term, and a copy is good only while both are the same.
//!
//! ```text
//!   t = 0.0  replica ── heartbeat 7 ──▶ owner  answered: good until 4.0 at the replica; the owner waits until 5.0
//!   t = 0.5  the cable is cut
//!   t = 1.0  a change is asked for             the owner has no word from the replica that it has seen it
//!   t = 4.0  the replica stops
//!   t = 5.0  the owner begins term 2 with it: the change is settled, and answered
//!   t = 9.0  the cable is mended               heartbeat 12 is answered in term 2; the copy of term 1 is not good;
//!                                              the replica watches anew, gets the text of term 2, and goes on
//! ```
//!
//! An owner that begins anew (or is told of a thing anew) does not know who acts by copies of it: it takes no change for
//! [`KEPT`].
//!
//! # What it guarantees
//! Where no clock runs a quarter faster than another: at any time, each good copy is at least as new as every settled change. (A copy
//! is good at t: a heartbeat sent after t − LEASE was answered in its term. So the owner has this replica in this term until after t,
//! and every change since has waited for its word.) Once all are linked, a change is settled within a round trip.
//!
//! # A thing that goes from node to node
//! What is written where the thing itself lies can be decided about by whoever has the thing. The next owner *takes* it with the text that the
//! one before left there, once that one cannot write any more. A replica's copy of the former owner is good for nothing then. The thing is
//! reached by way of its owner alone. So that one does for a replica only what comes after the word that the replica has seen a version of its
//! own, in the term that lasts ([`LeaseOwner::next_acting`]). Nobody has to be waited for.
//!
//! # What it costs
//! Two short messages a second between two nodes, however many things there are; a change, two per replica. A change takes up to
//! [`KEPT`] while a replica is away. Replicas can do nothing without the owner for longer than [`LEASE`].
//!
//! Nothing is done by itself: [`LeaseOwner`] and [`Replica`] are told what was heard and what time it is.

mod owner;
mod replica;

pub use owner::LeaseOwner;
pub use replica::{Arrived, Replica};

use henge_core::Duration;

/// How often a replica asks for more time.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a replica acts by its copies after it has sent a heartbeat that was answered.
pub const LEASE: Duration = Duration::from_secs(4);
/// How long an owner waits for a replica of which it hears nothing.
pub const KEPT: Duration = Duration::from_secs(5);

/// Bytes of a text that go in one message.
const PIECE: usize = 32 << 10;
/// Longest text: what is longer is not taken.
const TEXT_MAX: usize = 1 << 20;
