//! What clients send is taken in, and they are answered.

use super::{Server, Source, list};
use crate::client::{Client, Surroundings};
use crate::connection::Stop;
use crate::portal::Portal;
use henge_core::RequestId;
use rustix::event::epoll;
use std::collections::VecDeque;
use std::os::fd::AsFd;

impl Server {
    pub(super) fn read(&mut self, id: RequestId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.link().listed = false;
        let before = connection.disk();
        let around = Surroundings {
            plane: &mut self.plane,
            catalog: &self.catalog,
            portal: &mut self.portal,
            chunk: &mut self.chunk,
            now: self.now,
        };
        let stop = connection.read(id, around);
        let speaks = connection.has_output() || connection.is_over();
        if speaks && !std::mem::replace(&mut connection.link().unwritten, true) {
            self.unwritten.push(id);
        }
        if let (None, Some(disk)) = (before, connection.disk()) {
            self.plane.disk(disk).connections += 1;
            self.users.insert((disk, id));
        }
        match stop {
            Stop::Waiting => {}
            Stop::Turn => list(&mut self.readable, connection, id),
            Stop::Stalled => {
                let disk = connection.disk().expect("a command belongs to a disk");
                if self.plane.has_room(disk) {
                    self.memory_waiters.push_back(id);
                } else {
                    if self.room_waiters.len() <= disk {
                        self.room_waiters.resize_with(disk + 1, VecDeque::new);
                    }
                    self.room_waiters[disk].push_back(id);
                }
            }
            Stop::Gone => {
                // What it was told before still goes out, as far as the socket takes it.
                connection.write(id, &mut self.plane, &mut self.portal, self.now);
                self.drop_connection(id);
            }
        }
    }

    /// Reads on from a connection that waited for something.
    pub(super) fn retry(&mut self, id: RequestId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let waited = connection.is_stalled();
        list(&mut self.readable, connection, id);
        waited
    }

    pub(super) fn answer(&mut self) {
        let mut answers = std::mem::take(&mut self.plane.answers);
        for answer in answers.drain(..) {
            let disk = answer.disk;
            let id = answer.owner.connection;
            let (plane, portal, now) = (&mut self.plane, &mut self.portal, self.now);
            if Portal::owns(&answer.owner) {
                portal.answer(answer, plane, now);
            } else if let Some(client) = self.connections.get_mut(id) {
                self.answered += u32::from(!matches!(client, Client::Peer(_)));
                client.answer(id, answer, plane, portal, now);
                self.mark(id);
            } else if let Some(initiator) = self.leaving.get_mut(&id) {
                initiator.answer(id, answer, plane, portal, now);
                if initiator.is_quiet() {
                    self.leaving.remove(&id);
                }
            } else {
                plane.put_buffer(disk, answer.frame);
            }
            // One command less: one that waits for room may come.
            while let Some(waiter) = self.room_waiters.get_mut(disk).and_then(VecDeque::pop_front) {
                if self.retry(waiter) {
                    break;
                }
            }
        }
        // Its memory is kept; what answering has led to comes after it.
        answers.append(&mut self.plane.answers);
        self.plane.answers = answers;
    }

    pub(super) fn write(&mut self) {
        let mut unwritten = std::mem::take(&mut self.unwritten);
        for id in unwritten.drain(..) {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.link().unwritten = false;
            let mut whole = connection.write(id, &mut self.plane, &mut self.portal, self.now);
            let link = connection.link();
            if link.awaited == link.writable {
                link.awaited = !link.writable;
                let source = Source::Connection(id).pack();
                whole &= epoll::modify(&self.epoll, link.fd.as_fd(), source, link.interest()).is_ok();
            }
            if !whole || connection.is_over() {
                self.drop_connection(id);
            } else if !connection.is_stalled() && connection.has_input() {
                // The session may have been full, and is not any more.
                list(&mut self.readable, connection, id);
            }
        }
        // A connection that broke may have let others' commands finish: theirs are written in the next turn.
        unwritten.append(&mut self.unwritten);
        self.unwritten = unwritten;
    }
}
