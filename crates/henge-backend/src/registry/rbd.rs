//! `rbd`: images of a Ceph pool.

use super::Kind;

pub(super) const KIND: Kind =
    Kind { key: "rbd", example: "rbd = { pool = \"henge\" }", read: crate::rbd::read };
