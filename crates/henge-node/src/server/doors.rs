//! Who was let in and may stay no longer: the doors of a disk were changed, or a certificate counts no more.
//!
//! A certificate is looked at again whenever [`Tls::turn`](henge_tls::Tls::turn) has grown. A look takes a tenth of a millisecond, so
//! a turn of the loop looks at few connections, and the next one comes at once.

use super::{Server, around};
use crate::access::by_nbd;
use crate::client::Client;
use crate::connection::Connection;
use crate::operate;
use crate::server::moving;
use henge_api::Table;
use henge_core::RequestId;

/// Connections whose certificates are looked at in one turn.
const STEP: usize = 4;

/// Who may use a disk from now on. Sessions that came in by what was said before end.
pub(super) fn change_doors(server: &mut Server, name: &str, table: &Table) -> Result<(), String> {
    let (number, doors) = operate::doors(&server.plane, name, table)?;
    if server.work.is_leaving(number) {
        return Err(format!("\"{name}\" is being removed"));
    }
    let config = &mut server.plane.disks.of(number).config;
    let before = by_nbd(&config.doors);
    config.doors = doors;
    let (initiators, hosts) = (config.doors.of().cloned(), config.doors.of().cloned());
    let shown = |key| config.doors.shown_by(key);
    server.registry.set_access(number, initiators.unwrap_or_default(), shown("iscsi"));
    server.registry.nvme.set_access(number, hosts.unwrap_or_default(), shown("nvme"));
    let anew = by_nbd(&config.doors) != before;
    let doors = config.doors.clone();
    let theirs: Vec<RequestId> = server.clients.users_of(number).collect();
    for id in theirs {
        let ends =
            |client: &Client| !client.may_stay(&doors) || anew && client.seen::<Connection>().is_some();
        if server.clients.all.get(id).is_some_and(ends) {
            server.drop_connection(id);
        }
    }
    moving::publish(server, number);
    Ok(())
}

/// Ends connections whose certificates count no more, a few at a time.
pub(super) fn look_at_certificates(server: &mut Server) {
    let Some(tls) = &server.entrance.tls else { return };
    let turn = tls.turn();
    if turn != server.clients.looked.turn {
        server.clients.looked.turn = turn;
        let secure = |(_, client): &(RequestId, &Client)| client.link.stream.is_secure();
        server.clients.looked.left = server.clients.all.iter().filter(secure).map(|(id, _)| id).collect();
    }
    for _ in 0..STEP {
        let Some(id) = server.clients.looked.left.pop_front() else { return };
        let Some(client) = server.clients.all.get_mut(id) else { continue };
        if client.link.stream.look_again().is_err() {
            // What is at its disk is answered to nobody.
            client.write(around!(server, id));
            server.drop_connection(id);
        }
    }
}
