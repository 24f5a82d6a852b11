//! The event loop: one thread that owns sockets, disks, gates and stores.
//!
//! A turn: wait for something to happen or to become due; read the clock once; take in everything that clients
//! sent; let the gates dispatch and the stores finish; reply. Sockets are registered once, edge-triggered, so that
//! a request costs a read, a write, and its part of a wait.

use crate::busy_poll::BusyPoll;
use crate::client::Client;
use crate::connection::{CHUNK, Catalog};
use crate::control::{Reply, Request};
use crate::initiator::Initiator;
use crate::listen::{Address, Listener};
use crate::plane::{Owner, Plane};
use crate::portal::Portal;
use crate::tags::{Lead, Queued};
use crate::tap::{Taken, Tapped};
use crate::watch::Slice;
use henge_core::{Duration, Instant, Pending, RequestId};
use henge_nbd::Limits;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};

mod clients;
pub(crate) mod links;
mod orders;
mod traffic;

/// How long a node that was told to stop waits for its storage.
const STOPPING: Duration = Duration::from_secs(10);
/// How often initiators are looked at for silence.
const LOOK: Duration = Duration::from_secs(1);
/// Connections that try again in one turn when memory came back.
const RETRIES: usize = 64;
/// Events taken at once.
const EVENTS: usize = 256;

/// What an event is about; packed into its 64 bits.
#[derive(Clone, Copy)]
enum Source {
    Listener(u32),
    Gate(u32),
    Control,
    Connection(RequestId),
}

impl Source {
    fn pack(self) -> EventData {
        EventData::new_u64(match self {
            Source::Listener(n) => u64::from(n),
            Source::Gate(n) => 1 << 56 | u64::from(n),
            Source::Control => 2 << 56,
            Source::Connection(id) => 3 << 56 | u64::from(id.slot) << 32 | u64::from(id.generation),
        })
    }
    fn unpack(data: EventData) -> Source {
        let bits = data.u64();
        let slot = (bits >> 32) as u32 & 0xff_ffff;
        match bits >> 56 {
            0 => Source::Listener(bits as u32),
            1 => Source::Gate(bits as u32),
            2 => Source::Control,
            _ => Source::Connection(RequestId { slot, generation: bits as u32 }),
        }
    }
}

/// A control request and where its answer goes.
pub(crate) enum Message {
    Ask(Request, Sender<Reply>),
    /// Opens or empties the tap, for an empty buffer.
    Tap {
        buffer: Vec<Tapped>,
        reply: Sender<Taken>,
    },
    /// The meters, from this disk on.
    Sample {
        from: usize,
        /// With histograms, and what each gate knows.
        whole: bool,
        reply: Sender<Slice>,
    },
    /// Tell of parts there from now on, or nobody.
    Relay(Option<SyncSender<Queued>>),
    /// Finish times that the manager made.
    Leads(Vec<Lead>),
    /// Finish what is under way, flush, and end.
    Stop,
}

/// What the loop needs to begin.
pub(crate) struct Setup {
    pub plane: Plane,
    pub listeners: Vec<Listener>,
    pub limits: Limits,
    pub state_dir: PathBuf,
    pub connections_max: usize,
    /// For how long the next request is looked for before the loop sleeps.
    pub busy_poll: Duration,
    pub messages: Receiver<Message>,
    /// Readable when there are messages.
    pub wake: Arc<OwnedFd>,
    pub started: std::time::Instant,
}

/// The loop's state.
pub(crate) struct Server {
    epoll: OwnedFd,
    plane: Plane,
    catalog: Catalog,
    listeners: Vec<Listener>,
    limits: Limits,
    connections_max: usize,
    portal: Portal,
    connections: Pending<Client>,
    /// Which connections use which disk.
    users: BTreeSet<(usize, RequestId)>,
    /// Initiators that are gone while commands of theirs are at a disk.
    leaving: BTreeMap<RequestId, Box<Initiator>>,
    /// When initiators are looked at for silence.
    look: Option<Instant>,
    /// Those that have something to read.
    readable: VecDeque<RequestId>,
    /// Those that have something to write.
    unwritten: Vec<RequestId>,
    /// By disk: those that wait for room for a command.
    room_waiters: Vec<VecDeque<RequestId>>,
    /// Those that wait for memory.
    memory_waiters: VecDeque<RequestId>,
    /// Handshakes end by then; all take equally long, so they are in order.
    handshakes: VecDeque<(Instant, RequestId)>,
    messages: Receiver<Message>,
    wake: Arc<OwnedFd>,
    /// Who asked for a scheduler that is being exchanged.
    exchange_reply: Option<Sender<Reply>>,
    started: std::time::Instant,
    now: Instant,
    stopping: Option<Stopping>,
    chunk: Vec<u8>,
    busy_poll: BusyPoll,
    /// Commands of clients that were answered in this turn.
    answered: u32,
}

#[derive(Clone, Copy)]
struct Stopping {
    deadline: Instant,
    flushing: bool,
}

/// Commands of the node's own; there is no such connection.
const NOBODY: Owner = Owner {
    connection: RequestId { slot: u32::MAX, generation: u32::MAX },
    command: RequestId { slot: 0, generation: 0 },
};

impl Server {
    pub(crate) fn new(setup: Setup) -> io::Result<Server> {
        let Setup {
            plane,
            listeners,
            limits,
            state_dir,
            connections_max,
            busy_poll,
            messages,
            wake,
            started,
        } = setup;
        let addresses = listeners.iter().filter_map(|listener| match &listener.address {
            Address::Iscsi(address) => Some(address.to_string()),
            _ => None,
        });
        let node = (plane.links.here(), plane.links.epoch);
        let portal = Portal::new(state_dir, &addresses.collect::<Vec<_>>(), node, wake.clone())?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let server = Server {
            epoll,
            plane,
            catalog: Catalog::default(),
            listeners,
            limits,
            connections_max: connections_max.min(0xff_ffff),
            portal,
            connections: Pending::new(),
            users: BTreeSet::new(),
            leaving: BTreeMap::new(),
            look: None,
            readable: VecDeque::new(),
            unwritten: Vec::new(),
            room_waiters: Vec::new(),
            memory_waiters: VecDeque::new(),
            handshakes: VecDeque::new(),
            messages,
            wake,
            exchange_reply: None,
            started,
            now: Instant::ZERO,
            stopping: None,
            chunk: vec![0; CHUNK],
            busy_poll: BusyPoll::new(busy_poll, Instant::ZERO),
            answered: 0,
        };
        for (i, listener) in server.listeners.iter().enumerate() {
            server.watch(listener.as_fd(), Source::Listener(i as u32), EventFlags::IN)?;
        }
        for (i, gate) in server.plane.gates.iter().enumerate() {
            if let Some(fd) = gate.pipeline.backend().event_fd() {
                #[allow(unsafe_code)] // a store names its descriptor by number
                // SAFETY: the store is owned by the plane, which lives as long as this loop.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                server.watch(fd, Source::Gate(i as u32), EventFlags::IN | EventFlags::ET)?;
            }
        }
        server.watch(server.wake.as_fd(), Source::Control, EventFlags::IN)?;
        Ok(server)
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.pack(), flags)?)
    }

    /// Runs until it is told to stop. The number of requests that storage never finished.
    pub(crate) fn run(mut self) -> io::Result<usize> {
        // The kernel may wake us this much too late; the default, 50 us, is for those who save power.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let served: Vec<usize> = self.plane.served().map(|(number, _)| number).collect();
        served.into_iter().for_each(|number| self.publish(number));
        let mut events = Vec::with_capacity(EVENTS);
        let mut asked_alone = false;
        loop {
            self.now = self.clock();
            self.wait(&mut events, asked_alone)?;
            self.now = self.clock();
            for event in &events {
                self.happened(event);
            }
            asked_alone = self.is_asked_alone(&events);
            self.turn();
            if let Some(abandoned) = self.finished() {
                self.plane.end_record()?;
                return Ok(abandoned);
            }
        }
    }

    /// Waits until there are events, or something is due by itself. Where one client alone has caused the last turn, and its one command is
    /// answered, its next one is looked for first.
    fn wait(&mut self, events: &mut Vec<Event>, asked_alone: bool) -> io::Result<()> {
        let due = self.due();
        let answered = std::mem::take(&mut self.answered);
        if asked_alone
            && answered == 1
            && due.is_none_or(|at| at > self.now)
            && let Some(until) = self.busy_poll.begin(self.now)
        {
            let (begun, until) = (self.now, due.map_or(until, |at| at.min(until)));
            while self.now < until {
                self.events(events, Some(Duration::ZERO))?;
                self.now = self.clock();
                if !events.is_empty() {
                    break;
                }
                std::hint::spin_loop();
            }
            self.busy_poll.end(self.now.since(begun), !events.is_empty());
            if !events.is_empty() {
                return Ok(());
            }
        }
        self.events(events, due.map(|at| at.since(self.now)))
    }

    /// Whether one client has said something, and nothing else has happened.
    fn is_asked_alone(&self, events: &[Event]) -> bool {
        let [event] = events else { return false };
        let Source::Connection(id) = Source::unpack(event.data) else { return false };
        matches!(self.connections.get(id), Some(Client::Nbd(_) | Client::Iscsi(_)))
    }

    /// Those there are, or come within the time.
    fn events(&self, events: &mut Vec<Event>, within: Option<Duration>) -> io::Result<()> {
        events.clear();
        let within = within.map(Duration::as_nanos);
        let within = within
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), within.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn clock(&self) -> Instant {
        Instant::from_nanos(self.started.elapsed().as_nanos() as u64)
    }

    /// When something will happen by itself; `None` for never.
    fn due(&self) -> Option<Instant> {
        let joined = !self.plane.links.joined.is_empty();
        let more = joined || self.plane.exchange.is_some() || self.plane.is_listed();
        if !self.readable.is_empty() || !self.unwritten.is_empty() || more {
            return Some(self.now);
        }
        let handshake = self.handshakes.front().map(|(at, _)| *at);
        let stopping = self.stopping.map(|s| s.deadline);
        let links = self.plane.links.wake_at();
        let at = [self.plane.wake_at(), handshake, stopping, self.look, links, self.portal.wake_at(self.now)];
        at.into_iter().flatten().min()
    }

    fn happened(&mut self, event: &Event) {
        match Source::unpack(event.data) {
            Source::Listener(n) => self.accept(n as usize),
            Source::Gate(n) => self.plane.list(n as usize),
            Source::Control => self.control(),
            Source::Connection(id) => {
                let Some(connection) = self.connections.get_mut(id) else { return };
                let flags = event.flags;
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR) {
                    let link = connection.link();
                    link.readable = true;
                    // The end of the stream is not announced twice, so it is read up to there.
                    link.ending |= !(flags - EventFlags::IN - EventFlags::OUT).is_empty();
                    list(&mut self.readable, connection, id);
                }
                if flags.contains(EventFlags::OUT) && !connection.link().writable {
                    connection.link().writable = true;
                    self.unwritten.push(id);
                }
            }
        }
    }

    /// There may be something to write.
    fn mark(&mut self, id: RequestId) {
        let Some(client) = self.connections.get_mut(id) else { return };
        if !std::mem::replace(&mut client.link().unwritten, true) {
            self.unwritten.push(id);
        }
    }

    /// Takes in what came, lets storage work, replies.
    fn turn(&mut self) {
        while self.handshakes.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, id) = self.handshakes.pop_front().expect("just looked at");
            let Some(Client::Nbd(connection)) = self.connections.get_mut(id) else { continue };
            if connection.session.tick(self.now).is_some() {
                self.drop_connection(id);
            }
        }
        self.look();
        self.tick_links();
        // Before anything is begun: what may be done now depends on it.
        self.settle_reservations();
        for _ in 0..self.readable.len() {
            let id = self.readable.pop_front().expect("as many as were there");
            self.read(id);
        }
        self.exchange();
        self.plane.list_due(self.now);
        self.poke();
        loop {
            self.plane.poll(self.now);
            if !self.plane.answers.is_empty() {
                self.answer();
                self.poke();
            } else if !self.settle_reservations() {
                break;
            }
        }
        self.mark_links();
        self.write();
        if self.plane.freed() {
            // Whoever still finds none waits for what others hold, and is asked again when that comes back: so some of
            // those that wait are enough, however many there are.
            let mut left = RETRIES.min(self.memory_waiters.len());
            while left > 0
                && let Some(id) = self.memory_waiters.pop_front()
            {
                left -= usize::from(self.retry(id));
            }
        }
    }
}

fn list(readable: &mut VecDeque<RequestId>, connection: &mut Client, id: RequestId) {
    if !std::mem::replace(&mut connection.link().listed, true) {
        readable.push_back(id);
    }
}
