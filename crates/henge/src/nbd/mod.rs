//! A client of NBD servers for load generators: the demo's, and `henge trace replay`.

mod connection;
mod load;
mod uri;

pub use connection::Connection;
pub use load::{Clock, Load, Sent};
pub use uri::Uri;
