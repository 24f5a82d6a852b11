//! Whose state of waiting may have changed, for whoever watches a few flows of many gates.

use crate::FlowId;

/// Some flows, those of which began or ceased to have something waiting among them: one bit for each, and all whose numbers
/// are the same modulo 64 share it. Whoever watches a few flows of many gates need not look at all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dirty(u64);

impl Dirty {
    /// Whether `flow` may be among them.
    pub fn may_have(self, flow: FlowId) -> bool {
        self.0 & Self::bit(flow) > 0
    }
    pub(super) fn note(&mut self, flow: FlowId) {
        self.0 |= Self::bit(flow);
    }
    fn bit(flow: FlowId) -> u64 {
        1 << (flow.0 % 64)
    }
}
