//! The store by default: one file, by redb. A batch is one transaction, synced before it is acknowledged.
//!
//! Once a write or a sync has failed, redb believes nothing that it has in memory, and refuses everything. So the file is opened again
//! by whoever needs it next: what is in it then is what was committed, or the batch that failed, as a whole. A file system
//! that was full for a moment costs the changes of that moment, and not the manager.

use super::{Batch, Store, StoreError};
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition, TableError,
};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("henge");

/// Opens the file.
type Open = Box<dyn Fn() -> Result<Database, StoreError> + Send>;

/// A file.
pub struct RedbStore {
    open: Open,
    /// None after an error, until it is opened again.
    database: Option<Database>,
}

impl std::fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbStore").field("database", &self.database).finish_non_exhaustive()
    }
}

fn wrong(e: impl std::fmt::Display) -> StoreError {
    StoreError(e.to_string())
}

impl RedbStore {
    /// Opens it, or makes it. All of it is looked at once: redb panics where it meets a page that it has not written.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let path = PathBuf::from(path);
        let named = |e: &dyn std::fmt::Display| StoreError(format!("{}: {e}", path.display()));
        let damaged = |why: &str| named(&format!("it is damaged{why}; put the last copy of it in its place"));
        let opened = path.clone();
        let begin = move || {
            let open = move || open(&opened).map_err(|e| StoreError(format!("{}: {e}", opened.display())));
            let mut store = Self::begin(Box::new(open))?;
            let whole = store.database.as_mut().map_or(Ok(true), Database::check_integrity);
            Ok((store, whole))
        };
        match std::panic::catch_unwind(begin) {
            Ok(Ok((store, Ok(true)))) => Ok(store),
            Ok(Ok((store, Ok(false)))) => {
                tracing::error!("{}: it was damaged, and is as before its last change", path.display());
                Ok(store)
            }
            Ok(Ok((_, Err(DatabaseError::Storage(StorageError::Corrupted(why)))))) => {
                Err(damaged(&format!(" ({why})")))
            }
            Ok(Ok((_, Err(why)))) => Err(named(&why)),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(damaged("")),
        }
    }

    fn begin(open: Open) -> Result<Self, StoreError> {
        let mut store = RedbStore { open, database: None };
        store.with(|_| Ok(()))?;
        Ok(store)
    }

    /// Does something with the database, which is opened where it is not. After an error it is let go.
    fn with<T>(&mut self, work: impl FnOnce(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => (self.open)()?,
        };
        let outcome = work(&database)?;
        self.database = Some(database);
        Ok(outcome)
    }
}

fn open(path: &Path) -> Result<Database, StoreError> {
    // Hashes of tokens are in it.
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let private = std::fs::Permissions::from_mode(0o600);
    file.and_then(|file| file.set_permissions(private)).map_err(wrong)?;
    with_table(Database::create(path).map_err(wrong)?)
}

/// A new file gets its table. One that has it is not written: it may be full.
fn with_table(database: Database) -> Result<Database, StoreError> {
    let found = database.begin_read().map_err(wrong)?.open_table(TABLE).map(drop);
    match found {
        Ok(()) => return Ok(database),
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(e) => return Err(wrong(e)),
    }
    let transaction = database.begin_write().map_err(wrong)?;
    transaction.open_table(TABLE).map_err(wrong)?;
    transaction.commit().map_err(wrong)?;
    Ok(database)
}

fn load(database: &Database) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let transaction = database.begin_read().map_err(wrong)?;
    let table = transaction.open_table(TABLE).map_err(wrong)?;
    let mut values = Vec::new();
    for entry in table.iter().map_err(wrong)? {
        let (key, value) = entry.map_err(wrong)?;
        values.push((key.value().to_owned(), value.value().to_vec()));
    }
    Ok(values)
}

fn commit(database: &Database, batch: &Batch) -> Result<(), StoreError> {
    let transaction = database.begin_write().map_err(wrong)?;
    {
        let mut table = transaction.open_table(TABLE).map_err(wrong)?;
        for (key, value) in &batch.changes {
            match value {
                Some(value) => table.insert(key.as_str(), value.as_slice()).map_err(wrong)?,
                None => table.remove(key.as_str()).map_err(wrong)?,
            };
        }
    }
    transaction.commit().map_err(wrong)
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.with(load)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.with(|database| commit(database, batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::StorageBackend;
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A file on a file system that takes so many more writes and syncs.
    #[derive(Debug)]
    struct Filling {
        file: File,
        left: Arc<AtomicU64>,
    }

    impl Filling {
        fn take(&self) -> io::Result<()> {
            let less = |left: u64| left.checked_sub(1);
            let took = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            took.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
        }
    }

    impl StorageBackend for Filling {
        fn len(&self) -> io::Result<u64> {
            Ok(self.file.metadata()?.len())
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read_exact_at(out, offset)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.take()?;
            self.file.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.take()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.take()?;
            self.file.write_all_at(data, offset)
        }
    }

    fn batch(round: u64) -> Batch {
        let value = |key: u64| Some(format!("{key} in round {round}").repeat(40).into_bytes());
        Batch { changes: (0..60).map(|key| (format!("disk/{key:02}"), value(key))).collect() }
    }

    /// Full at each write of a batch, one after another: what is there afterwards is all of one batch, and the next is taken.
    #[test]
    fn a_file_that_was_full_takes_changes_again_and_has_no_half_of_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, left) = (dir.path().join("state.redb"), Arc::new(AtomicU64::new(u64::MAX)));
        let of_file = Arc::clone(&left);
        let open: Open = Box::new(move || {
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(false).open(&path);
            let filling = Filling { file: file.map_err(wrong)?, left: Arc::clone(&of_file) };
            with_table(Database::builder().create_with_backend(filling).map_err(wrong)?)
        });
        let mut store = RedbStore::begin(open).unwrap();
        let (mut failed, mut kept) = (0, 0);
        store.commit(&batch(0)).unwrap();
        for room in 0..100 {
            left.store(room, Ordering::Relaxed);
            let outcome = store.commit(&batch(2 * room + 1));
            // While it is full nobody is told anything that may not be there; once there is room, everything is as before.
            let full = store.load();
            left.store(u64::MAX, Ordering::Relaxed);
            let found: BTreeMap<_, _> = store.load().unwrap().into_iter().collect();
            let as_in = |round: u64| -> BTreeMap<_, _> {
                batch(round).changes.into_iter().map(|(key, value)| (key, value.unwrap())).collect()
            };
            let (before, now) = (as_in(2 * room), as_in(2 * room + 1));
            assert!(found == now || outcome.is_err() && found == before, "room for {room}: half a batch");
            assert!(
                full.is_err() || full.is_ok_and(|full| full.into_iter().collect::<BTreeMap<_, _>>() == found)
            );
            failed += u64::from(outcome.is_err());
            kept += u64::from(outcome.is_ok());
            store.commit(&batch(2 * room + 2)).unwrap();
        }
        assert!(failed > 3 && kept > 3, "{failed} failed, {kept} were kept");
    }

    /// Each page in turn is overwritten: the file is refused in words, or has all that it held. redb's own repair may have only what was there
    /// before the last batch.
    #[test]
    fn a_file_with_a_page_of_noise_is_refused_in_words() {
        const PAGE: u64 = 4096;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let mut store = RedbStore::open(&path).unwrap();
        (0..4).for_each(|round| store.commit(&batch(round)).unwrap());
        drop(store);
        let whole = std::fs::read(&path).unwrap();
        let expected = |round: u64| -> Vec<(String, Vec<u8>)> {
            batch(round).changes.into_iter().map(|(key, value)| (key, value.unwrap())).collect()
        };
        let mut refused = 0;
        for at in 0..whole.len() as u64 / PAGE {
            let file = File::options().write(true).truncate(true).open(&path).unwrap();
            file.write_all_at(&whole, 0).unwrap();
            file.write_all_at(&[0xa5; PAGE as usize], at * PAGE).unwrap();
            match RedbStore::open(&path) {
                Ok(mut store) => {
                    let found = store.load().unwrap();
                    assert!(found == expected(3) || found == expected(2), "page {at}");
                }
                Err(e) => {
                    assert!(e.0.starts_with(&path.display().to_string()), "{e}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0);
    }
}
