//! The tests of henge-nvme from outside, as one binary: each file is one subject.

mod auth;
mod host;
mod hostile;
mod reservation;
mod session;
mod splits;
