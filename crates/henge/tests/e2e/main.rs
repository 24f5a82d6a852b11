//! The real command, the real sockets, and other people's clients.
//!
//! A test whose tool is missing is skipped by name: `skipped: NAME needs TOOL`.

mod clients;
mod contracts;
mod filesystem;
mod late;
mod live;
mod managers;
mod pools;
#[path = "../../../henge-manager/src/store/ports.rs"]
mod ports;
mod priorities;
mod profile;
mod recorded;
mod reload;
mod striping;
mod support;
mod trace;
mod wrong;
mod zeroes;
