//! Small files that outlive a crash: replaced as wholes ([`replace`], [`prepare`]), and a number that grows with each start ([`epoch`]).

mod epoch;
mod replace;

pub use epoch::{LIFE, epoch};
pub use replace::{Prepared, make_directory, prepare, replace};
