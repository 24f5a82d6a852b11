//! Tables for people: what was promised and what was received.

use super::page::Rows;
use comfy_table::{Cell, CellAlignment, Table, presets};
use henge_core::{Contract, CostUnit, Duration, WaitReason, format_size};
use henge_sim::{FlowOutcome, Outcome, Replayed, Verdict};

/// A table with these columns; the first is left-aligned, the others are numbers.
pub fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(columns.iter().map(Cell::new));
    for i in 1..columns.len() {
        table.column_mut(i).expect("the column was just made").set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Promised and received, flow by flow.
pub fn flows(outcome: &Outcome) -> Table {
    let mut table = table(&[
        "flow", "promised", "received", "MB/s", "mean", "p50", "p95", "p99", "max", "in bound", "missed",
    ]);
    for flow in &outcome.flows {
        table.add_row(flow_cells(flow, outcome.seconds()));
    }
    table
}

/// The cells of one flow.
pub fn flow_cells(flow: &FlowOutcome, seconds: f64) -> Vec<String> {
    let at = |q: f64| flow.latency.quantile(q).map_or("–".into(), millis);
    let bound = flow.contract.latency.map_or("–".into(), |_| {
        let all = flow.answered.max(flow.conformance.late);
        percent(all - flow.conformance.late, all)
    });
    let missed = if flow.conformance.judged == 0 {
        "–".into()
    } else {
        percent(flow.conformance.missed, flow.conformance.judged)
    };
    vec![
        flow.name.clone(),
        promise(&flow.contract),
        format!("{:.1}/s", flow.answered as f64 / seconds),
        format!("{:.2}", flow.bytes as f64 / seconds / 1e6),
        flow.latency.mean().map_or("–".into(), millis),
        at(0.5),
        at(0.95),
        at(0.99),
        flow.latency.max().map_or("–".into(), millis),
        bound,
        missed,
    ]
}

/// A contract in a few words.
pub fn promise(contract: &Contract) -> String {
    let mut terms = Vec::new();
    if let Some(rate) = contract.rate {
        terms.push(match rate.unit {
            CostUnit::Requests => format!("{:.1}/s", rate.per_second as f64 / 1e6),
            _ => rate.to_string(),
        });
    }
    if let Some(latency) = contract.latency {
        terms.push(format!("{}% in {}", f64::from(latency.percentile) / 1e4, latency.bound));
    }
    if let Some(share) = contract.disk_time {
        terms.push(format!("{}% of disk time", f64::from(share.share) / 1e4));
    }
    if let Some(weight) = contract.weight {
        terms.push(format!("weight {weight}"));
    }
    if let Some(limit) = contract.limit {
        terms.push(format!("at most {limit}"));
    }
    if terms.is_empty() { "best effort".into() } else { terms.join(", ") }
}

fn millis(d: Duration) -> String {
    let ms = d.as_millis_f64();
    if ms >= 1000.0 { format!("{:.2} s", ms / 1e3) } else { format!("{ms:.2} ms") }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "–".into() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}

/// Gates with their devices.
pub fn gates(outcome: &Outcome) -> Table {
    let mut table = table(&["gate", "served", "utilization", "mean depth", "service mean", "service p90"]);
    for gate in &outcome.gates {
        table.add_row(vec![
            gate.name.clone(),
            format!("{:.1}/s", gate.served as f64 / outcome.seconds()),
            format!("{:.1} %", gate.occupied.as_secs_f64() / outcome.seconds() * 100.0),
            format!("{:.2}", gate.depth_mean),
            gate.service.mean().map_or("–".into(), millis),
            gate.service.quantile(0.9).map_or("–".into(), millis),
        ]);
    }
    table
}

/// The same two tables for a page.
pub fn rows_of(outcome: &Outcome) -> Vec<Rows> {
    let rows = |title: &str, table: Table| Rows {
        title: title.to_owned(),
        head: table
            .header()
            .into_iter()
            .flat_map(|h| h.cell_iter())
            .map(comfy_table::Cell::content)
            .collect(),
        rows: table.row_iter().map(|r| r.cell_iter().map(comfy_table::Cell::content).collect()).collect(),
    };
    vec![rows("Flows", flows(outcome)), rows("Gates", gates(outcome))]
}

/// Latencies as recorded and as replayed.
pub fn replayed(replayed: &Replayed) -> Table {
    let mut table =
        table(&["flow", "requests", "p50 then", "p50 now", "p95 then", "p95 now", "p95 differs by"]);
    for flow in replayed.flows.iter().filter(|f| f.then.count() > 0) {
        let at = |h: &henge_core::Histogram, q: f64| h.quantile(q).map_or("–".into(), millis);
        let p95 = |h: &henge_core::Histogram| h.quantile(0.95).unwrap_or_default().as_secs_f64();
        table.add_row(vec![
            flow.name.clone(),
            flow.now.count().to_string(),
            at(&flow.then, 0.5),
            at(&flow.now, 0.5),
            at(&flow.then, 0.95),
            at(&flow.now, 0.95),
            format!("{:+.1} %", (p95(&flow.now) / p95(&flow.then) - 1.0) * 100.0),
        ]);
    }
    table
}

/// Where a flow's time went.
pub fn explain(flow: &FlowOutcome) -> String {
    let n = flow.answered.max(1) as f64;
    let (wait, service) = (flow.service.wait.as_millis_f64() / n, flow.service.time.as_millis_f64() / n);
    let mut out = format!(
        "{}: {} requests of {} answered, {} left\n  mean latency = wait {wait:.3} ms + service {service:.3} ms\n",
        flow.name,
        flow.answered,
        format_size(flow.bytes),
        flow.left
    );
    let all: f64 = flow.service.waits.iter().map(|d| d.as_secs_f64()).sum();
    out.push_str("  while something of it waited, this held it back:\n");
    for reason in WaitReason::ALL {
        let seconds = flow.service.waits[reason as usize].as_secs_f64();
        if seconds > 0.0 {
            out.push_str(&format!("    {:<16} {:5.1} %\n", reason.as_str(), seconds / all * 100.0));
        }
    }
    if all == 0.0 {
        out.push_str("    nothing: it never waited\n");
    }
    out
}

/// A number in its row's unit.
pub fn in_unit(value: f64, unit: &str) -> String {
    if value.is_nan() {
        return "–".into();
    }
    match unit {
        "percent" => format!("{:.1} %", value * 100.0),
        "x" => format!("× {value:.3}"),
        "ms" => format!("{:.1} ms", value * 1e3),
        "MB/s" => format!("{:.2} MB/s", value / 1e6),
        "" if value.abs() >= 100.0 => format!("{value:.0}"),
        "" => format!("{value:.3}"),
        unit => format!("{value:.1} {unit}"),
    }
}

/// holds, differs, or reported alone.
pub fn verdict(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "holds",
        Some(false) => "DIFFERS",
        None => "reported",
    }
}

/// From the least to the most that the seeds gave; empty where there was one.
pub fn range(row: &Verdict) -> String {
    if row.of() < 2 {
        return String::new();
    }
    let (least, most) = row.range();
    if least > most {
        return "–".into();
    }
    let (least, most) = (in_unit(least, &row.unit), in_unit(most, &row.unit));
    if least == most { "the same".into() } else { format!("{least} to {most}") }
}

/// holds, DIFFERS or reported; of several seeds, at how many.
pub fn judged(row: &Verdict) -> String {
    match row.held {
        Some(held) if row.of() > 1 => format!("{} ({held} of {})", verdict(row.holds()), row.of()),
        _ => verdict(row.holds()).to_owned(),
    }
}

/// paper / here / range / verdict.
pub fn verdicts(rows: &[Verdict]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    if rows.iter().all(|row| row.of() < 2) {
        table.set_header(["what", "paper", "here", "verdict"]);
    } else {
        table.set_header(["what", "paper", "here (median)", "range", "verdict"]);
    }
    for row in rows {
        let here = in_unit(row.median(), &row.unit);
        let mut cells = vec![row.what.clone(), row.paper.clone(), here, range(row), judged(row)];
        if row.of() < 2 {
            cells.remove(3);
        }
        table.add_row(cells);
    }
    table
}
