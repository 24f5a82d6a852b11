//! One end of a pair: its socket, what was read and not understood, and what waits to be written.

use crate::conduit::{Conduit, Pipe};
use crate::poller::Interest;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::TcpStream;

/// Read at once, and the largest message that must be seen whole (a configuration) with its header.
pub const INBOX: usize = 160 << 10;
/// Beyond this number of bytes unsent to one side, the other side is read no further.
const OUTBOX_HIGH: usize = 256 << 10;
/// Memory of an empty outbox beyond this is given back.
const OUTBOX_IDLE: usize = 4 << 10;

/// One end of a pair.
#[derive(Debug)]
pub struct Side {
    pub socket: TcpStream,
    /// Read, not yet understood.
    inbox: Vec<u8>,
    /// A pipe with bytes for it, before the bytes of the outbox, and how many.
    piped: Option<(Pipe, usize)>,
    /// To be written here.
    outbox: VecDeque<u8>,
    /// It sends nothing any more.
    pub ended: bool,
    /// Its end was passed on.
    pub end_passed: bool,
    /// What the poller was told; `None` when it watches no longer, since the other end is gone for good.
    pub told: Option<Interest>,
}

impl Side {
    pub fn new(socket: TcpStream) -> Self {
        Side {
            socket,
            inbox: Vec::new(),
            piped: None,
            outbox: VecDeque::new(),
            ended: false,
            end_passed: false,
            told: Some(Interest::READ),
        }
    }

    /// Bytes read and not understood.
    pub fn unread(&self) -> usize {
        self.inbox.len()
    }
    /// Whether nothing waits to be written here.
    pub fn has_written(&self) -> bool {
        self.piped.is_none() && self.outbox.is_empty()
    }
    /// Whether so much waits that no more should come.
    pub fn is_choked(&self) -> bool {
        self.piped.is_some() || self.outbox.len() >= OUTBOX_HIGH
    }
    /// Bytes that wait.
    pub fn buffered(&self) -> usize {
        self.inbox.len() + self.outbox.len() + self.piped.as_ref().map_or(0, |(_, left)| *left)
    }

    /// Writes what waits.
    pub fn flush(&mut self, conduit: &mut Conduit) -> io::Result<()> {
        if let Some((pipe, left)) = &mut self.piped {
            pipe.empty_into(&self.socket, left, !self.outbox.is_empty())?;
            if *left > 0 {
                return Ok(());
            }
            let (pipe, _) = self.piped.take().expect("just seen");
            conduit.give_back(pipe);
        }
        if self.outbox.is_empty() {
            return Ok(());
        }
        while !self.outbox.is_empty() {
            let (first, second) = self.outbox.as_slices();
            match write(&self.socket, first, !second.is_empty())? {
                0 => return Ok(()),
                n => drop(self.outbox.drain(..n)),
            }
        }
        if self.outbox.capacity() > OUTBOX_IDLE {
            self.outbox = VecDeque::new();
        }
        Ok(())
    }

    /// Writes, and keeps what does not fit now. `more` follows at once: the kernel may wait for it.
    pub fn send(&mut self, mut bytes: &[u8], more: bool) -> io::Result<()> {
        while self.has_written() && !bytes.is_empty() {
            match write(&self.socket, bytes, more)? {
                0 => break,
                n => bytes = &bytes[n..],
            }
        }
        self.outbox.extend(bytes);
        Ok(())
    }

    /// Keeps bytes that are to be written at the next [`flush`](Self::flush).
    pub fn queue(&mut self, bytes: &[u8]) {
        self.outbox.extend(bytes);
    }

    /// Takes `bytes` bytes out of the conduit's pipe. The rest, which the socket does not take now, waits.
    pub fn take_from(&mut self, conduit: &mut Conduit, bytes: usize, more: bool) -> io::Result<()> {
        let mut left = bytes;
        if let Err(error) = conduit.pipe().empty_into(&self.socket, &mut left, more) {
            conduit.renew()?;
            return Err(error);
        }
        if left == 0 {
            return Ok(());
        }
        if let Some(pipe) = conduit.hand_over() {
            self.piped = Some((pipe, left));
            return Ok(());
        }
        let mut rest = vec![0; left];
        conduit.pipe().read(&mut rest)?;
        self.outbox.extend(rest);
        Ok(())
    }

    /// Reads once, behind what was not understood: how many bytes stand in the conduit's memory now, and whether there
    /// may be more.
    pub fn fill(&mut self, most: usize, conduit: &mut Conduit) -> io::Result<(usize, bool)> {
        let len = self.inbox.len();
        conduit.unread[..len].copy_from_slice(&self.inbox);
        self.inbox.clear();
        if self.ended || len >= most {
            return Ok((len, false));
        }
        let read = loop {
            match self.socket.read(&mut conduit.unread[len..most]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match read {
            Ok(0) => {
                self.ended = true;
                Ok((len, false))
            }
            // Nobody would say that there is more, where the poller watches no longer.
            Ok(n) => Ok((len + n, len + n == most || self.told.is_none())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok((len, false)),
            Err(e) => Err(e),
        }
    }

    /// Looks at the first bytes that have come, and leaves them where they are: how many there are, none at the end;
    /// `None` when nothing has come.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.socket.peek(into) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                other => return other.map(Some),
            }
        }
    }

    /// Gives up what was read and not understood.
    pub fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox)
    }

    /// Keeps what was read and not understood.
    pub fn keep(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            self.inbox = Vec::new();
        } else {
            self.inbox.extend_from_slice(rest);
        }
    }

    /// Tells the other side, once, that this one sends nothing any more.
    pub fn pass_end(&mut self, to: &Side) {
        if !self.end_passed {
            self.end_passed = true;
            // The other side may be gone already; then there is nobody to tell.
            let _ = to.socket.shutdown(std::net::Shutdown::Write);
        }
    }
}

/// Writes what the socket takes now; 0 if nothing.
fn write(socket: &TcpStream, bytes: &[u8], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    loop {
        match rustix::net::send(socket, bytes, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
