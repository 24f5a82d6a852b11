//! A peer's extents: those of this node's disks that lie there, by the numbers that both ends know them by.

use super::in_flight::PARTS_MAX;
use henge_core::RequestId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Extents asked for in a step when a link is made.
const STEP: u32 = 256;
/// So many numbers of extents rest before the first of them is used again: what a peer says of it is not of its last use.
const RESTING: usize = 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Asking,
    Attached {
        parts: u32,
        bytes: u64,
    },
    /// Whether the operator has heard of it: that is worth it once a command fails.
    Refused {
        why: String,
        told: bool,
    },
}

/// An extent of a disk of ours at a peer.
#[derive(Debug)]
pub(super) struct Toward {
    pub name: String,
    pub disk: usize,
    pub index: u32,
    pub shape: u64,
    /// The link's life in which its state and what waits are true.
    life: u64,
    pub state: State,
    /// Sent and not answered.
    pub parts: u32,
    pub bytes: u64,
    /// Handed out and not over.
    pub pending: u32,
    /// Whether it is among those that wait for `later`.
    pub put_off: bool,
    pub waiting: VecDeque<RequestId>,
    /// Of all its parts the one that came last; each knows the one before.
    pub newest: Option<RequestId>,
    /// Foreign service that its parts have told, all in all.
    pub carried: u64,
}

impl Toward {
    /// Not asked for yet, and with no parts.
    pub(super) fn new(name: &str, disk: usize, index: u32, shape: u64) -> Toward {
        Toward {
            name: name.to_owned(),
            disk,
            index,
            shape,
            life: 0,
            state: State::Asking,
            parts: 0,
            bytes: 0,
            pending: 0,
            put_off: false,
            waiting: VecDeque::new(),
            newest: None,
            carried: 0,
        }
    }
}

/// All extents at a peer.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    all: Vec<Option<Toward>>,
    /// Numbers of extents that were given up, the oldest first.
    given_up: VecDeque<u32>,
    /// Disks with extents there: how many extents.
    disks: BTreeMap<usize, u32>,
    /// The extents below this number were asked for on this link.
    asked: u32,
    /// Grows with each link that is lost.
    life: u64,
}

impl Extents {
    /// An extent more: its number.
    pub(super) fn add(&mut self, mut toward: Toward) -> u32 {
        toward.life = self.life;
        *self.disks.entry(toward.disk).or_insert(0) += 1;
        let rested = self.given_up.len() > RESTING;
        match self.given_up.pop_front_if(|_| rested) {
            Some(number) => {
                self.all[number as usize] = Some(toward);
                number
            }
            None => {
                self.all.push(Some(toward));
                self.all.len() as u32 - 1
            }
        }
    }

    /// An extent is not used any more; it has nothing pending.
    pub(crate) fn give_up(&mut self, number: u32) {
        let Some(toward) = self.all[number as usize].take() else { return };
        self.given_up.push_back(number);
        match self.disks.get_mut(&toward.disk) {
            Some(extents) if *extents > 1 => *extents -= 1,
            _ => drop(self.disks.remove(&toward.disk)),
        }
    }

    /// The disks with extents there.
    pub(crate) fn disks(&self) -> Vec<usize> {
        self.disks.keys().copied().collect()
    }

    /// A disk with an extent there, if there is any.
    pub(crate) fn a_disk(&self) -> Option<usize> {
        self.disks.keys().next().copied()
    }

    /// The disk of an extent there.
    pub(crate) fn disk_of(&self, number: u32) -> Option<usize> {
        Some(self.known(number)?.disk)
    }

    /// Which extent of its disk it is.
    pub(super) fn index_of(&self, number: u32) -> u32 {
        self.all[number as usize].as_ref().map_or(0, |toward| toward.index)
    }

    /// Whether another part may be handed out to an extent.
    pub(super) fn has_capacity(&self, number: u32) -> bool {
        self.all[number as usize].as_ref().is_none_or(|toward| toward.pending < PARTS_MAX)
    }

    /// An extent, with a state that a former link may have brought.
    pub(super) fn known(&self, number: u32) -> Option<&Toward> {
        self.all.get(number as usize)?.as_ref()
    }

    /// The same, of a part that is there.
    pub(super) fn known_of(&mut self, number: u32) -> &mut Toward {
        self.all[number as usize].as_mut().expect("an extent with parts stays")
    }

    /// An extent, as this link knows it: what the last one said of it is forgotten.
    pub(super) fn of_link(&mut self, number: u32) -> Option<&mut Toward> {
        let toward = self.all.get_mut(number as usize)?.as_mut()?;
        if toward.life != self.life {
            toward.life = self.life;
            toward.waiting.clear();
            toward.put_off = false;
            toward.state = State::Asking;
        }
        Some(toward)
    }

    /// The same, of a part that is there.
    pub(super) fn of_part(&mut self, number: u32) -> &mut Toward {
        self.of_link(number).expect("an extent with parts stays")
    }

    /// Whether this link has brought an extent's state.
    pub(super) fn is_of_link(&self, toward: &Toward) -> bool {
        toward.life == self.life
    }

    /// Whether the peer has said that it takes no parts of an extent.
    pub(super) fn refuses(&mut self, number: u32) -> bool {
        matches!(self.of_part(number).state, State::Refused { .. })
    }

    /// A link is lost: no extent knows anything of the next one yet.
    pub(super) fn begin_life(&mut self) {
        self.life += 1;
    }

    /// A link is made: all are to be asked for.
    pub(super) fn ask_again(&mut self) {
        self.asked = 0;
    }

    /// The extents that were asked for on this link are those below this number.
    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    /// Some more that are to be asked for.
    pub(super) fn next_to_ask(&mut self) -> Range<u32> {
        let from = self.asked;
        self.asked = (self.asked + STEP).min(self.all.len() as u32);
        from..self.asked
    }

    /// Whether there are still more.
    pub(super) fn has_more_to_ask(&self) -> bool {
        self.asked < self.all.len() as u32
    }
}
