//! The connections to one export, and which of them sends the next command.
//!
//! # The problem
//! A server that has begun again takes connections at once. It has forgotten what was in its cache. A connection to the former one may be silent for
//! seconds before it is lost, so one that is left does not show that the server lives.
//!
//! # The rule
//! A connection that comes beside others is *new*, and sends nothing. It is as good as they are once the server answers one of them what was
//! asked after it had come. Where the others are lost first, or answer nothing for as long as requests wait for a lost server, the server was lost with them, and
//! the new ones begin anew.

use super::dial::Dialed;
use super::link::Link;
use crate::Watch;

/// Commands that go by one connection in a row, though another has fewer: they go in one system call, and their answers come together.
const ROW: usize = 4;

/// The connections to one export.
pub(crate) struct Links {
    watch: Watch,
    /// The upper part of the sockets' names there.
    number: u32,
    /// Each connection, and which one it was, counted from the first.
    slots: Vec<Option<(u64, Link)>>,
    /// Connections that ever came.
    come: u64,
    /// Those that came later than this one are new.
    known: u64,
}

impl Links {
    pub(crate) fn new(watch: Watch, number: u32) -> Links {
        Links { watch, number, slots: Vec::new(), come: 0, known: 0 }
    }

    /// Takes a new connection into the first free slot.
    pub(crate) fn add(&mut self, dialed: Dialed) -> rustix::io::Result<()> {
        let i = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let name = self.number << 8 | i as u32;
        let link = Link::new(dialed, self.watch.clone(), name)?;
        if i == self.slots.len() {
            self.slots.push(None);
        }
        self.come += 1;
        if self.alive() == 0 {
            self.known = self.come;
        }
        self.slots[i] = Some((self.come, link));
        Ok(())
    }

    /// They are watched elsewhere.
    pub(crate) fn be_watched(&mut self, watch: &Watch) -> rustix::io::Result<()> {
        self.watch = watch.clone();
        self.iter_mut().try_for_each(|link| link.be_watched(watch.clone()))
    }

    /// A connection is lost. True where none is left but new ones, if any: those are not new any more.
    pub(crate) fn remove(&mut self, link: usize) -> bool {
        self.slots[link] = None;
        let lost = self.slots.iter().flatten().all(|(number, _)| *number > self.known);
        if lost {
            self.known = self.come;
        }
        lost
    }

    /// Whether a new connection waits for the server's answer to what others have under way.
    pub(crate) fn awaits_proof(&self) -> bool {
        let all = || self.slots.iter().flatten();
        all().any(|(number, _)| *number > self.known) && all().any(|(_, link)| link.load > 0)
    }

    /// A connection that is not new.
    pub(crate) fn any_known(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|(number, _)| *number <= self.known))
    }

    /// Connections that ever came.
    pub(crate) fn come(&self) -> u64 {
        self.come
    }

    /// The server has answered what it was asked when so many connections had come.
    pub(crate) fn answered(&mut self, come: u64) {
        self.known = self.known.max(come);
    }

    pub(crate) fn get_mut(&mut self, link: usize) -> Option<&mut Link> {
        self.slots.get_mut(link)?.as_mut().map(|(_, link)| link)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.slots.iter_mut().flatten().map(|(_, link)| link)
    }

    /// As many slots as there are; a lost connection leaves its slot free.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn alive(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// The connection with the fewest commands, or the last one for a few more; no new one.
    pub(crate) fn next(&self, last: Option<usize>) -> Option<usize> {
        let load = |i: usize| {
            self.slots[i].as_ref().filter(|(number, _)| *number <= self.known).map(|(_, link)| link.load)
        };
        let idlest = (0..self.slots.len()).filter_map(|i| Some((load(i)?, i))).min()?;
        Some(last.filter(|i| load(*i).is_some_and(|n| n < idlest.0 + ROW)).unwrap_or(idlest.1))
    }
}
