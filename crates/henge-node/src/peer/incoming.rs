//! The peer's parts that are under way here, by their names at both ends.

use crate::links::name;
use henge_backend::Buffer;
use henge_core::{Pending, RequestId};
use henge_vdisk::Command;

/// Most parts of a peer under way here; its coordinators are told less.
const INCOMING_MAX: usize = 1 << 16;

/// Parts of a peer that can be found by their names.
const SLOTS_MAX: usize = 1 << 20;

/// Where the peer keeps a part that it calls so.
fn slot(theirs: u64) -> usize {
    name(theirs).index()
}

/// A part of theirs.
pub(super) struct Incoming {
    pub theirs: u64,
    pub extent: u32,
    pub owner: usize,
    pub command: Command,
    /// While its bytes come; afterwards the disk has it.
    pub frame: Buffer,
    pub lead: usize,
    pub verify: usize,
}

/// All of them.
pub(super) struct IncomingParts {
    parts: Pending<Incoming>,
    /// Where parts are, by the slot in the peer's name for them. Parts with slots beyond `SLOTS_MAX` are not cancelled.
    by_slot: Vec<RequestId>,
}

impl IncomingParts {
    pub(super) fn new() -> IncomingParts {
        IncomingParts { parts: Pending::new(), by_slot: Vec::new() }
    }

    /// Whether there may be another.
    pub(super) fn has_capacity(&self) -> bool {
        self.parts.len() < INCOMING_MAX
    }

    /// A part more: its name here.
    pub(super) fn insert(&mut self, part: Incoming) -> RequestId {
        let slot = slot(part.theirs);
        let incoming = self.parts.insert(part);
        if slot < SLOTS_MAX {
            if self.by_slot.len() <= slot {
                self.by_slot.resize(slot + 1, incoming);
            }
            self.by_slot[slot] = incoming;
        }
        incoming
    }

    /// The part that the peer calls so.
    pub(super) fn called(&self, theirs: u64) -> Option<(RequestId, &Incoming)> {
        let incoming = *self.by_slot.get(slot(theirs))?;
        let part = self.parts.get(incoming)?;
        (part.theirs == theirs).then_some((incoming, part))
    }

    pub(super) fn get_mut(&mut self, incoming: RequestId) -> Option<&mut Incoming> {
        self.parts.get_mut(incoming)
    }

    pub(super) fn remove(&mut self, incoming: RequestId) -> Option<Incoming> {
        self.parts.remove(incoming)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Incoming> {
        self.parts.iter_mut().map(|(_, part)| part)
    }
}
