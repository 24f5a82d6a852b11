//! A store that forgets when it is dropped, for tests; and one that crashes on purpose.

use super::{Batch, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// In memory; clones are the same store, as a file opened again is.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    values: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(values.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
    }
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in &batch.changes {
            match value {
                Some(value) => values.insert(key.clone(), value.clone()),
                None => values.remove(key),
            };
        }
        Ok(())
    }
}

/// Fails from the k-th commit on, as if the process had been killed there: before that commit, or right after it, when
/// nobody heard that it succeeded.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    /// Commits that still succeed.
    left: u64,
    /// Whether the fatal one is kept.
    after: bool,
}

impl<S: Store> Faulty<S> {
    /// Dies at commit number `left` (from 0); it is kept if `after`.
    pub fn new(inner: S, left: u64, after: bool) -> Self {
        Faulty { inner, left, after }
    }
}

impl<S: Store> Store for Faulty<S> {
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.load()
    }
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if self.left == 0 {
            if std::mem::take(&mut self.after) {
                self.inner.commit(batch)?;
            }
            return Err(StoreError("killed".into()));
        }
        self.left -= 1;
        self.inner.commit(batch)
    }
}
