//! Small files that outlive a crash: replaced as wholes ([`replace`], [`prepare`]), and a number that grows with each start ([`epoch`]).
//! Descriptors that outlive the program: [`anew`]. And who has a processor first:
//! [`give_way`], [`short_turns`].

pub mod anew;
mod epoch;
mod priority;
mod replace;

pub use epoch::{LIFE, epoch};
pub use priority::{give_way, short_turns};
pub use replace::{Prepared, make_directory, prepare, replace};
