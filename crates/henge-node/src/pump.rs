//! The one loop that reads and writes a connection's bytes, whatever its protocol.
//!
//! # The rule
//! Reading goes on until the stream has nothing more or something holds the connection back: its share of a turn, its session's bounds, its
//! disk's bound on pending commands, or memory. Then nothing more is read, and the socket's own back-pressure does the rest. A
//! payload goes from the socket to the session's own place for it, with what follows it behind. Bytes that the session did not take are
//! kept, and stand in front of what comes next.
//!
//! Whether there is more is what the stream says ([`Got::more`](crate::stream::Got)), not the length of a read: TLS gives less than was asked
//! for while the next record waits.
//!
//! # Guarantee
//! A turn moves at most the session's [`Share`](crate::session::Share), of which it writes a quarter by TLS, and beyond it a payload's rest, or
//! the heads of answers. What is kept is less than [`KEPT`]; a session that takes nothing of so much ends. Nothing is allocated for a message
//! that is there as a whole.

use crate::link::Link;
use crate::session::{Around, Departure, Moves, Session, Slices, Stop, Wants};
use crate::turns::COMMANDS;
use rustix::io::Errno;
use std::io::IoSlice;

/// Bytes read at once; shared by all connections, since what is left over is kept by those that have some.
pub(crate) const CHUNK: usize = 64 << 10;
/// Bytes of one message that is not there as a whole yet: more than any protocol's longest, but for payloads.
const KEPT: usize = 2 * CHUNK;
/// A turn writes so many times less by TLS: sealing costs the loop as many times more for each byte, and others wait meanwhile.
const SEALED: usize = 4;
/// Kept memory that need not be given back.
const SMALL: usize = 1 << 10;
/// Bytes of an answer beside its payload: NVMe's are 48, iSCSI's as many. A turn writes them with the payload that its share is of, so that
/// as many answers go at once as were read.
const HEAD: usize = 64;
/// Pieces written at once. Thirty-two reads by NVMe are one more than 64: a head and data of each, and the last completion.
const PIECES: usize = 80;

/// What all connections read into.
pub(crate) fn chunk() -> Vec<u8> {
    vec![0; KEPT + CHUNK]
}

/// A session and what it has not taken yet.
pub(crate) struct Pump<S> {
    pub session: S,
    rest: Vec<u8>,
    /// It is the beginning of a message.
    begun: bool,
    /// Messages that it may still take in this turn.
    left: u32,
}

impl<S: Session> Pump<S> {
    pub(crate) fn new(session: S) -> Pump<S> {
        Pump { session, rest: Vec::new(), begun: false, left: 0 }
    }

    /// The same with bytes that came before.
    pub(crate) fn after(session: S, unread: Vec<u8>) -> Pump<S> {
        Pump { rest: unread, ..Pump::new(session) }
    }

    /// Gives the session what was received: how much it took, and why no more, if so.
    fn feed(&mut self, input: &[u8], around: &mut Around<'_>) -> (usize, Option<Stop>) {
        let mut at = 0;
        self.begun = false;
        while at < input.len() {
            let stop = match self.session.wants(around) {
                Wants::Payload { into, .. } => {
                    let n = into.len().min(input.len() - at);
                    into[..n].copy_from_slice(&input[at..at + n]);
                    at += n;
                    self.session.delivered(n, around)
                }
                Wants::Bytes { .. } if self.left == 0 => Some(Stop::Turn),
                Wants::Bytes { .. } => {
                    self.left -= 1;
                    let taken_in = &mut around.plane.taken_in;
                    taken_in.messages = taken_in.messages.wrapping_add(1);
                    let taken = self.session.received(&input[at..], around);
                    at += taken.bytes;
                    if taken.bytes == 0 && taken.stop.is_none() {
                        self.begun = true;
                        return (at, None);
                    }
                    taken.stop
                }
                Wants::Memory => Some(Stop::Stalled),
                Wants::Nothing => Some(Stop::Waiting),
            };
            if stop.is_some() {
                return (at, stop);
            }
        }
        (at, None)
    }

    /// The same of what was kept.
    fn feed_kept(&mut self, around: &mut Around<'_>) -> Option<Stop> {
        let mut rest = std::mem::take(&mut self.rest);
        let (taken, stop) = self.feed(&rest, around);
        rest.drain(..taken);
        rest.shrink_to(SMALL);
        self.rest = rest;
        stop
    }

    /// Reads what the session wants: bytes of payload, and behind what was kept, bytes of messages. `None` when it wants nothing.
    fn receive(
        &mut self,
        link: &mut Link,
        around: &mut Around<'_>,
        chunk: &mut [u8],
    ) -> Result<rustix::io::Result<(usize, usize)>, Stop> {
        let kept = self.rest.len();
        match self.session.wants(around) {
            Wants::Nothing => Err(Stop::Waiting),
            Wants::Memory => Err(Stop::Stalled),
            Wants::Bytes { .. } if kept >= KEPT => Err(Stop::Gone),
            Wants::Bytes { most } => {
                chunk[..kept].copy_from_slice(&self.rest);
                let into = &mut chunk[kept..kept + most.min(CHUNK)];
                Ok(link.read(&mut [], into).map(|n| (0, n)))
            }
            Wants::Payload { into, beyond } => {
                debug_assert!(kept == 0 && !into.is_empty(), "what was kept belongs to the payload");
                let len = into.len();
                let beyond = &mut chunk[..beyond.min(CHUNK)];
                let read = link.read(into, beyond);
                Ok(read.map(|n| (n.min(len), n.saturating_sub(len))))
            }
        }
    }

    /// Reads and acts until something stops it.
    fn go_on(&mut self, link: &mut Link, around: &mut Around<'_>, chunk: &mut [u8]) -> Stop {
        let share = self.session.share();
        self.left = share.messages;
        let mut taken = 0;
        if let Some(stop) = self.session.resume(around) {
            return stop;
        }
        if !self.rest.is_empty()
            && let Some(stop) = self.feed_kept(around)
        {
            return stop;
        }
        while link.readable {
            if taken >= share.bytes || self.left == 0 {
                return Stop::Turn;
            }
            let (payload, bytes) = match self.receive(link, around, chunk) {
                Ok(Ok((0, 0))) => {
                    self.session.lost(None);
                    return Stop::Gone;
                }
                Ok(Ok(read)) => read,
                Ok(Err(Errno::AGAIN)) => {
                    link.readable = false;
                    break;
                }
                Ok(Err(Errno::INTR)) => continue,
                Ok(Err(why)) => {
                    self.session.lost(Some(why));
                    return Stop::Gone;
                }
                Err(Stop::Waiting) => break,
                Err(stop) => return stop,
            };
            taken += payload + bytes;
            self.session.came_by(&link.stream);
            let input = &chunk[..self.rest.len() + bytes];
            self.rest.clear();
            let mut stop = None;
            if payload > 0 {
                stop = self.session.delivered(payload, around);
            }
            let mut fed = 0;
            if stop.is_none() {
                (fed, stop) = self.feed(input, around);
            }
            self.rest.extend_from_slice(&input[fed..]);
            if let Some(stop) = stop {
                return stop;
            }
        }
        Stop::Waiting
    }
}

impl<S: Session> Moves for Pump<S> {
    fn read(&mut self, link: &mut Link, around: &mut Around<'_>, chunk: &mut [u8]) -> Stop {
        let stop = self.go_on(link, around, chunk);
        if link.readable || stop == Stop::Gone {
            return stop;
        }
        // However it stopped: what comes next wakes the loop if it is all that is missing of a payload, or anything else.
        let wants = match stop {
            Stop::Waiting | Stop::Turn => self.session.wants(around),
            // What it wants has no place yet.
            Stop::Stalled | Stop::Away | Stop::Gone => Wants::Nothing,
        };
        let missing = if let Wants::Payload { into, .. } = wants { into.len() } else { 0 };
        link.stream.wake_at(missing);
        stop
    }

    fn write(&mut self, link: &mut Link, around: &mut Around<'_>) -> bool {
        let share = self.session.share();
        let bytes = if link.stream.is_secure() { share.bytes / SEALED } else { share.bytes };
        let mut left = bytes + share.messages.min(COMMANDS) as usize * HEAD;
        if link.writable {
            self.session.look(around);
        }
        while left > 0 && link.writable {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let mut out = Slices::new(&mut slices, left);
            self.session.output(around, &mut out);
            let count = out.count();
            if count == 0 {
                break;
            }
            match link.stream.writev(&slices[..count]) {
                Ok(n) => {
                    left -= n;
                    link.moved += n as u64;
                    self.session.written(n, around);
                }
                Err(Errno::AGAIN) => link.writable = false,
                Err(Errno::INTR) => {}
                Err(why) => {
                    self.session.lost(Some(why));
                    return false;
                }
            }
        }
        self.session.left_by(&mut link.stream, !self.rest.is_empty())
    }

    fn keeps(&self) -> bool {
        !self.rest.is_empty() && !self.begun
    }

    fn rest(&self) -> Option<henge_nbd::Rest> {
        let mut rest = self.session.rest()?;
        rest.unread.extend_from_slice(&self.rest);
        Some(rest)
    }

    fn depart(&mut self, around: &mut Around<'_>) -> Option<(Departure, Vec<u8>)> {
        Some((self.session.depart(around)?, std::mem::take(&mut self.rest)))
    }

    fn keep(&mut self, rest: Vec<u8>) {
        self.rest = rest;
    }

    fn session(&self) -> &dyn Session {
        &self.session
    }

    fn session_mut(&mut self) -> &mut dyn Session {
        &mut self.session
    }
}

#[cfg(test)]
mod tests;
