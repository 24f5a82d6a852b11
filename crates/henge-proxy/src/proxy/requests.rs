//! The way of an I/O request: whose it is, its wait, its release, what the server says of it.

use super::Proxy;
use super::metadata::{Debt, commands, paid};
use super::refused::{AllRefused, Refused, refuse};
use super::slots::{Slots, of_pieces};
use crate::config::Who;
use crate::identity::Owner;
use crate::pair::{Held, Pair};
use crate::peers::{Peers, Told};
use henge_core::{Cost, Dispatch, FlowId, Gate, Instant, Op, Pending, Request, RequestId, Striping};
use henge_pvfs2::{Direction, Distribution, IoRequest, Load, News, RequestBody};
use henge_sched::foreign::{Extent, Served};
use std::io;

/// What an I/O request is charged that cannot be decoded: nobody knows what it moves.
const UNREAD: u64 = 4 << 20;
/// What each contiguous piece of an access counts at least, as a part of what a request does. Servers were seen to take 120 µs for a request of
/// 64 KiB, and 52 µs for a piece by their usual method.
const PIECE: u64 = 4;

/// What is over as it goes has failed, as far as its gate is concerned: no model takes it for one that its server was quick with.
const TEACHES_NOTHING: bool = true;

/// An I/O request from the moment it came until it is over.
pub(super) struct Io {
    pub(super) pair: usize,
    flow: FlowId,
    /// None where its answer cannot be told from others': it is over as it goes.
    pub(super) tag: Option<i64>,
    /// While it waits; nothing where it stands for data that no request explained.
    pub(super) message: Option<Vec<u8>>,
    /// The range of the file that it touches, where it is one range.
    pub(super) extent: Option<Extent>,
    /// How the file lies on servers.
    pub(super) striping: Option<Striping>,
    /// Bytes that it counts at least, however few move.
    least: u64,
    /// Slots that it takes at the server.
    slots: u64,
    /// Bytes that moved; until that is known, that will.
    bytes: u64,
    /// Requests but for I/O that it stands for: none reaches the server as it goes.
    pays: u64,
}

impl Io {
    /// It stands for so many requests that have passed.
    pub(super) fn of_debt(pair: usize, flow: FlowId, pays: u64) -> Io {
        Io::of_nothing(pair, flow, 0, pays)
    }

    fn of_nothing(pair: usize, flow: FlowId, bytes: u64, pays: u64) -> Io {
        let (extent, striping, message) = (None, None, Some(Vec::new()));
        Io { pair, flow, tag: None, message, extent, striping, least: 0, slots: 1, bytes, pays }
    }
}

/// The gate, and all I/O requests that it has not let go or that are at the server.
pub(super) struct Requests {
    pub(super) gate: Gate,
    pub(super) ios: Pending<Io>,
    pub(super) refused: AllRefused,
    pub(super) slots: Slots,
    /// Bytes that each flow has moved.
    pub(super) moved: Vec<u64>,
    /// What each flow owes.
    pub(super) debts: Vec<Debt>,
    /// The gate may have something to release.
    pub(super) dirty: bool,
    /// Those that were refused are being looked at.
    pub(super) readmits: bool,
}

impl Requests {
    pub(super) fn new(gate: Gate, flows: usize) -> Self {
        let (ios, refused, moved) = (Pending::new(), AllRefused::new(flows), vec![0; flows]);
        Requests {
            gate,
            ios,
            refused,
            slots: Slots::new(flows),
            moved,
            debts: vec![Debt::default(); flows],
            dirty: false,
            readmits: false,
        }
    }

    /// So many bytes of a request move. What is less than its least is charged as that: a request takes its server's time
    /// whatever it moves.
    fn moves(&mut self, id: RequestId, bytes: u64, now: Instant) {
        if let Some(io) = self.ios.get_mut(id) {
            io.bytes = bytes;
            self.gate.moves(id, bytes.max(io.least), now);
        }
    }

    /// Its connection has ended while it was at the server: it costs what one does that nobody can read, at least.
    pub(super) fn abandoned(&mut self, id: RequestId, now: Instant) {
        if let Some(io) = self.ios.get(id) {
            self.gate.moves(id, io.bytes.max(io.least).max(UNREAD), now);
        }
    }

    /// Whether nothing of a connection is at the server.
    pub(super) fn only_wait(&self, pair: &Pair) -> bool {
        let waits = |id: &RequestId| self.ios.get(*id).is_none_or(|io| io.message.is_some());
        pair.all_pending().all(|id| waits(&id))
    }
}

impl Proxy {
    /// Whose a request is: by port or address, else by user, else `other`.
    pub(super) fn flow_of(&mut self, slot: usize, request: &henge_pvfs2::Request) -> usize {
        let other = self.config.flows.len() - 1;
        let pair = self.pairs.get_mut(slot).expect("a request comes from a pair");
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

    /// Queues a request; where its flow is full, it waits outside.
    pub(super) fn take_in(&mut self, came: Refused, now: Instant) {
        self.requests.dirty = true;
        let flow = FlowId(came.flow as u32);
        if let Some(pair) = self.pairs.get_mut(came.pair) {
            pair.last_flow = Some(came.flow);
        }
        let (id, body) = (self.requests.ios.next_id(), &came.held.request.body);
        let io = if let RequestBody::Io(io) = body { Some(io) } else { None };
        let load = match body {
            RequestBody::Io(io) => io.estimate(),
            RequestBody::UnreadIo => Load { bytes: UNREAD, pieces: 1 },
            _ => Load { bytes: 0, pieces: came.held.request.weight() * PIECE },
        };
        let least = load.pieces.saturating_mul(self.config.least / PIECE).max(self.config.least);
        let (op, offset) = io.map_or((Op::Read, 0), |io| (op_of(io.direction), io.file_req_offset));
        let commands = commands(came.held.request.weight());
        let request = Request { commands, ..Request::new(id, flow, op, offset, load.bytes.max(least), now) };
        if self.requests.gate.submit(request, now).is_err() {
            return refuse(self, came);
        }
        let (extent, striping) = io.map_or((None, None), |io| place_in_file(self.peers.as_ref(), io));
        if let Some(peers) = &mut self.peers {
            peers.arrived(flow, striping.as_ref(), now);
        }
        let Held { tag, message, .. } = came.held;
        let slots = if io.is_some() { of_pieces(load.pieces) } else { 1 };
        let (pair, message, bytes) = (came.pair, Some(message), load.bytes);
        let io = Io { pair, flow, tag, message, extent, striping, least, slots, bytes, pays: 0 };
        let id = self.requests.ios.insert(io);
        self.patience.waits(id, came.since);
        if let Some(pair) = self.pairs.get_mut(came.pair) {
            match tag {
                Some(tag) => drop(pair.pending.insert(tag, id)),
                None => drop(pair.alone.insert(id)),
            }
        }
    }

    pub(super) fn heard(&mut self, slot: usize, news: News, now: Instant) {
        self.requests.dirty = true;
        match news {
            News::Accepted { tag, bytes } => {
                let id = self.pairs.get_mut(slot).and_then(|p| p.pending.get(&tag).copied());
                if let Some(id) = id {
                    self.requests.slots.accepted(id, now);
                    bytes.into_iter().for_each(|bytes| self.requests.moves(id, bytes, now));
                }
            }
            News::Over { tag, result, moved } => {
                let id = self.pairs.get_mut(slot).and_then(|p| p.pending.remove(&tag));
                if let Some(id) = id {
                    // One that failed costs what has moved of it.
                    let bytes = result.unwrap_or(moved);
                    self.requests.moves(id, bytes, now);
                    self.over(id, result.is_err(), now);
                }
            }
            News::Identity { capability, credential } => {
                if let Some(peers) = &mut self.peers {
                    peers.identified(&capability, credential.uid, now);
                }
                self.owners.learn(*capability, credential.uid);
            }
            News::Limits(limits) => self.patience.learn(limits),
        }
    }

    pub(super) fn over(&mut self, id: RequestId, failed: bool, now: Instant) {
        served(self, id, failed, now);
        self.readmit(now);
    }

    /// Takes in what peers told, where the gate is about to choose or a while has passed.
    pub(super) fn hear_peers(&mut self, now: Instant) -> io::Result<()> {
        let Some(peers) = &mut self.peers else { return Ok(()) };
        if self.waiter.busy && !peers.is_due(now) {
            return Ok(());
        }
        let looked = peers.look(now);
        for news in peers.told.drain(..) {
            match news {
                Told::Foreign(flow, service) if service > Cost::ZERO => {
                    self.requests.gate.foreign(flow, service, now);
                    self.requests.dirty = true;
                }
                Told::Foreign(..) => {}
                Told::Identity(capability, uid) => self.owners.learn(capability, uid),
            }
        }
        looked
    }

    /// Releases what may go.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if !self.departure.goes_on(now) {
            return;
        }
        while let Dispatch::Ready(request) = self.requests.gate.next(now) {
            let io = self.requests.ios.get(request.id).expect("a queued request is known");
            if io.slots > 1 {
                // It has a lane of its own.
                self.requests.gate.give_back(request.id, now);
                self.requests.slots.lane.queue(request.flow, request.id);
            } else {
                go(self, request.id, now);
            }
        }
        while let Some(id) = self.requests.next_of_lane(now) {
            go(self, id, now);
        }
    }
}

/// A request leaves for the server.
fn go(proxy: &mut Proxy, id: RequestId, now: Instant) {
    let io = proxy.requests.ios.get_mut(id).expect("a queued request is known");
    let (slot, flow, tag, slots) = (io.pair, io.flow, io.tag, io.slots);
    let message = io.message.take().expect("it leaves once");
    if message.is_empty() {
        return proxy.over(id, TEACHES_NOTHING, now);
    }
    proxy.requests.slots.take(id, flow, slots, now);
    let pair = proxy.pairs.get_mut(slot).expect("a queued request's pair is there");
    let result = pair.release(tag, message);
    if tag.is_some() {
        proxy.patience.look_at(id, now);
    } else {
        pair.alone.remove(&id);
        proxy.over(id, TEACHES_NOTHING, now);
    }
    proxy.settle(slot, result, now);
}

/// Data moved that no request explains: more than a request asked for, or of one that is not followed. It is charged as if it had been asked
/// for, and moves the application's next requests back.
pub(super) fn charge_stray(proxy: &mut Proxy, slot: usize, now: Instant) {
    let other = proxy.config.flows.len() - 1;
    let Some(pair) = proxy.pairs.get_mut(slot) else { return };
    let flow = FlowId(pair.last_flow.unwrap_or(other) as u32);
    if !pair.connection.stray.is_some() || !proxy.requests.gate.has_capacity(flow) {
        return;
    }
    let bytes = pair.connection.stray.take();
    let id = proxy.requests.ios.next_id();
    let request = Request::new(id, flow, Op::Read, 0, bytes.max(proxy.config.least), now);
    if proxy.requests.gate.submit(request, now).is_ok() {
        proxy.requests.ios.insert(Io::of_nothing(slot, flow, bytes, 0));
        proxy.requests.dirty = true;
        if let Some(peers) = &mut proxy.peers {
            peers.arrived(flow, None, now);
        }
    }
}

/// The server has done with a request, or nobody waits for it any more; peers are told of it either way.
pub(super) fn served(proxy: &mut Proxy, id: RequestId, failed: bool, now: Instant) {
    proxy.requests.dirty = true;
    let io = proxy.requests.ios.remove(id).expect("a pending request is known");
    proxy.requests.slots.free(id, io.flow, &proxy.requests.gate, now);
    let served = proxy.requests.gate.complete(id, failed, now);
    let request = &served.request;
    proxy.requests.moved[request.flow.index()] += io.bytes;
    if let Some(recorder) = proxy.recorder.as_mut().filter(|_| io.pays == 0) {
        recorder.row(&proxy.config.flows[request.flow.index()].name, &served);
    }
    if let Some(peers) = &mut proxy.peers {
        let served = Served { flow: request.flow, cost: request.cost, extent: io.extent };
        let foreign = peers.served(&served, io.striping.as_ref(), now);
        if foreign > Cost::ZERO {
            proxy.requests.gate.foreign(request.flow, foreign, now);
        }
    }
    if io.pays > 0 {
        paid(proxy, io.pair, io.flow, io.pays, now);
    }
}

/// Which range of the file a request touches, and how the file lies on servers; for proxies that share the total.
fn place_in_file(peers: Option<&Peers>, io: &IoRequest) -> (Option<Extent>, Option<Striping>) {
    let Some(peers) = peers else { return (None, None) };
    let contiguous = io.file_request.is_contiguous() && io.aggregate_size > 0;
    let extent = contiguous.then_some(Extent { offset: io.file_req_offset, len: io.aggregate_size });
    let striping = match io.distribution {
        Distribution::SimpleStripe { strip_size } => peers.striping(strip_size, io.server_nr, io.server_ct),
        _ => None,
    };
    (extent, striping)
}

fn op_of(direction: Direction) -> Op {
    match direction {
        Direction::Read => Op::Read,
        Direction::Write => Op::Write,
    }
}
