//! Disks come, change their contracts, and go.

use super::disk::ExtentOf;
use super::{Disk, NotAdded, PartOf, Plane};
use crate::config::{DiskConfig, at};
use crate::spread::layout::align_of;
use henge_backend::Store;
use henge_core::{Contract, FlowId, Instant, ParamError};
use henge_vdisk::{Extent, GateId, Layout, VirtualDisk};
use std::collections::BTreeSet;

/// A disk's parts, opened.
struct Opened {
    /// One on each of its pools.
    extents: Vec<Extent>,
    /// Where each part begins, at its gate.
    bases: Vec<(GateId, u64)>,
    /// The largest block of its stores.
    block: u64,
}

/// The owner of one extent of a disk that is spread over nodes.
pub(crate) fn add_extent(
    plane: &mut Plane,
    config: &DiskConfig,
    pool: usize,
    index: u32,
    len: u64,
    now: Instant,
) -> Result<usize, NotAdded> {
    let mut owner = DiskConfig { pools: vec![pool], places: Vec::new(), capacity: len, ..config.clone() };
    // Coordinators bound what they hand out; here it is room for all of them.
    owner.contract.pending = None;
    owner.cutting.settings.commands_max = 1 << 20;
    if !plane.across.division.is_whole() {
        // As coordinators at other shards lend memory.
        owner.cutting.settings.align = align_of(config);
    }
    add_parts(plane, owner, index, config.places.len() as u64, now)
}

pub(super) fn add_parts(
    plane: &mut Plane,
    config: DiskConfig,
    first: u32,
    among: u64,
    now: Instant,
) -> Result<usize, NotAdded> {
    let mut made = Vec::new();
    let added = add_with(plane, config, first, among, &mut made, now);
    if added.is_err() {
        // What was not there before takes no room after a refusal.
        for (g, part) in made {
            if let Err(e) = plane.pools.gates[g].pipeline.backend_mut().remove_part(&part) {
                tracing::warn!(part, error = %e, "a part of a refused disk stays until the node begins again");
            }
        }
    }
    added
}

/// The disk; with the parts that were made for it.
fn add_with(
    plane: &mut Plane,
    config: DiskConfig,
    first: u32,
    among: u64,
    made: &mut Vec<(usize, String)>,
    now: Instant,
) -> Result<usize, NotAdded> {
    let number = plane.disks.free_number();
    let wrong =
        |e: &dyn std::fmt::Display| at(&config.spans.capacity, format!("disk \"{}\": {e}", config.name));
    let Opened { extents, bases, block } = open_parts(plane, &config, first, made)?;
    let layout = Layout::new(config.capacity, config.stripe, extents).map_err(|e| wrong(&e))?;
    let settings = plane.pools.settings_of(&config, block);
    let flow = FlowId(number as u32);
    let vdisk = VirtualDisk::new(flow, layout, settings).map_err(|e| wrong(&e))?;
    let promised = plane.pools.promise(&vdisk, &config.contract, (config.leeway, among), now);
    if let Err(refused) = promised {
        let message = format!("disk \"{}\": {}", config.name, refused.why);
        let span = config.spans.contract.clone();
        return Err(ParamError { message, help: Some(refused.instead), span }.into());
    }
    let mut disk = Disk::new(config, vdisk, bases);
    disk.extent = ExtentOf { disk: None, first, among };
    for (pool, bytes) in disk.promised() {
        plane.pools[pool].promised += bytes;
    }
    plane.pools.count_rates(&disk, &Contract::best_effort(), &disk.config.contract);
    put_disk(plane, number, disk);
    Ok(number)
}

/// Opens a disk's parts, or makes them, and says what was made.
fn open_parts(
    plane: &mut Plane,
    config: &DiskConfig,
    first: u32,
    made: &mut Vec<(usize, String)>,
) -> Result<Opened, NotAdded> {
    let mut parts = plane.pools.parts_of(config, config.capacity, first).into_iter();
    let wrong =
        |e: &dyn std::fmt::Display| at(&config.spans.capacity, format!("disk \"{}\": {e}", config.name));
    // That a pool is full is the configuration's to mend.
    let failed = |e: &std::io::Error| NotAdded {
        error: wrong(e),
        storage: e.kind() != std::io::ErrorKind::StorageFull,
    };
    let mut extents = Vec::new();
    let mut bases = Vec::new();
    let mut block = 1;
    for &p in &config.pools {
        let pool = &plane.pools.all[p];
        let (mut base, mut per_member) = (None, 0);
        for part in parts.by_ref().take(pool.gates.len()) {
            let store = plane.pools.gates[part.gate].pipeline.backend_mut();
            if part.adopt {
                store.adopt_part(&part.name).map_err(|e| failed(&e))?;
            }
            if !part.origin.is_default() {
                store.set_origin(&part.name, &part.origin).map_err(|e| failed(&e))?;
            }
            let was_there = store.has_part(&part.name);
            if config.beginning.had_on.contains(&pool.config.name) {
                if is_missing(&**store, &part) {
                    let why = lost(&config.name, &part, &pool.config.name, "is not there");
                    return Err(failed(&std::io::Error::other(why)));
                }
                store.expect_part(&part.name);
            }
            let found = store.open_part(&part.name, part.len);
            let found = found.inspect_err(|_| store.forget_part(&part.name)).map_err(|e| failed(&e))?;
            // What lies elsewhere may have been there, and not been looked for before.
            if !was_there && (store.is_new(&part.name) || !store.opens_elsewhere()) {
                made.push((part.gate, part.name.clone()));
            }
            block = block.max(store.block());
            bases.push((GateId(part.gate as u32), found));
            per_member = part.len;
            if *base.get_or_insert(found) != found {
                return Err(wrong(&"its parts on the spindles do not begin at the same address").into());
            }
        }
        let base = base.expect("a pool has a gate") * pool.members;
        extents.push(Extent { target: pool.target.clone(), base, len: per_member * pool.members });
    }
    Ok(Opened { extents, bases, block })
}

/// Whether a part that was on a store is not there. A store whose parts lie elsewhere says so when they are opened.
fn is_missing(store: &dyn Store, part: &PartOf) -> bool {
    !store.has_part(&part.name) && !store.opens_elsewhere()
}

/// What an administrator is to know of a part that is not what it was: made anew, it would be empty, and nobody would know.
fn lost(disk: &str, part: &PartOf, pool: &str, how: &str) -> String {
    format!(
        "its part \"{}\" was on the pool \"{pool}\" and {how}: give the pool the storage back that had it, and start the node \
         again; only to begin anew, empty, `henge vd remove {disk}`, and make it again",
        part.name
    )
}

/// Whether the parts of a disk are whole that were on these pools; or what is to be done.
pub(crate) fn find_parts(
    plane: &mut Plane,
    disk: &str,
    parts: &[PartOf],
    on: &BTreeSet<String>,
) -> Result<(), String> {
    for part in parts {
        let pool = plane.pools.iter().find(|pool| pool.gates.contains(&part.gate));
        let Some(pool) = pool.map(|pool| pool.config.name.clone()).filter(|pool| on.contains(pool)) else {
            continue;
        };
        let store = plane.pools.gates[part.gate].pipeline.backend_mut();
        if part.adopt {
            store.adopt_part(&part.name).map_err(|e| e.to_string())?;
        }
        if is_missing(&**store, part) {
            return Err(lost(disk, part, &pool, "is not there"));
        }
        store.expect_part(&part.name);
        // A part is longer before anybody is told that its disk is.
        if let Some(len) = store.part_len(&part.name).filter(|len| *len < part.len) {
            let how = format!("has {len} of its {} bytes", part.len);
            return Err(lost(disk, part, &pool, &how));
        }
    }
    Ok(())
}

/// Makes a disk of this node's pools longer: first every part, of which none may be in the way of another, then the disk.
pub(crate) fn lengthen(plane: &mut Plane, number: usize, capacity: u64) -> Result<(), String> {
    let disk = plane.disks[number].as_ref().expect("a disk that was found");
    let parts = plane.pools.parts_of(&disk.config, capacity, disk.extent.first);
    let mut on_gates = parts.iter();
    let mut bases = Vec::new();
    let mut extents = Vec::new();
    for (&p, extent) in disk.config.pools.iter().zip(disk.vdisk.layout().extents()) {
        let pool = &plane.pools[p];
        bases.extend(pool.gates.clone().map(|_| extent.base / pool.members));
        let len = on_gates.by_ref().take(pool.gates.len()).last().map_or(0, |part| part.len);
        extents.push(Extent { len: len * pool.members, ..extent.clone() });
    }
    let layout = Layout::new(capacity, disk.vdisk.layout().unit(), extents).map_err(|e| e.to_string())?;
    plane.pools.could_grow(&parts)?;
    for (part, base) in parts.iter().zip(bases) {
        let store = plane.pools.gates[part.gate].pipeline.backend_mut();
        let found = store.open_part(&part.name, part.len).map_err(|e| e.to_string())?;
        assert_eq!(found, base, "a part grows where it stands");
    }
    let disk = plane.disks.of(number);
    disk.vdisk.resize(layout).map_err(|e| e.to_string())?;
    let before: Vec<(usize, u64)> = disk.promised().collect();
    disk.config.capacity = capacity;
    let after: Vec<(usize, u64)> = disk.promised().collect();
    for ((pool, before), (_, after)) in before.into_iter().zip(after) {
        let promised = &mut plane.pools[pool].promised;
        *promised = *promised - before + after;
    }
    Ok(())
}

/// Puts a disk at a number that is free.
pub(crate) fn put_disk(plane: &mut Plane, number: usize, disk: Disk) {
    if let Some(tap) = &mut plane.observers.tap {
        tap.rename(number);
    }
    plane.disks.put(number, disk);
    plane.memory.count_disks(&plane.disks);
}

/// Takes a disk from its number, and what it was promised from its pools.
pub(crate) fn take_disk(plane: &mut Plane, number: usize) -> Option<Disk> {
    let disk = plane.disks.take(number)?;
    plane.memory.forget(&disk);
    plane.memory.count_disks(&plane.disks);
    for (pool, bytes) in disk.promised() {
        plane.pools[pool].promised -= bytes;
    }
    plane.pools.count_rates(&disk, &disk.config.contract, &Contract::best_effort());
    Some(disk)
}

/// Takes back an owner that was just made. Its part stays where it is: it may be an old one, with data.
pub(crate) fn drop_extent(plane: &mut Plane, owner: usize, now: Instant) {
    let Some(disk) = take_disk(plane, owner) else { return };
    if disk.spread.is_some() {
        return; // a relay: its gate is another shard's
    }
    for gate in disk.vdisk.layout().gates() {
        let gate = plane.pools.gates[gate.index()].pipeline.gate_mut();
        gate.remove_flow(disk.vdisk.flow(), now, &mut Vec::new());
    }
}
