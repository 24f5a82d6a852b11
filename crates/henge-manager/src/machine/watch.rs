//! Whether promises are kept. Nodes judge it from every command they answer; the manager notes when it begins and ends.

use super::Machine;
use henge_api::Status;

impl Machine {
    /// A disk is violated while any of its nodes says so.
    pub(super) fn watch(&mut self, node: &str, status: &Status) {
        for meters in &status.disks {
            let known = self.disks.get(&meters.name).filter(|d| d.parts.iter().any(|p| p.node == node));
            let Some(disk) = known.cloned() else { continue };
            let before = self.is_broken(&disk.name);
            let key = (disk.name.clone(), node.to_owned());
            if meters.violated {
                self.broken.insert(key);
            } else {
                self.broken.remove(&key);
            }
            let (kind, text) = match (before, self.is_broken(&disk.name)) {
                (false, true) => ("violated", "does not receive what it was promised"),
                (true, false) => ("recovered", "receives what it was promised again"),
                _ => continue,
            };
            self.put_event(kind, Some(&disk), Some(node), format!("{text} ({})", disk.spec.describe()));
        }
    }

    /// Whether a disk's promise is broken now, as its nodes say.
    pub fn is_broken(&self, name: &str) -> bool {
        let from = (name.to_owned(), String::new());
        self.broken.range(from..).next().is_some_and(|(disk, _)| disk == name)
    }
}
