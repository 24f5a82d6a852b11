//! Breaks things on purpose: errors, stalls, completions out of order, by seed.

use crate::store::parts_behind;
use crate::{Buffer, Store};
use henge_core::{
    Backend, Done, Duration, Fault, Histogram, Instant, ParamError, Params, Request, RequestId,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What goes wrong, and how often. Shares are in millionths of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Fail without being done.
    pub errors: u32,
    /// Are held back for `stall`.
    pub stalls: u32,
    /// How long.
    pub stall: Duration,
    /// Every completion waits up to this long, so that they come in another order.
    pub reorder: Duration,
    /// Move only their beginning at first (files and devices; the rest follows).
    pub short: u32,
    /// Of the choice who suffers.
    pub seed: u64,
}

impl Faults {
    /// Reads `{ errors = "1%", stalls = "0.1%", stall = "5s", reorder = "2ms", short = "5%", seed = 1 }`.
    pub fn from_params(p: &mut Params) -> Result<Faults, ParamError> {
        Ok(Faults {
            errors: p.share("errors")?.unwrap_or(0),
            stalls: p.share("stalls")?.unwrap_or(0),
            stall: p.duration("stall")?.unwrap_or(Duration::from_secs(3600)),
            reorder: p.duration("reorder")?.unwrap_or(Duration::ZERO),
            short: p.share("short")?.unwrap_or(0),
            seed: p.integer("seed", 0, i64::MAX as u64)?.unwrap_or(1),
        })
    }
}

struct Held {
    until: Instant,
    done: Done<Buffer>,
}

/// A store that cannot be relied on.
pub struct Faulty<S> {
    store: S,
    faults: Faults,
    dice: Pcg64Mcg,
    held: Vec<Held>,
}

impl<S: Store> Faulty<S> {
    /// Breaks what goes to `store`.
    pub fn new(faults: Faults, store: S) -> Self {
        Faulty { store, faults, dice: Pcg64Mcg::seed_from_u64(faults.seed), held: Vec::new() }
    }
    fn hold(&mut self, done: Done<Buffer>, now: Instant) {
        let mut until = now;
        if self.dice.random_range(0..1_000_000) < u64::from(self.faults.stalls) {
            until += self.faults.stall;
        }
        let most = self.faults.reorder.as_nanos();
        until += Duration::from_nanos(self.dice.random_range(0..=most));
        self.held.push(Held { until, done });
    }
}

impl<S: Store> Backend for Faulty<S> {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        if self.dice.random_range(0..1_000_000) < u64::from(self.faults.errors) {
            self.hold(Done { id: request.id, outcome: Err(Fault::Io), busy: None, payload }, now);
        } else {
            self.store.submit(request, payload, now);
        }
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        while let Some(done) = self.store.reap(now) {
            self.hold(done, now);
        }
        let earliest = (0..self.held.len()).min_by_key(|i| self.held[*i].until)?;
        (self.held[earliest].until <= now).then(|| self.held.swap_remove(earliest).done)
    }
    fn awaits_others(&mut self) -> Option<RequestId> {
        self.store.awaits_others()
    }
    fn wake_at(&self) -> Option<Instant> {
        let held = self.held.iter().map(|h| h.until).min();
        match (held, self.store.wake_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    fn capacity(&self) -> u64 {
        self.store.capacity()
    }
    fn quantum(&self) -> u64 {
        self.store.quantum()
    }
}

impl<S: Store> Store for Faulty<S> {
    parts_behind!(|wrapper| wrapper.store);
    fn describe(&self) -> String {
        format!("faults in front of {}", self.store.describe())
    }
    fn lateness(&self) -> Option<&Histogram> {
        self.store.lateness()
    }
}
