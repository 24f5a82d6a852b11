//! Shared disks come to this gateway and go: what the loop does when somebody else has found out whose turn it is.

use super::Server;
use super::work::Waiter;
use crate::message::Seats;
use crate::plane::PartOf;
use crate::plane::tickets::Work;
use crate::server::links;
use crate::spread::seating;
use henge_backend::Claim;
use std::sync::mpsc::Sender;

/// The pools that other nodes may share, where there are other nodes.
pub(super) fn shared_pools(server: &Server) -> Vec<crate::message::Shared> {
    if server.plane.links.here().is_none() {
        return Vec::new();
    }
    let gates = server.plane.pools.gates.iter().enumerate();
    gates.filter_map(|(g, gate)| Some((g, gate.pipeline.backend().register()?))).collect()
}

pub(super) fn tell_seats(server: &mut Server, gate: usize, reply: &Sender<Seats>) {
    let demand = server.plane.pools.gates[gate].pipeline.gate_mut().demand(server.now);
    let (links, drained) = (&server.plane.links, server.plane.seats.drained);
    // Whoever asked may have gone.
    let _ = reply.send(Seats {
        me: links.here().unwrap_or_default().to_owned(),
        epoch: links.epoch,
        others: links.peers.iter().flatten().map(|peer| peer.config.name.clone()).collect(),
        vacant: seating::vacant(&server.plane, gate, server.now),
        serves: !drained && server.stopping.is_none(),
        drained: drained && server.stopping.is_none(),
        demand,
    });
}

/// It is this node's turn to have a disk.
pub(super) fn claim_seat(server: &mut Server, disk: String, claim: Claim) {
    if server.stopping.is_some()
        || server.plane.disks.number(&disk).is_some_and(|number| server.work.is_leaving(number))
    {
        return;
    }
    let Some(parts) = seating::begin_claim(&mut server.plane, &disk, claim) else { return };
    let works = parts.iter().cloned().map(Work::Make).collect();
    server.work.begin(&mut server.plane, &disk.clone(), works, Waiter::Claimed(disk, parts), server.now);
}

/// A claim is over.
pub(super) fn claimed(server: &mut Server, disk: String, parts: Vec<PartOf>, outcome: Result<(), String>) {
    let parts = seating::end_claim(&mut server.plane, &disk, parts, outcome, server.now);
    if !parts.is_empty() {
        release(server, disk, parts);
    }
}

fn release(server: &mut Server, disk: String, parts: Vec<PartOf>) {
    let works = parts.into_iter().map(Work::Release).collect();
    server.work.begin(&mut server.plane, &disk.clone(), works, Waiter::Released(disk), server.now);
}

/// Peers hear of what has moved; owners that are quiet go.
pub(super) fn move_seats(server: &mut Server) {
    while let Some(disk) = seating::next_moved(&mut server.plane) {
        links::reconsider_links(server, &disk);
        tell_ways(server, server.plane.disks.number(&disk));
    }
    while let Some(number) = seating::next_found(&mut server.plane) {
        tell_ways(server, Some(number));
    }
    while let Some((disk, parts)) = seating::next_left(&mut server.plane, server.now) {
        release(server, disk, parts);
    }
}

/// Initiators and hosts hear of it where some gateway has the disk. While none has it, what was said last stands.
fn tell_ways(server: &mut Server, number: Option<usize>) {
    let disk = number.and_then(|number| Some((number, server.plane.disks[number].as_ref()?)));
    if let Some((number, disk)) = disk.filter(|(_, disk)| disk.seat(&server.plane.links).is_some()) {
        server.registry.tell_ways(number, disk, &server.plane.links);
    }
}

/// Somebody else has broken this node's locks.
pub(super) fn shut_out(server: &mut Server, gate: usize) {
    let why = "this node was shut out of the storage, and must begin again";
    seating::leave_all(&mut server.plane, gate, why, server.now);
}
