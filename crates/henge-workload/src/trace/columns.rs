//! Formats with one request per line and fixed columns. Each reader is a function from a line to a record.
//!
//! A reader answers `Ok(None)` for what is no request by the format's own rules (blank lines, comments, headers).

use super::error::{Bad, bad};
use super::field::{Blanks, Separated, flag, read_or_write, scaled, small, time, whole};
use super::state::{State, Units};
use crate::Record;
use henge_core::{Instant, Op};

type Parsed = Result<Option<Record>, Bad>;

#[inline]
fn record(at: u64, device: u32, op: Op, offset: u64, len: u64) -> Parsed {
    Ok(Some(Record { at: Instant::from_nanos(at), device, op, offset, len }))
}

/// Blank lines and comments.
#[inline]
fn is_nothing(line: &[u8]) -> bool {
    match line.first() {
        None => true,
        Some(b'#') => true,
        Some(b' ' | b'\t' | b'\r') => line.trim_ascii().is_empty() || line.trim_ascii_start()[0] == b'#',
        _ => false,
    }
}

/// A first line of column names: it begins with a letter, and no request has been read yet.
#[inline]
fn is_header(state: &State, line: &[u8]) -> bool {
    state.records == 0 && names_columns(line)
}

/// Whether a line begins with a name, quoted or not.
pub(super) fn names_columns(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.strip_prefix(b"\"").unwrap_or(line).first().is_some_and(u8::is_ascii_alphabetic)
}

/// The same where a file has hardly ever names of columns: one line at most.
#[inline]
fn is_one_header(state: &mut State, line: &[u8]) -> bool {
    if state.header || !is_header(state, line) {
        return false;
    }
    state.header = true;
    true
}

/// Splits at commas, or at semicolons or tabs, as spreadsheets write them: at those that the first line has most of.
#[inline]
fn csv<'a>(state: &mut State, line: &'a [u8]) -> Separated<'a> {
    if state.separator == 0 {
        state.separator = separator(line);
    }
    Separated::new(line, state.separator)
}

/// What a line has most of; commas win a draw.
pub(super) fn separator(line: &[u8]) -> u8 {
    let count = |by: &u8| line.iter().filter(|b| *b == by).count();
    *b"\t;,".iter().max_by_key(|by| count(by)).expect("there are three")
}

/// `ASU,LBA,Size,Opcode,Timestamp[,…]`: blocks of 512 bytes, bytes, r/w, seconds. Further columns are allowed by the
/// format and not used.
pub(crate) fn spc(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_header(state, line) {
        return Ok(None);
    }
    let mut f = csv(state, line);
    let device = small(f.next(), "ASU")?;
    let offset = scaled(f.next(), units.offset, "LBA")?;
    let len = scaled(f.next(), units.size, "Size")?;
    let op = read_or_write(f.next(), "Opcode")?;
    record(time(f.next(), units.time, "Timestamp")?, device, op, offset, len)
}

/// `time device offset size flags`, blank or tab separated; bit 0 of the flags is a read. DiskSim's ASCII traces (ms,
/// 512-byte blocks) and the replayer's (ms, bytes or blocks) differ in units alone.
pub(crate) fn five(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_one_header(state, line) {
        return Ok(None);
    }
    let mut f = Blanks(line);
    let at = time(f.next(), units.time, "time")?;
    let device = small(f.next(), "device")?;
    let offset = scaled(f.next(), units.offset, "offset")?;
    let len = scaled(f.next(), units.size, "size")?;
    let flags = f.next();
    // DiskSim prints flags in hexadecimal, but only bit 0 matters: the last digit.
    let op = match flags.last() {
        Some(b'0' | b'2' | b'4' | b'6' | b'8' | b'a' | b'A' | b'c' | b'C' | b'e' | b'E') => Op::Write,
        Some(b'1' | b'3' | b'5' | b'7' | b'9' | b'b' | b'B' | b'd' | b'D' | b'f' | b'F') => Op::Read,
        None => return Err(bad("flags", "missing")),
        _ => return Err(bad("flags", "not a number")),
    };
    if !flags.iter().all(u8::is_ascii_hexdigit) || flags.len() > 8 {
        return Err(bad("flags", "not a number"));
    }
    nothing_more(f.next())?;
    record(at, device, op, offset, len)
}

/// `time device LBA sectors op`: SSDSim and MQSim, times whole (ns unless said), op 1 = read.
pub(crate) fn ssdsim(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_one_header(state, line) {
        return Ok(None);
    }
    let mut f = Blanks(line);
    let at = time(f.next(), units.time, "time")?;
    let device = small(f.next(), "device")?;
    let offset = scaled(f.next(), units.offset, "LBA")?;
    let len = scaled(f.next(), units.size, "size")?;
    let op = flag(f.next(), b"1", b"0", "op")?;
    nothing_more(f.next())?;
    record(at, device, op, offset, len)
}

fn nothing_more(field: &[u8]) -> Result<(), Bad> {
    if field.is_empty() { Ok(()) } else { Err(bad("line", "more than five columns")) }
}

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: MSR Cambridge; Windows file time (100 ns), bytes.
pub(crate) fn msr(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_header(state, line) {
        return Ok(None);
    }
    let mut f = csv(state, line);
    let at = time(f.next(), units.time, "Timestamp")?;
    let host = f.next();
    let disk = small(f.next(), "DiskNumber")?;
    let op = read_or_write(f.next(), "Type")?;
    let offset = scaled(f.next(), units.offset, "Offset")?;
    let len = scaled(f.next(), units.size, "Size")?;
    if host.is_empty() {
        return Err(bad("Hostname", "missing"));
    }
    let device = state.device(host, disk)?;
    record(at, device, op, offset, len)
}

/// `Timestamp,Offset,Size,IOType,VolumeID`: Tencent CBS; seconds, sectors, 0 = read.
pub(crate) fn tencent(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_header(state, line) {
        return Ok(None);
    }
    let mut f = csv(state, line);
    let at = time(f.next(), units.time, "Timestamp")?;
    let offset = scaled(f.next(), units.offset, "Offset")?;
    let len = scaled(f.next(), units.size, "Size")?;
    let op = flag(f.next(), b"0", b"1", "IOType")?;
    record(at, small(f.next(), "VolumeID")?, op, offset, len)
}

/// `device_id,opcode,offset,length,timestamp`: Alibaba; R/W, bytes, microseconds.
pub(crate) fn alibaba(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_header(state, line) {
        return Ok(None);
    }
    let mut f = csv(state, line);
    let device = small(f.next(), "device_id")?;
    let op = read_or_write(f.next(), "opcode")?;
    let offset = scaled(f.next(), units.offset, "offset")?;
    let len = scaled(f.next(), units.size, "length")?;
    record(time(f.next(), units.time, "timestamp")?, device, op, offset, len)
}

/// `Timestamp,Response,IOType,LUN,Offset,Size`: Systor '17; seconds, R/W, bytes. Fields may be empty: a response is not
/// needed, an absent LUN is 0, and a line without operation, offset or size is counted, but is no request.
pub(crate) fn systor(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_header(state, line) {
        return Ok(None);
    }
    let mut f = csv(state, line);
    let at = time(f.next(), units.time, "Timestamp")?;
    let response = f.next();
    if !response.is_empty() {
        time(response, units.time, "Response")?;
    }
    let (op, lun, offset, size) = (f.next(), f.next(), f.next(), f.next());
    if f.rest_is_missing() {
        return Err(bad("line", "fewer than six columns"));
    }
    if op.is_empty() || offset.is_empty() || size.is_empty() {
        state.incomplete += 1;
        return Ok(None);
    }
    let op = read_or_write(op, "IOType")?;
    let device = if lun.is_empty() { 0 } else { small(lun, "LUN")? };
    let offset = scaled(offset, units.offset, "Offset")?;
    record(at, device, op, offset, scaled(size, units.size, "Size")?)
}

/// `version,time,op,size,lbn`: vSCSI records as text; seconds, SCSI operation code in hexadecimal, bytes, sectors.
pub(crate) fn vscsi_csv(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    if is_nothing(line) || is_header(state, line) {
        return Ok(None);
    }
    let mut f = csv(state, line);
    whole(f.next(), "version")?;
    let at = time(f.next(), units.time, "time")?;
    let op = match f.next() {
        b"8" | b"08" | b"28" | b"a8" | b"A8" | b"88" => Op::Read,
        b"a" | b"A" | b"0a" | b"0A" | b"2a" | b"2A" | b"aa" | b"AA" | b"8a" | b"8A" => Op::Write,
        b"" => return Err(bad("op", "missing")),
        _ => return Err(bad("op", "no SCSI read or write")),
    };
    let len = scaled(f.next(), units.size, "size")?;
    record(at, 0, op, scaled(f.next(), units.offset, "lbn")?, len)
}
