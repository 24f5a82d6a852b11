//! Pools and their gates.

use super::disk::Disk;
use super::disks::Disks;
use super::failed::Notice;
use super::part::PartOf;
use super::round::{REQUEST, Round};
use super::sub_request::{At, SubRequest};
use crate::config::{DiskConfig, NodeConfig, PoolConfig};
use crate::storage;
use crate::turns::{Of, Terms, Turns, Way};
use henge_backend::{SharedMemory, Store};
use henge_core::{
    Backend, Contract, CostUnit, Gate, Instant, ParamError, Pending, Pipeline, Rate, Refused, RequestId,
};
use henge_vdisk::{Array, GateId, Target, VirtualDisk};
use rustix::event::epoll::EventFlags;
use std::ops::{Deref, DerefMut};
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
    /// What other shards read of it.
    pub(crate) shared: Option<SharedMemory>,
    /// Its storage may answer sooner than whoever sleeps is woken.
    answers_soon: bool,
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

    /// A piece of a longer request was copied: its disk is charged for it at once. Bytes of the round that it took.
    pub(super) fn copied(&mut self, round: &mut Round) -> u64 {
        let Some((id, len)) = self.pipeline.backend_mut().copied() else { return 0 };
        if !self.copies {
            return 0;
        }
        round.spend(len + REQUEST);
        if let Some(sub_request) = self.sub_requests.get_mut(id) {
            sub_request.copied += len;
            round.note(sub_request.disk as usize, len);
        }
        len
    }
}

/// What disks are made of: one gate, or one for each spindle of an emulated array.
pub(crate) struct Pool {
    pub config: PoolConfig,
    pub gates: std::ops::Range<usize>,
    pub(super) target: Target,
    /// Whole array, where its spindles have gates of their own.
    pub members: u64,
    /// Bytes promised to disks.
    pub promised: u64,
    /// Rates promised to disks, by unit.
    pub rates: [u128; 3],
}

/// A gate's bound on the pending requests of a part: so large that no gate refuses a part for which the disk has room.
const PENDING_MAX: u32 = 1 << 16;

/// All pools of a node, and the gates of those that are here.
pub(crate) struct Pools {
    pub all: Vec<Pool>,
    pub gates: Vec<GateState>,
    /// Gates that are to be polled, in order.
    pub(super) runnable: Turns,
}

impl Deref for Pools {
    type Target = [Pool];
    fn deref(&self) -> &[Pool] {
        &self.all
    }
}

impl DerefMut for Pools {
    fn deref_mut(&mut self) -> &mut [Pool] {
        &mut self.all
    }
}

impl Pools {
    /// Of each gate, whether it has requests that the kernel's workers may have, and how many of its requests were over.
    pub(crate) fn at_workers(&self) -> impl Iterator<Item = (bool, u64)> {
        self.gates.iter().map(|gate| {
            let busy = gate.copies && gate.pipeline.gate().in_flight() > 0;
            (busy, gate.submitted - gate.sub_requests.len() as u64)
        })
    }

    /// Whether a gate has requests that the kernel's workers may have, those included that wait for a sync.
    pub(crate) fn may_need_workers(&self) -> bool {
        self.gates.iter().any(|gate| gate.copies && !gate.answers_soon && !gate.sub_requests.is_empty())
    }

    pub(super) fn new() -> Pools {
        Pools { all: Vec::new(), gates: Vec::new(), runnable: Turns::new() }
    }

    /// Opens a pool.
    pub(super) fn add(
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
            // Through the page cache a write needs a worker, and a short read of what is there does not.
            if !pool.direct && pool.medium.is_device() && pool.emulated.is_none() {
                gate.let_reads_pass();
            }
            let name = if stores.unit.is_some() { format!("{}/{i}", pool.name) } else { pool.name.clone() };
            self.gates.push(GateState {
                name,
                pipeline: Pipeline::new(gate, store),
                sub_requests: Pending::new(),
                submitted: 0,
                runnable: false,
                copies: pool.medium.copies() || !pool.direct,
                shared: None,
                answers_soon: pool.medium.answers_soon(),
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
        self.all.push(Pool { config: pool.clone(), gates, target, members, promised: 0, rates: [0; 3] });
        Ok(())
    }

    /// Most bytes of one request at a pool.
    pub(crate) fn quantum(&self, pool: usize) -> u64 {
        let Pool { config, gates, .. } = &self.all[pool];
        let says = || self.gates[gates.start].pipeline.backend().quantum();
        config.quantum.unwrap_or_else(says)
    }

    /// Other shards may read a pool by themselves, where its storage lets them.
    pub(super) fn share(&mut self, pool: usize) {
        for g in self.all[pool].gates.clone() {
            self.gates[g].shared = self.gates[g].pipeline.backend_mut().share();
        }
    }

    /// A pool of another shard.
    pub(super) fn add_elsewhere(&mut self, pool: &PoolConfig) {
        self.all.push(Pool::elsewhere(pool));
    }

    /// Puts a gate on the list of those to be polled.
    pub(crate) fn list(&mut self, g: usize) {
        self.gates[g].line_up(g, &mut self.runnable);
    }

    /// Requests that storage has which answers soon, and those that other storage has.
    pub(crate) fn at_storage(&self) -> (usize, usize) {
        let (mut soon, mut late) = (0, 0);
        for gate in &self.gates {
            let at = if gate.answers_soon { &mut soon } else { &mut late };
            *at += gate.pipeline.gate().in_flight() as usize;
        }
        (soon, late)
    }

    /// No gate's storage copies bytes in the loop, or by the kernel's workers.
    #[cfg(test)]
    pub(crate) fn copy_nothing(&mut self) {
        self.gates.iter_mut().for_each(|gate| gate.copies = false);
    }

    /// A descriptor of a gate's storage has told of something.
    pub(crate) fn happened(&mut self, g: usize, name: u32, flags: EventFlags) {
        self.gates[g].pipeline.backend_mut().happened(name, flags);
        self.list(g);
    }

    /// Lists the gates whose time has come.
    pub(crate) fn list_due(&mut self, now: Instant) {
        for g in 0..self.gates.len() {
            if self.gates[g].pipeline.wake_at().is_some_and(|at| at <= now) {
                self.list(g);
            }
        }
    }

    /// When `list_due` will find something.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.gates.iter().filter_map(|g| g.pipeline.wake_at()).min()
    }

    /// What the stores have to say, to nobody but whoever asks.
    pub(crate) fn notices(&mut self) -> Vec<Notice> {
        let mut all = Vec::new();
        for gate in &mut self.gates {
            while let Some(text) = gate.pipeline.backend_mut().notice() {
                all.push((gate.name.clone(), text));
            }
        }
        all
    }

    /// The parts of a disk of this node's pools; of an extent of a disk over several nodes where `first` says so.
    pub(crate) fn parts_of(&self, config: &DiskConfig, capacity: u64, first: u32) -> Vec<PartOf> {
        let on = config.pools.len() as u64;
        let mut parts = Vec::new();
        for (i, &p) in config.pools.iter().enumerate() {
            let pool = &self.all[p];
            let len = henge_vdisk::striped_below(capacity, i as u64, on, config.stripe);
            let len = member_len(len, pool);
            let name = format!("{}.part{}", config.name, i + first as usize);
            let (adopt, origin) = (config.beginning.adopt, &config.beginning.origin);
            parts.extend(pool.gates.clone().map(|gate| PartOf {
                gate,
                name: name.clone(),
                len,
                adopt,
                origin: origin.clone(),
                claim: None,
            }));
        }
        parts
    }

    /// Whether each part could be so long.
    pub(crate) fn could_grow(&self, parts: &[PartOf]) -> Result<(), String> {
        for PartOf { gate, name, len, .. } in parts {
            self.gates[*gate].pipeline.backend().could_grow(name, *len).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// How a disk's commands are cut on these pools, whose largest block has `block` bytes.
    pub(super) fn settings_of(&self, config: &DiskConfig, block: u64) -> henge_vdisk::Settings {
        let mut settings = config.cutting.settings;
        settings.align = settings.align.max(block);
        if config.cutting.by_pool {
            let pools = config.pools.iter().map(|p| self.quantum(*p));
            let quantum = pools.fold(settings.quantum, u64::min);
            settings.quantum = (quantum / settings.align).max(1) * settings.align;
        }
        settings
    }

    /// A disk has another contract: so much more or less is promised on its pools.
    pub(super) fn count_rates(&mut self, disk: &Disk, old: &Contract, new: &Contract) {
        let (old, new) = (disk.rate_on_each(old), disk.rate_on_each(new));
        for &pool in &disk.config.pools {
            let rates = &mut self.all[pool].rates;
            if let Some(rate) = new {
                rates[rate.unit as usize] += u128::from(rate.per_second);
            }
            if let Some(rate) = old {
                rates[rate.unit as usize] -= u128::from(rate.per_second);
            }
            let pool = &self.all[pool];
            let promised = pool.promised_by_gate();
            pool.gates.clone().for_each(|g| self.gates[g].promised = promised);
        }
    }

    /// Tells each gate its part of the contract. A refusal leaves all of them as they were.
    pub(super) fn promise(
        &mut self,
        vdisk: &VirtualDisk,
        new: &Contract,
        among: (u64, u64),
        now: Instant,
    ) -> Result<(), Refused> {
        // What was promised before might not be promised again: a device may have become slower.
        let (flow, part) = (vdisk.flow(), self.check(vdisk, new, among)?);
        for g in gates_of(vdisk) {
            let told = self.gates[g].pipeline.gate_mut().set_flow(flow, &part, now);
            told.expect("what was checked is taken");
            self.list(g);
        }
        Ok(())
    }

    /// Whether its gates would promise a disk their parts of a contract, which are this.
    pub(crate) fn check(
        &self,
        vdisk: &VirtualDisk,
        new: &Contract,
        (leeway, among): (u64, u64),
    ) -> Result<Contract, Refused> {
        let part = new.part(leeway, vdisk.layout().gates().len() as u64 * among);
        gates_of(vdisk).try_for_each(|g| self.gates[g].pipeline.gate().check(vdisk.flow(), &part))?;
        Ok(part)
    }

    /// Takes a sub-request that is over out of its disk's chain.
    pub(super) fn unchain(&mut self, disks: &mut Disks, sub_request: &SubRequest) {
        const THERE: &str = "a chain's sub-requests are at gates";
        match sub_request.newer {
            Some((g, id)) => {
                self.gates[g as usize].sub_requests.get_mut(id).expect(THERE).older = sub_request.older
            }
            None => disks.of(sub_request.disk as usize).newest = sub_request.older,
        }
        if let Some((g, id)) = sub_request.older {
            self.gates[g as usize].sub_requests.get_mut(id).expect(THERE).newer = sub_request.newer;
        }
    }

    /// A disk's requests at gates that belong to these commands, which are in order, looking at no other disk's.
    pub(super) fn sub_requests_of(&self, disk: &Disk, commands: &[RequestId]) -> Vec<At> {
        let mut found = Vec::new();
        let mut next = disk.newest;
        while let Some((g, id)) = next {
            let sub_request =
                self.gates[g as usize].sub_requests.get(id).expect("a chain's sub-requests are at gates");
            if commands.binary_search(&sub_request.part.command).is_ok() {
                found.push((g, id));
            }
            next = sub_request.older;
        }
        found
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

fn gates_of(vdisk: &VirtualDisk) -> impl Iterator<Item = usize> {
    vdisk.layout().gates().iter().map(|g| g.index())
}

/// What each gate of a pool holds of a part of `len` bytes: whole stripe units of the array.
pub(super) fn member_len(len: u64, pool: &Pool) -> u64 {
    let page = henge_backend::ALIGN as u64;
    match &pool.target {
        Target::Gate(_) => len.next_multiple_of(page),
        Target::Array(array) => len.div_ceil(array.unit * pool.members) * array.unit,
    }
}
