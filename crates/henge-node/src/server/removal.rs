//! A disk goes: its clients first, then, once nothing of it is at the storage any more, the disk.

use super::Server;
use crate::plane::manage;
use crate::spread::across;
use crate::spread::seating;
use crate::turns::Of;
use henge_api::Reply;
use henge_core::{Duration, Instant, RequestId};
use std::sync::mpsc::Sender;

/// Of all connections' names, the least and the greatest.
const FIRST: RequestId = RequestId { slot: 0, generation: 0 };
const LAST: RequestId = RequestId { slot: u32::MAX, generation: u32::MAX };

/// Storage has so long for what is under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// A disk that is about to go. Nobody comes to it meanwhile.
pub(super) struct Removal {
    pub(super) number: usize,
    name: String,
    reply: Sender<Reply>,
    until: Instant,
}

impl Server {
    /// Sends a disk's clients away, for good, and gives up what they have pending.
    pub(super) fn begin_removing(&mut self, name: String, reply: Sender<Reply>) {
        if self.plane.disks.failed.contains_key(&name) {
            return match manage::remove_failed(&mut self.plane, &name) {
                Ok(()) => self.remove_parts(&name, reply),
                Err(e) => drop(reply.send(Reply::failed(e))),
            };
        }
        let number = match self.plane.disks.find(&name) {
            Ok(number) if !self.is_leaving(number) => number,
            Ok(_) => return drop(reply.send(Reply::failed(format!("\"{name}\" is being removed already")))),
            Err(e) => return drop(reply.send(Reply::failed(e))),
        };
        self.refuse(number, "the disk is being removed");
        self.removals.push(Removal { number, name, reply, until: self.now + PATIENCE });
        let theirs: Vec<RequestId> = self.users_of(number).collect();
        for id in theirs {
            self.drop_connection(id);
        }
        // What other coordinators have here is answered as given up.
        for owner in self.plane.disks.owners(number) {
            for link in self.plane.links.connections.clone() {
                self.plane.abort(owner, link, None, self.now);
            }
            across::abort_all_across(&mut self.plane, owner, self.now);
        }
        self.answer();
        self.go_on_removing();
    }

    /// The connections that use a disk.
    pub(super) fn users_of(&self, number: usize) -> impl Iterator<Item = RequestId> {
        self.users.range((number, FIRST)..=(number, LAST)).map(|(_, id)| *id)
    }

    /// Whether a disk is about to go.
    pub(super) fn is_leaving(&self, number: usize) -> bool {
        self.removals.iter().any(|removal| removal.number == number)
    }

    /// When storage has had its time.
    pub(super) fn removal_due(&self) -> Option<Instant> {
        self.removals.iter().map(|removal| removal.until).min()
    }

    /// Removes the disks of which nothing is under way any more; those that have waited too long stay.
    pub(super) fn go_on_removing(&mut self) {
        let mut i = 0;
        while let Some(&Removal { number, until, .. }) = self.removals.get(i) {
            let all = self.plane.disks.owners(number).into_iter().chain([number]);
            let busy = seating::is_moving(&mut self.plane, number)
                || all
                    .into_iter()
                    .any(|n| self.plane.disks[n].as_ref().is_some_and(|d| d.vdisk.pending() > 0));
            if busy && self.now < until {
                i += 1;
                continue;
            }
            let Removal { name, reply, .. } = self.removals.swap_remove(i);
            self.readmit(number);
            if busy {
                let why = format!(
                    "requests of \"{name}\" are at its storage, which has not answered for {PATIENCE}; the disk stays, try again"
                );
                drop(reply.send(Reply::failed(why)));
                continue;
            }
            let owners = across::owners_to_tell(&self.plane, number);
            self.plane.remove_disk(number, self.now);
            self.hide(number);
            self.tell_owners(&name, owners, false);
            self.turns.forget(Of::Disk(number));
            self.registry.remove(number, &mut self.plane.links);
            self.registry.nvme.remove(number);
            self.reconsider_links(&name);
            self.remove_parts(&name, reply);
        }
    }
}
