//! A tap on the commands: what was asked and when, never what was in it, for `henge record`.
//!
//! Whoever records hands the loop an empty buffer and gets the one that is full so far: the loop swaps two pointers and
//! allocates nothing. What does not fit is counted and left out, and a tap that nobody empties is closed.

use henge_api::{Taken, Tapped};
use henge_core::{Duration, Instant};
use henge_vdisk::{Finished, Kind};

/// Commands that a buffer holds.
pub(crate) const CAPACITY: usize = 1 << 18;
/// A tap that nobody has emptied for so long is closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open tap.
pub(crate) struct Tap {
    taken: Vec<Tapped>,
    lost: u64,
    emptied: Instant,
    /// By number: the disk's name was told, or is in `names`. A name costs an allocation once, and whoever empties the tap never
    /// waits for the names of disks that nobody uses.
    named: Vec<bool>,
    names: Vec<(u32, String)>,
}

impl Tap {
    pub(crate) fn open(buffer: Vec<Tapped>, now: Instant) -> Tap {
        Tap { taken: buffer, lost: 0, emptied: now, named: Vec::new(), names: Vec::new() }
    }

    /// The number is another disk's from now on.
    pub(crate) fn rename(&mut self, disk: usize) {
        if let Some(named) = self.named.get_mut(disk) {
            *named = false;
        }
    }

    /// Notes a command of the disk of that number and name; whether the tap stays open.
    pub(crate) fn note(&mut self, disk: usize, name: &str, finished: &Finished, now: Instant) -> bool {
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
            if self.named.len() <= disk {
                self.named.resize(disk + 1, false);
            }
            if !std::mem::replace(&mut self.named[disk], true) {
                self.names.push((disk as u32, name.to_owned()));
            }
        } else {
            self.lost += 1;
        }
        now.since(self.emptied) < PATIENCE
    }

    /// What was noted since the last time, for an empty buffer.
    pub(crate) fn empty(&mut self, buffer: Vec<Tapped>, now: Instant) -> Taken {
        self.emptied = now;
        Taken {
            now: now.as_nanos(),
            lost: std::mem::take(&mut self.lost),
            disks: std::mem::take(&mut self.names),
            commands: std::mem::replace(&mut self.taken, buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::RequestId;
    use henge_vdisk::Command;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn finished(kind: Kind, offset: u64, arrived: u64) -> Finished {
        let command = Command::new(kind, offset, 4096, at(arrived), 0);
        Finished { id: RequestId::default(), command, outcome: Ok(()) }
    }

    #[test]
    fn what_was_asked_is_noted_and_when_and_how_long_it_took() {
        let mut tap = Tap::open(Vec::with_capacity(8), at(0));
        let kinds = [
            Kind::Read,
            Kind::Write,
            Kind::Flush,
            Kind::Trim,
            Kind::WriteZeroes { no_hole: false },
            Kind::Cache,
        ];
        for (i, kind) in kinds.into_iter().enumerate() {
            assert!(tap.note(3, "c", &finished(kind, i as u64 * 512, 10), at(15)));
        }
        let taken = tap.empty(Vec::with_capacity(8), at(15));
        // A hint moves nothing.
        assert_eq!((taken.commands.len(), taken.lost), (5, 0));
        for (i, command) in taken.commands.iter().enumerate() {
            assert_eq!(*command, Tapped(3, i as u8, i as u64 * 512, 4096, 10_000_000, 5_000_000));
        }
        assert_eq!(taken.disks, [(3, "c".to_owned())]);
        let nothing = Taken { now: at(16).as_nanos(), ..Taken::default() };
        assert_eq!(tap.empty(Vec::with_capacity(8), at(16)), nothing);
    }

    #[test]
    fn names_are_told_once_and_anew_when_the_number_is_another_disks() {
        let mut tap = Tap::open(Vec::with_capacity(8), at(0));
        let mut told = |names: &[(usize, &str)], renamed: Option<usize>| {
            renamed.into_iter().for_each(|disk| tap.rename(disk));
            for (disk, name) in names {
                tap.note(*disk, name, &finished(Kind::Read, 0, 0), at(1));
            }
            tap.empty(Vec::with_capacity(8), at(1)).disks
        };
        let owned =
            |names: &[(u32, &str)]| -> Vec<_> { names.iter().map(|(n, s)| (*n, (*s).to_owned())).collect() };
        assert_eq!(told(&[(5, "f"), (0, "a"), (5, "f")], None), owned(&[(5, "f"), (0, "a")]));
        assert_eq!(told(&[(5, "f"), (1, "b")], Some(7)), owned(&[(1, "b")]));
        assert_eq!(told(&[(5, "new"), (1, "b")], Some(5)), owned(&[(5, "new")]));
    }

    #[test]
    fn what_finds_no_room_is_counted_and_nothing_is_allocated_for_it() {
        let mut tap = Tap::open(Vec::with_capacity(2), at(0));
        for i in 0..5 {
            tap.note(0, "a", &finished(Kind::Read, i, 0), at(1));
        }
        let taken = tap.empty(Vec::with_capacity(2), at(2));
        assert_eq!((taken.commands.len(), taken.commands.capacity(), taken.lost), (2, 2, 3));
        tap.note(0, "a", &finished(Kind::Read, 9, 2), at(3));
        let taken = tap.empty(Vec::new(), at(4));
        assert_eq!((taken.commands[0].2, taken.lost), (9, 0), "the next buffer begins anew");
    }

    #[test]
    fn a_tap_that_nobody_empties_is_closed() {
        let mut tap = Tap::open(Vec::with_capacity(2), at(0));
        assert!(tap.note(0, "a", &finished(Kind::Read, 0, 0), at(9_999)));
        tap.empty(Vec::with_capacity(2), at(9_999));
        assert!(tap.note(0, "a", &finished(Kind::Read, 0, 0), at(19_998)));
        assert!(!tap.note(0, "a", &finished(Kind::Read, 0, 0), at(19_999)));
    }
}
