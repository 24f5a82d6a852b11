//! Seats are taken, left and looked for (`seat.rs`).

use super::layout::{align_of, extent_lens, layout};
use super::seat::{Acts, Seat, Vacant};
use super::{At, FLOW, acts, shape};
use crate::config::DiskConfig;
use crate::plane::{Disk, NotAdded, PartOf, Plane, make};
use crate::spread::coordinator;
use henge_backend::{Claim, Store};
use henge_core::{DepthPart, Duration, Fault, Instant, ParamError, RequestId};
use henge_link::lives::TURN;
use henge_vdisk::{Failure, Kind, Part, VirtualDisk};
use std::collections::VecDeque;

/// After a claim that failed the next one waits so long.
const AGAIN: Duration = Duration::from_secs(1);
/// Vacant disks told of at once.
const TOLD: usize = 256;

/// Why a drained gateway has a disk still.
fn why_it_stays(others: &[String], what: &str) -> String {
    format!("this gateway is drained and has it still: none of its others ({}) {what}", others.join(", "))
}

/// Makes a disk that several gateways can serve. Where its image was opened for it, it has the seat.
pub(super) fn add_shared(plane: &mut Plane, config: DiskConfig, now: Instant) -> Result<usize, NotAdded> {
    let wrong = |message: String| ParamError {
        message: format!("disk \"{}\": {message}", config.name),
        help: None,
        span: config.spans.capacity.clone(),
    };
    let settings =
        henge_vdisk::Settings { owners: true, align: align_of(&config), ..config.cutting.settings };
    let layout = layout(&config, config.capacity).map_err(|e| wrong(e.to_string()))?;
    let vdisk = VirtualDisk::new(FLOW, layout, settings).map_err(|e| wrong(e.to_string()))?;
    let len = extent_lens(&config, config.capacity)[0];
    let mut owner = None;
    if let Some(&pool) = config.pools.first() {
        let parts = plane.pools.parts_of(&DiskConfig { places: Vec::new(), ..config.clone() }, len, 0);
        let is_open = |part: &PartOf| plane.pools.gates[part.gate].pipeline.backend().has_part(&part.name);
        if parts.iter().all(is_open) {
            owner = Some(make::add_extent(plane, &config, pool, 0, len, now)?);
        }
    }
    let number = plane.disks.free_number();
    let mut others = Vec::new();
    let here = plane.links.here().map(str::to_owned);
    for node in config.gateways.iter().filter(|node| Some(*node) != here.as_ref()) {
        let peer = plane.links.find(node).expect("the configuration names peers");
        others.push((peer, plane.links.attach(peer, &config.name, number, 0, shape(&config))));
    }
    let mut spread = coordinator::spread(plane, &config, 1);
    spread.extents.push(owner.map_or(At::Nowhere, At::Here));
    spread.units.push(owner.and_then(|owner| coordinator::unit_of(plane, owner)));
    spread.shared = Some(Seat {
        others,
        held: VecDeque::new(),
        leaving: None,
        claiming: false,
        since: now,
        not_before: now,
        had: owner.is_some(),
        why: String::new(),
        untaken: false,
        stays: String::new(),
        acts: Acts::default(),
    });
    match owner {
        Some(owner) => plane.disks.of(owner).extent.disk = Some(number),
        None => _ = plane.seats.vacant.insert(number),
    }
    let mut disk = Disk::new(config, vdisk, Vec::new());
    disk.spread = Some(Box::new(spread));
    make::put_disk(plane, number, disk);
    acts::say_seat(plane, number);
    Ok(number)
}

/// The parts that are made when a shared disk is added: the first of its gateways makes them.
pub(super) fn parts_to_make(plane: &Plane, config: &DiskConfig, len: u64) -> Vec<PartOf> {
    let first = config.gateways.first().map(String::as_str);
    if first != plane.links.here() || !plane.disks.settled {
        return Vec::new();
    }
    let claim = Claim { makes: true, known: false, ..claim(plane) };
    parts_claimed(plane, config, len, claim)
}

/// The parts of a disk whose seat another gateway has, if it had `capacity` bytes.
pub(crate) fn parts_elsewhere(plane: &Plane, number: usize, capacity: u64) -> Vec<PartOf> {
    let disk = plane.disks[number].as_ref().expect("a disk that was found");
    let shared = disk.spread.as_ref().filter(|spread| spread.shared.is_some());
    if !shared.is_some_and(|spread| matches!(spread.extents[0], At::There(..))) {
        return Vec::new();
    }
    let config = DiskConfig { places: Vec::new(), ..disk.config.clone() };
    plane.pools.parts_of(&config, extent_lens(&disk.config, capacity)[0], 0)
}

fn claim(plane: &Plane) -> Claim {
    let me = plane.links.here().unwrap_or_default().to_owned();
    Claim { me, epoch: plane.links.epoch, ..Claim::default() }
}

fn parts_claimed(plane: &Plane, config: &DiskConfig, len: u64, claim: Claim) -> Vec<PartOf> {
    let parts = plane.pools.parts_of(&DiskConfig { places: Vec::new(), ..config.clone() }, len, 0);
    parts.into_iter().map(|part| PartOf { claim: Some(claim.clone()), ..part }).collect()
}

/// Of the depth that all gateways of a gate's storage share, this one has this part.
pub(crate) fn divide_depth(plane: &mut Plane, gate: usize, part: DepthPart, now: Instant) {
    plane.pools.gates[gate].pipeline.gate_mut().divide_depth(part, now);
    plane.pools.list(gate);
}

/// Disks on a gate's storage that nobody has, some of them.
pub(crate) fn vacant(plane: &Plane, gate: usize, now: Instant) -> Vec<Vacant> {
    let on =
        |config: &DiskConfig| config.pools.first().is_some_and(|p| plane.pools[*p].gates.contains(&gate));
    let all = plane.seats.vacant.iter().filter_map(|number| plane.disks[*number].as_ref());
    let due = all.filter_map(|disk| {
        let seat = disk.spread.as_ref()?.shared.as_ref()?;
        let due = !seat.claiming && seat.not_before <= now && on(&disk.config);
        due.then(|| Vacant {
            name: disk.config.name.clone(),
            gateways: disk.config.gateways.clone(),
            time: now.since(seat.since),
        })
    });
    due.take(TOLD).collect()
}

/// Begins to claim a disk's image, if nobody has it: its parts.
pub(crate) fn begin_claim(plane: &mut Plane, name: &str, lives: Claim) -> Option<Vec<PartOf>> {
    let number = plane.disks.number(name).filter(|number| plane.seats.vacant.contains(number))?;
    let config = plane.disks.of(number).config.clone();
    let (at, seat) = plane.disks.seat(number)?;
    if *at != At::Nowhere || std::mem::replace(&mut seat.claiming, true) {
        return None;
    }
    let had = seat.had;
    let makes = !had && config.gateways.first().map(String::as_str) == plane.links.here();
    let claim = Claim { makes, known: true, dead: lives.dead, alive: lives.alive, ..claim(plane) };
    let len = extent_lens(&config, config.capacity)[0];
    Some(parts_claimed(plane, &config, len, claim))
}

/// A claim is over; parts that are open and not needed are returned.
pub(crate) fn end_claim(
    plane: &mut Plane,
    name: &str,
    parts: Vec<PartOf>,
    outcome: Result<(), String>,
    now: Instant,
) -> Vec<PartOf> {
    let Some(number) = plane.disks.number(name) else { return parts }; // it was removed meanwhile
    let Some((at, seat)) = plane.disks.seat(number) else { return parts };
    seat.claiming = false;
    let why = match outcome {
        Ok(()) if *at != At::Nowhere => "another gateway says that it has it".into(),
        Ok(()) => match take_seat(plane, number, now) {
            Ok(()) => return Vec::new(),
            Err(why) => why,
        },
        Err(why) => {
            not_seated(plane, number, why, now);
            return Vec::new();
        }
    };
    not_seated(plane, number, why, now);
    parts
}

fn not_seated(plane: &mut Plane, number: usize, why: String, now: Instant) {
    let Some((_, seat)) = plane.disks.seat(number) else { return };
    seat.not_before = now + AGAIN;
    if seat.why != why {
        seat.why.clone_from(&why);
        let name = plane.disks.of(number).config.name.clone();
        plane.observers.notice(&name, format!("it cannot be served here now: {why}"));
    }
}

fn take_seat(plane: &mut Plane, number: usize, now: Instant) -> Result<(), String> {
    let config = plane.disks.of(number).config.clone();
    let len = extent_lens(&config, config.capacity)[0];
    let owner =
        make::add_extent(plane, &config, config.pools[0], 0, len, now).map_err(|e| e.error.message)?;
    plane.disks.of(owner).extent.disk = Some(number);
    let (unit, drained, others) =
        (coordinator::unit_of(plane, owner), plane.seats.drained, others_of(plane, &config));
    let spread = plane.disks.of(number).spread.as_mut().expect("a shared disk");
    (spread.extents[0], spread.units[0]) = (At::Here(owner), unit);
    let seat = spread.shared.as_mut().expect("a shared disk");
    (seat.had, seat.why) = (true, String::new());
    seat.untaken = drained && now.since(seat.since) >= TURN;
    let mut told = "it is served here now".to_owned();
    if seat.untaken {
        told = why_it_stays(&others, "took it in its turn; look at it there, and drain this one again");
        seat.stays.clone_from(&told);
    }
    plane.seats.vacant.remove(&number);
    plane.seats.moved.push(number);
    acts::say_seat(plane, number);
    plane.observers.notice(&config.name, told);
    plane.links.doubt_no_more_of(number);
    plane.hand_out_extents(number, now);
    Ok(())
}

/// A gateway says that it takes a disk's parts.
pub(super) fn seated_there(plane: &mut Plane, number: usize, there: (usize, u32), now: Instant) {
    let Some((at, seat)) = plane.disks.seat(number) else { return };
    if !matches!(at, At::Here(_)) {
        *at = At::There(there.0, there.1);
        (seat.had, seat.why) = (true, String::new());
        plane.seats.vacant.remove(&number);
        plane.seats.found.push(number);
        acts::say_seat(plane, number);
        plane.links.doubt_no_more_of(number);
        plane.hand_out_extents(number, now);
    }
}

/// A gateway says that it does not.
pub(crate) fn refused_there(plane: &mut Plane, there: (usize, u32), now: Instant) {
    let disks = plane.links.peers[there.0].as_ref().and_then(|peer| peer.extents.disk_of(there.1));
    if let Some(number) = disks {
        look_for(plane, number, now);
    }
}

/// A link is lost: disks that were served by it are looked for.
pub(crate) fn lost_link(plane: &mut Plane, peer: usize, now: Instant) {
    let there = |disk: &Disk| {
        disk.spread
            .as_ref()
            .is_some_and(|s| s.shared.is_some() && matches!(s.extents[0], At::There(p, _) if p == peer))
    };
    let lost = plane.disks.iter().enumerate().filter(|(_, disk)| disk.as_ref().is_some_and(there));
    for number in lost.map(|(number, _)| number).collect::<Vec<_>>() {
        look_for(plane, number, now);
    }
}

/// The gateway that had it may have it no more: another one that says it has, or nobody.
fn look_for(plane: &mut Plane, number: usize, now: Instant) {
    let Some((at, seat)) = plane.disks.seat(number) else { return };
    let (was, others) = (*at, seat.others.clone());
    if matches!(was, At::Here(_)) {
        return;
    }
    let links = &plane.links;
    let takes =
        |(peer, toward): &&(usize, u32)| links.peers[*peer].as_ref().is_some_and(|peer| peer.takes(*toward));
    let found = others.iter().find(takes).map_or(At::Nowhere, |(peer, toward)| At::There(*peer, *toward));
    if found == was {
        return;
    }
    let (at, seat) = plane.disks.seat(number).expect("it was just there");
    *at = found;
    seat.since = now;
    acts::say_seat(plane, number);
    let (_, seat) = plane.disks.seat(number).expect("it was just there");
    match found {
        At::Nowhere if seat.leaving.is_none() => _ = plane.seats.vacant.insert(number),
        At::Nowhere => {}
        _ => {
            plane.seats.vacant.remove(&number);
            plane.seats.found.push(number);
            plane.hand_out_extents(number, now);
        }
    }
}

/// A part has not reached its gateway, or that one has not answered: it is handed out again, if it may be.
pub(super) fn hold(plane: &mut Plane, number: usize, part: &Part, now: Instant) -> bool {
    let disk = plane.disks[number].as_ref().expect("a disk with parts stays");
    // What compares may have been done; what was given up is not to be done any more.
    let again = part.kind != Kind::CompareAndWrite && !disk.vdisk.is_given_up(part.id.command);
    let Some((at, seat)) = plane.disks.seat(number) else { return false };
    if again {
        seat.held.push_back(*part);
    }
    if let At::Here(_) = at {
        leave(plane, number, "its storage answers that this node was shut out", now);
    } else {
        look_for(plane, number, now);
    }
    plane.hand_out_extents(number, now);
    again
}

/// Whether an owner's storage is another gateway's by now; then it takes nothing more.
pub(crate) fn is_lost(plane: &mut Plane, owner: usize, now: Instant) -> bool {
    let Some(number) = plane.disks[owner].as_ref().and_then(|disk| disk.extent.disk) else { return false };
    let Some((at, seat)) = plane.disks.seat(number) else { return false };
    if *at == At::Here(owner) {
        leave(plane, number, "its storage answers that this node was shut out", now);
        return true;
    }
    seat.leaving == Some(owner)
}

/// The owner here takes nothing more.
fn leave(plane: &mut Plane, number: usize, why: &str, now: Instant) {
    let Some((at, seat)) = plane.disks.seat(number) else { return };
    let At::Here(owner) = *at else { return };
    *at = At::Nowhere;
    seat.stays.clear();
    (seat.leaving, seat.since) = (Some(owner), now);
    seat.why = why.to_owned();
    plane.seats.leaving.insert(number);
    plane.seats.moved.push(number);
    acts::say_seat(plane, number);
    let name = plane.disks.of(number).config.name.clone();
    plane.observers.notice(&name, format!("it is not served here any more: {why}"));
    look_for(plane, number, now);
}

/// Lets go of the disks on a gate's storage.
pub(crate) fn leave_all(plane: &mut Plane, gate: usize, why: &str, now: Instant) {
    seated_on(plane, gate).into_iter().for_each(|number| leave(plane, number, why, now));
}

/// The other gateways of a disk.
fn others_of(plane: &Plane, config: &DiskConfig) -> Vec<String> {
    let others = config.gateways.iter().filter(|name| Some(name.as_str()) != plane.links.here());
    others.cloned().collect()
}

/// The disks on a gate's storage that this node has.
fn seated_on(plane: &Plane, gate: usize) -> Vec<usize> {
    let is_on =
        |disk: &Disk| disk.config.pools.first().is_some_and(|p| plane.pools[*p].gates.contains(&gate));
    let is_here = |disk: &Disk| {
        let spread = disk.spread.as_ref().filter(|spread| spread.shared.is_some());
        spread.is_some_and(|spread| matches!(spread.extents[0], At::Here(_)))
    };
    let all = plane.disks.iter().enumerate();
    let found = all.filter(|(_, disk)| disk.as_ref().is_some_and(|disk| is_here(disk) && is_on(disk)));
    found.map(|(number, _)| number).collect()
}

/// This node takes no seats from now on, and lets go of those that others take; or takes them again.
pub(crate) fn drain(plane: &mut Plane, on: bool) {
    plane.seats.drained = on;
    let seats = plane.disks.iter_mut().flatten().filter_map(|disk| disk.spread.as_mut()?.shared.as_mut());
    for seat in seats {
        seat.untaken = false;
        seat.stays.clear();
    }
}

/// A drained node lets go of the disks on a gate's storage for which another gateway is linked and takes disks, as `to` says.
pub(crate) fn let_go(plane: &mut Plane, gate: usize, to: &[String], now: Instant) {
    if !plane.seats.drained {
        return; // no more
    }
    for number in seated_on(plane, gate) {
        let others =
            plane.disks[number].as_ref().map_or_else(Vec::new, |disk| others_of(plane, &disk.config));
        let peer = |name: &str| plane.links.peers[plane.links.find(name)?].as_ref();
        let is_linked = |name: &str| peer(name).is_some_and(|peer| peer.link.is_some());
        let taken = others.iter().any(|name| to.contains(name) && is_linked(name));
        let Some((_, seat)) = plane.disks.seat(number) else { continue };
        if seat.untaken {
            continue;
        }
        if taken {
            leave(plane, number, "this gateway is drained", now);
        } else {
            seat.stays = why_it_stays(&others, "is linked and takes disks; it moves once one does");
        }
    }
}

/// A disk whose peers are to hear where it is.
pub(crate) fn next_moved(plane: &mut Plane) -> Option<String> {
    let number = plane.seats.moved.pop()?;
    plane.disks[number].as_ref().map(|disk| disk.config.name.clone())
}

/// A disk to which there is another way.
pub(crate) fn next_found(plane: &mut Plane) -> Option<usize> {
    std::iter::from_fn(|| plane.seats.found.pop()).find(|number| plane.disks[*number].is_some())
}

/// A disk whose owner here has nothing under way any more: the owner is gone, and these parts of it are to be closed.
pub(crate) fn next_left(plane: &mut Plane, now: Instant) -> Option<(String, Vec<PartOf>)> {
    let quiet = |number: &&usize| {
        let seat = plane.disks[**number].as_ref().and_then(|d| d.spread.as_ref()?.shared.as_ref());
        let owner = seat.and_then(|seat| plane.disks[seat.leaving?].as_ref());
        owner.is_none_or(|owner| owner.vdisk.pending() == 0)
    };
    let number = *plane.seats.leaving.iter().find(quiet)?;
    plane.seats.leaving.remove(&number);
    let (_, seat) = plane.disks.seat(number)?;
    let owner = seat.leaving?;
    let config = plane.disks.of(owner).config.clone();
    let parts = plane.pools.parts_of(&config, config.capacity, 0);
    make::drop_extent(plane, owner, now);
    Some((plane.disks.of(number).config.name.clone(), parts))
}

/// Its image is closed: whoever is next may have it.
pub(crate) fn left(plane: &mut Plane, name: &str) {
    let Some(number) = plane.disks.number(name) else { return };
    let Some((at, seat)) = plane.disks.seat(number) else { return };
    seat.leaving = None;
    if *at == At::Nowhere {
        plane.seats.vacant.insert(number);
    }
}

/// Whether a disk's owner is about to go.
pub(crate) fn is_moving(plane: &mut Plane, number: usize) -> bool {
    plane.disks.seat(number).is_some_and(|(_, seat)| seat.leaving.is_some() || seat.claiming)
}

/// Who has a shared disk, for people.
pub(crate) fn seat_of(plane: &Plane, disk: &Disk) -> Option<String> {
    disk.seat(&plane.links).map(str::to_owned)
}

/// Why this gateway, which is drained, has a shared disk still.
pub(crate) fn stays(disk: &Disk) -> Option<String> {
    let seat = disk.spread.as_ref()?.shared.as_ref()?;
    Some(seat.stays.clone()).filter(|why| !why.is_empty())
}

/// Where parts of these commands may be; those that are held are over.
pub(super) fn give_up_held(plane: &mut Plane, number: usize, theirs: &[RequestId]) -> Vec<At> {
    let disk = plane.disks[number].as_mut().expect("a disk in use is there");
    let spread = disk.spread.as_deref_mut().expect("a spread disk");
    let mut extents = spread.extents.clone();
    if let Some(seat) = &mut spread.shared {
        extents.retain(|at| matches!(at, At::Here(_)));
        extents.extend(seat.extents());
        let mut over = Vec::new();
        seat.held.retain(|part| {
            let stays = theirs.binary_search(&part.id.command).is_err();
            over.extend((!stays).then_some(part.id));
            stays
        });
        for id in over {
            disk.vdisk.part_done(id, Err(Failure::Fault(Fault::Cancelled)));
        }
    }
    extents
}

#[cfg(test)]
mod tests;
