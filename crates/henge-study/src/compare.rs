//! `henge sim --compare`: the same scenario under several schedulers.
//!
//! A comparison is fair where all have the same gates. So each scheduler inherits what the scenario says of them (`per`,
//! `depth`, `cost`), wherever the scenario says it, and what one cannot take is said.

use crate::study::Study;
use anyhow::{Result, anyhow};
use henge_core::{Params, Value};
use henge_sim::{Axis, Experiment, Setting};

const KEY: &str = "node.scheduler";
/// What belongs to a gate more than to its scheduler.
const SHARED: [&str; 3] = ["per", "depth", "cost"];

/// Replaces the scheduler by an axis of these. Says what a scheduler does not inherit, a line each.
pub fn compare(study: &mut Study, names: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let experiment = &mut study.experiment;
    let known = schedulers(experiment)?;
    let mut said = Vec::new();
    // What varied the scheduler alone is replaced; what varies more stays, with the scheduler of each comparison.
    let alone = |axis: &Axis| axis.values.iter().all(|v| v.sets.iter().all(|(key, _)| key == KEY));
    let varies = |axis: &Axis| axis.values.iter().any(|v| v.sets.iter().any(|(key, _)| key == KEY));
    let replaced = |axis: &Axis| axis.name == "scheduler" || (varies(axis) && alone(axis));
    for axis in experiment.axes.iter().filter(|axis| axis.name != "scheduler" && replaced(axis)) {
        said.push(format!("--compare: {} varies the scheduler, and is left out", axis.name));
    }
    experiment.axes.retain(|axis| !replaced(axis));
    let shared = shared(&known);
    let mut settings = Vec::new();
    for name in names {
        let right = henge_sched::respelled(name).map(|(right, hint)| {
            said.push(format!("--compare: {hint}"));
            right
        });
        settings.push(one(right.as_ref().unwrap_or(name), &known, &shared, &mut said));
    }
    experiment.vary(Axis { name: "scheduler".into(), values: settings });
    Ok(said)
}

/// Every scheduler that the scenario names, with its knobs: its own first, then those of its axes.
fn schedulers(experiment: &mut Experiment) -> Result<Vec<(String, Params)>> {
    let mut known = Vec::new();
    match experiment.base.get_mut("node") {
        Some(Value::Table(node)) => known.extend(node.clone().choice("scheduler").ok().flatten()),
        _ => return Err(anyhow!("--compare needs a scenario with one [node]")),
    }
    let sets = experiment.axes.iter().flat_map(|axis| &axis.values).flat_map(|value| &value.sets);
    for (_, value) in sets.filter(|(key, _)| key == KEY) {
        known.extend(Params::new("node").with("scheduler", value.clone()).choice("scheduler").ok().flatten());
    }
    Ok(known)
}

/// Schedulers are spelled with hyphens; pages once wrote `two_level`. Takes that for what is meant, and says so.
pub fn spelling(experiment: &mut Experiment) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(Value::Table(node)) = experiment.base.get_mut("node")
        && let Some(value) = node.get_mut("scheduler")
    {
        said.extend(respelled(value));
    }
    let sets = experiment.axes.iter_mut().flat_map(|axis| &mut axis.values).flat_map(|value| &mut value.sets);
    for (_, value) in sets.filter(|(key, _)| key == KEY) {
        said.extend(respelled(value));
    }
    said.dedup();
    said
}

/// A name, or a table whose one key is the name.
fn respelled(value: &mut Value) -> Option<String> {
    let name = match value {
        Value::Text(name) => name.clone(),
        Value::Table(table) => table.keys().first()?.clone(),
        _ => return None,
    };
    let (right, hint) = henge_sched::respelled(&name)?;
    *value = match std::mem::replace(value, Value::Bool(false)) {
        Value::Table(mut table) => {
            let knobs = table.take(&name).expect("a listed key");
            Value::Table(Params::new("scheduler").with(&right, knobs))
        }
        _ => Value::Text(right.clone()),
    };
    Some(hint)
}

/// What the scenario says of its gates: the first that says it decides.
fn shared(known: &[(String, Params)]) -> Vec<(&'static str, Value)> {
    let said = |key: &'static str| {
        let value = known.iter().find_map(|(_, knobs)| knobs.clone().take(key))?;
        Some((key, value))
    };
    SHARED.into_iter().filter_map(said).collect()
}

/// A scheduler that the scenario knows keeps its knobs; another runs as it comes, and ignores what it cannot promise.
fn one(
    name: &str,
    known: &[(String, Params)],
    shared: &[(&'static str, Value)],
    said: &mut Vec<String>,
) -> Setting {
    let own = known.iter().find(|(own, _)| own == name).map(|(_, knobs)| knobs.clone());
    let ignores = || Params::new(name).with("unkept", Value::Text("ignore".into()));
    let mut knobs = own.unwrap_or_else(ignores);
    for (key, value) in shared {
        if knobs.clone().take(key).is_some() {
            continue;
        }
        let told = knobs.clone().with(key, value.clone());
        // Where its gates are is the scenario's business, not the scheduler's.
        let mut asked = told.clone();
        asked.take("per");
        if *key == "per" || henge_sched::build(name, asked).is_ok() {
            knobs = told;
        } else {
            said.push(format!("--compare: {name} does not take the scenario's {key}, and runs without it"));
        }
    }
    let choice = Params::new("scheduler").with(name, Value::Table(knobs));
    Setting { name: name.to_owned(), sets: vec![(KEY.into(), Value::Table(choice))] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_config::Source;
    use std::path::Path;

    fn compared(scheduler: &str, more: &str, names: &[&str]) -> (Vec<Params>, Vec<String>, usize) {
        let text = format!("[node]\nscheduler = {scheduler}\n{more}");
        let mut study = Study::new(Source::new("s.toml", text), Path::new(".")).unwrap();
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let said = compare(&mut study, &names).unwrap();
        let axes = study.experiment.axes.len();
        let axis = study.experiment.axes.pop().unwrap();
        let knobs = axis.values.iter().zip(&names).map(|(setting, name)| {
            let Value::Table(mut table) = setting.sets[0].1.clone() else { panic!("a table") };
            let name = name.replace('_', "-");
            table.table(&name).unwrap().unwrap()
        });
        (knobs.collect(), said, axes)
    }
    fn text(knobs: &Params, key: &str) -> Option<String> {
        knobs.clone().text(key).unwrap()
    }

    #[test]
    fn gates_are_inherited_from_the_scenario_and_from_the_axis_that_is_replaced() {
        let (knobs, said, _) =
            compared("{ cvc = { per = \"spindle\", depth = 2, m = 8 } }", "", &["fifo", "cvc"]);
        assert_eq!(text(&knobs[0], "per").as_deref(), Some("spindle"));
        assert_eq!(knobs[0].clone().take("depth"), Some(Value::Integer(2)));
        assert_eq!(knobs[0].clone().take("m"), None);
        assert_eq!(knobs[1].clone().take("m"), Some(Value::Integer(8)));
        assert!(said.is_empty(), "{said:?}");
        // As in stonehenge/fig2: the scenario's own is bare, its axis says where the gates are.
        let axis = "[[vary]]\nname = \"scheduler\"\nkey = \"node.scheduler\"\nvalues = { a = \"fifo\", b = { cvc = { per = \"spindle\" } } }";
        let (knobs, _, axes) = compared("\"cscan\"", axis, &["cvc", "sfq"]);
        assert_eq!(axes, 1);
        assert!(knobs.iter().all(|k| text(k, "per").as_deref() == Some("spindle")));
    }

    #[test]
    fn the_old_spelling_is_taken_and_said() {
        let text = "[node]\nscheduler = { two_level = { cost = \"bytes\" } }";
        let mut study = Study::new(Source::new("s.toml", text.to_owned()), Path::new(".")).unwrap();
        let said = spelling(&mut study.experiment);
        assert!(said[0].contains("is spelled \"two-level\""), "{said:?}");
        let known = schedulers(&mut study.experiment).unwrap();
        assert_eq!(known[0].0, "two-level");
        assert!(spelling(&mut study.experiment).is_empty());
        let (_, said, _) = compared("\"fifo\"", "", &["two_level"]);
        assert!(said[0].contains("is spelled"), "{said:?}");
    }

    #[test]
    fn what_is_not_inherited_is_said() {
        let axis =
            "[[vary]]\nname = \"rule\"\nkey = \"node.scheduler\"\nvalues = { a = \"fifo\", b = \"sfq\" }";
        let (_, said, axes) = compared("\"fifo\"", axis, &["sfq"]);
        assert_eq!(axes, 1);
        assert!(said[0].contains("rule varies the scheduler"), "{said:?}");
        let (_, said, _) = compared(
            "{ two-level = { depth = { feedback = { floor = 8 } }, cost = \"no such cost\" } }",
            "",
            &["fifo"],
        );
        assert!(said.iter().any(|s| s.contains("fifo does not take the scenario's cost")), "{said:?}");
    }
}
