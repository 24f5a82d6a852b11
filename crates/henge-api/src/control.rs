//! What can be asked of a running node, and its answers: the same types in a process and, as one line of JSON
//! each, on the control socket.
//!
//! ```text
//! > {"op":"set","name":"web","contract":{"limit":"900/s"}}
//! < {"ok":true}
//! ```

use crate::{Choice, DiskStatus, Event, Keeps, Table, TagCounts, Taken};
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
    /// What [`Request::Set`] would answer, without changing anything; with what is promised before and after. A `capacity` among the
    /// terms asks what [`Request::Grow`] would answer.
    Preview {
        /// Which disk.
        name: String,
        /// Terms as the configuration writes them.
        contract: BTreeMap<String, String>,
    },
    /// Another scheduler for a pool, while it works; what waits moves over.
    Scheduler {
        /// Which pool.
        pool: String,
        /// A name, or a table with its knobs: `{"cvc":{"per":"spindle"}}`.
        scheduler: Choice,
    },
    /// Makes a disk, or serves one that was made before.
    Add {
        /// The keys of a `[[disk]]`: `{"name":"web","pool":"ssd","capacity":"96GB","contract":{"weight":4}}`.
        disk: Table,
    },
    /// What [`Request::Add`] would answer, without making anything; with what is promised on each of its pools before and after.
    Offer {
        /// The keys of a `[[disk]]`.
        disk: Table,
    },
    /// Makes a disk larger, while it is served. NBD clients see it when they connect anew, iSCSI initiators are told.
    Grow {
        /// Which disk.
        name: String,
        /// Its capacity from now on, as the configuration writes it: `"96GB"`.
        capacity: String,
    },
    /// Makes the extents here of a disk over several nodes as long as they will be once it has this capacity. The disk itself stays
    /// as it is: it grows once all its extents are long enough, so that no client sees what is not there yet.
    Room {
        /// Which disk.
        name: String,
        /// Its capacity to be.
        capacity: String,
    },
    /// Removes a disk and its data. Its clients lose their connections.
    Remove {
        /// Which.
        name: String,
    },
    /// Who may use a disk from now on. Whoever was let in by what was said before is sent away, and comes again if he may.
    Access {
        /// Which disk.
        name: String,
        /// All that its table says of front ends: `{"nbd":"nobody","iscsi":{…}}`.
        doors: Table,
    },
    /// Starts all disks' meters anew.
    Reset,
    /// Another node of the cluster: a new one, or one that is now elsewhere.
    Peer {
        /// Its name.
        name: String,
        /// `HOST:PORT`
        address: String,
        /// Where initiators come: `HOST:PORT`. Where none is stated, what is known stays.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iscsi: Option<String>,
        /// The address's meaning, looked up by whoever asks: a name server must not hold up the loop.
        #[serde(skip)]
        at: Option<std::net::SocketAddr>,
    },
    /// Forgets another node; no disk may name it.
    Unpeer {
        /// Its name.
        name: String,
    },
    /// This gateway lets go of the disks that other gateways can serve, and takes none; or takes them again. Until it begins again.
    Drain {
        /// Whether it is drained from now on.
        on: bool,
    },
    /// Meters with everything that is known of them, at most a second old. However many ask, the data path is not.
    Meters,
    /// What happened: admitted, changed, violated, recovered …
    Events {
        /// Of one disk or pool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Those that came after this one's number.
        #[serde(default)]
        after: u64,
        /// At most so many, the newest.
        #[serde(default = "many")]
        most: usize,
    },
    /// Opens the tap on the commands, or empties it: what was asked since the last time. One recording at a time: two would
    /// share the commands between them.
    Tap,
    /// Closes the tap.
    Untap,
}

fn many() -> usize {
    100
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
    /// What happened, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Event>>,
    /// Words for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
    /// What the tap gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Taken>,
    /// The node's release, where it did not understand the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
}

/// Our release.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

impl Reply {
    /// It was done.
    pub fn done() -> Reply {
        Reply { ok: true, error: None, status: None, events: None, lines: None, taken: None, release: None }
    }
    /// The question is of another release, or nonsense.
    pub fn not_understood(error: impl std::fmt::Display) -> Reply {
        Reply { release: Some(RELEASE.into()), ..Reply::failed(error) }
    }
    /// As whoever asked shows it: where another release did not understand the question, both are named.
    pub fn explained(mut self) -> Reply {
        if let (Some(error), Some(theirs)) =
            (&mut self.error, self.release.as_ref().filter(|theirs| *theirs != RELEASE))
        {
            let theirs: String = theirs.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
            error.push_str(&format!(
                "; the node runs Henge {theirs}, this command is of Henge {RELEASE}: upgrade the older one"
            ));
        }
        self
    }
    /// It was not, and why.
    pub fn failed(error: impl std::fmt::Display) -> Reply {
        Reply { ok: false, error: Some(error.to_string()), ..Reply::done() }
    }
}

/// The node now. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Since the node started.
    pub uptime: u64,
    /// Milliseconds since 1970 by the node's clock; zero where nobody asked for details.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wall: u64,
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
    /// Disks that should be served and are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedDisk>,
    /// This node's name in its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The other nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerStatus>,
    /// Finish times that the manager made, where it makes any.
    #[serde(default, skip_serializing_if = "TagCounts::is_none")]
    pub tags: TagCounts,
}

impl Status {
    /// A disk by its name.
    pub fn disk(&self, name: &str) -> Option<&DiskStatus> {
        self.disks.iter().find(|d| d.name == name)
    }
}

/// A disk that should be served and is not: its storage fails, or its text does not fit what is stored. All others are served.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FailedDisk {
    /// Its name, which no other disk gets.
    pub name: String,
    /// What is wrong.
    pub why: String,
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
    /// The same as the configuration writes it, with its knobs.
    #[serde(default)]
    pub configured: String,
    /// The device it pretends to be, as the configuration writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// What its gates charge: requests, bytes, disk time.
    #[serde(default)]
    pub unit: String,
    /// Bytes for disks.
    #[serde(default)]
    pub capacity: u64,
    /// Of them promised to disks.
    #[serde(default)]
    pub promised: u64,
    /// The name of storage that other nodes reach, too; none: it is this node's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Longest piece of a command that goes to its storage at once.
    #[serde(default)]
    pub quantum: u64,
    /// What its scheduler keeps of contracts; none: its node does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<Keeps>,
    /// By how much it has given less than its disks were promised and wanted in the last seconds, and whose promises are short first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// Milliseconds for which it was short, since the node began.
    #[serde(default)]
    pub short_ms: u64,
    /// Of the rates that its disks wanted at the last look, the part that they received; absent while no disk is seen to want its rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<f64>,
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
    /// Most that may be at once from all gateways of a shared pool, where it divides its depth with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_of_all: Option<u32>,
    /// Time during which at least one was in flight.
    pub busy: u64,
    /// Mean requests in flight while it was busy.
    pub mean_depth: f64,
    /// Integral of requests in flight over time, in milliseconds: its growth divided by time is the mean depth.
    #[serde(default)]
    pub in_flight_ms: u64,
    /// The scheduler's virtual time; zero where it has none.
    #[serde(default)]
    pub virtual_time: u64,
    /// How unequally flows that waited all the time were served in the last second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfairness: Option<Unfairness>,
    /// 99th percentile of how late an emulated disk's completions were; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_p99: Option<u64>,
    /// Device time under way and most that may be, in nanoseconds; absent where the depth counts requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<[u64; 2]>,
    /// What its cost model has learned of the device; empty where costs are not learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedCost>,
}

/// What requests of a kind cost a device, as a gate has learned it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LearnedCost {
    /// `read`, `write` …
    pub kind: String,
    /// Nanoseconds of device time, whatever the length.
    pub fixed: u64,
    /// The same for each MiB on top.
    pub per_mib: u64,
    /// How far the model is from what the device does, on average, in percent.
    pub error: f64,
    /// What 64 KiB cost now, against what they did when they were measured or first learned; 1 is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
}

/// Another node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Whether there is a link.
    pub linked: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Parts of commands there, or on their way.
    pub pending: usize,
    /// Parts that were sent there and are over.
    pub parts: u64,
    /// Of them failed.
    pub failed: u64,
    /// Parts served for it.
    pub served: u64,
    /// Messages sent for synchronization alone.
    pub announced: u64,
    /// Links that were established.
    pub established: u64,
}

/// The largest difference between two flows' service by weight, in the gate's unit, and the scheduler's bound on it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Unfairness {
    /// Measured.
    pub difference: f64,
    /// At most.
    pub bound: f64,
}

/// A contract in numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Promise {
    /// Share beside others.
    pub weight: u32,
    /// Reserved, in `unit` a second; disk time in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// What they count: requests, bytes, disk time.
    pub unit: String,
    /// Nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<u64>,
    /// Of the commands, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
}

impl Promise {
    /// Of a contract.
    pub fn of(contract: &henge_core::Contract) -> Promise {
        let number = |rate: henge_core::Rate| match rate.unit {
            henge_core::CostUnit::Requests => rate.per_second as f64 / 1e6,
            _ => rate.per_second as f64,
        };
        let share = contract.disk_time.map(|d| f64::from(d.share) * 1e3);
        let unit = contract.units().next().map(|u| u.to_string());
        let fallback = || if share.is_some() { "disk time" } else { "requests" }.to_owned();
        Promise {
            weight: contract.weight(),
            rate: contract.rate.map(number).or(share),
            limit: contract.limit.map(number),
            unit: unit.unwrap_or_else(fallback),
            latency: contract.latency.map(|l| l.bound.as_nanos()),
            percentile: contract.latency.map(|l| f64::from(l.percentile) / 1e4),
        }
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
