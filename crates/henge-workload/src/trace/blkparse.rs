//! blkparse text: `maj,min cpu seq time pid action rwbs sector + sectors [process]`.
//!
//! One kind of event counts as a request: Q (arrival, unless said otherwise) or D (sent to the device), say. Events of
//! other kinds and events without a range are no requests, nor are the lines that blkparse prints around the events:
//! the files it reads, and its summary. What is neither is damage.
//!
//! Most lines are printed by one format string, so they are first read in one go ([`head_of`]); a line that deviates is
//! read field by field, which also knows what is wrong with it.

use super::error::{Bad, bad};
use super::events::rwbs;
use super::field::{Blanks, Separated, scaled, small, time, whole};
use super::state::{State, Units};
use crate::Record;
use henge_core::{Instant, Op};

type Parsed = Result<Option<Record>, Bad>;

/// What every event begins with.
struct Head<'a> {
    major: u32,
    minor: u32,
    /// The time stamp as it stands; seconds and nanoseconds of it where it has nine decimals.
    stamp: &'a [u8],
    nanos: Option<u64>,
    action: &'a [u8],
    rest: &'a [u8],
}

pub(crate) fn blkparse(state: &mut State, units: &Units, line: &[u8]) -> Parsed {
    let head = match head_of(line) {
        Some(head) => head,
        None => match fields_of(line)? {
            Some(head) => head,
            None => return Ok(None),
        },
    };
    if head.action.len() != 1 || !state.wants(head.action[0]) {
        return Ok(None);
    }
    let mut f = Blanks(head.rest);
    let kind = f.next();
    let sector = f.next();
    if f.next() != b"+" {
        return Ok(None);
    }
    let Some(op) = rwbs(kind, "rwbs")? else { return Ok(None) };
    let at = match head.nanos {
        Some(nanos) if units.time == 1_000_000_000 => nanos,
        _ => time(head.stamp, units.time, "time")?,
    };
    let offset = scaled(sector, units.offset, "sector")?;
    let len = scaled(f.next(), units.size, "sectors")?;
    if op == Op::Read && kind.contains(&b'A') {
        state.reads_ahead(len);
    }
    if head.minor >= 1 << 20 || head.major >= 1 << 12 {
        return Err(bad("device", "too large a number"));
    }
    Ok(Some(Record { at: Instant::from_nanos(at), device: head.major << 20 | head.minor, op, offset, len }))
}

/// A place in a line.
struct Scan<'a> {
    line: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    #[inline]
    fn blanks(&mut self) {
        while self.line.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
    }
    /// At most `most` digits, at least one, and the blank or `end` behind them.
    #[inline]
    fn number(&mut self, most: usize, end: u8) -> Option<u64> {
        let (from, mut n) = (self.at, 0u64);
        while let Some(digit) = self.line.get(self.at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d <= 9) {
            n = n.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
        let digits = self.at - from;
        let sound = (1..=most).contains(&digits) && self.line.get(self.at) == Some(&end);
        self.at += 1;
        sound.then_some(n)
    }
}

/// The beginning of an event as blkparse prints it.
#[inline]
fn head_of(line: &[u8]) -> Option<Head<'_>> {
    let mut s = Scan { line, at: 0 };
    s.blanks();
    let major = s.number(9, b',')? as u32;
    let minor = s.number(9, b' ')? as u32;
    s.blanks();
    s.number(9, b' ')?;
    s.blanks();
    s.number(18, b' ')?;
    s.blanks();
    let from = s.at;
    let seconds = s.number(9, b'.')?;
    let point = s.at;
    let fraction = s.number(9, b' ')?;
    let decimals = s.at - 1 - point;
    let stamp = &line[from..s.at - 1];
    s.blanks();
    s.number(18, b' ')?;
    s.blanks();
    let action = line.get(s.at..=s.at)?;
    if line.get(s.at + 1) != Some(&b' ') {
        return None;
    }
    let nanos = (decimals == 9).then(|| seconds * 1_000_000_000 + fraction);
    Some(Head { major, minor, stamp, nanos, action, rest: &line[s.at + 2..] })
}

/// The same field by field; `None` for what is no event by the format's own rules.
#[cold]
fn fields_of(line: &[u8]) -> Result<Option<Head<'_>>, Bad> {
    let mut f = Blanks(line);
    let device = f.next();
    if !device.first().is_some_and(u8::is_ascii_digit) {
        return if is_said_around(line) { Ok(None) } else { Err(bad("device", "no event and no summary")) };
    }
    let mut numbers = Separated::new(device, b',');
    let (major, minor) = (small(numbers.next(), "device")?, small(numbers.next(), "device")?);
    small(f.next(), "cpu")?;
    whole(f.next(), "sequence")?;
    let stamp = f.next();
    whole(f.next(), "pid")?;
    let action = f.next();
    if action.is_empty() {
        return Err(bad("action", "missing"));
    }
    Ok(Some(Head { major, minor, stamp, nanos: None, action, rest: f.0 }))
}

/// How the lines begin that blkparse and blktrace print beside events.
const AROUND: &[&str] = &[
    "#",
    "CPU",
    "Total",
    "Throughput",
    "Events",
    "Skips:",
    "Input file",
    "Reads ",
    "Read ",
    "Writes ",
    "Write ",
    "PC Read",
    "PC Write",
    "IO unplugs",
    "Timer unplugs",
    "Allocation wait",
    "Merge wait",
    "Dispatch wait",
    "Completion wait",
    "Device:",
    "===",
    "blkparse",
    "blktrace",
    "Trace started",
    "Unknown",
    "BAD",
];

/// Blank lines, comments, the names of files, the summary by CPU, device and process.
fn is_said_around(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    // A process in the summary: `java (4020)`, `kworker (77, 78)`.
    let process = line.ends_with(b")")
        && line.windows(3).any(|w| w[0] == b' ' && w[1] == b'(' && w[2].is_ascii_digit());
    line.is_empty() || process || AROUND.iter().any(|known| line.starts_with(known.as_bytes()))
}
