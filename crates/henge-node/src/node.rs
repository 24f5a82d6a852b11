//! A node: its loops, each on a thread of its own, from the start to the end.

use crate::config::{DiskConfig, NodeConfig};
use crate::control::{Control, adding, removal};
use crate::events::Events;
use crate::fill::Fills;
use crate::front::Address;
use crate::handover::Handover;
use crate::ledger::Ledger;
use crate::listen::Listener;
use crate::manager::{Agent, Facts};
use crate::message::Message;
use crate::operate;
use crate::operate::term;
use crate::plane::manage;
use crate::plane::{Notice, Plane};
use crate::server::slots::{ConnectionSlots, Counts, Most};
use crate::server::{Entrance, Left, Patience, Server, Setup};
use crate::shards::across::Across;
use crate::shards::lanes::Lanes;
use crate::shards::{Division, Routes, Shards, keep, ties};
use crate::socket;
use crate::state::{Memory, StateDir, pools};
use henge_api::Terms;
use henge_config::ConfigError;
use henge_core::{Instant, ParamError};
use henge_nbd::Tls;
use henge_tls::{Clients, Tls as Certificates};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

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
/// println!("{} of {} commands late", web.meters.late, web.meters.commands);
/// node.stop().unwrap();
/// ```
pub struct Node {
    control: Control,
    addresses: Vec<Address>,
    link: Option<Address>,
    threads: Vec<JoinHandle<io::Result<Left>>>,
    watcher: Option<JoinHandle<()>>,
    agent: Option<Agent>,
    seats: Option<crate::seats::SeatThreads>,
    removals: Option<JoinHandle<()>>,
    _socket: Option<socket::Socket>,
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

/// What every loop begins with.
#[derive(Clone)]
struct Begin {
    config: Arc<NodeConfig>,
    division: Division,
    epoch: u64,
    state_dir: StateDir,
    listeners: Vec<Arc<Listener>>,
    tls: Option<Arc<Certificates>>,
    shards: Arc<Shards>,
    counts: Arc<Counts>,
    notices: Sender<Notice>,
    started: std::time::Instant,
}

impl Begin {
    /// Opens a shard's pools and serves them until the node ends. Rings and stores belong to the thread that uses them, so that thread
    /// opens them.
    fn serve(
        self,
        (here, lanes): (usize, Lanes),
        messages: Receiver<Message>,
        opened: &Sender<Result<(), StartError>>,
    ) -> io::Result<Left> {
        henge_io::go_before_workers();
        let shards = Arc::clone(&self.shards);
        let server = self.open((here, lanes), messages);
        let (server, outcome) = match server {
            Ok(server) => (Some(server), Ok(())),
            Err(e) => (None, Err(e)),
        };
        let _ = opened.send(outcome);
        let ended = server.map(Server::run);
        if !matches!(ended, Some(Ok(_))) {
            // Nobody waits for it when the others end.
            shards.say_quiet();
        }
        ended.unwrap_or_else(|| Ok(Left::default()))
    }

    fn open(self, (here, lanes): (usize, Lanes), messages: Receiver<Message>) -> Result<Server, StartError> {
        let Begin { config, division, epoch, state_dir, listeners, tls, shards, counts, notices, started } =
            self;
        let across = Across::new(lanes, here, division.clone());
        let mut plane = Plane::open_shard(&config, across, epoch, false, Instant::ZERO)
            .map_err(|e| config.source.point(e))?;
        manage::tell_notices(&mut plane, notices);
        Ok(Server::new(Setup {
            plane,
            entrance: Entrance {
                // Other nodes' links belong to the first.
                listeners: listeners.into_iter().filter(|l| here == 0 || !l.is_links()).collect(),
                arrivals: Default::default(),
                tls,
                limits: config.bounds.limits,
                slots: ConnectionSlots::new(
                    Most {
                        all: config.bounds.connections,
                        per_address: config.bounds.connections_per_address,
                        per_disk: config.bounds.connections_per_disk,
                    },
                    counts,
                    division.count(),
                ),
            },
            state_dir,
            patience: Patience { payload: config.bounds.payload_timeout, memory: config.bounds.memory_wait },
            busy_poll: config.loops.busy_poll,
            messages,
            shards,
            here,
            started,
        })?)
    }
}

impl Node {
    /// Opens everything and begins to serve. Errors point into the configuration's file.
    pub fn start(config: NodeConfig) -> Result<Node, StartError> {
        Node::go_on(config, Handover::default())
    }

    /// The same where another node of this process has [left](Self::hand_over) its sockets.
    pub fn go_on(mut config: NodeConfig, left: Handover) -> Result<Node, StartError> {
        let Handover { listeners: mut bound, guests, .. } = left;
        raise_descriptors();
        let state_dir = StateDir::open(&config)?;
        let memory = remembered(&mut config, state_dir.clone())?;
        let devices = pools::check(&config, &state_dir, &|_| false).map_err(|e| config.source.point(e))?;
        let division = divide(&config, &memory)?;
        let tls = open_tls(&config)?.map(|tls| Arc::new(tls.sealed_by_kernel(kernel_seals(&config))));
        let found = config.listen.iter().map(|listen| Listener::find(listen, &mut bound).map(Arc::new));
        let mut listeners = found.collect::<io::Result<Vec<_>>>()?;
        let addresses: Vec<Address> = listeners.iter().map(|l| l.address.clone()).collect();
        if let Some(link) = &config.link {
            listeners.push(Arc::new(Listener::find_link(&link.listen, &mut bound)?));
        }
        // Where nobody is to come any more.
        for (at, _) in bound {
            if let Some((_, path)) = at.split_once("+unix://") {
                let _ = std::fs::remove_file(path);
            }
        }
        let link = config.link.as_ref().and_then(|_| listeners.last()).map(|l| l.address.clone());
        let epoch = epoch(&config, &state_dir)?;
        let names = config.pools.iter().map(|pool| pool.name.clone()).collect();
        let (shards, receivers) = Shards::new(division.count(), names)?;
        let shards = Arc::new(shards);
        if let Some(tls) = &tls {
            let shards = Arc::clone(&shards);
            // Each loop looks at its connections again.
            tls.follow(move || shards.wake_all())?;
        }
        let routes = Routes::new(&config, division.clone());
        let control = Control::new(Arc::clone(&shards), routes, Events::open(state_dir.folder()), memory);
        let agent =
            config.manager.clone().map(|manager| (manager, facts(&config, &addresses, link.as_ref())));
        let disks: Vec<(String, String)> = config.disks.iter().map(|d| (d.name.clone(), terms(d))).collect();
        let socket_path = config.control.clone();
        let ledger = Ledger::open(state_dir.folder());
        let (notices, noticed) = mpsc::channel();
        let fills = Fills::of(&config);
        let (config, counts, started) = (Arc::new(config), Arc::default(), std::time::Instant::now());
        let (pools, remembers) = (Arc::clone(&config), state_dir.clone());
        let begin =
            Begin { config, division, epoch, state_dir, listeners, tls, shards, counts, notices, started };
        let threads = open_all(begin, receivers)?;
        if let Err(e) = pools::remember(&pools, &remembers, devices) {
            tracing::warn!("another pool in a pool's place would not be noticed: {e}");
        }
        control.recall(guests);
        let failed = control.shards.look(false).unwrap_or_default().failed;
        let not_served: BTreeSet<String> = failed.into_iter().map(|failed| failed.name).collect();
        adding::have_all(
            &control,
            pools.disks.iter().map(|disk| (disk.name.clone(), keep(disk, &pools.pools))),
            &not_served,
        );
        let (failed, disks): (Vec<_>, Vec<_>) =
            disks.into_iter().partition(|(name, _)| not_served.contains(name));
        let failed: Vec<String> = failed.into_iter().map(|(name, _)| name).collect();
        let removals = removal::go_on_removing(&control, &not_served);
        let watcher = Some(control.begin(&disks, &failed, noticed, fills, ledger)?);
        let agent = match agent {
            Some((manager, facts)) => Some(Agent::start(manager, facts, control.clone())?),
            None => None,
        };
        // Pools that nodes share are the first shard's.
        let seats = crate::seats::begin(control.shards.at(0))?;
        let socket = match socket_path {
            Some(path) => Some(socket::Socket::open(&path, control.clone())?),
            None => None,
        };
        Ok(Node { control, addresses, link, threads, watcher, agent, seats, removals, _socket: socket })
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

    /// Whether a loop of it has ended, which happens by itself only when the system fails it.
    pub fn has_ended(&self) -> bool {
        self.threads.is_empty() || self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Takes no more commands, finishes those under way, flushes every disk, and ends.
    pub fn stop(mut self) -> io::Result<()> {
        let left = self.end(&|| Message::Stop)?;
        let late = (left.abandoned > 0)
            .then(|| format!("{} commands were not finished by the storage in time", left.abandoned));
        let why: Vec<String> = late.into_iter().chain(left.lost()).collect();
        if why.is_empty() { Ok(()) } else { Err(io::Error::other(why.join("; "))) }
    }

    /// The same, with sockets left for the program that comes next: listeners, and clients by NBD.
    pub fn hand_over(mut self) -> io::Result<Handover> {
        let mut left = self.end(&|| Message::HandOver)?;
        left.part_with_unflushed();
        if left.abandoned > 0 {
            tracing::warn!(
                commands = left.abandoned,
                "were not finished by the storage in time; their clients are disconnected"
            );
        }
        if let Some(why) = left.lost() {
            tracing::error!("{why}; their clients are disconnected");
        }
        // All loops have ended, so that nobody else has them.
        let listeners = left.listeners.into_iter().filter_map(Arc::into_inner);
        let listeners = listeners.map(Listener::hand).collect::<io::Result<_>>()?;
        Ok(Handover { listeners, guests: left.guests, configuration: None })
    }

    fn end(&mut self, how: &dyn Fn() -> Message) -> io::Result<Left> {
        let hands = self.agent.take().map(Agent::stop);
        let left = end_all(&self.control.shards, std::mem::take(&mut self.threads), how);
        // It notices that the loops have ended, and writes down how promises were kept.
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        drop(self.seats.take());
        // What it waits for ends with the loops.
        if let Some(removals) = self.removals.take() {
            let _ = removals.join();
        }
        // What a manager had ordered ends where the loops have ended.
        drop(hands);
        left
    }
}

/// Begins all loops; returns once all have opened what is theirs, and know of each other's disks.
fn open_all(
    begin: Begin,
    receivers: Vec<Receiver<Message>>,
) -> Result<Vec<JoinHandle<io::Result<Left>>>, StartError> {
    let (opened, opening) = mpsc::channel();
    let (shards, count) = (Arc::clone(&begin.shards), receivers.len());
    let mut threads = Vec::new();
    let mut begun = Ok(());
    for ((here, messages), lanes) in receivers.into_iter().enumerate().zip(shards.lanes()) {
        let (begin, opened) = (begin.clone(), opened.clone());
        let name = if count == 1 { "henge-node".to_owned() } else { format!("henge-node/{here}") };
        let work = move || begin.serve((here, lanes), messages, &opened);
        match std::thread::Builder::new().name(name).spawn(work) {
            Ok(thread) => threads.push(thread),
            Err(e) => {
                shards.say_quiet();
                begun = Err(e.into());
            }
        }
    }
    drop((begin, opened));
    let ended = || StartError::Io(io::Error::other("a thread of the node ended before it began"));
    for _ in 0..threads.len() {
        begun = begun.and(opening.recv().map_err(|_| ended()).flatten());
    }
    if let Err(e) = begun {
        // Why it did not begin is what is to be said.
        let _ = end_all(&shards, threads, &|| Message::Stop);
        return Err(e);
    }
    // Once each has said which disks it has, each has heard the others.
    shards.settle();
    shards.settle();
    Ok(threads)
}

/// Ends all loops. What they leave: each its guests, and the first the listeners, which are the same for all.
fn end_all(
    shards: &Shards,
    threads: Vec<JoinHandle<io::Result<Left>>>,
    how: &dyn Fn() -> Message,
) -> io::Result<Left> {
    shards.tell_all(how);
    let mut all = Ok(Left::default());
    let ended = threads.into_iter().map(|thread| {
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the node panicked")))
    });
    // Each is waited for, whatever became of the others.
    for left in ended {
        all = match (all, left) {
            (Ok(mut all), Ok(left)) => {
                all.abandoned += left.abandoned;
                all.unflushed.extend(left.unflushed);
                all.guests.extend(left.guests);
                if all.listeners.is_empty() {
                    all.listeners = left.listeners;
                }
                Ok(all)
            }
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
    }
    all
}

/// Which pool belongs to which loop. Disks that are remembered keep theirs together.
pub(crate) fn divide(config: &NodeConfig, memory: &Memory) -> Result<Division, StartError> {
    let ties = ties(&memory.replay(), config);
    Ok(Division::of(config, ties).map_err(|e| config.source.point(e))?)
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whoever wants to know how it went calls `stop`.
        let _ = self.end(&|| Message::Stop);
    }
}

/// A disk's contract as one line.
fn terms(disk: &DiskConfig) -> String {
    let terms = disk.terms.iter().map(|(key, value)| format!("{key}={}", term(value)));
    let terms: Vec<String> = terms.collect();
    if terms.is_empty() { "best effort".into() } else { terms.join(" ") }
}

/// By which peers tell this start from those before it; who has no peers needs none.
fn epoch(config: &NodeConfig, state_dir: &StateDir) -> io::Result<u64> {
    let Some(path) = state_dir.file("epoch").filter(|_| config.link.is_some()) else { return Ok(1) };
    let (epoch, trouble) = henge_io::epoch(&path)?;
    if let Some(e) = trouble {
        tracing::warn!("the node's epoch is the clock's, and must not be set back until this is mended: {e}");
    }
    Ok(epoch)
}

/// What this node remembers.
/// Disks of the file that have grown since are as large as they became.
pub(crate) fn remembered(config: &mut NodeConfig, state_dir: StateDir) -> io::Result<Memory> {
    let terms = |disk: &DiskConfig| -> Terms {
        disk.terms.iter().map(|(key, value)| (key.clone(), term(value))).collect()
    };
    let file = config.disks.iter().map(|disk| (disk.name.clone(), terms(disk))).collect();
    let doors = crate::fronts::kinds().iter().map(|kind| kind.key).collect();
    let memory = Memory::open(state_dir, file, doors)?;
    for disk in &mut config.disks {
        let kept = memory.disks.get(&disk.name);
        disk.capacity = disk.capacity.max(kept.and_then(|kept| kept.capacity).unwrap_or(0));
        disk.beginning.going = kept.is_some_and(|kept| kept.going);
        disk.beginning.had_on = memory.parts.get(&disk.name).cloned().unwrap_or_default();
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
fn open_tls(config: &NodeConfig) -> Result<Option<Certificates>, ConfigError> {
    let open = |tls| Certificates::open(tls, Clients::Required).map_err(|e| config.source.point(e));
    config.tls.as_ref().map(open).transpose()
}

/// Whether the kernel encrypts what is sent by TLS, which the log says.
fn kernel_seals(config: &NodeConfig) -> bool {
    let seals = match config.loops.kernel_tls {
        true => henge_io::kernel_tls::look(),
        false => Err("kernel_tls = false".into()),
    };
    match &seals {
        Ok(()) => tracing::info!("TLS: the kernel encrypts what is sent"),
        Err(why) => tracing::info!("TLS: the node encrypts what is sent, and not the kernel: {why}"),
    }
    seals.is_ok()
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
    let state_dir = StateDir::look(&config);
    let memory = remembered(&mut config, state_dir.clone())?;
    pools::check(&config, &state_dir, &|_| false).map_err(|e| config.source.point(e))?;
    let division = divide(&config, &memory)?;
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
    lines.push(format!("cores    {}", division.describe(&config.pools)));
    lines.extend(config.kinds.open.iter().map(|why| format!("insecure {why}")));
    if let Some(link) = &config.link {
        lines.push(format!("link     {} of the cluster \"{}\", on {}", link.name, link.cluster, link.listen));
    }
    for peer in &config.peers {
        lines.push(format!("peer     {} at {}", peer.name, peer.address));
    }
    lines.extend(operate::describe(&plane));
    lines.extend(plane.pools.notices().into_iter().map(|(name, text)| format!("note     {name}: {text}")));
    lines.extend(grounds.lines);
    lines.extend(grounds.warnings);
    if config.disks.is_empty() {
        lines.push("disk     none yet: write [[disk]] into the file, or call `henge vd add`".into());
    }
    Ok(lines)
}
