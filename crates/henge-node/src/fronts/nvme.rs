//! Hosts by NVMe over TCP. The session is `nvme/host.rs`; `nvme.rs` has the subsystems, and `nvme/access.rs` reads who may use a disk.

use super::{Arrival, Front};
use crate::front::{Kind, Local, Scheme};
use crate::link::whom;
use crate::nvme;
use crate::nvme::host::Host;
use crate::pump::Pump;
use crate::session::Moves;
use std::sync::Arc;

pub(super) const FRONT: Front = Front { kind: &KIND, arrive };

static KIND: Kind = Kind {
    key: "nvme",
    schemes: &[Scheme {
        example: "\"nvme://127.0.0.1:4420\"",
        attaches: true,
        ..Scheme::tcp("nvme", henge_nvme::PORT, show)
    }],
    asks: true,
    may_be_tls: false,
    door: |p| Ok(Arc::new(nvme::access(p)?)),
    risk: |_, host, _, disk| {
        disk.map(|disk| {
            format!("nvme://{host}: whoever reaches it uses disk {disk}, which has no nvme = {{ secret_file = … }}, for a name proves nothing")
        })
    },
    demand: Some(
        "other machines reach this node by NVMe, so the disk says how hosts prove who they are: nvme = { secret_file = … }",
    ),
};

fn show(at: &Local, host: Option<&str>, disk: &str) -> String {
    match (at, host) {
        (Local::Tcp(at), Some(host)) => nvme::connect(host, at.port(), disk),
        (Local::Tcp(at), None) => nvme::connect_to(at, disk),
        (Local::Unix(path), _) => path.display().to_string(),
    }
}

fn arrive(arrival: Arrival<'_, '_>) -> Option<Box<dyn Moves>> {
    let around = arrival.around;
    // The address that the socket says, which a host has to name.
    let at = rustix::net::getsockname(arrival.fd).ok()?;
    let at = std::net::SocketAddr::try_from(at).ok()?;
    let here = (at.ip().to_canonical().to_string(), at.port().to_string());
    Some(Box::new(Pump::new(Host::arrive(here, arrival.from.map(whom), around)?)))
}
