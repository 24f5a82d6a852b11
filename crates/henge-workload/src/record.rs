//! One request of a workload, before anybody has scheduled it.

use henge_core::{Instant, Op};

/// What is asked, and when. Times are nanoseconds since the epoch of whatever produced the record: a trace
/// keeps its own (Unix time, start of the recording, …), a [`Workload`](crate::Workload) uses its driver's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// When the request is meant to be sent.
    pub at: Instant,
    /// Which device, file or volume of the trace it belongs to; generators write 0.
    pub device: u32,
    /// What it does.
    pub op: Op,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Record {
    /// The byte after its last.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}
