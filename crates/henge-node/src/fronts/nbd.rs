//! Clients by NBD, over TCP, TLS and Unix sockets. The session is `connection.rs`; `access.rs` reads who may use a disk.

use super::{Arrival, Front};
use crate::access;
use crate::connection::Connection;
use crate::front::{Kind, Listen, Local, Scheme};
use crate::pump::Pump;
use crate::session::Moves;
use henge_nbd::Tls;
use std::sync::Arc;

pub(super) const FRONT: Front = Front { kind: &KIND, arrive };

static KIND: Kind = Kind {
    key: "nbd",
    schemes: &[
        Scheme {
            name: "nbds",
            port: Some(10809),
            tls: Tls::Require,
            example: "\"nbds://10.0.0.5:10809\" (with TLS)",
            show: |at, host, disk| format!("nbds://{}/{disk}", at.text(host)),
            attaches: false,
        },
        Scheme {
            example: "\"nbd://127.0.0.1:10809\"",
            ..Scheme::tcp("nbd", 10809, |at, host, disk| format!("nbd://{}/{disk}", at.text(host)))
        },
        Scheme {
            name: "nbd+unix",
            port: None,
            tls: Tls::No,
            example: "\"nbd+unix:///run/henge/nbd.sock\"",
            show: |at, _, disk| format!("nbd+unix:///{disk}?socket={}", at.text(None)),
            attaches: false,
        },
    ],
    may_be_tls: true,
    door: |p| Ok(Arc::new(access::nbd(p)?)),
    risk,
    ..Kind::OPEN
};

fn risk(listen: &Listen, host: &str, proves: bool, _: Option<&str>) -> Option<String> {
    match listen.tls {
        Tls::No => Some(format!(
            "nbd://{host}: whoever reaches it uses every disk that NBD shows, for it asks nobody who they are"
        )),
        Tls::Require if !proves => Some(format!(
            "nbds://{host}: whoever reaches it uses every disk that NBD shows, for tls names no ca whose certificates clients need"
        )),
        Tls::Require => None,
        Tls::Allow => Some(format!(
            "nbd://{host}: whoever reaches it uses every disk that is anyone's, for it allows TLS and does not require it"
        )),
    }
}

fn arrive(arrival: Arrival<'_, '_>) -> Option<Box<dyn Moves>> {
    let Arrival { fd, address, tls: (mode, tls), limits, around, .. } = arrival;
    // TCP does not say whose process it is.
    let credentials = rustix::net::sockopt::socket_peercred(fd).ok();
    let by_unix = matches!(address.at, Local::Unix(_));
    let user = credentials.filter(|_| by_unix).map(|who| who.uid.as_raw());
    let connection = Connection::new(user, limits, around.now).with_tls(mode, tls);
    Some(Box::new(Pump::new(connection)))
}
