//! How fast the text formats are read: `make bench-traces`.
//!
//! Each trace of HENGE_DATA/traces is repeated in memory to about two million lines and read on one core; the best of
//! five. Alibaba's format, of which there is no trace, is made up.

#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // It measures time.

#[path = "../tests/it/common/mod.rs"]
mod common;

use common::SHARED;
use henge_workload::{Source, Trace, TraceOptions};
use std::fmt::Write as _;
use std::time::Instant;

const LINES: usize = 2_000_000;

/// A trace, and how many of its first lines are said once: a preamble, names of columns, files that are opened.
const TRACES: &[(&str, usize)] = &[
    ("financial1-snippet.spc", 0),
    ("iozone-write.disksim.trace", 0),
    ("websearch1-60s.ns.ascii", 0),
    ("msnfs-150k.replayer.trace", 0),
    ("msr-hm_0-1k.csv", 0),
    ("tencent-cbs-50k.csv", 0),
    ("systor17-1k.csv", 1),
    ("cloudphysics-2h.csv", 1),
    ("hadoop-50k-events.blkparse", 0),
    ("linux-webserver-2.load", 33),
    ("selfmade-fio3.iolog", 3),
    ("openpmd-8-read-1024r.dxt.txt", 0),
];

fn main() {
    if SHARED.path("traces").is_none() {
        return common::Skip("bench-traces").report();
    }
    println!(
        "\n{:30} {:>9} {:>9} {:>12} {:>12} {:>8}",
        "trace", "requests", "lines", "requests/s", "lines/s", "MB/s"
    );
    for (name, once) in TRACES {
        let packed = SHARED.read(&format!("traces/{name}.zst")).unwrap_or_else(|| panic!("{name} is there"));
        measure(name, repeated(&zstd::decode_all(&packed[..]).expect("it unpacks"), *once));
    }
    let mut alibaba = String::new();
    for i in 0..LINES as u64 {
        let (op, offset, at) = (if i % 3 == 0 { 'W' } else { 'R' }, i * 7919 % 100_000_000 * 4096, i * 37);
        writeln!(alibaba, "{},{op},{offset},4096,{}", i % 900, 1_577_808_000_000_626 + at)
            .expect("memory takes all");
    }
    measure("made up (Alibaba)", alibaba.into_bytes());
}

/// The first `once` lines, and the others again and again.
fn repeated(text: &[u8], once: usize) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
    let (head, body) = lines.split_at(once);
    let mut whole = head.concat();
    for _ in 0..LINES.div_ceil(body.len()) {
        body.iter()
            .filter(|line| !line.ends_with(b" close\n"))
            .for_each(|line| whole.extend_from_slice(line));
        if whole.last() != Some(&b'\n') {
            whole.push(b'\n');
        }
    }
    whole
}

fn measure(name: &str, text: Vec<u8>) {
    let (mut best, mut requests, mut lines) = (f64::MAX, 0, 0);
    let text: &'static [u8] = Box::leak(text.into_boxed_slice());
    for _ in 0..5 {
        let start = Instant::now();
        let mut trace = Trace::open(name, Box::new(text), &TraceOptions::default()).expect("a trace");
        requests = trace.by_ref().inspect(|r| assert!(r.is_ok(), "{r:?}")).count();
        lines = trace.line();
        best = best.min(start.elapsed().as_secs_f64());
    }
    let millions = |n: f64| n / best / 1e6;
    println!(
        "{name:30} {requests:9} {lines:9} {:10.1} M {:10.1} M {:8.0}",
        millions(requests as f64),
        millions(lines as f64),
        millions(text.len() as f64)
    );
}
