//! The event loop: one thread that owns sockets, disks, gates and stores; one of several where the node has more cores (`shards.rs`).
//!
//! A turn: wait for something to happen or to become due; read the clock once; take in everything that clients
//! sent; let the gates dispatch and the stores finish; reply. Sockets are registered once, edge-triggered, so that
//! a request costs a read, a write, and its part of a wait.

use crate::busy_poll::BusyPoll;
use crate::catalog::Catalog;
use crate::client::Client;
use crate::exchange::Exchange;
use crate::listen::Listener;
use crate::message::Message;
use crate::plane::{Plane, Submitter};
use crate::pump;
use crate::shards::{Loop, Shards};
use crate::spread::across;
use crate::state::StateDir;
use crate::targets::TargetRegistry;
use crate::turns::{self, Of, Terms, Turns, Way};
use henge_api::Reply;
use henge_core::{Duration, Instant, Pending, RequestId};
use henge_nbd::Limits;
use henge_tls::Tls;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

mod administer;
mod clients;
mod doors;
mod leaving;
pub(crate) mod links;
pub(crate) mod moving;
mod nvme;
mod orders;
pub(crate) mod patience;
mod removal;
mod seats;
pub(crate) mod slots;
mod traffic;

pub(crate) use leaving::Left;
use patience::{Patience, Waits};
use removal::Removal;
use slots::ConnectionSlots;

/// How long a node that was told to stop waits for its storage.
const STOPPING: Duration = Duration::from_secs(10);
/// How long it waits for clients that have begun to say something.
const LEAVING: Duration = Duration::from_secs(3);
/// How often initiators are looked at for silence.
const LOOK: Duration = Duration::from_secs(1);
/// Connections that try again in one turn when memory came back.
const RETRIES: usize = 64;
/// Sessions whose time has come that are told so in one turn, and how soon one may name its next time.
const TICKS: usize = 64;
const TICK: Duration = Duration::from_millis(1);
/// How soon another shard whose lane was full is told the rest.
const BEHIND: Duration = Duration::from_micros(20);
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
    /// Shared with the other shards: whoever is awake accepts.
    pub listeners: Vec<Arc<Listener>>,
    /// With what TLS begins, where a listener has it.
    pub tls: Option<Arc<Tls>>,
    pub limits: Limits,
    pub state_dir: StateDir,
    pub slots: ConnectionSlots,
    pub patience: Patience,
    /// For how long the next request is looked for before the loop sleeps.
    pub busy_poll: Duration,
    pub messages: Receiver<Message>,
    /// The ways to all shards.
    pub shards: Arc<Shards>,
    /// Which of them this is.
    pub here: usize,
    pub started: std::time::Instant,
}

/// The loop's state.
pub(crate) struct Server {
    epoll: OwnedFd,
    plane: Plane,
    catalog: Catalog,
    listeners: Vec<Arc<Listener>>,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    slots: ConnectionSlots,
    patience: Patience,
    waits: Waits,
    registry: TargetRegistry,
    connections: Pending<Client>,
    /// Which connections use which disk.
    users: BTreeSet<(usize, RequestId)>,
    /// Initiators and hosts that are gone while commands of theirs are at a disk.
    leaving: BTreeMap<RequestId, Client>,
    /// How far the look at all certificates is.
    looked: doors::Looked,
    /// When initiators are looked at for silence.
    look: Option<Instant>,
    /// Connections that have something to read or to write.
    turns: Turns,
    /// By disk: connections that wait for room for a command.
    capacity_waiters: Vec<VecDeque<RequestId>>,
    /// By disk: connections that wait for memory. Then the disks that have such connections; each is asked in its turn.
    memory_waiters: BTreeMap<usize, VecDeque<RequestId>>,
    thirsty: VecDeque<usize>,
    /// When sessions have something to do by themselves.
    due: BTreeSet<(Instant, RequestId)>,
    messages: Receiver<Message>,
    /// By which others reach this loop: threads that work for it say there that they are done.
    own: Loop,
    shards: Arc<Shards>,
    here: usize,
    /// Disks that go once nothing of theirs is at the storage any more.
    removals: Vec<Removal>,
    /// Who waits for which ticket.
    waiters: BTreeMap<u64, administer::Waiter>,
    /// A scheduler that is being exchanged, and who asked for it.
    exchange: Option<(Exchange, Sender<Reply>)>,
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
        let Setup {
            plane,
            listeners,
            tls,
            limits,
            state_dir,
            slots,
            patience,
            busy_poll,
            messages,
            shards,
            here,
            started,
        } = setup;
        let own = shards.at(here).clone();
        let addresses = listeners.iter().filter_map(|listener| listener.address.tcp("iscsi"));
        let addresses = addresses.map(|address| address.to_string());
        let node = (plane.links.here(), plane.links.epoch);
        let hosts_come = listeners.iter().any(|listener| listener.address.tcp("nvme").is_some());
        let registry =
            TargetRegistry::new(state_dir, &addresses.collect::<Vec<_>>(), hosts_come, node, own.waker())?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let server = Server {
            epoll,
            plane,
            catalog: Catalog::of_shard(here, &shards.crowd),
            listeners,
            tls,
            limits,
            slots,
            patience,
            waits: Waits::default(),
            removals: Vec::new(),
            registry,
            connections: Pending::new(),
            users: BTreeSet::new(),
            leaving: BTreeMap::new(),
            looked: doors::Looked::default(),
            look: None,
            turns: Turns::new(),
            capacity_waiters: Vec::new(),
            memory_waiters: BTreeMap::new(),
            thirsty: VecDeque::new(),
            due: BTreeSet::new(),
            messages,
            own,
            shards,
            here,
            waiters: BTreeMap::new(),
            exchange: None,
            started,
            now: Instant::ZERO,
            stopping: None,
            chunk: pump::chunk(),
            busy_poll: BusyPoll::new(busy_poll, Instant::ZERO),
            answered: 0,
        };
        for (i, gate) in server.plane.pools.gates.iter().enumerate() {
            if let Some(fd) = gate.pipeline.backend().event_fd() {
                #[allow(unsafe_code)] // a store names its descriptor by number
                // SAFETY: the store is owned by the plane, which lives as long as this loop.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                server.watch(fd, Source::Gate(i as u32), EventFlags::IN | EventFlags::ET)?;
            }
        }
        server.watch(server.own.as_fd(), Source::Control, EventFlags::IN)?;
        Ok(server)
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.pack(), flags)?)
    }

    /// Runs until it is told to stop. What is left then.
    pub(crate) fn run(mut self) -> io::Result<Left> {
        // The kernel may wake us this much too late; the default, 50 us, is for machines that save power.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let served: Vec<usize> = self.plane.disks.served().map(|(number, _)| number).collect();
        served.into_iter().for_each(|number| self.publish(number));
        let mut events = Vec::with_capacity(EVENTS);
        let mut asked_alone = false;
        let mut begun = self.clock();
        loop {
            self.now = self.clock();
            self.turns.measured(self.now.since(begun));
            self.wait(&mut events, asked_alone)?;
            self.now = self.clock();
            begun = self.now;
            for event in &events {
                self.happened(event);
            }
            asked_alone = self.is_asked_alone(&events);
            self.turn();
            if let Some(abandoned) = self.finished() {
                self.plane.end_record()?;
                return Ok(self.leave(abandoned));
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
        let within = due.map(|at| at.since(self.now));
        let lanes = &mut self.plane.across.lanes;
        if within == Some(Duration::ZERO) || !lanes.sleep() {
            return self.events(events, Some(Duration::ZERO));
        }
        self.events(events, within)?;
        self.plane.across.lanes.awake();
        Ok(())
    }

    /// Whether one client has said something, and nothing else has happened.
    fn is_asked_alone(&self, events: &[Event]) -> bool {
        let [event] = events else { return false };
        let Source::Connection(id) = Source::unpack(event.data) else { return false };
        self.connections.get(id).is_some_and(|client| !client.is_node)
    }

    /// The events that are there, or come within the time.
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
        let more = joined || self.exchange.is_some() || self.plane.is_runnable() || self.looked.goes_on();
        if !self.turns.is_empty() || more {
            return Some(self.now);
        }
        let session = self.due.first().map(|(at, _)| *at);
        let stopping = self.stopping.map(|s| if s.leave_by > self.now { s.leave_by } else { s.deadline });
        let links = self.plane.links.alarm.at();
        let registry = [self.registry.wake_at(self.now), self.registry.nvme.wake_at()];
        let waits = self.waits.due();
        let behind = self.plane.across.lanes.is_behind().then(|| self.now + BEHIND);
        let at = [
            self.plane.pools.wake_at(),
            session,
            stopping,
            self.look,
            links,
            self.removal_due(),
            waits,
            behind,
        ];
        at.into_iter().chain(registry).flatten().min()
    }

    fn happened(&mut self, event: &Event) {
        match Source::unpack(event.data) {
            Source::Listener(n) => self.accept(n as usize),
            Source::Gate(n) => self.plane.pools.signalled(n as usize),
            Source::Control => self.control(),
            Source::Connection(id) => {
                let Some(connection) = self.connections.get_mut(id) else { return };
                let flags = event.flags;
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR) {
                    let link = &mut connection.link;
                    link.readable = true;
                    // The end of the stream is not announced twice, so it is read up to there.
                    link.ending |= !(flags - EventFlags::IN - EventFlags::OUT).is_empty();
                }
                let written = flags.contains(EventFlags::OUT) && !connection.link.writable;
                connection.link.writable |= written;
                let read = connection.link.readable;
                if read {
                    self.want(id, Way::In);
                }
                if written {
                    self.want(id, Way::Out);
                }
            }
        }
    }

    /// There may be something to write.
    fn mark(&mut self, id: RequestId) {
        self.want(id, Way::Out);
    }

    /// There may be something to be done for a connection: it has a turn, by its disk's contract.
    fn want(&mut self, id: RequestId, way: Way) {
        let Some(client) = self.connections.get_mut(id) else { return };
        let link = &mut client.link;
        let runnable = match way {
            Way::In => &mut link.runnable,
            Way::Out => &mut link.unwritten,
        };
        if std::mem::replace(runnable, true) {
            return;
        }
        let (of, terms) = match client {
            _ if client.is_node => (Of::Links, Terms::weighted(self.plane.disks.links_weight)),
            _ => match client.disk().and_then(|n| Some((n, self.plane.disks[n].as_ref()?))) {
                Some((number, disk)) => (Of::Disk(number), Terms::of(&disk.config.contract)),
                None => (Of::Newcomers, Terms::weighted(1)),
            },
        };
        self.turns.put(of, terms, id, way);
    }

    /// Takes in what came, lets storage work, replies.
    fn turn(&mut self) {
        self.tick_sessions();
        self.lose_patience();
        self.look_at_certificates();
        self.look();
        self.look_at_hosts();
        self.tick_links();
        // Before anything is begun: what may be done now depends on it.
        self.settle_reservations();
        self.go_on_exchanging();
        self.plane.pools.list_due(self.now);
        self.plane.round.begin(turns::ROUND_BYTES);
        loop {
            self.move_bytes();
            self.poke();
            across::cross(&mut self.plane, self.now);
            self.serve();
            self.mark_links();
            self.plane.across.lanes.tell();
            if self.turns.is_empty() || self.turns.is_over() {
                break;
            }
            // What comes now came after what has just been dispatched, and is recorded so: a replay must tell them apart.
            self.now += Duration::from_nanos(1);
        }
        self.administer();
        self.go_on_removing();
        self.move_seats();
        self.mark_links();
        if self.plane.memory.freed() {
            self.water();
        }
        self.plane.across.lanes.tell();
    }
}

impl Server {
    /// Sessions whose time has come, some at a time.
    fn tick_sessions(&mut self) {
        for _ in 0..TICKS {
            let Some(&(at, id)) = self.due.first().filter(|(at, _)| *at <= self.now) else { return };
            self.due.remove(&(at, id));
            let Some(client) = self.connections.get_mut(id) else { continue };
            if !client.tick(around!(self, id)) {
                self.drop_connection(id);
                continue;
            }
            self.due.extend(client.due().map(|at| (at.max(self.now + TICK), id)));
            self.mark(id);
        }
    }

    /// Lets some that wait for memory try again, disk by disk: however many connections of one disk wait, another disk's are not
    /// behind them. Whoever still finds none waits for what others hold, and is asked again when that comes back: so some are enough.
    fn water(&mut self) {
        let mut left = RETRIES;
        while left > 0
            && let Some(disk) = self.thirsty.pop_front()
        {
            let Some(waiters) = self.memory_waiters.get_mut(&disk) else { continue };
            let next = waiters.pop_front();
            match waiters.is_empty() {
                true => drop(self.memory_waiters.remove(&disk)),
                false => self.thirsty.push_back(disk),
            }
            left -= usize::from(next.is_some_and(|id| self.retry(id)));
        }
    }

    /// Gates dispatch and storage works, as long as there is something at this moment, and clients' commands are answered.
    fn serve(&mut self) {
        loop {
            self.plane.poll(self.now);
            self.charge();
            if !self.plane.answers.is_empty() {
                self.answer();
                self.poke();
            } else if !self.settle_reservations() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
