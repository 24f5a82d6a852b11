//! Requests that were traced twice: stacked devices report the same request one after the other.

use crate::Record;
use henge_core::Duration;
use std::collections::BTreeMap;

/// Devices whose last request is remembered; when there are more, all are forgotten.
const DEVICES_MAX: usize = 65_536;

/// Knows a request that repeats its device's previous one within a span of time.
#[derive(Clone, Debug)]
pub struct Dedup {
    span: Duration,
    previous: BTreeMap<u32, Record>,
}

impl Dedup {
    /// Repetitions within `span`.
    pub fn new(span: Duration) -> Self {
        Dedup { span, previous: BTreeMap::new() }
    }

    /// Whether this repeats the previous request of its device; every request is asked about once, in order.
    pub fn repeats(&mut self, record: &Record) -> bool {
        if self.previous.len() >= DEVICES_MAX && !self.previous.contains_key(&record.device) {
            self.previous.clear();
        }
        let before = self.previous.insert(record.device, *record);
        before.is_some_and(|b| {
            (b.op, b.offset, b.len) == (record.op, record.offset, record.len)
                && record.at.since(b.at) <= self.span
        })
    }
}
