//! What was heard from others: cumulative totals become increases, each charged once.

use henge_core::{Cost, FlowId, News, Sender, Sync};
use std::collections::BTreeMap;

/// Most senders remembered per flow. Whoever invents senders gains nothing beyond it.
const SENDERS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    epoch: u64,
    total: Cost,
    /// Of the last layout or departure.
    sequence: u64,
}

/// The largest total of each sender, for the flows that are set.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    flows: BTreeMap<FlowId, BTreeMap<Sender, Heard>>,
}

impl Totals {
    /// From now on messages about `flow` count.
    pub fn set_flow(&mut self, flow: FlowId) {
        self.flows.entry(flow).or_default();
    }
    /// Messages about `flow` no longer count.
    pub fn remove_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }
    /// Forgets a sender of a flow that serves it no longer.
    pub fn remove_sender(&mut self, flow: FlowId, sender: Sender) {
        if let Some(senders) = self.flows.get_mut(&flow) {
            senders.remove(&sender);
        }
    }

    /// The increase that a message tells; zero for old, doubled and unwanted ones.
    pub fn increase(&mut self, sync: &Sync) -> Cost {
        let News::Total { total, before } = sync.news else { return Cost::ZERO };
        let Some(senders) = self.flows.get_mut(&sync.flow) else { return Cost::ZERO };
        if senders.len() >= SENDERS_MAX && !senders.contains_key(&sync.sender) {
            return Cost::ZERO;
        }
        // Of a sender not heard before, only the last lump is news: the rest was before our time.
        let new = || Heard { epoch: sync.epoch, total: before.min(total), sequence: 0 };
        let heard = senders.entry(sync.sender).or_insert_with(new);
        if sync.epoch < heard.epoch {
            return Cost::ZERO;
        }
        if sync.epoch > heard.epoch {
            *heard = new(); // it started anew
        }
        let increase = total.saturating_sub(heard.total);
        heard.total = heard.total.max(total);
        increase
    }

    /// Whether a layout or departure is newer than all before from its sender.
    pub fn is_newer(&mut self, sync: &Sync) -> bool {
        let Some(senders) = self.flows.get_mut(&sync.flow) else { return false };
        if senders.len() >= SENDERS_MAX && !senders.contains_key(&sync.sender) {
            return false;
        }
        let heard = senders.entry(sync.sender).or_default();
        let newer = (sync.epoch, sync.sequence) > (heard.epoch, heard.sequence);
        if sync.epoch > heard.epoch {
            *heard = Heard { epoch: sync.epoch, ..Heard::default() };
        }
        if newer {
            heard.sequence = sync.sequence;
        }
        newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::NodeId;
    use proptest::prelude::*;

    const FLOW: FlowId = FlowId(2);

    fn message(epoch: u64, before: u64, total: u64) -> Sync {
        let news = News::Total { total: Cost::new(total), before: Cost::new(before) };
        Sync { sender: Sender::Node(NodeId(7)), epoch, sequence: total, flow: FLOW, news }
    }

    #[test]
    fn a_restarted_sender_begins_at_zero_and_a_newcomer_is_not_charged_the_past() {
        let mut totals = Totals::default();
        assert_eq!(totals.increase(&message(1, 900, 1000)), Cost::ZERO, "the flow is not set");
        totals.set_flow(FLOW);
        assert_eq!(totals.increase(&message(1, 900, 1000)), Cost::new(100));
        assert_eq!(totals.increase(&message(2, 0, 30)), Cost::new(30));
        assert_eq!(totals.increase(&message(1, 1000, 5000)), Cost::ZERO, "an older epoch");
        assert_eq!(totals.increase(&message(2, 30, 60)), Cost::new(30));
    }

    proptest! {
        /// However messages are lost, doubled and reordered: what is charged is the largest total that came.
        #[test]
        fn loss_doubling_and_reordering_do_no_harm(
            lumps in proptest::collection::vec(1u64..1000, 1..40),
            order in proptest::collection::vec(any::<proptest::sample::Index>(), 1..80),
        ) {
            let mut sent = Vec::new();
            let mut total = 0;
            for lump in &lumps {
                sent.push(message(1, total, total + lump));
                total += lump;
            }
            let mut totals = Totals::default();
            totals.set_flow(FLOW);
            let mut charged = totals.increase(&sent[0]).get();
            let mut largest = lumps[0];
            for at in order {
                let sync = at.get(&sent);
                charged += totals.increase(sync).get();
                if let News::Total { total, .. } = sync.news { largest = largest.max(total.get()); }
            }
            prop_assert_eq!(charged, largest);
        }
    }
}
