//! The loops of a node, each on a core of its own: its *shards*.
//!
//! # The problem
//! A loop is one thread. A machine with 32 cores and eight drives gets one core of service from one loop, however well that loop works.
//!
//! # The rule
//! Each pool belongs to one shard (`division.rs`), with its gates, its disks, their memory and their meters. Nothing on a request's way is
//! shared: no lock, no counter, no queue; but for disks that lie on pools of several, or whose pool asks for every core (`spread/across.rs`), whose
//! sub-requests go over lanes (`lanes.rs`). A connection comes to whichever shard accepts it first. It moves once: when it has said which disk
//! it wants, it goes to the shard of that disk, with what was read of it (`server/moving.rs`). Each shard knows the names of all disks: whoever
//! has a disk tells the others when it comes, and when it goes.
//!
//! The handle ([`crate::Control`]) routes a request to the shard that has the disk or the pool (`routes.rs`), and joins what all say
//! (`join.rs`). State file, events and the manager's agent are threads of their own, as with one shard.
//!
//! # Example
//! Pools a and b on two cores: a is shard 0's, b is shard 1's. A client connects, and shard 0 accepts it. It says GO for a disk on b, and has
//! sent a READ behind that. Shard 0 answers GO, takes the socket out of its epoll, and puts session, socket and the READ's 28 bytes into shard
//! 1's mailbox. From then on shard 0 has nothing to do with it.
//!
//! # Guarantee, and price
//! A client that its shard has taken in costs what it costs on a node with one loop. A move costs one message and one wake-up for each
//! connection. What is bounded for the node (connections) is counted behind a lock, taken when a connection comes and when it goes.
//! Memory for payloads is divided evenly: a shard whose disks want more does not get another's.

use crate::message::Message;
use crowd::Crowd;
use henge_api::{Status, Taken};
use lanes::Lanes;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

pub(crate) mod across;
pub(crate) mod crowd;
pub(crate) mod division;
mod inbox;
mod join;
pub(crate) mod lanes;
mod leads;
pub(crate) mod number;
mod routes;

pub(crate) use division::Division;
pub(crate) use number::{global, local};
pub(crate) use routes::{Routes, keep, ties};

/// The way to one loop.
#[derive(Clone)]
pub(crate) struct Loop {
    messages: Sender<Message>,
    wake: Arc<OwnedFd>,
}

impl Loop {
    /// To one that is not there yet, and what it will hear.
    pub(crate) fn new() -> io::Result<(Loop, Receiver<Message>)> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (messages, receiver) = mpsc::channel();
        Ok((Loop { messages, wake: Arc::new(wake) }, receiver))
    }

    /// False when it has ended.
    pub(crate) fn send(&self, message: Message) -> bool {
        let sent = self.messages.send(message).is_ok();
        self.wake();
        sent
    }

    /// Asks, and waits for the answer; `None` when it has ended.
    pub(crate) fn ask<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> Option<T> {
        let (reply, answer) = mpsc::channel();
        // When a loop ends, what it has not answered goes with it.
        self.send(message(reply)).then(|| answer.recv().ok()).flatten()
    }

    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Everything that it has, part by part; `whole`: with histograms, and what each gate knows. `None` once the loop has ended.
    pub(crate) fn look(&self, whole: bool) -> Option<Status> {
        let mut status: Option<Status> = None;
        let mut from = 0;
        loop {
            let slice = self.ask(|reply| Message::Sample { from, whole, reply })?;
            let all = match (&mut status, slice.head) {
                (_, Some(head)) => status.insert(head),
                (Some(status), None) => status,
                (None, None) => return None,
            };
            all.disks.extend(slice.disks);
            match slice.next {
                Some(next) => from = next,
                None => return status,
            }
        }
    }

    /// What its wake-ups are written to.
    pub(crate) fn waker(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }
}

impl AsFd for Loop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The ways to all of them.
pub(crate) struct Shards {
    loops: Vec<Loop>,
    /// The pools' names, in the order of the configuration.
    pools: Vec<String>,
    /// Who has how many clients.
    pub(crate) crowd: Arc<Crowd>,
    /// When they are about to end: those that have begun nothing for another any more.
    quiet: AtomicUsize,
}

impl Shards {
    /// This number of them, and what each will hear.
    pub(crate) fn new(count: usize, pools: Vec<String>) -> io::Result<(Shards, Vec<Receiver<Message>>)> {
        let made: Vec<_> = (0..count).map(|_| Loop::new()).collect::<Result<_, _>>()?;
        let (loops, receivers) = made.into_iter().unzip();
        Ok((
            Shards { loops, pools, crowd: Arc::new(Crowd::new(count)), quiet: AtomicUsize::new(0) },
            receivers,
        ))
    }

    pub(crate) fn count(&self) -> usize {
        self.loops.len()
    }

    /// Their lanes, by shard.
    pub(crate) fn lanes(&self) -> Vec<Lanes> {
        Lanes::between(&self.loops.iter().map(Loop::waker).collect::<Vec<_>>())
    }

    /// One that is about to end has nothing under way, and begins nothing for others. It says so once.
    pub(crate) fn say_quiet(&self) {
        if self.quiet.fetch_add(1, Ordering::AcqRel) + 1 == self.count() {
            self.wake_all();
        }
    }

    /// Whether all have said so: then nobody needs another.
    pub(crate) fn are_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire) >= self.count()
    }

    pub(crate) fn at(&self, shard: usize) -> &Loop {
        &self.loops[shard]
    }

    /// All but one.
    pub(crate) fn but(&self, here: usize) -> impl Iterator<Item = &Loop> {
        self.loops.iter().enumerate().filter(move |(shard, _)| *shard != here).map(|(_, to)| to)
    }

    /// Asks all of them, one after the other; `None` when one has ended.
    pub(crate) fn ask_all<T>(&self, message: impl Fn(Sender<T>) -> Message) -> Option<Vec<T>> {
        self.loops.iter().map(|to| to.ask(&message)).collect()
    }

    /// Tells all of them.
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        for shard in &self.loops {
            shard.send(message());
        }
    }

    /// Each looks at what has changed.
    pub(crate) fn wake_all(&self) {
        self.loops.iter().for_each(Loop::wake);
    }

    /// Returns once each shard has heard what the others had said before. Alone, it has nothing to hear.
    pub(crate) fn settle(&self) {
        if self.count() > 1 {
            // One that has ended hears nothing any more.
            let _ = self.ask_all(Message::Heard);
        }
    }

    /// The meters of everything; `whole`: with histograms, and what each gate knows. `None` once a loop has ended.
    pub(crate) fn look(&self, whole: bool) -> Option<Status> {
        // Only whole latencies can be joined.
        let joins = self.count() > 1;
        let parts = self.loops.iter().map(|to| to.look(whole || joins));
        let mut all = join::statuses(parts.collect::<Option<_>>()?, &self.pools)?;
        if joins && !whole {
            for disk in &mut all.disks {
                disk.meters.histogram = None;
                disk.flow.gates.clear();
            }
        }
        Some(all)
    }

    /// What the taps of all shards have taken.
    pub(crate) fn tap(&self) -> Option<Taken> {
        // Buffers are made here, so that no loop allocates one.
        let taken =
            self.ask_all(|reply| Message::Tap { buffer: Vec::with_capacity(crate::tap::CAPACITY), reply });
        join::taps(taken?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_a_loop_that_ends_is_not_left_waiting() {
        let (shards, receivers) = Shards::new(2, Vec::new()).unwrap();
        let asked = std::thread::scope(|scope| {
            let asks = scope.spawn(|| shards.ask_all(Message::Heard));
            let mut receivers = receivers.into_iter();
            // The first answers, the second ends with the question in its mailbox.
            let (first, second) = (receivers.next().unwrap(), receivers.next().unwrap());
            let Message::Heard(reply) = first.recv().unwrap() else { panic!() };
            reply.send(()).unwrap();
            drop((first, second));
            asks.join().unwrap()
        });
        assert_eq!(asked, None);
        assert!(!shards.at(1).send(Message::Stop));
        assert_eq!(shards.at(1).ask(Message::Heard), None);
    }
}
