//! Hosts come by NVMe, are looked at, and hear of each other.

use super::Server;
use crate::client::{Client, Link};
use crate::nvme::Host;
use henge_core::RequestId;
use henge_nvme::{Limits, Session};
use std::os::fd::OwnedFd;

impl Server {
    /// A new connection of a host, which came to the address that its socket says; none when the system does not say, or gives no randomness.
    pub(super) fn host(&mut self, fd: OwnedFd) -> Option<Host> {
        let at = rustix::net::getsockname(&fd).ok()?;
        let at = std::net::SocketAddr::try_from(at).ok()?;
        let here = (at.ip().to_canonical().to_string(), at.port().to_string());
        let mut seed = [0; 32];
        let got = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        if got != Ok(seed.len()) {
            return None;
        }
        let subsystems = &mut self.portal.nvme.subsystems;
        let session = Session::new(subsystems, Limits::default(), here, seed, self.now);
        Some(Host::new(Link::new(fd), session))
    }

    /// Ends connections that become no queue, and controllers whose host is silent; a bounded number at a time.
    pub(super) fn look_at_hosts(&mut self) {
        for id in self.portal.nvme.look(self.now) {
            self.with_host(id, |host, server| {
                host.session.tick(&mut server.portal.nvme.subsystems, server.now);
            });
        }
    }

    /// Delivers what queues have for each other, and what their proofs waited for. Whether there was something to deliver.
    pub(super) fn poke_hosts(&mut self) -> bool {
        let mut any = false;
        while let Some((id, task, power)) = self.portal.nvme.powers.next() {
            any = true;
            self.with_host(id, |host, server| {
                host.session.derived(&mut server.portal.nvme.subsystems, task, power);
            });
        }
        while let Some(id) = self.portal.nvme.next_poked() {
            any = true;
            self.with_host(id, |host, server| host.session.poke(&mut server.portal.nvme.subsystems));
        }
        any
    }

    /// Does something with a host's session, and then what it wants done.
    fn with_host(&mut self, id: RequestId, what: impl FnOnce(&mut Host, &mut Parts<'_>)) {
        let Some(Client::Nvme(host)) = self.connections.get_mut(id) else { return };
        what(host, &mut Parts { portal: &mut self.portal, now: self.now });
        host.pump(id, &mut self.plane, &mut self.portal.nvme, self.now);
        self.mark(id);
    }
}

/// The parts of the server that a session needs.
struct Parts<'a> {
    portal: &'a mut crate::portal::Portal,
    now: henge_core::Instant,
}
