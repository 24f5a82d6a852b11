//! Statistics and comparisons as JSON.

use henge_core::{Duration, Op};
use henge_workload::diff::{Both, Diff};
use henge_workload::{Stats, Trace};
use serde_json::{Map, Value, json};

/// The statistics of a trace, under the names that collections of traces use.
pub fn stats(name: &str, trace: &Trace, s: &Stats) -> Value {
    let all = s.all();
    let gib = |n: u64| n as f64 / (1u64 << 30) as f64;
    let (devices, busiest) = s.devices();
    let (starts, exact) = s.distinct_starts();
    let dispersion: Map<String, Value> =
        s.dispersion().into_iter().map(|(width, d)| (width.to_string(), json!(d))).collect();
    let sizes: Vec<Value> = s
        .common_sizes()
        .into_iter()
        .take(20)
        .map(|(size, n)| json!({"bytes": size, "requests": n}))
        .collect();
    let reads = super::asked_for(trace, s);
    json!({
        "name": name,
        "format": trace.format().name(),
        "requests": s.requests(),
        "reads": reads.requests,
        "writes": s.of(Op::Write).requests,
        "flushes": s.of(Op::Flush).requests,
        "trims": s.of(Op::Trim).requests,
        "damaged_lines": trace.damaged(),
        "read_ahead": trace.read_ahead(),
        "duration_s": s.duration().as_secs_f64(),
        "mean_iops": s.mean_iops(),
        "peak_requests_in_1s": s.peak_second(),
        "read_percent": reads.percent,
        "mean_kib": all.mean_kib(),
        "mean_read_kib": reads.mean_kib,
        "mean_write_kib": s.of(Op::Write).mean_kib(),
        "max_kib": all.largest as f64 / 1024.0,
        "devices": devices,
        "busiest_device_percent": busiest,
        "sequential_percent_strict": s.sequential_percent(),
        "sequential_percent_last32": s.near_percent(),
        "volume_gib": gib(all.bytes),
        "max_offset_gib": gib(s.max_start()),
        "end_bytes": s.max_end(),
        "distinct_4k_starts": starts,
        "distinct_4k_starts_exact": exact,
        "time_going_back": s.backwards(),
        "unaligned_percent": s.unaligned_percent(),
        "sizes": sizes,
        "dispersion": dispersion,
    })
}

fn both(b: Both) -> Value {
    let ms = |d: Option<Duration>| d.map(Duration::as_millis_f64);
    json!({"a_ms": ms(b.a), "b_ms": ms(b.b), "difference_percent": b.percent()})
}

/// A comparison of two runs.
pub fn diff(d: &Diff) -> Value {
    let flows: Vec<Value> = d
        .flows
        .iter()
        .map(|f| {
            json!({
                "flow": f.flow, "requests": f.requests, "agrees": f.agrees(),
                "p50": both(f.p50), "p95": both(f.p95), "p99": both(f.p99),
            })
        })
        .collect();
    let parting = d.parting.as_ref().map(|p| json!({"gate": p.gate, "after": p.after, "a": p.a, "b": p.b}));
    json!({
        "valid": d.is_valid(),
        "agrees": d.agrees(),
        "same_order": d.same_order(),
        "first_difference": parting,
        "lateness_p99_ms": d.lateness_p99.map(Duration::as_millis_f64),
        "flows": flows,
    })
}
