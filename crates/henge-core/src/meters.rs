//! What is measured, always: the same counters feed reports, `henge top`, the web page and Prometheus.

use crate::{Contract, Cost, Duration, Histogram, Instant, Op, WaitReason};
use std::num::NonZeroU32;

/// One flow at one gate, since it was added.
///
/// Many gates with many flows have more of these than a cache holds, and then what a request costs is waiting for memory. So
/// what its coming and its going touch lies in one cache line, and what its completion writes in two more.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct FlowMeters {
    /// Requests now pending (waiting or in flight).
    pub pending: u32,
    /// Of them in flight.
    pub in_flight: u32,
    /// Most that may be pending, where the contract says.
    pub(crate) pending_max: Option<NonZeroU32>,
    /// Why the oldest request that waits did not go at once …
    pub(crate) why: Option<WaitReason>,
    /// … or that this is still to be asked …
    pub(crate) is_fresh: bool,
    /// … and since when it is the oldest.
    pub(crate) oldest_since: Instant,
    /// Time during which its oldest request waited, by reason, as [`WaitReason::ALL`] orders them. The reason is the
    /// one there was when that request became the oldest and could not go at once.
    pub waits: [Duration; WaitReason::ALL.len()],
    /// What takes longer is late: the contract's latency bound.
    pub late_after: Duration,
    /// Arrival to completion.
    pub latency: Histogram,

    /// What was completed.
    pub completed: Completed,

    /// Completed late.
    pub late: u64,
    /// Completed with a fault.
    pub faults: u64,
    /// Cancelled before they were dispatched.
    pub cancelled: u64,
    /// Not taken in because the flow's queue was full.
    pub full: u64,
}

/// What a flow's completed requests come to.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Completed {
    /// How many there are.
    pub requests: u64,
    /// Of them reads.
    pub reads: u64,
    /// Client commands, in millionths (a split command counts once in all).
    pub commands: u64,
    /// Bytes of reads and writes.
    pub bytes: u64,
    /// Received service in the gate's cost unit.
    pub service: Cost,
    /// The largest cost of one request.
    pub cost_max: Cost,
    /// Time from dispatch to completion, in all.
    pub service_time: Duration,
    /// Disk time charged.
    pub disk_time: Duration,
}

impl Completed {
    fn add(&mut self, m: &Metered) {
        self.requests += 1;
        self.reads += u64::from(m.op == Op::Read);
        self.commands += u64::from(m.commands);
        if matches!(m.op, Op::Read | Op::Write) {
            self.bytes = self.bytes.saturating_add(m.len);
        }
        self.service += m.cost;
        self.cost_max = self.cost_max.max(m.cost);
        self.service_time += m.service;
        self.disk_time += m.disk_time;
    }
}

/// One completion as the meters see it.
#[derive(Clone, Copy, Debug)]
pub struct Metered {
    /// What it did.
    pub op: Op,
    /// Bytes.
    pub len: u64,
    /// Millionths of a client command.
    pub commands: u32,
    /// As charged in the end.
    pub cost: Cost,
    /// Arrival to dispatch.
    pub wait: Duration,
    /// Dispatch to completion.
    pub service: Duration,
    /// Disk time attributed to it.
    pub disk_time: Duration,
    /// It ended with a fault.
    pub failed: bool,
}

const _: () =
    assert!(std::mem::offset_of!(FlowMeters, waits) < 64, "what comes and goes is in the first line");
const _: () =
    assert!(std::mem::offset_of!(FlowMeters, late) == 192, "three lines hold what is always written");

impl Default for FlowMeters {
    /// Nothing yet, and nothing is late.
    fn default() -> Self {
        let none = Duration::ZERO;
        FlowMeters {
            pending: 0,
            in_flight: 0,
            pending_max: None,
            why: None,
            is_fresh: false,
            oldest_since: Instant::ZERO,
            waits: [none; WaitReason::ALL.len()],
            late_after: Duration::MAX,
            latency: Histogram::default(),
            completed: Completed::default(),
            late: 0,
            faults: 0,
            cancelled: 0,
            full: 0,
        }
    }
}

impl FlowMeters {
    /// From now on a contract is in force.
    pub fn govern(&mut self, contract: &Contract) {
        self.pending_max = contract.pending.and_then(NonZeroU32::new);
        self.late_after = contract.latency.map_or(Duration::MAX, |latency| latency.bound);
    }

    /// Counts a completion.
    pub fn completed(&mut self, m: &Metered) {
        let latency = m.wait + m.service;
        self.completed.add(m);
        if m.failed {
            self.faults += 1;
        }
        self.latency.record(latency);
        if latency > self.late_after {
            self.late += 1;
        }
        self.pending -= 1;
        self.in_flight -= 1;
    }

    /// Time waited, in all.
    pub fn wait_time(&self) -> Duration {
        let all = u64::try_from(self.latency.sum()).unwrap_or(u64::MAX);
        Duration::from_nanos(all.saturating_sub(self.completed.service_time.as_nanos()))
    }

    /// Whether a request of its waits.
    pub(crate) fn waits(&self) -> bool {
        self.pending > self.in_flight
    }
}

/// The gate as a whole.
#[derive(Clone, Debug, Default)]
pub struct GateMeters {
    /// Time during which at least one request was in flight.
    pub busy: Duration,
    /// Integral of requests in flight over time, in nanoseconds: divided by time, the mean depth.
    pub in_flight_ns: u128,
    /// Most in flight at once.
    pub in_flight_max: u32,
    pub(crate) since: Instant,
}

impl GateMeters {
    pub(crate) fn advance(&mut self, in_flight: u32, now: Instant) {
        let passed = now.since(self.since);
        self.since = now;
        if in_flight > 0 {
            self.busy += passed;
            self.in_flight_ns += u128::from(in_flight) * u128::from(passed.as_nanos());
            self.in_flight_max = self.in_flight_max.max(in_flight);
        }
    }
}
