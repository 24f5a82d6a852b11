//! Workloads: what tenants ask of storage, from traces of real systems and from generators.
//!
//! - [`Trace`] reads the formats that traces come in, streamed: a [`Record`] at a time.
//! - [`Arrivals`] (when) and [`Pattern`] (what) generate requests; [`preset`]s are settings of them fitted to
//!   measured traces, and parallel programs (IOR, BTIO).
//! - [`Workload`] paces either of them open, windowed or closed loop for a driver; [`Spec`] reads its description.
//!
//! Pure: readers take [`std::io::Read`], nothing is opened, no clock is read, equal seeds give equal requests.

#![forbid(unsafe_code)]

mod arrivals;
mod bins;
mod dedup;
pub mod diff;
mod distinct;
mod level;
mod pattern;
pub mod preset;
mod ranks;
mod record;
mod replay;
mod spec;
mod stats;
mod trace;
mod workload;

pub use arrivals::{Arrivals, Burst, Gaps, Period, Process};
pub use bins::Timeline;
pub use dedup::Dedup;
pub use level::Level;
pub use pattern::{Jump, Mix, Pattern, RECENT, Sizes};
pub use ranks::{Btio, Ior, Program, Ranks};
pub use record::Record;
pub use replay::{Addressing, Records, Replay, ReplayOptions, Source};
pub use spec::{Spec, TraceSpec};
pub use stats::{Amount, Stats};
pub use trace::{
    Damage, Format, OwnWriter, Packing, Trace, TraceError, TraceOptions, TraceWriter, Units, WRITABLE,
};
pub use workload::{Next, Think, Workload};
