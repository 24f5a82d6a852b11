//! Any bytes to every trace reader, plain or packed: no panic, no endless loop, no more requests than the bytes can hold.
//!
//! The first byte chooses a format (or its recognition), whether damage is passed over, and whether units are odd;
//! the second in what pieces the rest arrives.
#![no_main]

use henge_workload::{Format, Packing, Place, Replay, ReplayOptions, Stats, Trace, TraceOptions};
use libfuzzer_sys::fuzz_target;
use std::io::Read;

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

fuzz_target!(|data: &[u8]| {
    let [how, pieces, data @ ..] = data else { return };
    let most = usize::from(*pieces) + 1;
    let reader = Box::new(Pieces { bytes: data.to_vec(), at: 0, most });
    let odd = how & 0x80 != 0;
    let options = TraceOptions {
        format: Format::ALL.get(usize::from(how & 0x1f)).copied(),
        skip_damaged: how & 0x40 != 0,
        time_unit: odd.then_some(u64::MAX / 3),
        offset_unit: odd.then_some(u64::MAX),
        size_unit: odd.then_some(1 << 40),
        ..TraceOptions::default()
    };
    let Ok(mut trace) = Trace::open("fuzz", reader, &options) else { return };
    let mut stats = Stats::default();
    // What is packed may grow a lot; a hundred thousand requests show all there is to see.
    for record in trace.by_ref().take(100_000).flatten() {
        stats.count(&record);
    }
    if trace.packing() == Packing::Plain {
        assert!(stats.requests() <= data.len() as u64, "a request needs at least a byte");
    }
    let _ = (stats.dispersion(), stats.peak_second(), stats.common_sizes(), stats.distinct_starts());
    let records = Box::new(trace.take(1000));
    let options = ReplayOptions { place: Place::Wrap, devices: 3, reorder: 8, ..ReplayOptions::default() };
    let mut replay = Replay::new(records, options, 0, 1 << 20, henge_core::Instant::ZERO);
    while let Ok(Some(record)) = replay.next_record() {
        assert!(record.end() <= 1 << 20, "what is wrapped lies on the disk");
    }
});
