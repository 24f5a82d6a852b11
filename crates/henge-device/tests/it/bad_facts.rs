//! A facts file that is wrong is refused, naming the key and what is wrong with it.

use henge_device::{DiskFacts, built_in};
use serde_json::{Value, json};

/// A built-in model with the value at `path` (a JSON pointer) replaced, or removed.
fn changed(path: &str, value: Option<Value>) -> String {
    let mut facts: Value = serde_json::from_str(built_in("st34501n").unwrap()).unwrap();
    match value {
        Some(value) => *facts.pointer_mut(path).unwrap_or_else(|| panic!("{path} is there")) = value,
        None => {
            let (parent, key) = path.rsplit_once('/').unwrap();
            facts.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        }
    }
    facts.to_string()
}

#[test]
fn what_is_wrong_is_named() {
    let seeks = "/mechanics/seek_curve_distance_cyl_time_ms";
    let cases: &[(&str, Option<Value>, &str, &str)] = &[
        ("/schema", Some(json!("henge-disk-facts/9")), "schema", "henge-disk-facts/1"),
        ("/geometry", None, "geometry", "is missing"),
        ("/mechanics/rpm", None, "mechanics.rpm", "is missing"),
        ("/mechanics/rpm", Some(json!("fast")), "mechanics.rpm", "not a number"),
        ("/mechanics/rpm", Some(json!(-7200)), "mechanics.rpm", "negative"),
        ("/mechanics/rpm", Some(json!(0)), "mechanics.rpm", "from 60"),
        ("/mechanics/head_switch_ms", Some(json!(1e9)), "mechanics.head_switch_ms", "minute"),
        ("/mechanics/head_switch_ms", None, "mechanics.head_switch_ms", "is missing"),
        ("/bus/sector_transfer_ms", None, "bus.sector_transfer_ms", "is missing"),
        ("/geometry/surfaces", Some(json!(0)), "geometry.surfaces", "from 1"),
        ("/geometry/surfaces", Some(json!(2.5)), "geometry.surfaces", "whole number"),
        ("/geometry/zones", Some(json!([])), "geometry.zones", "at least one"),
        ("/geometry/zones/2/first_cyl", Some(json!(2448)), "geometry.zones[2].first_cyl", "zones overlap"),
        ("/geometry/zones/2/last_cyl", Some(json!(2000)), "geometry.zones[2].last_cyl", "before first_cyl"),
        (
            "/geometry/zones/1/first_lbn",
            Some(json!(2_084_545)),
            "geometry.zones[1].first_lbn",
            "ends with block",
        ),
        (
            "/geometry/zones/0/sectors_per_track",
            Some(json!(100)),
            "geometry.zones[0].last_lbn",
            "tracks hold",
        ),
        ("/geometry/capacity_sectors", Some(json!(99_999_999)), "geometry.capacity_sectors", "zones hold"),
        ("/mechanics/seek_curve_distance_cyl_time_ms/40/1", Some(json!(0.5)), "[40]", "seek times fall"),
        ("/mechanics/seek_curve_distance_cyl_time_ms/3/0", Some(json!(2)), "[3]", "does not rise"),
        (seeks, Some(json!([[1, 2.0], [10, 1.5], [100, 1.0]])), "[1]", "seek times fall"),
        (seeks, Some(json!([])), "seek_curve_distance_cyl_time_ms", "no points"),
        (seeks, Some(json!([[1, 2.0, 3]])), "[0]", "[distance, time]"),
        (seeks, Some(json!([[99_999, 2.0]])), "[0]", "not a seek"),
        ("/cache/segments", Some(json!(0)), "cache.segments", "from 1"),
        ("/cache/max_write_segments", Some(json!(9)), "cache.max_write_segments", "there are 3"),
        ("/cache/fast_write_level", Some(json!(3)), "cache.fast_write_level", "from 0 to 2"),
        ("/bus/sector_transfer_ms", Some(json!([])), "bus.sector_transfer_ms", "not a number"),
    ];
    for (path, value, key, what) in cases {
        let error = DiskFacts::parse(&changed(path, value.clone())).expect_err(path);
        assert!(error.key.contains(key) && error.what.contains(what), "{path}: {error}");
    }
    assert!(DiskFacts::parse("{").unwrap_err().to_string().contains("not JSON"));
}

#[test]
fn a_revolution_must_fit_the_speed() {
    let mut facts: Value = serde_json::from_str(built_in("st34501n").unwrap()).unwrap();
    facts["mechanics"]["revolution_ms"] = json!(8.33);
    let error = DiskFacts::parse(&facts.to_string()).unwrap_err();
    assert_eq!(error.key, "mechanics.revolution_ms");
}

#[test]
fn built_in_models_are_sound_and_name_their_source() {
    for name in henge_device::model_names() {
        let text = built_in(name).unwrap();
        let source = if text.contains(henge_device::SSD_SCHEMA) {
            henge_device::SsdFacts::parse(text).unwrap_or_else(|e| panic!("{name}: {e}")).source
        } else {
            DiskFacts::parse(text).unwrap_or_else(|e| panic!("{name}: {e}")).source
        };
        assert!(!source.is_empty() && !henge_device::model_description(name).unwrap().is_empty(), "{name}");
    }
}
