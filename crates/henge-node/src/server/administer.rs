//! Tickets: parts are made and removed on behalf of whoever asked, who waits while the loop does not.

use super::Server;
use super::work::Waiter;
use crate::message::Message;
use crate::operate;
use crate::plane::PartOf;
use crate::plane::Plane;
use crate::plane::manage;
use crate::plane::tickets::{Work, Worked};
use crate::server::seats;
use crate::spread::seating;
use henge_api::{Reply, Request};
use henge_backend::Chore;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::Sender;

/// Makes the parts that a request needs, so that carrying it out only finds them.
pub(super) fn prepare(server: &mut Server, request: &Request, reply: Sender<Worked>) {
    let (disk, works) = match operate::works_for(&server.plane, request) {
        Ok(found) => found,
        // Whoever asked may have gone: then nobody is told.
        Err(why) => return drop(reply.send(Err(why))),
    };
    server.work.begin(&mut server.plane, &disk, works, Waiter::Prepared(reply), server.now);
}

/// Parts were made for a disk that is remembered now: they are its own.
pub(super) fn claim(server: &mut Server, disk: &str, parts: Vec<PartOf>, reply: Sender<Worked>) {
    server.work.begin(
        &mut server.plane,
        disk,
        parts.into_iter().map(Work::Claim).collect(),
        Waiter::Prepared(reply),
        server.now,
    );
}

/// Parts were made for a disk that was refused then. Somebody else's disk of that name may have them by now.
pub(super) fn discard(server: &mut Server, disk: &str, parts: Vec<PartOf>, reply: Sender<Worked>) {
    if server.plane.disks.number(disk).is_some() {
        // Whoever asked may have gone.
        return drop(reply.send(Ok(Vec::new())));
    }
    server.work.begin(
        &mut server.plane,
        disk,
        parts.into_iter().map(Work::Remove).collect(),
        Waiter::Prepared(reply),
        server.now,
    );
}

/// A disk was removed: its parts go, or are kept. Should that fail, those that were to go are still to be removed.
pub(super) fn remove_parts(server: &mut Server, disk: &str, works: Vec<Work>, reply: Sender<Reply>) {
    let goes = |work: &Work| if let Work::Remove(part) = work { Some(part.clone()) } else { None };
    let parts = works.iter().filter_map(goes).collect();
    server.work.begin(
        &mut server.plane,
        disk,
        works,
        Waiter::Removed(reply, disk.to_owned(), parts),
        server.now,
    );
}

/// Hands out what may block, and tells those whose tickets are over.
pub(super) fn administer(server: &mut Server) {
    while let Some((id, chore)) = server.plane.tickets.next_chore() {
        begin_chore(server, id, chore);
    }
    while let Some((id, worked)) = server.plane.tickets.next_worked() {
        // Whoever waits may have gone.
        match server.work.waiters.remove(&id) {
            Some(Waiter::Prepared(reply)) => drop(reply.send(worked)),
            Some(Waiter::Claimed(disk, parts)) => seats::claimed(server, disk, parts, worked.map(drop)),
            Some(Waiter::Released(disk)) => seating::left(&mut server.plane, &disk),
            Some(Waiter::Removed(reply, disk, parts)) => {
                let reply_now = match worked {
                    Ok(_) => Reply::done(),
                    Err(why) => Reply::failed(manage::left_behind(&mut server.plane, disk, &why, &parts)),
                };
                drop(reply.send(reply_now));
            }
            None => {}
        }
    }
}

/// A thread for each: they are rare, at most one a gate, and one that hangs holds up no other.
fn begin_chore(server: &mut Server, id: u64, chore: Chore) {
    let own = server.ways.own.clone();
    let work = move || {
        // A ticket whose work panicked would wait for ever, and its gate's other tickets with it.
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(chore)).unwrap_or_else(|_| {
            Err(io::Error::other("the work on the pool's storage panicked; the log says where"))
        });
        own.send(Message::Chore(id, outcome));
    };
    if let Err(e) = std::thread::Builder::new().name("henge-parts".into()).spawn(work) {
        let Plane { tickets, pools, disks, .. } = &mut server.plane;
        tickets.chore_done(pools, disks, id, Err(e), server.now);
    }
}
