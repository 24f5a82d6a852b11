//! `nbd`: exports of NBD servers.

use super::Kind;

pub(super) const KIND: Kind =
    Kind { key: "nbd", example: "nbd = { uri = \"nbd://10.0.0.5/vm\" }", read: crate::nbd::read };
