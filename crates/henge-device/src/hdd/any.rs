//! Drives that nobody made, for tests: whatever a facts file may say.

use super::{Arm, Command, Controller, DiskFacts, Geometry, Motion};
use henge_core::{Duration, Instant};
use proptest::prelude::*;
use serde_json::{Value, json};

/// One zone as drawn.
#[derive(Clone, Debug)]
pub(super) struct ZoneDraw {
    reserved: u32,
    cylinders: u32,
    per_track: u32,
    spares: u64,
    front: u64,
    skews: (f64, f64, f64),
    slips: Vec<u64>,
}

/// A drive as drawn.
#[derive(Clone, Debug)]
pub(super) struct DriveDraw {
    surfaces: u32,
    order: u64,
    sparing: u64,
    range: u64,
    rpm: f64,
    head_switch: f64,
    seek: (f64, f64, f64),
    cache: Value,
    bus: f64,
    zones: Vec<ZoneDraw>,
}

fn zone() -> impl Strategy<Value = ZoneDraw> {
    let slips = prop::collection::btree_set(0u64..4000, 0..4);
    let skews = (0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64);
    let spares = prop_oneof![Just(0), 1u64..8, 1u64..400];
    let front = prop_oneof![Just(0), 0u64..300];
    (0u32..3, 1u32..40, 8u32..300, spares, front, skews, slips).prop_map(
        |(reserved, cylinders, per_track, spares, front, skews, slips)| ZoneDraw {
            reserved,
            cylinders,
            per_track,
            spares,
            front,
            skews,
            slips: slips.into_iter().collect(),
        },
    )
}

fn cache() -> impl Strategy<Value = Value> {
    let bits = prop::collection::vec(0u8..2, 12);
    (1u32..33, 0u32..33, 1u32..600, 0u8..5, 0u32..2000, 0u8..3, 0.0..1.0f64, bits).prop_map(
        |(segments, own, size, mode, ahead, fast, mark, b)| {
            json!({
                "enabled": b[0], "segments": segments, "max_write_segments": own.min(segments),
                "segment_sectors": size, "prefetch_mode": mode, "max_read_ahead_sectors": ahead,
                "min_read_ahead_sectors": u32::from(b[1]) * ahead.min(16), "fast_write_level": fast,
                "separate_write_segment": b[2], "read_ahead_may_overwrite_returned_data": b[3],
                "read_ahead_on_idle_full_hit": b[4], "combine_sequential_writes": b[5],
                "zero_latency_read": b[6], "zero_latency_write": b[7], "read_hits_on_write_data": b[8],
                "write_prebuffering": b[9], "almost_read_hits": b[10], "read_any_free_blocks": b[11],
                "high_read_watermark": mark, "low_write_watermark": mark, "watermark_by_request_size": b[1],
            })
        },
    )
}

/// Any drive.
pub(super) fn drives() -> impl Strategy<Value = DriveDraw> {
    let first = (1u32..17, 0u64..3, 0u64..11, 1u64..6, 3600.0..15000.0f64);
    let second = (0.0..3.0f64, (0.0..3.0f64, 0.0..0.5f64, 0.0..0.01f64), cache(), 0.0..0.2f64);
    let zones = prop_oneof![prop::collection::vec(zone(), 1..4), prop::collection::vec(zone(), 1..31)];
    (first, second, zones).prop_map(|(a, b, zones)| DriveDraw {
        surfaces: a.0,
        order: a.1,
        sparing: a.2,
        range: a.3,
        rpm: a.4,
        head_switch: b.0,
        seek: b.1,
        cache: b.2,
        bus: b.3,
        zones,
    })
}

impl DriveDraw {
    /// Sectors of a sparing range of a zone, and whether its spares come first.
    fn range(&self, z: &ZoneDraw) -> (u64, bool) {
        let (surfaces, per_track) = (u64::from(self.surfaces), u64::from(z.per_track));
        let tracks = u64::from(z.cylinders) * surfaces;
        let (range, front) = match self.sparing {
            2 | 4 => (surfaces, false),
            3 => (1, false),
            5 | 6 => (surfaces, true),
            8 => (self.range * surfaces, false),
            _ => (tracks, false),
        };
        (range.min(tracks) * per_track, front)
    }

    /// Which sectors of a zone hold its blocks, told sector by sector.
    fn blocks(&self, z: &ZoneDraw) -> Vec<u64> {
        let sectors = u64::from(z.cylinders * self.surfaces * z.per_track);
        let (range, spares_first) = self.range(z);
        let unit = if self.sparing == 1 { u64::from(z.per_track) } else { 1 };
        let spares = self.spares(z) * unit;
        let slipped = |s: u64| !spares_first && z.slips.contains(&(s / unit));
        let mut holds = Vec::new();
        for from in (0..sectors).step_by(range as usize) {
            let front = if spares_first { spares } else { 0 };
            let free = (from + front..(from + range).min(sectors)).filter(|s| !slipped(*s));
            holds.extend(free.take((range - spares) as usize));
        }
        holds.into_iter().skip(z.front as usize).collect()
    }

    /// At most half of a range is spare.
    fn spares(&self, z: &ZoneDraw) -> u64 {
        let (range, _) = self.range(z);
        let unit = if self.sparing == 1 { u64::from(z.per_track) } else { 1 };
        if matches!(self.sparing, 0 | 7) { 0 } else { z.spares.min(range / unit / 2) }
    }

    /// The facts file, and the sectors of each zone that hold its blocks.
    pub(super) fn file(&self) -> (Value, Vec<Vec<u64>>) {
        let (mut cylinder, mut lbn, mut zones, mut held) = (0, 0u64, Vec::new(), Vec::new());
        for z in &self.zones {
            let blocks = self.blocks(z);
            if blocks.is_empty() {
                continue;
            }
            cylinder += z.reserved;
            let skew = |share: f64| share * f64::from(z.per_track);
            let mut zone = json!({
                "first_cyl": cylinder, "last_cyl": cylinder + z.cylinders - 1, "sectors_per_track": z.per_track,
                "first_lbn": lbn, "last_lbn": lbn + blocks.len() as u64 - 1,
                "track_skew_sectors": skew(z.skews.0), "cyl_skew_sectors": skew(z.skews.1),
                "offset_of_first_block": skew(z.skews.2),
                "empty_sectors_at_front": z.front, "spare_sectors_per_sparing_range": self.spares(z),
            });
            let unit = if self.sparing == 1 { z.per_track } else { 1 };
            let units = u64::from(z.cylinders * self.surfaces * z.per_track / unit);
            let front = matches!(self.sparing, 5 | 6);
            zone["slips"] = json!(z.slips.iter().filter(|s| **s < units && !front).collect::<Vec<_>>());
            zones.push(zone);
            lbn += blocks.len() as u64;
            cylinder += z.cylinders;
            held.push(blocks);
        }
        let (a, b, c) = self.seek;
        let time = |d: u32| 0.1 + a + b * f64::from(d).sqrt() + c * f64::from(d);
        let seek: Vec<Value> = [1, 2, 5, 10, 50, 200, 1000]
            .into_iter()
            .filter(|d| *d == 1 || *d < cylinder)
            .map(|d| json!([d, time(d)]))
            .collect();
        let file = json!({
            "schema": super::SCHEMA, "model": "any",
            "geometry": {
                "cylinders": cylinder, "surfaces": self.surfaces, "capacity_sectors": lbn,
                "lbn_to_pbn_mapping_scheme": self.order, "sparing_scheme": self.sparing,
                "sparing_range_tracks_or_cyls": self.range, "zones": zones,
            },
            "mechanics": {
                "rpm": self.rpm, "head_switch_ms": self.head_switch, "seek_curve_distance_cyl_time_ms": seek,
            },
            "bus": { "sector_transfer_ms": self.bus }, "overheads_ms": {}, "cache": self.cache,
        });
        (file, held)
    }
}

/// What a geometry says of block `lbn`: zone, sector of the zone.
fn sector(g: &Geometry, order: u64, lbn: u64) -> (u32, u64) {
    let p = g.locate(lbn);
    let zone = &g.zones()[p.zone as usize];
    let c = p.cylinder - zone.cylinders.0;
    let down = match order {
        0 => false,
        1 => c % 2 == 1,
        _ => p.cylinder % 2 == 1,
    };
    let k = if down { g.surfaces() - 1 - p.head } else { p.head };
    let track = u64::from(c) * u64::from(g.surfaces()) + u64::from(k);
    (p.zone, track * u64::from(p.per_track) + u64::from(p.sector))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every block lies on the sector that counting sector by sector gives it, and no two on one.
    #[test]
    fn every_block_has_its_sector(draw in drives()) {
        let (file, held) = draw.file();
        prop_assume!(!held.is_empty());
        let facts = match DiskFacts::parse(&file.to_string()) {
            Ok(facts) => facts,
            Err(e) => { prop_assert!(e.key.contains("slip"), "{}", e); return Ok(()); }
        };
        let g = &facts.geometry;
        let mut lbn = 0;
        for (zone, blocks) in held.iter().enumerate() {
            for at in blocks {
                prop_assert_eq!(sector(g, draw.order, lbn), (zone as u32, *at), "block {}", lbn);
                lbn += 1;
            }
        }
    }

    /// A read of a sector takes the way there, at most a revolution of waiting, and the sector on platter and bus.
    #[test]
    fn one_sector_takes_its_way_and_its_turn(draw in drives(), places in prop::collection::vec(0.0..1.0f64, 2..30)) {
        let (mut file, _) = draw.file();
        file["cache"]["enabled"] = json!(0);
        file["cache"]["prefetch_mode"] = json!(0);
        file["cache"]["min_read_ahead_sectors"] = json!(0);
        file["cache"]["zero_latency_read"] = json!(0);
        let Ok(facts) = DiskFacts::parse(&file.to_string()) else { return Ok(()) };
        let arm = Arm::new(&facts);
        let mut controller = Controller::new(&facts);
        let mut now = Instant::ZERO;
        let mut from = None;
        for place in places {
            let lbn = (place * facts.geometry.capacity() as f64) as u64;
            let to = arm.geometry().locate(lbn);
            let command = Command { lbn, blocks: 1, write: false, durable: true };
            let done = controller.execute(command, now);
            if let Some(from) = from {
                let way = arm.move_time(from, to.position(), Motion::Read) + facts.bus_sector
                    + arm.spindle().transfer(1, to.per_track);
                let took = done.since(now);
                let slack = Duration::from_nanos(100);
                prop_assert!(took + slack >= way && took <= way + arm.spindle().revolution() + slack, "{took:?} {way:?}");
            }
            (now, from) = (done, Some(to.position()));
        }
    }

    /// Long reads and writes take, track by track, what they take in one go.
    #[test]
    fn long_ones_are_as_step_by_step(
        draw in drives(),
        commands in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64, 0..20_000u64, prop::bool::ANY, prop::bool::ANY), 1..12),
    ) {
        let (file, _) = draw.file();
        let Ok(facts) = DiskFacts::parse(&file.to_string()) else { return Ok(()) };
        let capacity = facts.geometry.capacity();
        let (mut skips, mut steps) = (Controller::new(&facts), Controller::new(&facts).without_laps());
        let mut t = Instant::ZERO;
        for (at, long, think, write, durable) in commands {
            let lbn = ((at * capacity as f64) as u64).min(capacity - 1);
            let blocks = ((long * 20_000.0) as u64).clamp(1, capacity - lbn);
            let command = Command { lbn, blocks, write, durable };
            let (one, other) = (skips.execute(command, t), steps.execute(command, t));
            prop_assert!(one >= t + facts.bus_sector * blocks);
            let off = one.since(other).max(other.since(one));
            prop_assert!(off <= Duration::from_nanos(50), "write {write}, {blocks} blocks from {lbn}: {one:?} for {other:?}");
            t = one + Duration::from_micros(think);
        }
    }
}

/// The range of the slipped sector ends a sector later than others, and too late for the next cylinder.
#[test]
fn a_long_read_passes_a_slipped_sector() {
    let zone = ZoneDraw {
        reserved: 0,
        cylinders: 27,
        per_track: 54,
        spares: 4,
        front: 0,
        skews: (0.0, 0.138_156_39, 0.0),
        slips: vec![1188],
    };
    let drive = DriveDraw {
        surfaces: 1,
        order: 0,
        sparing: 8,
        range: 2,
        rpm: 3719.067,
        head_switch: 0.0,
        seek: (2.655_854_28, 0.375_852_43, 0.0),
        cache: json!({ "segments": 1, "segment_sectors": 2 }),
        bus: 0.0,
        zones: vec![zone],
    };
    let facts = DiskFacts::parse(&drive.file().0.to_string()).expect("sound");
    let command = Command { lbn: 0, blocks: 1406, write: false, durable: false };
    let steps = Controller::new(&facts).without_laps().execute(command, Instant::ZERO);
    let skips = Controller::new(&facts).execute(command, Instant::ZERO);
    assert!(skips.since(steps).max(steps.since(skips)) <= Duration::from_nanos(50), "{skips:?} {steps:?}");
}
