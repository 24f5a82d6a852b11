//! The loop: one thread owns the gate, and all pairs.

mod connections;
mod follow;
mod handing;
mod lane;
mod leaving;
mod lines;
mod patience;
mod places;
mod refused;
mod requests;
mod slots;
mod status;
#[cfg(test)]
mod tests;

use crate::complaints::Complaints;
use crate::config::{Config, PeersConfig, ProxyError};
use crate::control::{ASKER, CONTROL, Control, Counts};
use crate::handover::{HandedPair, Handover};
use crate::identity::Owners;
use crate::peers::{LOOK_EVERY, Peers};
use crate::poller::{Happened, Interest, Poller};
use crate::record::Recorder;
use connections::{Pairs, allow_many_sockets, complain_of_unsound};
use follow::could_follow;
use henge_core::{Duration, FlowId, Gate, Instant};
use leaving::Departure;
use patience::Patience;
use refused::Refused;
use requests::{Requests, charge_stray};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The loop looks around at least so often: for [`Stop`], and for clients that gave up.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Names of listeners, for the poller.
const LISTEN: u64 = 1 << 41;

/// Ends a running proxy from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<[AtomicBool; 3]>);

impl Stop {
    /// At the next look around, whatever is under way.
    pub fn stop(&self) {
        self.0[0].store(true, Ordering::Relaxed);
    }
    /// When what is under way is over, and nobody new is taken meanwhile; within 10 s.
    pub fn leave(&self) {
        self.0[1].store(true, Ordering::Relaxed);
    }
    /// When nothing is at the server, with all connections as they are ([`Proxy::handover`]); within 10 s.
    pub fn hand_over(&self) {
        self.0[2].store(true, Ordering::Relaxed);
    }
    /// The same, where a proxy of this file would run in the place of one of `now`: what it is to be. Else the log says why not.
    pub fn begin_anew(&self, file: &Path, now: &Config) -> Option<Config> {
        match Config::read(file).and_then(|next| could_follow(&next, now).map(|()| next)) {
            Ok(next) => {
                self.hand_over();
                Some(next)
            }
            Err(why) => {
                tracing::error!(%why, "not begun anew: it goes on as it is");
                None
            }
        }
    }
    /// Whether it is to stop.
    pub fn is_stopped(&self) -> bool {
        self.0[0].load(Ordering::Relaxed)
    }
    /// Whether it is to leave.
    pub fn is_asked_to_leave(&self) -> bool {
        self.0[1].load(Ordering::Relaxed)
    }
    /// Whether it is to hand over.
    pub fn is_asked_to_hand_over(&self) -> bool {
        self.0[2].load(Ordering::Relaxed)
    }
}

/// The proxy in front of one server.
pub struct Proxy {
    config: Config,
    waiter: Waiter,
    listeners: Vec<TcpListener>,
    control: Control,
    pairs: Pairs,
    requests: Requests,
    patience: Patience,
    owners: Owners,
    counts: Counts,
    complaints: Complaints,
    began: std::time::Instant,
    departure: Departure,
    /// Connections of the proxy before, until they are taken in.
    adopted: Vec<HandedPair>,
    peers: Option<Peers>,
    recorder: Option<Recorder>,
}

/// Waits for clients and servers, and for peers where there are some.
struct Waiter {
    /// Of clients, servers and callers.
    poller: Poller,
    /// Of them and peers; only where there are peers, and nothing else to do.
    idle: Poller,
    /// Something happened at the last turn.
    busy: bool,
    /// Nobody is accepted until then.
    rests_until: Option<Instant>,
}

impl Waiter {
    fn new(poller: Poller, peers: Option<&Peers>) -> io::Result<Self> {
        let idle = Poller::new()?;
        let watched = [Some(&poller), peers.map(Peers::poller)];
        for (name, poller) in watched.into_iter().flatten().enumerate() {
            idle.add(poller, name as u64, Interest::READ)?;
        }
        Ok(Waiter { poller, idle, busy: false, rests_until: None })
    }

    /// Whether clients that come wake the loop.
    fn listen(&self, listeners: &[TcpListener], on: bool) {
        let interest = Interest { read: on, write: false };
        for (i, listener) in listeners.iter().enumerate() {
            // A poller that forgets a listener forgets it for good: nothing better can be done.
            let _ = self.poller.change(listener, LISTEN | i as u64, interest);
        }
    }

    /// Waits until something happens. Peers wake a loop that has nothing to do, and no other.
    fn wait(&mut self, most: Duration, has_peers: bool, happened: &mut Vec<Happened>) -> io::Result<()> {
        match has_peers {
            true if self.busy => self.poller.wait(Some(most.min(LOOK_EVERY)), happened)?,
            true => {
                self.idle.wait(Some(most), happened)?;
                happened.clear(); // who it was, is asked of each
                self.poller.wait(Some(Duration::ZERO), happened)?;
            }
            false => self.poller.wait(Some(most), happened)?,
        }
        self.busy = !happened.is_empty();
        Ok(())
    }
}

impl Proxy {
    /// Opens its sockets.
    pub fn new(config: Config) -> Result<Self, ProxyError> {
        Self::adopt(config, Handover::default())
    }

    /// Takes over what another proxy left.
    pub fn adopt(config: Config, left: Handover) -> Result<Self, ProxyError> {
        allow_many_sockets();
        let gate = gate(&config)?;
        let poller = Poller::new().map_err(|e| ProxyError::io("epoll", e))?;
        let Handover { listeners: inherited, pairs: mut adopted, patience, .. } = left;
        // The latest to expire last, as requests come.
        adopted.sort_by_key(|pair| std::cmp::Reverse(pair.waited));
        let listeners = listeners(&config, inherited, &poller)?;
        let control = Control::open(config.control.as_deref(), &poller)?;
        let peers = config.peers.as_ref().map(|p| Peers::new(&config, p, epoch(&config, p)?)).transpose()?;
        let waiter = Waiter::new(poller, peers.as_ref()).map_err(|e| ProxyError::io("epoll", e))?;
        let record = |path: &std::path::PathBuf| {
            Recorder::create(path).map_err(|e| ProxyError::io(path.display().to_string(), e))
        };
        let recorder = config.record.as_ref().map(record).transpose()?;
        let learnt = Some(patience).filter(|_| !adopted.is_empty());
        Ok(Proxy {
            waiter,
            listeners,
            control,
            pairs: Pairs::new(&config).map_err(|e| ProxyError::io("a pipe", e))?,
            requests: Requests::new(gate, config.flows.len()),
            patience: Patience::new(config.client_timeout, learnt),
            owners: Owners::default(),
            counts: Counts::default(),
            complaints: Complaints::default(),
            began: std::time::Instant::now(),
            departure: Departure::default(),
            adopted,
            peers,
            recorder,
            config,
        })
    }

    /// To end it from another thread.
    pub fn stopper(&self) -> Stop {
        self.departure.stop.clone()
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
        self.take_adopted();
        while !self.departure.stop.is_stopped() {
            let now = self.now();
            let gate_wakes = self.requests.gate.wake_at();
            let look = now + self.departure.looks_every();
            let peers_wake = self.peers.as_ref().map(Peers::wake_at);
            let wakes = [gate_wakes, peers_wake, self.requests.looks_at(), Some(look)];
            let wake = wakes.into_iter().flatten().min().map_or(LOOK_AROUND, |t| t.since(now));
            happened.clear();
            self.waiter
                .wait(wake, self.peers.is_some(), &mut happened)
                .map_err(|e| ProxyError::io("epoll", e))?;
            let now = self.now();
            for event in &happened {
                self.happened(*event, now);
            }
            self.expire(now);
            self.hear_peers(now).map_err(|e| ProxyError::io("epoll", e))?;
            // Asked when nothing happened, too: whatever should have made it dirty waits 100 ms at most.
            if self.requests.dirty || !self.waiter.busy || gate_wakes.is_some_and(|t| t <= now) {
                self.requests.dirty = false;
                self.dispatch(now);
            }
            if let Some(peers) = &mut self.peers {
                peers.tick(now);
            }
            if self.leave(now) {
                break;
            }
        }
        tracing::info!(accepted = self.counts.accepted, unreachable = self.counts.unreachable, "ends");
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
        Ok(())
    }

    fn happened(&mut self, event: Happened, now: Instant) {
        match event.name {
            CONTROL => self.control.accept(&self.waiter.poller, now),
            name if name & LISTEN != 0 => self.accept((name ^ LISTEN) as usize, now),
            name if name & ASKER != 0 => {
                let status = self.status(now);
                self.control.asked(name, &status);
            }
            _ => self.moved(event, now),
        }
    }

    /// Bytes can move on a pair, or one of its ends is gone.
    fn moved(&mut self, event: Happened, now: Instant) {
        let (slot, from_server) = ((event.name >> 1) as usize, event.name & 1 == 1);
        let Some(id) = self.pairs.open.in_slot(slot as u32) else { return };
        if event.gone && !from_server {
            return self.close(id, now);
        }
        let pair = self.pairs.open.get_mut(id).expect("just found");
        if pair.frozen {
            // Whoever takes it over finds its end.
            if event.gone && pair.server.told.take().is_some() {
                let _ = self.waiter.poller.remove(&pair.server.socket);
            }
            return;
        }
        if event.gone
            && pair.server.told.is_some()
            && let Ok(Some(why)) = pair.server.socket.take_error()
        {
            let client = pair.client.socket.peer_addr();
            // One that was connected and broke says so when it is read.
            if why.kind() != std::io::ErrorKind::ConnectionReset
                && let Ok(client) = client
            {
                self.unreachable(client, &why, now);
            }
            return self.close(id, now);
        }
        // What the server sent last may still have to wait for a slow client; the poller would report its end over and
        // over meanwhile.
        if event.gone && pair.server.told.take().is_some() {
            let _ = self.waiter.poller.remove(&pair.server.socket);
        }
        let mut result = Ok(());
        pair.active = now;
        if event.writable {
            result = pair.flush(from_server, &mut self.pairs.conduit);
        }
        // What was read, and had to wait for a slow server, or for a client that takes no answers: no poller knows of it.
        let unread = event.writable && pair.client.unread() > 0;
        // What is left of a server that is gone comes when the client has taken what came before it.
        let unwatched = event.writable && !from_server && pair.server.told.is_none();
        if result.is_ok() && unread {
            result = self.move_from_client(slot, now);
        } else if result.is_ok() && unwatched {
            result = self.move_from_server(slot, now);
        }
        if event.readable && result.is_ok() {
            result = match from_server {
                true => self.move_from_server(slot, now),
                false => self.move_from_client(slot, now),
            };
        }
        self.settle(slot, result, now);
    }

    fn move_from_client(&mut self, slot: usize, now: Instant) -> io::Result<()> {
        loop {
            let Some(id) = self.pairs.open.in_slot(slot as u32) else { return Ok(()) };
            let pair = self.pairs.open.get_mut(id).expect("just found");
            let held = pair.move_from_client(&mut self.pairs.conduit);
            if let Some(why) = pair.unsound.take() {
                complain_of_unsound(self, slot, why, now);
            }
            let Some(held) = held? else {
                charge_stray(self, slot, now);
                return Ok(());
            };
            let flow = self.flow_of(slot, &held.request, now);
            self.take_in(Refused { pair: slot, held, flow, since: now }, now);
        }
    }

    fn move_from_server(&mut self, slot: usize, now: Instant) -> io::Result<()> {
        let mut news = std::mem::take(&mut self.pairs.news);
        let result = loop {
            let Some(id) = self.pairs.open.in_slot(slot as u32) else { break Ok(()) };
            let pair = self.pairs.open.get_mut(id).expect("just found");
            let moved = pair.move_from_server(&mut self.pairs.conduit, &mut news);
            for heard in news.drain(..) {
                self.heard(slot, heard, now);
            }
            match moved {
                Ok(true) => self.peers.iter_mut().for_each(|peers| peers.send(now)),
                Ok(false) => break Ok(()),
                Err(why) => break Err(why),
            }
        };
        self.pairs.news = news;
        charge_stray(self, slot, now);
        result
    }
}

/// Where clients come: listeners that the proxy before had, or new ones.
fn listeners(
    config: &Config,
    mut inherited: Vec<TcpListener>,
    poller: &Poller,
) -> Result<Vec<TcpListener>, ProxyError> {
    let mut listeners = Vec::new();
    for (i, listen) in config.listen.iter().enumerate() {
        let failed = |e| ProxyError::io(format!("listening on {}", listen.address), e);
        let at = inherited.iter().position(|l| l.local_addr().is_ok_and(|a| a == listen.address));
        let listener = match at {
            Some(at) => inherited.swap_remove(at),
            None => TcpListener::bind(listen.address).map_err(failed)?,
        };
        listener.set_nonblocking(true).map_err(failed)?;
        poller.add(&listener, LISTEN | i as u64, Interest::READ).map_err(failed)?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// By which the others tell this start from those before it.
fn epoch(config: &Config, peers: &PeersConfig) -> Result<u64, ProxyError> {
    let Some(folder) = &config.state_dir else {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        return Ok(clock.map_or(1, |since| since.as_nanos() as u64));
    };
    let path = folder.join(format!("{}.epoch", peers.name.replace('/', "_")));
    let (epoch, trouble) = henge_io::epoch(&path).map_err(|e| ProxyError::io("state_dir", e))?;
    if let Some(e) = trouble {
        tracing::warn!(
            "this proxy's epoch is the clock's, and must not be set back until this is mended: {e}"
        );
    }
    Ok(epoch)
}

/// A gate with the flows of a configuration.
fn gate(config: &Config) -> Result<Gate, ProxyError> {
    let assembly =
        henge_sched::build(&config.scheduler, config.knobs.clone()).map_err(|e| config.source.point(e))?;
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
    Ok(gate)
}
