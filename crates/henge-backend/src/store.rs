//! What the node asks of real storage beyond [`Backend`].

use crate::Buffer;
use henge_core::{Backend, Histogram};
use std::io;
use std::os::fd::RawFd;

/// Real storage: a backend that moves data, on which parts are made and removed.
///
/// Making and removing parts may block: it is done before a disk is served, or after it has gone.
pub trait Store: Backend<Payload = Buffer> {
    /// Makes the part `name`, or finds it as it was left; its address on this store. A new part reads as zeroes.
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64>;

    /// Whether a part that is open could be so long; if not, why. [`open_part`](Self::open_part) makes it so.
    fn could_grow(&self, _name: &str, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Gives the part's space back. Its data never shows again.
    fn remove_part(&mut self, name: &str) -> io::Result<()>;

    /// Requests begin and end at multiples of it; others fail as unsupported. At most [`crate::ALIGN`].
    fn block(&self) -> u64 {
        1
    }

    /// The state of the first bytes of a range: how many of its `len` are alike, and whether they take room. What
    /// takes none reads as zeroes; what cannot be known does take room.
    fn extent(&self, _offset: u64, len: u64) -> (u64, bool) {
        (len, true)
    }

    /// Signals an edge (to `epoll`) when `reap` has something; `None` where `wake_at` says everything.
    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    /// How it does its work here, for people: `io_uring, O_DIRECT (512 bytes)`.
    fn describe(&self) -> String;

    /// How late completions were against the model's time; emulated disks know.
    fn lateness(&self) -> Option<&Histogram> {
        None
    }
}

/// What a wrapper leaves to the store behind it: parts, blocks, extents, and how it signals.
macro_rules! parts_behind {
    (|$wrapper:ident| $store:expr) => {
        fn open_part(&mut self, name: &str, len: u64) -> std::io::Result<u64> {
            let $wrapper = self;
            $store.open_part(name, len)
        }
        fn could_grow(&self, name: &str, len: u64) -> std::io::Result<()> {
            let $wrapper = self;
            $store.could_grow(name, len)
        }
        fn remove_part(&mut self, name: &str) -> std::io::Result<()> {
            let $wrapper = self;
            $store.remove_part(name)
        }
        fn block(&self) -> u64 {
            let $wrapper = self;
            $store.block()
        }
        fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
            let $wrapper = self;
            $store.extent(offset, len)
        }
        fn event_fd(&self) -> Option<std::os::fd::RawFd> {
            let $wrapper = self;
            $store.event_fd()
        }
    };
}
pub(crate) use parts_behind;

impl<S: Store + ?Sized> Store for Box<S> {
    parts_behind!(|boxed| **boxed);
    fn describe(&self) -> String {
        (**self).describe()
    }
    fn lateness(&self) -> Option<&Histogram> {
        (**self).lateness()
    }
}
