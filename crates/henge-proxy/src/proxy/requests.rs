//! The way of a request that is held: whose it is, its wait, its release, what the server says of it.

use super::Proxy;
use super::lines::Line;
use super::refused::{AllRefused, Refused, refuse};
use super::slots::{Slots, of_pieces};
use crate::config::{RequestsConfig, Who};
use crate::identity::Owner;
use crate::pair::{Held, Pair};
use crate::peers::{Peers, Told};
use henge_core::{Cost, Dispatch, FlowId, Gate, Instant, Op, Pending, Request, RequestId, Striping};
use henge_pvfs2::{Direction, Distribution, IoRequest, Load, News, RequestBody, encode_failure};
use henge_sched::foreign::{Extent, Served};
use std::io;

/// What an I/O request is charged that cannot be decoded: nobody knows what it moves.
const UNREAD: u64 = 4 << 20;
/// What each contiguous piece of an access counts at least, as a part of what a request does. Servers were seen to take 120 µs for a request of
/// 64 KiB, and 52 µs for a piece by their usual method.
const PIECE: u64 = 4;

/// PVFS_EMSGSIZE, as a server answers it.
const TOO_LONG: i32 = -(42 | 1 << 30);

/// A request from the moment it came until it is over.
pub(super) struct Io {
    pub(super) pair: usize,
    /// As it came to the gate, by the id of the turn that it brought.
    pub(super) request: Request,
    /// The turn in which it went, or is to go as soon as its lane lets it.
    pub(super) turn: Option<RequestId>,
    /// What it asks for, where it is no read or write.
    pub(super) metadata: Option<Metadata>,
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
    pub(super) slots: u64,
    /// Bytes that moved; until that is known, that will.
    bytes: u64,
}

/// What is known of a request that is no read or write.
#[derive(Clone, Copy)]
pub(super) struct Metadata {
    /// Its server may await a disk before it answers.
    pub(super) syncs: bool,
}

impl Io {
    /// It stands for bytes that have moved.
    fn of_stray(pair: usize, request: Request, bytes: u64) -> Io {
        let (tag, turn, metadata, message) = (None, None, None, Some(Vec::new()));
        let (extent, striping) = (None, None);
        Io { pair, request, turn, metadata, tag, message, extent, striping, least: 0, slots: 1, bytes }
    }
}

/// The gate, and all requests that it has not let go or that are at the server.
pub(super) struct Requests {
    pub(super) gate: Gate,
    pub(super) ios: Pending<Io>,
    /// Those that the gate knows: what goes in one is decided when it comes.
    pub(super) turns: Pending<()>,
    /// Of each flow, what waits for a turn.
    pub(super) lines: Vec<Line>,
    pub(super) refused: AllRefused,
    pub(super) slots: Slots,
    /// Bytes that each flow has moved.
    pub(super) moved: Vec<u64>,
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
            turns: Pending::new(),
            lines: (0..flows).map(|_| Line::default()).collect(),
            refused,
            slots: Slots::new(flows),
            moved,
            dirty: false,
            readmits: false,
        }
    }

    /// So many bytes of a request move. What is less than its least is charged as that: a request takes its server's time
    /// whatever it moves.
    fn moves(&mut self, id: RequestId, bytes: u64, now: Instant) {
        if let Some(io) = self.ios.get_mut(id) {
            io.bytes = bytes;
            let (turn, bytes) = (io.turn, bytes.max(io.least));
            turn.into_iter().for_each(|turn| self.gate.moves(turn, bytes, now));
        }
    }

    /// Its connection has ended while it was at the server, which goes on with it beside the depth. I/O costs what one does that nobody can read, at
    /// least, and metadata four times its price.
    pub(super) fn abandoned(&mut self, id: RequestId, now: Instant) {
        if let Some(io) = self.ios.get(id)
            && let Some(turn) = io.turn
        {
            let most = if io.metadata.is_some() { io.least.saturating_mul(4) } else { UNREAD };
            self.gate.moves(turn, io.bytes.max(io.least).max(most), now);
        }
    }

    /// Has the gate take a request in, and brings a turn for it. Whether its flow has room.
    fn submit(&mut self, request: Request, now: Instant) -> Option<Request> {
        let request = Request { id: self.turns.next_id(), ..request };
        self.gate.submit(request, now).ok()?;
        self.turns.insert(());
        Some(request)
    }

    /// Keeps a request that the gate took in.
    fn insert(&mut self, io: Io) -> RequestId {
        let (flow, turn, is_metadata) = (io.request.flow, io.request.id, io.metadata.is_some());
        let id = self.ios.insert(io);
        self.waits(flow, id, turn, is_metadata);
        self.dirty = true;
        id
    }

    /// Whether nothing of a connection is at the server.
    pub(super) fn only_wait(&self, pair: &Pair) -> bool {
        let waits = |id: &RequestId| self.ios.get(*id).is_none_or(|io| io.message.is_some());
        pair.all_pending().all(|id| waits(&id))
    }
}

/// Takes in what peers told, now.
fn take_in_told(proxy: &mut Proxy, now: Instant) -> io::Result<()> {
    let Some(peers) = &mut proxy.peers else { return Ok(()) };
    let looked = peers.look(now);
    for news in peers.told.drain(..) {
        match news {
            Told::Foreign(flow, service) if service > Cost::ZERO => {
                proxy.requests.gate.foreign(flow, service, now);
                proxy.requests.dirty = true;
            }
            Told::Foreign(..) => {}
            Told::Identity(capability, uid) => proxy.owners.learn(capability, uid),
        }
    }
    looked
}

impl Proxy {
    /// Whose a request is: by port or address, else by user, else `other`.
    pub(super) fn flow_of(&mut self, slot: usize, request: &henge_pvfs2::Request, now: Instant) -> usize {
        let other = self.config.flows.len() - 1;
        let pair = self.pairs.get_mut(slot).expect("a request comes from a pair");
        if let Some(flow) = pair.flow {
            return flow;
        }
        let mut owner = self.owners.of(&request.capability);
        if owner == Owner::Unknown && request.user.is_none() && !request.capability.is_null() {
            // Peers tell of it before its client has it. Where the look fails, the loop's own says so.
            let _ = take_in_told(self, now);
            owner = self.owners.of(&request.capability);
        }
        let user = match (request.user, owner) {
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
        let body = &came.held.request.body;
        let io = if let RequestBody::Io(io) = body { Some(io) } else { None };
        let metadata =
            came.held.request.is_metadata().then(|| Metadata { syncs: came.held.request.may_sync() });
        let load = match body {
            RequestBody::Io(io) => io.estimate(),
            RequestBody::UnreadIo(_) => Load { bytes: UNREAD, pieces: 1 },
            _ => Load::default(),
        };
        if io.is_some() && load.pieces > self.config.requests.pieces_max {
            return too_long(self, &came, now);
        }
        let least = match metadata {
            Some(_) => metadata_counts(&self.config.requests, &came.held.request),
            None => {
                let least = self.config.requests.least;
                load.pieces.saturating_mul(least / PIECE).max(least)
            }
        };
        let (op, offset) = io.map_or((Op::Read, 0), |io| (op_of(io.direction), io.file_req_offset));
        let request = Request::new(RequestId::default(), flow, op, offset, load.bytes.max(least), now);
        let Some(request) = self.requests.submit(request, now) else {
            return refuse(self, came);
        };
        let (extent, striping) = io.map_or((None, None), |io| place_in_file(self.peers.as_ref(), io));
        if let Some(peers) = &mut self.peers {
            peers.arrived(flow, striping.as_ref(), now);
        }
        let Held { tag, message, .. } = came.held;
        let slots = if io.is_some() { of_pieces(load.pieces) } else { 1 };
        let (pair, message, bytes) = (came.pair, Some(message), load.bytes);
        let io =
            Io { pair, request, turn: None, metadata, tag, message, extent, striping, least, slots, bytes };
        let id = self.requests.insert(io);
        self.patience.waits(id, came.since, &self.requests.ios);
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
        if self.waiter.busy && self.peers.as_ref().is_some_and(|peers| !peers.is_due(now)) {
            return Ok(());
        }
        take_in_told(self, now)
    }

    /// Releases what may go.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if !self.departure.goes_on(now) {
            return;
        }
        while let Dispatch::Ready(turn) = self.requests.gate.next(now) {
            let id = self.requests.goes(&turn, now);
            if self.requests.ios.get(id).is_some_and(|io| io.slots > 1) {
                // It has a lane of its own.
                self.requests.gate.give_back(turn.id, now);
                self.requests.slots.lane.queue(turn.flow, id);
            } else {
                go(self, id, now);
            }
        }
        while let Some(id) = self.requests.next_of_lane(now) {
            go(self, id, now);
        }
    }
}

/// Bytes that a request but for I/O counts: what its kind does at least, for each 32 objects that it names.
fn metadata_counts(config: &RequestsConfig, request: &henge_pvfs2::Request) -> u64 {
    let kind = config.metadata.get(&request.op.number()).copied();
    kind.unwrap_or(config.least).max(1).saturating_mul(request.weight())
}

/// Nobody waits for seconds behind what no server should go through: its client is told.
fn too_long(proxy: &mut Proxy, came: &Refused, now: Instant) {
    let Some(pair) = proxy.pairs.get_mut(came.pair) else { return };
    came.held.tag.into_iter().for_each(|tag| pair.connection.forget(tag));
    proxy.counts.too_long += 1;
    let result = match encode_failure(&came.held.message, TOO_LONG) {
        Some(answer) => pair.answer(answer),
        None => Err(io::ErrorKind::InvalidData.into()),
    };
    proxy.settle(came.pair, result, now);
}

/// A request leaves for the server.
fn go(proxy: &mut Proxy, id: RequestId, now: Instant) {
    let io = proxy.requests.ios.get_mut(id).expect("a queued request is known");
    let (slot, tag) = (io.pair, io.tag);
    let message = io.message.take().expect("it leaves once");
    if message.is_empty() {
        return proxy.over(id, false, now);
    }
    proxy.requests.slots.take(id, io, now);
    let pair = proxy.pairs.get_mut(slot).expect("a queued request's pair is there");
    let result = pair.release(tag, message);
    if tag.is_some() {
        proxy.patience.look_at(id, now, &proxy.requests.ios);
    } else {
        pair.alone.remove(&id);
        proxy.over(id, false, now);
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
    let request =
        Request::new(RequestId::default(), flow, Op::Read, 0, bytes.max(proxy.config.requests.least), now);
    if let Some(request) = proxy.requests.submit(request, now) {
        proxy.requests.insert(Io::of_stray(slot, request, bytes));
        if let Some(peers) = &mut proxy.peers {
            peers.arrived(flow, None, now);
        }
    }
}

/// The server has done with a request, or nobody waits for it any more; peers are told of it either way. What is over as it goes costs what was
/// estimated, since nobody sees how long its server takes.
pub(super) fn served(proxy: &mut Proxy, id: RequestId, failed: bool, now: Instant) {
    proxy.requests.dirty = true;
    let io = proxy.requests.ios.remove(id).expect("a pending request is known");
    let requests = &mut proxy.requests;
    requests.slots.free(id, io.request.flow, &requests.gate, now);
    let turn = io.turn.expect("it has gone");
    requests.turns.discard(turn);
    let served = match io.tag {
        Some(_) => requests.gate.complete(turn, failed, now),
        None => requests.gate.complete_unseen(turn, now),
    };
    let request = &served.request;
    let moved = &mut proxy.requests.moved[request.flow.index()];
    *moved = moved.saturating_add(io.bytes);
    if let Some(recorder) = proxy.recorder.as_mut().filter(|_| io.metadata.is_none()) {
        recorder.row(&proxy.config.flows[request.flow.index()].name, &served);
    }
    if let Some(peers) = &mut proxy.peers {
        let served = Served { flow: request.flow, cost: request.cost, extent: io.extent };
        let foreign = peers.served(&served, io.striping.as_ref(), now);
        if foreign > Cost::ZERO {
            proxy.requests.gate.foreign(request.flow, foreign, now);
        }
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
