//! Whether promises are kept. Nodes judge it from every command they answer; the manager notes when it begins and ends.

use super::{Inventory, Journal};
use henge_api::Status;
use std::collections::BTreeSet;

/// Disks whose promise is broken, each with the node that says so.
#[derive(Default)]
pub(super) struct Broken(BTreeSet<(String, String)>);

impl Broken {
    fn says(&mut self, disk: &str, node: &str, violated: bool) {
        let key = (disk.to_owned(), node.to_owned());
        if violated {
            self.0.insert(key);
        } else {
            self.0.remove(&key);
        }
    }

    /// A disk is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.retain(|(disk, _)| disk != name);
    }
}

impl Inventory {
    /// A disk is violated while any of its nodes says so.
    pub(super) fn watch(&mut self, journal: &mut Journal, node: &str, status: &Status) {
        for meters in &status.disks {
            let known = self.disks.get(&meters.name).filter(|d| d.parts.iter().any(|p| p.node == node));
            let Some(disk) = known.cloned() else { continue };
            let before = self.is_broken(&disk.name);
            self.broken.says(&disk.name, node, meters.violated);
            let (kind, text) = match (before, self.is_broken(&disk.name)) {
                (false, true) => ("violated", "does not receive what it was promised"),
                (true, false) => ("recovered", "receives what it was promised again"),
                _ => continue,
            };
            journal.put_event(kind, Some(&disk), Some(node), format!("{text} ({})", disk.spec.describe()));
        }
    }

    /// Whether a disk's promise is broken now, as its nodes say.
    pub(crate) fn is_broken(&self, name: &str) -> bool {
        let from = (name.to_owned(), String::new());
        self.broken.0.range(from..).next().is_some_and(|(disk, _)| disk == name)
    }
}
