//! Idempotency keys: the same key with the same request gives the same disk.

use super::{Failure, Journal};
use crate::model::KeyRecord;
use std::collections::BTreeMap;

/// Idempotency keys kept.
const KEYS_MAX: usize = 10_000;

/// What requests with keys have made, by `tenant/key`.
#[derive(Default)]
pub(super) struct Keys {
    made: BTreeMap<String, KeyRecord>,
}

impl Keys {
    pub(super) fn restore(&mut self, name: &str, value: &[u8]) -> serde_json::Result<()> {
        self.made.insert(name.to_owned(), serde_json::from_slice(value)?);
        Ok(())
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
        self.made.insert(key, record);
        while self.made.len() > KEYS_MAX {
            let oldest = self.made.iter().min_by_key(|(_, r)| r.id).map(|(k, _)| k.clone());
            let Some(oldest) = oldest else { return };
            self.made.remove(&oldest);
            journal.put::<KeyRecord>(format!("key/{oldest}"), None);
        }
    }

    /// Forgets the keys of a tenant that ends.
    pub(super) fn forget_tenant(&mut self, journal: &mut Journal, name: &str) {
        let keys = self.made.keys().filter(|key| key.split_once('/').is_some_and(|(of, _)| of == name));
        for key in keys.cloned().collect::<Vec<_>>() {
            self.made.remove(&key);
            journal.put::<KeyRecord>(format!("key/{key}"), None);
        }
    }
}
