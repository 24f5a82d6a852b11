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
//! Guarantee: no two conflicting locks are ever held; whoever waits, waits only for earlier ones, so there is no
//! deadlock and no starvation. Price: constant while no exclusive lock is about, else linear in the disk's
//! pending writes. Reads take no lock.

use henge_core::{Pending, RequestId};
use std::ops::Range;

/// Names a lock, held or waiting.
pub type LockId = RequestId;

#[derive(Clone, Debug)]
struct Lock {
    range: Range<u64>,
    exclusive: bool,
    /// Order of arrival.
    turn: u64,
    /// Earlier conflicting locks that are still there.
    waits_for: u32,
    owner: RequestId,
}

impl Lock {
    fn conflicts(&self, range: &Range<u64>, exclusive: bool) -> bool {
        (self.exclusive || exclusive) && self.range.start < range.end && range.start < self.range.end
    }
}

/// The locks of one virtual disk.
#[derive(Clone, Debug, Default)]
pub struct RangeLocks {
    locks: Pending<Lock>,
    exclusive: usize,
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
        let waits_for = match exclusive || self.exclusive > 0 {
            false => 0,
            true => self.locks.iter().filter(|(_, lock)| lock.conflicts(&range, exclusive)).count() as u32,
        };
        self.turn += 1;
        self.exclusive += usize::from(exclusive);
        let id = self.locks.insert(Lock { range, exclusive, turn: self.turn, waits_for, owner });
        (id, waits_for == 0)
    }

    /// Gives a lock back, held or still waiting; the owners of those that are held from now on are appended to
    /// `woken`, in the order they came.
    ///
    /// # Panics
    /// When it was given back before.
    pub fn release(&mut self, id: LockId, woken: &mut Vec<RequestId>) {
        let gone = self.locks.remove(id).expect("a lock is given back once");
        self.exclusive -= usize::from(gone.exclusive);
        if !gone.exclusive && self.exclusive == 0 {
            return; // shared among shared: nobody waited
        }
        for (_, lock) in self.locks.iter_mut() {
            if lock.turn > gone.turn && lock.conflicts(&gone.range, gone.exclusive) {
                lock.waits_for -= 1;
                if lock.waits_for == 0 {
                    self.woken.push((lock.turn, lock.owner));
                }
            }
        }
        self.woken.sort_unstable();
        woken.extend(self.woken.drain(..).map(|(_, owner)| owner));
    }
}
