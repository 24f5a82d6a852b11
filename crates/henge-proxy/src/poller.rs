//! epoll, level-triggered, with 64-bit names.

use henge_core::Duration;
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Events taken from the kernel at once.
const AT_ONCE: usize = 128;

/// What happened to whom.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    /// As it was registered.
    pub name: u64,
    /// Something is to be read, or its end.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The other end is gone for good: it takes nothing any more, though something may be left to read.
    pub gone: bool,
}

/// What somebody wants to hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Something to read.
    pub read: bool,
    /// Room to write.
    pub write: bool,
}

impl Interest {
    /// Something to read, alone.
    pub const READ: Interest = Interest { read: true, write: false };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.read);
        flags.set(epoll::EventFlags::OUT, self.write);
        flags
    }
}

/// Waits for many sockets at once.
pub struct Poller {
    epoll: OwnedFd,
}

impl AsFd for Poller {
    /// Readable when something happened: one poller can wait for another.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    pub fn add(&self, socket: impl AsFd, name: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(name), interest.flags())?)
    }

    pub fn change(&self, socket: impl AsFd, name: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(name), interest.flags())?)
    }

    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, socket)?)
    }

    /// Waits at most `timeout` (for ever without one), and appends what happened.
    pub fn wait(&self, timeout: Option<Duration>, into: &mut Vec<Happened>) -> io::Result<()> {
        let timeout = timeout.map(|d| rustix::event::Timespec {
            tv_sec: (d.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (d.as_nanos() % 1_000_000_000) as _,
        });
        let mut events = [std::mem::MaybeUninit::uninit(); AT_ONCE];
        let events = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let broken = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        into.extend(events.iter().map(|event| {
            let flags = event.flags;
            let gone = flags.intersects(broken);
            Happened {
                name: event.data.u64(),
                readable: gone || flags.contains(epoll::EventFlags::IN),
                writable: flags.contains(epoll::EventFlags::OUT),
                gone,
            }
        }));
        Ok(())
    }
}
