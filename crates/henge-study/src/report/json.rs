//! What programs read.

use henge_core::{Duration, WaitReason};
use henge_sim::{Compared, Experiment, FlowOutcome, GateOutcome, Measured, Outcome, Replayed, Verdict};
use serde_json::{Map, Value, json};

/// `{"id", "seeds", "holds", "rows": [{"what", "paper", "here" (median), "least", "most", "by_seed", "held", "holds"}]}`
pub fn verdict(id: &str, seeds: &[u64], holds: bool, rows: &[Verdict]) -> Value {
    let row = |r: &Verdict| {
        let (least, most) = r.range();
        let by_seed: Vec<Value> = r.here.iter().map(|x| number(*x)).collect();
        json!({
            "what": r.what, "paper": r.paper, "here": number(r.median()), "least": number(least),
            "most": number(most), "by_seed": by_seed, "held": r.held, "holds": r.holds(),
            "note": r.note, "shown_by": r.shown_by,
        })
    };
    json!({"id": id, "seeds": seeds, "holds": holds, "rows": rows.iter().map(row).collect::<Vec<_>>()})
}

/// Every run of a study.
pub fn runs(experiment: &Experiment, measured: &Measured) -> Value {
    let run = |(values, outcome): (&[String], &Outcome)| {
        let axes: Map<String, Value> = experiment
            .axes
            .iter()
            .zip(values)
            .map(|(a, v)| (a.name.clone(), Value::from(v.as_str())))
            .collect();
        let mut object = outcome_of(outcome);
        object["axes"] = Value::Object(axes);
        object
    };
    json!({
        "title": experiment.title,
        "variables": measured.variables(),
        "runs": measured.runs().map(run).collect::<Vec<_>>(),
    })
}

/// A replay.
pub fn replayed(replayed: &Replayed) -> Value {
    let flow = |f: &Compared| {
        let at = |h: &henge_core::Histogram, q: f64| millis(h.quantile(q));
        json!({
            "name": f.name, "requests": f.now.count(),
            "then_ms": {"p50": at(&f.then, 0.5), "p95": at(&f.then, 0.95)},
            "now_ms": {"p50": at(&f.now, 0.5), "p95": at(&f.now, 0.95)},
        })
    };
    json!({
        "requests": replayed.requests, "dispatched_as_recorded": replayed.same, "first_difference": replayed.first,
        "flows": replayed.flows.iter().map(flow).collect::<Vec<_>>(),
    })
}

fn outcome_of(outcome: &Outcome) -> Value {
    json!({
        "seed": outcome.seed,
        "seconds": outcome.seconds(),
        "requests": outcome.requests,
        "messages": outcome.traffic.messages,
        "message_bytes": outcome.traffic.bytes,
        "message_share_of_time": number(outcome.message_share()),
        "tags": outcome.traffic.tags,
        "tags_late": outcome.traffic.tags_late,
        "unfairness": fairness(outcome),
        "flows": outcome.flows.iter().map(|f| flow(f, outcome)).collect::<Vec<_>>(),
        "gates": outcome.gates.iter().map(|g| gate(g, outcome)).collect::<Vec<_>>(),
    })
}

/// The largest unfairness and Theorem 2's bound, in cost by weight.
fn fairness(outcome: &Outcome) -> Value {
    let f = &outcome.fairness;
    let name = |flow: u32| outcome.flows[flow as usize].name.as_str();
    json!({
        "largest": number(f.worst), "bound": number(f.bound), "of_bound": number(f.of_bound),
        "between": f.who.map(|(a, b, _)| [name(a), name(b)]),
        "at": f.who.map(|(_, _, gate)| outcome.gates[gate as usize].name.as_str()),
        "watched": f.watched, "of": f.of, "not_covered": f.caveat.map(henge_sim::Caveat::as_str),
    })
}

fn flow(flow: &FlowOutcome, outcome: &Outcome) -> Value {
    let seconds = outcome.seconds();
    let at = |q: f64| millis(flow.latency.quantile(q));
    let waits: Map<String, Value> = WaitReason::ALL
        .into_iter()
        .filter(|r| flow.service.waits[*r as usize] > Duration::ZERO)
        .map(|r| (r.as_str().to_owned(), json!(flow.service.waits[r as usize].as_secs_f64())))
        .collect();
    json!({
        "name": flow.name,
        "load": flow.load,
        "promised": super::table::promise(&flow.contract),
        "offered_per_second": flow.arrived as f64 / seconds,
        "received_per_second": flow.answered as f64 / seconds,
        "bytes_per_second": flow.bytes as f64 / seconds,
        "answered": flow.answered, "left": flow.left, "faults": flow.faults,
        "latency_ms": {
            "mean": millis(flow.latency.mean()), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99),
            "max": millis(flow.latency.max()),
        },
        "wait_ms_mean": flow.service.wait.as_millis_f64() / flow.answered.max(1) as f64,
        "service_ms_mean": flow.service.time.as_millis_f64() / flow.answered.max(1) as f64,
        "disk_time_share": flow.service.disk_time.as_secs_f64() / seconds,
        "late": flow.conformance.late, "judged": flow.conformance.judged, "missed": flow.conformance.missed,
        "waited_seconds": waits,
    })
}

fn gate(gate: &GateOutcome, outcome: &Outcome) -> Value {
    json!({
        "name": gate.name,
        "served_per_second": gate.served as f64 / outcome.seconds(),
        "utilization": gate.occupied.as_secs_f64() / outcome.seconds(),
        "depth_mean": gate.depth_mean,
        "service_ms_mean": millis(gate.service.mean()),
    })
}

fn millis(d: Option<Duration>) -> Value {
    d.map_or(Value::Null, |d| json!(d.as_millis_f64()))
}

/// JSON has no "not a number".
fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}
