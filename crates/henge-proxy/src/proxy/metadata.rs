//! What applications owe for requests but for I/O.
//!
//! # The problem
//! A server takes some 100 µs of its one processor for each request: to look at a file's attributes keeps it as long from others as a read of
//! 64 KiB. Such requests pass at once. So eight connections that ask for nothing else took a neighbour of weight 4 from 865 to 265 MB/s.
//!
//! # The rule
//! At an application's own port each of them counts what a request counts at least, and once more for each 32 objects that it names. Up to 64 pass at
//! once, and the application owes for them. It has one request at the gate that stands for all it owed when that came. When its turn comes, so
//! much is paid. Beyond 64 that are not paid, further ones wait their turn as I/O does.
//!
//! # Example
//! Weights 1 : 4, and one client after the other looks at attributes. While nobody else asks for anything, turns come at once and none waits. Beside 785 MB/s
//! of the other, some 3000 a second go.
//!
//! # Price
//! A request at the gate for all that came meanwhile.

use super::Proxy;
use super::requests::{Io, Requests};
use crate::pair::Pair;
use henge_core::{FlowId, Instant, Op, Request};

/// That may be owed for before further ones wait.
const OWED_MOST: u64 = 64;

/// What one application owes, in requests.
#[derive(Clone, Copy, Default)]
pub(super) struct Debt {
    /// For all that passed and is not paid.
    owed: u64,
    /// That much of it stands at the gate.
    charged: u64,
}

impl Debt {
    /// Requests that may still pass at once.
    pub(super) fn allows(self) -> u64 {
        OWED_MOST.saturating_sub(self.owed)
    }
}

/// Says how many may pass, where they are counted.
pub(super) fn allow(pair: &mut Pair, requests: &Requests) {
    if let Some(flow) = pair.flow {
        pair.connection.metadata.allow(requests.debts[flow].allows());
    }
}

/// So many, in the millionths in which gates count them.
pub(super) fn commands(requests: u64) -> u32 {
    requests.saturating_mul(u64::from(Request::WHOLE)).min(u64::from(u32::MAX)) as u32
}

/// Requests passed at once: their application owes for them.
pub(super) fn owe(proxy: &mut Proxy, slot: usize, now: Instant) {
    let Some(pair) = proxy.pairs.get_mut(slot) else { return };
    let (passed, Some(flow)) = (pair.connection.metadata.take(), pair.flow) else { return };
    if passed > 0 {
        proxy.requests.debts[flow].owed += passed;
        charge(proxy, slot, FlowId(flow as u32), now);
    }
}

/// Has a request at the gate stand for what is owed, unless one does.
fn charge(proxy: &mut Proxy, slot: usize, flow: FlowId, now: Instant) {
    let debt = &mut proxy.requests.debts[flow.index()];
    if debt.charged > 0 || debt.owed == 0 {
        return;
    }
    let (id, cost) = (proxy.requests.ios.next_id(), debt.owed.saturating_mul(proxy.config.least));
    let request = Request { commands: commands(debt.owed), ..Request::new(id, flow, Op::Read, 0, cost, now) };
    if proxy.requests.gate.submit(request, now).is_ok() {
        debt.charged = debt.owed;
        proxy.requests.ios.insert(Io::of_debt(slot, flow, debt.charged));
        proxy.requests.dirty = true;
        if let Some(peers) = &mut proxy.peers {
            peers.arrived(flow, None, now);
        }
    }
}

/// Its turn has come.
pub(super) fn paid(proxy: &mut Proxy, slot: usize, flow: FlowId, requests: u64, now: Instant) {
    let debt = &mut proxy.requests.debts[flow.index()];
    debt.owed -= requests;
    debt.charged = 0;
    charge(proxy, slot, flow, now);
}
