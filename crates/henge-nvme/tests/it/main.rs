//! The tests of henge-nvme from outside, as one binary: each file is one subject.

mod auth;
mod host;
mod reservation;
mod session;
mod splits;
