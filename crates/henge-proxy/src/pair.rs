//! One client connection and its twin to the server.

use crate::poller::Interest;
use henge_core::{Instant, RequestId};
use henge_pvfs2::{Connection, Event, HEADER_LEN, News, Request};
use rustix::pipe::SpliceFlags;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// Read at once, and the largest message that must be seen whole (a configuration) with its header.
const INBOX: usize = 160 << 10;
/// Beyond so many bytes unsent to one side, the other side is read no further.
const OUTBOX_HIGH: usize = 256 << 10;
/// Bulk data of at least so many bytes to come goes through a pipe, uncopied.
const SPLICE_MIN: u64 = 64 << 10;

/// A pipe that bulk data passes through without being copied to this process. One serves the whole loop, since it is
/// empty whenever a pair is left.
#[derive(Debug)]
pub struct Conduit {
    from: OwnedFd,
    into: OwnedFd,
    capacity: usize,
}

impl Conduit {
    pub fn new() -> io::Result<Self> {
        let (from, into) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)?;
        let capacity = rustix::pipe::fcntl_setpipe_size(&into, 1 << 20).unwrap_or(64 << 10);
        Ok(Conduit { from, into, capacity })
    }
}

/// One end of a pair.
#[derive(Debug)]
pub struct Side {
    pub socket: TcpStream,
    /// Read, not yet understood.
    inbox: Vec<u8>,
    /// To be written here.
    outbox: VecDeque<u8>,
    /// It sends nothing any more.
    ended: bool,
    /// Its end was passed on.
    end_passed: bool,
    /// What the poller was told; `None` when it watches no longer, since the other end is gone for good.
    pub told: Option<Interest>,
}

impl Side {
    fn new(socket: TcpStream) -> Self {
        Side {
            socket,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            ended: false,
            end_passed: false,
            told: Some(Interest::READ),
        }
    }

    /// Writes what is in the outbox.
    fn flush(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            match self.socket.write(self.outbox.as_slices().0) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.outbox.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes, and keeps what does not fit now.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while self.outbox.is_empty() && !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.outbox.extend(bytes);
        Ok(())
    }

    fn is_choked(&self) -> bool {
        self.outbox.len() >= OUTBOX_HIGH
    }

    /// Reads once; true if there may be more. Where bulk data is expected, its header comes alone, so that what follows
    /// can go through the pipe.
    fn fill(&mut self, expects_bulk: bool) -> io::Result<bool> {
        let len = self.inbox.len();
        if self.ended || len >= INBOX {
            return Ok(false);
        }
        let most = if expects_bulk && len < HEADER_LEN { HEADER_LEN } else { INBOX };
        self.inbox.resize(most, 0);
        let read = loop {
            match self.socket.read(&mut self.inbox[len..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.inbox.truncate(len + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => {
                self.ended = true;
                Ok(false)
            }
            Ok(n) => Ok(n == most - len),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// What became of an I/O request that a client sent: the loop queues it.
#[derive(Debug)]
pub struct Held {
    pub tag: i64,
    pub request: Box<Request>,
    /// As it came, header included.
    pub message: Vec<u8>,
}

/// A client connection and its twin.
#[derive(Debug)]
pub struct Pair {
    pub client: Side,
    pub server: Side,
    pub connection: Connection,
    /// Whose it is by the port or the address; `None`: users decide.
    pub flow: Option<usize>,
    /// Requests in the gate or at the server, by tag.
    pub pending: BTreeMap<i64, RequestId>,
    /// Released while another message was half on its way.
    released: VecDeque<Vec<u8>>,
    /// Its flow's queue is full: no further bytes of the client are looked at.
    pub blocked: bool,
    /// When the last byte passed, for those who look.
    pub active: Instant,
}

impl Pair {
    pub fn new(client: TcpStream, server: TcpStream, flow: Option<usize>) -> Self {
        Pair {
            client: Side::new(client),
            server: Side::new(server),
            connection: Connection::new(),
            flow,
            pending: BTreeMap::new(),
            released: VecDeque::new(),
            blocked: false,
            active: Instant::ZERO,
        }
    }

    /// Moves what can be moved from the client. An I/O request that came in stops it: the loop takes it and calls
    /// again.
    pub fn move_from_client(&mut self, conduit: &Conduit) -> io::Result<Option<Held>> {
        self.server.flush()?;
        loop {
            if self.blocked || self.server.is_choked() {
                return Ok(None);
            }
            self.splice(Towards::Server, conduit)?;
            let more = self.client.fill(self.connection.expects_bulk_from_client())?;
            if let Some(held) = self.understand_client()? {
                return Ok(Some(held));
            }
            if !more {
                break;
            }
        }
        if self.client.ended
            && self.client.inbox.is_empty()
            && self.server.outbox.is_empty()
            && self.pending.is_empty()
        {
            self.pass_end(Towards::Server);
        }
        Ok(None)
    }

    fn understand_client(&mut self) -> io::Result<Option<Held>> {
        let mut passed = 0;
        let mut held = None;
        while passed < self.client.inbox.len() && held.is_none() {
            self.send_released(&mut passed)?;
            let step = self.connection.from_client(&self.client.inbox[passed..]);
            match step.what {
                Event::Pass | Event::Opaque => passed += step.len,
                Event::NeedMore(_) => break,
                Event::Hold { tag, request } => {
                    self.server.send(&self.client.inbox[..passed])?;
                    let message = self.client.inbox[passed..passed + step.len].to_vec();
                    self.client.inbox.drain(..passed + step.len);
                    passed = 0;
                    held = Some(Held { tag, request, message });
                }
            }
        }
        self.server.send(&self.client.inbox[..passed])?;
        self.client.inbox.drain(..passed);
        passed = 0;
        self.send_released(&mut passed)?;
        Ok(held)
    }

    /// Released messages go between two others, never into the middle of one.
    fn send_released(&mut self, passed: &mut usize) -> io::Result<()> {
        if self.released.is_empty() || !self.connection.is_between_messages_of_client() {
            return Ok(());
        }
        self.server.send(&self.client.inbox[..*passed])?;
        self.client.inbox.drain(..*passed);
        *passed = 0;
        while let Some(message) = self.released.pop_front() {
            self.server.send(&message)?;
        }
        Ok(())
    }

    /// A held request goes to the server.
    pub fn release(&mut self, tag: i64, message: Vec<u8>) -> io::Result<()> {
        self.connection.release(tag);
        self.released.push_back(message);
        self.send_released(&mut 0)
    }

    /// Moves what can be moved from the server; what was learnt is appended to `news`.
    pub fn move_from_server(&mut self, conduit: &Conduit, news: &mut Vec<News>) -> io::Result<()> {
        self.client.flush()?;
        while !self.client.is_choked() {
            if let Some(heard) = self.splice(Towards::Client, conduit)? {
                news.push(heard);
            }
            let more = self.server.fill(self.connection.expects_bulk_from_server())?;
            let mut passed = 0;
            while passed < self.server.inbox.len() {
                let (step, heard) = self.connection.from_server(&self.server.inbox[passed..]);
                news.extend(heard);
                if let Event::NeedMore(_) = step.what {
                    break;
                }
                passed += step.len;
            }
            self.client.send(&self.server.inbox[..passed])?;
            self.server.inbox.drain(..passed);
            if !more {
                break;
            }
        }
        if self.server.ended && self.client.outbox.is_empty() {
            self.pass_end(Towards::Client);
        }
        Ok(())
    }

    /// Bulk data of which nothing is in our hands goes from socket to socket through the pipe.
    fn splice(&mut self, towards: Towards, conduit: &Conduit) -> io::Result<Option<News>> {
        let (from, to) = match towards {
            Towards::Server => (&mut self.client, &mut self.server),
            Towards::Client => (&mut self.server, &mut self.client),
        };
        let bulk = |connection: &Connection| match towards {
            Towards::Server => connection.bulk_from_client(),
            Towards::Client => connection.bulk_from_server(),
        };
        let mut news = None;
        while from.inbox.is_empty() && to.outbox.is_empty() && bulk(&self.connection) >= SPLICE_MIN {
            let most = (bulk(&self.connection) as usize).min(conduit.capacity);
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            let taken = match rustix::pipe::splice(&from.socket, None, &conduit.into, None, most, flags) {
                Ok(0) => {
                    from.ended = true;
                    break;
                }
                Ok(n) => n,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            drain(conduit, to, taken)?;
            match towards {
                Towards::Server => self.connection.moved_from_client(taken as u64),
                Towards::Client => news = news.or(self.connection.moved_from_server(taken as u64)),
            }
        }
        Ok(news)
    }

    fn pass_end(&mut self, towards: Towards) {
        let (from, to) = match towards {
            Towards::Server => (&mut self.client, &mut self.server),
            Towards::Client => (&mut self.server, &mut self.client),
        };
        if !from.end_passed {
            from.end_passed = true;
            // The other side may be gone already; then there is nobody to tell.
            let _ = to.socket.shutdown(std::net::Shutdown::Write);
        }
    }

    /// The client sends nothing any more: nobody waits for what waits here.
    pub fn client_has_left(&self) -> bool {
        self.client.ended && self.client.inbox.is_empty()
    }

    /// Both ends are over, or the server's is: nothing will ever be answered.
    pub fn is_over(&self) -> bool {
        self.server.end_passed || (self.client.end_passed && self.server.ended)
    }

    /// What the poller should watch on the client's side and on the server's.
    pub fn interests(&self) -> (Interest, Interest) {
        let client = Interest {
            read: !self.client.ended && !self.blocked && !self.server.is_choked(),
            write: !self.client.outbox.is_empty(),
        };
        let server = Interest {
            read: !self.server.ended && !self.client.is_choked(),
            write: !self.server.outbox.is_empty(),
        };
        (client, server)
    }

    /// Bytes that wait here, for bounds and reports.
    pub fn buffered(&self) -> usize {
        let sides = [&self.client, &self.server];
        sides.iter().map(|s| s.inbox.len() + s.outbox.len()).sum::<usize>()
            + self.released.iter().map(Vec::len).sum::<usize>()
    }
}

#[derive(Clone, Copy)]
enum Towards {
    Server,
    Client,
}

/// Empties the pipe into a side; what its socket does not take now waits in the outbox.
fn drain(conduit: &Conduit, to: &mut Side, mut left: usize) -> io::Result<()> {
    while left > 0 {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK | SpliceFlags::MORE;
        match rustix::pipe::splice(&conduit.from, None, &to.socket, None, left, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => left -= n,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => {
                empty(conduit, &mut vec![0; left])?;
                return Err(error.into());
            }
        }
    }
    if left > 0 {
        let mut rest = vec![0; left];
        empty(conduit, &mut rest)?;
        to.outbox.extend(rest);
    }
    Ok(())
}

fn empty(conduit: &Conduit, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        let n = rustix::io::read(&conduit.from, &mut *into)?;
        into = &mut into[n..];
    }
    Ok(())
}
