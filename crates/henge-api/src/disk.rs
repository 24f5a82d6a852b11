//! How a disk is: what its clients saw, what its flow received at gates, where it lies, and who has it.

use crate::{Kept, Promise};
use henge_core::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A disk. On the line, all of its parts' keys stand beside each other.
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
    /// What its clients saw.
    #[serde(flatten)]
    pub meters: CommandMeters,
    /// The contract in numbers.
    #[serde(default)]
    pub promise: Promise,
    /// How much of the fair part of its rate each gate owes it, in millionths.
    #[serde(default)]
    pub leeway: u64,
    /// Its promise was not kept in the last seconds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub violated: bool,
    /// In how many of the seconds in which it wanted what it is promised it got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// Time of the node's processor that it took since it is served here: bytes moved, commands read and answered.
    #[serde(default)]
    pub processor: u64,
    /// What its requests received and waited for.
    #[serde(flatten)]
    pub flow: AtGates,
    /// Where it lies.
    #[serde(flatten)]
    pub layout: DiskLayout,
    /// Front ends by which clients may come to it: `nbd`, `iscsi`, `nvme`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fronts: Vec<String>,
    /// Who has it, where several can.
    #[serde(flatten)]
    pub seating: Seating,
}

/// A disk's commands, as its clients saw them since its meters began.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CommandMeters {
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
    /// Time during which it had commands pending.
    #[serde(default)]
    pub busy: u64,
    /// Integral of commands pending over time, in microseconds: its growth divided by time is their mean number.
    #[serde(default)]
    pub outstanding_us: u64,
    /// All latencies; with [`Request::Meters`](crate::Request::Meters).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Buckets>,
}

impl CommandMeters {
    /// Commands a second since its meters began.
    pub fn rate(&self) -> f64 {
        self.commands as f64 * 1e9 / self.metered.max(1) as f64
    }
    /// Share of the commands that kept the contract's latency; 1 while there are none.
    pub fn in_bound(&self) -> f64 {
        if self.commands == 0 { 1.0 } else { 1.0 - self.late as f64 / self.commands as f64 }
    }
}

/// A disk's flow at all of its gates.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AtGates {
    /// Why its next request waits now, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Time its requests waited in gates, in all.
    #[serde(default)]
    pub wait: u64,
    /// Time its requests were at devices, in all.
    #[serde(default)]
    pub service: u64,
    /// Disk time charged.
    #[serde(default)]
    pub disk_time: u64,
    /// Time its oldest request waited, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, u64>,
    /// What clients of all gateways received, where this one's gate has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Received>,
    /// At each of its gates; with [`Request::Meters`](crate::Request::Meters).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<AtGate>,
}

/// What was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Received {
    /// Commands.
    pub commands: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// Where a disk lies.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DiskLayout {
    /// Its pools.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Stripe unit over them.
    #[serde(default)]
    pub stripe: u64,
    /// Where it lies on pools of the cluster, as NODE/POOL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
    /// Which of those places are not served now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
}

/// Which gateway has a shared disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Seating {
    /// The gateways that can have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// The one of them that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
    /// Why this gateway, which is drained, has it still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
}

fn is_false(b: &bool) -> bool {
    !b
}

/// A disk's flow at one of its gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AtGate {
    /// Counted over all pools in their order.
    pub gate: u32,
    /// φ.
    pub weight: u32,
    /// Received, in the gate's unit.
    pub service: u64,
    /// Time its oldest request waited, its own limit not counted.
    pub waited: u64,
    /// The largest cost of one request.
    pub largest: u64,
}

/// A histogram as it travels: the numbers of the buckets that are not empty, and their counts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Buckets {
    /// As [`Histogram::counts`] numbers them.
    pub counts: Vec<(u16, u64)>,
    /// All durations together, in nanoseconds.
    pub sum: u64,
    /// The longest.
    pub max: u64,
}

impl From<&Histogram> for Buckets {
    fn from(h: &Histogram) -> Buckets {
        Buckets {
            counts: h.counts().map(|(i, n)| (i as u16, n)).collect(),
            sum: u64::try_from(h.sum()).unwrap_or(u64::MAX),
            max: h.max().map_or(0, |d| d.as_nanos()),
        }
    }
}

impl From<&Buckets> for Histogram {
    fn from(b: &Buckets) -> Histogram {
        let counts = b.counts.iter().map(|(i, n)| (usize::from(*i), *n));
        Histogram::from_counts(counts, u128::from(b.sum), henge_core::Duration::from_nanos(b.max))
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
    /// Of a histogram.
    pub fn of(h: &henge_core::Histogram) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Seconds, Status};
    use serde_json::{Value, json};

    /// Every key of a disk, as nodes say them.
    fn line() -> Value {
        json!({
            "name": "web", "capacity": 1_000_000, "contract": {"rate": "100/s", "latency": "20ms"},
            "connections": 2, "metered": 9_000_000_000u64, "commands": 900, "reads": 500,
            "bytes": u64::MAX, "failed": 1, "late": 9, "pending": 3,
            "latency": {"mean": 1, "p50": 2, "p95": 3, "p99": 4, "max": 5}, "waiting": "own limit",
            "promise": {"weight": 4, "rate": 100.0, "unit": "requests", "latency": 20_000_000, "percentile": 99.9},
            "pools": ["ssd", "hdd"], "stripe": 65536, "leeway": 7, "gateways": ["n1", "n2"], "seat": "n1",
            "stays": "n2 is not linked", "violated": true,
            "kept": {
                "day": {"wanted_ms": 2000, "kept_ms": 1000, "missed_ms": {"turn": 1000}},
                "month": {"wanted_ms": 2000, "kept_ms": 2000}, "ever": {"wanted_ms": 2000, "kept_ms": 2000},
                "days": {"20000": {"wanted_ms": 2000, "kept_ms": 2000}},
            },
            "busy": 8, "outstanding_us": 9, "wait": 10, "service": 11, "disk_time": 12, "processor": 13,
            "waits": {"own share": 14, "own limit": 15},
            "gates": [{"gate": 1, "weight": 4, "service": 16, "waited": 17, "largest": 18}],
            "histogram": {"counts": [[3, 4], [900, 1]], "sum": 19, "max": 20},
            "places": ["n1/ssd", "n2/ssd"], "fronts": ["nbd", "iscsi"], "trouble": ["n2/ssd: gone"],
        })
    }

    /// Through its text: a value's maps are read otherwise.
    fn read(line: &Value) -> serde_json::Result<DiskStatus> {
        serde_json::from_str(&line.to_string())
    }

    fn said(disk: &DiskStatus) -> Value {
        let text = serde_json::to_string(disk).unwrap();
        let keys = text.matches("\"name\":").count();
        assert_eq!(keys, 1, "a key is said once: {text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_disk_is_one_flat_object_and_all_of_it_is_read() {
        let disk = read(&line()).unwrap();
        assert_eq!(said(&disk), line());
        assert_eq!((disk.meters.commands, disk.meters.bytes), (900, u64::MAX));
        assert_eq!((disk.flow.waits["own share"], disk.flow.gates[0].largest), (14, 18));
        assert_eq!((disk.layout.trouble.len(), disk.seating.seat.as_deref()), (1, Some("n1")));
        let days =
            BTreeMap::from([(20_000, Seconds { wanted_ms: 2000, kept_ms: 2000, ..Seconds::default() })]);
        assert_eq!(disk.kept.unwrap().days, days);
        let status = json!({
            "uptime": 1, "connections": 2, "buffers_out": 3, "buffers": 4, "pools": [], "disks": [line()],
        });
        let status: Status = serde_json::from_str(&status.to_string()).unwrap();
        assert_eq!(said(&status.disks[0]), line());
    }

    #[test]
    fn an_older_nodes_line_is_read_and_a_newer_ones_too() {
        // These keys were always there, and the others are added.
        let least = json!({
            "name": "web", "capacity": 1, "contract": {}, "connections": 0, "metered": 0, "commands": 0,
            "reads": 0, "bytes": 0, "failed": 0, "late": 0, "pending": 0,
            "latency": {"mean": 0, "p50": 0, "p95": 0, "p99": 0, "max": 0},
        });
        let older = read(&least).unwrap();
        let expected = DiskStatus { name: "web".into(), capacity: 1, ..DiskStatus::default() };
        assert_eq!(older, expected);
        let mut more = least.clone();
        let rest = json!({
            "promise": {"weight": 0, "unit": ""}, "pools": [], "stripe": 0, "leeway": 0, "busy": 0,
            "outstanding_us": 0, "wait": 0, "service": 0, "disk_time": 0, "processor": 0,
        });
        more.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        assert_eq!(said(&older), more);
        // What a newer node says besides is passed over.
        let mut newer = least.clone();
        newer["mood"] = json!({"good": [1]});
        newer["seat"] = Value::Null;
        assert_eq!(read(&newer).unwrap(), expected);
        for key in least.as_object().unwrap().keys() {
            let mut torn = least.clone();
            torn.as_object_mut().unwrap().remove(key);
            assert!(read(&torn).unwrap_err().to_string().contains(key), "{key} is needed");
        }
        assert!(
            serde_json::from_str::<DiskStatus>(&least.to_string().replacen('{', "{\"late\":0,", 1)).is_err()
        );
    }
}
