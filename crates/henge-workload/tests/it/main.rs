//! The tests of henge-workload from outside, as one binary: each file is one subject.

mod common;
mod fit;
mod golden;
mod pairs;
mod readers;
mod workload;
