//! Hosts come by NVMe, are looked at, and hear of each other.

use super::Server;
use crate::client::Client;
use crate::nvme::host::Host;
use henge_core::RequestId;

/// Ends connections that become no queue, and controllers whose host is silent; a bounded number at a time.
pub(super) fn look_at_hosts(server: &mut Server) {
    for id in server.registry.nvme.look(server.now) {
        with_host(server, id, |host, server| {
            host.session.tick(&mut server.registry.nvme.subsystems, server.now);
        });
    }
}

/// Delivers what queues have for each other, and what their proofs waited for. Whether there was something to deliver.
pub(super) fn poke_hosts(server: &mut Server) -> bool {
    let mut any = false;
    while let Some((id, (task, power))) = server.registry.nvme.powers.next() {
        any = true;
        with_host(server, id, |host, server| {
            host.session.derived(&mut server.registry.nvme.subsystems, task, power);
        });
    }
    while let Some(id) = server.registry.nvme.next_poked() {
        any = true;
        with_host(server, id, |host, server| host.session.poke(&mut server.registry.nvme.subsystems));
    }
    any
}

/// Does something with a host's session, and then what it wants done.
fn with_host(server: &mut Server, id: RequestId, what: impl FnOnce(&mut Host, &mut Parts<'_>)) {
    let Some(host) = server.clients.all.get_mut(id).and_then(Client::session::<Host>) else { return };
    what(host, &mut Parts { registry: &mut server.registry, now: server.now });
    host.pump(id, &mut server.plane, &mut server.registry.nvme, server.now);
    server.mark(id);
}

/// The parts of the server that a session needs.
struct Parts<'a> {
    registry: &'a mut crate::targets::TargetRegistry,
    now: henge_core::Instant,
}
