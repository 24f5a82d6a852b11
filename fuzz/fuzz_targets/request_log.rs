//! Any bytes as a log of requests: no panic, and a log that can be read agrees with itself.
#![no_main]

use henge_workload::diff::{Diff, RequestLog};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(log) = RequestLog::read("fuzz", data) else { return };
    let diff = Diff::of(&log, &log, None);
    assert!(diff.agrees() && diff.same_order());
});
