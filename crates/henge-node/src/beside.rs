//! What would keep a loop from everybody, computed on a thread beside it: powers that hosts' proofs need, which take up to a tenth of a second, and
//! steps of handshakes by TLS, which take some tenths of a millisecond.
//!
//! One thread computes them, and has one at a time. Addresses take turns: whoever asks much from one address holds up others by one
//! in each turn of theirs. Of one address, the first one that asks is the first. Each connection asks for one at a time, and what a
//! connection asked for that is gone is forgotten: so what waits is bounded by the connections. A client whose turn comes too late has run
//! out of its time to prove who it is.
//!
//! The thread gives way to the loop, also where they have one processor: strangers ask for this, and whoever is served comes first.

use henge_core::RequestId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// An address, and the number of what was asked for from there.
type Place = (Option<IpAddr>, u64);
/// A connection, and what it asks for or gets.
type Of<T> = (RequestId, T);

/// What is computed, and what is done.
pub(crate) struct Beside<J, D> {
    /// What the thread is called, and does.
    name: &'static str,
    work: fn(J) -> D,
    wake: Arc<OwnedFd>,
    /// The thread, once somebody has asked.
    jobs: Option<Sender<Of<J>>>,
    done: Option<Receiver<Of<D>>>,
    /// The thread has one.
    is_busy: bool,
    /// What it is still to have.
    queue: BTreeMap<Place, Of<J>>,
    next_number: u64,
    /// Whose turn was last.
    last: Option<IpAddr>,
    /// Connections that wait, and for what.
    waiting: BTreeMap<RequestId, Place>,
}

impl<J: Send + 'static, D: Send + 'static> Beside<J, D> {
    /// `wake` wakes the loop.
    pub(crate) fn new(name: &'static str, work: fn(J) -> D, wake: Arc<OwnedFd>) -> Beside<J, D> {
        Beside {
            name,
            work,
            wake,
            jobs: None,
            done: None,
            is_busy: false,
            queue: BTreeMap::new(),
            next_number: 0,
            last: None,
            waiting: BTreeMap::new(),
        }
    }

    /// A connection that comes `from` there asks for one. False when the system gives no thread: then nobody can prove anything now.
    pub(crate) fn begin(&mut self, from: Option<IpAddr>, connection: RequestId, job: J) -> bool {
        if self.jobs.is_none() && !self.start() {
            return false;
        }
        self.forget(connection);
        let place = (from, self.next_number);
        self.next_number += 1;
        self.queue.insert(place, (connection, job));
        self.waiting.insert(connection, place);
        self.hand_out()
    }

    /// A connection is gone: nobody waits for what it has asked for.
    pub(crate) fn forget(&mut self, connection: RequestId) {
        if let Some(place) = self.waiting.remove(&connection) {
            self.queue.remove(&place);
        }
    }

    /// The thread has the next one, of the next address. False when it is gone.
    fn hand_out(&mut self) -> bool {
        if self.is_busy {
            return true;
        }
        let after = self.queue.range((self.last, u64::MAX)..).next().or_else(|| self.queue.first_key_value());
        let Some(place) = after.map(|(place, _)| *place) else { return true };
        let Some(job) = self.queue.remove(&place) else { return true };
        self.last = place.0;
        self.is_busy = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        self.is_busy
    }

    fn start(&mut self) -> bool {
        let (jobs, waiting) = channel::<Of<J>>();
        let (results, done) = channel();
        let (work, wake) = (self.work, Arc::clone(&self.wake));
        let work = move || {
            henge_io::give_some_way();
            while let Ok((connection, job)) = waiting.recv() {
                if results.send((connection, work(job))).is_err() {
                    return;
                }
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            }
        };
        let started = std::thread::Builder::new().name(self.name.into()).spawn(work);
        if let Err(e) = &started {
            tracing::warn!("no thread for {}: {e}", self.name);
            return false;
        }
        (self.jobs, self.done) = (Some(jobs), Some(done));
        true
    }

    /// Whether the thread has nothing to do.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_busy
    }

    /// The next one that is done: whose it is, and what came of it.
    pub(crate) fn next(&mut self) -> Option<Of<D>> {
        while self.is_busy {
            let done = self.done.as_ref()?.try_recv().ok()?;
            self.is_busy = false;
            self.hand_out();
            if self.waiting.remove(&done.0).is_some() {
                return Some(done);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Powers = Beside<(), ()>;

    fn id(slot: u32) -> RequestId {
        RequestId { slot, generation: 0 }
    }

    fn from(address: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, address]))
    }

    /// Powers whose thread is the test: what it is to do, and where results go.
    fn powers() -> (Powers, Receiver<Of<()>>, Sender<Of<()>>) {
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let (jobs, asked) = channel();
        let (results, done) = channel();
        let beside = Beside::new("henge-test", |()| (), Arc::new(wake));
        (Beside { jobs: Some(jobs), done: Some(done), ..beside }, asked, results)
    }

    /// Does what is asked for, until nothing is: for whom, in order.
    fn all(powers: &mut Powers, asked: &Receiver<Of<()>>, results: &Sender<Of<()>>) -> Vec<u32> {
        let mut order = Vec::new();
        while let Ok((connection, ())) = asked.try_recv() {
            assert!(asked.try_recv().is_err(), "one at a time");
            results.send((connection, ())).unwrap();
            order.extend(powers.next().map(|(connection, ..)| connection.slot));
        }
        order
    }

    /// Who asks and hangs up again and again keeps the thread from nobody.
    #[test]
    fn what_nobody_waits_for_is_not_computed() {
        let (mut powers, asked, results) = powers();
        for connection in 0..100 {
            assert!(powers.begin(from(1), id(connection), ()));
            if connection != 50 {
                powers.forget(id(connection));
            }
        }
        assert_eq!(powers.queue.len(), 1, "the thread has the first one");
        assert_eq!(all(&mut powers, &asked, &results), [50]);
        assert_eq!((powers.next(), powers.is_busy, powers.waiting.len()), (None, false, 0));
    }

    /// A power takes as long as thousands of requests of others, and anybody may ask for one after the other.
    #[test]
    fn the_thread_gives_way_to_loops() {
        let wake = Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
        let mut powers = Beside::new("henge-gives-way", |()| (), Arc::clone(&wake));
        assert!(powers.begin(from(1), id(1), ()));
        rustix::io::read(&wake, &mut [0; 8]).unwrap();
        assert_eq!(powers.next(), Some((id(1), ())));
        let named = |path: &std::path::Path| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "henge-gives-way")
        };
        let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
        let mut priorities = threads.filter(|path| named(path)).map(|path| {
            let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            rustix::process::getpriority_process(rustix::process::Pid::from_raw(number)).unwrap()
        });
        assert!(priorities.any(|priority| priority == 10), "a ninth of a loop's");
    }

    /// A hundred proofs from one address are one turn each to others.
    #[test]
    fn addresses_take_turns() {
        let (mut powers, asked, results) = powers();
        for connection in 0..100 {
            assert!(powers.begin(from(9), id(connection), ()));
        }
        for (connection, address) in [(200, 1), (201, 250), (202, 1)] {
            assert!(powers.begin(from(address), id(connection), ()));
        }
        let order = all(&mut powers, &asked, &results);
        assert_eq!(order[..6], [0, 201, 200, 1, 202, 2]);
        assert_eq!((order.len(), powers.is_busy, powers.waiting.len()), (103, false, 0));
    }
}
