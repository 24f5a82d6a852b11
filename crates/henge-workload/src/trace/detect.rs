//! Which format a file has, by its content.
//!
//! Binary formats have a beginning of their own. For text, every line reader is tried on the first 64 KiB, and the one
//! that understands most lines wins, if it understands at least half of what it does not take for comments. Formats that
//! only differ in units (five numbers in a line) are told apart by what the numbers can be.

use super::columns;
use super::format::{Format, Reader};
use super::input::SAMPLE;
use super::state::ANY;
use crate::Record;

/// The text formats, the most particular first: it wins a draw.
const TEXT: [Format; 12] = [
    Format::Iolog,
    Format::Blkparse,
    Format::Blkreplay,
    Format::Dxt,
    Format::Msr,
    Format::Systor,
    Format::Spc,
    Format::Alibaba,
    Format::VscsiCsv,
    Format::Tencent,
    Format::Ssdsim,
    Format::Disksim,
];

/// The format of a file that begins so; `Err` says what was found.
pub(crate) fn recognize(head: &[u8]) -> Result<Format, String> {
    for format in [Format::Henge, Format::Srt] {
        if format.has_magic(head) {
            return Ok(format);
        }
    }
    if head.starts_with(b"\x7fELF") || head.starts_with(b"\x89PNG") || head.starts_with(b"%PDF") {
        return Err("a program, a picture or a document, not a trace".to_owned());
    }
    if head.starts_with(b"fio version ") {
        return Ok(Format::Iolog);
    }
    let best = best_of(&TEXT, head);
    match best {
        Some((Format::Disksim, _)) => Ok(bytes_or_blocks(head)),
        // Five numbers between tabs are Tencent's only if they begin with the seconds of some year since 2001.
        Some((Format::Tencent, _)) if !is_dated(head) => Ok(match best_of(&TEXT[10..], head) {
            Some((Format::Ssdsim, _)) if !is_in_ms(head) => Format::Ssdsim,
            _ => bytes_or_blocks(head),
        }),
        Some((Format::Ssdsim, _)) if is_in_ms(head) => Ok(bytes_or_blocks(head)),
        Some((format, _)) => Ok(format),
        None if Format::Vscsi.has_magic(head) => Ok(Format::Vscsi),
        None => {
            let first = head.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).find(|l| !l.is_empty());
            let first = super::error::excerpt(first.unwrap_or(b""));
            let near = nearest(head).unwrap_or_default();
            let names = Format::names();
            Err(format!("no format that is known fits; it begins \"{first}\". {near}Known: {names}"))
        }
    }
}

/// The format with as many columns as the first line below their names whose reader gets furthest in it, and why no further.
fn nearest(head: &[u8]) -> Option<String> {
    let line = lines(head).find(|l| !l.starts_with(b"#") && !columns::names_columns(l))?;
    let commas = line.split(|b| *b == columns::separator(line)).count();
    let blanks = line.split(|b| b" \t".contains(b)).filter(|f| !f.is_empty()).count();
    let reached = TEXT.into_iter().filter_map(|format| {
        let (names, Reader::Lines(read)) = (format.columns()?, format.reader()) else { return None };
        let by = if names.contains(',') { ',' } else { ' ' };
        let has = if by == ',' { commas } else { blanks };
        let bad = read(&mut format.state(None), &format.units(), line).err()?;
        let at = names.split(by).position(|name| name == bad.field)?;
        (names.split(by).count() == has).then_some((at, format, names, bad))
    });
    // The first of equals, so from behind.
    let (_, format, names, bad) = reached.collect::<Vec<_>>().into_iter().rev().max_by_key(|r| r.0)?;
    let line = super::error::excerpt(line);
    Some(format!(
        "Read as {} ({names}), \"{line}\" has a fault: {} is {}. ",
        format.name(),
        bad.field,
        bad.why
    ))
}

/// The format among these whose reader gets on best, the first of equals.
fn best_of(formats: &[Format], head: &[u8]) -> Option<(Format, Fit)> {
    let mut best: Option<(Format, Fit)> = None;
    for format in formats {
        let fit = fit(*format, head);
        if fit.records > 0 && fit.records >= fit.damaged && best.is_none_or(|(_, b)| fit.better(&b)) {
            best = Some((*format, fit));
        }
    }
    best
}

/// Whole times are taken for SSDSim's ns down to this mean distance, a million requests a second. In ms it is one request a second.
const NS_PER_REQUEST_LEAST: u64 = 1000;

/// Whether five columns that could be SSDSim's have milliseconds. SSDSim's times are whole. DiskSim reads any number, so `2` is `2.0` to it.
fn is_in_ms(head: &[u8]) -> bool {
    if has_points(head) {
        return true;
    }
    let times: Vec<u64> = sample(Format::Ssdsim, head).iter().map(|r| r.at.as_nanos()).collect();
    let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else { return false };
    // Times that are all equal say nothing of their unit.
    (1..NS_PER_REQUEST_LEAST * (times.len() as u64 - 1)).contains(&(last - first))
}

/// Whether there are fractions.
fn has_points(head: &[u8]) -> bool {
    lines(head).any(|l| l.contains(&b'.'))
}

/// Whether the first numbers of the lines are whole seconds since 1970, from 2001 on; or there are commas, which none
/// of the formats has that could be meant instead.
fn is_dated(head: &[u8]) -> bool {
    lines(head).any(|l| l.contains(&b',') || l.contains(&b';'))
        || sample(Format::Tencent, head).iter().all(|r| r.at.as_nanos() >= 1_000_000_000 * 1_000_000_000)
}

/// How well a reader gets on with a file's beginning.
#[derive(Clone, Copy)]
struct Fit {
    records: u32,
    damaged: u32,
}

impl Fit {
    fn better(&self, other: &Fit) -> bool {
        (self.records, other.damaged) > (other.records, self.damaged)
    }
}

fn fit(format: Format, head: &[u8]) -> Fit {
    let mut fit = Fit { records: 0, damaged: 0 };
    let Reader::Lines(read) = format.reader() else { return fit };
    let (mut state, units) = (format.state(Some(ANY)), format.units());
    for line in lines(head) {
        match read(&mut state, &units, line) {
            Ok(None) => {}
            Ok(Some(_)) => {
                state.records += 1;
                fit.records += 1;
            }
            Err(_) => fit.damaged += 1,
        }
    }
    fit
}

/// The whole lines of a sample; of a sample of one line, that.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let head = &head[..head.len().min(SAMPLE)];
    let whole = match memchr::memrchr(b'\n', head) {
        Some(end) if head.len() == SAMPLE => &head[..end],
        _ => head,
    };
    whole.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l)).filter(|l| !l.is_empty())
}

fn sample(format: Format, head: &[u8]) -> Vec<Record> {
    let Reader::Lines(read) = format.reader() else { return Vec::new() };
    let (mut state, units) = (format.state(None), format.units());
    lines(head).filter_map(|line| read(&mut state, &units, line).ok().flatten()).collect()
}

/// Five columns with decimal milliseconds: sizes and offsets that are all multiples of 512 are bytes, else blocks.
fn bytes_or_blocks(head: &[u8]) -> Format {
    // The replayer's units are 1, so that these are the numbers as they stand.
    let records = sample(Format::Replayer, head);
    let bytes = records.iter().all(|r| r.len.is_multiple_of(512) && r.offset.is_multiple_of(512));
    if bytes { Format::Replayer } else { Format::Disksim }
}

/// Whether the size column of a block format is better read as pages of 4 KiB: requests then follow on one another.
pub(crate) fn sizes_look_like_pages(format: Format, head: &[u8]) -> bool {
    if format != Format::Disksim {
        return false;
    }
    let records = sample(Format::Disksim, head);
    // Each request against the 32 before it: does it begin where one ended, with sizes as they are, or eightfold?
    let (mut blocks, mut pages) = (0, 0);
    for (i, r) in records.iter().enumerate() {
        let before = &records[i.saturating_sub(32)..i];
        blocks += u32::from(before.iter().any(|b| b.end() == r.offset));
        pages +=
            u32::from(before.iter().any(|b| b.offset.saturating_add(b.len.saturating_mul(8)) == r.offset));
    }
    let small = records.iter().all(|r| r.len <= 256 * 512);
    small && pages > 8 && pages > blocks
}

/// What a line looks like when it is not what was named, for the end of a message.
pub(crate) fn hint(named: Format, line: &str) -> String {
    match recognize(line.as_bytes()) {
        Ok(format) if format != named => format!("; it looks like {}", format.name()),
        _ => String::new(),
    }
}
