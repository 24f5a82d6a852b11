//! Parts of commands that are at a peer, or on their way to it.

use henge_backend::Buffer;
use henge_core::{Cost, Fault, Instant, Pending, RequestId};
use henge_link::PartKind;
use henge_vdisk::{Failure, Part};
use std::collections::VecDeque;

/// Parts handed out to one extent at once, sent or not.
pub(crate) const PARTS_MAX: u32 = 16_384;
/// So many deadlines of parts that are over may be remembered, whatever is under way.
const DEADLINES: usize = 1024;

/// A part is over.
#[derive(Debug)]
pub(crate) struct Return {
    pub disk: usize,
    pub part: Part,
    /// Which extent of the disk.
    pub extent: u32,
    pub outcome: Result<(), Failure>,
    pub cost: Cost,
}

/// What a part asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub kind: PartKind,
    pub offset: u64,
    pub len: u64,
    pub commands: u32,
    /// Where in the command's buffer the bytes to compare with stand.
    pub verify: u64,
}

impl Ask {
    /// What it is that bytes differ there. A peer's word on bytes that nobody asked to compare is an error of its own.
    pub(super) fn differs(&self, at: u64) -> Failure {
        let compares = matches!(self.kind, PartKind::CompareAndWrite { .. }) && at < self.len;
        if compares { Failure::Miscompare { at: self.verify + at } } else { Failure::Fault(Fault::Io) }
    }

    /// Bytes that go with it.
    pub(crate) fn data(&self) -> usize {
        match self.kind {
            PartKind::Write { .. } => self.len as usize,
            PartKind::CompareAndWrite { .. } => 2 * self.len as usize,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// For a credit, or for the extent to be attached.
    Waiting,
    /// On the link's queue.
    Queued,
    /// Handed to the link; its bytes must stay.
    Writing,
    /// Gone; its answer is to come.
    Written,
}

/// A part at a peer, or on its way.
#[derive(Debug)]
pub(super) struct Sent {
    pub disk: usize,
    pub part: Part,
    pub toward: u32,
    pub ask: Ask,
    /// The command's own bytes.
    pub loan: Buffer,
    pub stage: Stage,
    /// Nobody wants it any more: it does not go again.
    pub unwanted: bool,
    /// None where it may wait for ever.
    pub deadline: Option<Instant>,
    /// The requests of the same extent before and after this one.
    pub older: Option<RequestId>,
    pub newer: Option<RequestId>,
}

impl Sent {
    /// Bytes that it takes of its extent's credit.
    pub(super) fn credit(&self) -> u64 {
        if self.loan.is_empty() { 0 } else { self.ask.len }
    }

    /// Whether the peer has begun to hear of it.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.stage, Stage::Writing | Stage::Written)
    }
}

/// All parts of a peer, and when each is late.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(super) parts: Pending<Sent>,
    /// In the order of the deadlines; some parts may be over already.
    deadlines: VecDeque<(Instant, RequestId)>,
}

impl InFlight {
    pub(super) fn new() -> InFlight {
        InFlight { parts: Pending::new(), deadlines: VecDeque::new() }
    }

    /// A part more.
    pub(super) fn insert(&mut self, sent: Sent) -> RequestId {
        let deadline = sent.deadline;
        let id = self.parts.insert(sent);
        self.deadlines.extend(deadline.map(|at| (at, id)));
        // Most are over long before. One that is not keeps those behind it: they are let go once they are as many as all that
        // are under way.
        for _ in 0..2 {
            self.deadlines.pop_front_if(|(_, id)| self.parts.get(*id).is_none());
        }
        if self.deadlines.len() > 2 * self.parts.len() + DEADLINES {
            self.deadlines.retain(|(_, id)| self.parts.get(*id).is_some());
        }
        id
    }

    /// Changes a part, if there is one.
    pub(super) fn set(&mut self, id: impl Into<Option<RequestId>>, set: impl FnOnce(&mut Sent)) {
        if let Some(sent) = id.into().and_then(|id| self.parts.get_mut(id)) {
            set(sent);
        }
    }

    /// A part that has been sent is not wanted any more.
    pub(super) fn forsake(&mut self, id: RequestId) {
        self.set(id, |sent| sent.unwanted = true);
    }

    /// Whether the peer may do a part, and change something, after its link was lost here.
    pub(super) fn may_be_done(&self, id: RequestId) -> bool {
        self.parts.get(id).is_some_and(|sent| {
            let changes = !matches!(sent.ask.kind, PartKind::Read | PartKind::Flush | PartKind::Cache);
            changes && sent.is_out()
        })
    }

    /// The parts of a chain that belong to these commands, the newest first.
    pub(super) fn of_commands(
        &self,
        newest: Option<RequestId>,
        commands: &[RequestId],
    ) -> Vec<(RequestId, Stage)> {
        let mut found = Vec::new();
        let mut next = newest;
        while let Some(id) = next {
            let sent = self.parts.get(id).expect("a chain's parts are there");
            if commands.binary_search(&sent.part.id.command).is_ok() {
                found.push((id, sent.stage));
            }
            next = sent.older;
        }
        found
    }

    /// The parts that should have been answered by now.
    pub(super) fn late(&mut self, now: Instant) -> Vec<(RequestId, Stage)> {
        let mut late = Vec::new();
        while let Some((at, id)) = self.deadlines.front().copied() {
            match self.parts.get(id) {
                Some(_) if at > now => break,
                Some(sent) => late.push((id, sent.stage)),
                None => {}
            }
            self.deadlines.pop_front();
        }
        late
    }

    /// No part is late any more.
    pub(super) fn forget_deadlines(&mut self) {
        self.deadlines.clear();
    }

    #[cfg(test)]
    pub(super) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// The bytes of a part: to be written, or to be read into.
    pub(crate) fn bytes(&mut self, id: RequestId) -> Option<&mut Buffer> {
        self.parts.get_mut(id).map(|sent| &mut sent.loan)
    }

    /// The same, to be read.
    pub(crate) fn loan(&self, id: RequestId) -> &Buffer {
        &self.parts.get(id).expect("a part stays until its bytes are written").loan
    }

    /// Whether a part is a read of some bytes.
    pub(crate) fn is_read(&self, id: RequestId) -> bool {
        self.parts.get(id).is_some_and(|s| s.ask.kind == PartKind::Read && s.ask.len > 0)
    }

    /// Whether a part expects `len` bytes as its answer.
    pub(crate) fn expects(&self, id: RequestId, len: usize) -> bool {
        self.parts
            .get(id)
            .is_some_and(|s| s.stage == Stage::Written && s.ask.kind == PartKind::Read && s.loan.len() == len)
    }

    /// Its bytes are in the socket.
    pub(crate) fn written(&mut self, id: RequestId) {
        self.set(id, |sent| sent.stage = Stage::Written);
    }

    /// Parts sent or waiting.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A part's name on the wire, and back.
pub(crate) fn number(id: RequestId) -> u64 {
    u64::from(id.slot) << 32 | u64::from(id.generation)
}
pub(crate) fn name(number: u64) -> RequestId {
    RequestId { slot: (number >> 32) as u32, generation: number as u32 }
}
