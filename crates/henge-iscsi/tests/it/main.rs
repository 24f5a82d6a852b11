//! The tests of henge-iscsi from outside, as one binary: each file is one subject.

mod bounds;
mod host;
mod ports;
mod resize;
mod sanitize;
mod session;
mod splits;
mod windows;
