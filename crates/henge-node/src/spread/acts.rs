//! Shared disks and the table that says who may use them: it lies with the image, and is read by whoever has taken the seat.
//!
//! Until this gateway acts by the table of the gateway with the seat ([`crate::targets`]), its clients' commands wait here. They may have been
//! taken in by an older table: of initiators and hosts those that the newer one forbids are given up before the rest goes on. And the owner does
//! nothing for a gateway that has not said that it acts so.

use super::At;
use super::layout::extent_lens;
use super::seat::Acts;
use crate::config::DiskConfig;
use crate::links::{News, Seated};
use crate::plane::Plane;
use henge_backend::{ImageMetadata, Store};
use henge_core::Instant;
use std::sync::Arc;

/// The seat has moved, or a disk with a seat has come: commands wait until this gateway acts by that one's table.
pub(crate) fn say_seat(plane: &mut Plane, number: usize) {
    let Some((at, seat)) = plane.disks.seat(number) else { return };
    let at = *at;
    seat.acts = Acts { turn: seat.acts.turn + 1, ..Acts::default() };
    let turn = seat.acts.turn;
    let disk = plane.disks[number].as_ref().expect("a disk with a seat is there");
    let seated = match at {
        At::Here(_) => Seated::Here(metadata(plane, &disk.config)),
        At::There(peer, _) => Seated::There(peer),
        // A disk with gateways lies on one shard.
        At::Across(..) | At::Nowhere => Seated::Nowhere,
    };
    let name = disk.config.name.clone();
    plane.links.news.push_back(News::Seat { disk: name, turn, seated });
}

/// The metadata of a shared disk's image; of a disk in several images, of the first.
fn metadata(plane: &Plane, config: &DiskConfig) -> Option<Arc<dyn ImageMetadata>> {
    let len = extent_lens(config, config.capacity)[0];
    let parts = plane.pools.parts_of(&DiskConfig { places: Vec::new(), ..config.clone() }, len, 0);
    let first = parts.first()?;
    plane.pools.gates[first.gate].pipeline.backend().metadata(&first.name)
}

/// Since that move of a seat, this gateway acts by its table; or does so no longer.
pub(crate) fn act(plane: &mut Plane, number: usize, turn: u64, acts: bool) {
    let Some((at, seat)) = plane.disks.seat(number).filter(|(_, seat)| seat.acts.turn == turn) else {
        return;
    };
    if std::mem::replace(&mut seat.acts.here, acts) || !acts {
        return;
    }
    let is_here = matches!(at, At::Here(_));
    plane.seats.acting.push(number);
    if is_here {
        plane.seats.moved.push(number); // peers may come now
    }
}

/// The same of a peer, whose parts come to this gateway.
pub(crate) fn admit(plane: &mut Plane, number: usize, turn: u64, peer: usize, acts: bool) {
    let Some((_, seat)) = plane.disks.seat(number).filter(|(_, seat)| seat.acts.turn == turn) else {
        return;
    };
    seat.acts.peers.retain(|known| *known != peer);
    seat.acts.peers.extend(acts.then_some(peer));
}

/// Whether an owner does what a peer asks: it may ask by what is old.
pub(crate) fn admits(plane: &Plane, owner: usize, peer: Option<usize>) -> bool {
    let disk = plane.disks[owner].as_ref().and_then(|owner| plane.disks[owner.extent.disk?].as_ref());
    let seat = disk.and_then(|disk| disk.spread.as_ref()?.shared.as_ref());
    seat.is_none_or(|seat| peer.is_some_and(|peer| seat.acts.peers.contains(&peer)))
}

/// Hands out what has waited for a table.
pub(crate) fn go_on_acting(plane: &mut Plane, now: Instant) {
    while let Some(number) = plane.seats.acting.pop() {
        if plane.disks[number].is_some() {
            plane.hand_out_extents(number, now);
        }
    }
}

/// Whether a disk's owner has commands of peers whose link is lost.
pub(crate) fn has_orphans(
    disks: &[Option<crate::plane::Disk>],
    links: &[henge_core::RequestId],
    number: usize,
) -> bool {
    let spread = disks.get(number).and_then(|disk| disk.as_ref()?.spread.as_ref());
    let Some(At::Here(owner)) = spread.and_then(|spread| spread.extents.first()) else { return false };
    let in_flight = disks[*owner].iter().flat_map(|owner| owner.in_flight.iter().flatten());
    let mut submitters = in_flight.map(|command| command.submitter.connection);
    submitters.any(|submitter| submitter != super::INNER && !links.contains(&submitter))
}
