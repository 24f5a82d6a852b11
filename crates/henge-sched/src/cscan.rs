//! CSCAN: the arm sweeps from the lowest address to the highest, and starts over. Reorders by position. Work conserving.
//!
//! **Problem.** In order of arrival a disk spends its time seeking. Serve what lies ahead of the arm first.
//!
//! **Rule.** The head stands at the address of the request dispatched last. Next is the one with the smallest address after
//! it; if there is none, the one with the smallest of all. Requests for one address are served together if they were there
//! when the head came; what comes to it later waits for the next sweep, or a block that everybody wants would stop the arm.
//!
//! **Example.** Head at 50, waiting 10, 60, 55, 90: served 55, 60, 90, 10.
//!
//! **Guarantee.** No promise to anybody. A request waits for the rest of one sweep at most, since what was passed is not
//! come back to; but a sweep is long when others keep asking for what lies just ahead of the head: on a device of C
//! bytes up to C / n requests that lie n bytes apart. A sequential stream on a 75 GB disk can so keep another flow
//! waiting for an hour. Whoever needs a bound in time takes `cvc`.
//!
//! FLUSH moves no data and has no position: it stands [`FLUSH_AHEAD`] bytes ahead of where the head was when it came,
//! so that it is served soon, and a flood of them still moves the head on.
//!
//! **Price.** 0.25 us a request with 10,000 waiting.

use crate::entry::{DefaultDepth, Entry, OnDevice, Order};
use crate::rank_tree::{RankTree, Ranked};
use crate::{Backlog, Terms};
use henge_core::{
    Completion, Contract, Cost, Dispatch, FlowId, Instant, Keeps, Op, ParamError, Params, Refused, Request,
    RequestId, Scheduler, Slots,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "cscan",
    summary: "ascending address, then from the start again: the disk's own best order; promises nothing",
    keeps: &[],
    order: Order::Position,
    work_conserving: true,
    depth: DefaultDepth::Fixed(1),
    cost: "requests",
    on_device: OnDevice { time: false, kept: false, shares: false },
    build,
};

fn build(_: &mut Params, terms: Terms) -> Result<Box<dyn Scheduler>, ParamError> {
    Ok(Box::new(Cscan { terms, backlog: Backlog::new(), sweep: Sweep::default() }))
}

/// How far ahead of the head a FLUSH is put.
const FLUSH_AHEAD: u64 = 1 << 20;

/// The order of one sweep after the other; CVC's utilization queue as well.
#[derive(Default)]
pub(crate) struct Sweep {
    tree: RankTree,
    /// Address of the request dispatched last, and which one there.
    head: u64,
    last: u64,
    /// What came to the head's address since the head did waits for the next sweep.
    came_late: u64,
    arrivals: u64,
}

impl Sweep {
    /// Puts the `seq`-th request in, and says at which address.
    pub fn insert(&mut self, request: &Request, seq: u64) -> u64 {
        let address = match request.op {
            Op::Flush => self.head.saturating_add(FLUSH_AHEAD),
            _ => request.offset,
        };
        self.tree.insert(Ranked { key: address, seq, slot: request.id.slot });
        self.arrivals = seq + 1;
        address
    }
    /// Takes one out that `insert` put at this address.
    pub fn remove(&mut self, address: u64, seq: u64) {
        self.tree.remove(address, seq).expect("a queued request stands where it was put");
    }
    /// What comes next, without taking it out.
    pub fn next(&self) -> Option<Ranked> {
        let ahead = match self.tree.at_or_after(self.head, self.last) {
            Some(next) if next.key == self.head && next.seq >= self.came_late => {
                self.tree.at_or_after(self.head.saturating_add(1), 0)
            }
            next => next,
        };
        ahead.or_else(|| self.tree.first())
    }
    /// This one, taken out, was dispatched: the head stands there now.
    pub fn passed(&mut self, address: u64, seq: u64) {
        if address != self.head {
            (self.head, self.came_late) = (address, self.arrivals);
        }
        self.last = seq;
    }
    /// Where the head stands.
    pub fn head(&self) -> u64 {
        self.head
    }
    /// Forgets all that is in it.
    pub fn clear(&mut self) {
        self.tree.clear();
    }
}

struct Cscan {
    terms: Terms,
    /// With each request the address at which it stands.
    backlog: Backlog<u64>,
    sweep: Sweep,
}

impl Scheduler for Cscan {
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn keeps(&self) -> Keeps {
        self.terms.keeps()
    }
    fn check(&self, _: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.terms.admit(contract).map(drop)
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, _: Instant) -> Result<(), Refused> {
        self.check(flow, contract)
    }
    fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        while let Some(first) = self.backlog.front(flow) {
            let id = first.request.id;
            orphans.extend(self.cancel(id, now));
        }
    }
    fn enqueue(&mut self, request: Request, _: Instant) {
        let address = self.sweep.insert(&request, self.backlog.arrivals());
        self.backlog.push(request, address);
    }
    fn cancel(&mut self, id: RequestId, _: Instant) -> Option<Request> {
        let queued = self.backlog.remove(id)?;
        self.sweep.remove(queued.extra, queued.sequence);
        Some(queued.request)
    }
    fn dispatch(&mut self, _: Instant, _: Slots) -> Dispatch {
        let Some(next) = self.sweep.next() else { return Dispatch::Idle };
        let queued = self.backlog.take(next.slot);
        self.sweep.remove(next.key, next.seq);
        self.sweep.passed(next.key, next.seq);
        Dispatch::Ready(queued.request)
    }
    fn complete(&mut self, _: &Completion, _: Instant) {}
    fn adjust(&mut self, request: &Request, cost: Cost, _: Instant) {
        if let Some(queued) = self.backlog.get_mut(request.id) {
            queued.request.cost = cost;
        }
    }
    fn queued(&self) -> usize {
        self.backlog.queued()
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        self.backlog.drain(into);
        self.sweep.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Trial, request};

    #[test]
    fn the_example_of_the_head() {
        let mut t = Trial::new("cscan", &[]);
        t.flow(0, &Contract::best_effort());
        t.submit(request(0, 50, 1));
        assert_eq!(t.dispatch().map(|r| r.offset), Some(50));
        for offset in [10, 60, 55, 90] {
            t.submit(request(0, offset, 1));
        }
        let order: Vec<_> = std::iter::from_fn(|| t.dispatch()).map(|r| r.offset).collect();
        assert_eq!(order, [55, 60, 90, 10]);
    }

    #[test]
    fn a_block_that_everybody_wants_does_not_stop_the_sweep() {
        let mut t = Trial::new("cscan", &[]);
        t.flow(0, &Contract::best_effort());
        for offset in [7, 7, 7, 9] {
            t.submit(request(0, offset, 1));
        }
        let mut next = || {
            t.submit(request(0, 7, 1));
            t.dispatch().map(|r| r.offset)
        };
        let order: Vec<_> = (0..6).map_while(|_| next()).collect();
        assert_eq!(order, [7, 7, 7, 7, 9, 7]); // the fourth came before the head did
    }

    #[test]
    fn a_flood_of_flushes_does_not_stop_the_sweep() {
        let mut t = Trial::new("cscan", &[]);
        t.flow(0, &Contract::best_effort());
        t.flow(1, &Contract::best_effort());
        t.submit(request(1, 10 * FLUSH_AHEAD, 4096));
        for _ in 0..20 {
            t.submit(Request { op: Op::Flush, len: 0, ..request(0, 0, 0) });
            if t.dispatch().is_some_and(|r| r.flow == FlowId(1)) {
                return;
            }
        }
        panic!("the read was never reached");
    }
}
