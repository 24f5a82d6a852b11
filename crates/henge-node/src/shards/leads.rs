//! Which loop shows a disk that every loop may serve.
//!
//! The problem: initiators and hosts of a disk share its unit: reservations, attentions, resets, and for NVMe the queues of a controller. So one
//! loop has them all. Where that is the loop of the gate, a hot pool has one loop's worth of them. The rule: a disk on a pool of `every_core` is
//! shown by the loop that shows the fewest such disks, and the loop of its gate counts in part, as with clients ([`Crowd`]). Its commands go
//! to the gate as those of NBD's clients do, and everything else about its unit stays where it is shown.
//!
//! Example: two loops, the gate on loop 0, and six disks. Loop 1 shows four of them, loop 0 two.
//!
//! Price: a disk's initiators and hosts have one loop for their sockets, and the gate's. None moves again while its disk is there. A lock is taken when
//! a disk comes, changes its doors, or goes, and never for a request.

use super::crowd::Crowd;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which loop shows which disk, and has the gate of which.
pub(crate) struct Leads {
    crowd: Crowd,
    of: Mutex<BTreeMap<String, (usize, usize)>>,
}

impl Leads {
    pub(super) fn new(loops: usize) -> Leads {
        Leads { crowd: Crowd::new(loops), of: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, (usize, usize)>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk comes whose gate is at that loop: it has a loop from now on, if it has none.
    pub(super) fn place(&self, disk: &str, gate: usize) {
        let mut all = self.all();
        if !all.contains_key(disk) {
            let at = self.crowd.place(gate, gate);
            self.crowd.enter(at, gate);
            all.insert(disk.to_owned(), (at, gate));
        }
    }

    /// It is gone.
    pub(super) fn forget(&self, disk: &str) {
        if let Some((at, gate)) = self.all().remove(disk) {
            self.crowd.leave(at, gate);
        }
    }

    /// The loop that shows it.
    pub(super) fn of(&self, disk: &str) -> Option<usize> {
        self.all().get(disk).map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_loops_in_turn_and_keep_them() {
        let leads = Leads::new(2);
        let names = ["a", "b", "c", "d", "e", "f"];
        names.iter().for_each(|name| leads.place(name, 0));
        let at = || names.map(|name| leads.of(name));
        let before = at();
        assert_eq!(before.iter().filter(|at| **at == Some(1)).count(), 4);
        names.iter().for_each(|name| leads.place(name, 0));
        assert_eq!(at(), before, "who is there stays");
        let gone = names[before.iter().position(|at| *at == Some(1)).unwrap()];
        leads.forget(gone);
        assert_eq!(leads.of(gone), None);
        leads.place("g", 0);
        assert_eq!(leads.of("g"), Some(1), "it left room there");
    }
}
