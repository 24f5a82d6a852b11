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

impl Server {
    pub(super) fn control(&mut self) {
        let mut counter = [0; 8];
        // Nothing to empty is an error that means nothing.
        let _ = rustix::io::read(self.own.as_fd(), &mut counter);
        for taken in 0.. {
            if taken == MESSAGES {
                return self.own.wake(); // the rest in the next turn
            }
            let Ok(message) = self.messages.try_recv() else { return };
            match message {
                Message::Stop => self.begin_stopping(false),
                Message::HandOver => self.begin_stopping(true),
                Message::Settle { failed, left, over } => {
                    for (name, why) in failed {
                        self.plane.disks.failed.entry(name).or_insert_with(|| Failed::unopened(why));
                    }
                    manage::settle_parts(&mut self.plane);
                    self.open(left);
                    let _ = over.send(());
                }
                Message::Shared(reply) => drop(reply.send(self.shared_pools())),
                Message::Seats { gate, reply } => self.tell_seats(gate, &reply),
                Message::DepthPart { gate, part } => {
                    seating::divide_depth(&mut self.plane, gate, part, self.now)
                }
                Message::Claimed(disk, claim) => self.claim_seat(disk, claim),
                Message::LetGo { gate, to } => seating::let_go(&mut self.plane, gate, &to, self.now),
                Message::ShutOut { gate } => self.shut_out(gate),
                Message::Arrive(traveller) => self.arrive(*traveller),
                Message::News(news) => self.hear(news),
                Message::Heard(reply) => drop(reply.send(())),
                Message::Relay(to) => self.plane.tags.relay(to),
                Message::Leads(leads) => self.plane.tags.retag(&mut self.plane.pools, &leads, self.now),
                Message::Tap { buffer, reply } => {
                    let _ = reply.send(self.plane.observers.tap(buffer, self.now));
                }
                Message::Sample { from, whole, reply } => {
                    let mut slice =
                        operate::slice(&mut self.plane, from, whole, self.connections.len(), self.now);
                    for disk in &mut slice.disks {
                        let number = self.plane.disks.number(&disk.name);
                        disk.processor = number.map_or(0, |number| self.turns.used(Of::Disk(number)));
                    }
                    let _ = reply.send(slice);
                }
                Message::Ask(Request::Scheduler { pool, scheduler }, reply) => {
                    let other = self.exchange.as_ref().map(|(exchange, _)| exchange);
                    match Exchange::begin(&self.plane, other, &pool, &scheduler) {
                        Ok(exchange) => self.exchange = Some((exchange, reply)),
                        Err(e) => drop(reply.send(Reply::failed(e))),
                    }
                }
                Message::Prepare(request, reply) => self.prepare(&request, reply),
                Message::Claim(disk, parts, reply) => self.claim(&disk, parts, reply),
                Message::Discard(disk, parts, reply) => self.discard(&disk, parts, reply),
                Message::Withdraw { disk, why, over } => {
                    self.withdraw(&disk, why);
                    let _ = over.send(());
                }
                Message::Chore(ticket, outcome) => {
                    let crate::plane::Plane { tickets, pools, disks, .. } = &mut self.plane;
                    tickets.chore_done(pools, disks, ticket, outcome, self.now);
                }
                Message::Ask(Request::Remove { name }, reply) => self.begin_removing(name, reply),
                Message::Ask(request, reply) => {
                    let answer = self.perform(request);
                    // Whoever asked may have gone.
                    let _ = reply.send(answer);
                }
            }
        }
    }

    /// A step of an exchange; whoever asked is answered when the new scheduler decides.
    pub(super) fn go_on_exchanging(&mut self) {
        let Some((exchange, _)) = &mut self.exchange else { return };
        let Some(outcome) = exchange.step(&mut self.plane, self.now) else { return };
        let Some((_, reply)) = self.exchange.take() else { return };
        // Whoever asked may have gone.
        let _ = reply.send(match outcome {
            Ok(()) => Reply::done(),
            Err(e) => Reply::failed(e),
        });
    }

    fn perform(&mut self, request: Request) -> Reply {
        let now = self.now;
        let done = |outcome: Result<(), String>| match outcome {
            Ok(()) => Reply::done(),
            Err(e) => Reply::failed(e),
        };
        match request {
            Request::Set { name, contract } => done(self.set(&name, contract)),
            Request::Preview { name, contract } => match operate::preview(&mut self.plane, &name, contract) {
                Ok(lines) => Reply { lines: Some(lines), ..Reply::done() },
                Err(e) => Reply::failed(e),
            },
            Request::Offer { disk } => match offer::offer(&self.plane, &disk) {
                Ok(lines) => Reply { lines: Some(lines), ..Reply::done() },
                Err(e) => Reply::failed(e),
            },
            Request::Add { disk } => done(self.add(&disk)),
            Request::Grow { name, capacity } => done(self.grow(&name, &capacity)),
            Request::Access { name, doors } => done(self.change_doors(&name, &doors)),
            Request::Room { name, capacity } => {
                done(operate::lengthen_ahead(&mut self.plane, &name, &capacity))
            }
            Request::Peer { name, address, iscsi, at } => {
                let added = operate::add_peer(&mut self.plane, &name, &address, iscsi.as_deref(), at);
                self.registry.look_again();
                self.look = Some(now);
                done(added)
            }
            Request::Unpeer { name } => done(operate::remove_peer(&mut self.plane, &name)),
            Request::Drain { on } => {
                seating::drain(&mut self.plane, on);
                Reply::done()
            }
            Request::Reset => {
                operate::reset_meters(&mut self.plane, now);
                Reply::done()
            }
            Request::Untap => {
                self.plane.observers.untap();
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

    fn set(&mut self, name: &str, contract: BTreeMap<String, String>) -> Result<(), String> {
        let disk = operate::set(&mut self.plane, name, contract, self.now)?;
        // A higher bound on pending commands lets those in that wait for it.
        let waiters = self.capacity_waiters.get_mut(disk).map(std::mem::take);
        for id in waiters.into_iter().flatten() {
            self.retry(id);
        }
        Ok(())
    }

    fn add(&mut self, disk: &Table) -> Result<(), String> {
        let number = operate::add(&mut self.plane, disk, self.now)?;
        let name = self.plane.disks.of(number).config.name.clone();
        self.publish(number);
        self.reconsider_links(&name);
        Ok(())
    }

    /// A disk that another shard refuses is not here, either; its parts stay. `why`: it is not served, and is to be.
    fn withdraw(&mut self, disk: &str, why: Option<String>) {
        if let Some(number) = self.plane.disks.number(disk) {
            let owners = across::owners_to_tell(&self.plane, number);
            extents::withdraw(&mut self.plane, number, self.now);
            self.hide(number);
            self.tell_owners(disk, owners, false);
            self.registry.remove(number, &mut self.plane.links);
            self.registry.nvme.remove(number);
        }
        if let Some(why) = why {
            self.plane.disks.failed.entry(disk.to_owned()).or_insert_with(|| Failed::unopened(why));
        }
    }

    fn grow(&mut self, name: &str, capacity: &str) -> Result<(), String> {
        let grown = operate::grow(&mut self.plane, name, capacity);
        if let Some(number) = self.plane.disks.number(name) {
            self.publish(number);
            self.reconsider_links(name);
        }
        grown
    }

    /// A disk is there: clients may come to it.
    pub(super) fn publish(&mut self, number: usize) {
        let Some(disk) = &self.plane.disks[number] else { return };
        if self.is_leaving(number) {
            return;
        }
        self.tell_owners(&disk.config.name, across::owners_to_tell(&self.plane, number), true);
        if !self.plane.across.leads(&disk.config) {
            return; // whoever does says that it is there
        }
        let (export, doors) = (disk.export(), disk.config.doors.clone());
        if disk.config.doors.shown_by("nvme") {
            self.registry.nvme.add(number, disk);
        }
        // Reservations are one table for initiators and hosts, which belongs to a target, be it found or not.
        let shown = disk.config.doors.shown_by("iscsi");
        // Of a shared disk whoever has the seat keeps it for others, too.
        if shown || disk.config.doors.shown_by("nvme") || disk.is_shared() {
            self.registry.add(number, disk, shown, &self.plane.links, self.now);
        }
        self.show(number, export, &doors);
    }

    /// Begins nothing more, and finishes what has begun. `hands`: the sockets are for the program that comes next.
    pub(super) fn begin_stopping(&mut self, hands: bool) {
        for listener in &self.listeners {
            // One that was never watched is an error that means nothing.
            let _ = epoll::delete(&self.epoll, listener.as_fd());
        }
        if !hands {
            self.listeners.clear();
        }
        self.plane.tickets.close();
        let ids: Vec<RequestId> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(client) = self.connections.get_mut(id) {
                client.pause(around!(self, id));
                self.mark(id);
                // The rest of a payload may be there.
                self.want(id, Way::In);
            }
        }
        let (deadline, leave_by) = (self.now + STOPPING, self.now + LEAVING);
        self.stopping.get_or_insert(Stopping { deadline, leave_by, flushing: false, hands, quiet: false });
    }

    /// Whether some client is still being told, or is still telling, what it has begun.
    fn is_in_talk(&self) -> bool {
        let talks = |client: &Client| {
            let carried = client.seen::<Connection>().is_some_and(|c| c.disk.is_some());
            carried && client.link.stream.is_plain() && client.rest().is_none()
                || client.has_output() && client.link.writable
        };
        self.connections.iter().any(|(_, client)| !client.is_node && talks(client))
    }

    /// Once stopping and nothing is under way: flush every disk; with that done, the end.
    pub(super) fn finished(&mut self) -> Option<usize> {
        let stopping = self.stopping?;
        if stopping.deadline <= self.now {
            return Some(self.plane.disks.served().map(|(_, d)| d.vdisk.pending()).sum());
        }
        if !self.plane.is_idle() || self.now < stopping.leave_by && self.is_in_talk() {
            return None;
        }
        if !stopping.quiet {
            self.stopping = Some(Stopping { quiet: true, ..stopping });
            self.shards.say_quiet();
        }
        // Others may need what is here until they have all said so.
        if !self.shards.are_quiet() {
            return None;
        }
        let stopping = Stopping { quiet: true, ..stopping };
        if stopping.flushing {
            if self.plane.disks.unflushed().next().is_none() {
                self.say_ended();
            }
            return Some(0);
        }
        self.plane.links.ending = true;
        self.stopping = Some(Stopping { flushing: true, ..stopping });
        for number in 0..self.plane.disks.len() {
            // What a shared disk has answered is durable, and its seat may be anywhere.
            // Each shard flushes its own extents of a disk.
            let is_flushed =
                |disk: &Disk| disk.vdisk.has_capacity() && !disk.is_shared() && !disk.is_divided();
            if self.plane.disks[number].as_ref().is_some_and(is_flushed) {
                let flush = henge_vdisk::Command::new(henge_vdisk::Kind::Flush, 0, 0, self.now, 0);
                self.plane.submit(number, flush, Buffer::empty(), NOBODY, self.now);
            }
        }
        // In this very turn, as everything that was submitted in it; the next one, which comes at once, sees to the rest.
        self.plane.poll(self.now);
        self.own.wake();
        None
    }
}
