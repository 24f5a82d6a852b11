//! Reads that are answered window by window, so that nobody has to hold all of one at once.
//!
//! With structured replies each window is a chunk of its own. A simple reply is one stretch of bytes behind its header, so nothing else may
//! be said until it is over: other replies wait. Where such a read fails after its header was sent, the connection has to end (proto:
//! "Simple reply message": the server must close it then, since the header has said that all is well).

use crate::proto::{Put, chunk};
use crate::reply::{chunk_header, simple};
use crate::session::State;
use crate::{Answer, CommandKind, Session};
use henge_core::{Fault, RequestId};

/// A reply that waits until another one is whole.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Later {
    /// A header alone: cookie and error.
    Simple(u64, u32),
    /// A read whose bytes are all in its buffer.
    Read(RequestId),
}

impl Session {
    /// Whether a read may be answered in windows: not one that the client wants in one piece.
    pub fn may_cut(&self, kind: CommandKind) -> bool {
        !(self.handshake.structured && kind == CommandKind::Read { df: true })
    }

    /// Whether a window of this read may be sent now: another one may have to be whole first.
    pub fn may_send(&self, id: RequestId) -> bool {
        self.alone.is_none_or(|alone| alone == id)
    }

    /// The next `len` bytes of a read are in a buffer, which is needed until [`written`](Self::written) names the read. With the last of
    /// its windows it is answered, and its name is free once that is written.
    ///
    /// # Panics
    /// When the command is not in flight, may not send, or has fewer than `len` bytes left.
    pub fn window(&mut self, id: RequestId, len: u32) {
        assert!(len > 0 && self.may_send(id), "a window has bytes, and comes when it may");
        let structured = self.handshake.structured;
        let open = self.commands.get_mut(id).expect("a read in flight");
        let (cookie, command, at) = (open.cookie, open.command, open.sent);
        assert!(!open.replied && len <= command.len - at, "windows make up the read");
        open.sent += len;
        let over = open.sent == command.len;
        open.replied = over;
        if structured {
            let flags = if over { chunk::FLAG_DONE } else { 0 };
            self.out.bytes(|b| {
                chunk_header(b, cookie, flags, chunk::OFFSET_DATA, len + 8);
                b.u64(command.offset + u64::from(at));
            });
        } else if at == 0 {
            simple(&mut self.out, cookie, 0);
            self.alone = Some(id);
        }
        self.out.window(id, u64::from(at), len as usize, over);
        if over && !structured {
            self.alone = None;
            self.catch_up();
        }
    }

    /// A read has failed, some windows of which may have been sent. False when the connection can only be closed.
    ///
    /// # Panics
    /// When it is not in flight.
    pub fn window_failed(&mut self, id: RequestId, fault: Fault) -> bool {
        let open = self.commands.get(id).expect("a read in flight");
        let (cookie, kind, sent) = (open.cookie, open.command.kind, open.sent);
        if sent == 0 {
            self.reply(id, Answer::Fault(fault));
        } else if self.handshake.structured {
            self.fault(cookie, kind, fault);
            self.release(id);
        } else {
            self.state = State::Closed;
            return false;
        }
        true
    }

    /// Says what had to wait.
    fn catch_up(&mut self) {
        while let Some(later) = self.later.pop_front() {
            match later {
                Later::Simple(cookie, error) => simple(&mut self.out, cookie, error),
                Later::Read(id) => {
                    let open = self.commands.get(id).expect("a reply that waits keeps its command");
                    let (cookie, len) = (open.cookie, open.command.len as usize);
                    simple(&mut self.out, cookie, 0);
                    self.out.payload(id, 0, len, true);
                }
            }
        }
    }
}
