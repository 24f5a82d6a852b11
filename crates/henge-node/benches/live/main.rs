//! A node at work: whether limits and shares are kept, what clients without manners can do, and what many of them cost.
//!
//! `make bench-live ARGS="[--json] [limits] [shares] [attacks] [scale]"`. What is
//! kept depends on a machine with nothing else to do; each figure stands beside what it should be.

mod attacks;
mod client;
mod node;
mod scale;
mod trace;

use client::Load;
use node::Node;
use std::time::Duration;

/// Prints figures: as a table, or as JSON lines.
pub struct Report {
    json: bool,
    missed: u32,
}

impl Report {
    /// Whether lines of JSON were asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }
    /// A line for people.
    pub fn say(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }
    /// A figure that should be `wanted`, give or take `tolerance` of it.
    pub fn held(&mut self, name: &str, value: f64, unit: &str, wanted: f64, tolerance: f64) {
        let ratio = value / wanted;
        let missed = (ratio - 1.0).abs() > tolerance;
        self.missed += u32::from(missed);
        if self.json {
            self.line(name, value, unit, Some(ratio));
        } else {
            let verdict = if missed { "   BEYOND" } else { "" };
            let percent = (ratio - 1.0) * 100.0;
            println!("  {name:<44}{value:>14.3} {unit:<8} wanted {wanted:>12.3}  {percent:>+7.2} %{verdict}");
        }
    }
    /// A figure that should not be below `wanted`.
    pub fn at_least(&mut self, name: &str, value: f64, unit: &str, wanted: f64) {
        let missed = value < wanted;
        self.missed += u32::from(missed);
        if self.json {
            self.line(name, value, unit, Some(value / wanted));
        } else {
            let verdict = if missed { "   BELOW" } else { "" };
            println!("  {name:<44}{value:>14.2} {unit:<8} at least {wanted:>10.2}{verdict}");
        }
    }
    /// A figure by itself.
    pub fn figure(&self, name: &str, value: f64, unit: &str) {
        if self.json {
            self.line(name, value, unit, None);
        } else {
            println!("  {name:<44}{value:>14.2} {unit}");
        }
    }
    fn line(&self, name: &str, value: f64, unit: &str, ratio: Option<f64>) {
        let ratio = ratio.map_or("null".to_owned(), |r| format!("{r:.4}"));
        println!(
            "{{\"name\":\"live/{name}\",\"value\":{value:.3},\"unit\":\"{unit}\",\"peer\":null,\"ratio\":{ratio}}}"
        );
    }
}

const SIZES: [(&str, u32); 2] = [("4k", 4 << 10), ("128k", 128 << 10)];

/// One client that asks for more than it may have, over 10 s.
fn limits(report: &mut Report) {
    report.say("limits, 10 s each, within 1 %: one client, 32 reads at a time, memory pools, SFQ(32)");
    let pool = |name: &str, cost: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"1GiB\"\nscheduler = {{ sfq = {{ depth = 32, cost = \"{cost}\" }} }}\n"
        )
    };
    let disk = |name: &str, pool: &str, limit: &str| {
        format!(
            "[[disk]]\nname = \"{name}\"\npool = \"{pool}\"\ncapacity = \"512MiB\"\ncontract = {{ limit = \"{limit}\" }}\n"
        )
    };
    let config = pool("counted", "requests")
        + &pool("measured", "bytes")
        + &disk("iops", "counted", "5000/s")
        + &disk("bytes", "measured", "50MB/s");
    let node = Node::start(&config);
    for (size, len) in SIZES {
        for name in ["iops", "bytes"] {
            let _load = Load::start(&node.socket(), name, 32, len);
            std::thread::sleep(Duration::from_secs(1));
            let (commands, bytes) = node.rates(&[name], Duration::from_secs(10))[0];
            match name {
                "iops" => report.held(&format!("limit 5000/s, {size}"), commands, "/s", 5000.0, 0.01),
                _ => report.held(&format!("limit 50MB/s, {size}"), bytes / 1e6, "MB/s", 50.0, 0.01),
            }
        }
    }
}

/// Two clients at weights 1 and 4 on a device that does one thing at a time; the heavier has the shorter queue.
fn shares(report: &mut Report) {
    report.say("shares, 10 s each, 1:4 within 2 %: 64 reads at a time against 4, a device of 400 us + 400 MB/s, SFQ(1)");
    let dir = tempfile::tempdir().expect("a directory");
    let record = dir.path().join("requests.csv");
    let pools = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\nscheduler = { sfq = { depth = 1 } }\n\
        emulated = { constant = { rate = \"400MB/s\", time = \"400us\", capacity = \"1GiB\" } }\n\
        [[disk]]\nname = \"one\"\ncapacity = \"256MiB\"\ncontract = { weight = 1 }\n\
        [[disk]]\nname = \"four\"\ncapacity = \"256MiB\"\ncontract = { weight = 4 }\n";
    for (a, one) in SIZES {
        for (b, four) in SIZES {
            let node = Node::start(&format!("requests = {record:?}\n{pools}"));
            let _one = Load::start(&node.socket(), "one", 64, one);
            let _four = Load::start(&node.socket(), "four", 4, four);
            std::thread::sleep(Duration::from_secs(1));
            let rates = node.rates(&["one", "four"], Duration::from_secs(10));
            let ratio = rates[1].1 / rates[0].1;
            let name = format!("weight 1, 64 x {a}; weight 4, 4 x {b}");
            report.held(&name, ratio, ": 1", 4.0, 0.02);
            drop(node);
            let Some(trace) = trace::read(&record, "one", "four", 4) else { continue };
            let [p50, p99, longest] = trace.turnaround;
            report.figure(&format!("{name}: served out of turn"), trace.out_of_turn as f64, "times");
            report.say(&format!(
                "    of {} turns of weight 1, {} came while the other had nothing waiting; its client took {p50:.0} us from an \
                 answer to the next request (median), {p99:.0} (99 %), {longest:.0} (longest)",
                trace.turns, trace.out_of_turn
            ));
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| !a.starts_with("--")).collect();
    let mut report = Report { json: arguments.iter().any(|a| a == "--json"), missed: 0 };
    type Part = (&'static str, fn(&mut Report));
    let parts: [Part; 4] =
        [("limits", limits), ("shares", shares), ("attacks", attacks::run), ("scale", scale::run)];
    for (name, part) in parts {
        if named.is_empty() || named.contains(&name) {
            part(&mut report);
        }
    }
    let missed = report.missed;
    report.say(&format!("{missed} beyond what they should be"));
}
