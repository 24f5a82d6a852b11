//! A node: its loop on a thread of its own, and the handle by which others talk to it.

use crate::config::{DiskConfig, NodeConfig};
use crate::events::Events;
use crate::fill::Fills;
use crate::front::Address;
use crate::handover::{Guest, Handover};
use crate::ledger::Ledger;
use crate::listen::Listener;
use crate::manager::{Agent, Facts};
use crate::operate::term;
use crate::plane::tickets::{PartOf, Worked};
use crate::plane::{Notice, Plane};
use crate::server::patience::Patience;
use crate::server::places::Most;
use crate::server::{Left, Message, Server, Setup};
use crate::socket;
use crate::state::{Memory, Origin, Place};
use crate::tags::Queued;
use crate::watch::{self, Latest};
use henge_api::{EventKind, Lead, Reply, Request, Status, Terms};
use henge_config::{ConfigError, Source};
use henge_core::{Instant, ParamError};
use henge_nbd::Tls;
use henge_tls::{Clients, Tls as Certificates};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A node that runs.
///
/// ```no_run
/// use henge_config::Source;
/// use henge_node::{Node, NodeConfig};
/// let text = r#"
///     listen = "nbd://127.0.0.1:0"
///     [[pool]]
///     name = "scratch"
///     memory = true
///     capacity = "1GiB"
///     [[disk]]
///     name = "web"
///     capacity = "96MiB"
/// "#;
/// let node = Node::start(NodeConfig::parse(Source::new("node.toml", text)).unwrap()).unwrap();
/// println!("{}", node.addresses()[0].uri("web"));
/// node.control().set("web", &[("limit", "675/s")]).unwrap();
/// node.control().exchange("scratch", "fifo").unwrap();
/// let web = node.control().status().unwrap().disk("web").cloned().unwrap();
/// println!("{} of {} commands late", web.late, web.commands);
/// node.stop().unwrap();
/// ```
pub struct Node {
    control: Control,
    addresses: Vec<Address>,
    link: Option<Address>,
    thread: Option<JoinHandle<io::Result<Left>>>,
    watcher: Option<JoinHandle<()>>,
    agent: Option<Agent>,
    keepers: Option<crate::seats::Keepers>,
    _socket: Option<socket::Socket>,
}

/// Asks a running node. Copies may be used from any thread.
#[derive(Clone)]
pub struct Control {
    messages: Sender<Message>,
    wake: Arc<OwnedFd>,
    latest: Arc<Latest>,
    events: Arc<Events>,
    memory: Arc<Mutex<Memory>>,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration asks for what cannot be had.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A socket or a thread.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A node did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It says why.
    #[error("{0}")]
    Refused(String),
    /// It did, and cannot remember it.
    #[error("it is done, but may be forgotten when the node restarts: {0}")]
    Unremembered(io::Error),
    /// It has ended.
    #[error("the node has ended")]
    Ended,
}

impl Node {
    /// Opens everything and begins to serve. Errors point into the configuration's file.
    pub fn start(config: NodeConfig) -> Result<Node, StartError> {
        Node::go_on(config, Handover::default())
    }

    /// The same where another node of this process has [left](Self::hand_over) its sockets.
    pub fn go_on(mut config: NodeConfig, left: Handover) -> Result<Node, StartError> {
        let Handover { listeners: mut bound, guests } = left;
        raise_descriptors();
        let place = Place::open(&config)?;
        let memory = remembered(&mut config, place.clone())?;
        let tls = open_tls(&config)?;
        let found = config.listen.iter().map(|listen| Listener::find(listen, &mut bound));
        let mut listeners = found.collect::<io::Result<Vec<_>>>()?;
        let addresses: Vec<Address> = listeners.iter().map(|l| l.address.clone()).collect();
        if let Some(link) = &config.link {
            listeners.push(Listener::find_link(&link.listen, &mut bound)?);
        }
        // Where nobody is to come any more.
        for (at, _) in bound {
            if let Some((_, path)) = at.split_once("+unix://") {
                let _ = std::fs::remove_file(path);
            }
        }
        let link = config.link.as_ref().and_then(|_| listeners.last()).map(|l| l.address.clone());
        let epoch = epoch(&config, &place)?;
        let (messages, receiver) = mpsc::channel();
        let wake =
            Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?);
        if let Some(tls) = &tls {
            let wake = Arc::clone(&wake);
            // The loop looks at its connections again. A counter that is full wakes it, too.
            tls.follow(move || {
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            })?;
        }
        let control = Control {
            messages,
            wake: Arc::clone(&wake),
            latest: Arc::default(),
            events: Arc::new(Events::open(place.folder())),
            memory: Arc::new(Mutex::new(memory)),
        };
        let agent =
            config.manager.clone().map(|manager| (manager, facts(&config, &addresses, link.as_ref())));
        let disks: Vec<(String, String)> = config.disks.iter().map(|d| (d.name.clone(), terms(d))).collect();
        let socket_path = config.control.clone();
        let ledger = Ledger::open(place.folder());
        let (opened, opening) = mpsc::channel();
        let sender = control.messages.clone();
        let (notices, noticed) = mpsc::channel();
        let fills = Fills::of(&config);
        // Rings and stores belong to the thread that uses them, so that thread opens them.
        let thread = std::thread::Builder::new().name("henge-node".into()).spawn(move || {
            let plane = match Plane::open(&config, epoch, false, Instant::ZERO) {
                Ok(mut plane) => {
                    plane.tell_notices(notices);
                    plane
                }
                Err(e) => {
                    let _ = opened.send(Err(StartError::Config(config.source.point(e))));
                    return Ok(Left::default());
                }
            };
            let setup = Setup {
                plane,
                sender,
                listeners,
                tls,
                limits: config.limits,
                place,
                connections: Most {
                    all: config.connections,
                    per_address: config.connections_per_address,
                    per_disk: config.connections_per_disk,
                },
                patience: Patience { payload: config.payload_timeout, memory: config.memory_wait },
                busy_poll: config.busy_poll,
                messages: receiver,
                wake,
                started: std::time::Instant::now(),
            };
            match Server::new(setup) {
                Ok(server) => {
                    let _ = opened.send(Ok(()));
                    server.run()
                }
                Err(e) => {
                    let _ = opened.send(Err(StartError::Io(e)));
                    Ok(Left::default())
                }
            }
        })?;
        opening.recv().map_err(|_| io::Error::other("the node's thread ended before it began"))??;
        control.recall(guests);
        let failed = watch::look(&control.messages, &control.wake, false).unwrap_or_default().failed;
        let (failed, disks): (Vec<_>, Vec<_>) =
            disks.into_iter().partition(|(name, _)| failed.iter().any(|f| f.name == *name));
        let failed: Vec<String> = failed.into_iter().map(|(name, _)| name).collect();
        let watcher = Some(control.begin(&disks, &failed, noticed, fills, ledger)?);
        let agent = match agent {
            Some((manager, facts)) => Some(Agent::start(manager, facts, control.clone())?),
            None => None,
        };
        let keepers = crate::seats::begin(&control.messages, &control.wake)?;
        let socket = match socket_path {
            Some(path) => Some(socket::Socket::open(&path, control.clone())?),
            None => None,
        };
        Ok(Node { control, addresses, link, thread: Some(thread), watcher, agent, keepers, _socket: socket })
    }

    /// Why a node of this configuration cannot be [handed over](Self::hand_over), if it cannot: what it holds would be lost.
    pub fn cannot_be_handed_over(config: &NodeConfig) -> Option<String> {
        let lost = config.pools.iter().find(|pool| pool.medium.is_lost_at_the_end());
        lost.map(|pool| {
            format!("pool \"{}\" is in memory, and would be empty; stop the node and start it", pool.name)
        })
    }

    /// Where clients can come, in the order of `listen`; with the port that was chosen for port 0.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where other nodes can come.
    pub fn link(&self) -> Option<&Address> {
        self.link.as_ref()
    }

    /// Asks it.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Whether its loop has ended, which it only does by itself when the system fails it.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes no more commands, finishes those under way, flushes every disk, and ends.
    pub fn stop(mut self) -> io::Result<()> {
        match self.end(Message::Stop)?.abandoned {
            0 => Ok(()),
            abandoned => Err(io::Error::other(format!(
                "{abandoned} commands were not finished by the storage in time"
            ))),
        }
    }

    /// The same, with sockets left for the program that comes next: listeners, and clients by NBD.
    pub fn hand_over(mut self) -> io::Result<Handover> {
        let left = self.end(Message::HandOver)?;
        if left.abandoned > 0 {
            tracing::warn!(
                commands = left.abandoned,
                "were not finished by the storage in time; their clients are disconnected"
            );
        }
        let listeners = left.listeners.into_iter().map(Listener::hand).collect::<io::Result<_>>()?;
        Ok(Handover { listeners, guests: left.guests })
    }

    fn end(&mut self, how: Message) -> io::Result<Left> {
        drop(self.agent.take());
        let Some(thread) = self.thread.take() else { return Ok(Left::default()) };
        self.control.send(how);
        let left = match thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(io::Error::other("the node's thread panicked")),
        };
        // It notices that the loop has ended, and writes down how promises were kept.
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        drop(self.keepers.take());
        left
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whoever wants to know how it went calls `stop`.
        let _ = self.end(Message::Stop);
    }
}

impl Control {
    /// Notes what is served from now on, and begins to watch it.
    fn begin(
        &self,
        disks: &[(String, String)],
        failed: &[String],
        noticed: Receiver<Notice>,
        fills: Fills,
        ledger: Ledger,
    ) -> io::Result<JoinHandle<()>> {
        let all = match failed {
            [] => format!("{} disks", disks.len()),
            failed => format!("{} disks; not served: {}", disks.len(), failed.join(", ")),
        };
        self.events.note(EventKind::Started, "", all);
        for (name, terms) in disks.iter().filter(|(name, _)| !self.events.knows(name)) {
            self.events.note(EventKind::Admitted, name, terms.clone());
        }
        let own = self.clone();
        let watcher = move || {
            watch::watch(&own.messages, &own.wake, &own.latest, &own.events, &noticed, fills, ledger);
        };
        std::thread::Builder::new().name("henge-watch".into()).spawn(watcher)
    }

    /// Parts of disks over several nodes are told there from now on, or to nobody.
    pub(crate) fn relay(&self, to: Option<SyncSender<Queued>>) {
        self.send(Message::Relay(to));
    }

    /// Finish times that the manager made.
    pub(crate) fn leads(&self, leads: Vec<Lead>) {
        self.send(Message::Leads(leads));
    }

    fn send(&self, message: Message) -> bool {
        let sent = self.messages.send(message).is_ok();
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        sent
    }

    /// Asks, and waits for the answer. What is changed is remembered before this returns.
    pub fn ask(&self, request: Request) -> Result<Reply, ControlError> {
        self.ask_as(request, Origin::Here)
    }

    pub(crate) fn ask_as(&self, mut request: Request, origin: Origin) -> Result<Reply, ControlError> {
        if let Request::Peer { address, at: at @ None, .. } = &mut request {
            *at = Some(crate::links::resolve(address).map_err(ControlError::Refused)?);
        }
        match &request {
            Request::Meters => {
                let status = self.latest.get().ok_or(ControlError::Ended)?;
                return Ok(Reply { status: Some(Status::clone(&status)), ..Reply::done() });
            }
            Request::Status => {
                let mut status = watch::look(&self.messages, &self.wake, false).ok_or(ControlError::Ended)?;
                self.latest.tell(&mut status);
                return Ok(Reply { status: Some(status), ..Reply::done() });
            }
            Request::Events { name, after, most } => {
                let events = self.events.after(name.as_deref(), *after, *most);
                return Ok(Reply { events: Some(events), ..Reply::done() });
            }
            Request::Tap => {
                // Made here, so that the loop allocates nothing.
                let buffer = Vec::with_capacity(crate::tap::ROOM);
                let (reply, answer) = mpsc::channel();
                if !self.send(Message::Tap { buffer, reply }) {
                    return Err(ControlError::Ended);
                }
                let taken = answer.recv_timeout(Duration::from_secs(60)).map_err(|_| ControlError::Ended)?;
                return Ok(Reply { taken: Some(taken), ..Reply::done() });
            }
            _ => {}
        }
        let about = note(&request);
        let reply = self.tell_and_keep(request, origin);
        if let Some((kind, name, detail)) = about {
            match &reply {
                Ok(_) => self.events.note(kind, &name, detail),
                Err(why @ ControlError::Unremembered(_)) => {
                    self.events.note(kind, &name, format!("{detail} ({why})"));
                }
                Err(why) => self.events.note(EventKind::Refused, &name, format!("{detail}: {why}")),
            }
        }
        reply
    }

    fn tell_and_keep(&self, request: Request, origin: Origin) -> Result<Reply, ControlError> {
        let added = match &request {
            Request::Set { .. } | Request::Remove { .. } | Request::Grow { .. } => None,
            Request::Peer { .. } | Request::Unpeer { .. } | Request::Access { .. } => None,
            Request::Add { disk } => name_of(disk),
            Request::Room { .. } => {
                self.prepare(&request)?;
                return self.tell(request);
            }
            _ => return self.tell(request),
        };
        // This may take hours, in which others go on.
        let made = self.prepare(&request)?;
        // Held meanwhile, so that what is remembered last is what was done last.
        let mut memory = self.memory();
        if let Some(disk) = added {
            return self.add_and_keep(&mut memory, request, &disk, origin, made);
        }
        let change = memory.prepare(&request, None, origin).map_err(unremembered)?;
        let reply = self.tell(request)?;
        memory.commit(change).map_err(ControlError::Unremembered)?;
        Ok(reply)
    }

    /// Adds a disk, whose parts are made, in an order in which nothing is left behind wherever the node ends: it is remembered; then
    /// the parts are its own; then clients may come. A part that no remembered disk has claimed goes when the node begins again, and a
    /// disk that is remembered gets what is missing then.
    fn add_and_keep(
        &self,
        memory: &mut Memory,
        request: Request,
        disk: &str,
        origin: Origin,
        made: Vec<PartOf>,
    ) -> Result<Reply, ControlError> {
        // Two may ask for one name at once.
        let kept = match memory.disks.contains_key(disk) {
            true => Err(ControlError::Refused(format!("there is a disk \"{disk}\" already"))),
            false => memory.prepare(&request, Some(disk), origin).map_err(unremembered),
        };
        let written = kept.is_ok();
        let done = kept
            .and_then(|change| memory.commit(change).map_err(unremembered))
            .and_then(|()| self.work(|reply| Message::Claim(disk.to_owned(), made.clone(), reply)))
            .and_then(|_| self.tell(request));
        let Err(ControlError::Refused(why)) = done else { return done };
        // What is left is emptied before it is forgotten: the other way round a part would be left, and nobody to say whose it is.
        if let Err(e) = self.work(|reply| Message::Discard(disk.to_owned(), made, reply)) {
            tracing::warn!(disk, error = %e, "parts of a disk that was refused are left");
        }
        let forgotten = if written { memory.forget(disk) } else { Ok(()) };
        match forgotten {
            Ok(()) => Err(ControlError::Refused(why)),
            Err(e) => {
                let there = format!("{why}; it may be there, and empty, when the node begins again: {e}");
                Err(ControlError::Refused(there))
            }
        }
    }

    /// Has the parts made that a request will need; those that were not there before.
    fn prepare(&self, request: &Request) -> Result<Vec<PartOf>, ControlError> {
        if !matches!(request, Request::Add { .. } | Request::Grow { .. } | Request::Room { .. }) {
            return Ok(Vec::new());
        }
        self.work(|reply| Message::Prepare(request.clone(), reply))
    }

    /// Has the loop work at parts beside the data path, and waits for it.
    fn work(&self, message: impl FnOnce(Sender<Worked>) -> Message) -> Result<Vec<PartOf>, ControlError> {
        let (reply, answer) = mpsc::channel();
        self.send(message(reply));
        answer.recv().map_err(|_| ControlError::Ended)?.map_err(ControlError::Refused)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a disk is as the manager's order wants it.
    pub(crate) fn settle(&self, name: &str, revision: u64) -> io::Result<()> {
        self.memory().settled(name, revision)
    }

    /// Does again what was done before the node ended, and lets clients come. What cannot be is said, and remembered on.
    fn recall(&self, left: Vec<Guest>) {
        let requests = self.memory().replay();
        let mut failed = Vec::new();
        for (name, request) in requests {
            let adds = matches!(request, Request::Add { .. });
            let claim = |made| self.work(|reply| Message::Claim(name.clone(), made, reply));
            if let Err(e) = self.prepare(&request).and_then(claim).and_then(|_| self.tell(request)) {
                eprintln!("henge: disk \"{name}\" is not as it was before the node ended: {e}");
                failed.extend(adds.then(|| (name, e.to_string())));
            }
        }
        let (over, settled) = mpsc::channel();
        self.send(Message::Settle { failed, left, over });
        // Nobody is there to answer where the loop has ended.
        let _ = settled.recv();
    }

    /// The meters, at most a second old, without a copy.
    pub fn meters(&self) -> Result<Arc<Status>, ControlError> {
        self.latest.get().ok_or(ControlError::Ended)
    }

    fn tell(&self, request: Request) -> Result<Reply, ControlError> {
        let (reply, answer) = mpsc::channel();
        if !self.send(Message::Ask(request, reply)) {
            return Err(ControlError::Ended);
        }
        // Only removing a disk's data takes long; a loop that ends hangs up.
        let reply = answer.recv().map_err(|_| ControlError::Ended)?;
        match reply.ok {
            true => Ok(reply),
            false => Err(ControlError::Refused(reply.error.unwrap_or_default())),
        }
    }
    /// Meters and contracts of everything.
    pub fn status(&self) -> Result<Status, ControlError> {
        self.ask(Request::Status).map(|reply| reply.status.unwrap_or_default())
    }
    /// Changes terms of a disk's contract; an empty value takes one away.
    pub fn set(&self, disk: &str, terms: &[(&str, &str)]) -> Result<(), ControlError> {
        let contract = terms.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.ask(Request::Set { name: disk.to_owned(), contract }).map(drop)
    }
    /// Another scheduler for a pool, while it works: a name, or a table as the configuration writes it.
    pub fn exchange(&self, pool: &str, scheduler: &str) -> Result<(), ControlError> {
        self.ask(Request::Scheduler { pool: pool.to_owned(), scheduler: scheduler.to_owned() }).map(drop)
    }
    /// Starts all disks' meters anew.
    pub fn reset(&self) -> Result<(), ControlError> {
        self.ask(Request::Reset).map(drop)
    }
}

/// A disk's contract as one line.
fn terms(disk: &DiskConfig) -> String {
    let terms = disk.terms.iter().map(|(key, value)| format!("{key}={}", term(value)));
    let terms: Vec<String> = terms.collect();
    if terms.is_empty() { "best effort".into() } else { terms.join(" ") }
}

/// Nothing is done that is not remembered.
fn unremembered(e: io::Error) -> ControlError {
    ControlError::Refused(format!("it could not be remembered: {e}"))
}

/// What is noted of a request: its kind, whom it is about, and the particulars.
fn note(request: &Request) -> Option<(EventKind, String, String)> {
    match request {
        Request::Set { name, contract } => {
            let terms: Vec<String> = contract.iter().map(|(key, value)| format!("{key}={value}")).collect();
            Some((EventKind::Changed, name.clone(), terms.join(" ")))
        }
        Request::Add { disk } => {
            let params = henge_config::Source::new("the request", disk.clone()).parse("the disk").ok();
            let name = params.and_then(|mut p| p.text("name").ok().flatten()).unwrap_or_default();
            let shown = henge_config::redacted(disk);
            let lines = shown.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("name"));
            Some((EventKind::Admitted, name, lines.collect::<Vec<_>>().join(" ")))
        }
        Request::Grow { name, capacity } => {
            Some((EventKind::Changed, name.clone(), format!("capacity={capacity}")))
        }
        Request::Access { name, doors } => {
            let shown = henge_config::redacted(doors);
            let lines = shown.lines().map(str::trim).filter(|line| !line.is_empty());
            Some((EventKind::Changed, name.clone(), lines.collect::<Vec<_>>().join(" ")))
        }
        Request::Remove { name } => Some((EventKind::Removed, name.clone(), String::new())),
        Request::Scheduler { pool, scheduler } => {
            Some((EventKind::Scheduler, pool.clone(), scheduler.clone()))
        }
        Request::Status | Request::Reset | Request::Meters | Request::Room { .. } => None,
        Request::Preview { .. }
        | Request::Offer { .. }
        | Request::Events { .. }
        | Request::Tap
        | Request::Untap => None,
        Request::Peer { .. } | Request::Unpeer { .. } => None,
        Request::Drain { on } => {
            let what = if *on { "drained: it takes no shared disks" } else { "takes shared disks again" };
            Some((EventKind::Changed, String::new(), what.into()))
        }
    }
}

/// The name in a disk's table.
fn name_of(disk: &str) -> Option<String> {
    Source::new("the request", disk).parse("the disk").ok()?.text("name").ok()?
}

/// By which peers tell this start from those before it; who has no peers needs none.
fn epoch(config: &NodeConfig, place: &Place) -> io::Result<u64> {
    let Some(path) = place.file("epoch").filter(|_| config.link.is_some()) else { return Ok(1) };
    let (epoch, trouble) = henge_io::epoch(&path)?;
    if let Some(e) = trouble {
        tracing::warn!("the node's epoch is the clock's, and must not be set back until this is mended: {e}");
    }
    Ok(epoch)
}

/// What this node remembers.
/// Disks of the file that have grown since are as large as they became.
fn remembered(config: &mut NodeConfig, place: Place) -> io::Result<Memory> {
    let terms = |disk: &DiskConfig| -> Terms {
        disk.terms.iter().map(|(key, value)| (key.clone(), term(value))).collect()
    };
    let file = config.disks.iter().map(|disk| (disk.name.clone(), terms(disk))).collect();
    let memory = Memory::open(place, file)?;
    for disk in &mut config.disks {
        let grown = memory.disks.get(&disk.name).and_then(|kept| kept.capacity);
        disk.capacity = disk.capacity.max(grown.unwrap_or(0));
    }
    Ok(memory)
}

/// What the manager is told beyond the node's status.
fn facts(config: &NodeConfig, addresses: &[Address], link: Option<&Address>) -> Facts {
    let advertise = config.manager.as_ref().and_then(|m| m.advertise.clone());
    let host = advertise.as_deref();
    let uri = |address: &Address| address.advertised(host, "%");
    let pools = config.pools.iter().map(|p| (p.name.clone(), (p.copies, p.profile)));
    let link = link.map(|link| link.at.text(host));
    Facts { addresses: addresses.iter().map(uri).collect(), link, pools: pools.collect() }
}

/// The certificates that the file names, if it does; followed from here on by who keeps it.
fn open_tls(config: &NodeConfig) -> Result<Option<Arc<Certificates>>, ConfigError> {
    let open =
        |tls| Certificates::open(tls, Clients::Required).map(Arc::new).map_err(|e| config.source.point(e));
    config.tls.as_ref().map(open).transpose()
}

/// As many connections as the system allows this process.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Refused only where somebody has lowered it on purpose; then that many it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// What a configuration would do here, line by line, without serving anybody.
pub fn check(config: &NodeConfig) -> Result<Vec<String>, StartError> {
    let mut config = config.clone();
    let place = Place::look(&config);
    remembered(&mut config, place)?;
    let config = &config;
    let mut plane = Plane::open(config, 0, true, Instant::ZERO).map_err(|e| config.source.point(e))?;
    let certificates = open_tls(config)?;
    let grounds = crate::grounds::look(config);
    if let Some(refused) = grounds.refused.into_iter().next() {
        return Err(config.source.point(refused).into());
    }
    let mut lines = Vec::new();
    for listen in &config.listen {
        let may = if listen.tls == Tls::Allow { ", with TLS where the client asks for it" } else { "" };
        lines.push(format!("listen   {listen}{may}"));
    }
    if let Some(certificates) = certificates {
        let of = certificates.config();
        let pointed = |e: henge_tls::FileError| {
            config.source.point(ParamError { message: e.0, help: None, span: of.span.clone() })
        };
        lines.push(format!("tls      {}", of.describe().map_err(pointed)?));
    }
    lines.extend(config.open.iter().map(|why| format!("insecure {why}")));
    if let Some(link) = &config.link {
        lines.push(format!("link     {} of the cluster \"{}\", on {}", link.name, link.cluster, link.listen));
    }
    for peer in &config.peers {
        lines.push(format!("peer     {} at {}", peer.name, peer.address));
    }
    lines.extend(plane.describe());
    lines.extend(plane.notices().into_iter().map(|(name, text)| format!("note     {name}: {text}")));
    lines.extend(grounds.lines);
    lines.extend(grounds.warnings);
    if config.disks.is_empty() {
        lines.push("disk     none yet: write [[disk]] into the file, or call `henge vd add`".into());
    }
    Ok(lines)
}
