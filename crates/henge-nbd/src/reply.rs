//! Replies (proto: "Simple reply message", "Structured reply chunk message").
//!
//! With structured replies negotiated, a READ and a BLOCK_STATUS are answered by chunks, everything that fails by an
//! error chunk with a message, and everything else by a simple reply, which is shorter.

use crate::command::Wrong;
use crate::proto::{
    BASE_ALLOCATION_ID, Error, Put, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRING_MAX,
    STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::windows::Later;
use crate::{CommandKind, Output, Session};
use henge_core::{Fault, RequestId};

/// Most extents in one reply; the client asks again for what follows.
const EXTENTS_MAX: usize = 4096;

/// A stretch of what was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Bytes.
    pub len: u32,
    /// It reads as zeroes, and need not be sent. The buffer holds zeroes there nevertheless.
    pub hole: bool,
}

/// A stretch of the export with one status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes; not zero.
    pub len: u32,
    /// Not allocated.
    pub hole: bool,
    /// Reads as zeroes.
    pub zero: bool,
}

impl Extent {
    /// The status flags of `base:allocation`.
    pub fn flags(&self) -> u32 {
        (if self.hole { STATE_HOLE } else { 0 }) | (if self.zero { STATE_ZERO } else { 0 })
    }
}

/// How a command went.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// Well; a read's bytes are all in its buffer.
    Done,
    /// A read went well, and these are its pieces, in order.
    Pieces(&'a [Piece]),
    /// The status of the range, from its first byte on; at least one extent.
    Extents(&'a [Extent]),
    /// The storage failed.
    Fault(Fault),
    /// Badly, with a reason for people.
    Failed(Error, &'a str),
}

impl Session {
    /// Answers a command. True if its buffer is needed until [`written`](Self::written) names it; otherwise the
    /// command's name is free at once.
    ///
    /// # Panics
    /// When it is not in flight or was answered before.
    pub fn reply(&mut self, id: RequestId, answer: Answer<'_>) -> bool {
        let open = self.commands.get_mut(id).expect("a command is answered while it is in flight");
        assert!(!std::mem::replace(&mut open.replied, true), "a command is answered once");
        let (cookie, command) = (open.cookie, open.command);
        let read = matches!(command.kind, CommandKind::Read { .. });
        let structured = self.handshake.structured;
        let out = &mut self.out;
        let kept = match answer {
            Answer::Fault(fault) => {
                self.fault(cookie, command.kind, fault);
                false
            }
            Answer::Failed(error, why) => {
                self.failed(cookie, error, why);
                false
            }
            Answer::Pieces(pieces)
                if read && structured && command.kind == (CommandKind::Read { df: false }) =>
            {
                read_pieces(out, id, cookie, command.offset, command.len, pieces)
            }
            Answer::Extents(extents) => {
                status(out, cookie, extents, command.kind, command.len);
                false
            }
            // What is not known is allocated data.
            Answer::Done if matches!(command.kind, CommandKind::BlockStatus { .. }) => {
                let extent = Extent { len: command.len, hole: false, zero: false };
                status(out, cookie, &[extent], command.kind, command.len);
                false
            }
            Answer::Done | Answer::Pieces(_) if read => {
                if structured {
                    read_whole(out, id, cookie, command.offset, command.len);
                } else if self.alone.is_some() && command.len > 0 {
                    self.later.push_back(Later::Read(id));
                } else if command.len == 0 {
                    self.brief(cookie, 0);
                } else {
                    simple(out, cookie, 0);
                    out.payload(id, 0, command.len as usize, true);
                }
                command.len > 0
            }
            Answer::Done | Answer::Pieces(_) => {
                self.brief(cookie, 0);
                false
            }
        };
        if !kept {
            self.release(id);
        }
        kept
    }

    /// Answers a request that never became a command.
    pub(crate) fn wrong(&mut self, cookie: u64, (error, why): Wrong) {
        self.failed(cookie, error, why);
    }

    pub(crate) fn fault(&mut self, cookie: u64, kind: CommandKind, fault: Fault) {
        let error = match (kind, fault) {
            (CommandKind::WriteZeroes { fast: true, .. }, Fault::Unsupported) => Error::NotSupported,
            (CommandKind::Write | CommandKind::WriteZeroes { .. }, Fault::OutOfRange) => Error::NoSpace,
            _ => fault.into(),
        };
        let why = match fault {
            Fault::Io => "input/output error",
            Fault::NoSpace => "no space left",
            Fault::Unsupported => "operation not supported",
            Fault::OutOfRange => "beyond the end of the device",
            Fault::Unreachable => "node unreachable",
            Fault::Cancelled => "cancelled",
        };
        self.failed(cookie, error, why);
    }

    /// A simple reply without bytes, now or when the one that is under way is whole.
    fn brief(&mut self, cookie: u64, error: u32) {
        match self.alone {
            Some(_) => self.later.push_back(Later::Simple(cookie, error)),
            None => simple(&mut self.out, cookie, error),
        }
    }

    fn failed(&mut self, cookie: u64, error: Error, why: &str) {
        if !self.handshake.structured {
            return self.brief(cookie, error.code());
        }
        let why = &why[..why.floor_char_boundary(STRING_MAX)];
        self.out.bytes(|b| {
            chunk_header(b, cookie, chunk::FLAG_DONE, chunk::ERROR, 6 + why.len() as u32);
            b.u32(error.code());
            b.u16(why.len() as u16);
            b.raw(why.as_bytes());
        });
    }
}

pub(crate) fn simple(out: &mut Output, cookie: u64, error: u32) {
    let mut reply = [0; 16];
    reply[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply[4..8].copy_from_slice(&error.to_be_bytes());
    reply[8..].copy_from_slice(&cookie.to_be_bytes());
    out.bytes(|b| b.raw(&reply));
}

pub(crate) fn chunk_header(b: &mut Vec<u8>, cookie: u64, flags: u16, kind: u16, len: u32) {
    let mut header = [0; 20];
    header[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&flags.to_be_bytes());
    header[6..8].copy_from_slice(&kind.to_be_bytes());
    header[8..16].copy_from_slice(&cookie.to_be_bytes());
    header[16..].copy_from_slice(&len.to_be_bytes());
    b.raw(&header);
}

/// One content chunk. It may be the final one, since nothing can fail any more: the bytes are in the buffer.
fn read_whole(out: &mut Output, id: RequestId, cookie: u64, offset: u64, len: u32) {
    if len == 0 {
        return out.bytes(|b| chunk_header(b, cookie, chunk::FLAG_DONE, chunk::NONE, 0));
    }
    out.bytes(|b| {
        chunk_header(b, cookie, chunk::FLAG_DONE, chunk::OFFSET_DATA, len + 8);
        b.u64(offset);
    });
    out.payload(id, 0, len as usize, true);
}

/// A chunk per piece; whether any of them needs the buffer.
fn read_pieces(
    out: &mut Output,
    id: RequestId,
    cookie: u64,
    offset: u64,
    len: u32,
    pieces: &[Piece],
) -> bool {
    assert_eq!(
        pieces.iter().map(|p| u64::from(p.len)).sum::<u64>(),
        u64::from(len),
        "pieces make up the read"
    );
    let last_data = pieces.iter().rposition(|p| !p.hole && p.len > 0);
    let mut at = 0;
    for (i, piece) in pieces.iter().enumerate().filter(|(_, p)| p.len > 0) {
        let start = offset + at;
        if piece.hole {
            out.bytes(|b| {
                chunk_header(b, cookie, 0, chunk::OFFSET_HOLE, 12);
                b.u64(start);
                b.u32(piece.len);
            });
        } else {
            out.bytes(|b| {
                chunk_header(b, cookie, 0, chunk::OFFSET_DATA, piece.len + 8);
                b.u64(start);
            });
            out.payload(id, at, piece.len as usize, Some(i) == last_data);
        }
        at += u64::from(piece.len);
    }
    out.bytes(|b| chunk_header(b, cookie, chunk::FLAG_DONE, chunk::NONE, 0));
    last_data.is_some()
}

fn status(out: &mut Output, cookie: u64, extents: &[Extent], kind: CommandKind, len: u32) {
    let CommandKind::BlockStatus { one } = kind else { panic!("extents answer a block status") };
    assert!(extents.iter().all(|e| e.len > 0) && !extents.is_empty(), "a status has extents of some length");
    let extents = &extents[..if one { 1 } else { extents.len().min(EXTENTS_MAX) }];
    out.bytes(|b| {
        chunk_header(b, cookie, chunk::FLAG_DONE, chunk::BLOCK_STATUS, 4 + 8 * extents.len() as u32);
        b.u32(BASE_ALLOCATION_ID);
        for extent in extents {
            // With REQ_ONE the extent may not reach beyond the request.
            b.u32(if one { extent.len.min(len) } else { extent.len });
            b.u32(extent.flags());
        }
    });
}
