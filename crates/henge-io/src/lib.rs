//! Small files that outlive a crash: replaced as wholes ([`replace`], [`prepare`]), and a number that grows with each start ([`epoch`]).
//! Descriptors that outlive the program: [`anew`]. And threads that give way to those that serve disks: [`give_way`].

pub mod anew;
mod background;
mod epoch;
mod replace;

pub use background::give_way;
pub use epoch::{LIFE, epoch};
pub use replace::{Prepared, make_directory, prepare, replace};
