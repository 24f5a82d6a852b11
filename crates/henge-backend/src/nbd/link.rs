//! One connection: commands out of requests' buffers, answers into them. It never waits for the socket.

use super::dial::Dialed;
use crate::{Buffer, Watch};
use henge_core::{Instant, Pending, Request, RequestId};
use henge_nbd::{Ask, Client, ClientEvent, ClientFailure, Error, Segment};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

const CHUNK: usize = 64 << 10;
/// Most slices of one write.
const SLICES: usize = 64;
/// Servers that cannot write zeroes are sent them.
pub(crate) static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// A request that the store holds, and how far it is.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub request: Request,
    pub payload: Buffer,
    /// Its first byte in the export.
    pub offset: u64,
    /// Bytes that are done.
    pub done: u64,
    /// Bytes that are asked for now.
    pub piece: u64,
    /// Its bytes are done, and a flush is to make them durable.
    pub flushing: bool,
    /// Writes that the flush under way covers.
    pub covers: u64,
    /// The connection that has it; `None` while it waits.
    pub link: Option<usize>,
    /// How many connections had come when it was sent.
    pub come: u64,
    /// It was sent at least once.
    pub begun: bool,
    /// Its connection was lost first then, and nothing of it was answered since.
    pub lost_since: Option<Instant>,
    /// Its piece is sent as bytes.
    pub bytes: bool,
}

/// A connection is of no use any more.
pub(crate) struct Lost(pub String);

/// What came of a command: whose it is, and how it went.
pub(crate) type Over = (RequestId, Result<(), Error>);

/// One connection.
pub(crate) struct Link {
    socket: OwnedFd,
    client: Client,
    watch: Watch,
    /// Its name there.
    name: u32,
    chunk: Box<[u8]>,
    from: usize,
    to: usize,
    /// Payload that is awaited: whose, from where, how much.
    payload: Option<(RequestId, usize, usize)>,
    /// Requests by the client's slots.
    sent: Vec<RequestId>,
    readable: bool,
    writable: bool,
    awaited: bool,
    ending: bool,
    /// Commands that are not answered.
    pub load: usize,
}

impl Link {
    pub(crate) fn new(dialed: Dialed, watch: Watch, name: u32) -> rustix::io::Result<Link> {
        let Dialed { socket, client, .. } = dialed;
        watch.add(&socket, name, interest(false))?;
        Ok(Link {
            socket,
            client,
            watch,
            name,
            chunk: vec![0; CHUNK].into(),
            from: 0,
            to: 0,
            payload: None,
            sent: Vec::new(),
            readable: true,
            writable: true,
            awaited: false,
            ending: false,
            load: 0,
        })
    }

    /// Is watched elsewhere.
    pub(crate) fn be_watched(&mut self, watch: Watch) -> rustix::io::Result<()> {
        watch.add(&self.socket, self.name, interest(self.awaited))?;
        self.watch = watch;
        Ok(())
    }

    /// The socket has told of something.
    pub(crate) fn happened(&mut self, flags: EventFlags) {
        self.readable = true;
        self.writable |= flags.contains(EventFlags::OUT);
        self.ending |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    }

    /// Sends a request's next piece, as far as the socket is concerned when [`write`](Self::write) is called.
    pub(crate) fn send(&mut self, request: RequestId, ask: Ask, offset: u64, len: u64, fua: bool) {
        let id = self.client.send(ask, offset, len as u32, fua);
        let slot = id.slot as usize;
        if self.sent.len() <= slot {
            self.sent.resize(slot + 1, RequestId::default());
        }
        self.sent[slot] = request;
        self.load += 1;
    }

    /// Says goodbye, if the socket takes it.
    pub(crate) fn end(&mut self) {
        self.client.disconnect();
        if self.client.output().len() < 64 {
            let bytes = self.client.output().segments().find_map(|segment| match segment {
                Segment::Bytes(bytes) => Some(bytes),
                Segment::Payload { .. } => None,
            });
            let _ = bytes.map(|bytes| rustix::io::write(&self.socket, bytes));
        }
    }

    /// Writes what is to be written, as far as the socket takes it.
    pub(crate) fn write(&mut self, in_flight: &Pending<InFlight>) -> Result<(), Lost> {
        while self.writable && !self.client.output().is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (segment, slice) in self.client.output().segments().zip(&mut slices) {
                *slice = IoSlice::new(match segment {
                    Segment::Bytes(bytes) => bytes,
                    Segment::Payload { id, at, len } => {
                        let held = in_flight.get(self.sent[id.slot as usize]);
                        let held = held.expect("a request that is sent is there");
                        let from = if held.bytes { at } else { held.done + at } as usize;
                        if held.bytes { &ZEROES[from..from + len] } else { &held.payload[from..from + len] }
                    }
                });
                count += 1;
            }
            match rustix::io::writev(&self.socket, &slices[..count]) {
                Ok(n) => self.client.written(n, |_| {}),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.writable = false;
                    self.wait_until_writable(true)?;
                }
                Err(e) => return Err(Lost(e.to_string())),
            }
        }
        if self.awaited && self.client.output().is_empty() {
            self.wait_until_writable(false)?;
        }
        Ok(())
    }

    fn wait_until_writable(&mut self, awaited: bool) -> Result<(), Lost> {
        if self.awaited != awaited {
            self.awaited = awaited;
            let interest = interest(awaited);
            self.watch.modify(&self.socket, self.name, interest).map_err(|e| Lost(e.to_string()))?;
        }
        Ok(())
    }

    /// Reads what is there; commands that are over go to `over`.
    pub(crate) fn read(
        &mut self,
        in_flight: &mut Pending<InFlight>,
        over: &mut Vec<Over>,
    ) -> Result<(), Lost> {
        loop {
            if self.payload.is_some() {
                if !self.take_payload(in_flight, over)? {
                    return Ok(());
                }
                continue;
            }
            let (taken, event) = self.client.receive(&self.chunk[self.from..self.to]);
            self.from += taken;
            if event != ClientEvent::Nothing {
                self.heard(event, in_flight, over)?;
                continue;
            }
            match self.fill()? {
                true => {}
                false => return Ok(()),
            }
        }
    }

    /// Reads into the chunk; false when nothing is there.
    fn fill(&mut self) -> Result<bool, Lost> {
        if !self.readable {
            return Ok(false);
        }
        match rustix::io::read(&self.socket, &mut self.chunk[..]) {
            Ok(0) => Err(Lost("the server closed the connection".into())),
            Ok(n) => {
                self.readable = n == CHUNK || self.ending;
                (self.from, self.to) = (0, n);
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(Errno::AGAIN) => {
                self.readable = false;
                Ok(false)
            }
            Err(e) => Err(Lost(e.to_string())),
        }
    }

    /// Moves bytes of a read to where they belong; false when no more are there.
    fn take_payload(
        &mut self,
        in_flight: &mut Pending<InFlight>,
        over: &mut Vec<Over>,
    ) -> Result<bool, Lost> {
        let Some((id, at, len)) = self.payload else { return Ok(true) };
        let held = in_flight.get_mut(self.sent[id.slot as usize]).expect("a request that is sent is there");
        let at_buffer = held.done as usize + at;
        let into = &mut held.payload[at_buffer..at_buffer + len];
        let here = (self.to - self.from).min(len);
        let n = if here > 0 {
            into[..here].copy_from_slice(&self.chunk[self.from..self.from + here]);
            self.from += here;
            here
        } else if len == 0 {
            0
        } else if !self.readable {
            return Ok(false);
        } else {
            match rustix::io::read(&self.socket, &mut *into) {
                Ok(0) => return Err(Lost("the server closed the connection".into())),
                Ok(n) => {
                    self.readable = n == len || self.ending;
                    n
                }
                Err(Errno::INTR) => return Ok(true),
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Ok(false);
                }
                Err(e) => return Err(Lost(e.to_string())),
            }
        };
        self.payload = (n < len).then_some((id, at + n, len - n));
        let event = self.client.payload(n as u32);
        self.heard(event, in_flight, over)?;
        Ok(true)
    }

    fn heard(
        &mut self,
        event: ClientEvent,
        in_flight: &mut Pending<InFlight>,
        over: &mut Vec<Over>,
    ) -> Result<(), Lost> {
        match event {
            ClientEvent::Nothing | ClientEvent::Ready(_) | ClientEvent::Extents(_) => {}
            ClientEvent::Payload { id, at, len } => self.payload = Some((id, at as usize, len as usize)),
            ClientEvent::Hole { id, at, len } => {
                let held = in_flight.get_mut(self.sent[id.slot as usize]);
                let held = held.expect("a request that is sent is there");
                let at = held.done as usize + at as usize;
                held.payload[at..at + len as usize].fill(0);
            }
            ClientEvent::Done { id, outcome } => {
                self.load -= 1;
                over.push((self.sent[id.slot as usize], outcome));
            }
            ClientEvent::Failed(ClientFailure::Protocol(why)) => {
                return Err(Lost(format!("the server does not keep to the protocol: {why}")));
            }
            ClientEvent::Failed(ClientFailure::Refused { message, .. }) => return Err(Lost(message)),
        }
        Ok(())
    }
}

/// Room only while there is none: a Unix socket tells of it with every read of the server.
fn interest(writable: bool) -> EventFlags {
    let out = if writable { EventFlags::OUT } else { EventFlags::empty() };
    EventFlags::IN | EventFlags::RDHUP | EventFlags::ET | out
}
