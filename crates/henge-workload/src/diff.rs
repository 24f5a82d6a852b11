//! Two runs of the same requests, compared: a live one and a simulated one, usually.
//!
//! Both are logs of [`RequestRow`]s. Two questions are answered. *Order*: did every gate dispatch the same requests in
//! the same order? A request is known by its gate, its place in the order of submissions and what it asks; requests
//! that left a gate at the same instant count in the order of their submission. *Latency*: how far apart are the
//! median, the 95th and the 99th percentile of each flow? The runs agree when every flow's 95th percentile differs by at
//! most 10 % of the larger one. A live run whose emulated disks were late themselves (p99 above 1 ms, in a comment
//! `# lateness_p99_ns=…` or said by the caller) proves nothing and is called invalid.

use henge_core::{Duration, Instant, Op, RequestRow};
use std::collections::BTreeMap;
use std::io::{self, BufRead};

/// By how much the 95th percentiles may differ, in percent of the larger.
pub const TOLERANCE_PERCENT: f64 = 10.0;
/// The emulated disks' own lateness from which a run is invalid.
pub const LATENESS_MAX: Duration = Duration::from_millis(1);

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The input could not be read.
    #[error("{file}: {why}")]
    Io {
        /// Which log.
        file: String,
        /// Why.
        why: io::Error,
    },
    /// A line that is no row.
    #[error("{file}:{line}: {why}")]
    Line {
        /// Which log.
        file: String,
        /// Which line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// No row at all.
    #[error("{file}: no request in it")]
    Empty {
        /// Which log.
        file: String,
    },
}

/// One request as it is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Index into the log's flows.
    pub flow: u32,
    /// What it did.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// When it came.
    pub arrival: Instant,
    /// When it left the gate.
    pub dispatch: Instant,
    /// Its place in the order of submissions.
    pub seq: u64,
    /// From arrival to completion.
    pub latency: Duration,
}

/// A log of requests, by gate.
#[derive(Clone, Debug, Default)]
pub struct RequestLog {
    /// Names of the flows.
    pub flows: Vec<String>,
    /// Each gate's requests in the order of dispatch.
    pub gates: BTreeMap<u32, Vec<Entry>>,
    /// The emulated disks' own 99th percentile of lateness, where the log says.
    pub lateness_p99: Option<Duration>,
}

impl RequestLog {
    /// Reads a log; `file` is how errors call it.
    pub fn read(file: &str, mut input: impl BufRead) -> Result<Self, LogError> {
        let mut log = RequestLog::default();
        let mut line = String::new();
        let mut number = 0;
        loop {
            line.clear();
            let io = |why| LogError::Io { file: file.to_owned(), why };
            if input.read_line(&mut line).map_err(io)? == 0 {
                break;
            }
            number += 1;
            let wrong = |why: String| LogError::Line { file: file.to_owned(), line: number, why };
            let text = line.trim();
            if let Some(comment) = text.strip_prefix('#') {
                log.comment(comment).map_err(wrong)?;
            } else if !text.is_empty() && !text.starts_with("flow,op,") {
                let row = RequestRow::parse(text).map_err(|e| wrong(e.to_string()))?;
                log.add(&row);
            }
        }
        if log.gates.is_empty() {
            return Err(LogError::Empty { file: file.to_owned() });
        }
        for entries in log.gates.values_mut() {
            entries.sort_by_key(|e| (e.dispatch, e.seq));
        }
        Ok(log)
    }

    fn comment(&mut self, text: &str) -> Result<(), String> {
        if let Some(ns) = text.trim().strip_prefix("lateness_p99_ns=") {
            let ns = ns.parse().map_err(|_| format!("lateness_p99_ns: \"{ns}\" cannot be read"))?;
            // Each loop of the node says how late its own completions were.
            self.lateness_p99 = self.lateness_p99.max(Some(Duration::from_nanos(ns)));
        }
        Ok(())
    }

    fn add(&mut self, row: &RequestRow<'_>) {
        let flow = match self.flows.iter().position(|f| f == row.flow) {
            Some(known) => known,
            None => {
                self.flows.push(row.flow.to_owned());
                self.flows.len() - 1
            }
        };
        self.gates.entry(row.gate).or_default().push(Entry {
            flow: flow as u32,
            op: row.op,
            offset: row.offset,
            len: row.len,
            arrival: row.arrival,
            dispatch: row.dispatch,
            seq: row.seq,
            latency: row.latency(),
        });
    }

    /// All latencies of a flow, ascending.
    fn latencies(&self, flow: &str) -> Vec<Duration> {
        let Some(flow) = self.flows.iter().position(|f| f == flow) else { return Vec::new() };
        let all = self.gates.values().flatten().filter(|e| e.flow as usize == flow);
        let mut latencies: Vec<_> = all.map(|e| e.latency).collect();
        latencies.sort_unstable();
        latencies
    }
}

/// The smallest value that the share `q` of all is not above; `None` of none.
fn quantile(sorted: &[Duration], q: f64) -> Option<Duration> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// One figure in both logs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Both {
    /// In the first log.
    pub a: Option<Duration>,
    /// In the second log.
    pub b: Option<Duration>,
}

impl Both {
    /// Second minus first, in percent of the larger; `None` where one of them is missing.
    pub fn percent(&self) -> Option<f64> {
        let (a, b) = (self.a?.as_nanos() as f64, self.b?.as_nanos() as f64);
        Some(if a == b { 0.0 } else { 100.0 * (b - a) / a.max(b) })
    }
}

/// One flow in both logs.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowDiff {
    /// Its name.
    pub flow: String,
    /// Requests in the first and the second log.
    pub requests: [u64; 2],
    /// Median, 95th and 99th percentile of the latency.
    pub p50: Both,
    /// See `p50`.
    pub p95: Both,
    /// See `p50`.
    pub p99: Both,
}

impl FlowDiff {
    /// Whether the 95th percentiles are near enough.
    pub fn agrees(&self) -> bool {
        self.p95.percent().is_some_and(|d| d.abs() <= TOLERANCE_PERCENT)
    }
}

/// Where two orders of dispatch part.
#[derive(Clone, PartialEq, Debug)]
pub struct Parting {
    /// At which gate.
    pub gate: u32,
    /// After how many equal dispatches of it.
    pub after: u64,
    /// What the first log dispatched then, in words.
    pub a: Option<String>,
    /// What the second log dispatched then.
    pub b: Option<String>,
}

/// Two logs compared.
#[derive(Clone, PartialEq, Debug)]
pub struct Diff {
    /// Flow by flow, in the first log's order, then flows that only the second has.
    pub flows: Vec<FlowDiff>,
    /// Where the orders of dispatch part first, by the first log's time; `None` when they are the same.
    pub parting: Option<Parting>,
    /// The emulated disks' own 99th percentile of lateness, if known.
    pub lateness_p99: Option<Duration>,
}

impl Diff {
    /// Compares; `lateness_p99` overrides what the logs say.
    pub fn of(a: &RequestLog, b: &RequestLog, lateness_p99: Option<Duration>) -> Diff {
        let names = a.flows.iter().chain(b.flows.iter().filter(|f| !a.flows.contains(f)));
        let flows = names
            .map(|flow| {
                let (la, lb) = (a.latencies(flow), b.latencies(flow));
                let both = |q| Both { a: quantile(&la, q), b: quantile(&lb, q) };
                FlowDiff {
                    flow: flow.clone(),
                    requests: [la.len() as u64, lb.len() as u64],
                    p50: both(0.5),
                    p95: both(0.95),
                    p99: both(0.99),
                }
            })
            .collect();
        let logged = a.lateness_p99.max(b.lateness_p99);
        Diff { flows, parting: parting(a, b), lateness_p99: lateness_p99.or(logged) }
    }

    /// Whether the run can prove anything.
    pub fn is_valid(&self) -> bool {
        self.lateness_p99.is_none_or(|late| late <= LATENESS_MAX)
    }
    /// Whether every flow's 95th percentile is near enough.
    pub fn agrees(&self) -> bool {
        self.flows.iter().all(FlowDiff::agrees)
    }
    /// Whether all gates dispatched in the same order.
    pub fn same_order(&self) -> bool {
        self.parting.is_none()
    }
}

fn parting(a: &RequestLog, b: &RequestLog) -> Option<Parting> {
    let none = Vec::new();
    let gates: std::collections::BTreeSet<_> = a.gates.keys().chain(b.gates.keys()).collect();
    let mut first: Option<(Instant, Parting)> = None;
    for gate in gates {
        let (ea, eb) = (a.gates.get(gate).unwrap_or(&none), b.gates.get(gate).unwrap_or(&none));
        let same = |x: &Entry, y: &Entry| {
            a.flows[x.flow as usize] == b.flows[y.flow as usize]
                && (x.op, x.offset, x.len, x.seq) == (y.op, y.offset, y.len, y.seq)
        };
        let equal = ea.iter().zip(eb).take_while(|(x, y)| same(x, y)).count();
        let (x, y) = (ea.get(equal), eb.get(equal));
        let Some(at) = x.or(y).map(|e| e.dispatch) else { continue };
        if first.as_ref().is_none_or(|(t, _)| at < *t) {
            let (a, b) = (x.map(|e| words(a, e)), y.map(|e| words(b, e)));
            first = Some((at, Parting { gate: *gate, after: equal as u64, a, b }));
        }
    }
    first.map(|(_, parting)| parting)
}

fn words(log: &RequestLog, e: &Entry) -> String {
    let flow = &log.flows[e.flow as usize];
    let op = e.op.as_str();
    format!(
        "{flow}: {op} of {} at {}, number {} submitted, dispatched at {:?}",
        e.len, e.offset, e.seq, e.dispatch
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` requests of one flow, 10 ms apart, with these latencies in ms (cycled).
    fn log(flow: &str, n: u64, latencies: &[u64]) -> String {
        let mut text = format!("{}\n", RequestRow::HEADER);
        for i in 0..n {
            let (arrival, latency) = (i * 10_000_000, latencies[i as usize % latencies.len()] * 1_000_000);
            text +=
                &format!("{flow},read,{},4096,{arrival},{arrival},{},0,{i},1\n", i * 4096, arrival + latency);
        }
        text
    }
    fn read(text: &str) -> RequestLog {
        RequestLog::read("t", text.as_bytes()).unwrap()
    }

    #[test]
    fn a_log_agrees_with_itself() {
        let log = read(&log("web", 1000, &[1, 2, 3]));
        let diff = Diff::of(&log, &log, None);
        assert!(diff.agrees() && diff.same_order() && diff.is_valid());
        assert_eq!(diff.flows[0].requests, [1000, 1000]);
    }

    #[test]
    fn the_95th_percentile_decides() {
        let a = read(&log("web", 1000, &[100]));
        // 4 % of outliers do not reach it, 6 % do.
        let few: Vec<u64> = (0..50).map(|i| if i < 2 { 900 } else { 100 }).collect();
        let many: Vec<u64> = (0..50).map(|i| if i < 3 { 900 } else { 100 }).collect();
        assert!(Diff::of(&a, &read(&log("web", 1000, &few)), None).agrees());
        assert!(!Diff::of(&a, &read(&log("web", 1000, &many)), None).agrees());
        assert!(Diff::of(&a, &read(&log("web", 1000, &[111])), None).agrees()); // 9.9 % of 111
        assert!(!Diff::of(&a, &read(&log("web", 1000, &[112])), None).agrees()); // 10.7 % of 112
        assert!(!Diff::of(&a, &read(&log("else", 1000, &[100])), None).agrees());
    }

    #[test]
    fn the_first_difference_in_order_is_named() {
        let text = log("web", 10, &[1]);
        let mut lines: Vec<&str> = text.lines().collect();
        // Numbers 4 and 5 change places: each is dispatched when the other was.
        let four = "web,read,16384,4096,40000000,50000000,51000000,0,4,1";
        let five = "web,read,20480,4096,40000000,40000000,51000000,0,5,1";
        (lines[5], lines[6]) = (four, five);
        let diff = Diff::of(&read(&text), &read(&lines.join("\n")), None);
        let parting = diff.parting.unwrap();
        assert_eq!((parting.gate, parting.after), (0, 4));
        assert!(parting.a.unwrap().contains("number 4") && parting.b.unwrap().contains("number 5"));
        // One that is missing at the end is a difference too.
        let short: Vec<&str> = text.lines().take(10).collect();
        let diff = Diff::of(&read(&text), &read(&short.join("\n")), None);
        assert_eq!(diff.parting.as_ref().map(|p| (p.after, p.b.is_none())), Some((9, true)));
    }

    #[test]
    fn a_late_emulator_makes_the_run_invalid() {
        let text = log("web", 10, &[1]);
        let late = read(&format!("# lateness_p99_ns=1000001\n{text}"));
        let fine = read(&format!("# lateness_p99_ns=1000000\n{text}"));
        assert!(!Diff::of(&late, &fine, None).is_valid());
        assert!(Diff::of(&fine, &fine, None).is_valid());
        assert!(!Diff::of(&fine, &fine, Some(Duration::from_millis(2))).is_valid());
    }

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| RequestLog::read("live.csv", text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            error("web,read,0,1,2,3,4\nweb,read,0,x,2,3,4\n"),
            "live.csv:2: len: \"x\" cannot be read"
        );
        assert_eq!(error(""), "live.csv: no request in it");
    }
}
