//! A workload as configuration writes it.
//!
//! ```toml
//! workload = { pattern = "sequential", size = "64KiB", read = 1.0, outstanding = 8 }
//! workload = { preset = "tpc-c", rate = "128/s", outstanding = 64 }
//! workload = { trace = "financial1.spc", speed = 1.25, window = 32 }
//! ```
//!
//! | keys | |
//! |---|---|
//! | `pattern` | `sequential`, `random` or `zipf` (with `skew`, 1 if unsaid) |
//! | `preset` | a name of [`preset::NAMES`](crate::preset::NAMES), `ior` or `btio` |
//! | `trace` | a file; `format`, `time_unit`, `offset_unit`, `size_unit`, `event`, `module`, `skip_damaged` say how to read it, `speed`, `place`, `extent`, `devices`, `device`, `reorder`, `backwards`, `dedup` how to replay it |
//! | what | `size` (a size, `{ from, to }`, or a list of `{ size, share }`), `read`, `locality`, `recent`, `align`, `streams` |
//! | where | `offset`, `span`: the area on the virtual disk; all of it if unsaid |
//! | when | `outstanding` alone: closed loop of that many threads, with `think` (a time or `{ exponential = time }`); `rate` alone: open, with `arrivals`; both: open arrivals through a window of `outstanding` (a trace calls it `window`) |
//! | arrivals | `poisson`, `constant`, `{ on-off = { on, off, random } }`, `{ self-similar = { hurst, sources, period } }`, `{ gamma = { shape } }`, `{ processes = { count, within } }`; `rate` may be a ramp, see [`Level`] |
//! | how long | `start`, `stop` (times of the run), `requests` |
//!
//! `rate`, `outstanding` and `locality` may change over time, see [`Level`].

mod made;
mod paced;
mod program;
mod traced;

use crate::workload::{Maker, Pace, Timed, Untimed};
use crate::{
    Arrivals, Level, Mix, Pattern, Process, Program, Ranks, Records, Replay, ReplayOptions, Think,
    TraceOptions, Workload,
};
use henge_core::{Instant, ParamError, Params};
use rand_pcg::Pcg64;
use std::cmp::Reverse;

/// A trace that a workload names. The caller opens the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// As it was written; relative to whatever the caller says.
    pub file: String,
    /// How to read it.
    pub options: TraceOptions,
    /// How to replay it.
    pub replay: ReplayOptions,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Mix(Mix),
    Ranks(Program),
    Trace(TraceSpec),
}

/// A workload's description; [`Spec::build`] makes the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    what: What,
    /// Requests a second in millionths, with the arrival process; `None` is a closed loop, or a trace's own times.
    arrivals: Option<(Process, Level)>,
    /// Threads of a closed loop, or the window.
    outstanding: Option<Level>,
    think: Think,
    offset: u64,
    span: Option<u64>,
    start: Instant,
    stop: Instant,
    requests: u64,
    label: String,
}

impl Spec {
    /// Reads the table `workload = { … }` and refuses keys that it does not know.
    pub fn from_params(mut p: Params) -> Result<Spec, ParamError> {
        let spec = match (p.text("pattern")?, p.text("preset")?, p.text("trace")?) {
            (Some(pattern), None, None) => made::made(&mut p, &pattern)?,
            (None, Some(name), None) => made::named(&mut p, &name)?,
            (None, None, Some(file)) => traced::traced(&mut p, file)?,
            _ => {
                let what = "a workload has exactly one of pattern, preset and trace";
                return Err(p.error_here(what.to_owned()));
            }
        };
        p.finish()?;
        Ok(spec)
    }

    /// The trace that [`Spec::build`] wants to be given, if it is one.
    pub fn trace(&self) -> Option<&TraceSpec> {
        match &self.what {
            What::Trace(trace) => Some(trace),
            _ => None,
        }
    }

    /// One line on what this is; it says so where it is synthetic.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Mean bytes of a request, where that is known beforehand.
    pub fn mean_size(&self) -> Option<f64> {
        match &self.what {
            What::Mix(mix) => Some(mix.mean_size()),
            _ => None,
        }
    }

    /// The workload on a virtual disk of `capacity` bytes. Equal seeds and streams give equal requests; give every flow
    /// a stream of its own. `trace` holds the records of the trace that [`Spec::trace`] names.
    pub fn build(
        &self,
        capacity: u64,
        seed: u64,
        stream: u64,
        trace: Option<Records>,
    ) -> Result<Workload, String> {
        let rest = capacity.checked_sub(self.offset).filter(|rest| *rest > 0);
        let rest =
            rest.ok_or_else(|| format!("offset {} lies beyond the disk of {capacity} bytes", self.offset))?;
        let span = self.span.unwrap_or(rest);
        if span > rest {
            return Err(format!(
                "the area of {span} bytes at {} ends beyond the disk of {capacity} bytes",
                self.offset
            ));
        }
        // Three generators of one stream number, so that what is asked does not depend on when.
        let rng = |part: u64| Pcg64::new(u128::from(seed) << 64 | u128::from(stream), u128::from(part));
        let pace = match &self.what {
            What::Trace(spec) => {
                let records = trace.ok_or("the trace was not opened")?;
                let replay = Replay::new(records, spec.replay.clone(), self.offset, span, self.start);
                match (&self.outstanding, spec.replay.speed) {
                    (Some(threads), 0) => self.closed(Untimed::Trace(replay), threads, rng(2)),
                    (window, _) => timed(Timed::Trace(replay), window.clone()),
                }
            }
            made => {
                let maker = match made {
                    What::Mix(mix) => Maker::Pattern(Pattern::new(mix.clone(), self.offset, span, rng(0))?),
                    What::Ranks(program) => Maker::Ranks(Ranks::new(*program, self.offset, span)?),
                    What::Trace(_) => unreachable!("handled above"),
                };
                match (&self.arrivals, &self.outstanding) {
                    (Some((process, rate)), window) => {
                        let arrivals = Arrivals::new(process.clone(), rate.clone(), self.start, rng(1));
                        timed(Timed::Made(maker, arrivals), window.clone())
                    }
                    (None, Some(threads)) => self.closed(Untimed::Made(maker), threads, rng(2)),
                    (None, None) => unreachable!("from_params sees to it that there is a pace"),
                }
            }
        };
        Ok(Workload {
            pace,
            stop: self.stop,
            requests_left: self.requests,
            outstanding: 0,
            label: self.label.clone(),
        })
    }

    fn closed(&self, source: Untimed, threads: &Level, rng: Pcg64) -> Pace {
        let most = u32::try_from(threads.max()).unwrap_or(u32::MAX);
        Pace::Closed {
            source,
            threads: threads.clone(),
            think: self.think,
            ready: (0..most).map(|thread| Reverse((self.start, thread))).collect(),
            drawn: vec![None; most as usize],
            parked: Default::default(),
            rng,
        }
    }
}

fn timed(source: Timed, window: Option<Level>) -> Pace {
    Pace::Timed { source, window, ahead: None, open_since: Instant::ZERO }
}
