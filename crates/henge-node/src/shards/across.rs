//! What a shard knows of the others: the lanes to them, which pools are whose, and who has which extents.

use super::division::Division;
use super::lanes::Lanes;
use crate::config::DiskConfig;
use henge_backend::SharedMemory;
use henge_core::RequestId;
use henge_link::WireUnit;
use std::collections::BTreeMap;

/// The slot in the name of whoever submits for another shard; there is no such connection.
const SLOT: u32 = u32::MAX - 3;

/// An owner at some shard.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub shard: usize,
    /// Its number there.
    pub number: usize,
    /// What its gate charges.
    pub unit: WireUnit,
    pub reach: Option<Reach>,
}

/// Memory that each shard reads by itself, once the gate says so.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub memory: SharedMemory,
    /// The extent's first byte there.
    pub base: u64,
}

/// What a shard knows of the others.
#[derive(Default)]
pub(crate) struct Across {
    pub lanes: Lanes,
    /// Which shard this is.
    pub here: usize,
    pub division: Division,
    /// Disks here that initiators keep everybody from, or do so no longer: other shards are still to hear of it.
    pub bars: Vec<(usize, bool)>,
    /// Owners at other shards, by disk and extent.
    pub owners: BTreeMap<(String, u32), Owner>,
}

impl Across {
    pub(crate) fn new(lanes: Lanes, here: usize, division: Division) -> Across {
        Across { lanes, here, division, bars: Vec::new(), owners: BTreeMap::new() }
    }

    /// Whether this shard shows a disk to clients of every kind.
    pub(crate) fn leads(&self, config: &DiskConfig) -> bool {
        self.division.lead_of(config) == self.here
    }

    /// Whether this shard serves NBD clients of a disk.
    pub(crate) fn serves(&self, config: &DiskConfig) -> bool {
        self.leads(config) || self.division.is_everywhere(config)
    }
}

/// Who submits for a shard.
pub(crate) fn submitter_for(shard: usize) -> RequestId {
    RequestId { slot: SLOT, generation: shard as u32 }
}

/// The shard for which that one submits, if it does.
pub(crate) fn shard_of(submitter: RequestId) -> Option<usize> {
    (submitter.slot == SLOT).then_some(submitter.generation as usize)
}
