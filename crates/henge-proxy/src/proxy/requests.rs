//! The way of an I/O request: whose it is, its wait, its release, what the server says of it.

use super::Proxy;
use crate::config::Who;
use crate::identity::Owner;
use crate::pair::Held;
use crate::peers::Told;
use henge_core::{Cost, Dispatch, FlowId, Instant, Op, Request, RequestId, Striping};
use henge_pvfs2::{Direction, Distribution, IoRequest, News, RequestBody, ServerLimits};
use henge_sched::foreign::{Extent, Served};
use std::io;

/// An I/O request from the moment it came until it is over.
pub(super) struct Io {
    pub(super) pair: usize,
    pub(super) tag: i64,
    /// While it waits.
    pub(super) message: Option<Vec<u8>>,
    /// The range of the file that it touches, where it is one range.
    pub(super) extent: Option<Extent>,
    /// How the file lies on servers.
    pub(super) striping: Option<Striping>,
}

/// A request whose flow was full when it came.
pub(super) struct Refused {
    pub(super) pair: usize,
    pub(super) held: Held,
    pub(super) flow: usize,
}

impl Proxy {
    /// Whose a request is: by port or address, else by user, else `other`.
    pub(super) fn flow_of(&mut self, slot: usize, request: &henge_pvfs2::Request) -> usize {
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
    pub(super) fn take_in(&mut self, came: Refused, now: Instant) {
        let RequestBody::Io(io) = &came.held.request.body else { unreachable!("only I/O is held") };
        self.dirty = true;
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
        self.expiries.push_back((now + self.patience_waiting().saturating_sub(self.waited), id));
        if let Some(pair) = self.pair_mut(came.pair) {
            pair.pending.insert(came.held.tag, id);
        }
    }

    pub(super) fn heard(&mut self, slot: usize, news: News, now: Instant) {
        self.dirty = true;
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

    pub(super) fn over(&mut self, id: RequestId, failed: bool, now: Instant) {
        self.dirty = true;
        let io = self.ios.remove(id).expect("a pending request is known");
        let served = self.gate.complete(id, failed, now);
        let request = &served.request;
        if let Some(recorder) = &mut self.recorder {
            recorder.row(&self.config.flows[request.flow.index()].name, &served);
        }
        if let Some(peers) = &mut self.peers {
            let served = Served { flow: request.flow, cost: request.cost, extent: io.extent };
            let foreign = peers.served(&served, io.striping.as_ref(), now);
            if foreign > Cost::ZERO {
                self.gate.foreign(request.flow, foreign, now);
            }
        }
        self.readmit(now);
    }

    /// Which range of the file a request touches, and how the file lies on servers; for proxies that share the total.
    pub(super) fn place_in_file(&self, io: &IoRequest) -> (Option<Extent>, Option<Striping>) {
        let Some(peers) = &self.peers else { return (None, None) };
        let contiguous = io.file_request.is_contiguous() && io.aggregate_size > 0;
        let extent = contiguous.then_some(Extent { offset: io.file_req_offset, len: io.aggregate_size });
        let striping = match io.distribution {
            Distribution::SimpleStripe { strip_size } => {
                peers.striping(strip_size, io.server_nr, io.server_ct)
            }
            _ => None,
        };
        (extent, striping)
    }

    /// Takes in what peers told, where the gate is about to choose or a while has passed.
    pub(super) fn hear_peers(&mut self, now: Instant) -> io::Result<()> {
        let Some(peers) = &mut self.peers else { return Ok(()) };
        if self.busy && !peers.is_due(now) {
            return Ok(());
        }
        let mut told = std::mem::take(&mut self.told);
        let looked = peers.look(now, &mut told);
        for news in told.drain(..) {
            match news {
                Told::Foreign(flow, service) if service > Cost::ZERO => {
                    self.gate.foreign(flow, service, now);
                    self.dirty = true;
                }
                Told::Foreign(..) => {}
                Told::Identity(capability, uid) => self.owners.learn(capability, uid),
            }
        }
        self.told = told;
        looked
    }

    /// Flows that were full may have room again.
    pub(super) fn readmit(&mut self, now: Instant) {
        for _ in 0..self.refused.len() {
            let came = self.refused.pop_front().expect("counted");
            if !self.gate.has_capacity(FlowId(came.flow as u32)) {
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
    pub(super) fn dispatch(&mut self, now: Instant) {
        if !self.goes_on(now) {
            return;
        }
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
}

/// An I/O request as the gate sees it: a number of bytes of one data file. Its true cost comes with the answer.
pub(super) fn gate_request(id: RequestId, flow: FlowId, io: &IoRequest, now: Instant) -> Request {
    let op = match io.direction {
        Direction::Read => Op::Read,
        Direction::Write => Op::Write,
    };
    Request::new(id, flow, op, io.file_req_offset, io.estimate().max(1), now)
}
