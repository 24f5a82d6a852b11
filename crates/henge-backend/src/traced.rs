//! One line per request, as it is over: for looking at what a store was asked.

use crate::store::parts_behind;
use crate::{Buffer, Store};
use henge_core::{Backend, Done, Histogram, Instant, Request, RequestId};
use std::io::{self, Write};

/// A store that is watched. Columns: op, offset, len, fua, submitted_ns, completed_ns, outcome.
pub struct Traced<S> {
    store: S,
    to: Box<dyn Write>,
    pending: Vec<Option<(Request, Instant)>>,
}

impl<S: Store> Traced<S> {
    /// Writes what goes through `store` to `to`, after a line with the columns' names.
    pub fn new(mut to: Box<dyn Write>, store: S) -> io::Result<Self> {
        writeln!(to, "op,offset,len,fua,submitted_ns,completed_ns,outcome")?;
        Ok(Traced { store, to, pending: Vec::new() })
    }
}

impl<S: Store> Backend for Traced<S> {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        let slot = request.id.index();
        if self.pending.len() <= slot {
            self.pending.resize(slot + 1, None);
        }
        self.pending[slot] = Some((*request, now));
        self.store.submit(request, payload, now);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        let done = self.store.reap(now)?;
        let (r, at) = self.pending[done.id.index()].take().expect("what is over was submitted");
        let outcome = done.outcome.as_ref().map_or_else(ToString::to_string, |()| "ok".into());
        let (op, fua) = (r.op.as_str(), u8::from(r.fua));
        // A trace that cannot be written must not stop the storage.
        let _ = writeln!(
            self.to,
            "{op},{},{},{fua},{},{},{outcome}",
            r.offset,
            r.len,
            at.as_nanos(),
            now.as_nanos()
        );
        Some(done)
    }
    fn awaits_others(&mut self) -> Option<RequestId> {
        self.store.awaits_others()
    }
    fn wake_at(&self) -> Option<Instant> {
        self.store.wake_at()
    }
    fn capacity(&self) -> u64 {
        self.store.capacity()
    }
    fn quantum(&self) -> u64 {
        self.store.quantum()
    }
}

impl<S: Store> Store for Traced<S> {
    parts_behind!(|wrapper| wrapper.store);
    fn describe(&self) -> String {
        format!("traced {}", self.store.describe())
    }
    fn lateness(&self) -> Option<&Histogram> {
        self.store.lateness()
    }
}
