//! Drives whose surfaces differ in density, laid out in bands.
//!
//! A band is [`BAND`] cylinders wide. Its blocks fill all its tracks of one surface, then those of the next surface
//! in the opposite direction. Each move to the next track of a surface, and each change of the surface, turns
//! the first sector by the skew that the file gives as a share of a revolution.
//!
//! Files that describe such drives (`sectors_per_track_by_surface`) know the border of a zone to about a cylinder and
//! leave single odd tracks out, so that the place of a block is right to about a band, not to the sector.

use super::{Place, Zone};
use crate::hdd::clock::Angle;
use crate::hdd::reader::{Read, Reader};

/// Cylinders of a band.
const BAND: u64 = 32;

/// Reads one zone; its last block is set by what follows.
pub(super) fn zone(z: &Reader<'_>, geometry: &Reader<'_>, surfaces: u32, cylinders: u32) -> Read<Zone> {
    const KEY: &str = "sectors_per_track_by_surface";
    let first = z.integer("first_cyl", 0, u64::from(cylinders) - 1)? as u32;
    // The last cylinder of such files is given to about one.
    let last = z.integer("last_cyl", 0, u64::from(cylinders))?.min(u64::from(cylinders) - 1) as u32;
    if last < first {
        return z.wrong("last_cyl", format!("is {last}, before first_cyl {first}"));
    }
    let mut by_surface = Vec::new();
    for (i, item) in z.array(KEY)?.iter().enumerate() {
        match item.as_u64().filter(|n| (1..=1 << 16).contains(n)) {
            Some(n) => by_surface.push(n as u32),
            None => return z.wrong(&format!("{KEY}[{i}]"), format!("{item} is not a number of sectors")),
        }
    }
    if by_surface.len() != surfaces as usize {
        return z.wrong(KEY, format!("has {} numbers, but there are {surfaces} surfaces", by_surface.len()));
    }
    let first_lbn = z.integer("approx_first_lbn", 0, 1 << 40)?;
    let skew = |key| -> Read<Angle> { Ok(Angle::from_revolutions(geometry.number_or(key, 0.0)?)) };
    let row: u64 = by_surface.iter().map(|n| u64::from(*n)).sum();
    Ok(Zone {
        cylinders: (first, last),
        per_track: (row / u64::from(surfaces)) as u32,
        blocks: (first_lbn, first_lbn),
        by_surface,
        range_sectors: 1,
        range_blocks: 1,
        front: 0,
        range_front: 0,
        slips: Vec::new(),
        origin: Angle::default(),
        sector_angle: Angle::default(),
        track_skew: skew("skew_same_surface_next_track_rev")?,
        cylinder_skew: skew("skew_surface_change_rev")?,
    })
}

/// Cylinders by which the border of a zone may be off.
const BORDER: u64 = 2;

/// Sectors of one cylinder.
fn row(zone: &Zone) -> u64 {
    zone.by_surface.iter().map(|n| u64::from(*n)).sum()
}

/// Sectors that a zone can hold.
fn room(zone: &Zone) -> u64 {
    (u64::from(zone.cylinders.1 - zone.cylinders.0 + 1) + BORDER) * row(zone)
}

/// The zone before `next` ends where that begins; it must have the room.
pub(super) fn join(zone: &mut Zone, next: u64, z: &Reader<'_>) -> Read<()> {
    match next.checked_sub(zone.blocks.0) {
        Some(blocks) if blocks > 0 && blocks <= room(zone) => {
            zone.blocks.1 = next - 1;
            Ok(())
        }
        _ => {
            let what = format!(
                "is {next}, but the zone before begins at {} and holds {}",
                zone.blocks.0,
                room(zone)
            );
            z.wrong("approx_first_lbn", what)
        }
    }
}

/// The last zone reaches to the end of the drive, as far as it has room.
pub(super) fn close(zone: &mut Zone, capacity: u64) {
    zone.blocks.1 = (zone.blocks.0 + room(zone)).min(capacity.max(zone.blocks.0 + 1)) - 1;
}

/// Where block `r` of the zone lies.
pub(super) fn locate(zone: &Zone, index: u32, r: u64) -> Place {
    let (row, surfaces) = (row(zone), zone.by_surface.len() as u64);
    let blocks = zone.blocks.1 - zone.blocks.0 + 1;
    let cylinders = u64::from(zone.cylinders.1 - zone.cylinders.0 + 1).max(blocks.div_ceil(row));
    let (band, mut within) = (r / (row * BAND), r % (row * BAND));
    let width = BAND.min(cylinders - band * BAND);
    let mut head = 0;
    while within >= u64::from(zone.by_surface[head]) * width {
        within -= u64::from(zone.by_surface[head]) * width;
        head += 1;
    }
    let per_track = u64::from(zone.by_surface[head]);
    let (step, sector) = (within / per_track, within % per_track);
    let w = if head % 2 == 0 { step } else { width - 1 - step };
    // Tracks passed on the way, and how many of those moves changed the surface.
    let changes = band * surfaces + head as u64;
    let moves = band * surfaces * (BAND - 1) + head as u64 * (width - 1) + step;
    Place {
        cylinder: zone.cylinders.0 + (band * BAND + w) as u32,
        head: head as u32,
        sector: sector as u32,
        per_track: per_track as u32,
        sector_angle: Angle::fraction(1, per_track),
        zone: index,
        origin: zone.track_skew.times(moves).plus(zone.cylinder_skew.times(changes)),
        left_on_track: (per_track - sector).min(blocks - r) as u32,
        before_on_track: sector as u32,
    }
}
