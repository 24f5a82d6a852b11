//! Listeners are watched, and rest where clients come too fast ([`crate::arrivals`]).

use super::{Server, Source};
use henge_core::Instant;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Clients may come to a listener. One of several loops is woken for each that comes, if one sleeps.
pub(super) fn open(server: &Server, n: usize) {
    let Some(listener) = server.entrance.listeners.get(n) else { return };
    let one = if server.ways.shards.count() > 1 { EventFlags::EXCLUSIVE } else { EventFlags::empty() };
    if let Err(error) = server.watch(listener.as_fd(), Source::Listener(n as u32), EventFlags::IN | one) {
        tracing::error!(%error, address = %listener.address, "nobody can come there");
    }
}

/// Nobody is let in there for a while: those who come wait.
pub(super) fn rest(server: &mut Server, n: usize, until: Instant) {
    if let Some(listener) = server.entrance.listeners.get(n)
        && epoll::delete(&server.poll.epoll, listener.as_fd()).is_ok()
    {
        server.entrance.arrivals.rests(n, until);
    }
}

/// The kernel has nothing to let anybody in with.
pub(super) fn is_out(server: &mut Server, n: usize, error: Errno) {
    let (until, is_news) = server.entrance.arrivals.nobody(server.now);
    if is_news {
        tracing::warn!(
            %error,
            "nobody can be let in until descriptors or memory are free: raise LimitNOFILE (ulimit -n), or lower `connections`"
        );
    }
    rest(server, n, until);
}

/// Those that have rested are watched again.
pub(super) fn open_again(server: &mut Server) {
    while let Some(n) = server.entrance.arrivals.next_rested(server.now) {
        open(server, n);
    }
}
