//! An emulated disk: the timing of a device model, in real time, in front of any store.
//!
//! A request goes to the store at once and to the model at once; it is over when both are done with it. The model
//! is asked at the very instants it names, so what happens inside (seek after seek) is exact; only the moment at
//! which the node hears of it is late, by as much as the node is. That lateness is measured, because a run in
//! which it is large says nothing about the disk. The store is asked for a result once the model has one, and for no more
//! of them than that: memory copies when it is asked, and a burst of long requests would hold up the node.

use crate::store::parts_behind;
use crate::{Buffer, Store};
use henge_core::{Backend, Done, Duration, Fault, Histogram, Instant, Model, Request, RequestId};
use std::collections::VecDeque;

struct Half {
    id: RequestId,
    /// The store's answer, when it came first.
    store: Option<(Result<(), Fault>, Buffer)>,
    /// The model's busy time and fault, when it came first.
    model: Option<(Result<(), Fault>, Option<Duration>)>,
}

/// A store that is as slow as the disk it plays.
pub struct Emulated<S> {
    store: S,
    model: Model,
    halves: Vec<Option<Half>>,
    done: VecDeque<Done<Buffer>>,
    /// Requests that the model is done with, and the store is not known to be.
    owed: usize,
    lateness: Histogram,
}

impl<S: Store> Emulated<S> {
    /// `model` in front of `store`.
    pub fn new(model: Model, store: S) -> Self {
        let (halves, done) = (Vec::new(), VecDeque::new());
        Emulated { store, model, halves, done, owed: 0, lateness: Histogram::default() }
    }

    fn half(&mut self, id: RequestId) -> &mut Half {
        let half = self.halves[id.index()].as_mut().expect("under way in both halves");
        assert_eq!(half.id, id, "another generation is under way there");
        half
    }

    fn whole(&mut self, id: RequestId) {
        let half = self.half(id);
        let (Some(_), Some(_)) = (&half.store, &half.model) else { return };
        let half = self.halves[id.index()].take().expect("just looked at");
        let (Some((stored, payload)), Some((modelled, busy))) = (half.store, half.model) else {
            unreachable!("both were just there")
        };
        self.done.push_back(Done { id, outcome: stored.and(modelled), busy, payload });
    }
}

impl<S: Store> Backend for Emulated<S> {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        let slot = request.id.index();
        if self.halves.len() <= slot {
            self.halves.resize_with(slot + 1, || None);
        }
        self.halves[slot] = Some(Half { id: request.id, store: None, model: None });
        self.model.submit(request, (), now);
        self.store.submit(request, payload, now);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        while let Some(due) = self.model.wake_at().filter(|due| *due <= now) {
            let mut any = false;
            while let Some(Done { id, outcome, busy, .. }) = self.model.reap(due) {
                any = true;
                self.lateness.record(now.since(due));
                let half = self.half(id);
                half.model = Some((outcome, busy));
                let owed = half.store.is_none();
                self.owed += usize::from(owed);
                self.whole(id);
            }
            // An event of the model's own passed without a completion, or it would be asked for ever.
            assert!(any || self.model.wake_at() != Some(due), "a model that wakes for nothing");
        }
        while self.done.is_empty() && self.owed > 0 {
            let Some(Done { id, outcome, payload, .. }) = self.store.reap(now) else { break };
            let half = self.half(id);
            half.store = Some((outcome, payload));
            let owed = half.model.is_some();
            self.owed -= usize::from(owed);
            self.whole(id);
        }
        self.done.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        if !self.done.is_empty() {
            return Some(Instant::ZERO);
        }
        let store = self.store.wake_at().filter(|_| self.owed > 0);
        match (store, self.model.wake_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    fn capacity(&self) -> u64 {
        self.store.capacity().min(self.model.capacity())
    }
    fn quantum(&self) -> u64 {
        match self.model.quantum() {
            u64::MAX => self.store.quantum(),
            says => says,
        }
    }
}

impl<S: Store> Store for Emulated<S> {
    parts_behind!(|wrapper| wrapper.store);
    fn describe(&self) -> String {
        format!("emulated disk in front of {}", self.store.describe())
    }
    fn lateness(&self) -> Option<&Histogram> {
        Some(&self.lateness)
    }
}
