//! The tests of henge-vdisk from outside, as one binary: each file is one subject. (`tests/allocation.rs` counts what its
//! process allocates, and so is another.)

mod disk;
mod locks;
mod mapping;
mod model;
mod owners;
mod settings;
