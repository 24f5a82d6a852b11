//! Every value of a facts file, replaced by something else: the file is refused by the name of a key, or the drive works.

use crate::common;
use henge_core::Instant;
use henge_device::replay::{Mode, Replay, Row};
use henge_device::{DiskFacts, Hdd, HddOptions, built_in};
use serde_json::{Value, json};

/// JSON pointers of all values; of a list, its first two and its last.
fn paths(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, v)| paths(v, &format!("{here}/{key}"), found));
        }
        Value::Array(items) => {
            let some = items.iter().enumerate().filter(|(i, _)| *i < 2 || i + 1 == items.len());
            some.for_each(|(i, v)| paths(v, &format!("{here}/{i}"), found));
        }
        _ => {}
    }
}

fn replacements(value: &Value) -> Vec<Value> {
    let mut all = vec![Value::Null, json!("x"), json!([]), json!({}), json!(0), json!(1e18), json!(true)];
    if let Some(x) = value.as_f64() {
        all.extend([json!(-x - 1.0), json!(x + 0.5), json!(x * 2.0), json!(x / 2.0)]);
    }
    all
}

/// A few requests over the whole drive, all answered in order of time.
fn works(facts: DiskFacts) {
    let capacity = facts.geometry.capacity();
    let row = |i: u64| {
        let sectors = (1 + i * 37 % 300).min(capacity);
        let lbn = (i * 7_368_787 % capacity).min(capacity - sectors);
        Row { lbn, sectors, write: i.is_multiple_of(3), ..Row::default() }
    };
    let rows: Vec<Row> =
        (0..20).map(row).chain([Row { lbn: capacity - 1, sectors: 1, ..Row::default() }]).collect();
    let mut drive = Hdd::new(facts, HddOptions::default());
    let answers: Vec<_> = Replay::new(&mut drive, &rows, Mode::Closed).collect();
    assert_eq!(answers.len(), rows.len());
    assert!(answers.iter().all(|a| a.complete > a.issue && a.complete < Instant::FAR));
}

fn mutate(name: &str, text: &str) {
    let facts: Value = serde_json::from_str(text).expect("JSON");
    let mut all = Vec::new();
    paths(&facts, "", &mut all);
    let (mut refused, mut accepted) = (0, 0);
    for path in &all[1..] {
        for new in replacements(facts.pointer(path).expect("it was found there")) {
            let mut changed = facts.clone();
            *changed.pointer_mut(path).expect("it was found there") = new.clone();
            match DiskFacts::parse(&changed.to_string()) {
                Err(e) => {
                    refused += 1;
                    // It names the key itself, or one that contradicts it, by its path from the root.
                    let root = path.split('/').nth(1).expect("a path");
                    assert!(!e.key.is_empty() && !e.what.is_empty(), "{name}{path} = {new}: {e}");
                    println!("{name}{path} = {new}: {e}");
                    let of_places = root == "test_vectors" && e.key.starts_with("geometry");
                    assert!(
                        e.key.starts_with(root) || of_places || root == "geometry",
                        "{path} = {new}: {e}"
                    );
                }
                Ok(facts) => {
                    accepted += 1;
                    works(facts);
                }
            }
        }
    }
    println!("{name}: {refused} refused, {accepted} accepted");
    assert!(refused > 100 && accepted > 20, "{name}: {refused}, {accepted}");
}

#[test]
fn built_in_drives_are_refused_by_name_or_work() {
    for name in ["st32171w", "atlas10k"] {
        mutate(name, built_in(name).expect("a built-in model"));
    }
}

#[test]
fn facts_files_are_refused_by_name_or_work() {
    let Some(disks) = common::disks("facts_files_are_refused_by_name_or_work") else { return };
    for drive in ["SEAGATE_ST34501N", "MAXTOR_ATLAS10K5_300SCA"] {
        let text = std::fs::read_to_string(disks.join(format!("facts/{drive}.json"))).expect("a facts file");
        mutate(drive, &text);
    }
}
