//! Small files that outlive a crash: replaced as wholes ([`replace`], [`prepare`]), and a number that grows with each start ([`epoch`]).
//! And descriptors that outlive the program: [`anew`].

pub mod anew;
mod epoch;
mod replace;

pub use epoch::{LIFE, epoch};
pub use replace::{Prepared, make_directory, prepare, replace};
