//! The drive's buffer: its segments, read-ahead, the write cache, and from when on data moves.

use crate::hdd::reader::{Read, Reader};
use serde_json::Value;

/// How far the drive reads on after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Not at all.
    None,
    /// To the end of the track.
    Track,
    /// To the end of the cylinder.
    Cylinder,
    /// Until the segment is full.
    Segment,
    /// One track further, when the stream is sequential.
    TrackAhead,
}

/// The drive's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    /// Whether there is one that remembers.
    pub enabled: bool,
    /// How many segments.
    pub segments: u32,
    /// Sectors of each.
    pub segment_sectors: u32,
    /// What comes after a read.
    pub read_ahead: ReadAhead,
    /// What is kept of writes.
    pub write: WriteCache,
    /// A read may start with whichever of its sectors comes by first.
    pub zero_latency_read: bool,
    /// The same for writes.
    pub zero_latency_write: bool,
    /// The head reads whatever comes by while it waits for a read's first sector.
    pub read_any_free: bool,
    /// From when on data moves between host and buffer.
    pub watermarks: Watermarks,
}

/// Reading on after a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadAhead {
    /// How far.
    pub prefetch: Prefetch,
    /// At least so far behind a request.
    pub min: u32,
    /// And at most so far.
    pub max: u32,
    /// It may take the place of sectors that the host has got.
    pub overwrite_returned: bool,
    /// Once stopped, it goes on when a read hits completely.
    pub restart_on_hit: bool,
    /// A read may wait for it where it is about to fetch the read's first sectors.
    pub almost_hits: bool,
    /// It can be stopped within a sector.
    pub stop_in_sector: bool,
}

/// Written data in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct WriteCache {
    /// How many segments may hold it.
    pub segments: u32,
    /// One segment is for writes alone.
    pub separate_segment: bool,
    /// When a write is acknowledged: 0 on the medium, 1 in the buffer if it appends, 2 in the buffer.
    pub fast_write: u8,
    /// A write that appends to one that waits for the medium joins it.
    pub combine: bool,
    /// Data is fetched from the host while the arm still moves.
    pub prebuffering: bool,
    /// Reads find it.
    pub read_hits: bool,
}

/// A write that its segment does not hold goes on when a share is left in it; a read that missed is sent from when a share is in.
/// Shares of the segment, or of the request where that is smaller.
#[derive(Clone, Copy, Debug)]
pub struct Watermarks {
    /// The share for writes.
    pub low_write: f64,
    /// The share for reads.
    pub high_read: f64,
    /// Whether the shares are of the request, where that is smaller than the segment.
    pub by_request: bool,
}

impl Watermarks {
    /// How many blocks a share of a segment of `size` comes to, for a request of `blocks`; at least one.
    fn mark(&self, share: f64, size: u64, blocks: u64) -> u64 {
        let mark =
            if self.by_request { share * size.min(blocks) as f64 } else { (share * size as f64).ceil() };
        (mark as u64).clamp(1, blocks.max(1))
    }

    fn read(r: &Reader<'_>) -> Read<Self> {
        Ok(Watermarks {
            low_write: share(r, "low_write_watermark")?,
            high_read: share(r, "high_read_watermark")?,
            by_request: r.flag("watermark_by_request_size")?,
        })
    }
}

impl ReadAhead {
    fn read(r: &Reader<'_>) -> Read<Self> {
        let length = |key| r.integer_or(key, 0, 1 << 24, 0).map(|n| n as u32);
        let prefetch = match r.integer_or("prefetch_mode", 0, 4, 0)? {
            0 => Prefetch::None,
            1 => Prefetch::Track,
            2 => Prefetch::Cylinder,
            3 => Prefetch::Segment,
            _ => Prefetch::TrackAhead,
        };
        Ok(ReadAhead {
            prefetch,
            min: length("min_read_ahead_sectors")?,
            max: length("max_read_ahead_sectors")?,
            overwrite_returned: r.flag("read_ahead_may_overwrite_returned_data")?,
            restart_on_hit: r.flag("read_ahead_on_idle_full_hit")?,
            almost_hits: r.flag("almost_read_hits")?,
            stop_in_sector: r.flag("stop_prefetch_in_sector")?,
        })
    }
}

impl WriteCache {
    /// In a buffer of so many segments.
    fn read(r: &Reader<'_>, segments: u32) -> Read<Self> {
        let own = r.integer_or("max_write_segments", 0, 1 << 20, u64::from(segments))? as u32;
        if own > segments {
            return r.wrong("max_write_segments", format!("is {own}, but there are {segments} segments"));
        }
        Ok(WriteCache {
            segments: own,
            separate_segment: r.flag("separate_write_segment")?,
            fast_write: r.integer_or("fast_write_level", 0, 2, 0)? as u8,
            combine: r.flag("combine_sequential_writes")?,
            prebuffering: r.flag("write_prebuffering")?,
            read_hits: r.flag("read_hits_on_write_data")?,
        })
    }
}

impl Cache {
    /// How full a segment must be before the host gets a read of `blocks`.
    pub fn read_mark(&self, blocks: u64) -> u64 {
        self.watermarks.mark(self.watermarks.high_read, self.segment_sectors.into(), blocks)
    }

    /// How little of a write of `blocks` is left in its segment before more is asked for.
    pub fn write_mark(&self, blocks: u64) -> u64 {
        self.watermarks.mark(self.watermarks.low_write, self.segment_sectors.into(), blocks)
    }

    pub(super) fn read(r: &Reader<'_>) -> Read<Self> {
        let small = |key| r.integer(key, 1, 1 << 20).map(|n| n as u32);
        let segments = small("segments")?;
        let write = WriteCache::read(r, segments)?;
        Ok(Cache {
            // Some say 2 of a buffer whose reads also begin before they are all in.
            enabled: r.get("enabled").and_then(Value::as_u64) == Some(2) || r.flag("enabled")?,
            segments,
            segment_sectors: small("segment_sectors")?,
            read_ahead: ReadAhead::read(r)?,
            write,
            zero_latency_read: r.flag("zero_latency_read")?,
            zero_latency_write: r.flag("zero_latency_write")?,
            read_any_free: r.flag("read_any_free_blocks")?,
            watermarks: Watermarks::read(r)?,
        })
    }
}

/// From 0 to 1; absent is 0.
fn share(r: &Reader<'_>, key: &str) -> Read<f64> {
    match r.number_or(key, 0.0)? {
        x if x <= 1.0 => Ok(x),
        x => r.wrong(key, format!("is {x}, not from 0 to 1")),
    }
}
