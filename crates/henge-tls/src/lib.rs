//! TLS 1.3 (RFC 8446), the certificates it rests on (RFC 5280), and who they name.
//!
//! | file | subject |
//! |---|---|
//! | `config` | `tls = { … }` and `identity = "…"` in a configuration |
//! | `files` | certificates, keys and lists of revoked ones, read from files |
//! | `server` | the end that is dialled: its certificate, whom it lets in, files that change |
//! | `client` | the end that dials: whom it takes for which role of a cluster |
//! | `channel` | one end of a connection, without a socket: `handshake` by rustls, then `records`, opened where they lie |
//! | `shake` | a step of a handshake, for another thread |
//! | `landing` | records of a payload, received and opened where their data belongs |
//! | `names` | the names of a certificate, and whether our own counts |
//! | `refusals` | why a connection came to nothing, and what to do |
//! | `folder` | what `henge join` writes, and what is renewed in it |
//! | `identity` | who somebody is in a cluster: a role and a name, as a URI |
//! | `authority` | a cluster's roots: certificates issued, revoked, and a root exchanged for another |
//! | `invitation` | one-time tokens by which somebody joins |
//! | `duplex` | a blocking TLS connection that one thread reads while others write |
//!
//! Cryptography is rustls' and ring's; certificates are written by rcgen and read by x509-parser. Nothing here opens a socket.

mod authority;
mod channel;
mod client;
mod config;
mod duplex;
mod files;
mod folder;
mod handshake;
mod identity;
mod invitation;
mod landing;
mod names;
mod records;
mod refusals;
mod server;
mod shake;

pub use authority::{
    IssueError, Issued, Pem, Request, Root, check_request, fingerprint, fingerprint_of, serial_of,
};
pub use channel::{Channel, Next};
pub use client::{Dial, DialError, root_of};
pub use config::TlsConfig;
pub use duplex::{Duplex, Half};
pub use files::{FileError, certificates, private_key};
pub use folder::{believe, counts, is_due, keep, signed_by, signer};
pub use handshake::Handshake;
pub use identity::{Identity, Role};
pub use invitation::{Token, TokenError};
pub use names::{Validity, names, validity};
pub use records::Order;
pub use refusals::{OncePerSecond, failure, of_tls, refusal};
pub use server::{Clients, Tls};
pub use shake::{Shake, Shaken};
