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

mod bands;
mod read;

pub(super) use read::read;

/// A run of blocks that lie one behind the other on one track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhysicalAddress {
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
    /// Which track of the zone it is, in the order of blocks.
    pub track: u64,
    /// Blocks from this one to the last on the track.
    pub left_on_track: u32,
    /// Blocks on the track before this one.
    pub before_on_track: u32,
}

impl PhysicalAddress {
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

impl HeadOrder {
    /// The how-manieth of `surfaces` a head is on cylinder `cylinder`, the `c`-th of its zone; and the reverse.
    fn surface(self, c: u32, cylinder: u32, head: u32, surfaces: u32) -> Option<u32> {
        let turned = match self {
            HeadOrder::Up => false,
            HeadOrder::AlternatingInZone => c % 2 == 1,
            HeadOrder::AlternatingOnDisk => cylinder % 2 == 1,
        };
        if turned { (surfaces - 1).checked_sub(head) } else { Some(head) }
    }
}

/// Where one block lies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LbnVector {
    /// The block.
    pub lbn: u64,
    /// Its cylinder.
    pub cylinder: u32,
    /// Its surface.
    pub head: u32,
    /// Its place on the track.
    pub sector: u32,
    /// Sectors of that track.
    pub per_track: u32,
    /// Where it starts, in revolutions.
    pub angle: f64,
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
    /// Where the surfaces differ in density.
    bands: Option<bands::Bands>,
    /// Sectors of a sparing range, and how many of them hold blocks.
    range_sectors: u64,
    range_blocks: u64,
    /// Sectors without a block: at the front of the zone, at the front of each range.
    front: u64,
    range_front: u64,
    /// For each slipped sector, the first block (counted from the zone's first sector) that it moves; ascending.
    slips: Vec<u64>,
    /// Whether they turn the tracks behind their range on.
    slips_turn: bool,
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
            let slips = &self.slips[first..];
            let before =
                count_while(slips.len(), |k| slips[k] - base + k as u64 + self.range_front < within) as u64;
            let reach = within.saturating_sub(self.range_front + before).min(self.range_blocks);
            blocks = base + reach;
        }
        blocks.saturating_sub(self.front)
    }
    /// Where sector 0 of track `track` starts, on the `c`-th cylinder and in sparing range `range`.
    fn origin_of(&self, track: u64, c: u64, range: u64) -> Angle {
        let skewed = self.origin.plus(self.track_skew.times(track - c)).plus(self.cylinder_skew.times(c));
        if !self.slips_turn || self.slips.is_empty() {
            return skewed;
        }
        let before = self.slips.partition_point(|s| *s < range * self.range_blocks);
        skewed.plus(self.sector_angle.times(before as u64))
    }
    /// Bytes per second passing under the head.
    pub fn media_rate(&self, rpm: f64, sector_bytes: u32) -> f64 {
        f64::from(self.per_track) * f64::from(sector_bytes) * rpm / 60.0
    }
}

/// How many of `0..n` come before the first for which `holds` is false; it stays false from there on.
fn count_while(n: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut yes, mut no) = (0, n);
    while yes < no {
        let middle = yes + (no - yes) / 2;
        if holds(middle) { yes = middle + 1 } else { no = middle }
    }
    yes
}

/// `n` places spread evenly over `from..to`.
fn evenly(from: u64, to: u64, n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(move |i| from + (2 * i + 1) * (to - from) / (2 * n))
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
    pub fn locate(&self, lbn: u64) -> PhysicalAddress {
        let index = self.zones.partition_point(|z| z.blocks.1 < lbn);
        let zone = &self.zones[index];
        let r = lbn - zone.blocks.0;
        if zone.bands.is_some() {
            return bands::locate(zone, index as u32, r);
        }
        let at = zone.sector_of(r);
        let per_track = u64::from(zone.per_track);
        let (track, sector) = (at / per_track, at % per_track);
        let (c, k) = (track / u64::from(self.surfaces), (track % u64::from(self.surfaces)) as u32);
        let cylinder = zone.cylinders.0 + c as u32;
        let total = zone.blocks.1 - zone.blocks.0 + 1;
        let first = zone.blocks_before(track * per_track).min(r);
        let end = zone.blocks_before((track + 1) * per_track).clamp(r + 1, total);
        PhysicalAddress {
            cylinder,
            head: self.order.surface(c as u32, cylinder, k, self.surfaces).unwrap_or(k),
            sector: sector as u32,
            per_track: zone.per_track,
            sector_angle: zone.sector_angle,
            zone: index as u32,
            track,
            origin: zone.origin_of(track, c, at / zone.range_sectors),
            left_on_track: (end - r) as u32,
            before_on_track: (r - first) as u32,
        }
    }
}

impl Geometry {
    /// How many sectors pass from the start of block `lbn` to the end of the block `blocks - 1` behind it on the
    /// same track: more than `blocks` where sectors in between were slipped.
    pub fn sectors_passing(&self, address: &PhysicalAddress, lbn: u64, blocks: u32) -> u32 {
        let zone = &self.zones[address.zone as usize];
        if zone.slips.is_empty() {
            return blocks;
        }
        let r = lbn - zone.blocks.0;
        (zone.sector_of(r + u64::from(blocks) - 1) - zone.sector_of(r) + 1) as u32
    }
}

impl Geometry {
    /// Where the block lies that is `blocks` behind block `lbn`, which lies at `address`.
    pub(super) fn after(&self, address: &PhysicalAddress, lbn: u64, blocks: u32) -> PhysicalAddress {
        let to = lbn + u64::from(blocks);
        if blocks >= address.left_on_track || self.slips_between(address.zone, lbn, to) {
            return self.locate(to);
        }
        PhysicalAddress {
            sector: address.sector + blocks,
            left_on_track: address.left_on_track - blocks,
            before_on_track: address.before_on_track + blocks,
            ..*address
        }
    }

    /// Whether a sector was slipped among blocks `from..to` of a zone.
    pub(super) fn slips_between(&self, zone: u32, from: u64, to: u64) -> bool {
        let zone = &self.zones[zone as usize];
        let upto = |lbn: u64| zone.slips.partition_point(|s| *s < lbn - zone.blocks.0 + zone.front);
        !zone.slips.is_empty() && upto(from) != upto(to + 1)
    }

    /// Whether tracks between two blocks of a zone end elsewhere than on a drive without slips: those of a range do from its
    /// first slip on.
    pub(super) fn slips_around(&self, zone: u32, from: u64, to: u64) -> bool {
        let z = &self.zones[zone as usize];
        let tracks = u64::from(z.cylinders.1 - z.cylinders.0 + 1) * u64::from(self.surfaces);
        let ranges = z.range_sectors < tracks * u64::from(z.per_track);
        let behind = if ranges { (from - z.blocks.0 + z.front) % z.range_blocks } else { 0 };
        self.slips_between(zone, from - behind.min(from - z.blocks.0), to)
    }

    /// Whether a zone begins with block `lbn`, and on a sector where no later track would.
    pub(super) fn begins_late(&self, zone: u32, lbn: u64) -> bool {
        let zone = &self.zones[zone as usize];
        zone.front > 0 && zone.blocks.0 == lbn
    }

    /// A drive of one zone alone, made without fault and without end, and after how many tracks (at most `longest`) its
    /// tracks repeat; `None` where they do not.
    pub(super) fn endless(&self, zone: usize, longest: u64) -> Option<(Geometry, u64)> {
        let zone = &self.zones[zone];
        let surfaces = u64::from(self.surfaces);
        let tracks = (u64::from(zone.cylinders.1 - zone.cylinders.0) + 1) * surfaces;
        let range = zone.range_sectors / u64::from(zone.per_track);
        let turned_by_slips = zone.slips_turn && !zone.slips.is_empty();
        if zone.bands.is_some() || turned_by_slips {
            return None;
        }
        // A range that is the whole zone ends where the zone ends.
        let (lap, whole) = if range < tracks { (lcm(range, surfaces), false) } else { (surfaces, true) };
        let mut endless = Zone { slips: Vec::new(), front: 0, ..zone.clone() };
        if whole {
            endless.range_blocks = u64::MAX >> 20;
            endless.range_sectors = u64::MAX >> 20;
        }
        endless.blocks.1 = u64::MAX >> 20;
        let zones = vec![endless];
        (lap <= longest).then_some((Geometry { zones, ..*self }, lap))
    }
}

/// The least number that both divide.
fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
