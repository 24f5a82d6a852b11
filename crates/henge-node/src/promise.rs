//! Whether a promise was kept in one second.
//!
//! **Problem.** A promise holds for whoever wants it. A tenant who asks for little received little and was wronged by nobody; one whose
//! requests are all at a device that the neighbours keep busy waits at no gate and is wronged all the same.
//!
//! **Rule.** What is judged is the time T between two looks at a disk's counters, about a second. Let a be what it received, in
//! the unit of its rate R; p the time during which it had commands pending; n the mean of how many; w the time during which its oldest
//! request waited at a gate for another reason than its own limit.
//!
//! - It *got* its rate if a + one command ≥ [`ENOUGH`] · R · T: the command that was answered just after the look was served before it.
//! - It *wanted* its rate if it got it, or if it had something pending all the time (p ≥ [`ALWAYS`] · T) and besides waited all the time
//!   (w ≥ `ALWAYS` · T), or had enough outstanding: n ≥ R · ℓ, Little's law, where ℓ is how long a command takes when the promise is
//!   kept. ℓ is the contract's latency, where it has one. Else it is the least of three: what the fastest hundredth of the disk's commands
//!   took; what that was in the last second in which the rate was kept; and [`SLOW`], with [`SLOW_MIB`] for each MiB.
//! - It wanted its *latency* if commands were answered, or one was pending all the time. It got it if no more of them were late than
//!   1 − percentile, what earlier seconds left over included, but never more than for one command: of 20 commands a second, each
//!   second's may have one late at 95 %; of 5 a second, every fourth. Where the contract has a rate too, latency is for
//!   what keeps to it: it is judged while the disk receives no more than R, or has a `pending` that bounds what it asks.
//!
//! A disk that several gateways serve is judged by the one that has its seat: all that its clients ask for passes the gate there, and a, w and n count
//! what passes it. There p ≥ w. The others judge the latency of their own clients.
//!
//! A second is *missed* if the disk wanted something and did not get it, *kept* if it got all that it wanted, and else not counted.
//! Missed is for what held its commands up most in it: the gate, by its reason; the device; or the node, which is all other time.
//!
//! **Example.** R = 10,000/s, fastest commands 0.2 ms. With 8 pending all the time, n = 8 ≥ 2: 725 in a second is missed, 10,050 is kept.
//! With one at a time, n ≤ 1 < 2: it cannot have 10,000 a second on this device, and 4,900 is not counted.
//!
//! **Why these three.** A pool that was too slow from the first command on has shown no fast one: by its own commands nobody would ever have enough
//! outstanding. A hard disk's time bounds what a command may be said to take, so n outstanding show demand for 50 · n a second at least.
//! And a pool that became slow must not be acquitted once a hundred slow commands stand against each fast one.
//!
//! **Guarantee.** A second in which the disk received its rate is kept. One in which it had nothing pending for more than 2 % of the
//! time is missed by latency alone.
//!
//! **Price.** Off the data path, but for two additions a command, which keep p and n.

use henge_api::{DiskStatus, Promise, Received};
use henge_core::Histogram;
use std::collections::BTreeMap;

/// Of its rate, so much is all of it.
pub(crate) const ENOUGH: f64 = 0.99;
/// So much of a time is all of it.
pub(crate) const ALWAYS: f64 = 0.98;

/// Seconds that a command takes at most where nothing else is known: a hard disk's, with a long seek and a turn …
pub(crate) const SLOW: f64 = 0.02;
/// … and for each MiB that it moves.
pub(crate) const SLOW_MIB: f64 = 0.01;

/// What was counted of a disk until one look. Times are nanoseconds.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Mark {
    at: u64,
    commands: u64,
    late: u64,
    /// By clients of all gateways.
    all: Received,
    /// The same, in the promise's unit.
    received: u64,
    pending: u64,
    outstanding_us: u64,
    wait: u64,
    service: u64,
    waits: BTreeMap<String, u64>,
    promise: Promise,
}

/// What a second was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Second {
    /// The disk did not want what it is promised.
    NotWanted,
    /// It got all that it wanted.
    Kept,
    /// It did not, and this held it up most.
    Missed(String),
}

/// What is remembered of a disk from one second to the next.
#[derive(Default)]
pub(crate) struct Known {
    /// Late commands that earlier seconds left over.
    spare: f64,
    /// Seconds that the fastest hundredth of its commands took, when its rate was kept last.
    quick: Option<f64>,
}

/// Judges one disk second by second, as the promise ledger does: for whoever simulates it.
///
/// ```
/// use henge_api::{DiskStatus, Promise};
/// use henge_node::{Judge, Second};
/// let promise = Promise { rate: Some(100.0), unit: "requests".into(), ..Promise::default() };
/// let mut disk = DiskStatus { promise, ..DiskStatus::default() };
/// let mut judge = Judge::new(&disk);
/// (disk.meters.metered, disk.meters.commands) = (1_000_000_000, 100);
/// assert_eq!(judge.second(&disk), Second::Kept);
/// ```
pub struct Judge {
    before: Mark,
    known: Known,
}

impl Judge {
    /// From these counters on.
    pub fn new(disk: &DiskStatus) -> Judge {
        Judge { before: Mark::of(disk), known: Known::default() }
    }

    /// What the time since the last look was. Counters only grow.
    pub fn second(&mut self, disk: &DiskStatus) -> Second {
        let now = Mark::of(disk);
        let second = match now.since_ms(&self.before) {
            Some(_) => judge(&self.before, &now, disk, &mut self.known),
            None => {
                self.known = Known::default();
                Second::NotWanted
            }
        };
        self.before = now;
        second
    }
}

/// What a disk received, in the unit of its promise, and in all: what its clients here were answered, or, at the gateway whose gate has all that is
/// asked of a shared disk, what went through that.
pub(crate) fn received(disk: &DiskStatus) -> (u64, Received) {
    let here = Received { commands: disk.meters.commands, bytes: disk.meters.bytes };
    let all = disk.flow.all.unwrap_or(here);
    let received = match disk.promise.unit.as_str() {
        "bytes" => all.bytes,
        "disk time" => disk.flow.disk_time,
        _ => all.commands,
    };
    (received, all)
}

impl Mark {
    pub(crate) fn of(disk: &DiskStatus) -> Mark {
        let mut waits = disk.flow.waits.clone();
        waits.remove("own limit");
        let (mut pending, mut outstanding_us) = (disk.meters.busy, disk.meters.outstanding_us);
        if disk.flow.all.is_some() {
            pending = pending.max(waits.values().sum());
            outstanding_us = (disk.flow.wait + disk.flow.service) / 1000;
        }
        let (received, all) = received(disk);
        Mark {
            at: disk.meters.metered,
            commands: disk.meters.commands,
            late: disk.meters.late,
            all,
            received,
            pending,
            outstanding_us,
            wait: disk.flow.wait,
            service: disk.flow.service,
            waits,
            promise: disk.promise.clone(),
        }
    }

    /// Milliseconds since an earlier look; `None` if meters or promise began anew between them.
    pub(crate) fn since_ms(&self, before: &Mark) -> Option<u64> {
        let grows = self.commands >= before.commands && self.all.commands >= before.all.commands;
        let on = self.at > before.at && grows && self.promise == before.promise;
        on.then(|| (self.at - before.at) / 1_000_000)
    }
}

/// Judges the time between two looks.
pub(crate) fn judge(before: &Mark, now: &Mark, disk: &DiskStatus, known: &mut Known) -> Second {
    let time = (now.at - before.at) as f64 / 1e9;
    let rate = rate(before, now, disk, time, known);
    if rate == Some(true) && now.promise.latency.is_none() {
        known.quick = fastest(disk).or(known.quick);
    }
    let latency = latency(before, now, disk, time, &mut known.spare);
    match (rate, latency) {
        (Some(false), _) | (_, Some(false)) => Second::Missed(why(before, now)),
        (None, None) => Second::NotWanted,
        _ => Second::Kept,
    }
}

/// What a disk received a second, and its rate, where it wanted that.
pub(crate) fn wanted(before: &Mark, now: &Mark, disk: &DiskStatus, known: &Known) -> Option<(f64, f64)> {
    let time = (now.at - before.at) as f64 / 1e9;
    rate(before, now, disk, time, known)?;
    Some((now.received.saturating_sub(before.received) as f64 / time, now.promise.rate?))
}

/// Whether it got its rate; `None` if it did not want it.
fn rate(before: &Mark, now: &Mark, disk: &DiskStatus, time: f64, known: &Known) -> Option<bool> {
    let rate = now.promise.rate?;
    let received = now.received.saturating_sub(before.received) as f64;
    let commands = (now.all.commands - before.all.commands) as f64;
    let each = if commands > 0.0 { received / commands } else { 0.0 };
    let one = if now.promise.unit == "requests" { 1.0 } else { each };
    if received + one >= ENOUGH * rate * time {
        return Some(true);
    }
    let always = |ns: u64| ns as f64 / 1e9 >= ALWAYS * time;
    if !always(now.pending.saturating_sub(before.pending)) {
        return None;
    }
    let waited = |mark: &Mark| mark.waits.values().sum::<u64>();
    if always(waited(now).saturating_sub(waited(before))) || commands == 0.0 {
        return Some(false);
    }
    if now.promise.unit == "disk time" {
        return None;
    }
    let outstanding = now.outstanding_us.saturating_sub(before.outstanding_us) as f64 / 1e6 / time;
    let due = match now.promise.latency {
        Some(bound) => bound as f64 / 1e9,
        None => {
            let bytes = now.all.bytes.saturating_sub(before.all.bytes) as f64 / commands;
            [fastest(disk), known.quick, at_most(bytes)].into_iter().flatten().reduce(f64::min)?
        }
    };
    (outstanding >= rate / each * due).then_some(false)
}

/// Seconds that the fastest hundredth of its commands took.
fn fastest(disk: &DiskStatus) -> Option<f64> {
    let histogram = Histogram::from(disk.meters.histogram.as_ref()?);
    Some(histogram.quantile(0.01)?.as_nanos() as f64 / 1e9)
}

/// Seconds that a command of so many bytes takes at most, on any storage that keeps a rate. What moves nothing, a FLUSH for instance, may take longer.
fn at_most(bytes: f64) -> Option<f64> {
    (bytes >= 512.0).then_some(SLOW + SLOW_MIB * bytes / f64::from(1 << 20))
}

fn latency(before: &Mark, now: &Mark, disk: &DiskStatus, time: f64, spare: &mut f64) -> Option<bool> {
    let (Some(bound), Some(percentile)) = (now.promise.latency, now.promise.percentile) else { return None };
    let keeps_to_it = now.promise.rate.is_none_or(|rate| {
        (now.received.saturating_sub(before.received)) as f64 <= rate * time / ENOUGH
            || disk.contract.contains_key("pending")
    });
    if !keeps_to_it {
        return None;
    }
    let commands = now.commands - before.commands;
    if commands == 0 {
        let pending = now.pending.saturating_sub(before.pending) as f64 / 1e9;
        let stuck = pending >= ALWAYS * time && time > bound as f64 / 1e9;
        return stuck.then_some(false);
    }
    let allowed = *spare + commands as f64 * (1.0 - percentile / 100.0);
    let late = now.late.saturating_sub(before.late) as f64;
    // A little more than the sum of fractions that are no binary ones.
    let kept = late <= allowed + 1e-6;
    *spare = if kept { (allowed - late).clamp(0.0, 1.0) } else { 0.0 };
    Some(kept)
}

/// What held its commands up most.
fn why(before: &Mark, now: &Mark) -> String {
    let all = now.outstanding_us.saturating_sub(before.outstanding_us).saturating_mul(1000);
    let wait = now.wait.saturating_sub(before.wait);
    let service = now.service.saturating_sub(before.service);
    let grown =
        now.waits.iter().map(|(why, ns)| (ns.saturating_sub(before.waits.get(why).map_or(0, |b| *b)), why));
    let (longest, reason) = grown.max().unwrap_or((0, const { &String::new() }));
    // Requests that wait still are in no sum of waits yet.
    let wait = wait.max(longest);
    let node = all.saturating_sub(wait).saturating_sub(service);
    if longest > 0 && wait >= service && wait >= node {
        return reason.clone();
    }
    if service >= node { "device".into() } else { "node".into() }
}

#[cfg(test)]
mod tests;
