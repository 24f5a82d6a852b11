//! Initiators by iSCSI. The session is `initiator.rs`; `targets.rs` has the targets, and `access.rs` reads who may log in.

use super::{Arrival, Front};
use crate::access;
use crate::front::{Kind, Scheme};
use crate::initiator::Initiator;
use crate::pump::Pump;
use crate::session::Moves;
use crate::targets::PREFIX;
use std::sync::Arc;

pub(super) const FRONT: Front = Front { kind: &KIND, arrive };

static KIND: Kind = Kind {
    key: "iscsi",
    schemes: &[Scheme {
        example: "\"iscsi://127.0.0.1:3260\"",
        ..Scheme::tcp("iscsi", 3260, |at, host, disk| format!("iscsi://{}/{PREFIX}{disk}/0", at.text(host)))
    }],
    asks: true,
    may_be_tls: false,
    door: |p| Ok(Arc::new(access::access(p)?)),
    risk: |_, host, _, disk| {
        disk.map(|disk| {
            format!("iscsi://{host}: whoever reaches it logs in to disk {disk}, which has no iscsi = {{ user = …, secret_file = … }}")
        })
    },
    demand: Some(
        "other machines reach this node by iSCSI, so the disk says who may log in: iscsi = { user = …, secret_file = … }",
    ),
};

fn arrive(arrival: Arrival<'_, '_>) -> Option<Box<dyn Moves>> {
    Some(Box::new(Pump::new(Initiator::arrive(arrival.around)?)))
}
