//! The event loop: one thread that owns sockets, disks, gates and stores; one of several where the node has more cores (`shards.rs`).
//!
//! A turn: wait for something to happen or to become due; read the clock once; take in everything that clients
//! sent; let the gates dispatch and the stores finish; reply. Sockets are registered once, edge-triggered, so that
//! a request costs a read, a write, and its part of a wait.

use crate::arrivals::Arrivals;
use crate::busy_poll::BusyPoll;
use crate::catalog::Catalog;
use crate::give_way::GiveWay;
use crate::listen::Listener;
use crate::message::Message;
use crate::plane::{Plane, Submitter};
use crate::pump;
use crate::shards::{Loop, Shards};
use crate::state::StateDir;
use crate::targets::TargetRegistry;
use crate::turns::Turns;
use henge_backend::{Store, Watch};
use henge_core::{Duration, Instant, RequestId};
use henge_nbd::Limits;
use henge_tls::Tls;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

mod administer;
mod clients;
mod doors;
mod leaving;
mod left;
pub(crate) mod links;
mod listeners;
pub(crate) mod moving;
mod nvme;
mod orders;
mod patience;
mod removal;
mod roster;
mod seats;
mod shakes;
pub(crate) mod slots;
mod traffic;
mod turn;
mod waits;
mod work;

pub(crate) use left::Left;
use roster::Clients;
use slots::ConnectionSlots;
pub(crate) use waits::Patience;
use waits::{Waiters, Waits};
use work::Administration;

/// How long a node that was told to stop waits for its storage.
const STOPPING: Duration = Duration::from_secs(10);
/// How long it waits for clients that have begun to say something.
const LEAVING: Duration = Duration::from_secs(3);
/// How often initiators are looked at for silence.
const LOOK: Duration = Duration::from_secs(1);

/// What an event is about; packed into its 64 bits.
#[derive(Clone, Copy)]
enum Source {
    Listener(u32),
    /// Which gate's storage, and which of its descriptors.
    Gate(u32, u32),
    Control,
    Connection(RequestId),
}

impl Source {
    fn pack(self) -> EventData {
        EventData::new_u64(match self {
            Source::Listener(n) => u64::from(n),
            Source::Gate(n, name) => 1 << 56 | u64::from(n) << 32 | u64::from(name),
            Source::Control => 2 << 56,
            Source::Connection(id) => 3 << 56 | u64::from(id.slot) << 32 | u64::from(id.generation),
        })
    }
    fn unpack(data: EventData) -> Source {
        let bits = data.u64();
        let slot = (bits >> 32) as u32 & 0xff_ffff;
        match bits >> 56 {
            0 => Source::Listener(bits as u32),
            1 => Source::Gate(slot, bits as u32),
            2 => Source::Control,
            _ => Source::Connection(RequestId { slot, generation: bits as u32 }),
        }
    }
}

/// What a session of that connection may use of the server, while the connection itself is in hand.
macro_rules! around {
    ($server:ident, $id:expr) => {
        &mut crate::session::Around {
            plane: &mut $server.plane,
            catalog: &$server.catalog,
            registry: &mut $server.registry,
            id: $id,
            now: $server.now,
        }
    };
}
use around;

/// What the loop needs to begin.
pub(crate) struct Setup {
    pub plane: Plane,
    pub entrance: Entrance,
    pub state_dir: StateDir,
    pub patience: Patience,
    /// For how long the next request is looked for before the loop sleeps.
    pub busy_poll: Duration,
    pub messages: Receiver<Message>,
    pub shards: Arc<Shards>,
    pub here: usize,
    pub started: std::time::Instant,
}

/// Where clients come, and how many may.
pub(crate) struct Entrance {
    /// Shared with the other shards: whoever is awake accepts.
    pub listeners: Vec<Arc<Listener>>,
    /// How fast they let in.
    pub arrivals: Arrivals,
    /// With what TLS begins, where a listener has it.
    pub tls: Option<Arc<Tls>>,
    /// Bounds on each connection.
    pub limits: Limits,
    pub slots: ConnectionSlots,
}

/// By which a loop and others reach each other.
pub(crate) struct Ways {
    pub messages: Receiver<Message>,
    /// The ways to all shards.
    pub shards: Arc<Shards>,
    /// Which of them this is.
    pub here: usize,
    /// To this loop: threads that work for it say there that they are done.
    own: Loop,
}

/// How the loop waits, and by which clock.
struct Poll {
    epoll: Rc<OwnedFd>,
    busy: BusyPoll,
    give_way: GiveWay,
    /// Commands of clients that were answered in this turn.
    answered: u32,
    started: std::time::Instant,
}

/// The loop's state.
pub(crate) struct Server {
    poll: Poll,
    plane: Plane,
    catalog: Catalog,
    registry: TargetRegistry,
    entrance: Entrance,
    clients: Clients,
    /// Connections that have something to read or to write.
    turns: Turns,
    waits: Waits,
    waiters: Waiters,
    ways: Ways,
    work: Administration,
    now: Instant,
    stopping: Option<Stopping>,
    chunk: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Stopping {
    deadline: Instant,
    /// From then on no client is waited for any more.
    leave_by: Instant,
    flushing: bool,
    /// It has nothing under way, and has said so to the other shards.
    quiet: bool,
    /// The sockets are for the program that comes next.
    hands: bool,
}

/// Commands of the node's own; there is no such connection.
const NOBODY: Submitter = Submitter {
    connection: RequestId { slot: u32::MAX, generation: u32::MAX },
    command: RequestId { slot: 0, generation: 0 },
};

impl Server {
    pub(crate) fn new(setup: Setup) -> io::Result<Server> {
        let Setup { plane, entrance, state_dir, patience, busy_poll, messages, shards, here, started } =
            setup;
        let own = shards.at(here).clone();
        let listeners = &entrance.listeners;
        let addresses = listeners.iter().filter_map(|listener| listener.address.tcp("iscsi"));
        let addresses = addresses.map(|address| address.to_string());
        let node = (plane.links.here(), plane.links.epoch);
        let hosts_come = listeners.iter().any(|listener| listener.address.tcp("nvme").is_some());
        let registry =
            TargetRegistry::new(state_dir, &addresses.collect::<Vec<_>>(), hosts_come, node, own.waker())?;
        let epoll = Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let busy = BusyPoll::new(busy_poll, Instant::ZERO);
        let mut server = Server {
            poll: Poll { epoll, busy, give_way: GiveWay::new(), answered: 0, started },
            plane,
            catalog: Catalog::of_shard(here, &shards.crowd),
            registry,
            entrance,
            clients: Clients::new(own.waker()),
            turns: Turns::new(),
            waits: Waits::new(patience),
            waiters: Waiters::default(),
            ways: Ways { messages, shards, here, own },
            work: Administration::default(),
            now: Instant::ZERO,
            stopping: None,
            chunk: pump::chunk(),
        };
        for (i, gate) in server.plane.pools.gates.iter_mut().enumerate() {
            let watch = Watch::new(Rc::clone(&server.poll.epoll), Source::Gate(i as u32, 0).pack().u64());
            let store = gate.pipeline.backend_mut();
            if let Some(fd) = store.event_fd() {
                #[allow(unsafe_code)] // a store names its descriptor by number
                // SAFETY: the store is owned by the plane, which lives as long as this loop.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                watch.add(fd, 0, EventFlags::IN | EventFlags::ET)?;
            }
            store.be_watched(&watch)?;
        }
        server.watch(server.ways.own.as_fd(), Source::Control, EventFlags::IN)?;
        Ok(server)
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.poll.epoll, fd, source.pack(), flags)?)
    }
}

#[cfg(test)]
mod tests;
