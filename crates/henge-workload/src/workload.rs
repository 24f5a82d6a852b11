//! One flow's requests, as its driver (the simulator, or a load generator) issues them.
//!
//! A workload is a *source* (what to ask: a generator or a trace) with a *pace* (when to ask):
//!
//! - **open**: requests come at their own times, whatever is outstanding;
//! - **windowed**: the same, but at most N are outstanding; what is held back leaves as soon as there is room;
//! - **closed**: N threads, each asking again some think time after its answer.
//!
//! The driver calls [`Workload::next`] when it starts, at the instant that `Next::At` named, and after every
//! [`Workload::complete`], until the answer is not `Issue`.
//!
//! [`Record::at`] of an issued record is the moment it was meant to be sent, from which latency counts: its own time
//! (open), its own time or the completion that made room, whichever is later (windowed: the client's window is the
//! client's business, not the storage's), the end of the think time (closed). A late driver thereby measures its lateness.

use crate::ranks::Ranks;
use crate::replay::Replay;
use crate::{Arrivals, Level, Pattern, Record, TraceError};
use henge_core::{Duration, Instant};
use rand::RngExt;
use rand_distr::Exp1;
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// What a driver is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Send this now; name `thread` when it is complete.
    Issue {
        /// The request, and when it was meant to be sent.
        record: Record,
        /// Whose it is.
        thread: u32,
    },
    /// Nothing before this instant (it may come earlier when something completes).
    At(Instant),
    /// Nothing until something completes.
    Full,
    /// Nothing any more; what is outstanding may still complete.
    End,
}

/// The time a thread takes from an answer to its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// Always the same.
    Constant(Duration),
    /// Memoryless with this mean.
    Exponential(Duration),
}

impl Think {
    fn draw(&self, rng: &mut Pcg64) -> Duration {
        match self {
            Think::Constant(span) => *span,
            Think::Exponential(mean) => {
                Duration::from_secs_f64(mean.as_secs_f64() * rng.sample::<f64, _>(Exp1))
            }
        }
    }
}

/// What generates requests.
#[derive(Debug)]
pub(crate) enum Maker {
    Pattern(Pattern),
    Ranks(Ranks),
}

impl Maker {
    /// The next request of `thread`: what, and how long the thread computes before it. `None` when it has done its part.
    fn draw(&mut self, thread: u32, at: Instant) -> Option<(Record, Duration)> {
        match self {
            Maker::Pattern(pattern) => {
                let (op, offset, len) = pattern.draw(thread, at);
                Some((Record { at, device: 0, op, offset, len }, Duration::ZERO))
            }
            Maker::Ranks(ranks) => ranks.draw(thread).map(|(op, offset, len, compute)| {
                (Record { at: at + compute, device: 0, op, offset, len }, compute)
            }),
        }
    }
}

/// Where requests with times of their own come from.
#[derive(Debug)]
pub(crate) enum Timed {
    Made(Maker, Arrivals),
    Trace(Replay),
}

impl Timed {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        match self {
            Timed::Trace(replay) => replay.next_record(),
            Timed::Made(maker, arrivals) => {
                let Some(at) = arrivals.next_arrival() else { return Ok(None) };
                Ok(maker.draw(0, at).map(|(record, _)| Record { at, ..record }))
            }
        }
    }
}

/// Where the requests of threads come from.
#[derive(Debug)]
pub(crate) enum Untimed {
    Made(Maker),
    Trace(Replay),
}

#[derive(Debug)]
pub(crate) enum Pace {
    Timed {
        source: Timed,
        /// Most outstanding; `None` is open.
        window: Option<Level>,
        /// The next one, drawn but not issued.
        ahead: Option<Record>,
        /// Since when the window takes another one.
        open_since: Instant,
    },
    Closed {
        source: Untimed,
        threads: Level,
        think: Think,
        /// Threads in their think time, by its end, with the request they will send if it was already drawn.
        ready: BinaryHeap<Reverse<(Instant, u32)>>,
        /// Requests drawn before their compute time was over.
        drawn: Vec<Option<Record>>,
        /// Threads that wait until the level asks for as many.
        parked: BTreeSet<u32>,
        rng: Pcg64,
    },
}

/// One flow's requests; see the module's head.
#[derive(Debug)]
pub struct Workload {
    pub(crate) pace: Pace,
    pub(crate) stop: Instant,
    pub(crate) requests_left: u64,
    pub(crate) outstanding: u64,
    /// What is written or measured about it, for tables.
    pub(crate) label: String,
}

impl Workload {
    /// One line on what this is; it says so where it is synthetic.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Requests issued and not yet complete.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// What to do at `now`. Time does not go back between calls.
    pub fn next(&mut self, now: Instant) -> Result<Next, TraceError> {
        if self.requests_left == 0 || now >= self.stop {
            return Ok(Next::End);
        }
        let next = match &mut self.pace {
            Pace::Timed { source, window, ahead, open_since } => {
                next_timed(source, window.as_ref(), ahead, open_since, self.outstanding, now)?
            }
            Pace::Closed { .. } => self.pace.next_thread(self.outstanding, now)?,
        };
        Ok(match next {
            Next::Issue { record, .. } if record.at >= self.stop => Next::End,
            Next::At(at) if at >= self.stop => Next::End,
            Next::Issue { .. } => {
                self.requests_left -= 1;
                self.outstanding += 1;
                next
            }
            _ => next,
        })
    }

    /// A request issued as `thread` is over, well or not.
    pub fn complete(&mut self, thread: u32, now: Instant) {
        assert!(self.outstanding > 0, "each issued request completes once");
        match &mut self.pace {
            Pace::Timed { window, open_since, .. } => {
                // FAR says that a request is held back; see `next_timed`.
                let room = window.as_ref().is_none_or(|w| self.outstanding - 1 < w.value(now));
                if *open_since == Instant::FAR && room {
                    *open_since = now;
                }
            }
            Pace::Closed { think, ready, rng, .. } => ready.push(Reverse((now + think.draw(rng), thread))),
        }
        self.outstanding -= 1;
    }

    /// Changes the number of threads, or of requests in the window, from now on.
    pub fn set_outstanding(&mut self, level: Level) {
        match &mut self.pace {
            Pace::Timed { window, .. } => *window = Some(level),
            Pace::Closed { threads, parked, drawn, .. } => {
                let known = drawn.len() as u32;
                let most = u32::try_from(level.max()).unwrap_or(u32::MAX).max(known);
                parked.extend(known..most);
                drawn.resize(most as usize, None);
                *threads = level;
            }
        }
    }

    /// Changes the rate of arrivals (millionths of a request per second) from the next draw on; closed loops have none.
    pub fn set_rate(&mut self, level: Level) {
        if let Pace::Timed { source: Timed::Made(_, arrivals), .. } = &mut self.pace {
            arrivals.set_level(level);
        }
    }

    /// Changes the probability of adjacency (millionths) from now on; traces and ranks keep their own.
    pub fn set_locality(&mut self, level: Level) {
        let maker = match &mut self.pace {
            Pace::Timed { source: Timed::Made(maker, _), .. }
            | Pace::Closed { source: Untimed::Made(maker), .. } => maker,
            _ => return,
        };
        if let Maker::Pattern(pattern) = maker {
            pattern.set_locality(level);
        }
    }
}

fn next_timed(
    source: &mut Timed,
    window: Option<&Level>,
    ahead: &mut Option<Record>,
    open_since: &mut Instant,
    outstanding: u64,
    now: Instant,
) -> Result<Next, TraceError> {
    if ahead.is_none() {
        *ahead = source.next_record()?;
    }
    let Some(record) = *ahead else { return Ok(Next::End) };
    if record.at > now {
        return Ok(Next::At(record.at));
    }
    if let Some(window) = window
        && outstanding >= window.value(now)
    {
        *open_since = Instant::FAR;
        return Ok(window.next_change(now).map_or(Next::Full, Next::At));
    }
    *ahead = None;
    // Held back until now: the window itself has grown.
    *open_since = (*open_since).min(now);
    let at = if window.is_some() { record.at.max(*open_since) } else { record.at };
    Ok(Next::Issue { record: Record { at, ..record }, thread: 0 })
}

impl Pace {
    /// What the first thread that is ready does.
    fn next_thread(&mut self, outstanding: u64, now: Instant) -> Result<Next, TraceError> {
        let Pace::Closed { source, threads, ready, drawn, parked, .. } = self else {
            unreachable!("called for closed loops alone");
        };
        let allowed = u32::try_from(threads.value(now)).unwrap_or(u32::MAX);
        while let Some(&thread) = parked.first().filter(|t| **t < allowed) {
            parked.remove(&thread);
            ready.push(Reverse((now, thread)));
        }
        let change = threads.next_change(now);
        loop {
            let Some(&Reverse((at, thread))) = ready.peek() else {
                let idle = if outstanding == 0 { Next::End } else { Next::Full };
                return Ok(change.map_or(idle, Next::At));
            };
            if at > now {
                return Ok(Next::At(change.map_or(at, |c| c.min(at))));
            }
            ready.pop();
            if thread >= allowed {
                parked.insert(thread);
                continue;
            }
            if let Some(record) = drawn[thread as usize].take() {
                return Ok(Next::Issue { record, thread });
            }
            let record = match source {
                Untimed::Trace(replay) => replay.next_record()?.map(|r| Record { at, ..r }),
                Untimed::Made(Maker::Ranks(ranks)) if ranks.gathers(thread) => {
                    // The last one lets all go on; their requests are drawn at once, so that nobody gathers twice.
                    for thread in ranks.gather(thread) {
                        if let Some((op, offset, len, compute)) = ranks.draw(thread) {
                            let record = Record { at: at + compute, device: 0, op, offset, len };
                            drawn[thread as usize] = Some(record);
                            ready.push(Reverse((record.at, thread)));
                        }
                    }
                    continue;
                }
                Untimed::Made(maker) => match maker.draw(thread, at) {
                    Some((record, compute)) if record.at > now => {
                        drawn[thread as usize] = Some(record);
                        ready.push(Reverse((at + compute, thread)));
                        continue;
                    }
                    drawn => drawn.map(|(record, _)| record),
                },
            };
            // A thread that has done its part is forgotten.
            if let Some(record) = record {
                return Ok(Next::Issue { record, thread });
            }
        }
    }
}
