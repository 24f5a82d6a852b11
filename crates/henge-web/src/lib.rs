//! The web page, its live data, and Prometheus metrics, over a [`Source`]: a node alone or the manager.
//!
//! ```text
//! Source::sample, once a second ─▶ Hub: rates, percentiles, history ─▶ deltas by server-sent events ─▶ pages
//!                                                                 └──▶ /metrics
//! ```
//!
//! [`router`] is an axum router that may be merged into another; [`serve`] runs it on a thread of its own beside a node,
//! so that neither the page nor who looks at it is ever on the data path.

mod assets;
mod bounded;
mod door;
mod guard;
mod http;
mod hub;
mod metrics;
mod offer;
mod owner;
mod places;
mod runtime;
mod serve;
mod source;
mod turns;
mod view;

pub use bounded::{Bounded, CONNECTIONS_MAX, IDLE};
pub use door::answer;
pub use guard::{NoBearer, bearer};
pub use http::router;
pub use hub::Hub;
pub use offer::{Attach, Secret, Tenant, Wanted, Way, ways};
pub use owner::Caller;
pub use places::{Full, Place, Places};
pub use runtime::runtime;
pub use serve::{Access, Serving, serve};
pub use source::{
    About, Asks, Changed, Compare, Comparison, DiskMeta, NodeSample, Noted, Preview, Problem, Run, RunFlow,
    Sample, Source, Terms, Viewer,
};
pub use turns::{LOOKS_MAX, Turn, Turns, only_looks};
pub use view::{DiskView, GateView, NodeView, PoolView, Row, Snapshot, Tick};
