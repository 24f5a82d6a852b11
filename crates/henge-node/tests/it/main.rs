//! The tests of henge-node from outside, as one binary: each file is one subject. (`tests/iscsi` measures its own process, and so is
//! another.)

mod cluster;
mod common;
mod config;
mod doors;
mod node;
mod shards;
