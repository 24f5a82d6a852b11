//! Disks of several gateways: which nodes they are given, and where they go when one of those is drained.
//!
//! # The rule
//! Pools of one name on the same storage, at nodes that reach each other, are one shared pool. A disk there is at all of them: any has
//! its bytes, and one at a time has its *seat*, which nodes settle among themselves. So each of them must be able to keep all of the contract,
//! whichever is left. A gateway that could not is left out. The one with the fewest disks is the first to have it.
//!
//! Who is drained is remembered here, and said to the node whenever it comes. Where a disk is, its nodes say by their meters.

use super::{Caller, Failure, Inventory, Machine, NodeState};
use crate::decide::{self, Chosen, PoolState};
use crate::kept::Requested;
use crate::model::DiskSpec;
use crate::shorten::shorten;
use henge_admission::Specification;
use henge_api::manager::{Held, Origin};
use serde::Serialize;
use utoipa::ToSchema;

/// Most gateways of a disk.
const GATEWAYS_MAX: usize = 16;

/// What becomes of a disk of a node that is drained.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Leaving {
    /// The disk, as nodes call it.
    pub disk: String,
    /// Where it is with that.
    pub state: Leaves,
    /// The gateway that has it, where one has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Why it stays, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Where a disk is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Leaves {
    /// Another gateway has it.
    Moved,
    /// It is on its way.
    Moving,
    /// It does not go, or not now.
    Stays,
}

/// The first pool of a disk as its node tells it, without the node's name.
fn pool_of(held: &Held) -> &str {
    let place = held.pools.first().map_or("", String::as_str);
    place.split_once('/').map_or(place, |(_, pool)| pool)
}

/// The places of a shared disk that was found at a node: its pool at each of its gateways.
pub(super) fn places(held: &Held) -> Vec<String> {
    held.gateways.iter().map(|node| format!("{node}/{}", pool_of(held))).collect()
}

/// Whether somebody may begin a disk with what is there already, which may be anybody's.
pub(super) fn allowed(caller: &Caller, spec: &DiskSpec, origin: &Origin) -> Result<(), Failure> {
    if origin.is_default() {
        return Ok(());
    }
    if !caller.is_administrator() {
        let why = "image, from and adopt name what is on the storage already, whoever's it is: ask the administrator";
        return Err(Failure::Forbidden(why.into()));
    }
    if origin.image.is_some() && origin.from.is_some() {
        let why = "image is one that is there, from makes one: leave one of them out";
        return Err(Failure::Bad(why.into()));
    }
    if spec.parts().unwrap_or(1) > 1 && (origin.image.is_some() || origin.from.is_some()) {
        return Err(Failure::Bad("a disk with image or from is one image, so it has one part".into()));
    }
    Ok(())
}

impl Machine {
    /// Places no new disks on a node, which lets go of those that other gateways can serve; or places them there again.
    pub fn drain(&mut self, name: &str, draining: bool) -> Result<(), Failure> {
        let Some(node) = self.inventory.node(name) else {
            return Err(Failure::Missing(format!("there is no node \"{}\"", shorten(name))));
        };
        // Said again, too: a gateway then tries again what it could not let go of.
        self.outbox.drain(name, draining);
        if node.record.draining == draining {
            return Ok(());
        }
        let mut node = node.clone();
        node.record.draining = draining;
        self.inventory.put_node(&mut self.journal, name, Some(node));
        let text = if draining { "takes no new disks" } else { "takes new disks again" };
        self.journal.put_event(if draining { "drained" } else { "undrained" }, None, Some(name), text.into());
        Ok(())
    }
}

/// The same place at every node that shares its pool and could keep the disk, the first to have it at the front.
pub(super) fn gateways_of(
    inventory: &Inventory,
    first: &Chosen,
    specification: &Specification,
    asked: &Requested,
) -> Vec<Chosen> {
    let alone = vec![first.clone()];
    let Some(pool) =
        inventory.pool(&first.node, &first.pool).filter(|pool| pool.linked && pool.shared.is_some())
    else {
        return alone;
    };
    let (part, best_effort) = (specification.part(1), specification.is_best_effort());
    let takes = |pool: &PoolState| {
        let roomy = pool.copies >= part.copies && pool.free() >= part.capacity;
        if roomy { decide::again(pool, &part, best_effort).ok() } else { None }
    };
    let alike = |other: &&PoolState| other.linked && other.pool == pool.pool && other.shared == pool.shared;
    let mut chosen: Vec<Chosen> = inventory.pools.values().filter(alike).filter_map(takes).collect();
    // One contract for all of them: what the one takes that takes most.
    let most = chosen.iter().map(|c| c.reserved_micro).max().unwrap_or(0);
    let keeps =
        |c: &Chosen| inventory.pool(&c.node, &c.pool).is_some_and(|pool| asked.at(pool, most).is_ok());
    chosen.retain(keeps);
    let open = |c: &Chosen| inventory.pool(&c.node, &c.pool).is_some_and(|pool| pool.open);
    let begins = chosen.iter().filter(|c| open(c)).min_by_key(|c| (firsts(inventory, c), &c.node)).cloned();
    let Some(begins) = begins else { return alone };
    chosen.retain(|c| c.node != begins.node);
    chosen.truncate(GATEWAYS_MAX - 1);
    chosen.insert(0, begins);
    chosen
}

/// Shared disks of which this place is the first.
fn firsts(inventory: &Inventory, place: &Chosen) -> usize {
    let on = inventory.on.get(&(place.node.clone(), place.pool.clone())).into_iter().flatten();
    on.filter(|name| inventory.disks[*name].parts.first().is_some_and(|part| part.node == place.node)).count()
}

/// What becomes of the disks of a node that is drained.
pub(crate) fn leaving(inventory: &Inventory, node: &NodeState) -> Vec<Leaving> {
    let name = &node.record.name;
    let managed = inventory.disks.values().filter_map(|disk| {
        let part = disk.parts.iter().find(|part| part.node == *name)?;
        let nodes: Vec<&str> = disk.parts.iter().map(|part| part.node.as_str()).collect();
        Some(leaves(inventory, node, &disk.name, (&part.pool, disk.shared), &nodes))
    });
    let own = node.record.own.iter().map(|held| {
        let pool = pool_of(held);
        let nodes: Vec<&str> = held.gateways.iter().map(String::as_str).collect();
        leaves(inventory, node, &held.name, (pool, !nodes.is_empty()), &nodes)
    });
    managed.chain(own).collect()
}

fn leaves(
    inventory: &Inventory,
    node: &NodeState,
    disk: &str,
    (pool, shared): (&str, bool),
    nodes: &[&str],
) -> Leaving {
    let name = node.record.name.as_str();
    let stays = |at: Option<String>, why: String| Leaving {
        disk: disk.into(),
        state: Leaves::Stays,
        at,
        why: Some(why),
    };
    if !shared || nodes.len() < 2 {
        let why = match nodes.len() {
            0 | 1 => format!("no other node serves it from {name}/{pool}"),
            _ => format!("a part of it is on {name}/{pool}"),
        };
        let why = format!("{why}: stop its clients, or copy it to a disk elsewhere (nbdcopy) and remove it");
        return stays(None, why);
    }
    let says = |node: &str| inventory.nodes.get(node)?.status.as_ref()?.disk(disk);
    let here = says(name);
    let others = nodes.iter().filter(|other| **other != name);
    let seat = here.and_then(|disk| disk.seating.seat.clone());
    let seat = seat.or_else(|| others.clone().find_map(|other| says(other)?.seating.seat.clone()));
    let moved = |at: &String| at != name && nodes.contains(&at.as_str());
    if let Some(at) = seat.clone().filter(moved) {
        return Leaving { disk: disk.into(), state: Leaves::Moved, at: Some(at), why: None };
    }
    if let Some(why) = here.and_then(|disk| disk.seating.stays.clone()) {
        return stays(seat, why);
    }
    Leaving { disk: disk.into(), state: Leaves::Moving, at: seat, why: None }
}

#[cfg(test)]
mod tests;
