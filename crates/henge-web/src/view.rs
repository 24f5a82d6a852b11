//! What goes to the page, as JSON. Rates are per second; latencies are microseconds, so that they stay short.

use crate::source::{About, Terms, Viewer};
use henge_api::Promise;
use serde::{Deserialize, Serialize};

/// Reasons for waiting by the numbers that rows have; 0 waits for nothing.
pub const REASONS: [&str; 7] =
    ["", "own limit", "own share", "device busy", "depth", "foreign service", "turn"];

/// Everything, for a page that begins.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Who serves the page.
    pub about: About,
    /// Who looks.
    pub viewer: Viewer,
    /// Milliseconds since 1970, by the server's clock.
    pub at: u64,
    /// What the numbers of reasons mean.
    pub reasons: Vec<String>,
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// Pools.
    pub pools: Vec<PoolView>,
    /// Disks, by number; see [`Row`] for their figures.
    pub disks: Vec<DiskView>,
    /// Their figures.
    pub rows: Vec<Row>,
}

/// What has changed since the last second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Tick {
    /// Milliseconds since 1970, by the server's clock.
    pub at: u64,
    /// All nodes.
    pub nodes: Vec<NodeView>,
    /// All pools.
    pub pools: Vec<PoolView>,
    /// Rows that differ from the last sent.
    pub rows: Vec<Row>,
}

/// A node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Whether it answers.
    pub up: bool,
    /// How old its figures are.
    pub age_ms: u64,
    /// How far its clock is ahead of the server's; 0 where it is within two seconds.
    pub ahead_ms: i64,
    /// Seconds.
    pub uptime: u64,
    /// Clients connected.
    pub connections: usize,
    /// Bytes of payload held, and most that may be.
    pub buffers: [usize; 2],
    /// Commands a second.
    pub rate: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// Links to other nodes, and what went over them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<henge_api::PeerStatus>,
    /// Disks that it should serve and does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<henge_api::FailedDisk>,
}

/// A pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PoolView {
    /// Its node.
    pub node: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub store: String,
    /// Who goes next.
    pub scheduler: String,
    /// Terms of a contract that it keeps; none where its node does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<Vec<String>>,
    /// What it charges.
    pub unit: String,
    /// Bytes.
    pub capacity: u64,
    /// Of them promised.
    pub promised: u64,
    /// Promised a second, by unit: requests, bytes, nanoseconds of disk time.
    pub rates: [f64; 3],
    /// Most it can do, in its unit a second, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capable: Option<f64>,
    /// By how much it gives less than its disks were promised and want, and who is short first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// Received by its disks: commands and bytes a second (disks on several pools count at each with their part).
    pub received: [f64; 2],
    /// Gates.
    pub gates: Vec<GateView>,
}

/// A gate.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GateView {
    /// Its name.
    pub name: String,
    /// Waiting.
    pub queued: usize,
    /// In flight …
    pub in_flight: u32,
    /// … of so many.
    pub depth: u32,
    /// Share of the time in which something was in flight.
    pub utilization: f64,
    /// Mean requests in flight.
    pub mean_depth: f64,
    /// How unequally it served, and the bound on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfairness: Option<[f64; 2]>,
    /// An emulated disk's lateness, 99th percentile, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<u64>,
    /// Device time under way and most that may be, in microseconds, where the depth counts work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<[u64; 2]>,
    /// What requests cost the device, where that is learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<henge_api::LearnedCost>,
}

/// What seldom changes of a disk.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DiskView {
    /// Stays the same as long as the server runs.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Its pools.
    pub pools: Vec<String>,
    /// Bytes.
    pub capacity: u64,
    /// As written.
    pub contract: Terms,
    /// In numbers.
    pub promise: Promise,
}

/// A disk's figures of the last second (percentiles: of the last ten), as a list to be short: id, commands/s, bytes/s, p50, p95,
/// p99 (microseconds), share late of the last ten seconds in percent, pending, reason, violated, mean wait, mean service
/// (microseconds), clients.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Row(
    /// Id.
    pub u32,
    /// Commands a second.
    pub f64,
    /// Bytes a second.
    pub u64,
    /// Median.
    pub u64,
    /// 95th percentile.
    pub u64,
    /// 99th percentile.
    pub u64,
    /// Late, percent.
    pub f64,
    /// Pending.
    pub usize,
    /// Reason, by number.
    pub u8,
    /// Promise violated: 1.
    pub u8,
    /// Mean wait.
    pub u64,
    /// Mean service.
    pub u64,
    /// Clients.
    pub usize,
);
