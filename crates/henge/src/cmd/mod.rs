//! The subcommands, one file each.

pub mod admit;
pub mod cluster;
pub mod demo;
pub mod disk;
mod disk_ssd;
pub mod log;
pub mod node;
pub mod profile;
pub mod proxy;
pub mod record;
pub mod reproduce;
pub mod sim;
pub mod sim_disk;
pub mod top;
pub mod trace;
pub mod vd;
