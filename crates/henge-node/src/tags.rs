//! Finish times that the manager makes, for disks over several nodes (`tags = "central"` there).
//!
//! A part of such a disk goes into its gate's queue at once, with the gate's own finish time, and is told to the manager: its disk
//! and cost, not its data. What comes back, by how much its finish time by the disk's one clock is after its arrival, replaces the
//! gate's own if the part still waits. Nothing waits for the manager. One that is slow, away, or asked more than it takes costs
//! precision, which is counted.
//!
//! ```text
//! loop ─part─▶ gate (own tag)          loop: a slot of a bounded channel, no allocation
//!   └──ask──▶ thread ─lines─▶ manager: one clock for each disk
//! gate ◀─lead─ loop ◀─lines─┘
//! ```

use crate::plane::pools::Pools;
use crate::shards::number::local;
use henge_api::{Ask, Lead, TagCounts};
use henge_core::{CostUnit, Duration, Instant, Request, RequestId};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Parts that may wait to be told.
const CAPACITY: usize = 4096;
/// Most told in one line.
const TOGETHER: usize = 256;

/// A part, on its way out of the loop.
pub(crate) struct Queued {
    disk: Arc<str>,
    cost: u64,
    at: (u32, u32, u32),
}

/// The loop's end of it.
#[derive(Default)]
pub(crate) struct Tags {
    relay: Option<SyncSender<Queued>>,
    pub counts: TagCounts,
}

/// A channel from the loop to who tells the manager.
pub(crate) fn channel() -> (SyncSender<Queued>, Receiver<Queued>) {
    sync_channel(CAPACITY)
}

/// Waits for parts to tell; none when the loop tells no more.
pub(crate) fn collect(queued: &Receiver<Queued>) -> Option<Vec<Ask>> {
    let first = queued.recv().ok()?;
    let all = std::iter::once(first).chain(queued.try_iter()).take(TOGETHER);
    Some(all.map(|Queued { disk, cost, at }| Ask { disk: disk.to_string(), cost, at }).collect())
}

impl Tags {
    /// From now on parts are told there, or to nobody.
    pub(crate) fn relay(&mut self, to: Option<SyncSender<Queued>>) {
        self.relay = to;
    }

    /// Takes over finish times that the manager made.
    pub(crate) fn retag(&mut self, pools: &mut Pools, leads: &[Lead], now: Instant) {
        for Lead { at: (gate, slot, generation), ns } in leads {
            let gate = local(*gate as usize).1;
            let Some(state) = pools.gates.get_mut(gate) else { continue };
            let id = RequestId { slot: *slot, generation: *generation };
            match state.pipeline.gate_mut().retag(id, Duration::from_nanos(*ns), now) {
                true => self.counts.taken += 1,
                false => self.counts.late += 1,
            }
            pools.list(gate);
        }
    }

    /// Tells of a part that was just queued, at the gate of that number among all shards'.
    pub(crate) fn tell(&mut self, disk: &Arc<str>, gate: usize, request: &Request, unit: CostUnit) {
        let Some(relay) = &self.relay else { return };
        let cost = match unit {
            CostUnit::Requests => u64::from(request.commands),
            CostUnit::Bytes => request.len.max(1),
            // Nobody promises a rate of it.
            CostUnit::DiskTime => return,
        };
        let at = (gate as u32, request.id.slot, request.id.generation);
        match relay.try_send(Queued { disk: Arc::clone(disk), cost, at }) {
            Ok(()) => self.counts.asked += 1,
            Err(_) => self.counts.untold += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, Op};

    #[test]
    fn a_manager_that_takes_nothing_holds_nobody_up() {
        let (relay, asks) = channel();
        let mut tags = Tags::default();
        let disk: Arc<str> = "web".into();
        let request = Request::new(RequestId::default(), FlowId(0), Op::Read, 0, 4096, Instant::ZERO);
        tags.tell(&disk, 0, &request, CostUnit::Requests);
        assert_eq!(tags.counts, TagCounts::default(), "nobody is told");
        tags.relay(Some(relay));
        (0..CAPACITY + 10).for_each(|_| tags.tell(&disk, 3, &request, CostUnit::Requests));
        assert_eq!((tags.counts.asked, tags.counts.untold), (CAPACITY as u64, 10));
        let told = collect(&asks).unwrap();
        assert_eq!((told.len(), told[0].cost, told[0].at.0), (TOGETHER, 1_000_000, 3));
        tags.relay(None);
        while let Some(told) = collect(&asks) {
            assert!(!told.is_empty());
        }
    }
}
