//! The extents of a spread disk: made, found, changed and taken away.

use super::layout::{align_of, extent_lens, layout};
use super::{At, FLOW, seat, shape};
use crate::config::DiskConfig;
use crate::plane::PartOf;
use crate::plane::make;
use crate::plane::{Disk, NotAdded, Plane};
use crate::spread::across;
use crate::spread::coordinator;
use crate::spread::seating;
use henge_core::{Contract, Instant, ParamError};
use henge_vdisk::VirtualDisk;

/// Makes a disk over several nodes' pools: the owners of its extents here, and the disk itself.
pub(crate) fn add_spread(plane: &mut Plane, config: DiskConfig, now: Instant) -> Result<usize, NotAdded> {
    if !config.gateways.is_empty() {
        return seating::add_shared(plane, config, now);
    }
    let wrong = |message: String| ParamError {
        message: format!("disk \"{}\": {message}", config.name),
        help: None,
        span: config.spans.capacity.clone(),
    };
    let count = config.places.len() as u64;
    let align = align_of(&config);
    let settings = henge_vdisk::Settings { owners: true, align, ..config.cutting.settings };
    let lens = extent_lens(&config, config.capacity);
    let layout = layout(&config, config.capacity).map_err(|e| wrong(e.to_string()))?;
    // Any number will do: no gate ever sees this flow.
    let vdisk = VirtualDisk::new(FLOW, layout, settings).map_err(|e| wrong(e.to_string()))?;
    let shape = shape(&config);
    let mut owners = Vec::new();
    let mut local = config.pools.iter();
    for (i, place) in config.places.iter().enumerate() {
        if !plane.links.is_here(&place.node) {
            continue;
        }
        let &pool = local.next().expect("every place here names a pool here");
        let added = match plane.pools[pool].is_here() {
            true => make::add_extent(plane, &config, pool, i as u32, lens[i], now),
            false if !config.is_of_cluster() || plane.links.is_passive => continue,
            false => across::add_relay(plane, &config, i as u32, lens[i]).map_err(|e| wrong(e).into()),
        };
        match added {
            Ok(owner) => owners.push((i, owner)),
            Err(e) => {
                owners.iter().for_each(|(_, owner)| make::drop_extent(plane, *owner, now));
                return Err(e);
            }
        }
    }
    let number = plane.disks.free_number();
    let mut spread = coordinator::spread(plane, &config, count as u32);
    for (i, place) in config.places.iter().enumerate() {
        let here = owners.iter().find(|(at, _)| *at == i).map(|(_, owner)| *owner);
        let (at, unit) = match here {
            Some(owner) => (At::Here(owner), coordinator::unit_of(plane, owner)),
            None if plane.links.is_passive && !plane.links.is_here(&place.node) => (At::Nowhere, None),
            None if plane.links.is_here(&place.node) => {
                let (at, unit, reach) = across::across(plane, &config.name, i as u32);
                spread.reach[i] = reach;
                (at, unit)
            }
            None => {
                let peer = plane.links.find(&place.node).expect("the configuration names peers");
                (At::There(peer, plane.links.attach(peer, &config.name, number, i as u32, shape)), None)
            }
        };
        spread.extents.push(at);
        spread.units.push(unit);
    }
    for (_, owner) in &owners {
        plane.disks.of(*owner).extent.disk = Some(number);
    }
    let mut disk = Disk::new(config, vdisk, Vec::new());
    disk.spread = Some(Box::new(spread));
    make::put_disk(plane, number, disk);
    Ok(number)
}

/// The parts here of a disk over several nodes that has, or is to have, `capacity` bytes.
pub(crate) fn parts_here(plane: &Plane, config: &DiskConfig, capacity: u64) -> Vec<PartOf> {
    let lens = extent_lens(config, capacity);
    if !config.gateways.is_empty() {
        return seating::parts_to_make(plane, config, lens[0]);
    }
    let here = config.places.iter().enumerate();
    let here = here.filter(|(_, place)| plane.links.is_here(&place.node));
    let mut parts = Vec::new();
    for ((i, _), &pool) in here.zip(&config.pools).filter(|(_, pool)| plane.pools[**pool].is_here()) {
        let owner = DiskConfig { pools: vec![pool], places: Vec::new(), ..config.clone() };
        parts.extend(plane.pools.parts_of(&owner, lens[i], i as u32));
    }
    parts
}

/// The parts here that a new disk gets.
pub(crate) fn parts_of_new(plane: &Plane, config: &DiskConfig) -> Vec<PartOf> {
    match config.places.is_empty() {
        true => plane.pools.parts_of(config, config.capacity, 0),
        false => parts_here(plane, config, config.capacity),
    }
}

/// The parts that a disk which is served would have here, if it had `capacity` bytes.
pub(crate) fn parts_at(plane: &Plane, number: usize, capacity: u64) -> Vec<PartOf> {
    let disk = plane.disks[number].as_ref().expect("a disk that was found");
    let Some(spread) = &disk.spread else {
        return plane.pools.parts_of(&disk.config, capacity, disk.extent.first);
    };
    let mut parts = Vec::new();
    for (at, len) in spread.extents.iter().zip(extent_lens(&disk.config, capacity)) {
        let owner = if let At::Here(owner) = at { plane.disks[*owner].as_ref() } else { None };
        if let Some(owner) = owner {
            parts.extend(plane.pools.parts_of(&owner.config, len, owner.extent.first));
        }
    }
    parts
}

/// Makes the owners here as long as a disk of `capacity` bytes takes. One that cannot be leaves those before it longer, which
/// nobody sees.
pub(crate) fn lengthen_extents(plane: &mut Plane, number: usize, capacity: u64) -> Result<(), String> {
    let disk = plane.disks.of(number);
    let lens = extent_lens(&disk.config, capacity);
    let extents = disk.spread.as_ref().map_or_else(Vec::new, |s| s.extents.clone());
    for (at, len) in extents.into_iter().zip(lens) {
        if let At::Here(owner) = at
            && len > plane.disks.of(owner).vdisk.capacity()
        {
            match plane.disks.is_relay(owner) {
                true => lengthen_spread(plane, owner, len)?,
                false => make::lengthen(plane, owner, len)?,
            }
        }
    }
    Ok(())
}

/// Shows clients a larger disk; what is beyond the end of an extent that is not as long yet is out of range there.
pub(crate) fn lengthen_spread(plane: &mut Plane, number: usize, capacity: u64) -> Result<(), String> {
    let disk = plane.disks.of(number);
    let larger = layout(&disk.config, capacity).map_err(|e| e.to_string())?;
    disk.vdisk.resize(larger).map_err(|e| e.to_string())?;
    disk.config.capacity = capacity;
    Ok(())
}

/// The owner of a disk's extent, if that is here, the disk is known as the coordinator knows it, and the coordinator is a node that it
/// names: a node that is linked for other disks' sake reaches those alone.
pub(crate) fn owner(plane: &Plane, name: &str, index: u32, digest: u64, by: &str) -> Result<usize, String> {
    let here = plane.links.here().unwrap_or_default();
    // Asked for each disk that a peer still waits for: not by `find`, which names all that there are.
    let number =
        plane.disks.number(name).ok_or_else(|| format!("node {here} does not serve a disk \"{name}\""))?;
    let disk = plane.disks[number].as_ref().expect("a disk that was found");
    let Some(spread) = &disk.spread else {
        return Err(format!("on node {here} the disk \"{name}\" is its own, not the cluster's"));
    };
    if !disk.config.names(by) {
        return Err(format!(
            "on node {here} the disk \"{name}\" does not name node {by}; where clients come by that, state through = [\"{by}\"]"
        ));
    }
    if shape(&disk.config) != digest {
        return Err(format!("node {here} knows the disk \"{name}\" with another stripe or other pools"));
    }
    match spread.extents.get(index as usize) {
        Some(At::Here(owner)) if coordinator::unit_of(plane, *owner).is_none() => {
            Err(format!("extent {index} of the disk \"{name}\" is not there yet on node {here}"))
        }
        Some(At::Here(owner)) if spread.shared.as_ref().is_none_or(|seat| seat.acts.here()) => Ok(*owner),
        _ if spread.shared.is_some() => Err(format!("node {here} does not have the disk \"{name}\" now")),
        _ => Err(format!("extent {index} of the disk \"{name}\" is not on node {here}")),
    }
}

/// Changes the contract of every owner here, or of none; the other nodes hear of it from whoever changes it.
pub(crate) fn set_owners(
    plane: &mut Plane,
    number: usize,
    config: DiskConfig,
    now: Instant,
) -> Result<(), henge_core::Refused> {
    let contract = Contract { pending: None, ..config.contract.clone() };
    // What was promised before might not be promised again, so nobody is told before all would take it.
    check(plane, number, &contract)?;
    let mut told = Vec::new();
    for owner in plane.disks.owners(number) {
        let old = plane.disks.of(owner).config.clone();
        let new = DiskConfig { contract: contract.clone(), terms: config.terms.clone(), ..old.clone() };
        if let Err(refused) = plane.set_contract(owner, new, now) {
            // Two of its extents are at one gate, which takes either and not both. Whose bound it would not promise again keeps the new one.
            told.into_iter().for_each(|(owner, old)| drop(plane.set_contract(owner, old, now)));
            return Err(refused);
        }
        told.push((owner, old));
    }
    plane.disks.of(number).config = config;
    Ok(())
}

/// Whether all gates would take a disk's contract, as they are.
fn check(plane: &mut Plane, number: usize, contract: &Contract) -> Result<(), henge_core::Refused> {
    if plane.disks.of(number).spread.is_some() {
        let owners = plane.disks.owners(number);
        return owners.into_iter().try_for_each(|owner| check(plane, owner, contract));
    }
    let disk = plane.disks[number].as_ref().expect("a disk that was found");
    let among = (disk.config.leeway, disk.extent.among);
    plane.pools.check(&disk.vdisk, contract, among).map(drop)
}

/// Removes a spread disk that has nothing pending, and its parts here.
pub(crate) fn remove_spread(plane: &mut Plane, number: usize, now: Instant) {
    let owners = plane.disks.owners(number);
    let disk = make::take_disk(plane, number).expect("a disk that was found");
    assert_eq!(disk.vdisk.pending(), 0, "commands are aborted before their disk goes");
    let spread = disk.spread.expect("a spread disk");
    plane.seats.forget(number);
    let shared = spread.shared.iter().flat_map(seat::Seat::extents);
    let own = spread.extents.iter().copied().filter(|_| spread.shared.is_none());
    for at in own.chain(shared) {
        if let At::There(peer, toward) = at {
            plane.links.peer(peer).extents.give_up(toward);
        }
    }
    for owner in owners {
        plane.remove_disk(owner, now);
    }
}

/// Takes back a disk on several shards, without commands. Its parts stay where they are.
pub(crate) fn withdraw(plane: &mut Plane, number: usize, now: Instant) {
    let owners = plane.disks.owners(number);
    make::take_disk(plane, number);
    owners.into_iter().for_each(|owner| make::drop_extent(plane, owner, now));
}

/// Where a disk's extents are not served, for people.
pub(crate) fn trouble(plane: &Plane, disk: &Disk) -> Vec<String> {
    let Some(spread) = &disk.spread else { return Vec::new() };
    if let Some(seat) = &spread.shared {
        return seat.trouble(spread.extents[0]).into_iter().collect();
    }
    let extents = spread.extents.iter().zip(&disk.config.places);
    let trouble = extents.filter_map(|(at, place)| match at {
        At::Here(_) | At::Across(..) | At::Nowhere => None,
        At::There(peer, toward) => {
            let peer = plane.links.peers[*peer].as_ref()?;
            peer.trouble(*toward).map(|why| format!("{place}: {why}"))
        }
    });
    trouble.collect()
}
