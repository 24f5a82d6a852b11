//! A session and what is around it, its loop by hand.

use super::{Around, Session, Stop};
use crate::catalog::Catalog;
use crate::client::Client;
use crate::config::NodeConfig;
use crate::link::Link;
use crate::plane::Plane;
use crate::pump::{self, Pump};
use crate::state::StateDir;
use crate::targets::TargetRegistry;
use henge_config::Source;
use henge_core::{Instant, RequestId};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What stands around a session in the node, with the time that the test says.
pub(crate) struct Bench {
    pub plane: Plane,
    pub catalog: Catalog,
    pub registry: TargetRegistry,
    pub now: Instant,
    chunk: Vec<u8>,
}

/// The connection's number.
pub(crate) const ID: RequestId = RequestId { slot: 7, generation: 0 };

impl Bench {
    /// A node by this file.
    pub(crate) fn new(text: &str) -> Bench {
        let config = Source::new("node.toml", text.to_owned());
        let config = NodeConfig::parse(config).unwrap_or_else(|e| panic!("{e}"));
        let plane = Plane::open(&config, 1, false, Instant::ZERO).unwrap_or_else(|e| panic!("{e:?}"));
        let wake: OwnedFd = UnixStream::pair().unwrap().0.into();
        let registry = TargetRegistry::new(StateDir::Forgets, &[], false, (None, 1), Arc::new(wake)).unwrap();
        Bench { plane, catalog: Catalog::default(), registry, now: Instant::ZERO, chunk: pump::chunk() }
    }

    pub(crate) fn around(&mut self) -> Around<'_> {
        let Bench { plane, catalog, registry, now, .. } = self;
        Around { plane, catalog, registry, id: ID, now: *now }
    }

    /// A client that came by a socket, and the other end of that.
    pub(crate) fn client(session: impl Session) -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Client::new(Link::new(ours.into()), Box::new(Pump::new(session))), theirs)
    }

    /// A turn to read, as when the socket has told that something came.
    pub(crate) fn read(&mut self, client: &mut Client) -> Stop {
        client.link.readable = true;
        let Bench { plane, catalog, registry, now, chunk } = self;
        let around = &mut Around { plane, catalog, registry, id: ID, now: *now };
        client.read(around, chunk)
    }

    /// A turn to write, as when the socket has room.
    pub(crate) fn write(&mut self, client: &mut Client) -> bool {
        client.link.writable = true;
        client.write(&mut self.around()) && client.link.flush()
    }

    /// What disks have answered by now goes to the session: how much that was.
    pub(crate) fn answer(&mut self, client: &mut Client) -> usize {
        self.plane.poll(self.now);
        // What goes on in the next round is put among the runnable, as the loop does.
        self.plane.pools.list_due(self.now);
        let answers: Vec<_> = self.plane.answers.drain(..).collect();
        let count = answers.len();
        answers.into_iter().for_each(|answer| client.completed(answer, &mut self.around()));
        count
    }
}
