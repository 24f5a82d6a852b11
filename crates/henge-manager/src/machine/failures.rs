//! Why disks' creations and changes came to nothing, for callers that wait for them.

use std::collections::VecDeque;

/// Failures kept.
const FAILURES_MAX: usize = 1_000;

/// The latest failures.
#[derive(Default)]
pub(crate) struct Failures {
    /// Disk and reason.
    latest: VecDeque<(String, String)>,
}

impl Failures {
    pub(super) fn add(&mut self, name: &str, why: String) {
        self.latest.push_back((name.to_owned(), why));
        while self.latest.len() > FAILURES_MAX {
            self.latest.pop_front();
        }
    }

    /// Somebody tries anew.
    pub(super) fn forget(&mut self, name: &str) {
        self.latest.retain(|(failed, _)| failed != name);
    }

    /// Why a disk's creation came to nothing.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        self.latest.iter().rev().find(|(failed, _)| failed == name).map(|(_, why)| why.as_str())
    }
}
