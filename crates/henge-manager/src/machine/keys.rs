//! Idempotency keys: the same key with the same request gives the same disk.
//!
//! Where there is no room, the oldest goes of whoever has most. So a tenant that makes disks without end has its own keys forgotten, and nobody
//! else's.

use super::{Failure, Journal};
use crate::model::KeyRecord;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Idempotency keys kept.
const KEYS_MAX: usize = 10_000;

/// What requests with keys have made, by `tenant/key`.
#[derive(Default)]
pub(super) struct Keys {
    made: BTreeMap<String, KeyRecord>,
    /// By tenant, the oldest first.
    by_whom: BTreeMap<String, BTreeSet<(u64, String)>>,
}

fn whose(key: &str) -> &str {
    key.split_once('/').map_or("", |(tenant, _)| tenant)
}

impl Keys {
    pub(super) fn restore(&mut self, name: &str, value: &[u8]) -> serde_json::Result<()> {
        self.insert(name.to_owned(), serde_json::from_slice(value)?);
        Ok(())
    }

    fn insert(&mut self, key: String, record: KeyRecord) {
        self.remove(&key);
        self.by_whom.entry(whose(&key).to_owned()).or_default().insert((record.id, key.clone()));
        self.made.insert(key, record);
    }

    fn remove(&mut self, key: &str) {
        let Some(record) = self.made.remove(key) else { return };
        let Some(theirs) = self.by_whom.get_mut(whose(key)) else { return };
        theirs.remove(&(record.id, key.to_owned()));
        if theirs.is_empty() {
            self.by_whom.remove(whose(key));
        }
    }

    /// The disk that a key has made.
    pub(super) fn known(&self, key: &str, hash: &str) -> Result<Option<&str>, Failure> {
        let Some(known) = self.made.get(key) else { return Ok(None) };
        if known.hash != *hash {
            let why = "this idempotency key was used for another request; take a new key".into();
            return Err(Failure::Bad(why));
        }
        Ok(Some(&known.disk))
    }

    pub(super) fn put(&mut self, journal: &mut Journal, key: String, record: KeyRecord) {
        journal.put(format!("key/{key}"), Some(&record));
        self.insert(key, record);
        while self.made.len() > KEYS_MAX {
            let most = self.by_whom.values().max_by_key(|of| (of.len(), Reverse(of.first().cloned())));
            let Some((_, oldest)) = most.and_then(|of| of.first().cloned()) else { return };
            self.remove(&oldest);
            journal.put::<KeyRecord>(format!("key/{oldest}"), None);
        }
    }

    /// Forgets the keys of a tenant that ends.
    pub(super) fn forget_tenant(&mut self, journal: &mut Journal, name: &str) {
        for (_, key) in self.by_whom.remove(name).unwrap_or_default() {
            self.made.remove(&key);
            journal.put::<KeyRecord>(format!("key/{key}"), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_others_keys_forgotten() {
        let (mut keys, mut journal) = (Keys::default(), Journal::new(1));
        let record = |id: u64| KeyRecord { id, hash: "h".into(), disk: format!("d{id}") };
        (1..=9).for_each(|id| keys.put(&mut journal, format!("bob/{id}"), record(id)));
        (10..=20_000).for_each(|id| keys.put(&mut journal, format!("ann/{id}"), record(id)));
        assert!((1..=9).all(|id| keys.known(&format!("bob/{id}"), "h").unwrap().is_some()));
        assert_eq!((keys.made.len(), keys.known("ann/10", "h").unwrap()), (KEYS_MAX, None));
        assert_eq!(keys.known("ann/20000", "h").unwrap(), Some("d20000"));
        // One that is used again, as its disk is gone, is as old as its new disk.
        keys.put(&mut journal, "bob/1".into(), record(30_000));
        assert_eq!((keys.made.len(), keys.by_whom["bob"].len()), (KEYS_MAX, 9));
        keys.forget_tenant(&mut journal, "ann");
        assert_eq!((keys.made.len(), keys.by_whom.len()), (9, 1));
    }
}
