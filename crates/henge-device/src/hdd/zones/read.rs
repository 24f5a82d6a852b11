//! Reads `geometry` of a facts file.

use super::{Geometry, HeadOrder, LbnVector, Zone, bands, evenly};
use crate::hdd::clock::Angle;
use crate::hdd::reader::{FactsError, Read, Reader};

/// Reads `geometry`, and refuses what cannot be. `known` are places of blocks, ascending.
pub(in crate::hdd) fn read(r: &Reader<'_>, known: &[LbnVector]) -> Read<Geometry> {
    let surfaces = r.integer("surfaces", 1, 256)? as u32;
    // Some count cylinders from 0 here, and mean the last.
    let cylinders = r.integer("cylinders", 1, 1 << 24)? as u32;
    let last = r.objects("zones")?.last().and_then(|z| z.integer("last_cyl", 0, 1 << 24).ok());
    let cylinders = cylinders + u32::from(last == Some(u64::from(cylinders)));
    let sector_bytes = r.integer_or("sector_bytes", 512, 4096, 512)? as u32;
    if !sector_bytes.is_power_of_two() {
        return r.wrong("sector_bytes", format!("is {sector_bytes}, not a power of two"));
    }
    let capacity = r.integer("capacity_sectors", 1, 1 << 40)?;
    let order = match r.integer_or("lbn_to_pbn_mapping_scheme", 0, 2, 0)? {
        0 => HeadOrder::Up,
        1 => HeadOrder::AlternatingInZone,
        _ => HeadOrder::AlternatingOnDisk,
    };
    let scheme = Sparing {
        kind: r.integer_or("sparing_scheme", 0, 10, 0)?,
        range: r.integer_or("sparing_range_tracks_or_cyls", 0, 1 << 24, 1)?,
    };
    let readers = r.objects("zones")?;
    if readers.is_empty() {
        return r.wrong("zones", "is empty; a drive has at least one zone");
    }
    let mut zones: Vec<Zone> = Vec::with_capacity(readers.len());
    for z in &readers {
        let zone = if z.get("sectors_per_track_by_surface").is_some() {
            bands::zone(z, r, surfaces, cylinders)?
        } else {
            zone(z, Drive { surfaces, cylinders, order, scheme }, known)?
        };
        follows(&zone, zones.last_mut(), z)?;
        zones.push(zone);
    }
    if let Some(last) = zones.last_mut().filter(|z| z.bands.is_some()) {
        bands::close(last, capacity);
        if let Some(flat) = zones.iter().position(|z| z.bands.is_none()) {
            let what = "is missing, but the last zone has it: either all zones do, or none";
            return readers[flat].wrong("sectors_per_track_by_surface", what);
        }
        bands::settle(&mut zones, known);
    }
    let mapped = zones.last().map_or(0, |z| z.blocks.1 + 1);
    if capacity > mapped {
        return r.wrong("capacity_sectors", format!("is {capacity}, but the zones hold {mapped} blocks"));
    }
    Ok(Geometry { cylinders, surfaces, sector_bytes, capacity, order, zones })
}

/// Whether a zone begins where the one before it ends.
fn follows(zone: &Zone, before: Option<&mut Zone>, z: &Reader<'_>) -> Read<()> {
    let Some(before) = before else {
        return match zone.blocks.0 {
            0 => Ok(()),
            first => z.wrong("first_lbn", format!("is {first}, but the first block is 0")),
        };
    };
    if zone.cylinders.0 <= before.cylinders.1 {
        let (first, last) = (zone.cylinders.0, before.cylinders.1);
        return z
            .wrong("first_cyl", format!("is {first}, but the zone before ends at {last}: zones overlap"));
    }
    if zone.bands.is_some() {
        // Such files know first blocks alone; a zone reaches to the next.
        bands::join(before, zone.blocks.0, z)?;
    }
    if zone.blocks.0 != before.blocks.1 + 1 {
        let (first, last) = (zone.blocks.0, before.blocks.1);
        return z.wrong("first_lbn", format!("is {first}, but the zone before ends with block {last}"));
    }
    Ok(())
}

/// What a zone needs to know of its drive.
#[derive(Clone, Copy)]
struct Drive {
    surfaces: u32,
    cylinders: u32,
    order: HeadOrder,
    scheme: Sparing,
}

#[derive(Clone, Copy)]
struct Sparing {
    kind: u64,
    range: u64,
}

impl Sparing {
    /// Tracks of a sparing range in a zone of `tracks`, and whether the spares come first.
    fn range_tracks(self, surfaces: u64, tracks: u64) -> (u64, bool) {
        let range = self.range.max(1);
        let (range_tracks, front) = match self.kind {
            2 | 4 => (surfaces, false),
            3 => (1, false),
            5 | 6 => (surfaces, true),
            8 => (range * surfaces, false),
            _ => (tracks, false),
        };
        (range_tracks.min(tracks), front)
    }
    /// Whether each range has spares (otherwise only the disk's end does).
    fn has_spares(self) -> bool {
        !matches!(self.kind, 0 | 7)
    }
    /// Sectors that are spared and slipped together: whole tracks, or each by itself.
    fn unit(self, per_track: u32) -> u64 {
        if self.kind == 1 { u64::from(per_track) } else { 1 }
    }
    /// Whether a slipped sector also turns the tracks behind its range on by one sector.
    fn slips_turn(self) -> bool {
        matches!(self.kind, 2..=6)
    }
}

fn zone(z: &Reader<'_>, drive: Drive, known: &[LbnVector]) -> Read<Zone> {
    let Drive { surfaces, cylinders, scheme: sparing, .. } = drive;
    let first = z.integer("first_cyl", 0, u64::from(cylinders) - 1)? as u32;
    let last = z.integer("last_cyl", 0, u64::from(cylinders) - 1)? as u32;
    if last < first {
        return z.wrong("last_cyl", format!("is {last}, before first_cyl {first}"));
    }
    let per_track = z.integer("sectors_per_track", 1, 1 << 16)? as u32;
    let first_lbn = z.integer("first_lbn", 0, 1 << 40)?;
    let last_lbn = z.integer("last_lbn", 0, 1 << 40)?;
    if last_lbn < first_lbn {
        return z.wrong("last_lbn", format!("is {last_lbn}, before first_lbn {first_lbn}"));
    }
    let tracks = u64::from(last - first + 1) * u64::from(surfaces);
    let (range_tracks, spares_first) = sparing.range_tracks(u64::from(surfaces), tracks);
    let range_sectors = range_tracks * u64::from(per_track);
    let spares = z.integer_or("spare_sectors_per_sparing_range", 0, 1 << 32, 0)?;
    let unit = sparing.unit(per_track);
    let spares = if sparing.has_spares() { spares * unit } else { 0 };
    if spares >= range_sectors {
        let what = format!("is {spares}, but a sparing range has {range_sectors} sectors");
        return z.wrong("spare_sectors_per_sparing_range", what);
    }
    let front = z.integer_or("empty_sectors_at_front", 0, 1 << 32, 0)?;
    let skew =
        |key| -> Read<Angle> { Ok(Angle::from_revolutions(z.number_or(key, 0.0)? / f64::from(per_track))) };
    let mut zone = Zone {
        cylinders: (first, last),
        per_track,
        blocks: (first_lbn, last_lbn),
        bands: None,
        range_sectors,
        range_blocks: range_sectors - spares,
        front,
        range_front: if spares_first { spares } else { 0 },
        slips: Vec::new(),
        slips_turn: sparing.slips_turn(),
        origin: skew("offset_of_first_block")?,
        sector_angle: Angle::fraction(1, u64::from(per_track)),
        track_skew: skew("track_skew_sectors")?,
        cylinder_skew: skew("cyl_skew_sectors")?,
    };
    let blocks = last_lbn - first_lbn + 1;
    let sectors = tracks * u64::from(per_track);
    if zone.sector_of(blocks - 1) >= sectors {
        let what =
            format!("claims {blocks} blocks, but its {tracks} tracks hold {}", zone.blocks_before(sectors));
        return z.wrong("last_lbn", what);
    }
    zone.slips = slips(z, &zone, sectors, blocks, known, drive)?;
    Ok(zone)
}

/// `slips` lists slipped sectors by their place in the zone. Where only their number is known
/// (`slipped_sectors`), the file's own `test_vectors` pin down some of them: a block found k sectors further than
/// the rest of the geometry says has k slips before it in its range. Those are spread evenly between such
/// places, and what is left over the rest of the zone: the expected place of each block is then right.
fn slips(
    z: &Reader<'_>,
    zone: &Zone,
    sectors: u64,
    blocks: u64,
    known: &[LbnVector],
    drive: Drive,
) -> Read<Vec<u64>> {
    let unit = drive.scheme.unit(zone.per_track);
    let mut places: Vec<u64> = Vec::new();
    if z.get("slips").is_some() {
        for (i, item) in z.array("slips")?.iter().enumerate() {
            match item
                .as_u64()
                .filter(|s| *s < sectors / unit && places.last().is_none_or(|before| before < s))
            {
                Some(s) => places.push(s),
                None => {
                    return z.wrong(
                        &format!("slips[{i}]"),
                        format!("{item} is not a sector (or track) of the zone, rising"),
                    );
                }
            }
        }
    } else {
        let count = z.integer_or("slipped_sectors", 0, sectors / unit, 0)?;
        places = spread_slips(zone, sectors / unit, count, known, drive);
    }
    // A slipped track is all its sectors.
    let places = places.into_iter().flat_map(|place| place * unit..(place + 1) * unit);
    // The k-th slip of a range moves the block that would lie on its sector, which k slips before moved already.
    let mut moved = Vec::new();
    let (mut range, mut k) = (u64::MAX, 0);
    let spares = zone.range_sectors - zone.range_blocks;
    for place in places {
        if place / zone.range_sectors != range {
            (range, k) = (place / zone.range_sectors, 0);
        }
        let within = (place % zone.range_sectors).saturating_sub(zone.range_front + k);
        if within < zone.range_blocks && k == spares && zone.range_sectors < sectors {
            // Its blocks would lie on those of the next range. Of a number alone, as many are left out.
            if z.get("slips").is_some() {
                let what = format!("slip {} sectors of a sparing range of {spares} spare ones", k + 1);
                return z.wrong("slips", what);
            }
        } else if within < zone.range_blocks {
            moved.push(range * zone.range_blocks + within);
            k += 1;
        }
    }
    let slipped = Zone { slips: moved, ..zone.clone() };
    if slipped.sector_of(blocks - 1) >= sectors {
        let key = z.path("slipped_sectors");
        return Err(FactsError::new(
            key,
            format!("{} slips leave no room for {blocks} blocks", slipped.slips.len()),
        ));
    }
    Ok(slipped.slips)
}

/// `count` slipped sectors (or tracks) among `total`, placed by what is known.
fn spread_slips(zone: &Zone, total: u64, count: u64, known: &[LbnVector], drive: Drive) -> Vec<u64> {
    let unit = drive.scheme.unit(zone.per_track);
    let range_units = zone.range_sectors / unit;
    let mut places = Vec::new();
    // Where the last known block of the range was, and how many slips lay before it.
    let (mut at, mut before, mut range) = (0, 0, 0);
    for v in known.iter().filter(|v| (zone.blocks.0..=zone.blocks.1).contains(&v.lbn)) {
        let unslipped = zone.sector_of(v.lbn - zone.blocks.0);
        let Some(c) = v.cylinder.checked_sub(zone.cylinders.0) else { continue };
        let Some(k) = drive.order.surface(c, v.cylinder, v.head, drive.surfaces) else { continue };
        let track = u64::from(c) * u64::from(drive.surfaces) + u64::from(k);
        let sector = track * u64::from(zone.per_track) + u64::from(v.sector);
        if unslipped / zone.range_sectors != range {
            (range, before) = (unslipped / zone.range_sectors, 0);
            at = range * range_units;
        }
        let Some(shift) = sector.checked_sub(unslipped).map(|s| s / unit) else { continue };
        let place = sector / unit;
        if shift > before && place > at && shift - before <= count.saturating_sub(places.len() as u64) {
            places.extend(evenly(at, place, shift - before));
            before = shift;
        }
        at = place.max(at);
    }
    let left = count.saturating_sub(places.len() as u64);
    if left > 0 && at + 1 < total {
        // Behind the last known block, or behind its range where the slips of a range stay in it.
        let from = if range_units < total { (range + 1) * range_units } else { at + 1 };
        if from < total {
            places.extend(evenly(from, total, left));
        }
    }
    places.dedup();
    places
}
