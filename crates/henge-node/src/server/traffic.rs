//! What clients send is taken in, and they are answered.

use super::{NOBODY, Server, Source, around};
use crate::link::End;
use crate::server::{moving, patience, shakes};
use crate::session::Stop;
use crate::targets::TargetRegistry;
use crate::turns::{Done, Of, STEP, Way};
use henge_core::{Duration, RequestId};
use rustix::event::epoll;
use std::collections::VecDeque;
use std::os::fd::AsFd;

impl Server {
    /// Connections read and write by turns, until nobody has anything, or gates are to be looked at, or the round has done its part.
    pub(super) fn move_bytes(&mut self) {
        let step = self.turns.step();
        self.plane.round.begin_step(Duration::from_nanos(STEP));
        while !self.turns.is_over()
            && self.turns.estimated() < step
            && let Some(turn) = self.turns.next(self.now)
        {
            let id = turn.connection;
            let before = self.plane.taken_in;
            match turn.way {
                Way::In => self.read(id),
                Way::Out => self.write(id),
            }
            let (commands, messages) = self.plane.taken_in.since(before);
            let mut done = Done { commands, others: messages.saturating_sub(commands), bytes: 0 };
            if let Some(connection) = self.clients.all.get_mut(id) {
                let link = &mut connection.link;
                done.bytes = std::mem::take(&mut link.moved);
                if turn.way == Way::Out {
                    done.commands = std::mem::take(&mut link.answers);
                }
            }
            self.turns.done(turn, done, self.now);
            self.charge();
            if self.plane.round.is_step_over() {
                break;
            }
        }
    }

    /// What was done for disks beside moving their bytes counts for their turns.
    pub(super) fn charge(&mut self) {
        while let Some((disk, bytes)) = self.plane.round.next_copied() {
            self.turns.charge(Of::Disk(disk), bytes);
        }
    }

    pub(super) fn read(&mut self, id: RequestId) {
        let Some(connection) = self.clients.all.get_mut(id) else { return };
        connection.link.runnable = false;
        if connection.is_mute {
            return;
        }
        let (before, refused) = (connection.disk(), self.plane.memory.refused);
        let stop = connection.read(around!(self, id), &mut self.chunk);
        let shake = connection.link.stream.shake();
        let flushed = connection.link.stream.is_flushed();
        let speaks = connection.has_output() || connection.is_over() || !flushed;
        if stop == Stop::Away {
            return moving::send_away(self, id);
        }
        if let (None, Some(disk)) = (before, connection.disk())
            && !self.enter(id, disk)
        {
            return;
        }
        if let Some(shake) = shake
            && !shakes::begin(self, id, shake)
        {
            return;
        }
        let Some(connection) = self.clients.all.get_mut(id) else { return };
        let disk = connection.disk();
        connection.link.waits = stop == Stop::Stalled;
        if speaks {
            self.mark(id);
        }
        patience::note_waits(self, id, stop, self.plane.memory.refused != refused);
        match stop {
            Stop::Waiting | Stop::Away => {}
            Stop::Turn => self.want(id, Way::In),
            Stop::Stalled => {
                let disk = disk.expect("a command belongs to a disk");
                let has_capacity = self.plane.disks.has_capacity(disk);
                if has_capacity && self.clients.all.get(id).is_some_and(|client| client.link.end == End::Gone)
                {
                    // What it waits with is for nobody.
                    self.drop_connection(id);
                } else if has_capacity {
                    let waiters = self.waiters.memory.entry(disk).or_default();
                    if waiters.is_empty() {
                        self.waiters.thirsty.push_back(disk);
                    }
                    waiters.push_back(id);
                } else {
                    self.wait_for_capacity(disk, id);
                }
            }
            Stop::Gone => {
                // What it was told before still goes out, as far as the socket takes it.
                if let Some(connection) = self.clients.all.get_mut(id) {
                    connection.write(around!(self, id));
                }
                self.drop_connection(id);
            }
        }
    }

    fn wait_for_capacity(&mut self, disk: usize, id: RequestId) {
        if self.waiters.capacity.len() <= disk {
            self.waiters.capacity.resize_with(disk + 1, VecDeque::new);
        }
        self.waiters.capacity[disk].push_back(id);
    }

    /// Reads on from a connection that waited for something.
    pub(super) fn retry(&mut self, id: RequestId) -> bool {
        let Some(connection) = self.clients.all.get_mut(id) else { return false };
        let waited = connection.is_stalled();
        self.want(id, Way::In);
        waited
    }

    pub(super) fn answer(&mut self) {
        let mut answers = std::mem::take(&mut self.plane.answers);
        for answer in answers.drain(..) {
            let disk = answer.disk;
            let id = answer.submitter.connection;
            if answer.submitter == NOBODY
                && answer.outcome.is_err()
                && self.plane.disks.of(disk).spread.is_none()
                && self.stopping.is_some()
            {
                self.plane.disks.of(disk).doubts.unflushed = true;
            }
            if TargetRegistry::owns(&answer.submitter) {
                self.registry.answer(answer, &mut self.plane, self.now);
            } else if let Some(client) = self.clients.all.get_mut(id) {
                self.poll.answered += u32::from(!client.is_node);
                client.link.answers += 1;
                client.completed(answer, around!(self, id));
                self.mark(id);
            } else if let Some(client) = self.clients.leaving.get_mut(&id) {
                client.completed(answer, around!(self, id));
                if client.is_quiet() {
                    self.clients.leaving.remove(&id);
                }
            } else {
                self.plane.put_buffer(disk, answer.frame);
            }
            // One command less: one that waits for room may come.
            while let Some(waiter) = self.waiters.capacity.get_mut(disk).and_then(VecDeque::pop_front) {
                if self.retry(waiter) {
                    break;
                }
            }
        }
        // Its memory is kept; what answering has led to comes after it.
        answers.append(&mut self.plane.answers);
        self.plane.answers = answers;
    }

    pub(super) fn write(&mut self, id: RequestId) {
        let Some(connection) = self.clients.all.get_mut(id) else { return };
        connection.link.unwritten = false;
        let mut whole = connection.write(around!(self, id));
        let link = &mut connection.link;
        whole &= link.flush();
        let (flushed, writable) = (link.stream.is_flushed(), link.writable);
        if link.awaited == link.writable {
            link.awaited = !link.writable;
            let source = Source::Connection(id).pack();
            whole &= epoll::modify(&self.poll.epoll, link.stream.as_fd(), source, link.interest()).is_ok();
        }
        let more = connection.has_output() && writable;
        if !whole || flushed && connection.is_over() && !more {
            return self.drop_connection(id);
        }
        let (waits, disk) = (connection.is_to_wait(), connection.disk());
        connection.link.waits |= waits;
        // What an answer has led to may lack room or memory, too: who is not known to wait for it tries again, and then is.
        let reads = connection.has_input() && !(connection.link.waits && connection.is_stalled());
        if more {
            self.want(id, Way::Out);
        }
        if waits {
            self.wait_for_capacity(disk.expect("a command belongs to a disk"), id);
        }
        // The session may have been full, and is not any more.
        if reads {
            self.want(id, Way::In);
        }
    }
}
