//! Where the manager's state stays: keys and values, changed by batches of which all or none are seen afterwards.
//!
//! | key | value (JSON) |
//! |---|---|
//! | `disk/NAME`, `node/NAME`, `token/ID`, `tenant/NAME` | the record |
//! | `event/NUMBER` | what happened |
//! | `key/TENANT/KEY` | what an idempotency key made |
//! | `authority/roots`, `invitation/ID`, `certificate/SERIAL` | the record |
//! | `meta/revision` | the last revision given |

mod etcd;
mod memory;
#[cfg(test)]
mod ports;
mod redb;
#[cfg(test)]
pub(crate) mod suite;

pub use self::etcd::{EtcdConfig, EtcdStore, Login, Tls};
pub(crate) use self::etcd::{certificates, private_key};
pub use self::memory::{Faulty, MemoryStore};
pub use self::redb::RedbStore;

/// Changes that belong together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// In order: a key, and its value from now on, or none.
    pub changes: Vec<(String, Option<Vec<u8>>)>,
}

impl Batch {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// It was not stored, or nobody knows.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Who decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leadership {
    /// This manager.
    Ours,
    /// Another one, at this address, if it said so.
    Theirs(Option<String>),
}

/// Keeps batches.
pub trait Store: Send {
    /// Everything, in the order of the keys. For who leads; another one is told that it does not.
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError>;
    /// Keeps a batch: when this returns `Ok`, all of it survives a crash at any instruction; after an error or a crash
    /// either all of it is there or nothing.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;
    /// Who decides now. Called every second; a store for one manager has nobody else. Between two terms of one manager it says
    /// at least once that another decides.
    fn leadership(&mut self) -> Leadership {
        Leadership::Ours
    }
    /// Most bytes that one value may have.
    fn value_max(&self) -> usize {
        usize::MAX
    }
    /// Whether this manager can still be the one that decides, without asking anybody: its lease has not run out.
    fn leads(&self) -> bool {
        true
    }
}

impl Store for Box<dyn Store> {
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        (**self).load()
    }
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        (**self).commit(batch)
    }
    fn leadership(&mut self) -> Leadership {
        (**self).leadership()
    }
    fn value_max(&self) -> usize {
        (**self).value_max()
    }
    fn leads(&self) -> bool {
        (**self).leads()
    }
}
