//! A trace sorted by time in bounded memory.
//!
//! Up to [`RUN`] records are sorted at once; a longer trace is written to an unnamed temporary file as sorted runs, which are
//! then merged, each through a small buffer. Records of one time keep their order. Cost: two passes, and 32 bytes of the
//! temporary directory for each record.

use anyhow::{Context, Result, bail};
use henge_core::Instant;
use henge_workload::{Format, OwnWriter, Record, Trace, TraceError, TraceOptions};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Records sorted in memory: 40 MB of them.
const RUN: usize = 1 << 20;
/// Runs that are merged at once; each is read through a buffer of 256 KiB.
const RUNS_MAX: usize = 1024;

/// A part of a file as a reader.
struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let most = buf.len().min((self.end - self.at) as usize);
        let n = self.file.read_at(&mut buf[..most], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The records of `trace` in order of time.
pub fn sorted(trace: &mut Trace) -> Result<Sorted> {
    runs_of(trace, RUN)
}

fn runs_of(trace: &mut impl Iterator<Item = Result<Record, TraceError>>, most: usize) -> Result<Sorted> {
    let mut ends = Vec::new();
    let mut spill: Option<BufWriter<File>> = None;
    let mut run = Vec::new();
    loop {
        run.clear();
        for record in trace.by_ref().take(most) {
            run.push(record?);
        }
        run.sort_by_key(|r: &Record| r.at);
        if spill.is_none() && run.len() < most {
            return Ok(Sorted::Memory(std::mem::take(&mut run).into_iter()));
        }
        if run.is_empty() {
            break;
        }
        if ends.len() == RUNS_MAX {
            bail!("a trace of more than {} requests is too long to be sorted", RUNS_MAX * most);
        }
        let out = match &mut spill {
            Some(out) => out,
            None => {
                let file = tempfile::tempfile().context("no room to sort in the temporary directory")?;
                spill.insert(BufWriter::with_capacity(1 << 18, file))
            }
        };
        ends.push(write_run(out, &run).context("cannot sort in the temporary directory")?);
    }
    let file =
        spill.expect("a run was written").into_inner().context("cannot sort in the temporary directory")?;
    Merge::new(Arc::new(file), &ends).map(Sorted::Merge)
}

/// Writes one run in our own format; says where it ends.
fn write_run(out: &mut BufWriter<File>, run: &[Record]) -> std::io::Result<u64> {
    let mut writer = OwnWriter::new(&mut *out)?;
    for record in run {
        writer.write(record)?;
    }
    writer.finish()?.flush()?;
    out.stream_position()
}

/// Records in order of time.
pub enum Sorted {
    /// All of them fitted.
    Memory(std::vec::IntoIter<Record>),
    /// Runs of them.
    Merge(Merge),
}

impl Iterator for Sorted {
    type Item = Result<Record, TraceError>;
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Sorted::Memory(records) => records.next().map(Ok),
            Sorted::Merge(merge) => merge.next(),
        }
    }
}

/// Sorted runs, merged.
pub struct Merge {
    runs: Vec<Trace>,
    /// The first record of each run that has one, by time; the earlier run first.
    heads: BinaryHeap<Reverse<(Instant, usize)>>,
    records: Vec<Record>,
}

impl Merge {
    fn new(file: Arc<File>, ends: &[u64]) -> Result<Merge> {
        let options = TraceOptions { format: Some(Format::Henge), ..TraceOptions::default() };
        let mut merge = Merge { runs: Vec::new(), heads: BinaryHeap::new(), records: Vec::new() };
        let mut at = 0;
        for end in ends {
            let part = Part { file: file.clone(), at, end: *end };
            merge.runs.push(Trace::open("the temporary file", Box::new(part), &options)?);
            merge.records.push(Record::default());
            merge.advance(merge.runs.len() - 1)?;
            at = *end;
        }
        Ok(merge)
    }

    fn advance(&mut self, run: usize) -> Result<(), TraceError> {
        if let Some(record) = self.runs[run].next().transpose()? {
            self.heads.push(Reverse((record.at, run)));
            self.records[run] = record;
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        let Reverse((_, run)) = self.heads.pop()?;
        let record = self.records[run];
        Some(self.advance(run).map(|()| record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::Op;

    #[test]
    fn runs_are_merged_in_order_of_time_and_then_of_the_trace() {
        let record = |i: u64| {
            let at = Instant::from_nanos(i * 7_919 % 101);
            Record { at, device: 0, op: Op::Write, offset: i * 512, len: 512 }
        };
        let all: Vec<Record> = (0..1000).map(record).collect();
        let mut expected = all.clone();
        expected.sort_by_key(|r| r.at);
        for most in [1, 7, 500, 999, 1000, 1001] {
            let sorted = runs_of(&mut all.iter().copied().map(Ok), most).expect("there is room");
            assert_eq!(matches!(sorted, Sorted::Merge(_)), most <= 1000, "{most}");
            assert_eq!(sorted.collect::<Result<Vec<_>, _>>().expect("it can be read"), expected, "{most}");
        }
        let long = (0..).map(|i| Ok(record(i)));
        assert!(runs_of(&mut long.take(RUNS_MAX + 1), 1).is_err());
    }
}
