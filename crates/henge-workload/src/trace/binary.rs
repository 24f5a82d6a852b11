//! Binary formats: vSCSI, HP SRT, and our own.

use super::error::{Bad, bad};
use super::state::{State, Units};
use crate::Record;
use henge_core::{Instant, Op};
use std::io::{self, Write};

/// How our own format begins: a name and a version.
pub(crate) const MAGIC: &[u8] = b"HENGETR\x01";
/// Bytes of a record of our own format.
pub(crate) const OWN_RECORD: usize = 32;
/// In the place of the operation: this is the end, and the offset says how many records came before.
const OWN_END: u8 = 0xff;

fn u16_le(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn u32_le(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}
fn u64_le(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}
fn u32_be(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

/// What one record of our own format says.
pub(crate) enum Own {
    Record(Record),
    End(u64),
}

/// Our own format: 32 bytes a record, little endian: time (ns), offset, length: u64; device: u32; operation: u8; three
/// zero bytes. Operations: 0 read, 1 write, 2 flush, 3 trim, 4 write zeroes. The last record has operation 255 and the
/// number of records as its offset, so that a truncated file is known.
pub(crate) fn own(bytes: &[u8]) -> Result<Own, Bad> {
    let op = match bytes[28] {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Flush,
        3 => Op::Trim,
        4 => Op::WriteZeroes,
        OWN_END => return Ok(Own::End(u64_le(bytes, 8))),
        _ => return Err(bad("operation", "none of 0 to 4, or 255")),
    };
    Ok(Own::Record(Record {
        at: Instant::from_nanos(u64_le(bytes, 0)),
        device: u32_le(bytes, 24),
        op,
        offset: u64_le(bytes, 8),
        len: u64_le(bytes, 16),
    }))
}

/// Writes our own format.
pub struct OwnWriter<W: Write> {
    out: W,
    records: u64,
}

impl<W: Write> OwnWriter<W> {
    /// Begins a trace.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(OwnWriter { out, records: 0 })
    }
    /// Adds a record.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let op = match record.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush => 2,
            Op::Trim => 3,
            Op::WriteZeroes => 4,
        };
        self.records += 1;
        self.put(record.at.as_nanos(), record.offset, record.len, record.device, op)
    }
    /// Ends the trace; without this it reads as truncated.
    pub fn finish(mut self) -> io::Result<W> {
        self.put(0, self.records, 0, 0, OWN_END)?;
        self.out.flush()?;
        Ok(self.out)
    }
    fn put(&mut self, at: u64, offset: u64, len: u64, device: u32, op: u8) -> io::Result<()> {
        let mut bytes = [0; OWN_RECORD];
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        bytes[8..16].copy_from_slice(&offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        bytes[24..28].copy_from_slice(&device.to_le_bytes());
        bytes[28] = op;
        self.out.write_all(&bytes)
    }
}

/// Where a vSCSI record has its fields, little endian. The last three are in one place in both versions: LBA: u64 (512 bytes) at 16,
/// time: u64 (us) at 24.
///
/// - version 1: serial: u32, bytes: u32, scatter-gather elements: u32, SCSI operation: u16, version: u16;
/// - version 2: SCSI operation: u16, version: u16, serial: u32, bytes: u32, scatter-gather elements: u32; response time: u64 at 32.
#[derive(Clone, Copy)]
pub(crate) struct Vscsi {
    /// Bytes of a record.
    pub size: usize,
    operation: usize,
    bytes: usize,
    version: u16,
}

const VSCSI: [Vscsi; 2] = [
    Vscsi { size: 32, operation: 12, bytes: 4, version: 1 },
    Vscsi { size: 40, operation: 0, bytes: 8, version: 2 },
];

impl Vscsi {
    /// The version's number stands in the high byte, or alone.
    fn is_version(self, b: &[u8]) -> bool {
        let version = u16_le(b, self.operation + 2);
        version == self.version << 8 || version == self.version
    }

    fn fits(self, b: &[u8]) -> bool {
        self.is_version(b) && u16_le(b, self.operation) <= 0xff && u64_le(b, 16) < 1 << 48
    }

    /// How many of a trace's first records have this version's fields.
    fn fit(self, head: &[u8]) -> usize {
        head.chunks_exact(self.size).take(64).filter(|b| self.fits(b)).count()
    }

    /// The version that most of a trace's first records have.
    pub fn of(head: &[u8]) -> Vscsi {
        if VSCSI[1].fit(head) > VSCSI[0].fit(head) { VSCSI[1] } else { VSCSI[0] }
    }

    /// A record. Commands that move no blocks are no requests.
    pub fn read(self, units: &Units, b: &[u8]) -> Result<Option<Record>, Bad> {
        if !self.is_version(b) {
            return Err(bad("version", "another than that of most of the first records"));
        }
        let op = match u16_le(b, self.operation) {
            0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
            0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
            0x35 | 0x91 => Op::Flush,
            0x42 => Op::Trim,
            0x41 | 0x93 => Op::WriteZeroes,
            code if code < 0x100 => return Ok(None),
            _ => return Err(bad("operation", "no SCSI operation code")),
        };
        let at = u64_le(b, 24).checked_mul(units.time).ok_or(bad("time", "too large a number"))?;
        let offset = u64_le(b, 16).checked_mul(units.offset).ok_or(bad("LBA", "too large a number"))?;
        let bytes = u64::from(u32_le(b, self.bytes));
        let len = bytes.checked_mul(units.size).ok_or(bad("bytes", "too large a number"))?;
        Ok(Some(Record { at: Instant::from_nanos(at), device: 0, op, offset, len }))
    }
}

/// The format has no magic number: the first records must all look like one of its versions.
pub(crate) fn looks_like_vscsi(head: &[u8]) -> bool {
    VSCSI.into_iter().any(|of| match (head.len() / of.size).min(64) {
        0 => false,
        records => of.fit(head) == records,
    })
}

/// Where the text header of an HP SRT trace ends: after a line end and a form feed.
pub(crate) fn srt_header(head: &[u8]) -> Option<usize> {
    if !head.starts_with(b"$$TR_") {
        return None;
    }
    head.windows(2).position(|w| w == b"\n\x0c").map(|at| at + 2)
}

/// The largest SRT record that is believed.
pub(crate) const SRT_RECORD_MAX: usize = 4096;

/// An SRT record's size, from its first word.
pub(crate) fn srt_size(word: &[u8]) -> Result<usize, Bad> {
    let size = u32_be(word, 0) as usize;
    if !(16..=SRT_RECORD_MAX).contains(&size) || !size.is_multiple_of(4) {
        return Err(bad("size", "no size of a record"));
    }
    Ok(size)
}

/// HP SRT, big endian words: size, id (version in the high half, type in the low: 1 is a short I/O record), seconds,
/// microseconds, then by version:
///
/// - 4: start, stop (us after the time stamp), bytes, sector, device, driver, cylinder, flags, …; a sector is 256 bytes;
/// - 7: start, stop, bytes, machine, device, …; word 11 flags, words 16 and 17 the offset in bytes.
///
/// Bit 0 of the flags is a read. Times are seconds since 1970 of the request's own time stamp.
pub(crate) fn srt(state: &mut State, units: &Units, b: &[u8]) -> Result<Option<Record>, Bad> {
    let id = u32_be(b, 4);
    let (version, kind) = (id >> 16, id & 0xffff);
    if kind != 1 {
        return Ok(None);
    }
    let word = |n: usize| u32_be(b, 4 * n);
    let (bytes, device, flags, offset) = match version {
        4 if b.len() >= 48 => {
            let offset =
                u64::from(word(7)).checked_mul(units.offset).ok_or(bad("sector", "too large a number"))?;
            (word(6), word(8), word(11), offset)
        }
        7 if b.len() >= 72 => (word(6), word(8), word(11), u64::from(word(16)) << 32 | u64::from(word(17))),
        4 | 7 => return Err(bad("size", "too short for its version")),
        _ => return Err(bad("version", "neither 4 nor 7")),
    };
    state.version = version;
    let at = u64::from(word(2)) * 1_000_000_000 + u64::from(word(3)) * 1_000;
    let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
    Ok(Some(Record { at: Instant::from_nanos(at), device, op, offset, len: u64::from(bytes) }))
}
