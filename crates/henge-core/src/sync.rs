//! What nodes tell each other about flows that several of them serve.
//!
//! Totals are *cumulative* since the sender's epoch began (its start, or the flow's arrival there). A receiver charges
//! the increase over the largest it has seen, so a message that is lost, doubled, late or overtaken does no harm: the
//! next one carries what it carried. Increments would not do: at half of the messages lost, a promised 1 : 1 came out
//! as 0.90.

use crate::{Cost, FlowId, NodeId};

/// Who counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Sender {
    /// A node, of what it has served.
    Node(NodeId),
    /// A coordinator, of what it has sent to nodes other than the receiver.
    Coordinator(NodeId),
}

/// How a flow's bytes lie on nodes: round robin in stripes, as long as the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Striping {
    /// Bytes of one stripe, more than zero.
    pub stripe: u64,
    /// In the order of the stripes; the first one speaks for all.
    pub nodes: Vec<NodeId>,
}

impl Striping {
    /// Bytes of the extent from `offset`, `len` long, that lie on the node at place `at` of the list.
    ///
    /// ```
    /// use henge_core::{NodeId, Striping};
    /// let striping = Striping { stripe: 100, nodes: vec![NodeId(4), NodeId(5)] };
    /// // 50..100 on the first, 100..200 on the second, 200..250 on the first again
    /// assert_eq!(striping.bytes_on(0, 50, 200), 100);
    /// assert_eq!(striping.bytes_on(1, 50, 200), 100);
    /// ```
    pub fn bytes_on(&self, at: usize, offset: u64, len: u64) -> u64 {
        let end = offset.saturating_add(len);
        self.bytes_before(at, end) - self.bytes_before(at, offset)
    }

    /// Bytes of `0..end` on the node at place `at`.
    fn bytes_before(&self, at: usize, end: u64) -> u64 {
        let round = self.stripe.saturating_mul(self.nodes.len() as u64);
        let begin = self.stripe * at as u64;
        end / round * self.stripe + (end % round).saturating_sub(begin).min(self.stripe)
    }
}

/// What there is to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The flow's service so far.
    Total {
        /// In this epoch, all in all.
        total: Cost,
        /// As announced the time before; whoever hears of the sender for the first time charges the difference.
        before: Cost,
    },
    /// The flow's bytes are striped like this, and it is active.
    Layout(Striping),
    /// The flow has been quiet for a while.
    Departed,
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sync {
    /// From whom.
    pub sender: Sender,
    /// Grows when the sender starts anew; messages of an older epoch are ignored.
    pub epoch: u64,
    /// Grows with every message of an epoch; [`News::Layout`] and [`News::Departed`] that were overtaken are ignored.
    pub sequence: u64,
    /// About whom. Flows are numbered alike on all nodes, or the link translates.
    pub flow: FlowId,
    /// What.
    pub news: News,
}
