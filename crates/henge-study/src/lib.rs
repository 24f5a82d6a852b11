//! Studies: scenarios run on all cores, compared under several schedulers, judged against the papers, and drawn.
//!
//! The command `henge` calls this for `sim` and `reproduce`, and wherever it simulates what was recorded.

pub mod compare;
pub mod data;
pub mod report;
pub mod reproduce;
pub mod scenarios;
pub mod sim;
pub mod sim_disk;
pub mod study;
