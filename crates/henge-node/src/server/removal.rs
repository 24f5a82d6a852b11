//! A disk goes: its clients first, then, once nothing of it is at the storage any more, the disk.

use super::Server;
use super::work::Removal;
use crate::plane::manage;
use crate::plane::tickets::Work;
use crate::server::{administer, links, moving};
use crate::spread::across;
use crate::spread::seating;
use crate::turns::Of;
use henge_api::Reply;
use henge_core::{Duration, RequestId};
use std::sync::mpsc::Sender;

/// Storage has so long for what is under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a disk's clients away, for good, and gives up what they have pending.
pub(super) fn begin_removing(
    server: &mut Server,
    name: String,
    reply: Sender<Reply>,
    gone: Option<Sender<()>>,
) {
    if server.plane.disks.failed.contains_key(&name) {
        let works = manage::remove_failed(&mut server.plane, &name);
        return administer::remove_parts(server, &name, works, reply);
    }
    let number = match server.plane.disks.find(&name) {
        Ok(number) if !server.work.is_leaving(number) => number,
        Ok(_) => return drop(reply.send(Reply::failed(format!("\"{name}\" is being removed already")))),
        Err(e) => return drop(reply.send(Reply::failed(e))),
    };
    moving::refuse(server, number, "the disk is being removed");
    server.work.removals.push(Removal { number, name, reply, until: server.now + PATIENCE, gone });
    let theirs: Vec<RequestId> = server.clients.users_of(number).collect();
    for id in theirs {
        server.drop_connection(id);
    }
    // What other coordinators have here is answered as given up.
    for owner in server.plane.disks.owners(number) {
        for link in server.plane.links.connections.clone() {
            server.plane.abort(owner, link, None, server.now);
        }
        across::abort_all_across(&mut server.plane, owner, server.now);
    }
    server.answer();
    go_on_removing(server);
}

/// Removes the disks of which nothing is under way any more; those that have waited too long stay.
pub(super) fn go_on_removing(server: &mut Server) {
    let mut i = 0;
    while let Some(&Removal { number, until, .. }) = server.work.removals.get(i) {
        let all = server.plane.disks.owners(number).into_iter().chain([number]);
        let busy = seating::is_moving(&mut server.plane, number)
            || all.into_iter().any(|n| server.plane.disks[n].as_ref().is_some_and(|d| d.vdisk.pending() > 0));
        if busy && server.now < until {
            i += 1;
            continue;
        }
        let Removal { name, reply, gone, .. } = server.work.removals.swap_remove(i);
        moving::readmit(server, number);
        if busy {
            let why = format!(
                "requests of \"{name}\" are at its storage, which has not answered for {PATIENCE}; the disk stays, try again"
            );
            drop(reply.send(Reply::failed(why)));
            continue;
        }
        let owners = across::owners_to_tell(&server.plane, number);
        server.plane.remove_disk(number, server.now);
        drop(gone);
        moving::hide(server, number);
        moving::tell_owners(server, &name, owners, false);
        server.turns.forget(Of::Disk(number));
        server.registry.remove(number, &mut server.plane.links);
        server.registry.nvme.remove(number);
        links::reconsider_links(server, &name);
        let works = server.plane.tickets.retired().into_iter().map(Work::Remove).collect();
        administer::remove_parts(server, &name, works, reply);
    }
}
