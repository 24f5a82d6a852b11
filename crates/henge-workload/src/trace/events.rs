//! Formats whose lines are events of several kinds, or belong to what was said above them.

use super::error::{Bad, bad};
use super::field::{Blanks, Separated, read_or_write, scaled, time, whole};
use super::state::{State, Units};
use crate::Record;
use henge_core::{Duration, Instant, Op};

type Parsed = Result<Option<Record>, Bad>;

/// `start ; sector ; length ; op ; replay_delay ; replay_duration` below any text: blkreplay .load; seconds, sectors.
pub(crate) fn blkreplay(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    let line = line.trim_ascii();
    if !state.header && state.records == 0 {
        state.header = line.starts_with(b"start") && line.contains(&b';');
        // Without its header, seconds have a point; else it may be any columns with semicolons.
        let data = line.first().is_some_and(u8::is_ascii_digit)
            && line.iter().filter(|b| **b == b';').count() >= 3
            && line.iter().take_while(|b| **b != b';').any(|b| *b == b'.');
        if state.header || !data {
            return Ok(None);
        }
        state.header = true;
    }
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    let mut f = Separated::new(line, b';');
    let at = time(f.next(), units.time, "start")?;
    let offset = scaled(f.next(), units.offset, "sector")?;
    let len = scaled(f.next(), units.size, "length")?;
    let kind = f.next();
    let Some(op) = rwbs(kind, "op")? else { return Ok(None) };
    if op == Op::Read && kind.contains(&b'A') {
        state.reads_ahead(len);
    }
    Ok(Some(Record { at: Instant::from_nanos(at), device: 0, op, offset, len }))
}

/// The kernel's letters for a request: D discard, R read, W write, with F (flush, FUA), S (synchronous), A (read ahead),
/// M (metadata), B, E around them; N is none of these.
pub(super) fn rwbs(kind: &[u8], field: &'static str) -> Result<Option<Op>, Bad> {
    if kind.is_empty() {
        return Err(bad(field, "missing"));
    }
    if !kind.iter().all(|b| b"RWDFSAMBEN".contains(&b.to_ascii_uppercase())) {
        return Err(bad(field, "no letters of a read, a write or a discard"));
    }
    let has = |letter: u8| kind.iter().any(|b| b.to_ascii_uppercase() == letter);
    Ok(match () {
        () if has(b'D') => Some(Op::Trim),
        () if has(b'R') => Some(Op::Read),
        () if has(b'W') => Some(Op::Write),
        () => None,
    })
}

/// `fio version 2 iolog` or 3: `[time] file action [offset length]`; microseconds, bytes. In version 2, `wait` lines
/// move the clock.
pub(crate) fn iolog(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    let line = line.trim_ascii();
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    if state.version == 0 {
        let version = line.strip_prefix(b"fio version ").and_then(|rest| rest.strip_suffix(b" iolog"));
        state.version = match version {
            Some(b"2") => 2,
            Some(b"3") => 3,
            Some(_) => return Err(bad("version", "neither 2 nor 3")),
            None => return Err(bad("version", "no line \"fio version 2 iolog\" or 3 at the start")),
        };
        return Ok(None);
    }
    let mut f = Blanks(line);
    let at =
        if state.version == 3 { time(f.next(), units.time, "timestamp")? } else { state.clock.as_nanos() };
    let file = f.next();
    let action = f.next();
    let op = match action {
        b"read" => Op::Read,
        b"write" => Op::Write,
        b"trim" => Op::Trim,
        b"sync" | b"datasync" | b"sync_file_range" => Op::Flush,
        b"add" => {
            state.name(file)?;
            return Ok(None);
        }
        b"open" | b"close" => return Ok(None),
        b"wait" => {
            state.clock += Duration::from_nanos(scaled(f.next(), units.time, "wait")?);
            return Ok(None);
        }
        b"" => return Err(bad("action", "missing")),
        _ => return Err(bad("action", "unknown")),
    };
    let device = match state.known(file) {
        Some(device) => device,
        None => state.name(file)?,
    };
    let (offset, len) = if op == Op::Flush {
        (0, 0)
    } else {
        (scaled(f.next(), units.offset, "offset")?, scaled(f.next(), units.size, "length")?)
    };
    Ok(Some(Record { at: Instant::from_nanos(at), device, op, offset, len }))
}

/// `module rank write|read segment offset length start end` below a comment that names the file: Darshan DXT text as
/// darshan-dxt-parser prints it. One module counts: X_POSIX (what reaches the file system) or X_MPIIO.
pub(crate) fn dxt(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    let line = line.trim_ascii();
    if let Some(comment) = line.strip_prefix(b"#") {
        if let Some(id) = comment.trim_ascii_start().strip_prefix(b"DXT, file_id:") {
            let id = Separated::new(id, b',').next();
            state.file = state.name(id)?;
        }
        return Ok(None);
    }
    if line.is_empty() {
        return Ok(None);
    }
    let mut f = Blanks(line);
    let module = f.next();
    if !module.starts_with(b"X_") {
        return Err(bad("module", "does not begin with X_"));
    }
    if !module.get(2).is_some_and(|letter| state.wants(*letter)) {
        return Ok(None);
    }
    let _rank = f.next();
    let op = read_or_write(f.next(), "Wt/Rd")?;
    whole(f.next(), "segment")?;
    let offset = scaled(f.next(), units.offset, "offset")?;
    let len = scaled(f.next(), units.size, "length")?;
    let at = time(f.next(), units.time, "start")?;
    Ok(Some(Record { at: Instant::from_nanos(at), device: state.file, op, offset, len }))
}
