//! Running lists of requests against a drive: how a model is held against a measurement.
//!
//! A list is CSV with a header; columns are found by name: `rw` (R or W), `lbn`, `sectors`, and, where the mode
//! needs them, `issue_ms` or `think_before_ms`. Three ways to run one:
//!
//! - *closed*: each request is issued when the one before is answered, plus its think time if the list has one;
//! - *drain*: each is issued when the drive has nothing left to do;
//! - *open*: each is issued at its `issue_ms`, and waits in the host's queue.
//!
//! [`demerit`] is the figure by which distributions are compared: Ruemmler & Wilkes, "An introduction to disk
//! drive modeling", IEEE Computer 27(3), 1994: the root mean square of the horizontal distance between the two.

use crate::Hdd;
use henge_core::{Backend, Duration, FlowId, Instant, Op, Request, RequestId};

/// One line of a list.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Row {
    /// A write.
    pub write: bool,
    /// First block.
    pub lbn: u64,
    /// How many.
    pub sectors: u64,
    /// When it was issued.
    pub issue: Option<Instant>,
    /// How long after the answer before it.
    pub think: Option<Duration>,
    /// What the reference says it took: `service_ms` or `disksim_service_ms`.
    pub reference: Option<Duration>,
    /// What a real drive took: `real_drive_ms`.
    pub real: Option<Duration>,
}

/// Which column means what.
#[derive(Clone, Debug)]
pub struct Columns {
    rw: usize,
    lbn: usize,
    sectors: usize,
    issue: Option<usize>,
    think: Option<usize>,
    reference: Option<usize>,
    real: Option<usize>,
}

impl Columns {
    /// From the first line.
    pub fn parse(header: &str) -> Result<Columns, String> {
        let names: Vec<&str> = header.trim().split(',').map(str::trim).collect();
        let find = |name: &str| names.iter().position(|n| *n == name);
        let need = |name: &str| find(name).ok_or_else(|| format!("line 1: there is no column \"{name}\""));
        Ok(Columns {
            rw: need("rw")?,
            lbn: need("lbn")?,
            sectors: need("sectors")?,
            issue: find("issue_ms"),
            think: find("think_before_ms"),
            reference: find("service_ms").or_else(|| find("disksim_service_ms")),
            real: find("real_drive_ms"),
        })
    }

    /// One further line; `number` is its number in the file.
    pub fn row(&self, line: &str, number: usize) -> Result<Row, String> {
        let fields: Vec<&str> = line.trim().split(',').collect();
        let field = |index: usize| {
            fields
                .get(index)
                .map(|f| f.trim())
                .ok_or_else(|| format!("line {number}: column {} is missing", index + 1))
        };
        let whole = |index: usize| {
            let text = field(index)?;
            text.parse::<u64>().map_err(|_| format!("line {number}: \"{text}\" is not a whole number"))
        };
        let ms = |index: Option<usize>| -> Result<Option<Duration>, String> {
            let Some(index) = index else { return Ok(None) };
            let text = field(index)?;
            match text.parse::<f64>() {
                Ok(ms) if (0.0..1e12).contains(&ms) => Ok(Some(Duration::from_secs_f64(ms / 1e3))),
                _ => Err(format!("line {number}: \"{text}\" is not a time in ms")),
            }
        };
        let write = match field(self.rw)? {
            "R" | "r" => false,
            "W" | "w" => true,
            other => return Err(format!("line {number}: \"{other}\" is neither R nor W")),
        };
        let (lbn, sectors) = (whole(self.lbn)?, whole(self.sectors)?);
        if sectors == 0 {
            return Err(format!("line {number}: a request of no sectors"));
        }
        Ok(Row {
            write,
            lbn,
            sectors,
            issue: ms(self.issue)?.map(|d| Instant::ZERO + d),
            think: ms(self.think)?,
            reference: ms(self.reference)?,
            real: ms(self.real)?,
        })
    }
}

/// A whole list; every line is checked against a drive of `capacity` sectors.
pub fn parse(text: &str, capacity: u64) -> Result<Vec<Row>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let (_, header) = lines.next().ok_or("the list is empty; it needs a header line")?;
    let columns = Columns::parse(header)?;
    let row = |(i, line): (usize, &str)| {
        let row = columns.row(line, i + 1)?;
        match row.lbn.checked_add(row.sectors) {
            Some(end) if end <= capacity => Ok(row),
            _ => Err(format!("line {}: block {} is beyond the drive's {capacity}", i + 1, row.lbn)),
        }
    };
    lines.map(row).collect()
}

/// When requests are issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When the one before is answered (plus think time).
    Closed,
    /// When the drive has nothing left to do.
    Drain,
    /// At the times in the list.
    Open,
}

impl std::str::FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "closed" => Ok(Mode::Closed),
            "drain" => Ok(Mode::Drain),
            "open" => Ok(Mode::Open),
            _ => Err(format!("\"{text}\" is not a mode; there are closed, drain, open")),
        }
    }
}

/// What became of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Which line of the list, from 0.
    pub index: usize,
    /// When it was issued.
    pub issue: Instant,
    /// When it was answered.
    pub complete: Instant,
}

impl Answer {
    /// From issue to answer.
    pub fn service(&self) -> Duration {
        self.complete.since(self.issue)
    }
}

/// Runs a list; answers come in the order in which they are given.
pub struct Replay<'a> {
    drive: &'a mut Hdd,
    rows: &'a [Row],
    mode: Mode,
    sector: u64,
    next: usize,
    now: Instant,
    issued: Vec<Instant>,
}

impl<'a> Replay<'a> {
    /// Of `rows` on `drive`, which is idle.
    pub fn new(drive: &'a mut Hdd, rows: &'a [Row], mode: Mode) -> Self {
        let sector = drive.sector_bytes();
        Replay { drive, rows, mode, sector, next: 0, now: Instant::ZERO, issued: Vec::new() }
    }

    fn issue_time(&mut self, row: &Row) -> Instant {
        match self.mode {
            Mode::Closed => self.now + row.think.unwrap_or(Duration::ZERO),
            Mode::Drain => self.drive.quiet_at().max(self.now),
            Mode::Open => row.issue.unwrap_or(self.now).max(self.now),
        }
    }

    fn issue(&mut self, row: Row, at: Instant) {
        let index = self.next as u32;
        let id = RequestId { slot: index, generation: 0 };
        let op = if row.write { Op::Write } else { Op::Read };
        let request = Request::new(id, FlowId(0), op, row.lbn * self.sector, row.sectors * self.sector, at);
        self.drive.submit(&request, (), at);
        self.issued.push(at);
        self.next += 1;
    }
}

impl Iterator for Replay<'_> {
    type Item = Answer;

    fn next(&mut self) -> Option<Answer> {
        loop {
            if let Some(done) = self.drive.reap(self.now) {
                let index = done.id.index();
                return Some(Answer { index, issue: self.issued[index], complete: self.now });
            }
            let due = self.drive.wake_at();
            let idle = due.is_none();
            let row = self.rows.get(self.next).copied();
            if let Some(row) = row.filter(|_| idle || self.mode == Mode::Open) {
                let at = self.issue_time(&row);
                if due.is_none_or(|due| at < due) {
                    self.now = at;
                    self.issue(row, at);
                    continue;
                }
            }
            self.now = due?.max(self.now);
        }
    }
}

/// Root mean square of the horizontal distance between two distributions of equal size, in seconds.
/// `None` where they are empty or of different size.
pub fn demerit(a: &[Duration], b: &[Duration]) -> Option<f64> {
    if a.is_empty() || a.len() != b.len() {
        return None;
    }
    let sorted = |list: &[Duration]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list
    };
    let (a, b) = (sorted(a), sorted(b));
    let square = |(x, y): (&Duration, &Duration)| (x.as_secs_f64() - y.as_secs_f64()).powi(2);
    let sum: f64 = a.iter().zip(&b).map(square).sum();
    Some((sum / a.len() as f64).sqrt())
}

/// The mean, in seconds; zero of nothing.
pub fn mean(list: &[Duration]) -> f64 {
    let sum: u128 = list.iter().map(|d| u128::from(d.as_nanos())).sum();
    sum as f64 / 1e9 / list.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demerit_of_a_shift_is_the_shift() {
        let ms = Duration::from_millis;
        let a = [ms(1), ms(5), ms(2)];
        let b = [ms(7), ms(3), ms(4)];
        assert!((demerit(&a, &b).unwrap() - 0.002).abs() < 1e-12);
        assert_eq!(demerit(&a, &b[..2]), None);
    }

    #[test]
    fn bad_lines_are_named() {
        let bad = |text: &str| parse(text, 100).unwrap_err();
        assert!(bad("").contains("empty"));
        assert!(bad("idx,lbn").contains("\"rw\""));
        assert!(bad("rw,lbn,sectors\nR,5,1\nX,5,1").contains("line 3: \"X\""));
        assert!(bad("rw,lbn,sectors\nR,99,2").contains("beyond"));
        assert!(bad("rw,lbn,sectors\nR,99").contains("column 3 is missing"));
        assert!(bad("rw,lbn,sectors,issue_ms\nR,9,1,-2").contains("not a time"));
    }
}
