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

/// All of them, by flow.
pub(super) struct AllRefused(Vec<OfFlow>);

/// In order of arrival: metadata, and whatever else there is. They have room by turns, as in the [line](super::lines).
#[derive(Default)]
struct OfFlow {
    metadata: VecDeque<Refused>,
    others: VecDeque<Refused>,
    metadata_went: bool,
}

impl OfFlow {
    fn queues(&mut self) -> [&mut VecDeque<Refused>; 2] {
        [&mut self.metadata, &mut self.others]
    }
    fn pop(&mut self) -> Option<Refused> {
        let metadata = !self.metadata.is_empty() && (self.others.is_empty() || !self.metadata_went);
        self.metadata_went = metadata;
        if metadata { self.metadata.pop_front() } else { self.others.pop_front() }
    }
}

impl AllRefused {
    pub(super) fn new(flows: usize) -> Self {
        AllRefused((0..flows).map(|_| OfFlow::default()).collect())
    }
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|flow| flow.metadata.len() + flow.others.len()).sum()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|flow| flow.metadata.is_empty() && flow.others.is_empty())
    }
    pub(super) fn push(&mut self, came: Refused) {
        let [metadata, others] = self.0[came.flow].queues();
        if came.held.request.is_metadata() { metadata.push_back(came) } else { others.push_back(came) }
    }
    fn all(&mut self) -> impl Iterator<Item = &mut VecDeque<Refused>> {
        self.0.iter_mut().flat_map(OfFlow::queues)
    }
    /// Whoever has waited for so long.
    fn pop_old(&mut self, now: Instant, patience: Duration) -> Option<Refused> {
        self.all().find_map(|line| line.pop_front_if(|came| now.since(came.since) >= patience))
    }
    /// Forgets those of a connection.
    pub(super) fn forget(&mut self, pair: usize) {
        self.all().for_each(|line| line.retain(|came| came.pair != pair));
    }
    /// Gives them all up.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Refused> {
        self.all().flat_map(std::mem::take)
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
                && let Some(came) = self.requests.refused.0[flow].pop()
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
