//! Whether a node of another configuration could begin where one ends.
//!
//! A node that is to begin anew lets its clients go first. So what would keep it from beginning is looked for before.

use crate::config::{DiskConfig, NodeConfig, PoolConfig, at};
use crate::node::{StartError, divide, remembered};
use crate::state::{StateDir, pools};
use crate::storage;
use henge_core::{FlowId, Gate, Instant, ParamError, format_size};
use std::collections::BTreeSet;

/// Whether a node of this configuration could begin where one of `now` ends; or why not. Nothing is made, locked or written.
///
/// Storage that is served now is not opened again: whoever closes any descriptor of a file gives up the process's locks on it.
pub fn could_follow(next: &NodeConfig, now: &NodeConfig) -> Result<(), StartError> {
    let mut config = next.clone();
    let state_dir = StateDir::look(&config);
    let memory = remembered(&mut config, state_dir.clone())?;
    let medium = |pool: &PoolConfig| format!("{:?}", pool.medium);
    let served: BTreeSet<String> = now.pools.iter().map(medium).collect();
    let is_served = |pool: &PoolConfig| served.contains(&medium(pool));
    pools::check(&config, &state_dir, &is_served).map_err(|e| config.source.point(e))?;
    divide(&config, &memory)?;
    for pool in config.pools.iter().filter(|pool| !is_served(pool)) {
        storage::open(pool, &config, true).map_err(|e| config.source.point(e))?;
    }
    fits(&config).and_then(|()| is_kept(&config)).map_err(|e| config.source.point(e))?;
    Ok(())
}

/// The disks that the file has, and that have parts here from the start.
fn disks(config: &NodeConfig) -> impl Iterator<Item = &DiskConfig> {
    config
        .disks
        .iter()
        .filter(|disk| disk.places.is_empty() && disk.gateways.is_empty() && !disk.beginning.going)
}

/// Whether pools whose capacity is stated have room for them. What else takes room there is not known.
fn fits(config: &NodeConfig) -> Result<(), ParamError> {
    let mut taken = vec![0u64; config.pools.len()];
    for disk in disks(config) {
        let on = disk.pools.len() as u64;
        for (i, &p) in disk.pools.iter().enumerate() {
            let part = henge_vdisk::striped_below(disk.capacity, i as u64, on, disk.stripe);
            taken[p] = taken[p].saturating_add(part);
            let PoolConfig { name, capacity, .. } = &config.pools[p];
            // Pools round up what they are said to hold.
            if *capacity > 0 && taken[p] > capacity.next_multiple_of(1 << 20) {
                let (all, has) = (format_size(taken[p]), format_size(*capacity));
                let why = format!(
                    "disk \"{}\": no room, since the disks of pool \"{name}\" would have {all} of {has}",
                    disk.name
                );
                return Err(at(&disk.spans.capacity, why));
            }
        }
    }
    Ok(())
}

/// Whether schedulers keep all of their contracts.
fn is_kept(config: &NodeConfig) -> Result<(), ParamError> {
    let mut gates = Vec::new();
    for pool in &config.pools {
        let build = || henge_sched::build(&pool.scheduler.name, pool.scheduler.knobs.clone()).map(Gate::new);
        let of_pool = (0..storage::members(pool)?).map(|_| build()).collect::<Result<Vec<Gate>, _>>()?;
        gates.push(of_pool);
    }
    for (number, disk) in disks(config).enumerate() {
        let flow = FlowId(number as u32);
        let among: usize = disk.pools.iter().map(|p| gates[*p].len()).sum();
        let part = disk.contract.part(disk.leeway, among as u64);
        for &p in &disk.pools {
            for gate in &mut gates[p] {
                gate.set_flow(flow, &part, Instant::ZERO).map_err(|refused| ParamError {
                    message: format!("disk \"{}\": {}", disk.name, refused.why),
                    help: Some(refused.instead),
                    span: disk.spans.contract.clone(),
                })?;
            }
        }
    }
    Ok(())
}
