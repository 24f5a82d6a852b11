//! How many requests a second each text reader reads: `cargo run --release --example parse_speed FILE…`
//!
//! A file is unpacked into memory first, and a text repeated up to 16 MiB, so that reading alone is measured: not
//! unpacking, and not the choice of a format for a file of a thousand lines. It is read until a second has passed.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use henge_workload::{Trace, TraceOptions};
use std::sync::Arc;
use std::time::Instant;

struct Shared(Arc<Vec<u8>>, usize);

impl std::io::Read for Shared {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = (&self.0[self.1..]).read(buf)?;
        self.1 += n;
        Ok(n)
    }
}

fn main() {
    for file in std::env::args().skip(1) {
        let packed = std::fs::read(&file).expect("the file can be read");
        let mut bytes = zstd::decode_all(&packed[..]).unwrap_or(packed);
        let whole = bytes.clone();
        while bytes.len() < 16 << 20 && whole.is_ascii() {
            bytes.extend_from_slice(&whole);
        }
        let bytes = Arc::new(bytes);
        let (mut lines, skip_damaged) = (0, true); // a repeated header is a damaged line
        let (start, mut records, mut format) = (Instant::now(), 0, None);
        while start.elapsed().as_secs_f64() < 1.0 {
            let reader = Box::new(Shared(bytes.clone(), 0));
            let trace = Trace::open(&file, reader, &TraceOptions { skip_damaged, ..TraceOptions::default() })
                .expect("a trace");
            format = Some(trace.format());
            lines += memchr::memchr_iter(b'\n', &bytes).count();
            records +=
                trace.map(|r| r.expect("no damage").len).fold(0u64, |n, len| n + u64::from(len < u64::MAX));
        }
        let rate = records as f64 / start.elapsed().as_secs_f64();
        let name = format.map_or("", |f| f.name());
        let lines = lines as f64 / start.elapsed().as_secs_f64();
        println!("{name:10} {:6.2} M requests/s {:6.2} M lines/s  {file}", rate / 1e6, lines / 1e6);
    }
}
