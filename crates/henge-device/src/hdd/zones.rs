//! Where each sector lies: zones, sparing, slipped sectors, skew.
//!
//! A zone's tracks are counted from 0, cylinder by cylinder. Its blocks fill them in order, except that
//! - each *sparing range* (a number of tracks, or the whole zone) ends with spare sectors that hold no block,
//! - a *slipped* sector is skipped, and moves the blocks behind it up to the end of its range by one.
//!
//! On track T, in cylinder c of its zone, sector s starts at the angle
//! `(s + (T - c) * track_skew + c * cylinder_skew) / sectors_per_track` of a revolution, plus the zone's offset:
//! T - c is how often the head was changed on the way.
//!
//! Example: a zone of 2 surfaces, 10 sectors a track, skews 3 and 5. Block 25 lies on track 2, that is
//! cylinder 1, head 0, sector 5, and starts at (5 + 1*3 + 1*5)/10, that is at 0.3 revolutions.
//!
//! Cost: a look-up is a binary search over the zones and, where there are slips, two over those.

use super::clock::Angle;
use super::facts::LbnVector;
use super::reader::{FactsError, Read, Reader};

mod bands;

/// A run of blocks that lie one behind the other on one track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its cylinder.
    pub cylinder: u32,
    /// Its surface.
    pub head: u32,
    /// Where the block lies on the track.
    pub sector: u32,
    /// Sectors of the track.
    pub per_track: u32,
    /// Where the track's sector 0 starts.
    pub origin: Angle,
    /// Turn of one sector.
    pub sector_angle: Angle,
    /// Index of its zone.
    pub zone: u32,
    /// Blocks from this one to the last on the track.
    pub left_on_track: u32,
    /// Blocks on the track before this one.
    pub before_on_track: u32,
}

impl Place {
    /// Where the block starts.
    pub fn angle(&self) -> Angle {
        self.origin.plus(self.sector_angle.times(u64::from(self.sector)))
    }
}

/// How the surfaces of a cylinder are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeadOrder {
    /// Upwards on every cylinder.
    Up,
    /// Alternating, upwards on the first cylinder of each zone.
    AlternatingInZone,
    /// Alternating, upwards on even cylinders.
    AlternatingOnDisk,
}

/// Where every block lies.
#[derive(Clone, Debug)]
pub struct Geometry {
    cylinders: u32,
    surfaces: u32,
    sector_bytes: u32,
    capacity: u64,
    order: HeadOrder,
    zones: Vec<Zone>,
}

/// Cylinders with the same number of sectors per track.
#[derive(Clone, Debug)]
pub struct Zone {
    /// First and last cylinder.
    pub cylinders: (u32, u32),
    /// Sectors of each track.
    pub per_track: u32,
    /// First and last block.
    pub blocks: (u64, u64),
    /// Where the surfaces differ: the sectors of a track on each.
    by_surface: Vec<u32>,
    /// Sectors of a sparing range, and how many of them hold blocks.
    range_sectors: u64,
    range_blocks: u64,
    /// Sectors without a block: at the front of the zone, at the front of each range.
    front: u64,
    range_front: u64,
    /// For each slipped sector, the first block (counted from the zone's first sector) that it moves; ascending.
    slips: Vec<u64>,
    origin: Angle,
    sector_angle: Angle,
    track_skew: Angle,
    cylinder_skew: Angle,
}

impl Zone {
    /// Which sector of the zone holds its block number `r`.
    fn sector_of(&self, r: u64) -> u64 {
        let r = r + self.front;
        let (range, within) = (r / self.range_blocks, r % self.range_blocks);
        let slipped = if self.slips.is_empty() {
            0
        } else {
            let upto = |block| self.slips.partition_point(|s| *s < block);
            (upto(r + 1) - upto(range * self.range_blocks)) as u64
        };
        range * self.range_sectors + self.range_front + within + slipped
    }
    /// How many blocks of the zone lie before sector `sector`: the reverse of `sector_of`.
    fn blocks_before(&self, sector: u64) -> u64 {
        let (range, within) = (sector / self.range_sectors, sector % self.range_sectors);
        let mut blocks =
            range * self.range_blocks + within.saturating_sub(self.range_front).min(self.range_blocks);
        if !self.slips.is_empty() {
            // The slips of this range whose sector lies before; the k-th of them lies k further than its block.
            let base = range * self.range_blocks;
            let first = self.slips.partition_point(|s| *s < base);
            let before = self.slips[first..]
                .iter()
                .enumerate()
                .take_while(|(k, s)| **s - base + *k as u64 + self.range_front < within)
                .count() as u64;
            let reach = within.saturating_sub(self.range_front + before).min(self.range_blocks);
            blocks = base + reach;
        }
        blocks.saturating_sub(self.front)
    }
    /// Bytes per second passing under the head.
    pub fn media_rate(&self, rpm: f64, sector_bytes: u32) -> f64 {
        f64::from(self.per_track) * f64::from(sector_bytes) * rpm / 60.0
    }
}

impl Geometry {
    /// Cylinders of the drive, reserved ones included.
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }
    /// Surfaces that hold data.
    pub fn surfaces(&self) -> u32 {
        self.surfaces
    }
    /// Bytes of a sector.
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }
    /// Blocks that can be addressed.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
    /// The zones, outermost first.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Where block `lbn` lies; `lbn` is below the capacity.
    pub fn locate(&self, lbn: u64) -> Place {
        let index = self.zones.partition_point(|z| z.blocks.1 < lbn);
        let zone = &self.zones[index];
        let r = lbn - zone.blocks.0;
        if !zone.by_surface.is_empty() {
            return bands::locate(zone, index as u32, r);
        }
        let at = zone.sector_of(r);
        let per_track = u64::from(zone.per_track);
        let (track, sector) = (at / per_track, at % per_track);
        let (c, k) = (track / u64::from(self.surfaces), (track % u64::from(self.surfaces)) as u32);
        let cylinder = zone.cylinders.0 + c as u32;
        let turned = match self.order {
            HeadOrder::Up => false,
            HeadOrder::AlternatingInZone => c % 2 == 1,
            HeadOrder::AlternatingOnDisk => cylinder % 2 == 1,
        };
        let total = zone.blocks.1 - zone.blocks.0 + 1;
        let first = zone.blocks_before(track * per_track).min(r);
        let end = zone.blocks_before((track + 1) * per_track).clamp(r + 1, total);
        Place {
            cylinder,
            head: if turned { self.surfaces - 1 - k } else { k },
            sector: sector as u32,
            per_track: zone.per_track,
            sector_angle: zone.sector_angle,
            zone: index as u32,
            origin: zone.origin.plus(zone.track_skew.times(track - c)).plus(zone.cylinder_skew.times(c)),
            left_on_track: (end - r) as u32,
            before_on_track: (r - first) as u32,
        }
    }
}

impl Geometry {
    /// How many sectors pass from the start of block `lbn` to the end of the block `blocks - 1` behind it on the
    /// same track: more than `blocks` where sectors in between were slipped.
    pub fn sectors_passing(&self, place: &Place, lbn: u64, blocks: u32) -> u32 {
        let zone = &self.zones[place.zone as usize];
        if zone.slips.is_empty() {
            return blocks;
        }
        let r = lbn - zone.blocks.0;
        (zone.sector_of(r + u64::from(blocks) - 1) - zone.sector_of(r) + 1) as u32
    }
}

/// Reads `geometry`, and refuses what cannot be. `known` are places of blocks, ascending.
pub(super) fn read(r: &Reader<'_>, known: &[LbnVector]) -> Read<Geometry> {
    let surfaces = r.integer("surfaces", 1, 256)? as u32;
    let cylinders = r.integer("cylinders", 1, 1 << 24)? as u32;
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
            zone(z, surfaces, cylinders, scheme, known)?
        };
        if let Some(before) = zones.last_mut() {
            if zone.cylinders.0 <= before.cylinders.1 {
                let what = format!(
                    "is {}, but the zone before ends at {}: zones overlap",
                    zone.cylinders.0, before.cylinders.1
                );
                return z.wrong("first_cyl", what);
            }
            if !zone.by_surface.is_empty() {
                // Such files know first blocks alone; a zone reaches to the next.
                bands::join(before, zone.blocks.0, z)?;
            }
            if zone.blocks.0 != before.blocks.1 + 1 {
                let what =
                    format!("is {}, but the zone before ends with block {}", zone.blocks.0, before.blocks.1);
                return z.wrong("first_lbn", what);
            }
        } else if zone.blocks.0 != 0 {
            return z.wrong("first_lbn", format!("is {}, but the first block is 0", zone.blocks.0));
        }
        zones.push(zone);
    }
    if let Some(last) = zones.last_mut().filter(|z| !z.by_surface.is_empty()) {
        bands::close(last, capacity);
    }
    let mapped = zones.last().map_or(0, |z| z.blocks.1 + 1);
    if capacity > mapped {
        return r.wrong("capacity_sectors", format!("is {capacity}, but the zones hold {mapped} blocks"));
    }
    Ok(Geometry { cylinders, surfaces, sector_bytes, capacity, order, zones })
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
}

fn zone(z: &Reader<'_>, surfaces: u32, cylinders: u32, sparing: Sparing, known: &[LbnVector]) -> Read<Zone> {
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
    let spares = if sparing.has_spares() { spares } else { 0 };
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
        by_surface: Vec::new(),
        range_sectors,
        range_blocks: range_sectors - spares,
        front,
        range_front: if spares_first { spares } else { 0 },
        slips: Vec::new(),
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
    zone.slips = slips(z, &zone, sectors, blocks, known, surfaces)?;
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
    surfaces: u32,
) -> Read<Vec<u64>> {
    let mut places: Vec<u64> = Vec::new();
    if z.get("slips").is_some() {
        for (i, item) in z.array("slips")?.iter().enumerate() {
            match item.as_u64().filter(|s| *s < sectors && places.last().is_none_or(|before| before < s)) {
                Some(s) => places.push(s),
                None => {
                    return z.wrong(
                        &format!("slips[{i}]"),
                        format!("{item} is not a sector of the zone, rising"),
                    );
                }
            }
        }
    } else {
        let count = z.integer_or("slipped_sectors", 0, sectors, 0)?;
        places = spread_slips(zone, sectors, count, known, surfaces);
    }
    // The k-th slip of a range moves the block that would lie on its sector, which k slips before moved already.
    let mut moved = Vec::with_capacity(places.len());
    let (mut range, mut k) = (u64::MAX, 0);
    for place in places {
        if place / zone.range_sectors != range {
            (range, k) = (place / zone.range_sectors, 0);
        }
        let within = (place % zone.range_sectors).saturating_sub(zone.range_front + k);
        if within < zone.range_blocks {
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

/// `count` slipped sectors, placed by what is known.
fn spread_slips(zone: &Zone, sectors: u64, count: u64, known: &[LbnVector], surfaces: u32) -> Vec<u64> {
    let mut places = Vec::new();
    // Where the last known block of the range was, and how many slips lay before it.
    let (mut at, mut before, mut range) = (0, 0, 0);
    let even = |from: u64, to: u64, n: u64| (0..n).map(move |i| from + (2 * i + 1) * (to - from) / (2 * n));
    for v in known.iter().filter(|v| (zone.blocks.0..=zone.blocks.1).contains(&v.lbn)) {
        let r = v.lbn - zone.blocks.0;
        let unslipped = zone.sector_of(r);
        let track = u64::from(v.cylinder - zone.cylinders.0) * u64::from(surfaces) + u64::from(v.head);
        let sector = track * u64::from(zone.per_track) + u64::from(v.sector);
        if unslipped / zone.range_sectors != range {
            (range, before) = (unslipped / zone.range_sectors, 0);
            at = range * zone.range_sectors;
        }
        let Some(shift) = sector.checked_sub(unslipped) else { continue };
        if shift > before && sector > at && shift - before <= count.saturating_sub(places.len() as u64) {
            places.extend(even(at, sector, shift - before));
            before = shift;
        }
        at = sector.max(at);
    }
    let left = count.saturating_sub(places.len() as u64);
    if left > 0 && at + 1 < sectors {
        // Behind the last known block, or behind its range where the slips of a range stay in it.
        let from = if zone.range_sectors < sectors { (range + 1) * zone.range_sectors } else { at + 1 };
        if from < sectors {
            places.extend(even(from, sectors, left));
        }
    }
    places.dedup();
    places
}
