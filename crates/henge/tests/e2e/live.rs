//! Shares, limits and their changes, measured by fio and by the node in real time: `make test-live`.

use crate::support::{Node, have, run, skip};
use std::process::{Command, Stdio};

/// Two clients at weights 1 and 3 on one emulated array.
const ARRAY: &str = r#"
[[pool]]
name = "array"
memory = true
capacity = "4GiB"
emulated = { raid0 = 4, stripe = "64KiB", disk = "dtla-307075" }
scheduler = { sfq = { depth = 4, cost = "requests" } }
[[disk]]
name = "one"
capacity = "1GiB"
contract = { weight = 1 }
[[disk]]
name = "three"
capacity = "1GiB"
contract = { weight = 3 }
"#;

pub fn fio(node: &Node, disk: &str, depth: u32, seconds: u32) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--name=load", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--size=1g", "--time_based"])
        .args([
            format!("--uri={}", node.uri(disk)),
            format!("--iodepth={depth}"),
            format!("--runtime={seconds}"),
        ])
        .stdout(Stdio::null());
    command
}

pub fn has_nbd_engine(test: &str) -> bool {
    let there = have(test, &["fio"]) && run("fio", ["--enghelp"]).contains("nbd");
    if !there {
        skip(test, "fio's nbd engine");
    }
    there
}

/// Seconds since the node started, and what these disks' clients were answered by then, in one reading.
fn reading(node: &Node, names: &[&str]) -> (f64, Vec<f64>) {
    let status = node.status();
    let disks = status["disks"].as_array().unwrap();
    let commands =
        |name: &&str| disks.iter().find(|d| d["name"] == **name).unwrap()["commands"].as_f64().unwrap();
    (status["uptime"].as_f64().unwrap() / 1e9, names.iter().map(commands).collect())
}

#[test]
#[ignore = "measures in real time: make test-live"]
fn two_clients_at_one_to_three() {
    if !has_nbd_engine("two_clients_at_one_to_three") {
        return;
    }
    let node = Node::start(ARRAY);
    let mut clients: Vec<_> =
        ["one", "three"].iter().map(|disk| fio(&node, disk, 16, 8).spawn().unwrap()).collect();
    // Measured while both are backlogged: not while they connect, not while the first has gone.
    while reading(&node, &["one", "three"]).1.iter().any(|n| *n < 30.0) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (_, before) = reading(&node, &["one", "three"]);
    std::thread::sleep(std::time::Duration::from_secs(5));
    let (_, after) = reading(&node, &["one", "three"]);
    for client in &mut clients {
        assert!(client.wait().unwrap().success());
    }
    let ratio = (after[1] - before[1]) / (after[0] - before[0]);
    let lateness = node.status()["pools"][0]["gates"][0]["lateness_p99"].as_u64().unwrap();
    println!("weights 1:3 gave 1:{ratio:.3}; the emulator's lateness has p99 = {lateness} ns");
    // SFQ(D) with both backlogged owes exactly 1:3; a few hundred requests are counted to within one or two.
    assert!((ratio - 3.0).abs() < 0.06, "1:{ratio:.3}");
}

#[test]
#[ignore = "measures in real time: make test-live"]
fn a_limit_changes_while_clients_are_connected() {
    if !has_nbd_engine("a_limit_changes_while_clients_are_connected") {
        return;
    }
    let node = Node::start(
        "[[pool]]\nname = \"m\"\nmemory = true\ncapacity = \"2GiB\"\nscheduler = { sfq = { depth = 32, cost = \"requests\" } }\n\
         [[disk]]\nname = \"web\"\ncapacity = \"1GiB\"\ncontract = { limit = \"500/s\" }\n",
    );
    let mut client = fio(&node, "web", 64, 8).spawn().unwrap();
    let rate = |settle: u64, seconds: u64| {
        std::thread::sleep(std::time::Duration::from_millis(settle));
        let (start, before) = reading(&node, &["web"]);
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        let (end, after) = reading(&node, &["web"]);
        (after[0] - before[0]) / (end - start)
    };
    // fio takes its time before it sends anything.
    while reading(&node, &["web"]).1[0] < 100.0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let first = rate(300, 2);
    let set = node.vd(&["set", "web", "limit=2000/s"]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let second = rate(1000, 2);
    assert!(client.wait().unwrap().success());
    println!("limit 500/s gave {first:.0}/s, then limit 2000/s gave {second:.0}/s");
    assert!((first / 500.0 - 1.0).abs() < 0.05, "{first}");
    assert!((second / 2000.0 - 1.0).abs() < 0.05, "{second}");
}
