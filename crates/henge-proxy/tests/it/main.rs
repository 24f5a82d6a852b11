//! The tests of henge-proxy from outside, as one binary: each file is one subject.

mod docs;
mod double;
mod faults;
mod live;
mod replay;
mod shares;
