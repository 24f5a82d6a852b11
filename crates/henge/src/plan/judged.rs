//! A simulated run, judged as the promise ledger judges a node: second by second.

use henge_api::{Buckets, CommandMeters, DiskStatus, Promise};
use henge_core::{Contract, Duration, Histogram};
use henge_node::{Judge, Second};
use henge_sim::{FlowOutcome, Outcome};
use std::collections::BTreeMap;

/// How a disk's promise fared, over all windows of a recording.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The contract in force at the end.
    pub contract: Contract,
    /// Seconds in which the disk wanted what it is promised.
    pub wanted: u64,
    /// Of them, those in which it got it.
    pub kept: u64,
    /// The longest 95th percentile of latency of a second.
    pub slowest: Duration,
    /// The least that it received in a wanted second, in the unit of its rate a second. Only with a rate.
    pub least: Option<f64>,
    /// Latency of all commands.
    pub latency: Histogram,
    /// Commands answered, and measured seconds.
    pub answered: u64,
    pub seconds: f64,
}

impl Judged {
    /// Seconds in which it wanted its promise and did not get it.
    pub fn missed(&self) -> u64 {
        self.wanted - self.kept
    }

    /// The percentile that the contract names, else 95.
    pub fn percentile(&self) -> f64 {
        self.contract.latency.map_or(95.0, |l| f64::from(l.percentile) / 1e4)
    }

    /// The latency that this share of commands, in percent, kept.
    pub fn latency_at(&self, percentile: f64) -> Option<Duration> {
        self.latency.quantile(percentile / 100.0)
    }

    fn add(&mut self, other: Judged) {
        self.contract = other.contract;
        self.wanted += other.wanted;
        self.kept += other.kept;
        self.slowest = self.slowest.max(other.slowest);
        self.least = [self.least, other.least].into_iter().flatten().reduce(f64::min);
        self.latency.merge(&other.latency);
        self.answered += other.answered;
        self.seconds += other.seconds;
    }
}

/// Each flow of some runs, by name.
pub fn judged<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> BTreeMap<String, Judged> {
    let mut all: BTreeMap<String, Judged> = BTreeMap::new();
    for outcome in outcomes {
        let width = outcome.timing.window;
        for flow in &outcome.flows {
            all.entry(flow.name.clone()).or_default().add(one(flow, width, outcome.seconds()));
        }
    }
    all
}

fn one(flow: &FlowOutcome, width: Duration, seconds: f64) -> Judged {
    let mut judged = Judged {
        contract: flow.contract.clone(),
        latency: flow.latency.clone(),
        answered: flow.answered,
        seconds,
        ..Judged::default()
    };
    let mut disk = DiskStatus {
        name: flow.name.clone(),
        promise: Promise::of(&flow.contract),
        meters: CommandMeters { histogram: Some(Buckets::from(&flow.latency)), ..CommandMeters::default() },
        ..DiskStatus::default()
    };
    if let Some(pending) = flow.contract.pending {
        disk.contract.insert("pending".into(), pending.to_string());
    }
    let mut judge = Judge::new(&disk);
    for window in &flow.windows {
        disk.meters.metered += width.as_nanos();
        disk.meters.commands += window.commands;
        disk.meters.bytes += window.bytes;
        disk.meters.late += window.late;
        disk.meters.busy += window.busy.as_nanos();
        disk.meters.outstanding_us += window.outstanding.as_nanos() / 1000;
        disk.flow.disk_time += window.disk_time.as_nanos();
        judged.slowest = judged.slowest.max(window.p95);
        let second = judge.second(&disk);
        if second == Second::NotWanted {
            continue;
        }
        judged.wanted += 1;
        judged.kept += u64::from(second == Second::Kept);
        let received = match disk.promise.unit.as_str() {
            "bytes" => window.bytes,
            "disk time" => window.disk_time.as_nanos(),
            _ => window.commands,
        };
        let received = received as f64 / width.as_secs_f64();
        if disk.promise.rate.is_some() {
            judged.least = Some(judged.least.map_or(received, |least| least.min(received)));
        }
    }
    judged
}
