//! Bytes from the peer: messages are told from what belongs to parts, which is read straight into its place.

use super::incoming::IncomingParts;
use super::{Inflow, PeerLink, To};
use crate::plane::Plane;
use crate::pump::CHUNK;
use crate::session::Wants;
use henge_core::{Instant, RequestId};
use henge_link::{LinkEvent, PartOutcome};

/// Bytes that a link may read in one turn of the loop.
pub(super) const TURN: usize = 4 * crate::turns::BYTES;

/// Payloads from here on are followed by a short read only: less of the next one is copied.
pub(super) const LONG: usize = 32 << 10;

pub(super) const SHORT_CHUNK: usize = 1 << 10;

impl PeerLink {
    /// What is expected: bytes of a part, or messages. Bytes that nobody wants are taken with the messages.
    pub(super) fn wanted<'a>(&'a mut self, plane: &'a mut Plane) -> Wants<'a> {
        // What comes after long payloads is the head of another one, most of the time.
        self.long = self.inflow.as_ref().map_or(self.long, |i| i.len >= LONG);
        let chunk = if self.long { SHORT_CHUNK } else { CHUNK };
        match destination(self.inflow.as_ref(), &mut self.incoming, self.peer, plane) {
            Some(into) => Wants::Payload { into, beyond: chunk },
            None => Wants::Bytes { most: chunk },
        }
    }

    /// So many bytes of a part have come, and lie where they belong.
    pub(super) fn arrived(
        &mut self,
        n: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let here = destination(self.inflow.as_ref(), &mut self.incoming, self.peer, plane);
        let here = here.expect("bytes lie where they belong");
        self.wire.link.took(&here[..n]).map_err(|refusal| refusal.to_string())?;
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

    /// Acts on whole messages, up to one with bytes that belong somewhere. How many bytes that were.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<usize, String> {
        let mut at = 0;
        loop {
            if let Some(why) = self.wire.overflow() {
                return Err(why);
            }
            let input = &input[at..];
            if let Some(inflow) = &self.inflow {
                let n = input.len().min(inflow.len - inflow.done);
                let wanted = destination(Some(inflow), &mut self.incoming, self.peer, plane).is_some();
                if n == 0 || wanted {
                    return Ok(at);
                }
                at += n;
                self.wire.link.took(&input[..n]).map_err(|refusal| refusal.to_string())?;
                self.passed(n, id, plane, now);
                continue;
            }
            let received = self.wire.link.receive(input, now).map_err(|refusal| refusal.to_string())?;
            at += received.len;
            match received.event {
                None => {}
                Some(LinkEvent::NeedMore(_)) => return Ok(at),
                Some(LinkEvent::Established { name, epoch }) => self.established(&name, epoch, id, plane)?,
                Some(LinkEvent::Message { message, data }) => self.message(message, data, id, plane, now)?,
            }
        }
    }
}

/// Where the next bytes of a part belong: one stretch of memory.
pub(super) fn destination<'a>(
    inflow: Option<&Inflow>,
    incoming: &'a mut IncomingParts,
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
            plane.links.peer(peer).in_flight.bytes(id).map(|bytes| &mut bytes[done..len])
        }
        To::Nobody => None,
    }
}
