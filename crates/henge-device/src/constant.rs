//! A device of constant rate: the plainest model, and the one whose behavior can be worked out by hand.
//!
//! A request needs `time` plus `len / rate` of service. Requests are served in the order they came:
//!
//! - [`Sharing::Serial`]: one after another;
//! - [`Sharing::Slots`]`(n)`: up to n at a time, each slot moving bytes at rate/n whatever the others do;
//! - [`Sharing::Even`]: all at a time, each at an equal share of the whole rate (processor sharing).
//!
//! With [`Growth`] the device reaches its rate only when enough requests are in flight: with n of them it
//! works at `min(1, a*n / (n + b))` of its full speed, as disks that order their queue do.
//!
//! Example: 50 MB/s, serial, two requests of 1 MB at once: done after 20 ms and 40 ms. Over two slots: both
//! after 40 ms. With a = 1.15, b = 2 and serial service the first runs at 1.15 * 2/4 = 0.575 of full speed and
//! is done after 34.8 ms; the second, alone then, at 0.383, needs 52.2 ms more.
//!
//! Guarantee: work done never exceeds speed times time; all rounding is late, and below 2 ns a request.

use crate::completions::Completions;
use henge_core::{Backend, Done, Duration, Fault, Instant, Request, RequestId};
use std::collections::VecDeque;

/// How requests in flight share the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// One after another.
    #[default]
    Serial,
    /// So many independent servers.
    Slots(u32),
    /// All at once, in equal shares.
    Even,
}

/// Speed as a function of the number in flight, `min(1, a*n / (n + b))`; in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// a in thousandths: above 1000 full speed is reached at a finite depth.
    pub a_milli: u32,
    /// b in thousandths: a*n/(n+b) is half of a at n = b.
    pub b_milli: u32,
}

/// What the device is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConstantConfig {
    /// Bytes a second of the whole device; `None` moves bytes in no time.
    pub rate: Option<u64>,
    /// Spent on each request besides.
    pub time: Duration,
    /// How requests share it.
    pub sharing: Sharing,
    /// Speed by depth, if it depends on it.
    pub growth: Option<Growth>,
    /// Bytes it holds.
    pub capacity: u64,
}

/// Fixed-point bits of work and speed.
const BITS: u32 = 20;
/// Full speed.
const FULL: u128 = 1 << BITS;

struct Job {
    id: RequestId,
    /// Service still needed, in ns at full speed, with [`BITS`] fractional bits.
    left: u128,
    started: Option<Instant>,
}

/// The device.
pub struct Constant {
    config: ConstantConfig,
    jobs: VecDeque<Job>,
    now: Instant,
    /// A request that needs no time at all came since the last look.
    instant: bool,
    done: Completions,
}

impl Constant {
    /// An idle device.
    pub fn new(config: ConstantConfig) -> Self {
        assert!(config.sharing != Sharing::Slots(0), "a device has at least one slot");
        assert!(config.rate != Some(0), "a rate of zero serves nothing");
        Constant {
            config,
            jobs: VecDeque::new(),
            now: Instant::ZERO,
            instant: false,
            done: Completions::default(),
        }
    }

    /// How many of the queue are in service.
    fn active(&self) -> usize {
        match self.config.sharing {
            Sharing::Serial => self.jobs.len().min(1),
            Sharing::Slots(n) => self.jobs.len().min(n as usize),
            Sharing::Even => self.jobs.len(),
        }
    }

    /// Speed of each request in service.
    fn speed(&self) -> u128 {
        let n = self.jobs.len() as u128;
        let full = match self.config.growth {
            None => FULL,
            Some(Growth { a_milli, b_milli }) => {
                let grown = ((u128::from(a_milli) * n) << BITS) / (n * 1000 + u128::from(b_milli));
                grown.clamp(1, FULL)
            }
        };
        match self.config.sharing {
            Sharing::Even => (full / n.max(1)).max(1),
            _ => full,
        }
    }

    fn work(&self, len: u64) -> u128 {
        let slots = match self.config.sharing {
            Sharing::Slots(n) => u128::from(n),
            _ => 1,
        };
        let moving = match self.config.rate {
            None => 0,
            Some(rate) => ((u128::from(len) * slots * 1_000_000_000) << BITS).div_ceil(u128::from(rate)),
        };
        (u128::from(self.config.time.as_nanos()) << BITS) + moving
    }

    /// Ns until the first of those in service is done.
    fn first_done_in(&self) -> Option<u64> {
        let least = self.jobs.iter().take(self.active()).map(|j| j.left).min()?;
        let ns = match self.speed() {
            // At full speed no division of 128 bits is needed, which costs as much as a tenth of a simulated request.
            FULL => (least + (FULL - 1)) >> BITS,
            speed => least.div_ceil(speed),
        };
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Serves until `until`; speed changes only where a request comes or goes.
    fn advance(&mut self, until: Instant) {
        if until == self.now && !std::mem::take(&mut self.instant) {
            return; // whoever is in service needs some time more
        }
        while let Some(first) = self.first_done_in() {
            let step = until.since(self.now).as_nanos().min(first);
            let (served, active) = (u128::from(step) * self.speed(), self.active());
            let at = self.now + Duration::from_nanos(step);
            for job in self.jobs.iter_mut().take(active) {
                job.started.get_or_insert(self.now);
                job.left = job.left.saturating_sub(served);
            }
            self.now = at;
            if step < first {
                break;
            }
            // Only those in service can be over: the queue behind them is not looked at.
            let (mut place, mut in_service) = (0, active);
            while place < in_service {
                if self.jobs[place].left > 0 {
                    place += 1;
                    continue;
                }
                let job = self.jobs.remove(place).expect("it was just looked at");
                in_service -= 1;
                let started = job.started.expect("a request in service has started");
                self.done.push(at, job.id, Ok(()), at.since(started));
            }
        }
        self.now = self.now.max(until);
    }
}

impl Backend for Constant {
    type Payload = ();

    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        self.advance(now);
        if request.end() > self.config.capacity {
            return self.done.push(now, request.id, Err(Fault::OutOfRange), Duration::ZERO);
        }
        let left = self.work(if crate::moves_data(request.op) { request.len } else { 0 });
        self.jobs.push_back(Job { id: request.id, left, started: None });
        if left == 0 {
            self.instant = true;
            self.advance(now);
        }
    }

    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        self.advance(now);
        self.done.pop(now)
    }

    fn wake_at(&self) -> Option<Instant> {
        let next = self.first_done_in().map(|ns| self.now + Duration::from_nanos(ns));
        match (self.done.next_at(), next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn capacity(&self) -> u64 {
        self.config.capacity
    }

    /// It says nothing of pieces.
    fn quantum(&self) -> u64 {
        u64::MAX
    }
}
