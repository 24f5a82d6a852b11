//! What is measured of one flow, command by command.
//!
//! Totals count from the end of the warm-up; windows cover the whole run, for plots and for rules about a part
//! of it. A flow's promise is judged as its contract states it:
//!
//! - latency: a command that came while at most `pending` of its flow were pending, and was answered later than
//!   the bound, is a *miss*;
//! - rate: every command gets the tag `T = max(arrival, T of the one before) + count / rate`; one answered more
//!   than 250 ms after its tag is a miss. (`behind` counts those answered after their tag at all.)
//!
//! What is still unanswered at the end and late already counts as well.

use crate::Arrivals;
use henge_core::{Contract, CostUnit, Duration, Histogram, Instant, Rate, Request, WaitReason};

/// How late after its tag a command may be before a rate counts as missed.
const GRACE: Duration = Duration::from_millis(250);

/// A client's command as the meters see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    /// When it was meant to be sent.
    pub arrival: Instant,
    /// Commands of its flow that were pending when it came.
    pub pending: u32,
    /// Its tag at the contract's rate.
    pub tag: Option<Instant>,
    /// What it counts, in the unit of the contract's rate.
    pub bytes: u64,
    /// Reads are counted apart.
    pub read: bool,
    /// How often it counts against a rate in commands, in millionths.
    pub commands: u64,
}

/// How an answered command fared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub wait: Duration,
    pub service: Duration,
    pub failed: bool,
}

/// One flow during one window of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Commands answered.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Median latency.
    pub p50: Duration,
    /// 95th percentile of latency.
    pub p95: Duration,
    /// Largest latency.
    pub max: Duration,
    /// Answered later than the contract's bound.
    pub late: u64,
    /// Disk time attributed to the flow.
    pub disk_time: Duration,
    /// Commands that came.
    pub arrived: u64,
    /// Time during which commands were pending.
    pub busy: Duration,
    /// Commands pending, integrated over time: its share of the window's width is their mean number.
    pub outstanding: Duration,
}

/// Everything measured of one flow.
#[derive(Clone, Debug, Default)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// What it was promised at the end of the run.
    pub contract: Contract,
    /// What its load is; it says so where that is synthetic.
    pub load: String,
    /// Commands that came after the warm-up.
    pub arrived: u64,
    /// Commands answered after the warm-up.
    pub answered: u64,
    /// The same as a rate counts them (long ones several times), in millionths.
    pub counted: u64,
    /// Of them reads.
    pub reads: u64,
    /// Bytes answered.
    pub bytes: u64,
    /// Answered with an error.
    pub faults: u64,
    /// Unanswered at the end.
    pub left: u64,
    /// Arrival to answer.
    pub latency: Histogram,
    /// How its requests waited, and what served them.
    pub service: Service,
    /// How its promise was kept.
    pub conformance: Conformance,
    /// The run in windows.
    pub windows: Vec<Window>,
    /// What came to each of its components; counted where a rate is promised.
    pub arrivals: Arrivals,
}

/// How a flow's requests waited, and what served them.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Time waited in gates, in all.
    pub wait: Duration,
    /// Time its oldest request waited, by reason; all zero unless the run explains.
    pub waits: [Duration; WaitReason::ALL.len()],
    /// Time from dispatch to completion, in all.
    pub time: Duration,
    /// Disk time attributed by the gates.
    pub disk_time: Duration,
    /// Time the device models were truly busy with it.
    pub busy: Duration,
    /// Cost charged, in the gates' unit.
    pub charged: u64,
}

/// How a flow's promise was kept.
#[derive(Clone, Debug, Default)]
pub struct Conformance {
    /// Answered, or due and unanswered, later than the contract's bound.
    pub late: u64,
    /// Commands that the contract covers.
    pub judged: u64,
    /// Of them not served as promised.
    pub missed: u64,
    /// Arrival to answer of the commands that a latency bound covers; of nothing without `pending`.
    pub conforming: Histogram,
    /// Answered after their tag at the contract's rate.
    pub behind: u64,
}

/// Measures one flow while the run goes.
pub(crate) struct Meter {
    pub outcome: FlowOutcome,
    warm_from: Instant,
    width: Duration,
    /// Latencies of the open window.
    open: Vec<u64>,
    current: Window,
    tag: Instant,
    pub pending: u32,
    /// Until when `busy` and `outstanding` are counted.
    counted: Instant,
}

impl Meter {
    pub(crate) fn new(name: &str, contract: Contract, warm_from: Instant, width: Duration) -> Self {
        assert!(width > Duration::ZERO, "windows have a width");
        let outcome = FlowOutcome { name: name.to_owned(), contract, ..FlowOutcome::default() };
        Meter {
            outcome,
            warm_from,
            width,
            open: Vec::new(),
            current: Window::default(),
            tag: Instant::ZERO,
            pending: 0,
            counted: Instant::ZERO,
        }
    }

    /// The contract changed: its promises count from now on.
    pub(crate) fn set_contract(&mut self, contract: &Contract) {
        self.outcome.contract = contract.clone();
        self.tag = Instant::ZERO;
    }

    /// A command came.
    pub(crate) fn submitted(&mut self, mut asked: Submitted, now: Instant) -> Submitted {
        self.roll(now);
        self.current.arrived += 1;
        self.outcome.arrived += u64::from(now >= self.warm_from);
        asked.pending = self.pending;
        self.pending += 1;
        if let Some(rate) = self.outcome.contract.rate {
            self.tag = self.tag.max(asked.arrival) + time_for(rate, &asked);
            asked.tag = Some(self.tag);
        }
        asked
    }

    /// A command was answered.
    pub(crate) fn answered(&mut self, asked: &Submitted, answered: Answered, now: Instant) {
        self.roll(now);
        self.pending -= 1;
        let latency = now.since(asked.arrival);
        let late = self.outcome.contract.latency.is_some_and(|l| latency > l.bound);
        self.open.push(latency.as_nanos());
        self.current.commands += 1;
        self.current.bytes += asked.bytes;
        self.current.late += u64::from(late);
        if now < self.warm_from {
            return;
        }
        let outcome = &mut self.outcome;
        outcome.answered += 1;
        outcome.counted += asked.commands;
        outcome.reads += u64::from(asked.read);
        outcome.bytes += asked.bytes;
        outcome.faults += u64::from(answered.failed);
        outcome.latency.record(latency);
        outcome.service.wait += answered.wait;
        outcome.service.time += answered.service;
        self.judge(asked, now);
    }

    /// Whether a promise was broken, at `now` as the time of the answer.
    fn judge(&mut self, asked: &Submitted, now: Instant) {
        let FlowOutcome { contract, conformance, .. } = &mut self.outcome;
        if let Some(latency) = contract.latency {
            let late = now.since(asked.arrival) > latency.bound;
            conformance.late += u64::from(late);
            if contract.pending.is_none_or(|most| asked.pending <= most) {
                conformance.judged += 1;
                conformance.missed += u64::from(late);
                if contract.pending.is_some() {
                    conformance.conforming.record(now.since(asked.arrival));
                }
            }
        }
        if let Some(tag) = asked.tag {
            conformance.behind += u64::from(now > tag);
            if contract.latency.is_none() {
                conformance.judged += 1;
                conformance.missed += u64::from(now > tag + GRACE);
            }
        }
    }

    /// A part of a command was served by a gate.
    pub(crate) fn served(
        &mut self,
        request: &Request,
        disk_time: Duration,
        busy: Option<Duration>,
        now: Instant,
    ) {
        self.roll(now);
        self.current.disk_time += disk_time;
        if now >= self.warm_from {
            let service = &mut self.outcome.service;
            service.disk_time += disk_time;
            service.busy += busy.unwrap_or_default();
            service.charged += request.cost.get();
        }
    }

    /// The run is over; `unanswered` are the commands still pending.
    pub(crate) fn finish<'a>(
        mut self,
        unanswered: impl Iterator<Item = &'a Submitted>,
        end: Instant,
    ) -> FlowOutcome {
        self.roll(end);
        for asked in unanswered {
            self.outcome.left += 1;
            let late = |l: henge_core::Latency| end.since(asked.arrival) > l.bound;
            let behind = |tag: Instant| end > tag + GRACE;
            if self.outcome.contract.latency.is_some_and(late) || asked.tag.is_some_and(behind) {
                self.judge(asked, end);
            }
        }
        self.outcome
    }

    /// Counts what was pending until `now`, in the open window.
    fn count(&mut self, now: Instant) {
        let time = now.since(self.counted);
        self.counted = self.counted.max(now);
        if self.pending > 0 {
            self.current.busy += time;
            self.current.outstanding += time * u64::from(self.pending);
        }
    }

    /// Closes the windows that ended by `now`.
    fn roll(&mut self, now: Instant) {
        loop {
            let end = Instant::ZERO + self.width * (self.outcome.windows.len() as u64 + 1);
            if end > now {
                return self.count(now);
            }
            self.count(end);
            let mut window = std::mem::take(&mut self.current);
            window.max = Duration::from_nanos(self.open.iter().copied().max().unwrap_or(0));
            window.p95 = quantile(&mut self.open, 95);
            window.p50 = quantile(&mut self.open, 50);
            self.open.clear();
            self.outcome.windows.push(window);
        }
    }
}

/// The smallest value that `percent` of all are not above; zero of none.
fn quantile(values: &mut [u64], percent: usize) -> Duration {
    if values.is_empty() {
        return Duration::ZERO;
    }
    let rank = (values.len() * percent).div_ceil(100).max(1) - 1;
    Duration::from_nanos(*values.select_nth_unstable(rank).1)
}

/// How long a command may take at a contract's rate.
fn time_for(rate: Rate, asked: &Submitted) -> Duration {
    let count = match rate.unit {
        CostUnit::Requests => asked.commands,
        CostUnit::Bytes => asked.bytes,
        // Disk time is known afterwards only; such a contract is not judged by tags.
        CostUnit::DiskTime => 0,
    };
    rate.time_for(henge_core::Cost::new(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::Latency;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }
    fn submitted(ms: u64) -> Submitted {
        Submitted { arrival: at(ms), pending: 0, tag: None, bytes: 512, read: true, commands: 1_000_000 }
    }
    const NO_WAIT: Answered = Answered { wait: Duration::ZERO, service: Duration::ZERO, failed: false };

    #[test]
    fn a_rate_is_missed_250_ms_after_the_tag() {
        // 10/s: tags at 100, 200 and 300 ms for three that come together.
        let contract = Contract::reserved(Rate::requests(10));
        let mut meter = Meter::new("a", contract, Instant::ZERO, Duration::from_secs(1));
        let three: Vec<Submitted> = (0..3).map(|_| meter.submitted(submitted(0), at(0))).collect();
        assert_eq!(three[2].tag, Some(at(300)));
        meter.answered(&three[0], NO_WAIT, at(100)); // on its tag
        meter.answered(&three[1], NO_WAIT, at(450)); // 250 ms after it
        meter.answered(&three[2], NO_WAIT, at(551)); // one ms more
        let outcome = meter.finish([].iter(), at(2000));
        let Conformance { judged, behind, missed, .. } = outcome.conformance;
        assert_eq!((judged, behind, missed), (3, 2, 1));
        assert_eq!(outcome.windows.len(), 2);
        assert_eq!(outcome.windows[0].p50, Duration::from_millis(450));
    }

    #[test]
    fn a_latency_is_promised_up_to_pending() {
        let latency = Latency { bound: Duration::from_millis(20), percentile: 950_000 };
        let contract = Contract { latency: Some(latency), pending: Some(1), ..Contract::default() };
        let mut meter = Meter::new("a", contract, Instant::ZERO, Duration::from_secs(1));
        let all: Vec<Submitted> = (0..4).map(|_| meter.submitted(submitted(0), at(0))).collect();
        meter.answered(&all[0], NO_WAIT, at(20));
        meter.answered(&all[1], NO_WAIT, at(21)); // late, one was pending: a miss
        meter.answered(&all[2], NO_WAIT, at(22)); // late, but two were pending: no miss
        let outcome = meter.finish([all[3]].iter(), at(30));
        let Conformance { late, judged, missed, .. } = outcome.conformance;
        assert_eq!((late, judged, missed, outcome.left), (3, 2, 1, 1));
    }

    #[test]
    fn the_warm_up_counts_in_windows_alone() {
        let mut meter = Meter::new("a", Contract::default(), at(1000), Duration::from_secs(1));
        let early = meter.submitted(submitted(0), at(0));
        meter.answered(&early, NO_WAIT, at(10));
        let later = meter.submitted(submitted(1500), at(1500));
        meter.answered(&later, NO_WAIT, at(1600));
        let outcome = meter.finish([].iter(), at(2000));
        assert_eq!((outcome.arrived, outcome.answered), (1, 1));
        assert_eq!(outcome.windows.iter().map(|w| w.commands).collect::<Vec<_>>(), [1, 1]);
    }
}
