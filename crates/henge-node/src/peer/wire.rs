//! Bytes for the peer, in order: messages of the link's machine, and those of parts and answers from where they lie.

use crate::links::Peer;
use crate::pump::CHUNK;
use crate::session::Slices;
use henge_backend::Buffer;
use henge_core::{Duration, Instant, RequestId};
use henge_link::{Link, Message};
use std::collections::VecDeque;

/// Parts are handed to the socket while less than this is waiting for it: what is not handed over can be given up.
const BACKLOG: usize = 2 << 20;
/// Bytes of messages that may wait for the socket: all that a peer which reads can be owed at once is a third of it.
const TEXT_MAX: usize = 16 << 20;
/// A peer that takes nothing for so long is given up, as one that says nothing is.
const STUCK_MAX: Duration = Duration::from_secs(4);

/// A stretch of the bytes for the peer.
pub(super) enum Piece {
    /// Of the link's own messages.
    Text(usize),
    /// Of a part of ours: its number, and which of its bytes come next.
    Part { id: RequestId, at: usize, len: usize },
    /// Of a read that was served here.
    Answer { owner: usize, frame: Buffer, at: usize, len: usize },
}

/// The link's machine, and the bytes that wait for the socket.
pub(super) struct Wire {
    pub link: Link,
    pieces: VecDeque<Piece>,
    /// Bytes of the machine's output that are in `pieces`, and of those, written.
    texts: usize,
    head: usize,
    backlog: usize,
    /// Since when something waits and the socket has taken nothing, as far as that was looked at.
    stuck_since: Option<Instant>,
}

impl Wire {
    pub(super) fn new(link: Link) -> Wire {
        Wire { link, pieces: VecDeque::new(), texts: 0, head: 0, backlog: 0, stuck_since: None }
    }

    /// Puts a message behind all others. Its `bytes` are not copied: they are pushed next.
    pub(super) fn send(&mut self, message: &Message, bytes: &[u8], now: Instant) {
        self.link.send(message, bytes, now);
        self.text();
    }

    /// Messages that the machine has made since stand behind all others.
    pub(super) fn text(&mut self) {
        let len = self.link.output().len();
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

    /// The bytes of a part of ours, or of an answer, behind its message.
    pub(super) fn push(&mut self, piece: Piece) {
        let (Piece::Text(len) | Piece::Part { len, .. } | Piece::Answer { len, .. }) = piece;
        self.backlog += len;
        self.pieces.push_back(piece);
    }

    /// Whether more parts may be handed over.
    pub(super) fn takes_parts(&self) -> bool {
        self.backlog < BACKLOG
    }

    /// Why a peer that takes too little of what it is told is to be given up, if it is.
    pub(super) fn overflow(&self) -> Option<String> {
        let waiting = self.texts - self.head;
        (waiting > TEXT_MAX)
            .then(|| format!("the other node does not read: {} MiB of messages wait for it", waiting >> 20))
    }

    /// Whether the peer has taken nothing for too long of what waits for it.
    pub(super) fn is_stuck(&mut self, now: Instant) -> bool {
        if self.pieces.is_empty() {
            self.stuck_since = None;
            return false;
        }
        now.since(*self.stuck_since.get_or_insert(now)) >= STUCK_MAX
    }

    pub(super) fn has_output(&self) -> bool {
        !self.pieces.is_empty() || self.texts > 0
    }

    /// The bytes, in order. `peer` has those of parts.
    pub(super) fn pieces<'a>(&'a mut self, peer: Option<&'a Peer>, out: &mut Slices<'_, 'a>) {
        let text = &self.link.output()[..];
        let mut at_text = self.head;
        for piece in &self.pieces {
            let more = out.push(match piece {
                Piece::Text(len) => {
                    at_text += len;
                    &text[at_text - len..at_text]
                }
                Piece::Part { id, at, len } => {
                    let peer = peer.expect("parts are written on established links");
                    &peer.in_flight.loan(*id)[*at..at + len]
                }
                Piece::Answer { frame, at, len, .. } => &frame[*at..at + len],
            });
            if !more {
                return;
            }
        }
    }

    /// So many bytes are in the socket. Hears of each piece that is there as a whole.
    pub(super) fn passed_on(&mut self, mut n: usize, mut whole: impl FnMut(Piece)) {
        self.backlog -= n;
        self.stuck_since = None;
        while n > 0 {
            let piece = self.pieces.front_mut().expect("no more is written than was there");
            let (Piece::Text(len) | Piece::Part { len, .. } | Piece::Answer { len, .. }) = piece;
            let part = n.min(*len);
            *len -= part;
            n -= part;
            let is_whole = *len == 0;
            match piece {
                Piece::Text(_) => self.head += part,
                Piece::Part { at, .. } | Piece::Answer { at, .. } => *at += part,
            }
            if !is_whole {
                break;
            }
            self.pieces.pop_front().into_iter().for_each(&mut whole);
        }
        if self.head == self.texts {
            self.link.output().clear();
            (self.head, self.texts) = (0, 0);
        } else if self.head > CHUNK {
            self.link.output().drain(..self.head);
            self.texts -= self.head;
            self.head = 0;
        }
    }

    /// Nothing of it is written any more.
    pub(super) fn take_pieces(&mut self) -> VecDeque<Piece> {
        std::mem::take(&mut self.pieces)
    }
}
