//! Recordings made by hand: what kind of load they hold, what scenario they become, and that the simulator reads it.

use super::listen::Names;
use super::*;
use henge_api::{DiskLayout, GateStatus};
use henge_study::study::{Options, Study};

const MS: u64 = 1_000_000;

fn disk(name: &str, pools: &[&str]) -> DiskStatus {
    DiskStatus {
        name: name.into(),
        capacity: 1 << 30,
        layout: DiskLayout {
            pools: pools.iter().map(|p| (*p).to_owned()).collect(),
            stripe: 65_536,
            ..DiskLayout::default()
        },
        leeway: 1_000_000,
        ..DiskStatus::default()
    }
}

fn pool(name: &str, busy: u64) -> PoolStatus {
    PoolStatus {
        name: name.into(),
        configured: "{ sfq = { depth = 4 } }".into(),
        capacity: 1 << 32,
        gates: vec![GateStatus { busy, mean_depth: 3.6, ..GateStatus::default() }],
        ..PoolStatus::default()
    }
}

/// Reads of 4 KiB: when each came and how long it took, in milliseconds.
fn reads(times: &[(u64, u64)]) -> Vec<Tapped> {
    let one = |(i, (at, took)): (usize, &(u64, u64))| Tapped(0, 0, i as u64 * 4096, 4096, at * MS, took * MS);
    times.iter().enumerate().map(one).collect()
}

#[test]
fn a_closed_loop_is_told_from_commands_that_come_when_they_come() {
    // Two at a time, the next when one is over, for 100 ms.
    let closed: Vec<(u64, u64)> = (0..10).flat_map(|i| [(i * 10, 10), (i * 10, 10)]).collect();
    let load = Load::of(&disk("a", &["p"]), reads(&closed), 0, Duration::from_millis(100));
    assert_eq!((load.most, load.is_closed()), (2, true));
    assert!((load.mean - 2.0).abs() < 1e-9);
    assert_eq!(load.workload(), "{ trace = \"a.trace\", outstanding = 2 }");
    // A burst of five, and then nothing.
    let burst: Vec<(u64, u64)> = (0..5).map(|i| (i, 10)).collect();
    let load = Load::of(&disk("a", &["p"]), reads(&burst), 0, Duration::from_millis(100));
    assert_eq!((load.most, load.is_closed()), (5, false));
    assert_eq!(load.workload(), "{ trace = \"a.trace\" }");
    // In the order in which they came, which is not that of their answers; from the recording's beginning.
    let load = Load::of(&disk("a", &["p"]), reads(&[(30, 1), (20, 15)]), 10 * MS, Duration::from_millis(40));
    let at: Vec<u64> = load.records.iter().map(|r| r.at.as_nanos() / MS).collect();
    assert_eq!((at, load.records[0].offset), (vec![10, 20], 4096));
}

#[test]
fn pools_that_differ_are_recorded_one_by_one_and_striped_disks_take_theirs_along() {
    let mut status = Status {
        pools: vec![pool("a", 0), pool("b", 0), pool("c", 0)],
        disks: vec![disk("x", &["a", "b"])],
        ..Status::default()
    };
    let names = |status: &Status, wanted| {
        alike(status, wanted).map(|pools| pools.iter().map(|p| p.name.clone()).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(names(&status, None).unwrap(), "a b c");
    assert_eq!(names(&status, Some("b")).unwrap(), "a b");
    assert_eq!(names(&status, Some("c")).unwrap(), "c");
    assert!(names(&status, Some("d")).unwrap_err().to_string().contains("there are: a, b, c"));
    status.pools[2].configured = "\"cscan\"".into();
    assert!(names(&status, None).unwrap_err().to_string().contains("--pool, one of a, b, c"));
    assert_eq!(names(&status, Some("a")).unwrap(), "a b");
}

#[test]
fn a_device_that_is_not_emulated_is_as_slow_and_as_wide_as_it_was() {
    let before = Status { pools: vec![pool("p", 0)], disks: vec![disk("d", &["p"])], ..Status::default() };
    let mut after = before.clone();
    (after.uptime, after.pools[0].gates[0].busy) = (200 * MS, 50 * MS);
    (after.disks[0].meters.commands, after.disks[0].flow.service) = (100, 300 * MS);
    assert_eq!(busy("p", &before, &after), 0.25);
    let text = device(&after.pools, &before, &after).unwrap();
    assert_eq!(text, "{ constant = { time = \"3000000ns\", slots = 4, capacity = \"4294967296B\" } }");
    assert!(device(&before.pools, &before, &before).unwrap_err().to_string().contains("nothing was asked"));
    after.pools[0].emulated = Some("{ disk = \"x\" }".into());
    assert_eq!(device(&after.pools, &before, &after).unwrap(), "{ disk = \"x\" }");
}

/// Two disks for a second: one that sends 50 commands when they come, one that always has four pending.
fn recording() -> Recording {
    let time = Duration::from_secs(1);
    let open: Vec<(u64, u64)> = (0..50).map(|i| (i * 20, 4)).collect();
    let closed: Vec<(u64, u64)> = (0..25).flat_map(|i| [(i * 40, 40); 4]).collect();
    let mut web = disk("web", &["p"]);
    web.contract = [("weight".to_owned(), "4".to_owned()), ("limit".to_owned(), "900/s".to_owned())].into();
    let loads = vec![
        Load::of(&web, reads(&open), 0, time),
        Load::of(&disk("backup", &["p"]), reads(&closed), 0, time),
    ];
    Recording {
        time,
        wall: 1_800_000_000_000,
        pools: vec![pool("p", 0)],
        device: "{ constant = { time = \"2ms\", slots = 1, capacity = \"4GiB\" } }".into(),
        busy: vec![0.5],
        loads,
        lost: 0,
        commands: 150,
    }
}

fn simulated(dir: &Path) -> Vec<(String, u64)> {
    let study = Study::read(&dir.join("scenario.toml")).unwrap();
    let measured = study.run(&Options { quiet: true, ..Options::default() }).unwrap();
    let (_, outcome) = measured.runs().next().unwrap();
    let commands = |f: &henge_sim::FlowOutcome| f.windows.iter().map(|w| w.commands).sum();
    outcome.flows.iter().map(|f| (f.name.clone(), commands(f))).collect()
}

#[test]
fn a_recording_is_a_scenario_that_the_simulator_runs() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording();
    assert_eq!(recording.about(), "150 commands to 2 disks in 1s");
    recording.write(dir.path()).unwrap();
    let text = std::fs::read_to_string(dir.path().join("scenario.toml")).unwrap();
    for line in [
        "contract = { limit = \"900/s\", weight = 4 }",
        "workload = { trace = \"web.trace\" }",
        "workload = { trace = \"backup.trace\", outstanding = 4 }",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let flows = simulated(dir.path());
    // Of the open loop what came (the last may be on its way); of the closed loop, on a device so fast, all that its trace has.
    assert!((48..=50).contains(&flows[0].1), "{flows:?}");
    assert_eq!(flows[1].1, 100 * REPEATS, "{flows:?}");
    let plan = std::fs::read_to_string(dir.path().join("admit.toml")).unwrap();
    // 150 commands in half a busy second.
    assert!(plan.contains("iops = \"300.0/s\"") && plan.contains("rate = \"50.0/s\""), "{plan}");
}

#[test]
fn another_load_is_the_same_several_times() {
    let dir = tempfile::tempdir().unwrap();
    recording().write(dir.path()).unwrap();
    let axis = times(dir.path(), &["web=3".into(), "backup=2".into()]).unwrap();
    let set: Vec<&str> = axis.values[1].sets.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(set, ["flow.web.workload.trace", "flow.backup.workload.outstanding"]);
    assert_eq!(axis.values[1].sets[1].1, Value::Integer(8));
    let file = File::open(dir.path().join("web-times-3.trace")).unwrap();
    let trace = Trace::open("web-times-3.trace", Box::new(file), &TraceOptions::default()).unwrap();
    let records: Vec<Record> = trace.collect::<Result<_, _>>().unwrap();
    assert_eq!(records.len(), 150);
    assert!(records.is_sorted_by_key(|r| r.at) && records.iter().all(|r| r.at.as_nanos() < 1000 * MS));
    for (wish, says) in [("web", "DISK=N"), ("web=0", "1 to 100"), ("mail=2", "there are: backup, web")] {
        let error = times(dir.path(), &[wish.into()]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn what_was_recorded_is_compared_under_schedulers_and_wrong_ones_are_named() {
    let dir = tempfile::tempdir().unwrap();
    recording().write(dir.path()).unwrap();
    let fifo = crate::compare::simulated(dir.path(), "fifo");
    assert_eq!((fifo.name.as_str(), fifo.error.as_deref(), fifo.flows.len()), ("fifo", None, 2));
    let web = &fifo.flows[0];
    assert!(web.name == "web" && (40.0..=50.0).contains(&web.rate) && web.p50 > 0.0 && web.p95 >= web.p50);
    assert!(!web.rates.is_empty() && web.rates.len() == web.p95s.len());
    let wrong = crate::compare::simulated(dir.path(), "fivo");
    let error = wrong.error.unwrap();
    assert!(error.contains("fivo") && !error.contains("scenario.toml"), "{error}");
}

#[test]
fn a_number_that_another_disk_has_now_is_not_taken_for_the_one_before() {
    let mut names = Names::default();
    names.learn(vec![(0, "a".into()), (7, "b".into())]);
    assert_eq!((names.id(0), names.id(7)), (names.ids["a"], names.ids["b"]));
    let b = names.id(7);
    names.learn(vec![(7, "c".into()), (0, "b".into())]);
    assert_eq!(names.id(0), b, "b came back with another number");
    assert!(names.id(7) == names.ids["c"] && names.id(7) != b);
    assert_eq!(names.id(3), u32::MAX, "nobody");
}
