//! Pools and their gates.

use super::{Plane, SubRequest};
use crate::config::{NodeConfig, PoolConfig};
use crate::operate::term;
use crate::storage;
use crate::turns::{Of, Terms, Turns, Way};
use henge_backend::Store;
use henge_core::{Backend, CostUnit, Gate, ParamError, Pending, Pipeline, Rate, RequestId};
use henge_vdisk::{Array, GateId, Target};
use std::sync::Arc;

/// A gate with its storage.
pub(crate) struct GateState {
    pub name: String,
    pub pipeline: Pipeline<Box<dyn Store>>,
    pub(super) sub_requests: Pending<SubRequest>,
    pub(super) submitted: u64,
    /// Among the gates to be polled.
    pub(super) runnable: bool,
    /// Its storage is memory or the page cache, so that serving a request copies its bytes in the loop.
    pub(super) copies: bool,
    /// The weight of the disk that it served last.
    pub(super) weight: u32,
    /// The rates of its disks together.
    pub(super) promised: Option<Rate>,
}

impl GateState {
    /// Puts it on the list. Among several that copy in memory, the one whose disks have had least by their weights is polled next;
    /// before it those whose disks are promised rates, as far as those go.
    pub(super) fn line_up(&mut self, g: usize, runnable: &mut Turns) {
        if !std::mem::replace(&mut self.runnable, true) {
            let terms = Terms::gate(self.weight, self.promised);
            runnable.put(Of::Disk(g), terms, RequestId { slot: g as u32, generation: 0 }, Way::In);
        }
    }
}

/// What disks are made of: one gate, or one for each spindle of an emulated array.
pub(crate) struct Pool {
    pub config: PoolConfig,
    pub gates: std::ops::Range<usize>,
    pub(super) target: Target,
    /// Whole array, where its spindles have gates of their own.
    pub(super) members: u64,
    /// Bytes promised to disks.
    pub promised: u64,
    /// Rates promised to disks, by unit.
    pub rates: [u128; 3],
}

/// A gate's bound on the pending requests of a part: so large that no gate refuses a part for which the disk has room.
const PENDING_MAX: u32 = 1 << 16;

impl Plane {
    pub(super) fn add_pool(
        &mut self,
        pool: &PoolConfig,
        config: &NodeConfig,
        look: bool,
    ) -> Result<(), ParamError> {
        let stores = storage::open(pool, config, look)?;
        let members = stores.members.len() as u64;
        let first = self.gates.len();
        for (i, store) in stores.members.into_iter().enumerate() {
            let assembly = henge_sched::build(&pool.scheduler.name, pool.scheduler.knobs.clone())?;
            let mut gate = Gate::new(assembly);
            gate.set_pending_max(PENDING_MAX);
            gate.leave_pending();
            gate.set_patience(pool.medium.patience());
            let name = if stores.unit.is_some() { format!("{}/{i}", pool.name) } else { pool.name.clone() };
            self.gates.push(GateState {
                name,
                pipeline: Pipeline::new(gate, store),
                sub_requests: Pending::new(),
                submitted: 0,
                runnable: false,
                copies: pool.medium.copies() || !pool.direct,
                weight: 1,
                promised: None,
            });
        }
        let gates = first..self.gates.len();
        let target = match stores.unit {
            Some(unit) => {
                let spindles = gates.clone().map(|g| GateId(g as u32)).collect();
                Target::Array(Arc::new(Array { unit, spindles }))
            }
            None => Target::Gate(GateId(first as u32)),
        };
        self.pools.push(Pool { config: pool.clone(), gates, target, members, promised: 0, rates: [0; 3] });
        Ok(())
    }

    /// Most bytes of one request at a pool.
    pub(crate) fn quantum(&self, pool: usize) -> u64 {
        let Pool { config, gates, .. } = &self.pools[pool];
        let says = || self.gates[gates.start].pipeline.backend().quantum();
        config.quantum.unwrap_or_else(says)
    }

    /// What is here, line by line.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, pool) in self.pools.iter().enumerate() {
            let (config, state) = (&pool.config, &self.gates[pool.gates.start]);
            let gates = match pool.gates.len() {
                1 => String::new(),
                n => format!(", {n} gates (one per spindle)"),
            };
            let store = state.pipeline.backend();
            let gate = state.pipeline.gate();
            lines.push(format!(
                "pool     {}: {} in {}; {} at depth {}{}, charging {}, {} at once{gates}",
                config.name,
                henge_core::format_size(store.capacity() * pool.members),
                store.describe(),
                config.scheduler.name,
                gate.depth(),
                config.scheduler.steered(),
                gate.cost_unit(),
                henge_core::format_size(self.quantum(number)),
            ));
        }
        for (_, disk) in self.served() {
            let on = disk.config.pools.iter().map(|p| self.pools[*p].config.name.clone());
            let places = disk.config.places.iter().map(ToString::to_string);
            let on: Vec<String> = if disk.spread.is_some() { places.collect() } else { on.collect() };
            let terms = disk.config.terms.iter().map(|(key, value)| format!("{key} = {}", term(value)));
            let terms: Vec<String> = terms.collect();
            let contract = if terms.is_empty() { "best effort".into() } else { terms.join(", ") };
            lines.push(format!(
                "disk     {}: {} on {}; accepted: {contract}",
                disk.config.name,
                henge_core::format_size(disk.vdisk.capacity()),
                on.join(" + "),
            ));
        }
        lines
    }
}

impl Pool {
    /// That of another shard: its gates are there.
    pub(super) fn elsewhere(config: &PoolConfig) -> Pool {
        let target = Target::Gate(GateId(u32::MAX));
        Pool { config: config.clone(), gates: 0..0, target, members: 1, promised: 0, rates: [0; 3] }
    }

    /// Whether its gates are here.
    pub(crate) fn is_here(&self) -> bool {
        !self.gates.is_empty()
    }

    /// What each of its gates promises in all: commands, or else bytes, a second.
    pub(super) fn promised_by_gate(&self) -> Option<Rate> {
        let sum = |unit: CostUnit| {
            let each = self.rates[unit as usize] / self.gates.len().max(1) as u128;
            let per_second = u64::try_from(each).unwrap_or(u64::MAX);
            (per_second > 0).then_some(Rate { per_second, unit })
        };
        sum(CostUnit::Requests).or_else(|| sum(CostUnit::Bytes))
    }
}

/// What each gate of a pool holds of a part of `len` bytes: whole stripe units of the array.
pub(super) fn member_len(len: u64, pool: &Pool) -> u64 {
    let page = henge_backend::ALIGN as u64;
    match &pool.target {
        Target::Gate(_) => len.next_multiple_of(page),
        Target::Array(array) => len.div_ceil(array.unit * pool.members) * array.unit,
    }
}
