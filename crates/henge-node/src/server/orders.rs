//! What is asked by way of the node's handle: carried out between two turns. And the end.

use super::{LEAVING, NOBODY, STOPPING, Server, Stopping, around};
use crate::client::Client;
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::message::Message;
use crate::operate;
use crate::operate::offer;
use crate::plane::manage;
use crate::plane::{Disk, Failed};
use crate::server::{administer, doors, leaving, links, moving, removal, seats};
use crate::spread::across;
use crate::spread::extents;
use crate::spread::seating;
use crate::turns::{Of, Way};
use henge_api::{Reply, Request, Table};
use henge_backend::Buffer;
use henge_core::RequestId;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::os::fd::AsFd;

/// Messages taken in one turn: each may be a connection that arrives.
const MESSAGES: usize = 64;

pub(super) fn control(server: &mut Server) {
    let mut counter = [0; 8];
    // Nothing to empty is an error that means nothing.
    let _ = rustix::io::read(server.ways.own.as_fd(), &mut counter);
    for taken in 0.. {
        if taken == MESSAGES {
            return server.ways.own.wake(); // the rest in the next turn
        }
        let Ok(message) = server.ways.messages.try_recv() else { return };
        match message {
            Message::Stop => begin_stopping(server, false),
            Message::HandOver => begin_stopping(server, true),
            Message::Settle { failed, left, over } => {
                for (name, why) in failed {
                    server.plane.disks.failed.entry(name).or_insert_with(|| Failed::unopened(why));
                }
                manage::settle_parts(&mut server.plane);
                leaving::open(server, left);
                let _ = over.send(());
            }
            Message::Shared(reply) => drop(reply.send(seats::shared_pools(server))),
            Message::Seats { gate, reply } => seats::tell_seats(server, gate, &reply),
            Message::DepthPart { gate, part } => {
                seating::divide_depth(&mut server.plane, gate, part, server.now)
            }
            Message::Claimed(disk, claim) => seats::claim_seat(server, disk, claim),
            Message::LetGo { gate, to } => seating::let_go(&mut server.plane, gate, &to, server.now),
            Message::ShutOut { gate } => seats::shut_out(server, gate),
            Message::Arrive(traveller) => moving::arrive(server, *traveller),
            Message::News(news) => moving::hear(server, news),
            Message::Heard(reply) => drop(reply.send(())),
            Message::Relay(to) => server.plane.tags.relay(to),
            Message::Leads(leads) => server.plane.tags.retag(&mut server.plane.pools, &leads, server.now),
            Message::Tap { buffer, reply } => {
                let _ = reply.send(server.plane.observers.tap(buffer, server.now));
            }
            Message::Sample { from, whole, reply } => {
                let mut slice =
                    operate::slice(&mut server.plane, from, whole, server.clients.all.len(), server.now);
                let of = |name: &str| server.plane.disks.number(name).map(Of::Disk);
                let used = |name: &str| of(name).map_or(0, |of| server.turns.used(of));
                slice.disks.iter_mut().for_each(|disk| disk.processor = used(&disk.name));
                let _ = reply.send(slice);
            }
            Message::Ask(Request::Scheduler { pool, scheduler }, reply) => {
                let other = server.work.exchange.as_ref().map(|(exchange, _)| exchange);
                match Exchange::begin(&server.plane, other, &pool, &scheduler) {
                    Ok(exchange) => server.work.exchange = Some((exchange, reply)),
                    Err(e) => drop(reply.send(Reply::failed(e))),
                }
            }
            Message::Prepare(request, reply) => administer::prepare(server, &request, reply),
            Message::Find(request, on, reply) => {
                drop(reply.send(operate::find_parts(&mut server.plane, &request, &on)))
            }
            Message::Remains(table, reply) => {
                drop(reply.send(operate::find_remains(&mut server.plane, &table)))
            }
            Message::Serves(disk, reply) => drop(reply.send(server.plane.disks.number(&disk).is_some())),
            Message::Claim(disk, parts, reply) => administer::claim(server, &disk, parts, reply),
            Message::Discard(disk, parts, reply) => administer::discard(server, &disk, parts, reply),
            Message::Withdraw { disk, why, over } => {
                withdraw(server, &disk, why);
                let _ = over.send(());
            }
            Message::Chore(ticket, outcome) => {
                let crate::plane::Plane { tickets, pools, disks, .. } = &mut server.plane;
                tickets.chore_done(pools, disks, ticket, outcome, server.now);
            }
            Message::Ask(Request::Remove { name }, reply) => {
                removal::begin_removing(server, name, reply, None)
            }
            Message::Remove(name, reply, gone) => removal::begin_removing(server, name, reply, gone),
            Message::Ask(request, reply) => {
                let answer = perform(server, request);
                // Whoever asked may have gone.
                let _ = reply.send(answer);
            }
        }
    }
}

/// A step of an exchange; whoever asked is answered when the new scheduler decides.
pub(super) fn go_on_exchanging(server: &mut Server) {
    let Some((exchange, _)) = &mut server.work.exchange else { return };
    let Some(outcome) = exchange.step(&mut server.plane, server.now) else { return };
    let Some((_, reply)) = server.work.exchange.take() else { return };
    // Whoever asked may have gone.
    let _ = reply.send(match outcome {
        Ok(()) => Reply::done(),
        Err(e) => Reply::failed(e),
    });
}

fn perform(server: &mut Server, request: Request) -> Reply {
    let now = server.now;
    let done = |outcome: Result<(), String>| match outcome {
        Ok(()) => Reply::done(),
        Err(e) => Reply::failed(e),
    };
    match request {
        Request::Set { name, contract } => done(set(server, &name, contract)),
        Request::Preview { name, contract } => match operate::preview(&mut server.plane, &name, contract) {
            Ok(lines) => Reply { lines: Some(lines), ..Reply::done() },
            Err(e) => Reply::failed(e),
        },
        Request::Offer { disk } => match offer::offer(&server.plane, &disk) {
            Ok(lines) => Reply { lines: Some(lines), ..Reply::done() },
            Err(e) => Reply::failed(e),
        },
        Request::Add { disk } => done(add(server, &disk)),
        Request::Grow { name, capacity } => done(grow(server, &name, &capacity)),
        Request::Access { name, doors } => done(doors::change_doors(server, &name, &doors)),
        Request::Room { name, capacity } => {
            done(operate::lengthen_ahead(&mut server.plane, &name, &capacity))
        }
        Request::Peer { name, address, iscsi, at } => {
            let added = operate::add_peer(&mut server.plane, &name, &address, iscsi.as_deref(), at);
            server.registry.look_again();
            server.clients.look = Some(now);
            done(added)
        }
        Request::Unpeer { name } => done(operate::remove_peer(&mut server.plane, &name)),
        Request::Drain { on } => {
            seating::drain(&mut server.plane, on);
            Reply::done()
        }
        Request::Reset => {
            operate::reset_meters(&mut server.plane, now);
            Reply::done()
        }
        Request::Untap => {
            server.plane.observers.untap();
            Reply::done()
        }
        Request::Scheduler { .. } | Request::Remove { .. } => {
            Reply::failed("the loop answers this when it is done")
        }
        Request::Status | Request::Meters | Request::Events { .. } | Request::Tap => {
            Reply::failed("the node's handle answers this")
        }
    }
}

fn set(server: &mut Server, name: &str, contract: BTreeMap<String, String>) -> Result<(), String> {
    let disk = operate::set(&mut server.plane, name, contract, server.now)?;
    // A higher bound on pending commands lets those in that wait for it.
    let waiters = server.waiters.capacity.get_mut(disk).map(std::mem::take);
    for id in waiters.into_iter().flatten() {
        server.retry(id);
    }
    Ok(())
}

fn add(server: &mut Server, disk: &Table) -> Result<(), String> {
    let number = operate::add(&mut server.plane, disk, server.now)?;
    let name = server.plane.disks.of(number).config.name.clone();
    moving::publish(server, number);
    links::reconsider_links(server, &name);
    Ok(())
}

/// A disk that another shard refuses is not here, either; its parts stay. `why`: it is not served, and is to be.
fn withdraw(server: &mut Server, disk: &str, why: Option<String>) {
    if let Some(number) = server.plane.disks.number(disk) {
        let owners = across::owners_to_tell(&server.plane, number);
        extents::withdraw(&mut server.plane, number, server.now);
        moving::hide(server, number);
        moving::tell_owners(server, disk, owners, false);
        server.registry.remove(number, &mut server.plane.links);
        server.registry.nvme.remove(number);
    }
    if let Some(why) = why {
        server.plane.disks.failed.entry(disk.to_owned()).or_insert_with(|| Failed::unopened(why));
    }
}

fn grow(server: &mut Server, name: &str, capacity: &str) -> Result<(), String> {
    let grown = operate::grow(&mut server.plane, name, capacity);
    if let Some(number) = server.plane.disks.number(name) {
        moving::publish(server, number);
        links::reconsider_links(server, name);
    }
    grown
}

/// Nobody waits any longer. A disk whose FLUSH is not over, or was never begun, is as one whose FLUSH has failed.
fn doubt_what_is_not_flushed(server: &mut Server, begun: bool) {
    for disk in server.plane.disks.iter_mut().flatten().filter(|disk| disk.spread.is_none()) {
        disk.doubts.unflushed |= !begun || disk.vdisk.pending() > 0;
    }
}

/// Begins nothing more, and finishes what has begun. `hands`: the sockets are for the program that comes next.
pub(super) fn begin_stopping(server: &mut Server, hands: bool) {
    server.entrance.arrivals.end();
    for listener in &server.entrance.listeners {
        // One that was never watched is an error that means nothing.
        let _ = epoll::delete(&server.poll.epoll, listener.as_fd());
    }
    if !hands {
        server.entrance.listeners.clear();
    }
    server.plane.tickets.close();
    let ids: Vec<RequestId> = server.clients.all.iter().map(|(id, _)| id).collect();
    for id in ids {
        if let Some(client) = server.clients.all.get_mut(id) {
            client.pause(around!(server, id));
            server.mark(id);
            // The rest of a payload may be there.
            server.want(id, Way::In);
        }
    }
    let (deadline, leave_by) = (server.now + STOPPING, server.now + LEAVING);
    server.stopping.get_or_insert(Stopping { deadline, leave_by, flushing: false, hands, quiet: false });
}

/// Whether some client is still being told, or is still telling, what it has begun.
fn is_in_talk(server: &Server) -> bool {
    let talks = |client: &Client| {
        let carried = client.seen::<Connection>().is_some_and(|c| c.disk.is_some());
        carried && client.link.stream.is_plain() && client.rest().is_none()
            || client.has_output() && client.link.writable
    };
    server.clients.all.iter().any(|(_, client)| !client.is_node && talks(client))
}

/// Once stopping and nothing is under way: flush every disk; with that done, the end.
pub(super) fn finished(server: &mut Server) -> Option<usize> {
    let stopping = server.stopping?;
    if stopping.deadline <= server.now {
        doubt_what_is_not_flushed(server, stopping.flushing);
        return Some(server.plane.disks.served().map(|(_, d)| d.vdisk.pending()).sum());
    }
    if !server.plane.is_idle() || server.now < stopping.leave_by && is_in_talk(server) {
        return None;
    }
    if !stopping.quiet {
        server.stopping = Some(Stopping { quiet: true, ..stopping });
        server.ways.shards.say_quiet();
    }
    // Others may need what is here until they have all said so.
    if !server.ways.shards.are_quiet() {
        return None;
    }
    let stopping = Stopping { quiet: true, ..stopping };
    if stopping.flushing {
        if server.plane.disks.unflushed().next().is_none() {
            links::say_ended(server);
        }
        return Some(0);
    }
    server.plane.links.ending = true;
    server.stopping = Some(Stopping { flushing: true, ..stopping });
    for number in 0..server.plane.disks.len() {
        // What a shared disk has answered is durable, and its seat may be anywhere.
        // Each shard flushes its own extents of a disk.
        let is_flushed = |disk: &Disk| disk.vdisk.has_capacity() && !disk.is_shared() && !disk.is_divided();
        if server.plane.disks[number].as_ref().is_some_and(is_flushed) {
            let flush = henge_vdisk::Command::new(henge_vdisk::Kind::Flush, 0, 0, server.now, 0);
            server.plane.submit(number, flush, Buffer::empty(), NOBODY, server.now);
        }
    }
    // In this very turn, as everything that was submitted in it; the next one, which comes at once, sees to the rest.
    server.plane.poll(server.now);
    server.ways.own.wake();
    None
}
