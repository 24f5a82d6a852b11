//! The few types that everything in Henge speaks.
//!
//! A client's command becomes [`Request`]s; a [`Gate`] (cost model, [`Scheduler`], [`DepthController`]) decides
//! when each may go to its [`Backend`]; a [`Pipeline`] joins the two. All of it is a state machine with time as an
//! argument: the simulator drives it with simulated time and device models, the node with a clock and real storage.
//!
//! This crate depends on nothing, reads no clock, opens nothing, starts no thread.

#![forbid(unsafe_code)]

mod backend;
mod contract;
mod cost;
mod depth;
mod gate;
mod histogram;
mod keeps;
mod meters;
mod params;
mod parse;
mod pipeline;
mod request;
mod row;
mod scheduler;
mod slots;
mod sync;
mod terms;
mod units;

pub use backend::{Backend, DEVICE_QUANTUM, Done, Fault, Model};
pub use contract::{Contract, CostUnit, DiskTime, DiskTimeKind, Latency, Rate, WORDS};
pub use cost::{CostModel, Learned, Seen};
pub use depth::{DepthController, DepthPart, QueueView};
pub use gate::{Assembly, Demand, Dirty, Full, Gate, Served};
pub use histogram::Histogram;
pub use keeps::{
    Due, Keeps, Need, Promised, With, check_bound, check_curves, check_rate, check_share, check_units,
};
pub use meters::{Completed, FlowMeters, GateMeters, Metered};
pub use params::{ParamError, Params, Value};
pub use parse::{QuantityError, format_size, parse_duration, parse_rate, parse_share, parse_size};
pub use pipeline::{Finished, Pipeline, Rejected};
pub use request::{Op, Request};
pub use row::{RequestRow, RowError};
pub use scheduler::{Completion, Dispatch, Refused, Scheduler, Slots, WaitReason};
pub use slots::Pending;
pub use sync::{News, Sender, Striping, Sync};
pub use terms::{Given, More, PLACING, TERMS, Term, Written};
pub use units::{Cost, Duration, FlowId, Instant, NodeId, RequestId, VTime};
