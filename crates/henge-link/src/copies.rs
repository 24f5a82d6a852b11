//! Copies: one node decides about a thing, others act by what it has decided, and none of them by what is old.
//!
//! # The problem
//! Any node may serve a disk, and none may let through what a reservation forbids, wherever that was made. So a change must be
//! known to every node that acts by it before whoever asked for it is told that it holds; and a node that cannot be told must
//! have stopped by then.
//!
//! # The rule
//! A thing has one *keeper*. Its *holders* watch it and get its text whenever that changes. A holder sends the keeper a beat each
//! [`BEAT`], and acts by its copies for [`LEASE`] from the *sending* of the last beat that was answered. The keeper waits, before a
//! change is *settled*, until every holder has said that it has seen it; a holder from which it has heard nothing for [`KEPT`],
//! which is longer, is one no more. For that the keeper begins a new *term* with it: answers to beats name the term, so do
//! texts, and a copy is good only while both are the same.
//!
//! ```text
//!   t = 0.0  holder ── Beat 7 ──▶ keeper       answered: good until 4.0 at the holder; the keeper waits until 5.0 and a bit
//!   t = 0.5  the cable is cut
//!   t = 1.0  a change is asked for             the keeper has no word from the holder that it has seen it
//!   t = 4.0  the holder stops
//!   t = 5.0  the keeper begins term 2 with it: the change is settled, and answered
//!   t = 9.0  the cable is mended               Beat 12 is answered in term 2; the copy of term 1 is not good;
//!                                              the holder watches anew, gets the text of term 2, and goes on
//! ```
//!
//! A keeper that begins anew (or is told of a thing anew) does not know who acts by copies of it: it takes no change for
//! [`KEPT`].
//!
//! # What it guarantees
//! Where no clock runs a quarter faster than another: at any time, each good copy is at least as new as every settled change. (A copy
//! is good at t: a beat sent after t − LEASE was answered in its term, so the keeper has this holder in this term until after t;
//! it is among those whose word every change since has waited for.) Once all are linked, a change is settled within a round trip.
//!
//! # What it costs
//! Two short messages a second between two nodes, however many things there are; a change, two per holder. A change takes up to
//! [`KEPT`] while a holder is away. Holders can do nothing without the keeper for longer than [`LEASE`].
//!
//! Nothing is done by itself: [`Keeper`] and [`Holder`] are told what was heard and what time it is.

mod holder;
mod keeper;

pub use holder::{Arrived, Holder};
pub use keeper::Keeper;

use henge_core::Duration;

/// How often a holder asks for more time.
pub const BEAT: Duration = Duration::from_secs(1);
/// How long a holder acts by its copies after it has sent a beat that was answered.
pub const LEASE: Duration = Duration::from_secs(4);
/// How long a keeper waits for a holder of which it hears nothing.
pub const KEPT: Duration = Duration::from_secs(5);

/// Bytes of a text that go in one message.
const PIECE: usize = 32 << 10;
/// Longest text: what is longer is not taken.
const TEXT_MAX: usize = 1 << 20;
