//! Tickets: parts are made and removed on behalf of whoever asked, who waits while the loop does not.

use super::Server;
use crate::message::Message;
use crate::operate;
use crate::plane::PartOf;
use crate::plane::Plane;
use crate::plane::manage;
use crate::plane::tickets::{Work, Worked};
use crate::spread::seating;
use henge_api::{Reply, Request};
use henge_backend::Chore;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::Sender;

/// Who is told when a ticket is over.
pub(super) enum Waiter {
    /// Whoever removed the disk of that name, which had these parts.
    Removed(Sender<Reply>, String, Vec<PartOf>),
    /// Whoever is about to add a disk, or to let it grow.
    Prepared(Sender<Worked>),
    /// The shared disk of that name, whose image is to be this node's.
    Claimed(String, Vec<PartOf>),
    /// The shared disk of that name, whose image is closed.
    Released(String),
}

impl Server {
    /// Makes the parts that a request needs, so that carrying it out only finds them.
    pub(super) fn prepare(&mut self, request: &Request, reply: Sender<Worked>) {
        let (disk, parts) = match operate::parts_for(&self.plane, request) {
            Ok(found) => found,
            // Whoever asked may have gone: then nobody is told.
            Err(why) => return drop(reply.send(Err(why))),
        };
        let work = if let Request::Add { .. } = request { Work::Make } else { Work::Lengthen };
        let works = parts.into_iter().map(work).collect();
        self.begin_ticket(&disk, works, Waiter::Prepared(reply));
    }

    /// Parts were made for a disk that is remembered now: they are its own.
    pub(super) fn claim(&mut self, disk: &str, parts: Vec<PartOf>, reply: Sender<Worked>) {
        self.begin_ticket(disk, parts.into_iter().map(Work::Claim).collect(), Waiter::Prepared(reply));
    }

    /// Parts were made for a disk that was refused then. Somebody else's disk of that name may have them by now.
    pub(super) fn discard(&mut self, disk: &str, parts: Vec<PartOf>, reply: Sender<Worked>) {
        if self.plane.disks.number(disk).is_some() {
            // Whoever asked may have gone.
            return drop(reply.send(Ok(Vec::new())));
        }
        self.begin_ticket(disk, parts.into_iter().map(Work::Remove).collect(), Waiter::Prepared(reply));
    }

    /// A disk was removed: its parts go.
    pub(super) fn remove_parts(&mut self, disk: &str, reply: Sender<Reply>) {
        let parts = self.plane.tickets.retired();
        let works = parts.iter().cloned().map(Work::Remove).collect();
        self.begin_ticket(disk, works, Waiter::Removed(reply, disk.to_owned(), parts));
    }

    pub(super) fn begin_ticket(&mut self, disk: &str, works: Vec<Work>, waiter: Waiter) {
        let Plane { tickets, pools, disks, .. } = &mut self.plane;
        let id = tickets.begin(pools, disks, disk, works, self.now);
        self.waiters.insert(id, waiter);
    }

    /// Hands out what may block, and tells those whose tickets are over.
    pub(super) fn administer(&mut self) {
        while let Some((id, chore)) = self.plane.tickets.next_chore() {
            self.begin_chore(id, chore);
        }
        while let Some((id, worked)) = self.plane.tickets.next_worked() {
            // Whoever waits may have gone.
            match self.waiters.remove(&id) {
                Some(Waiter::Prepared(reply)) => drop(reply.send(worked)),
                Some(Waiter::Claimed(disk, parts)) => self.claimed(disk, parts, worked.map(drop)),
                Some(Waiter::Released(disk)) => seating::left(&mut self.plane, &disk),
                Some(Waiter::Removed(reply, disk, parts)) => {
                    let reply_now = match worked {
                        Ok(_) => Reply::done(),
                        Err(why) => Reply::failed(manage::left_behind(&mut self.plane, disk, &why, &parts)),
                    };
                    drop(reply.send(reply_now));
                }
                None => {}
            }
        }
    }

    /// A thread for each: they are rare, at most one a gate, and one that hangs holds up no other.
    fn begin_chore(&mut self, id: u64, chore: Chore) {
        let own = self.own.clone();
        let work = move || {
            // A ticket whose work panicked would wait for ever, and its gate's other tickets with it.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(chore)).unwrap_or_else(|_| {
                Err(io::Error::other("the work on the pool's storage panicked; the log says where"))
            });
            own.send(Message::Chore(id, outcome));
        };
        if let Err(e) = std::thread::Builder::new().name("henge-parts".into()).spawn(work) {
            let Plane { tickets, pools, disks, .. } = &mut self.plane;
            tickets.chore_done(pools, disks, id, Err(e), self.now);
        }
    }
}
