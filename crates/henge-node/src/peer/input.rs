//! Bytes from the peer: messages are told from what belongs to parts, which is read straight into its place.

use super::{Incoming, Inflow, PeerLink, To};
use crate::client::Surroundings;
use crate::connection::{CHUNK, Stop};
use crate::plane::Plane;
use henge_core::{Instant, Pending, RequestId};
use henge_link::{Event, PartOutcome};
use rustix::io::Errno;
use std::io::IoSliceMut;

/// Bytes that a link may read in one turn of the loop.
pub(super) const TURN: usize = 4 * crate::turns::BYTES;

/// Payloads from here on are followed by a short read only: less of the next one is copied.
pub(super) const LONG: usize = 32 << 10;

pub(super) const SHORT_CHUNK: usize = 1 << 10;

impl PeerLink {
    /// Reads and acts until the socket is empty.
    pub(crate) fn read(&mut self, id: RequestId, around: Surroundings<'_>) -> Stop {
        let Surroundings { plane, chunk, now, .. } = around;
        let mut taken = 0;
        while self.link.readable {
            if taken >= TURN {
                return Stop::Turn;
            }
            let (data, bytes) = match self.receive(chunk, plane) {
                Ok((0, 0)) => {
                    if self.peer.is_some() {
                        self.end("the other node closed it");
                    }
                    return Stop::Gone;
                }
                Ok(read) => read,
                Err(Errno::AGAIN) => {
                    self.link.readable = false;
                    break;
                }
                Err(Errno::INTR) => continue,
                Err(e) => {
                    self.end(&std::io::Error::from(e).to_string());
                    return Stop::Gone;
                }
            };
            taken += data + bytes;
            if data > 0
                && let Err(why) = self.delivered(data, id, plane, now)
            {
                self.end(&why);
                return Stop::Gone;
            }
            if let Err(why) = self.feed(&chunk[..bytes], id, plane, now) {
                self.end(&why);
                return Stop::Gone;
            }
        }
        self.text();
        Stop::Waiting
    }

    /// Reads what is expected: bytes of a part, and bytes into `chunk`.
    pub(super) fn receive(
        &mut self,
        chunk: &mut [u8],
        plane: &mut Plane,
    ) -> rustix::io::Result<(usize, usize)> {
        let left = self.inflow.as_ref().map_or(0, |i| i.len - i.done);
        // What comes after long payloads is the head of another one, most of the time.
        self.long = self.inflow.as_ref().map_or(self.long, |i| i.len >= LONG);
        let chunk_len = if self.long { SHORT_CHUNK } else { CHUNK };
        let chunk = &mut chunk[..chunk_len];
        let mut slot = &mut [][..];
        if let Some(into) = destination(self.inflow.as_ref(), &mut self.incoming, self.peer, plane) {
            slot = into;
        }
        let direct = slot.len();
        // Bytes that nobody wants go through the chunk.
        let n = self.link.readv(&mut [IoSliceMut::new(slot), IoSliceMut::new(chunk)])?;
        debug_assert!(direct <= left, "no more than what is expected is read into its place");
        Ok((n.min(direct), n.saturating_sub(direct)))
    }

    /// So many bytes of a part have come, and lie where they belong.
    pub(super) fn delivered(
        &mut self,
        n: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let here = destination(self.inflow.as_ref(), &mut self.incoming, self.peer, plane);
        let here = here.expect("bytes lie where they belong");
        self.wire.took(&here[..n]).map_err(|refusal| refusal.to_string())?;
        self.passed(n, id, plane, now);
        Ok(())
    }

    /// So many bytes of a part are taken: once all of them are, it is acted by.
    fn passed(&mut self, n: usize, id: RequestId, plane: &mut Plane, now: Instant) {
        let Some(inflow) = &mut self.inflow else { return };
        inflow.done += n;
        if inflow.done < inflow.len {
            return;
        }
        let to = inflow.to;
        self.inflow = None;
        match to {
            To::Incoming(incoming) => self.start(incoming, id, plane, now),
            To::Answer(part, cost) => {
                let peer = self.peer.expect("answers come on established links");
                plane.links.answered(peer, crate::links::number(part), PartOutcome::Done, cost, now);
            }
            To::Nobody => {}
        }
    }

    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        if self.rest.is_empty() {
            let used = self.take(bytes, id, plane, now)?;
            self.rest.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let used = self.take(&rest, id, plane, now)?;
        rest.drain(..used);
        self.rest = rest;
        Ok(())
    }

    /// Acts on whole messages and on bytes of parts. How many bytes that were.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<usize, String> {
        let mut at = 0;
        loop {
            let input = &input[at..];
            if let Some(inflow) = &self.inflow {
                if input.is_empty() {
                    return Ok(at);
                }
                let mut n = input.len().min(inflow.len - inflow.done);
                if let Some(to) = destination(self.inflow.as_ref(), &mut self.incoming, self.peer, plane) {
                    n = n.min(to.len());
                    to[..n].copy_from_slice(&input[..n]);
                }
                at += n;
                self.wire.took(&input[..n]).map_err(|refusal| refusal.to_string())?;
                self.passed(n, id, plane, now);
                continue;
            }
            let received = self.wire.receive(input, now).map_err(|refusal| refusal.to_string())?;
            at += received.len;
            match received.event {
                None => {}
                Some(Event::NeedMore(_)) => return Ok(at),
                Some(Event::Established { name, .. }) => self.established(&name, id, plane)?,
                Some(Event::Message { message, data }) => self.message(message, data, id, plane, now)?,
            }
        }
    }
}

/// Where the next bytes of a part belong: one stretch of memory.
pub(super) fn destination<'a>(
    inflow: Option<&Inflow>,
    incoming: &'a mut Pending<Incoming>,
    peer: Option<usize>,
    plane: &'a mut Plane,
) -> Option<&'a mut [u8]> {
    let Inflow { to, done, len } = *inflow?;
    match to {
        To::Incoming(id) => {
            let incoming = incoming.get_mut(id).expect("a part stays while its bytes come");
            let own = (incoming.command.len as usize).min(len);
            // The bytes to compare with come behind the new ones, and stand elsewhere.
            let (at, n) = match done < own {
                true => (incoming.lead + done, own - done),
                false => (incoming.verify + done - own, len - done),
            };
            Some(&mut incoming.frame[at..at + n])
        }
        To::Answer(id, _) => {
            let peer = peer.expect("answers come on established links");
            plane.links.peer(peer).bytes(id).map(|bytes| &mut bytes[done..len])
        }
        To::Nobody => None,
    }
}
