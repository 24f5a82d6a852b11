//! The subcommands, one file each.

pub mod admit;
mod admit_sequences;
mod anew;
mod api;
mod bare;
pub mod ca;
pub mod cluster;
pub mod demo;
pub mod disk;
mod disk_ssd;
pub mod log;
pub mod manager;
pub mod manual;
pub mod node;
pub mod nodes;
pub mod nvme;
pub mod parse;
pub mod plan;
pub mod pool;
pub mod profile;
pub mod proxy;
pub mod record;
pub mod tenant;
pub mod top;
pub mod trace;
pub mod vd;
mod vd_manager;
mod vd_pools;
mod vd_propose;

/// What a server writes (tenants' bytes, what it remembers, secrets among it) is for its user alone, whatever the shell that started
/// it says; where others are to come to a socket, that is stated.
fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}
