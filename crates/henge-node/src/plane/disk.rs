//! A virtual disk's place in the node, and what each of its pending commands holds there.

use super::{At, Owner};
use crate::config::DiskConfig;
use crate::meters::DiskMeters;
use crate::spread::Spread;
use henge_backend::Buffer;
use henge_core::{Contract, Cost, Instant, Rate, RequestId};
use henge_vdisk::{GateId, VirtualDisk};
use std::sync::Arc;

/// A pending command's memory, and who waits for it.
pub(crate) struct Flight {
    pub(super) id: RequestId,
    pub frame: Buffer,
    pub owner: Owner,
    pub(super) cost: Cost,
}

/// A virtual disk and its place in the node.
pub(crate) struct Disk {
    pub config: DiskConfig,
    pub vdisk: VirtualDisk,
    /// By the slot of the command.
    pub flights: Vec<Option<Flight>>,
    /// The newest of its requests at gates; each knows the one before.
    pub(super) newest: Option<At>,
    /// Where its part begins on each gate; a FLUSH is sent there.
    pub(super) bases: Vec<(GateId, u64)>,
    /// Bytes of buffers it holds.
    pub held: usize,
    /// Long CACHEs under way.
    pub fetches: u32,
    /// When an event told of its clients, and how many could have since.
    pub told: Option<Instant>,
    pub untold: u32,
    /// Clients connected.
    pub connections: usize,
    /// What its clients saw.
    pub meters: DiskMeters,
    /// The number of its first part.
    pub(crate) first: u32,
    /// Of how many places it is one: its gates keep that much less of the contract.
    pub among: u64,
    /// Its places, where they are on several nodes.
    pub spread: Option<Box<Spread>>,
    /// The disk of which this is a place. Nobody but that disk's coordinators may use it.
    pub home_of: Option<usize>,
    /// As the manager is told of its parts.
    pub(super) told_as: Arc<str>,
}

impl Disk {
    pub(crate) fn new(config: DiskConfig, vdisk: VirtualDisk, bases: Vec<(GateId, u64)>) -> Disk {
        Disk {
            told_as: config.name.as_str().into(),
            config,
            vdisk,
            flights: Vec::new(),
            newest: None,
            bases,
            held: 0,
            fetches: 0,
            told: None,
            untold: 0,
            connections: 0,
            meters: DiskMeters::default(),
            first: 0,
            among: 1,
            spread: None,
            home_of: None,
        }
    }

    /// Bytes that it is promised, by pool; a disk that lies on several nodes is by its homes.
    pub(super) fn promised(&self) -> impl Iterator<Item = (usize, u64)> {
        let config = &self.config;
        let pools = if self.spread.is_some() { &[][..] } else { &config.pools };
        let on = pools.len() as u64;
        let part = move |i: usize| henge_vdisk::striped_below(config.capacity, i as u64, on, config.stripe);
        pools.iter().enumerate().map(move |(i, pool)| (*pool, part(i)))
    }

    /// The rate each pool must reserve: rate / pools / places. None for a disk over several nodes, whose places reserve it.
    pub(crate) fn rate_on_each(&self, contract: &Contract) -> Option<Rate> {
        let rate = contract.rate.filter(|_| self.spread.is_none())?;
        let per_second = rate.per_second / self.config.pools.len() as u64 / self.among;
        Some(Rate { per_second, ..rate })
    }

    /// As NBD clients see it.
    pub(crate) fn export(&self) -> henge_nbd::Export {
        let mut export = henge_nbd::Export::new(&self.config.name, self.vdisk.capacity());
        export.read_only = self.config.read_only;
        export.block.preferred = henge_backend::ALIGN as u32;
        export
    }
}
