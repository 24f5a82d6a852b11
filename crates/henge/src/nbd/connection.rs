//! A socket with the client's state machine on it.

use super::uri::{Address, Uri};
use anyhow::{Context, Result, bail};
use henge_core::{Duration, RequestId};
use henge_nbd::{Client, ClientEvent, ClientFailure, Negotiated, Segment, Wish, proto};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn both(&mut self) -> &mut dyn Both {
        match self {
            Stream::Tcp(s) => s,
            Stream::Unix(s) => s,
        }
    }
}

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(s) => s.as_fd(),
            Stream::Unix(s) => s.as_fd(),
        }
    }
}

/// How a command ended.
pub type Outcome = Result<(), proto::Error>;

/// One connection in its transmission phase. What is read is thrown away, what is written is noise: a load generator
/// cares for times alone.
pub struct Connection {
    stream: Stream,
    client: Client,
    negotiated: Negotiated,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of a read that are still to come.
    payload: u32,
    noise: Vec<u8>,
}

/// How long a server may take for its part of the negotiation.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
const BUFFER: usize = 256 << 10;

impl Connection {
    /// Connects and negotiates.
    pub fn open(uri: &Uri) -> Result<Connection> {
        let stream = match &uri.address {
            Address::Tcp(host, port) => {
                let s = TcpStream::connect((host.as_str(), *port)).with_context(|| uri.to_string())?;
                s.set_nodelay(true)?;
                Stream::Tcp(s)
            }
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).with_context(|| uri.to_string())?),
        };
        if uri.export.len() > 4096 {
            bail!("{uri}: an export's name is at most 4096 bytes");
        }
        let wish = Wish { export: uri.export.clone(), structured: true, allocation: false };
        // No pattern that a server or a disk could save itself.
        let mut noise = vec![0; BUFFER];
        Pcg64Mcg::seed_from_u64(1).fill_bytes(&mut noise);
        let mut connection = Connection {
            stream,
            client: Client::new(wish),
            negotiated: Negotiated::default(),
            input: vec![0; BUFFER],
            start: 0,
            end: 0,
            payload: 0,
            noise,
        };
        connection.negotiate().with_context(|| uri.to_string())?;
        Ok(connection)
    }

    fn negotiate(&mut self) -> Result<()> {
        match &self.stream {
            Stream::Tcp(s) => s.set_nonblocking(true)?,
            Stream::Unix(s) => s.set_nonblocking(true)?,
        }
        let begun = std::time::Instant::now();
        while !self.client.is_ready() {
            if begun.elapsed() > PATIENCE {
                bail!("the server does not finish the negotiation");
            }
            self.flush()?;
            self.wait(Some(Duration::from_millis(100)))?;
            let mut negotiated = None;
            self.receive(&mut |event| {
                if let ClientEvent::Ready(ready) = event {
                    negotiated = Some(*ready);
                }
            })?;
            self.negotiated = negotiated.unwrap_or(self.negotiated);
        }
        Ok(())
    }

    /// What the server said of the export.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// The state machine, to send commands.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Writes what can be written now.
    pub fn flush(&mut self) -> Result<()> {
        while !self.client.output().is_empty() {
            let noise = &self.noise;
            let slices: Vec<IoSlice<'_>> = whole(self.client.output().segments().take(64), noise);
            match self.stream.both().write_vectored(&slices) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(n) => self.client.written(n, |_: RequestId| {}),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("writing to the server"),
            }
        }
        Ok(())
    }

    /// Waits until the server says something, there is room for what is to be written, or the time has passed.
    pub fn wait(&self, time: Option<Duration>) -> Result<()> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.client.output().is_empty());
        let time = time.map(|t| Timespec {
            tv_sec: (t.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (t.as_nanos() % 1_000_000_000) as _,
        });
        match poll(&mut [PollFd::new(&self.stream, flags)], time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(io::Error::from(e)).context("waiting for the server"),
        }
    }

    /// Reads what has come; `done` hears of each command that is over.
    pub fn reap(&mut self, done: &mut impl FnMut(RequestId, Outcome)) -> Result<()> {
        self.receive(&mut |event| {
            if let ClientEvent::Done { id, outcome } = event {
                done(*id, *outcome);
            }
        })
    }

    fn receive(&mut self, tell: &mut impl FnMut(&ClientEvent)) -> Result<()> {
        loop {
            self.digest(tell)?;
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.end == self.input.len() {
                self.input.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.stream.both().read(&mut self.input[self.end..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(n) => self.end += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("reading from the server"),
            }
        }
    }

    /// Feeds the state machine with what was read.
    fn digest(&mut self, tell: &mut impl FnMut(&ClientEvent)) -> Result<()> {
        loop {
            let rest = &self.input[self.start..self.end];
            let event = if self.payload > 0 {
                let n = self.payload.min(rest.len() as u32);
                if n == 0 {
                    return Ok(());
                }
                self.start += n as usize;
                self.payload -= n;
                self.client.payload(n)
            } else {
                let (used, event) = self.client.receive(rest);
                self.start += used;
                event
            };
            match &event {
                ClientEvent::Nothing if self.start == self.end => return Ok(()),
                ClientEvent::Payload { len, .. } => self.payload = *len,
                ClientEvent::Failed(ClientFailure::Protocol(why)) => {
                    bail!("the server breaks the protocol: {why}")
                }
                ClientEvent::Failed(ClientFailure::Refused { message, .. }) => {
                    let why = if message.is_empty() { "without a reason" } else { message };
                    bail!("the server refuses the export: {why}");
                }
                _ => tell(&event),
            }
        }
    }
}

/// Segments as slices; a payload longer than the noise is written piece by piece, so that it ends the list.
fn whole<'a>(segments: impl Iterator<Item = Segment<'a>>, noise: &'a [u8]) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::new();
    for segment in segments {
        match segment {
            Segment::Bytes(bytes) => slices.push(IoSlice::new(bytes)),
            Segment::Payload { len, .. } => {
                slices.push(IoSlice::new(&noise[..len.min(noise.len())]));
                if len > noise.len() {
                    break;
                }
            }
        }
    }
    slices
}
