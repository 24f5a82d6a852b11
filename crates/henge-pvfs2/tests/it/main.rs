//! The tests of henge-pvfs2 from outside, as one binary: each file is one subject.

mod captures;
mod pcap;
mod properties;
