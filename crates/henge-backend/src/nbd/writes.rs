//! Writes that the server has: no two of the same bytes at once.
//!
//! A write that meets one of some of the same bytes waits behind it, and is not looked at before that one is over. So however many writes of one
//! place a client sends, a command that comes or is answered looks at few of them.
//!
//! Those that the server has do not overlap. So of them only the last that begins before a write ends may meet it: one search of a tree.

use henge_core::RequestId;
use std::collections::BTreeMap;
use std::ops::Range;

/// A write that the server has.
struct Begun {
    end: u64,
    behind: Vec<RequestId>,
}

/// Writes that the server has, by their first bytes.
#[derive(Default)]
pub(crate) struct Writes {
    begun: BTreeMap<u64, Begun>,
}

impl Writes {
    /// Whether a write waits behind another one.
    pub(crate) fn waits(&mut self, id: RequestId, bytes: Range<u64>) -> bool {
        let last = self.begun.range_mut(..bytes.end).next_back();
        match last.filter(|(_, begun)| begun.end > bytes.start) {
            Some((_, begun)) => {
                begun.behind.push(id);
                true
            }
            None => false,
        }
    }

    /// The server has one that waits behind none.
    pub(crate) fn begin(&mut self, bytes: Range<u64>) {
        self.begun.insert(bytes.start, Begun { end: bytes.end, behind: Vec::new() });
    }

    /// One is over: those behind it, in the order in which they came.
    pub(crate) fn over(&mut self, bytes: &Range<u64>) -> Vec<RequestId> {
        self.begun.remove(&bytes.start).map_or_else(Vec::new, |begun| begun.behind)
    }
}
