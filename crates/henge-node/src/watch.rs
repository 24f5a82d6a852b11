//! The watcher: once a second it asks the loop for all meters, keeps them for whoever looks, and judges promises.
//!
//! However many look (web page, `henge top`, Prometheus), the loop is asked once a second, for [`SLICE`](crate::message::SLICE) disks at a time, so that
//! none of its turns is held up by more than some tens of microseconds.
//!
//! A promise is judged over the last [`WINDOW`] seconds. A latency bound is violated when more of the commands answered in it
//! were late than the percentile allows; a rate, when the disk had requests waiting all the time, for another reason than
//! its own limit, and received less than the rate all the same. It has recovered when no such window was seen for as long again.
//!
//! A gate that learns what its device costs says how that compares with what was measured, or learned first. A device departs when for
//! [`WINDOW`] looks in a row a kind of request costs half as much again, or two thirds; it is said again once it was within a quarter.

use crate::events::{Events, wall};
use crate::fill::Fills;
use crate::ledger::Ledger;
use crate::plane::Notice;
use crate::promise::received;
use crate::shards::Shards;
use crate::shortage::Shortages;
use henge_api::{DiskStatus, EventKind, Status, Unfairness};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Looks in the window that promises are judged over.
const WINDOW: usize = 10;
/// Share of the window that a disk must have waited to be judged by its rate, and a flow to be compared with others.
const BACKLOGGED: f64 = 0.98;
/// How much less than its rate counts as less, for what is cut off at the window's ends.
const SLACK: f64 = 0.97;
/// A device that costs that many times what it did, or that part of it, has departed …
const DRIFTED: f64 = 1.5;
/// … and one within this is as it was.
const SETTLED: f64 = 1.25;
/// Fewer commands say nothing about a percentile.
const COMMANDS_MIN: u64 = 20;

/// The last look, for many readers.
#[derive(Default)]
pub(crate) struct Latest {
    status: Mutex<Option<Arc<Status>>>,
    came: Condvar,
}

impl Latest {
    /// The meters as they were within the last second; waits for the first look.
    pub(crate) fn get(&self) -> Option<Arc<Status>> {
        let guard = self.status.lock().expect("nobody panics while looking");
        let wait = self.came.wait_timeout_while(guard, 3 * PERIOD, |status| status.is_none());
        wait.expect("nobody panics while looking").0.clone()
    }
    /// What was judged of the disks until the last look.
    pub(crate) fn tell(&self, status: &mut Status) {
        let guard = self.status.lock().expect("nobody panics while looking");
        let Some(latest) = guard.as_ref() else { return };
        let judged: BTreeMap<&str, &DiskStatus> = latest.disks.iter().map(|d| (d.name.as_str(), d)).collect();
        for disk in &mut status.disks {
            if let Some(one) = judged.get(disk.name.as_str()) {
                disk.kept.clone_from(&one.kept);
                disk.violated = one.violated;
            }
        }
        for pool in &mut status.pools {
            if let Some(same) = latest.pools.iter().find(|one| one.name == pool.name) {
                pool.short.clone_from(&same.short);
                (pool.short_ms, pool.received) = (same.short_ms, same.received);
            }
        }
    }
    fn put(&self, status: Arc<Status>) {
        *self.status.lock().expect("nobody panics while looking") = Some(status);
        self.came.notify_all();
    }
}

/// Runs until the node ends.
pub(crate) fn watch(
    shards: &Shards,
    latest: &Latest,
    events: &Events,
    noticed: &Receiver<Notice>,
    mut fills: Fills,
    mut ledger: Ledger,
) {
    let (mut judge, mut shortages) = (Judge::default(), Shortages::default());
    loop {
        for (name, text) in fills.look() {
            events.note(EventKind::Storage, &name, text);
        }
        let Some(mut status) = shards.look(true) else { return ledger.save() };
        status.wall = wall();
        judge.see(&mut status, events);
        ledger.see(&mut status, |name| events.was_removed(name));
        shortages.see(&mut status, &ledger.wanted, events);
        latest.put(Arc::new(status));
        let next = Instant::now() + PERIOD;
        // Notices are sent by the loop: when it ends, so does this wait.
        loop {
            match noticed.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok((name, text)) => events.note(EventKind::Storage, &name, text),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return ledger.save(),
            }
        }
    }
}

/// What is remembered of a disk at one look.
#[derive(Clone, Copy, Default)]
struct Mark {
    at: u64,
    commands: u64,
    late: u64,
    received: u64,
    waited: u64,
}

#[derive(Default)]
struct Seen {
    marks: VecDeque<Mark>,
    rate: Option<u64>,
    /// Looks since the promise was last seen broken; none while it is kept.
    broken: Option<usize>,
    /// By gate: service and time waited at the last look.
    gates: BTreeMap<u32, (u64, u64)>,
}

#[derive(Default)]
struct Judge {
    disks: BTreeMap<String, Seen>,
    /// By gate and kind of request: looks in a row at which its cost had departed.
    drifts: BTreeMap<(String, String), usize>,
    said: BTreeSet<(String, String)>,
    last: u64,
}

impl Judge {
    fn see(&mut self, status: &mut Status, events: &Events) {
        self.unfairness(status);
        self.drift(status, events);
        self.last = status.uptime;
        let names: BTreeSet<&str> = status.disks.iter().map(|disk| disk.name.as_str()).collect();
        self.disks.retain(|name, _| names.contains(name.as_str()));
        for disk in &mut status.disks {
            let seen = self.disks.entry(disk.name.clone()).or_default();
            let broken = seen.look(disk);
            match (seen.broken, broken) {
                (None, Some(why)) => {
                    seen.broken = Some(0);
                    events.note(EventKind::Violated, &disk.name, why);
                }
                (Some(_), Some(_)) => seen.broken = Some(0),
                (Some(looks), None) if looks + 1 >= WINDOW => {
                    seen.broken = None;
                    events.note(EventKind::Recovered, &disk.name, "");
                }
                (Some(looks), None) => seen.broken = Some(looks + 1),
                (None, None) => {}
            }
            disk.violated = seen.broken.is_some();
        }
    }

    /// Says which devices are no longer what was measured or learned.
    fn drift(&mut self, status: &Status, events: &Events) {
        let mut before = std::mem::take(&mut self.drifts);
        for gate in status.pools.iter().flat_map(|pool| &pool.gates) {
            for cost in &gate.learned {
                let Some(drift) = cost.drift.filter(|drift| *drift > 0.0) else { continue };
                let key = (gate.name.clone(), cost.kind.clone());
                let looks = before.remove(&key).unwrap_or(0);
                let off = drift.max(1.0 / drift);
                let looks = match looks {
                    // What was said stays said until it is over.
                    said if said >= WINDOW && off > SETTLED => said,
                    said if said < WINDOW && off >= DRIFTED => said + 1,
                    _ => 0,
                };
                if looks == WINDOW && self.said.insert(key.clone()) {
                    let error = cost.error;
                    let text = format!(
                        "a {} of 64 KiB costs {drift:.2} times what was measured or learned first (the model is off by {error:.0} %); \
                         measure it again with `henge profile`, or begin the node again to learn anew",
                        cost.kind
                    );
                    events.note(EventKind::Drifted, &gate.name, text);
                }
                if looks == 0 {
                    self.said.remove(&key);
                }
                self.drifts.insert(key, looks);
            }
        }
        self.said.retain(|key| self.drifts.contains_key(key));
    }

    /// How unequally flows were served that waited all the time since the last look, with the bound on it.
    ///
    /// SFQ(D), theorem 1: for flows f and g that are both backlogged, |W_f/φ_f − W_g/φ_g| ≤ (D + 1)(c_f/φ_f + c_g/φ_g),
    /// where c is the largest cost of a request. Only schedulers that promise shares by weight have it.
    fn unfairness(&mut self, status: &mut Status) {
        let passed = status.uptime.saturating_sub(self.last);
        // By gate: service by weight, and largest cost by weight.
        let mut served: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
        for disk in &status.disks {
            let seen = self.disks.entry(disk.name.clone()).or_default();
            for at in &disk.flow.gates {
                let before = seen.gates.insert(at.gate, (at.service, at.waited));
                let Some((service, waited)) = before else { continue };
                let waited = at.waited.saturating_sub(waited);
                if passed > 0 && waited as f64 >= BACKLOGGED * passed as f64 {
                    let weight = f64::from(at.weight.max(1));
                    let got = at.service.saturating_sub(service) as f64 / weight;
                    served.entry(at.gate).or_default().push((got, at.largest as f64 / weight));
                }
            }
        }
        let mut number = 0;
        for pool in &mut status.pools {
            for gate in &mut pool.gates {
                let of = served.get(&number).filter(|_| pool.scheduler == "sfq");
                gate.unfairness = of.and_then(|flows| unfairness(flows, gate.depth));
                number += 1;
            }
        }
    }
}

fn unfairness(flows: &[(f64, f64)], depth: u32) -> Option<Unfairness> {
    let most = flows.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let least = flows.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let bound = (f64::from(depth) + 1.0) * (most.1 + least.1);
    (flows.len() > 1).then_some(Unfairness { difference: most.0 - least.0, bound })
}

impl Seen {
    /// Why the promise is broken, if it is.
    fn look(&mut self, disk: &DiskStatus) -> Option<String> {
        let promise = &disk.promise;
        let (received, _) = received(disk);
        let own = disk.flow.waits.get("own limit").copied().unwrap_or(0);
        let waited = disk.flow.waits.values().sum::<u64>() - own;
        let mark = Mark {
            at: disk.meters.metered,
            commands: disk.meters.commands,
            late: disk.meters.late,
            received,
            waited,
        };
        let rate = promise.rate.map(f64::to_bits);
        let backwards =
            self.marks.back().is_some_and(|last| last.at > mark.at || last.commands > mark.commands);
        if backwards || rate != self.rate {
            self.marks.clear(); // meters began anew, or the promise did
        }
        self.rate = rate;
        self.marks.push_back(mark);
        if self.marks.len() > WINDOW + 1 {
            self.marks.pop_front();
        }
        let first = self.marks[0];
        let commands = mark.commands - first.commands;
        let late = mark.late.saturating_sub(first.late);
        if let (Some(bound), Some(percentile)) = (promise.latency, promise.percentile)
            && commands >= COMMANDS_MIN
            && late as f64 > commands as f64 * (1.0 - percentile / 100.0)
        {
            let kept = 100.0 * (1.0 - late as f64 / commands as f64);
            let bound = henge_core::Duration::from_nanos(bound);
            return Some(format!(
                "{kept:.1} % of {commands} commands within {bound}, promised were {percentile} %"
            ));
        }
        let span = mark.at - first.at;
        if self.marks.len() <= WINDOW || span == 0 {
            return None;
        }
        let rate = promise.rate?;
        let waited = mark.waited.saturating_sub(first.waited);
        let got = (mark.received - first.received.min(mark.received)) as f64 * 1e9 / span as f64;
        if (waited as f64) < BACKLOGGED * span as f64 || got >= SLACK * rate {
            return None;
        }
        let show = |x: f64| match promise.unit.as_str() {
            "bytes" => format!("{}/s", henge_core::format_size(x as u64)),
            "disk time" => format!("{:.1} % of the disk's time", x / 1e7),
            _ => format!("{x:.1}/s"),
        };
        Some(format!("received {} while it waited for more, promised were {}", show(got), show(rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::{AtGate, AtGates, CommandMeters, GateStatus, LearnedCost, PoolStatus, Promise};

    fn kinds(events: &Events) -> Vec<EventKind> {
        events.after(None, 0, 100).iter().map(|e| e.kind).collect()
    }

    fn look(at: u64, commands: u64, late: u64, waited: u64, promise: Promise) -> Status {
        let second = 1_000_000_000;
        let waits = BTreeMap::from([("device busy".into(), waited), ("own limit".into(), at * second)]);
        let disk = DiskStatus {
            name: "web".into(),
            meters: CommandMeters { metered: at * second, commands, late, ..CommandMeters::default() },
            promise,
            flow: AtGates { waits, ..AtGates::default() },
            ..DiskStatus::default()
        };
        Status { uptime: at * second, disks: vec![disk], ..Status::default() }
    }

    #[test]
    fn a_device_that_departs_is_told_of_once() {
        let dir = tempfile::tempdir().unwrap();
        let (events, mut judge) = (Events::open(Some(dir.path())), Judge::default());
        let mut see = |drift: Option<f64>, looks: usize| {
            let learned =
                vec![LearnedCost { kind: "write".into(), drift, error: 4.0, ..LearnedCost::default() }];
            let gates = vec![GateStatus { name: "ssd".into(), learned, ..GateStatus::default() }];
            let pools = vec![PoolStatus { gates, ..PoolStatus::default() }];
            for _ in 0..looks {
                judge.see(&mut Status { pools: pools.clone(), ..Status::default() }, &events);
            }
            events.after(None, 0, 100).len()
        };
        assert_eq!(see(None, 20), 0, "nothing to compare with");
        assert_eq!(see(Some(1.4), 20), 0);
        assert_eq!((see(Some(1.6), WINDOW - 1), see(Some(1.4), 1), see(Some(1.6), WINDOW - 1)), (0, 0, 0));
        assert_eq!(
            (see(Some(1.6), 1), see(Some(1.6), 50), see(Some(1.3), 50), see(Some(1.6), 50)),
            (1, 1, 1, 1)
        );
        assert_eq!((see(Some(1.2), 1), see(Some(0.66), WINDOW)), (1, 2), "cheaper is a departure, too");
        assert_eq!(kinds(&events), [EventKind::Drifted; 2]);
        let first = &events.after(None, 0, 100)[0];
        assert!(first.name == "ssd" && first.detail.starts_with("a write of 64 KiB costs "), "{first:?}");
    }

    #[test]
    fn a_rate_is_broken_only_while_its_disk_waits_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let (events, mut judge) = (Events::open(Some(dir.path())), Judge::default());
        let promise = || Promise { rate: Some(100.0), unit: "requests".into(), ..Promise::default() };
        let (mut commands, mut waited) = (0, 0);
        for t in 0..60 {
            // Half the rate throughout; from 20 to 40 it waits for others all the time.
            commands += 50;
            waited += if (20..40).contains(&t) { 1_000_000_000 } else { 0 };
            let mut status = look(t, commands, 0, waited, promise());
            judge.see(&mut status, &events);
            assert_eq!(status.disks[0].violated, (29..49).contains(&t), "second {t}");
        }
        assert_eq!(kinds(&events), [EventKind::Violated, EventKind::Recovered]);
        assert!(events.after(None, 0, 1)[0].seq == 2);
        assert_eq!(
            events.after(None, 0, 2)[0].detail,
            "received 50.0/s while it waited for more, promised were 100.0/s"
        );
    }

    /// All of a disk's clients come by another gateway; its seat, and so its gate, is at this one.
    #[test]
    fn a_rate_is_received_by_whichever_gateway_its_clients_come() {
        let dir = tempfile::tempdir().unwrap();
        let (events, mut judge) = (Events::open(Some(dir.path())), Judge::default());
        let promise = || Promise { rate: Some(100.0), unit: "requests".into(), ..Promise::default() };
        for (t, each, violations) in (0..40).map(|t| (t, 140, 0)).chain((40..60).map(|t| (t, 80, 1))) {
            let mut status = look(t, 0, 0, t * 1_000_000_000, promise());
            let commands = if t < 40 { t * each } else { 40 * 140 + (t - 40) * each };
            status.disks[0].flow.all = Some(henge_api::Received { commands, bytes: commands * 4096 });
            judge.see(&mut status, &events);
            assert!(kinds(&events).len() <= violations, "second {t}");
        }
        // Two seconds of 140 and eight of 80 are the first ten below the promise.
        assert_eq!(
            events.after(None, 0, 1)[0].detail,
            "received 92.0/s while it waited for more, promised were 100.0/s"
        );
    }

    #[test]
    fn a_latency_bound_is_broken_by_its_percentile() {
        let dir = tempfile::tempdir().unwrap();
        let (events, mut judge) = (Events::open(Some(dir.path())), Judge::default());
        let promise = || Promise { latency: Some(5_000_000), percentile: Some(95.0), ..Promise::default() };
        let (mut commands, mut late) = (0, 0);
        for t in 0..40 {
            commands += 100;
            late += if (10..12).contains(&t) { 80 } else { 2 };
            judge.see(&mut look(t, commands, late, 0, promise()), &events);
        }
        // Meters that begin anew are no violation.
        judge.see(&mut look(0, 0, 0, 0, promise()), &events);
        assert_eq!(kinds(&events), [EventKind::Violated, EventKind::Recovered]);
    }

    #[test]
    fn unfairness_is_measured_where_flows_wait() {
        let second = 1_000_000_000;
        let disk = |name: &str, weight, service, waited| DiskStatus {
            name: name.into(),
            flow: AtGates {
                gates: vec![AtGate { gate: 0, weight, service, waited, largest: 10 }],
                ..AtGates::default()
            },
            ..DiskStatus::default()
        };
        let status = |at: u64, a, b, c| Status {
            uptime: at * second,
            pools: vec![PoolStatus {
                scheduler: "sfq".into(),
                gates: vec![GateStatus { depth: 4, ..GateStatus::default() }],
                ..PoolStatus::default()
            }],
            disks: vec![disk("a", 1, a, at * second), disk("b", 2, b, at * second), disk("idle", 1, c, 0)],
            ..Status::default()
        };
        let mut judge = Judge::default();
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(Some(dir.path()));
        judge.see(&mut status(1, 0, 0, 0), &events);
        let mut second_look = status(2, 100, 260, 5);
        judge.see(&mut second_look, &events);
        let found = second_look.pools[0].gates[0].unfairness.unwrap();
        assert_eq!((found.difference, found.bound), (30.0, 5.0 * 15.0));
    }
}
