//! How much of a turn of the loop changes of reservations may take.
//!
//! A change copies its disk's table, and tells all who are in it. So it takes the longer the more are registered, and hosts register whom they
//! like. Without a bound a queue of changes was decided in one turn: 256 of them took 7 ms, in which no other disk was served.

/// Nanoseconds of a turn, as estimated: as long as the loop goes on between two looks at the gates.
const PORTION: u64 = 8_000;
/// What a change takes, …
const CHANGE: u64 = 1_000;
/// … and for each who is registered.
const REGISTRATION: u64 = 100;

/// What is left of a turn's portion, and for whom the rest went.
pub(in crate::targets) struct Portion {
    left: u64,
    spent: Vec<(usize, u64)>,
    /// The disk whose changes were left when it was over: the next one's come first in the next turn.
    stopped_at: Option<String>,
}

impl Portion {
    pub fn new() -> Portion {
        Portion { left: PORTION, spent: Vec::new(), stopped_at: None }
    }

    /// A turn begins.
    pub fn begin(&mut self) {
        self.left = PORTION;
    }

    /// Whether no further change is decided in this turn.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// A change of a disk's table is decided, in which so many are registered.
    pub fn spend(&mut self, number: usize, registrations: usize) {
        let cost = CHANGE + REGISTRATION * registrations as u64;
        self.left = self.left.saturating_sub(cost);
        self.spent.push((number, cost));
    }

    /// A disk, and for how many nanoseconds it is to be charged.
    pub fn next_spent(&mut self) -> Option<(usize, u64)> {
        self.spent.pop()
    }

    /// A disk has more changes, and the portion is over.
    pub fn stop_at(&mut self, name: &str) {
        if self.stopped_at.as_deref() != Some(name) {
            self.stopped_at = Some(name.to_owned());
        }
    }

    /// Disks in the order of their names, from the one on that comes after the one that was stopped at.
    pub fn in_turn<'a>(&mut self, names: impl Iterator<Item = &'a String>) -> Vec<String> {
        let mut names: Vec<String> = names.cloned().collect();
        if let Some(last) = self.stopped_at.take() {
            let before = names.iter().take_while(|name| **name <= last).count();
            names.rotate_left(before);
        }
        names
    }
}
