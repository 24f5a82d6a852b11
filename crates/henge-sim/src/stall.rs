//! A device that stands still for a while: a cache that is flushed, a path that fails over, a snapshot.
//!
//! ```text
//!   model's time   t before `at`;  `at` until `at + lasts`;  t − lasts from then on
//! ```
//!
//! So what is in service when it begins takes that much longer, and nothing is lost.

use henge_core::{Backend, Done, Duration, Instant, Model, ParamError, Params, Request};

/// One stall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    at: Instant,
    lasts: Duration,
}

impl Stall {
    /// `stall = { at = "60s", lasts = "3s" }`, or a list of such, ascending.
    pub fn read(p: &mut Params) -> Result<Vec<Stall>, ParamError> {
        let mut stalls: Vec<Stall> = Vec::new();
        for mut table in p.tables("stall")? {
            let (at, lasts) = (table.duration("at")?, table.duration("lasts")?);
            let at = Instant::ZERO + table.required("at", at)?;
            let lasts = table.required("lasts", lasts)?;
            if stalls.last().is_some_and(|s| s.at + s.lasts > at) {
                return Err(table.error("at", "a stall begins when the one before it is over".into()));
            }
            table.finish()?;
            stalls.push(Stall { at, lasts });
        }
        Ok(stalls)
    }

    /// A model with these.
    pub fn add(model: Model, stalls: &[Stall]) -> Model {
        if stalls.is_empty() {
            return model;
        }
        Box::new(Stalling { model, stalls: stalls.to_vec() })
    }
}

struct Stalling {
    model: Model,
    stalls: Vec<Stall>,
}

impl Stalling {
    /// The model's time now.
    fn inner(&self, now: Instant) -> Instant {
        let mut behind = Duration::ZERO;
        for stall in self.stalls.iter().filter(|s| s.at < now) {
            behind += stall.lasts.min(now.since(stall.at));
        }
        now - behind
    }
    /// When the model's time has come to `inner`.
    fn outer(&self, inner: Instant) -> Instant {
        // What happens at the very moment of a stall happens before it.
        self.stalls.iter().fold(inner, |at, stall| if at > stall.at { at + stall.lasts } else { at })
    }
}

impl Backend for Stalling {
    type Payload = ();
    fn submit(&mut self, request: &Request, payload: (), now: Instant) {
        let now = self.inner(now);
        self.model.submit(request, payload, now);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        let now = self.inner(now);
        self.model.reap(now)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.model.wake_at().map(|at| self.outer(at))
    }
    fn capacity(&self) -> u64 {
        self.model.capacity()
    }
    fn quantum(&self) -> u64 {
        self.model.quantum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_and_goes_on() {
        let s = |s: u64| Instant::ZERO + Duration::from_secs(s);
        let stalls =
            [(10, 3), (20, 1)].map(|(at, lasts)| Stall { at: s(at), lasts: Duration::from_secs(lasts) });
        let model = henge_device::DeviceSpec::from_table(
            Params::new("device").with(
                "constant",
                henge_core::Value::Table(
                    Params::new("constant").with("time", henge_core::Value::Text("1s".into())),
                ),
            ),
            &henge_device::no_files,
        );
        let stalling = Stalling { model: model.unwrap().build().into_model(), stalls: stalls.to_vec() };
        for (now, inner) in [(5, 5), (10, 10), (12, 10), (13, 10), (14, 11), (20, 17), (21, 17), (30, 26)] {
            assert_eq!(stalling.inner(s(now)), s(inner), "at {now}");
        }
        for (inner, outer) in [(5, 5), (10, 10), (11, 14), (17, 20), (18, 22)] {
            assert_eq!(stalling.outer(s(inner)), s(outer), "inner {inner}");
        }
    }
}
