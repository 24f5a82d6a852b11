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
    /// Who has parts of it.
    nodes: Vec<String>,
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
            // A node asks for the disks that it has parts of: another one's clock is none of its business.
            let entry =
                disks.get_mut(&ask.disk).filter(|entry| entry.nodes.iter().any(|known| known == node))?;
            let Entry { clock, pending, .. } = entry;
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
        let node = node.to_owned();
        let contracts = core.call(move |machine| {
            let contract = |name: String| {
                let disk =
                    machine.inventory.disk(&name).filter(|disk| disk.parts.iter().any(|p| p.node == node))?;
                let nodes: Vec<String> = disk.parts.iter().map(|part| part.node.clone()).collect();
                Some((name, (nodes, disk.whole_contract())))
            };
            stale.into_iter().filter_map(contract).collect::<BTreeMap<_, _>>()
        });
        // A manager that does not lead any more makes no finish times; its nodes are about to leave.
        let Ok(contracts) = contracts.await else { return };
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|_, entry| entry.looked.elapsed() < FRESH * 60);
        for (name, (nodes, contract)) in contracts {
            let entry = disks.entry(name).or_insert_with(|| Entry {
                clock: None,
                pending: PENDING,
                looked: self.began,
                nodes: Vec::new(),
            });
            (entry.looked, entry.nodes) = (std::time::Instant::now(), nodes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Caller, Settings};
    use crate::model::DiskSpec;
    use crate::store::MemoryStore;
    use henge_api::manager::{Profile, Register};

    #[test]
    fn a_node_moves_the_clocks_of_its_own_disks_alone() {
        let core =
            Core::start(Settings { rules: None, ..Settings::default() }, MemoryStore::default()).unwrap();
        let make = |machine: &mut crate::machine::Machine| {
            for (session, name) in [(1, "a"), (2, "b"), (3, "c")] {
                let profile = Some(Profile { iops: 500.0, service: 0.014 });
                let (pools, link) = (vec![crate::heard::tests::pool(profile)], Some(format!("{name}:1")));
                let (name, speaks) = (name.to_owned(), henge_api::manager::speaks());
                let (addresses, disks) = (Vec::new(), Vec::new());
                machine.register(session, Register { name, addresses, link, pools, disks, speaks });
            }
            let (capacity, rate) = ("1GB".to_owned(), Some("400/s".to_owned()));
            let spec = DiskSpec { capacity, rate, parts: Some(2), leeway: Some(1.5), ..DiskSpec::default() };
            machine.create(&Caller::Administrator, "d", &spec, None, None).unwrap();
            machine.inventory.disk("d").unwrap().parts.iter().map(|p| p.node.clone()).collect::<Vec<_>>()
        };
        let on = core.call_and_wait(make).unwrap();
        let stranger =
            ["a", "b", "c"].into_iter().find(|node| !on.iter().any(|known| known == node)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clocks = Clocks::default();
        let asks = |node: &str| {
            let ask = Ask { disk: "d".into(), cost: 1_000_000, at: (0, 0, 0) };
            runtime.block_on(clocks.answer(&core, node, vec![ask])).len()
        };
        assert_eq!((asks(stranger), asks(&on[0]), asks(&on[1]), asks(stranger)), (0, 1, 1, 0));
        core.stop();
    }
}
