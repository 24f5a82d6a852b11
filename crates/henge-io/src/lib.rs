//! Small files that outlive a crash: replaced as wholes ([`replace`], [`prepare`]), and a number that grows with each start ([`epoch`]). Small files
//! that people write ([`read`], [`read_text`], [`read_secret`]).
//! Descriptors that outlive the program: [`anew`]. Who has a processor first: [`give_way`], [`go_before_workers`]; and for how little it is not
//! woken: [`wake_at`]. Sockets that encrypt: [`kernel_tls`].

pub mod anew;
mod epoch;
pub mod kernel_tls;
mod priority;
mod read;
mod replace;
mod wake;

pub use epoch::{LIFE, epoch};
pub use priority::{give_some_way, give_way, go_before_workers};
pub use read::{read, read_secret, read_text};
pub use replace::{Prepared, make_directory, prepare, replace};
pub use wake::wake_at;
