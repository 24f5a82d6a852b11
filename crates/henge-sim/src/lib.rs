//! A deterministic discrete-event simulator that runs a scenario.
//!
//! It drives the very [`Pipeline`](henge_core::Pipeline) that a node drives, with simulated time and device
//! models; nothing here reads a clock, opens a file or starts a thread, so equal scenarios give equal results.

#![forbid(unsafe_code)]

pub mod admission;
mod build;
mod calendar;
mod components;
pub mod edit;
mod error;
mod experiment;
mod fairness;
mod interrupted;
mod measured;
mod meter;
mod net;
mod outcome;
mod plot;
mod replay;
pub mod rule;
mod stall;
mod timing;
mod verdict;
mod world;

pub use build::Outside;
pub use calendar::Calendar;
pub use components::Arrivals;
pub use error::SimError;
pub use experiment::{Axis, Experiment, Judged, Measure, Row, Setting};
pub use fairness::{Caveat, Fairness};
pub use measured::{Measured, distance, windows_in};
pub use meter::{Conformance, FlowOutcome, Service, Window};
pub use net::Traffic;
pub use outcome::{GateOutcome, Outcome};
pub use plot::{Plot, PlotKind};
pub use replay::{Compared, Feed, Recording, Replayed};
pub use timing::Timing;
pub use verdict::Verdict;
pub use world::{Observer, Unwatched, World};
