//! The subcommands, one file each.

pub mod admit;
mod admit_sequences;
mod api;
pub mod cluster;
pub mod demo;
pub mod disk;
mod disk_ssd;
pub mod log;
pub mod manager;
pub mod node;
pub mod nodes;
pub mod profile;
pub mod proxy;
pub mod record;
pub mod reproduce;
pub mod sim;
pub mod sim_disk;
pub mod top;
pub mod trace;
pub mod vd;
mod vd_manager;
