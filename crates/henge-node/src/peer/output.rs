//! Bytes to the peer: the node hands its messages and parts to the wire, and hears of those that are written.

use super::PeerLink;
use super::wire::Piece;
use crate::plane::Plane;
use henge_core::Instant;
use henge_link::Message;

impl PeerLink {
    /// Takes what the node has to say to this peer, as much as is sensible now.
    pub(super) fn fill(&mut self, plane: &mut Plane, now: Instant) {
        let Some(peer) = self.peer else { return };
        if plane.links.peers[peer].is_none() {
            return self.end("the node was told to forget this peer");
        }
        while let Some(message) = plane.links.peer(peer).outgoing.messages.pop_front() {
            self.wire.send(&message, &[], now);
        }
        while self.wire.takes_parts() {
            let Some((id, part, data)) = plane.next_part_for(peer) else { break };
            let bytes = if data > 0 { &plane.links.peer(peer).in_flight.loan(id)[..data] } else { &[] };
            self.wire.send(&Message::Part(part), bytes, now);
            if data > 0 {
                self.wire.push(Piece::Part { id, at: 0, len: data });
            }
        }
    }

    /// So many bytes are in the socket.
    pub(super) fn passed_on(&mut self, n: usize, plane: &mut Plane) {
        let peer = self.peer;
        self.wire.passed_on(n, |whole| match whole {
            Piece::Part { id, .. } => {
                let peer = peer.expect("parts are written on established links");
                plane.links.peer(peer).in_flight.written(id);
            }
            Piece::Answer { owner, frame, .. } => plane.put_buffer(owner, frame),
            Piece::Text(_) => {}
        });
    }
}
