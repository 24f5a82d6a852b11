//! What can be asked of a running node, and its answers: the same types in a process and, as one line of JSON
//! each, on the control socket.
//!
//! ```text
//! > {"op":"set","name":"web","contract":{"limit":"900/s"}}
//! < {"ok":true}
//! ```

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Meters and contracts of everything.
    Status,
    /// Changes terms of a disk's contract, for queued and new requests, without anybody reconnecting. The
    /// other terms stay; an empty value takes a term away. Lasts until the node ends.
    Set {
        /// Which disk.
        name: String,
        /// Terms as the configuration writes them: `"limit": "675/s"`.
        contract: BTreeMap<String, String>,
    },
    /// Another scheduler for a pool, while it works; what waits moves over.
    Scheduler {
        /// Which pool.
        pool: String,
        /// A name, or a table as the configuration writes it: `{ cvc = { per = "spindle" } }`.
        scheduler: String,
    },
    /// Makes a disk, or serves one that was made before.
    Add {
        /// The table of a `[[disk]]` as the configuration writes it: `name = "web"` and so on, a key per line.
        disk: String,
    },
    /// Removes a disk and its data. Its clients lose their connections.
    Remove {
        /// Which.
        name: String,
    },
    /// Starts all disks' meters anew.
    Reset,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl Reply {
    pub(crate) fn done() -> Reply {
        Reply { ok: true, error: None, status: None }
    }
    pub(crate) fn failed(error: impl std::fmt::Display) -> Reply {
        Reply { ok: false, error: Some(error.to_string()), status: None }
    }
}

/// The node now. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Since the node started.
    pub uptime: u64,
    /// Clients connected.
    pub connections: usize,
    /// Bytes of payload held now …
    pub buffers_out: usize,
    /// … and most that may be.
    pub buffers: usize,
    /// Pools.
    pub pools: Vec<PoolStatus>,
    /// Disks.
    pub disks: Vec<DiskStatus>,
}

impl Status {
    /// A disk by its name.
    pub fn disk(&self, name: &str) -> Option<&DiskStatus> {
        self.disks.iter().find(|d| d.name == name)
    }
}

/// A pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// What it is and how it is served here.
    pub store: String,
    /// Who goes next.
    pub scheduler: String,
    /// Its gates: one, or one per spindle.
    pub gates: Vec<GateStatus>,
}

/// A gate.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GateStatus {
    /// Its name.
    pub name: String,
    /// Requests waiting.
    pub queued: usize,
    /// Requests in flight …
    pub in_flight: u32,
    /// … and most that may be now.
    pub depth: u32,
    /// Time during which at least one was in flight.
    pub busy: u64,
    /// Mean requests in flight while it was busy.
    pub mean_depth: f64,
    /// 99th percentile of how late an emulated disk's completions were; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_p99: Option<u64>,
}

/// A disk, as its clients saw it since its meters began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub capacity: u64,
    /// The contract's terms as written.
    pub contract: BTreeMap<String, String>,
    /// Clients connected.
    pub connections: usize,
    /// Since when it is metered.
    pub metered: u64,
    /// Commands answered.
    pub commands: u64,
    /// Of them reads.
    pub reads: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Answered later than the contract's latency.
    pub late: u64,
    /// Commands pending.
    pub pending: usize,
    /// Latency of commands.
    pub latency: Latencies,
    /// Why its next request waits now, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
}

impl DiskStatus {
    /// Commands a second since its meters began.
    pub fn rate(&self) -> f64 {
        self.commands as f64 * 1e9 / self.metered.max(1) as f64
    }
    /// Share of the commands that kept the contract's latency; 1 while there are none.
    pub fn in_bound(&self) -> f64 {
        if self.commands == 0 { 1.0 } else { 1.0 - self.late as f64 / self.commands as f64 }
    }
}

/// Of a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// Mean.
    pub mean: u64,
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl Latencies {
    pub(crate) fn of(h: &henge_core::Histogram) -> Self {
        let ns = |d: Option<henge_core::Duration>| d.map_or(0, |d| d.as_nanos());
        Latencies {
            mean: ns(h.mean()),
            p50: ns(h.quantile(0.5)),
            p95: ns(h.quantile(0.95)),
            p99: ns(h.quantile(0.99)),
            max: ns(h.max()),
        }
    }
}
