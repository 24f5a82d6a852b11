//! What requests at the server have of the depth.
//!
//! # The problem
//! The depth counts requests. But one of 65,000 pieces keeps a server busy for three seconds. And one whose client sends no data keeps it
//! busy with nothing, for as long as it likes. While such requests fill the depth, everybody else waits.
//!
//! # The rule
//! - A request of more than 64 pieces has no slot of the depth. The gate charges it and says when its turn is. Then it stands in a lane
//!   (`lane.rs`). Of p pieces it takes ⌈p / 64⌉ places there, of as many as the depth has. One may exceed them.
//! - While something waits, requests at the server are looked at each 10 ms. One that has moved less than 64 KiB since it was seen to move gives its
//!   slot or its places back: after 20 ms where it waits for its client, else after 1 s, or 100 µs a piece more. It goes on beside the
//!   others. Metadata that changes something does so after 20 ms, too: its server waits for a disk, and others may share the sync.
//!
//! A write waits for its client until all of its data has come; then only its server is
//! waited for, for however long. A read does where its client does not take what has come for it. Either does
//! behind a message of which its client owes the rest.
//!
//! # Example
//! Depth 4. An application sends four writes and no data. Before, its neighbours waited until the server gave them up, 30 s later. Now they wait
//! for 30 ms. Of its further requests so many go that eight are beside the depth; the gate keeps the rest, as it does with
//! whoever has requests that hang.
//!
//! # Price
//! A look asks as many requests as have slots, a hundred times a second, and only while something waits.

use super::Proxy;
use super::lane::Lane;
use super::requests::{Io, Requests};
use crate::pair::Pair;
use henge_core::{Duration, FlowId, Gate, Instant, RequestId};
use henge_pvfs2::{Direction, IoState, direction};
use std::collections::VecDeque;

/// Pieces of the file for one slot: a server takes about as long for them as for 4 MiB.
const PIECES: u64 = 64;
/// How often requests are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// One that moves less than that does not move.
const MOVES: u64 = 64 << 10;
/// Patience with a request that does not move, where its client is to blame or a disk, and where nobody knows.
const CLIENTS: Duration = Duration::from_millis(20);
const ANYBODYS: Duration = Duration::from_secs(1);
/// And more of it for each slot's pieces.
const FOR_PIECES: Duration = Duration::from_micros(100 * PIECES);

/// A request that has slots.
struct Holder {
    id: RequestId,
    turn: RequestId,
    flow: FlowId,
    slots: u64,
    /// Its server may await a disk.
    syncs: bool,
    began: Instant,
    /// When it was last seen to move, and how many bytes had moved then.
    since: Instant,
    moved: u64,
}

/// Who has slots, in order of release.
pub(super) struct Slots {
    holders: VecDeque<Holder>,
    pub(super) lane: Lane,
    look_at: Instant,
}

/// Slots that a request takes.
pub(super) fn of_pieces(pieces: u64) -> u64 {
    pieces.div_ceil(PIECES).max(1)
}

/// Of which so many are places in the lane.
fn in_lane(slots: u64) -> u64 {
    if slots > 1 { slots } else { 0 }
}

impl Slots {
    pub(super) fn new(flows: usize) -> Self {
        Slots { holders: VecDeque::new(), lane: Lane::new(flows), look_at: Instant::ZERO }
    }

    /// A request goes to the server.
    pub(super) fn take(&mut self, id: RequestId, io: &Io, now: Instant) {
        let Some(turn) = io.turn else { return };
        let (flow, slots, syncs) = (io.request.flow, io.slots, io.metadata.is_some_and(|m| m.syncs));
        self.lane.taken += in_lane(slots);
        self.holders.push_back(Holder { id, turn, flow, slots, syncs, began: now, since: now, moved: 0 });
    }

    /// It is over.
    pub(super) fn free(&mut self, id: RequestId, flow: FlowId, gate: &Gate, now: Instant) {
        self.lane.ended(flow, now);
        let at = self.holders.iter().position(|holder| holder.id == id);
        if let Some(holder) = at.and_then(|at| self.holders.remove(at)) {
            self.leave_lane(&holder, gate, now);
        }
    }

    fn leave_lane(&mut self, holder: &Holder, gate: &Gate, now: Instant) {
        let places = in_lane(holder.slots);
        if places > 0 {
            self.lane.taken -= places;
            self.lane.leaves(holder.flow, (holder.began, places * PIECES), gate, now);
        }
    }

    /// It was accepted: only now may its client send data.
    pub(super) fn accepted(&mut self, id: RequestId, now: Instant) {
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.id == id) {
            holder.since = now;
        }
    }
}

impl Requests {
    /// The next of many pieces that may go.
    pub(super) fn next_of_lane(&mut self, now: Instant) -> Option<RequestId> {
        while self.slots.lane.taken < u64::from(self.gate.depth()) {
            let id = self.slots.lane.next(&self.gate, now)?;
            // Its client may be gone.
            if self.ios.get(id).is_some() {
                return Some(id);
            }
        }
        None
    }

    /// When to look who holds slots in vain.
    pub(super) fn looks_at(&self) -> Option<Instant> {
        let waits = self.gate.queued() > 0 || !self.refused.is_empty() || !self.slots.lane.is_empty();
        (waits && !self.slots.holders.is_empty()).then_some(self.slots.look_at)
    }
}

/// Requests that do not move give their slots back.
pub(super) fn look_at(proxy: &mut Proxy, now: Instant) {
    if proxy.requests.looks_at().is_none_or(|at| at > now) {
        return;
    }
    proxy.requests.slots.look_at = now + LOOK;
    for mut holder in std::mem::take(&mut proxy.requests.slots.holders) {
        let (moved, waits) = progress(proxy, holder.id);
        if moved >= holder.moved + MOVES {
            (holder.since, holder.moved) = (now, moved);
        }
        let places = in_lane(holder.slots);
        let patience = if waits || holder.syncs {
            CLIENTS
        } else {
            ANYBODYS + Duration::from_nanos(FOR_PIECES.as_nanos() * places)
        };
        let is_over = now.since(holder.since) >= patience && !has_all(proxy, holder.id);
        if is_over && (places > 0 || proxy.requests.gate.give_back(holder.turn, now)) {
            proxy.requests.slots.leave_lane(&holder, &proxy.requests.gate, now);
            proxy.requests.dirty = true;
        } else {
            proxy.requests.slots.holders.push_back(holder);
        }
    }
}

/// Bytes that a request at the server has moved, and whether it waits for its client.
fn progress(proxy: &mut Proxy, id: RequestId) -> (u64, bool) {
    let Some(io) = proxy.requests.ios.get(id) else { return (0, false) };
    let (slot, Some(tag)) = (io.pair, io.tag) else { return (0, false) };
    let Some(pair) = proxy.pairs.get_mut(slot) else { return (0, false) };
    (moved(pair, tag), waits_for_client(pair, tag))
}

/// Whether all data of a write has come: it is its server's from there on.
fn has_all(proxy: &Proxy, id: RequestId) -> bool {
    let io = proxy.requests.ios.get(id);
    let pair = io
        .and_then(|io| proxy.pairs.open.in_slot(io.pair as u32))
        .and_then(|pair| proxy.pairs.open.get(pair));
    let (Some(pair), Some(tag)) = (pair, io.and_then(|io| io.tag)) else { return false };
    let Some(IoState::Moving { moved, expected: Some(all) }) = pair.connection.io_state(tag) else {
        return false;
    };
    moved >= all && direction(&pair.connection, tag) == Some(Direction::Write)
}

/// Bytes of a request that have passed.
pub(super) fn moved(pair: &Pair, tag: i64) -> u64 {
    match pair.connection.io_state(tag) {
        Some(IoState::Moving { moved, .. }) => moved,
        _ => 0,
    }
}

/// Whether a request at the server waits for its client.
fn waits_for_client(pair: &Pair, tag: i64) -> bool {
    match (pair.connection.io_state(tag), direction(&pair.connection, tag)) {
        (Some(IoState::Moving { moved, expected }), Some(Direction::Write)) => {
            expected.is_none_or(|all| moved < all) && pair.server.has_written()
        }
        (Some(IoState::Moving { .. }), Some(Direction::Read)) => !pair.client.has_written(),
        _ => pair.holds_released(),
    }
}
