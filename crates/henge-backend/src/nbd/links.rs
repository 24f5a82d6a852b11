//! The connections to one export, and which of them sends the next command.

use super::dial::Dialed;
use super::link::Link;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Commands that go by one connection in a row, though another has fewer: they go in one system call, and their answers come together.
const ROW: usize = 4;

/// The connections to one export.
pub(crate) struct Links {
    epoll: Rc<OwnedFd>,
    /// The upper part of the sockets' names in `epoll`.
    number: u64,
    slots: Vec<Option<Link>>,
}

impl Links {
    pub(crate) fn new(epoll: Rc<OwnedFd>, number: u64) -> Links {
        Links { epoll, number, slots: Vec::new() }
    }

    /// Takes a new connection into the first free slot.
    pub(crate) fn add(&mut self, dialed: Dialed) -> rustix::io::Result<()> {
        let i = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let token = self.number << 8 | i as u64;
        let link = Link::new(dialed, Rc::clone(&self.epoll), token)?;
        if i == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[i] = Some(link);
        Ok(())
    }

    pub(crate) fn remove(&mut self, link: usize) {
        self.slots[link] = None;
    }

    pub(crate) fn get_mut(&mut self, link: usize) -> Option<&mut Link> {
        self.slots.get_mut(link)?.as_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.slots.iter_mut().flatten()
    }

    /// As many slots as there are; a lost connection leaves its slot free.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn alive(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// The connection with the fewest commands, or the last one for a few more.
    pub(crate) fn next(&self, last: Option<usize>) -> Option<usize> {
        let load = |i: usize| self.slots[i].as_ref().map(|link| link.load);
        let idlest = (0..self.slots.len()).filter_map(|i| Some((load(i)?, i))).min()?;
        Some(last.filter(|i| load(*i).is_some_and(|n| n < idlest.0 + ROW)).unwrap_or(idlest.1))
    }
}
