//! Service that flows of owners here got elsewhere, as peers tell it.

use henge_core::{Cost, FlowId, Sender, Sync};
use henge_sched::foreign::Totals;

/// Foreign service that came with parts, and by messages of its own.
#[derive(Default)]
pub(crate) struct ForeignTotals {
    carried: Totals,
    announced: Totals,
}

impl ForeignTotals {
    /// Totals that a coordinator tells of a flow count from here on.
    pub(crate) fn begin(&mut self, flow: FlowId, sender: Sender) {
        for totals in [&mut self.carried, &mut self.announced] {
            totals.set_flow(flow);
            totals.remove_sender(flow, sender);
        }
    }

    /// A part tells a total: the service in it that was not known.
    pub(crate) fn carried(&mut self, sync: &Sync) -> Cost {
        self.carried.increase(sync)
    }

    /// The same, told by a message of its own.
    pub(crate) fn announced(&mut self, sync: &Sync) -> Cost {
        self.announced.increase(sync)
    }
}
