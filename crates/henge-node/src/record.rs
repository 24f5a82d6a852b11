//! One row per request, as the simulator writes it.

use henge_core::{Duration, RequestRow, Served};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes gathered before they are written.
const CHUNK: usize = 256 << 10;

pub(crate) struct Recorder {
    file: File,
    text: String,
    /// The first error; a record that cannot be written does not stop the data path, but is not silent either.
    failed: Option<io::Error>,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = File::create(path).map_err(named)?;
        let mut text = String::with_capacity(CHUNK + 4096);
        text.push_str(RequestRow::HEADER);
        text.push('\n');
        Ok(Recorder { file, text, failed: None })
    }

    pub(crate) fn row(&mut self, flow: &str, served: &Served, gate: u32, seq: u64, parts: u32) {
        RequestRow::new(flow, served, gate, seq, parts).write(&mut self.text);
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
