//! What hosts find by discovery, by the places of its entries in the log.
//!
//! Anybody may read the log, a piece of it at a time. So a piece costs as much as its entries, however many subsystems there are: what is
//! for everybody, and what is for each host that subsystems name, are listed once for each change.

use crate::subsystem::{Subsystem, SubsystemId};
use std::collections::BTreeMap;

/// Subsystems in the order of their entries.
#[derive(Debug, Default)]
struct List {
    /// Each, and which entry is its first.
    subsystems: Vec<(SubsystemId, u64)>,
    /// Entries in all.
    entries: u64,
}

/// Who finds what.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    open: List,
    by_host: BTreeMap<String, List>,
}

impl List {
    fn push(&mut self, id: SubsystemId, entries: u64) {
        // A host may be named twice.
        if self.subsystems.last().is_none_or(|(last, _)| *last != id) {
            self.subsystems.push((id, self.entries));
            self.entries += entries;
        }
    }

    /// The entry of this number: whose it is, and the how manyth of its own.
    fn entry(&self, number: u64) -> Option<(SubsystemId, usize)> {
        if number >= self.entries {
            return None;
        }
        let next = self.subsystems.partition_point(|(_, first)| *first <= number);
        let (id, first) = self.subsystems[next.checked_sub(1)?];
        Some((id, (number - first) as usize))
    }
}

impl Directory {
    /// Of these. One that asks for a secret is shown to hosts that it names, and to no others, as nobody proves here who he is.
    pub fn of<'a>(subsystems: impl Iterator<Item = (SubsystemId, &'a Subsystem)>) -> Directory {
        let mut directory = Directory::default();
        for (id, there) in subsystems {
            let entries = 1 + there.elsewhere.len() as u64;
            if there.access.hosts.is_empty() && there.access.key.is_none() {
                directory.open.push(id, entries);
            }
            for host in &there.access.hosts {
                directory.by_host.entry(host.clone()).or_default().push(id, entries);
            }
        }
        directory
    }

    /// How many entries a host finds.
    pub fn entries(&self, host: &str) -> u64 {
        self.open.entries + self.by_host.get(host).map_or(0, |list| list.entries)
    }

    /// One of them: a subsystem, and which of its entries.
    pub fn entry(&self, host: &str, number: u64) -> Option<(SubsystemId, usize)> {
        match number.checked_sub(self.open.entries) {
            None => self.open.entry(number),
            Some(number) => self.by_host.get(host)?.entry(number),
        }
    }
}
