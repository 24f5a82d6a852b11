//! The tests of henge-device from outside, as one binary: each file is one subject.

mod arrays;
mod bad_facts;
mod common;
mod constant;
mod flash;
mod mutated_facts;
mod other_drives;
mod properties;
mod reference;
mod registry;
mod ssd;
mod vectors;
