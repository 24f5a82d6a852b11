//! The event loop: one thread that owns sockets, disks, gates and stores.
//!
//! A turn: wait for something to happen or to become due; read the clock once; take in everything that clients
//! sent; let the gates dispatch and the stores finish; reply. Sockets are registered once, edge-triggered, so that
//! a request costs a read, a write, and its part of a wait.

use crate::client::{Client, Link, Surroundings};
use crate::connection::{CHUNK, Catalog, Connection, Stop};
use crate::control::{Reply, Request};
use crate::initiator::Initiator;
use crate::listen::{Address, Listener};
use crate::plane::{Owner, Plane};
use crate::portal::Portal;
use crate::tap::{Taken, Tapped};
use crate::watch::Slice;
use henge_backend::Buffer;
use henge_core::{Duration, Instant, Pending, RequestId};
use henge_nbd::Limits;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

pub(crate) mod links;

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
        reply: Sender<Slice>,
    },
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
    started: std::time::Instant,
    now: Instant,
    stopping: Option<Stopping>,
    chunk: Vec<u8>,
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
        let Setup { plane, listeners, limits, state_dir, connections_max, messages, wake, started } = setup;
        let addresses = listeners.iter().filter_map(|listener| match &listener.address {
            Address::Iscsi(address) => Some(address.to_string()),
            _ => None,
        });
        let portal = Portal::new(state_dir, &addresses.collect::<Vec<_>>());
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
            leaving: BTreeMap::new(),
            look: None,
            readable: VecDeque::new(),
            unwritten: Vec::new(),
            room_waiters: Vec::new(),
            memory_waiters: VecDeque::new(),
            handshakes: VecDeque::new(),
            messages,
            wake,
            started,
            now: Instant::ZERO,
            stopping: None,
            chunk: vec![0; CHUNK],
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
        self.publish();
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.now = self.clock();
            let timeout = self.timeout();
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            self.now = self.clock();
            for event in &events {
                self.happened(event);
            }
            self.turn();
            if let Some(abandoned) = self.finished() {
                self.plane.end_record()?;
                return Ok(abandoned);
            }
        }
    }

    fn clock(&self) -> Instant {
        Instant::from_nanos(self.started.elapsed().as_nanos() as u64)
    }

    /// How long nothing will happen by itself; `None` for ever.
    fn timeout(&self) -> Option<Timespec> {
        if !self.readable.is_empty() || !self.unwritten.is_empty() || self.plane.is_listed() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let handshake = self.handshakes.front().map(|(at, _)| *at);
        let stopping = self.stopping.map(|s| s.deadline);
        let links = self.plane.links.wake_at();
        let at = [self.plane.wake_at(), handshake, stopping, self.look, links].into_iter().flatten().min()?;
        let left = at.since(self.now).as_nanos();
        Some(Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 })
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

    fn accept(&mut self, n: usize) {
        // Level-triggered and bounded: those that are left come in the next turn.
        for _ in 0..16 {
            let Some(listener) = self.listeners.get(n) else { return };
            let fd = match listener.accept() {
                Ok(Some(fd)) => fd,
                // Out of descriptors, or the client is gone already: nothing to be done for it.
                Ok(None) | Err(_) => return,
            };
            if self.connections.len() >= self.connections_max {
                continue; // closed at once; who is connected goes on
            }
            if let Address::Link(_) = listener.address {
                self.accept_link(fd);
                continue;
            }
            let iscsi = matches!(listener.address, Address::Iscsi(_));
            let mut client = if iscsi {
                let Some(initiator) = self.initiator(Link::new(fd)) else { continue };
                Client::Iscsi(Box::new(initiator))
            } else {
                Client::Nbd(Box::new(Connection::new(Link::new(fd), self.limits, self.now)))
            };
            let id = self.connections.next_id();
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            if self.watch(client.link().fd.as_fd(), Source::Connection(id), flags).is_err() {
                continue;
            }
            match &client {
                Client::Nbd(connection) => {
                    let deadline = connection.session.wake_at();
                    self.handshakes.extend(deadline.map(|deadline| (deadline, id)));
                }
                Client::Iscsi(initiator) => {
                    self.portal.connections.insert(initiator.session.nexus(), id);
                    self.look.get_or_insert(self.now + LOOK);
                }
                Client::Peer(_) => {}
            }
            let id = self.connections.insert(client);
            self.unwritten.push(id);
        }
    }

    /// A new initiator; none when the system gives no randomness.
    fn initiator(&mut self, link: Link) -> Option<Initiator> {
        let mut entropy = [0; 33];
        let got = rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty());
        if got != Ok(entropy.len()) {
            return None;
        }
        let limits = henge_iscsi::Limits::default();
        let session = henge_iscsi::Session::new(&mut self.portal.targets, limits, entropy, self.now);
        Some(Initiator::new(link, session))
    }

    /// Asks silent initiators whether they live, and ends logins that take too long.
    fn look(&mut self) {
        if self.look.is_none_or(|at| self.now < at) {
            return;
        }
        let ids: Vec<RequestId> = self.portal.connections.values().copied().collect();
        self.look = (!ids.is_empty()).then_some(self.now + LOOK);
        for id in ids {
            if let Some(Client::Iscsi(initiator)) = self.connections.get_mut(id) {
                initiator.session.tick(&mut self.portal.targets, self.now);
                initiator.pump(id, &mut self.plane, &mut self.portal, self.now);
                self.mark(id);
            }
        }
    }

    /// Delivers what sessions have for each other, and begins what units do for themselves.
    fn poke(&mut self) {
        while let Some(nexus) = self.portal.targets.next_poked() {
            let Some(&id) = self.portal.connections.get(&nexus) else { continue };
            if let Some(Client::Iscsi(initiator)) = self.connections.get_mut(id) {
                initiator.session.poke(&mut self.portal.targets);
                initiator.pump(id, &mut self.plane, &mut self.portal, self.now);
                self.mark(id);
            }
        }
        self.portal.work(&mut self.plane, self.now);
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
        for _ in 0..self.readable.len() {
            let id = self.readable.pop_front().expect("as many as were there");
            self.read(id);
        }
        self.plane.list_due(self.now);
        self.poke();
        loop {
            self.plane.poll(self.now);
            if self.plane.answers.is_empty() {
                break;
            }
            self.answer();
            self.poke();
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

    fn read(&mut self, id: RequestId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.link().listed = false;
        let before = connection.disk();
        let around = Surroundings {
            plane: &mut self.plane,
            catalog: &self.catalog,
            portal: &mut self.portal,
            chunk: &mut self.chunk,
            now: self.now,
        };
        let stop = connection.read(id, around);
        let speaks = connection.has_output() || connection.is_over();
        if speaks && !std::mem::replace(&mut connection.link().unwritten, true) {
            self.unwritten.push(id);
        }
        if let (None, Some(disk)) = (before, connection.disk()) {
            self.plane.disk(disk).connections += 1;
        }
        match stop {
            Stop::Waiting => {}
            Stop::Turn => list(&mut self.readable, connection, id),
            Stop::Stalled => {
                let disk = connection.disk().expect("a command belongs to a disk");
                if self.plane.has_room(disk) {
                    self.memory_waiters.push_back(id);
                } else {
                    if self.room_waiters.len() <= disk {
                        self.room_waiters.resize_with(disk + 1, VecDeque::new);
                    }
                    self.room_waiters[disk].push_back(id);
                }
            }
            Stop::Gone => {
                // What it was told before still goes out, as far as the socket takes it.
                connection.write(id, &mut self.plane, &mut self.portal, self.now);
                self.drop_connection(id);
            }
        }
    }

    /// Reads on from a connection that waited for something.
    fn retry(&mut self, id: RequestId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let waited = connection.is_stalled();
        list(&mut self.readable, connection, id);
        waited
    }

    fn answer(&mut self) {
        let mut answers = std::mem::take(&mut self.plane.answers);
        for answer in answers.drain(..) {
            let disk = answer.disk;
            let id = answer.owner.connection;
            let (plane, portal, now) = (&mut self.plane, &mut self.portal, self.now);
            if Portal::owns(&answer.owner) {
                portal.answer(answer, plane, now);
            } else if let Some(client) = self.connections.get_mut(id) {
                client.answer(id, answer, plane, portal, now);
                self.mark(id);
            } else if let Some(initiator) = self.leaving.get_mut(&id) {
                initiator.answer(id, answer, plane, portal, now);
                if initiator.is_quiet() {
                    self.leaving.remove(&id);
                }
            } else {
                plane.put_buffer(disk, answer.frame);
            }
            // One command less: one that waits for room may come.
            while let Some(waiter) = self.room_waiters.get_mut(disk).and_then(VecDeque::pop_front) {
                if self.retry(waiter) {
                    break;
                }
            }
        }
        // Its memory is kept; what answering has led to comes after it.
        answers.append(&mut self.plane.answers);
        self.plane.answers = answers;
    }

    fn write(&mut self) {
        let mut unwritten = std::mem::take(&mut self.unwritten);
        for id in unwritten.drain(..) {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.link().unwritten = false;
            let whole = connection.write(id, &mut self.plane, &mut self.portal, self.now);
            if !whole || connection.is_over() {
                self.drop_connection(id);
            } else if !connection.is_stalled() && connection.has_input() {
                // The session may have been full, and is not any more.
                list(&mut self.readable, connection, id);
            }
        }
        // A connection that broke may have let others' commands finish: theirs are written in the next turn.
        unwritten.append(&mut self.unwritten);
        self.unwritten = unwritten;
    }

    fn drop_connection(&mut self, id: RequestId) {
        let Some(mut client) = self.connections.remove(id) else { return };
        let number = client.disk();
        match &mut client {
            Client::Nbd(connection) => connection.release(&mut self.plane),
            Client::Iscsi(initiator) => initiator.end(id, &mut self.plane, &mut self.portal, self.now),
            Client::Peer(link) => self.end_link(id, link),
        }
        if let Some(disk) = number.and_then(|number| self.plane.disks[number].as_mut()) {
            disk.connections -= 1;
        }
        if let Client::Iscsi(initiator) = client
            && !initiator.is_quiet()
        {
            // Nothing more is said on its socket; what it has at the disk is still counted.
            let _ = rustix::net::shutdown(&initiator.link.fd, rustix::net::Shutdown::Both);
            self.leaving.insert(id, initiator);
        }
        if let Some(number) = number {
            self.plane.abort(number, id, None, self.now);
            self.answer();
        }
    }

    fn control(&mut self) {
        let mut counter = [0; 8];
        // Nothing to empty is an error that means nothing.
        let _ = rustix::io::read(&self.wake, &mut counter);
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Stop => self.begin_stopping(),
                Message::Tap { buffer, reply } => {
                    let _ = reply.send(self.plane.tap(buffer, self.now));
                }
                Message::Sample { from, reply } => {
                    let _ = reply.send(self.plane.slice(from, self.connections.len(), self.now));
                }
                Message::Ask(request, reply) => {
                    let answer = self.perform(request);
                    // Whoever asked may have gone.
                    let _ = reply.send(answer);
                }
            }
        }
    }

    fn perform(&mut self, request: Request) -> Reply {
        let now = self.now;
        let done = |outcome: Result<(), String>| match outcome {
            Ok(()) => Reply::done(),
            Err(e) => Reply::failed(e),
        };
        match request {
            Request::Status => {
                let total = self.connections.len();
                Reply { status: Some(self.plane.status(total, now)), ..Reply::done() }
            }
            Request::Set { name, contract } => match self.plane.set(&name, contract, now) {
                Err(e) => Reply::failed(e),
                Ok(disk) => {
                    // A higher bound on pending commands lets those in that wait for it.
                    let waiters = self.room_waiters.get_mut(disk).map(std::mem::take);
                    for id in waiters.into_iter().flatten() {
                        self.retry(id);
                    }
                    Reply::done()
                }
            },
            Request::Preview { name, contract } => match self.plane.preview(&name, contract, now) {
                Ok(lines) => Reply { lines: Some(lines), ..Reply::done() },
                Err(e) => Reply::failed(e),
            },
            Request::Scheduler { pool, scheduler } => done(self.plane.exchange(&pool, &scheduler, now)),
            Request::Add { disk } => {
                let added = self.plane.add(&disk, now);
                self.publish();
                done(added.map(drop))
            }
            Request::Grow { name, capacity } => {
                let grown = self.plane.grow(&name, &capacity);
                self.publish();
                done(grown)
            }
            Request::Remove { name } => done(self.remove(&name)),
            Request::Peer { name, address, at } => done(self.plane.add_peer(&name, &address, at)),
            Request::Unpeer { name } => done(self.plane.remove_peer(&name)),
            Request::Reset => {
                self.plane.reset_meters(now);
                Reply::done()
            }
            Request::Untap => {
                self.plane.untap();
                Reply::done()
            }
            Request::Meters | Request::Events { .. } | Request::Tap => {
                Reply::failed("the node's handle answers this")
            }
        }
    }

    fn remove(&mut self, name: &str) -> Result<(), String> {
        let number = self.plane.find(name)?;
        let theirs: Vec<RequestId> =
            self.connections.iter().filter(|(_, c)| c.disk() == Some(number)).map(|(id, _)| id).collect();
        for id in theirs {
            self.drop_connection(id);
        }
        // What other coordinators have here is answered as given up.
        for home in self.plane.homes(number) {
            for link in self.plane.links.connections.clone() {
                self.plane.abort(home, link, None, self.now);
            }
        }
        self.answer();
        let all = self.plane.homes(number).into_iter().chain([number]).collect::<Vec<_>>();
        if all.iter().any(|n| self.plane.disk(*n).vdisk.pending() > 0) {
            return Err(format!("requests of \"{name}\" are still under way; try again"));
        }
        let removed = self.plane.remove_disk(number, self.now).map_err(|e| e.to_string());
        self.publish();
        removed
    }

    /// Brings the list of exports up to date.
    fn publish(&mut self) {
        let served = self.plane.served();
        self.catalog = Catalog::new(served.map(|(number, disk)| (number, disk.export())));
        self.portal.publish(&mut self.plane);
        self.reconsider_links();
    }

    fn begin_stopping(&mut self) {
        self.listeners.clear();
        let ids: Vec<RequestId> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(client) = self.connections.get_mut(id) {
                client.shut_down(&mut self.portal);
                self.mark(id);
            }
        }
        let deadline = self.now + STOPPING;
        self.stopping.get_or_insert(Stopping { deadline, flushing: false });
    }

    /// Once stopping and nothing is under way: flush every disk; with that done, the end.
    fn finished(&mut self) -> Option<usize> {
        let stopping = self.stopping?;
        if stopping.deadline <= self.now {
            return Some(self.plane.served().map(|(_, d)| d.vdisk.pending()).sum());
        }
        if !self.plane.is_idle() {
            return None;
        }
        if stopping.flushing {
            return Some(0);
        }
        self.stopping = Some(Stopping { flushing: true, ..stopping });
        for number in 0..self.plane.disks.len() {
            if self.plane.disks[number].as_ref().is_some_and(|d| d.vdisk.has_room()) {
                let flush = henge_vdisk::Command::new(henge_vdisk::Kind::Flush, 0, 0, self.now, 0);
                self.plane.submit(number, flush, Buffer::empty(), NOBODY, self.now);
            }
        }
        // In this very turn, as everything that was submitted in it; the next one, which comes at once, sees to the rest.
        self.plane.poll(self.now);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        None
    }
}

fn list(readable: &mut VecDeque<RequestId>, connection: &mut Client, id: RequestId) {
    if !std::mem::replace(&mut connection.link().listed, true) {
        readable.push_back(id);
    }
}
