//! One row per request, as the simulator writes it.

use henge_core::{Duration, RequestRow, Served};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Bytes gathered before they are written.
const CHUNK: usize = 256 << 10;
/// Bits of a gate's number at its shard.
const SHARD: u32 = 16;

pub(crate) struct Recorder {
    file: File,
    text: String,
    /// The first error; a record that cannot be written does not stop the data path, but is not silent either.
    failed: Option<io::Error>,
    /// What its gates' numbers begin with, so that no two shards' are the same.
    first_gate: u32,
}

impl Recorder {
    /// A shard's part of the record. The first shard's begins it; all add whole rows to the same file.
    pub(crate) fn open(path: &Path, shard: usize) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(named)?;
        let mut text = String::with_capacity(CHUNK + 4096);
        if shard == 0 {
            file.set_len(0).map_err(named)?;
            text.push_str(RequestRow::HEADER);
            text.push('\n');
        }
        let mut recorder = Recorder { file, text, failed: None, first_gate: (shard << SHARD) as u32 };
        if shard == 0 {
            // Before any row of another shard.
            recorder.write();
        }
        Ok(recorder)
    }

    pub(crate) fn row(&mut self, flow: &str, served: &Served, gate: u32, seq: u64, parts: u32) {
        RequestRow::new(flow, served, self.first_gate | gate, seq, parts).write(&mut self.text);
        if self.text.len() >= CHUNK {
            self.write();
        }
    }

    /// How late an emulated device's completions were: whoever compares this run with a simulation must know.
    pub(crate) fn lateness(&mut self, p99: Duration) {
        let _ = writeln!(self.text, "# lateness_p99_ns={}", p99.as_nanos());
    }

    fn write(&mut self) {
        let written = self.file.write_all(self.text.as_bytes());
        self.text.clear();
        if let Err(e) = written {
            self.failed.get_or_insert(e);
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write();
        self.failed.take().map_or(Ok(()), Err)
    }
}
