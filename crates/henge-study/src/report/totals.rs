//! How far apart two flows were at most, what DSFQ's Theorem 2 allows, and what synchronization cost.

use super::page::Rows;
use henge_core::CostUnit;
use henge_sim::{Experiment, Fairness, Measured, Outcome};

/// In a sentence or two; empty where no two flows share a gate.
pub fn sentence(outcome: &Outcome) -> String {
    let fairness = &outcome.fairness;
    let mut text = String::new();
    // What the theorem does not cover is not judged by its figures: they would read as a verdict.
    if let (Some((f, g, gate)), None) = (fairness.who, fairness.caveat) {
        let name = |flow: u32| &outcome.flows[flow as usize].name;
        text = format!(
            "Largest unfairness: {} by weight, {} against {} at {}; Theorem 2 of DSFQ allows {} ({:.1} % used at most by any pair).",
            amount(fairness.worst, fairness),
            name(f),
            name(g),
            outcome.gates[gate as usize].name,
            amount(fairness.bound, fairness),
            fairness.of_bound * 100.0
        );
        if fairness.watched < fairness.of {
            text += &format!(" ({} of {} pairs were watched.)", fairness.watched, fairness.of);
        }
    }
    let traffic = &outcome.traffic;
    if traffic.messages > 0 {
        text += &format!(
            " Synchronization: {} messages, {:.2} MB, {:.2} % of the nodes' time.",
            traffic.messages,
            traffic.bytes as f64 / 1e6,
            outcome.message_share() * 100.0
        );
    }
    if traffic.tags > 0 {
        let late = traffic.tags_late as f64 / traffic.tags as f64 * 100.0;
        text += &format!(" Central tags: {}, {late:.1} % of them when their request had gone.", traffic.tags);
    }
    text.trim_start().to_owned()
}

fn amount(value: f64, fairness: &Fairness) -> String {
    match fairness.unit {
        Some(CostUnit::Requests) => format!("{:.1} requests", value / 1e6),
        Some(CostUnit::DiskTime) => format!("{:.1} ms of disk time", value / 1e6),
        _ => format!("{:.3} MB", value / 1e6),
    }
}

/// All runs of an experiment; `None` where none has anything to say.
pub fn rows(experiment: &Experiment, measured: &Measured) -> Option<Rows> {
    let said = |o: &Outcome| o.fairness.who.is_some() || o.traffic.messages > 0 || o.traffic.tags > 0;
    let mut rows = Vec::new();
    for (values, outcome) in measured.runs().filter(|(_, o)| said(o)) {
        let f = &outcome.fairness;
        let covered = f.who.is_some() && f.caveat.is_none();
        let if_covered = |text: String| if covered { text } else { "–".to_owned() };
        let named: Vec<String> =
            experiment.axes.iter().zip(values).map(|(a, v)| format!("{} = {v}", a.name)).collect();
        rows.push(vec![
            named.join(", "),
            if_covered(amount(f.worst, f)),
            if_covered(amount(f.bound, f)),
            if_covered(format!("{:.1} %", f.of_bound * 100.0)),
            f.caveat.map_or("covered", |c| c.as_str()).to_owned(),
            outcome.traffic.messages.to_string(),
            format!("{:.2} MB", outcome.traffic.bytes as f64 / 1e6),
            format!("{:.2} %", outcome.message_share() * 100.0),
        ]);
    }
    let head = [
        "run",
        "largest unfairness",
        "bound of Theorem 2",
        "used of it at most",
        "covered by it",
        "messages",
        "bytes",
        "of the nodes' time",
    ];
    let title = "Unfairness, and what synchronization cost".to_owned();
    (!rows.is_empty()).then(|| Rows { title, head: head.map(String::from).to_vec(), rows })
}

/// The same in one line, for terminals.
pub fn summary(measured: &Measured) -> Option<String> {
    let outcomes = || measured.runs().map(|(_, o)| o);
    let covered = || outcomes().filter(|o| o.fairness.caveat.is_none() && o.fairness.who.is_some());
    let most = covered().map(|o| o.fairness.of_bound).fold(0.0, f64::max);
    let exceed = covered().filter(|o| o.fairness.of_bound > 1.0).count();
    let messages: u64 = outcomes().map(|o| o.traffic.messages).sum();
    let bytes: u64 = outcomes().map(|o| o.traffic.bytes).sum();
    let share = outcomes().map(Outcome::message_share).fold(0.0, f64::max);
    let mut text = Vec::new();
    match covered().count() {
        0 if outcomes().all(|o| o.fairness.who.is_none()) => {}
        0 => text.push("Theorem 2 (DSFQ) covers none of these runs".to_owned()),
        n => text.push(format!(
            "Theorem 2 (DSFQ) covers {n} of {} runs; unfairness at most {:.1} % of its bound, {exceed} beyond it",
            outcomes().count(),
            most * 100.0
        )),
    }
    if messages > 0 {
        text.push(format!(
            "{messages} messages, {:.2} MB, at most {:.2} % of the nodes' time of a run",
            bytes as f64 / 1e6,
            share * 100.0
        ));
    }
    (!text.is_empty()).then(|| text.join("; "))
}
