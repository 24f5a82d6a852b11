//! What must always hold of nodes, pools and disks (see [`super`]).

use super::Inventory;
use super::inventory::place;
use std::collections::BTreeSet;

/// What is wrong, if anything is; for tests.
pub(crate) fn check(inventory: &Inventory) -> Result<(), String> {
    for (key, pool) in &inventory.pools {
        let (_, used) = inventory.on_pool(key, None);
        if used != pool.used {
            return Err(format!("{key:?}: {} bytes are counted, {used} are used", pool.used));
        }
        if used > pool.capacity {
            return Err(format!("{key:?}: {used} bytes of {} are promised", pool.capacity));
        }
        let reserved: f64 = inventory
            .on
            .get(key)
            .into_iter()
            .flatten()
            .flat_map(|name| inventory.disks[name].parts.iter().filter(|p| place(p) == *key))
            .map(|p| p.reserved_micro as f64 / 1e6)
            .sum();
        let most = pool.standing.as_ref().map_or(0.0, |s| s.fixed().iops_max);
        if inventory.rules.is_none() && reserved > most + 0.001 {
            return Err(format!("{key:?}: {reserved}/s of {most}/s are promised"));
        }
    }
    for (key, names) in &inventory.on {
        for name in names {
            let there = inventory.disks.get(name).is_some_and(|d| d.parts.iter().any(|p| place(p) == *key));
            if !there {
                return Err(format!("{key:?} has a place for \"{name}\", which is not there"));
            }
        }
    }
    let parts: usize = inventory.disks.values().map(|d| d.parts.len()).sum();
    let places: usize = inventory.on.values().map(BTreeSet::len).sum();
    if parts != places {
        return Err(format!("{parts} parts have {places} places"));
    }
    Ok(())
}
