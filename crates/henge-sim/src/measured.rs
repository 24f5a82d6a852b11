//! What runs measured, as rules and plots ask for it.

use crate::rule::{Bindings, Quantities};
use crate::{Experiment, FlowOutcome, GateOutcome, Judged, Outcome, Window};
use henge_core::{Contract, CostUnit, Duration, Histogram, WaitReason};
use std::collections::BTreeMap;

/// The outcomes of an experiment's runs, and its measured variables.
pub struct Measured {
    axes: Vec<(String, Vec<String>)>,
    runs: BTreeMap<Vec<String>, Outcome>,
    variables: BTreeMap<String, f64>,
}

/// What can be asked of a flow, of `total`, and (the second list) of a node or a gate.
const OF_FLOWS: &str = "rate, throughput, latency(q), mean, p50, p95, p99, max, within(bound), in_bound, missed, \
     behind, offered, answered, left, wait, service, disk_share, busy_share, promised, faults, windows_within(bound), \
     waited(reason number), overload(leeway), on(node) (bytes a second at that node); of total also messages, message_bytes, \
     message_share, unfairness, unfairness_bound, unfairness_of_bound, imbalance, deviation";
const OF_ADMISSION: &str = "deterministic, paper, measured, replay (disks that each rule admits), the same with _violation, oracle, \
     iops_max, ratio(n), reserved(n), reserved_worst(n)";
const OF_NODES: &str =
    "utilization, depth, rate, service(q), service_mean; in a period depth, limit, limit_max, limit_median";

impl Measured {
    /// Nothing yet.
    pub fn new(experiment: &Experiment) -> Self {
        let names = |a: &crate::Axis| (a.name.clone(), a.values.iter().map(|v| v.name.clone()).collect());
        Measured {
            axes: experiment.axes.iter().map(names).collect(),
            runs: BTreeMap::new(),
            variables: BTreeMap::new(),
        }
    }
    /// Adds a variable.
    pub fn set_variable(&mut self, name: &str, value: f64) {
        self.variables.insert(name.to_owned(), value);
    }
    /// The variables.
    pub fn variables(&self) -> &BTreeMap<String, f64> {
        &self.variables
    }
    /// Adds the outcome of a run.
    pub fn add(&mut self, run: &Bindings, outcome: Outcome) {
        let key =
            self.axes.iter().map(|(axis, _)| bound(run, axis).expect("a run binds every axis").to_owned());
        self.runs.insert(key.collect(), outcome);
    }
    /// All runs with the values of their axes.
    pub fn runs(&self) -> impl Iterator<Item = (&[String], &Outcome)> {
        self.runs.iter().map(|(k, o)| (k.as_slice(), o))
    }

    /// Theorem 2 of DSFQ over all runs that it covers, as a line of the verdict; `None` where it covers none.
    pub fn theorem_2(&self) -> Option<Judged> {
        let covered: Vec<&Outcome> =
            self.runs.values().filter(|o| o.fairness.who.is_some() && o.fairness.caveat.is_none()).collect();
        let here = covered.iter().map(|o| o.fairness.of_bound).fold(0.0, f64::max);
        (!covered.is_empty()).then(|| Judged {
            what: "Theorem 2 of DSFQ: the largest unfairness of any run that it covers, of its bound".into(),
            paper: "≤ 100 %".into(),
            here,
            unit: "percent".into(),
            holds: Some(here <= 1.0),
            note: None,
            shown_by: None,
        })
    }

    /// The run that `run` names; an axis with one value need not be bound.
    pub fn run(&self, run: &Bindings) -> Result<&Outcome, String> {
        let mut key = Vec::new();
        for (axis, values) in &self.axes {
            match (bound(run, axis), values.as_slice()) {
                (Some(value), _) => {
                    let known = values.iter().find(|v| same(v, value));
                    key.push(known.ok_or_else(|| format!("{axis} has no value \"{value}\""))?.clone());
                }
                (None, [only]) => key.push(only.clone()),
                (None, _) => {
                    return Err(format!("which {axis}? add [{axis}=…]; it has {}", values.join(", ")));
                }
            }
        }
        self.runs.get(&key).ok_or_else(|| format!("the run {} was not made", key.join(", ")))
    }
}

fn bound<'a>(run: &'a Bindings, axis: &str) -> Option<&'a str> {
    run.iter().rev().find(|(a, _)| a == axis).map(|(_, v)| v.as_str())
}

/// `2` and `2.0` are the same value.
fn same(a: &str, b: &str) -> bool {
    a == b || matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(x), Ok(y)) if x == y)
}

impl Quantities for Measured {
    fn quantity(
        &self,
        of: &str,
        what: &str,
        arguments: &[f64],
        run: &Bindings,
        period: Option<(f64, f64)>,
    ) -> Result<f64, String> {
        let outcome = self.run(run)?;
        if of == "admission" {
            let admitted =
                outcome.admission.as_ref().ok_or("this scenario admits nobody: it has no table admission")?;
            return admitted.quantity(what, arguments).ok_or_else(|| {
                format!("admission.{what} is not measured; of admission there are {OF_ADMISSION}")
            });
        }
        if of == "total"
            && let Some(value) = of_run(outcome, what)
        {
            return Ok(value);
        }
        if let Some(value) = of_nodes(outcome, of, what, arguments, period)? {
            return Ok(value);
        }
        if let ("on", [node], None) = (what, arguments, period) {
            return on_node(outcome, of, *node);
        }
        let flows: Vec<&FlowOutcome> = match of {
            "total" => outcome.flows.iter().collect(),
            name => vec![outcome.flow(name).ok_or_else(|| {
                let known: Vec<_> = outcome.flows.iter().map(|f| f.name.as_str()).collect();
                format!("there is no flow \"{name}\"; there are: {}, and total", known.join(", "))
            })?],
        };
        match period {
            None => of_flows(&flows, outcome.seconds(), what, arguments),
            Some((from, to)) => in_period(&flows, outcome, what, arguments, from, to),
        }
    }
    fn axis(&self, name: &str) -> Option<Vec<String>> {
        self.axes.iter().find(|(axis, _)| axis == name).map(|(_, values)| values.clone())
    }
    fn variable(&self, name: &str, _run: &Bindings) -> Option<f64> {
        self.variables.get(name).copied()
    }
}

/// What a flow, or all together, had of a node, in bytes a second.
fn on_node(outcome: &Outcome, of: &str, node: f64) -> Result<f64, String> {
    let flow = outcome.flows.iter().position(|f| f.name == of);
    if flow.is_none() && of != "total" {
        return Err(format!("there is no flow \"{of}\""));
    }
    let mut gates = outcome.gates.iter().filter(|g| f64::from(g.node) == node).peekable();
    if gates.peek().is_none() {
        return Err(format!("there is no node {node}"));
    }
    let bytes = gates.map(|g| match flow {
        Some(flow) => g.bytes.get(flow).copied().unwrap_or(0),
        None => g.bytes.iter().sum(),
    });
    Ok(bytes.sum::<u64>() as f64 / outcome.seconds())
}

/// What is measured of a run as a whole.
fn of_run(outcome: &Outcome, what: &str) -> Option<f64> {
    Some(match what {
        "messages" => outcome.traffic.messages as f64,
        "message_bytes" => outcome.traffic.bytes as f64,
        "message_share" => outcome.message_share(),
        "tags" => outcome.traffic.tags as f64,
        "tags_late" => outcome.traffic.tags_late as f64,
        "unfairness" => outcome.fairness.worst,
        "unfairness_bound" => outcome.fairness.bound,
        "unfairness_of_bound" => outcome.fairness.of_bound,
        _ => return None,
    })
}

/// `gates.utilization`, `node0.depth`; `None` when `of` is neither.
fn of_nodes(
    outcome: &Outcome,
    of: &str,
    what: &str,
    arguments: &[f64],
    period: Option<(f64, f64)>,
) -> Result<Option<f64>, String> {
    let number = of.strip_prefix("node").and_then(|n| n.parse::<u32>().ok());
    let gates: Vec<_> = match (of, number) {
        ("gates", _) => outcome.gates.iter().collect(),
        (_, Some(n)) => outcome.gates.iter().filter(|g| g.node == n).collect(),
        _ => return Ok(None),
    };
    if gates.is_empty() {
        return Err(format!("there is no {of}"));
    }
    if let (Some((from, to)), "depth" | "limit" | "limit_max" | "limit_median") = (period, what) {
        let width = outcome.timing.window.as_secs_f64();
        let (first, end) = ((from / width).round() as usize, (to / width).round() as usize);
        let of = |g: &GateOutcome| -> Vec<f64> {
            match what {
                "depth" => g.depths.iter().take(end).skip(first).copied().collect(),
                _ => g.limits.iter().take(end).skip(first).map(|&limit| f64::from(limit)).collect(),
            }
        };
        let mut all: Vec<f64> = gates.iter().flat_map(|g| of(g)).collect();
        if what == "limit_max" && !all.is_empty() {
            return Ok(Some(all.iter().copied().fold(0.0, f64::max)));
        }
        if all.is_empty() {
            return Err(format!("{from}s..{to}s holds no whole window of {width}s"));
        }
        // A depth without limit is no number to take a mean with.
        if what == "limit_median" {
            all.sort_by(f64::total_cmp);
            return Ok(Some(f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2])));
        }
        return Ok(Some(all.iter().sum::<f64>() / all.len() as f64));
    }
    let (seconds, n) = (outcome.seconds(), gates.len() as f64);
    let service = || {
        let mut all = Histogram::default();
        gates.iter().for_each(|g| all.merge(&g.service));
        all
    };
    Ok(Some(match (what, arguments) {
        ("utilization", []) => gates.iter().map(|g| g.occupied.as_secs_f64()).sum::<f64>() / seconds / n,
        ("depth", []) => gates.iter().map(|g| g.depth_mean).sum::<f64>() / n,
        ("rate", []) => gates.iter().map(|g| g.served as f64).sum::<f64>() / seconds,
        ("service_mean", []) => seconds_of(service().mean()),
        ("service", [q]) => seconds_of(service().quantile(*q)),
        _ => return Err(format!("{of}.{what} is not measured; of nodes there are {OF_NODES}")),
    }))
}

fn seconds_of(d: Option<Duration>) -> f64 {
    d.map_or(f64::NAN, Duration::as_secs_f64)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::NAN } else { part as f64 / whole as f64 }
}

fn of_flows(flows: &[&FlowOutcome], seconds: f64, what: &str, arguments: &[f64]) -> Result<f64, String> {
    let sum = |f: fn(&FlowOutcome) -> u64| flows.iter().map(|flow| f(flow)).sum::<u64>();
    let time =
        |f: fn(&FlowOutcome) -> Duration| flows.iter().map(|flow| f(flow)).sum::<Duration>().as_secs_f64();
    let latency = || {
        let mut all = Histogram::default();
        flows.iter().for_each(|f| all.merge(&f.latency));
        all
    };
    let answered = sum(|f| f.answered);
    Ok(match (what, arguments) {
        ("rate", []) => answered as f64 / seconds,
        ("throughput", []) => sum(|f| f.bytes) as f64 / seconds,
        ("offered", []) => sum(|f| f.arrived) as f64 / seconds,
        ("answered", []) => answered as f64,
        ("left", []) => sum(|f| f.left) as f64,
        ("faults", []) => sum(|f| f.faults) as f64,
        ("latency", [q]) => seconds_of(latency().quantile(*q)),
        ("mean", []) => seconds_of(latency().mean()),
        ("p50", []) => seconds_of(latency().quantile(0.5)),
        ("p95", []) => seconds_of(latency().quantile(0.95)),
        ("p99", []) => seconds_of(latency().quantile(0.99)),
        ("max", []) => seconds_of(latency().max()),
        ("within", [bound]) => share(latency().count_within(Duration::from_secs_f64(*bound)), answered),
        ("in_bound", []) => {
            1.0 - share(sum(|f| f.conformance.late), answered.max(sum(|f| f.conformance.late)))
        }
        ("missed", []) => share(sum(|f| f.conformance.missed), sum(|f| f.conformance.judged)),
        ("behind", []) => share(sum(|f| f.conformance.behind), answered),
        ("wait", []) => time(|f| f.service.wait) / answered as f64,
        ("service", []) => time(|f| f.service.time) / answered as f64,
        ("disk_share", []) => time(|f| f.service.disk_time) / seconds,
        ("busy_share", []) => time(|f| f.service.busy) / seconds,
        ("promised", []) => flows.iter().filter_map(|f| promised(f)).sum(),
        ("waited", [reason]) => {
            let at = (*reason as usize).min(WaitReason::ALL.len() - 1);
            flows.iter().map(|f| f.service.waits[at]).sum::<Duration>().as_secs_f64()
        }
        ("windows_within", [bound]) => windows_within(flows.iter().flat_map(|f| &f.windows), *bound),
        ("imbalance", []) => imbalance(flows, 0, usize::MAX),
        ("deviation", []) => deviation(flows),
        ("overload", [leeway]) => match flows {
            [FlowOutcome { arrivals, contract: Contract { rate: Some(rate), .. }, .. }] => {
                arrivals.overload(rate.per_second, *leeway)
            }
            _ => return Err("overload is that of one flow with a promised rate".into()),
        },
        _ => return Err(format!("{what} is not measured; of flows there are {OF_FLOWS}")),
    })
}

/// The reserved rate, in commands, bytes or seconds of disk time a second.
fn promised(flow: &FlowOutcome) -> Option<f64> {
    let rate = flow.contract.rate?;
    Some(match rate.unit {
        CostUnit::Requests => rate.per_second as f64 / 1e6,
        CostUnit::Bytes => rate.per_second as f64,
        CostUnit::DiskTime => rate.per_second as f64 / 1e9,
    })
}

/// Standard deviation over the flows of their bytes by weight, as a share of the mean.
fn deviation(flows: &[&FlowOutcome]) -> f64 {
    let each: Vec<f64> = flows.iter().map(|f| f.bytes as f64 / f64::from(f.contract.weight())).collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    let squares: f64 = each.iter().map(|x| (x - mean) * (x - mean)).sum();
    (squares / each.len() as f64).sqrt() / mean
}

/// The sum over the flows that were served of |share of the bytes − share of the weights|.
pub fn distance<'a>(served: impl Iterator<Item = (&'a FlowOutcome, u64)>) -> f64 {
    let served: Vec<(f64, f64)> = served
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(f, bytes)| (f64::from(f.contract.weight()), bytes as f64))
        .collect();
    let (weights, bytes) = served.iter().fold((0.0, 0.0), |(w, b), (weight, bytes)| (w + weight, b + bytes));
    if served.is_empty() {
        f64::NAN
    } else {
        served.iter().map(|(w, b)| (b / bytes - w / weights).abs()).sum()
    }
}

/// Mean over windows of (most − least) / (most + least), of the flows' bytes by their weights.
fn imbalance(flows: &[&FlowOutcome], from: usize, to: usize) -> f64 {
    let end = flows.iter().map(|f| f.windows.len()).min().unwrap_or(0).min(to);
    let at = |i: usize| {
        let by_weight = flows.iter().map(|f| f.windows[i].bytes as f64 / f64::from(f.contract.weight()));
        let (least, most) = by_weight.fold((f64::INFINITY, 0.0f64), |(a, b), x| (a.min(x), b.max(x)));
        (least + most > 0.0).then(|| (most - least) / (most + least))
    };
    let all: Vec<f64> = (from..end).filter_map(at).collect();
    all.iter().sum::<f64>() / all.len() as f64
}

/// Commands a window since the beginning of the run, on average: the least of what that is at the ends of these windows.
fn average_least(flows: &[&FlowOutcome], from: usize, to: usize) -> f64 {
    let end = flows.iter().map(|f| f.windows.len()).min().unwrap_or(0).min(to);
    let mut so_far = 0;
    let mut at = |i: usize| {
        so_far += flows.iter().map(|f| f.windows[i].commands).sum::<u64>();
        so_far as f64 / (i + 1) as f64
    };
    (0..end).map(|i| (i, at(i))).filter(|(i, _)| *i >= from).map(|(_, x)| x).fold(f64::INFINITY, f64::min)
}

fn windows_within<'a>(windows: impl Iterator<Item = &'a Window>, bound: f64) -> f64 {
    let bound = Duration::from_secs_f64(bound);
    let (mut within, mut all) = (0, 0);
    for window in windows.filter(|w| w.commands > 0) {
        all += 1;
        within += u64::from(window.p95 <= bound);
    }
    share(within, all)
}

/// The windows of a flow that lie in a period.
pub fn windows_in<'a>(
    flow: &'a FlowOutcome,
    outcome: &Outcome,
    from: f64,
    to: f64,
) -> impl Iterator<Item = &'a Window> + 'a {
    let width = outcome.timing.window.as_secs_f64();
    let (first, end) = ((from / width).round() as usize, (to / width).round() as usize);
    flow.windows.iter().take(end).skip(first)
}

fn in_period(
    flows: &[&FlowOutcome],
    outcome: &Outcome,
    what: &str,
    arguments: &[f64],
    from: f64,
    to: f64,
) -> Result<f64, String> {
    let width = outcome.timing.window.as_secs_f64();
    let windows = || flows.iter().flat_map(|f| windows_in(f, outcome, from, to));
    let count = flows.iter().map(|f| windows_in(f, outcome, from, to).count()).max().unwrap_or(0);
    if count == 0 {
        return Err(format!("{from}s..{to}s holds no whole window of {width}s"));
    }
    let seconds = count as f64 * width;
    let sum = |f: fn(&Window) -> u64| windows().map(f).sum::<u64>();
    Ok(match (what, arguments) {
        ("rate", []) => sum(|w| w.commands) as f64 / seconds,
        ("throughput", []) => sum(|w| w.bytes) as f64 / seconds,
        ("offered", []) => sum(|w| w.arrived) as f64 / seconds,
        ("in_bound", []) => 1.0 - share(sum(|w| w.late), sum(|w| w.commands)),
        ("disk_share", []) => windows().map(|w| w.disk_time).sum::<Duration>().as_secs_f64() / seconds,
        ("rate_most", []) => windows().map(|w| w.commands).max().unwrap_or(0) as f64 / width,
        ("rate_average_least", []) => {
            average_least(flows, (from / width).round() as usize, (to / width).round() as usize) / width
        }
        ("max", []) => windows().map(|w| w.max).max().unwrap_or_default().as_secs_f64(),
        // The mean over windows: a percentile over all of them is not kept.
        ("p95", []) => windows().map(|w| w.p95.as_secs_f64()).sum::<f64>() / windows().count() as f64,
        ("p50", []) => windows().map(|w| w.p50.as_secs_f64()).sum::<f64>() / windows().count() as f64,
        ("windows_within", [bound]) => windows_within(windows(), *bound),
        ("imbalance", []) => imbalance(flows, (from / width).round() as usize, (to / width).round() as usize),
        ("distance", []) => {
            distance(flows.iter().map(|f| (*f, windows_in(f, outcome, from, to).map(|w| w.bytes).sum())))
        }
        _ => {
            return Err(format!(
                "{what} is not kept by window; there are rate, rate_most (of a window), rate_average_least (since the \
                 beginning, at the end of any window), throughput, offered, in_bound, disk_share, max, p50, p95 \
                 (means of windows), windows_within(bound), imbalance, distance"
            ));
        }
    })
}
