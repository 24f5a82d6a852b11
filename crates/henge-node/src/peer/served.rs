//! What the peer asks of this node: its extents here, its parts, and their answers.

use super::incoming::Incoming;
use super::wire::Piece;
use super::{Inflow, PeerLink, To};
use crate::plane::{Answer, Plane, Submitter};
use crate::spread::across;
use crate::spread::acts;
use crate::spread::coordinator;
use crate::spread::extents;
use crate::spread::seating;
use henge_core::{Cost, Fault, FlowId, Instant, News, NodeId, RequestId, Sender, Sync};
use henge_link::{Message, PartKind, PartOutcome, WireNews, WirePart};
use henge_vdisk::{Command, Failure, Kind, Portion};
use std::sync::Arc;

/// Credits of an extent: parts, and bytes of them.
pub(super) const CREDIT_PARTS: u32 = 4096;

pub(super) const CREDIT_BYTES: u64 = 16 << 20;

impl PeerLink {
    /// Tells the peer whether parts of an extent may come.
    pub(super) fn answer_attach(&mut self, extent: u32, plane: &mut Plane, now: Instant) {
        let Some(attached) = self.attachments.get_mut(extent) else { return };
        let by = plane.links.name(self.peer);
        let message = match extents::owner(plane, &attached.disk, attached.index, attached.shape, by) {
            Ok(owner) => {
                (attached.owner, attached.refusal) = (Some(owner), None);
                let (flow, sender) = (FlowId(owner as u32), self.sender());
                // What it carries is counted from here on.
                plane.links.foreign.begin(flow, sender);
                let unit = coordinator::unit_of(plane, owner)
                    .expect("an owner is one once it knows what it charges");
                Message::Attached { extent, parts: CREDIT_PARTS, bytes: CREDIT_BYTES, unit }
            }
            Err(why) => {
                (attached.owner, attached.refusal) = (None, Some(why.clone()));
                Message::Detached { extent, why }
            }
        };
        self.wire.send(&message, &[], now);
    }

    /// A disk has come or gone: what that changes for the peer's extents.
    pub(crate) fn reconsider(&mut self, disk: &Arc<str>, plane: &mut Plane, now: Instant) {
        for extent in self.attachments.of_disk(disk) {
            let Some(attached) = self.attachments.get(extent) else { continue };
            let by = plane.links.name(self.peer);
            let (owner, refusal) =
                match extents::owner(plane, &attached.disk, attached.index, attached.shape, by) {
                    Ok(owner) => (Some(owner), None),
                    Err(why) => (None, Some(why)),
                };
            if (owner, &refusal) != (attached.owner, &attached.refusal) {
                self.answer_attach(extent, plane, now);
            }
        }
    }

    pub(super) fn sender(&self) -> Sender {
        Sender::Coordinator(NodeId(self.peer.map_or(u32::MAX, |peer| peer as u32)))
    }

    /// Service elsewhere, told without a part.
    pub(super) fn heard(
        &mut self,
        extent: u32,
        (epoch, sequence): (u64, u64),
        news: &WireNews,
        plane: &mut Plane,
        now: Instant,
    ) {
        let Some(owner) = self.attachments.owner(extent) else { return };
        let WireNews::Total { total, before } = *news else { return };
        let news = News::Total { total: Cost::new(total), before: Cost::new(before) };
        let (flow, sender) = (FlowId(owner as u32), self.sender());
        let foreign = plane.links.foreign.announced(&Sync { sender, epoch, sequence, flow, news });
        across::foreign_at(plane, owner, foreign, now);
    }

    /// A part of theirs: room and memory for it, or it is to come again.
    pub(super) fn part(
        &mut self,
        part: &WirePart,
        data: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let (kind, fua) = kind_of(part, data)?;
        let taken = self
            .owner_for(part, kind, plane)
            .and_then(|owner| self.take_in(part, (kind, fua), owner, plane, now));
        match taken {
            Ok(incoming) if data > 0 => {
                self.inflow = Some(Inflow { to: To::Incoming(incoming), done: 0, len: data });
            }
            Ok(incoming) => self.start(incoming, id, plane, now),
            Err(outcome) => {
                self.wire.send(&Message::Done { id: part.id, outcome, cost: 0 }, &[], now);
                self.inflow = (data > 0).then_some(Inflow { to: To::Nobody, done: 0, len: data });
            }
        }
        Ok(())
    }

    /// The owner here of a part's extent, if it does such a part now.
    fn owner_for(&self, part: &WirePart, kind: Kind, plane: &mut Plane) -> Result<usize, PartOutcome> {
        // What a node answers that is about to end is flushed before.
        let changes = !matches!(kind, Kind::Read | Kind::Flush | Kind::Cache);
        let owner = self.attachments.owner(part.extent).filter(|_| !(changes && plane.links.ending));
        let owner = owner.ok_or(PartOutcome::Detached)?;
        if !acts::admits(plane, owner, self.peer) {
            return Err(PartOutcome::Later);
        }
        let capacity = plane.disks.of(owner).vdisk.capacity();
        let longest = if kind.moves_data() { henge_link::DATA_MAX as u64 } else { u64::MAX };
        let fits = |end| end <= capacity && part.len <= longest;
        if kind != Kind::Flush && !part.offset.checked_add(part.len).is_some_and(fits) {
            return Err(PartOutcome::OutOfRange);
        }
        Ok(owner)
    }

    /// A part has memory, and a name here.
    fn take_in(
        &mut self,
        part: &WirePart,
        (kind, fua): (Kind, bool),
        owner: usize,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<RequestId, PartOutcome> {
        let frame = plane.disks.of(owner).vdisk.frame(kind, part.offset, part.len);
        let takes_in = plane.disks.of(owner).vdisk.has_capacity() && self.incoming.has_capacity();
        let buffer = if takes_in { plane.take_buffer(owner, frame.len) } else { None };
        let mut buffer = buffer.ok_or(PartOutcome::Later)?;
        if frame.zeroed {
            buffer.fill(0);
        }
        let portion = Some(Portion { commands: part.commands, foreign: self.carried(owner, part, plane) });
        let command = Command { fua, portion, ..Command::new(kind, part.offset, part.len, now, 0) };
        let (lead, verify) = (frame.lead as usize, frame.verify.unwrap_or(0) as usize);
        Ok(self.incoming.insert(Incoming {
            theirs: part.id,
            extent: part.extent,
            owner,
            command,
            frame: buffer,
            lead,
            verify,
        }))
    }

    /// The service elsewhere that a part tells, beyond what was known.
    pub(super) fn carried(&self, owner: usize, part: &WirePart, plane: &mut Plane) -> Cost {
        if part.foreign == 0 {
            return Cost::ZERO;
        }
        let news = News::Total { total: Cost::new(part.foreign), before: Cost::new(part.before) };
        let (flow, sender) = (FlowId(owner as u32), self.sender());
        plane.links.foreign.carried(&Sync { sender, epoch: 0, sequence: 0, flow, news })
    }

    /// A part of theirs is complete.
    pub(super) fn start(&mut self, incoming: RequestId, id: RequestId, plane: &mut Plane, now: Instant) {
        let part = self.incoming.get_mut(incoming).expect("a part that is complete is there");
        let (extent, owner) = (part.extent, part.owner);
        let (command, frame) = (part.command, std::mem::take(&mut part.frame));
        if self.attachments.owner(extent) != Some(owner) {
            // The disk went while its bytes came.
            let theirs = part.theirs;
            self.incoming.remove(incoming);
            plane.put_buffer(owner, frame);
            self.wire.send(&Message::Done { id: theirs, outcome: PartOutcome::Detached, cost: 0 }, &[], now);
            return;
        }
        let command = Command { arrival: now, ..command };
        plane.submit(owner, command, frame, Submitter { connection: id, command: incoming }, now);
    }

    /// An owner has finished a part of theirs.
    pub(super) fn answer(&mut self, answer: Answer, plane: &mut Plane, now: Instant) {
        let Answer { disk: owner, submitter, outcome, frame, lead, cost, .. } = answer;
        let Some(part) = self.incoming.remove(submitter.command) else {
            return plane.put_buffer(owner, frame);
        };
        let verify = part.verify as u64;
        let outcome = match outcome {
            Ok(()) => PartOutcome::Done,
            Err(Failure::Miscompare { at }) => PartOutcome::Miscompare(at - verify),
            // Its storage is another gateway's by now, which the coordinator finds.
            Err(Failure::Fault(Fault::Unreachable)) if seating::is_lost(plane, owner, now) => {
                PartOutcome::Detached
            }
            Err(Failure::Fault(fault)) => match fault {
                Fault::NoSpace => PartOutcome::NoSpace,
                Fault::Unsupported => PartOutcome::Unsupported,
                Fault::OutOfRange => PartOutcome::OutOfRange,
                Fault::Cancelled => PartOutcome::Cancelled,
                Fault::Io | Fault::Unreachable => PartOutcome::Io,
            },
        };
        let read = part.command.kind == Kind::Read && outcome == PartOutcome::Done;
        let data = if read { part.command.len as usize } else { 0 };
        if let Some(peer) = self.peer {
            plane.links.peer(peer).counts.served += 1;
        }
        let bytes = if data > 0 { &frame[lead as usize..lead as usize + data] } else { &[] };
        self.wire.send(&Message::Done { id: part.theirs, outcome, cost: cost.get() }, bytes, now);
        if data > 0 {
            self.wire.push(Piece::Answer { owner, frame, at: lead as usize, len: data });
        } else {
            plane.put_buffer(owner, frame);
        }
    }

    /// The link is over: its parts here are given up, and its memory given back.
    pub(super) fn release(&mut self, id: RequestId, plane: &mut Plane, now: Instant) {
        for piece in self.wire.take_pieces() {
            if let Piece::Answer { owner, frame, .. } = piece {
                plane.put_buffer(owner, frame);
            }
        }
        let mut owners = Vec::new();
        for part in self.incoming.iter_mut() {
            let frame = std::mem::take(&mut part.frame);
            if frame.is_empty() {
                owners.push(part.owner);
            } else {
                plane.put_buffer(part.owner, frame);
            }
        }
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            plane.abort(owner, id, None, now);
        }
    }
}

/// What a part asks for, and whether it is to be durable. `data`: its bytes on the way.
fn kind_of(part: &WirePart, data: usize) -> Result<(Kind, bool), String> {
    let len = usize::try_from(part.len).map_err(|_| "it sent a part that no memory holds".to_owned())?;
    let (kind, fua, expected) = match part.kind {
        PartKind::Read => (Kind::Read, false, 0),
        PartKind::Write { fua } => (Kind::Write, fua, len),
        PartKind::Flush => (Kind::Flush, false, 0),
        PartKind::Trim => (Kind::Trim, false, 0),
        PartKind::WriteZeroes { no_hole, fua } => (Kind::WriteZeroes { no_hole }, fua, 0),
        PartKind::Cache => (Kind::Cache, false, 0),
        PartKind::CompareAndWrite { fua } => (Kind::CompareAndWrite, fua, len.saturating_mul(2)),
    };
    if data != expected {
        return Err("it sent a part with more or fewer bytes than it names".into());
    }
    Ok((kind, fua))
}
