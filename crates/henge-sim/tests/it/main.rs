//! The tests of henge-sim from outside, as one binary: each file is one subject.

mod attackers;
mod calm;
mod central;
mod common;
mod errors;
mod fairness;
mod isolation;
mod neighbours;
mod programs;
mod run;
mod single_reader;
mod spindles;
