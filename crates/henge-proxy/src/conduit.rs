//! The pipe that bulk data passes through without being copied to this process, and the memory for what is looked at.
//!
//! One pipe serves the whole loop, since it is empty whenever a pair is left: where a socket takes less than was put into
//! the pipe, its side keeps the pipe until it is empty, and the loop goes on with another.

use crate::side::INBOX;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Pipes kept for later.
const SPARE_MAX: usize = 16;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    from: OwnedFd,
    into: OwnedFd,
    capacity: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (from, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The kernel may refuse so much to users who have many; the usual size does as well.
        let capacity = rustix::pipe::fcntl_setpipe_size(&into, 1 << 20).unwrap_or(64 << 10);
        Ok(Pipe { from, into, capacity })
    }

    /// Moves bytes on into a socket, as many as it takes.
    pub fn empty_into(&self, socket: impl AsFd, left: &mut usize, more: bool) -> io::Result<()> {
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        while *left > 0 {
            match rustix::pipe::splice(&self.from, None, socket.as_fd(), None, *left, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => *left -= n,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes bytes out of it.
    pub fn read(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let n = rustix::io::read(&self.from, &mut *into)?;
            into = &mut into[n..];
        }
        Ok(())
    }
}

/// What all pairs use by turns.
#[derive(Debug)]
pub struct Conduit {
    pipe: Pipe,
    spare: Vec<Pipe>,
    /// Bytes that are being looked at.
    pub unread: Box<[u8]>,
}

impl Conduit {
    pub fn new() -> io::Result<Self> {
        Ok(Conduit { pipe: Pipe::new()?, spare: Vec::new(), unread: vec![0; INBOX].into() })
    }
    pub fn capacity(&self) -> usize {
        self.pipe.capacity
    }
    /// Takes bytes in from a socket, as many as are there.
    pub fn fill_from(&self, socket: impl AsFd, most: usize) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        loop {
            match rustix::pipe::splice(socket.as_fd(), None, &self.pipe.into, None, most, flags) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
    /// Where they leave.
    pub fn pipe(&self) -> &Pipe {
        &self.pipe
    }
    /// The pipe with what is in it, for another one; `None` when none is to be had.
    pub fn hand_over(&mut self) -> Option<Pipe> {
        let next = self.spare.pop().or_else(|| Pipe::new().ok())?;
        Some(std::mem::replace(&mut self.pipe, next))
    }
    /// The pipe is replaced, with whatever is in it.
    pub fn renew(&mut self) -> io::Result<()> {
        self.pipe = Pipe::new()?;
        Ok(())
    }
    /// An empty pipe comes back.
    pub fn give_back(&mut self, pipe: Pipe) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(pipe);
        }
    }
}
