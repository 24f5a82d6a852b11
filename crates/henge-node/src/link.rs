//! The socket of a connection, and what the loop knows of it between turns.

use crate::stream::Stream;
use henge_core::Instant;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Whom an address counts for: an IPv6 subscriber has 2^64 of them.
pub(crate) fn whom(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let s = v6.segments();
            IpAddr::from([s[0], s[1], s[2], s[3], 0, 0, 0, 0])
        }
        v4 => v4,
    }
}

/// What is known of a connection's end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    /// Both sides are open.
    Open,
    /// The client says no more. It may still listen.
    Said,
    /// Nobody listens.
    Gone,
}

impl End {
    /// What the kernel has said of it.
    pub(crate) fn of(flags: EventFlags) -> End {
        match flags {
            flags if flags.intersects(EventFlags::HUP | EventFlags::ERR) => End::Gone,
            flags if flags.contains(EventFlags::RDHUP) => End::Said,
            _ => End::Open,
        }
    }
}

/// A socket and what is known of it.
pub(crate) struct Link {
    pub stream: Stream,
    /// Where it comes from, by TCP; its place counts for that address.
    pub from: Option<IpAddr>,
    /// There may be something to read.
    pub readable: bool,
    /// The socket takes more.
    pub writable: bool,
    /// It is watched for when it takes more again.
    pub awaited: bool,
    pub end: End,
    /// On the list of those to be read.
    pub runnable: bool,
    /// On the list of those to be written.
    pub unwritten: bool,
    /// Among those that wait for room or memory at its disk.
    pub waits: bool,
    /// Bytes that went through the socket since this was asked last.
    pub moved: u64,
    /// Commands answered since then.
    pub answers: u32,
    /// When something came last, while payload is awaited; and when that is looked at.
    pub heard: Instant,
    pub payload_due: Option<Instant>,
    /// Since when it waits for memory; and when that is looked at.
    pub thirsty: Option<Instant>,
    pub memory_due: Option<Instant>,
}

impl Link {
    pub(crate) fn new(fd: OwnedFd) -> Link {
        Link::of(Stream::plain(fd))
    }

    /// A stream of which nothing is known yet: there may be something to read, and room to write.
    pub(crate) fn of(stream: Stream) -> Link {
        let (readable, writable) = (true, true);
        let (moved, answers) = (0, 0);
        let (runnable, unwritten, waits) = (false, false, false);
        Link {
            stream,
            from: None,
            readable,
            writable,
            awaited: false,
            end: End::Open,
            runnable,
            unwritten,
            waits,
            moved,
            answers,
            heard: Instant::ZERO,
            payload_due: None,
            thirsty: None,
            memory_due: None,
        }
    }

    /// Reads what is missing of a payload, then messages, and notes whether there may be more.
    pub(crate) fn read(&mut self, payload: &mut [u8], messages: &mut [u8]) -> rustix::io::Result<usize> {
        let ends = self.end > End::Open;
        let got = self.stream.read(payload, messages, ends)?;
        self.readable &= got.more || ends;
        self.moved += got.len as u64;
        Ok(got.len)
    }

    /// Writes what the stream holds back, as far as the socket takes it. False when the connection is broken.
    pub(crate) fn flush(&mut self) -> bool {
        while self.writable && !self.stream.is_flushed() {
            match self.stream.flush() {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(_) => return false,
            }
        }
        true
    }

    /// What the loop is to be woken for. Room in the socket only while there is none: a Unix socket tells of it whenever the
    /// client has read a reply, which would be a wake-up a request.
    pub(crate) fn interest(&self) -> EventFlags {
        let room = if self.awaited { EventFlags::OUT } else { EventFlags::empty() };
        EventFlags::IN | EventFlags::RDHUP | EventFlags::ET | room
    }
}
