//! `record = "FILE"`: one row per I/O request that is over, as a node and the simulator write them, to be looked at or replayed.

use henge_core::{RequestRow, Served};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes gathered before they are written.
const CHUNK: usize = 64 << 10;

pub struct Recorder {
    file: File,
    text: String,
    requests: u64,
}

impl Recorder {
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Recorder { file, text: format!("{}\n", RequestRow::HEADER), requests: 0 })
    }

    pub fn row(&mut self, flow: &str, served: &Served) {
        RequestRow::new(flow, served, 0, self.requests, 1).write(&mut self.text);
        self.requests += 1;
        if self.text.len() >= CHUNK {
            self.flush();
        }
    }

    /// Writes what was gathered. A record that cannot be written stops nobody, but is not silent either.
    pub fn flush(&mut self) {
        if let Err(error) = self.file.write_all(self.text.as_bytes()) {
            tracing::error!(%error, "the record of requests is incomplete");
        }
        self.text.clear();
    }
}
