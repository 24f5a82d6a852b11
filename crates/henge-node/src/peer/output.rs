//! Bytes to the peer: messages, and the bytes of parts and answers from where they lie.

use super::{PeerLink, Piece};
use crate::plane::Plane;
use crate::pump::CHUNK;
use crate::session::Slices;
use henge_core::Instant;
use henge_link::Message;

/// Parts are handed to the socket while less than this is waiting for it: what is not handed over can be given up.
pub(super) const BACKLOG: usize = 2 << 20;

impl PeerLink {
    /// What the wire has said since stands behind what is to be written.
    pub(super) fn text(&mut self) {
        let len = self.wire.output().len();
        let grown = len - self.texts;
        if grown == 0 {
            return;
        }
        self.texts = len;
        self.backlog += grown;
        match self.pieces.back_mut() {
            Some(Piece::Text(text)) => *text += grown,
            _ => self.pieces.push_back(Piece::Text(grown)),
        }
    }

    /// Takes what the node has to say to this peer, as much as is sensible now.
    pub(super) fn fill(&mut self, plane: &mut Plane, now: Instant) {
        let Some(peer) = self.peer else { return };
        if plane.links.peers[peer].is_none() {
            return self.end("the node was told to forget this peer");
        }
        while let Some(message) = plane.links.peer(peer).messages.pop_front() {
            self.wire.send(&message, &[], now);
        }
        self.text();
        while self.backlog < BACKLOG {
            let Some((id, part, data)) = plane.next_part_for(peer) else { break };
            let bytes = if data > 0 { &plane.links.peer(peer).loan(id)[..data] } else { &[] };
            self.wire.send(&Message::Part(part), bytes, now);
            self.text();
            if data > 0 {
                self.backlog += data;
                self.pieces.push_back(Piece::Part { id, at: 0, len: data });
            }
        }
    }

    /// What is to be written, in order.
    pub(super) fn pieces<'a>(&'a mut self, plane: &'a mut Plane, out: &mut Slices<'_, 'a>) {
        let text = &self.wire.output()[..];
        let mut at_text = self.head;
        let peer = self.peer.and_then(|p| plane.links.peers[p].as_ref());
        for piece in &self.pieces {
            let more = out.push(match piece {
                Piece::Text(len) => {
                    at_text += len;
                    &text[at_text - len..at_text]
                }
                Piece::Part { id, at, len } => {
                    let peer = peer.expect("parts are written on established links");
                    &peer.loan(*id)[*at..at + len]
                }
                Piece::Answer { frame, at, len, .. } => &frame[*at..at + len],
            });
            if !more {
                return;
            }
        }
    }

    /// So many bytes are in the socket.
    pub(super) fn passed_on(&mut self, mut n: usize, plane: &mut Plane) {
        self.backlog -= n;
        while n > 0 {
            let piece = self.pieces.front_mut().expect("no more is written than was there");
            let (Piece::Text(len) | Piece::Part { len, .. } | Piece::Answer { len, .. }) = piece;
            let part = n.min(*len);
            *len -= part;
            n -= part;
            let whole = *len == 0;
            match piece {
                Piece::Text(_) => self.head += part,
                Piece::Part { at, .. } | Piece::Answer { at, .. } => *at += part,
            }
            if !whole {
                break;
            }
            match self.pieces.pop_front() {
                Some(Piece::Part { id, .. }) => {
                    let peer = self.peer.expect("parts are written on established links");
                    plane.links.peer(peer).written(id);
                }
                Some(Piece::Answer { owner, frame, .. }) => plane.put_buffer(owner, frame),
                _ => {}
            }
        }
        if self.head == self.texts {
            self.wire.output().clear();
            (self.head, self.texts) = (0, 0);
        } else if self.head > CHUNK {
            self.wire.output().drain(..self.head);
            self.texts -= self.head;
            self.head = 0;
        }
    }
}
