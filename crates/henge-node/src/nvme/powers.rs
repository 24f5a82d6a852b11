//! Powers that hosts' proofs need, computed beside the loop: one of them takes up to a tenth of a second.
//!
//! One thread computes them in the order in which they are asked for. Each connection asks for one at a time, so that what waits
//! is bounded by the connections. A host whose turn comes too late has run out of its time to prove who it is.

use henge_core::RequestId;
use henge_nvme::auth::Derivation;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A connection, its command, and what that waits for.
type Job = (RequestId, RequestId, Derivation);
/// The same, with the power.
type Done = (RequestId, RequestId, Vec<u8>);

/// What is computed, and what is done.
pub(crate) struct Powers {
    wake: Arc<OwnedFd>,
    /// The thread, once somebody has asked.
    jobs: Option<Sender<Job>>,
    done: Option<Receiver<Done>>,
    /// Asked for and not given out.
    open: usize,
}

impl Powers {
    /// `wake` wakes the loop.
    pub(super) fn new(wake: Arc<OwnedFd>) -> Powers {
        Powers { wake, jobs: None, done: None, open: 0 }
    }

    /// False when the system gives no thread: then nobody can prove anything now.
    pub(super) fn begin(&mut self, connection: RequestId, task: RequestId, derivation: &Derivation) -> bool {
        if self.jobs.is_none() && !self.start() {
            return false;
        }
        let job = (connection, task, derivation.clone());
        let begun = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        self.open += usize::from(begun);
        begun
    }

    fn start(&mut self) -> bool {
        let (jobs, waiting) = channel::<Job>();
        let (results, done) = channel();
        let wake = Arc::clone(&self.wake);
        let work = move || {
            while let Ok((connection, task, derivation)) = waiting.recv() {
                if results.send((connection, task, derivation.run())).is_err() {
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

    /// The next one that is done.
    pub(crate) fn next(&mut self) -> Option<Done> {
        if self.open == 0 {
            return None;
        }
        let done = self.done.as_ref()?.try_recv().ok()?;
        self.open -= 1;
        Some(done)
    }
}
