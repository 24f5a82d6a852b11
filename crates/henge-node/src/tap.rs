//! A tap on the commands: what was asked and when, never what was in it, for `henge record`.
//!
//! Whoever records hands the loop an empty buffer and gets the one that is full so far: the loop swaps two pointers and
//! allocates nothing. What does not fit is counted and left out, and a tap that nobody empties is closed.

use henge_core::{Duration, Instant};
use henge_vdisk::{Finished, Kind};
use serde::{Deserialize, Serialize};

/// Commands that a buffer holds.
pub(crate) const ROOM: usize = 1 << 18;
/// A tap that nobody has emptied for so long is closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command that was answered: disk (by number), operation (0 read, 1 write, 2 flush, 3 trim, 4 write zeroes), offset, length,
/// arrival and latency in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tapped(pub u32, pub u8, pub u64, pub u64, pub u64, pub u64);

/// What a tap gave.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// The node's clock now, in nanoseconds.
    pub now: u64,
    /// Commands that found no room.
    pub lost: u64,
    /// The disks' names, by their numbers; empty where there is none.
    pub disks: Vec<String>,
    /// Commands in the order of their answers.
    pub commands: Vec<Tapped>,
}

/// An open tap.
pub(crate) struct Tap {
    taken: Vec<Tapped>,
    lost: u64,
    emptied: Instant,
}

impl Tap {
    pub(crate) fn open(buffer: Vec<Tapped>, now: Instant) -> Tap {
        Tap { taken: buffer, lost: 0, emptied: now }
    }

    /// Notes a command; whether the tap stays open.
    pub(crate) fn note(&mut self, disk: usize, finished: &Finished, now: Instant) -> bool {
        let command = &finished.command;
        let op = match command.kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Flush => 2,
            Kind::Trim => 3,
            Kind::WriteZeroes { .. } => 4,
            _ => return true, // hints, which move nothing
        };
        if self.taken.len() < self.taken.capacity() {
            let latency = now.since(command.arrival).as_nanos();
            let arrival = command.arrival.as_nanos();
            self.taken.push(Tapped(disk as u32, op, command.offset, command.len, arrival, latency));
        } else {
            self.lost += 1;
        }
        now.since(self.emptied) < PATIENCE
    }

    /// What was noted since the last time, for an empty buffer.
    pub(crate) fn empty(&mut self, buffer: Vec<Tapped>, now: Instant) -> (Vec<Tapped>, u64) {
        self.emptied = now;
        (std::mem::replace(&mut self.taken, buffer), std::mem::take(&mut self.lost))
    }
}
