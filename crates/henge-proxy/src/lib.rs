//! The proxy in front of a PVFS2 (OrangeFS) server, which stays as it is, as its clients do.
//!
//! ```text
//!   client ══▶ pair ────request────▶ gate ──released──▶ pair ══▶ server
//!          ◀══ everything else passes at once, both ways, also past waiting requests ══▶
//! ```
//!
//! One upstream connection per client connection; never merged, since tags are unique per connection only. A
//! request waits in the queue of its application's flow until the gate releases it: I/O everywhere, metadata where only clients come. Responses, bulk data and
//! requests between servers are never held. Everything is
//! bounded: a pair whose other side does not read is read no further, and a flow whose queue is full stops the connections that fill it.
//!
//! [`Config`] is the file, [`Proxy`] the loop, [`check`] what `henge proxy --check` says.

mod check;
#[cfg(test)]
mod children;
mod complaints;
mod conduit;
mod config;
mod control;
mod handover;
mod identity;
mod pair;
mod peers;
mod poller;
mod proxy;
mod record;
mod side;
mod socket;

pub use check::{Finding, check};
pub use config::{
    Config, FlowConfig, ListenConfig, PeersConfig, Proof, ProxyError, RequestsConfig, Rule, Who,
};
pub use control::{Counts, FlowStatus, Status};
pub use handover::Handover;
pub use peers::PeerCounts;
pub use proxy::{Proxy, Stop};
