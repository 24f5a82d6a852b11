//! Parts handed to peers: sent, answered, given up.

use super::Links;
use super::in_flight::{Ask, Return, Sent, Stage, name, number};
use super::lives::LOOK;
use super::peer::LATER;
use henge_backend::Buffer;
use henge_core::{Cost, Duration, Fault, Instant, RequestId};
use henge_link::{Message, PartOutcome};
use henge_vdisk::{Failure, Part};

impl Links {
    pub(crate) fn has_capacity(&self, p: usize, toward: u32) -> bool {
        let peer = self.peers[p].as_ref().expect("a peer in use is there");
        peer.extents.has_capacity(toward)
    }

    /// The peer takes no parts of an extent.
    pub(crate) fn refused(&mut self, (p, number): (usize, u32), why: String) {
        let before = self.returns.len();
        let mut returns = std::mem::take(&mut self.returns);
        self.peer(p).refused(number, why, &mut returns);
        self.returns = returns;
        if self.returns.len() > before {
            self.complain(p, number);
        }
    }

    /// Clients' commands fail because a linked peer refuses an extent: the operator hears it, once for each link and reason.
    fn complain(&mut self, p: usize, number: u32) {
        if let Some(what) = self.peer(p).complaint(number) {
            self.notices.say(what);
        }
    }

    /// Hands a part of a disk's command to an extent at a peer. `patient`: it is never late, since somebody else may take the disk over.
    pub(crate) fn send(
        &mut self,
        (p, number): (usize, u32),
        (disk, part, patient): (usize, Part, bool),
        ask: Ask,
        loan: Buffer,
        now: Instant,
    ) {
        let timeout = self.config.as_ref().map_or(Duration::ZERO, |config| config.timeout);
        let deadline = (!patient).then(|| now + timeout);
        let peer = self.peer(p);
        if (peer.link.is_none() && peer.replaced_until.is_none()) || peer.extents.refuses(number) {
            peer.counts.failed += 1;
            let extent = peer.extents.index_of(number);
            drop(loan);
            let outcome = Err(Failure::Fault(Fault::Unreachable));
            self.returns.push_back(Return { disk, part, extent, outcome, cost: Cost::ZERO });
            self.complain(p, number);
            return;
        }
        let (stage, toward) = (Stage::Waiting, number);
        let unwanted = false;
        peer.take(Sent {
            disk,
            part,
            toward,
            ask,
            loan,
            stage,
            unwanted,
            deadline,
            older: None,
            newer: None,
        });
        if peer.pump(number) {
            self.touch(p);
        }
        self.alarm.by(now + LOOK);
    }

    /// Ends a part; whoever waits for its credit goes on.
    pub(crate) fn over(&mut self, p: usize, id: RequestId, outcome: Result<(), Failure>, cost: Cost) {
        let peer = self.peer(p);
        let Some(back) = peer.over(id, outcome, cost) else { return };
        let number = back.0;
        self.returns.push_back(back.1);
        if self.peer(p).pump(number) {
            self.touch(p);
        }
    }

    /// A peer's answer, without the bytes of a read.
    pub(crate) fn answered(&mut self, p: usize, id: u64, outcome: PartOutcome, cost: Cost, now: Instant) {
        let id = name(id);
        let peer = self.peer(p);
        let Some(sent) = peer.in_flight.parts.get(id) else { return };
        if sent.stage != Stage::Written {
            return; // an answer before the question was out: of another life
        }
        let ask = sent.ask;
        let result = match outcome {
            PartOutcome::Later if sent.unwanted => Err(Failure::Fault(Fault::Cancelled)),
            PartOutcome::Later => {
                peer.put_off(id, now);
                return self.alarm.by(now + LATER);
            }
            PartOutcome::Done => Ok(()),
            PartOutcome::Miscompare(at) => Err(ask.differs(at)),
            PartOutcome::Detached => Err(Failure::Fault(Fault::Unreachable)),
            PartOutcome::Io => Err(Failure::Fault(Fault::Io)),
            PartOutcome::NoSpace => Err(Failure::Fault(Fault::NoSpace)),
            PartOutcome::Unsupported => Err(Failure::Fault(Fault::Unsupported)),
            PartOutcome::OutOfRange => Err(Failure::Fault(Fault::OutOfRange)),
            PartOutcome::Cancelled => Err(Failure::Fault(Fault::Cancelled)),
        };
        self.over(p, id, result, cost);
    }

    /// Gives parts of an extent up that belong to these commands. Unsent parts are over; the peer is told of the others.
    pub(crate) fn cancel(&mut self, (p, number): (usize, u32), commands: &[RequestId]) {
        for (id, stage) in self.peer(p).parts_of(number, commands) {
            if matches!(stage, Stage::Waiting | Stage::Queued) {
                self.over(p, id, Err(Failure::Fault(Fault::Cancelled)), Cost::ZERO);
            } else {
                let peer = self.peer(p);
                peer.in_flight.forsake(id);
                peer.outgoing.messages.push_back(Message::Cancel { id: self::number(id) });
                self.touch(p);
            }
        }
    }
}
