//! Shared disks come to this gateway and go: what the loop does when somebody else has found out whose turn it is.

use super::Server;
use super::administer::Waiter;
use crate::message::Seats;
use crate::plane::PartOf;
use crate::plane::tickets::Work;
use crate::spread::seating;
use henge_backend::Claim;
use std::sync::mpsc::Sender;

impl Server {
    /// The pools that other nodes may share, where there are other nodes.
    pub(super) fn shared_pools(&self) -> Vec<crate::message::Shared> {
        if self.plane.links.here().is_none() {
            return Vec::new();
        }
        let gates = self.plane.pools.gates.iter().enumerate();
        gates.filter_map(|(g, gate)| Some((g, gate.pipeline.backend().register()?))).collect()
    }

    pub(super) fn tell_seats(&mut self, gate: usize, reply: &Sender<Seats>) {
        let demand = self.plane.pools.gates[gate].pipeline.gate_mut().demand(self.now);
        let (links, drained) = (&self.plane.links, self.plane.seats.drained);
        // Whoever asked may have gone.
        let _ = reply.send(Seats {
            me: links.here().unwrap_or_default().to_owned(),
            epoch: links.epoch,
            others: links.peers.iter().flatten().map(|peer| peer.config.name.clone()).collect(),
            vacant: seating::vacant(&self.plane, gate, self.now),
            serves: !drained && self.stopping.is_none(),
            drained: drained && self.stopping.is_none(),
            demand,
        });
    }

    /// It is this node's turn to have a disk.
    pub(super) fn claim_seat(&mut self, disk: String, claim: Claim) {
        if self.stopping.is_some()
            || self.plane.disks.number(&disk).is_some_and(|number| self.is_leaving(number))
        {
            return;
        }
        let Some(parts) = seating::begin_claim(&mut self.plane, &disk, claim) else { return };
        let works = parts.iter().cloned().map(Work::Make).collect();
        self.begin_ticket(&disk.clone(), works, Waiter::Claimed(disk, parts));
    }

    /// A claim is over.
    pub(super) fn claimed(&mut self, disk: String, parts: Vec<PartOf>, outcome: Result<(), String>) {
        let parts = seating::end_claim(&mut self.plane, &disk, parts, outcome, self.now);
        if !parts.is_empty() {
            self.release(disk, parts);
        }
    }

    fn release(&mut self, disk: String, parts: Vec<PartOf>) {
        let works = parts.into_iter().map(Work::Release).collect();
        self.begin_ticket(&disk.clone(), works, Waiter::Released(disk));
    }

    /// Peers hear of what has moved; owners that are quiet go.
    pub(super) fn move_seats(&mut self) {
        while let Some(disk) = seating::next_moved(&mut self.plane) {
            self.reconsider_links(&disk);
            self.tell_ways(self.plane.disks.number(&disk));
        }
        while let Some(number) = seating::next_found(&mut self.plane) {
            self.tell_ways(Some(number));
        }
        while let Some((disk, parts)) = seating::next_left(&mut self.plane, self.now) {
            self.release(disk, parts);
        }
    }

    /// Initiators and hosts hear of it where some gateway has the disk. While none has it, what was said last stands.
    fn tell_ways(&mut self, number: Option<usize>) {
        let disk = number.and_then(|number| Some((number, self.plane.disks[number].as_ref()?)));
        if let Some((number, disk)) = disk.filter(|(_, disk)| disk.seat(&self.plane.links).is_some()) {
            self.registry.tell_ways(number, disk, &self.plane.links);
        }
    }

    /// Somebody else has broken this node's locks.
    pub(super) fn shut_out(&mut self, gate: usize) {
        let why = "this node was shut out of the storage, and must begin again";
        seating::leave_all(&mut self.plane, gate, why, self.now);
    }
}
