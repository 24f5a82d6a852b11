//! The data plane: clients' sockets on one side, storage on the other, and between them the same state machines
//! that the simulator runs.
//!
//! [`Node::start`] opens everything that a [`NodeConfig`] names and serves it on a thread of its own; the [`Node`]
//! is its handle. [`Node::control`] changes contracts, exchanges schedulers and reads meters while it works; the
//! control socket offers the same as lines of JSON ([`henge_api::Request`], [`henge_api::Reply`]).
//!
//! ```text
//! sockets ─▶ Connection (Session) ─▶ Plane: VirtualDisk ─▶ Pipeline (Gate + Store) ─┐
//! sockets ◀─ Connection ◀─ answers ◀───────────────────────────────────────────────┘
//! ```
//!
//! A loop on each core, and no lock on a request's way: each pool belongs to one loop (`cores`). Everything that
//! a client can make it hold has a bound: connections, commands and their bytes per connection
//! ([`henge_nbd::Limits`]), commands per disk (its contract), and memory for payloads in all (`buffers`).

mod access;
mod arrivals;
mod beside;
mod busy_poll;
mod catalog;
#[cfg(test)]
#[path = "../../henge-proxy/src/children.rs"]
mod children;
mod client;
pub mod config;
mod config_file;
mod connection;
mod control;
mod events;
mod exchange;
mod fill;
mod fnv;
mod follow;
mod front;
mod fronts;
mod give_way;
mod grounds;
mod handover;
mod inflow;
mod initiator;
mod job;
mod ledger;
mod link;
mod link_config;
mod links;
mod listen;
pub mod manager;
mod message;
mod meters;
mod node;
mod nvme;
mod operate;
mod peer;
mod plane;
mod promise;
mod pump;
mod random;
mod record;
mod seats;
mod server;
mod session;
mod shards;
mod shortage;
mod signals;
#[cfg(test)]
mod soak;
mod socket;
mod spread;
mod state;
mod storage;
mod stream;
mod tags;
mod tap;
mod targets;
#[cfg(test)]
mod tls_tests;
mod turns;
mod watch;

pub use config::{NodeConfig, NodeConfigError};
pub use control::{Control, ControlError};
pub use follow::could_follow;
pub use front::{Address, Local};
pub use fronts::door_keys;
pub use handover::Handover;
pub use henge_tls::TlsConfig;
pub use link_config::{LinkConfig, PeerConfig, PlaceConfig};
pub use meters::DiskMeters;
pub use node::{Node, StartError, check};
pub use promise::{Judge, Second};
pub use signals::{Signal, Signals};
pub use socket::answer_line;
