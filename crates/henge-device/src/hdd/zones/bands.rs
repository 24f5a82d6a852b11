//! Drives whose surfaces differ in density, laid out in bands.
//!
//! A band is [`BAND`] cylinders wide. Its blocks fill all its tracks of one surface, then the tracks of the next surface
//! in the opposite direction. Each move to the next track of a surface, and each change of the surface, turns
//! the first sector by the skew that the file gives as a share of a revolution.
//!
//! Files that describe such drives (`sectors_per_track_by_surface`) know the border of a zone to about a cylinder, leave
//! single odd tracks out, and do not say which way a band begins. What they leave open is taken from their own
//! `test_vectors`, places of blocks that are known:
//! - the [`Course`]: of the four that a band can take, the one that most of them agree with (without any: surfaces
//!   upwards and downwards in turn, each band beginning at its inner edge, as the Atlas 10K V does);
//! - sectors without a block, slipped or on odd tracks: as many as a known block lies further than counting alone says;
//! - how far the skews have drifted: they are means over a whole drive, and a zone has 40,000 tracks.
//!
//! Between two known places both are spread evenly. So a block lies on its track, or a few sectors off where the
//! nearest known places are far.
//!
//! Example: two surfaces of 10 sectors, bands of 32 cylinders. Block 0 lies on cylinder 31 of surface 0, block 10 on
//! cylinder 30; block 320 on cylinder 0 of surface 1, block 640 on cylinder 63 of surface 1.

use super::{LbnVector, PhysicalAddress, Zone};
use crate::hdd::clock::Angle;
use crate::hdd::reader::{Read, Reader};

/// Cylinders of a band.
const BAND: u64 = 32;

/// Which way a band is filled.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// Every other band counts its surfaces downwards.
    surfaces_turn: bool,
    /// The first surface of a band begins at the band's inner edge, its last cylinder.
    from_inner: bool,
}

/// The likeliest first: it wins a draw.
const COURSES: [Course; 4] = [
    Course { surfaces_turn: true, from_inner: true },
    Course { surfaces_turn: true, from_inner: false },
    Course { surfaces_turn: false, from_inner: true },
    Course { surfaces_turn: false, from_inner: false },
];

/// What a zone in bands knows more than others.
#[derive(Clone, Debug)]
pub(super) struct Bands {
    /// Sectors of a track on each surface.
    by_surface: Vec<u32>,
    course: Course,
    /// Tracks in order of blocks, and how far each is turned beyond what skews say; ascending.
    turned: Vec<(u64, Angle)>,
}

/// One track of a zone.
struct Track {
    /// Its place in the order of blocks.
    number: u64,
    /// Its first sector, counted over the zone.
    first: u64,
    cylinder: u32,
    head: u32,
    per_track: u32,
    /// What the skews on the way to it add up to.
    skew: Angle,
}

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
    let sectors = (u64::from(last - first + 1) + BORDER) * row;
    Ok(Zone {
        cylinders: (first, last),
        per_track: (row / u64::from(surfaces)) as u32,
        blocks: (first_lbn, first_lbn),
        bands: Some(Bands { by_surface, course: COURSES[0], turned: Vec::new() }),
        range_sectors: sectors,
        range_blocks: sectors,
        front: 0,
        range_front: 0,
        slips: Vec::new(),
        slips_turn: false,
        origin: Angle::default(),
        sector_angle: Angle::default(),
        track_skew: skew("skew_same_surface_next_track_rev")?,
        cylinder_skew: skew("skew_surface_change_rev")?,
    })
}

/// Cylinders by which the border of a zone may be off.
const BORDER: u64 = 2;

impl Bands {
    /// Sectors of one cylinder.
    fn row(&self) -> u64 {
        self.by_surface.iter().map(|n| u64::from(*n)).sum()
    }
    /// Which surface is the `k`-th of a band.
    fn surface(&self, band: u64, k: usize) -> usize {
        let down = self.course.surfaces_turn && band % 2 == 1;
        if down { self.by_surface.len() - 1 - k } else { k }
    }
    /// Whether the `k`-th surface of a band is filled inwards, from lower cylinders to higher ones.
    fn inwards(&self, k: usize) -> bool {
        k.is_multiple_of(2) != self.course.from_inner
    }
}

/// The width of `band`: the zone's last one is narrower, or wider where the border is off.
fn width(zone: &Zone, band: u64) -> u64 {
    let cylinders = zone.range_sectors / bands(zone).row();
    let exact = u64::from(zone.cylinders.1 - zone.cylinders.0 + 1);
    match exact.saturating_sub(band * BAND) {
        0 => cylinders.saturating_sub(band * BAND).clamp(1, BAND),
        left => left.min(BAND),
    }
}

fn bands(zone: &Zone) -> &Bands {
    zone.bands.as_ref().expect("only called for zones in bands")
}

/// The track that sector `at` of the zone lies on.
fn track(zone: &Zone, at: u64) -> Track {
    let b = bands(zone);
    let (row, surfaces) = (b.row(), b.by_surface.len() as u64);
    let (band, mut within) = (at / (row * BAND), at % (row * BAND));
    let width = width(zone, band);
    let (mut k, mut per_track) = (0, u64::from(b.by_surface[b.surface(band, 0)]));
    while within >= per_track * width && k + 1 < b.by_surface.len() {
        within -= per_track * width;
        k += 1;
        per_track = u64::from(b.by_surface[b.surface(band, k)]);
    }
    let step = within / per_track;
    let across = if b.inwards(k) { step } else { (width - 1).saturating_sub(step) };
    // Tracks passed on the way, and how many of those moves changed the surface.
    let changes = band * surfaces + k as u64;
    let moves = band * surfaces * (BAND - 1) + k as u64 * (width - 1) + step;
    Track {
        number: band * surfaces * BAND + k as u64 * width + step,
        first: at - within % per_track,
        cylinder: zone.cylinders.0 + (band * BAND + across) as u32,
        head: b.surface(band, k) as u32,
        per_track: per_track as u32,
        skew: zone.track_skew.times(moves).plus(zone.cylinder_skew.times(changes)),
    }
}

/// Which sector of the zone a place is, if it is one.
fn sector_at(zone: &Zone, v: &LbnVector) -> Option<u64> {
    let b = bands(zone);
    let across = u64::from(v.cylinder.checked_sub(zone.cylinders.0)?);
    let (band, i) = (across / BAND, across % BAND);
    let width = width(zone, band);
    let k = (0..b.by_surface.len()).find(|k| b.surface(band, *k) == v.head as usize)?;
    if i >= width || b.by_surface[v.head as usize] != v.per_track || v.sector >= v.per_track {
        return None;
    }
    let before: u64 = (0..k).map(|k| u64::from(b.by_surface[b.surface(band, k)]) * width).sum();
    let step = if b.inwards(k) { i } else { width - 1 - i };
    Some(band * BAND * b.row() + before + step * u64::from(v.per_track) + u64::from(v.sector))
}

/// The zone before `next` ends where that begins; it must have the room.
pub(super) fn join(zone: &mut Zone, next: u64, z: &Reader<'_>) -> Read<()> {
    match next.checked_sub(zone.blocks.0) {
        Some(blocks) if blocks > 0 && blocks <= zone.range_sectors => {
            zone.blocks.1 = next - 1;
            Ok(())
        }
        _ => {
            let what = format!(
                "is {next}, but the zone before begins at {} and holds {}",
                zone.blocks.0, zone.range_sectors
            );
            z.wrong("approx_first_lbn", what)
        }
    }
}

/// The last zone reaches to the end of the drive, as far as it has room.
pub(super) fn close(zone: &mut Zone, capacity: u64) {
    zone.blocks.1 = (zone.blocks.0 + zone.range_sectors).min(capacity.max(zone.blocks.0 + 1)) - 1;
}

/// How many sectors further than its number a known block lies: those without a block before it.
fn shift(zone: &Zone, v: &LbnVector) -> Option<u64> {
    let blocks = zone.blocks.1 - zone.blocks.0 + 1;
    let spare = zone.range_sectors + BORDER * bands(zone).row() - blocks;
    sector_at(zone, v)?.checked_sub(v.lbn.checked_sub(zone.blocks.0)?).filter(|shift| *shift <= spare)
}

/// The known places in a zone.
fn within<'a>(zone: &Zone, known: &'a [LbnVector]) -> impl Iterator<Item = &'a LbnVector> + use<'a> {
    let blocks = zone.blocks;
    known.iter().filter(move |v| (blocks.0..=blocks.1).contains(&v.lbn))
}

/// Takes from places that are known, ascending, what the file leaves open.
pub(super) fn settle(zones: &mut [Zone], known: &[LbnVector]) {
    let agree = |course: Course| {
        let placed = zones.iter().map(|zone| {
            let mut zone = zone.clone();
            zone.bands.as_mut().expect("all zones are in bands").course = course;
            within(&zone, known).filter(|v| shift(&zone, v).is_some()).count()
        });
        placed.sum::<usize>()
    };
    // The last of the best, so from behind.
    let course = COURSES.into_iter().rev().max_by_key(|c| agree(*c)).expect("there are four");
    for zone in zones {
        zone.bands.as_mut().expect("all zones are in bands").course = course;
        slip(zone, known);
        turn(zone, known);
    }
}

/// Leaves out as many sectors as known blocks lie further than their number.
fn slip(zone: &mut Zone, known: &[LbnVector]) {
    let mut slips = Vec::new();
    let mut before: Option<(u64, u64)> = None;
    for v in within(zone, known) {
        let Some(shift) = shift(zone, v) else { continue };
        let r = v.lbn - zone.blocks.0;
        match before {
            // Up to the first known block, it is rather the border that is off.
            None if shift <= BORDER * bands(zone).row() => zone.front = shift,
            None => slips.extend(super::evenly(0, r, shift)),
            Some((at, so_far)) if shift >= so_far => {
                slips.extend(super::evenly(at + zone.front, r + zone.front, shift - so_far));
            }
            Some(_) => continue,
        }
        before = Some((r, shift));
    }
    zone.slips = slips;
    // What is left out must not push the last blocks off the zone.
    let blocks = zone.blocks.1 - zone.blocks.0 + 1;
    zone.range_sectors = zone.range_sectors.max(zone.sector_of(blocks - 1) + 1);
    zone.range_blocks = zone.range_sectors;
}

/// Turns the tracks of known blocks to where they begin.
fn turn(zone: &mut Zone, known: &[LbnVector]) {
    let mut turned: Vec<(u64, Angle)> = Vec::new();
    for v in within(zone, known) {
        let address = locate(zone, 0, v.lbn - zone.blocks.0);
        let track = track(zone, zone.sector_of(v.lbn - zone.blocks.0));
        let met = (address.cylinder, address.head, address.sector) == (v.cylinder, v.head, v.sector);
        if met && turned.last().is_none_or(|(number, _)| *number < track.number) {
            turned.push((track.number, Angle::from_revolutions(v.angle).minus(address.angle())));
        }
    }
    zone.bands.as_mut().expect("only called for zones in bands").turned = turned;
}

/// By how much track `number` is turned: evenly between two that are known, the shorter way.
fn turned(known: &[(u64, Angle)], number: u64) -> Angle {
    let next = known.partition_point(|(n, _)| *n < number);
    match (next.checked_sub(1).map(|i| known[i]), known.get(next)) {
        (None, None) => Angle::default(),
        (Some((_, turn)), None) | (None, Some(&(_, turn))) => turn,
        (Some((n0, from)), Some(&(n1, to))) => {
            let way = i128::from(to.minus(from).0 as i64) * i128::from(number - n0) / i128::from(n1 - n0);
            from.plus(Angle(way as i64 as u64))
        }
    }
}

/// Where block `r` of the zone lies.
pub(super) fn locate(zone: &Zone, index: u32, r: u64) -> PhysicalAddress {
    let at = zone.sector_of(r);
    let track = track(zone, at);
    let per_track = u64::from(track.per_track);
    let total = zone.blocks.1 - zone.blocks.0 + 1;
    let first = zone.blocks_before(track.first).min(r);
    let end = zone.blocks_before(track.first + per_track).clamp(r + 1, total);
    PhysicalAddress {
        cylinder: track.cylinder,
        head: track.head,
        sector: (at - track.first) as u32,
        per_track: track.per_track,
        sector_angle: Angle::fraction(1, per_track),
        zone: index,
        track: track.number,
        origin: track.skew.plus(turned(&bands(zone).turned, track.number)),
        left_on_track: (end - r) as u32,
        before_on_track: (r - first) as u32,
    }
}
