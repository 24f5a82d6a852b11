//! Requests whose flow was full when they came. They wait outside the gate, and their connections are read on for a while: the data of
//! a request at the server may come behind them.

use super::Proxy;
use crate::pair::Held;
use henge_core::{Duration, FlowId, Instant};
use std::collections::VecDeque;

/// A request whose flow was full when it came.
pub(super) struct Refused {
    pub(super) pair: usize,
    pub(super) held: Held,
    pub(super) flow: usize,
    /// When it came.
    pub(super) since: Instant,
}

/// All of them, by flow, in order of arrival.
pub(super) struct AllRefused(Vec<VecDeque<Refused>>);

impl AllRefused {
    pub(super) fn new(flows: usize) -> Self {
        AllRefused((0..flows).map(|_| VecDeque::new()).collect())
    }
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(VecDeque::len).sum()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }
    pub(super) fn push(&mut self, came: Refused) {
        self.0[came.flow].push_back(came);
    }
    /// Whoever has waited for so long.
    fn pop_old(&mut self, now: Instant, patience: Duration) -> Option<Refused> {
        self.0.iter_mut().find_map(|line| line.pop_front_if(|came| now.since(came.since) >= patience))
    }
    /// Forgets those of a connection.
    pub(super) fn forget(&mut self, pair: usize) {
        self.0.iter_mut().for_each(|line| line.retain(|came| came.pair != pair));
    }
    /// Gives them all up.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Refused> {
        self.0.iter_mut().flat_map(std::mem::take)
    }
}

/// Its flow has no room for a request.
pub(super) fn refuse(proxy: &mut Proxy, came: Refused) {
    if let Some(pair) = proxy.pairs.get_mut(came.pair) {
        pair.refuse(&came.held.message);
        proxy.requests.refused.push(came);
    }
}

/// Those whose clients have given up meanwhile are dropped.
pub(super) fn drop_old(proxy: &mut Proxy, now: Instant) {
    let patience = proxy.patience.waiting();
    while let Some(came) = proxy.requests.refused.pop_old(now, patience) {
        proxy.counts.expired += 1;
        let Some(pair) = proxy.pairs.get_mut(came.pair) else { continue };
        came.held.tag.into_iter().for_each(|tag| pair.connection.forget(tag));
        pair.readmit(&came.held.message);
        let result = proxy.move_from_client(came.pair, now);
        proxy.settle(came.pair, result, now);
    }
}

impl Proxy {
    /// Flows that were full may have room again. Whom this closes makes room as well, which the next turn finds.
    pub(super) fn readmit(&mut self, now: Instant) {
        if std::mem::replace(&mut self.requests.readmits, true) {
            return;
        }
        for flow in 0..self.requests.refused.0.len() {
            while self.requests.gate.has_capacity(FlowId(flow as u32))
                && let Some(came) = self.requests.refused.0[flow].pop_front()
            {
                let slot = came.pair;
                if let Some(pair) = self.pairs.get_mut(slot) {
                    pair.readmit(&came.held.message);
                }
                self.take_in(came, now);
                let result = self.move_from_client(slot, now);
                self.settle(slot, result, now);
            }
        }
        self.requests.readmits = false;
    }
}
