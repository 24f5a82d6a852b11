//! Where a disk may lie and what it reserves there: asked for a new disk, and for one that changes where it is.

use super::gateways::gateways_of;
use super::inventory::{PoolKey, place};
use super::{Failure, Inventory, Machine};
use crate::decide::{self, Because, Chosen, Instead, PoolState, Refusal};
use crate::kept::Requested;
use crate::model::{DiskRecord, DiskSpec, rate_text, whole_of};
use henge_admission::{Specification, Standing};
use henge_api::manager::Origin;

/// Chooses the places of a new disk.
pub(super) fn choose(
    inventory: &Inventory,
    spec: &DiskSpec,
    specification: &Specification,
    origin: &Origin,
) -> Result<Vec<Chosen>, Refusal> {
    let parts = spec.parts().unwrap_or(1);
    let is_image = origin.image.is_some() || origin.from.is_some();
    let suits = |pool: &&PoolState| pool.shared.is_some() || !is_image;
    if is_image && !inventory.pools.values().any(|pool| suits(&pool)) {
        return Err(decide::no_images());
    }
    let asked = Requested::new(spec);
    let mut chosen = decide::place(inventory.pools.values().filter(suits), specification, &asked, parts)?;
    if let [first] = chosen.as_slice() {
        chosen = gateways_of(inventory, first, specification, &asked);
    }
    below_limit(spec, &chosen)?;
    Ok(chosen)
}

/// Admits a disk anew where it is.
pub(super) fn admit_again(
    inventory: &Inventory,
    disk: &DiskRecord,
    spec: &DiskSpec,
    specification: &Specification,
) -> Result<Vec<Chosen>, Failure> {
    let asked = Requested::new(spec).instead_of(&disk.spec);
    let part = specification.part(disk.divided() as u32);
    let (mut chosen, mut there) = (Vec::new(), Vec::new());
    for old in &disk.parts {
        let key = place(old);
        let Some(pool) = inventory.pools.get(&key) else {
            return Err(Failure::Conflict(format!(
                "node \"{}\" has no pool \"{}\" any more",
                old.node, old.pool
            )));
        };
        if pool.copies < part.copies {
            let why = format!("{}/{} keeps {} copies, not {}", old.node, old.pool, pool.copies, part.copies);
            return Err(Failure::Conflict(why));
        }
        let mut without = pool.clone();
        let (others, used) = inventory.on_pool(&key, Some(&disk.name));
        without.used = used;
        if specification.capacity > disk.spec.bytes() && part.capacity > without.free() {
            return Err(Failure::Refused(decide::no_capacity(&without, &part)));
        }
        without.standing = pool.standing.as_ref().map(|s| Standing::new(*s.fixed(), others, inventory.rules));
        without.kept = pool.kept.as_ref().map(|kept| inventory.kept_on(&key, kept, Some(&disk.name)));
        let again = decide::again(&without, &part, specification.is_best_effort());
        chosen.push(again.map_err(Failure::Refused)?);
        there.push(without);
    }
    below_limit(spec, &chosen).map_err(Failure::Refused)?;
    // All parts are given what the one takes that takes most.
    let most = chosen.iter().map(|c| c.reserved_micro).max().unwrap_or(0);
    for pool in &there {
        asked.at(pool, most).map_err(|refused| Failure::Refused(decide::not_kept(pool, refused)))?;
    }
    Ok(chosen)
}

/// What was measured there no longer says how it will be. Where measurement decided, the others' reservations follow it.
pub(super) fn admitted_on(machine: &mut Machine, chosen: &[Chosen]) {
    for c in chosen {
        let key = (c.node.clone(), c.pool.clone());
        if !c.by_worst_case {
            follow_measurement(machine, &key);
        }
        if let Some(pool) = machine.inventory.pools.get_mut(&key) {
            pool.since = 0;
        }
        machine.inventory.refresh(&key);
    }
}

/// Gives every disk of a pool the reservation that its measurement asks for, so that the scheduler's reservations add up
/// to what the pool can do.
fn follow_measurement(machine: &mut Machine, key: &PoolKey) {
    let Some(pool) = machine.inventory.pools.get(key) else { return };
    let Some(reservations) = pool.standing.as_ref().and_then(Standing::reservations) else { return };
    let names: Vec<String> = machine.inventory.on.get(key).into_iter().flatten().cloned().collect();
    let changes: Vec<(String, u64)> = names
        .into_iter()
        .zip(reservations)
        .map(|(name, r)| (name, (r.rate() * 1e6).ceil() as u64))
        .filter(|(name, micro)| {
            let part = machine.inventory.disks[name].parts.iter().find(|p| place(p) == *key);
            part.is_some_and(|p| p.reserved_micro > *micro)
        })
        .collect();
    for (name, micro) in changes {
        let mut disk = machine.inventory.disks[&name].clone();
        for part in disk.parts.iter_mut().filter(|p| place(p) == *key) {
            part.reserved_micro = micro;
        }
        machine.put_disk(&name, Some(disk));
        machine.order(&name);
    }
}

pub(super) fn read(spec: &DiskSpec) -> Result<Specification, Failure> {
    spec.read().map_err(|e| Failure::Bad(e.0))
}

/// Whether what is reserved for the whole disk is below its limit: no node reads a contract that promises more than it lets through.
pub(super) fn below_limit(spec: &DiskSpec, chosen: &[Chosen]) -> Result<(), Refusal> {
    let limit = spec.limit.as_ref().and_then(|text| henge_core::parse_rate(text).ok());
    let whole = whole_micro(spec, chosen);
    if limit.is_none_or(|limit| whole <= limit.per_second) {
        return Ok(());
    }
    let why = format!("the latency takes a reservation of {}, which is above the limit", rate_text(whole));
    Err(Refusal { because: Because::Impossible, why, instead: Instead::default() })
}

/// What the whole disk reserves.
pub(super) fn whole_micro(spec: &DiskSpec, chosen: &[Chosen]) -> u64 {
    whole_of(spec, chosen.iter().map(|c| c.reserved_micro), spec.parts().unwrap_or(1) as usize)
}

pub(super) fn rule(chosen: &[Chosen]) -> &'static str {
    if chosen.iter().all(|c| c.by_worst_case) { "worst case" } else { "measurement" }
}

pub(super) fn reasons(chosen: &[Chosen]) -> String {
    format!("by {}", rule(chosen))
}
