//! The tests of henge-link from outside, as one binary: each file is one subject.

mod copies;
mod link;
