//! Finish times for the parts of disks over several nodes, made here (`tags = "central"`).
//!
//! Each disk has one clock for its whole rate (`henge_sched::CentralClock` says why and how). Nodes tell of parts in the order in
//! which they came, and hear by how much each one's finish time is after its arrival: this machine's clock and theirs need not
//! agree. Nothing of it is remembered, and it does not pass through the core: no part waits for what is being stored.
//!
//! Clocks follow contracts within a second.

use crate::core::Core;
use henge_api::{Ask, Lead};
use henge_core::{Contract, Cost, Instant};
use henge_sched::CentralClock;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// For so long a contract is taken to be as it was.
const FRESH: Duration = Duration::from_secs(1);

/// Commands of a disk under way, where its contract does not bound them.
const PENDING: u64 = 64;

struct Entry {
    /// None: nothing is promised, or there is no such disk.
    clock: Option<CentralClock>,
    /// Most commands under way: nobody tells here when one is over.
    pending: u64,
    looked: std::time::Instant,
}

/// The clocks of all disks.
pub(crate) struct Clocks {
    began: std::time::Instant,
    disks: Mutex<BTreeMap<String, Entry>>,
}

impl Default for Clocks {
    fn default() -> Self {
        Clocks { began: std::time::Instant::now(), disks: Mutex::default() }
    }
}

impl Clocks {
    /// Finish times for parts that a node has queued.
    pub(crate) async fn answer(&self, core: &Core, node: &str, asks: Vec<Ask>) -> Vec<Lead> {
        self.refresh(core, node, &asks).await;
        let now = Instant::from_nanos(self.began.elapsed().as_nanos() as u64);
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        let lead = |ask: Ask| {
            let Entry { clock, pending, .. } = disks.get_mut(&ask.disk)?;
            let unfinished = Cost::new(ask.cost.saturating_mul(*pending));
            let lead = clock.as_mut()?.tag_among(unfinished, Cost::new(ask.cost), now);
            Some(Lead { at: ask.at, ns: lead.as_nanos() })
        };
        asks.into_iter().filter_map(lead).collect()
    }

    /// Looks at the contracts that were not looked at lately.
    async fn refresh(&self, core: &Core, node: &str, asks: &[Ask]) {
        let stale: Vec<String> = {
            let disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = |name: &str| disks.get(name).is_some_and(|entry| entry.looked.elapsed() < FRESH);
            asks.iter().map(|ask| &ask.disk).filter(|name| !fresh(name)).cloned().collect()
        };
        if stale.is_empty() {
            return;
        }
        // A node asks for the disks that it has parts of.
        let node = node.to_owned();
        let contracts = core.call(move |machine| {
            let contract = |name: String| {
                let disk =
                    machine.inventory.disk(&name).filter(|disk| disk.parts.iter().any(|p| p.node == node))?;
                Some((name, disk.whole_contract()))
            };
            stale.into_iter().filter_map(contract).collect::<BTreeMap<_, _>>()
        });
        // A manager that does not lead any more makes no finish times; its nodes are about to leave.
        let Ok(contracts) = contracts.await else { return };
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|_, entry| entry.looked.elapsed() < FRESH * 60);
        for (name, contract) in contracts {
            let entry = disks.entry(name).or_insert_with(|| Entry {
                clock: None,
                pending: PENDING,
                looked: self.began,
            });
            entry.looked = std::time::Instant::now();
            entry.follow(&contract);
        }
    }
}

impl Entry {
    fn follow(&mut self, contract: &Contract) {
        self.pending = contract.pending.map_or(PENDING, u64::from);
        if !self.clock.as_mut().is_some_and(|clock| clock.change(contract)) {
            self.clock = CentralClock::new(contract);
        }
    }
}
