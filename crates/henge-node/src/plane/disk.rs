//! A virtual disk in the node, and what each of its pending commands holds there.

use super::sub_request::{At, Submitter};
use crate::config::DiskConfig;
use crate::meters::DiskMeters;
use crate::spread::{At as Where, Spread};
use henge_backend::Buffer;
use henge_core::{Contract, Cost, CostUnit, Duration, Instant, Rate, Request, RequestId};
use henge_sched::CentralClock;
use henge_vdisk::{GateId, VirtualDisk};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A pending command's memory, and who waits for it.
pub(crate) struct InFlight {
    pub(super) id: RequestId,
    pub frame: Buffer,
    pub submitter: Submitter,
    /// What its sub-requests were charged, where somebody is to be told.
    pub cost: Cost,
}

/// Most long CACHEs of a disk at once; others wait, as what waits for memory does.
const FETCHES: u32 = 4;

/// What was answered and may be lost.
#[derive(Default)]
pub(crate) struct Doubts {
    /// Connections to whom one FLUSH is to fail: another node may have lost what it answered them.
    pub connections: BTreeSet<RequestId>,
    /// The FLUSH at the end of this loop has failed: nobody vouches for what was answered and not flushed before.
    pub unflushed: bool,
}

/// Events of a disk's clients that keep others waiting.
#[derive(Default)]
pub(crate) struct Told {
    /// When one told of them.
    pub at: Option<Instant>,
    /// How many could have since.
    pub since: u32,
}

/// An extent's place in its disk.
pub(crate) struct ExtentOf {
    /// The disk. Nobody but its coordinators may use the extent. None for a disk of its own.
    pub disk: Option<usize>,
    /// The number of its first part.
    pub first: u32,
    /// Of how many extents it is one: its gates keep that much less of the contract.
    pub among: u64,
}

/// A virtual disk as the node has it.
pub(crate) struct Disk {
    pub config: DiskConfig,
    pub vdisk: VirtualDisk,
    /// By the slot of the command.
    pub in_flight: Vec<Option<InFlight>>,
    /// The newest of its requests at gates; each knows the one before.
    pub(super) newest: Option<At>,
    /// Where its part begins on each gate; a FLUSH is sent there.
    pub(super) bases: Vec<(GateId, u64)>,
    /// Bytes of buffers it holds.
    pub held: usize,
    /// What was answered and may be lost.
    pub doubts: Doubts,
    /// Long CACHEs under way.
    pub fetches: u32,
    /// Events of its clients.
    pub told: Told,
    /// Clients connected.
    pub connections: usize,
    /// What its clients saw.
    pub meters: DiskMeters,
    /// Its extents, where they are on several nodes.
    pub spread: Option<Box<Spread>>,
    /// Which extent of another disk it is, if it is one.
    pub extent: ExtentOf,
    /// As the manager is told of its parts.
    pub(super) told_as: Arc<str>,
    /// Its whole rate's clock, where it lies on several gates of this node.
    pub(super) clock: Option<CentralClock>,
}

/// What a request counts in a rate's unit; nobody promises a rate of disk time.
fn counted(request: &Request, unit: CostUnit) -> Option<Cost> {
    match unit {
        CostUnit::Requests => Some(Cost::new(u64::from(request.commands))),
        CostUnit::Bytes => Some(Cost::new(request.len.max(1))),
        CostUnit::DiskTime => None,
    }
}

impl Disk {
    pub(crate) fn new(config: DiskConfig, vdisk: VirtualDisk, bases: Vec<(GateId, u64)>) -> Disk {
        let clock = CentralClock::new(&config.contract).filter(|_| bases.len() > 1);
        Disk {
            clock,
            told_as: config.name.as_str().into(),
            config,
            vdisk,
            in_flight: Vec::new(),
            newest: None,
            bases,
            held: 0,
            doubts: Doubts::default(),
            fetches: 0,
            told: Told::default(),
            connections: 0,
            meters: DiskMeters::default(),
            spread: None,
            extent: ExtentOf { disk: None, first: 0, among: 1 },
        }
    }

    /// Bytes that it is promised, by pool; a disk that lies on several nodes is by its owners.
    pub(super) fn promised(&self) -> impl Iterator<Item = (usize, u64)> {
        let config = &self.config;
        let pools = if self.spread.is_some() { &[][..] } else { &config.pools };
        let on = pools.len() as u64;
        let part = move |i: usize| henge_vdisk::striped_below(config.capacity, i as u64, on, config.stripe);
        pools.iter().enumerate().map(move |(i, pool)| (*pool, part(i)))
    }

    /// The rate each pool must reserve: rate / pools / extents. None for a disk over several nodes, whose extents reserve it.
    pub(crate) fn rate_on_each(&self, contract: &Contract) -> Option<Rate> {
        let rate = contract.rate.filter(|_| self.spread.is_none())?;
        let per_second = rate.per_second / self.config.pools.len() as u64 / self.extent.among;
        Some(Rate { per_second, ..rate })
    }

    /// The disk's contract is another one.
    pub(super) fn follow_contract(&mut self) {
        let (contract, several) = (&self.config.contract, self.bases.len() > 1);
        if !self.clock.as_mut().is_some_and(|clock| clock.change(contract)) {
            self.clock = CentralClock::new(contract).filter(|_| several);
        }
    }

    /// A part goes to its gate: by how much its finish time by the disk's clock is after now.
    pub(super) fn lead(&mut self, request: &Request, now: Instant) -> Option<Duration> {
        let clock = self.clock.as_mut()?;
        Some(clock.tag(counted(request, clock.rate().unit)?, now))
    }

    /// A part is over, or was cancelled.
    pub(super) fn over(&mut self, request: &Request) {
        if let Some(clock) = &mut self.clock
            && let Some(cost) = counted(request, clock.rate().unit)
        {
            clock.over(cost);
        }
    }

    /// Whether a pending command has no memory here: a shard reads its bytes by itself, once it has had its turn.
    pub(super) fn is_read_elsewhere(&self, command: RequestId) -> bool {
        self.in_flight[command.index()].as_ref().is_some_and(|command| command.frame.is_empty())
    }

    /// Whether several gateways can serve it.
    pub(crate) fn is_shared(&self) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.shared.is_some())
    }

    /// Whether it is coordinated here, and all of its extents are on shards of this node.
    pub(crate) fn is_divided(&self) -> bool {
        let local = |at: &Where| matches!(at, Where::Here(_) | Where::Across(..));
        self.spread.as_ref().is_some_and(|spread| spread.extents.iter().all(local))
    }

    /// Which gateway has a shared disk, where some has it.
    pub(crate) fn seat<'a>(&self, links: &'a crate::links::Links) -> Option<&'a str> {
        let spread = self.spread.as_ref().filter(|spread| spread.shared.is_some())?;
        match spread.extents[0] {
            Where::Here(_) => links.here(),
            Where::There(peer, _) => links.peers[peer].as_ref().map(|peer| peer.config.name.as_str()),
            Where::Across(..) | Where::Nowhere => None,
        }
    }

    /// A long CACHE is to begin. False when as many as may are under way.
    pub(crate) fn begin_fetch(&mut self) -> bool {
        let may = self.fetches < FETCHES;
        self.fetches += u32::from(may);
        may
    }

    /// As NBD clients see it.
    pub(crate) fn export(&self) -> henge_nbd::Export {
        let mut export = henge_nbd::Export::new(&self.config.name, self.vdisk.capacity());
        export.read_only = self.config.read_only;
        export.block.preferred = henge_backend::ALIGN as u32;
        export
    }
}
