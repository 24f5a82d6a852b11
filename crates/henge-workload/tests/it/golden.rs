//! The real traces, against the statistics that were measured when they were collected.

use crate::common::{SHARED, Skip, open_shared};
use henge_core::Op;
use henge_workload::{Stats, TraceOptions};
use serde_json::Value;

fn options(name: &str) -> TraceOptions {
    // The one file whose sizes are in a unit that its format does not say.
    let size_unit = name.contains("4kpages").then_some(4096);
    TraceOptions { size_unit, ..TraceOptions::default() }
}

fn stats(name: &str) -> Option<Stats> {
    let mut stats = Stats::default();
    for record in open_shared(name, &options(name))? {
        stats.count(&record.unwrap());
    }
    Some(stats)
}

/// Requests marked as read-ahead in a .load file, and their bytes.
fn read_ahead(name: &str) -> (u64, u64) {
    if !name.ends_with(".load") {
        return (0, 0);
    }
    let packed = SHARED.read(&format!("traces/{name}.zst")).unwrap();
    let text = zstd::decode_all(&packed[..]).unwrap();
    let lines = text.split(|b| *b == b'\n').filter(|l| l.windows(3).any(|w| w == b";RA"));
    let sectors = lines.map(|l| {
        let field = l.split(|b| *b == b';').nth(2).unwrap().trim_ascii();
        std::str::from_utf8(field).unwrap().parse::<u64>().unwrap()
    });
    sectors.fold((0, 0), |(n, bytes), sectors| (n + 1, bytes + sectors * 512))
}

/// Compares to the digits that the golden value was rounded to.
fn same(got: f64, golden: &Value, digits: i32) -> bool {
    let golden = golden.as_f64().unwrap_or(f64::NAN);
    (got - golden).abs() <= 0.5 * 10f64.powi(-digits) + 1e-9
}

#[test]
fn every_golden_value_is_met() {
    let Some(json) = SHARED.read("traces/stats.json") else {
        return Skip("every_golden_value_is_met").report();
    };
    let all: Value = serde_json::from_slice(&json).unwrap();
    let mut wrong = Vec::new();
    for golden in all.as_array().unwrap() {
        let name = golden["name"].as_str().unwrap();
        let Some(s) = stats(name) else { return Skip(name).report() };
        // Read-ahead ("RA", 345 requests of two .load files) is a read; the golden values took it for a write.
        let (ahead, ahead_bytes) = read_ahead(name);
        let reads = s.of(Op::Read).requests - ahead;
        let read_kib = (s.of(Op::Read).bytes - ahead_bytes) as f64 / reads as f64 / 1024.0;
        let writes = s.of(Op::Write).requests + ahead;
        let write_kib = (s.of(Op::Write).bytes + ahead_bytes) as f64 / writes as f64 / 1024.0;
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let seconds = s.duration().as_secs_f64();
        let common = s.common_sizes().iter().map(|(size, n)| ((*size).min(2 << 20), *n)).fold(
            std::collections::BTreeMap::<u64, u64>::new(),
            |mut m, (size, n)| {
                *m.entry(size).or_default() += n;
                m
            },
        );
        let common = common.iter().max_by_key(|(size, n)| (**n, std::cmp::Reverse(**size))).unwrap().0;
        for (key, got, digits) in [
            ("requests", s.requests() as f64, 0),
            ("duration_s", seconds, 3),
            ("mean_iops", s.requests() as f64 / seconds, 1),
            ("peak_requests_in_1s", s.peak_second() as f64, 0),
            ("read_percent", 100.0 * reads as f64 / s.requests() as f64, 2),
            ("mean_kib", s.all().mean_kib().unwrap(), 2),
            ("mean_read_kib", read_kib, 2),
            ("mean_write_kib", write_kib, 2),
            ("max_kib", s.all().largest as f64 / 1024.0, 0),
            ("devices", s.devices().0 as f64, 0),
            ("busiest_device_percent", s.devices().1, 1),
            ("sequential_percent_strict", s.sequential_percent(), 1),
            ("sequential_percent_last32", s.near_percent(), 1),
            ("volume_gib", gib(s.all().bytes), 3),
            ("max_offset_gib", gib(s.max_start()), 2),
            ("distinct_4k_starts", s.distinct_starts().0 as f64, 0),
            ("time_going_back", s.backwards() as f64, 0),
            ("most_common_size_bytes_capped_2MiB", *common as f64, 0),
        ] {
            if golden[key].is_null() {
                assert!(got.is_nan(), "{name}: {key}");
            } else if !same(got, &golden[key], digits) {
                wrong.push(format!("{name}: {key}: {got}, not {}", golden[key]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
