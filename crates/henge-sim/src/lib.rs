//! A deterministic discrete-event simulator that runs a scenario.
//!
//! It drives the very [`Pipeline`](henge_core::Pipeline) that a node drives, with simulated time and device
//! models; nothing here reads a clock, opens a file or starts a thread, so equal scenarios give equal results.

#![forbid(unsafe_code)]

mod calendar;
pub mod rule;

pub use calendar::Calendar;
