//! What adding a disk would answer, without making anything: for whoever is still writing it.
//!
//! The table is read as [`operate::add`](super::add) reads it, and the gates are asked whether they would take the contract. Room is judged by what
//! is promised to disks; a pool whose storage has less than that still refuses when the disk is made.

use super::Outcome;
use crate::config::DiskConfig;
use crate::operate;
use crate::plane::Plane;
use henge_api::{Request, Table};
use henge_core::{Rate, format_size};

/// What is promised on each pool of the disk before and after; or why it would be refused.
pub(crate) fn offer(plane: &Plane, table: &Table) -> Outcome<Vec<String>> {
    let config = operate::read_disk(plane, table)?;
    operate::works_for(plane, &Request::Add { disk: table.clone() })?;
    if !config.places.is_empty() {
        return Ok(Vec::new()); // its pools are other nodes' as well
    }
    let on = config.pools.len() as u64;
    let mut lines = Vec::new();
    for (i, &pool) in config.pools.iter().enumerate() {
        let bytes = henge_vdisk::striped_below(config.capacity, i as u64, on, config.stripe);
        lines.push(capacity_after(plane, pool, bytes, &config)?);
        lines.extend(reserved(plane, pool, &config, on));
    }
    Ok(lines)
}

fn capacity_after(plane: &Plane, pool: usize, bytes: u64, config: &DiskConfig) -> Outcome<String> {
    let pool = &plane.pools[pool];
    let gates = pool.gates.clone();
    let capacity: u64 = gates.map(|g| plane.pools.gates[g].pipeline.backend().capacity()).sum();
    let name = &pool.config.name;
    let free = capacity.saturating_sub(pool.promised);
    // Images, and parts that a former disk left, are there already.
    let takes_capacity = !config.beginning.adopt && !pool.config.medium.has_images();
    if takes_capacity && bytes > free {
        return Err(format!(
            "pool \"{name}\" has no room for {}: {} of {} are free",
            format_size(bytes),
            format_size(free),
            format_size(capacity)
        ));
    }
    let (before, after) = (format_size(pool.promised), format_size(pool.promised.saturating_add(bytes)));
    Ok(format!("capacity promised on {name}: {before} before, {after} of {} after", format_size(capacity)))
}

fn reserved(plane: &Plane, pool: usize, config: &DiskConfig, on: u64) -> Option<String> {
    let rate = config.contract.rate?;
    let before = plane.pools[pool].rates[rate.unit as usize];
    let after = before + u128::from(rate.per_second / on);
    let text =
        |sum: u128| Rate { per_second: u64::try_from(sum).unwrap_or(u64::MAX), unit: rate.unit }.to_string();
    Some(format!(
        "promised on {}: {} before, {} after",
        plane.pools[pool].config.name,
        text(before),
        text(after)
    ))
}
