//! What Henge's programs say to each other: what is asked of a node and what it answers ([`Request`], [`Reply`]), what a
//! node and its manager say ([`manager`]), and what the page shows of both.
//!
//! Types and their text alone: nothing here opens a socket but [`ask`], and nothing knows how a node does what it is asked.
//! Whoever talks to a node (`henge vd`, `henge top`, the page, the manager) depends on this crate and not on the node.

mod control;
mod disk;
mod event;
mod keeps;
mod kept;
mod line;
pub mod manager;
mod name;
pub mod proof;
mod table;
mod tags;
mod tap;
mod terms;

pub use control::{
    FailedDisk, GateStatus, LearnedCost, PeerStatus, PoolStatus, Promise, Reply, Request, Status, Unfairness,
};
pub use disk::{
    AtGate, AtGates, Buckets, CommandMeters, DiskLayout, DiskStatus, Latencies, Received, Seating,
};
pub use event::{Event, EventKind};
pub use keeps::{Keeps, Most, Need, Unit, With};
pub use kept::{Kept, Seconds};
pub use line::{LineError, ask, decode_line, encode_line, read_line, write_line};
pub use name::is_name;
pub use table::{Choice, Table, json, toml};
pub use tags::{Ask, Lead, TagCounts};
pub use tap::{Taken, Tapped};
pub use terms::{Field, fields, typed};

/// Terms of a contract as they are written; an empty text takes one away.
pub type Terms = std::collections::BTreeMap<String, String>;
