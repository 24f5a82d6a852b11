//! Prometheus: counters as the nodes count them; rates and percentiles are Prometheus's own work.
//!
//! Labels are a disk's name and its node, a gate's and its pool; [`DISKS_MAX`] bounds how many disks are told
//! of one by one, and `henge_disks_untold` says how many are not. Times are seconds, sizes bytes.

use crate::source::Sample;
use henge_api::DiskStatus;
use henge_core::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// Most disks with metrics of their own.
const DISKS_MAX: usize = 5000;
/// Upper edges of the latency histogram's buckets, in seconds.
const EDGES: [f64; 12] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0];

/// The exposition of a sample, in the OpenMetrics text format.
pub fn text(sample: &Sample) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Shown(sample.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string succeeds");
    text
}

#[derive(Debug)]
struct Shown(Sample);

type DiskLabels<'a> = [(&'static str, &'a str); 2];

struct Told<'a> {
    node: &'a str,
    disk: &'a DiskStatus,
}

impl Told<'_> {
    fn labels(&self) -> DiskLabels<'_> {
        [("node", self.node), ("disk", &self.disk.name)]
    }
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let sample = &self.0;
        let all =
            sample.nodes.iter().flat_map(|n| n.status.disks.iter().map(|d| Told { node: &n.name, disk: d }));
        let told: Vec<Told<'_>> = all.clone().take(DISKS_MAX).collect();
        let untold = all.count() - told.len();
        let e = &mut encoder;
        plain(e, "henge_disks_untold", "Disks without metrics of their own", untold as f64)?;
        disks(e, &told)?;
        latencies(e, &told)?;
        gates(e, sample)?;
        learned(e, sample)?;
        nodes(e, sample)
    }
}

fn plain(e: &mut DescriptorEncoder, name: &str, help: &str, value: f64) -> fmt::Result {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Gauge)?;
    metric.encode_gauge(&value)
}

fn family<'s>(
    e: &'s mut DescriptorEncoder<'_>,
    name: &'s str,
    help: &str,
    unit: Option<&'s Unit>,
    kind: MetricType,
) -> Result<MetricEncoder<'s>, fmt::Error> {
    e.encode_descriptor(name, help, unit, kind)
}

/// A counter for each disk.
fn counter(
    e: &mut DescriptorEncoder,
    told: &[Told<'_>],
    (name, help, unit): (&str, &str, Option<Unit>),
    value: impl Fn(&DiskStatus) -> f64,
) -> fmt::Result {
    let mut metric = family(e, name, help, unit.as_ref(), MetricType::Counter)?;
    for one in told {
        metric
            .encode_family(&one.labels())?
            .encode_counter::<NoLabelSet, f64, f64>(&value(one.disk), None)?;
    }
    Ok(())
}

/// A gauge for each disk that has it.
fn gauge(
    e: &mut DescriptorEncoder,
    told: &[Told<'_>],
    (name, help, unit): (&str, &str, Option<Unit>),
    value: impl Fn(&DiskStatus) -> Option<f64>,
) -> fmt::Result {
    let mut metric = family(e, name, help, unit.as_ref(), MetricType::Gauge)?;
    for one in told {
        if let Some(value) = value(one.disk) {
            metric.encode_family(&one.labels())?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Seconds in which disks wanted what they are promised: kept, and missed by reason.
fn kept(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    let help = "Time in which a disk wanted what it is promised and got it";
    let mut metric = family(e, "henge_disk_promise_kept", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for one in told {
        let Some(kept) = &one.disk.kept else { continue };
        let value = kept.ever.kept_ms as f64 / 1e3;
        metric.encode_family(&one.labels())?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
    }
    let help = "Time in which a disk wanted what it is promised and did not get it, by what held it up most";
    let mut metric = family(e, "henge_disk_promise_missed", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for one in told {
        let Some(kept) = &one.disk.kept else { continue };
        for (reason, ms) in &kept.ever.missed_ms {
            let labels = [("node", one.node), ("disk", one.disk.name.as_str()), ("reason", reason.as_str())];
            let value = *ms as f64 / 1e3;
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
        }
    }
    Ok(())
}

fn disks(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    requests(e, told)?;
    service(e, told)?;
    waits(e, told)?;
    processor(e, told)?;
    kept(e, told)?;
    state(e, told)?;
    promises(e, told)
}

/// Commands by what they do.
fn requests(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    let mut metric = family(e, "henge_disk_requests", "Commands answered", None, MetricType::Counter)?;
    for one in told {
        for (op, n) in [
            ("read", one.disk.meters.reads),
            ("other", one.disk.meters.commands - one.disk.meters.reads.min(one.disk.meters.commands)),
        ] {
            let labels = [("node", one.node), ("disk", one.disk.name.as_str()), ("op", op)];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, u64>(&n, None)?;
        }
    }
    Ok(())
}

/// What disks received, and what it took.
fn service(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    counter(e, told, ("henge_disk", "Bytes read and written", Some(Unit::Bytes)), |d| d.meters.bytes as f64)?;
    counter(e, told, ("henge_disk_failed_requests", "Commands answered with an error", None), |d| {
        d.meters.failed as f64
    })?;
    counter(
        e,
        told,
        ("henge_disk_late_requests", "Commands answered later than the contract's latency", None),
        |d| d.meters.late as f64,
    )?;
    counter(e, told, ("henge_disk_wait", "Time requests waited in gates", Some(Unit::Seconds)), |d| {
        seconds(d.flow.wait)
    })?;
    counter(e, told, ("henge_disk_service", "Time requests were at devices", Some(Unit::Seconds)), |d| {
        seconds(d.flow.service)
    })?;
    counter(e, told, ("henge_disk_device", "Disk time charged", Some(Unit::Seconds)), |d| {
        seconds(d.flow.disk_time)
    })?;
    Ok(())
}

fn waits(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    let help = "Time the oldest request waited, by reason";
    let mut metric = family(e, "henge_disk_waiting", help, Some(&Unit::Seconds), MetricType::Counter)?;
    for one in told {
        for (reason, ns) in &one.disk.flow.waits {
            let labels = [("node", one.node), ("disk", one.disk.name.as_str()), ("reason", reason.as_str())];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&seconds(*ns), None)?;
        }
    }
    Ok(())
}

fn processor(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    counter(
        e,
        told,
        ("henge_disk_processor", "Time of the node's processor that it took", Some(Unit::Seconds)),
        |d| seconds(d.processor),
    )
}

/// How disks are now.
fn state(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    gauge(e, told, ("henge_disk_pending", "Commands pending", None), |d| Some(d.meters.pending as f64))?;
    gauge(e, told, ("henge_disk_clients", "Clients connected", None), |d| Some(d.connections as f64))?;
    gauge(e, told, ("henge_disk_capacity", "Bytes of the disk", Some(Unit::Bytes)), |d| {
        Some(d.capacity as f64)
    })?;
    gauge(e, told, ("henge_disk_violated", "1 while the promise is not kept", None), |d| {
        Some(f64::from(u8::from(d.violated)))
    })?;
    Ok(())
}

/// What disks are promised, each in its unit.
fn promises(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    let rate = |unit: &'static str, scale: f64| {
        move |d: &DiskStatus| d.promise.rate.filter(|_| d.promise.unit == unit).map(|rate| rate / scale)
    };
    gauge(
        e,
        told,
        ("henge_disk_promised_requests_per_second", "Reserved commands a second", None),
        rate("requests", 1.0),
    )?;
    gauge(
        e,
        told,
        ("henge_disk_promised_bytes_per_second", "Reserved bytes a second", None),
        rate("bytes", 1.0),
    )?;
    gauge(
        e,
        told,
        ("henge_disk_promised_device_ratio", "Reserved share of the disk's time", None),
        rate("disk time", 1e9),
    )?;
    gauge(e, told, ("henge_disk_latency_bound", "Promised latency", Some(Unit::Seconds)), |d| {
        d.promise.latency.map(seconds)
    })?;
    gauge(
        e,
        told,
        ("henge_disk_latency_bound_ratio", "Share of the commands that keep the promised latency", None),
        |d| d.promise.percentile.map(|p| p / 100.0),
    )
}

fn latencies(e: &mut DescriptorEncoder, told: &[Told<'_>]) -> fmt::Result {
    let help = "Latency of commands: complete on the wire until answered";
    let mut metric = family(e, "henge_disk_latency", help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for one in told {
        let Some(buckets) = &one.disk.meters.histogram else { continue };
        let h = Histogram::from(buckets);
        let mut counts: Vec<(f64, u64)> = EDGES.iter().map(|edge| (*edge, 0)).collect();
        counts.push((f64::INFINITY, 0));
        for (upper, n) in h.buckets() {
            // A bucket whose edge is in the middle of ours counts to where most of it is.
            let at = upper.as_secs_f64() * 0.984;
            let place = counts.iter().position(|(edge, _)| at <= *edge).unwrap_or(EDGES.len());
            counts[place].1 += n;
        }
        metric.encode_family(&one.labels())?.encode_histogram::<NoLabelSet>(
            h.sum() as f64 / 1e9,
            h.count(),
            &counts,
            None,
        )?;
    }
    Ok(())
}

fn gates(e: &mut DescriptorEncoder, sample: &Sample) -> fmt::Result {
    type Of = fn(&henge_api::GateStatus) -> Option<f64>;
    let rows: [(&str, &str, Option<Unit>, MetricType, Of); 10] = [
        ("henge_gate_queued", "Requests waiting", None, MetricType::Gauge, |g| Some(g.queued as f64)),
        ("henge_gate_in_flight", "Requests in flight", None, MetricType::Gauge, |g| Some(g.in_flight.into())),
        ("henge_gate_depth", "Most requests in flight", None, MetricType::Gauge, |g| Some(g.depth.into())),
        ("henge_gate_busy", "Time with a request in flight", Some(Unit::Seconds), MetricType::Counter, |g| {
            Some(seconds(g.busy))
        }),
        (
            "henge_gate_in_flight_time",
            "Requests in flight, over time",
            Some(Unit::Seconds),
            MetricType::Counter,
            |g| Some(g.in_flight_ms as f64 / 1e3),
        ),
        (
            "henge_gate_unfairness",
            "Largest difference of service by weight, last second",
            None,
            MetricType::Gauge,
            |g| g.unfairness.map(|u| u.difference),
        ),
        ("henge_gate_unfairness_bound", "The scheduler's bound on it", None, MetricType::Gauge, |g| {
            g.unfairness.map(|u| u.bound)
        }),
        (
            "henge_gate_lateness",
            "An emulated disk's lateness, p99",
            Some(Unit::Seconds),
            MetricType::Gauge,
            |g| g.lateness_p99.map(seconds),
        ),
        (
            "henge_gate_work",
            "Device time under way, where the depth counts work",
            Some(Unit::Seconds),
            MetricType::Gauge,
            |g| g.work.map(|[under_way, _]| seconds(under_way)),
        ),
        ("henge_gate_work_limit", "Most of it that may be", Some(Unit::Seconds), MetricType::Gauge, |g| {
            g.work.map(|[_, most]| seconds(most))
        }),
    ];
    for (name, help, unit, kind, value) in rows {
        let mut metric = family(e, name, help, unit.as_ref(), kind)?;
        for node in &sample.nodes {
            for pool in &node.status.pools {
                for gate in &pool.gates {
                    let labels = [("node", node.name.as_str()), ("pool", &pool.name), ("gate", &gate.name)];
                    let Some(value) = value(gate) else { continue };
                    let mut one = metric.encode_family(&labels)?;
                    match kind {
                        MetricType::Counter => one.encode_counter::<NoLabelSet, f64, f64>(&value, None)?,
                        _ => one.encode_gauge(&value)?,
                    }
                }
            }
        }
    }
    Ok(())
}

/// What gates have learned of their devices, by kind of request.
fn learned(e: &mut DescriptorEncoder, sample: &Sample) -> fmt::Result {
    type Of = fn(&henge_api::LearnedCost) -> Option<f64>;
    let rows: [(&str, &str, Option<Unit>, Of); 4] = [
        ("henge_gate_cost", "Device time of a request, learned", Some(Unit::Seconds), |l| {
            Some(seconds(l.fixed))
        }),
        ("henge_gate_cost_mib", "Device time of each MiB on top, learned", Some(Unit::Seconds), |l| {
            Some(seconds(l.per_mib))
        }),
        ("henge_gate_cost_error", "By what part of a window the model is wrong", None, |l| {
            Some(l.error / 100.0)
        }),
        ("henge_gate_cost_drift", "Cost against what was measured or learned first", None, |l| l.drift),
    ];
    for (name, help, unit, value) in rows {
        let mut metric = family(e, name, help, unit.as_ref(), MetricType::Gauge)?;
        for node in &sample.nodes {
            for pool in &node.status.pools {
                for gate in &pool.gates {
                    for cost in &gate.learned {
                        let Some(value) = value(cost) else { continue };
                        let labels = [
                            ("node", node.name.as_str()),
                            ("pool", &pool.name),
                            ("gate", &gate.name),
                            ("kind", &cost.kind),
                        ];
                        metric.encode_family(&labels)?.encode_gauge(&value)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn nodes(e: &mut DescriptorEncoder, sample: &Sample) -> fmt::Result {
    type Of = fn(&crate::source::NodeSample) -> f64;
    let rows: [(&str, &str, Option<Unit>, Of); 5] = [
        ("henge_node_up", "Whether the node answers", None, |n| f64::from(u8::from(n.up))),
        ("henge_node_uptime", "Since it began", Some(Unit::Seconds), |n| seconds(n.status.uptime)),
        ("henge_node_connections", "Clients connected", None, |n| n.status.connections as f64),
        ("henge_node_buffers", "Payload held", Some(Unit::Bytes), |n| n.status.buffers_out as f64),
        ("henge_node_buffers_limit", "Most payload that may be held", Some(Unit::Bytes), |n| {
            n.status.buffers as f64
        }),
    ];
    for (name, help, unit, value) in rows {
        let mut metric = family(e, name, help, unit.as_ref(), MetricType::Gauge)?;
        for node in &sample.nodes {
            metric.encode_family(&[("node", node.name.as_str())])?.encode_gauge(&value(node))?;
        }
    }
    let mut pools = |name: &str, help: &str, value: fn(&henge_api::PoolStatus) -> u64| -> fmt::Result {
        let mut metric = family(e, name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        for node in &sample.nodes {
            for pool in &node.status.pools {
                let labels = [("node", node.name.as_str()), ("pool", pool.name.as_str())];
                metric.encode_family(&labels)?.encode_gauge(&(value(pool) as f64))?;
            }
        }
        Ok(())
    };
    pools("henge_pool_capacity", "Bytes for disks", |p| p.capacity)?;
    pools("henge_pool_promised", "Bytes promised to disks", |p| p.promised)?;
    short(e, sample)
}

/// Pools that give less than is promised on them.
fn short(e: &mut DescriptorEncoder, sample: &Sample) -> fmt::Result {
    type Of = fn(&henge_api::PoolStatus) -> Option<f64>;
    let rows: [(&str, &str, Option<Unit>, MetricType, Of); 3] = [
        (
            "henge_pool_short",
            "1 while the pool gives less than its disks are promised and want",
            None,
            MetricType::Gauge,
            |p| Some(f64::from(u8::from(p.short.is_some()))),
        ),
        (
            "henge_pool_short_time",
            "Time for which it gave less",
            Some(Unit::Seconds),
            MetricType::Counter,
            |p| Some(p.short_ms as f64 / 1e3),
        ),
        (
            "henge_pool_received_ratio",
            "Part of the rates wanted that disks received, last second",
            None,
            MetricType::Gauge,
            |p| p.received,
        ),
    ];
    for (name, help, unit, kind, value) in rows {
        let mut metric = family(e, name, help, unit.as_ref(), kind)?;
        for node in &sample.nodes {
            for pool in &node.status.pools {
                let Some(value) = value(pool) else { continue };
                let labels = [("node", node.name.as_str()), ("pool", pool.name.as_str())];
                let mut one = metric.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => one.encode_counter::<NoLabelSet, f64, f64>(&value, None)?,
                    _ => one.encode_gauge(&value)?,
                }
            }
        }
    }
    Ok(())
}

/// The same in the older text format: there a counter's name carries its `_total`, and nothing says the unit or the end.
pub fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let counters: std::collections::BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let about = line.strip_prefix("# HELP ").map(|rest| ("# HELP ", rest));
        let about = about.or_else(|| line.strip_prefix("# TYPE ").map(|rest| ("# TYPE ", rest)));
        match about.and_then(|(what, rest)| rest.split_once(' ').map(|(name, rest)| (what, name, rest))) {
            Some((what, name, rest)) if counters.contains(name) => {
                out.push_str(&format!("{what}{name}_total {rest}\n"));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::NodeSample;
    use henge_api::{AtGates, Buckets, CommandMeters, Status};
    use std::sync::Arc;

    #[test]
    fn names_units_and_escapes() {
        let mut latency = Histogram::default();
        latency.record(henge_core::Duration::from_millis(4));
        latency.record(henge_core::Duration::from_secs(60));
        let disk = DiskStatus {
            name: "a\"b\n".into(),
            meters: CommandMeters {
                commands: 3,
                reads: 1,
                bytes: 4096,
                histogram: Some(Buckets::from(&latency)),
                ..CommandMeters::default()
            },
            flow: AtGates { waits: [("own limit".to_owned(), 1_500_000_000)].into(), ..AtGates::default() },
            ..DiskStatus::default()
        };
        let pool = |name: &str, short: bool| henge_api::PoolStatus {
            name: name.into(),
            short: short.then(|| "gives less".into()),
            short_ms: 12_500,
            received: short.then_some(0.75),
            ..henge_api::PoolStatus::default()
        };
        let pools = vec![pool("ssd", true), pool("hd", false)];
        let status = Arc::new(Status { disks: vec![disk], pools, ..Status::default() });
        let node = NodeSample { name: "n".into(), up: true, status, ..NodeSample::default() };
        let open = text(&Sample { nodes: vec![node], ..Sample::default() });
        for line in [
            "# TYPE henge_disk_requests counter",
            r#"henge_disk_requests_total{node="n",disk="a\"b\n",op="read"} 1"#,
            r#"henge_disk_waiting_seconds_total{node="n",disk="a\"b\n",reason="own limit"} 1.5"#,
            r#"henge_disk_latency_seconds_bucket{le="0.003",node="n",disk="a\"b\n"} 0"#,
            r#"henge_disk_latency_seconds_bucket{le="0.01",node="n",disk="a\"b\n"} 1"#,
            r#"henge_disk_latency_seconds_bucket{le="+Inf",node="n",disk="a\"b\n"} 2"#,
            r#"henge_node_up{node="n"} 1.0"#,
            r#"henge_pool_short{node="n",pool="ssd"} 1.0"#,
            r#"henge_pool_short{node="n",pool="hd"} 0.0"#,
            r#"henge_pool_short_time_seconds_total{node="n",pool="hd"} 12.5"#,
            r#"henge_pool_received_ratio{node="n",pool="ssd"} 0.75"#,
        ] {
            assert!(open.lines().any(|l| l == line), "{line} is not in\n{open}");
        }
        assert!(
            !open.contains(r#"henge_pool_received_ratio{node="n",pool="hd"}"#),
            "nobody wants anything of it"
        );
        let classic = classic(&open);
        assert!(classic.contains("# TYPE henge_disk_requests_total counter\n") && !classic.contains("# EOF"));
    }
}
