//! The tests of henge-sched from outside, as one binary: each file is one subject.

mod changes;
mod churn;
mod conformance;
mod dsfq;
mod exchange;
mod keeps;
mod mclock;
mod messages;
mod mutants;
mod no_debt;
mod nodes;
mod sfq;
mod vc_total;
mod world;
