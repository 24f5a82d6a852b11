//! The front ends: by what protocols clients come. Each is files of its own and one line of `fronts!`.

use crate::front::{Address, Kind, Scheme};
use crate::session::{Around, Moves};
use henge_nbd::Limits;
use henge_tls::Tls;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

macro_rules! fronts {
    ($($(#[$when:meta])* $name:ident,)*) => {
        $($(#[$when])* mod $name;)*
        /// All of them.
        pub(crate) static FRONTS: &[Front] = &[$($(#[$when])* $name::FRONT,)*];
    };
}

// One line each: `name` is the file `fronts/name.rs`, which has a `FRONT`.
fronts! {
    nbd,
    iscsi,
    nvme,
    #[cfg(test)] lines,
}

/// A front end.
pub(crate) struct Front {
    pub kind: &'static Kind,
    /// A client has come: the session that it speaks with, in a pump. None where the system gives no randomness.
    pub arrive: fn(Arrival<'_, '_>) -> Option<Box<dyn Moves>>,
}

/// A client that has come.
pub(crate) struct Arrival<'a, 'b> {
    pub fd: &'a OwnedFd,
    /// From which address, by TCP.
    pub from: Option<IpAddr>,
    /// To which address.
    pub address: &'a Address,
    /// Whether it speaks TLS, and with which certificates.
    pub tls: (henge_nbd::Tls, Option<Arc<Tls>>),
    pub limits: Limits,
    pub around: &'a mut Around<'b>,
}

/// What the configuration needs to know of them.
pub(crate) fn kinds() -> Vec<&'static Kind> {
    FRONTS.iter().map(|front| front.kind).collect()
}

/// The keys of a disk's table that say who may come.
pub fn door_keys() -> impl Iterator<Item = &'static str> {
    FRONTS.iter().map(|front| front.kind.key)
}

/// Whose scheme it is.
pub(crate) fn of(scheme: &Scheme) -> Option<&'static Front> {
    FRONTS.iter().find(|front| front.kind.schemes.contains(scheme))
}
