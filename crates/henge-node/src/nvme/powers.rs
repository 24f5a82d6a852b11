//! Powers that hosts' proofs need, computed beside the loop: one of them takes up to a tenth of a second.
//!
//! One thread computes them in the order in which they are asked for. Each connection asks for one at a time, and what a connection asked for
//! that is gone is passed over: so what waits is bounded by the connections. A host whose turn comes too late has run out of its time to prove
//! who it is.

use henge_core::RequestId;
use henge_nvme::auth::Derivation;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

/// A power to be computed, for a command of a connection.
struct Job {
    connection: RequestId,
    task: RequestId,
    derivation: Derivation,
    /// Somebody waits for it.
    wanted: Weak<()>,
}
/// A connection, its command, and the power, unless nobody waits for it.
type Done = (RequestId, RequestId, Option<Vec<u8>>);

/// What is computed, and what is done.
pub(crate) struct Powers {
    wake: Arc<OwnedFd>,
    /// The thread, once somebody has asked.
    jobs: Option<Sender<Job>>,
    done: Option<Receiver<Done>>,
    /// Asked for and not given out.
    open: usize,
    /// Connections that wait.
    waiting: BTreeMap<RequestId, Arc<()>>,
}

impl Powers {
    /// `wake` wakes the loop.
    pub(super) fn new(wake: Arc<OwnedFd>) -> Powers {
        Powers { wake, jobs: None, done: None, open: 0, waiting: BTreeMap::new() }
    }

    /// False when the system gives no thread: then nobody can prove anything now.
    pub(super) fn begin(&mut self, connection: RequestId, task: RequestId, derivation: &Derivation) -> bool {
        if self.jobs.is_none() && !self.start() {
            return false;
        }
        let waits = Arc::new(());
        let job = Job { connection, task, derivation: derivation.clone(), wanted: Arc::downgrade(&waits) };
        let begun = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        self.open += usize::from(begun);
        self.waiting.insert(connection, waits);
        begun
    }

    /// A connection is gone: nobody waits for what it has asked for.
    pub(super) fn forget(&mut self, connection: RequestId) {
        self.waiting.remove(&connection);
    }

    fn start(&mut self) -> bool {
        let (jobs, waiting) = channel::<Job>();
        let (results, done) = channel();
        let wake = Arc::clone(&self.wake);
        let work = move || {
            while let Ok(job) = waiting.recv() {
                if results.send(carry_out(&job)).is_err() {
                    return;
                }
                let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
            }
        };
        let started = std::thread::Builder::new().name("henge-proofs".into()).spawn(work);
        if let Err(e) = &started {
            tracing::warn!("no thread for proofs of hosts: {e}");
            return false;
        }
        (self.jobs, self.done) = (Some(jobs), Some(done));
        true
    }

    /// The next one that is done: whose it is, and the power.
    pub(crate) fn next(&mut self) -> Option<(RequestId, RequestId, Vec<u8>)> {
        while self.open > 0 {
            let (connection, task, power) = self.done.as_ref()?.try_recv().ok()?;
            self.open -= 1;
            if let Some(power) = power {
                self.waiting.remove(&connection);
                return Some((connection, task, power));
            }
        }
        None
    }
}

fn carry_out(job: &Job) -> Done {
    let is_wanted = job.wanted.strong_count() > 0;
    (job.connection, job.task, is_wanted.then(|| job.derivation.run()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who asks and hangs up again and again keeps the thread from nobody.
    #[test]
    fn what_nobody_waits_for_is_not_computed() {
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let (jobs, asked) = channel();
        let (results, done) = channel();
        let mut powers = Powers { jobs: Some(jobs), done: Some(done), ..Powers::new(Arc::new(wake)) };
        let id = |slot| RequestId { slot, generation: 0 };
        for connection in 0..100 {
            assert!(powers.begin(id(connection), id(7), &Derivation::default()));
            if connection != 50 {
                powers.forget(id(connection));
            }
        }
        asked.try_iter().for_each(|job| results.send(carry_out(&job)).unwrap());
        assert_eq!(powers.next().map(|(connection, task, _)| (connection, task)), Some((id(50), id(7))));
        assert_eq!((powers.next(), powers.open, powers.waiting.len()), (None, 0, 0));
    }
}
