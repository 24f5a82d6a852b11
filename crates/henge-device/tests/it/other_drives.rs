//! What drives do that are not among the reference data: surfaces that alternate, slipped tracks, few and small
//! segments, water marks, settling below zero.

use henge_core::Duration;
use henge_device::replay::{Mode, Replay, Row, mean};
use henge_device::{DiskFacts, Hdd, HddOptions, built_in};
use serde_json::{Value, json};

fn changed(changes: &[(&str, Value)]) -> DiskFacts {
    let mut facts: Value = serde_json::from_str(built_in("st34501n").unwrap()).unwrap();
    for (path, value) in changes {
        let (parent, key) = path.rsplit_once('/').unwrap();
        facts.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    DiskFacts::parse(&facts.to_string()).unwrap()
}

/// A small drive of one zone with its slips either listed, or counted beside vectors.
fn small(scheme: u64, slips: (&str, Value), last_lbn: u64, spares: u64, vectors: &Value) -> DiskFacts {
    let mut zone = json!({
        "first_cyl": 0, "last_cyl": 99, "sectors_per_track": 50, "first_lbn": 0, "last_lbn": last_lbn,
        "track_skew_sectors": 7.0, "cyl_skew_sectors": 11.0, "spare_sectors_per_sparing_range": spares,
    });
    zone[slips.0] = slips.1;
    changed(&[
        (
            "/geometry",
            json!({
                "cylinders": 100, "surfaces": 3, "capacity_sectors": last_lbn + 1, "lbn_to_pbn_mapping_scheme": 1,
                "sparing_scheme": scheme, "sparing_range_tracks_or_cyls": 1, "zones": [zone],
            }),
        ),
        ("/mechanics/seek_curve_distance_cyl_time_ms", json!([[1, 1.0], [99, 9.0]])),
        ("/test_vectors", json!({ "lbn": vectors, "seek": [] })),
    ])
}

#[test]
fn slips_are_found_by_vectors_on_drives_that_turn() {
    // Sectors that slip anywhere in the zone, and tracks.
    for (scheme, slips, last_lbn, spares) in
        [(9, vec![120, 4100, 4101, 9000, 14_000], 14_900, 95), (1, vec![2, 77, 78, 200], 50 * 290 - 1, 10)]
    {
        let true_one = small(scheme, ("slips", json!(slips)), last_lbn, spares, &json!([]));
        let vectors: Vec<Value> = (0..120)
            .map(|i| {
                let lbn = i * last_lbn / 119;
                let p = true_one.geometry.locate(lbn);
                let revolutions = (p.angle().revolutions() * 1e9).round() / 1e9;
                json!([lbn, p.cylinder, p.head, p.sector, p.per_track, revolutions])
            })
            .collect();
        let counted =
            small(scheme, ("slipped_sectors", json!(slips.len())), last_lbn, spares, &json!(vectors));
        for v in &counted.vectors.lbn {
            let p = counted.geometry.locate(v.lbn);
            assert_eq!((p.cylinder, p.head, p.sector), (v.cylinder, v.head, v.sector), "{scheme}: {}", v.lbn);
            assert!((p.angle().revolutions() - v.angle).abs() < 1e-6, "{scheme}: {}", v.lbn);
        }
    }
}

fn services(facts: DiskFacts, rows: &[Row]) -> Vec<Duration> {
    let mut drive = Hdd::new(facts, HddOptions::default());
    Replay::new(&mut drive, rows, Mode::Closed).map(|a| a.service()).collect()
}
fn row(write: bool, lbn: u64, sectors: u64) -> Row {
    Row { write, lbn, sectors, ..Row::default() }
}

#[test]
fn one_segment_forgets_what_it_held_before() {
    let facts = changed(&[("/cache/segments", json!(1)), ("/cache/max_write_segments", json!(1))]);
    let rows: Vec<Row> = (0..200u64).map(|i| row(false, (i / 2) * 7919 % 8_000_000 + i % 2, 1)).collect();
    let services = services(facts, &rows);
    // Every second read continues the one before it, whose read-ahead is under way; a few begin a track.
    let hits = services.iter().skip(1).step_by(2).filter(|s| s.as_millis_f64() < 0.2).count();
    let misses = services.iter().step_by(2).all(|s| (0.2..30.0).contains(&s.as_millis_f64()));
    assert!(hits >= 95 && misses, "{hits}: {services:?}");
}

#[test]
fn a_write_larger_than_its_segment_refills_what_is_laid_down() {
    let with = |segment: u64| {
        let facts =
            changed(&[("/cache/segment_sectors", json!(segment)), ("/cache/fast_write_level", json!(0))]);
        let rows: Vec<Row> = (0..300u64).map(|i| row(true, i * 27_127, 128)).collect();
        mean(&services(facts, &rows)) * 1e3
    };
    let (whole, half, tiny) = (with(282), with(64), with(8));
    // All of it is on the bus for 128 * 0.106 ms at least; a ring that holds half loses part of a revolution where
    // the head waits for the rest, one that holds little loses many.
    assert!(whole > 13.5 && half >= whole && half < whole + 6.0 && tiny > half, "{whole} {half} {tiny}");
}

#[test]
fn writes_larger_than_a_segment_join_the_one_before() {
    // The bus is slower than the medium, so a stream of writes is as fast as the bus: the overhead of a write hit after a
    // write, and 0.106 ms a block.
    for blocks in [256u64, 320, 400, 512, 1024] {
        let facts = changed(&[("/cache/segment_sectors", json!(200))]);
        let rows: Vec<Row> = (0..300).map(|i| row(true, i * blocks, blocks)).collect();
        for service in &services(facts, &rows)[1..] {
            let ms = service.as_millis_f64();
            assert!((ms - (0.095 + 0.106 * blocks as f64)).abs() < 1e-3, "{blocks}: {ms}");
        }
    }
}

#[test]
fn a_read_waits_for_its_water_mark() {
    let with = |mark: f64| {
        let facts = changed(&[
            ("/cache/high_read_watermark", json!(mark)),
            ("/cache/watermark_by_request_size", json!(1)),
        ]);
        let rows: Vec<Row> = (0..300u64).map(|i| row(false, i * 27_127, 128)).collect();
        mean(&services(facts, &rows)) * 1e3
    };
    // Half of 128 sectors pass in 64 * 0.031 to 64 * 0.045 ms, tracks between some of them.
    let later = with(0.5) - with(0.0);
    assert!((1.5..4.0).contains(&later), "{later}");
    assert!(with(1.0) > with(0.5) + 1.5);
}

#[test]
fn settling_may_be_below_zero() {
    let mean_write = |settle: f64| {
        let facts =
            changed(&[("/mechanics/write_settle_ms", json!(settle)), ("/cache/fast_write_level", json!(0))]);
        services(facts, &[row(true, 5_000_000, 1)])[0]
    };
    let revolution = Duration::from_nanos(5_980_265);
    let apart = mean_write(0.5).as_nanos().abs_diff(mean_write(-0.5).as_nanos());
    assert!(apart < 2_000 || apart.abs_diff(revolution.as_nanos()) < 2_000, "whole revolutions: {apart}");
}

#[test]
fn a_long_curve_may_have_a_spoiled_point() {
    let curve =
        |points: u32| -> Value { (1..=points).map(|d| json!([d * 10, 1.0 + f64::from(d) * 0.05])).collect() };
    let spoiled = |points: u32, at: usize| {
        let mut curve = curve(points);
        curve[at][1] = json!(0.4);
        let mut facts: Value = serde_json::from_str(built_in("st34501n").unwrap()).unwrap();
        facts["mechanics"]["seek_curve_distance_cyl_time_ms"] = curve;
        DiskFacts::parse(&facts.to_string()).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(spoiled(150, 40), Ok(()));
    assert!(spoiled(150, 149).unwrap_err().contains("seek times fall"), "the last has nothing behind it");
    assert!(spoiled(60, 40).unwrap_err().contains("seek times fall"));
}
