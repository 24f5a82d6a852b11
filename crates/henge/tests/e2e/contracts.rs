//! Contracts that cannot be kept are refused when they are stated, with the numbers: in a node's file, in a scenario, and
//! while the node runs. Contracts of latency and of disk time work live, and a log of such a run repeats in the simulator.

use crate::support::Node;
use std::path::Path;
use std::process::{Command, Output};

/// A scheduler, contracts that it takes, one that it does not beside them, and what must be said of that.
type Bad = (&'static str, &'static [&'static str], &'static str, &'static [&'static str]);

const BAD: &[Bad] = &[
    ("{ locality = {} }", &["share = \"60%\""], "share = \"50%\"", &["50%", "60%", "110%", "at most 40%"]),
    (
        "{ locality = {} }",
        &[],
        "share = \"50%\", kind = \"throughput\", throughput = \"5/s\", tolerance = \"100%\"",
        &["tolerance of 100%"],
    ),
    (
        "{ locality = {} }",
        &[],
        "share = \"50%\", kind = \"throughput\", throughput = \"5/s\", tolerance = \"-5%\"",
        &["\"-5%\" is not a share"],
    ),
    (
        "{ locality = { service = \"8ms\" } }",
        &[],
        "share = \"50%\", kind = \"latency\", latency = \"5ms\"",
        &["5ms", "8ms"],
    ),
    ("{ edf = { service = \"8ms\" } }", &[], "rate = \"1MB/s\", latency = \"5ms\"", &["5ms", "8ms"]),
    ("{ two-level = { service = \"8ms\" } }", &[], "rate = \"1MB/s\", latency = \"5ms\"", &["5ms", "8ms"]),
    ("{ cvc = { service = \"8ms\" } }", &[], "rate = \"5/s\", latency = \"5ms\"", &["5ms", "8ms"]),
    ("{ pclock = { service = \"8ms\" } }", &[], "rate = \"5/s\", latency = \"5ms\"", &["5ms", "8ms"]),
    ("\"mclock\"", &[], "rate = \"50/s\", limit = \"40/s\"", &["rate 50/s", "limit 40/s"]),
    (
        "{ mclock = { capacity = \"100/s\" } }",
        &["rate = \"60/s\""],
        "rate = \"50/s\"",
        &["50/s", "60/s", "110/s", "100/s", "at most 40/s", "overbook"],
    ),
    (
        "{ cvc = { capacity = \"100/s\" } }",
        &["rate = \"60/s\""],
        "rate = \"50/s\"",
        &["50/s", "60/s", "110/s", "100/s", "at most 40/s", "overbook"],
    ),
    (
        "{ two-level = { capacity = \"50MB/s\" } }",
        &["rate = \"40MB/s\", latency = \"100ms\""],
        "rate = \"20MB/s\", latency = \"300ms\"",
        &["20MB/s", "40MB/s", "60MB/s", "50MB/s", "overbook"],
    ),
    (
        "{ pclock = { capacity = \"100/s\" } }",
        &["rate = \"30/s\", burst = \"3\", latency = \"50ms\""],
        "rate = \"30/s\", burst = \"4\", latency = \"100ms\"",
        &["10.5 requests", "100ms", "10.0 requests"],
    ),
    (
        "\"cvc\"",
        &[],
        "rate = \"60/s\", limit = \"90/s\"",
        &["does not promise a limit", "mclock, vc, two-level"],
    ),
    ("\"pclock\"", &[], "rate = \"60/s\", burst = \"1MB\"", &["1MB", "bytes", "60/s", "requests"]),
];

fn node(scheduler: &str, contracts: &[&str]) -> String {
    let mut text =
        format!("[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = {scheduler}\n");
    for (i, contract) in contracts.iter().enumerate() {
        text += &format!("[[disk]]\nname = \"d{i}\"\ncapacity = \"1MiB\"\ncontract = {{ {contract} }}\n");
    }
    text
}

fn scenario(scheduler: &str, contracts: &[&str]) -> String {
    let mut text = format!(
        "duration = \"1s\"\n[node]\ndevice = {{ constant = {{ time = \"5ms\" }} }}\nscheduler = {scheduler}\n"
    );
    for contract in contracts {
        text += &format!(
            "[[flow]]\ncontract = {{ {contract} }}\nworkload = {{ pattern = \"random\", size = \"4KiB\", outstanding = 1 }}\n"
        );
    }
    text
}

#[track_caller]
fn refused(output: &Output, said: &[&str], case: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{case}: taken");
    for part in said {
        assert!(text.contains(part), "{case}: expected {part:?} in:\n{text}");
    }
}

fn henge(args: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_henge")).args(args).arg(file).output().expect("henge runs")
}

#[test]
fn what_cannot_be_kept_is_refused_when_it_is_stated() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    for (scheduler, good, bad, said) in BAD {
        let (all, case) = ([good, &[*bad][..]].concat(), format!("{scheduler}: {bad}"));
        let state = format!("state_dir = {:?}\n", dir.path().join("state").to_str().unwrap());
        let file = write("node.toml", state + &node(scheduler, &all));
        refused(&henge(&["node", "--check", "-c"], &file), said, &case);
        refused(&henge(&["sim"], &write("scenario.toml", scenario(scheduler, &all))), said, &case);
    }
}

#[test]
fn what_cannot_be_kept_is_refused_while_the_node_runs() {
    // One node, one pool for each case; each has the good contracts and a disk without one.
    let mut text = String::new();
    for (i, (scheduler, good, _, _)) in BAD.iter().enumerate() {
        text += &format!(
            "[[pool]]\nname = \"p{i}\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = {scheduler}\n"
        );
        for (k, contract) in good.iter().chain(&[""]).enumerate() {
            text += &format!(
                "[[disk]]\nname = \"d{i}-{k}\"\npool = \"p{i}\"\ncapacity = \"1MiB\"\ncontract = {{ {contract} }}\n"
            );
        }
    }
    let node = Node::start(&text);
    for (i, (scheduler, good, bad, said)) in BAD.iter().enumerate() {
        let disk = format!("d{i}-{}", good.len());
        let terms: Vec<String> =
            bad.split(", ").map(|term| term.replace(" = ", "=").replace('"', "")).collect();
        let args: Vec<&str> = ["set", &disk].into_iter().chain(terms.iter().map(String::as_str)).collect();
        refused(&node.vd(&args), said, &format!("{scheduler}: {bad}"));
        let list = node.status();
        assert!(!list.to_string().contains("110/s"), "a refused contract changes nothing");
    }
    node.stop();
}
