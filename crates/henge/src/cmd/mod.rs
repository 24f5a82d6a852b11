//! The subcommands, one file each.

pub mod proxy;
pub mod sim;
