//! What metering costs a request: everything that a gate counts at a completion, and the histogram of the disk's commands beside it.
//!
//! `make bench-meters ARGS=--json`. CPU time of this thread is not needed: nothing here waits.

#![allow(clippy::disallowed_methods)] // a benchmark reads the clock

use henge_core::{Cost, Duration, FlowMeters, Histogram, Metered, Op};
use std::hint::black_box;
use std::time::Instant;

const REQUESTS: u64 = 4_000_000;

/// Of one round: nanoseconds a request over so many flows, round robin, latencies spread over three decades.
fn round(flows: usize, metered: bool) -> f64 {
    let bound = Duration::from_millis(20);
    let mut meters: Vec<(FlowMeters, Histogram)> = vec![Default::default(); flows];
    meters.iter_mut().for_each(|(flow, _)| flow.late_after = bound);
    let mut x = 1u64;
    let begun = Instant::now();
    for i in 0..REQUESTS {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wait = Duration::from_nanos(1000 << (x >> 60)) + Duration::from_nanos(x >> 50);
        let completion = Metered {
            op: if x & 1 == 0 { Op::Read } else { Op::Write },
            len: 4096,
            commands: 1_000_000,
            cost: Cost::new(1_000_000),
            wait,
            service: Duration::from_nanos(x >> 48),
            disk_time: Duration::from_nanos(x >> 49),
            failed: false,
        };
        let completion = black_box(completion);
        if metered {
            let (flow, disk) = &mut meters[i as usize % flows];
            flow.pending += 1;
            flow.in_flight += 1;
            flow.completed(&completion);
            disk.record(completion.wait + completion.service);
        }
    }
    let took = begun.elapsed();
    black_box(&meters);
    took.as_nanos() as f64 / REQUESTS as f64
}

fn main() {
    for flows in [1, 100, 1000] {
        // The least of several rounds: whatever else runs here only adds.
        let least = |metered| (0..5).map(|_| round(flows, metered)).fold(f64::INFINITY, f64::min);
        let (with, without) = (least(true), least(false));
        if std::env::args().any(|argument| argument == "--json") {
            let cost = with - without;
            println!(
                "{{\"name\":\"meters/{flows}\",\"value\":{cost:.2},\"unit\":\"ns/request\",\"peer\":null,\"ratio\":null}}"
            );
            continue;
        }
        println!(
            "{flows:5} flows: {:.1} ns a request for its meters ({with:.1} with, {without:.1} without)",
            with - without
        );
    }
}
