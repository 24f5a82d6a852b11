//! Schedulers, depth controllers and cost models, one file each.
//!
//! A scheduler is a state machine that says who goes next (see [`henge_core::Scheduler`]). To add one, write one
//! file with an [`Entry`] in it and name that entry in [`SCHEDULERS`]; from then on configuration knows it, the
//! conformance suite tests it, and the bench measures it. What schedulers share stands in files of its own:
//!
//! | file | what |
//! |---|---|
//! | `backlog.rs` | the requests that wait, a list per flow in one arena |
//! | `heap.rs` | an indexed heap, mostly over the flows that have something waiting |
//! | `flows.rs` | a table of flows |
//! | `weight.rs` | cost / weight and cost / rate without divisions |
//! | `bucket.rs` | a limit in cost per second |
//! | `rank_tree.rs` | an ordered set that knows ranks, and the slack of the whole queue |
//! | `turns.rs` | who keeps to a promise goes by deadline; what is spare is never held against anybody |
//! | `horizon.rs` | how many requests are due before a moment |
//! | `finish_clock.rs` | finish times from reservations |
//! | `central.rs` | finish times made in one place, for a disk on several gates |
//! | `spread.rs` | what a gate makes of those, beside what it promised itself |
//! | `service_times.rs` | how long the device takes for a request |
//! | `booking.rs` | what is promised in all, against the capacity |
//! | `names.rs` | one of several names, and which was probably meant |
//! | `terms.rs` | which terms of a contract a scheduler keeps, and how it refuses the others |

#![forbid(unsafe_code)]

mod backlog;
mod booking;
mod bucket;
mod central;
pub mod cost;
mod cscan;
mod cvc;
mod departed;
pub mod depth;
mod edf;
mod entry;
mod fifo;
mod finish_clock;
mod floor;
mod flows;
pub mod foreign;
mod heap;
mod horizon;
mod line;
mod locality;
mod mclock;
mod names;
mod pclock;
mod rank_tree;
mod registry;
mod service_times;
mod sfq;
mod spread;
mod terms;
#[cfg(test)]
mod trial;
mod turns;
mod two_level;
mod virtual_clock;
mod weight;

pub use backlog::{Backlog, Queued};
pub use bucket::Bucket;
pub use central::CentralClock;
pub use entry::{DefaultDepth, Entry, OnDevice, Order};
pub use flows::Flows;
pub use heap::IndexedHeap;
pub use rank_tree::{RankTree, Ranked};
pub use registry::{SCHEDULERS, build, charge_as, find, respelled, schedulers_that_keep, suit_device};
pub use terms::Terms;
pub use weight::{Pace, Weight};
