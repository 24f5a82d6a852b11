//! The loop: one thread owns the gate, and all pairs.

mod patience;
mod status;

use crate::config::{Config, ProxyError, Who};
use crate::identity::{Owner, Owners};
use crate::pair::{Conduit, Held, Pair};
use crate::peers::{LINK, LINK_LISTEN, Peers, Told};
use crate::poller::{Happened, Interest, Poller};
use henge_core::{
    Cost, Dispatch, Duration, FlowId, Gate, Instant, Op, Pending, Request, RequestId, Striping,
};
use henge_pvfs2::{Direction, Distribution, IoRequest, News, RequestBody, ServerLimits};
use henge_sched::foreign::{Extent, Served};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Control connections at once.
const CONTROLS_MAX: usize = 64;
/// The loop looks around at least so often: for [`Stop`], and for clients that gave up.
const LOOK_AROUND: Duration = Duration::from_millis(100);

const CONTROL: u64 = 1 << 40;
const LISTEN: u64 = 1 << 41;
const ASKER: u64 = 1 << 42;

/// Ends a running proxy from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// At the next look around.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// Whether it was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An I/O request from the moment it came until it is over.
struct Io {
    pair: usize,
    tag: i64,
    /// While it waits.
    message: Option<Vec<u8>>,
    /// What of the file it touches, where that is one range.
    extent: Option<Extent>,
    /// How the file lies on servers.
    striping: Option<Striping>,
}

/// A request whose flow was full when it came.
struct Refused {
    pair: usize,
    held: Held,
    flow: usize,
}

/// The proxy in front of one server.
pub struct Proxy {
    config: Config,
    poller: Poller,
    listeners: Vec<TcpListener>,
    control: Option<UnixListener>,
    askers: BTreeMap<u64, UnixStream>,
    next_asker: u64,
    conduit: Conduit,
    pairs: Pending<Box<Pair>>,
    gate: Gate,
    ios: Pending<Io>,
    /// In order of arrival, with the moment at which the client will have given up.
    expiries: VecDeque<(Instant, RequestId)>,
    /// At the server, in order of the next look at whether anything moves.
    at_server: VecDeque<patience::Look>,
    refused: VecDeque<Refused>,
    limits: ServerLimits,
    owners: Owners,
    counts: Counts,
    began: std::time::Instant,
    stop: Stop,
    news: Vec<News>,
    peers: Option<Peers>,
    told: Vec<Told>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    accepted: u64,
    turned_away: u64,
    unreachable: u64,
    expired: u64,
    unanswered: u64,
    ambiguous: u64,
    malformed: u64,
    unfollowed: u64,
    between_servers: u64,
    opaque: u64,
}

impl Proxy {
    /// Opens its sockets.
    pub fn new(config: Config) -> Result<Self, ProxyError> {
        allow_many_sockets();
        let assembly = henge_sched::build(&config.scheduler, config.knobs.clone())
            .map_err(|e| config.source.point(e))?;
        let mut gate = Gate::new(assembly);
        for (i, flow) in config.flows.iter().enumerate() {
            gate.set_flow(FlowId(i as u32), &flow.contract, Instant::ZERO).map_err(|refused| {
                let error = henge_core::ParamError {
                    message: format!("flow \"{}\": {}", flow.name, refused.why),
                    help: Some(refused.instead),
                    span: 0..0,
                };
                config.source.point(error)
            })?;
        }
        let poller = Poller::new().map_err(|e| ProxyError::io("epoll", e))?;
        let mut listeners = Vec::new();
        for (i, listen) in config.listen.iter().enumerate() {
            let what = || format!("listening on {}", listen.address);
            let listener = TcpListener::bind(listen.address).map_err(|e| ProxyError::io(what(), e))?;
            listener.set_nonblocking(true).map_err(|e| ProxyError::io(what(), e))?;
            poller
                .add(&listener, LISTEN | i as u64, Interest::READ)
                .map_err(|e| ProxyError::io(what(), e))?;
            listeners.push(listener);
        }
        let control = config.control.as_deref().map(crate::control::listen).transpose()?;
        if let Some(control) = &control {
            poller
                .add(control, CONTROL, Interest::READ)
                .map_err(|e| ProxyError::io("the control socket", e))?;
        }
        let epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |d| d.as_nanos() as u64);
        let peers = config.peers.as_ref().map(|p| Peers::new(&config, p, epoch, &poller)).transpose()?;
        let limits = ServerLimits {
            client_message: config.client_timeout.unwrap_or(ServerLimits::default().client_message),
            ..ServerLimits::default()
        };
        Ok(Proxy {
            poller,
            listeners,
            control,
            askers: BTreeMap::new(),
            next_asker: 0,
            conduit: Conduit::new().map_err(|e| ProxyError::io("a pipe", e))?,
            pairs: Pending::new(),
            gate,
            ios: Pending::new(),
            expiries: VecDeque::new(),
            at_server: VecDeque::new(),
            refused: VecDeque::new(),
            limits,
            owners: Owners::default(),
            counts: Counts::default(),
            began: std::time::Instant::now(),
            stop: Stop::default(),
            news: Vec::new(),
            peers,
            told: Vec::new(),
            config,
        })
    }

    /// To end it from another thread.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Where it listens, in the order of the configuration (ports of 0 are chosen by the kernel).
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|l| l.local_addr().ok()).collect()
    }

    /// Where peers link to it.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peers.as_ref().and_then(Peers::address)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    /// Runs until stopped.
    pub fn run(&mut self) -> Result<(), ProxyError> {
        let applications = self.config.flows.len() - 1;
        tracing::info!(server = %self.config.server, applications, "in front of the server");
        let mut happened = Vec::new();
        while !self.stop.is_stopped() {
            let now = self.now();
            let wakes =
                [self.gate.wake_at(), self.peers.as_ref().and_then(Peers::wake_at), Some(now + LOOK_AROUND)];
            let wake = wakes.into_iter().flatten().min().map_or(LOOK_AROUND, |t| t.since(now));
            happened.clear();
            self.poller.wait(Some(wake), &mut happened).map_err(|e| ProxyError::io("epoll", e))?;
            let now = self.now();
            for event in &happened {
                self.happened(*event, now);
            }
            self.expire(now);
            self.dispatch(now);
            if let Some(peers) = &mut self.peers {
                peers.tick(&self.poller, now);
            }
        }
        tracing::info!(accepted = self.counts.accepted, unreachable = self.counts.unreachable, "ends");
        Ok(())
    }

    fn happened(&mut self, event: Happened, now: Instant) {
        match event.name {
            CONTROL => self.accept_control(),
            LINK_LISTEN => {
                if let Some(peers) = &mut self.peers {
                    peers.accept(&self.poller, now);
                }
            }
            name if name & LINK != 0 => self.heard_from_peer(name, now),
            name if name & LISTEN != 0 => self.accept((name ^ LISTEN) as usize),
            name if name & ASKER != 0 => self.asked(name, now),
            name => self.moved((name >> 1) as usize, name & 1 == 1, event.gone, now),
        }
    }

    fn accept(&mut self, listener: usize) {
        loop {
            let (client, peer) = match self.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // Nobody more; or no descriptors left, in which case those who leave make room.
                Err(_) => return,
            };
            if self.pairs.len() >= self.config.connections {
                self.counts.turned_away += 1;
                let most = self.config.connections;
                tracing::warn!(client = %peer, most, "turned away: as many connections as may be are open");
                continue; // dropping it closes it
            }
            let by_address =
                || self.config.rules.iter().find(|r| r.who.is_address(peer.ip())).map(|r| r.flow);
            let flow = self.config.listen[listener].flow.or_else(by_address);
            match connect(self.config.server) {
                Ok(server) => match self.add_pair(client, server, flow) {
                    Ok(()) => {
                        let application = flow.map_or("by user", |f| self.config.flows[f].name.as_str());
                        tracing::debug!(client = %peer, application, "connected");
                    }
                    Err(e) => self.unreachable(peer, &e),
                },
                Err(e) => self.unreachable(peer, &e),
            }
        }
    }

    fn unreachable(&mut self, client: SocketAddr, why: &io::Error) {
        self.counts.unreachable += 1;
        tracing::warn!(%client, server = %self.config.server, %why, "no connection to the server for a client");
    }

    fn add_pair(&mut self, client: TcpStream, server: TcpStream, flow: Option<usize>) -> io::Result<()> {
        for socket in [&client, &server] {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
        }
        let name = u64::from(self.pairs.next_id().slot) << 1;
        let pair = Pair::new(client, server, flow);
        self.poller.add(&pair.client.socket, name, Interest::READ)?;
        self.poller.add(&pair.server.socket, name | 1, Interest::READ)?;
        self.pairs.insert(Box::new(pair));
        self.counts.accepted += 1;
        Ok(())
    }

    fn pair_mut(&mut self, slot: usize) -> Option<&mut Box<Pair>> {
        self.pairs.in_slot(slot as u32).and_then(|id| self.pairs.get_mut(id))
    }

    /// Bytes can move on a pair, or one of its ends is gone.
    fn moved(&mut self, slot: usize, from_server: bool, gone: bool, now: Instant) {
        if gone && !from_server {
            if let Some(id) = self.pairs.in_slot(slot as u32) {
                self.close(id, now);
            }
            return;
        }
        if gone && let Some(id) = self.pairs.in_slot(slot as u32) {
            // What the server sent last may still have to wait for a slow client; the poller would report its end
            // over and over meanwhile.
            let server = &mut self.pairs.get_mut(id).expect("just found").server;
            if server.told.take().is_some() {
                let _ = self.poller.remove(&server.socket);
            }
        }
        // What one side took may let the other go on.
        let result =
            if from_server { self.move_from_server(slot, now) } else { self.move_from_client(slot, now) };
        let result = result.and_then(|()| match from_server {
            true => self.move_from_client(slot, now),
            false => self.move_from_server(slot, now),
        });
        self.settle(slot, result, now);
    }

    fn move_from_client(&mut self, slot: usize, now: Instant) -> io::Result<()> {
        loop {
            let Some(id) = self.pairs.in_slot(slot as u32) else { return Ok(()) };
            let pair = self.pairs.get_mut(id).expect("just found");
            pair.active = now;
            let Some(held) = pair.move_from_client(&self.conduit)? else { return Ok(()) };
            let flow = self.flow_of(slot, &held.request);
            self.take_in(Refused { pair: slot, held, flow }, now);
        }
    }

    /// Whose a request is: by port or address, else by user, else `other`.
    fn flow_of(&mut self, slot: usize, request: &henge_pvfs2::Request) -> usize {
        let other = self.config.flows.len() - 1;
        let pair = self.pair_mut(slot).expect("a request comes from a pair");
        if let Some(flow) = pair.flow {
            return flow;
        }
        let user = match (request.user, self.owners.of(&request.capability)) {
            (Some(user), _) => Some(user.uid),
            (None, Owner::User(uid)) => Some(uid),
            (None, Owner::Unknown) => None,
            (None, Owner::Ambiguous) => {
                self.counts.ambiguous += 1;
                None
            }
        };
        let rule = user.and_then(|uid| self.config.rules.iter().find(|r| r.who == Who::User(uid)));
        rule.map_or(other, |r| r.flow)
    }

    /// Queues a request; where its flow is full, the connection that brought it is read no further.
    fn take_in(&mut self, came: Refused, now: Instant) {
        let RequestBody::Io(io) = &came.held.request.body else { unreachable!("only I/O is held") };
        let flow = FlowId(came.flow as u32);
        let request = gate_request(self.ios.next_id(), flow, io, now);
        if self.gate.submit(request, now).is_err() {
            if let Some(pair) = self.pair_mut(came.pair) {
                pair.blocked = true;
                self.refused.push_back(came);
            }
            return;
        }
        let (extent, striping) = self.place_in_file(io);
        if let Some(peers) = &mut self.peers {
            peers.arrived(flow, Cost::new(request.len), striping.as_ref(), now);
        }
        let io =
            Io { pair: came.pair, tag: came.held.tag, message: Some(came.held.message), extent, striping };
        let id = self.ios.insert(io);
        self.expiries.push_back((now + self.patience_waiting(), id));
        if let Some(pair) = self.pair_mut(came.pair) {
            pair.pending.insert(came.held.tag, id);
        }
    }

    fn move_from_server(&mut self, slot: usize, now: Instant) -> io::Result<()> {
        let mut news = std::mem::take(&mut self.news);
        let result = match self.pairs.in_slot(slot as u32) {
            Some(id) => {
                self.pairs.get_mut(id).expect("just found").move_from_server(&self.conduit, &mut news)
            }
            None => Ok(()),
        };
        for heard in news.drain(..) {
            self.heard(slot, heard, now);
        }
        self.news = news;
        result
    }

    fn heard(&mut self, slot: usize, news: News, now: Instant) {
        match news {
            News::Accepted { tag, bytes: Some(bytes) } => {
                let id = self.pair_mut(slot).and_then(|p| p.pending.get(&tag).copied());
                if let Some(id) = id {
                    self.gate.adjust(id, Cost::new(bytes.max(1)), now);
                }
            }
            News::Accepted { bytes: None, .. } => {}
            News::Over { tag, result } => {
                let id = self.pair_mut(slot).and_then(|p| p.pending.remove(&tag));
                if let Some(id) = id {
                    if let Ok(bytes) = result {
                        self.gate.adjust(id, Cost::new(bytes.max(1)), now);
                    }
                    self.over(id, result.is_err(), now);
                }
            }
            News::Identity { capability, credential } => {
                if let Some(peers) = &mut self.peers {
                    peers.identified(&capability, credential.uid, now);
                }
                self.owners.learn(*capability, credential.uid);
            }
            News::Limits(limits) => {
                let client_message = self.config.client_timeout.unwrap_or(limits.client_message);
                self.limits = ServerLimits { client_message, ..limits };
            }
        }
    }

    fn over(&mut self, id: RequestId, failed: bool, now: Instant) {
        let io = self.ios.remove(id).expect("a pending request is known");
        let request = self.gate.complete(id, failed, now).request;
        if let Some(peers) = &mut self.peers {
            let served = Served { flow: request.flow, cost: request.cost, extent: io.extent };
            let foreign = peers.served(&served, io.striping.as_ref(), now);
            if foreign > Cost::ZERO {
                self.gate.foreign(request.flow, foreign, now);
            }
        }
        self.readmit(now);
    }

    /// Which range of the file a request touches, and how the file lies on servers; for those who share the total.
    fn place_in_file(&self, io: &IoRequest) -> (Option<Extent>, Option<Striping>) {
        let Some(peers) = &self.peers else { return (None, None) };
        let contiguous = io.file_request.is_contiguous() && io.aggregate_size > 0;
        let extent = contiguous.then_some(Extent { offset: io.file_req_offset, len: io.aggregate_size });
        let striping = match io.distribution {
            Distribution::SimpleStripe { strip_size } => {
                peers.striping(strip_size, io.server_nr, io.server_ct)
            }
            Distribution::Basic | Distribution::Other(_) => None,
        };
        (extent, striping)
    }

    fn heard_from_peer(&mut self, link: u64, now: Instant) {
        let Some(peers) = &mut self.peers else { return };
        let mut told = std::mem::take(&mut self.told);
        peers.moved(link, &self.poller, now, &mut told);
        for news in told.drain(..) {
            match news {
                Told::Foreign(flow, service) if service > Cost::ZERO => self.gate.foreign(flow, service, now),
                Told::Foreign(..) => {}
                Told::Identity(capability, uid) => self.owners.learn(capability, uid),
            }
        }
        self.told = told;
    }

    /// Flows that were full may have room again.
    fn readmit(&mut self, now: Instant) {
        for _ in 0..self.refused.len() {
            let came = self.refused.pop_front().expect("counted");
            if !self.gate.has_room(FlowId(came.flow as u32)) {
                self.refused.push_back(came);
                continue;
            }
            let slot = came.pair;
            self.take_in(came, now);
            if let Some(pair) = self.pair_mut(slot) {
                pair.blocked = false;
                let result = self.move_from_client(slot, now);
                self.settle(slot, result, now);
            }
        }
    }

    /// Releases what may go.
    fn dispatch(&mut self, now: Instant) {
        while let Dispatch::Ready(request) = self.gate.next(now) {
            let io = self.ios.get_mut(request.id).expect("a queued request is known");
            let (slot, tag) = (io.pair, io.tag);
            let message = io.message.take().expect("it leaves once");
            self.look_at(request.id, now);
            let pair = self.pair_mut(slot).expect("a queued request's pair is there");
            let result = pair.release(tag, message);
            self.settle(slot, result, now);
        }
    }

    /// After something happened on a pair: close it, or tell the poller what it waits for.
    fn settle(&mut self, slot: usize, result: io::Result<()>, now: Instant) {
        let Some(id) = self.pairs.in_slot(slot as u32) else { return };
        let pair = self.pairs.get_mut(id).expect("just found");
        if let Err(why) = &result {
            tracing::debug!(%why, "a connection has broken");
        }
        if result.is_err() || pair.is_over() {
            return self.close(id, now);
        }
        if pair.client_has_left() && !pair.pending.is_empty() {
            let waiting: Vec<RequestId> = pair.pending.values().copied().collect();
            waiting.into_iter().for_each(|id| self.drop_waiting(id, now, false));
        }
        let Some(pair) = self.pairs.get_mut(id) else { return };
        let (client, server) = pair.interests();
        let name = u64::from(id.slot) << 1;
        let mut told = Ok(());
        for (side, wanted, name) in [(&mut pair.client, client, name), (&mut pair.server, server, name | 1)] {
            if side.told.is_some_and(|t| t != wanted) {
                side.told = Some(wanted);
                told = told.and(self.poller.change(&side.socket, name, wanted));
            }
        }
        if told.is_err() {
            self.close(id, now);
        }
    }

    /// A pair is gone: what waited is forgotten, what was at the server is over.
    fn close(&mut self, pair_id: RequestId, now: Instant) {
        let pair = self.pairs.remove(pair_id).expect("closed once");
        let stats = pair.connection.stats();
        self.counts.malformed += stats.malformed;
        self.counts.unfollowed += stats.unfollowed;
        self.counts.between_servers += stats.between_servers;
        self.counts.opaque += u64::from(pair.connection.is_opaque());
        let odd = stats.malformed + stats.unfollowed;
        if pair.connection.is_opaque() || odd > 0 {
            tracing::warn!(
                malformed = stats.malformed,
                unfollowed = stats.unfollowed,
                "a connection's messages were not understood, and passed unscheduled"
            );
        }
        self.refused.retain(|r| r.pair != pair_id.index());
        for id in pair.pending.values() {
            if self.gate.cancel(*id, now).is_none() {
                self.gate.complete(*id, true, now);
            }
            self.ios.remove(*id);
        }
        drop(pair);
        self.readmit(now);
    }

    fn accept_control(&mut self) {
        let Some(control) = &self.control else { return };
        let Ok((asker, _)) = control.accept() else { return };
        if self.askers.len() >= CONTROLS_MAX || asker.set_nonblocking(true).is_err() {
            return;
        }
        let name = ASKER | self.next_asker;
        self.next_asker += 1;
        if self.poller.add(&asker, name, Interest::READ).is_ok() {
            self.askers.insert(name, asker);
        }
    }

    /// Any line asks for the status; the answer is one line of JSON.
    fn asked(&mut self, name: u64, now: Instant) {
        let status = self.status(now);
        let Some(asker) = self.askers.get_mut(&name) else { return };
        let mut line = [0; 256];
        let answered = match asker.read(&mut line) {
            Ok(0) => false,
            Ok(n) if line[..n].contains(&b'\n') => asker.write_all(status.to_line().as_bytes()).is_ok(),
            Ok(_) => true,
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        };
        if !answered {
            self.askers.remove(&name);
        }
    }
}

/// Two sockets a connection, where a process may usually open 1,024 files unless it asks for what it may ask for.
fn allow_many_sockets() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused, the old limit stands, and those who come beyond it are turned away.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// An I/O request as the gate sees it: so many bytes of one data file. Its true cost comes with the answer.
fn gate_request(id: RequestId, flow: FlowId, io: &IoRequest, now: Instant) -> Request {
    let op = match io.direction {
        Direction::Read => Op::Read,
        Direction::Write => Op::Write,
    };
    Request::new(id, flow, op, io.file_req_offset, io.estimate().max(1), now)
}

/// A connection to the server, begun; a server that is slow to answer delays nobody else.
fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    // Loopback and a local network answer within microseconds; a server that is gone must not stop the loop.
    TcpStream::connect_timeout(&server, std::time::Duration::from_millis(250))
}
