//! Why disks' creations and changes came to nothing, for callers that wait for them; and what nodes said of it, which is told once.

use std::collections::{BTreeMap, VecDeque};

/// Failures kept.
const FAILURES_MAX: usize = 1_000;

/// The latest failures.
#[derive(Default)]
pub(crate) struct Failures {
    /// Disk and reason.
    latest: VecDeque<(String, String)>,
    /// What was told last of a disk, by disk and node. Nodes are reminded every few seconds, and then say the same again.
    told: BTreeMap<(String, String), String>,
}

impl Failures {
    pub(super) fn add(&mut self, name: &str, why: String) {
        self.latest.push_back((name.to_owned(), why));
        while self.latest.len() > FAILURES_MAX {
            self.latest.pop_front();
        }
    }

    /// Somebody tries anew, or the disk is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.latest.retain(|(failed, _)| failed != name);
        self.told.retain(|(disk, _), _| disk != name);
    }

    /// Whether this is news of a disk at a node.
    pub(super) fn is_news(&mut self, name: &str, node: &str, why: &str) -> bool {
        let before = self.told.insert((name.to_owned(), node.to_owned()), why.to_owned());
        before.as_deref() != Some(why)
    }

    /// The node did what it was told: what it fails at later is news.
    pub(super) fn is_over(&mut self, name: &str, node: &str) {
        self.told.remove(&(name.to_owned(), node.to_owned()));
    }

    /// Of a node, what concerns disks that nobody has is forgotten.
    pub(super) fn keep_of(&mut self, node: &str, has: impl Fn(&str) -> bool) {
        self.told.retain(|(disk, at), _| at != node || has(disk));
    }

    /// Why a disk's creation came to nothing.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        self.latest.iter().rev().find(|(failed, _)| failed == name).map(|(_, why)| why.as_str())
    }
}
