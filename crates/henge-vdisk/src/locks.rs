//! Range locks: what a read-modify-write must not meet.
//!
//! The problem: a write that is not aligned reads a block, changes some bytes and writes the block back; another
//! write to that block in between would be lost. COMPARE AND WRITE has the same need. The rule: a lock is a
//! range, *shared* (plain writes, which may overlap each other as on any disk) or *exclusive*; two locks conflict
//! if their ranges overlap and one is exclusive; a lock waits for every conflicting one that came before it,
//! held or waiting.
//!
//! Example: write A [0, 8), unaligned B [4, 12), write C [10, 20), write D [30, 40): B waits for A, C for B
//! (although only A is held), D for nobody.
//!
//! How: a lock that must wait is parked at the latest of the locks that it waits for. When that one goes, it looks for
//! another, and is held once there is none. So a thousand writes of a byte to one block are a chain, in which each
//! release looks at one.
//!
//! Guarantee: no two conflicting locks are ever held; whoever waits, waits only for earlier ones, so there is no
//! deadlock and no starvation. Price: constant while no exclusive lock is about; else two searches of a tree
//! (`intervals.rs`) for a lock, and two for each that is parked at one that goes. Reads take no lock.

use crate::intervals::Intervals;
use henge_core::{Pending, RequestId};
use std::ops::Range;

/// Names a lock, held or waiting.
pub type LockId = RequestId;

/// No lock.
const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Lock {
    range: Range<u64>,
    exclusive: bool,
    /// Order of arrival.
    turn: u64,
    owner: RequestId,
    /// Where it is parked, and its neighbours there; `NIL` once it is held.
    at: u32,
    before: u32,
    behind: u32,
    /// The first of the locks that are parked here.
    parked: u32,
}

/// The locks of one virtual disk.
#[derive(Clone, Debug, Default)]
pub struct RangeLocks {
    locks: Pending<Lock>,
    /// Locks that conflict with every lock on their range, and locks that conflict with the exclusive ones alone.
    exclusive: Intervals,
    shared: Intervals,
    /// An exclusive lock came since there was none at all: from then on the shared ones are in their tree.
    ordered: bool,
    turn: u64,
    /// Of one release, to be sorted.
    woken: Vec<(u64, RequestId)>,
}

impl RangeLocks {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }
    /// Locks held or waiting.
    pub fn len(&self) -> usize {
        self.locks.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Asks for a lock: its name, and whether it is held already. If not, a later `release` names the owner.
    pub fn acquire(&mut self, range: Range<u64>, exclusive: bool, owner: RequestId) -> (LockId, bool) {
        self.turn += 1;
        let turn = self.turn;
        if exclusive && !self.ordered {
            self.ordered = true;
            for (id, lock) in self.locks.iter() {
                self.shared.insert(id.slot, &lock.range, lock.turn);
            }
        }
        let lock = Lock { range, exclusive, turn, owner, at: NIL, before: NIL, behind: NIL, parked: NIL };
        let id = self.locks.insert(lock);
        if !self.ordered {
            return (id, true);
        }
        let lock = self.lock(id.slot);
        let (range, exclusive) = (lock.range.clone(), lock.exclusive);
        let waits_for = self.blocker(id.slot);
        let tree = if exclusive { &mut self.exclusive } else { &mut self.shared };
        tree.insert(id.slot, &range, turn);
        if let Some(other) = waits_for {
            self.park(id.slot, other);
        }
        (id, waits_for.is_none())
    }

    /// Gives a lock back, held or still waiting. The owners of locks that are held from now on are appended to
    /// `woken`, in the order they came.
    ///
    /// # Panics
    /// When it was given back before.
    pub fn release(&mut self, id: LockId, woken: &mut Vec<RequestId>) {
        assert!(self.locks.get(id).is_some(), "a lock is given back once");
        if self.ordered {
            let tree = if self.lock(id.slot).exclusive { &mut self.exclusive } else { &mut self.shared };
            tree.remove(id.slot);
            self.unpark(id.slot);
            let mut next = self.lock(id.slot).parked;
            while next != NIL {
                let slot = next;
                next = self.lock(slot).behind;
                let lock = self.lock_mut(slot);
                (lock.at, lock.before, lock.behind) = (NIL, NIL, NIL);
                match self.blocker(slot) {
                    Some(other) => self.park(slot, other),
                    None => {
                        let lock = self.lock(slot);
                        self.woken.push((lock.turn, lock.owner));
                    }
                }
            }
            self.woken.sort_unstable();
            woken.extend(self.woken.drain(..).map(|(_, owner)| owner));
        }
        self.locks.remove(id);
        self.ordered &= !self.locks.is_empty();
    }

    fn lock(&self, slot: u32) -> &Lock {
        let id = self.locks.in_slot(slot).expect("a lock in use");
        self.locks.get(id).expect("a lock in use")
    }
    fn lock_mut(&mut self, slot: u32) -> &mut Lock {
        let id = self.locks.in_slot(slot).expect("a lock in use");
        self.locks.get_mut(id).expect("a lock in use")
    }

    /// The latest of the locks that a lock must wait for.
    fn blocker(&self, slot: u32) -> Option<u32> {
        let lock = self.lock(slot);
        let exclusive = self.exclusive.latest(&lock.range, lock.turn);
        let shared = if lock.exclusive { self.shared.latest(&lock.range, lock.turn) } else { None };
        exclusive.max(shared).map(|(_, slot)| slot)
    }

    fn park(&mut self, slot: u32, at: u32) {
        let first = std::mem::replace(&mut self.lock_mut(at).parked, slot);
        let lock = self.lock_mut(slot);
        (lock.at, lock.before, lock.behind) = (at, NIL, first);
        if first != NIL {
            self.lock_mut(first).before = slot;
        }
    }

    fn unpark(&mut self, slot: u32) {
        let Lock { at, before, behind, .. } = *self.lock(slot);
        if at == NIL {
            return;
        }
        if before == NIL {
            self.lock_mut(at).parked = behind;
        } else {
            self.lock_mut(before).behind = behind;
        }
        if behind != NIL {
            self.lock_mut(behind).before = before;
        }
    }
}
