//! What a coordinator begins with.

use super::{FLOW, Spread};
use crate::config::DiskConfig;
use crate::plane::Plane;
use henge_core::{Cost, CostUnit, NodeId};
use henge_link::WireUnit;
use henge_sched::foreign::{Coordinator, Outbox};

/// T in the unit that costs count: as configured where that is bytes; else one command for each 256 KiB of it, or its time
/// at 100 MB/s.
fn announce(bytes: u64, unit: CostUnit) -> Cost {
    Cost::new(match unit {
        CostUnit::Bytes => bytes,
        CostUnit::Requests => (bytes.saturating_mul(1_000_000) / (256 << 10)).max(1),
        CostUnit::DiskTime => bytes.saturating_mul(10),
    })
}

/// Nothing is known of the disk's extents yet.
pub(super) fn spread(plane: &Plane, config: &DiskConfig, count: u32) -> Spread {
    // A gate here says what costs count; else the scheduler's default, bytes.
    let pool = config.pools.iter().map(|p| &plane.pools[*p]).find(|pool| pool.is_here());
    let gate = pool.map(|pool| pool.gates.start);
    let unit = gate.map_or(CostUnit::Bytes, |g| plane.pools.gates[g].pipeline.gate().cost_unit());
    let every = plane.links.config.as_ref().and_then(|link| link.announce);
    let every = every.map(|bytes| announce(bytes, unit));
    let mut coordinator = Coordinator::new(NodeId(u32::MAX), plane.links.epoch, every);
    coordinator.set_flow(FLOW, &(0..count).map(NodeId).collect::<Vec<_>>());
    Spread {
        extents: Vec::new(),
        coordinator,
        units: Vec::new(),
        reach: (0..count).map(|_| None).collect(),
        inside: 0,
        outbox: Outbox::new(),
        shared: None,
    }
}

/// The unit in which an owner's gate charges; of a relay, once it is known.
pub(crate) fn unit_of(plane: &Plane, owner: usize) -> Option<WireUnit> {
    let disk = plane.disks[owner].as_ref().expect("an owner in use is there");
    if let Some(relay) = &disk.spread {
        return relay.units[0];
    }
    let gate = disk.vdisk.layout().gates()[0];
    Some(crate::links::unit(plane.pools.gates[gate.index()].pipeline.gate().cost_unit()))
}
