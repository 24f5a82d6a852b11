//! Handshakes by TLS, whose steps are taken beside the loop: whoever is served does not wait for strangers' signatures.

use super::Server;
use henge_core::RequestId;
use henge_tls::Shake;

/// Has a step of a connection's handshake taken. False when nobody can: then the connection is gone.
pub(super) fn begin(server: &mut Server, id: RequestId, shake: Shake) -> bool {
    let from = server.clients.all.get(id).and_then(|client| client.link.from);
    let begun = server.clients.shakes.begin(from, id, shake);
    if !begun {
        server.drop_connection(id);
    }
    begun
}

/// Connections whose step was taken go on, by turns as when something has come.
pub(super) fn bring_back(server: &mut Server) {
    while let Some((id, shaken)) = server.clients.shakes.next() {
        let Some(client) = server.clients.all.get_mut(id) else { continue };
        client.link.stream.shaken(shaken);
        // What came meanwhile was not looked at.
        client.link.readable = true;
        server.want(id, crate::turns::Way::In);
        server.mark(id);
    }
}
