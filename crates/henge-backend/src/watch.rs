//! Where a store has its descriptors watched.

use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// A loop's epoll, and by which names a store's descriptors go there.
#[derive(Clone)]
pub struct Watch {
    epoll: Rc<OwnedFd>,
    /// The upper half of each name.
    whose: u64,
}

impl Watch {
    /// Descriptors are named by what says whose they are, whose lower 32 bits are free.
    pub fn new(epoll: Rc<OwnedFd>, whose: u64) -> Watch {
        debug_assert!(whose & u64::from(u32::MAX) == 0, "the lower half is the store's");
        Watch { epoll, whose }
    }

    /// Tells of a descriptor from now on.
    pub fn add(&self, fd: impl AsFd, name: u32, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&*self.epoll, fd, self.named(name), flags)
    }

    pub(crate) fn modify(&self, fd: impl AsFd, name: u32, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::modify(&*self.epoll, fd, self.named(name), flags)
    }

    fn named(&self, name: u32) -> EventData {
        EventData::new_u64(self.whose | u64::from(name))
    }
}
