//! The tests of henge-nbd from outside, as one binary: each file is one subject. (`tests/limits.rs` counts what its
//! process allocates, and so is another.)

mod client;
mod common;
mod corpus;
mod handshake;
mod pair;
mod splits;
mod tls;
mod transmission;
