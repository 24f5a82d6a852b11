//! Any bytes to every trace reader, plain or packed: no panic, no endless loop, no more requests than the bytes can hold.
//!
//! The first byte chooses a format (or its recognition), whether it is packed, whether damage is passed over, and whether
//! units are odd; the second in what pieces the rest arrives, and which of the other settings are used. What is packed here
//! is cut or damaged by its last two bytes. What was read is written in a format of our own choice and read again: the same.
//!
//! `HENGE_FUZZ_READER=spc` keeps to one reader (`any`: to recognition), so that each can be given minutes of its own.
#![no_main]

use henge_core::{Instant, Op};
use henge_workload::{
    Addressing, Format, Packing, Record, Replay, ReplayOptions, Stats, Trace, TraceOptions, TraceWriter,
};
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};

/// Gives at most so many bytes at a time.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    most: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let end = self.bytes.len().min(self.at + self.most.min(buf.len()));
        let n = end - self.at;
        buf[..n].copy_from_slice(&self.bytes[self.at..end]);
        self.at = end;
        Ok(n)
    }
}

/// Packs `data` and, if its last two bytes say so, cuts it or changes a byte.
fn packed(data: &[u8], zstd: bool) -> Vec<u8> {
    let mut bytes = if zstd {
        zstd::bulk::compress(data, 1).expect("memory can be packed")
    } else {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(data).expect("memory takes all");
        gzip.finish().expect("memory takes all")
    };
    if let [.., place, how] = data {
        let at = usize::from(*place) * bytes.len() / 256;
        match how % 4 {
            0 => bytes.truncate(at.max(4)),
            // Two of them, one after the other.
            1 => bytes.extend_from_within(..),
            2 if at >= 4 => bytes[at] ^= how,
            _ => {}
        }
    }
    bytes
}

/// What is written is read again.
fn round(format: Format, records: &[Record]) {
    let mut writer = TraceWriter::new(format, Vec::new()).expect("memory takes all").expect("it can be written");
    records.iter().for_each(|r| writer.write(r).expect("memory takes all"));
    let left_out = writer.left_out() as usize;
    let bytes = writer.finish().expect("memory takes all");
    if left_out == records.len() && format != Format::Henge {
        return;
    }
    let options = TraceOptions { format: Some(format), ..TraceOptions::default() };
    let trace = Trace::open("again", Box::new(std::io::Cursor::new(bytes)), &options);
    let again: Vec<Record> = trace.and_then(Iterator::collect).expect("what we wrote can be read");
    if left_out == 0 {
        assert_eq!(again, records, "{}", format.name());
    }
    assert_eq!(again.len() + left_out, records.len(), "{}", format.name());
}

/// The reader that all bytes go to, if one is named; `Some(None)` is recognition.
static ONLY: std::sync::LazyLock<Option<Option<Format>>> = std::sync::LazyLock::new(|| {
    let name = std::env::var("HENGE_FUZZ_READER").ok()?;
    let format = Format::by_name(&name);
    assert!(format.is_some() || name == "any", "there are any, {}", Format::names());
    Some(format)
});

fuzz_target!(|data: &[u8]| {
    let [how, pieces, data @ ..] = data else { return };
    let most = usize::from(*pieces) + 1;
    let bytes = if how & 0x20 == 0 { data.to_vec() } else { packed(data, pieces & 1 == 1) };
    let reader = Box::new(Pieces { bytes, at: 0, most });
    let odd = how & 0x80 != 0;
    let options = TraceOptions {
        format: ONLY.unwrap_or_else(|| Format::ALL.get(usize::from(how & 0x1f)).copied()),
        skip_damaged: how & 0x40 != 0,
        time_unit: odd.then_some(u64::MAX / 3),
        offset_unit: odd.then_some(u64::MAX),
        size_unit: odd.then_some(1 << 40),
        event: (pieces & 6 == 6).then_some(b'D'),
        mpiio: pieces & 6 == 4,
    };
    let Ok(mut trace) = Trace::open("fuzz", reader, &options) else { return };
    let mut stats = Stats::default();
    let mut first = Vec::new();
    // What is packed may grow a lot; a hundred thousand requests show all there is to see.
    for record in trace.by_ref().take(100_000).flatten() {
        stats.count(&record);
        if first.len() < 100 {
            first.push(record);
        }
    }
    if trace.packing() == Packing::Plain {
        assert!(stats.requests() <= data.len() as u64, "a request needs at least a byte");
    }
    let _ = (stats.dispersion(), stats.peak_second(), stats.common_sizes(), stats.distinct_starts());
    if !first.is_empty() {
        round(Format::Henge, &first);
        first.retain(|r| matches!(r.op, Op::Read | Op::Write));
        round(if pieces & 1 == 1 { Format::Spc } else { Format::Ssdsim }, &first);
    }
    let records = Box::new(first.into_iter().map(Ok).collect::<Vec<_>>().into_iter());
    let options = ReplayOptions { addressing: Addressing::Wrap, devices: 3, reorder: 8, ..ReplayOptions::default() };
    let mut replay = Replay::new(records, options, 0, 1 << 20, Instant::ZERO);
    while let Ok(Some(record)) = replay.next_record() {
        assert!(record.end() <= 1 << 20, "what is wrapped lies on the disk");
    }
});
