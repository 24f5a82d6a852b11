//! Holes and zeroes of one file are made one after the other.
//!
//! # The problem
//! While the kernel makes a hole it has the file, or the device, to itself (the lock of its inode). Holes that come meanwhile wait in the kernel, each with
//! a worker and a slot of the gate. A tenant who discarded much had all four slots of a pool, until they were silent. A neighbour's read then took
//! 64 ms at the 99th percentile.
//!
//! # The rule
//! One of a file is at the engine. Others wait here in the order in which they came, and need no slot, as those that await a sync. The next begins when
//! the one before is made, has failed, or is written as zeroes. One that is to be tried again, or in another way, keeps its turn.
//!
//! # Guarantee
//! A hole is answered, and its sync begins, after it was made. No file's holes wait for another's but for a worker, and files have workers in turns.
//!
//! # Price
//! A look-up for each hole. What a file needs is kept until it is closed. Whoever has waited has no slot when its turn comes, so files have one hole
//! each, up to [`WORKERS`](super::WORKERS), at the storage beside the depth. Disks of one device share its turns by the order of arrival.

use super::{Files, Step, awaits};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;

/// The holes of one file.
#[derive(Default)]
struct Turns {
    /// Whose turn it is.
    making: Option<u32>,
    waiting: VecDeque<u32>,
}

/// The holes of all files of a pool.
#[derive(Default)]
pub(super) struct Holes(BTreeMap<RawFd, Turns>);

impl Holes {
    /// Whether it is the turn of a hole; else it waits.
    fn begins(&mut self, fd: RawFd, token: u32) -> bool {
        let turns = self.0.entry(fd).or_default();
        let begins = *turns.making.get_or_insert(token) == token;
        if !begins {
            turns.waiting.push_back(token);
        }
        begins
    }

    /// A hole's turn is over; whose is next.
    fn next(&mut self, fd: RawFd, token: u32) -> Option<u32> {
        let turns = self.0.get_mut(&fd)?;
        turns.making.take_if(|making| *making == token)?;
        turns.making = turns.waiting.pop_front();
        turns.making
    }

    /// That descriptor was closed.
    pub(super) fn forget(&mut self, fd: RawFd) {
        if self.0.get(&fd).is_some_and(|turns| turns.making.is_none()) {
            self.0.remove(&fd);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether a hole may go to the engine.
pub(super) fn begins(files: &mut Files, token: u32) -> bool {
    let fd = files.get(token).fd;
    let begins = files.holes.begins(fd, token);
    if !begins {
        awaits(files, token);
    }
    begins
}

/// The file of a hole that has left the engine.
pub(super) fn left(files: &mut Files, token: u32) -> Option<RawFd> {
    let running = files.get(token);
    matches!(running.step, Step::Punch(_)).then_some(running.fd)
}

/// What came of it is known: the next of its file begins, unless it is to be made again.
pub(super) fn go_on(files: &mut Files, token: u32, fd: RawFd) {
    let again = |running: &super::Running| matches!(running.step, Step::Punch(_));
    if !files.running[token as usize].as_ref().is_some_and(again)
        && let Some(next) = files.holes.next(fd, token)
    {
        files.issue(next);
    }
}
