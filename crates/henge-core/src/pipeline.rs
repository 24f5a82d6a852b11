//! A gate with a backend behind it: the part that simulator and node share.

use crate::{Backend, Dispatch, Done, Duration, Fault, Gate, Instant, Op, Request, RequestId, Served};
use std::collections::VecDeque;

/// Most requests without bytes that are over in a row, and the backend is not asked what it has finished: whoever makes them without end
/// would keep everybody else's data there.
const IDLE: u32 = 4;

/// A request that is over.
#[derive(Debug)]
pub struct Finished<P> {
    /// What the gate knows of it.
    pub served: Served,
    /// How it went.
    pub outcome: Result<(), Fault>,
    /// The device time it truly took, where the backend knows.
    pub busy: Option<Duration>,
    /// Its data, given back.
    pub payload: P,
}

/// The flow's queue was full; everything is given back.
#[derive(Debug)]
pub struct Rejected<P> {
    /// Most that may be pending.
    pub pending: u32,
    /// As it was submitted.
    pub request: Request,
    /// Its data.
    pub payload: P,
}

/// Gate + backend. The owner calls [`submit`](Self::submit) when a request comes, and
/// [`poll`](Self::poll) until it returns `None` after every submission, at [`wake_at`](Self::wake_at), and
/// when the backend signals.
pub struct Pipeline<B: Backend> {
    gate: Gate,
    backend: B,
    payloads: Vec<Option<B::Payload>>,
    /// Dispatched requests without bytes: they took their turn, and the backend has nothing to do for them.
    idle: VecDeque<(RequestId, B::Payload)>,
    /// Those that were over since the backend was asked last.
    in_a_row: u32,
}

impl<B: Backend> Pipeline<B> {
    /// Joins the two.
    pub fn new(gate: Gate, backend: B) -> Self {
        Pipeline { gate, backend, payloads: Vec::new(), idle: VecDeque::new(), in_a_row: 0 }
    }

    /// Takes a request and its data in.
    pub fn submit(
        &mut self,
        request: Request,
        payload: B::Payload,
        now: Instant,
    ) -> Result<(), Rejected<B::Payload>> {
        if let Err(full) = self.gate.submit(request, now) {
            return Err(Rejected { pending: full.pending, request: full.request, payload });
        }
        let slot = request.id.index();
        if self.payloads.len() <= slot {
            self.payloads.resize_with(slot + 1, || None);
        }
        self.payloads[slot] = Some(payload);
        Ok(())
    }

    /// Takes a waiting request out again, with its data; `None` once it is in flight or over.
    pub fn cancel(&mut self, id: RequestId, now: Instant) -> Option<(Request, B::Payload)> {
        let request = self.gate.cancel(id, now)?;
        let payload = self.payloads[id.index()].take().expect("a waiting request has its data here");
        Some((request, payload))
    }

    /// The data of a request that the gate gave back (a removed flow's orphan).
    pub fn take_payload(&mut self, id: RequestId) -> Option<B::Payload> {
        self.payloads.get_mut(id.index())?.take()
    }

    /// Dispatches what may go. Whoever polls no further for now calls it, so that a slot that has become free does not stay so until
    /// it polls again.
    pub fn submit_ready(&mut self, now: Instant) {
        // What is idle gives its slot back before the next one is looked for.
        while self.idle.is_empty()
            && let Dispatch::Ready(request) = self.gate.next(now)
        {
            let payload =
                self.payloads[request.id.index()].take().expect("a waiting request has its data here");
            if request.len == 0 && request.op != Op::Flush {
                self.idle.push_back((request.id, payload));
            } else {
                self.backend.submit(&request, payload, now);
            }
        }
    }

    /// Dispatches what may go, and returns the next request that is over, if any.
    pub fn poll(&mut self, now: Instant) -> Option<Finished<B::Payload>> {
        self.submit_ready(now);
        let done = match self.next_idle(self.in_a_row < IDLE) {
            Some(done) => done,
            None => match self.finished(now) {
                Some(done) => done,
                None => self.next_idle(true)?,
            },
        };
        let Done { id, outcome, busy, payload } = done;
        let served = self.gate.complete(id, outcome.is_err(), now);
        Some(Finished { served, outcome, busy, payload })
    }

    /// A request without bytes that is over, if it is one's turn.
    fn next_idle(&mut self, turn: bool) -> Option<Done<B::Payload>> {
        let (id, payload) = turn.then(|| self.idle.pop_front())??;
        self.in_a_row += 1;
        Some(Done { id, outcome: Ok(()), busy: None, payload })
    }

    /// What the backend has finished. A slot that becomes free meanwhile is filled at once.
    fn finished(&mut self, now: Instant) -> Option<Done<B::Payload>> {
        self.in_a_row = 0;
        match self.reap(now) {
            (None, true) => {
                self.submit_ready(now);
                self.reap(now).0
            }
            (done, _) => done,
        }
    }

    /// What the backend has finished, and whether it has let go of slots.
    fn reap(&mut self, now: Instant) -> (Option<Done<B::Payload>>, bool) {
        let done = self.backend.reap(now);
        let mut freed = false;
        while let Some(id) = self.backend.awaits_others() {
            freed |= self.gate.awaits_others(id, now);
        }
        (done, freed)
    }

    /// When [`poll`](Self::poll) has something to do without a submission or a signal.
    pub fn wake_at(&self) -> Option<Instant> {
        match (self.gate.wake_at(), self.backend.wake_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The gate, to look at.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
    /// The gate, to control.
    pub fn gate_mut(&mut self) -> &mut Gate {
        &mut self.gate
    }
    /// The backend, to look at.
    pub fn backend(&self) -> &B {
        &self.backend
    }
    /// The backend, to control.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }
}
